/* Running prepared kernels: the untimed fast path, the timed path without an event, and the checks before both. Called through
 * section 14 of enigma.h and by bench/, by one thread at a time for each runtime. The recorded path is record.c. */
#include <assert.h>

#include "gpu/gpu.h"

/* ---- checks ---- */

typedef struct axis {
    uint64_t grid, threads, max_grid, max_threads;
    char name;
} axis;

static enigma_status check_axis(const enigma_runtime *runtime, const axis *a)
{
    unsigned long long grid = a->grid, threads = a->threads;
    if (grid == 0 || threads == 0) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s.%c is 0; it must be at least 1", grid == 0 ? "grid" : "threads", a->name);
    }
    if (threads > a->max_threads || grid > a->max_grid) {
        bool group = threads > a->max_threads;
        return ENI_FAIL(ENIGMA_E_INVALID, "%s.%c is %llu; this device takes at most %llu", group ? "threads" : "grid",
                        a->name, group ? threads : grid, (unsigned long long)(group ? a->max_threads : a->max_grid));
    }
    if (!runtime->traits.partial_groups && grid % threads != 0) {
        return ENI_FAIL(
            ENIGMA_E_INVALID,
            "grid.%c = %llu is not a multiple of threads.%c = %llu, and this device cannot run partial groups: "
            "make the grid %llu and let the kernel return where its index is past the end, or choose threads that "
            "divide %llu",
            a->name, grid, a->name, threads, (grid / threads + 1) * threads, grid);
    }
    return ENIGMA_OK;
}

static enigma_status check_group(const enigma_prepared *prepared, enigma_size3 threads)
{
    const eni_traits *traits = &prepared->kernel->runtime->traits;
    uint64_t limit = traits->max_group_threads;
    if (prepared->info->max_group_threads != 0 && prepared->info->max_group_threads < limit) {
        limit = prepared->info->max_group_threads;
    }
    uint64_t total;
    if (__builtin_mul_overflow(threads.x, threads.y, &total) || __builtin_mul_overflow(total, threads.z, &total) ||
        total > limit) {
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "threads (%llu, %llu, %llu) are more than the %llu that kernel %s can have in a group",
                        (unsigned long long)threads.x, (unsigned long long)threads.y, (unsigned long long)threads.z,
                        (unsigned long long)limit, prepared->kernel->name.data);
    }
    return ENIGMA_OK;
}

static enigma_status check_sizes(const enigma_prepared *prepared, enigma_size3 grid, enigma_size3 threads)
{
    const enigma_runtime *runtime = prepared->kernel->runtime;
    const eni_traits *traits = &runtime->traits;
    const axis axes[3] = {{grid.x, threads.x, traits->max_grid[0], traits->max_group[0], 'x'},
                          {grid.y, threads.y, traits->max_grid[1], traits->max_group[1], 'y'},
                          {grid.z, threads.z, traits->max_grid[2], traits->max_group[2], 'z'}};
    for (int i = 0; i < 3; i++) {
        ENI_TRY(check_axis(runtime, &axes[i]));
    }
    uint64_t total;
    if (__builtin_mul_overflow(grid.x, grid.y, &total) || __builtin_mul_overflow(total, grid.z, &total)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "the grid has more than 2^64 threads");
    }
    return check_group(prepared, threads);
}

enigma_status eni_dispatch_check(enigma_prepared *prepared, const enigma_dispatch_options *options)
{
    if (ENI_UNLIKELY(prepared == NULL || options == NULL)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", prepared == NULL ? "prepared" : "options");
    }
    const enigma_runtime *runtime = prepared->kernel->runtime;
    ENI_TRY(eni_runtime_check(runtime));
    if (ENI_UNLIKELY(options->struct_size < sizeof *options)) {
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "enigma_dispatch_options.struct_size is %u; start from ENIGMA_DISPATCH_OPTIONS_INIT",
                        options->struct_size);
    }
    if (ENI_UNLIKELY((options->flags & ~(uint32_t)(ENIGMA_DISPATCH_ASYNC | ENIGMA_DISPATCH_UNRECORDED)) != 0)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "the dispatch flags %#x are not known", options->flags);
    }
    if (ENI_UNLIKELY(options->queue >= runtime->traits.queue_limit ||
                     options->device >= runtime->traits.device_count)) {
        return ENI_FAIL(
            ENIGMA_E_INVALID, "queue %u of device %u: the runtime has %u queue%s and %u device%s, numbered from 0",
            options->queue, options->device, runtime->traits.queue_limit, runtime->traits.queue_limit == 1 ? "" : "s",
            runtime->traits.device_count, runtime->traits.device_count == 1 ? "" : "s");
    }
    if (ENI_UNLIKELY(options->metrics == NULL && options->metric_count != 0)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "metrics is NULL and metric_count is not 0");
    }
    return check_sizes(prepared, options->grid, options->threads);
}

/* ---- launching ---- */

enigma_status eni_dispatch_launch(enigma_prepared *prepared, const enigma_dispatch_options *options, bool timed,
                                  void **ticket)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    const eni_launch_request request = {.kernel = prepared->handle,
                                        .grid = options->grid,
                                        .threads = options->threads,
                                        .queue = options->queue,
                                        .device = options->device,
                                        .timed = timed};
    eni_lock(&runtime->lock);
    enigma_status status = runtime->backend->launch(runtime->device, &request, ticket);
    eni_unlock(&runtime->lock);
    return status;
}

