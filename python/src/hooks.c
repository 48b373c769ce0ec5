/* Kernel hooks written in Python. The library calls them on the thread of the dispatch (or the one that drains), without
 * locks; here the GIL is taken. What they do wrong becomes one RuntimeWarning for each registration. */
#include "gpu.h"
#include "pyenigma.h"

#include <math.h>
#include <string.h>

/* A registration; lives until the library releases it, with no call of it running. Changed with the GIL only. */
typedef struct Hook {
    int64_t interpreter; /* the number of the one whose objects these are; elsewhere the hook has no answer */
    PyObject *callable;
    PyObject *kernel_name;
    PyObject *keys; /* a dict of bytes: every key ever returned, since the library reads them after the call */
    bool warned;
} Hook;

/* Numbers are never used again, unlike addresses. */
static int64_t this_interpreter(void) { return PyInterpreterState_GetID(PyInterpreterState_Get()); }

static void hook_free(Hook *hook)
{
    Py_XDECREF(hook->callable);
    Py_XDECREF(hook->kernel_name);
    Py_XDECREF(hook->keys);
    PyMem_RawFree(hook);
}

static void release_hook(void *user)
{
    if (!Py_IsInitialized()) {
        return; /* the interpreter took its objects with it */
    }
    py_gil gil;
    py_gil_take(&gil);
    if (this_interpreter() == ((Hook *)user)->interpreter) { /* else it cannot be freed here */
        PyObject *pending = py_error_take();
        hook_free(user);
        py_error_restore(pending);
    }
    py_gil_give(&gil);
}

/* ---- Asking ---- */

static PyObject *call_hook(const Hook *hook, const enigma_dispatch_info *info)
{
    const enigma_size3 *grid = &info->grid, *threads = &info->threads;
    PyObject *none = PyTuple_New(0);
    PyObject *keywords =
        Py_BuildValue("{s:O,s:(KKK),s:(KKK)}", "kernel_name", hook->kernel_name, "grid", (unsigned long long)grid->x,
                      (unsigned long long)grid->y, (unsigned long long)grid->z, "threads",
                      (unsigned long long)threads->x, (unsigned long long)threads->y, (unsigned long long)threads->z);
    PyObject *result = none == NULL || keywords == NULL ? NULL : PyObject_Call(hook->callable, none, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(none);
    return result;
}

/* A copy of a key that lives as long as the registration. */
static const char *keep_key(Hook *hook, const char *key)
{
    PyObject *bytes = PyBytes_FromString(key);
    PyObject *kept = bytes == NULL ? NULL : PyDict_SetDefault(hook->keys, bytes, bytes);
    Py_XDECREF(bytes);
    return kept == NULL ? NULL : PyBytes_AS_STRING(kept);
}

/* A hook that was replaced or removed during its own call is released before the library reads the keys: this thread holds
 * them until its next answer. */
static int hold_keys(Hook *hook)
{
    PyObject *dict = PyThreadState_GetDict(); /* borrowed; NULL: none */
    return dict == NULL ? 0 : PyDict_SetItemString(dict, "enigma.hook_keys", hook->keys);
}

/* The finite ones of a hook's answer. Sets an exception for what was wrong with it; out may hold metrics all the same. */
static size_t take_metrics(Hook *hook, PyObject *answer, enigma_metric *out, size_t capacity)
{
    if (answer == Py_None) {
        return 0;
    }
    if (!PyDict_Check(answer)) {
        PyErr_Format(PyExc_TypeError, "returned %.200s, not a dict of metrics or None", Py_TYPE(answer)->tp_name);
        return 0;
    }
    py_arena arena;
    const enigma_metric *metrics = NULL;
    size_t count = 0, kept = 0;
    const char *problem = NULL;
    py_arena_init(&arena);
    int failed = py_metrics(&arena, answer, &metrics, &count) < 0;
    for (size_t i = 0; !failed && i < count; i++) {
        if (!isfinite(metrics[i].value)) {
            problem = "left out: a metric that is not finite";
        } else if (kept == capacity) {
            problem = "left out: more metrics than fit";
        } else if ((out[kept].key = keep_key(hook, metrics[i].key)) == NULL) {
            failed = 1;
        } else {
            out[kept++].value = metrics[i].value;
        }
    }
    py_arena_free(&arena);
    failed = failed || hold_keys(hook) < 0;
    if (!failed && problem != NULL) {
        PyErr_SetString(PyExc_ValueError, problem);
    }
    return failed ? 0 : kept;
}

/* ---- What a hook does wrong ---- */

/* The hook's own name, or its type's. Never fails: NULL without an exception. */
static PyObject *hook_name(PyObject *callable)
{
    PyObject *name = PyObject_GetAttrString(callable, "__qualname__");
    if (name != NULL && PyUnicode_Check(name)) {
        return name;
    }
    Py_XDECREF(name);
    PyErr_Clear();
    name = PyUnicode_FromString(Py_TYPE(callable)->tp_name);
    PyErr_Clear();
    return name;
}

/* Turns the exception that is set into the registration's one warning; nothing of it reaches the dispatch. */
static void warn_of_exception(Hook *hook)
{
    PyObject *error = py_error_take();
    if (error != NULL && PyErr_GivenExceptionMatches(error, PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt(); /* no fault of the hook, and meant for the program: raised again where it next looks */
    } else if (error != NULL && !hook->warned) {
        hook->warned = true; /* before anything that can run code: showing a warning may dispatch */
        PyObject *text = py_error_text((PyObject *)Py_TYPE(error), error), *name = hook_name(hook->callable);
        if (text != NULL && name != NULL &&
            PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "kernel hook %U of kernel %R: %U", name, hook->kernel_name,
                             text) < 0) {
            PyErr_WriteUnraisable(hook->callable); /* warnings are errors here */
        }
        Py_XDECREF(name);
        Py_XDECREF(text);
    }
    Py_XDECREF(error);
    PyErr_Clear();
}

static size_t ask_hook(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    if (!Py_IsInitialized()) {
        return 0;
    }
    Hook *hook = user;
    py_gil gil;
    py_gil_take(&gil);
    py_pause pause;
    py_runtime_pause(&pause);
    PyObject *pending = py_error_take(); /* of a signal seen during the dispatch */
    bool mine = this_interpreter() == hook->interpreter;
    PyObject *answer = mine ? call_hook(hook, info) : Py_NewRef(Py_None);
    size_t count = answer == NULL ? 0 : take_metrics(hook, answer, out, capacity);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        warn_of_exception(hook);
    }
    py_error_restore(pending);
    py_runtime_resume(&pause);
    py_gil_give(&gil);
    return count;
}

