/* Entering and leaving scopes: the hot path of the extension. Off, it costs a load and a count; on, one look at the context's cell
 * and two calls of the library. Called by the with statement, through scope objects, and by decorate.c. */
#include "pycontext.h"

/* ---- What is recorded with a scope ------------------------------------------------------------------------------------- */

typedef struct note {
    py_arena arena;
    const enigma_metric *metrics;
    const enigma_field *metadata;
    size_t metric_count, metadata_count;
    PyObject *category; /* NULL: by the flags; lent by the scope */
} note;

/* Converts what the scope brings; runs any code. Free the arena in any case. */
static int note_fill(note *out, const Scope *source)
{
    py_arena_init(&out->arena);
    out->metadata = NULL;
    out->metadata_count = 0;
    out->category = source->category;
    if (py_metrics(&out->arena, source->metrics, &out->metrics, &out->metric_count)) {
        return -1;
    }
    return source->metadata_count
               ? py_fields(&out->arena, source->names, source->values, &out->metadata, &out->metadata_count)
               : 0;
}

static PY_SLOW uint32_t category_number(Profiler *profiler, PyObject *category)
{
    enigma_text text;
    PyObject *owner;
    if (profiler->category == category) {
        return profiler->category_number;
    }
    uint32_t number = ENIGMA_CATEGORY_SCOPE;
    PY_NO_COLLECTION_BEGIN
    if (py_text(category, &text, &owner)) {
        PyErr_Clear();
    } else {
        number = enigma_category(profiler->recorder, text);
        Py_XDECREF(owner);
        Py_INCREF(category);
        Py_XSETREF(profiler->category, category);
        profiler->category_number = number;
    }
    PY_NO_COLLECTION_END
    return number;
}

static inline uint32_t frame_category(const Scope *frame, Profiler *profiler, const note *brings)
{
    if (PY_UNLIKELY(brings && brings->category)) {
        return category_number(profiler, brings->category);
    }
    return frame->flags & PY_CATEGORY_PYTHON ? ENIGMA_CATEGORY_PYTHON : ENIGMA_CATEGORY_SCOPE;
}

/* Opens the record: the last thing done on entry. */
static inline void frame_open(Scope *frame, py_place below, const note *brings)
{
    enigma_profiler *recorder = below.profiler->recorder;
    uint32_t category = frame_category(frame, below.profiler, brings);
    frame->token = enigma_scope_open(recorder, frame->path, below.scope, category);
    frame->scope = frame->token.id ? frame->token.id : below.scope;
    if (PY_UNLIKELY(brings != NULL)) {
        enigma_scope_annotate(recorder, frame->token, brings->metrics, brings->metric_count, brings->metadata,
                              brings->metadata_count);
    }
}

static void annotate_error(enigma_profiler *recorder, enigma_scope token, PyObject *error)
{
    enigma_field field = {.key = {"error", 5}, .value = {.type = ENIGMA_TEXT}};
    PyObject *owner;
    if (py_text(error, &field.value.as.text, &owner)) {
        PyErr_Clear();
        return;
    }
    enigma_scope_annotate(recorder, token, NULL, 0, &field, 1);
    Py_XDECREF(owner);
}

static inline void frame_record(Profiler *profiler, enigma_scope token, PyObject *error)
{
    if (PY_LIKELY(profiler->live)) {
        if (PY_UNLIKELY(error != NULL)) {
            annotate_error(profiler->recorder, token, error);
        }
        enigma_scope_close(profiler->recorder, token);
    }
}

void py_frame_record(Profiler *profiler, enigma_scope token, PyObject *error) { frame_record(profiler, token, error); }

/* ---- Further frames of an object that is entered while open ------------------------------------------------------------- */

static Scope *again_new(Scope *self)
{
    Scope *frame = py_scope_alloc(self->state, self->name);
    if (!frame) {
        PyErr_Clear();
        return NULL;
    }
    frame->flags = self->flags & PY_CATEGORY_PYTHON;
    frame->origin = self;
    return frame;
}

static PY_SLOW void again_add(Scope *self, Scope *frame)
{
    frame->again = self->again;
    self->again = frame; /* takes over the reference */
    self->flags |= PY_AGAIN;
}

