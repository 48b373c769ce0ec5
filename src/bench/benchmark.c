/* Owns enigma_benchmark: timing a prepared kernel by device stamps alone, and the statistics of the times. Called through section 15
 * of enigma.h on the thread of the runtime; a finished benchmark is immutable. */
#include <assert.h>
#include <math.h>

#include "aggregate/rates.h"
#include "aggregate/stats.h"
#include "base/sink.h"
#include "bench/bench.h"

struct enigma_benchmark {
    char *name;
    size_t name_size;
    double *times; /* in run order; count of them */
    size_t count;
    eni_stats stats;
    double flops, bytes_moved; /* negative: not given */
};

/* ---- making one ---- */

enigma_status eni_bench_check_work(double flops, double bytes_moved)
{
    if (!isfinite(flops) || !isfinite(bytes_moved)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is %g; it must be finite", isfinite(flops) ? "bytes_moved" : "flops",
                        isfinite(flops) ? bytes_moved : flops);
    }
    return ENIGMA_OK;
}

static enigma_status allocate(enigma_text name, size_t count, enigma_benchmark **out)
{
    *out = NULL;
    if (count > SIZE_MAX / sizeof(double)) {
        return ENI_NO_MEMORY();
    }
    enigma_benchmark *benchmark = ENI_NEW(enigma_benchmark);
    if (benchmark == NULL) {
        return ENI_NO_MEMORY();
    }
    benchmark->count = count;
    benchmark->name_size = name.size;
    benchmark->name = eni_alloc(name.size + 1);
    benchmark->times = eni_alloc(count * sizeof *benchmark->times);
    if (benchmark->name == NULL || benchmark->times == NULL) {
        enigma_benchmark_free(benchmark);
        return ENI_NO_MEMORY();
    }
    if (name.size != 0) {
        memcpy(benchmark->name, name.data, name.size);
    }
    benchmark->name[name.size] = '\0';
    *out = benchmark;
    return ENIGMA_OK;
}

/* Works out the statistics once the times are there. */
static enigma_status complete(enigma_benchmark *benchmark, double flops, double bytes_moved)
{
    size_t size = benchmark->count * sizeof(double);
    double *sorted = eni_alloc(size);
    if (sorted == NULL) {
        return ENI_NO_MEMORY();
    }
    memcpy(sorted, benchmark->times, size);
    eni_stats_sort(sorted, benchmark->count);
    eni_stats_of(sorted, benchmark->count, &benchmark->stats);
    eni_free(sorted, size);
    benchmark->flops = flops;
    benchmark->bytes_moved = bytes_moved;
    return ENIGMA_OK;
}

/* ---- measuring ---- */

static enigma_status check_options(enigma_prepared *prepared, const enigma_benchmark_options *options)
{
    if (prepared == NULL || options == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", prepared == NULL ? "prepared" : "options");
    }
    if (options->struct_size < sizeof *options) {
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "enigma_benchmark_options.struct_size is %u; start from ENIGMA_BENCHMARK_OPTIONS_INIT",
                        options->struct_size);
    }
    if (options->repeat == 0 || options->repeat > SIZE_MAX) {
        return ENI_FAIL(ENIGMA_E_INVALID, "repeat is 0; it must be at least 1");
    }
    return eni_bench_check_work(options->flops, options->bytes_moved);
}

enigma_status eni_bench_warm_up(enigma_prepared *prepared, const enigma_dispatch_options *dispatch, uint64_t runs)
{
    uint64_t asked_ns = 0;
    ENI_TRY(eni_dispatch_check(prepared, dispatch));
    ENI_TRY(eni_pending_wait(&(eni_pending_filter){.runtime = prepared->kernel->runtime}));
    for (uint64_t i = 0; i < runs; i++) {
        ENI_TRY(eni_dispatch_untimed(prepared, dispatch));
        ENI_TRY(eni_gpu_check_interrupt(&asked_ns));
    }
    return ENIGMA_OK;
}

static enigma_status measure(enigma_prepared *prepared, const enigma_dispatch_options *dispatch, double *times,
                             size_t count)
{
    eni_measure_result results[ENI_MEASURE_BATCH];
    uint64_t asked_ns = 0;
    for (size_t done = 0; done < count;) {
        size_t batch = count - done < ENI_MEASURE_BATCH ? count - done : ENI_MEASURE_BATCH;
        ENI_TRY(eni_dispatch_measure_batch(prepared, dispatch, batch, &asked_ns, results));
        for (size_t i = 0; i < batch; i++, done++) {
            if (results[i].why != NULL) {
                return ENI_FAIL(ENIGMA_E_DEVICE, "kernel %s: run %zu of %zu has no valid device time: %s",
                                prepared->kernel->name.data, done + 1, count, results[i].why);
            }
            times[done] = results[i].us;
        }
    }
    return ENIGMA_OK;
}

