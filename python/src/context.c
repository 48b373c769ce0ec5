/* Where each Python context records: cells, and how a context comes to one of its own. See pycontext.h for the idea. Called by
 * scope.c on its slow path, by profiler.c, and by gpu.c through py_context_hold. */
#include "pycontext.h"

/* ---- Places and nodes -------------------------------------------------------------------------------------------------- */

py_place py_place_resolve(py_place place)
{
    while (place.profiler && !place.profiler->live) {
        place = place.profiler->outer;
    }
    return place;
}

PY_SLOW enigma_path py_path_slow(Profiler *profiler, enigma_path parent, PyObject *name)
{
    enigma_text text;
    PyObject *owner;
    enigma_path path = parent;
    PY_NO_COLLECTION_BEGIN
    if (py_text(name, &text, &owner)) {
        PyErr_Clear(); /* no memory: under the parent */
    } else {
        path = enigma_path_child(profiler->recorder, parent, text);
        Py_XDECREF(owner);
        py_memo *memo = py_memo_slot(profiler, parent, name);
        Py_INCREF(name);
        Py_XSETREF(memo->name, name);
        memo->parent = parent;
        memo->path = path;
    }
    PY_NO_COLLECTION_END
    return path;
}

/* ---- Cells ------------------------------------------------------------------------------------------------------------- */

static Cell *cell_new(py_state *state)
{
    Cell *cell = state->cell_type ? PyObject_GC_New(Cell, state->cell_type) : NULL;
    if (cell) {
        memset((char *)cell + sizeof(PyObject), 0, sizeof *cell - sizeof(PyObject));
        cell->state = state;
        cell->tree = Py_NewRef(state->dead_ref);
        cell->context = Py_NewRef(state->dead_ref);
        PyObject_GC_Track(cell);
    }
    return cell;
}

/* Sets what is inherited and returns the profiler held before, to be dropped. */
static Profiler *cell_inherit(Cell *cell, py_place base)
{
    Profiler *held = cell->base.profiler;
    Py_XINCREF(base.profiler);
    cell->base = base;
    return held;
}

static py_place frame_place(const Scope *frame) { return (py_place){frame->profiler, frame->path, frame->scope}; }

/* The context is gone: open scopes are left later, on no stack. */
static void frame_orphan(py_state *state, Scope *frame)
{
    if (frame->flags & PY_STALE) {
        state->hot.stale--;
    } else if (!(frame->flags & PY_PROFILE)) {
        if (frame->profiler->live) {
            Py_INCREF(frame->profiler);
            frame->flags |= PY_OWNS;
        } else {
            frame->profiler = NULL;
        }
    }
    frame->below = NULL;
    frame->flags &= ~(uint32_t)(PY_LINKED | PY_STALE);
}

static int cell_traverse(PyObject *self, visitproc visit, void *arg)
{
    Cell *cell = (Cell *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(cell->tree);
    Py_VISIT(cell->context);
    Py_VISIT(cell->under);
    for (Scope *frame = cell->top; frame; frame = frame->below) {
        Py_VISIT(frame);
    }
    return 0;
}

static int cell_clear(PyObject *self)
{
    Cell *cell = (Cell *)self;
    while (cell->top) {
        Scope *frame = cell->top;
        cell->top = frame->below;
        frame_orphan(cell->state, frame);
        Py_DECREF(frame);
    }
    cell->here = (py_place){NULL, 0, 0};
    Py_XDECREF(cell_inherit(cell, cell->here));
    Py_CLEAR(cell->tree);
    Py_CLEAR(cell->context);
    Py_CLEAR(cell->under);
    return 0;
}

static void cell_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, cell_dealloc) cell_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

static PyType_Slot cell_slots[] = {
    {Py_tp_dealloc, cell_dealloc}, {Py_tp_traverse, cell_traverse}, {Py_tp_clear, cell_clear}, {0, NULL}};

PyType_Spec py_cell_spec = {
    .name = "enigma._Cell",
    .basicsize = sizeof(Cell),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = cell_slots,
};

PY_SLOW void py_cell_settle(Cell *cell)
{
    Scope *closed = NULL;
    while (cell->top && py_frame_closed(cell->top)) {
        Scope *frame = cell->top;
        cell->top = frame->below;
        if (frame->flags & PY_STALE) {
            cell->state->hot.stale--;
        } else if (!(frame->flags & PY_PROFILE)) {
            frame->profiler = NULL; /* left with its profiler */
        }
        frame->flags &= ~(uint32_t)(PY_LINKED | PY_STALE);
        frame->below = closed;
        closed = frame;
    }
    Profiler *held = cell_inherit(cell, py_place_resolve(cell->base));
    cell->here = cell->top ? frame_place(cell->top) : cell->base;
    while (closed) { /* only now: dropping runs any code */
        Scope *frame = closed;
        closed = frame->below;
        frame->below = NULL;
        Py_DECREF(frame);
    }
    Py_XDECREF(held);
}

