/* benchmark_kernel, benchmark, profile_kernel and KernelBenchmark. The measuring is the library's; here arguments are checked before the
 * first dispatch. Any thread, with the GIL. */
#include "arguments.h"
#include "dataclass.h"
#include "gpu.h"
#include "result.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Immutable; not collected. */
typedef struct Benchmark {
    PyObject_HEAD
    enigma_benchmark *benchmark;
} Benchmark;

/* ---- KernelBenchmark: reading ---- */

static enigma_benchmark_info read_info(PyObject *op)
{
    enigma_benchmark_info info = {.struct_size = sizeof(info)};
    enigma_benchmark_get(((Benchmark *)op)->benchmark, &info);
    return info;
}

static PyObject *get_kernel_name(PyObject *op, void *closure)
{
    (void)closure;
    return py_str(read_info(op).kernel_name);
}

static PyObject *get_calls(PyObject *op, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(read_info(op).calls);
}

static PyObject *get_gpu_times_us(PyObject *op, void *closure)
{
    (void)closure;
    enigma_benchmark_info info = read_info(op);
    PyObject *times = PyTuple_New((Py_ssize_t)info.calls);
    for (size_t i = 0; times != NULL && i < info.calls; i++) {
        PyObject *time = PyFloat_FromDouble(info.gpu_times_us[i]);
        if (time == NULL) {
            Py_CLEAR(times);
            break;
        }
        PyTuple_SET_ITEM(times, (Py_ssize_t)i, time);
    }
    return times;
}

/* A double of the info; closure is its offset. */
static PyObject *get_number(PyObject *op, void *closure)
{
    enigma_benchmark_info info = read_info(op);
    return PyFloat_FromDouble(*(const double *)(const void *)((const char *)&info + (size_t)closure));
}

/* The same where a negative one means "not given". */
static PyObject *get_given(PyObject *op, void *closure)
{
    enigma_benchmark_info info = read_info(op);
    double value = *(const double *)(const void *)((const char *)&info + (size_t)closure);
    return value < 0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(value);
}

static PyObject *benchmark_summary(PyObject *op, PyObject *unused)
{
    (void)unused;
    py_text_sink sink = {NULL, 0, 0, false};
    enigma_status status = enigma_benchmark_write_summary(((Benchmark *)op)->benchmark, py_text_sink_write, &sink);
    return py_text_sink_finish(&sink, status);
}

/* ---- KernelBenchmark: making, comparing ---- */

static const py_dataclass_field benchmark_fields[] = {{"kernel_name", "str", NULL},
                                                      {"gpu_times_us", "tuple[float, ...]", NULL},
                                                      {"flops", "float | None", "None"},
                                                      {"bytes_moved", "float | None", "None"},
                                                      {NULL, NULL, NULL}};

static PyObject *benchmark_wrap(PyTypeObject *type, enigma_benchmark *benchmark)
{
    Benchmark *self = (Benchmark *)type->tp_alloc(type, 0);
    if (self == NULL) {
        enigma_benchmark_free(benchmark);
        return NULL;
    }
    self->benchmark = benchmark;
    return (PyObject *)self;
}

/* A work count per dispatch: None gives -1, which means "not given" to the library. */
static int take_work(PyObject *value, const char *what, double *out)
{
    *out = -1.0;
    if (value == Py_None) {
        return 0;
    }
    if (py_number(value, what, NULL, out) < 0) {
        return -1;
    }
    if (!isfinite(*out) || *out < 0) {
        PyErr_Format(PyExc_ValueError, "%s must be a finite number of at least 0, or None, not %R", what, value);
        return -1;
    }
    return 0;
}

/* The numbers of a sequence, to be freed with PyMem_Free. */
static double *take_times(PyObject *sequence, size_t *count)
{
    PyObject *items = PySequence_Tuple(sequence);
    if (items == NULL) {
        return NULL;
    }
    *count = (size_t)PyTuple_GET_SIZE(items);
    double *times = PyMem_New(double, *count + 1);
    if (times == NULL) {
        PyErr_NoMemory();
    }
    for (size_t i = 0; times != NULL && i < *count; i++) {
        if (py_number(PyTuple_GET_ITEM(items, (Py_ssize_t)i), "gpu_times_us", NULL, &times[i]) < 0) {
            PyMem_Free(times);
            times = NULL;
        }
    }
    Py_DECREF(items);
    return times;
}

