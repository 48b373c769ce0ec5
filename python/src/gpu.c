/* Runtime, its subclasses and Kernel. A runtime may be used from any thread; its lock (lock.c) keeps the library's rule of one
 * thread at a time. */
#include "gpu.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <unistd.h>

/* ---- Scripted failures ---- */

static PyObject *take_failure(Runtime *self, uint32_t device, uint32_t queue)
{
    for (py_failure **at = &self->failures; *at != NULL; at = &(*at)->next) {
        py_failure *failure = *at;
        if (failure->device == device && failure->queue == queue) {
            PyObject *exception = failure->exception;
            *at = failure->next;
            PyMem_Free(failure);
            return exception;
        }
    }
    return NULL;
}

PyObject *py_runtime_raise(Runtime *self, enigma_status status, uint32_t device, uint32_t queue)
{
    PyObject *exception = status == ENIGMA_E_DEVICE && !PyErr_Occurred() ? take_failure(self, device, queue) : NULL;
    if (exception == NULL) {
        return py_raise(status);
    }
    py_error_restore(exception);
    return NULL;
}

static void drop_failures(Runtime *self)
{
    while (self->failures != NULL) {
        py_failure *failure = self->failures;
        self->failures = failure->next;
        Py_DECREF(failure->exception);
        PyMem_Free(failure);
    }
}

/* ---- Making a runtime ---- */

py_state *py_state_of_subtype(PyTypeObject *type)
{
    for (; type != NULL; type = type->tp_base) {
        if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && ((PyHeapTypeObject *)type)->ht_module != NULL) {
            return py_state_of_type(type);
        }
    }
    Py_UNREACHABLE();
}

/* The facts of the device as a dict. */
static PyObject *read_facts(const enigma_runtime *runtime)
{
    PyObject *dict = PyDict_New();
    enigma_field fact;
    for (size_t i = 0; dict != NULL && enigma_runtime_fact(runtime, i, &fact); i++) {
        PyObject *key = py_str(fact.key), *value = key == NULL ? NULL : py_object(&fact.value);
        if (value == NULL || PyDict_SetItem(dict, key, value) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
        Py_XDECREF(key);
    }
    return dict;
}

PyObject *py_runtime_new(py_state *state, PyTypeObject *type, enigma_runtime *runtime)
{
    Runtime *self = (Runtime *)type->tp_alloc(type, 0);
    if (self == NULL) {
        enigma_runtime_free(runtime);
        return NULL;
    }
    self->runtime = runtime;
    self->state = state;
    self->process = (long)getpid();
    self->lock = PyThread_allocate_lock();
    self->device = read_facts(runtime);
    if (self->lock == NULL && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    if (self->lock == NULL || self->device == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* The backends that have a class of their own, in the order of their indices below. */
static const char *const backend_names[] = {"opencl", "cuda", "metal"};
#define BACKEND_COUNT (sizeof(backend_names) / sizeof(backend_names[0]))

static PyTypeObject *class_of(py_state *state, size_t backend)
{
    PyObject *classes[BACKEND_COUNT] = {state->opencl_runtime, state->cuda_runtime, state->metal_runtime};
    return (PyTypeObject *)classes[backend];
}

/* The class for what was opened: Runtime() itself gives the backend's. */
static PyTypeObject *class_for(py_state *state, PyTypeObject *type, const enigma_runtime *runtime)
{
    enigma_field fact;
    for (size_t i = 0; type == state->runtime_type && enigma_runtime_fact(runtime, i, &fact); i++) {
        if (fact.value.type != ENIGMA_TEXT || strcmp(fact.key.data, "backend") != 0) {
            continue;
        }
        for (size_t k = 0; k < BACKEND_COUNT; k++) {
            if (strcmp(fact.value.as.text.data, backend_names[k]) == 0) {
                return class_of(state, k);
            }
        }
    }
    return type;
}

static PyObject *open_runtime(PyTypeObject *type, const char *backend, PyObject *device)
{
    py_state *state = py_state_of_subtype(type);
    uint32_t index = ENIGMA_DEVICE_DEFAULT;
    if (device != Py_None && py_index32(device, "device", &index) < 0) {
        return NULL;
    }
    enigma_runtime *runtime = NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_runtime_open(backend, index, &runtime);
    py_wait_end(&wait);
    return py_check(status) < 0 ? NULL : py_runtime_new(state, class_for(state, type, runtime), runtime);
}

static PyObject *runtime_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"backend", "device", NULL};
    const char *backend = NULL;
    PyObject *device = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zO:Runtime", (char **)keywords, &backend, &device)) {
        return NULL;
    }
    return open_runtime(type, backend, device);
}

static PyObject *backend_new(PyTypeObject *type, PyObject *args, PyObject *kwargs, size_t backend)
{
    static const char *const keywords[] = {"device", NULL};
    PyObject *device = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", (char **)keywords, &device)) {
        return NULL;
    }
    return open_runtime(type, backend_names[backend], device);
}