void py_frame_close_late(Scope *frame, PyObject *error)
{
    Profiler *profiler = frame->profiler;
    if (profiler && !(frame->flags & PY_OWNS)) {
        Py_INCREF(profiler);
    }
    frame->flags &= ~(uint32_t)PY_OWNS;
    frame->profiler = NULL;
    if (frame->flags & PY_LINKED) {
        frame->flags |= PY_STALE;
        frame->state->hot.stale++;
    }
    if (profiler) {
        py_frame_record(profiler, frame->token, error);
        Py_DECREF(profiler);
    }
}

/* ---- In place ---------------------------------------------------------------------------------------------------------- */

#if PY_CONTEXT_IN_PLACE

/* What a context copied now inherits: the place of the topmost frame that is not closed. */
static py_place cell_effective(const Cell *cell)
{
    const Scope *frame = cell->top;
    while (frame && py_frame_closed(frame)) {
        frame = frame->below;
    }
    return frame ? frame_place(frame) : py_place_resolve(cell->base);
}

typedef struct walk {
    PyObject *target;
    PyObject **nodes;
    int depth, found;
} walk;

static int walk_visit(PyObject *object, void *arg)
{
    walk *w = arg;
    if (object == w->target) {
        return w->found = 1;
    }
    PyTypeObject *type = Py_TYPE(object);
    if (!strncmp(type->tp_name, "hamt", 4) && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && w->depth < PY_PATH_LIMIT) {
        w->nodes[w->depth++] = object;
        if (type->tp_traverse(object, walk_visit, w)) {
            return 1;
        }
        w->depth--;
    }
    return 0;
}

/* Notes tree and the way from it to the cell. False if that could not be done. The note is a weak reference, since the address
 * of a tree that died is soon another one's. */
static bool cell_note(Cell *cell, PyObject *tree)
{
    PyObject *weak = PyWeakref_NewRef(tree, NULL);
    if (!weak) {
        PyErr_Clear();
        return false;
    }
    walk w = {(PyObject *)cell, cell->nodes, 0, 0};
    Py_TYPE(tree)->tp_traverse(tree, walk_visit, &w);
    cell->node_count = w.depth;
    if (!w.found) {
        Py_SETREF(weak, Py_NewRef(cell->state->dead_ref));
    }
    Py_SETREF(cell->tree, weak);
    return w.found;
}

static void cache_cell(py_state *state, const PyThreadState *thread, Cell *cell)
{
    state->hot.cell_thread = thread->id;
    state->hot.cell_switch = thread->context_ver;
    state->hot.cell = cell;
}

/* The frames go to the cell that takes over, settled or not; those who copied the context keep the bare path. */
static Profiler *cell_hand_over(Cell *from, Cell *to)
{
    py_place place = cell_effective(from);
    to->here = from->here;
    cell_inherit(to, from->base);
    to->top = from->top;
    from->top = NULL;
    from->here = place;
    return cell_inherit(from, place);
}

/* A new cell as the context's value. old: its value so far, which is this context's own (ours) or inherited. */
static Cell *cell_install(py_state *state, PyThreadState *thread, Cell *old, bool ours, PyObject **drop)
{
    Cell *cell = cell_new(state);
    PyObject *token = cell ? PyContextVar_Set(state->variable, (PyObject *)cell) : NULL;
    if (!token) {
        PyErr_Clear();
        Py_XDECREF(cell);
        return NULL;
    }
    PyObject *context = ours ? Py_NewRef(old->context) : PyWeakref_NewRef(thread->context, NULL);
    if (context) {
        Py_SETREF(cell->context, context);
    } else {
        PyErr_Clear(); /* then it will be a new cell each time */
    }
    Profiler *held = NULL;
    if (ours) {
        held = cell_hand_over(old, cell);
    } else if (old) {
        cell->here = cell_effective(old);
        cell_inherit(cell, cell->here);
    }
    Py_XDECREF(held); /* not the last one: cell's base has it, too */
    Py_DECREF(cell);  /* the context holds it */
    cell_note(cell, py_context_tree(state, thread->context));
    *drop = token; /* holds old, which may go with it */
    return cell;
}

