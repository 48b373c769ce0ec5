/* What the tests of the CUDA attacher share: launches and records told to the fake CUPTI as the real one tells them. */
#ifndef TESTS_UNIT_ATTACH_CUDA_H
#define TESTS_UNIT_ATTACH_CUDA_H

#include <pthread.h>

#include "../fakecuda/fake.h"
#include "attach/attach.h"
#include "base/clock.h"
#include "store/profile.h"
#include "support.h"

static fake_libraries fake;

enum { RUNTIME_KERNEL = 211, RUNTIME_COPY = 41, RUNTIME_FILL = 51, RUNTIME_GRAPH = 311, STREAM = 7, CONTEXT = 1 };

static uint32_t last_correlation; /* atomic */

/* ---- calls ---- */

static inline void tell_call(uint32_t cbid, uint32_t site, uint32_t correlation, const char *name, int32_t result)
{
    static char context;
    const cupti_call call = {.site = site,
                             .function_name = "a call",
                             .return_value = &result,
                             .symbol_name = name,
                             .context = &context,
                             .context_id = CONTEXT,
                             .correlation = correlation};
    fake.call(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, &call);
}

static inline uint32_t enter_call(uint32_t cbid, const char *name)
{
    uint32_t correlation = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
    tell_call(cbid, CUPTI_API_ENTER, correlation, name, 0);
    return correlation;
}

static inline void leave_call(uint32_t cbid, uint32_t correlation)
{
    tell_call(cbid, CUPTI_API_EXIT, correlation, NULL, 0);
}

/* A launching call without more; its correlation. */
static inline uint32_t call(uint32_t cbid)
{
    uint32_t correlation = enter_call(cbid, cbid == RUNTIME_KERNEL ? "kernel" : NULL);
    leave_call(cbid, correlation);
    return correlation;
}

/* ---- records ---- */

static inline uint64_t now_ns(void) { return eni_clock_real_ns(); }

static inline cupti_kernel_record kernel_record(uint32_t correlation, const char *name, uint64_t start, uint64_t ns)
{
    return (cupti_kernel_record){.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                 .registers = 24,
                                 .start = start,
                                 .end = start == 0 ? 0 : start + ns,
                                 .context = CONTEXT,
                                 .stream = STREAM,
                                 .grid = {4, 2, 1},
                                 .block = {128, 1, 1},
                                 .static_bytes = 1024,
                                 .dynamic_bytes = 512,
                                 .correlation = correlation,
                                 .name = name};
}

/* Records lie in buffers of 216 bytes each (FAKE_KERNEL_BYTES). */
static inline void tell_kernel(const cupti_kernel_record *record)
{
    uint64_t bytes[27] = {0};
    memcpy(bytes, record, sizeof *record);
    fake.record(bytes, sizeof bytes);
}

static inline void kernel_done(uint32_t correlation, const char *name, uint64_t ns)
{
    const cupti_kernel_record record = kernel_record(correlation, name, now_ns(), ns);
    tell_kernel(&record);
}

static inline void node_done(uint32_t correlation, const char *name, uint64_t ns, uint32_t graph, uint64_t node)
{
    cupti_kernel_record record = kernel_record(correlation, name, now_ns(), ns);
    record.graph = graph;
    record.graph_node = node;
    tell_kernel(&record);
}

/* One kernel, launched and done. */
static inline void run_kernel(const char *name, uint64_t ns) { kernel_done(call(RUNTIME_KERNEL), name, ns); }

/* ---- graphs: handles are numbers ---- */

static inline void tell_node(uint32_t cbid, uint64_t graph, uint64_t node, uint64_t original)
{
    const cupti_graph change = {.graph = (void *)(uintptr_t)graph,
                                .node = (void *)(uintptr_t)node,
                                .original_node = (void *)(uintptr_t)original};
    const cupti_resource resource = {.descriptor = &change};
    fake.call(CUPTI_CB_DOMAIN_RESOURCE, cbid, &resource);
}

/* ---- profilers and profiles ---- */

static inline enigma_profiler *attached(void)
{
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler;
    options.attach = "cuda";
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_OK);
    return profiler;
}

static inline enigma_profile *snapshot(enigma_profiler *profiler)
{
    enigma_profile *profile;
    assert_int_equal(enigma_profiler_snapshot(profiler, &profile), ENIGMA_OK);
    return profile;
}

static inline enigma_profile *stopped(enigma_profiler *profiler)
{
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    return snapshot(profiler);
}

static inline enigma_event event_at(const enigma_profile *profile, size_t index)
{
    enigma_event event = {.struct_size = sizeof event};
    assert_int_equal(enigma_profile_event(profile, index, &event), ENIGMA_OK);
    return event;
}

/* The names of an event's path, "/" between. */
static inline const char *path_of(const enigma_profile *profile, const enigma_event *event, char out[512])
{
    enigma_text names[32];
    size_t depth = enigma_profile_path_depth(profile, event->path), used = 0;
    enigma_profile_path_names(profile, event->path, names, 32);
    for (size_t i = 0; i < depth; i++) {
        used +=
            (size_t)snprintf(out + used, 512 - used, "%s%.*s", i == 0 ? "" : "/", (int)names[i].size, names[i].data);
    }
    return out;
}

/* How many events have that path; the last of them in *out (NULL: not wanted). */
static inline size_t find(const enigma_profile *profile, const char *path, enigma_event *out)
{
    char buffer[512];
    size_t count = 0, last = 0;
    for (size_t i = 0; i < enigma_profile_event_count(profile); i++) {
        enigma_event event = event_at(profile, i);
        if (strcmp(path_of(profile, &event, buffer), path) == 0) {
            count++;
            last = i;
        }
    }
    if (out != NULL && count != 0) {
        *out = event_at(profile, last); /* its metadata lives until the next is read */
    }
    return count;
}

static inline enigma_counts counts_of(const enigma_profile *profile)
{
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    return counts;
}

/* A metadata value by key; type ENIGMA_NULL: not there. */
static inline enigma_value metadata(const enigma_event *event, const char *key)
{
    for (size_t i = 0; i < event->metadata_count; i++) {
        const enigma_field *field = &event->metadata[i];
        if (field->key.size == strlen(key) && memcmp(field->key.data, key, field->key.size) == 0) {
            return field->value;
        }
    }
    return (enigma_value){.type = ENIGMA_NULL};
}

static inline void assert_metadata_text(const enigma_event *event, const char *key, const char *text)
{
    enigma_value value = metadata(event, key);
    assert_int_equal(value.type, ENIGMA_TEXT);
    assert_string_equal(value.as.text.data, text);
}

static inline void assert_metadata_int(const enigma_event *event, const char *key, int64_t number)
{
    enigma_value value = metadata(event, key);
    assert_int_equal(value.type, ENIGMA_INT);
    assert_int_equal(value.as.integer, number);
}

#endif
