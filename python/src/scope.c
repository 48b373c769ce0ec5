/* enigma.scope and enigma.record_function: one type, its objects and arguments. What entering and leaving do is in frame.c, what
 * decorating does in decorate.c. */
#include "pycontext.h"

/* ---- Objects ----------------------------------------------------------------------------------------------------------- */

Scope *py_scope_alloc(py_state *state, PyObject *name)
{
    Scope *self;
#if PY_SCOPES_KEPT
    if (PY_LIKELY(state->hot.kept)) {
        self = state->hot.scopes[--state->hot.kept];
        Py_SET_REFCNT((PyObject *)self, 1);
    } else
#endif
    {
        self = state->scope_type ? PyObject_GC_New(Scope, state->scope_type) : NULL;
        if (!self) {
            return NULL;
        }
        memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
        self->call = py_scope_call;
        self->state = state;
    }
    Py_INCREF(name);
    self->name = name;
    return self;
}

static void drop_keywords(Scope *self)
{
    PyObject *few[PY_FEW], *names = self->names, *metrics = self->metrics, *category = self->category;
    PyObject **values = self->values;
    Py_ssize_t count = names ? PyTuple_GET_SIZE(names) : 0;
    if (count && count <= PY_FEW) {
        values = memcpy(few, values, (size_t)count * sizeof *values);
    }
    self->names = self->metrics = self->category = NULL;
    self->values = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(values[i]);
    }
    if (count > PY_FEW) {
        PyMem_Free(values);
    }
    Py_XDECREF(names);
    Py_XDECREF(metrics);
    Py_XDECREF(category);
}

/* Everything that an object which is only entered and left once does not have. */
static __attribute__((noinline)) void scope_strip(Scope *self)
{
    if (self->flags & PY_TRACKED) {
        PyObject_GC_UnTrack(self);
    }
    if (self->flags & (PY_OWNS | PY_PROFILE)) {
        Py_DECREF(self->profiler);
    }
    for (Scope *further; (further = self->again);) {
        self->again = further->again;
        further->again = further->origin = NULL;
        Py_DECREF(further);
    }
    self->profiler = NULL;
    self->flags = self->off = 0;
    drop_keywords(self);
    Py_CLEAR(self->source);
    Py_CLEAR(self->cell);
    Py_CLEAR(self->token_object);
}

static void scope_dealloc(PyObject *object)
{
    Scope *self = (Scope *)object;
    if (PY_UNLIKELY(self->flags | self->off)) {
        scope_strip(self);
    }
    Py_DECREF(self->name);
#if PY_SCOPES_KEPT
    py_hot *hot = &self->state->hot;
    if (PY_LIKELY(hot->kept < hot->keep)) {
        hot->scopes[hot->kept++] = self;
        return;
    }
#endif
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int scope_traverse(PyObject *object, visitproc visit, void *arg)
{
    Scope *self = (Scope *)object;
    Py_VISIT(Py_TYPE(object));
    for (Py_ssize_t i = 0; self->names && i < PyTuple_GET_SIZE(self->names); i++) {
        Py_VISIT(self->values[i]);
    }
    Py_VISIT(self->metrics);
    Py_VISIT(self->source);
    Py_VISIT(self->cell);
    Py_VISIT(self->token_object);
    return 0;
}

static PyObject *scope_repr(PyObject *object)
{
    return PyUnicode_FromFormat("<enigma.scope %R>", ((Scope *)object)->name);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------------- */

static bool is_word(PyObject *key, PyObject *word)
{
    return key == word ||
           (PyUnicode_GET_LENGTH(key) == PyUnicode_GET_LENGTH(word) && PyUnicode_Compare(key, word) == 0);
}

static bool is_atom(PyObject *object)
{
    return object == Py_None || PyBool_Check(object) || PyUnicode_CheckExact(object) || PyLong_CheckExact(object) ||
           PyFloat_CheckExact(object) || PyBytes_CheckExact(object);
}

/* A str, exactly: a subclass could hash or compare by code of its own. */
static PyObject *exact_str(PyObject *object, const char *what)
{
    if (PY_LIKELY(PyUnicode_CheckExact(object))) {
        return Py_NewRef(object);
    }
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a scope's %s must be str, not %.200s", what, Py_TYPE(object)->tp_name);
        return NULL;
    }
    return PyUnicode_FromObject(object);
}

static int take_metrics(Scope *self, PyObject *value)
{
    if (value == Py_None) {
        return 0;
    }
    if (!PyDict_Check(value)) {
        PyErr_Format(PyExc_TypeError, "a scope's metrics must be a dict or None, not %.200s", Py_TYPE(value)->tp_name);
        return -1;
    }
    Py_XSETREF(self->metrics, Py_NewRef(value));
    return 0;
}

static int take_category(Scope *self, PyObject *value)
{
    PyObject *category = exact_str(value, "category");
    if (!category) {
        return -1;
    }
    self->flags &= ~(uint32_t)PY_CATEGORY_PYTHON;
    if (is_word(category, self->state->word_python)) {
        self->flags |= PY_CATEGORY_PYTHON;
    } else if (!is_word(category, self->state->word_scope)) {
        Py_XSETREF(self->category, category);
        return 0;
    }
    Py_DECREF(category);
    return 0;
}

/* One keyword argument: kept as metadata (1), taken otherwise (0). */
static int take_keyword(Scope *self, PyObject *key, PyObject *value)
{
    const py_state *state = self->state;
    if (is_word(key, state->word_metrics)) {
        return take_metrics(self, value);
    }
    if (is_word(key, state->word_category)) {
        return take_category(self, value);
    }
    return is_word(key, state->word_name) ? 0 : 1;
}

static __attribute__((noinline)) int take_keywords(Scope *self, PyObject *const *values, PyObject *names)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names), metadata = 0;
    bool atoms = true;
    PyObject **kept = count <= PY_FEW ? self->few : PyMem_New(PyObject *, count);
    if (!kept) {
        PyErr_NoMemory();
        return -1;
    }
    memset(kept, 0, (size_t)count * sizeof *kept);
    self->values = kept;
    self->names = Py_NewRef(names);
    self->flags |= PY_KEYWORDS;
    for (Py_ssize_t i = 0; i < count; i++) {
        int status = take_keyword(self, PyTuple_GET_ITEM(names, i), values[i]);
        if (status < 0) {
            return -1;
        }
        if (status) {
            kept[i] = Py_NewRef(values[i]);
            atoms = atoms && is_atom(values[i]);
            metadata++;
        }
    }
    self->metadata_count = metadata;
    if (!atoms || (self->metrics && PyObject_GC_IsTracked(self->metrics))) {
        self->flags |= PY_TRACKED;
        PyObject_GC_Track(self);
    }
    return 0;
}

