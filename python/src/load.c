/* enigma.load: an .enigma file as a Profiler that was left. */
#include "pyenigma.h"

static PyObject *load_snapshot(py_state *state, PyObject *path)
{
    enigma_profile *profile = NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_profile_load(PyBytes_AS_STRING(path), &profile);
    py_wait_end(&wait);
    return py_check(status) < 0 ? NULL : py_snapshot_new(state, profile);
}

static PyObject *load(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"path", NULL};
    PyObject *path;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&:load", (char **)keywords, PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    PyObject *snapshot = load_snapshot(py_state_of(module), path);
    Py_DECREF(path);
    Profiler *profiler = snapshot == NULL ? NULL : (Profiler *)PyObject_CallMethod(module, "profile", NULL);
    if (profiler == NULL) {
        Py_XDECREF(snapshot);
        return NULL;
    }
    profiler->entered = profiler->sealed = 1; /* it has been active, elsewhere */
    profiler->snapshot = snapshot;
    return (PyObject *)profiler;
}

PyDoc_STRVAR(
    load_doc,
    "load($module, /, path)\n--\n\n"
    "Reads an .enigma file, as Profiler.save() and the enigma command write it, and returns it as a Profiler to be\n"
    "read; it cannot be entered.\n\n"
    "OSError with the path; ValueError when it is no profile or damaged.");

static PyMethodDef load_functions[] = {
    {"load", (PyCFunction)(void (*)(void))load, METH_VARARGS | METH_KEYWORDS, load_doc}, {NULL, NULL, 0, NULL}};

const py_part py_load_part = {load_functions, NULL, NULL};
