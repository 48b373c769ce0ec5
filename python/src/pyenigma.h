/* What the files of the extension share: the module's state, the lists of its parts and types, and the converters between
 * Python objects and enigma.h. The extension sees the public header only.
 *
 * Everything here is called with the GIL held unless it says otherwise. A function that returns an int returns 0, or -1 with
 * an exception set; one that returns a PyObject * returns a new reference, or NULL with an exception set.
 *
 * To add a type: a row in PY_TYPES and a PyType_Spec py_<name>_spec. To add a file: a row in PY_PARTS and a
 * `const py_part py_<file>_part`. To keep an object for the life of the module: a row in PY_OBJECTS. */
#ifndef PYENIGMA_H
#define PYENIGMA_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "enigma.h"

#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif

typedef struct py_state py_state;
typedef struct Profiler Profiler;
typedef struct Scope Scope;
typedef struct Cell Cell;

/* ---- The lists -------------------------------------------------------------------------------------------------------- */

/* Types, in the order in which they are made: XX(name, exported). The state has name##_type, made from py_##name##_spec;
 * exported ones are attributes of the module under the last part of the spec's name. */
#define PY_TYPES(XX)                                                                                                   \
    XX(snapshot, 0)                                                                                                    \
    XX(profiler, 1)                                                                                                    \
    XX(scope, 1)                                                                                                       \
    XX(scope_method, 0)                                                                                                \
    XX(scope_function, 0)                                                                                              \
    XX(cell, 0)                                                                                                        \
    XX(event, 1)                                                                                                       \
    XX(event_iterator, 0)                                                                                              \
    XX(result, 1)                                                                                                      \
    XX(benchmark, 1)                                                                                                   \
    XX(runtime, 1)                                                                                                     \
    XX(kernel, 1)                                                                                                      \
    XX(prepared, 1)                                                                                                    \
    XX(scripted_clock, 1)

/* Files, in the order in which they start: each has a py_##name##_part. */
#define PY_PARTS(XX)                                                                                                   \
    XX(errors)                                                                                                         \
    XX(context)                                                                                                        \
    XX(publish)                                                                                                        \
    XX(scope)                                                                                                          \
    XX(profiler)                                                                                                       \
    XX(export)                                                                                                         \
    XX(event)                                                                                                          \
    XX(result)                                                                                                         \
    XX(hooks)                                                                                                          \
    XX(gpu)                                                                                                            \
    XX(bench)                                                                                                          \
    XX(testing)                                                                                                        \
    XX(load)

/* Objects that live as long as the module: state->name, NULL at first, visited and cleared by module.c. */
#define PY_OBJECTS(XX)                                                                                                 \
    XX(variable) /* the ContextVar */                                                                                  \
    XX(dead_ref) /* a weak reference to nothing */                                                                     \
    XX(published) /* a dict: addresses of contexts that the library has a note of, and weak references to them */      \
    XX(word_name)                                                                                                      \
    XX(word_metrics)                                                                                                   \
    XX(word_category)                                                                                                  \
    XX(word_scope)                                                                                                     \
    XX(word_python)                                                                                                    \
    XX(decorate)  /* the function that wraps coroutine and generator functions, once needed */                         \
    XX(row_class) /* ProfilerRow */                                                                                    \
    XX(row_names) /* a tuple of its properties */                                                                      \
    XX(opencl_runtime)                                                                                                 \
    XX(cuda_runtime)                                                                                                   \
    XX(metal_runtime)                                                                                                  \
    XX(scripted_runtime)

/* One file of the extension. Any member may be NULL. */
typedef struct py_part {
    PyMethodDef *functions;                         /* of the module; static */
    int (*exec)(PyObject *module, py_state *state); /* after all types are made */
    void (*clear)(py_state *state);                 /* before the objects go; may be called twice */
} py_part;

#define PY_PART_EXTERN_(name) extern const py_part py_##name##_part;
PY_PARTS(PY_PART_EXTERN_)
#undef PY_PART_EXTERN_

#define PY_SPEC_EXTERN_(name, exported) extern PyType_Spec py_##name##_spec;
PY_TYPES(PY_SPEC_EXTERN_)
#undef PY_SPEC_EXTERN_

/* ---- The state -------------------------------------------------------------------------------------------------------- */

#if defined(Py_DEBUG) || defined(Py_GIL_DISABLED)
#define PY_SCOPES_KEPT 0
#else
#define PY_SCOPES_KEPT 64
#endif

