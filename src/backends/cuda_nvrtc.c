/* Compiling CUDA C++ text by NVRTC, which is found when the first text comes. One compilation at a time for each device. */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "backends/cuda.h"
#include "base/dynlib.h"
#include "base/log.h"
#include "base/str.h"
#include "cupti/locate.h"

enum { OPTION_LIMIT = 64, ARCH_LIMIT = 64 };

/* Under the lock until loaded; constant afterwards. */
static struct {
    eni_mutex lock;
    bool loaded;
    eni_nvrtc_functions functions;
    char include[PATH_MAX]; /* the toolkit's headers; empty: not found */
} nvrtc = {.lock = ENI_MUTEX_INIT};

/* ---- the library ---- */

static bool has_headers(const char *folder)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/cuda_fp16.h", folder);
    return access(path, R_OK) == 0;
}

/* Headers such as cuda_fp16.h: NVRTC knows none of them by itself. */
static void find_headers(void)
{
    static const char *const beside[] = {"/../include", "/../../cuda_runtime/include", "/../../../include"};
    const char *home = getenv("CUDA_HOME");
    Dl_info self;
    void *address;
    memcpy(&address, &nvrtc.functions.nvrtcVersion, sizeof address);
    const char *slash = dladdr(address, &self) != 0 && self.dli_fname != NULL ? strrchr(self.dli_fname, '/') : NULL;
    for (size_t i = 0; slash != NULL && i < ENI_COUNT_OF(beside); i++) {
        snprintf(nvrtc.include, sizeof nvrtc.include, "%.*s%s", (int)(slash - self.dli_fname), self.dli_fname,
                 beside[i]);
        if (has_headers(nvrtc.include)) {
            return;
        }
    }
    snprintf(nvrtc.include, sizeof nvrtc.include, "%s/include", home == NULL ? "/usr/local/cuda" : home);
    if (!has_headers(nvrtc.include)) {
        nvrtc.include[0] = '\0';
    }
}

/* The driver takes what its own CUDA or an older one compiled, so that comes before newer ones. */
static enigma_status open_library(void **out)
{
    static const char *const all[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so.11.1",
                                      "libnvrtc.so.11.0"};
    static const int majors[] = {13, 12, 11, 11, 11};
    const char *names[ENI_COUNT_OF(all) + 1];
    size_t count = 0;
    for (int newer = 0; newer < 2; newer++) {
        for (size_t i = 0; i < ENI_COUNT_OF(all); i++) {
            if ((majors[i] > eni_cuda_version() / 1000) == (newer != 0)) {
                names[count++] = all[i];
            }
        }
    }
    names[count] = NULL;
    return eni_cuda_locate(names, out);
}

static enigma_status load_library(void)
{
    static const eni_dynlib_symbol symbols[] = {
#define ENI_CUDA_FUNCTION(required, name, symbol, parameters)
#define ENI_NVRTC_FUNCTION(required, result, name, parameters) {#name, offsetof(eni_nvrtc_functions, name), required},
#include "abi/cuda_symbols.def"
#undef ENI_CUDA_FUNCTION
#undef ENI_NVRTC_FUNCTION
    };
    void *library;
    enigma_status status = open_library(&library);
    if (status == ENIGMA_E_UNAVAILABLE) {
        char *reason = eni_strdup(enigma_error_message());
        status = ENI_FAIL(ENIGMA_E_UNAVAILABLE,
                          "CUDA source text needs NVRTC: %s; install a CUDA toolkit or the Python package "
                          "nvidia-cuda-nvrtc, or give a .cubin, .fatbin or .ptx",
                          reason == NULL ? "" : reason);
        eni_strfree(reason);
    }
    ENI_TRY(status);
    ENI_TRY(eni_dynlib_load(library, symbols, ENI_COUNT_OF(symbols), &nvrtc.functions));
    find_headers();
    nvrtc.loaded = true;
    return ENIGMA_OK;
}

