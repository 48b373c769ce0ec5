/* Owns enigma_prepared: a kernel instance with its arguments checked, made and bound. Called through section 13 of enigma.h, by
 * one thread at a time for each runtime; the last reference may be dropped on any thread. */
#include <assert.h>

#include "base/str.h"
#include "gpu/gpu.h"

/* ---- checking ---- */

/* The argument as messages call it: its number and, where the driver tells them, its type and name. */
static void describe_argument(const eni_kernel_info *info, uint32_t index, char out[160])
{
    const eni_argument_info *argument = &info->arguments[index];
    if (argument->name != NULL && argument->type != NULL) {
        snprintf(out, 160, "argument %u (%s %s)", index, argument->type, argument->name);
    } else {
        snprintf(out, 160, "argument %u", index);
    }
}

static enigma_status check_scalar(const enigma_kernel *kernel, uint32_t index, size_t size)
{
    char what[160];
    const eni_argument_info *argument = &kernel->info->arguments[index];
    describe_argument(kernel->info, index, what);
    if (argument->class_ == ENI_ARGUMENT_BUFFER) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s of kernel %s is a pointer to a buffer; a value was given", what,
                        kernel->name.data);
    }
    if (argument->size != 0 && argument->size != size) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s of kernel %s has %llu byte%s; the value given has %zu", what,
                        kernel->name.data, (unsigned long long)argument->size, argument->size == 1 ? "" : "s", size);
    }
    return ENIGMA_OK;
}

static enigma_status check_memory(const enigma_kernel *kernel, uint32_t index, size_t size)
{
    char what[160];
    describe_argument(kernel->info, index, what);
    if (kernel->info->arguments[index].class_ == ENI_ARGUMENT_SCALAR) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s of kernel %s is passed by value, but a buffer of %zu bytes was given; "
                        "give a scalar (in Python a 0-d value, such as ctypes.c_float(2))", what, kernel->name.data, size);
    }
    if (size == 0) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s of kernel %s: a buffer needs at least 1 byte", what, kernel->name.data);
    }
    return ENIGMA_OK;
}

static enigma_status check_against_kernel(const enigma_kernel *kernel, uint32_t index, bool is_scalar, size_t size)
{
    char what[160];
    if (kernel->info->argument_count == ENI_ANY_ARGUMENTS) {
        return ENIGMA_OK;
    }
    if (kernel->info->arguments[index].class_ == ENI_ARGUMENT_OTHER) {
        describe_argument(kernel->info, index, what);
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "%s of kernel %s is local memory, an image, a sampler or a pipe, which prepare cannot "
                        "bind; declare local memory inside the kernel",
                        what, kernel->name.data);
    }
    return is_scalar ? check_scalar(kernel, index, size) : check_memory(kernel, index, size);
}

static enigma_status check_input(const enigma_kernel *kernel, uint32_t index, const enigma_argument *input)
{
    switch (input->kind) {
    case ENIGMA_ARGUMENT_DATA:
    case ENIGMA_ARGUMENT_SCALAR:
        if (input->data == NULL && input->size != 0) {
            return ENI_FAIL(ENIGMA_E_INVALID, "input %u has no data", index);
        }
        return check_against_kernel(kernel, index, input->kind == ENIGMA_ARGUMENT_SCALAR, input->size);
    case ENIGMA_ARGUMENT_BUFFER:
        if (input->buffer == NULL || input->buffer->runtime != kernel->runtime) {
            return ENI_FAIL(ENIGMA_E_INVALID, "input %u is %s", index,
                            input->buffer == NULL ? "no buffer" : "a buffer of another runtime");
        }
        return check_against_kernel(kernel, index, false, input->buffer->size);
    default:
        return ENI_FAIL(ENIGMA_E_INVALID, "input %u has the unknown kind %u", index, input->kind);
    }
}

static enigma_status check_count(const enigma_kernel *kernel, size_t inputs, size_t outputs)
{
    uint32_t takes = kernel->info->argument_count;
    if (inputs + outputs > UINT16_MAX) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%zu arguments are too many", inputs + outputs);
    }
    if (takes != ENI_ANY_ARGUMENTS && inputs + outputs != takes) {
        return ENI_FAIL(ENIGMA_E_INVALID, "kernel %s takes %u argument%s; %zu input%s and %zu output%s were given",
                        kernel->name.data, takes, takes == 1 ? "" : "s", inputs, inputs == 1 ? "" : "s", outputs,
                        outputs == 1 ? "" : "s");
    }
    return ENIGMA_OK;
}

static enigma_status check_arguments(const enigma_kernel *kernel, const enigma_argument *inputs, size_t input_count,
                                     const size_t *output_sizes, size_t output_count)
{
    if ((inputs == NULL && input_count != 0) || (output_sizes == NULL && output_count != 0)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL and its count is not 0",
                        inputs == NULL ? "inputs" : "output_sizes");
    }
    ENI_TRY(check_count(kernel, input_count, output_count));
    for (size_t i = 0; i < input_count; i++) {
        ENI_TRY(check_input(kernel, (uint32_t)i, &inputs[i]));
    }
    for (size_t i = 0; i < output_count; i++) {
        ENI_TRY(check_against_kernel(kernel, (uint32_t)(input_count + i), false, output_sizes[i]));
    }
    return ENIGMA_OK;
}