/* Launches with a ticket, so that the wait can be interrupted or done by somebody else. */
static enigma_status untimed_with_ticket(enigma_prepared *prepared, const enigma_dispatch_options *options)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    eni_pending *pending = eni_pending_new();
    if (pending == NULL) {
        return ENI_NO_MEMORY();
    }
    void *ticket;
    enigma_status status = eni_dispatch_launch(prepared, options, false, &ticket);
    if (status != ENIGMA_OK) {
        eni_pending_delete(pending);
        return status;
    }
    if (!eni_dispatch_is_async(options)) {
        status = eni_gpu_wait(runtime, ticket);
        if (status != ENIGMA_E_INTERRUPTED) {
            runtime->backend->release(ticket);
            eni_pending_delete(pending);
            return status;
        }
    }
    eni_pending_add(pending, prepared, ticket, options->device, options->queue, NULL, NULL);
    return status;
}

enigma_status eni_dispatch_untimed(enigma_prepared *prepared, const enigma_dispatch_options *options)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    eni_pending_tidy(runtime, options->device, options->queue);
    if (eni_dispatch_is_async(options) || !eni_gpu_may_block(runtime)) {
        return untimed_with_ticket(prepared, options);
    }
    ENI_TRY(eni_dispatch_launch(prepared, options, false, NULL));
    return runtime->backend->finish(runtime->device, options->device, options->queue);
}

enigma_context eni_dispatch_context(const enigma_dispatch_options *options)
{
    enigma_context none = {0};
    if ((options->flags & ENIGMA_DISPATCH_UNRECORDED) != 0) {
        return none;
    }
    enigma_context context = options->context != NULL ? *options->context
                             : ENIGMA_ON_()           ? enigma_context_current()
                                                      : none;
    return context.profiler != NULL && eni_profiler_recording(context.profiler) ? context : none;
}

enigma_status enigma_dispatch(enigma_prepared *prepared, const enigma_dispatch_options *options)
{
    ENI_TRY(eni_dispatch_check(prepared, options));
    enigma_context context = eni_dispatch_context(options);
    return context.profiler == NULL ? eni_dispatch_untimed(prepared, options)
                                    : eni_record_dispatch(prepared, options, &context);
}

/* ---- timed, without an event ---- */

/* Launches once and waits; an interrupted launch is left to complete. ticket: of a complete launch, NULL after a failure. */
static enigma_status run_timed(enigma_prepared *prepared, const enigma_dispatch_options *options, void **ticket)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    *ticket = NULL;
    eni_pending_tidy(runtime, options->device, options->queue);
    eni_pending *pending = eni_pending_new();
    if (pending == NULL) {
        return ENI_NO_MEMORY();
    }
    void *launched;
    enigma_status status = eni_dispatch_launch(prepared, options, true, &launched);
    if (status == ENIGMA_OK) {
        status = eni_gpu_wait(runtime, launched);
        if (status == ENIGMA_E_INTERRUPTED) {
            eni_pending_add(pending, prepared, launched, options->device, options->queue, NULL, NULL);
            return status;
        }
        if (status == ENIGMA_OK) {
            *ticket = launched;
        } else {
            runtime->backend->release(launched);
        }
    }
    eni_pending_delete(pending);
    return status;
}

/* Takes the stamps of a complete launch and lets it go. */
static void take_stamps(const enigma_runtime *runtime, void *ticket, double *out_us, const char **why)
{
    eni_stamps stamps = {0};
    runtime->backend->stamps(ticket, &stamps);
    runtime->backend->release(ticket);
    uint32_t verdict = eni_gpu_judge(&stamps, runtime->traits.counter_bits);
    *out_us = verdict == ENI_GPU_VALID ? eni_gpu_stamps_us(&stamps, &runtime->traits) : 0.0;
    *why = verdict == ENI_GPU_VALID ? NULL : eni_gpu_status_text(verdict);
}

enigma_status eni_dispatch_measure_batch(enigma_prepared *prepared, const enigma_dispatch_options *options,
                                         size_t count, uint64_t *asked_ns, eni_measure_result *out)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    void *tickets[ENI_MEASURE_BATCH];
    size_t ran = 0;
    enigma_status status = ENIGMA_OK;
    assert(count <= ENI_MEASURE_BATCH);
    while (ran < count && status == ENIGMA_OK) {
        status = run_timed(prepared, options, &tickets[ran]);
        if (status == ENIGMA_OK) {
            ran++;
            status = eni_gpu_check_interrupt(asked_ns);
        }
    }
    for (size_t i = 0; i < ran; i++) {
        if (status == ENIGMA_OK) {
            take_stamps(runtime, tickets[i], &out[i].us, &out[i].why);
        } else {
            runtime->backend->release(tickets[i]);
        }
    }
    return status;
}

enigma_status enigma_dispatch_timed(enigma_prepared *prepared, const enigma_dispatch_options *options, double *out_us)
{
    if (out_us == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "out_us is NULL");
    }
    *out_us = 0.0;
    ENI_TRY(eni_dispatch_check(prepared, options));
    if (eni_dispatch_is_async(options)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "a timed dispatch waits: ENIGMA_DISPATCH_ASYNC cannot be set");
    }
    void *ticket;
    const char *why;
    ENI_TRY(run_timed(prepared, options, &ticket));
    take_stamps(prepared->kernel->runtime, ticket, out_us, &why);
    if (why != NULL) { /* no failure of the call, but the reason can be read */
        ENI_FAIL(ENIGMA_E_DEVICE, "kernel %s ran, and its device time is not valid: %s", prepared->kernel->name.data,
                 why);
    }
    return ENIGMA_OK;
}