static enigma_status load(void)
{
    enigma_status status = ENIGMA_OK;
    eni_lock(&nvrtc.lock);
    if (!nvrtc.loaded) {
        status = load_library();
    }
    eni_unlock(&nvrtc.lock);
    return status;
}

/* ---- options ---- */

/* Options as NVRTC takes them: one text each. */
typedef struct option_list {
    eni_arena arena;
    const char *items[OPTION_LIMIT];
    int count;
    bool failed, has_arch;
} option_list;

static void add_option(option_list *list, const char *text, size_t size)
{
    enigma_text copy;
    if (list->count == OPTION_LIMIT || !eni_arena_text(&list->arena, (enigma_text){text, size}, &copy)) {
        list->failed = true;
        return;
    }
    list->items[list->count++] = copy.data;
    list->has_arch |= strncmp(copy.data, "-arch", 5) == 0 || strncmp(copy.data, "--gpu-architecture", 18) == 0;
}

/* Takes one word off the options into a buffer as large as they are: blanks end it, quotes keep them. */
static const char *next_word(const char *at, char *word, size_t *size)
{
    char quote = '\0';
    *size = 0;
    at += strspn(at, " \t\r\n");
    for (; *at != '\0' && (quote != '\0' || strchr(" \t\r\n", *at) == NULL); at++) {
        if (quote == '\0' && (*at == '"' || *at == '\'')) {
            quote = *at;
        } else if (*at == quote) {
            quote = '\0';
        } else {
            word[(*size)++] = *at;
        }
    }
    return at;
}

static void split_options(option_list *list, const char *options)
{
    size_t room = strlen(options) + 1, size;
    char *word = eni_alloc(room);
    if (word == NULL) {
        list->failed = true;
        return;
    }
    for (const char *at = next_word(options, word, &size); size != 0; at = next_word(at, word, &size)) {
        add_option(list, word, size);
    }
    eni_free(word, room);
}

/* Whether NVRTC knows the device; where it does not, the newest architecture that it knows and the device can take as PTX. */
static int choose_arch(const cuda_device *device, bool *exact)
{
    int count = 0, archs[ARCH_LIMIT] = {0}, best = 0;
    *exact = true;
    if (nvrtc.functions.nvrtcGetNumSupportedArchs == NULL || nvrtc.functions.nvrtcGetSupportedArchs == NULL ||
        nvrtc.functions.nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0 || count > ARCH_LIMIT ||
        nvrtc.functions.nvrtcGetSupportedArchs(archs) != NVRTC_SUCCESS) {
        return device->capability;
    }
    for (int i = 0; i < count; i++) {
        best = archs[i] <= device->capability && archs[i] > best ? archs[i] : best;
    }
    *exact = best == device->capability;
    return best == 0 ? device->capability : best;
}

static void add_own_options(option_list *list, const cuda_device *device, bool *cubin)
{
    char text[PATH_MAX + 32];
    bool exact;
    int arch = choose_arch(device, &exact);
    *cubin =
        exact && !list->has_arch && nvrtc.functions.nvrtcGetCUBIN != NULL && nvrtc.functions.nvrtcGetCUBINSize != NULL;
    if (!list->has_arch) {
        int size = snprintf(text, sizeof text, "--gpu-architecture=%s_%d", *cubin ? "sm" : "compute", arch);
        add_option(list, text, (size_t)size);
    }
    if (nvrtc.include[0] != '\0') {
        int size = snprintf(text, sizeof text, "--include-path=%s", nvrtc.include);
        add_option(list, text, (size_t)size);
    }
}

/* ---- compiling ---- */

static enigma_status fail_call(nvrtc_result error, const char *what)
{
    return ENI_FAIL(error == NVRTC_ERROR_OUT_OF_MEMORY ? ENIGMA_E_NO_MEMORY : ENIGMA_E_COMPILE,
                    "NVRTC: %s failed: %s (%d)", what, nvrtc.functions.nvrtcGetErrorString(error), error);
}