static PyObject *context_value(py_state *state)
{
    PyObject *value = NULL;
    if (PyContextVar_Get(state->variable, NULL, &value) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(value); /* the context holds it */
    return value;
}

static Cell *find_cell(py_state *state, PyThreadState *thread, bool make, PyObject **drop)
{
    Cell *cell = (Cell *)context_value(state);
    if (!make && (!cell || (!cell->here.profiler && !cell->top))) {
        cache_cell(state, thread, PY_NO_CELL);
        return NULL;
    }
    bool ours = cell && thread->context && PY_REFERENT(cell->context) == thread->context;
    if (ours) {
        PyObject *tree = py_context_tree(state, thread->context);
        if (py_cell_private(cell, tree) || (cell_note(cell, tree) && py_cell_private(cell, tree))) {
            cache_cell(state, thread, cell);
            return cell;
        }
    }
    cell = cell_install(state, thread, cell, ours, drop);
    if (cell) {
        cache_cell(state, thread, cell);
    }
    return cell;
}

PY_SLOW Cell *py_cell_current(py_state *state, PyThreadState *thread, bool make, PyObject **drop)
{
    *drop = NULL;
    if (!state->variable || (!make && py_cell_cached(state, thread) == PY_NO_CELL)) {
        return NULL; /* the module is going, or there is none */
    }
    PY_NO_COLLECTION_BEGIN
    Cell *cell = find_cell(state, thread, make, drop);
    PY_NO_COLLECTION_END
    return cell;
}

Cell *py_cell_settled(py_state *state, PyThreadState *thread, bool make, PyObject **drop)
{
    Cell *cell;
    while ((cell = py_cell_current(state, thread, make, drop)) && py_cell_unsettled(state, cell)) {
        py_cell_settle(cell);
        Py_CLEAR(*drop);
    }
    return cell;
}

/* ---- Does this interpreter work like that? ----------------------------------------------------------------------------- */

static int find_tree(PyObject *object, void *arg)
{
    if (!strcmp(Py_TYPE(object)->tp_name, "hamt")) {
        *(PyObject **)arg = object;
    }
    return 0;
}

static bool set_in(PyObject *context, PyObject *variable, PyObject *value)
{
    if (PyContext_Enter(context)) {
        return false;
    }
    bool current = PY_THREAD_STATE()->context == context;
    PyObject *token = PyContextVar_Set(variable, value);
    PyContext_Exit(context);
    Py_XDECREF(token);
    return token && current;
}

/* Where a context keeps tree, 0 when that is not clear. */
static Py_ssize_t offset_of(PyObject *context, PyObject *tree)
{
    Py_ssize_t found = 0, offset = 0, step = sizeof(PyObject *);
    for (Py_ssize_t i = sizeof(PyObject); tree && i + step <= Py_TYPE(context)->tp_basicsize; i += step) {
        if (*(PyObject **)((char *)context + i) == tree) {
            offset = i;
            found++;
        }
    }
    return found == 1 ? offset : 0;
}

/* Tries out what py_cell_private relies on, with a cell that is the variable's value in context. */
static bool try_out(py_state *state, Cell *cell, PyObject *context, PyObject *other)
{
    PyObject *tree = py_context_tree(state, context);
    bool ok = cell_note(cell, tree) && py_cell_private(cell, tree);
    /* a copy shares the tree */
    PyObject *copy = ok ? PyContext_Copy(context) : NULL;
    ok = copy && py_context_tree(state, copy) == tree && !py_cell_private(cell, tree);
    /* and when it leaves it by setting another variable, it still has the cell */
    ok = ok && set_in(copy, other, Py_None) && Py_REFCNT(tree) == 1 && !py_cell_private(cell, tree);
    Py_CLEAR(copy);
    ok = ok && py_cell_private(cell, tree);
    /* another variable set here: another tree */
    if (!ok || !set_in(context, other, Py_None)) {
        return false;
    }
    tree = py_context_tree(state, context);
    return !py_cell_private(cell, tree) && cell_note(cell, tree) && py_cell_private(cell, tree);
}

/* Finds where a context keeps its tree; 0 where something is not as expected. */
static void calibrate(py_state *state)
{
    PyObject *context = PyContext_New(), *other = PyContextVar_New("enigma_probe", NULL), *tree = NULL;
    Cell *cell = cell_new(state);
    bool ok = context && other && cell && set_in(context, state->variable, (PyObject *)cell);
    Py_XDECREF(cell); /* the context holds it */
    if (ok) {
        Py_TYPE(context)->tp_traverse(context, find_tree, &tree);
        state->hot.vars_offset = offset_of(context, tree);
        ok = state->hot.vars_offset && try_out(state, cell, context, other);
    }
    if (!ok) {
        state->hot.vars_offset = 0;
    }
    PyErr_Clear();
    Py_XDECREF(context);
    Py_XDECREF(other);
}
#endif

/* ---- Portable mode: the value is an entry that is linked to the one under it --------------------------------------------- */

static bool entry_closed(const Cell *cell) { return cell->stale || !cell->here.profiler->live; }

Cell *py_portable_current(py_state *state)
{
    PyObject *value = NULL;
    if (!state->variable || PyContextVar_Get(state->variable, NULL, &value) < 0) {
        PyErr_Clear();
    }
    Cell *cell = NULL;
    if (value && value != Py_None) {
        cell = (Cell *)value;
    } else {
        Py_XDECREF(value);
    }
    if (!cell || !entry_closed(cell)) {
        return cell;
    }
    Cell *open = cell;
    while (open && entry_closed(open)) {
        open = open->under;
    }
    Py_XINCREF(open);
    PyObject *token = PyContextVar_Set(state->variable, open ? (PyObject *)open : Py_None);
    PyErr_Clear();
    Py_XDECREF(token);
    Py_DECREF(cell);
    return open;
}

int py_portable_push(py_state *state, Scope *frame, Cell *under, py_place here)
{
    Cell *cell = cell_new(state);
    if (!cell) {
        return -1;
    }
    cell->here = here;
    cell_inherit(cell, here);
    Py_XINCREF(under);
    cell->under = under;
    PyObject *token = PyContextVar_Set(state->variable, (PyObject *)cell);
    if (!token) {
        Py_DECREF(cell);
        return -1;
    }
    if (!frame) { /* a profiler's entry is closed by its profiler */
        Py_DECREF(token);
        Py_DECREF(cell);
        return 0;
    }
    frame->token_object = token;
    frame->cell = (PyObject *)cell;
    frame->profiler = here.profiler;
    frame->flags |= PY_PORTABLE;
    if (!(frame->flags & PY_TRACKED)) { /* the token refers to the context, which may refer to the frame */
        frame->flags |= PY_TRACKED;
        PyObject_GC_Track(frame);
    }
    return 0;
}

void py_portable_pop(py_state *state, Scope *frame)
{
    PyObject *token = frame->token_object, *cell = frame->cell;
    PyObject *value = (PyObject *)py_portable_current(state);
    frame->token_object = frame->cell = NULL;
    frame->profiler = NULL;
    frame->flags &= ~(uint32_t)PY_PORTABLE;
    if (value != cell || PyContextVar_Reset(state->variable, token)) {
        PyErr_Clear(); /* not the innermost, or opened in another context */
        ((Cell *)cell)->stale = 1;
    }
    Py_XDECREF(value);
    Py_DECREF(token);
    Py_DECREF(cell);
}

/* ---- For profilers and dispatches -------------------------------------------------------------------------------------- */

static enigma_path import_path(Profiler *profiler, py_place outer)
{
    return outer.profiler ? enigma_path_import(profiler->recorder, outer.profiler->recorder, outer.path) : 0;
}

static void set_outer(Profiler *profiler, py_place outer)
{
    Py_XINCREF(outer.profiler);
    profiler->outer = outer;
}

#if PY_CONTEXT_IN_PLACE
static int push_in_place(py_state *state, Profiler *profiler)
{
    PyObject *drop = NULL;
    Scope *frame = py_scope_alloc(state, state->word_name);
    Cell *cell = frame ? py_cell_settled(state, PY_THREAD_STATE(), true, &drop) : NULL;
    if (!cell) {
        Py_XDECREF(frame);
        Py_XDECREF(drop);
        PyErr_NoMemory();
        return -1;
    }
    set_outer(profiler, cell->here);
    frame->profiler = (Profiler *)Py_NewRef((PyObject *)profiler);
    frame->path = import_path(profiler, cell->here);
    frame->scope = 0;
    frame->flags |= PY_PROFILE | PY_LINKED;
    frame->below = cell->top;
    cell->top = frame;
    cell->here = frame_place(frame);
    Py_XDECREF(drop);
    return 0;
}
#endif

int py_context_push_profiler(py_state *state, Profiler *profiler)
{
#if PY_CONTEXT_IN_PLACE
    if (state->hot.vars_offset) {
        return push_in_place(state, profiler);
    }
#endif
    Cell *under = py_portable_current(state);
    set_outer(profiler, under ? under->here : (py_place){NULL, 0, 0});
    py_place here = {profiler, import_path(profiler, profiler->outer), 0};
    int status = py_portable_push(state, NULL, under, here);
    Py_XDECREF(under);
    return status;
}

py_place py_place_now(py_state *state, PyObject **drop)
{
    py_place place = {NULL, 0, 0};
#if PY_CONTEXT_IN_PLACE
    if (state->hot.vars_offset) {
        PyThreadState *thread = PY_THREAD_STATE();
        Cell *cell = py_cell_fast(state, thread);
        if (!cell || py_cell_unsettled(state, cell)) {
            cell = py_cell_settled(state, thread, false, drop);
        }
        return cell ? cell->here : place;
    }
#endif
    Cell *cell = py_portable_current(state);
    *drop = (PyObject *)cell;
    return cell ? cell->here : place;
}

void py_context_tidy(py_state *state)
{
    PyObject *drop = NULL;
    py_place_now(state, &drop);
    Py_XDECREF(drop);
}

Profiler *py_context_hold(py_state *state, enigma_context *out)
{
    *out = (enigma_context){NULL, 0, 0};
    if (!state->hot.live) {
        return NULL;
    }
    PyObject *drop = NULL;
    py_place place = py_place_now(state, &drop);
    if (place.profiler) {
        *out = (enigma_context){place.profiler->recorder, place.path, place.scope};
        Py_INCREF(place.profiler);
    }
    Py_XDECREF(drop);
    return place.profiler;
}

/* ---- Introspection, for tests and bug reports --------------------------------------------------------------------------- */

static PyObject *names_of(enigma_profiler *recorder, enigma_path path)
{
    enigma_profile *profile;
    if (py_check(enigma_profiler_snapshot(recorder, &profile))) {
        return NULL;
    }
    size_t depth = enigma_profile_path_depth(profile, path);
    enigma_text *names = PyMem_New(enigma_text, depth ? depth : 1);
    PyObject *tuple = names ? PyTuple_New((Py_ssize_t)depth) : PyErr_NoMemory();
    if (tuple) {
        enigma_profile_path_names(profile, path, names, depth);
    }
    for (size_t i = 0; tuple && i < depth; i++) {
        PyObject *name = py_str(names[i]);
        if (!name) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, name);
        }
    }
    PyMem_Free(names);
    enigma_profile_free(profile);
    return tuple;
}

