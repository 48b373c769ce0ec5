/* What the tests of the CUDA backend share: a runtime over the fake driver, a kernel that adds, and short ways to run it. */
#ifndef TESTS_UNIT_CUDA_FAKE_H
#define TESTS_UNIT_CUDA_FAKE_H

#include "support.h"

#include "../fakecuda/fake.h"
#include "backends/backend.h"
#include "base/error.h"

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        enigma_status status_ = (call);                                                                                \
        if (status_ != ENIGMA_OK) {                                                                                    \
            fail_msg("%s: %s", enigma_status_name(status_), enigma_error_message());                                   \
        }                                                                                                              \
    } while (0)
#define assert_message(part)                                                                                           \
    do {                                                                                                               \
        if (strstr(enigma_error_message(), part) == NULL) {                                                            \
            fail_msg("\"%s\" is not in: %s", part, enigma_error_message());                                            \
        }                                                                                                              \
    } while (0)

static fake_libraries fake;
static enigma_runtime *runtime;

static const char add_source[] = "/* comments (with brackets) { do not matter: add(int a) {} */\n"
                                 "extern \"C\" __global__ void add(const float *in, float step, // add(x) {\n"
                                 "                               float *out)\n"
                                 "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = in[i] + step; }\n";

static inline enigma_status compile_as(const char *source, const char *name, const char *options, enigma_kernel **out)
{
    const enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = name, .source = source, .options = options};
    return enigma_kernel_compile(runtime, &desc, out);
}

static inline enigma_prepared *prepare_add(float step)
{
    enigma_kernel *kernel = NULL;
    enigma_prepared *prepared = NULL;
    float in[256];
    const size_t output = sizeof in;
    for (int i = 0; i < 256; i++) {
        in[i] = (float)i;
    }
    const enigma_argument inputs[2] = {{.kind = ENIGMA_ARGUMENT_DATA, .data = in, .size = sizeof in},
                                       {.kind = ENIGMA_ARGUMENT_SCALAR, .data = &step, .size = sizeof step}};
    assert_ok(compile_as(add_source, "add", NULL, &kernel));
    assert_ok(enigma_prepare(kernel, inputs, 2, &output, 1, &prepared));
    enigma_kernel_free(kernel);
    return prepared;
}

static inline void check_output(enigma_prepared *prepared, float step)
{
    float out[256];
    assert_ok(enigma_prepared_read_output(prepared, 0, out, sizeof out));
    for (int i = 0; i < 256; i++) {
        assert_true(out[i] == (float)i + step);
    }
}

static inline enigma_dispatch_options sizes(uint64_t grid, uint64_t threads)
{
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.grid.x = grid;
    options.threads.x = threads;
    return options;
}

static inline const enigma_value *fact_of(const char *key)
{
    static enigma_field field;
    for (size_t i = 0; enigma_runtime_fact(runtime, i, &field); i++) {
        if (strcmp(field.key.data, key) == 0) {
            return &field.value;
        }
    }
    return NULL;
}

static inline const enigma_value *metadata_of(const enigma_event *event, const char *key)
{
    for (size_t i = 0; i < event->metadata_count; i++) {
        if (strcmp(event->metadata[i].key.data, key) == 0) {
            return &event->metadata[i].value;
        }
    }
    return NULL;
}

static inline enigma_profiler *recording(void)
{
    enigma_profiler *profiler = NULL;
    assert_ok(enigma_profiler_create(NULL, &profiler));
    assert_ok(enigma_profiler_open(profiler));
    return profiler;
}

static inline enigma_profile *sealed(enigma_profiler *profiler)
{
    enigma_profile *profile = NULL;
    assert_ok(enigma_profiler_seal(profiler));
    assert_ok(enigma_profiler_snapshot(profiler, &profile));
    enigma_profiler_free(profiler);
    return profile;
}

static inline enigma_event event_at(const enigma_profile *profile, size_t index)
{
    enigma_event event = {.struct_size = sizeof event};
    assert_ok(enigma_profile_event(profile, index, &event));
    return event;
}

static inline int open_runtime(void **state)
{
    (void)state;
    return enigma_runtime_open("cuda", 0, &runtime) == ENIGMA_OK ? 0 : (fputs(enigma_error_message(), stderr), 1);
}

static inline int close_runtime(void **state)
{
    (void)state;
    enigma_runtime_free(runtime);
    return 0;
}

#endif