static PyObject *opencl_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return backend_new(type, args, kwargs, 0);
}

static PyObject *cuda_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return backend_new(type, args, kwargs, 1);
}

static PyObject *metal_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return backend_new(type, args, kwargs, 2);
}

/* Frees the library's object with the lock held. */
static void close_entered(Runtime *self)
{
    enigma_runtime *runtime = self->runtime;
    self->runtime = NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_runtime_free(runtime);
    py_wait_end(&wait);
}

static int runtime_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    for (py_failure *failure = ((Runtime *)op)->failures; failure != NULL; failure = failure->next) {
        Py_VISIT(failure->exception);
    }
    return 0;
}

static int runtime_clear(PyObject *op)
{
    drop_failures((Runtime *)op);
    return 0;
}

static void runtime_dealloc(PyObject *op)
{
    Runtime *self = (Runtime *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    drop_failures(self);
    if (self->runtime != NULL) { /* nobody else has it, so nobody holds the lock */
        PyObject *pending = py_error_take();
        close_entered(self);
        py_runtime_settle(self, pending);
    }
    if (self->lock != NULL && self->process == (long)getpid()) {
        PyThread_free_lock(self->lock);
    }
    Py_XDECREF(self->device);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- compile ---- */

static bool names_a_file(PyObject *source)
{
    static const char *const suffixes[] = {".cl", ".cu", ".ptx", ".cubin", ".metal", ".metallib"};
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(source, &size);
    if (text == NULL) {
        PyErr_Clear(); /* lone surrogates: perhaps a path, never source */
        return true;
    }
    if (strchr(text, '\n') != NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        size_t length = strlen(suffixes[i]);
        if ((size_t)size > length && strcmp(text + size - length, suffixes[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Fills source or path of desc from text, bytes or a path; *owner holds what they point into. */
static int take_source(PyObject *source, enigma_kernel_desc *desc, PyObject **owner)
{
    if (PyBytes_Check(source)) {
        *owner = Py_NewRef(source);
    } else if (PyUnicode_Check(source) && !names_a_file(source)) {
        *owner = PyUnicode_AsUTF8String(source);
    } else if (PyUnicode_Check(source) || PyObject_HasAttrString(source, "__fspath__")) {
        if (!PyUnicode_FSConverter(source, owner)) {
            return -1;
        }
        desc->path = PyBytes_AS_STRING(*owner);
        return 0;
    } else {
        PyErr_Format(PyExc_TypeError, "source must be a str, bytes or a path, not %.200s", Py_TYPE(source)->tp_name);
        return -1;
    }
    if (*owner == NULL) {
        return -1;
    }
    desc->source = PyBytes_AS_STRING(*owner);
    desc->source_size = (size_t)PyBytes_GET_SIZE(*owner);
    return 0;
}

PyObject *py_compile(Runtime *runtime, const enigma_kernel_desc *desc, PyObject *name)
{
    enigma_kernel *kernel = NULL;
    if (py_runtime_enter_open(runtime) < 0) {
        return NULL;
    }
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_kernel_compile(runtime->runtime, desc, &kernel);
    py_wait_end(&wait);
    Kernel *self = NULL;
    if (py_check(status) == 0) {
        self = PyObject_GC_New(Kernel, runtime->state->kernel_type);
    }
    if (self != NULL) {
        self->runtime = (Runtime *)Py_NewRef((PyObject *)runtime);
        self->kernel = kernel;
        self->name = Py_NewRef(name);
        self->weak_references = NULL;
        PyObject_GC_Track((PyObject *)self);
    } else {
        enigma_kernel_free(kernel);
    }
    py_runtime_leave(runtime);
    return (PyObject *)self;
}

static PyObject *runtime_compile(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"source", "name", "options", NULL};
    PyObject *source, *name, *owner = NULL;
    enigma_kernel_desc desc = {.struct_size = sizeof(desc)};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OU|$z:compile", (char **)keywords, &source, &name, &desc.options)) {
        return NULL;
    }
    desc.name = PyUnicode_AsUTF8(name);
    if (desc.name == NULL || take_source(source, &desc, &owner) < 0) {
        return NULL;
    }
    PyObject *kernel = NULL;
    if ((size_t)PyUnicode_GetLength(name) == 0 || strlen(desc.name) < (size_t)PyUnicode_GetLength(name)) {
        PyErr_SetString(PyExc_ValueError, "a kernel's name is not empty and has no NUL");
    } else if (desc.source != NULL && desc.source_size == 0) {
        PyErr_SetString(PyExc_ValueError, "the source is empty");
    } else {
        kernel = py_compile((Runtime *)op, &desc, name);
    }
    Py_DECREF(owner);
    return kernel;
}

/* ---- prepare, execute, the rest ---- */

static int check_kernel(Runtime *self, Kernel *kernel)
{
    if (kernel->runtime != self) {
        PyErr_SetString(PyExc_ValueError, "the kernel was compiled by another runtime");
        return -1;
    }
    return 0;
}

static PyObject *runtime_prepare(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"kernel", "inputs", "output_size", NULL};
    Runtime *self = (Runtime *)op;
    Kernel *kernel;
    PyObject *inputs, *output_size = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|O:prepare", (char **)keywords, self->state->kernel_type,
                                     &kernel, &inputs, &output_size) ||
        check_kernel(self, kernel) < 0) {
        return NULL;
    }
    return py_prepare(self, kernel, inputs, output_size);
}

/* A bytes object for each output, in a tuple, and where the library writes them. */
static PyObject *make_outputs(const py_arguments *arguments, void **addresses)
{
    PyObject *outputs = PyTuple_New((Py_ssize_t)arguments->output_count);
    for (size_t i = 0; outputs != NULL && i < arguments->output_count; i++) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)arguments->output_sizes[i]);
        if (bytes == NULL) {
            Py_CLEAR(outputs);
            break;
        }
        addresses[i] = PyBytes_AS_STRING(bytes);
        PyTuple_SET_ITEM(outputs, (Py_ssize_t)i, bytes);
    }
    return outputs;
}

