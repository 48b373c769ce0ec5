/* Errors between the library and Python, and the GIL around calls that wait. Used by every file of the extension. */
#include "pyenigma.h"

#include <errno.h>

/* ---- Exceptions -------------------------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030C0000
PyObject *py_error_take(void) { return PyErr_GetRaisedException(); }
void py_error_restore(PyObject *exception)
{
    if (exception) {
        PyErr_SetRaisedException(exception);
    }
}
#else
PyObject *py_error_take(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (!type) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) {
        PyException_SetTraceback(value, traceback);
    }
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
}

void py_error_restore(PyObject *exception)
{
    if (exception) {
        PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exception)), exception, PyException_GetTraceback(exception));
    }
}
#endif

bool py_error_clear(void)
{
    if (!PyErr_Occurred()) {
        return true;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return false;
    }
    PyErr_Clear();
    return true;
}

void py_error_chain(PyObject *cause)
{
    PyObject *raised = cause ? py_error_take() : NULL;
    if (!raised) {
        Py_XDECREF(cause);
        return;
    }
    PyException_SetContext(raised, Py_NewRef(cause));
    PyException_SetCause(raised, cause);
    py_error_restore(raised);
}

/* ---- Statuses ---------------------------------------------------------------------------------------------------------- */

/* The exception column of the map. */
static PyObject *exception_of(enigma_status status)
{
    switch ((int)status) {
#define EXCEPTION_CASE(name, value, text, exception)                                                                   \
    case ENIGMA_E_##name:                                                                                              \
        return PyExc_##exception;
        ENIGMA_STATUS_MAP(EXCEPTION_CASE)
#undef EXCEPTION_CASE
    default:
        return PyExc_SystemError;
    }
}

/* OSError(errno, strerror, path): its constructor picks the subclass. */
static void raise_os_error(int error)
{
    const char *path = enigma_error_path();
    PyObject *name = PyUnicode_DecodeFSDefault(path); /* "" where the path was */
    PyObject *text = name ? PyUnicode_DecodeLocale(strerror(error), "surrogateescape") : NULL;
    PyObject *value = text ? PyObject_CallFunction(PyExc_OSError, "iOO", error, text, name) : NULL;
    if (value) {
        PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    }
    Py_XDECREF(value);
    Py_XDECREF(text);
    Py_XDECREF(name);
}

PyObject *py_raise(enigma_status status)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    int error = enigma_error_errno();
    if (status == ENIGMA_E_IO && error != 0) {
        raise_os_error(error);
    } else if (status == ENIGMA_E_INTERRUPTED) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
    } else {
        const char *message = enigma_error_message();
        message = *message ? message : enigma_status_text(status);
        PyObject *text = py_str((enigma_text){message, strlen(message)});
        if (text) {
            PyErr_SetObject(exception_of(status), text);
            Py_DECREF(text);
        }
    }
    return NULL;
}

/* ---- What a scope says of the exception that ended it ------------------------------------------------------------------ */

/* The last part of a type's name, as tracebacks of builtin exceptions show it. */
static const char *short_name(PyObject *type)
{
    const char *name = PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "exception";
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

PyObject *py_error_text(PyObject *type, PyObject *value)
{
    PyObject *message = value && value != Py_None ? PyObject_Str(value) : NULL;
    PyObject *full;
    if (message && PyUnicode_GetLength(message) > 0) {
        full = PyUnicode_FromFormat("%s: %U", short_name(type), message);
    } else {
        PyErr_Clear(); /* a __str__ that fails leaves the name */
        full = PyUnicode_FromString(short_name(type));
    }
    Py_XDECREF(message);
    PyObject *text = full ? PyUnicode_Substring(full, 0, PY_TEXT_LIMIT) : NULL;
    Py_XDECREF(full);
    PyErr_Clear();
    return text;
}

/* ---- The GIL ----------------------------------------------------------------------------------------------------------- */

/* The thread state that this thread gave up in py_wait_begin; NULL outside. Works in subinterpreters, where PyGILState does
 * not. */
static __thread PyThreadState *waiting;

void py_wait_begin(py_wait *wait)
{
    wait->outer = waiting;
    waiting = PyEval_SaveThread();
}

void py_wait_end(py_wait *wait)
{
    int error = errno;
    PyEval_RestoreThread(waiting);
    waiting = wait->outer;
    errno = error;
}

void py_gil_take(py_gil *gil)
{
    gil->restored = waiting;
    if (waiting) {
        waiting = NULL;
        PyEval_RestoreThread(gil->restored);
    } else {
        gil->ensured = PyGILState_Ensure();
    }
}

void py_gil_give(py_gil *gil)
{
    if (gil->restored) {
        waiting = PyEval_SaveThread();
    } else {
        PyGILState_Release(gil->ensured);
    }
}

/* The library asks this while it waits, on the waiting thread. Threads that never held the GIL have no signals to handle. */
static int check_signals(void *user)
{
    (void)user;
    if (!waiting) {
        return 0;
    }
    py_gil gil;
    py_gil_take(&gil);
    int raised = PyErr_CheckSignals();
    py_gil_give(&gil);
    return raised;
}

static int exec_errors(PyObject *module, py_state *state)
{
    (void)module;
    (void)state;
    enigma_set_interrupt(check_signals, NULL); /* process-wide, and the same for every interpreter */
    return 0;
}

const py_part py_errors_part = {NULL, exec_errors, NULL};
