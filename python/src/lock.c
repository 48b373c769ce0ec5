/* A runtime's lock: one thread at a time inside the library, the same one again if it likes, and what is dropped meanwhile is
 * freed when the lock is left. The fields are changed with the GIL only. */
#include "gpu.h"

#include <unistd.h>

/* The runtime that this thread took last and still holds; the others are behind it by `outer`. */
static __thread Runtime *held;

void py_runtime_settle(Runtime *self, PyObject *pending)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_Clear();
        PyErr_SetInterrupt();
    } else if (PyErr_Occurred()) {
        PyErr_WriteUnraisable((PyObject *)Py_TYPE(self));
    }
    py_error_restore(pending);
}

/* ---- Taking and leaving ---- */

/* What follows getting the lock itself. */
static void note_taken(Runtime *self, int depth)
{
    self->holder = PyThread_get_thread_ident();
    self->depth = depth;
    self->outer = held;
    held = self;
}

static void let_go(Runtime *self)
{
    held = self->outer;
    self->outer = NULL;
    self->depth = 0;
    PyThread_release_lock(self->lock);
}

/* Waits in steps of 50 ms, so that Ctrl-C is seen. */
static int acquire(Runtime *self)
{
    while (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
        PyThreadState *thread = PyEval_SaveThread();
        PyLockStatus status = PyThread_acquire_lock_timed(self->lock, 50000, 0);
        PyEval_RestoreThread(thread);
        if (status == PY_LOCK_ACQUIRED) {
            break;
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
    return 0;
}

int py_runtime_enter(Runtime *self)
{
    if (self->process != (long)getpid()) { /* the lock may be held by a thread that is not here */
        PyErr_SetString(PyExc_RuntimeError,
                        "this runtime was made before the process forked and cannot be used in the child; "
                        "make a new one");
        return -1;
    }
    if (self->depth != 0 && self->holder == PyThread_get_thread_ident()) {
        self->depth++;
        return 0;
    }
    if (acquire(self) < 0) {
        return -1;
    }
    note_taken(self, 1);
    return 0;
}

static void free_garbage(Runtime *self)
{
    while (self->garbage != NULL) {
        py_garbage *item = self->garbage;
        self->garbage = item->next;
        py_wait wait;
        py_wait_begin(&wait); /* freeing waits for dispatches */
        enigma_prepared_free(item->prepared);
        enigma_kernel_free(item->kernel);
        py_wait_end(&wait);
        PyMem_Free(item);
    }
}

void py_runtime_leave(Runtime *self)
{
    if (self->depth == 1 && self->garbage != NULL) {
        PyObject *pending = py_error_take();
        free_garbage(self);
        py_runtime_settle(self, pending);
    }
    if (self->depth == 1) {
        let_go(self);
    } else {
        self->depth--;
    }
}

int py_runtime_enter_open(Runtime *self)
{
    if (py_runtime_enter(self) < 0) {
        return -1;
    }
    if (self->runtime == NULL) {
        py_runtime_leave(self);
        PyErr_SetString(PyExc_RuntimeError, "the runtime was released");
        return -1;
    }
    return 0;
}

/* ---- Pausing ---- */

void py_runtime_pause(py_pause *pause)
{
    pause->runtime = held;
    if (held != NULL) {
        pause->depth = held->depth;
        let_go(held);
    }
}

void py_runtime_resume(const py_pause *pause)
{
    if (pause->runtime == NULL) {
        return;
    }
    PyThreadState *thread = PyEval_SaveThread();
    PyThread_acquire_lock(pause->runtime->lock, WAIT_LOCK); /* nothing can be raised here: signals wait */
    PyEval_RestoreThread(thread);
    note_taken(pause->runtime, pause->depth);
}

/* ---- Dropping ---- */

void py_runtime_discard(Runtime *self, enigma_prepared *prepared, enigma_kernel *kernel)
{
    bool here = self->process == (long)getpid();
    bool taken = here && self->depth == 0 && PyThread_acquire_lock(self->lock, NOWAIT_LOCK);
    if (here && !taken) { /* somebody is inside, perhaps this thread */
        py_garbage *item = PyMem_Calloc(1, sizeof(*item));
        if (item != NULL) { /* else it stays: there is no memory to remember it by */
            *item = (py_garbage){self->garbage, prepared, kernel};
            self->garbage = item;
        }
        return;
    }
    if (taken) {
        note_taken(self, 1);
    }
    PyObject *pending = py_error_take();
    py_wait wait;
    py_wait_begin(&wait);
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
    py_wait_end(&wait);
    py_runtime_settle(self, pending);
    if (taken) {
        py_runtime_leave(self);
    }
}
