/* Values between Python and the library. Used by every file of the extension. */
#include "pyenigma.h"

/* ---- Arena ------------------------------------------------------------------------------------------------------------- */

typedef struct py_arena_block {
    struct py_arena_block *next;
    size_t capacity;
    max_align_t bytes[];
} py_arena_block;

enum { ALIGNMENT = sizeof(max_align_t), BLOCK_BYTES = 8192 };

void py_arena_init(py_arena *arena)
{
    arena->blocks = NULL;
    arena->used = 0;
    arena->nodes = 0;
    arena->held_count = 0;
}

void py_arena_free(py_arena *arena)
{
    while (arena->held_count > 0) {
        Py_DECREF(arena->held[--arena->held_count]);
    }
    while (arena->blocks) {
        py_arena_block *next = arena->blocks->next;
        PyMem_Free(arena->blocks);
        arena->blocks = next;
    }
}

static int arena_grow(py_arena *arena, size_t size)
{
    size_t capacity = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    py_arena_block *block = PyMem_Malloc(sizeof *block + capacity);
    if (!block) {
        PyErr_NoMemory();
        return -1;
    }
    block->next = arena->blocks;
    block->capacity = capacity;
    arena->blocks = block;
    arena->used = 0;
    return 0;
}

void *py_arena_alloc(py_arena *arena, size_t size)
{
    if (size > PY_SSIZE_T_MAX - BLOCK_BYTES) {
        PyErr_NoMemory();
        return NULL;
    }
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t room = (arena->blocks ? arena->blocks->capacity : sizeof arena->first) - arena->used;
    if (size > room && arena_grow(arena, size)) {
        return NULL;
    }
    char *bytes = arena->blocks ? (char *)arena->blocks->bytes : arena->first.bytes;
    void *memory = bytes + arena->used;
    arena->used += size;
    return memory;
}

static int arena_copy(py_arena *arena, const char *data, size_t size, enigma_text *out)
{
    char *copy = py_arena_alloc(arena, size + 1);
    if (!copy) {
        return -1;
    }
    memcpy(copy, data, size);
    copy[size] = '\0';
    *out = (enigma_text){copy, size};
    return 0;
}

/* ---- Text -------------------------------------------------------------------------------------------------------------- */

int py_text(PyObject *str, enigma_text *out, PyObject **owner)
{
    *owner = NULL;
    if (!PyUnicode_Check(str)) {
        PyErr_Format(PyExc_TypeError, "a name must be a str, not %.200s", Py_TYPE(str)->tp_name);
        return -1;
    }
    Py_ssize_t size;
    const char *data = PyUnicode_AsUTF8AndSize(str, &size);
    if (!data && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) { /* lone surrogates */
        PyErr_Clear();
        *owner = PyUnicode_AsEncodedString(str, "utf-8", "surrogatepass");
        if (*owner) {
            data = PyBytes_AS_STRING(*owner);
            size = PyBytes_GET_SIZE(*owner);
        }
    }
    *out = (enigma_text){data, data ? (size_t)size : 0};
    return data ? 0 : -1;
}

int py_text_copy(py_arena *arena, PyObject *str, enigma_text *out)
{
    PyObject *owner;
    if (PyUnicode_Check(str) && !PyUnicode_IS_ASCII(str)) { /* a str keeps its UTF-8 for good: long values should not */
        owner = PyUnicode_AsEncodedString(str, "utf-8", "surrogatepass");
        if (!owner) {
            return -1;
        }
        *out = (enigma_text){PyBytes_AS_STRING(owner), (size_t)PyBytes_GET_SIZE(owner)};
    } else if (py_text(str, out, &owner)) {
        return -1;
    }
    int status = arena_copy(arena, out->data, out->size, out);
    Py_XDECREF(owner);
    return status;
}

PyObject *py_str(enigma_text text)
{
    if (!text.data) {
        Py_RETURN_NONE;
    }
    PyObject *str = PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "surrogatepass");
    if (!str && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        str = PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "replace");
    }
    return str;
}

