/* ProfilerEvent: a handle of 32 bytes on an event of a sealed profile, whose fields are read when asked for; or, made in
 * Python, a tuple of values. Immutable, so any thread may read it (with the GIL). */
#include "dataclass.h"
#include "pyenigma.h"

#include <stddef.h>

/* Not collected: values holds plain data only (str, int, float, tuples, lists and dicts of them, made here). */
typedef struct Event {
    PyObject_HEAD
    Snapshot *snapshot; /* NULL: made in Python */
    union {
        size_t index;     /* in the snapshot */
        PyObject *values; /* a tuple: the fields in order, then the runtime's own parents in node_path */
    };
} Event;

/* ---- The fields ---- */

/* One list: XX(name, annotation, default literal or NULL, how it is checked when given). The reference's come first. */
#define EVENT_FIELDS(XX)                                                                                               \
    XX(name, "str", NULL, take_str)                                                                                    \
    XX(category, "str", NULL, take_str)                                                                                \
    XX(start_ns, "int", NULL, take_int)                                                                                \
    XX(end_ns, "int", NULL, take_int)                                                                                  \
    XX(kernel_name, "str | None", "None", take_optional_str)                                                           \
    XX(grid, "tuple[int, int, int] | None", "None", take_sizes)                                                        \
    XX(threads, "tuple[int, int, int] | None", "None", take_sizes)                                                     \
    XX(input_bytes, "int", "0", take_int)                                                                              \
    XX(output_bytes, "int", "0", take_int)                                                                             \
    XX(buffer_count, "int", "0", take_int)                                                                             \
    XX(gpu_time_us, "float", "0.0", take_float)                                                                        \
    XX(call_path, "tuple[str, ...]", "()", take_path)                                                                  \
    XX(metrics, "dict[str, float]", "{}", take_metrics)                                                                \
    XX(metadata, "dict[str, object]", "{}", take_metadata)                                                             \
    XX(thread_id, "int", "0", take_int)                                                                                \
    XX(queue_id, "int", "0", take_int)                                                                                 \
    XX(device_id, "int", "0", take_int)                                                                                \
    XX(self_us, "float", "0.0", take_float)                                                                            \
    XX(gpu_start_ns, "int", "0", take_int)                                                                             \
    XX(gpu_end_ns, "int", "0", take_int)

enum event_field {
#define XX(name, annotation, default_value, take) FIELD_##name,
    EVENT_FIELDS(XX)
#undef XX
        FIELD_COUNT
};

static const py_dataclass_field event_fields[] = {
#define XX(name, annotation, default_value, take) {#name, annotation, default_value},
    EVENT_FIELDS(XX)
#undef XX
        {NULL, NULL, NULL}};

/* ---- Reading a recorded event ---- */

static int read_event(const Event *self, enigma_event *out)
{
    *out = (enigma_event){.struct_size = sizeof(*out)};
    return py_check(enigma_profile_event(self->snapshot->profile, self->index, out));
}

static PyObject *sizes_tuple(enigma_size3 size)
{
    if (size.x == 0 && size.y == 0 && size.z == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(KKK)", (unsigned long long)size.x, (unsigned long long)size.y, (unsigned long long)size.z);
}

/* The names of a node from level first to before last (SIZE_MAX: its depth). */
static PyObject *path_tuple(const enigma_profile *profile, enigma_path path, size_t first, size_t last)
{
    size_t depth = enigma_profile_path_depth(profile, path);
    size_t end = last < depth ? last : depth;
    enigma_text *names = PyMem_New(enigma_text, depth + 1);
    if (names == NULL) {
        return PyErr_NoMemory();
    }
    enigma_profile_path_names(profile, path, names, depth);
    PyObject *tuple = PyTuple_New(end > first ? (Py_ssize_t)(end - first) : 0);
    for (size_t i = first; tuple != NULL && i < end; i++) {
        PyObject *name = py_str(names[i]);
        if (name == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)(i - first), name);
    }
    PyMem_Free(names);
    return tuple;
}

static PyObject *recorded_call_path(const enigma_profile *profile, const enigma_event *event)
{
    return path_tuple(profile, event->path, 0, enigma_profile_call_depth(profile, event->path));
}

