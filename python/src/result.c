/* ProfilerResult and ProfilerRow: immutable views of an enigma_result, and the methods of Profiler that aggregate. Rows
 * keep their result alive. Any thread, with the GIL. */
#include "result.h"

#include "dataclass.h"

#include <pthread.h>
#include <string.h>

typedef struct Result {
    PyObject_HEAD
    enigma_result *result;
    py_state *state;
} Result;

typedef struct Row {
    PyObject_HEAD
    Result *result;
    const enigma_row *row;
} Row;

/* ---- Text ---- */

int py_text_sink_write(void *user, const void *data, size_t size)
{
    py_text_sink *sink = user;
    if (size > sink->capacity - sink->size) {
        size_t capacity = sink->capacity < 4096 ? 4096 : sink->capacity * 2;
        if (capacity < sink->size + size) {
            capacity = sink->size + size;
        }
        char *grown = PyMem_RawRealloc(sink->data, capacity);
        if (grown == NULL) {
            sink->failed = true;
            return 1;
        }
        sink->data = grown;
        sink->capacity = capacity;
    }
    memcpy(sink->data + sink->size, data, size);
    sink->size += size;
    return 0;
}

PyObject *py_text_sink_finish(py_text_sink *sink, enigma_status status)
{
    PyObject *text = NULL;
    if (sink->failed) {
        PyErr_NoMemory();
    } else if (py_check(status) == 0) {
        text = PyUnicode_DecodeUTF8(sink->size != 0 ? sink->data : "", (Py_ssize_t)sink->size, "replace");
    }
    PyMem_RawFree(sink->data);
    return text;
}

/* ---- Rows ---- */

/* The name to sort by, valid as long as *owner. What is no str gives a name that no field has, so that the library's own
 * error lists the fields. */
static const char *sort_name(PyObject *sort_by, PyObject **owner)
{
    *owner = NULL;
    if (sort_by == NULL) {
        return "cpu_total_us";
    }
    *owner = PyUnicode_Check(sort_by) ? Py_NewRef(sort_by) : PyUnicode_FromFormat("<%s>", Py_TYPE(sort_by)->tp_name);
    enigma_text text = {NULL, 0};
    PyObject *holder = NULL;
    if (*owner == NULL || py_text(*owner, &text, &holder) < 0) {
        Py_CLEAR(*owner);
        return NULL;
    }
    if (holder != NULL) {
        Py_SETREF(*owner, holder);
    }
    return strlen(text.data) == text.size ? text.data : "<name with a NUL>";
}

static PyObject *row_new(Result *result, const enigma_row *row)
{
    Row *self = PyObject_New(Row, (PyTypeObject *)result->state->row_class);
    if (self == NULL) {
        return NULL;
    }
    self->result = (Result *)Py_NewRef((PyObject *)result);
    self->row = row;
    return (PyObject *)self;
}

