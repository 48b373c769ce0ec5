/* Recording with exact numbers, for tests of what reads profiles: the host clock moves only when told, GPU work is added with the
 * stamps that the test gives. Public interface only. Include after the header under test. */
#ifndef TESTS_API_RECORDING_H
#define TESTS_API_RECORDING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "enigma.h"

#define RECORDING_START 1000000u /* what the clock shows first */

static inline enigma_profiler *recording_begin(uint64_t start_ns)
{
    enigma_profiler *profiler = NULL;
    enigma_scripted_clock_begin(start_ns);
    assert_int_equal(enigma_profiler_create(NULL, &profiler), ENIGMA_OK);
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    return profiler;
}

static inline enigma_profile *recording_end(enigma_profiler *profiler)
{
    enigma_profile *profile = NULL;
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    assert_int_equal(enigma_profiler_snapshot(profiler, &profile), ENIGMA_OK);
    enigma_profiler_free(profiler);
    enigma_scripted_clock_end();
    return profile;
}

static inline void advance(uint64_t ns) { enigma_scripted_clock_advance(ns); }

static inline enigma_text text_n(const char *data, size_t size) { return (enigma_text){data, size}; }

/* A scope with up to two metrics (key NULL: none). */
static inline enigma_scope begin_with(const char *name, const char *key, double value, const char *key2, double value2)
{
    enigma_metric metrics[] = {{key, value}, {key2, value2}};
    enigma_scope_desc desc = {.struct_size = sizeof desc,
                              .name = {name, strlen(name)},
                              .metrics = metrics,
                              .metric_count = key == NULL    ? 0
                                              : key2 == NULL ? 1
                                                             : 2};
    return enigma_begin_desc(&desc);
}

/* GPU work under the scopes that are open: launched now, taking cpu_ns there, on the device from gpu_start to gpu_start +
 * gpu_ns. */
typedef struct work {
    const char *name, *kernel; /* name NULL: "gpu_dispatch" */
    uint64_t cpu_ns, gpu_start, gpu_end;
    uint32_t queue, device;
    const char *key, *key2;
    double value, value2;
    uint64_t input_bytes, output_bytes;
    enigma_size3 grid, threads;
    int not_gpu; /* a step of the runtime */
} work;

static inline void add_work(const work *w)
{
    enigma_context here = enigma_context_current();
    enigma_metric metrics[] = {{w->key, w->value}, {w->key2, w->value2}};
    enigma_event event = {.struct_size = sizeof event,
                          .name = {w->name == NULL ? "gpu_dispatch" : w->name, 0},
                          .category = {w->not_gpu ? "runtime" : "scripted", 0},
                          .kernel_name = {w->kernel, 0},
                          .path = here.path,
                          .start_ns = enigma_now_ns(),
                          .end_ns = enigma_now_ns() + w->cpu_ns,
                          .gpu_start_ns = w->gpu_start,
                          .gpu_end_ns = w->gpu_end,
                          .grid = w->grid,
                          .threads = w->threads,
                          .input_bytes = w->input_bytes,
                          .output_bytes = w->output_bytes,
                          .is_gpu_work = !w->not_gpu,
                          .queue_id = w->queue,
                          .device_id = w->device,
                          .metrics = metrics,
                          .metric_count = w->key == NULL    ? 0
                                          : w->key2 == NULL ? 1
                                                            : 2};
    advance(w->cpu_ns);
    enigma_profiler_add_event(here.profiler, &event, here.scope);
}

/* A kernel launched now that takes cpu_ns here and runs for gpu_ns right from the launch. */
static inline void add_kernel(const char *kernel, uint64_t cpu_ns, uint64_t gpu_ns)
{
    uint64_t now = enigma_now_ns();
    add_work(&(work){.kernel = kernel, .cpu_ns = cpu_ns, .gpu_start = now, .gpu_end = now + gpu_ns});
}

static inline enigma_result *averages(const enigma_profile *profile, enum enigma_group group)
{
    enigma_result *result = NULL;
    assert_int_equal(enigma_profile_key_averages(profile, group, &result), ENIGMA_OK);
    return result;
}

static inline const enigma_row *row_named(const enigma_result *result, const char *name)
{
    const enigma_row *row = NULL;
    assert_int_equal(enigma_result_by_name(result, (enigma_text){name, 0}, &row), ENIGMA_OK);
    return row;
}

static inline double row_metric(const enigma_row *row, const char *key)
{
    for (size_t i = 0; i < row->metric_count; i++) {
        if (strcmp(row->metrics[i].key, key) == 0) {
            return row->metrics[i].value;
        }
    }
    fail_msg("no metric %s", key);
    return 0.0;
}

/* What is written, as one text. */
typedef struct written {
    char *data;
    size_t size, capacity;
} written;

static inline int write_to(void *user, const void *data, size_t size)
{
    written *out = user;
    if (out->size + size + 1 > out->capacity) {
        out->capacity = 2 * (out->size + size + 1);
        out->data = realloc(out->data, out->capacity);
        assert_non_null(out->data);
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
    out->data[out->size] = '\0';
    return 0;
}

static inline written exported(const enigma_profile *profile, const char *format)
{
    written out = {NULL, 0, 0};
    assert_int_equal(enigma_export(profile, format, write_to, &out), ENIGMA_OK);
    return out;
}

static inline written table_of(const enigma_result *result, const char *sort_by)
{
    written out = {NULL, 0, 0};
    assert_int_equal(enigma_result_write_table(result, sort_by, write_to, &out), ENIGMA_OK);
    return out;
}

static inline written tree_of(const enigma_profile *profile)
{
    written out = {NULL, 0, 0};
    assert_int_equal(enigma_profile_write_tree(profile, write_to, &out), ENIGMA_OK);
    return out;
}

static inline size_t occurrences(const char *text, const char *piece)
{
    size_t count = 0;
    for (const char *at = strstr(text, piece); at != NULL; at = strstr(at + 1, piece)) {
        count++;
    }
    return count;
}

#endif