/* Between the call path and the event's own label. */
static PyObject *recorded_parents(const enigma_profile *profile, const enigma_event *event)
{
    size_t depth = enigma_profile_path_depth(profile, event->path);
    size_t call_depth = enigma_profile_call_depth(profile, event->path);
    return path_tuple(profile, event->path, call_depth, depth > call_depth ? depth - 1 : call_depth);
}

/* Metrics and metadata are lent until this thread reads its next event, which a finalizer run by the collector might do
 * (before 3.12 any allocation may run it). */
static PyObject *recorded_dict(const enigma_event *event, enum event_field field)
{
#if PY_VERSION_HEX < 0x030C0000
    int collecting = PyGC_Disable();
#endif
    PyObject *dict = field == FIELD_metrics ? py_metrics_dict(event->metrics, event->metric_count)
                                            : py_fields_dict(event->metadata, event->metadata_count);
#if PY_VERSION_HEX < 0x030C0000
    if (collecting) {
        PyGC_Enable();
    }
#endif
    return dict;
}

static PyObject *recorded_field(const Event *self, const enigma_event *event, enum event_field field)
{
    switch (field) {
    case FIELD_name:
        return py_str(event->name);
    case FIELD_category:
        return py_str(event->category);
    case FIELD_start_ns:
        return PyLong_FromUnsignedLongLong(event->start_ns);
    case FIELD_end_ns:
        return PyLong_FromUnsignedLongLong(event->end_ns);
    case FIELD_kernel_name:
        return py_str(event->kernel_name);
    case FIELD_grid:
        return sizes_tuple(event->grid);
    case FIELD_threads:
        return sizes_tuple(event->threads);
    case FIELD_input_bytes:
        return PyLong_FromUnsignedLongLong(event->input_bytes);
    case FIELD_output_bytes:
        return PyLong_FromUnsignedLongLong(event->output_bytes);
    case FIELD_buffer_count:
        return PyLong_FromUnsignedLong(event->buffer_count);
    case FIELD_gpu_time_us:
        return PyFloat_FromDouble(event->gpu_time_us);
    case FIELD_call_path:
        return recorded_call_path(self->snapshot->profile, event);
    case FIELD_metrics:
    case FIELD_metadata:
        return recorded_dict(event, field);
    case FIELD_thread_id:
        return PyLong_FromUnsignedLongLong(event->thread_id);
    case FIELD_queue_id:
        return PyLong_FromUnsignedLong(event->queue_id);
    case FIELD_device_id:
        return PyLong_FromUnsignedLong(event->device_id);
    case FIELD_self_us:
        return PyFloat_FromDouble(event->self_us);
    case FIELD_gpu_start_ns:
        return PyLong_FromUnsignedLongLong(event->gpu_start_ns);
    case FIELD_gpu_end_ns:
        return PyLong_FromUnsignedLongLong(event->gpu_end_ns);
    case FIELD_COUNT:
        break;
    }
    Py_UNREACHABLE();
}

/* ---- Values given in Python: each take_* gives a new reference to plain data ---- */

static PyObject *take_str(PyObject *value, const char *name)
{
    if (!PyUnicode_Check(value)) {
        return PyErr_Format(PyExc_TypeError, "%s must be a str, not %.200s", name, Py_TYPE(value)->tp_name);
    }
    return PyUnicode_FromObject(value);
}

static PyObject *take_optional_str(PyObject *value, const char *name)
{
    return value == Py_None ? Py_NewRef(value) : take_str(value, name);
}

static PyObject *take_int(PyObject *value, const char *name)
{
    if (!PyIndex_Check(value)) {
        return PyErr_Format(PyExc_TypeError, "%s must be an int, not %.200s", name, Py_TYPE(value)->tp_name);
    }
    PyObject *number = PyNumber_Index(value);
    PyObject *exact = number == NULL ? NULL : PyNumber_Long(number); /* not a subclass, which may hold anything */
    Py_XDECREF(number);
    return exact;
}

static PyObject *take_float(PyObject *value, const char *name)
{
    double number;
    return py_number(value, name, NULL, &number) < 0 ? NULL : PyFloat_FromDouble(number);
}