static PyObject *benchmark_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"kernel_name", "gpu_times_us", "flops", "bytes_moved", NULL};
    PyObject *name, *sequence, *flops = Py_None, *bytes_moved = Py_None, *owner = NULL;
    double flops_value, bytes_value;
    enigma_text text;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:KernelBenchmark", (char **)keywords, &name, &sequence, &flops,
                                     &bytes_moved) ||
        take_work(flops, "flops", &flops_value) < 0 || take_work(bytes_moved, "bytes_moved", &bytes_value) < 0) {
        return NULL;
    }
    size_t count = 0;
    double *times = take_times(sequence, &count);
    if (times == NULL || py_text(name, &text, &owner) < 0) {
        PyMem_Free(times);
        return NULL;
    }
    enigma_benchmark *benchmark = NULL;
    enigma_status status = enigma_benchmark_from_times(text, times, count, flops_value, bytes_value, &benchmark);
    Py_XDECREF(owner);
    PyMem_Free(times);
    return py_check(status) < 0 ? NULL : benchmark_wrap(type, benchmark);
}

static void benchmark_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    enigma_benchmark_free(((Benchmark *)op)->benchmark);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *benchmark_values(PyObject *op)
{
    return Py_BuildValue("(NNNN)", get_kernel_name(op, NULL), get_gpu_times_us(op, NULL),
                         get_given(op, (void *)offsetof(enigma_benchmark_info, flops)),
                         get_given(op, (void *)offsetof(enigma_benchmark_info, bytes_moved)));
}

static PyObject *benchmark_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *left = benchmark_values(a), *right = left == NULL ? NULL : benchmark_values(b);
    PyObject *result = right == NULL ? NULL : PyObject_RichCompare(left, right, op);
    Py_XDECREF(right);
    Py_XDECREF(left);
    return result;
}

static Py_hash_t benchmark_hash(PyObject *op)
{
    PyObject *values = benchmark_values(op);
    Py_hash_t hash = values == NULL ? -1 : PyObject_Hash(values);
    Py_XDECREF(values);
    return hash;
}

static PyObject *benchmark_repr(PyObject *op)
{
    PyObject *names = PyObject_GetAttrString((PyObject *)Py_TYPE(op), "__match_args__");
    PyObject *values = names == NULL ? NULL : benchmark_values(op);
    PyObject *repr = values == NULL ? NULL : py_dataclass_repr("KernelBenchmark", names, values);
    Py_XDECREF(values);
    Py_XDECREF(names);
    return repr;
}

static PyObject *benchmark_reduce(PyObject *op, PyObject *unused)
{
    (void)unused;
    PyObject *values = benchmark_values(op);
    return values == NULL ? NULL : Py_BuildValue("(ON)", Py_TYPE(op), values);
}

static PyObject *benchmark_copy(PyObject *op, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(op);
}

static PyObject *benchmark_replace(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return py_dataclass_replace(op, args, kwargs, benchmark_fields);
}

#define VOID(function) ((PyCFunction)(void (*)(void))(function))

PyDoc_STRVAR(summary_doc, "summary($self, /)\n--\n\n"
                          "One line: min, p50, mean, p90, max in us and, where they are known, GFLOP/s and GB/s.");

static PyMethodDef benchmark_methods[] = {{"summary", benchmark_summary, METH_NOARGS, summary_doc},
                                          {"__reduce__", benchmark_reduce, METH_NOARGS, NULL},
                                          {"__copy__", benchmark_copy, METH_NOARGS, NULL},
                                          {"__deepcopy__", benchmark_copy, METH_O, NULL},
                                          {"__replace__", VOID(benchmark_replace), METH_VARARGS | METH_KEYWORDS, NULL},
                                          {NULL, NULL, 0, NULL}};