static PY_SLOW void again_remove(Scope *frame)
{
    Scope *self = frame->origin;
    for (Scope **link = &self->again; *link; link = &(*link)->again) {
        if (*link == frame) {
            *link = frame->again;
            break;
        }
    }
    if (!self->again) {
        self->flags &= ~(uint32_t)PY_AGAIN;
    }
    frame->again = frame->origin = NULL;
    Py_DECREF(frame);
}

static inline bool scope_busy(const Scope *self) { return self->profiler || self->flags & PY_LINKED; }

/* The frame of self whose cell is that, else the last one; held, or NULL. */
static Scope *again_find(Scope *self, const PyObject *cell)
{
    Scope *frame = self->again;
    while (frame && cell && frame->cell != cell) {
        frame = frame->again;
    }
    Py_XINCREF(frame);
    return frame;
}

/* The frame is done: the list's reference and the caller's go. */
static void frame_drop(Scope *frame)
{
    if (frame->origin) {
        again_remove(frame);
    }
    Py_DECREF(frame);
}

/* ---- Enter and leave, in place ------------------------------------------------------------------------------------------ */

#if PY_CONTEXT_IN_PLACE
static inline void push(Cell *cell, Scope *frame, enigma_path path)
{
    frame->profiler = cell->here.profiler;
    frame->path = path;
    frame->path_below = cell->here.path;
    frame->scope_below = cell->here.scope;
    frame->below = cell->top;
    frame->flags |= PY_LINKED;
    Py_INCREF(frame);
    cell->top = frame;
    cell->here.path = path;
}

static inline void pop(Cell *cell, Scope *frame)
{
    cell->top = frame->below;
    cell->here.path = frame->path_below;
    cell->here.scope = frame->scope_below;
    frame->profiler = NULL;
    frame->flags &= ~(uint32_t)PY_LINKED;
}

static void enter(Scope *self, const note *brings)
{
    py_state *state = self->state;
    PyThreadState *thread = PY_THREAD_STATE();
    Scope *frame = self;
    PyObject *drop = NULL;
    for (;;) {
        Cell *cell = py_cell_fast(state, thread);
        if (PY_UNLIKELY(!cell) && !(cell = py_cell_current(state, thread, false, &drop))) {
            break;
        }
        if (PY_UNLIKELY(py_cell_unsettled(state, cell))) {
            py_cell_settle(cell);
        } else if (PY_UNLIKELY(!cell->here.profiler)) {
            break;
        } else if (PY_UNLIKELY(scope_busy(frame))) {
            if (!(frame = again_new(self))) {
                break;
            }
        } else {
            py_place below = cell->here;
            push(cell, frame, py_path_child(below.profiler, below.path, frame->name));
            if (PY_UNLIKELY(frame != self)) {
                again_add(self, frame);
            }
            frame_open(frame, below, brings);
            cell->here.scope = frame->scope;
            if (PY_UNLIKELY(state->hot.attached)) {
                py_publish(state, thread, cell->here);
            }
            Py_XDECREF(drop);
            return;
        }
        Py_CLEAR(drop); /* runs any code: look again */
    }
    Py_XDECREF(drop);
    if (frame && frame != self) {
        Py_DECREF(frame);
    }
    self->off++;
}

/* The frame of self in the cell's stack that was opened last. */
static Scope *find_frame(const Cell *cell, const Scope *self)
{
    Scope *frame = cell ? cell->top : NULL;
    while (frame && !((frame == self || frame->origin == self) && frame->profiler)) {
        frame = frame->below;
    }
    return frame;
}

static PY_SLOW void leave_slow(Scope *self, PyThreadState *thread, PyObject *error)
{
    PyObject *drop;
    Cell *cell = py_cell_settled(self->state, thread, false, &drop);
    Scope *frame = find_frame(cell, self);
    if (frame && frame == cell->top) {
        frame_record(frame->profiler, frame->token, error);
        pop(cell, frame);
        if (self->state->hot.attached) {
            py_publish(self->state, thread, cell->here);
        }
        frame_drop(frame);
        Py_XDECREF(drop);
        return;
    }
    Py_XINCREF(frame);
    Py_XDECREF(drop);
    if (!frame && self->off) { /* others have it open; this context entered it where nothing is recorded */
        self->off--;
        return;
    }
    if (!frame && !(frame = again_find(self, NULL))) {
        frame = (Scope *)Py_NewRef((PyObject *)self);
    }
    py_frame_close_late(frame, error);
    frame_drop(frame);
}