/* A tuple of what take makes of the items of a tuple or list. */
static PyObject *take_items(PyObject *value, const char *name, PyObject *(*take)(PyObject *, const char *))
{
    if (!PyTuple_Check(value) && !PyList_Check(value)) {
        return PyErr_Format(PyExc_TypeError, "%s must be a tuple, not %.200s", name, Py_TYPE(value)->tp_name);
    }
    PyObject *items = PySequence_Tuple(value), *result = NULL;
    if (items != NULL && (result = PyTuple_New(PyTuple_GET_SIZE(items))) != NULL) {
        for (Py_ssize_t i = 0; result != NULL && i < PyTuple_GET_SIZE(items); i++) {
            PyObject *item = take(PyTuple_GET_ITEM(items, i), name);
            if (item == NULL) {
                Py_CLEAR(result);
            } else {
                PyTuple_SET_ITEM(result, i, item);
            }
        }
    }
    Py_XDECREF(items);
    return result;
}

static PyObject *take_sizes(PyObject *value, const char *name)
{
    if (value == Py_None) {
        return Py_NewRef(value);
    }
    PyObject *sizes = take_items(value, name, take_int);
    if (sizes != NULL && PyTuple_GET_SIZE(sizes) != 3) {
        Py_DECREF(sizes);
        return PyErr_Format(PyExc_ValueError, "%s must be None or a tuple of three ints", name);
    }
    return sizes;
}

static PyObject *take_path(PyObject *value, const char *name) { return take_items(value, name, take_str); }

static PyObject *take_metrics(PyObject *value, const char *name)
{
    if (!PyDict_Check(value)) {
        return PyErr_Format(PyExc_TypeError, "%s must be a dict, not %.200s", name, Py_TYPE(value)->tp_name);
    }
    py_arena arena;
    const enigma_metric *metrics = NULL;
    size_t count = 0;
    py_arena_init(&arena);
    PyObject *dict = py_metrics(&arena, value, &metrics, &count) < 0 ? NULL : py_metrics_dict(metrics, count);
    py_arena_free(&arena);
    return dict;
}

/* Copies by the rules of recorded metadata; used to hand out fresh copies too. */
static PyObject *take_metadata(PyObject *value, const char *name)
{
    if (!PyDict_Check(value)) {
        return PyErr_Format(PyExc_TypeError, "%s must be a dict, not %.200s", name, Py_TYPE(value)->tp_name);
    }
    py_arena arena;
    enigma_value copy;
    py_arena_init(&arena);
    PyObject *dict = py_value(&arena, value, &copy) < 0 ? NULL : py_object(&copy);
    py_arena_free(&arena);
    return dict;
}

/* ---- Fields of either kind ---- */

static PyObject *value_field(const Event *self, enum event_field field)
{
    PyObject *value = PyTuple_GET_ITEM(self->values, (Py_ssize_t)field);
    if (field == FIELD_metrics) {
        return PyDict_Copy(value);
    }
    return field == FIELD_metadata ? take_metadata(value, "metadata") : Py_NewRef(value);
}

static PyObject *event_field_get(PyObject *op, void *closure)
{
    const Event *self = (const Event *)op;
    enum event_field field = (enum event_field)(intptr_t)closure;
    enigma_event event;
    if (self->snapshot == NULL) {
        return value_field(self, field);
    }
    return read_event(self, &event) < 0 ? NULL : recorded_field(self, &event, field);
}

/* All fields in order. */
static PyObject *event_values(const Event *self)
{
    PyObject *values = PyTuple_New(FIELD_COUNT);
    for (int i = 0; values != NULL && i < FIELD_COUNT; i++) {
        PyObject *value = event_field_get((PyObject *)self, (void *)(intptr_t)i);
        if (value == NULL) {
            Py_CLEAR(values);
        } else {
            PyTuple_SET_ITEM(values, i, value);
        }
    }
    return values;
}

/* ---- Properties ---- */

static PyObject *event_duration_us(PyObject *op, void *closure)
{
    (void)closure;
    const Event *self = (const Event *)op;
    enigma_event event;
    if (self->snapshot != NULL) {
        return read_event(self, &event) < 0 ? NULL
                                            : PyFloat_FromDouble((double)(event.end_ns - event.start_ns) / 1000.0);
    }
    PyObject *thousand = PyLong_FromLong(1000);
    PyObject *ns =
        PyNumber_Subtract(PyTuple_GET_ITEM(self->values, FIELD_end_ns), PyTuple_GET_ITEM(self->values, FIELD_start_ns));
    PyObject *us = thousand == NULL || ns == NULL ? NULL : PyNumber_TrueDivide(ns, thousand);
    Py_XDECREF(ns);
    Py_XDECREF(thousand);
    return us;
}