#define NUMBER(get, name, doc)                                                                                         \
    {                                                                                                                  \
#name, get, NULL, doc, (void *)offsetof(enigma_benchmark_info, name)                                           \
    }
static PyGetSetDef benchmark_getset[] = {
    {"kernel_name", get_kernel_name, NULL, "str: the kernel that was timed.", NULL},
    {"gpu_times_us", get_gpu_times_us, NULL, "tuple[float, ...]: the device time of each call in us, in run order.",
     NULL},
    NUMBER(get_given, flops, "float | None: FLOPs per call, as given."),
    NUMBER(get_given, bytes_moved, "float | None: bytes per call, as given."),
    {"calls", get_calls, NULL, "int: the number of timed runs.", NULL},
    NUMBER(get_number, min_us, "float: the best time, in us."),
    NUMBER(get_number, median_us, "float: the median (p50), in us; for comparisons."),
    NUMBER(get_number, mean_us, "float: the mean, in us."),
    NUMBER(get_number, p90_us, "float: the 90th percentile, in us, interpolated linearly."),
    NUMBER(get_number, max_us, "float: the worst time, in us."),
    NUMBER(get_number, gflops_per_s, "float: flops over the median, in 10^9 a second; 0.0 when not known."),
    NUMBER(get_number, gbytes_per_s, "float: bytes_moved over the median, in 10^9 a second; 0.0 when not known."),
    {NULL, NULL, NULL, NULL, NULL}};
#undef NUMBER

PyDoc_STRVAR(benchmark_doc, "KernelBenchmark(kernel_name, gpu_times_us, flops=None, bytes_moved=None)\n--\n\n"
                            "What benchmark_kernel() measured; a frozen dataclass. Times are device times in us.");

static PyType_Slot benchmark_slots[] = {{Py_tp_doc, (void *)benchmark_doc},
                                        {Py_tp_new, benchmark_new},
                                        {Py_tp_dealloc, benchmark_dealloc},
                                        {Py_tp_methods, benchmark_methods},
                                        {Py_tp_getset, benchmark_getset},
                                        {Py_tp_setattro, py_frozen_setattr},
                                        {Py_tp_richcompare, benchmark_richcompare},
                                        {Py_tp_hash, benchmark_hash},
                                        {Py_tp_repr, benchmark_repr},
                                        {0, NULL}};

PyType_Spec py_benchmark_spec = {"enigma.KernelBenchmark", sizeof(Benchmark), 0, Py_TPFLAGS_DEFAULT, benchmark_slots};

/* ---- The functions ---- */

/* A number of runs: an int of at least minimum. */
static int take_runs(PyObject *value, const char *what, long minimum, uint64_t *out)
{
    if (value == NULL) {
        return 0; /* the default is there already */
    }
    if (PyBool_Check(value) || !PyIndex_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int, not %.200s", what, Py_TYPE(value)->tp_name);
        return -1;
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        return -1;
    }
    int overflow = 0, result = 0;
    long long runs = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0 || runs < minimum) {
        PyErr_Format(PyExc_ValueError, "%s must be at least %ld%s, not %R", what, minimum,
                     overflow > 0 ? " and fit 63 bits" : "", number);
        result = -1;
    }
    Py_DECREF(number);
    *out = (uint64_t)runs;
    return result;
}

/* What both functions take. */
typedef struct run_arguments {
    PyObject *prepared, *grid, *threads, *repeat, *warmup;
} run_arguments;

static int check_given(const run_arguments *given, const char *function)
{
    if (given->grid == NULL || given->threads == NULL) {
        PyErr_Format(PyExc_TypeError, "%s() needs the keyword argument '%s'", function,
                     given->grid == NULL ? "grid" : "threads");
        return -1;
    }
    return 0;
}