static void row_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    Py_DECREF(((Row *)op)->result);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *row_field_get(PyObject *op, void *closure)
{
    const enigma_row_field *field = closure;
    const char *at = (const char *)((Row *)op)->row + field->offset;
    switch (field->kind) {
    case ENIGMA_FIELD_TEXT:
        return py_str(*(const enigma_text *)(const void *)at);
    case ENIGMA_FIELD_UINT:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)(const void *)at);
    case ENIGMA_FIELD_DOUBLE:
        return PyFloat_FromDouble(*(const double *)(const void *)at);
    default:
        break;
    }
    switch (*(const uint32_t *)(const void *)at) {
    case ENIGMA_RATE_GPU:
        return PyUnicode_FromString("gpu");
    case ENIGMA_RATE_CPU:
        return PyUnicode_FromString("cpu");
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *row_metrics(PyObject *op, void *closure)
{
    (void)closure;
    const enigma_row *row = ((Row *)op)->row;
    return py_metrics_dict(row->metrics, row->metric_count);
}

static PyObject *row_call_path(PyObject *op, void *closure)
{
    (void)closure;
    const enigma_row *row = ((Row *)op)->row;
    PyObject *path = PyTuple_New((Py_ssize_t)row->call_path_count);
    for (size_t i = 0; path != NULL && i < row->call_path_count; i++) {
        PyObject *name = py_str(row->call_path[i]);
        if (name == NULL) {
            Py_CLEAR(path);
            break;
        }
        PyTuple_SET_ITEM(path, (Py_ssize_t)i, name);
    }
    return path;
}

static PyObject *row_as_dict(PyObject *op, PyObject *unused)
{
    (void)unused;
    py_state *state = ((Row *)op)->result->state;
    PyObject *dict = PyDict_New();
    for (Py_ssize_t i = 0; dict != NULL && i < PyTuple_GET_SIZE(state->row_names); i++) {
        PyObject *name = PyTuple_GET_ITEM(state->row_names, i);
        PyObject *value = PyObject_GetAttr(op, name);
        if (value == NULL || PyDict_SetItem(dict, name, value) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *row_repr(PyObject *op)
{
    py_state *state = ((Row *)op)->result->state;
    PyObject *dict = row_as_dict(op, NULL);
    PyObject *values = dict == NULL ? NULL : PyDict_Values(dict);
    PyObject *repr = values == NULL ? NULL : py_dataclass_repr("ProfilerRow", state->row_names, values);
    Py_XDECREF(values);
    Py_XDECREF(dict);
    return repr;
}

static PyObject *row_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (((Row *)a)->row == ((Row *)b)->row) {
        return PyBool_FromLong(op == Py_EQ);
    }
    PyObject *left = row_as_dict(a, NULL), *right = left == NULL ? NULL : row_as_dict(b, NULL);
    PyObject *result = right == NULL ? NULL : PyObject_RichCompare(left, right, op);
    Py_XDECREF(right);
    Py_XDECREF(left);
    return result;
}

static Py_hash_t row_hash(PyObject *op)
{
    const enigma_row *row = ((Row *)op)->row;
    PyObject *key = Py_BuildValue("(NNKd)", py_str(row->name), py_str(row->kernel_name), (unsigned long long)row->calls,
                                  row->cpu_total_us);
    Py_hash_t hash = key == NULL ? -1 : PyObject_Hash(key);
    Py_XDECREF(key);
    return hash;
}

/* ---- Results ---- */

PyObject *py_result_new(py_state *state, enigma_result *result)
{
    Result *self = PyObject_New(Result, state->result_type);
    if (self == NULL) {
        enigma_result_free(result);
        return NULL;
    }
    self->result = result;
    self->state = state;
    return (PyObject *)self;
}

static void result_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    enigma_result_free(((Result *)op)->result);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *rows_sorted(Result *self, PyObject *sort_by)
{
    PyObject *owner;
    const char *name = sort_name(sort_by, &owner);
    size_t count = enigma_result_row_count(self->result);
    const enigma_row **rows = name == NULL ? NULL : PyMem_New(const enigma_row *, count + 1);
    if (rows == NULL) {
        Py_XDECREF(owner);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_result_rows(self->result, name, rows, count);
    py_wait_end(&wait);
    PyObject *list = py_check(status) < 0 ? NULL : PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *row = row_new(self, rows[i]);
        if (row == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    PyMem_Free(rows);
    Py_XDECREF(owner);
    return list;
}

/* The keyword-only sort_by of rows() and table(): 0, or -1 with an exception. */
static int parse_sort(PyObject *args, PyObject *kwargs, const char *format, PyObject **out)
{
    static const char *const keywords[] = {"sort_by", NULL};
    *out = NULL;
    return PyArg_ParseTupleAndKeywords(args, kwargs, format, (char **)keywords, out) ? 0 : -1;
}

static PyObject *result_rows(PyObject *op, PyObject *args, PyObject *kwargs)
{
    PyObject *sort_by;
    return parse_sort(args, kwargs, "|$O:rows", &sort_by) < 0 ? NULL : rows_sorted((Result *)op, sort_by);
}

static PyObject *result_by_name(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"name", NULL};
    Result *self = (Result *)op;
    PyObject *name, *owner = NULL;
    enigma_text text;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:by_name", (char **)keywords, &name) ||
        py_text(name, &text, &owner) < 0) {
        return NULL;
    }
    const enigma_row *row = NULL;
    enigma_status status = enigma_result_by_name(self->result, text, &row);
    PyObject *result = NULL;
    if (status == ENIGMA_E_NOT_FOUND) {
        PyErr_SetObject(PyExc_KeyError, name);
    } else if (py_check(status) == 0) {
        result = row_new(self, row);
    }
    Py_XDECREF(owner);
    return result;
}

static PyObject *write_table(Result *self, PyObject *sort_by)
{
    PyObject *owner;
    const char *name = sort_name(sort_by, &owner);
    if (name == NULL) {
        return NULL;
    }
    py_text_sink sink = {NULL, 0, 0, false};
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_result_write_table(self->result, name, py_text_sink_write, &sink);
    py_wait_end(&wait);
    Py_XDECREF(owner);
    return py_text_sink_finish(&sink, status);
}

static PyObject *result_table(PyObject *op, PyObject *args, PyObject *kwargs)
{
    PyObject *sort_by;
    return parse_sort(args, kwargs, "|$O:table", &sort_by) < 0 ? NULL : write_table((Result *)op, sort_by);
}

static PyObject *result_str(PyObject *op) { return write_table((Result *)op, NULL); }

static PyObject *result_to_csv(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"path", NULL};
    PyObject *path;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&:to_csv", (char **)keywords, PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_result_save_csv(((Result *)op)->result, PyBytes_AS_STRING(path));
    py_wait_end(&wait);
    int failed = py_check(status) < 0;
    Py_DECREF(path);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static Py_ssize_t result_length(PyObject *op) { return (Py_ssize_t)enigma_result_row_count(((Result *)op)->result); }

static PyObject *result_iter(PyObject *op)
{
    PyObject *rows = rows_sorted((Result *)op, NULL);
    PyObject *iterator = rows == NULL ? NULL : PyObject_GetIter(rows);
    Py_XDECREF(rows);
    return iterator;
}

static PyObject *result_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<enigma.ProfilerResult of %zd rows>", result_length(op));
}

static PyObject *result_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *left = rows_sorted((Result *)a, NULL), *right = left == NULL ? NULL : rows_sorted((Result *)b, NULL);
    PyObject *result = right == NULL ? NULL : PyObject_RichCompare(left, right, op);
    Py_XDECREF(right);
    Py_XDECREF(left);
    return result;
}

/* copy.copy and copy.deepcopy of what cannot change. */
static PyObject *copy_immutable(PyObject *op, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(op);
}

/* ---- Methods of Profiler ---- */

static int parse_group(PyObject *group_by, enum enigma_group *out)
{
    static const struct {
        const char *name;
        enum enigma_group group;
    } groups[] = {{"name", ENIGMA_GROUP_NAME}, {"call_path", ENIGMA_GROUP_CALL_PATH}};
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (group_by != NULL && PyUnicode_Check(group_by) &&
            PyUnicode_CompareWithASCIIString(group_by, groups[i].name) == 0) {
            *out = groups[i].group;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "group_by must be \"%s\" or \"%s\", not %R", groups[0].name, groups[1].name,
                 group_by);
    return -1;
}

PyObject *py_profiler_key_averages(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"group_by", NULL};
    PyObject *group_by = NULL;
    enum enigma_group group = ENIGMA_GROUP_NAME;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$O:key_averages", (char **)keywords, &group_by) ||
        (group_by != NULL && parse_group(group_by, &group) < 0)) {
        return NULL;
    }
    Profiler *profiler = (Profiler *)op;
    Snapshot *snapshot = py_profiler_snapshot(profiler);
    if (snapshot == NULL) {
        return NULL;
    }
    enigma_result *result = NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_profile_key_averages(snapshot->profile, group, &result);
    py_wait_end(&wait);
    Py_DECREF(snapshot);
    return py_check(status) < 0 ? NULL : py_result_new(profiler->state, result);
}

