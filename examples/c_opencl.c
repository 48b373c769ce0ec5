/* A kernel on the first device of any backend: compiled, profiled with a hook that says what work it does, benchmarked,
 * and exported. Exits with 77 where there is no device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <enigma.h>

enum { COUNT = 1 << 20, STEPS = 5, NO_DEVICE = 77 };

static const char source[] = "__kernel void saxpy(float a, __global const float *x, __global float *y)\n"
                             "{\n"
                             "    size_t i = get_global_id(0);\n"
                             "    y[i] = a * x[i] + y[i];\n"
                             "}\n";

/* Ends the program when something failed, with the library's words. */
static void check(enigma_status status, const char *what)
{
    if (status != ENIGMA_OK) {
        fprintf(stderr, "%s: %s\n", what, enigma_error_message());
        exit(status == ENIGMA_E_UNAVAILABLE ? NO_DEVICE : 1);
    }
}

static int print(void *user, const void *data, size_t size) { return fwrite(data, 1, size, user) == size ? 0 : 1; }

/* What one dispatch does: a multiplication and an addition an element, two floats read and one written. */
static size_t saxpy_work(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    (void)user;
    if (capacity < 2) {
        return 0;
    }
    out[0] = (enigma_metric){"flops", 2.0 * (double)info->grid.x};
    out[1] = (enigma_metric){"bytes", 12.0 * (double)info->grid.x};
    return 2;
}

static enigma_prepared *prepare(enigma_runtime *runtime, const float *x)
{
    static const float a = 2;
    static const size_t output_size = COUNT * sizeof(float);
    enigma_kernel_desc desc = {sizeof desc, "saxpy", source, 0, NULL, NULL};
    enigma_argument inputs[] = {
        {.kind = ENIGMA_ARGUMENT_SCALAR, .data = &a, .size = sizeof a, .dtype = "float32"},
        {.kind = ENIGMA_ARGUMENT_DATA, .data = x, .size = output_size, .dtype = "float32"},
    };
    enigma_kernel *kernel = NULL;
    enigma_prepared *prepared = NULL;
    check(enigma_kernel_compile(runtime, &desc, &kernel), "compile");
    check(enigma_prepare(kernel, inputs, 2, &output_size, 1, &prepared), "prepare");
    enigma_kernel_free(kernel);
    return prepared;
}

/* y starts as 0, so after STEPS runs it is STEPS * a * x. */
static int correct(enigma_prepared *prepared, const float *x)
{
    float *y = malloc(COUNT * sizeof *y);
    int wrong = 0;
    check(enigma_prepared_read_output(prepared, 0, y, COUNT * sizeof *y), "read");
    for (int i = 0; i < COUNT; i++) {
        wrong += fabsf(y[i] - (float)STEPS * 2 * x[i]) > 1e-4f * fabsf(x[i]);
    }
    free(y);
    return wrong == 0;
}

static void show(enigma_profiler *profiler)
{
    enigma_profile *profile = NULL;
    enigma_result *rows = NULL;
    check(enigma_profiler_snapshot(profiler, &profile), "snapshot");
    check(enigma_profile_key_averages(profile, ENIGMA_GROUP_CALL_PATH, &rows), "rows");
    check(enigma_result_write_table(rows, NULL, print, stdout), "table");
    check(enigma_export_file(profile, "chrome", "c_opencl.trace.json"), "export");
    check(enigma_profile_save(profile, "c_opencl.enigma"), "save");
    printf("\nwritten: c_opencl.trace.json (ui.perfetto.dev), c_opencl.enigma (enigma report)\n");
    enigma_result_free(rows);
    enigma_profile_free(profile);
}

static void benchmark(enigma_prepared *prepared)
{
    enigma_benchmark_options options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    enigma_benchmark *result = NULL;
    options.grid = (enigma_size3){COUNT, 1, 1};
    options.threads = (enigma_size3){256, 1, 1};
    options.flops = 2.0 * COUNT;
    options.bytes_moved = 12.0 * COUNT;
    check(enigma_benchmark_kernel(prepared, &options, &result), "benchmark");
    check(enigma_benchmark_write_summary(result, print, stdout), "summary");
    printf("\n");
    enigma_benchmark_free(result);
}

int main(void)
{
    enigma_runtime *runtime = NULL;
    enigma_profiler *profiler = NULL;
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.grid = (enigma_size3){COUNT, 1, 1};
    options.threads = (enigma_size3){256, 1, 1};

    float *x = malloc(COUNT * sizeof *x);
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i / COUNT;
    }
    check(enigma_runtime_open("opencl", ENIGMA_DEVICE_DEFAULT, &runtime), "runtime");
    enigma_prepared *prepared = prepare(runtime, x);
    check(enigma_hook_register((enigma_text){"saxpy", 0}, saxpy_work, NULL, NULL), "hook");

    check(enigma_profiler_create(NULL, &profiler), "profiler");
    check(enigma_profiler_start(profiler), "start");
    enigma_scope steps = enigma_begin("steps");
    for (int i = 0; i < STEPS; i++) {
        check(enigma_dispatch(prepared, &options), "dispatch");
    }
    enigma_end(steps);
    check(enigma_profiler_stop(profiler), "stop");

    int ok = correct(prepared, x);
    show(profiler);
    benchmark(prepared);
    printf("result: %s\n", ok ? "correct" : "WRONG");

    enigma_hook_unregister((enigma_text){"saxpy", 0});
    enigma_prepared_free(prepared);
    enigma_runtime_free(runtime);
    enigma_profiler_free(profiler);
    free(x);
    return ok ? 0 : 1;
}