static PyObject *benchmark_kernel(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"prepared", "grid",  "threads",     "repeat",
                                           "warmup",   "flops", "bytes_moved", NULL};
    run_arguments given = {0};
    PyObject *flops = Py_None, *bytes_moved = Py_None;
    enigma_benchmark_options options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    PreparedKernel *prepared;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOOOO:benchmark_kernel", (char **)keywords, &given.prepared,
                                     &given.grid, &given.threads, &given.repeat, &given.warmup, &flops, &bytes_moved) ||
        check_given(&given, "benchmark_kernel") < 0 || py_size3(given.grid, "grid", &options.grid) < 0 ||
        py_size3(given.threads, "threads", &options.threads) < 0 ||
        take_runs(given.repeat, "repeat", 1, &options.repeat) < 0 ||
        take_runs(given.warmup, "warmup", 0, &options.warmup) < 0 || take_work(flops, "flops", &options.flops) < 0 ||
        take_work(bytes_moved, "bytes_moved", &options.bytes_moved) < 0 ||
        py_prepared_enter(py_state_of(module), given.prepared, &prepared) < 0) {
        return NULL;
    }
    enigma_benchmark *benchmark = NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_benchmark_kernel(prepared->prepared, &options, &benchmark);
    py_wait_end(&wait);
    PyObject *result = NULL;
    if (status != ENIGMA_OK || PyErr_Occurred()) {
        py_runtime_raise(prepared->runtime, status, options.device, options.queue);
        enigma_benchmark_free(benchmark);
    } else {
        result = benchmark_wrap(py_state_of(module)->benchmark_type, benchmark);
    }
    py_prepared_leave(prepared);
    return result;
}

static PyObject *profile_kernel(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"prepared", "grid", "threads", "repeat", "warmup", "profile_memory", NULL};
    run_arguments given = {0};
    enigma_profile_kernel_options options = ENIGMA_PROFILE_KERNEL_OPTIONS_INIT;
    PreparedKernel *prepared;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOOp:profile_kernel", (char **)keywords, &given.prepared,
                                     &given.grid, &given.threads, &given.repeat, &given.warmup,
                                     &options.profile_memory) ||
        check_given(&given, "profile_kernel") < 0 || py_size3(given.grid, "grid", &options.grid) < 0 ||
        py_size3(given.threads, "threads", &options.threads) < 0 ||
        take_runs(given.repeat, "repeat", 1, &options.repeat) < 0 ||
        take_runs(given.warmup, "warmup", 0, &options.warmup) < 0 ||
        py_prepared_enter(py_state_of(module), given.prepared, &prepared) < 0) {
        return NULL;
    }
    enigma_result *rows = NULL;
    py_wait wait;
    py_wait_begin(&wait);
    enigma_status status = enigma_profile_kernel(prepared->prepared, &options, &rows);
    py_wait_end(&wait);
    PyObject *result = NULL;
    if (status != ENIGMA_OK || PyErr_Occurred()) {
        py_runtime_raise(prepared->runtime, status, options.device, options.queue);
        enigma_result_free(rows);
    } else {
        result = py_result_new(py_state_of(module), rows);
    }
    py_prepared_leave(prepared);
    return result;
}

/* ---- Any callable -------------------------------------------------------------------------------------------------------- */

#define RUN_CATEGORY "enigma.benchmark" /* of the scopes that tell the runs apart */

static int enter(PyObject *manager)
{
    PyObject *entered = PyObject_CallMethod(manager, "__enter__", NULL);
    Py_XDECREF(entered);
    return entered == NULL ? -1 : 0;
}

/* Keeps the exception that is set, if there is one. */
static int leave(PyObject *manager)
{
    PyObject *pending = py_error_take();
    PyObject *left = PyObject_CallMethod(manager, "__exit__", "OOO", Py_None, Py_None, Py_None);
    int result = left == NULL || pending != NULL ? -1 : 0;
    Py_XDECREF(left);
    if (pending != NULL) {
        py_error_restore(pending);
    }
    return result;
}