PyObject *py_profiler_tree(PyObject *op, PyObject *unused)
{
    (void)unused;
    Snapshot *snapshot = py_profiler_snapshot((Profiler *)op);
    if (snapshot == NULL) {
        return NULL;
    }
    py_text_sink sink = {NULL, 0, 0, false};
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_profile_write_tree(snapshot->profile, py_text_sink_write, &sink);
    py_wait_end(&wait);
    Py_DECREF(snapshot);
    return py_text_sink_finish(&sink, status);
}

/* ---- The types ---- */

#define VOID(function) ((PyCFunction)(void (*)(void))(function))

PyDoc_STRVAR(rows_doc, "rows($self, /, *, sort_by=\"cpu_total_us\")\n--\n\n"
                       "The rows as a list of ProfilerRow: numbers descending, text ascending, ties by name.\n\n"
                       "sort_by is any numeric or text field of a row; another raises ValueError that lists them.");
PyDoc_STRVAR(by_name_doc,
             "by_name($self, /, name)\n--\n\n"
             "The ProfilerRow of a name. Where several kernels have it, one row of all their events, whose\n"
             "kernel_name is None. KeyError when there is none.");
PyDoc_STRVAR(table_doc,
             "table($self, /, *, sort_by=\"cpu_total_us\")\n--\n\n"
             "The rows as a text table, times in us; with GFLOP/s and GB/s columns (10^9) when some row has a rate.\n\n"
             "sort_by as in rows().");
