/* Where each Python context records: the cell and its stack of frames. Shared by context.c (the slow half), scope.c (the hot
 * path) and profiler.c.
 *
 * A context (asyncio task, copy_context() copy, thread) in which a profiler is or was active has a Cell as the value of one
 * ContextVar. Entering and leaving a scope changes the cell in place, which is right only while no other context can see it:
 * a copy of a context must keep the stack as it was when copied. CPython tells nobody of a copy, but a context is one reference
 * to an immutable tree (HAMT) that copies share, so the cell can be seen from this context alone exactly when the tree, each of
 * its nodes on the way to the cell, and the cell itself have one reference. py_cell_private checks that; where it does not hold,
 * py_cell_current gives the context a cell of its own, which is what ContextVar.set() is for.
 *
 * Where py_context_part finds at import that this interpreter does not work so (or ENIGMA_PORTABLE_CONTEXT is set), each scope
 * does a ContextVar set and reset instead, through public API only: the portable mode (py_portable_*). */
#ifndef PYCONTEXT_H
#define PYCONTEXT_H

#include "pyenigma.h"

#define PY_LIKELY(x) __builtin_expect(!!(x), 1)
#define PY_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PY_SLOW __attribute__((noinline, cold))

/* PyThreadState.context, .context_ver and .id are in the public headers of 3.10 to 3.15. Where reference counts are split over
 * threads (free-threaded builds), the portable mode is used. */
#if !defined(PY_CONTEXT_IN_PLACE)
#if PY_VERSION_HEX < 0x03100000 && !defined(Py_GIL_DISABLED) && !defined(PYPY_VERSION)
#define PY_CONTEXT_IN_PLACE 1
#else
#define PY_CONTEXT_IN_PLACE 0
#endif
#endif

#if !PY_CONTEXT_IN_PLACE
#define PY_THREAD_STATE() PyThreadState_Get()
#elif PY_VERSION_HEX >= 0x030D0000
#define PY_THREAD_STATE() PyThreadState_GetUnchecked()
#else
#define PY_THREAD_STATE() _PyThreadState_UncheckedGet()
#endif

/* Before 3.12 an allocation can run the collector, hence finalizers, hence scopes. */
#if PY_VERSION_HEX < 0x030C0000
#define PY_NO_COLLECTION_BEGIN int collecting = PyGC_Disable();
#define PY_NO_COLLECTION_END                                                                                           \
    if (collecting) {                                                                                                  \
        PyGC_Enable();                                                                                                 \
    }
#else
#define PY_NO_COLLECTION_BEGIN
#define PY_NO_COLLECTION_END
#endif

enum py_frame_flags {
    PY_LINKED = 1 << 0,   /* in a cell's stack, which holds a reference */
    PY_STALE = 1 << 1,    /* closed, but LINKED until it comes to the top */
    PY_OWNS = 1 << 2,     /* open, but its stack is gone: holds its profiler */
    PY_PROFILE = 1 << 3,  /* the frame of a profiler, not of a scope: holds its profiler */
    PY_KEYWORDS = 1 << 4, /* has metrics, metadata or a category */
    PY_TRACKED = 1 << 5,  /* by the collector */
    PY_AGAIN = 1 << 6,    /* has further frames */
    PY_PORTABLE = 1 << 7, /* has a cell and a token */
    PY_CATEGORY_PYTHON = 1 << 8
};

enum { PY_FEW = 3 };

/* enigma.scope: a scope object and, while it is open, its frame. An object that is entered while it is open gets further
 * frames: objects of the same type that nobody else sees. */
struct Scope {
    PyObject_HEAD
    vectorcallfunc call; /* 0 arguments: enter, 3: exit, 1: decorate */
    py_state *state;
    PyObject *name; /* a str, exactly */
    /* the frame */
    Profiler *profiler; /* in which it is open; NULL: it is not. Held by its stack, unless OWNS or PROFILE */
    Scope *below;       /* the next frame down, while LINKED */
    enigma_scope token;
    uint64_t scope; /* what is opened above has this as its parent */
    uint64_t scope_below;
    enigma_path path, path_below;
    /* the object */
    uint32_t flags;            /* enum py_frame_flags */
    uint32_t off;              /* times it was entered where nothing is recorded, and not left yet */
    PyObject *names, **values; /* keyword arguments; values that are not metadata are NULL */
    PyObject *few[PY_FEW];     /* where values are if they are few */
    Py_ssize_t metadata_count; /* of the values that are metadata */
    PyObject *metrics, *category;
    Scope *source;                 /* whose keyword arguments it has instead of its own; held */
    Scope *again, *origin;         /* further frames, a list that holds them; the object whose frame this is */
    PyObject *cell, *token_object; /* portable mode */
};

enum { PY_PATH_LIMIT = 8 };

/* The value of the variable. In place: the stack of one context. Portable: one entry of a stack, immutable but for stale. */
struct Cell {
    PyObject_HEAD
    py_state *state;
    py_place here;  /* where scopes open; its profiler is held by a frame or by base */
    Scope *top;     /* frames, each held */
    py_place base;  /* inherited; holds its profiler */
    PyObject *tree; /* weak reference to the tree that the nodes are in */
    int node_count;
    PyObject *nodes[PY_PATH_LIMIT]; /* from the tree's root to this cell; lent, good while the tree lives */
    PyObject *context;              /* weak reference to the context that this cell was set in */
    int stale;                      /* portable: closed, though it may still be some context's value */
    Cell *under;                    /* portable */
};

