/* Owns enigma_kernel: a program compiled from text or a file, and one kernel of it. Called through section 13 of enigma.h, by one
 * thread at a time for each runtime. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "gpu/gpu.h"

/* Where a kernel comes from: bytes, and the suffix that says what they are. */
typedef struct origin {
    const char *data;
    size_t size;
    const char *suffix; /* NULL: text given directly */
    eni_str file;       /* what was read; empty: data is the caller's */
} origin;

static enigma_status read_all(int descriptor, const char *path, eni_str *out)
{
    char block[65536];
    for (;;) {
        ssize_t size = read(descriptor, block, sizeof block);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0) {
            return eni_error_io(errno, "cannot read", path);
        }
        if (size == 0) {
            return out->failed ? ENI_NO_MEMORY() : ENIGMA_OK;
        }
        eni_str_append(out, block, (size_t)size);
    }
}

static enigma_status read_file(const char *path, eni_str *out)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return eni_error_io(errno, "cannot open", path);
    }
    enigma_status status = read_all(descriptor, path, out);
    close(descriptor);
    return status;
}

static const char *suffix_of(const char *path)
{
    const char *base = strrchr(path, '/');
    const char *dot = strrchr(base == NULL ? path : base + 1, '.');
    return dot == NULL ? "" : dot;
}

static enigma_status find_origin(const enigma_kernel_desc *desc, origin *out)
{
    if (desc->source != NULL) {
        out->data = desc->source;
        out->size = desc->source_size == 0 ? strlen(desc->source) : desc->source_size;
        return ENIGMA_OK;
    }
    ENI_TRY(read_file(desc->path, &out->file));
    out->data = out->file.data == NULL ? "" : out->file.data;
    out->size = out->file.size;
    out->suffix = suffix_of(desc->path);
    return ENIGMA_OK;
}

static enigma_status check_compile(const enigma_runtime *runtime, const enigma_kernel_desc *desc)
{
    if (runtime == NULL || desc == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", runtime == NULL ? "runtime" : "desc");
    }
    if (desc->struct_size < sizeof *desc) {
        return ENI_FAIL(ENIGMA_E_INVALID, "enigma_kernel_desc.struct_size is %u; set it to sizeof the struct",
                        desc->struct_size);
    }
    if (desc->name == NULL || desc->name[0] == '\0') {
        return ENI_FAIL(ENIGMA_E_INVALID, "the kernel has no name");
    }
    if ((desc->source == NULL) == (desc->path == NULL)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "kernel %s: give a source or a path, and not both", desc->name);
    }
    return eni_runtime_check(runtime);
}

static enigma_status build(enigma_runtime *runtime, const enigma_kernel_desc *desc, enigma_kernel *kernel)
{
    const eni_backend *backend = runtime->backend;
    origin from = {0};
    enigma_status status = find_origin(desc, &from);
    if (status == ENIGMA_OK) {
        eni_lock(&runtime->lock);
        status =
            backend->program_build(runtime->device, from.data, from.size, from.suffix, desc->options, &kernel->program);
        if (status == ENIGMA_OK) {
            status = backend->kernel_create(kernel->program, desc->name, &kernel->handle, &kernel->info);
            if (status != ENIGMA_OK) {
                backend->program_free(kernel->program);
            }
        }
        eni_unlock(&runtime->lock);
    }
    eni_str_free(&from.file);
    return status;
}

enigma_status enigma_kernel_compile(enigma_runtime *runtime, const enigma_kernel_desc *desc, enigma_kernel **out)
{
    if (out == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "out is NULL");
    }
    *out = NULL;
    ENI_TRY(check_compile(runtime, desc));
    enigma_kernel *kernel = ENI_NEW(enigma_kernel);
    char *name = eni_strdup(desc->name);
    if (kernel == NULL || name == NULL) {
        eni_free(kernel, sizeof *kernel);
        eni_strfree(name);
        return ENI_NO_MEMORY();
    }
    enigma_status status = build(runtime, desc, kernel);
    if (status != ENIGMA_OK) {
        ENI_DELETE(kernel);
        eni_strfree(name);
        return status;
    }
    kernel->references = 1;
    kernel->runtime = runtime;
    kernel->name = eni_text_of(name);
    eni_runtime_retain(runtime);
    *out = kernel;
    return ENIGMA_OK;
}

enigma_text enigma_kernel_name(const enigma_kernel *kernel)
{
    assert(kernel != NULL);
    return kernel->name;
}

void eni_kernel_retain(enigma_kernel *kernel) { __atomic_fetch_add(&kernel->references, 1, __ATOMIC_RELAXED); }

void enigma_kernel_free(enigma_kernel *kernel)
{
    if (kernel == NULL || __atomic_sub_fetch(&kernel->references, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    enigma_runtime *runtime = kernel->runtime;
    if (runtime->generation == eni_fork_generation) {
        eni_lock(&runtime->lock);
        runtime->backend->kernel_free(kernel->handle);
        runtime->backend->program_free(kernel->program);
        eni_unlock(&runtime->lock);
    }
    eni_strfree((char *)kernel->name.data);
    ENI_DELETE(kernel);
    eni_runtime_release(runtime);
}
