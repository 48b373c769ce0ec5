/* enigma.Profiler and enigma.profile: a recorder of the library, made active in a Python context. Reading what it recorded is in
 * event.c and result.c, writing it to files in export.c. */
#include "pycontext.h"

/* ---- Snapshots ---------------------------------------------------------------------------------------------------------- */

PyObject *py_snapshot_new(py_state *state, enigma_profile *profile)
{
    Snapshot *self = PyObject_New(Snapshot, state->snapshot_type);
    if (!self) {
        enigma_profile_free(profile);
        return NULL;
    }
    self->profile = profile;
    return (PyObject *)self;
}

static void snapshot_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    enigma_profile_free(((Snapshot *)self)->profile);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot snapshot_slots[] = {{Py_tp_dealloc, snapshot_dealloc}, {0, NULL}};

PyType_Spec py_snapshot_spec = {
    .name = "enigma._Snapshot",
    .basicsize = sizeof(Snapshot),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = snapshot_slots,
};

Snapshot *py_profiler_snapshot(Profiler *self)
{
    if (self->snapshot) {
        return (Snapshot *)Py_NewRef(self->snapshot);
    }
    bool final = self->sealed;
    enigma_profile *profile;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_profiler_snapshot(self->recorder, &profile);
    py_wait_end(&wait);
    if (py_check(status)) {
        return NULL;
    }
    PyObject *snapshot = py_snapshot_new(self->state, profile);
    if (snapshot && final && !self->snapshot) { /* another thread may have been first */
        self->snapshot = Py_NewRef(snapshot);
    }
    return (Snapshot *)snapshot;
}

/* ---- The object --------------------------------------------------------------------------------------------------------- */

static void set_live(Profiler *self, int live)
{
    self->state->hot.live += live - self->live;
    self->state->hot.attached += self->attaches ? live - self->live : 0;
    self->live = live;
}

/* A chain of profilers that only hold each other goes without recursion. */
static void drop_outer(Profiler *outer)
{
    while (outer && Py_REFCNT(outer) == 1) {
        Profiler *next = outer->outer.profiler;
        outer->outer.profiler = NULL;
        Py_DECREF(outer);
        outer = next;
    }
    Py_XDECREF(outer);
}

static void profiler_dealloc(PyObject *object)
{
    Profiler *self = (Profiler *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->live) {                       /* its context died with it entered */
        PyObject *raised = py_error_take(); /* sealing may ask hooks */
        set_live(self, 0);
        enigma_profiler_seal(self->recorder);
        py_error_restore(raised);
    }
    enigma_profiler_free(self->recorder);
    for (size_t i = 0; i < PY_MEMO_SIZE; i++) {
        Py_XDECREF(self->memo[i].name);
    }
    Py_XDECREF(self->category);
    Py_XDECREF(self->snapshot);
    drop_outer(self->outer.profiler);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *profiler_new(py_state *state, const enigma_profiler_options *options)
{
    Profiler *self = PyObject_New(Profiler, state->profiler_type);
    if (!self) {
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    self->state = state;
    self->attaches = options->attach != NULL;
    if (py_check(enigma_profiler_create(options, &self->recorder))) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int check_attach_name(PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "profile() attach must be a str or a tuple or list of them, not %.200s",
                     Py_TYPE(name)->tp_name);
        return -1;
    }
    if (PyUnicode_FindChar(name, ',', 0, PyUnicode_GET_LENGTH(name), 1) >= 0 ||
        PyUnicode_FindChar(name, 0, 0, PyUnicode_GET_LENGTH(name), 1) >= 0) {
        PyErr_Format(PyExc_ValueError, "profile() attach: %R is no name", name);
        return -1;
    }
    return 0;
}

/* The names as the library takes them, a new str; None gives NULL without an exception. */
static PyObject *attach_names(PyObject *attach)
{
    bool several = PyTuple_Check(attach) || PyList_Check(attach);
    if (attach == Py_None || (several && PySequence_Fast_GET_SIZE(attach) == 0)) {
        return NULL;
    }
    if (!several) {
        return check_attach_name(attach) ? NULL : Py_NewRef(attach);
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(attach); i++) {
        if (check_attach_name(PySequence_Fast_GET_ITEM(attach, i))) {
            return NULL;
        }
    }
    PyObject *comma = PyUnicode_FromString(",");
    PyObject *names = comma ? PyUnicode_Join(comma, attach) : NULL;
    Py_XDECREF(comma);
    return names;
}

static PyObject *profile(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {(char *)"record_shapes", (char *)"profile_memory", (char *)"capture", (char *)"attach",
                            (char *)"file", NULL};
    int shapes = 0, memory = 0;
    PyObject *capture = Py_None, *attach = Py_None, *file = Py_None, *path = NULL, *file_path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ppOOO:profile", names, &shapes, &memory, &capture, &attach, &file)) {
        return NULL;
    }
    PyObject *attached = attach_names(attach);
    const char *attached_text = attached ? PyUnicode_AsUTF8(attached) : NULL;
    if (PyErr_Occurred() || (capture != Py_None && !PyUnicode_FSConverter(capture, &path)) ||
        (file != Py_None && !PyUnicode_FSConverter(file, &file_path))) {
        Py_XDECREF(attached);
        Py_XDECREF(path);
        return NULL;
    }
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    options.flags = (shapes ? ENIGMA_PROFILER_RECORD_SHAPES : 0u) | (memory ? ENIGMA_PROFILER_PROFILE_MEMORY : 0u);
    options.capture_path = path ? PyBytes_AS_STRING(path) : NULL;
    options.attach = attached_text;
    options.file = file_path ? PyBytes_AS_STRING(file_path) : NULL;
    PyObject *self = profiler_new(py_state_of(module), &options);
    Py_XDECREF(path);
    Py_XDECREF(file_path);
    Py_XDECREF(attached);
    return self;
}