/* ---- Numbers and metrics ----------------------------------------------------------------------------------------------- */

/* As a double, infinite beyond its range, so that a count never wraps; also for a Fraction. */
static int double_of(PyObject *value, double *out)
{
    *out = PyLong_Check(value) ? PyLong_AsDouble(value) : PyFloat_AsDouble(value);
    if (*out != -1.0 || !PyErr_Occurred()) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
        return -1;
    }
    PyObject *overflow = py_error_take();
    PyObject *zero = PyLong_FromLong(0);
    int negative = zero == NULL ? -1 : PyObject_RichCompareBool(value, zero, Py_LT);
    Py_XDECREF(zero);
    *out = negative > 0 ? -Py_HUGE_VAL : Py_HUGE_VAL;
    if (negative < 0) {
        py_error_chain(overflow);
        return -1;
    }
    Py_XDECREF(overflow);
    return 0;
}

static void not_a_number(const char *what, PyObject *key, PyObject *value)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
        return;
    }
    PyObject *cause = py_error_take(); /* from a __float__ that failed */
    PyObject *place = key ? PyUnicode_FromFormat("%s[%R]", what, key) : PyUnicode_FromString(what);
    if (place) {
        PyErr_Format(PyExc_TypeError, "%U must be a real number, not %.200s", place, Py_TYPE(value)->tp_name);
        Py_DECREF(place);
    }
    py_error_chain(cause);
}

int py_number(PyObject *value, const char *what, PyObject *key, double *out)
{
    if (PyFloat_Check(value)) {
        *out = PyFloat_AS_DOUBLE(value);
        return 0;
    }
    PyNumberMethods *number = Py_TYPE(value)->tp_as_number;
    if (number && (number->nb_float || number->nb_index) && double_of(value, out) == 0) {
        return 0;
    }
    not_a_number(what, key, value);
    return -1;
}

/* A key as a text with a NUL at its end. */
static int key_of(py_arena *arena, PyObject *key, enigma_text *out)
{
    if (PyUnicode_CheckExact(key) && PyUnicode_IS_COMPACT_ASCII(key) && arena->held_count < PY_ARENA_HELD) {
        arena->held[arena->held_count++] = Py_NewRef(key);
        *out = (enigma_text){(const char *)PyUnicode_1BYTE_DATA(key), (size_t)PyUnicode_GET_LENGTH(key)};
        return 0;
    }
    if (!PyUnicode_Check(key)) {
        PyErr_Format(PyExc_TypeError, "metrics keys must be str, not %.200s (%R)", Py_TYPE(key)->tp_name, key);
        return -1;
    }
    return py_text_copy(arena, key, out);
}

static int put_metric(py_arena *arena, PyObject *key, double value, enigma_metric *out)
{
    enigma_text text;
    if (key_of(arena, key, &text)) {
        return -1;
    }
    if (strlen(text.data) != text.size) {
        PyErr_Format(PyExc_ValueError, "metrics keys must not contain a NUL (%R)", key);
        return -1;
    }
    *out = (enigma_metric){text.data, value};
    return 0;
}

/* The leading entries, at most size, whose conversion runs no code, so that the dict cannot change under us; -1 with an exception. */
static Py_ssize_t plain_metrics(py_arena *arena, PyObject *dict, Py_ssize_t size, enigma_metric *list)
{
    Py_ssize_t position = 0, count = 0;
    PyObject *key, *value;
    while (count < size && PyDict_Next(dict, &position, &key, &value) && PyUnicode_CheckExact(key) &&
           (PyFloat_CheckExact(value) || PyLong_CheckExact(value))) {
        if (put_metric(arena, key, 0.0, &list[count]) || py_number(value, "metrics", key, &list[count].value)) {
            return -1;
        }
        count++;
    }
    return count;
}

