/* Section 16 of enigma.h: scripted runtimes. The host clock's own functions are in base/clock.c. */
#include "gpu/gpu.h"

enigma_status enigma_scripted_open(const enigma_scripted_options *options, enigma_runtime **out)
{
    static const enigma_scripted_options defaults = ENIGMA_SCRIPTED_OPTIONS_INIT;
    if (out == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "out is NULL");
    }
    *out = NULL;
    if (options != NULL && options->struct_size < sizeof *options) {
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "enigma_scripted_options.struct_size is %u; start from ENIGMA_SCRIPTED_OPTIONS_INIT",
                        options->struct_size);
    }
    return eni_runtime_create(&eni_backend_scripted, 0, options == NULL ? &defaults : options, out);
}

static enigma_status check_scripted(const enigma_runtime *runtime)
{
    if (runtime == NULL || runtime->backend != &eni_backend_scripted) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s", runtime == NULL ? "runtime is NULL" : "this is no scripted runtime");
    }
    return ENIGMA_OK;
}

enigma_status enigma_scripted_push(enigma_runtime *runtime, uint32_t device, uint32_t queue,
                                   const enigma_script *scripts, size_t count)
{
    ENI_TRY(check_scripted(runtime));
    if (device >= runtime->traits.device_count || queue >= runtime->traits.queue_limit) {
        return ENI_FAIL(ENIGMA_E_INVALID, "queue %u of device %u does not exist: there are %u queues and %u devices",
                        queue, device, runtime->traits.queue_limit, runtime->traits.device_count);
    }
    if (scripts == NULL && count != 0) {
        return ENI_FAIL(ENIGMA_E_INVALID, "scripts is NULL and count is not 0");
    }
    for (size_t i = 0; i < count; i++) {
        if (scripts[i].kind > ENIGMA_SCRIPT_FAILURE) {
            return ENI_FAIL(ENIGMA_E_INVALID, "script %zu has the unknown kind %u", i, scripts[i].kind);
        }
    }
    eni_lock(&runtime->lock);
    enigma_status status = eni_scripted_push(runtime->device, device, queue, scripts, count);
    eni_unlock(&runtime->lock);
    return status;
}

enigma_status enigma_scripted_counts(const enigma_runtime *runtime, uint64_t *untimed, uint64_t *timed)
{
    uint64_t counts[2];
    ENI_TRY(check_scripted(runtime));
    eni_scripted_counts(runtime->device, &counts[0], &counts[1]);
    if (untimed != NULL) {
        *untimed = counts[0];
    }
    if (timed != NULL) {
        *timed = counts[1];
    }
    return ENIGMA_OK;
}