/* The whole log, without blanks at its end. */
static void append_log(nvrtc_program program, eni_str *out)
{
    size_t size = 0;
    if (nvrtc.functions.nvrtcGetProgramLogSize(program, &size) != NVRTC_SUCCESS || size == 0) {
        return;
    }
    char *log = eni_alloc(size);
    if (log == NULL) {
        return;
    }
    if (nvrtc.functions.nvrtcGetProgramLog(program, log) == NVRTC_SUCCESS) {
        size_t length = strnlen(log, size);
        while (length > 0 && strchr(" \t\r\n", log[length - 1]) != NULL) {
            length--;
        }
        eni_str_append(out, log, length);
    }
    eni_free(log, size);
}

static enigma_status fail_build(nvrtc_program program, nvrtc_result error, const char *options)
{
    eni_str log = {0};
    append_log(program, &log);
    const char *text = log.size == 0 || log.failed ? "(no build log)" : log.data;
    enigma_status status =
        error == NVRTC_ERROR_INVALID_OPTION
            ? ENI_FAIL(ENIGMA_E_COMPILE, "CUDA: NVRTC does not take the options \"%s\":\n%s", options, text)
            : ENI_FAIL(ENIGMA_E_COMPILE, "CUDA: the program does not build: %s (%d)\n%s",
                       nvrtc.functions.nvrtcGetErrorString(error), error, text);
    eni_str_free(&log);
    return status;
}

static enigma_status take_image(nvrtc_program program, bool cubin, cuda_image *out)
{
    nvrtc_result (*ask_size)(nvrtc_program, size_t *) =
        cubin ? nvrtc.functions.nvrtcGetCUBINSize : nvrtc.functions.nvrtcGetPTXSize;
    nvrtc_result (*ask)(nvrtc_program, char *) = cubin ? nvrtc.functions.nvrtcGetCUBIN : nvrtc.functions.nvrtcGetPTX;
    size_t size = 0;
    nvrtc_result error = ask_size(program, &size);
    if (error != NVRTC_SUCCESS || size == 0) {
        return fail_call(error, "asking for the image's size");
    }
    out->data = eni_alloc_zero(size + 1);
    if (out->data == NULL) {
        return ENI_NO_MEMORY();
    }
    out->size = size;
    error = ask(program, out->data);
    if (error != NVRTC_SUCCESS) {
        eni_cuda_image_free(out);
        return fail_call(error, "asking for the image");
    }
    return ENIGMA_OK;
}

static enigma_status compile_text(const char *text, const option_list *options, const char *given, bool cubin,
                                  cuda_image *out)
{
    nvrtc_program program = NULL;
    nvrtc_result error = nvrtc.functions.nvrtcCreateProgram(&program, text, "kernel.cu", 0, NULL, NULL);
    if (error != NVRTC_SUCCESS) {
        return fail_call(error, "nvrtcCreateProgram");
    }
    error = nvrtc.functions.nvrtcCompileProgram(program, options->count, options->items);
    enigma_status status = error == NVRTC_SUCCESS ? take_image(program, cubin, out) : fail_build(program, error, given);
    nvrtc.functions.nvrtcDestroyProgram(&program);
    return status;
}

enigma_status eni_cuda_compile(const cuda_device *device, const char *source, size_t size, const char *options,
                               cuda_image *out)
{
    bool cubin;
    *out = (cuda_image){0};
    ENI_TRY(load());
    option_list list = {.count = 0};
    enigma_text text = {0};
    split_options(&list, options);
    add_own_options(&list, device, &cubin);
    enigma_status status;
    if (list.count == OPTION_LIMIT) {
        status = ENI_FAIL(ENIGMA_E_INVALID, "there are more than %d compiler options", OPTION_LIMIT - 2);
    } else if (list.failed || !eni_arena_text(&list.arena, (enigma_text){source, size}, &text)) {
        status = ENI_NO_MEMORY();
    } else {
        status = compile_text(text.data, &list, options, cubin, out);
    }
    eni_arena_free(&list.arena);
    return status;
}

void eni_cuda_image_free(cuda_image *image)
{
    eni_free(image->data, image->size + 1);
    *image = (cuda_image){0};
}
