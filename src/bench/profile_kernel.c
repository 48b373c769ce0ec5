/* enigma_profile_kernel: repeated dispatches under a profiler of its own, aggregated. The active profiler of the caller is not
 * touched: the place of recording is given with each dispatch. On the thread of the runtime. */
#include "bench/bench.h"

static enigma_status check_options(const enigma_prepared *prepared, const enigma_profile_kernel_options *options)
{
    if (prepared == NULL || options == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", prepared == NULL ? "prepared" : "options");
    }
    if (options->struct_size < sizeof *options) {
        return ENI_FAIL(
            ENIGMA_E_INVALID,
            "enigma_profile_kernel_options.struct_size is %u; start from ENIGMA_PROFILE_KERNEL_OPTIONS_INIT",
            options->struct_size);
    }
    if (options->repeat == 0) {
        return ENI_FAIL(ENIGMA_E_INVALID, "repeat is 0; it must be at least 1");
    }
    return ENIGMA_OK;
}

static enigma_status record(enigma_profiler *profiler, enigma_prepared *prepared,
                            const enigma_dispatch_options *dispatch, uint64_t runs)
{
    const enigma_context context = {.profiler = profiler};
    uint64_t asked_ns = 0;
    for (uint64_t i = 0; i < runs; i++) {
        ENI_TRY(eni_record_dispatch(prepared, dispatch, &context));
        ENI_TRY(eni_gpu_check_interrupt(&asked_ns));
    }
    return ENIGMA_OK;
}

static enigma_status aggregate(enigma_profiler *profiler, enigma_result **out)
{
    enigma_profile *profile;
    ENI_TRY(enigma_profiler_snapshot(profiler, &profile));
    enigma_status status = enigma_profile_key_averages(profile, ENIGMA_GROUP_NAME, out);
    enigma_profile_free(profile); /* the result keeps it */
    return status;
}

/* Records between open and seal; the profiler is sealed whatever happens. */
static enigma_status record_sealed(enigma_profiler *profiler, enigma_prepared *prepared,
                                   const enigma_dispatch_options *dispatch, uint64_t runs)
{
    ENI_TRY(enigma_profiler_open(profiler));
    enigma_status status = record(profiler, prepared, dispatch, runs);
    enigma_status sealed = enigma_profiler_seal(profiler);
    return status != ENIGMA_OK ? status : sealed;
}

enigma_status enigma_profile_kernel(enigma_prepared *prepared, const enigma_profile_kernel_options *options,
                                    enigma_result **out)
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
    ENI_TRY(eni_bench_warm_up(prepared, &dispatch, options->warmup));
    enigma_profiler_options recording = ENIGMA_PROFILER_OPTIONS_INIT;
    recording.flags = options->profile_memory ? ENIGMA_PROFILER_PROFILE_MEMORY : 0;
    enigma_profiler *profiler;
    ENI_TRY(enigma_profiler_create(&recording, &profiler));
    enigma_status status = record_sealed(profiler, prepared, &dispatch, options->repeat);
    if (status == ENIGMA_OK) {
        status = aggregate(profiler, out);
    }
    enigma_profiler_free(profiler);
    return status;
}