static PyObject *current_path(PyObject *module, PyObject *unused)
{
    (void)unused;
    enigma_context context;
    Profiler *profiler = py_context_hold(py_state_of(module), &context);
    if (!profiler) {
        Py_RETURN_NONE;
    }
    PyObject *names = names_of(context.profiler, context.path);
    Py_DECREF(profiler);
    return names;
}

static PyObject *context_info(PyObject *module, PyObject *unused)
{
    (void)unused;
    const py_hot *hot = &py_state_of(module)->hot;
    return Py_BuildValue("{s:s,s:n,s:n,s:i}", "mode", hot->vars_offset ? "in place" : "portable", "live", hot->live,
                         "stale", hot->stale, "kept", hot->kept);
}

static PyObject *get_active_profiler(PyObject *module, PyObject *unused)
{
    (void)unused;
    enigma_context context;
    Profiler *profiler = py_context_hold(py_state_of(module), &context);
    return profiler ? (PyObject *)profiler : Py_NewRef(Py_None);
}

PyDoc_STRVAR(active_doc, "get_active_profiler($module, /)\n--\n\n"
                         "Return the Profiler that is active in the current context, or None.");

static PyMethodDef functions[] = {
    {"get_active_profiler", get_active_profiler, METH_NOARGS, active_doc},
    {"_current_path", current_path, METH_NOARGS,
     "_current_path($module, /)\n--\n\nNames of the open scopes, outermost first; None where nothing is recorded."},
    {"_context_info", context_info, METH_NOARGS, "_context_info($module, /)\n--\n\nThe mode and what is live in it."},
    {NULL, NULL, 0, NULL}};

static int exec_context(PyObject *module, py_state *state)
{
    (void)module;
    state->variable = PyContextVar_New("enigma", NULL);
    PyObject *referent = state->variable ? PyContext_New() : NULL;
    state->dead_ref = referent ? PyWeakref_NewRef(referent, NULL) : NULL;
    Py_XDECREF(referent);
    if (!state->dead_ref) {
        return -1;
    }
#if PY_CONTEXT_IN_PLACE
    const char *portable = getenv("ENIGMA_PORTABLE_CONTEXT");
    if (!portable || !*portable || !strcmp(portable, "0")) {
        calibrate(state);
    }
#endif
    return 0;
}

const py_part py_context_part = {functions, exec_context, NULL};