static inline bool py_frame_closed(const Scope *frame) { return frame->flags & PY_STALE || !frame->profiler->live; }

/* Holds for a cell whose top has to be cleared by py_cell_settle: a frame closed out of order, or a profiler that was left. */
static inline bool py_cell_unsettled(py_state *state, const Cell *cell)
{
    return (state->hot.stale && cell->top && cell->top->flags & PY_STALE) ||
           (cell->here.profiler && !cell->here.profiler->live);
}

/* Follows profilers that were left outwards. */
py_place py_place_resolve(py_place place);

/* Clears what is closed off the top. Drops references, so it may run any code: look the cell up again. */
void py_cell_settle(Cell *cell);

/* The node of a name under a place that records; cached. Runs no code. */
enigma_path py_path_slow(Profiler *profiler, enigma_path parent, PyObject *name);

static inline py_memo *py_memo_slot(Profiler *profiler, enigma_path parent, PyObject *name)
{
    uintptr_t bits = (uintptr_t)name;
    return &profiler->memo[((bits >> 5) ^ (bits >> 13) ^ parent * 31u) & (PY_MEMO_SIZE - 1)];
}

static inline enigma_path py_path_child(Profiler *profiler, enigma_path parent, PyObject *name)
{
    const py_memo *memo = py_memo_slot(profiler, parent, name);
    return PY_LIKELY(memo->name == name && memo->parent == parent) ? memo->path : py_path_slow(profiler, parent, name);
}

/* Ends the record of a frame, with metadata "error" when error (a str) is not NULL. Nothing when the profiler was left. */
void py_frame_record(Profiler *profiler, enigma_scope token, PyObject *error);

/* Closes a frame that is on top of no stack which can be changed from here. */
void py_frame_close_late(Scope *frame, PyObject *error);

/* Makes a profiler active in the calling context, and notes in it where that was. */
int py_context_push_profiler(py_state *state, Profiler *profiler);
/* Takes what is closed off the calling context's stack. */
void py_context_tidy(py_state *state);
/* The calling context's place, settled; *drop: as of py_cell_current. */
py_place py_place_now(py_state *state, PyObject **drop);

/* publish.c: tells the library where the thread's context records from now on. */
void py_publish(py_state *state, PyThreadState *thread, py_place here);
void py_publish_current(py_state *state);

#if PY_CONTEXT_IN_PLACE
#define PY_NO_CELL ((Cell *)1) /* cached: the context has none */
#define PY_REFERENT(weak) (((PyWeakReference *)(weak))->wr_object)

static inline PyObject *py_context_tree(py_state *state, PyObject *context)
{
    return *(PyObject **)((char *)context + state->hot.vars_offset);
}

/* Is the cell, the variable's value in tree, reachable from tree alone, and tree from one context? */
static inline bool py_cell_private(Cell *cell, PyObject *tree)
{
    if (PY_REFERENT(cell->tree) != tree || Py_REFCNT(tree) != 1 || Py_REFCNT(cell) != 1) {
        return false;
    }
    for (int i = 0; i < cell->node_count; i++) {
        if (Py_REFCNT(cell->nodes[i]) != 1) {
            return false;
        }
    }
    return true;
}

static inline Cell *py_cell_cached(py_state *state, PyThreadState *thread)
{
    py_hot *hot = &state->hot;
    return hot->cell_thread == thread->id && hot->cell_switch == thread->context_ver ? hot->cell : NULL;
}

/* The calling context's cell if it may be changed in place, found without any look-up; else NULL. */
static inline Cell *py_cell_fast(py_state *state, PyThreadState *thread)
{
    Cell *cell = py_cell_cached(state, thread);
    if (PY_LIKELY(cell > PY_NO_CELL && thread->context &&
                  py_cell_private(cell, py_context_tree(state, thread->context)))) {
        return cell;
    }
    return NULL;
}

/* The calling context's cell, private to it until other code runs. NULL if nothing is recorded there (with make: if memory is
 * short; no exception). *drop gets what the caller has to release, which may run any code, when it is done with the cell. */
Cell *py_cell_current(py_state *state, PyThreadState *thread, bool make, PyObject **drop);
/* The same, settled. */
Cell *py_cell_settled(py_state *state, PyThreadState *thread, bool make, PyObject **drop);
#endif

/* Portable mode: the innermost entry of the calling context that is not closed, NULL if there is none. */
Cell *py_portable_current(py_state *state);
/* Makes a place the innermost entry: a scope's, or with frame NULL a profiler's. */
int py_portable_push(py_state *state, Scope *frame, Cell *under, py_place here);
/* Closes a scope's. Drops references: hold the profiler. */
void py_portable_pop(py_state *state, Scope *frame);

/* scope.c: a new object, or one that was kept. */
Scope *py_scope_alloc(py_state *state, PyObject *name);

/* frame.c: what with does. Entering fails with TypeError for a metric that is no number (then it is not entered), and when a value
 * raises what is no Exception; leaving never. raised: the exception that ended the body, NULL: none. */
int py_scope_enter(Scope *self);
void py_scope_leave(Scope *self, PyObject *raised);
PyObject *py_scope_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);
extern PyMethodDef py_scope_methods[];
int py_scope_add_methods(py_state *state);

/* decorate.c: a callable that runs another under a fresh scope each time. */
PyObject *py_scope_decorate(Scope *self, PyObject *function);

#endif