PyDoc_STRVAR(to_csv_doc,
             "to_csv($self, /, path)\n--\n\n"
             "Writes the rows as CSV, a line of field names first. The file is written whole or not at all;\n"
             "OSError with the path otherwise.");

static PyMethodDef result_methods[] = {{"rows", VOID(result_rows), METH_VARARGS | METH_KEYWORDS, rows_doc},
                                       {"by_name", VOID(result_by_name), METH_VARARGS | METH_KEYWORDS, by_name_doc},
                                       {"table", VOID(result_table), METH_VARARGS | METH_KEYWORDS, table_doc},
                                       {"to_csv", VOID(result_to_csv), METH_VARARGS | METH_KEYWORDS, to_csv_doc},
                                       {"__copy__", copy_immutable, METH_NOARGS, NULL},
                                       {"__deepcopy__", copy_immutable, METH_O, NULL},
                                       {NULL, NULL, 0, NULL}};

PyDoc_STRVAR(result_doc,
             "Rows aggregated over events; what Profiler.key_averages() and profile_kernel() return. Immutable.\n\n"
             "len() is the number of rows; iterating gives them by cpu_total_us, the largest first.");

static PyType_Slot result_slots[] = {{Py_tp_doc, (void *)result_doc},
                                     {Py_tp_dealloc, result_dealloc},
                                     {Py_tp_methods, result_methods},
                                     {Py_tp_iter, result_iter},
                                     {Py_sq_length, result_length},
                                     {Py_tp_repr, result_repr},
                                     {Py_tp_str, result_str},
                                     {Py_tp_richcompare, result_richcompare},
                                     {Py_tp_hash, PyObject_HashNotImplemented},
                                     {0, NULL}};

PyType_Spec py_result_spec = {"enigma.ProfilerResult", sizeof(Result), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              result_slots};

PyDoc_STRVAR(row_doc,
             "A row of a ProfilerResult. Immutable.\n\n"
             "Times are in us. An event below another of the same row on its call path adds a call, not time.\n"
             "min_us, median_us and max_us are per call: device time for rows of GPU work, else CPU time.\n"
             "gpu_busy_us is the union of the device intervals. gflops_per_s and gbytes_per_s count in 10^9 and are\n"
             "taken over the time that rate_source names (\"gpu\", \"cpu\" or None), 0.0 without one.");
