/* Kernel inputs, output sizes and launch sizes. Called by gpu.c, prepared.c, bench.c and testing.c on any thread, with
 * the GIL. Nothing here calls the library: all of it is done before anything runs. */
#include "arguments.h"

#include "dlpack.h"

#include <stdio.h>
#include <string.h>

/* ---- Names of element types ---- */

/* "float32" and the like from a struct-style format character; false for what has no such name. */
static bool simple_dtype(const char *format, Py_ssize_t itemsize, char *out, size_t size)
{
    static const struct {
        const char *codes, *kind;
    } kinds[] = {{"bhilqn", "int"}, {"BHILQN", "uint"}, {"efdg", "float"}, {"FDG", "complex"}};
    if (strcmp(format, "?") == 0) {
        snprintf(out, size, "bool");
        return true;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (format[0] != '\0' && format[1] == '\0' && strchr(kinds[i].codes, format[0]) != NULL) {
            snprintf(out, size, "%s%zd", kinds[i].kind, itemsize * 8);
            return true;
        }
    }
    if (format[0] == 'Z' && format[1] != '\0' && format[2] == '\0') {
        snprintf(out, size, "complex%zd", itemsize * 8);
        return true;
    }
    return false;
}

/* The name for a buffer's format; the format itself where there is no simpler one (structs, foreign byte order). */
static void buffer_dtype(const Py_buffer *view, char *out, size_t size)
{
    const char *format = view->format != NULL ? view->format : "B";
    const char *bare = format;
    const char native = PY_LITTLE_ENDIAN ? '<' : '>';
    if (*bare == '@' || *bare == '=' || *bare == native) {
        bare++;
    }
    if (!simple_dtype(bare, view->itemsize, out, size)) {
        snprintf(out, size, "%.*s", (int)size - 1, format);
    }
}

static void dlpack_dtype(const dlpack_tensor *tensor, char *out, size_t size)
{
    static const char *const kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    unsigned bits = tensor->dtype.bits, lanes = tensor->dtype.lanes;
    char name[24];
    if (tensor->dtype.code == DLPACK_BOOL) {
        snprintf(name, sizeof(name), "bool");
    } else if (tensor->dtype.code < sizeof(kinds) / sizeof(kinds[0])) {
        snprintf(name, sizeof(name), "%s%u", kinds[tensor->dtype.code], bits);
    } else {
        snprintf(name, sizeof(name), "dlpack%u_%u", (unsigned)tensor->dtype.code, bits);
    }
    if (lanes == 1) {
        snprintf(out, size, "%s", name);
    } else {
        snprintf(out, size, "%sx%u", name, lanes);
    }
}

/* ---- Buffer protocol ---- */

/* Whether elements are host pointers or Python objects, which mean nothing to a device. */
static bool holds_pointers(const char *format)
{
    return format != NULL && (strpbrk(format, "OPzZ&X") != NULL) &&
           !(format[strcspn(format, "Z")] == 'Z' && strchr("fdg", format[strcspn(format, "Z") + 1]) != NULL &&
             strpbrk(format, "OPz&X") == NULL);
}

static int copy_shape(py_input *input, enigma_argument *argument, int rank)
{
    argument->rank = (size_t)rank;
    input->shape = PyMem_Calloc((size_t)rank + 1, sizeof(*input->shape));
    if (input->shape == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    argument->shape = input->shape;
    return 0;
}

static int copy_noncontiguous(py_input *input, enigma_argument *argument)
{
    input->copy = PyMem_Malloc(argument->size != 0 ? argument->size : 1);
    if (input->copy == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    argument->data = input->copy;
    return PyBuffer_ToContiguous(input->copy, &input->view, input->view.len, 'C');
}

static int from_buffer(py_input *input, PyObject *object, size_t index, enigma_argument *argument)
{
    if (PyObject_GetBuffer(object, &input->view, PyBUF_FULL_RO) < 0) {
        return -1;
    }
    input->has_view = true;
    const Py_buffer *view = &input->view;
    if (holds_pointers(view->format)) {
        PyErr_Format(PyExc_TypeError,
                     "input %zu: a %.200s with elements of format '%.100s' holds objects or pointers of "
                     "this process, which a device cannot read",
                     index, Py_TYPE(object)->tp_name, view->format);
        return -1;
    }
    argument->kind = view->ndim == 0 ? ENIGMA_ARGUMENT_SCALAR : ENIGMA_ARGUMENT_DATA;
    argument->data = view->buf;
    argument->size = (size_t)view->len;
    buffer_dtype(view, input->dtype, sizeof(input->dtype));
    if (copy_shape(input, argument, view->ndim) < 0) {
        return -1;
    }
    for (int i = 0; i < view->ndim; i++) {
        input->shape[i] = view->shape != NULL ? (uint64_t)view->shape[i] : (uint64_t)(view->len / view->itemsize);
    }
    return PyBuffer_IsContiguous(view, 'C') ? 0 : copy_noncontiguous(input, argument);
}

/* ---- DLPack ---- */

static void drop_managed(void *managed)
{
    dlpack_managed *self = managed;
    if (self->deleter != NULL) {
        self->deleter(self);
    }
}

static void drop_versioned(void *managed)
{
    dlpack_versioned *self = managed;
    if (self->deleter != NULL) {
        self->deleter(self);
    }
}

/* Takes the tensor out of its capsule, after which it is ours to free. NULL with an exception. */
static const dlpack_tensor *take_capsule(py_input *input, PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dlpack_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0) {
            return NULL;
        }
        input->managed = versioned;
        input->drop = drop_versioned;
        if (versioned->version.major != 1) { /* only version, context and deleter are fixed across major versions */
            PyErr_Format(PyExc_BufferError, "DLPack version %u is not supported", versioned->version.major);
            return NULL;
        }
        return &versioned->tensor;
    }
    dlpack_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed == NULL || PyCapsule_SetName(capsule, "used_dltensor") < 0) {
        return NULL;
    }
    input->managed = managed;
    input->drop = drop_managed;
    return &managed->tensor;
}