/* ---- shapes ---- */

/* One (shape, dtype). */
static bool describe_shape(eni_arena *arena, const enigma_argument *input, enigma_value *out)
{
    bool plain = input->shape == NULL;
    uint64_t size = input->kind == ENIGMA_ARGUMENT_BUFFER ? input->buffer->size : input->size;
    const uint64_t *shape = plain ? &size : input->shape;
    size_t rank = plain ? 1 : input->rank;
    enigma_field *pair = eni_arena_alloc(arena, 2 * sizeof *pair);
    enigma_field *extents = eni_arena_alloc(arena, (rank == 0 ? 1 : rank) * sizeof *extents);
    if (pair == NULL || extents == NULL) {
        return false;
    }
    for (size_t i = 0; i < rank; i++) {
        extents[i] = (enigma_field){.value = {.type = ENIGMA_INT}};
        extents[i].value.as.integer = (int64_t)shape[i];
    }
    pair[0] = (enigma_field){.value = {.type = ENIGMA_TUPLE}};
    pair[0].value.as.items = (enigma_items){extents, rank};
    pair[1] = (enigma_field){.value = {.type = ENIGMA_TEXT}};
    *out = (enigma_value){.type = ENIGMA_TUPLE, .as.items = {pair, 2}};
    return eni_arena_text(arena, eni_text_of(input->dtype == NULL ? "bytes" : input->dtype), &pair[1].value.as.text);
}

static enigma_status describe_shapes(enigma_prepared *prepared, const enigma_argument *inputs, size_t count)
{
    enigma_field *items = eni_arena_alloc(&prepared->arena, (count == 0 ? 1 : count) * sizeof *items);
    if (items == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = (enigma_field){0};
        if (!describe_shape(&prepared->arena, &inputs[i], &items[i].value)) {
            return ENI_NO_MEMORY();
        }
    }
    prepared->input_shapes = (enigma_value){.type = ENIGMA_LIST, .as.items = {items, count}};
    return ENIGMA_OK;
}

/* ---- the steps ---- */

enigma_status eni_prepare_begin(enigma_kernel *kernel, const enigma_argument *inputs, size_t input_count,
                                const size_t *output_sizes, size_t output_count, enigma_prepared **out)
{
    *out = NULL;
    ENI_TRY(eni_runtime_check(kernel->runtime));
    ENI_TRY(check_arguments(kernel, inputs, input_count, output_sizes, output_count));
    enigma_prepared *prepared = ENI_NEW(enigma_prepared);
    if (prepared == NULL) {
        return ENI_NO_MEMORY();
    }
    prepared->references = 1;
    prepared->kernel = kernel;
    eni_kernel_retain(kernel);
    prepared->buffers = eni_arena_alloc(&prepared->arena, (input_count + output_count + 1) * sizeof(enigma_buffer *));
    enigma_status status = prepared->buffers == NULL ? ENI_NO_MEMORY() : describe_shapes(prepared, inputs, input_count);
    if (status != ENIGMA_OK) {
        eni_prepared_release(prepared);
        return status;
    }
    *out = prepared;
    return ENIGMA_OK;
}

enigma_status eni_prepare_instance(enigma_prepared *prepared)
{
    enigma_kernel *kernel = prepared->kernel;
    eni_lock(&kernel->runtime->lock);
    enigma_status status =
        kernel->runtime->backend->kernel_create(kernel->program, kernel->name.data, &prepared->handle, &prepared->info);
    eni_unlock(&kernel->runtime->lock);
    return status;
}

/* A driver that refuses an argument does not say of which kernel. */
static enigma_status bound(const enigma_prepared *prepared, size_t index, enigma_status status)
{
    return status == ENIGMA_OK ? status
                               : ENI_FAIL(status, "kernel %s, argument %zu: %s", prepared->kernel->name.data, index,
                                          enigma_error_message());
}

/* Binds a buffer and takes over the reference. */
static enigma_status bind_buffer(enigma_prepared *prepared, size_t index, enigma_buffer *buffer)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    prepared->buffers[prepared->buffer_count++] = buffer;
    eni_lock(&runtime->lock);
    enigma_status status = runtime->backend->kernel_bind_buffer(prepared->handle, (uint32_t)index, buffer->handle);
    eni_unlock(&runtime->lock);
    return bound(prepared, index, status);
}

static enigma_status bind_input(enigma_prepared *prepared, size_t index, const enigma_argument *input)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    enigma_buffer *buffer = input->buffer;
    if (input->kind == ENIGMA_ARGUMENT_SCALAR) {
        eni_lock(&runtime->lock);
        enigma_status status =
            runtime->backend->kernel_bind_scalar(prepared->handle, (uint32_t)index, input->data, input->size);
        eni_unlock(&runtime->lock);
        return bound(prepared, index, status);
    }
    if (input->kind == ENIGMA_ARGUMENT_BUFFER) {
        eni_buffer_retain(buffer);
    } else {
        ENI_TRY(eni_buffer_make(runtime, input->size, input->data, &buffer));
    }
    prepared->input_bytes += buffer->size;
    return bind_buffer(prepared, index, buffer);
}

