/* Runtimes, kernels, dispatches and benchmarks when memory runs out at every step. */
#include <unistd.h>

#include "limited.h"

static enigma_runtime *runtime;
static enigma_kernel *kernel;
static enigma_prepared *prepared;
static const char *source = "";

static enigma_status open_scripted(void)
{
    enigma_runtime *opened;
    enigma_status status = enigma_scripted_open(NULL, &opened);
    enigma_runtime_free(opened);
    return status;
}

static enigma_status open_opencl(void)
{
    enigma_runtime *opened;
    enigma_status status = enigma_runtime_open("opencl", ENIGMA_DEVICE_DEFAULT, &opened);
    enigma_runtime_free(opened);
    return status;
}

static enigma_status make_buffer(void)
{
    enigma_buffer *buffer;
    enigma_status status = enigma_buffer_create(runtime, 100, NULL, &buffer);
    enigma_buffer_free(buffer);
    return status;
}

static enigma_status compile(void)
{
    enigma_kernel *compiled;
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = source};
    enigma_status status = enigma_kernel_compile(runtime, &desc, &compiled);
    enigma_kernel_free(compiled);
    return status;
}

static const uint64_t shape[2] = {2, 2};
static const float data[4];

static enigma_argument input(void)
{
    return (enigma_argument){
        .kind = ENIGMA_ARGUMENT_DATA, .data = data, .size = sizeof data, .dtype = "float32", .shape = shape, .rank = 2};
}

static enigma_status prepare(void)
{
    enigma_prepared *made;
    const enigma_argument in = input();
    const size_t out = sizeof data;
    enigma_status status = enigma_prepare(kernel, &in, 1, &out, 1, &made);
    enigma_prepared_free(made);
    return status;
}

static enigma_status run(uint32_t flags)
{
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.flags = flags;
    enigma_status status = enigma_dispatch(prepared, &options);
    long left = memory.left;
    memory.left = -1;
    assert_ok(enigma_runtime_synchronize(runtime)); /* gives back what asynchronous work holds */
    memory.left = left;
    return status;
}

static enigma_status dispatch(void) { return run(0); }
static enigma_status dispatch_async(void) { return run(ENIGMA_DISPATCH_ASYNC); }

static enigma_status dispatch_timed(void)
{
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    double us;
    return enigma_dispatch_timed(prepared, &options, &us);
}

static enigma_status execute(void)
{
    float out[4];
    const enigma_argument in = input();
    const size_t size = sizeof out;
    void *const outputs[1] = {out};
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    return enigma_execute(kernel, &in, 1, outputs, &size, 1, &options);
}

static enigma_status benchmark(void)
{
    enigma_benchmark *made;
    enigma_benchmark_options options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    options.repeat = 3;
    options.warmup = 1;
    enigma_status status = enigma_benchmark_kernel(prepared, &options, &made);
    enigma_benchmark_free(made);
    return status;
}

static void everything_gives_its_memory_back(void)
{
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = source};
    const enigma_argument in = input();
    const size_t out = sizeof data;
    assert_ok(enigma_kernel_compile(runtime, &desc, &kernel));
    assert_ok(enigma_prepare(kernel, &in, 1, &out, 1, &prepared));
    static enigma_status (*const steps[])(void) = {make_buffer,    compile, prepare,        dispatch,
                                                   dispatch_async, execute, dispatch_timed, benchmark};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        until_it_succeeds(steps[i], 200);
    }
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
}

static void test_scripted(void **state)
{
    (void)state;
    source = "";
    until_it_succeeds(open_scripted, 100);
    assert_ok(enigma_scripted_open(NULL, &runtime));
    everything_gives_its_memory_back();
}

static void test_opencl(void **state)
{
    (void)state;
    uint32_t count;
    if (enigma_backend_device_count("opencl", &count) != ENIGMA_OK) {
        print_message("no OpenCL device: %s\n", enigma_error_message());
        skip();
    }
    source =
        "kernel void k(global const float *in, global float *out) { out[get_global_id(0)] = in[get_global_id(0)]; }";
    until_it_succeeds(open_opencl, 200);
    assert_ok(enigma_runtime_open("opencl", ENIGMA_DEVICE_DEFAULT, &runtime));
    everything_gives_its_memory_back();
}

/* A dispatch that is recorded never fails for want of memory to record; one that cannot even be launched does. */
static void test_recorded(void **state)
{
    (void)state;
    source = "";
    assert_ok(enigma_scripted_open(NULL, &runtime));
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = source};
    assert_ok(enigma_kernel_compile(runtime, &desc, &kernel));
    assert_ok(enigma_prepare(kernel, NULL, 0, NULL, 0, &prepared));
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    long ran = 0;
    for (long allowed = 0; allowed < 60; allowed++) {
        enigma_profiler *profiler = profiler_started();
        enigma_counts counts = {.struct_size = sizeof counts};
        memory.left = allowed;
        enigma_status status = enigma_dispatch(prepared, &options);
        memory.left = -1;
        assert_true(status == ENIGMA_OK || status == ENIGMA_E_NO_MEMORY);
        ran += status == ENIGMA_OK;
        enigma_profile *profile = profile_stopped(profiler);
        enigma_profile_get_counts(profile, &counts);
        assert_true(counts.events == 1 || counts.dropped >= 1 || status != ENIGMA_OK);
        enigma_profile_free(profile);
    }
    assert_true(ran > 0);
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
}

int main(void)
{
    char cache[4096];
    if (realpath(".", cache) != NULL) { /* the CPU driver's compiler cache, in this test's folder */
        setenv("POCL_CACHE_DIR", cache, 1);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scripted),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_opencl),
    };
    return cmocka_run_group_tests(tests, limited_setup, NULL);
}