/* What execute() returns of its outputs: bytes, a list or None. Takes the tuple over. */
static PyObject *shape_outputs(PyObject *outputs, bool listed)
{
    PyObject *result;
    if (PyTuple_GET_SIZE(outputs) == 0) {
        result = Py_NewRef(Py_None);
    } else {
        result = listed ? PySequence_List(outputs) : Py_NewRef(PyTuple_GET_ITEM(outputs, 0));
    }
    Py_DECREF(outputs);
    return result;
}

static PyObject *execute_entered(Runtime *self, Kernel *kernel, const py_arguments *arguments,
                                 enigma_dispatch_options *options)
{
    void **addresses = PyMem_New(void *, arguments->output_count + 1);
    PyObject *outputs = addresses == NULL ? PyErr_NoMemory() : make_outputs(arguments, addresses);
    if (outputs == NULL) {
        PyMem_Free(addresses);
        return NULL;
    }
    enigma_context context;
    Profiler *profiler = py_context_hold(self->state, &context);
    options->context = profiler != NULL ? &context : NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_execute(kernel->kernel, arguments->inputs, arguments->input_count, addresses,
                                          arguments->output_sizes, arguments->output_count, options);
    py_wait_end(&wait);
    Py_XDECREF((PyObject *)profiler);
    PyMem_Free(addresses);
    if (status != ENIGMA_OK || PyErr_Occurred()) {
        Py_DECREF(outputs);
        return py_runtime_raise(self, status, options->device, options->queue);
    }
    return shape_outputs(outputs, arguments->outputs_listed);
}

