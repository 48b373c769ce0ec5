/* Runtime, Kernel and PreparedKernel, as gpu.c, prepared.c, bench.c and testing.c share them. With the GIL, but for what is
 * inside py_wait. */
#ifndef PYENIGMA_GPU_H
#define PYENIGMA_GPU_H

#include "arguments.h"
#include "pyenigma.h"

/* What must be freed under a runtime's lock and was dropped while somebody held it. */
typedef struct py_garbage {
    struct py_garbage *next;
    enigma_prepared *prepared;
    enigma_kernel *kernel;
} py_garbage;

/* An exception that a scripted dispatch on a queue is to raise. */
typedef struct py_failure {
    struct py_failure *next;
    uint32_t device, queue;
    PyObject *exception;
} py_failure;

/* enigma.Runtime and its subclasses. The library allows one thread at a time in a runtime and what was made from it: lock
 * sees to that, and may be taken again by the thread that holds it (a kernel hook that dispatches). */
typedef struct Runtime {
    PyObject_HEAD
    enigma_runtime *runtime; /* NULL: released */
    py_state *state;
    PyObject *device; /* a dict, given out as copies */
    PyThread_type_lock lock;
    unsigned long holder; /* the thread that holds it, while depth is not 0 */
    int depth;
    struct Runtime *outer; /* what that thread held when it took this one */
    PyObject *weak_references;
    long process; /* where it was made; elsewhere it is dead */
    py_garbage *garbage;
    py_failure *failures; /* in order */
} Runtime;

typedef struct Kernel {
    PyObject_HEAD
    Runtime *runtime;
    enigma_kernel *kernel;
    PyObject *name;
    PyObject *weak_references;
} Kernel;

typedef struct PreparedKernel {
    PyObject_HEAD
    Runtime *runtime;
    enigma_prepared *prepared; /* NULL: released */
    PyObject *kernel_name;
    PyObject *weak_references;
    size_t output_count;
    bool outputs_listed;
    bool released; /* asked for while busy: done when the last call leaves */
    int busy;      /* calls inside the library that use prepared */
} PreparedKernel;

/* Called with the GIL; lock.c. */

/* Takes the runtime's lock, without the GIL if it must wait; signals are checked meanwhile. */
int py_runtime_enter(Runtime *self);
void py_runtime_leave(Runtime *self); /* keeps an exception that is set */
/* The same and RuntimeError when the runtime was released. */
int py_runtime_enter_open(Runtime *self);

/* Lets go, and takes again, what the calling thread took last: kernel hooks are called with no lock held, so that they may
 * wait for another thread that uses the runtime. */
typedef struct py_pause {
    Runtime *runtime; /* NULL: none was held */
    int depth;
} py_pause;
void py_runtime_pause(py_pause *pause);
void py_runtime_resume(const py_pause *pause);

/* Frees now, or when the lock is left. */
void py_runtime_discard(Runtime *self, enigma_prepared *prepared, enigma_kernel *kernel);

/* After freeing, where an exception has nowhere to go: Ctrl-C is raised again where the program next looks, others (of its
 * signal handlers) are shown. Then pending is the exception that is set. */
void py_runtime_settle(Runtime *self, PyObject *pending);

/* Called with the GIL; gpu.c and prepared.c. */

/* Raises for the status of a call; for a scripted failure on that queue, the very exception that was scripted. */
PyObject *py_runtime_raise(Runtime *self, enigma_status status, uint32_t device, uint32_t queue);

/* A new object of a runtime type for what open gave; takes the runtime over, also on failure. */
PyObject *py_runtime_new(py_state *state, PyTypeObject *type, enigma_runtime *runtime);
/* The module's state for a type that may be a subclass made in Python. */
py_state *py_state_of_subtype(PyTypeObject *type);

/* kernel.prepare(inputs, output_size) on a runtime that is entered. */
PyObject *py_prepare(Runtime *runtime, Kernel *kernel, PyObject *inputs, PyObject *output_size);
PyObject *py_compile(Runtime *runtime, const enigma_kernel_desc *desc, PyObject *name);

/* A PreparedKernel argument, entered: its runtime is locked and it stays until py_prepared_leave. TypeError for something else,
 * RuntimeError when it was released. */
int py_prepared_enter(py_state *state, PyObject *object, PreparedKernel **out);
void py_prepared_leave(PreparedKernel *self);

#endif
