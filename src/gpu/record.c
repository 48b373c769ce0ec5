/* The recorded dispatch: one event with a GPU block. Called by dispatch.c and execute.c on the dispatching thread. Hooks are asked
 * before the event begins and before any lock is taken. */
#include "base/str.h"
#include "gpu/gpu.h"

enum { LAUNCH_FIELDS = 6 };

static void add_uint(enigma_field *fields, size_t *count, const char *key, uint64_t number)
{
    fields[*count] = (enigma_field){.key = eni_text_of(key), .value = {.type = ENIGMA_INT}};
    fields[*count].value.as.integer = number > INT64_MAX ? INT64_MAX : (int64_t)number;
    ++*count;
}

/* What all dispatches of one shape share; what the backend does not know is absent. */
static size_t launch_fields(const enigma_prepared *prepared, const enigma_dispatch_options *options, bool with_shapes,
                            enigma_field fields[LAUNCH_FIELDS])
{
    size_t count = 0;
    const eni_kernel_info *info = prepared->info;
    if (info->max_group_threads != 0) {
        add_uint(fields, &count, "max_threads_per_threadgroup", info->max_group_threads);
    }
    if (info->execution_width != 0) {
        add_uint(fields, &count, "thread_execution_width", info->execution_width);
    }
    if (info->static_memory_bytes >= 0) {
        add_uint(fields, &count, "static_threadgroup_memory_bytes", (uint64_t)info->static_memory_bytes);
    }
    if (info->registers > 0) {
        add_uint(fields, &count, "registers_per_thread", (uint64_t)info->registers);
    }
    double occupancy = prepared->kernel->runtime->backend->kernel_occupancy(prepared->handle, options->threads);
    if (occupancy >= 0.0) {
        fields[count] = (enigma_field){.key = eni_text_of("threadgroup_occupancy"), .value = {.type = ENIGMA_DOUBLE}};
        fields[count++].value.as.number = occupancy;
    }
    if (with_shapes) {
        fields[count++] = (enigma_field){.key = eni_text_of("input_shapes"), .value = prepared->input_shapes};
    }
    return count;
}

static uint32_t intern_launch(enigma_prepared *prepared, const enigma_dispatch_options *options,
                              enigma_profiler *profiler, uint32_t device)
{
    uint32_t flags = eni_profiler_flags(profiler);
    bool with_bytes = (flags & ENIGMA_PROFILER_PROFILE_MEMORY) != 0;
    const eni_launch launch = {
        .grid = {options->grid.x, options->grid.y, options->grid.z},
        .threads = {options->threads.x, options->threads.y, options->threads.z},
        .input_bytes = with_bytes ? prepared->input_bytes : 0,
        .output_bytes = with_bytes ? prepared->output_bytes : 0,
        .buffer_count = (uint32_t)prepared->buffer_count,
        .queue = options->queue,
        .device = device,
        .device_id = options->device,
    };
    enigma_field fields[LAUNCH_FIELDS];
    size_t count = launch_fields(prepared, options, (flags & ENIGMA_PROFILER_RECORD_SHAPES) != 0, fields);
    return eni_profiler_launch(profiler, &launch, fields, count);
}

static bool same_size(enigma_size3 a, enigma_size3 b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

/* Where a dispatch is recorded. */
typedef struct place {
    enigma_path node;
    uint32_t category, launch;
} place;

/* Looks the place up, mostly in the prepared kernel's cache. */
static place find_place(enigma_prepared *prepared, const enigma_dispatch_options *options,
                        const enigma_context *context)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    enigma_profiler *profiler = context->profiler;
    uint64_t id = eni_profiler_id(profiler);
    uint32_t device = eni_gpu_clock_device(runtime, options->device, profiler);
    eni_lock(&runtime->lock);
    eni_record_cache *cache = &prepared->cache;
    if (cache->profiler != id || cache->path != context->path) {
        cache->node =
            eni_profiler_runtime_path(profiler, context->path, eni_text_of("gpu_dispatch"), prepared->kernel->name);
        cache->category = enigma_category(profiler, eni_text_of(runtime->backend->name));
        cache->path = context->path;
        cache->profiler = id;
    }
    if (cache->launch_profiler != id || !same_size(cache->grid, options->grid) ||
        !same_size(cache->threads, options->threads) || cache->queue != options->queue ||
        cache->device != options->device) {
        cache->launch = intern_launch(prepared, options, profiler, device);
        cache->grid = options->grid;
        cache->threads = options->threads;
        cache->queue = options->queue;
        cache->device = options->device;
        cache->launch_profiler = id;
    }
    place found = {cache->node, cache->category, cache->launch};
    eni_unlock(&runtime->lock);
    return found;
}