/* The entries of a dict that nobody changes meanwhile. */
static int metrics_of(py_arena *arena, PyObject *dict, enigma_metric *list)
{
    Py_ssize_t position = 0;
    PyObject *key, *value;
    for (; PyDict_Next(dict, &position, &key, &value); list++) {
        double number = 0.0;
        if (PyUnicode_Check(key) && py_number(value, "metrics", key, &number)) {
            return -1;
        }
        if (put_metric(arena, key, number, list)) {
            return -1;
        }
    }
    return 0;
}

/* A dict as it is now, whatever its values do meanwhile. */
static int other_metrics(py_arena *arena, PyObject *dict, const enigma_metric **out, size_t *count)
{
    PyObject *copy = PyDict_Copy(dict);
    size_t size = copy ? (size_t)PyDict_GET_SIZE(copy) : 0;
    enigma_metric *list = copy ? py_arena_alloc(arena, size * sizeof *list) : NULL;
    int status = list ? metrics_of(arena, copy, list) : -1;
    Py_XDECREF(copy);
    if (status == 0) {
        *out = list;
        *count = size;
    }
    return status;
}

int py_metrics(py_arena *arena, PyObject *dict, const enigma_metric **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (!dict || dict == Py_None) {
        return 0;
    }
    Py_ssize_t size = PyDict_GET_SIZE(dict);
    enigma_metric *list = py_arena_alloc(arena, (size_t)size * sizeof *list);
    Py_ssize_t plain = list ? plain_metrics(arena, dict, size, list) : -1;
    if (plain < size) {
        return plain < 0 ? -1 : other_metrics(arena, dict, out, count);
    }
    *out = list;
    *count = (size_t)size;
    return 0;
}

/* ---- Metadata ---------------------------------------------------------------------------------------------------------- */

enum { DEPTH_LIMIT = 32, NODE_LIMIT = 1 << 20 };

/* The containers that a value is in, innermost first. */
typedef struct nest {
    const struct nest *outer;
    PyObject *object;
    int depth;
} nest;

static int value_of(py_arena *arena, PyObject *object, const nest *outer, enigma_value *out);

static int text_value(py_arena *arena, const char *data, size_t size, enigma_value *out)
{
    out->type = ENIGMA_TEXT;
    return arena_copy(arena, data, size, &out->as.text);
}

static int str_value(py_arena *arena, PyObject *str, enigma_value *out)
{
    out->type = ENIGMA_TEXT;
    return py_text_copy(arena, str, &out->as.text);
}

/* Takes str over and cuts it to the limit. */
static int cut_value(py_arena *arena, PyObject *str, enigma_value *out)
{
    if (str && PyUnicode_GET_LENGTH(str) > PY_TEXT_LIMIT) {
        PyObject *head = PyUnicode_Substring(str, 0, PY_TEXT_LIMIT - 3);
        Py_SETREF(str, head ? PyUnicode_FromFormat("%U...", head) : NULL);
        Py_XDECREF(head);
    }
    int status = str ? str_value(arena, str, out) : -1;
    Py_XDECREF(str);
    return status;
}

/* A repr that fails leaves the type's name. */
static int repr_value(py_arena *arena, PyObject *object, enigma_value *out)
{
    PyObject *head = NULL;
    if (PyBytes_CheckExact(object) && PyBytes_GET_SIZE(object) > PY_TEXT_LIMIT) {
        object = head = PyBytes_FromStringAndSize(PyBytes_AS_STRING(object), PY_TEXT_LIMIT);
    }
    PyObject *str = object ? PyObject_Repr(object) : NULL;
    if (!str && object && py_error_clear()) {
        str = PyUnicode_FromFormat("<%.200s object>", Py_TYPE(object)->tp_name);
    }
    Py_XDECREF(head);
    return cut_value(arena, str, out);
}

static int int_value(PyObject *object, enigma_value *out)
{
    int overflow;
    out->type = ENIGMA_INT;
    out->as.integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) {
        out->type = ENIGMA_DOUBLE;
        return double_of(object, &out->as.number);
    }
    return out->as.integer == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Makes room for size items; fewer, the last of them "...", when the value has too many in all. */
