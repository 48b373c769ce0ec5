/* Owns enigma_runtime: choosing and opening a device, its facts, its references. Called through section 11 of enigma.h, by one
 * thread at a time for each runtime; the last reference may be dropped on any thread. */
#include <assert.h>

#include "base/settings.h"
#include "base/str.h"
#include "gpu/gpu.h"

/* ---- references ---- */

void eni_runtime_retain(enigma_runtime *runtime) { __atomic_fetch_add(&runtime->references, 1, __ATOMIC_RELAXED); }

static void free_memory(enigma_runtime *runtime)
{
    eni_free(runtime->queues, runtime->queue_count * sizeof *runtime->queues);
    eni_free(runtime->clocks, runtime->traits.device_count * sizeof *runtime->clocks);
    eni_facts_free(&runtime->facts);
    eni_strfree(runtime->failure.message);
    pthread_mutex_destroy(&runtime->lock);
    pthread_mutex_destroy(&runtime->clock_lock);
    ENI_DELETE(runtime);
}

void eni_runtime_release(enigma_runtime *runtime)
{
    if (__atomic_sub_fetch(&runtime->references, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    if (runtime->generation == eni_fork_generation) { /* else the driver's state is the parent's */
        eni_pending_delist(runtime);
        runtime->backend->close(runtime->device);
    }
    free_memory(runtime);
}

enigma_status eni_runtime_check(const enigma_runtime *runtime)
{
    if (ENI_UNLIKELY(runtime->generation != eni_fork_generation)) {
        return ENI_FAIL(ENIGMA_E_STATE,
                        "this runtime was opened before fork and belongs to the parent process; open one in the "
                        "child");
    }
    return ENIGMA_OK;
}

void enigma_runtime_free(enigma_runtime *runtime)
{
    if (runtime == NULL) {
        return;
    }
    __atomic_store_n(&runtime->released, 1, __ATOMIC_RELEASE);
    if (runtime->generation == eni_fork_generation) {
        eni_pending_wait(&(eni_pending_filter){.runtime = runtime});
    }
    eni_runtime_release(runtime);
}

/* ---- opening ---- */

/* The facts that follow from the contract, for every backend alike. */
static void add_common_facts(enigma_runtime *runtime)
{
    const eni_traits *traits = &runtime->traits;
    eni_facts_uint(&runtime->facts, "max_group_threads", traits->max_group_threads);
    eni_facts_uint3(&runtime->facts, "max_group_size", traits->max_group);
    eni_facts_bool(&runtime->facts, "partial_groups", traits->partial_groups);
}

static enigma_status open_device(enigma_runtime *runtime, uint32_t index, const void *config)
{
    eni_facts_text(&runtime->facts, "backend", eni_text_of(runtime->backend->name));
    eni_facts_uint(&runtime->facts, "device_index", index);
    ENI_TRY(runtime->backend->open(index, config, &runtime->device, &runtime->traits, &runtime->facts));
    add_common_facts(runtime);
    runtime->queue_count = (size_t)runtime->traits.queue_limit * runtime->traits.device_count;
    runtime->queues = eni_alloc_zero(runtime->queue_count * sizeof *runtime->queues);
    runtime->clocks = eni_alloc_zero(runtime->traits.device_count * sizeof *runtime->clocks);
    if (runtime->facts.failed || runtime->queues == NULL || runtime->clocks == NULL) {
        runtime->backend->close(runtime->device);
        return ENI_NO_MEMORY();
    }
    return ENIGMA_OK;
}

enigma_status eni_runtime_create(const eni_backend *backend, uint32_t index, const void *config, enigma_runtime **out)
{
    *out = NULL;
    enigma_runtime *runtime = ENI_NEW(enigma_runtime);
    if (runtime == NULL) {
        return ENI_NO_MEMORY();
    }
    runtime->references = 1;
    runtime->generation = eni_fork_generation;
    runtime->backend = backend;
    pthread_mutex_init(&runtime->lock, NULL);
    pthread_mutex_init(&runtime->clock_lock, NULL);
    enigma_status status = open_device(runtime, index, config);
    if (status != ENIGMA_OK) {
        free_memory(runtime);
        return status;
    }
    eni_pending_enlist(runtime);
    *out = runtime;
    return ENIGMA_OK;
}

static enigma_status open_backend(const eni_backend *backend, uint32_t device, enigma_runtime **out)
{
    uint32_t count;
    ENI_TRY(backend->device_count(&count));
    if (device >= count) {
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "device %u is out of range: %s has %u device%s on this machine, numbered from 0", device,
                        backend->title, count, count == 1 ? "" : "s");
    }
    return eni_runtime_create(backend, device, NULL, out);
}

/* The first built backend that has a device; where there is none, what each of them misses. */
static enigma_status open_best(uint32_t device, enigma_runtime **out)
{
    eni_str reasons = {0};
    const eni_backend *backend;
    for (size_t i = 0; (backend = eni_backend_at(i)) != NULL; i++) {
        uint32_t count;
        if (backend->load == NULL || !backend->automatic) {
            continue;
        }
        if (backend->load() == ENIGMA_OK && backend->device_count(&count) == ENIGMA_OK) {
            eni_str_free(&reasons);
            return open_backend(backend, device, out);
        }
        eni_str_printf(&reasons, "%s%s: %s", reasons.size == 0 ? "" : "\n", backend->title, enigma_error_message());
    }
    enigma_status status = reasons.failed ? ENI_NO_MEMORY()
                                          : ENI_FAIL(ENIGMA_E_UNAVAILABLE, "no backend has a device here\n%s",
                                                     reasons.data == NULL ? "" : reasons.data);
    eni_str_free(&reasons);
    return status;
}

/* Fills in what the settings say where the caller said nothing. */
static enigma_status apply_settings(const char **backend, uint32_t *device)
{
    const eni_settings *settings;
    ENI_TRY(eni_settings_get(&settings));
    if (*backend == NULL) {
        *backend = settings->backend;
    }
    if (*device == ENIGMA_DEVICE_DEFAULT) {
        if (settings->device >= ENIGMA_DEVICE_DEFAULT) {
            return ENI_FAIL(ENIGMA_E_INVALID, "ENIGMA_DEVICE is %llu: no backend has so many devices",
                            (unsigned long long)settings->device);
        }
        *device = (uint32_t)settings->device;
    }
    return ENIGMA_OK;
}

enigma_status enigma_runtime_open(const char *backend, uint32_t device, enigma_runtime **out)
{
    if (out == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "out is NULL");
    }
    *out = NULL;
    ENI_TRY(apply_settings(&backend, &device));
    if (backend == NULL) {
        return open_best(device, out);
    }
    const eni_backend *found;
    ENI_TRY(eni_backend_get(backend, &found));
    return open_backend(found, device, out);
}

/* ---- the rest of section 11 ---- */

int enigma_runtime_fact(const enigma_runtime *runtime, size_t index, enigma_field *out)
{
    assert(runtime != NULL && out != NULL);
    if (index >= runtime->facts.count) {
        *out = (enigma_field){0};
        return 0;
    }
    *out = runtime->facts.fields[index];
    return 1;
}

enigma_status enigma_runtime_synchronize(enigma_runtime *runtime)
{
    if (runtime == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "runtime is NULL");
    }
    ENI_TRY(eni_runtime_check(runtime));
    ENI_TRY(eni_pending_wait(&(eni_pending_filter){.runtime = runtime}));
    return eni_pending_failure(&runtime->failure);
}