static int call_once(PyObject *function)
{
    PyObject *result = PyObject_CallNoArgs(function);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int call_under(PyObject *function, PyObject *scope)
{
    if (enter(scope) < 0) {
        return -1;
    }
    int called = call_once(function);
    return leave(scope) < 0 ? -1 : called;
}

/* Calls it count times, each under the scope when there is one. */
static int call_runs(PyObject *function, uint64_t count, PyObject *scope)
{
    for (uint64_t i = 0; i < count; i++) {
        if ((scope == NULL ? call_once(function) : call_under(function, scope)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The device time of each run that a profile holds. */
static PyObject *run_times(const enigma_profile *profile)
{
    PyObject *times = PyList_New(0);
    size_t count = enigma_profile_event_count(profile);
    for (size_t i = 0; times != NULL && i < count; i++) {
        enigma_event event = {.struct_size = sizeof event};
        enigma_profile_event(profile, i, &event);
        if (event.is_gpu_work || strcmp(event.category.data, RUN_CATEGORY) != 0) {
            continue;
        }
        PyObject *time = PyFloat_FromDouble(event.gpu_time_us);
        if (time == NULL || event.gpu_time_us <= 0 || PyList_Append(times, time) < 0) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_RuntimeError, "run %zd has no device time: it launched nothing that was seen",
                             PyList_GET_SIZE(times) + 1);
            }
            Py_CLEAR(times);
        }
        Py_XDECREF(time);
    }
    return times;
}

/* The same; an error when anything is missing. */
static PyObject *measured(Profiler *profiler)
{
    enigma_profile *profile = NULL;
    if (py_check(enigma_profiler_snapshot(profiler->recorder, &profile)) < 0) {
        return NULL;
    }
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    PyObject *times = NULL;
    if (counts.dropped != 0 || counts.gpu_unfinished != 0 || counts.gpu_invalid != 0) {
        PyErr_Format(PyExc_RuntimeError,
                     "not all device times are there: %llu dropped, %llu unfinished, %llu not valid",
                     (unsigned long long)counts.dropped, (unsigned long long)counts.gpu_unfinished,
                     (unsigned long long)counts.gpu_invalid);
    } else {
        times = run_times(profile);
    }
    enigma_profile_free(profile);
    return times;
}

/* Runs it under a profiler and scopes of its own. */
static PyObject *time_callable(PyObject *module, PyObject *function, PyObject *attach, uint64_t repeat)
{
    PyObject *make = PyObject_GetAttrString(module, "profile");
    PyObject *profiler = make == NULL ? NULL : PyObject_CallFunction(make, "OOOO", Py_False, Py_False, Py_None, attach);
    PyObject *arguments = Py_BuildValue("(s)", "run"), *keywords = Py_BuildValue("{ss}", "category", RUN_CATEGORY);
    PyObject *scope = profiler == NULL || arguments == NULL || keywords == NULL
                          ? NULL
                          : PyObject_Call((PyObject *)py_state_of(module)->scope_type, arguments, keywords);
    PyObject *times = NULL;
    if (scope != NULL && enter(profiler) == 0) {
        int called = call_runs(function, repeat, scope);
        times = leave(profiler) < 0 || called < 0 ? NULL : measured((Profiler *)profiler);
    }
    Py_XDECREF(scope);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(profiler);
    Py_XDECREF(make);
    return times;
}

/* What to call it in the result. */
static PyObject *name_of(PyObject *function)
{
    PyObject *name = PyObject_GetAttrString(function, "__qualname__");
    if (name == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        name = PyObject_GetAttrString((PyObject *)Py_TYPE(function), "__qualname__");
    }
    return name;
}

static PyObject *benchmark(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"fn", "repeat", "warmup", "flops", "bytes_moved", "attach", NULL};
    PyObject *function, *repeat = NULL, *warmup = NULL, *flops = Py_None, *bytes_moved = Py_None, *attach = NULL;
    uint64_t repeats = 100, warmups = 10;
    double number;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOOO:benchmark", (char **)keywords, &function, &repeat, &warmup,
                                     &flops, &bytes_moved, &attach) ||
        take_runs(repeat, "repeat", 1, &repeats) < 0 || take_runs(warmup, "warmup", 0, &warmups) < 0 ||
        take_work(flops, "flops", &number) < 0 || take_work(bytes_moved, "bytes_moved", &number) < 0) {
        return NULL;
    }
    if (!PyCallable_Check(function)) {
        return PyErr_Format(PyExc_TypeError, "fn must be callable, not %.200s", Py_TYPE(function)->tp_name);
    }
    attach = attach == NULL ? PyUnicode_FromString("cuda") : Py_NewRef(attach);
    PyObject *times = attach == NULL || call_runs(function, warmups, NULL) < 0
                          ? NULL
                          : time_callable(module, function, attach, repeats);
    PyObject *name = times == NULL ? NULL : name_of(function);
    PyObject *result = name == NULL ? NULL
                                    : PyObject_CallFunction((PyObject *)py_state_of(module)->benchmark_type, "OOOO",
                                                            name, times, flops, bytes_moved);
    Py_XDECREF(name);
    Py_XDECREF(times);
    Py_XDECREF(attach);
    return result;
}

