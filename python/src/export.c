/* Profiler.save and the export methods: one for each row of the library's exporter table, so that a new exporter needs nothing
 * here. */
#include "pyenigma.h"

#include <pthread.h>

/* Writes a profile to a path without the GIL. */
typedef enigma_status (*write_file_fn)(const enigma_profile *profile, const char *format, const char *path);

static PyObject *write_to(PyObject *self, PyObject *args, PyObject *kwargs, write_file_fn write_file,
                          const char *format)
{
    static char *names[] = {(char *)"path", NULL};
    PyObject *path;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", names, PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    Snapshot *snapshot = py_profiler_snapshot((Profiler *)self);
    int status = -1;
    if (snapshot) {
        py_wait wait;
        py_wait_begin(&wait);
        enigma_status written = write_file(snapshot->profile, format, PyBytes_AS_STRING(path));
        py_wait_end(&wait);
        status = py_check(written);
    }
    Py_XDECREF(snapshot);
    Py_DECREF(path);
    return status ? NULL : Py_NewRef(Py_None);
}

static enigma_status save_file(const enigma_profile *profile, const char *format, const char *path)
{
    (void)format;
    return enigma_profile_save(profile, path);
}

PyObject *py_profiler_save(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return write_to(self, args, kwargs, save_file, NULL);
}

/* ---- One method for each exporter ---------------------------------------------------------------------------------------- */

/* A C method is not told its name, so each row has a function of its own. */
#define EXPORT_ROWS(XX)                                                                                                \
    XX(0) XX(1) XX(2) XX(3) XX(4) XX(5) XX(6) XX(7) XX(8) XX(9) XX(10) XX(11) XX(12) XX(13) XX(14) XX(15)

#define EXPORT_FUNCTION(row)                                                                                           \
    static PyObject *export_##row(PyObject *self, PyObject *args, PyObject *kwargs)                                    \
    {                                                                                                                  \
        return write_to(self, args, kwargs, enigma_export_file, enigma_exporter_at(row)->name);                        \
    }
EXPORT_ROWS(EXPORT_FUNCTION)
#undef EXPORT_FUNCTION

#define EXPORT_POINTER(row) (PyCFunction)(void (*)(void)) export_##row,
static const PyCFunction export_functions[] = {EXPORT_ROWS(EXPORT_POINTER)};
#undef EXPORT_POINTER

enum { EXPORT_LIMIT = sizeof export_functions / sizeof *export_functions, DOC_SIZE = 400 };

/* The table is constant, so these are filled once and serve every interpreter. */
static PyMethodDef export_methods[EXPORT_LIMIT + 1];
static char export_docs[EXPORT_LIMIT][DOC_SIZE];
static pthread_once_t export_once = PTHREAD_ONCE_INIT;

static void fill_export_methods(void)
{
    const enigma_exporter_info *info;
    for (size_t i = 0; i < EXPORT_LIMIT && (info = enigma_exporter_at(i)); i++) {
        snprintf(export_docs[i], DOC_SIZE,
                 "%s($self, /, path)\n--\n\nWrite the profile to path, whole or not at all: %s.\n\n"
                 "Raises OSError with the path.",
                 info->method, info->help);
        export_methods[i] =
            (PyMethodDef){info->method, export_functions[i], METH_VARARGS | METH_KEYWORDS, export_docs[i]};
    }
}

static int exec_export(PyObject *module, py_state *state)
{
    (void)module;
    pthread_once(&export_once, fill_export_methods);
    PyTypeObject *type = state->profiler_type;
    for (PyMethodDef *def = export_methods; def->ml_name; def++) {
        PyObject *method = PyDescr_NewMethod(type, def);
        int status = method ? PyDict_SetItemString(type->tp_dict, def->ml_name, method) : -1;
        Py_XDECREF(method);
        if (status) {
            return -1;
        }
    }
    PyType_Modified(type);
    return 0;
}

const py_part py_export_part = {NULL, exec_export, NULL};
