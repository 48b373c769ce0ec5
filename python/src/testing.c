/* enigma.testing: ScriptedRuntime, a runtime that reports the device stamps it is told, and scripted_clock, a host clock that
 * moves only when told. */
#include "gpu.h"

#include <string.h>

/* ---- ScriptedRuntime ---- */

static int take_offset(PyObject *value, int64_t *out)
{
    int overflow;
    if (!PyIndex_Check(value) || PyBool_Check(value)) {
        PyErr_Format(PyExc_TypeError, "clock_offset_ns must be an int, not %.200s", Py_TYPE(value)->tp_name);
        return -1;
    }
    *out = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) {
        PyErr_Format(PyExc_ValueError, "clock_offset_ns must be from -2**63 to 2**63 - 1, not %R", value);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *scripted_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"clock_offset_ns", "drift_ppm", "tick_ns", "counter_bits",
                                           "queues",          "devices",   NULL};
    enigma_scripted_options options = ENIGMA_SCRIPTED_OPTIONS_INIT;
    PyObject *offset = NULL, *drift = NULL, *tick = NULL, *bits = NULL, *queues = NULL, *devices = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOOOO:ScriptedRuntime", (char **)keywords, &offset, &drift, &tick,
                                     &bits, &queues, &devices) ||
        (offset != NULL && take_offset(offset, &options.clock_offset_ns) < 0) ||
        (drift != NULL && py_number(drift, "drift_ppm", NULL, &options.drift_ppm) < 0) ||
        (tick != NULL && py_number(tick, "tick_ns", NULL, &options.tick_ns) < 0) ||
        (bits != NULL && py_index32(bits, "counter_bits", &options.counter_bits) < 0) ||
        (queues != NULL && py_index32(queues, "queues", &options.queues) < 0) ||
        (devices != NULL && py_index32(devices, "devices", &options.devices) < 0)) {
        return NULL;
    }
    enigma_runtime *runtime = NULL;
    if (py_check(enigma_scripted_open(&options, &runtime)) < 0) {
        return NULL;
    }
    return py_runtime_new(py_state_of_subtype(type), type, runtime);
}

/* The kernel of a name: compiled here, for the scripted backend takes any. */
static Kernel *kernel_of(Runtime *self, PyObject *name)
{
    enigma_kernel_desc desc = {.struct_size = sizeof(desc), .source = " ", .source_size = 1};
    if (Py_TYPE(name) == self->state->kernel_type) {
        if (((Kernel *)name)->runtime != self) {
            PyErr_SetString(PyExc_ValueError, "the kernel was compiled by another runtime");
            return NULL;
        }
        return (Kernel *)Py_NewRef(name);
    }
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "name must be a str or a Kernel, not %.200s", Py_TYPE(name)->tp_name);
        return NULL;
    }
    enigma_text text;
    PyObject *owner, *kernel = NULL;
    if (py_text(name, &text, &owner) < 0) {
        return NULL;
    }
    desc.name = text.data;
    if (strlen(text.data) != text.size) {
        PyErr_SetString(PyExc_ValueError, "a kernel's name has no NUL");
    } else {
        kernel = py_compile(self, &desc, name);
    }
    Py_XDECREF(owner);
    return (Kernel *)kernel;
}

static PyObject *scripted_prepare(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"name", "inputs", "output_size", NULL};
    PyObject *name, *inputs = NULL, *output_size = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:prepare", (char **)keywords, &name, &inputs, &output_size)) {
        return NULL;
    }
    Kernel *kernel = kernel_of((Runtime *)op, name);
    PyObject *none = kernel == NULL ? NULL : PyTuple_New(0);
    PyObject *prepared =
        none == NULL ? NULL : py_prepare((Runtime *)op, kernel, inputs != NULL ? inputs : none, output_size);
    Py_XDECREF(none);
    Py_XDECREF((PyObject *)kernel);
    return prepared;
}

/* ---- script() ---- */

static int take_stamp(PyObject *item, uint64_t *out)
{
    PyObject *number = PyBool_Check(item) || !PyIndex_Check(item) ? NULL : PyNumber_Index(item);
    if (number == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "a stamp must be an int, not %.200s", Py_TYPE(item)->tp_name);
        }
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "a stamp is from 0 to 2**64 - 1, not %R", item);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int take_stamps(PyObject *entry, enigma_script *out)
{
    uint64_t stamps[2];
    if (PyTuple_GET_SIZE(entry) != 2) {
        PyErr_SetString(PyExc_ValueError, "a script entry is (start_ns, end_ns), None or an exception");
        return -1;
    }
    for (Py_ssize_t i = 0; i < 2; i++) {
        if (take_stamp(PyTuple_GET_ITEM(entry, i), &stamps[i]) < 0) {
            return -1;
        }
    }
    *out = (enigma_script){.kind = ENIGMA_SCRIPT_TIMES, .start_ns = stamps[0], .end_ns = stamps[1]};
    return 0;
}

