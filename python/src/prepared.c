/* PreparedKernel: a kernel with its arguments bound, and how it is dispatched. Any thread; the runtime's lock is held around
 * every call of the library. */
#include "gpu.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

/* ---- Entering ---- */

static void free_prepared(PreparedKernel *self)
{
    enigma_prepared *prepared = self->prepared;
    self->prepared = NULL;
    if (prepared != NULL) {
        py_runtime_discard(self->runtime, prepared, NULL);
    }
}

static int enter(PreparedKernel *self)
{
    if (py_runtime_enter(self->runtime) < 0) {
        return -1;
    }
    if (self->prepared == NULL || self->released) {
        py_runtime_leave(self->runtime);
        PyErr_SetString(PyExc_RuntimeError, "the prepared kernel was released");
        return -1;
    }
    self->busy++;
    Py_INCREF((PyObject *)self); /* a hook may drop the last reference of the caller's */
    return 0;
}

int py_prepared_enter(py_state *state, PyObject *object, PreparedKernel **out)
{
    *out = NULL;
    if (Py_TYPE(object) != state->prepared_type) {
        PyErr_Format(PyExc_TypeError, "prepared must be a PreparedKernel, not %.200s", Py_TYPE(object)->tp_name);
        return -1;
    }
    if (enter((PreparedKernel *)object) < 0) {
        return -1;
    }
    *out = (PreparedKernel *)object;
    return 0;
}

void py_prepared_leave(PreparedKernel *self)
{
    if (--self->busy == 0 && self->released) {
        free_prepared(self); /* the lock is held: freed as it is left */
    }
    py_runtime_leave(self->runtime);
    Py_DECREF((PyObject *)self);
}

/* ---- Making ---- */