static enigma_field *items_of(py_arena *arena, Py_ssize_t size, uint32_t type, enigma_value *out, Py_ssize_t *kept)
{
    size_t left = arena->nodes < NODE_LIMIT ? NODE_LIMIT - arena->nodes : 0;
    bool cut = (size_t)size > left;
    *kept = cut ? (Py_ssize_t)left : size;
    size_t count = (size_t)*kept + cut;
    enigma_field *items = py_arena_alloc(arena, count * sizeof *items);
    if (!items) {
        return NULL;
    }
    arena->nodes += (size_t)*kept;
    memset(items, 0, count * sizeof *items);
    if (cut && (arena_copy(arena, "...", 3, &items[*kept].key) || text_value(arena, "...", 3, &items[*kept].value))) {
        return NULL;
    }
    *out = (enigma_value){.type = type, .as.items = {items, count}};
    return items;
}

/* tuple: of the items, held by the caller. */
static int sequence_value(py_arena *arena, PyObject *tuple, uint32_t type, const nest *inside, enigma_value *out)
{
    Py_ssize_t kept;
    enigma_field *items = items_of(arena, PyTuple_GET_SIZE(tuple), type, out, &kept);
    if (!items) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < kept; i++) {
        if (value_of(arena, PyTuple_GET_ITEM(tuple, i), inside, &items[i].value)) {
            return -1;
        }
    }
    return 0;
}

static int key_text(py_arena *arena, PyObject *key, enigma_text *out)
{
    enigma_value value;
    int status = PyUnicode_Check(key) ? str_value(arena, key, &value) : repr_value(arena, key, &value);
    if (status == 0) {
        *out = value.as.text;
    }
    return status;
}

/* dict: a copy, so that no code can change it meanwhile. */
static int dict_value(py_arena *arena, PyObject *dict, const nest *inside, enigma_value *out)
{
    Py_ssize_t kept, position = 0;
    PyObject *key, *value;
    enigma_field *items = items_of(arena, PyDict_GET_SIZE(dict), ENIGMA_DICT, out, &kept);
    if (!items) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < kept && PyDict_Next(dict, &position, &key, &value); i++) {
        if (key_text(arena, key, &items[i].key) || value_of(arena, value, inside, &items[i].value)) {
            return -1;
        }
    }
    return 0;
}

static int container_value(py_arena *arena, PyObject *object, const nest *outer, enigma_value *out)
{
    for (const nest *n = outer; n; n = n->outer) {
        if (n->object == object) {
            return text_value(arena, "...", 3, out);
        }
    }
    nest inside = {outer, object, outer ? outer->depth + 1 : 1};
    if (inside.depth > DEPTH_LIMIT) {
        return text_value(arena, "...", 3, out);
    }
    PyObject *held;
    int status = -1;
    if (PyDict_Check(object)) {
        held = PyDict_Copy(object);
        status = held ? dict_value(arena, held, &inside, out) : -1;
    } else if (PyList_Check(object)) {
        held = PyList_AsTuple(object);
        status = held ? sequence_value(arena, held, ENIGMA_LIST, &inside, out) : -1;
    } else {
        held = Py_NewRef(object);
        status = sequence_value(arena, held, ENIGMA_TUPLE, &inside, out);
    }
    Py_XDECREF(held);
    return status;
}

/* An attribute, or NULL; with an exception set only when it is no Exception. */
static PyObject *attribute(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (!value) {
        py_error_clear();
    }
    return value;
}

/* A NumPy scalar is a number, not an array: its Python value, NULL when it is none. */
static PyObject *scalar_of(PyObject *object)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *numpy = modules ? PyDict_GetItemString(modules, "numpy") : NULL;
    PyObject *generic = numpy ? attribute(numpy, "generic") : NULL;
    PyObject *value = NULL;
    if (generic && PyType_Check(generic) && PyObject_TypeCheck(object, (PyTypeObject *)generic)) {
        value = PyObject_CallMethod(object, "item", NULL);
        if (!value) {
            py_error_clear();
        }
    }
    Py_XDECREF(generic);
    return value;
}

