/* Kernels on CUDA: their argument lists, facts and bound arguments. The driver tells how many arguments there are and how large (CUDA
 * 12.4 and later); what it never tells, which of the large ones are pointers and what they are called, is read from the source text
 * where there is one. */
#include <assert.h>

#include "backends/cuda_program.h"
#include "base/str.h"

enum {
    ARGUMENT_LIMIT = 1024, /* 4 KiB of arguments of at least 4 bytes */
    UNKNOWN_ROOM = 4096    /* bytes for an argument whose size the driver does not tell */
};

/* What arguments that were never bound point to where the driver does not tell how many there are. */
static const uint64_t nothing[UNKNOWN_ROOM / sizeof(uint64_t)];

/* ---- the source's argument list ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* A copy with comments blanked. */
static char *without_comments(const cuda_image *text)
{
    char *copy = eni_alloc(text->size + 1);
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, text->data, text->size + 1);
    for (char *at = copy; *at != '\0'; at++) {
        if (at[0] == '/' && (at[1] == '/' || at[1] == '*')) {
            const char *end = at[1] == '/' ? strchr(at, '\n') : strstr(at + 2, "*/");
            size_t size = end == NULL ? strlen(at) : (size_t)(end - at) + (at[1] == '*' ? 2 : 0);
            memset(at, ' ', size);
            at += size - 1;
        }
    }
    return copy;
}

/* The closing bracket of the one at *at; NULL: there is none. */
static const char *closing(const char *at)
{
    int depth = 0;
    for (; *at != '\0'; at++) {
        depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
        if (depth == 0) {
            return at;
        }
    }
    return NULL;
}

/* Finds name(...) { in the text: the arguments' text is between the two results. */
static bool find_definition(const char *text, const char *name, const char **begin, const char **end)
{
    size_t size = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += size) {
        const char *open = at + size;
        if ((at > text && is_word(at[-1])) || is_word(*open)) {
            continue;
        }
        open += strspn(open, " \t\r\n");
        const char *close = *open == '(' ? closing(open) : NULL;
        if (close != NULL && close[1 + strspn(close + 1, " \t\r\n")] == '{') {
            *begin = open + 1;
            *end = close;
            return true;
        }
    }
    return false;
}

/* Splits one argument's text into type and name. */
static void read_argument(cuda_kernel *kernel, const char *begin, const char *end, eni_argument_info *out)
{
    enigma_text type, name;
    while (end > begin && strchr(" \t\r\n", end[-1]) != NULL) {
        end--;
    }
    begin += strspn(begin, " \t\r\n");
    const char *word = end;
    while (word > begin && is_word(word[-1])) {
        word--;
    }
    if (word == begin || word == end) { /* no name, or something this reader does not know */
        return;
    }
    const char *last = word;
    while (last > begin && strchr(" \t\r\n", last[-1]) != NULL) {
        last--;
    }
    if (eni_arena_text(&kernel->arena, (enigma_text){begin, (size_t)(last - begin)}, &type) &&
        eni_arena_text(&kernel->arena, (enigma_text){word, (size_t)(end - word)}, &name)) {
        out->type = type.data;
        out->name = name.data;
        if (out->size == sizeof(cu_pointer) && memchr(type.data, '*', type.size) != NULL) {
            out->class_ = ENI_ARGUMENT_BUFFER;
        }
    }
}

/* Commas that part arguments are outside of brackets of all kinds. */
static const char *argument_end(const char *at, const char *end)
{
    int depth = 0;
    for (; at < end; at++) {
        if (*at == ',' && depth == 0) {
            break;
        }
        depth += strchr("(<[{", *at) != NULL ? 1 : strchr(")>]}", *at) != NULL ? -1 : 0;
    }
    return at;
}

/* Adds types and names where the source has exactly as many arguments as the driver tells. */
static void read_source(cuda_kernel *kernel, const char *name, eni_argument_info *arguments, uint32_t count)
{
    const char *begin, *end;
    const cuda_image *text = &kernel->program->text;
    char *copy = text->data == NULL || count == 0 ? NULL : without_comments(text);
    if (copy == NULL) {
        return;
    }
    if (find_definition(copy, name, &begin, &end)) {
        uint32_t found = 0;
        for (const char *at = begin; at <= end; at = argument_end(at, end) + 1) {
            found++;
        }
        const char *at = begin;
        for (uint32_t i = 0; found == count && i < count; i++) {
            const char *next = argument_end(at, end);
            read_argument(kernel, at, next, &arguments[i]);
            at = next + 1;
        }
    }
    eni_free(copy, text->size + 1);
}

/* ---- what the driver tells ---- */

static uint32_t count_arguments(cu_function function)
{
    size_t offset, size;
    uint32_t count = 0;
    while (count < ARGUMENT_LIMIT && eni_cu.cuFuncGetParamInfo(function, count, &offset, &size) == CUDA_SUCCESS) {
        count++;
    }
    return count;
}

/* Room for the values, each where cuLaunchKernel will read it. */
static bool make_room(cuda_kernel *kernel, uint32_t count)
{
    kernel->parameters = eni_arena_alloc(&kernel->arena, (count + 1) * sizeof *kernel->parameters);
    if (kernel->parameters == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        kernel->parameters[i] = (void *)nothing;
    }
    kernel->parameter_count = count;
    return true;
}