PyDoc_STRVAR(as_dict_doc, "as_dict($self, /)\n--\n\nAll fields, metrics and call_path as a new dict.");

static PyMethodDef row_methods[] = {{"as_dict", row_as_dict, METH_NOARGS, as_dict_doc},
                                    {"__copy__", copy_immutable, METH_NOARGS, NULL},
                                    {"__deepcopy__", copy_immutable, METH_O, NULL},
                                    {NULL, NULL, 0, NULL}};

static PyGetSetDef row_extra[] = {
    {"metrics", row_metrics, NULL, "dict[str, float]: semantic work counts, summed; a fresh dict each time.", NULL},
    {"call_path", row_call_path, NULL, "tuple[str, ...]: the node path, root first; () when grouped by name.", NULL}};
#define ROW_EXTRA (sizeof(row_extra) / sizeof(row_extra[0]))

/* The properties of a row, from the library's table. Static, since descriptors refer to it; the same whoever fills it. */
#define ROW_FIELDS_MAX 64
static PyGetSetDef row_getset[ROW_FIELDS_MAX + ROW_EXTRA + 1];

static const char *kind_text(uint32_t kind)
{
    static const char *const texts[] = {"str | None", "int", "float", "str | None"};
    return kind < sizeof(texts) / sizeof(texts[0]) ? texts[kind] : NULL;
}

static pthread_once_t row_once = PTHREAD_ONCE_INIT;

static void fill_row_getset(void)
{
    size_t count = 0;
    const enigma_row_field *field;
    while (count < ROW_FIELDS_MAX && (field = enigma_row_field_at(count)) != NULL) {
        row_getset[count++] = (PyGetSetDef){field->name, row_field_get, NULL, kind_text(field->kind), (void *)field};
    }
    for (size_t i = 0; i < ROW_EXTRA; i++) {
        row_getset[count++] = row_extra[i];
    }
}

/* The names of all properties. */
static PyObject *make_row_names(void)
{
    PyObject *names = PyList_New(0);
    for (size_t i = 0; names != NULL && row_getset[i].name != NULL; i++) {
        PyObject *name = PyUnicode_InternFromString(row_getset[i].name);
        if (name == NULL || PyList_Append(names, name) < 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    PyObject *tuple = names == NULL ? NULL : PyList_AsTuple(names);
    Py_XDECREF(names);
    return tuple;
}

static PyType_Slot row_slots[] = {{Py_tp_doc, (void *)row_doc},
                                  {Py_tp_dealloc, row_dealloc},
                                  {Py_tp_methods, row_methods},
                                  {Py_tp_getset, row_getset},
                                  {Py_tp_setattro, py_frozen_setattr},
                                  {Py_tp_repr, row_repr},
                                  {Py_tp_richcompare, row_richcompare},
                                  {Py_tp_hash, row_hash},
                                  {0, NULL}};

static PyType_Spec row_spec = {"enigma.ProfilerRow", sizeof(Row), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, row_slots};

static int result_exec(PyObject *module, py_state *state)
{
    pthread_once(&row_once, fill_row_getset);
    state->row_names = make_row_names();
    state->row_class = state->row_names == NULL ? NULL : PyType_FromModuleAndSpec(module, &row_spec, NULL);
    if (state->row_class == NULL || PyObject_SetAttrString(state->row_class, "__match_args__", state->row_names) < 0) {
        return -1;
    }
    ((PyTypeObject *)state->row_class)->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE; /* nobody has seen the type yet */
    PyType_Modified((PyTypeObject *)state->row_class);
    return PyModule_AddObjectRef(module, "ProfilerRow", state->row_class);
}

const py_part py_result_part = {NULL, result_exec, NULL};