static bool on_host(int32_t device_type)
{
    return device_type == DLPACK_CPU || device_type == DLPACK_CUDA_HOST || device_type == DLPACK_ROCM_HOST;
}

static int check_device(PyObject *object, size_t index)
{
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int type = 0, id = 0;
    if (device == NULL) {
        return -1;
    }
    bool ok =
        PyTuple_Check(device) && PyArg_ParseTuple(device, "ii;__dlpack_device__() must return (type, id)", &type, &id);
    if (!ok && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "__dlpack_device__() must return (type, id)");
    }
    Py_DECREF(device);
    if (!ok) {
        return -1;
    }
    if (!on_host(type)) {
        PyErr_Format(PyExc_TypeError,
                     "input %zu: the %.200s is on a device (DLPack device type %d, number %d); copy it to the "
                     "CPU first",
                     index, Py_TYPE(object)->tp_name, type, id);
        return -1;
    }
    return 0;
}

/* A capsule, versioned where the producer knows that (needed for read-only arrays). */
static PyObject *call_dlpack(PyObject *object)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *none = PyTuple_New(0), *keywords = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    PyObject *capsule = NULL;
    if (method != NULL && none != NULL && keywords != NULL) {
        capsule = PyObject_Call(method, none, keywords);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* older than max_version */
            PyErr_Clear();
            capsule = PyObject_Call(method, none, NULL);
        }
    }
    Py_XDECREF(keywords);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

/* Copies a strided tensor to row-major order, innermost dimension last. */
static char *copy_strided(const dlpack_tensor *tensor, int dimension, const char *from, char *to, size_t itemsize)
{
    if (dimension == tensor->ndim) {
        memcpy(to, from, itemsize);
        return to + itemsize;
    }
    for (int64_t i = 0; i < tensor->shape[dimension]; i++) {
        to = copy_strided(tensor, dimension + 1, from + i * tensor->strides[dimension] * (int64_t)itemsize, to,
                          itemsize);
    }
    return to;
}

static bool is_compact(const dlpack_tensor *tensor)
{
    int64_t expected = 1;
    for (int i = tensor->ndim - 1; tensor->strides != NULL && i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != expected) {
            return false;
        }
        expected *= tensor->shape[i];
    }
    return true;
}

/* The tensor's size in bytes, from its shape; -1 with an exception. */
static int tensor_size(const dlpack_tensor *tensor, size_t itemsize, size_t *out)
{
    size_t size = itemsize;
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(size, (size_t)tensor->shape[i], &size)) {
            PyErr_SetString(PyExc_BufferError, "the DLPack tensor's shape is not valid");
            return -1;
        }
    }
    *out = size;
    return 0;
}