static enigma_status describe_arguments(cuda_kernel *kernel, const char *name)
{
    kernel->info.argument_count = ENI_ANY_ARGUMENTS;
    if (eni_cu.cuFuncGetParamInfo == NULL) {
        return make_room(kernel, ARGUMENT_LIMIT) ? ENIGMA_OK : ENI_NO_MEMORY();
    }
    uint32_t count = count_arguments(kernel->function);
    eni_argument_info *arguments = eni_arena_alloc(&kernel->arena, (count + 1) * sizeof *arguments);
    if (arguments == NULL || !make_room(kernel, count)) {
        return ENI_NO_MEMORY();
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t offset, size = 0;
        eni_cu.cuFuncGetParamInfo(kernel->function, i, &offset, &size);
        /* Pointers have 8 bytes, and so have some values. */
        arguments[i] = (eni_argument_info){
            .class_ = size == sizeof(cu_pointer) ? ENI_ARGUMENT_UNKNOWN : ENI_ARGUMENT_SCALAR, .size = size};
    }
    read_source(kernel, name, arguments, count);
    kernel->info.argument_count = count;
    kernel->info.arguments = arguments;
    return ENIGMA_OK;
}

static void describe_limits(cuda_kernel *kernel)
{
    int value = 0;
    if (eni_cu.cuFuncGetAttribute(&value, CU_FUNC_MAX_THREADS_PER_BLOCK, kernel->function) == CUDA_SUCCESS &&
        value > 0) {
        kernel->info.max_group_threads = (uint64_t)value;
    }
    kernel->info.execution_width = (uint64_t)kernel->device->warp;
    kernel->info.static_memory_bytes =
        eni_cu.cuFuncGetAttribute(&value, CU_FUNC_SHARED_SIZE_BYTES, kernel->function) == CUDA_SUCCESS ? value : -1;
    kernel->info.registers =
        eni_cu.cuFuncGetAttribute(&value, CU_FUNC_NUM_REGS, kernel->function) == CUDA_SUCCESS ? value : 0;
}

/* In the device's context. */
static enigma_status create_kernel(cuda_kernel *kernel, const char *name)
{
    cu_result error = eni_cu.cuModuleGetFunction(&kernel->function, kernel->program->module, name);
    if (error == CUDA_ERROR_NOT_FOUND) {
        return eni_cuda_program_fail_name(kernel->program, name);
    }
    if (error != CUDA_SUCCESS) {
        return eni_cuda_fail(error, "cuModuleGetFunction");
    }
    describe_limits(kernel);
    return describe_arguments(kernel, name);
}

enigma_status eni_cuda_kernel_create(void *program_handle, const char *name, void **out, const eni_kernel_info **info)
{
    cuda_program *program = program_handle;
    *out = NULL;
    cuda_kernel *kernel = ENI_NEW(cuda_kernel);
    if (kernel == NULL) {
        return ENI_NO_MEMORY();
    }
    kernel->device = program->device;
    kernel->program = program;
    program->references++;
    enigma_status status = eni_cuda_enter(kernel->device);
    if (status == ENIGMA_OK) {
        status = create_kernel(kernel, name);
        eni_cuda_leave();
    }
    if (status != ENIGMA_OK) {
        eni_cuda_kernel_free(kernel);
        return status;
    }
    *out = kernel;
    *info = &kernel->info;
    return ENIGMA_OK;
}

void eni_cuda_kernel_free(void *handle)
{
    cuda_kernel *kernel = handle;
    eni_cuda_program_unref(kernel->program);
    eni_arena_free(&kernel->arena);
    ENI_DELETE(kernel);
}

/* ---- binding ---- */

/* Copies a value to where the launch reads it. Where its true size is not known the driver may read past it. */
static enigma_status bind(cuda_kernel *kernel, uint32_t index, const void *data, size_t size)
{
    bool known = kernel->info.argument_count != ENI_ANY_ARGUMENTS;
    size_t room = known || size >= UNKNOWN_ROOM ? size : UNKNOWN_ROOM;
    if (index >= kernel->parameter_count) {
        return ENI_FAIL(ENIGMA_E_INVALID, "CUDA kernels take at most %u arguments", kernel->parameter_count);
    }
    void *copy = eni_arena_alloc(&kernel->arena, room == 0 ? 1 : room);
    if (copy == NULL) {
        return ENI_NO_MEMORY();
    }
    memset(copy, 0, room);
    if (size != 0) {
        memcpy(copy, data, size);
    }
    kernel->parameters[index] = copy;
    return ENIGMA_OK;
}

enigma_status eni_cuda_kernel_bind_buffer(void *kernel, uint32_t index, void *buffer)
{
    cu_pointer address = eni_cuda_buffer_address(buffer);
    return bind(kernel, index, &address, sizeof address);
}

enigma_status eni_cuda_kernel_bind_scalar(void *kernel, uint32_t index, const void *data, size_t size)
{
    return bind(kernel, index, data, size);
}

double eni_cuda_kernel_occupancy(void *handle, enigma_size3 threads)
{
    const cuda_kernel *kernel = handle;
    uint64_t size = threads.x * threads.y * threads.z;
    int groups = 0;
    if (kernel->device->threads_per_unit == 0 || size > INT32_MAX || eni_cuda_enter(kernel->device) != ENIGMA_OK) {
        return -1.0;
    }
    cu_result error = eni_cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&groups, kernel->function, (int)size, 0);
    eni_cuda_leave();
    return error == CUDA_SUCCESS ? (double)groups * (double)size / kernel->device->threads_per_unit : -1.0;
}
