/* A context manager that does nothing, written in C and created for each use: the floor that bench/py_scope.py measures
 * enigma.scope against. Built by py_scope.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct Noop {
    PyObject_HEAD
    PyObject *name;
} Noop;

static PyObject *noop_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names)
{
    if (PyVectorcall_NARGS(nargsf) != 1 || names) {
        PyErr_SetString(PyExc_TypeError, "one argument");
        return NULL;
    }
    Noop *self = PyObject_New(Noop, (PyTypeObject *)type);
    if (self) {
        self->name = Py_NewRef(args[0]);
    }
    return (PyObject *)self;
}

static void noop_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_DECREF(((Noop *)object)->name);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *noop_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *noop_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    Py_RETURN_NONE;
}

static PyMethodDef noop_methods[] = {{"__enter__", noop_enter, METH_NOARGS, NULL},
                                     {"__exit__", (PyCFunction)(void (*)(void))noop_exit, METH_FASTCALL, NULL},
                                     {NULL, NULL, 0, NULL}};

static PyType_Slot noop_slots[] = {{Py_tp_dealloc, noop_dealloc}, {Py_tp_methods, noop_methods}, {0, NULL}};

static PyType_Spec noop_spec = {
    .name = "noop_cm.Noop",
    .basicsize = sizeof(Noop),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = noop_slots,
};

static int noop_module_exec(PyObject *module)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &noop_spec, NULL);
    if (!type) {
        return -1;
    }
    type->tp_vectorcall = noop_vectorcall;
    int status = PyModule_AddType(module, type);
    Py_DECREF(type);
    return status;
}

static PyModuleDef_Slot noop_module_slots[] = {{Py_mod_exec, (void *)noop_module_exec}, {0, NULL}};

static struct PyModuleDef noop_module = {PyModuleDef_HEAD_INIT, "noop_cm", NULL, 0,   NULL,
                                         noop_module_slots,     NULL,      NULL, NULL};

PyMODINIT_FUNC PyInit_noop_cm(void);
PyMODINIT_FUNC PyInit_noop_cm(void) { return PyModuleDef_Init(&noop_module); }
