/* What the conformance tests share: a backend with a device, kernels written once for all of them, and short ways to call.
 *
 * Each test program runs its tests once for every built backend that has a device here; exit code 77 when there is none. A new
 * backend needs a row in `languages`. */
#ifndef TESTS_CONFORMANCE_BATTERY_H
#define TESTS_CONFORMANCE_BATTERY_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "enigma.h"

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        enigma_status status_ = (call);                                                                                \
        if (status_ != ENIGMA_OK) {                                                                                    \
            print_error("%s: %s\n", enigma_status_name(status_), enigma_error_message());                              \
        }                                                                                                              \
        assert_int_equal(status_, ENIGMA_OK);                                                                          \
    } while (0)
#define assert_message(part) assert_non_null(strstr(enigma_error_message(), part))

/* How a backend's language writes the few words that the kernels need. */
static const struct {
    const char *backend, *words;
} languages[] = {{"opencl", "#define KERNEL __kernel\n"
                            "#define GLOBAL __global\n"
                            "#define INDEX ((uint)get_global_id(0))\n"
                            "typedef uint number;\n"},
                 {"cuda", "#define KERNEL extern \"C\" __global__\n"
                          "#define GLOBAL\n"
                          "#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)\n"
                          "typedef unsigned number;\n"}};

static const char kernels[] =
    "KERNEL void add(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *out)\n"
    "{ out[INDEX] = a[INDEX] + b[INDEX]; }\n"
    "KERNEL void scale(GLOBAL const float *in, float factor, GLOBAL float *out)\n"
    "{ out[INDEX] = in[INDEX] * factor; }\n"
    /* no two of these commute; odd ones take far longer than a launch, even ones do not */
    "KERNEL void turn(GLOBAL number *data, number k)\n"
    "{ number v = data[INDEX]; for (number i = 0; i < (k % 2u ? 30000u : 10u); i++) v = v * 1664525u + k; data[INDEX] "
    "= v; }\n"
    "KERNEL void mark(GLOBAL number *data, number n)\n"
    "{ if (INDEX < n) data[INDEX] += 1u; }\n"
    "KERNEL void spin(GLOBAL number *data, number rounds)\n"
    "{ number v = data[INDEX]; for (number i = 0; i < rounds; i++) v = v * 1664525u + 1013904223u; data[INDEX] = v; "
    "}\n";

typedef struct battery {
    const char *backend;
    char source[4096];
    enigma_runtime *runtime; /* shared by the tests of one program */
} battery;

static battery current; /* what the tests run on */

static inline enigma_kernel *compile(const char *name)
{
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = name, .source = current.source};
    enigma_kernel *kernel = NULL;
    assert_ok(enigma_kernel_compile(current.runtime, &desc, &kernel));
    return kernel;
}

static inline enigma_argument data_of(const void *data, size_t size)
{
    return (enigma_argument){.kind = ENIGMA_ARGUMENT_DATA, .data = data, .size = size};
}

static inline enigma_argument value_of(const void *data, size_t size)
{
    return (enigma_argument){.kind = ENIGMA_ARGUMENT_SCALAR, .data = data, .size = size};
}

static inline enigma_argument buffer_of(enigma_buffer *buffer)
{
    return (enigma_argument){.kind = ENIGMA_ARGUMENT_BUFFER, .buffer = buffer};
}

/* A kernel of the form (data, number): turn, mark, spin. */
static inline enigma_prepared *prepare_on(enigma_kernel *kernel, enigma_buffer *buffer, uint32_t number)
{
    const enigma_argument inputs[2] = {buffer_of(buffer), value_of(&number, sizeof number)};
    enigma_prepared *prepared = NULL;
    assert_ok(enigma_prepare(kernel, inputs, 2, NULL, 0, &prepared));
    return prepared;
}

static inline enigma_dispatch_options sizes(uint64_t grid, uint64_t threads)
{
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.grid.x = grid;
    options.threads.x = threads;
    return options;
}

/* A fact of the runtime; NULL: absent. */
static inline const enigma_value *fact_of(const enigma_runtime *runtime, const char *key)
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

/* The turn kernel on the CPU. */
static inline uint32_t turn_by_hand(uint32_t value, uint32_t k)
{
    for (uint32_t i = 0; i < (k % 2 ? 30000u : 10u); i++) {
        value = value * 1664525u + k;
    }
    return value;
}

static inline void battery_begin(battery *b, const char *backend)
{
    *b = (battery){.backend = backend};
    for (size_t i = 0; i < sizeof languages / sizeof languages[0]; i++) {
        if (strcmp(languages[i].backend, backend) == 0) {
            snprintf(b->source, sizeof b->source, "%s%s", languages[i].words, kernels);
        }
    }
    assert_true(b->source[0] != '\0'); /* a built backend without a row in `languages` */
    assert_ok(enigma_runtime_open(backend, ENIGMA_DEVICE_DEFAULT, &b->runtime));
}

/* Keeps the CPU driver's compiler cache in this test's folder. */
static inline void battery_cache(void)
{
    char cache[4096];
    if (getcwd(cache, sizeof cache - 16) != NULL) {
        snprintf(cache + strlen(cache), 16, "/pocl-cache");
        setenv("POCL_CACHE_DIR", cache, 1);
    }
}

/* Runs the group for every backend that has a device, or for the one that ENIGMA_BACKEND names; gives main's exit code. */
static inline int battery_main(const char *name, int (*run_group)(const char *backend))
{
    int failures = 0, ran = 0;
    const enigma_backend_info *backend;
    const char *wanted = getenv("ENIGMA_BACKEND");
    battery_cache();
    for (size_t i = 0; (backend = enigma_backend_at(i)) != NULL; i++) {
        uint32_t devices = 0;
        if (wanted != NULL && strcmp(backend->name, wanted) != 0) {
            continue;
        }
        if (!backend->built || enigma_backend_device_count(backend->name, &devices) != ENIGMA_OK || devices == 0) {
            continue;
        }
        battery_begin(&current, backend->name);
        printf("%s on %s: %s\n", name, backend->name, fact_of(current.runtime, "name")->as.text.data);
        fflush(stdout);
        failures += run_group(backend->name);
        enigma_runtime_free(current.runtime);
        ran++;
    }
    if (ran == 0) {
        printf("skipped: no backend has a device here (%s)\n", enigma_error_message());
        return 77;
    }
    return failures;
}

/* After the array `tests` of the file. */
#define BATTERY_MAIN(name)                                                                                             \
    static int run_group(const char *backend) { return cmocka_run_group_tests_name(backend, tests, NULL, NULL); }      \
    int main(void) { return battery_main(name, run_group); }

#endif