static PyObject *prepared_new(Runtime *runtime, enigma_prepared *prepared, const py_arguments *arguments)
{
    PyObject *name = py_str(enigma_prepared_name(prepared));
    PreparedKernel *self = name == NULL ? NULL : PyObject_GC_New(PreparedKernel, runtime->state->prepared_type);
    if (self == NULL) {
        Py_XDECREF(name);
        py_runtime_discard(runtime, prepared, NULL);
        return NULL;
    }
    self->runtime = (Runtime *)Py_NewRef((PyObject *)runtime);
    self->prepared = prepared;
    self->kernel_name = name;
    self->output_count = arguments->output_count;
    self->outputs_listed = arguments->outputs_listed;
    self->weak_references = NULL;
    self->released = false;
    self->busy = 0;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

PyObject *py_prepare(Runtime *runtime, Kernel *kernel, PyObject *inputs, PyObject *output_size)
{
    py_arguments arguments;
    if (py_arguments_init(&arguments, inputs, output_size) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (py_runtime_enter_open(runtime) == 0) {
        enigma_prepared *prepared = NULL;
        py_wait wait;
        py_wait_begin(&wait);
        enigma_status status = enigma_prepare(kernel->kernel, arguments.inputs, arguments.input_count,
                                              arguments.output_sizes, arguments.output_count, &prepared);
        py_wait_end(&wait);
        result = py_check(status) < 0 ? NULL : prepared_new(runtime, prepared, &arguments);
        py_runtime_leave(runtime);
    }
    py_arguments_clear(&arguments);
    return result;
}

static int prepared_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT((PyObject *)((PreparedKernel *)op)->runtime);
    return 0;
}

static void prepared_dealloc(PyObject *op)
{
    PreparedKernel *self = (PreparedKernel *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    free_prepared(self);
    Py_DECREF((PyObject *)self->runtime);
    Py_DECREF(self->kernel_name);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- Arguments of dispatch and dispatch_timed ---- */

enum launch_argument { ARG_GRID, ARG_THREADS, ARG_QUEUE, ARG_DEVICE, ARG_WAIT, ARG_METRICS, ARG_COUNT };
static const char *const launch_names[ARG_COUNT] = {"grid", "threads", "queue", "device", "wait", "metrics"};

/* Where a keyword goes; -1 for one that this function does not have. */
static int find_keyword(PyObject *name, int limit)
{
    for (int i = 0; i < limit; i++) {
        if (PyUnicode_CompareWithASCIIString(name, launch_names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* Sorts the arguments of a vectorcall: grid and threads by position or name, the others (below limit) by name. */
static int sort_arguments(const char *function, int limit, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                          PyObject **out)
{
    if (count > 2) {
        PyErr_Format(PyExc_TypeError, "%s() takes 2 positional arguments, grid and threads, not %zd", function, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = args[i];
    }
    for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_GET_SIZE(keywords); i++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, i);
        int at = find_keyword(name, limit);
        if (at < 0 || out[at] != NULL) {
            PyErr_Format(PyExc_TypeError, at < 0 ? "%s() has no keyword argument %R" : "%s() got %R twice", function,
                         name);
            return -1;
        }
        out[at] = args[count + i];
    }
    for (int i = ARG_GRID; i <= ARG_THREADS; i++) {
        if (out[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s'", function, launch_names[i]);
            return -1;
        }
    }
    return 0;
}

static int fill_options(PyObject *const *given, enigma_dispatch_options *options)
{
    if (py_size3(given[ARG_GRID], "grid", &options->grid) < 0 ||
        py_size3(given[ARG_THREADS], "threads", &options->threads) < 0 ||
        (given[ARG_QUEUE] != NULL && py_index32(given[ARG_QUEUE], "queue", &options->queue) < 0) ||
        (given[ARG_DEVICE] != NULL && py_index32(given[ARG_DEVICE], "device", &options->device) < 0)) {
        return -1;
    }
    int wait = given[ARG_WAIT] == NULL ? 1 : PyObject_IsTrue(given[ARG_WAIT]);
    options->flags = wait ? 0 : ENIGMA_DISPATCH_ASYNC;
    return wait < 0 ? -1 : 0;
}

/* A dict, so that a mistake is one at once, whether a profiler is active or not. */
static int take_metrics(PyObject *metrics, py_arena *arena, enigma_dispatch_options *options)
{
    if (metrics == NULL || metrics == Py_None) {
        return 0;
    }
    if (!PyDict_Check(metrics)) {
        PyErr_Format(PyExc_TypeError, "metrics must be a dict or None, not %.200s", Py_TYPE(metrics)->tp_name);
        return -1;
    }
    return py_metrics(arena, metrics, &options->metrics, &options->metric_count);
}

/* ---- Dispatching ---- */

static PyObject *dispatch_entered(PreparedKernel *self, enigma_dispatch_options *options)
{
    enigma_context context;
    Profiler *profiler = py_context_hold(self->runtime->state, &context);
    options->context = profiler != NULL ? &context : NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_dispatch(self->prepared, options);
    py_wait_end(&wait);
    Py_XDECREF((PyObject *)profiler);
    if (status != ENIGMA_OK || PyErr_Occurred()) {
        return py_runtime_raise(self->runtime, status, options->device, options->queue);
    }
    Py_RETURN_NONE;
}

static PyObject *prepared_dispatch(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PreparedKernel *self = (PreparedKernel *)op;
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    PyObject *given[ARG_COUNT] = {NULL}, *result = NULL;
    if (sort_arguments("dispatch", ARG_COUNT, args, count, keywords, given) < 0 || fill_options(given, &options) < 0) {
        return NULL;
    }
    py_arena arena;
    py_arena_init(&arena);
    if (take_metrics(given[ARG_METRICS], &arena, &options) == 0 && enter(self) == 0) {
        result = dispatch_entered(self, &options);
        py_prepared_leave(self);
    }
    py_arena_free(&arena);
    return result;
}

static PyObject *prepared_dispatch_timed(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PreparedKernel *self = (PreparedKernel *)op;
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    PyObject *given[ARG_COUNT] = {NULL}, *result = NULL;
    if (sort_arguments("dispatch_timed", ARG_WAIT, args, count, keywords, given) < 0 ||
        fill_options(given, &options) < 0 || enter(self) < 0) {
        return NULL;
    }
    double us = 0.0;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_dispatch_timed(self->prepared, &options, &us);
    py_wait_end(&wait);
    if (status != ENIGMA_OK || PyErr_Occurred()) {
        py_runtime_raise(self->runtime, status, options.device, options.queue);
    } else {
        result = PyFloat_FromDouble(us);
    }
    py_prepared_leave(self);
    return result;
}

/* Interruptible. 0, or -1 with an exception. */
static int wait_entered(PreparedKernel *self)
{
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_prepared_wait(self->prepared);
    py_wait_end(&wait);
    return py_check(status) < 0 || PyErr_Occurred() ? -1 : 0;
}

static PyObject *prepared_wait(PyObject *op, PyObject *unused)
{
    (void)unused;
    PreparedKernel *self = (PreparedKernel *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    int result = wait_entered(self);
    py_prepared_leave(self);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- Outputs ---- */

static PyObject *read_one(PreparedKernel *self, size_t index)
{
    size_t size = enigma_prepared_output_size(self->prepared, index);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes == NULL) {
        return NULL;
    }
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_prepared_read_output(self->prepared, index, PyBytes_AS_STRING(bytes), size);
    py_wait_end(&wait);
    if (py_check(status) < 0 || PyErr_Occurred()) {
        Py_CLEAR(bytes);
    }
    return bytes;
}

static PyObject *read_all(PreparedKernel *self)
{
    if (self->output_count == 0) {
        Py_RETURN_NONE;
    }
    if (!self->outputs_listed) {
        return read_one(self, 0);
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < self->output_count; i++) {
        PyObject *bytes = read_one(self, i);
        if (bytes == NULL || PyList_Append(list, bytes) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(bytes);
    }
    return list;
}

static PyObject *prepared_read_output(PyObject *op, PyObject *unused)
{
    (void)unused;
    PreparedKernel *self = (PreparedKernel *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    PyObject *result = wait_entered(self) < 0 ? NULL : read_all(self); /* the copy itself cannot be interrupted */
    py_prepared_leave(self);
    return result;
}

/* ---- Release ---- */

static PyObject *prepared_release(PyObject *op, PyObject *unused)
{
    (void)unused;
    PreparedKernel *self = (PreparedKernel *)op;
    if (self->prepared == NULL || self->released) {
        Py_RETURN_NONE;
    }
    if (py_runtime_enter(self->runtime) < 0) {
        return NULL;
    }
    self->released = true;
    if (self->busy == 0) {
        free_prepared(self); /* the lock is held: freed as it is left */
    }
    py_runtime_leave(self->runtime);
    Py_RETURN_NONE;
}

static PyObject *prepared_enter_with(PyObject *op, PyObject *unused)
{
    (void)unused;
    PreparedKernel *self = (PreparedKernel *)op;
    if (self->prepared == NULL || self->released) {
        PyErr_SetString(PyExc_RuntimeError, "the prepared kernel was released");
        return NULL;
    }
    return Py_NewRef(op);
}

static PyObject *prepared_exit_with(PyObject *op, PyObject *args)
{
    (void)args;
    return prepared_release(op, NULL);
}

/* ---- The type ---- */

static PyObject *prepared_kernel_name(PyObject *op, void *closure)
{
    (void)closure;
    return Py_NewRef(((PreparedKernel *)op)->kernel_name);
}

static PyObject *prepared_repr(PyObject *op)
{
    PreparedKernel *self = (PreparedKernel *)op;
    bool gone = self->prepared == NULL || self->released;
    return PyUnicode_FromFormat("<PreparedKernel %R%s>", self->kernel_name, gone ? ", released" : "");
}

#define VOID(function) ((PyCFunction)(void (*)(void))(function))

PyDoc_STRVAR(
    dispatch_doc,
    "dispatch($self, /, grid, threads, *, wait=True, queue=0, device=0, metrics=None)\n--\n\n"
    "Runs the kernel: grid=(x, y, z) threads in all, in groups of threads=(x, y, z).\n\n"
    "Under an active profiler it is timed by device stamps and is one event. wait=False returns once it is queued.\n"
    "metrics is a dict of work counts for this dispatch, such as {\"flops\": ..., \"bytes\": ...}; a kernel hook is "
    "not\n"
    "asked then.\n\n"
    "ValueError for sizes that the device or the kernel cannot run, before anything runs; RuntimeError when it fails\n"
    "or the prepared kernel was released.");
PyDoc_STRVAR(dispatch_timed_doc,
             "dispatch_timed($self, /, grid, threads, *, queue=0, device=0)\n--\n\n"
             "Runs the kernel, waits, and returns its device time in us as a float; records no event.\n\n"
             "0.0 when the device's stamps are not valid. Errors as dispatch().");
PyDoc_STRVAR(wait_doc, "wait($self, /)\n--\n\nWaits for the asynchronous dispatches of this prepared kernel.");
PyDoc_STRVAR(read_output_doc,
             "read_output($self, /)\n--\n\n"
             "The outputs after all earlier work: bytes for an int output_size, a list of bytes for a list, None\n"
             "for none.");
PyDoc_STRVAR(release_doc,
             "release($self, /)\n--\n\n"
             "Frees it and its buffers, once its dispatches are complete. Again: does nothing. Other calls raise\n"
             "RuntimeError afterwards.");

static PyMethodDef prepared_methods[] = {
    {"dispatch", VOID(prepared_dispatch), METH_FASTCALL | METH_KEYWORDS, dispatch_doc},
    {"dispatch_timed", VOID(prepared_dispatch_timed), METH_FASTCALL | METH_KEYWORDS, dispatch_timed_doc},
    {"wait", prepared_wait, METH_NOARGS, wait_doc},
    {"read_output", prepared_read_output, METH_NOARGS, read_output_doc},
    {"release", prepared_release, METH_NOARGS, release_doc},
    {"__enter__", prepared_enter_with, METH_NOARGS, NULL},
    {"__exit__", prepared_exit_with, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef prepared_getset[] = {{"kernel_name", prepared_kernel_name, NULL, "str: the kernel function.", NULL},
                                        {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(prepared_doc,
             "A kernel with its arguments bound and its buffers allocated; what Runtime.prepare() returns.\n\n"
             "A context manager that releases it; freed when dropped.");

static PyMemberDef prepared_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PreparedKernel, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot prepared_slots[] = {{Py_tp_doc, (void *)prepared_doc},   {Py_tp_dealloc, prepared_dealloc},
                                       {Py_tp_traverse, prepared_traverse}, {Py_tp_methods, prepared_methods},
                                       {Py_tp_getset, prepared_getset},     {Py_tp_members, prepared_members},
                                       {Py_tp_repr, prepared_repr},         {0, NULL}};

PyType_Spec py_prepared_spec = {"enigma.PreparedKernel", sizeof(PreparedKernel), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
                                    Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                prepared_slots};
