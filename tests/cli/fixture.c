/* Writes a profile whose every number is known, for the tests of the command: fixture FILE.enigma [empty]. Public
 * header only; the clock and the device are scripted. */
#include <stdio.h>
#include <string.h>

#include "enigma.h"

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != ENIGMA_OK) {                                                                                     \
            fprintf(stderr, "fixture: %s: %s\n", #call, enigma_error_message());                                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static enigma_text text(const char *data) { return (enigma_text){data, strlen(data)}; }

static int prepare(enigma_runtime *runtime, const char *name, enigma_prepared **out)
{
    enigma_kernel *kernel = NULL;
    enigma_kernel_desc desc = {sizeof desc, name, "scripted", 0, NULL, NULL};
    TRY(enigma_kernel_compile(runtime, &desc, &kernel));
    TRY(enigma_prepare(kernel, NULL, 0, NULL, 0, out));
    enigma_kernel_free(kernel);
    return 0;
}

/* One dispatch that takes so many us on the device, with work counts unless they are 0. */
static int dispatch(enigma_runtime *runtime, enigma_prepared *prepared, uint64_t us, double flops, double bytes)
{
    uint64_t now = enigma_now_ns();
    enigma_script script = {ENIGMA_SCRIPT_TIMES, now, now + us * 1000, NULL};
    enigma_metric metrics[] = {{"flops", flops}, {"bytes", bytes}};
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.grid = (enigma_size3){1024, 1, 1};
    options.threads = (enigma_size3){64, 1, 1};
    options.metrics = metrics;
    options.metric_count = flops > 0 ? 2 : 0;
    TRY(enigma_scripted_push(runtime, 0, 0, &script, 1));
    TRY(enigma_dispatch(prepared, &options));
    return 0;
}

static int step(enigma_runtime *runtime, enigma_prepared *add, enigma_prepared *scale)
{
    ENIGMA_SCOPE("step");
    enigma_scripted_clock_advance(5000);
    if (dispatch(runtime, add, 100, 2e6, 12e6) != 0 || dispatch(runtime, scale, 40, 0, 0) != 0) {
        return 1;
    }
    enigma_scripted_clock_advance(5000);
    return 0;
}

static int record(enigma_runtime *runtime)
{
    enigma_prepared *add = NULL, *scale = NULL;
    enigma_metric metrics[] = {{"flops", 6e6}, {"items", 3}};
    enigma_scope_desc desc = {.struct_size = sizeof desc, .name = text("solve"), .metrics = metrics, .metric_count = 2};
    if (prepare(runtime, "add", &add) != 0 || prepare(runtime, "scale", &scale) != 0) {
        return 1;
    }
    enigma_scope solve = enigma_begin_desc(&desc);
    int failed = step(runtime, add, scale) || step(runtime, add, scale) || step(runtime, add, scale);
    enigma_end(solve);
    enigma_scope odd = enigma_begin("a/b \"quoted\"\n\xe2\x82\xac");
    enigma_scripted_clock_advance(1500);
    enigma_end(odd);
    enigma_prepared_free(add);
    enigma_prepared_free(scale);
    return failed;
}

int main(int argc, char **argv)
{
    enigma_profiler *profiler = NULL;
    enigma_profile *profile = NULL;
    enigma_runtime *runtime = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: fixture FILE.enigma [empty]\n");
        return 2;
    }
    enigma_scripted_clock_begin(1000000);
    TRY(enigma_scripted_open(NULL, &runtime));
    TRY(enigma_profiler_create(NULL, &profiler));
    TRY(enigma_profiler_start(profiler));
    if (argc < 3 && record(runtime) != 0) {
        return 1;
    }
    TRY(enigma_profiler_stop(profiler));
    TRY(enigma_profiler_snapshot(profiler, &profile));
    TRY(enigma_profile_save(profile, argv[1]));
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
    enigma_runtime_free(runtime);
    enigma_scripted_clock_end();
    return 0;
}