static int describe_tensor(py_input *input, const dlpack_tensor *tensor, size_t index, enigma_argument *argument)
{
    size_t bits = (size_t)tensor->dtype.bits * tensor->dtype.lanes;
    if (!on_host(tensor->device.type) || tensor->ndim < 0 || bits == 0 || bits % 8 != 0 ||
        tensor->dtype.code == DLPACK_OPAQUE) {
        PyErr_Format(PyExc_TypeError, "input %zu: a DLPack tensor must be in host memory, with elements of whole bytes",
                     index);
        return -1;
    }
    size_t itemsize = bits / 8;
    argument->kind = tensor->ndim == 0 ? ENIGMA_ARGUMENT_SCALAR : ENIGMA_ARGUMENT_DATA;
    dlpack_dtype(tensor, input->dtype, sizeof(input->dtype));
    if (tensor_size(tensor, itemsize, &argument->size) < 0 || copy_shape(input, argument, tensor->ndim) < 0) {
        return -1;
    }
    for (int i = 0; i < tensor->ndim; i++) {
        input->shape[i] = (uint64_t)tensor->shape[i];
    }
    const char *data = (const char *)tensor->data + tensor->byte_offset;
    argument->data = data;
    if (argument->size == 0 || is_compact(tensor)) {
        return 0;
    }
    input->copy = PyMem_Malloc(argument->size);
    if (input->copy == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    argument->data = input->copy;
    copy_strided(tensor, 0, data, input->copy, itemsize);
    return 0;
}

static int from_dlpack(py_input *input, PyObject *object, size_t index, enigma_argument *argument)
{
    if (check_device(object, index) < 0) {
        return -1;
    }
    PyObject *capsule = call_dlpack(object);
    if (capsule == NULL) {
        return -1;
    }
    const dlpack_tensor *tensor = take_capsule(input, capsule);
    Py_DECREF(capsule);
    return tensor == NULL ? -1 : describe_tensor(input, tensor, index, argument);
}

/* ---- Inputs ---- */

static int not_an_input(PyObject *object, size_t index)
{
    const char *advice = "";
    if (PyBool_Check(object) || PyLong_Check(object)) {
        advice = ": its size is not known to the kernel; pass numpy.int32(x), ctypes.c_int(x) or the like";
    } else if (PyFloat_Check(object) || PyComplex_Check(object)) {
        advice = ": its size is not known to the kernel; pass numpy.float32(x), ctypes.c_float(x) or the like";
    }
    PyErr_Format(PyExc_TypeError, "input %zu must have the buffer protocol or __dlpack__ on the CPU, not %.200s%s",
                 index, Py_TYPE(object)->tp_name, advice);
    return -1;
}

static int init_input(py_input *input, PyObject *object, size_t index, enigma_argument *argument)
{
    int result;
    if (!PyUnicode_Check(object) && PyObject_CheckBuffer(object)) {
        result = from_buffer(input, object, index, argument);
    } else if (!PyType_Check(object) && PyObject_HasAttrString(object, "__dlpack__")) {
        result = from_dlpack(input, object, index, argument);
    } else {
        result = not_an_input(object, index);
    }
    argument->dtype = input->dtype;
    return result;
}

static int init_inputs(py_arguments *out, PyObject *inputs)
{
    /* An array is a sequence of scalars: taking it for the list would bind its elements one by one. */
    if (!PyList_Check(inputs) && !PyTuple_Check(inputs)) {
        PyErr_Format(PyExc_TypeError, "inputs must be a list or a tuple, one item for each input, not %.200s",
                     Py_TYPE(inputs)->tp_name);
        return -1;
    }
    PyObject *items = PySequence_Tuple(inputs); /* getting a buffer can run code that changes the list */
    if (items == NULL) {
        return -1;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(items);
    int result = 0;
    out->inputs = PyMem_Calloc(count + 1, sizeof(*out->inputs));
    out->owners = PyMem_Calloc(count + 1, sizeof(*out->owners));
    if (out->inputs == NULL || out->owners == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    for (size_t i = 0; i < count && result == 0; i++) {
        out->input_count = i + 1;
        result = init_input(&out->owners[i], PyTuple_GET_ITEM(items, (Py_ssize_t)i), i, &out->inputs[i]);
    }
    Py_DECREF(items);
    return result;
}

/* ---- Output sizes ---- */

/* An int as it stands, bool refused: 0, or -1 with an exception. */
static int plain_int(PyObject *value, const char *what, PyObject **out)
{
    *out = NULL;
    if (PyBool_Check(value) || !PyIndex_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int, not %.200s", what, Py_TYPE(value)->tp_name);
        return -1;
    }
    *out = PyNumber_Index(value);
    return *out == NULL ? -1 : 0;
}

static int output_bytes(PyObject *value, size_t *out)
{
    PyObject *number;
    if (plain_int(value, "output_size", &number) < 0) {
        return -1;
    }
    Py_ssize_t size = PyLong_AsSsize_t(number);
    Py_DECREF(number);
    if (size < 0) {
        if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "output_size must be a number of bytes from 0 to %zd", PY_SSIZE_T_MAX);
        }
        return -1;
    }
    *out = (size_t)size;
    return 0;
}

static int listed_outputs(py_arguments *out, PyObject *sizes)
{
    PyObject *items = PySequence_Tuple(sizes);
    if (items == NULL) {
        return -1;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(items);
    int result = 0;
    out->outputs_listed = true;
    out->output_sizes = PyMem_Calloc(count + 1, sizeof(*out->output_sizes));
    if (out->output_sizes == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    for (; out->output_count < count && result == 0; out->output_count++) {
        size_t *size = &out->output_sizes[out->output_count];
        result = output_bytes(PyTuple_GET_ITEM(items, (Py_ssize_t)out->output_count), size);
        if (result == 0 && *size == 0) {
            PyErr_Format(PyExc_ValueError, "output %zu has size 0", out->output_count);
            result = -1;
        }
    }
    Py_DECREF(items);
    return result;
}

static int init_outputs(py_arguments *out, PyObject *output_size)
{
    if (output_size == Py_None) {
        return 0;
    }
    if (PyList_Check(output_size) || PyTuple_Check(output_size)) {
        return listed_outputs(out, output_size);
    }
    size_t size = 0;
    if (!PyIndex_Check(output_size)) {
        PyErr_Format(PyExc_TypeError, "output_size must be an int, a list of ints or None, not %.200s",
                     Py_TYPE(output_size)->tp_name);
        return -1;
    }
    if (output_bytes(output_size, &size) < 0) {
        return -1;
    }
    out->output_sizes = PyMem_Calloc(1, sizeof(*out->output_sizes));
    if (out->output_sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    out->output_sizes[0] = size;
    out->output_count = size != 0 ? 1 : 0;
    return 0;
}

int py_arguments_init(py_arguments *out, PyObject *inputs, PyObject *output_size)
{
    memset(out, 0, sizeof(*out));
    if (init_inputs(out, inputs) < 0 || init_outputs(out, output_size) < 0) {
        py_arguments_clear(out);
        return -1;
    }
    return 0;
}

static void clear_input(py_input *input)
{
    if (input->has_view) {
        PyBuffer_Release(&input->view);
    }
    if (input->managed != NULL) {
        input->drop(input->managed);
    }
    PyMem_Free(input->copy);
    PyMem_Free(input->shape);
}

void py_arguments_clear(py_arguments *arguments)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* releasing runs the producers' code */
    for (size_t i = 0; i < arguments->input_count; i++) {
        clear_input(&arguments->owners[i]);
    }
    PyErr_Restore(type, value, traceback);
    PyMem_Free(arguments->inputs);
    PyMem_Free(arguments->owners);
    PyMem_Free(arguments->output_sizes);
    memset(arguments, 0, sizeof(*arguments));
}

/* ---- Launch sizes ---- */

static int size_item(PyObject *value, const char *what, uint64_t *out)
{
    PyObject *number;
    if (plain_int(value, what, &number) < 0) {
        return -1;
    }
    int overflow = 0;
    long long small = PyLong_AsLongLongAndOverflow(number, &overflow);
    int result = 0;
    if (overflow > 0) {
        *out = PyLong_AsUnsignedLongLong(number); /* up to 2**64 - 1; more raises OverflowError */
        result = PyErr_Occurred() ? -1 : 0;
        if (result < 0) {
            PyErr_Format(PyExc_ValueError, "%s is too large", what);
        }
    } else if (overflow < 0 || small <= 0) {
        PyErr_Format(PyExc_ValueError, "%s must be three ints greater than 0, not %S", what, number);
        result = -1;
    } else {
        *out = (uint64_t)small;
    }
    Py_DECREF(number);
    return result;
}

int py_size3(PyObject *value, const char *what, enigma_size3 *out)
{
    if (!PyTuple_Check(value) && !PyList_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of three ints (x, y, z), not %.200s", what,
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    if (PySequence_Fast_GET_SIZE(value) != 3) {
        PyErr_Format(PyExc_ValueError, "%s must be a tuple of three ints (x, y, z), not of %zd", what,
                     PySequence_Fast_GET_SIZE(value));
        return -1;
    }
    uint64_t sizes[3];
    for (Py_ssize_t i = 0; i < 3; i++) {
        if (i >= PySequence_Fast_GET_SIZE(value) || /* __index__ may have shortened the list */
            size_item(PySequence_Fast_GET_ITEM(value, i), what, &sizes[i]) < 0) {
            return -1;
        }
    }
    *out = (enigma_size3){sizes[0], sizes[1], sizes[2]};
    return 0;
}

int py_index32(PyObject *value, const char *what, uint32_t *out)
{
    PyObject *number;
    if (plain_int(value, what, &number) < 0) {
        return -1;
    }
    unsigned long index = PyLong_AsUnsignedLong(number);
    bool failed = index == (unsigned long)-1 && PyErr_Occurred();
    if (failed || index >= UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s must be from 0 to %u, not %S", what, UINT32_MAX - 1, number);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    *out = (uint32_t)index;
    return 0;
}
