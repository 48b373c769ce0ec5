/* The fake compiler: the C preprocessor and compiler of this machine, on CUDA C text without C++. Each kernel found in the preprocessed
 * text gets a caller that runs it for every thread of the grid. */
#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the callers have their own */
#pragma GCC visibility push(default)

typedef struct program {
    char *source, *log, *image;
    size_t image_size;
    char folder[32];
} program;

static const char prelude[] = "#define __global__\n#define __device__\n#define __restrict__ restrict\n"
                              "typedef struct { unsigned x, y, z; } fake_size;\n"
                              "static __thread fake_size threadIdx, blockIdx, blockDim, gridDim;\n";
static const char runner[] =
    "#include <stddef.h>\n"
    "struct fake_entry { const char *name; unsigned count; const size_t *sizes;\n"
    "    void (*run)(void **, const unsigned *, const unsigned *); };\n"
    "#define FAKE_RUN(call) \\\n"
    "    gridDim = (fake_size){grid[0], grid[1], grid[2]}; blockDim = (fake_size){block[0], block[1], block[2]}; \\\n"
    "    for (unsigned long b = 0; b < (unsigned long)grid[0] * grid[1] * grid[2]; b++) \\\n"
    "        for (unsigned t = 0; t < block[0] * block[1] * block[2]; t++) { \\\n"
    "            blockIdx = (fake_size){b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]}; \\\n"
    "            threadIdx = (fake_size){t % block[0], t / block[0] % block[1], t / block[0] / block[1]}; call; }\n";

nvrtc_result nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtc_result error)
{
    return error == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}

#ifndef FAKE_OLD
nvrtc_result nvrtcGetNumSupportedArchs(int *out)
{
    *out = 2;
    return NVRTC_SUCCESS;
}

nvrtc_result nvrtcGetSupportedArchs(int *out)
{
    out[0] = 75;
    out[1] = (int)fake_get(FAKE_ARCH_LIMIT);
    return NVRTC_SUCCESS;
}
#endif

nvrtc_result nvrtcCreateProgram(nvrtc_program *out, const char *source, const char *name, int header_count,
                                const char *const *headers, const char *const *include_names)
{
    (void)name, (void)header_count, (void)headers, (void)include_names;
    program *p = calloc(1, sizeof *p);
    p->source = strdup(source);
    *out = p;
    return NVRTC_SUCCESS;
}

nvrtc_result nvrtcDestroyProgram(nvrtc_program *handle)
{
    program *p = *handle;
    free(p->source);
    free(p->log);
    free(p->image);
    free(p);
    *handle = NULL;
    return NVRTC_SUCCESS;
}

static char *read_file(const char *folder, const char *name, size_t *size)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    char *data = calloc(1, 1 << 20);
    *size = file == NULL ? 0 : fread(data, 1, (1 << 20) - 1, file);
    if (file != NULL) {
        fclose(file);
        unlink(path);
    }
    return data;
}

static FILE *write_file(const char *folder, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "w");
}

/* C has no extern "C". */
static void blank_linkage(char *text)
{
    for (char *at = text; (at = strstr(at, "extern \"C\"")) != NULL;) {
        memset(at, ' ', 10);
    }
}

/* One kernel: writes its caller and its row. Gives where its argument list ends. */
static const char *write_kernel(FILE *code, FILE *rows, const char *at)
{
    char name[128] = "", types[32][256];
    unsigned count = 0;
    int used = 0;
    if (sscanf(at, " void %127[A-Za-z0-9_] ( %n", name, &used) != 1 || used == 0) {
        return at;
    }
    at += used;
    while (*at != ')' && *at != '\0' && count < 32) {
        size_t size = strcspn(at, ",)");
        const char *next = at + size + (at[size] == ',');
        while (size > 0 && (isalnum((unsigned char)at[size - 1]) || at[size - 1] == '_')) {
            size--; /* the name */
        }
        snprintf(types[count++], sizeof types[0], "%.*s", (int)size, at);
        at = next;
    }
    fprintf(code,
            "static void fake_run_%s(void **a, const unsigned *grid, const unsigned *block) { (void)a; FAKE_RUN(%s(",
            name, name);
    for (unsigned i = 0; i < count; i++) {
        fprintf(code, "%s*(%s*)a[%u]", i == 0 ? "" : ", ", types[i], i);
    }
    fprintf(code, ")) }\nstatic const size_t fake_sizes_%s[] = {0", name);
    for (unsigned i = 0; i < count; i++) {
        fprintf(code, ", sizeof(%s)", types[i]);
    }
    fprintf(code, "};\n");
    fprintf(rows, "{\"%s\", %u, fake_sizes_%s + 1, fake_run_%s},\n", name, count, name, name);
    return at;
}

