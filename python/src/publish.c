/* Tells the library where each Python context records, for launches of CUDA code that attached profilers record: those are made
 * inside of C code, often without the GIL, so the library cannot look into contexts. Called where a context moves, by frame.c and
 * profiler.c, while an attached profiler is live.
 *
 * A context is known by its address, which the next one may get: so the library is told when a context dies, by a weak reference that
 * state->published holds for each context that is noted. */
#include "pycontext.h"

#if PY_CONTEXT_IN_PLACE

static uint64_t key_of(PyObject *context) { return (uint64_t)(uintptr_t)context; }

/* On any thread, without the GIL: reads what belongs to the calling thread alone. */
static uint64_t current_key(void)
{
    const PyThreadState *thread = PyGILState_GetThisThreadState();
    return thread ? key_of(thread->context) : 0;
}

/* The callback of a weak reference; self is the context's address. */
static PyObject *context_gone(PyObject *key, PyObject *reference)
{
    (void)reference;
    enigma_context_publish(PyLong_AsUnsignedLongLong(key), NULL);
    Py_RETURN_NONE;
}

static PyMethodDef gone_method = {"context_gone", context_gone, METH_O, NULL};

/* Sees to it that the note of a context goes with it. */
static PY_SLOW void watch(py_state *state, PyObject *context)
{
    PY_NO_COLLECTION_BEGIN
    PyObject *key = PyLong_FromUnsignedLongLong(key_of(context));
    PyObject *known = key && state->published ? PyDict_GetItemWithError(state->published, key) : NULL;
    bool watched = known && PY_REFERENT(known) == context;
    PyObject *callback = key && !watched ? PyCFunction_New(&gone_method, key) : NULL;
    PyObject *reference = callback ? PyWeakref_NewRef(context, callback) : NULL;
    if (!watched && (!reference || !state->published || PyDict_SetItem(state->published, key, reference))) {
        PyErr_Clear();
        enigma_context_publish(key_of(context), NULL); /* better none than one that stays too long */
    }
    Py_XDECREF(reference);
    Py_XDECREF(callback);
    Py_XDECREF(key);
    PyErr_Clear();
    PY_NO_COLLECTION_END
}

void py_publish(py_state *state, PyThreadState *thread, py_place here)
{
    if (!thread->context) {
        return;
    }
    const bool live = here.profiler && here.profiler->live;
    const enigma_context context = {live ? here.profiler->recorder : NULL, here.path, here.scope};
    if (PY_UNLIKELY(enigma_context_publish(key_of(thread->context), &context))) {
        watch(state, thread->context);
    }
}

/* How many modules have told their key; the function is the same for all. */
static int modules;

static int exec_publish(PyObject *module, py_state *state)
{
    (void)module;
    state->published = PyDict_New();
    if (!state->published) {
        return -1;
    }
    if (__atomic_fetch_add(&modules, 1, __ATOMIC_RELAXED) == 0) {
        enigma_set_context_key(current_key);
    }
    state->publishes = 1;
    return 0;
}

static void clear_publish(py_state *state)
{
    if (state->publishes && __atomic_sub_fetch(&modules, 1, __ATOMIC_RELAXED) == 0) {
        enigma_set_context_key(NULL);
    }
    state->publishes = 0;
}

const py_part py_publish_part = {NULL, exec_publish, clear_publish};

#else

/* Nothing tells a thread's context here without the GIL: what is launched goes where the profiler was entered. */
void py_publish(py_state *state, PyThreadState *thread, py_place here) { (void)state, (void)thread, (void)here; }

const py_part py_publish_part = {NULL, NULL, NULL};
#endif

void py_publish_current(py_state *state)
{
    PyObject *drop = NULL;
    py_place here = py_place_now(state, &drop);
    py_publish(state, PY_THREAD_STATE(), here);
    Py_XDECREF(drop);
}