/* One entry; an exception's text goes to the arena. */
static int take_entry(PyObject *entry, py_arena *arena, enigma_script *out)
{
    if (entry == Py_None) {
        *out = (enigma_script){.kind = ENIGMA_SCRIPT_UNAVAILABLE};
        return 0;
    }
    if (PyTuple_Check(entry)) {
        return take_stamps(entry, out);
    }
    if (!PyExceptionInstance_Check(entry)) {
        PyErr_Format(PyExc_TypeError, "a script entry is (start_ns, end_ns), None or an exception, not %.200s",
                     Py_TYPE(entry)->tp_name);
        return -1;
    }
    PyObject *text = py_error_text((PyObject *)Py_TYPE(entry), entry);
    enigma_text message;
    int result = text == NULL ? (PyErr_NoMemory(), -1) : py_text_copy(arena, text, &message);
    Py_XDECREF(text);
    if (result == 0) {
        *out = (enigma_script){.kind = ENIGMA_SCRIPT_FAILURE, .message = message.data};
    }
    return result;
}

/* Remembers the exceptions among the entries, in order, at the end of self->failures. */
static int push_failures(Runtime *self, PyObject *entries, uint32_t device, uint32_t queue)
{
    py_failure *first = NULL, **end = &first;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
        PyObject *entry = PyTuple_GET_ITEM(entries, i);
        if (!PyExceptionInstance_Check(entry)) {
            continue;
        }
        *end = PyMem_Calloc(1, sizeof(**end));
        if (*end == NULL) {
            for (; first != NULL; first = *end) {
                *end = first->next;
                Py_DECREF(first->exception);
                PyMem_Free(first);
            }
            PyErr_NoMemory();
            return -1;
        }
        (*end)->device = device;
        (*end)->queue = queue;
        (*end)->exception = Py_NewRef(entry);
        end = &(*end)->next;
    }
    py_failure **last = &self->failures;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = first;
    return 0;
}

static int push_scripts(Runtime *self, PyObject *entries, py_arena *arena, uint32_t device, uint32_t queue)
{
    size_t count = (size_t)PyTuple_GET_SIZE(entries);
    enigma_script *scripts = py_arena_alloc(arena, (count + 1) * sizeof(*scripts));
    if (scripts == NULL) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (take_entry(PyTuple_GET_ITEM(entries, (Py_ssize_t)i), arena, &scripts[i]) < 0) {
            return -1;
        }
    }
    if (py_runtime_enter_open(self) < 0) {
        return -1;
    }
    int result = py_check(enigma_scripted_push(self->runtime, device, queue, scripts, count));
    if (result == 0) {
        result = push_failures(self, entries, device, queue);
    }
    py_runtime_leave(self);
    return result;
}

static PyObject *scripted_script(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"entries", "queue", "device", NULL};
    PyObject *list, *queue = NULL, *device = NULL;
    uint32_t queue_index = 0, device_index = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:script", (char **)keywords, &list, &queue, &device) ||
        (queue != NULL && py_index32(queue, "queue", &queue_index) < 0) ||
        (device != NULL && py_index32(device, "device", &device_index) < 0)) {
        return NULL;
    }
    PyObject *entries = PySequence_Tuple(list);
    if (entries == NULL) {
        return NULL;
    }
    py_arena arena;
    py_arena_init(&arena);
    int result = push_scripts((Runtime *)op, entries, &arena, device_index, queue_index);
    py_arena_free(&arena);
    Py_DECREF(entries);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* closure not NULL: the timed ones. */
static PyObject *scripted_count(PyObject *op, void *closure)
{
    Runtime *self = (Runtime *)op;
    uint64_t untimed = 0, timed = 0;
    if (py_runtime_enter_open(self) < 0) {
        return NULL;
    }
    int result = py_check(enigma_scripted_counts(self->runtime, &untimed, &timed));
    py_runtime_leave(self);
    return result < 0 ? NULL : PyLong_FromUnsignedLongLong(closure != NULL ? timed : untimed);
}

#define VOID(function) ((PyCFunction)(void (*)(void))(function))

PyDoc_STRVAR(scripted_prepare_doc,
             "prepare($self, /, name, inputs=(), output_size=0)\n--\n\n"
             "A normal PreparedKernel for a kernel of any name; inputs and output_size as in Runtime.prepare().");
PyDoc_STRVAR(
    scripted_script_doc,
    "script($self, /, entries, queue=0, device=0)\n--\n\n"
    "Queues what the next dispatches on a queue of a device report, one entry each, untimed ones too.\n\n"
    "An entry is (start_ns, end_ns) on the device's clock, None for stamps that are not available, or an exception\n"
    "that the dispatch raises. With nothing queued a dispatch takes 1 us of device time.");