static inline void leave(Scope *self, PyObject *error)
{
    PyThreadState *thread = PY_THREAD_STATE();
    Cell *cell = py_cell_fast(self->state, thread);
    if (PY_UNLIKELY(!cell || cell->top != self || !self->profiler)) {
        leave_slow(self, thread, error);
        return;
    }
    frame_record(self->profiler, self->token, error);
    pop(cell, self);
    if (PY_UNLIKELY(self->state->hot.attached)) {
        py_publish(self->state, thread, cell->here);
    }
    Py_DECREF(self); /* the stack's; the caller has one */
}
#endif

/* ---- Enter and leave, portable ------------------------------------------------------------------------------------------ */

static int portable_open(Scope *frame, Cell *under, const note *brings)
{
    py_place here = under->here;
    frame->path = py_path_child(here.profiler, here.path, frame->name);
    frame_open(frame, under->here, brings);
    here.path = frame->path;
    here.scope = frame->scope;
    if (py_portable_push(frame->state, frame, under, here)) {
        PyErr_Clear();
        enigma_scope_close(here.profiler->recorder, frame->token);
        return -1;
    }
    return 0;
}

static void portable_enter(Scope *self, const note *brings)
{
    Cell *under = py_portable_current(self->state);
    Scope *frame = self;
    if (!under || (scope_busy(self) && !(frame = again_new(self))) || portable_open(frame, under, brings)) {
        if (frame && frame != self) {
            Py_DECREF(frame);
        }
        self->off++;
    } else if (frame != self) {
        again_add(self, frame);
    }
    Py_XDECREF(under);
}

/* Which frame of self leaves: the one that is this context's innermost, else the last; NULL: none of this context's. Held. */
static Scope *portable_frame(Scope *self)
{
    if (!self->again && !self->off) {
        return (Scope *)Py_NewRef((PyObject *)self);
    }
    PyObject *cell = (PyObject *)py_portable_current(self->state);
    bool own = self->profiler && self->cell == cell;
    Scope *frame = cell && !own ? again_find(self, cell) : NULL;
    Py_XDECREF(cell);
    if (frame) {
        return frame;
    }
    if (!own && self->off) {
        self->off--;
        return NULL;
    }
    frame = own ? NULL : again_find(self, NULL);
    return frame ? frame : (Scope *)Py_NewRef((PyObject *)self);
}

static void portable_leave(Scope *self, PyObject *error)
{
    Scope *frame = portable_frame(self);
    if (!frame) {
        return;
    }
    if (frame->profiler) {
        Profiler *profiler = (Profiler *)Py_NewRef((PyObject *)frame->profiler);
        frame_record(profiler, frame->token, error);
        py_portable_pop(self->state, frame);
        Py_DECREF(profiler);
    }
    frame_drop(frame);
}

/* ---- Enter and leave ---------------------------------------------------------------------------------------------------- */

static inline void enter_recorded(Scope *self, const note *brings)
{
#if PY_CONTEXT_IN_PLACE
    if (PY_LIKELY(self->state->hot.vars_offset)) {
        enter(self, brings);
        return;
    }
#endif
    portable_enter(self, brings);
    if (PY_UNLIKELY(self->state->hot.attached)) {
        py_publish_current(self->state);
    }
}

/* With metrics, metadata or a category: they are looked at before anything else, and only where something is recorded. */
static __attribute__((noinline)) int enter_with_keywords(Scope *self)
{
    enigma_context context;
    Profiler *profiler = py_context_hold(self->state, &context);
    if (!profiler) {
        self->off++;
        return 0;
    }
    Py_DECREF(profiler);
    note brings;
    Scope *source = self->source ? self->source : self;
    int status = note_fill(&brings, source);
    if (status == 0) {
        enter_recorded(self, &brings);
    }
    py_arena_free(&brings.arena);
    return status;
}

static inline int scope_enter(Scope *self)
{
    if (PY_LIKELY(!self->state->hot.live)) {
        self->off++;
        return 0;
    }
    if (PY_UNLIKELY(self->flags & PY_KEYWORDS)) {
        return enter_with_keywords(self);
    }
    enter_recorded(self, NULL);
    return 0;
}

static inline void scope_leave(Scope *self, PyObject *error)
{
    if (!self->profiler && !self->again) {
        if (PY_LIKELY(self->off)) {
            self->off--;
        }
        return;
    }
#if PY_CONTEXT_IN_PLACE
    if (PY_LIKELY(self->state->hot.vars_offset)) {
        leave(self, error);
        return;
    }
#endif
    portable_leave(self, error);
    if (PY_UNLIKELY(self->state->hot.attached)) {
        py_publish_current(self->state);
    }
}

