/* The module enigma._enigma: its state, made of the lists in pyenigma.h, and nothing of what the parts do. */
#include "pyenigma.h"

static const py_part *const parts[] = {
#define PART_POINTER(name) &py_##name##_part,
    PY_PARTS(PART_POINTER)
#undef PART_POINTER
};
enum { PART_COUNT = sizeof parts / sizeof *parts };

static int make_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out, int exported)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return !*out || (exported && PyModule_AddType(module, *out)) ? -1 : 0;
}

static int make_words(py_state *state)
{
    const struct {
        PyObject **field;
        const char *text;
    } words[] = {{&state->word_name, "name"},
                 {&state->word_metrics, "metrics"},
                 {&state->word_category, "category"},
                 {&state->word_scope, "scope"},
                 {&state->word_python, "python"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        *words[i].field = PyUnicode_InternFromString(words[i].text);
        if (!*words[i].field) {
            return -1;
        }
    }
    return 0;
}

static int module_exec(PyObject *module)
{
    py_state *state = py_state_of(module);
    if (make_words(state) || PyModule_AddStringConstant(module, "__version__", enigma_version_string())) {
        return -1;
    }
#define MAKE_TYPE(name, exported)                                                                                      \
    if (make_type(module, &py_##name##_spec, &state->name##_type, exported)) {                                         \
        return -1;                                                                                                     \
    }
    PY_TYPES(MAKE_TYPE)
#undef MAKE_TYPE
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (parts[i]->functions && PyModule_AddFunctions(module, parts[i]->functions)) {
            return -1;
        }
        if (parts[i]->exec && parts[i]->exec(module, state)) {
            return -1;
        }
    }
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    py_state *state = py_state_of(module);
    for (int i = 0; i < state->hot.kept; i++) {
        Py_VISIT(state->scope_type);
    }
#define VISIT_TYPE(name, exported) Py_VISIT(state->name##_type);
    PY_TYPES(VISIT_TYPE)
#undef VISIT_TYPE
#define VISIT_OBJECT(name) Py_VISIT(state->name);
    PY_OBJECTS(VISIT_OBJECT)
#undef VISIT_OBJECT
    return 0;
}

static int module_clear(PyObject *module)
{
    py_state *state = py_state_of(module);
    for (size_t i = PART_COUNT; i-- > 0;) {
        if (parts[i]->clear) {
            parts[i]->clear(state);
        }
    }
#define CLEAR_OBJECT(name) Py_CLEAR(state->name);
    PY_OBJECTS(CLEAR_OBJECT)
#undef CLEAR_OBJECT
#define CLEAR_TYPE(name, exported) Py_CLEAR(state->name##_type);
    PY_TYPES(CLEAR_TYPE)
#undef CLEAR_TYPE
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,      .m_name = "enigma._enigma", .m_doc = "The C half of enigma.",
    .m_size = sizeof(py_state), .m_slots = module_slots,    .m_traverse = module_traverse,
    .m_clear = module_clear,    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__enigma(void);
PyMODINIT_FUNC PyInit__enigma(void) { return PyModuleDef_Init(&module_def); }