static PyObject *event_label(PyObject *op, void *closure)
{
    (void)closure;
    PyObject *name = event_field_get(op, (void *)(intptr_t)FIELD_name);
    PyObject *kernel = name == NULL ? NULL : event_field_get(op, (void *)(intptr_t)FIELD_kernel_name);
    PyObject *label = NULL;
    if (kernel != NULL) {
        label = kernel == Py_None ? Py_NewRef(name) : PyUnicode_FromFormat("%U:%U", name, kernel);
    }
    Py_XDECREF(kernel);
    Py_XDECREF(name);
    return label;
}

/* A scope is known by its own name at the end of its call path. */
static bool is_scope(const Event *self)
{
    PyObject *path = PyTuple_GET_ITEM(self->values, FIELD_call_path);
    Py_ssize_t depth = PyTuple_GET_SIZE(path);
    return PyTuple_GET_ITEM(self->values, FIELD_kernel_name) == Py_None && depth > 0 &&
           PyUnicode_Compare(PyTuple_GET_ITEM(path, depth - 1), PyTuple_GET_ITEM(self->values, FIELD_name)) == 0;
}

static PyObject *event_node_path(PyObject *op, void *closure)
{
    const Event *self = (const Event *)op;
    enigma_event event;
    if (self->snapshot != NULL) {
        return read_event(self, &event) < 0 ? NULL : path_tuple(self->snapshot->profile, event.path, 0, SIZE_MAX);
    }
    PyObject *path = PyTuple_GET_ITEM(self->values, FIELD_call_path);
    if (is_scope(self)) {
        return Py_NewRef(path);
    }
    PyObject *label = event_label(op, closure);
    PyObject *own = label == NULL ? NULL : PyTuple_Pack(1, label);
    PyObject *above = own == NULL ? NULL : PySequence_Concat(path, PyTuple_GET_ITEM(self->values, FIELD_COUNT));
    PyObject *whole = above == NULL ? NULL : PySequence_Concat(above, own);
    Py_XDECREF(above);
    Py_XDECREF(own);
    Py_XDECREF(label);
    return whole;
}

/* ---- Making ---- */

/* Takes values over, also on failure. */
static PyObject *event_from_values(PyTypeObject *type, PyObject *values)
{
    Event *self = values == NULL ? NULL : (Event *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(values);
        return NULL;
    }
    self->snapshot = NULL;
    self->values = values;
    return (PyObject *)self;
}

/* given holds borrowed references, NULL where a field takes its default; parents a tuple of str. */
static PyObject *take_values(PyObject *const *given, PyObject *parents)
{
    static PyObject *(*const take[])(PyObject *, const char *) = {
#define XX(name, annotation, default_value, take) take,
        EVENT_FIELDS(XX)
#undef XX
    };
    PyObject *defaults = Py_BuildValue("(OidN{})", Py_None, 0, 0.0, PyTuple_New(0));
    PyObject *values = defaults == NULL ? NULL : PyTuple_New(FIELD_COUNT + 1);
    for (int i = 0; values != NULL && i < FIELD_COUNT; i++) {
        PyObject *source = given[i];
        if (source == NULL) { /* by its literal: N(one), 0, 0.0, (), {} */
            const char *literal = event_fields[i].default_value;
            int which = literal[0] == 'N'   ? 0
                        : literal[0] == '(' ? 3
                        : literal[0] == '{' ? 4
                        : literal[1] == '.' ? 2
                                            : 1;
            source = PyTuple_GET_ITEM(defaults, which);
        }
        PyObject *value = take[i](source, event_fields[i].name);
        if (value == NULL) {
            Py_CLEAR(values);
        } else {
            PyTuple_SET_ITEM(values, i, value);
        }
    }
    if (values != NULL) {
        PyTuple_SET_ITEM(values, FIELD_COUNT, Py_NewRef(parents));
    }
    Py_XDECREF(defaults);
    return values;
}

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
#define XX(name, annotation, default_value, take) #name,
    static const char *const keywords[] = {EVENT_FIELDS(XX) NULL};
