/* Functions decorated with a scope: plain ones by the type here, coroutine and generator functions by enigma/_decorate.py, since
 * what they are is a property of Python functions. */
#include "pycontext.h"

typedef struct ScopeFunction {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *dict, *weak;
    Scope *scope;
} ScopeFunction;

/* A scope like self for one call. */
static Scope *fresh_scope(Scope *self)
{
    Scope *fresh = py_scope_alloc(self->state, self->name);
    if (fresh) {
        fresh->flags = self->flags & (PY_CATEGORY_PYTHON | PY_KEYWORDS);
        if (fresh->flags & PY_KEYWORDS) {
            fresh->source = (Scope *)Py_NewRef((PyObject *)(self->source ? self->source : self));
        }
    }
    return fresh;
}

/* The result of a call made under scope; NULL with the exception as it came. */
static PyObject *finish(Scope *scope, PyObject *result)
{
    PyObject *raised = result ? NULL : py_error_take();
    py_scope_leave(scope, raised);
    if (raised) {
        py_error_restore(raised);
    }
    return result;
}

static PyObject *function_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    ScopeFunction *self = (ScopeFunction *)object;
    if (PY_LIKELY(!self->scope->state->hot.live)) {
        return PyObject_Vectorcall(self->function, args, nargsf, names);
    }
    Scope *scope = fresh_scope(self->scope);
    PyObject *result = NULL;
    if (scope && py_scope_enter(scope) == 0) {
        result = finish(scope, PyObject_Vectorcall(self->function, args, nargsf, names));
    }
    Py_XDECREF(scope);
    return result;
}

static PyObject *function_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

/* Pickled by name, as functions are. */
static PyObject *function_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *function_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<enigma.scope function %R>", ((ScopeFunction *)self)->function);
}

static int function_traverse(PyObject *object, visitproc visit, void *arg)
{
    ScopeFunction *self = (ScopeFunction *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->dict);
    Py_VISIT(self->scope);
    return 0;
}

static int function_clear(PyObject *object)
{
    ScopeFunction *self = (ScopeFunction *)object;
    Py_CLEAR(self->function);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->scope);
    return 0;
}

static void function_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((ScopeFunction *)self)->weak) {
        PyObject_ClearWeakRefs(self);
    }
    function_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(ScopeFunction, call), Py_READONLY, NULL},
    {"__dictoffset__", Py_T_PYSSIZET, offsetof(ScopeFunction, dict), Py_READONLY, NULL},
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(ScopeFunction, weak), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef function_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
                                        {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef function_methods[] = {{"__reduce__", function_reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot function_slots[] = {{Py_tp_dealloc, function_dealloc}, {Py_tp_traverse, function_traverse},
                                       {Py_tp_clear, function_clear},     {Py_tp_call, PyVectorcall_Call},
                                       {Py_tp_descr_get, function_get},   {Py_tp_repr, function_repr},
                                       {Py_tp_members, function_members}, {Py_tp_getset, function_getset},
                                       {Py_tp_methods, function_methods}, {0, NULL}};

PyType_Spec py_scope_function_spec = {
    .name = "enigma._ScopeFunction",
    .basicsize = sizeof(ScopeFunction),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = function_slots,
};

/* ---- Decorating --------------------------------------------------------------------------------------------------------- */

static PyObject *fresh_function(PyObject *self, PyObject *unused)
{
    (void)unused;
    return (PyObject *)fresh_scope((Scope *)self);
}

static PyMethodDef fresh_def = {"fresh", fresh_function, METH_NOARGS, "A scope like this one for one call."};

/* enigma._decorate.wrap, imported when the first function is decorated. */
static PyObject *wrapper_of(py_state *state)
{
    if (!state->decorate) {
        PyObject *module = PyImport_ImportModule("enigma._decorate");
        state->decorate = module ? PyObject_GetAttrString(module, "wrap") : NULL;
        Py_XDECREF(module);
    }
    return state->decorate;
}

static PyObject *plain_function(Scope *self, PyObject *function)
{
    ScopeFunction *made = PyObject_GC_New(ScopeFunction, self->state->scope_function_type);
    if (!made) {
        return NULL;
    }
    made->call = function_call;
    made->function = Py_NewRef(function);
    made->scope = (Scope *)Py_NewRef((PyObject *)self);
    made->dict = made->weak = NULL;
    PyObject_GC_Track(made);
    PyObject *functools = PyImport_ImportModule("functools");
    PyObject *done = functools ? PyObject_CallMethod(functools, "update_wrapper", "OO", made, function) : NULL;
    Py_XDECREF(functools);
    if (!done) {
        Py_DECREF(made);
        return NULL;
    }
    Py_DECREF(done);
    return (PyObject *)made;
}

PyObject *py_scope_decorate(Scope *self, PyObject *function)
{
    PyObject *wrap = wrapper_of(self->state);
    PyObject *fresh = wrap ? PyCFunction_New(&fresh_def, (PyObject *)self) : NULL;
    PyObject *wrapped = fresh ? PyObject_CallFunctionObjArgs(wrap, self, fresh, function, NULL) : NULL;
    Py_XDECREF(fresh);
    if (wrapped != Py_None) {
        return wrapped;
    }
    Py_DECREF(wrapped);
    return plain_function(self, function);
}