/* ---- Entering and leaving ------------------------------------------------------------------------------------------------ */

static PyObject *profiler_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    Profiler *self = (Profiler *)object;
    if (self->entered) {
        PyErr_SetString(PyExc_RuntimeError, "a Profiler can be entered once; make another one with enigma.profile()");
        return NULL;
    }
    if (py_check(enigma_profiler_open(self->recorder))) {
        return NULL;
    }
    self->entered = 1;
    set_live(self, 1);
    if (py_context_push_profiler(self->state, self)) {
        set_live(self, 0);
        enigma_profiler_seal(self->recorder);
        self->sealed = 1;
        return NULL;
    }
    if (self->state->hot.attached) {
        py_publish_current(self->state);
    }
    return Py_NewRef(object);
}

/* Ends recording; waits, without the GIL, for what was launched. */
static enigma_status seal(Profiler *self)
{
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_profiler_seal(self->recorder);
    py_wait_end(&wait);
    self->sealed = 1;
    return status;
}

/* From here on it is active nowhere: contexts look at live. */
static PyObject *profiler_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Profiler *self = (Profiler *)object;
    if (!self->live) {
        Py_RETURN_NONE;
    }
    set_live(self, 0);
    py_context_tidy(self->state);
    if (self->attaches || self->state->hot.attached) {
        py_publish_current(self->state);
    }
    enigma_status status = seal(self);
    bool failed = count > 0 && args[0] != Py_None; /* then that exception leaves, unless somebody pressed a key */
    if (status != ENIGMA_OK && (!failed || status == ENIGMA_E_INTERRUPTED)) {
        return py_raise(status);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    profile_doc,
    "profile($module, /, record_shapes=False, profile_memory=False, capture=None, attach=None, file=None)\n--\n\n"
    "Make a Profiler: a context manager that records scopes and dispatches while it is active.\n\n"
    "record_shapes: keep the inputs' (shape, dtype) in metadata[\"input_shapes\"] of dispatches.\n"
    "profile_memory: count input_bytes and output_bytes of dispatches.\n"
    "capture: a path that ends in .gputrace, written by Metal's capture.\n"
    "attach: \"cuda\", or a tuple or list of such names: record what any code in the process launches with CUDA.\n"
    "file: an .enigma file to record into, replaced when the profiler is entered: enigma.load() reads it at any moment, also\n"
    "after the process was killed. Where the disk is full, what finds no space is dropped and counted.\n\n"
    "Raises ValueError for a capture path with another suffix and for a name in attach that is none; entering raises\n"
    "RuntimeError when capture or attaching is not possible, and OSError when the file cannot be made.");

PyDoc_STRVAR(events_doc, "events($self, /)\n--\n\nThe recorded events, a list of ProfilerEvent in order of ending.");
PyDoc_STRVAR(iter_events_doc,
             "iter_events($self, /)\n--\n\n"
             "An iterator over what events() lists; each ProfilerEvent is made when it is asked for.\n\n"
             "Of a profiler that is still recording: the events that are finished at the call.");
PyDoc_STRVAR(key_averages_doc, "key_averages($self, /, *, group_by='name')\n--\n\n"
                               "Aggregate the events into a ProfilerResult.\n\n"
                               "group_by: 'name' or 'call_path'; anything else is a ValueError.");
PyDoc_STRVAR(tree_doc, "tree($self, /)\n--\n\nThe call-path tree with inclusive CPU and GPU times, as text.");
PyDoc_STRVAR(save_doc, "save($self, /, path)\n--\n\nWrite everything as an .enigma file, whole or not at all.\n\n"
                       "Raises OSError with the path.");

static PyMethodDef profiler_methods[] = {
    {"__enter__", profiler_enter, METH_NOARGS,
     "Make it active in this context; RuntimeError when it was entered before."},
    {"__exit__", (PyCFunction)(void (*)(void))profiler_exit, METH_FASTCALL,
     "End recording for good and wait for what was launched; a second time does nothing."},
    {"events", py_profiler_events, METH_NOARGS, events_doc},
    {"iter_events", py_profiler_iter_events, METH_NOARGS, iter_events_doc},
    {"key_averages", (PyCFunction)(void (*)(void))py_profiler_key_averages, METH_VARARGS | METH_KEYWORDS,
     key_averages_doc},
    {"tree", py_profiler_tree, METH_NOARGS, tree_doc},
    {"save", (PyCFunction)(void (*)(void))py_profiler_save, METH_VARARGS | METH_KEYWORDS, save_doc},
    {NULL, NULL, 0, NULL}};

PyDoc_STRVAR(profiler_doc,
             "What enigma.profile() returns: records while it is active, and is read during and afterwards.");

static PyType_Slot profiler_slots[] = {
    {Py_tp_dealloc, profiler_dealloc}, {Py_tp_methods, profiler_methods}, {Py_tp_doc, (void *)profiler_doc}, {0, NULL}};

PyType_Spec py_profiler_spec = {
    .name = "enigma.Profiler",
    .basicsize = sizeof(Profiler),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = profiler_slots,
};

static PyMethodDef functions[] = {
    {"profile", (PyCFunction)(void (*)(void))profile, METH_VARARGS | METH_KEYWORDS, profile_doc},
    {NULL, NULL, 0, NULL}};

const py_part py_profiler_part = {functions, NULL, NULL};
