/* Programs and kernels on OpenCL: building with the whole log, and what the driver tells about a kernel's arguments. */
#include "backends/opencl.h"
#include "base/str.h"

#define SPIRV_MAGIC 0x07230203u

typedef struct opencl_program {
    opencl_device *device;
    cl_program program;
} opencl_program;

/* ---- building ---- */

enum source_kind { SOURCE_TEXT, SOURCE_IL, SOURCE_BINARY, SOURCE_FOREIGN };

static bool is_one_of(const char *suffix, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(suffix, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* What the bytes are: SPIR-V says so itself; other binaries are known by the file's suffix, or by a NUL, which no text has. */
static enum source_kind kind_of(const char *source, size_t size, const char *suffix)
{
    static const char *const binary[] = {".bin", ".clbin", ".ptx"}; /* PTX is what NVIDIA's OpenCL calls a binary */
    static const char *const foreign[] = {".cu", ".cubin", ".fatbin", ".metal", ".metallib"};
    uint32_t word = 0;
    if (size >= sizeof word) {
        memcpy(&word, source, sizeof word);
    }
    if (word == SPIRV_MAGIC || word == __builtin_bswap32(SPIRV_MAGIC)) {
        return SOURCE_IL;
    }
    if (suffix != NULL && is_one_of(suffix, foreign, ENI_COUNT_OF(foreign))) {
        return SOURCE_FOREIGN;
    }
    bool looks_binary =
        memchr(source, '\0', size) != NULL || (suffix != NULL && is_one_of(suffix, binary, ENI_COUNT_OF(binary)));
    return looks_binary ? SOURCE_BINARY : SOURCE_TEXT;
}

static enigma_status create_from_binary(const opencl_device *device, const char *source, size_t size, cl_program *out)
{
    const unsigned char *binary = (const unsigned char *)source;
    cl_int state = CL_SUCCESS;
    cl_int error;
    *out = eni_cl.clCreateProgramWithBinary(device->context, 1, &device->id, &size, &binary, &state, &error);
    if (*out == NULL) {
        return ENI_FAIL(ENIGMA_E_COMPILE, "OpenCL: this is no program binary for the device: %s (%d)",
                        eni_opencl_error_name(state != CL_SUCCESS ? state : error),
                        state != CL_SUCCESS ? state : error);
    }
    return ENIGMA_OK;
}

static enigma_status create_from_il(const opencl_device *device, const char *source, size_t size, cl_program *out)
{
    cl_int error;
    if (!device->takes_il) {
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "OpenCL: this device does not take SPIR-V; give OpenCL C text or a binary of its own");
    }
    *out = eni_cl.clCreateProgramWithIL(device->context, source, size, &error);
    return *out == NULL ? eni_opencl_fail(error, "clCreateProgramWithIL") : ENIGMA_OK;
}

static enigma_status create(const opencl_device *device, const char *source, size_t size, const char *suffix,
                            cl_program *out)
{
    cl_int error;
    switch (kind_of(source, size, suffix)) {
    case SOURCE_FOREIGN:
        return ENI_FAIL(ENIGMA_E_INVALID,
                        "the OpenCL backend cannot compile a %s file; it takes OpenCL C (.cl), SPIR-V (.spv) and "
                        "program binaries (.bin, .ptx)",
                        suffix);
    case SOURCE_IL:
        return create_from_il(device, source, size, out);
    case SOURCE_BINARY:
        return create_from_binary(device, source, size, out);
    default:
        *out = eni_cl.clCreateProgramWithSource(device->context, 1, &source, &size, &error);
        return *out == NULL ? eni_opencl_fail(error, "clCreateProgramWithSource") : ENIGMA_OK;
    }
}

/* The build log as the compiler wrote it, without blanks at its end. */
static void append_log(const opencl_program *program, eni_str *out)
{
    char *log = NULL;
    size_t size = 0;
    if (eni_cl.clGetProgramBuildInfo(program->program, program->device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) !=
            CL_SUCCESS ||
        size == 0 || (log = eni_alloc(size)) == NULL) {
        return;
    }
    if (eni_cl.clGetProgramBuildInfo(program->program, program->device->id, CL_PROGRAM_BUILD_LOG, size, log, NULL) ==
        CL_SUCCESS) {
        size_t length = strnlen(log, size);
        while (length > 0 && strchr(" \t\r\n", log[length - 1]) != NULL) {
            length--;
        }
        eni_str_append(out, log, length);
    }
    eni_free(log, size);
}

static enigma_status fail_build(const opencl_program *program, cl_int error, const char *options)
{
    eni_str log = {0};
    append_log(program, &log);
    enigma_status status;
    if (error == CL_INVALID_BUILD_OPTIONS || error == CL_INVALID_COMPILER_OPTIONS) {
        status = ENI_FAIL(ENIGMA_E_COMPILE, "OpenCL: the compiler does not take the options \"%s\": %s (%d)\n%s",
                          options, eni_opencl_error_name(error), error, log.size == 0 ? "(no build log)" : log.data);
    } else {
        status = ENI_FAIL(ENIGMA_E_COMPILE, "OpenCL: the program does not build: %s (%d)\n%s",
                          eni_opencl_error_name(error), error, log.size == 0 ? "(no build log)" : log.data);
    }
    eni_str_free(&log);
    return status;
}

/* The caller's options and ours: the argument list, and the language that partial groups need unless the caller chose one. */
static void join_options(const opencl_device *device, const char *options, bool with_arguments, eni_str *out)
{
    eni_str_puts(out, options);
    if (with_arguments) {
        eni_str_puts(out, " -cl-kernel-arg-info");
    }
    if (device->language != NULL && strstr(options, "-cl-std") == NULL) {
        eni_str_printf(out, " %s", device->language);
    }
}

static cl_int build_once(const opencl_program *program, const char *options, bool with_arguments)
{
    eni_str joined = {0};
    join_options(program->device, options, with_arguments, &joined);
    cl_int error = joined.failed
                       ? CL_OUT_OF_HOST_MEMORY
                       : eni_cl.clBuildProgram(program->program, 1, &program->device->id, joined.data, NULL, NULL);
    eni_str_free(&joined);
    return error;
}

static enigma_status build(const opencl_program *program, const char *options)
{
    cl_int error = build_once(program, options, true);
    if (error != CL_SUCCESS && error != CL_OUT_OF_HOST_MEMORY) {
        /* Our own option must not refuse a program that is good without it: old drivers do not know it, and NVIDIA's (580.159) writes
         * assembly that its own assembler refuses for a kernel without arguments. Arguments stay unknown then. */
        error = build_once(program, options, false);
    }
    if (error == CL_OUT_OF_HOST_MEMORY) {
        return eni_opencl_fail(error, "clBuildProgram");
    }
    return error == CL_SUCCESS ? ENIGMA_OK : fail_build(program, error, options);
}

enigma_status eni_opencl_program_build(void *device, const char *source, size_t size, const char *suffix,
                                       const char *options, void **out)
{
    *out = NULL;
    opencl_program *program = ENI_NEW(opencl_program);
    if (program == NULL) {
        return ENI_NO_MEMORY();
    }
    program->device = device;
    enigma_status status = create(device, source, size, suffix, &program->program);
    if (status == ENIGMA_OK) {
        status = build(program, options == NULL ? "" : options);
    }
    if (status != ENIGMA_OK) {
        eni_opencl_program_free(program);
        return status;
    }
    *out = program;
    return ENIGMA_OK;
}

void eni_opencl_program_free(void *handle)
{
    opencl_program *program = handle;
    if (program->program != NULL) {
        eni_cl.clReleaseProgram(program->program); /* its kernels keep what they need */
    }
    ENI_DELETE(program);
}

/* ---- argument lists ---- */

/* Bytes of a scalar or vector type by its name in OpenCL C; 0: no such type (a struct). */
static uint64_t size_of_type(const char *type)
{
    static const struct {
        const char *name;
        uint64_t size;
    } bases[] = {{"char", 1},           {"uchar", 1},         {"unsigned char", 1}, {"short", 2},        {"ushort", 2},
                 {"unsigned short", 2}, {"int", 4},           {"uint", 4},          {"unsigned int", 4}, {"long", 8},
                 {"ulong", 8},          {"unsigned long", 8}, {"half", 2},          {"float", 4},        {"double", 8}};
    size_t length = strcspn(type, "0123456789");
    const char *digits = type + length;
    unsigned count = strcmp(digits, "") == 0     ? 1
                     : strcmp(digits, "2") == 0  ? 2
                     : strcmp(digits, "3") == 0  ? 4 /* vectors of 3 take the room of 4 */
                     : strcmp(digits, "4") == 0  ? 4
                     : strcmp(digits, "8") == 0  ? 8
                     : strcmp(digits, "16") == 0 ? 16
                                                 : 0;
    for (size_t i = 0; i < ENI_COUNT_OF(bases); i++) {
        if (strlen(bases[i].name) == length && memcmp(bases[i].name, type, length) == 0) {
            return bases[i].size * count;
        }
    }
    return 0;
}

static bool is_opaque_type(const char *type)
{
    return strncmp(type, "image", 5) == 0 || strcmp(type, "sampler_t") == 0 || strcmp(type, "event_t") == 0 ||
           strcmp(type, "queue_t") == 0;
}

/* A text the driver tells about an argument, kept with the kernel; NULL: it does not tell. */
static const char *argument_text(opencl_kernel *kernel, cl_uint index, cl_uint which)
{
    size_t size = 0;
    if (eni_cl.clGetKernelArgInfo(kernel->kernel, index, which, 0, NULL, &size) != CL_SUCCESS || size == 0) {
        return NULL;
    }
    char *text = eni_arena_alloc(&kernel->arena, size + 1);
    if (text == NULL || eni_cl.clGetKernelArgInfo(kernel->kernel, index, which, size, text, NULL) != CL_SUCCESS) {
        return NULL;
    }
    text[size] = '\0';
    return text[0] == '\0' ? NULL : text;
}

static void describe_argument(opencl_kernel *kernel, cl_uint index, eni_argument_info *out)
{
    cl_uint address = 0;
    cl_bitfield qualifiers = 0;
    *out = (eni_argument_info){.class_ = ENI_ARGUMENT_UNKNOWN};
    if (eni_cl.clGetKernelArgInfo(kernel->kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address,
                                  NULL) != CL_SUCCESS) {
        return;
    }
    eni_cl.clGetKernelArgInfo(kernel->kernel, index, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof qualifiers, &qualifiers,
                              NULL);
    out->name = argument_text(kernel, index, CL_KERNEL_ARG_NAME);
    out->type = argument_text(kernel, index, CL_KERNEL_ARG_TYPE_NAME);
    if (address == CL_KERNEL_ARG_ADDRESS_LOCAL || (qualifiers & CL_KERNEL_ARG_TYPE_PIPE) != 0 ||
        (out->type != NULL && is_opaque_type(out->type))) {
        out->class_ = ENI_ARGUMENT_OTHER;
    } else if (address == CL_KERNEL_ARG_ADDRESS_PRIVATE) {
        out->class_ = ENI_ARGUMENT_SCALAR;
        out->size = out->type == NULL ? 0 : size_of_type(out->type);
    } else {
        out->class_ = ENI_ARGUMENT_BUFFER;
    }
}

static enigma_status describe_arguments(opencl_kernel *kernel)
{
    cl_uint count = 0;
    ENI_CL_TRY(eni_cl.clGetKernelInfo(kernel->kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL),
               "clGetKernelInfo");
    eni_argument_info *arguments = eni_arena_alloc(&kernel->arena, (count + 1) * sizeof *arguments);
    if (arguments == NULL) {
        return ENI_NO_MEMORY();
    }
    for (cl_uint i = 0; i < count; i++) {
        describe_argument(kernel, i, &arguments[i]);
    }
    kernel->info.argument_count = count;
    kernel->info.arguments = arguments;
    return ENIGMA_OK;
}

/* ---- kernels ---- */

/* A size_t or a cl_ulong; both have 64 bits here. */
static bool group_number(const opencl_kernel *kernel, cl_uint which, uint64_t *out)
{
    *out = 0;
    return eni_cl.clGetKernelWorkGroupInfo(kernel->kernel, kernel->device->id, which, sizeof *out, out, NULL) ==
           CL_SUCCESS;
}

static void describe_limits(opencl_kernel *kernel)
{
    uint64_t value;
    if (group_number(kernel, CL_KERNEL_WORK_GROUP_SIZE, &value)) {
        kernel->info.max_group_threads = value;
    }
    if (group_number(kernel, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, &value)) {
        kernel->info.execution_width = value;
    }
    kernel->info.static_memory_bytes =
        group_number(kernel, CL_KERNEL_LOCAL_MEM_SIZE, &value) && value <= INT64_MAX ? (int64_t)value : -1;
}

static enigma_status fail_name(const opencl_program *program, const char *name)
{
    char names[4096] = "";
    size_t size = 0;
    /* One name after the other with ";" between them. */
    if (eni_cl.clGetProgramInfo(program->program, CL_PROGRAM_KERNEL_NAMES, sizeof names - 1, names, &size) !=
        CL_SUCCESS) {
        return ENI_FAIL(ENIGMA_E_NOT_FOUND, "the program has no kernel %s", name);
    }
    if (names[0] == '\0') {
        return ENI_FAIL(ENIGMA_E_NOT_FOUND, "the program has no kernel %s; it has no kernels at all", name);
    }
    return ENI_FAIL(ENIGMA_E_NOT_FOUND, "the program has no kernel %s; it has %s", name, names);
}

static enigma_status create_kernel(const opencl_program *program, const char *name, opencl_kernel *kernel)
{
    cl_int error;
    kernel->kernel = eni_cl.clCreateKernel(program->program, name, &error);
    if (kernel->kernel == NULL) {
        return error == CL_INVALID_KERNEL_NAME ? fail_name(program, name) : eni_opencl_fail(error, "clCreateKernel");
    }
    describe_limits(kernel);
    return describe_arguments(kernel);
}

enigma_status eni_opencl_kernel_create(void *program_handle, const char *name, void **out, const eni_kernel_info **info)
{
    const opencl_program *program = program_handle;
    *out = NULL;
    opencl_kernel *kernel = ENI_NEW(opencl_kernel);
    if (kernel == NULL) {
        return ENI_NO_MEMORY();
    }
    kernel->device = program->device;
    enigma_status status = create_kernel(program, name, kernel);
    if (status != ENIGMA_OK) {
        eni_opencl_kernel_free(kernel);
        return status;
    }
    *out = kernel;
    *info = &kernel->info;
    return ENIGMA_OK;
}

enigma_status eni_opencl_kernel_bind_scalar(void *handle, uint32_t index, const void *data, size_t size)
{
    const opencl_kernel *kernel = handle;
    char what[80];
    cl_int error = eni_cl.clSetKernelArg(kernel->kernel, index, size, data);
    if (error != CL_SUCCESS) {
        snprintf(what, sizeof what, "clSetKernelArg of argument %u with %zu bytes", index, size);
        return eni_opencl_fail(error, what);
    }
    return ENIGMA_OK;
}

void eni_opencl_kernel_free(void *handle)
{
    opencl_kernel *kernel = handle;
    if (kernel->kernel != NULL) {
        eni_cl.clReleaseKernel(kernel->kernel);
    }
    eni_arena_free(&kernel->arena);
    ENI_DELETE(kernel);
}