/* An event that is being recorded. */
typedef struct recording {
    enigma_profiler *profiler;
    enigma_scope scope;
    eni_gpu_block *block; /* NULL: dropped */
} recording;

static recording begin(enigma_prepared *prepared, const enigma_dispatch_options *options, const enigma_context *context)
{
    enigma_metric asked[ENI_HOOK_METRICS];
    const enigma_metric *metrics = options->metrics;
    size_t metric_count = options->metric_count;
    eni_hook *hook = NULL;
    if (metric_count == 0) {
        const enigma_dispatch_info info = {prepared->kernel->name, options->grid, options->threads};
        metrics = asked;
        metric_count = eni_hooks_ask(&info, asked, ENI_HOOK_METRICS, &hook);
    }
    place at = find_place(prepared, options, context);
    recording event = {.profiler = context->profiler};
    event.scope = eni_profiler_begin(context->profiler, ENI_KIND_GPU, at.node, context->scope, at.category, 0);
    event.block = eni_profiler_gpu_block(context->profiler, event.scope, at.launch);
    if (metric_count != 0) {
        enigma_scope_annotate(context->profiler, event.scope, metrics, metric_count, NULL, 0);
    }
    eni_hooks_done(hook);
    return event;
}

static enigma_status end_failed(const recording *event, enigma_status status)
{
    const enigma_field error = {.key = eni_text_of("error"),
                                .value = {.type = ENIGMA_TEXT, .as.text = eni_text_of(enigma_error_message())}};
    eni_gpu_fill_block(event->block, &(eni_stamps){0}, ENI_GPU_FAILED);
    enigma_scope_annotate(event->profiler, event->scope, NULL, 0, &error, 1);
    eni_profiler_end(event->profiler, event->scope, 0);
    return status;
}

static enigma_status end_complete(const recording *event, enigma_runtime *runtime, void *ticket)
{
    eni_stamps stamps;
    runtime->backend->stamps(ticket, &stamps);
    eni_gpu_fill_block(event->block, &stamps, eni_gpu_judge(&stamps, runtime->traits.counter_bits));
    if (stamps.available && stamps.scheduling_us >= 0.0) {
        enigma_field field = {.key = eni_text_of("scheduling_us"), .value = {.type = ENIGMA_DOUBLE}};
        field.value.as.number = stamps.scheduling_us;
        enigma_scope_annotate(event->profiler, event->scope, NULL, 0, &field, 1);
    }
    eni_profiler_end(event->profiler, event->scope, 0);
    return ENIGMA_OK;
}

enigma_status eni_record_dispatch(enigma_prepared *prepared, const enigma_dispatch_options *options,
                                  const enigma_context *context)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    eni_pending_tidy(runtime, options->device, options->queue);
    eni_pending *pending = eni_pending_new();
    if (pending == NULL) {
        return ENI_NO_MEMORY();
    }
    recording event = begin(prepared, options, context);
    void *ticket;
    enigma_status status = eni_dispatch_launch(prepared, options, true, &ticket);
    if (status != ENIGMA_OK) {
        eni_pending_delete(pending);
        return end_failed(&event, status);
    }
    if (!eni_dispatch_is_async(options)) {
        status = eni_gpu_wait(runtime, ticket);
        bool later = status == ENIGMA_OK && runtime->backend->stamps_ready != NULL &&
                     !runtime->backend->stamps_ready(ticket); /* it is over; its stamps come with many others' */
        if (status != ENIGMA_E_INTERRUPTED && !later) {
            status = status == ENIGMA_OK ? end_complete(&event, runtime, ticket) : end_failed(&event, status);
            runtime->backend->release(ticket);
            eni_pending_delete(pending);
            return status;
        }
    }
    eni_pending_add(pending, prepared, ticket, options->device, options->queue, event.profiler, event.block);
    eni_profiler_end(event.profiler, event.scope, 0);
    return status;
}