#undef XX
    PyObject *given[FIELD_COUNT] = {NULL};
#define XX(name, annotation, default_value, take) &given[FIELD_##name],
    int ok = PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|OOOOOOOOOOOOOOOO:ProfilerEvent", (char **)keywords,
                                         EVENT_FIELDS(XX) NULL);
#undef XX
    if (!ok) {
        return NULL;
    }
    PyObject *parents = PyTuple_New(0);
    PyObject *values = parents == NULL ? NULL : take_values(given, parents);
    Py_XDECREF(parents);
    return event_from_values(type, values);
}

/* _event(values, parents): what a pickle calls. */
static PyObject *event_restore(PyObject *module, PyObject *args)
{
    PyObject *values, *parents;
    if (!PyArg_ParseTuple(args, "O!O!:_event", &PyTuple_Type, &values, &PyTuple_Type, &parents)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(values) != FIELD_COUNT) {
        PyErr_Format(PyExc_ValueError, "a ProfilerEvent has %d fields, not %zd", FIELD_COUNT, PyTuple_GET_SIZE(values));
        return NULL;
    }
    PyObject *given[FIELD_COUNT];
    for (int i = 0; i < FIELD_COUNT; i++) {
        given[i] = PyTuple_GET_ITEM(values, i);
    }
    PyObject *checked = take_path(parents, "parents");
    PyObject *taken = checked == NULL ? NULL : take_values(given, checked);
    Py_XDECREF(checked);
    return event_from_values(py_state_of(module)->event_type, taken);
}

/* A handle on event number index. */
static PyObject *event_handle(PyTypeObject *type, Snapshot *snapshot, size_t index)
{
    Event *event = PyObject_New(Event, type);
    if (event == NULL) {
        return NULL;
    }
    event->snapshot = (Snapshot *)Py_NewRef((PyObject *)snapshot);
    event->index = index;
    return (PyObject *)event;
}

PyObject *py_profiler_events(PyObject *op, PyObject *unused)
{
    (void)unused;
    Profiler *profiler = (Profiler *)op;
    Snapshot *snapshot = py_profiler_snapshot(profiler);
    if (snapshot == NULL) {
        return NULL;
    }
    size_t count = enigma_profile_event_count(snapshot->profile);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *event = event_handle(profiler->state->event_type, snapshot, i);
        if (event == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, event);
    }
    Py_DECREF(snapshot);
    return list;
}

/* ---- One by one ---- */

/* Not collected: a snapshot refers to no object. */
typedef struct EventIterator {
    PyObject_HEAD
    Snapshot *snapshot;
    PyTypeObject *event_type; /* held */
    size_t next, count;
} EventIterator;

PyObject *py_profiler_iter_events(PyObject *op, PyObject *unused)
{
    (void)unused;
    const py_state *state = ((Profiler *)op)->state;
    Snapshot *snapshot = py_profiler_snapshot((Profiler *)op);
    EventIterator *self = snapshot == NULL ? NULL : PyObject_New(EventIterator, state->event_iterator_type);
    if (self == NULL) {
        Py_XDECREF(snapshot);
        return NULL;
    }
    self->snapshot = snapshot;
    self->event_type = (PyTypeObject *)Py_NewRef((PyObject *)state->event_type);
    self->next = 0;
    self->count = enigma_profile_event_count(snapshot->profile);
    return (PyObject *)self;
}

static PyObject *iterator_next(PyObject *op)
{
    EventIterator *self = (EventIterator *)op;
    if (self->next == self->count) {
        return NULL;
    }
    PyObject *event = event_handle(self->event_type, self->snapshot, self->next);
    self->next += event != NULL;
    return event;
}

static PyObject *iterator_length_hint(PyObject *op, PyObject *unused)
{
    (void)unused;
    const EventIterator *self = (const EventIterator *)op;
    return PyLong_FromSize_t(self->count - self->next);
}

static void iterator_dealloc(PyObject *op)
{
    EventIterator *self = (EventIterator *)op;
    PyTypeObject *type = Py_TYPE(op);
    Py_DECREF(self->snapshot);
    Py_DECREF(self->event_type);
    PyObject_Free(op);
    Py_DECREF(type);
}