static PyObject *runtime_execute(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"kernel", "inputs", "output_size", "grid", "threads", NULL};
    Runtime *self = (Runtime *)op;
    Kernel *kernel;
    PyObject *inputs, *output_size, *grid = NULL, *threads = NULL, *result = NULL;
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    py_arguments arguments;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|$OO:execute", (char **)keywords, self->state->kernel_type,
                                     &kernel, &inputs, &output_size, &grid, &threads)) {
        return NULL;
    }
    if (grid == NULL || threads == NULL) {
        return PyErr_Format(PyExc_TypeError, "execute() needs the keyword argument '%s'",
                            grid == NULL ? "grid" : "threads");
    }
    if (check_kernel(self, kernel) < 0 || py_size3(grid, "grid", &options.grid) < 0 ||
        py_size3(threads, "threads", &options.threads) < 0 || py_arguments_init(&arguments, inputs, output_size) < 0) {
        return NULL;
    }
    if (py_runtime_enter_open(self) == 0) {
        result = execute_entered(self, kernel, &arguments, &options);
        py_runtime_leave(self);
    }
    py_arguments_clear(&arguments);
    return result;
}

static PyObject *runtime_synchronize(PyObject *op, PyObject *unused)
{
    (void)unused;
    Runtime *self = (Runtime *)op;
    if (py_runtime_enter_open(self) < 0) {
        return NULL;
    }
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_runtime_synchronize(self->runtime);
    py_wait_end(&wait);
    int failed = py_check(status) < 0 || PyErr_Occurred();
    py_runtime_leave(self);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *runtime_release(PyObject *op, PyObject *unused)
{
    (void)unused;
    Runtime *self = (Runtime *)op;
    if (self->runtime == NULL) {
        Py_RETURN_NONE;
    }
    if (py_runtime_enter(self) < 0) {
        return NULL;
    }
    close_entered(self);
    int failed = PyErr_Occurred() != NULL;
    py_runtime_leave(self);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *runtime_enter_with(PyObject *op, PyObject *unused)
{
    (void)unused;
    if (((Runtime *)op)->runtime == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the runtime was released");
        return NULL;
    }
    return Py_NewRef(op);
}

static PyObject *runtime_exit_with(PyObject *op, PyObject *args)
{
    (void)args;
    return runtime_release(op, NULL);
}

static PyObject *runtime_device(PyObject *op, void *closure)
{
    (void)closure;
    return PyDict_Copy(((Runtime *)op)->device);
}

static PyObject *runtime_repr(PyObject *op)
{
    Runtime *self = (Runtime *)op;
    PyObject *name = PyDict_GetItemString(self->device, "name"); /* borrowed */
    const char *type = strrchr(Py_TYPE(op)->tp_name, '.');
    return PyUnicode_FromFormat("<%s on %R%s>", type != NULL ? type + 1 : Py_TYPE(op)->tp_name,
                                name != NULL ? name : Py_None, self->runtime == NULL ? ", released" : "");
}

/* ---- The type Runtime and its subclasses ---- */

#define VOID(function) ((PyCFunction)(void (*)(void))(function))

PyDoc_STRVAR(
    compile_doc,
    "compile($self, /, source, name, *, options=None)\n--\n\n"
    "Compiles the kernel function `name` and returns a Kernel.\n\n"
    "source is text (str, or bytes as they are), or a file: a path object, or a str without a newline that ends in\n"
    ".cl .cu .ptx .cubin .metal .metallib. options goes to the backend's compiler.\n\n"
    "RuntimeError with the compiler's log; KeyError, naming the kernels there are, when there is none of that name;\n"
    "OSError (FileNotFoundError, ...) with the path.");
PyDoc_STRVAR(
    prepare_doc,
    "prepare($self, /, kernel, inputs, output_size=None)\n--\n\n"
    "Binds arguments, inputs then outputs, and returns a PreparedKernel.\n\n"
    "inputs is a list; each item has the buffer protocol or __dlpack__ on the CPU and is copied now. Arrays become\n"
    "device buffers, 0-d values (numpy.float32(2), ctypes.c_int(3)) are passed by value. output_size is the bytes of\n"
    "one output, a list of them, or None; outputs start zeroed.\n\n"
    "ValueError when their number, kind or size is not what the kernel takes; TypeError for what is no array.");
PyDoc_STRVAR(
    execute_doc,
    "execute($self, /, kernel, inputs, output_size, *, grid, threads)\n--\n\n"
    "Prepares, dispatches, reads the outputs and frees in one call, recorded as execute_total with its steps below.\n\n"
    "inputs and output_size as in prepare(); grid=(x, y, z) counts threads in all, threads=(x, y, z) those of one\n"
    "group. Returns bytes for an int output_size, a list of bytes for a list, None for none.\n\n"
    "ValueError for sizes that the device or the kernel cannot run, before anything runs; RuntimeError when it fails.");
PyDoc_STRVAR(synchronize_doc,
             "synchronize($self, /)\n--\n\nWaits until everything dispatched on the runtime is complete.");
PyDoc_STRVAR(release_doc,
             "release($self, /)\n--\n\n"
             "Frees the runtime; what was prepared on it stays usable. Again: does nothing. Other calls raise\n"
             "RuntimeError afterwards.");

static PyMethodDef runtime_methods[] = {{"compile", VOID(runtime_compile), METH_VARARGS | METH_KEYWORDS, compile_doc},
                                        {"prepare", VOID(runtime_prepare), METH_VARARGS | METH_KEYWORDS, prepare_doc},
                                        {"execute", VOID(runtime_execute), METH_VARARGS | METH_KEYWORDS, execute_doc},
                                        {"synchronize", runtime_synchronize, METH_NOARGS, synchronize_doc},
                                        {"release", runtime_release, METH_NOARGS, release_doc},
                                        {"__enter__", runtime_enter_with, METH_NOARGS, NULL},
                                        {"__exit__", runtime_exit_with, METH_VARARGS, NULL},
                                        {NULL, NULL, 0, NULL}};

static PyGetSetDef runtime_getset[] = {
    {"device", runtime_device, NULL,
     "dict: facts about the device: name, backend, driver, version, compute units, clock, memory, caches, limits.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(
    runtime_doc,
    "Runtime(backend=None, device=None)\n--\n\n"
    "A device and its queues. backend is \"opencl\", \"cuda\" or \"metal\"; None means the setting ENIGMA_BACKEND, "
    "else\n"
    "the best one that has a device. device is an index; None means the setting ENIGMA_DEVICE, else 0.\n\n"
    "May be used from any thread; calls of several threads take turns. A context manager that releases it.\n\n"
    "ValueError for an unknown backend or device; RuntimeError that says what was looked for and what to install\n"
    "when there is no driver or device.");

static PyMemberDef runtime_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Runtime, weak_references), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

static PyType_Slot runtime_slots[] = {{Py_tp_doc, (void *)runtime_doc}, {Py_tp_new, runtime_new},
                                      {Py_tp_dealloc, runtime_dealloc}, {Py_tp_traverse, runtime_traverse},
                                      {Py_tp_clear, runtime_clear},     {Py_tp_methods, runtime_methods},
                                      {Py_tp_getset, runtime_getset},   {Py_tp_members, runtime_members},
                                      {Py_tp_repr, runtime_repr},       {0, NULL}};

#define RUNTIME_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE)
PyType_Spec py_runtime_spec = {"enigma.Runtime", sizeof(Runtime), 0, RUNTIME_FLAGS | Py_TPFLAGS_HAVE_GC, runtime_slots};

PyDoc_STRVAR(opencl_doc, "OpenCLRuntime(device=None)\n--\n\nRuntime(\"opencl\", device).");
PyDoc_STRVAR(cuda_doc, "CUDARuntime(device=None)\n--\n\nRuntime(\"cuda\", device).");
PyDoc_STRVAR(metal_doc, "MetalRuntime(device=None)\n--\n\nRuntime(\"metal\", device).");

static PyType_Slot opencl_slots[] = {{Py_tp_doc, (void *)opencl_doc}, {Py_tp_new, opencl_new}, {0, NULL}};
static PyType_Slot cuda_slots[] = {{Py_tp_doc, (void *)cuda_doc}, {Py_tp_new, cuda_new}, {0, NULL}};
static PyType_Slot metal_slots[] = {{Py_tp_doc, (void *)metal_doc}, {Py_tp_new, metal_new}, {0, NULL}};

static PyType_Spec opencl_spec = {"enigma.OpenCLRuntime", sizeof(Runtime), 0, RUNTIME_FLAGS, opencl_slots};
static PyType_Spec cuda_spec = {"enigma.CUDARuntime", sizeof(Runtime), 0, RUNTIME_FLAGS, cuda_slots};
static PyType_Spec metal_spec = {"enigma.MetalRuntime", sizeof(Runtime), 0, RUNTIME_FLAGS, metal_slots};

static int add_subclass(PyObject *module, PyTypeObject *base, PyType_Spec *spec, PyObject **out)
{
    PyObject *bases = PyTuple_Pack(1, base);
    *out = bases == NULL ? NULL : PyType_FromModuleAndSpec(module, spec, bases);
    Py_XDECREF(bases);
    return *out == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)*out);
}