enigma_status eni_prepare_inputs(enigma_prepared *prepared, const enigma_argument *inputs, size_t input_count)
{
    for (size_t i = 0; i < input_count; i++) {
        ENI_TRY(bind_input(prepared, i, &inputs[i]));
    }
    return ENIGMA_OK;
}

enigma_status eni_prepare_outputs(enigma_prepared *prepared, size_t input_count, const size_t *output_sizes,
                                  size_t output_count)
{
    for (size_t i = 0; i < output_count; i++) {
        enigma_buffer *buffer;
        ENI_TRY(eni_buffer_make(prepared->kernel->runtime, output_sizes[i], NULL, &buffer));
        prepared->output_bytes += buffer->size;
        prepared->output_count++;
        ENI_TRY(bind_buffer(prepared, input_count + i, buffer));
    }
    return ENIGMA_OK;
}

enigma_status enigma_prepare(enigma_kernel *kernel, const enigma_argument *inputs, size_t input_count,
                             const size_t *output_sizes, size_t output_count, enigma_prepared **out)
{
    if (out == NULL || kernel == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", out == NULL ? "out" : "kernel");
    }
    *out = NULL;
    enigma_prepared *prepared;
    ENI_TRY(eni_prepare_begin(kernel, inputs, input_count, output_sizes, output_count, &prepared));
    enigma_status status = eni_prepare_instance(prepared);
    if (status == ENIGMA_OK) {
        status = eni_prepare_inputs(prepared, inputs, input_count);
    }
    if (status == ENIGMA_OK) {
        status = eni_prepare_outputs(prepared, input_count, output_sizes, output_count);
    }
    if (status != ENIGMA_OK) {
        eni_prepared_release(prepared);
        return status;
    }
    *out = prepared;
    return ENIGMA_OK;
}

/* ---- life ---- */

void eni_prepared_retain(enigma_prepared *prepared) { __atomic_fetch_add(&prepared->references, 1, __ATOMIC_RELAXED); }

void eni_prepared_release(enigma_prepared *prepared)
{
    if (__atomic_sub_fetch(&prepared->references, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    enigma_runtime *runtime = prepared->kernel->runtime;
    if (prepared->handle != NULL && runtime->generation == eni_fork_generation) {
        eni_lock(&runtime->lock);
        runtime->backend->kernel_free(prepared->handle);
        eni_unlock(&runtime->lock);
    }
    for (size_t i = 0; i < prepared->buffer_count; i++) {
        enigma_buffer_free(prepared->buffers[i]);
    }
    enigma_kernel_free(prepared->kernel);
    eni_strfree(prepared->failure.message);
    eni_arena_free(&prepared->arena);
    ENI_DELETE(prepared);
}

void enigma_prepared_free(enigma_prepared *prepared)
{
    if (prepared == NULL) {
        return;
    }
    const enigma_runtime *runtime = prepared->kernel->runtime;
    /* Its launches keep it alive and whoever waits next completes them; once the runtime was freed nobody may come. */
    if (runtime->generation == eni_fork_generation && __atomic_load_n(&runtime->released, __ATOMIC_ACQUIRE) != 0) {
        eni_pending_wait(&(eni_pending_filter){.prepared = prepared});
    }
    eni_prepared_release(prepared);
}

enigma_text enigma_prepared_name(const enigma_prepared *prepared)
{
    assert(prepared != NULL);
    return prepared->kernel->name;
}

size_t enigma_prepared_output_size(const enigma_prepared *prepared, size_t output)
{
    assert(prepared != NULL);
    size_t first = prepared->buffer_count - prepared->output_count;
    return output < prepared->output_count ? prepared->buffers[first + output]->size : 0;
}

enigma_status enigma_prepared_read_output(enigma_prepared *prepared, size_t output, void *data, size_t size)
{
    if (prepared == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "prepared is NULL");
    }
    if (output >= prepared->output_count) {
        return ENI_FAIL(ENIGMA_E_INVALID, "kernel %s has no output %zu: it was prepared with %zu",
                        prepared->kernel->name.data, output, prepared->output_count);
    }
    enigma_buffer *buffer = prepared->buffers[prepared->buffer_count - prepared->output_count + output];
    if (size != buffer->size) {
        return ENI_FAIL(ENIGMA_E_INVALID, "output %zu of kernel %s has %zu bytes, not %zu", output,
                        prepared->kernel->name.data, buffer->size, size);
    }
    return enigma_buffer_read(buffer, 0, data, size);
}

enigma_status enigma_prepared_wait(enigma_prepared *prepared)
{
    if (prepared == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "prepared is NULL");
    }
    ENI_TRY(eni_runtime_check(prepared->kernel->runtime));
    ENI_TRY(eni_pending_wait(&(eni_pending_filter){.runtime = prepared->kernel->runtime, .prepared = prepared}));
    return eni_pending_failure(&prepared->failure);
}