enigma_status enigma_benchmark_kernel(enigma_prepared *prepared, const enigma_benchmark_options *options,
                                      enigma_benchmark **out)
{
    if (out == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "out is NULL");
    }
    *out = NULL;
    ENI_TRY(check_options(prepared, options));
    enigma_dispatch_options dispatch = ENIGMA_DISPATCH_OPTIONS_INIT;
    dispatch.grid = options->grid;
    dispatch.threads = options->threads;
    dispatch.queue = options->queue;
    dispatch.device = options->device;
    ENI_TRY(eni_dispatch_check(prepared, &dispatch));
    enigma_benchmark *benchmark;
    ENI_TRY(allocate(prepared->kernel->name, options->repeat, &benchmark));
    enigma_status status = eni_bench_warm_up(prepared, &dispatch, options->warmup);
    if (status == ENIGMA_OK) {
        status = measure(prepared, &dispatch, benchmark->times, benchmark->count);
    }
    if (status == ENIGMA_OK) {
        status = complete(benchmark, options->flops, options->bytes_moved);
    }
    if (status != ENIGMA_OK) {
        enigma_benchmark_free(benchmark);
        return status;
    }
    *out = benchmark;
    return ENIGMA_OK;
}

/* ---- times measured elsewhere ---- */

static enigma_status check_times(const double *times, size_t count)
{
    if (times == NULL || count == 0) {
        return ENI_FAIL(ENIGMA_E_INVALID, "a benchmark needs at least one time");
    }
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(times[i]) || times[i] < 0.0) {
            return ENI_FAIL(ENIGMA_E_INVALID, "gpu_times_us[%zu] is %g; times are finite and not negative", i,
                            times[i]);
        }
    }
    return ENIGMA_OK;
}

enigma_status enigma_benchmark_from_times(enigma_text kernel_name, const double *gpu_times_us, size_t count,
                                          double flops, double bytes_moved, enigma_benchmark **out)
{
    if (out == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "out is NULL");
    }
    *out = NULL;
    ENI_TRY(check_times(gpu_times_us, count));
    ENI_TRY(eni_bench_check_work(flops, bytes_moved));
    enigma_benchmark *benchmark;
    ENI_TRY(allocate(eni_text_in(kernel_name), count, &benchmark));
    memcpy(benchmark->times, gpu_times_us, count * sizeof *gpu_times_us);
    enigma_status status = complete(benchmark, flops, bytes_moved);
    if (status != ENIGMA_OK) {
        enigma_benchmark_free(benchmark);
        return status;
    }
    *out = benchmark;
    return ENIGMA_OK;
}

/* ---- reading ---- */

static double rate(const enigma_benchmark *benchmark, double work)
{
    return work < 0.0 ? 0.0 : eni_rate_giga_per_s(work, benchmark->stats.median);
}

void enigma_benchmark_get(const enigma_benchmark *benchmark, enigma_benchmark_info *out)
{
    assert(benchmark != NULL && out != NULL && out->struct_size >= sizeof *out);
    *out = (enigma_benchmark_info){
        .struct_size = sizeof *out,
        .kernel_name = {benchmark->name, benchmark->name_size},
        .gpu_times_us = benchmark->times,
        .calls = benchmark->count,
        .min_us = benchmark->stats.min,
        .median_us = benchmark->stats.median,
        .mean_us = benchmark->stats.mean,
        .p90_us = benchmark->stats.p90,
        .max_us = benchmark->stats.max,
        .flops = benchmark->flops,
        .bytes_moved = benchmark->bytes_moved,
        .gflops_per_s = rate(benchmark, benchmark->flops),
        .gbytes_per_s = rate(benchmark, benchmark->bytes_moved),
    };
}

/* The summary stays one line whatever the name is. */
static void write_name(eni_sink *sink, const enigma_benchmark *benchmark)
{
    const char *at = benchmark->name;
    const char *end = at + benchmark->name_size;
    while (at < end) {
        char bytes[4];
        uint32_t code = eni_utf8_next(&at, end);
        eni_sink_write(sink, bytes, eni_utf8_put(code < 0x20 || code == 0x7f ? 0xfffd : code, bytes));
    }
}

enigma_status enigma_benchmark_write_summary(const enigma_benchmark *benchmark, enigma_write_fn write, void *user)
{
    if (benchmark == NULL || write == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", benchmark == NULL ? "benchmark" : "write");
    }
    eni_sink sink;
    const eni_stats *stats = &benchmark->stats;
    ENI_TRY(eni_sink_init(&sink, write, user));
    write_name(&sink, benchmark);
    eni_sink_printf(&sink, ": %zu run%s, min %.3f us, p50 %.3f us, mean %.3f us, p90 %.3f us, max %.3f us",
                    benchmark->count, benchmark->count == 1 ? "" : "s", stats->min, stats->median, stats->mean,
                    stats->p90, stats->max);
    if (benchmark->flops >= 0.0) {
        eni_sink_printf(&sink, ", %.3f GFLOP/s", rate(benchmark, benchmark->flops));
    }
    if (benchmark->bytes_moved >= 0.0) {
        eni_sink_printf(&sink, ", %.3f GB/s", rate(benchmark, benchmark->bytes_moved));
    }
    return eni_sink_finish(&sink);
}

void enigma_benchmark_free(enigma_benchmark *benchmark)
{
    if (benchmark == NULL) {
        return;
    }
    eni_free(benchmark->name, benchmark->name_size + 1);
    eni_free(benchmark->times, benchmark->count * sizeof *benchmark->times);
    ENI_DELETE(benchmark);
}
