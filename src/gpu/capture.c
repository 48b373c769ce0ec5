/* Vendor capture of a profiled region (.gputrace). The recorder calls it when a profiler with a capture path starts and ends;
 * everything that is missing is named. One capture at a time in a process, as the vendor's own. */
#include <stdlib.h>
#include <unistd.h>

#include "gpu/gpu.h"

#define CAPTURE_VARIABLE "MTL_CAPTURE_ENABLED"

static enigma_runtime *capturing; /* a reference; atomic */

/* A runtime of a backend that can capture, with a reference; NULL: none. */
static enigma_runtime *find_runtime(void)
{
    enigma_runtime *runtime = eni_pending_next_runtime(0);
    while (runtime != NULL && runtime->backend->capture_begin == NULL) {
        uint64_t key = runtime->key;
        eni_runtime_release(runtime);
        runtime = eni_pending_next_runtime(key);
    }
    return runtime;
}

static enigma_status check_environment(const char *path)
{
#if !defined(__APPLE__)
    return ENI_FAIL(
        ENIGMA_E_UNAVAILABLE,
        "GPU capture to %s is not possible: it needs Metal, which exists on macOS only (there, set " CAPTURE_VARIABLE
        "=1 before the process starts and open a MetalRuntime first)",
        path);
#else
    const char *value = getenv(CAPTURE_VARIABLE);
    if (value == NULL || strcmp(value, "1") != 0) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE,
                        "GPU capture to %s needs " CAPTURE_VARIABLE "=1 in the environment before the "
                        "process starts",
                        path);
    }
    if (access(path, F_OK) == 0) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "GPU capture: %s exists already; remove it first", path);
    }
    return ENIGMA_OK;
#endif
}

static enigma_status begin(const char *path)
{
    ENI_TRY(check_environment(path));
    enigma_runtime *runtime = find_runtime();
    if (runtime == NULL) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE,
                        "GPU capture to %s needs a MetalRuntime, opened before the profiler starts", path);
    }
    enigma_runtime *none = NULL;
    if (!__atomic_compare_exchange_n(&capturing, &none, runtime, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        eni_runtime_release(runtime);
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "GPU capture to %s: another capture is running", path);
    }
    eni_lock(&runtime->lock);
    enigma_status status = runtime->backend->capture_begin(runtime->device, path);
    eni_unlock(&runtime->lock);
    if (status != ENIGMA_OK) {
        __atomic_store_n(&capturing, NULL, __ATOMIC_RELEASE);
        eni_runtime_release(runtime);
    }
    return status;
}

static enigma_status end(void)
{
    enigma_runtime *runtime = __atomic_exchange_n(&capturing, NULL, __ATOMIC_ACQ_REL);
    if (runtime == NULL) {
        return ENIGMA_OK;
    }
    eni_lock(&runtime->lock);
    enigma_status status = runtime->backend->capture_end(runtime->device);
    eni_unlock(&runtime->lock);
    eni_runtime_release(runtime);
    return status;
}

static enigma_status capture(const char *path) { return path == NULL ? end() : begin(path); }

__attribute__((constructor)) static void set_up(void) { eni_profiler_capture = capture; }