/* "module.Type" */
static PyObject *full_type_name(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    PyObject *module = attribute(type, "__module__"), *name = attribute(type, "__qualname__"), *full = NULL;
    if (!PyErr_Occurred()) {
        full = module && name && PyUnicode_Check(module) && PyUnicode_Check(name)
                   ? PyUnicode_FromFormat("%U.%U", module, name)
                   : PyUnicode_FromString(Py_TYPE(object)->tp_name);
    }
    Py_XDECREF(module);
    Py_XDECREF(name);
    return full;
}

/* Whether an object's type says that it is an array, whatever attributes the object has. */
static bool has_array_protocol(PyObject *object)
{
    static const char *const protocols[] = {"__dlpack__", "__array__", "__cuda_array_interface__"};
    PyObject *found = NULL;
    for (int i = 0; i < 3 && !found && !PyErr_Occurred(); i++) {
        found = attribute((PyObject *)Py_TYPE(object), protocols[i]);
    }
    Py_XDECREF(found);
    return found != NULL;
}

/* Takes shape over: a tuple, or one of what another sequence holds; NULL for what is none. Mocks pass for empty sequences. */
static PyObject *shape_tuple(PyObject *shape)
{
    if (!shape || PyTuple_Check(shape)) {
        return shape;
    }
    PyObject *tuple = PySequence_Check(shape) && !PyUnicode_Check(shape) ? PySequence_Tuple(shape) : NULL;
    if (!tuple) {
        py_error_clear();
    } else if (PyTuple_GET_SIZE(tuple) == 0) {
        Py_CLEAR(tuple);
    }
    Py_DECREF(shape);
    return tuple;
}

/* Type, shape and dtype in place of the contents, which may be large or on a device; shape or dtype NULL: not told. */
static int array_value(py_arena *arena, PyObject *object, PyObject *shape, PyObject *dtype, const nest *outer,
                       enigma_value *out)
{
    static const char *const keys[3] = {"type", "shape", "dtype"};
    enigma_field *items = py_arena_alloc(arena, 3 * sizeof *items);
    if (!items) {
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        items[i].key = (enigma_text){keys[i], 5 - (i == 0)};
    }
    PyObject *text = PyObject_Str(dtype ? dtype : Py_None);
    if (!text && py_error_clear()) {
        text = full_type_name(dtype);
    }
    if (cut_value(arena, full_type_name(object), &items[0].value) ||
        value_of(arena, shape ? shape : Py_None, outer, &items[1].value) || cut_value(arena, text, &items[2].value)) {
        return -1;
    }
    if (!dtype) {
        items[2].value = (enigma_value){.type = ENIGMA_NULL};
    }
    *out = (enigma_value){.type = ENIGMA_DICT, .as.items = {items, 3}};
    return 0;
}

/* What is no plain value: an array, a NumPy scalar, or anything else by its repr. */
static int other_value(py_arena *arena, PyObject *object, const nest *outer, enigma_value *out)
{
    if (PyType_Check(object)) { /* its attributes are those of its instances */
        return repr_value(arena, object, out);
    }
    PyObject *shape = shape_tuple(attribute(object, "shape"));
    PyObject *dtype = PyErr_Occurred() ? NULL : attribute(object, "dtype");
    PyObject *scalar = shape && dtype ? scalar_of(object) : NULL;
    bool array = !PyErr_Occurred() && ((shape && dtype) || has_array_protocol(object));
    int status = -1;
    if (PyErr_Occurred()) {
        goto done;
    }
    if (scalar && (PyLong_Check(scalar) || PyFloat_Check(scalar) || PyUnicode_Check(scalar))) {
        status = value_of(arena, scalar, outer, out);
    } else if (array && !scalar) {
        status = array_value(arena, object, shape, dtype, outer, out);
    } else {
        status = repr_value(arena, object, out);
    }
done:
    Py_XDECREF(scalar);
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return status;
}