PyDoc_STRVAR(callable_doc,
             "benchmark($module, /, fn, *, repeat=100, warmup=10, flops=None, bytes_moved=None, attach='cuda')\n--\n\n"
             "Times what one call of fn launches on the device and returns a KernelBenchmark named after fn.\n\n"
             "warmup calls come first; then exactly repeat ones under a profiler of its own with that attach. A run's "
             "time is the\n"
             "sum of the device times of all kernels, copies and fills that it launched. flops and bytes_moved are per "
             "call of fn.\n"
             "attach=None times dispatches of enigma's own runtimes alone. The profiler that is active sees nothing of "
             "the timed runs.\n\n"
             "ValueError if repeat < 1 or warmup < 0, and for flops or bytes_moved that is negative or not finite; "
             "TypeError for\n"
             "what is no int and no callable; RuntimeError when attaching is not possible, a run launched nothing, or "
             "a device time\n"
             "is missing. What fn raises ends it.");
PyDoc_STRVAR(
    benchmark_kernel_doc,
    "benchmark_kernel($module, /, prepared, *, grid, threads, repeat=100, warmup=10, flops=None, "
    "bytes_moved=None)\n--\n\n"
    "Times a PreparedKernel by device stamps only and returns a KernelBenchmark.\n\n"
    "grid=(x, y, z) counts threads in all, threads=(x, y, z) those of one group. warmup runs come first, untimed; "
    "then\n"
    "exactly repeat timed ones. flops and bytes_moved are per dispatch, for GFLOP/s and GB/s. Nothing is recorded.\n\n"
    "ValueError if repeat < 1 or warmup < 0, for sizes that are not valid, and for flops or bytes_moved that is "
    "negative\n"
    "or not finite; TypeError for what is no int; RuntimeError when a run fails or has no valid device time.");
PyDoc_STRVAR(
    profile_kernel_doc,
    "profile_kernel($module, /, prepared, *, grid, threads, repeat=50, warmup=5, profile_memory=True)\n--\n\n"
    "Dispatches a PreparedKernel repeat times under a profiler of its own, after warmup untimed runs, and returns the\n"
    "rows as a ProfilerResult. The profiler that is active sees nothing of it.\n\n"
    "grid=(x, y, z) counts threads in all, threads=(x, y, z) those of one group; profile_memory records byte "
    "counts.\n\n"
    "ValueError if repeat < 1 or warmup < 0, or for sizes that are not valid; TypeError for what is no int.");

static PyMethodDef bench_functions[] = {
    {"benchmark_kernel", VOID(benchmark_kernel), METH_VARARGS | METH_KEYWORDS, benchmark_kernel_doc},
    {"benchmark", VOID(benchmark), METH_VARARGS | METH_KEYWORDS, callable_doc},
    {"profile_kernel", VOID(profile_kernel), METH_VARARGS | METH_KEYWORDS, profile_kernel_doc},
    {NULL, NULL, 0, NULL}};

static int bench_exec(PyObject *module, py_state *state)
{
    (void)module;
    return py_dataclass_finish(state->benchmark_type, "KernelBenchmark", benchmark_fields);
}

const py_part py_bench_part = {bench_functions, bench_exec, NULL};
