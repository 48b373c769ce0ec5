/* A C program that calls cuBLAS under scopes, with a profiler that attaches to CUDA: what it launched is there, and where it was launched.
 * The CUDA libraries are found at run time; exit code 77: there are none. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <enigma.h>

enum { N = 256, CALLS = 50, HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

static void *find(void *library, const char *name)
{
    void *symbol = library == NULL ? NULL : dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "%s is missing\n", name);
    }
    return symbol;
}

static void *open_one(const char *const *names)
{
    void *library = NULL;
    for (; library == NULL && *names != NULL; names++) {
        library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
    }
    return library;
}

/* How many events of that name lie under a scope, with valid device time. */
static size_t count(const enigma_profile *profile, const char *scope, const char *name)
{
    size_t found = 0;
    for (size_t i = 0; i < enigma_profile_event_count(profile); i++) {
        enigma_event event = {.struct_size = sizeof event};
        enigma_text names[8];
        if (enigma_profile_event(profile, i, &event) != ENIGMA_OK || strcmp(event.name.data, name) != 0) {
            continue;
        }
        size_t depth = enigma_profile_path_names(profile, event.path, names, 8);
        found += depth == 2 && strcmp(names[0].data, scope) == 0 && event.gpu_time_us > 0.0;
    }
    return found;
}

int main(void)
{
    static const char *const runtimes[] = {"libcudart.so.13", "libcudart.so.12", NULL};
    static const char *const libraries[] = {"libcublas.so.13", "libcublas.so.12", NULL};
    static float host[N * N];
    void *cudart = open_one(runtimes), *cublas = open_one(libraries);
    if (cudart == NULL || cublas == NULL) {
        printf("no CUDA runtime or no cuBLAS: %s\n", dlerror());
        return 77;
    }
    int (*cuda_malloc)(void **, size_t) = (int (*)(void **, size_t))find(cudart, "cudaMalloc");
    int (*cuda_memcpy)(void *, const void *, size_t, int) =
        (int (*)(void *, const void *, size_t, int))find(cudart, "cudaMemcpy");
    int (*cuda_memset)(void *, int, size_t) = (int (*)(void *, int, size_t))find(cudart, "cudaMemset");
    int (*create)(void **) = (int (*)(void **))find(cublas, "cublasCreate_v2");
    int (*sgemm)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *,
                 float *, int) =
        (int (*)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *,
                 float *, int))find(cublas, "cublasSgemm_v2");
    void *handle, *a, *b;
    const float one = 1.0f, zero = 0.0f;
    if (cuda_malloc(&a, sizeof host) != 0 || cuda_malloc(&b, sizeof host) != 0 || create(&handle) != 0) {
        printf("no CUDA device\n");
        return 77;
    }
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler;
    enigma_profile *profile;
    options.attach = "cuda";
    if (enigma_profiler_create(&options, &profiler) != ENIGMA_OK || enigma_profiler_start(profiler) != ENIGMA_OK) {
        printf("%s\n", enigma_error_message());
        return 1;
    }
    int failed = 0;
    {
        ENIGMA_SCOPE("copy in");
        failed |= cuda_memcpy(a, host, sizeof host, HOST_TO_DEVICE);
        failed |= cuda_memset(b, 0, sizeof host);
    }
    for (int i = 0; i < CALLS; i++) {
        ENIGMA_SCOPE("gemm");
        failed |= sgemm(handle, 0, 0, N, N, N, &one, a, N, a, N, &zero, b, N);
    }
    {
        ENIGMA_SCOPE("copy out");
        failed |= cuda_memcpy(host, b, sizeof host, DEVICE_TO_HOST);
    }
    if (failed != 0 || enigma_profiler_stop(profiler) != ENIGMA_OK ||
        enigma_profiler_snapshot(profiler, &profile) != ENIGMA_OK) {
        printf("failed %d: %s\n", failed, enigma_error_message());
        return 1;
    }
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    size_t kernels = count(profile, "gemm", "gpu_dispatch");
    printf("%zu kernels of %d calls, %llu pieces of GPU work, %llu unfinished, %llu invalid\n", kernels, CALLS,
           (unsigned long long)counts.gpu_events, (unsigned long long)counts.gpu_unfinished,
           (unsigned long long)counts.gpu_invalid);
    int right = kernels >= CALLS && kernels % CALLS == 0 && count(profile, "copy in", "memcpy") == 1 &&
                count(profile, "copy in", "memset") == 1 && count(profile, "copy out", "memcpy") == 1 &&
                counts.gpu_unfinished == 0 && counts.gpu_invalid == 0 && counts.dropped == 0;
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
    return right ? 0 : 1;
}