/* A body that raised. Closing a generator is no error. */
static PY_SLOW void scope_leave_raised(Scope *self, PyObject *type, PyObject *value)
{
    bool recorded = self->state->hot.live && (self->profiler || self->again);
    PyObject *error = recorded && type != PyExc_GeneratorExit ? py_error_text(type, value) : NULL;
    scope_leave(self, error);
    Py_XDECREF(error);
}

int py_scope_enter(Scope *self) { return scope_enter(self); }

void py_scope_leave(Scope *self, PyObject *raised)
{
    if (raised) {
        scope_leave_raised(self, (PyObject *)Py_TYPE(raised), raised);
    } else {
        scope_leave(self, NULL);
    }
}

/* ---- Methods ------------------------------------------------------------------------------------------------------------ */

/* No argument: __enter__, three: __exit__ (see PY_SELF_CALLABLE), one: decorates. */
PyObject *py_scope_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Scope *self = (Scope *)object;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if (PY_LIKELY(!names)) {
        if (count == 0) {
            return PY_LIKELY(scope_enter(self) == 0) ? Py_NewRef(object) : NULL;
        }
        if (count == 3) {
            if (PY_LIKELY(args[0] == Py_None)) {
                scope_leave(self, NULL);
            } else {
                scope_leave_raised(self, args[0], args[1]);
            }
            Py_RETURN_NONE;
        }
        if (count == 1 && PyCallable_Check(args[0])) {
            return py_scope_decorate(self, args[0]);
        }
    }
    PyErr_SetString(PyExc_TypeError, "a scope decorates one callable");
    return NULL;
}

/* Up to 3.13 the with statement makes a bound method of __enter__ and of __exit__, 25 ns in all. It calls what the class
 * attribute's tp_descr_get returns, so there that is the scope itself, which tells the calls apart by their number of arguments.
 * Since 3.14 it calls method descriptors without binding. */
#define PY_SELF_CALLABLE (PY_VERSION_HEX < 0x030E0000)

static PyObject *method_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return Py_NewRef(object ? object : self);
}

/* type(s).__enter__(s) and type(s).__exit__(s, ...): what ExitStack does */
static PyObject *method_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const py_state *state = py_state_of_type(Py_TYPE(self));
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (kwargs || (count != 1 && count != 4) || !Py_IS_TYPE(PyTuple_GET_ITEM(args, 0), state->scope_type)) {
        PyErr_SetString(PyExc_TypeError, "a scope was expected");
        return NULL;
    }
    PyObject *const *items = &PyTuple_GET_ITEM(args, 0);
    return py_scope_call(items[0], items + 1, (size_t)count - 1, NULL);
}

static void method_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot method_slots[] = {
    {Py_tp_dealloc, method_dealloc}, {Py_tp_descr_get, method_get}, {Py_tp_call, method_call}, {0, NULL}};

PyType_Spec py_scope_method_spec = {
    .name = "enigma._ScopeMethod",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = method_slots,
};

#if PY_SELF_CALLABLE
int py_scope_add_methods(py_state *state)
{
    PyObject *method = (PyObject *)PyObject_New(PyObject, state->scope_method_type);
    PyObject *dict = state->scope_type->tp_dict;
    int status =
        !method || PyDict_SetItemString(dict, "__enter__", method) || PyDict_SetItemString(dict, "__exit__", method)
            ? -1
            : 0;
    PyType_Modified(state->scope_type);
    Py_XDECREF(method);
    return status;
}

PyMethodDef py_scope_methods[] = {{NULL, NULL, 0, NULL}};
#else
static PyObject *enter_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    return py_scope_call(self, NULL, 0, NULL);
}

static PyObject *exit_method(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "__exit__ takes 3 arguments but %zd were given", count);
        return NULL;
    }
    return py_scope_call(self, args, 3, NULL);
}

PyMethodDef py_scope_methods[] = {{"__enter__", enter_method, METH_NOARGS, NULL},
                                  {"__exit__", (PyCFunction)(void (*)(void))exit_method, METH_FASTCALL, NULL},
                                  {NULL, NULL, 0, NULL}};
int py_scope_add_methods(py_state *state)
{
    (void)state;
    return 0;
}
#endif