static int gpu_exec(PyObject *module, py_state *state)
{
    if (add_subclass(module, state->runtime_type, &opencl_spec, &state->opencl_runtime) < 0 ||
        add_subclass(module, state->runtime_type, &cuda_spec, &state->cuda_runtime) < 0) {
        return -1;
    }
    return add_subclass(module, state->runtime_type, &metal_spec, &state->metal_runtime);
}

const py_part py_gpu_part = {NULL, gpu_exec, NULL};

/* ---- The type Kernel ---- */

static int kernel_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT((PyObject *)((Kernel *)op)->runtime);
    return 0;
}

static void kernel_dealloc(PyObject *op)
{
    Kernel *self = (Kernel *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    py_runtime_discard(self->runtime, NULL, self->kernel);
    Py_DECREF((PyObject *)self->runtime);
    Py_DECREF(self->name);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *kernel_get_name(PyObject *op, void *closure)
{
    (void)closure;
    return Py_NewRef(((Kernel *)op)->name);
}

static PyObject *kernel_repr(PyObject *op) { return PyUnicode_FromFormat("<Kernel %R>", ((Kernel *)op)->name); }

static PyGetSetDef kernel_getset[] = {{"name", kernel_get_name, NULL, "str: the kernel function.", NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(kernel_doc, "A compiled kernel; what Runtime.compile() returns. Freed when dropped.");

static PyMemberDef kernel_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Kernel, weak_references), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

static PyType_Slot kernel_slots[] = {{Py_tp_doc, (void *)kernel_doc},
                                     {Py_tp_dealloc, kernel_dealloc},
                                     {Py_tp_traverse, kernel_traverse},
                                     {Py_tp_getset, kernel_getset},
                                     {Py_tp_members, kernel_members},
                                     {Py_tp_repr, kernel_repr},
                                     {0, NULL}};

PyType_Spec py_kernel_spec = {"enigma.Kernel", sizeof(Kernel), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
                                  Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              kernel_slots};