static void write_code(const char *folder, const char *text)
{
    char *table = NULL;
    size_t size;
    FILE *code = write_file(folder, "code.c"), *rows = open_memstream(&table, &size);
    fprintf(code, "%s%s%s\n", prelude, text, runner);
    for (const char *at = text; (at = strstr(at, "__global__")) != NULL;) {
        at = write_kernel(code, rows, at + strlen("__global__"));
    }
    fclose(rows);
    fprintf(code, "struct fake_entry fake_kernels[] = {%s{0, 0, 0, 0}};\n", table);
    fclose(code);
    free(table);
}

static int run_compiler(const char *folder, const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "cd %s && cc %s 2>>log", folder, command);
    return system(line);
}

static bool compile(program *p, const char *defines)
{
    char command[512];
    size_t size;
    FILE *file = write_file(p->folder, "kernel.cu.c");
    blank_linkage(p->source);
    fputs(p->source, file);
    fclose(file);
    snprintf(command, sizeof command, "-E -P %s kernel.cu.c -o text", defines);
    bool good = run_compiler(p->folder, command) == 0;
    if (good) {
        char *text = read_file(p->folder, "text", &size);
        write_code(p->folder, text);
        free(text);
        good = run_compiler(p->folder, "-O1 -w -shared -fPIC code.c -o image") == 0;
    }
    size_t log_size;
    free(p->log);
    p->log = read_file(p->folder, "log", &log_size);
    p->image = read_file(p->folder, "image", &p->image_size);
    return good;
}

/* -D options pass; anything else that is not the architecture or a folder is refused, as NVRTC does. */
nvrtc_result nvrtcCompileProgram(nvrtc_program handle, int count, const char *const *options)
{
    program *p = handle;
    char defines[400] = "";
    bool has_arch = false;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(defines);
        int arch;
        if (sscanf(options[i], "--gpu-architecture=sm_%d", &arch) == 1) {
            fake_set(FAKE_ARCH, arch);
            has_arch = true;
        } else if (sscanf(options[i], "--gpu-architecture=compute_%d", &arch) == 1) {
            fake_set(FAKE_ARCH, -arch);
            has_arch = true;
        }
        if (strncmp(options[i], "-D", 2) == 0) {
            snprintf(defines + used, sizeof defines - used, " '%s'", options[i]);
        } else if (strncmp(options[i], "--gpu-architecture=", 19) != 0 &&
                   strncmp(options[i], "--include-path=", 15) != 0) {
            p->log = calloc(1, 256);
            snprintf(p->log, 256, "nvrtc: error: unrecognized option %s found\n", options[i]);
            return NVRTC_ERROR_INVALID_OPTION;
        }
    }
    snprintf(p->folder, sizeof p->folder, "/tmp/fakecuda-XXXXXX");
    if (!has_arch || mkdtemp(p->folder) == NULL) {
        return NVRTC_ERROR_OUT_OF_MEMORY;
    }
    bool good = compile(p, defines);
    char path[64];
    static const char *const left[] = {"kernel.cu.c", "code.c", "text", "log", "image"};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", p->folder, left[i]);
        unlink(path);
    }
    rmdir(p->folder);
    return good ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

nvrtc_result nvrtcGetProgramLogSize(nvrtc_program handle, size_t *out)
{
    const program *p = handle;
    *out = p->log == NULL ? 1 : strlen(p->log) + 1;
    return NVRTC_SUCCESS;
}

nvrtc_result nvrtcGetProgramLog(nvrtc_program handle, char *out)
{
    const program *p = handle;
    memcpy(out, p->log == NULL ? "" : p->log, p->log == NULL ? 1 : strlen(p->log) + 1);
    return NVRTC_SUCCESS;
}

/* What is called PTX here is the same image. */
nvrtc_result nvrtcGetPTXSize(nvrtc_program handle, size_t *out)
{
    *out = ((const program *)handle)->image_size;
    return NVRTC_SUCCESS;
}

nvrtc_result nvrtcGetPTX(nvrtc_program handle, char *out)
{
    const program *p = handle;
    memcpy(out, p->image, p->image_size);
    return NVRTC_SUCCESS;
}

#ifndef FAKE_OLD
nvrtc_result nvrtcGetCUBINSize(nvrtc_program handle, size_t *out) { return nvrtcGetPTXSize(handle, out); }
nvrtc_result nvrtcGetCUBIN(nvrtc_program handle, char *out) { return nvrtcGetPTX(handle, out); }
#endif