/* context.c and scope.c's; the hot path reads nothing else. */
typedef struct py_hot {
    Py_ssize_t live;  /* profilers entered and not yet left; 0: scopes are off */
    Py_ssize_t attached; /* of these, those that attach to something */
    Py_ssize_t stale; /* frames closed out of order that are still in some stack */
    Cell *cell;       /* that of thread cell_thread since its context switch number cell_switch */
    uint64_t cell_thread, cell_switch;
    Py_ssize_t vars_offset; /* where a context keeps its variables; 0: portable mode */
    int kept, keep;         /* scope objects kept for reuse, and how many may be */
    Scope *scopes[PY_SCOPES_KEPT + 1];
} py_hot;

struct py_state {
    py_hot hot;
#define PY_TYPE_FIELD_(name, exported) PyTypeObject *name##_type;
    PY_TYPES(PY_TYPE_FIELD_)
#undef PY_TYPE_FIELD_
#define PY_OBJECT_FIELD_(name) PyObject *name;
    PY_OBJECTS(PY_OBJECT_FIELD_)
#undef PY_OBJECT_FIELD_
    int publishes; /* publish.c's */
};

static inline py_state *py_state_of(PyObject *module) { return (py_state *)PyModule_GetState(module); }
static inline py_state *py_state_of_type(PyTypeObject *type) { return (py_state *)PyType_GetModuleState(type); }

/* ---- Errors (errors.c) ------------------------------------------------------------------------------------------------ */

/* Raises what ENIGMA_STATUS_MAP says, with this thread's message; OSError by errno and with the path. An exception that is
 * set already (by a callback, or by the signal that ended a wait) stays. Returns NULL. */
PyObject *py_raise(enigma_status status);

/* -1 with an exception for a status that is one. */
static inline int py_check(enigma_status status) { return status == ENIGMA_OK ? 0 : (py_raise(status), -1); }

/* Takes the exception that is set (NULL: none), and sets one again, taking it over. */
PyObject *py_error_take(void);
void py_error_restore(PyObject *exception);

/* Gives the exception that is set a cause, taking it over; NULL: none. */
void py_error_chain(PyObject *cause);

/* Clears an exception that is an Exception and returns true; leaves others (KeyboardInterrupt) and returns false. */
bool py_error_clear(void);

/* "Type: message" for the arguments of __exit__, at most PY_TEXT_LIMIT characters; NULL without an exception when memory is
 * short. Runs the exception's __str__, hence any code. */
PyObject *py_error_text(PyObject *type, PyObject *value);
#define PY_TEXT_LIMIT 1000

/* ---- The GIL around the library (errors.c) ---------------------------------------------------------------------------- */

/* py_wait wait; py_wait_begin(&wait); ...; py_wait_end(&wait);  releases the GIL for a call that may take long. Inside, waits
 * of the library check signals about every 50 ms (enigma_set_interrupt). Nests with py_gil. */
typedef struct py_wait {
    PyThreadState *outer;
} py_wait;
void py_wait_begin(py_wait *wait);
void py_wait_end(py_wait *wait); /* keeps errno */

/* Takes the GIL in a callback of the library, on any thread and in any interpreter, inside py_wait or not. */
typedef struct py_gil {
    PyThreadState *restored;
    PyGILState_STATE ensured;
} py_gil;
void py_gil_take(py_gil *gil);
void py_gil_give(py_gil *gil);

/* ---- From Python (convert.c) ------------------------------------------------------------------------------------------ */

/* Memory for what goes into one call of the library: freed as a whole, small ones without malloc. */
#define PY_ARENA_HELD 4
typedef struct py_arena {
    struct py_arena_block *blocks;
    size_t used;
    size_t nodes; /* values converted so far */
    PyObject *held[PY_ARENA_HELD]; /* strs whose text is lent */
    size_t held_count;
    union {
        char bytes[768];
        max_align_t align;
    } first;
} py_arena;
void py_arena_init(py_arena *arena);
void py_arena_free(py_arena *arena);
void *py_arena_alloc(py_arena *arena, size_t size); /* NULL with MemoryError */

/* The text of a str, UTF-8 with surrogates passed, so that every str comes back the same from py_str. Lives as long as the
 * str; *owner, which the caller drops afterwards, is NULL or what holds it instead. TypeError when it is no str. */