static PyMethodDef iterator_methods[] = {{"__length_hint__", iterator_length_hint, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot iterator_slots[] = {{Py_tp_dealloc, iterator_dealloc},
                                       {Py_tp_iter, PyObject_SelfIter},
                                       {Py_tp_iternext, iterator_next},
                                       {Py_tp_methods, iterator_methods},
                                       {0, NULL}};

PyType_Spec py_event_iterator_spec = {
    .name = "enigma._EventIterator",
    .basicsize = sizeof(EventIterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = iterator_slots,
};

static void event_dealloc(PyObject *op)
{
    Event *self = (Event *)op;
    PyTypeObject *type = Py_TYPE(op);
    if (self->snapshot != NULL) {
        Py_DECREF(self->snapshot);
    } else {
        Py_XDECREF(self->values);
    }
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- Comparing, printing, copying ---- */

static PyObject *event_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    const Event *left = (const Event *)a, *right = (const Event *)b;
    if (left == right || (left->snapshot != NULL && left->snapshot == right->snapshot && left->index == right->index)) {
        return PyBool_FromLong(op == Py_EQ);
    }
    PyObject *one = event_values(left), *other = one == NULL ? NULL : event_values(right);
    PyObject *result = other == NULL ? NULL : PyObject_RichCompare(one, other, op);
    Py_XDECREF(other);
    Py_XDECREF(one);
    return result;
}

/* Over fields that cannot be unhashable: equal events have equal hashes. */
static Py_hash_t event_hash(PyObject *op)
{
    static const enum event_field hashed[] = {FIELD_name, FIELD_kernel_name, FIELD_start_ns, FIELD_end_ns,
                                              FIELD_thread_id};
    Py_uhash_t hash = 0x345678;
    for (size_t i = 0; i < sizeof(hashed) / sizeof(hashed[0]); i++) {
        PyObject *value = event_field_get(op, (void *)(intptr_t)hashed[i]);
        Py_hash_t one = value == NULL ? -1 : PyObject_Hash(value);
        Py_XDECREF(value);
        if (one == -1) {
            return -1;
        }
        hash = (hash ^ (Py_uhash_t)one) * 1000003u;
    }
    return hash == (Py_uhash_t)-1 ? -2 : (Py_hash_t)hash;
}

static PyObject *event_repr(PyObject *op)
{
    PyObject *names = PyTuple_New(FIELD_COUNT), *values = NULL, *repr = NULL;
    for (int i = 0; names != NULL && i < FIELD_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(event_fields[i].name);
        if (name == NULL) {
            Py_CLEAR(names);
        } else {
            PyTuple_SET_ITEM(names, i, name);
        }
    }
    if (names != NULL && (values = event_values((Event *)op)) != NULL) {
        repr = py_dataclass_repr("ProfilerEvent", names, values);
    }
    Py_XDECREF(values);
    Py_XDECREF(names);
    return repr;
}

static PyObject *event_parents(const Event *self)
{
    enigma_event event;
    if (self->snapshot == NULL) {
        return Py_NewRef(PyTuple_GET_ITEM(self->values, FIELD_COUNT));
    }
    return read_event(self, &event) < 0 ? NULL : recorded_parents(self->snapshot->profile, &event);
}

static PyObject *event_reduce(PyObject *op, PyObject *unused)
{
    (void)unused;
    PyObject *module = PyType_GetModule(Py_TYPE(op));
    PyObject *restore = module == NULL ? NULL : PyObject_GetAttrString(module, "_event");
    PyObject *values = restore == NULL ? NULL : event_values((Event *)op);
    PyObject *parents = values == NULL ? NULL : event_parents((Event *)op);
    PyObject *result = parents == NULL ? NULL : Py_BuildValue("(O(OO))", restore, values, parents);
    Py_XDECREF(parents);
    Py_XDECREF(values);
    Py_XDECREF(restore);
    return result;
}

static PyObject *event_copy(PyObject *op, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(op);
}

static PyObject *event_replace(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return py_dataclass_replace(op, args, kwargs, event_fields);
}

/* ---- The type ---- */

static PyMethodDef event_methods[] = {
    {"__reduce__", event_reduce, METH_NOARGS, NULL},
    {"__copy__", event_copy, METH_NOARGS, NULL},
    {"__deepcopy__", event_copy, METH_O, NULL},
    {"__replace__", (PyCFunction)(void (*)(void))event_replace, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};

#define GET(name, doc)                                                                                                 \
    {                                                                                                                  \
#name, event_field_get, NULL, doc, (void *)(intptr_t)FIELD_##name                                              \
    }
static PyGetSetDef event_getset[] = {
    GET(name, "str: what was timed; \"gpu_dispatch\" for a kernel launch."),
    GET(category,
        "str: \"scope\", \"python\", \"runtime\", or the backend of a dispatch (\"opencl\", \"cuda\", \"metal\")."),
    GET(start_ns, "int: start on the monotonic host clock, in ns."),
    GET(end_ns, "int: end on the monotonic host clock, in ns."),
    GET(kernel_name, "str | None: the kernel that was dispatched."),
    GET(grid, "tuple[int, int, int] | None: threads launched in all."),
    GET(threads, "tuple[int, int, int] | None: threads of one group."),
    GET(input_bytes, "int: bytes of input buffers; 0 unless profile_memory was on."),
    GET(output_bytes, "int: bytes of output buffers; 0 unless profile_memory was on."),
    GET(buffer_count, "int: number of device buffers involved."),
    GET(gpu_time_us, "float: device time in us from device stamps; for scopes the sum over the work launched inside."),
    GET(call_path, "tuple[str, ...]: the user's open scopes, root first; a scope's own event includes its name."),
    GET(metrics, "dict[str, float]: semantic work counts; a fresh dict each time."),
    GET(metadata, "dict: facts about the event; a fresh dict each time."),
    GET(thread_id, "int: the system's number of the thread it belongs to."),
    GET(queue_id, "int: the queue of its runtime."),
    GET(device_id, "int: the device of its runtime."),
    GET(self_us, "float: duration less that of its direct children, in us."),
    GET(gpu_start_ns, "int: device start on the host clock, in ns; 0 when not valid."),
    GET(gpu_end_ns, "int: device end on the host clock, in ns; 0 when not valid."),
    {"duration_us", event_duration_us, NULL, "float: end_ns - start_ns, in us.", NULL},
    {"label", event_label, NULL, "str: name, or \"name:kernel_name\".", NULL},
    {"node_path", event_node_path, NULL, "tuple[str, ...]: the full path in the call tree, this node included.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
#undef GET

PyDoc_STRVAR(
    event_doc,
    "ProfilerEvent(name, category, start_ns, end_ns, kernel_name=None, grid=None, threads=None, input_bytes=0, "
    "output_bytes=0, buffer_count=0, gpu_time_us=0.0, call_path=(), metrics={}, metadata={}, thread_id=0, "
    "queue_id=0, device_id=0, self_us=0.0, gpu_start_ns=0, gpu_end_ns=0)\n--\n\n"
    "One timed event; a frozen dataclass. Times in ns are on the monotonic host clock.\n\n"
    "Events of a profiler are handles: their fields are read from the profile when asked for. An event made by\n"
    "hand copies what it is given. Assigning to a field raises dataclasses.FrozenInstanceError.");

static PyType_Slot event_slots[] = {{Py_tp_doc, (void *)event_doc},
                                    {Py_tp_new, event_new},
                                    {Py_tp_dealloc, event_dealloc},
                                    {Py_tp_methods, event_methods},
                                    {Py_tp_getset, event_getset},
                                    {Py_tp_setattro, py_frozen_setattr},
                                    {Py_tp_richcompare, event_richcompare},
                                    {Py_tp_hash, event_hash},
                                    {Py_tp_repr, event_repr},
                                    {0, NULL}};

PyType_Spec py_event_spec = {"enigma.ProfilerEvent", sizeof(Event), 0, Py_TPFLAGS_DEFAULT, event_slots};

static PyMethodDef event_functions[] = {{"_event", event_restore, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static int event_exec(PyObject *module, py_state *state)
{
    (void)module;
    return py_dataclass_finish(state->event_type, "ProfilerEvent", event_fields);
}

const py_part py_event_part = {event_functions, event_exec, NULL};
