/* Owns enigma_buffer: device memory of a runtime. Called through section 12 of enigma.h, by one thread at a time. */
#include <assert.h>

#include "gpu/gpu.h"

enigma_status eni_buffer_make(enigma_runtime *runtime, size_t size, const void *data, enigma_buffer **out)
{
    *out = NULL;
    enigma_buffer *buffer = ENI_NEW(enigma_buffer);
    if (buffer == NULL) {
        return ENI_NO_MEMORY();
    }
    eni_lock(&runtime->lock);
    enigma_status status = runtime->backend->buffer_create(runtime->device, size, data, &buffer->handle);
    eni_unlock(&runtime->lock);
    if (status != ENIGMA_OK) {
        ENI_DELETE(buffer);
        return status;
    }
    buffer->references = 1;
    buffer->runtime = runtime;
    buffer->size = size;
    eni_runtime_retain(runtime);
    *out = buffer;
    return ENIGMA_OK;
}

void eni_buffer_retain(enigma_buffer *buffer) { __atomic_fetch_add(&buffer->references, 1, __ATOMIC_RELAXED); }

enigma_status enigma_buffer_create(enigma_runtime *runtime, size_t size, const void *data, enigma_buffer **out)
{
    if (out == NULL || runtime == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", out == NULL ? "out" : "runtime");
    }
    *out = NULL;
    if (size == 0) {
        return ENI_FAIL(ENIGMA_E_INVALID, "a buffer of 0 bytes cannot be made");
    }
    ENI_TRY(eni_runtime_check(runtime));
    return eni_buffer_make(runtime, size, data, out);
}

static enigma_status check_range(const enigma_buffer *buffer, size_t offset, const void *data, size_t size)
{
    if (buffer == NULL || (data == NULL && size != 0)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", buffer == NULL ? "buffer" : "data");
    }
    if (offset > buffer->size || size > buffer->size - offset) {
        return ENI_FAIL(ENIGMA_E_INVALID, "bytes %zu to %zu are outside of a buffer of %zu", offset, offset + size,
                        buffer->size);
    }
    return eni_runtime_check(buffer->runtime);
}

enigma_status enigma_buffer_write(enigma_buffer *buffer, size_t offset, const void *data, size_t size)
{
    ENI_TRY(check_range(buffer, offset, data, size));
    enigma_runtime *runtime = buffer->runtime;
    ENI_TRY(eni_pending_wait(&(eni_pending_filter){.runtime = runtime}));
    if (size == 0) {
        return ENIGMA_OK;
    }
    eni_lock(&runtime->lock);
    enigma_status status = runtime->backend->buffer_write(buffer->handle, offset, data, size);
    eni_unlock(&runtime->lock);
    return status;
}

enigma_status enigma_buffer_read(enigma_buffer *buffer, size_t offset, void *data, size_t size)
{
    ENI_TRY(check_range(buffer, offset, data, size));
    enigma_runtime *runtime = buffer->runtime;
    ENI_TRY(eni_pending_wait(&(eni_pending_filter){.runtime = runtime}));
    if (size == 0) {
        return ENIGMA_OK;
    }
    eni_lock(&runtime->lock);
    enigma_status status = runtime->backend->buffer_read(buffer->handle, offset, data, size);
    eni_unlock(&runtime->lock);
    return status;
}

size_t enigma_buffer_size(const enigma_buffer *buffer)
{
    assert(buffer != NULL);
    return buffer->size;
}

void enigma_buffer_free(enigma_buffer *buffer)
{
    if (buffer == NULL || __atomic_sub_fetch(&buffer->references, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    enigma_runtime *runtime = buffer->runtime;
    if (runtime->generation == eni_fork_generation) {
        eni_lock(&runtime->lock);
        runtime->backend->buffer_free(buffer->handle);
        eni_unlock(&runtime->lock);
    }
    ENI_DELETE(buffer);
    eni_runtime_release(runtime);
}