int py_text(PyObject *str, enigma_text *out, PyObject **owner);
/* The same, copied into an arena. */
int py_text_copy(py_arena *arena, PyObject *str, enigma_text *out);

/* A real number: bool, int (beyond what a double holds: infinite), float, or what has __float__. TypeError that names what and,
 * unless it is NULL, the key: "metrics['flops'] must be a real number, not str". Runs any code. */
int py_number(PyObject *value, const char *what, PyObject *key, double *out);

/* The entries of a dict of metrics, keys copied or held; None or NULL gives none. TypeError that names the key for a value that is no
 * real number and for a key that is no str. Runs any code. */
int py_metrics(py_arena *arena, PyObject *dict, const enigma_metric **out, size_t *count);

/* A copy of a metadata value: None, bool, int (float beyond 64 bits), float, str, tuples, lists and dicts of them; arrays
 * (shape and dtype) as a dict of type, shape and dtype; the rest as its repr, at most 1,000 characters. Cycles and depths over
 * 32 end in "...". Fails only for lack of memory and for exceptions that are no Exception (KeyboardInterrupt). Runs any code. */
int py_value(py_arena *arena, PyObject *object, enigma_value *out);

/* Metadata of keyword arguments: the values that are not NULL, under the names of a tuple. Runs any code. */
int py_fields(py_arena *arena, PyObject *names, PyObject *const *values, const enigma_field **out, size_t *count);

/* ---- To Python (convert.c) -------------------------------------------------------------------------------------------- */

PyObject *py_str(enigma_text text);                                    /* None when absent; U+FFFD for bad bytes */
PyObject *py_object(const enigma_value *value);                        /* tuples stay tuples */
PyObject *py_metrics_dict(const enigma_metric *metrics, size_t count); /* values are floats */
PyObject *py_fields_dict(const enigma_field *fields, size_t count);

/* ---- Profiler (profiler.c, context.c) --------------------------------------------------------------------------------- */

/* A place to record at: under a node of a profiler, inside a scope of it. */
typedef struct py_place {
    Profiler *profiler; /* NULL: nowhere */
    enigma_path path;
    uint64_t scope;
} py_place;

/* What the profiler knows of (parent, name): the node. name is held. */
typedef struct py_memo {
    PyObject *name;
    enigma_path parent, path;
} py_memo;
#define PY_MEMO_SIZE 256

/* enigma.Profiler. Not collected: it refers to strings, a snapshot and profilers that were entered before it. */
struct Profiler {
    PyObject_HEAD
    enigma_profiler *recorder; /* as long as the object */
    int live;                  /* entered and not yet left: nothing is recorded otherwise */
    int entered, sealed;
    int attaches;              /* to something, so contexts tell where they record */
    PyObject *snapshot; /* the final one, once somebody asked */
    py_place outer;     /* where it was entered; holds its profiler */
    PyObject *category; /* the one numbered last, and its number */
    uint32_t category_number;
    py_state *state;
    py_memo memo[PY_MEMO_SIZE];
};

/* A sealed profile that Python objects share. Not exported, immutable, not collected. */
typedef struct Snapshot {
    PyObject_HEAD
    enigma_profile *profile;
} Snapshot;

/* Takes a profile over, also on failure. */
PyObject *py_snapshot_new(py_state *state, enigma_profile *profile);

/* What a profiler recorded: always the same snapshot once it was left, a fresh one of what is finished before. */
Snapshot *py_profiler_snapshot(Profiler *self);

/* Where the calling Python context records: fills out (profiler NULL: nowhere) and returns a new reference to the Profiler that
 * out refers to, to be dropped (Py_XDECREF) when out is used no more. NULL without an exception: nowhere. Costs a load when no
 * profiler is live. */
Profiler *py_context_hold(py_state *state, enigma_context *out);

/* Methods of Profiler written elsewhere: events() and iter_events() in event.c, key_averages(*, group_by) and tree() in result.c. */
PyObject *py_profiler_events(PyObject *self, PyObject *unused);
PyObject *py_profiler_iter_events(PyObject *self, PyObject *unused);
PyObject *py_profiler_key_averages(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *py_profiler_tree(PyObject *self, PyObject *unused);
/* save(path), in export.c. */
PyObject *py_profiler_save(PyObject *self, PyObject *args, PyObject *kwargs);

#endif