static PyMethodDef scripted_methods[] = {
    {"prepare", VOID(scripted_prepare), METH_VARARGS | METH_KEYWORDS, scripted_prepare_doc},
    {"script", VOID(scripted_script), METH_VARARGS | METH_KEYWORDS, scripted_script_doc},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef scripted_getset[] = {
    {"untimed_dispatches", scripted_count, NULL, "int: dispatches that ran on the untimed path.", NULL},
    {"timed_dispatches", scripted_count, NULL, "int: dispatches that ran on the timed path.", (void *)1},
    {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(
    scripted_doc,
    "ScriptedRuntime(clock_offset_ns=0, drift_ppm=0.0, tick_ns=1.0, counter_bits=64, queues=1, devices=1)\n--\n\n"
    "A Runtime that runs nothing and reports the device stamps it is told, to test code that profiles without a "
    "GPU.\n\n"
    "The device's clock is the host's plus clock_offset_ns, faster by drift_ppm; stamps are ns, floored to ticks of\n"
    "tick_ns and cut to counter_bits.");

static PyType_Slot scripted_slots[] = {{Py_tp_doc, (void *)scripted_doc},
                                       {Py_tp_new, scripted_new},
                                       {Py_tp_methods, scripted_methods},
                                       {Py_tp_getset, scripted_getset},
                                       {0, NULL}};

static PyType_Spec scripted_spec = {"enigma.testing.ScriptedRuntime", sizeof(Runtime), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
                                    scripted_slots};

/* ---- scripted_clock ---- */

typedef struct ScriptedClock {
    PyObject_HEAD
    uint64_t start_ns;
    bool entered;
} ScriptedClock;

static int take_ns(PyObject *value, const char *what, uint64_t *out)
{
    if (PyBool_Check(value) || !PyIndex_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int, not %.200s", what, Py_TYPE(value)->tp_name);
        return -1;
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s must be from 0 to 2**64 - 1, not %R", what, number);
    }
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *clock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"start_ns", NULL};
    PyObject *start = NULL;
    uint64_t start_ns = 1000000;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:scripted_clock", (char **)keywords, &start) ||
        (start != NULL && take_ns(start, "start_ns", &start_ns) < 0)) {
        return NULL;
    }
    ScriptedClock *self = (ScriptedClock *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->start_ns = start_ns;
    }
    return (PyObject *)self;
}

static void clock_stop(ScriptedClock *self)
{
    if (self->entered) {
        self->entered = false;
        enigma_scripted_clock_end();
    }
}

static void clock_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    clock_stop((ScriptedClock *)op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *clock_enter(PyObject *op, PyObject *unused)
{
    (void)unused;
    ScriptedClock *self = (ScriptedClock *)op;
    if (self->entered) {
        PyErr_SetString(PyExc_RuntimeError, "this scripted_clock is entered already");
        return NULL;
    }
    enigma_scripted_clock_begin(self->start_ns);
    self->entered = true;
    return Py_NewRef(op);
}

static PyObject *clock_exit(PyObject *op, PyObject *args)
{
    (void)args;
    clock_stop((ScriptedClock *)op);
    Py_RETURN_NONE;
}

static PyObject *clock_advance(PyObject *op, PyObject *value)
{
    uint64_t ns;
    if (take_ns(value, "ns", &ns) < 0) {
        return NULL;
    }
    if (!((ScriptedClock *)op)->entered) {
        PyErr_SetString(PyExc_RuntimeError, "the scripted_clock is not entered");
        return NULL;
    }
    enigma_scripted_clock_advance(ns);
    Py_RETURN_NONE;
}

static PyObject *clock_now(PyObject *op, void *closure)
{
    (void)op;
    (void)closure;
    return PyLong_FromUnsignedLongLong(enigma_now_ns());
}

PyDoc_STRVAR(advance_doc,
             "advance($self, ns, /)\n--\n\nMoves the clock forward by ns. RuntimeError when it is not entered.");

static PyMethodDef clock_methods[] = {{"advance", clock_advance, METH_O, advance_doc},
                                      {"__enter__", clock_enter, METH_NOARGS, NULL},
                                      {"__exit__", clock_exit, METH_VARARGS, NULL},
                                      {NULL, NULL, 0, NULL}};

static PyGetSetDef clock_getset[] = {{"now", clock_now, NULL, "int: what the library's host clock shows, in ns.", NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(
    clock_doc,
    "scripted_clock(start_ns=1000000)\n--\n\n"
    "A context manager that replaces the library's host clock, in the whole process, by one that moves only by\n"
    "advance(ns) and, where a scripted dispatch waits, by the device time. start_ns is what it shows at first.");

static PyType_Slot clock_slots[] = {{Py_tp_doc, (void *)clock_doc}, {Py_tp_new, clock_new},
                                    {Py_tp_dealloc, clock_dealloc}, {Py_tp_methods, clock_methods},
                                    {Py_tp_getset, clock_getset},   {0, NULL}};

PyType_Spec py_scripted_clock_spec = {"enigma.testing.scripted_clock", sizeof(ScriptedClock), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, clock_slots};

static int testing_exec(PyObject *module, py_state *state)
{
    PyObject *bases = PyTuple_Pack(1, state->runtime_type);
    state->scripted_runtime = bases == NULL ? NULL : PyType_FromModuleAndSpec(module, &scripted_spec, bases);
    Py_XDECREF(bases);
    return state->scripted_runtime == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)state->scripted_runtime);
}

const py_part py_testing_part = {NULL, testing_exec, NULL};