/* ---- Functions of the module ---- */

static Hook *hook_new(PyObject *kernel_name, PyObject *callable)
{
    Hook *hook = PyMem_RawCalloc(1, sizeof(*hook));
    if (hook == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    hook->interpreter = this_interpreter();
    hook->callable = Py_NewRef(callable);
    hook->kernel_name = PyUnicode_FromObject(kernel_name);
    hook->keys = PyDict_New();
    if (hook->kernel_name == NULL || hook->keys == NULL) {
        hook_free(hook);
        return NULL;
    }
    return hook;
}

static int check_name(PyObject *kernel_name)
{
    if (!PyUnicode_Check(kernel_name)) {
        PyErr_Format(PyExc_TypeError, "kernel_name must be a str, not %.200s", Py_TYPE(kernel_name)->tp_name);
        return -1;
    }
    return 0;
}

/* The GIL is not held inside: releasing a hook that is replaced takes it, on whatever thread. */
static enigma_status register_unlocked(enigma_text name, Hook *hook)
{
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_hook_register(name, ask_hook, release_hook, hook);
    py_wait_end(&wait);
    return status;
}

static PyObject *register_kernel_hook(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"kernel_name", "hook", NULL};
    (void)module;
    PyObject *kernel_name, *callable, *owner = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:register_kernel_hook", (char **)keywords, &kernel_name,
                                     &callable) ||
        check_name(kernel_name) < 0) {
        return NULL;
    }
    if (!PyCallable_Check(callable)) {
        return PyErr_Format(PyExc_TypeError, "hook must be callable, not %.200s", Py_TYPE(callable)->tp_name);
    }
    Hook *hook = hook_new(kernel_name, callable);
    enigma_text name;
    if (hook == NULL || py_text(hook->kernel_name, &name, &owner) < 0) {
        if (hook != NULL) {
            hook_free(hook);
        }
        return NULL;
    }
    enigma_status status = register_unlocked(name, hook);
    Py_XDECREF(owner);
    if (status != ENIGMA_OK) {
        hook_free(hook);
        return py_raise(status);
    }
    Py_RETURN_NONE;
}

static PyObject *unregister_kernel_hook(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"kernel_name", NULL};
    (void)module;
    PyObject *kernel_name, *owner = NULL;
    enigma_text name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:unregister_kernel_hook", (char **)keywords, &kernel_name) ||
        check_name(kernel_name) < 0 || py_text(kernel_name, &name, &owner) < 0) {
        return NULL;
    }
    py_wait wait;
    py_wait_begin(&wait);
    enigma_hook_unregister(name);
    py_wait_end(&wait);
    Py_XDECREF(owner);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    register_doc,
    "register_kernel_hook($module, /, kernel_name, hook)\n--\n\n"
    "Attaches metrics to every recorded dispatch of kernel_name that has none of its own.\n\n"
    "hook is called as hook(kernel_name=..., grid=(x, y, z), threads=(x, y, z)), once for each such dispatch\n"
    "and never from inside itself; it returns a dict of real numbers, such as {\"flops\": ..., \"bytes\": ...},\n"
    "or None. Registering again replaces the hook. A hook that raises or returns something else leaves the\n"
    "dispatch as it is, without metrics, and is warned about once (RuntimeWarning).\n\n"
    "TypeError when kernel_name is no str or hook is not callable.");
PyDoc_STRVAR(unregister_doc, "unregister_kernel_hook($module, /, kernel_name)\n--\n\n"
                             "Removes the hook of a kernel; does nothing where there is none.\n\n"
                             "TypeError when kernel_name is no str.");

static PyMethodDef hook_functions[] = {{"register_kernel_hook", (PyCFunction)(void (*)(void))register_kernel_hook,
                                        METH_VARARGS | METH_KEYWORDS, register_doc},
                                       {"unregister_kernel_hook", (PyCFunction)(void (*)(void))unregister_kernel_hook,
                                        METH_VARARGS | METH_KEYWORDS, unregister_doc},
                                       {NULL, NULL, 0, NULL}};

const py_part py_hooks_part = {hook_functions, NULL, NULL};