/* The name, lent: the only positional argument, or the keyword. */
static PyObject *name_argument(py_state *state, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *name = count == 1 ? args[0] : NULL;
    for (Py_ssize_t i = 0; names && count <= 1 && i < PyTuple_GET_SIZE(names); i++) {
        if (is_word(PyTuple_GET_ITEM(names, i), state->word_name)) {
            if (name) {
                PyErr_SetString(PyExc_TypeError, "a scope got multiple values for argument 'name'");
                return NULL;
            }
            name = args[count + i];
        }
    }
    if (count > 1) {
        PyErr_Format(PyExc_TypeError, "a scope takes one positional argument, its name, but %zd were given", count);
        return NULL;
    }
    if (!name) {
        PyErr_SetString(PyExc_TypeError, "a scope is missing 1 required argument: 'name'");
    }
    return name;
}

static __attribute__((noinline)) Scope *make_with_keywords(py_state *state, PyObject *const *args, Py_ssize_t count,
                                                           PyObject *names, uint32_t flags)
{
    PyObject *name = name_argument(state, args, count, names);
    name = name ? exact_str(name, "name") : NULL;
    Scope *self = name ? py_scope_alloc(state, name) : NULL;
    Py_XDECREF(name);
    if (self) {
        self->flags = flags;
        if (names && take_keywords(self, args + count, names)) {
            Py_CLEAR(self);
        }
    }
    return self;
}

/* scope(name, *, metrics=None, category="scope", **metadata) */
static PyObject *scope_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names)
{
    py_state *state = py_state_of_type((PyTypeObject *)type);
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if (PY_LIKELY(count == 1 && !names && PyUnicode_CheckExact(args[0]))) {
        return (PyObject *)py_scope_alloc(state, args[0]);
    }
    return (PyObject *)make_with_keywords(state, args, count, names, 0);
}

/* record_function(name, *, category="python", metrics=None, **metadata) */
static PyObject *record_function(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return (PyObject *)make_with_keywords(py_state_of(module), args, count, names, PY_CATEGORY_PYTHON);
}

/* ---- The type ------------------------------------------------------------------------------------------------------------ */

PyDoc_STRVAR(
    scope_doc,
    "scope(name, *, metrics=None, category='scope', **metadata)\n--\n\n"
    "Profile a named region, as a context manager or as a decorator.\n\n"
    "The names of the open scopes are the call path of everything recorded inside. Does nothing where no profiler is\n"
    "active when it is entered. May be entered again, nested, and from several threads; each entry is an event.\n\n"
    "metrics: a dict of real numbers, copied on entry; \"flops\" and \"bytes\" drive GFLOP/s and GB/s.\n"
    "metadata: kept with the event; what is no plain value is kept as text.\n\n"
    "Raises TypeError for a name or category that is no str and metrics that are no dict; on entry, where a profiler "
    "is\n"
    "active, for a metric that is no real number.");

PyDoc_STRVAR(record_function_doc,
             "record_function($module, /, name, *, category='python', metrics=None, **metadata)\n--\n\n"
             "A scope with category \"python\", for marking regions of Python code.");

static PyMemberDef scope_members[] = {{"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(Scope, call), Py_READONLY, NULL},
                                      {NULL, 0, 0, 0, NULL}};

static PyType_Slot scope_slots[] = {{Py_tp_dealloc, scope_dealloc},    {Py_tp_traverse, scope_traverse},
                                    {Py_tp_call, PyVectorcall_Call},   {Py_tp_repr, scope_repr},
                                    {Py_tp_members, scope_members},    {Py_tp_doc, (void *)scope_doc},
                                    {Py_tp_methods, py_scope_methods}, {0, NULL}};

PyType_Spec py_scope_spec = {
    .name = "enigma.scope",
    .basicsize = sizeof(Scope),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = scope_slots,
};

static PyMethodDef functions[] = {{"record_function", (PyCFunction)(void (*)(void))record_function,
                                   METH_FASTCALL | METH_KEYWORDS, record_function_doc},
                                  {NULL, NULL, 0, NULL}};

static int exec_scope(PyObject *module, py_state *state)
{
    (void)module;
    state->hot.keep = PY_SCOPES_KEPT;
    state->scope_type->tp_vectorcall = scope_vectorcall;
    return py_scope_add_methods(state);
}

static void clear_scope(py_state *state)
{
    state->hot.keep = 0;
    while (state->hot.kept) {
        PyObject_GC_Del(state->hot.scopes[--state->hot.kept]);
        Py_DECREF(state->scope_type);
    }
}

const py_part py_scope_part = {functions, exec_scope, clear_scope};