static int value_of(py_arena *arena, PyObject *object, const nest *outer, enigma_value *out)
{
    if (object == Py_None) {
        *out = (enigma_value){.type = ENIGMA_NULL};
        return 0;
    }
    if (PyBool_Check(object)) {
        *out = (enigma_value){.type = ENIGMA_BOOL, .as.integer = object == Py_True};
        return 0;
    }
    if (PyLong_Check(object)) {
        return int_value(object, out);
    }
    if (PyFloat_Check(object)) {
        *out = (enigma_value){.type = ENIGMA_DOUBLE, .as.number = PyFloat_AS_DOUBLE(object)};
        return 0;
    }
    if (PyUnicode_Check(object)) {
        return str_value(arena, object, out);
    }
    if (PyTuple_Check(object) || PyList_Check(object) || PyDict_Check(object)) {
        return container_value(arena, object, outer, out);
    }
    return other_value(arena, object, outer, out);
}

int py_value(py_arena *arena, PyObject *object, enigma_value *out) { return value_of(arena, object, NULL, out); }

int py_fields(py_arena *arena, PyObject *names, PyObject *const *values, const enigma_field **out, size_t *count)
{
    size_t size = (size_t)PyTuple_GET_SIZE(names), n = 0;
    enigma_field *fields = py_arena_alloc(arena, size * sizeof *fields);
    if (!fields) {
        return -1;
    }
    for (size_t i = 0; i < size; i++) {
        if (!values[i]) {
            continue;
        }
        if (py_text_copy(arena, PyTuple_GET_ITEM(names, i), &fields[n].key) ||
            value_of(arena, values[i], NULL, &fields[n].value)) {
            return -1;
        }
        n++;
    }
    *out = fields;
    *count = n;
    return 0;
}

/* ---- To Python --------------------------------------------------------------------------------------------------------- */

static PyObject *list_object(const enigma_items *items)
{
    PyObject *list = PyList_New((Py_ssize_t)items->count);
    for (size_t i = 0; list && i < items->count; i++) {
        PyObject *item = py_object(&items->data[i].value);
        if (!item) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        }
    }
    return list;
}

static PyObject *tuple_object(const enigma_items *items)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)items->count);
    for (size_t i = 0; tuple && i < items->count; i++) {
        PyObject *item = py_object(&items->data[i].value);
        if (!item) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, item);
        }
    }
    return tuple;
}

PyObject *py_object(const enigma_value *value)
{
    switch (value->type) {
    case ENIGMA_BOOL:
        return PyBool_FromLong(value->as.integer != 0);
    case ENIGMA_INT:
        return PyLong_FromLongLong(value->as.integer);
    case ENIGMA_DOUBLE:
        return PyFloat_FromDouble(value->as.number);
    case ENIGMA_TEXT:
        return py_str(value->as.text);
    case ENIGMA_LIST:
        return list_object(&value->as.items);
    case ENIGMA_TUPLE:
        return tuple_object(&value->as.items);
    case ENIGMA_DICT:
        return py_fields_dict(value->as.items.data, value->as.items.count);
    default:
        Py_RETURN_NONE;
    }
}

/* Takes both over. */
static int dict_put(PyObject *dict, PyObject *key, PyObject *value)
{
    int status = key && value ? PyDict_SetItem(dict, key, value) : -1;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return status;
}

PyObject *py_metrics_dict(const enigma_metric *metrics, size_t count)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < count; i++) {
        enigma_text key = {metrics[i].key, strlen(metrics[i].key)};
        if (dict_put(dict, py_str(key), PyFloat_FromDouble(metrics[i].value))) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

PyObject *py_fields_dict(const enigma_field *fields, size_t count)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < count; i++) {
        if (dict_put(dict, py_str(fields[i].key), py_object(&fields[i].value))) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}
