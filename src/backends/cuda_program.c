/* Programs on CUDA: what the bytes are, loading them as a module with the driver's whole log, and the names of a module's kernels. */
#include "backends/cuda_program.h"

#include "base/str.h"

enum { LOG_BYTES = 1 << 16, NAMES_LIMIT = 64 };

/* ---- what the bytes are ---- */

enum source_kind { SOURCE_TEXT, SOURCE_PTX, SOURCE_BINARY, SOURCE_FOREIGN };

static bool is_one_of(const char *suffix, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(suffix, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_magic(const char *source, size_t size, const unsigned char magic[4])
{
    return size >= 4 && memcmp(source, magic, 4) == 0;
}

/* PTX begins with a .version directive, after comments. */
static bool is_ptx(const char *source, size_t size)
{
    const char *at = source, *end = source + size;
    while (at < end) {
        if (strchr(" \t\r\n", *at) != NULL) {
            at++;
        } else if (end - at >= 2 && at[0] == '/' && at[1] == '/') {
            const char *line = memchr(at, '\n', (size_t)(end - at));
            at = line == NULL ? end : line;
        } else {
            return end - at > 8 && memcmp(at, ".version", 8) == 0;
        }
    }
    return false;
}

static enum source_kind kind_of(const char *source, size_t size, const char *suffix)
{
    static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'}, fatbin[4] = {0x50, 0xed, 0x55, 0xba};
    static const char *const foreign[] = {".metal", ".metallib", ".spv", ".clbin", ".bin"};
    if (has_magic(source, size, elf) || has_magic(source, size, fatbin)) {
        return SOURCE_BINARY;
    }
    if (suffix != NULL && is_one_of(suffix, foreign, ENI_COUNT_OF(foreign))) {
        return SOURCE_FOREIGN;
    }
    if (is_ptx(source, size)) {
        return SOURCE_PTX;
    }
    /* Text has no NUL; a file that says it is a binary and is none is refused by the driver in its words. */
    static const char *const binary[] = {".cubin", ".fatbin"};
    bool says_binary = suffix != NULL && is_one_of(suffix, binary, ENI_COUNT_OF(binary));
    bool says_ptx = suffix != NULL && strcmp(suffix, ".ptx") == 0;
    return says_binary || memchr(source, '\0', size) != NULL ? SOURCE_BINARY : says_ptx ? SOURCE_PTX : SOURCE_TEXT;
}

/* ---- loading ---- */

static enigma_status fail_load(cu_result error, const char *log)
{
    const char *name = NULL;
    eni_cu.cuGetErrorName(error, &name);
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
        return eni_cuda_fail(error, "cuModuleLoadDataEx");
    }
    return ENI_FAIL(ENIGMA_E_COMPILE, "CUDA: the driver does not load the program: %s (%d)\n%s",
                    name == NULL ? "unknown error" : name, error,
                    log[0] != '\0'                  ? log
                    : error == CUDA_ERROR_NO_BINARY ? "(it holds no code for this device's architecture)"
                                                    : "(no log)");
}

/* In the device's context. */
static enigma_status load_module(cuda_program *program)
{
    char *log = eni_alloc_zero(LOG_BYTES);
    if (log == NULL) {
        return ENI_NO_MEMORY();
    }
    int options[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[2] = {log, NULL};
    const size_t room = LOG_BYTES - 1;
    memcpy(&values[1], &room, sizeof room); /* a number where pointers lie */
    cu_result error = eni_cu.cuModuleLoadDataEx(&program->module, program->image.data, 2, options, values);
    enigma_status status = error == CUDA_SUCCESS ? ENIGMA_OK : fail_load(error, log);
    eni_free(log, LOG_BYTES);
    return status;
}

static enigma_status copy_image(const char *source, size_t size, cuda_image *out)
{
    out->data = eni_alloc_zero(size + 1);
    if (out->data == NULL) {
        return ENI_NO_MEMORY();
    }
    out->size = size;
    memcpy(out->data, source, size);
    return ENIGMA_OK;
}

static enigma_status make_image(cuda_program *program, const char *source, size_t size, const char *suffix,
                                const char *options)
{
    switch (kind_of(source, size, suffix)) {
    case SOURCE_FOREIGN:
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "the CUDA backend cannot compile a %s file; it takes CUDA C++ (.cu), PTX (.ptx) and images "
                        "(.cubin, .fatbin)",
                        suffix);
    case SOURCE_TEXT:
        ENI_TRY(copy_image(source, size, &program->text));
        return eni_cuda_compile(program->device, source, size, options, &program->image);
    default:
        return copy_image(source, size, &program->image);
    }
}

static enigma_status build(cuda_program *program, const char *source, size_t size, const char *suffix,
                           const char *options)
{
    ENI_TRY(make_image(program, source, size, suffix, options == NULL ? "" : options));
    ENI_TRY(eni_cuda_enter(program->device));
    enigma_status status = load_module(program);
    eni_cuda_leave();
    return status;
}

enigma_status eni_cuda_program_build(void *device, const char *source, size_t size, const char *suffix,
                                     const char *options, void **out)
{
    *out = NULL;
    cuda_program *program = ENI_NEW(cuda_program);
    if (program == NULL) {
        return ENI_NO_MEMORY();
    }
    program->device = device;
    program->references = 1;
    enigma_status status = build(program, source, size, suffix, options);
    if (status != ENIGMA_OK) {
        eni_cuda_program_unref(program);
        return status;
    }
    *out = program;
    return ENIGMA_OK;
}

void eni_cuda_program_unref(cuda_program *program)
{
    if (--program->references != 0) {
        return;
    }
    if (program->module != NULL && eni_cuda_enter(program->device) == ENIGMA_OK) {
        eni_cu.cuModuleUnload(program->module);
        eni_cuda_leave();
    }
    eni_cuda_image_free(&program->image);
    eni_cuda_image_free(&program->text);
    ENI_DELETE(program);
}

void eni_cuda_program_free(void *program) { eni_cuda_program_unref(program); }

/* ---- the kernels it has ---- */

static bool names_from_driver(const cuda_program *program, eni_str *out)
{
    uint32_t count = 0;
    cu_function functions[NAMES_LIMIT];
    if (eni_cu.cuModuleGetFunctionCount == NULL || eni_cu.cuModuleEnumerateFunctions == NULL ||
        eni_cu.cuFuncGetName == NULL || eni_cu.cuModuleGetFunctionCount(&count, program->module) != CUDA_SUCCESS) {
        return false;
    }
    uint32_t shown = count < NAMES_LIMIT ? count : NAMES_LIMIT;
    if (shown != 0 && eni_cu.cuModuleEnumerateFunctions(functions, shown, program->module) != CUDA_SUCCESS) {
        return false;
    }
    for (uint32_t i = 0; i < shown; i++) {
        const char *name = NULL;
        if (eni_cu.cuFuncGetName(&name, functions[i]) == CUDA_SUCCESS && name != NULL) {
            eni_str_printf(out, "%s%s", out->size == 0 ? "" : ", ", name);
        }
    }
    return true;
}

/* Older drivers do not tell: PTX has ".entry NAME", a cubin a section ".text.NAME" for each. */
static void names_from_image(const cuda_program *program, eni_str *out)
{
    static const char *const marks[] = {".entry ", ".text."};
    const char *end = program->image.data + program->image.size;
    for (size_t i = 0; i < ENI_COUNT_OF(marks); i++) {
        size_t size = strlen(marks[i]);
        for (const char *at = program->image.data; (at = memmem(at, (size_t)(end - at), marks[i], size)) != NULL;) {
            at += size;
            size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$");
            if (length != 0 && out->size < 4096) {
                eni_str_printf(out, "%s%.*s", out->size == 0 ? "" : ", ", (int)length, at);
            }
        }
    }
}

enigma_status eni_cuda_program_fail_name(const cuda_program *program, const char *name)
{
    eni_str names = {0};
    if (!names_from_driver(program, &names)) {
        names_from_image(program, &names);
    }
    bool mangled =
        names.data != NULL && !names.failed && strstr(names.data, "_Z") != NULL && strstr(names.data, name) != NULL;
    enigma_status status = ENI_FAIL(
        ENIGMA_E_NOT_FOUND, "the program has no kernel %s; it has %s%s", name,
        names.data == NULL || names.failed ? "none that the driver tells" : names.data,
        mangled ? ": C++ names are mangled, so declare the kernel extern \"C\", or give the whole mangled name" : "");
    eni_str_free(&names);
    return status;
}
