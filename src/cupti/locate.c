/* Finds libcupti and libnvrtc; see locate.h. A folder that does not exist costs one failed access. */
#include "cupti/locate.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/dynlib.h"
#include "base/log.h"
#include "base/str.h"

#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)
enum { NEAR_LIMIT = 8 };

/* Folders of CUDA libraries that are loaded, each once. */
typedef struct near_folders {
    char folders[NEAR_LIMIT][PATH_MAX];
    int count;
} near_folders;

static bool is_cuda_library(const char *base)
{
    static const char *const stems[] = {"libcudart.so", "libnvrtc.so", "libcublas.so", "libcublasLt.so",
                                        "libcudnn.so",  "libcupti.so", "libcuda.so"};
    for (size_t i = 0; i < ENI_COUNT_OF(stems); i++) {
        if (strncmp(base, stems[i], strlen(stems[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void add_folder(near_folders *near, const char *path, size_t size)
{
    if (size == 0 || size >= PATH_MAX || near->count == NEAR_LIMIT) {
        return;
    }
    for (int i = 0; i < near->count; i++) {
        if (strncmp(near->folders[i], path, size) == 0 && near->folders[i][size] == '\0') {
            return;
        }
    }
    memcpy(near->folders[near->count], path, size);
    near->folders[near->count++][size] = '\0';
}

static int note_library(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    const char *slash = info->dlpi_name == NULL ? NULL : strrchr(info->dlpi_name, '/');
    if (slash != NULL && is_cuda_library(slash + 1)) {
        add_folder(user, info->dlpi_name, (size_t)(slash - info->dlpi_name));
    }
    return 0;
}

static void *open_in(const char *folder, const char *const *names)
{
    char path[PATH_MAX];
    for (; *names != NULL; names++) {
        int size = snprintf(path, sizeof path, "%s/%s", folder, *names);
        if (size < 0 || (size_t)size >= sizeof path || access(path, R_OK) != 0) {
            continue;
        }
        void *library = dlopen(path, OPEN_FLAGS);
        if (library != NULL) {
            eni_log(ENI_LOG_INFO, "found %s", path);
            return library;
        }
        eni_log(ENI_LOG_WARN, "%s is there and does not load: %s", path, dlerror());
    }
    return NULL;
}

/* All folders that fit root and the pattern behind it, the last by name first: newer versions before older ones. */
static void *open_matching(const char *root, const char *pattern, const char *const *names)
{
    char path[PATH_MAX];
    glob_t found;
    void *library = NULL;
    int size = snprintf(path, sizeof path, "%s%s", root, pattern);
    if (size < 0 || (size_t)size >= sizeof path || glob(path, GLOB_ONLYDIR | GLOB_NOSORT, NULL, &found) != 0) {
        return NULL;
    }
    for (size_t i = found.gl_pathc; i-- > 0 && library == NULL;) {
        library = open_in(found.gl_pathv[i], names);
    }
    globfree(&found);
    return library;
}

static void *open_under(const char *root, const char *const *patterns, const char *const *names)
{
    void *library = NULL;
    for (; *patterns != NULL && library == NULL; patterns++) {
        library = open_matching(root, *patterns, names);
    }
    return library;
}

static const char *const toolkit_patterns[] = {"/extras/CUPTI/lib64", "/lib64", "/lib", "/targets/*/lib", NULL};

static void *open_near(const char *const *names)
{
    /* nvidia/cuda_runtime/lib and nvidia/cuda_cupti/lib are neighbours; toolkits keep CUPTI in extras. */
    static const char *const patterns[] = {"", "/../../*/lib", "/../extras/CUPTI/lib64", "/../lib/cupti", NULL};
    near_folders *near = eni_alloc_zero(sizeof *near);
    void *library = NULL;
    if (near == NULL) {
        return NULL;
    }
    dl_iterate_phdr(note_library, near);
    for (int i = 0; i < near->count && library == NULL; i++) {
        library = open_under(near->folders[i], patterns, names);
    }
    eni_free(near, sizeof *near);
    return library;
}

static void *open_toolkit(const char *const *names)
{
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    static const char *const roots[] = {
        "/usr/local/cuda*/extras/CUPTI/lib64", "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib",
        "/opt/cuda*/extras/CUPTI/lib64",       "/opt/cuda*/lib64",       NULL};
    for (size_t i = 0; i < ENI_COUNT_OF(variables); i++) {
        const char *root = getenv(variables[i]);
        void *library = root == NULL || root[0] == '\0' ? NULL : open_under(root, toolkit_patterns, names);
        if (library != NULL) {
            return library;
        }
    }
    return open_under("", roots, names);
}

/* In a wheel this library is site-packages/enigma/libenigma.so, and NVIDIA's packages are site-packages/nvidia. */
static void *open_beside_us(const char *const *names)
{
    static const char *const patterns[] = {"/../nvidia/*/lib", "/../../nvidia/*/lib", NULL};
    char folder[PATH_MAX];
    Dl_info self;
    if (dladdr(&is_cuda_library, &self) == 0 || self.dli_fname == NULL) {
        return NULL;
    }
    const char *slash = strrchr(self.dli_fname, '/');
    size_t size = slash == NULL ? 0 : (size_t)(slash - self.dli_fname);
    if (size == 0 || size >= sizeof folder) {
        return NULL;
    }
    memcpy(folder, self.dli_fname, size);
    folder[size] = '\0';
    return open_under(folder, patterns, names);
}

static void *open_loaded(const char *const *names)
{
    for (; *names != NULL; names++) {
        void *library = dlopen(*names, OPEN_FLAGS | RTLD_NOLOAD);
        if (library != NULL) {
            eni_log(ENI_LOG_INFO, "found %s in the process", *names);
            return library;
        }
    }
    return NULL;
}

enigma_status eni_cuda_locate(const char *const *names, void **out)
{
    *out = open_loaded(names);
    if (*out == NULL) {
        *out = open_near(names);
    }
    if (*out == NULL && eni_dynlib_open(names, out) != ENIGMA_OK) {
        *out = open_toolkit(names);
    }
    if (*out == NULL) {
        *out = open_beside_us(names);
    }
    if (*out == NULL) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE,
                        "%s (or an older one) was not found: not in the process, the loader's path, CUDA_HOME, "
                        "/usr/local/cuda* or the nvidia Python packages",
                        names[0]);
    }
    return ENIGMA_OK;
}
