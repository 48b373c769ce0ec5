/* The OpenCL backend: finding the loader library, the devices, opening one, its facts and its memory. Programs, launches and clocks
 * are in opencl_program.c, opencl_launch.c and opencl_clock.c. Called by gpu/ alone, as backend.h says. */
#include "backends/opencl.h"

#include <assert.h>

#include "base/dynlib.h"
#include "base/str.h"

#define NEEDS                                                                                                          \
    "an OpenCL loader (libOpenCL.so.1; Debian: ocl-icd-libopencl1) and a driver for the device (for the CPU: "         \
    "pocl-opencl-icd)"

enum { PLATFORM_LIMIT = 32, DEVICE_LIMIT = 64, TEXT_LIMIT = 1024 };

eni_opencl_functions eni_cl;

/* What load() and device_count() found. Under the lock; constant once loaded and listed. */
static struct {
    eni_mutex lock;
    bool loaded, listed;
    uint32_t generation; /* of the process that listed the devices */
    uint32_t count;
    cl_platform_id platforms[DEVICE_LIMIT];
    cl_device_id devices[DEVICE_LIMIT];
} found = {.lock = ENI_MUTEX_INIT};

/* ---- errors ---- */

const char *eni_opencl_error_name(cl_int error)
{
    switch (error) {
#define NAME(name, number)                                                                                             \
    case number:                                                                                                       \
        return #name;
        ENI_CL_ERRORS(NAME)
#undef NAME
    default:
        return "unknown error";
    }
}

static enigma_status status_of(cl_int error)
{
    switch (error) {
    case CL_OUT_OF_HOST_MEMORY:
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
        return ENIGMA_E_NO_MEMORY;
    case CL_INVALID_ARG_INDEX:
    case CL_INVALID_ARG_VALUE:
    case CL_INVALID_ARG_SIZE:
    case CL_INVALID_KERNEL_ARGS:
    case CL_INVALID_WORK_DIMENSION:
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
    case CL_INVALID_GLOBAL_OFFSET:
    case CL_INVALID_GLOBAL_WORK_SIZE:
    case CL_INVALID_BUFFER_SIZE:
        return ENIGMA_E_INVALID;
    default:
        return ENIGMA_E_DEVICE;
    }
}

enigma_status eni_opencl_fail(cl_int error, const char *what)
{
    return ENI_FAIL(status_of(error), "OpenCL: %s failed: %s (%d)", what, eni_opencl_error_name(error), error);
}

/* ---- the library and the devices ---- */

static enigma_status load_library(void)
{
    static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so",
                                        "/System/Library/Frameworks/OpenCL.framework/OpenCL", NULL};
    static const eni_dynlib_symbol symbols[] = {
#define ENI_CL_FUNCTION(required, result, name, parameters) {#name, offsetof(eni_opencl_functions, name), required},
#include "abi/opencl_symbols.def"
#undef ENI_CL_FUNCTION
    };
    void *library;
    enigma_status status = eni_dynlib_open(names, &library);
    if (status == ENIGMA_OK) {
        status = eni_dynlib_load(library, symbols, ENI_COUNT_OF(symbols), &eni_cl);
    }
    if (status == ENIGMA_E_UNAVAILABLE) {
        char *reason = eni_strdup(enigma_error_message());
        status = ENI_FAIL(ENIGMA_E_UNAVAILABLE, "OpenCL is not available: %s; it needs %s",
                          reason == NULL ? "" : reason, NEEDS);
        eni_strfree(reason);
    }
    return status;
}

static enigma_status opencl_load(void)
{
    enigma_status status = ENIGMA_OK;
    eni_lock(&found.lock);
    if (!found.loaded) {
        status = load_library();
        found.loaded = status == ENIGMA_OK;
    }
    eni_unlock(&found.lock);
    return status;
}

/* Adds a platform's devices of one type that are usable. */
static void list_devices(cl_platform_id platform, cl_bitfield type)
{
    cl_device_id devices[DEVICE_LIMIT];
    cl_uint count = 0;
    if (eni_cl.clGetDeviceIDs(platform, type, DEVICE_LIMIT, devices, &count) != CL_SUCCESS) {
        return;
    }
    for (cl_uint i = 0; i < count && i < DEVICE_LIMIT && found.count < DEVICE_LIMIT; i++) {
        cl_bool available = CL_FALSE;
        eni_cl.clGetDeviceInfo(devices[i], CL_DEVICE_AVAILABLE, sizeof available, &available, NULL);
        if (available) {
            found.platforms[found.count] = platform;
            found.devices[found.count++] = devices[i];
        }
    }
}

/* All devices of all platforms: GPUs first, then the others; within a kind as the loader lists them. */
static enigma_status list_all(void)
{
    static const cl_bitfield order[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU};
    cl_platform_id platforms[PLATFORM_LIMIT];
    cl_uint count = 0;
    cl_int error = eni_cl.clGetPlatformIDs(PLATFORM_LIMIT, platforms, &count);
    if (error != CL_SUCCESS && error != CL_PLATFORM_NOT_FOUND_KHR) {
        return eni_opencl_fail(error, "clGetPlatformIDs");
    }
    count = error != CL_SUCCESS ? 0 : count < PLATFORM_LIMIT ? count : PLATFORM_LIMIT;
    found.count = 0;
    for (size_t kind = 0; kind < ENI_COUNT_OF(order); kind++) {
        for (cl_uint i = 0; i < count; i++) {
            list_devices(platforms[i], order[kind]);
        }
    }
    if (found.count == 0) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "OpenCL has no device here: the loader found %u platform%s; it needs %s",
                        count, count == 1 ? "" : "s", NEEDS);
    }
    found.generation = eni_fork_generation;
    found.listed = true;
    return ENIGMA_OK;
}

/* Drivers start threads when they are first asked, and a forked child has none of them. */
static enigma_status opencl_device_count(uint32_t *out)
{
    enigma_status status = ENIGMA_OK;
    *out = 0;
    eni_lock(&found.lock);
    if (!found.listed) {
        status = list_all();
    } else if (found.generation != eni_fork_generation) {
        status = ENI_FAIL(ENIGMA_E_STATE,
                          "OpenCL was started before fork, and its drivers do not work in the child process: fork "
                          "before the first use, or start a new process");
    }
    if (status == ENIGMA_OK) {
        *out = found.count;
    }
    eni_unlock(&found.lock);
    return status;
}

/* ---- facts ---- */

static uint64_t device_number(cl_device_id id, cl_uint name)
{
    /* The answer has 4 or 8 bytes; little-endian machines read both right from a zeroed 64-bit word. */
    uint64_t value = 0;
    return eni_cl.clGetDeviceInfo(id, name, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

static enigma_text device_text(cl_device_id id, cl_uint name, char buffer[TEXT_LIMIT])
{
    size_t size = 0;
    buffer[0] = '\0';
    if (eni_cl.clGetDeviceInfo(id, name, TEXT_LIMIT - 1, buffer, &size) != CL_SUCCESS) {
        return (enigma_text){0};
    }
    buffer[size] = '\0';
    return eni_text_of(buffer);
}

static void text_fact(eni_facts *facts, cl_device_id id, const char *key, cl_uint name)
{
    char buffer[TEXT_LIMIT];
    enigma_text text = device_text(id, name, buffer);
    if (text.size != 0) {
        eni_facts_text(facts, key, text);
    }
}

/* 0 means that the driver does not know. */
static void number_fact(eni_facts *facts, cl_device_id id, const char *key, cl_uint name)
{
    uint64_t value = device_number(id, name);
    if (value != 0) {
        eni_facts_uint(facts, key, value);
    }
}

static void describe(cl_device_id id, cl_platform_id platform, eni_facts *facts)
{
    char buffer[TEXT_LIMIT];
    size_t size = 0;
    text_fact(facts, id, "name", CL_DEVICE_NAME);
    text_fact(facts, id, "vendor", CL_DEVICE_VENDOR);
    if (eni_cl.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof buffer, buffer, &size) == CL_SUCCESS) {
        eni_facts_text(facts, "platform", eni_text_of(buffer));
    }
    uint64_t type = device_number(id, CL_DEVICE_TYPE);
    eni_facts_text(facts, "type",
                   eni_text_of((type & CL_DEVICE_TYPE_GPU) != 0   ? "gpu"
                               : (type & CL_DEVICE_TYPE_CPU) != 0 ? "cpu"
                                                                  : "accelerator"));
    text_fact(facts, id, "driver", CL_DRIVER_VERSION);
    text_fact(facts, id, "version", CL_DEVICE_VERSION);
    text_fact(facts, id, "language", CL_DEVICE_OPENCL_C_VERSION);
    number_fact(facts, id, "compute_units", CL_DEVICE_MAX_COMPUTE_UNITS);
    number_fact(facts, id, "clock_mhz", CL_DEVICE_MAX_CLOCK_FREQUENCY);
    number_fact(facts, id, "memory_bytes", CL_DEVICE_GLOBAL_MEM_SIZE);
    number_fact(facts, id, "max_buffer_bytes", CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    number_fact(facts, id, "local_memory_bytes", CL_DEVICE_LOCAL_MEM_SIZE);
    number_fact(facts, id, "cache_bytes", CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    number_fact(facts, id, "cache_line_bytes", CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE);
    number_fact(facts, id, "timer_resolution_ns", CL_DEVICE_PROFILING_TIMER_RESOLUTION);
}

/* ---- traits ---- */

static bool language_has_3(cl_device_id id)
{
    cl_name_version versions[32];
    size_t size = 0;
    if (eni_cl.clGetDeviceInfo(id, CL_DEVICE_OPENCL_C_ALL_VERSIONS, sizeof versions, versions, &size) != CL_SUCCESS) {
        return false;
    }
    for (size_t i = 0; i < size / sizeof versions[0]; i++) {
        if (versions[i].version >> 22 >= 3) {
            return true;
        }
    }
    return false;
}

/* Partial groups came with OpenCL 2.0, became optional in 3.0, and need that language. */
static const char *partial_groups_language(cl_device_id id)
{
    char buffer[TEXT_LIMIT];
    int major = 0;
    device_text(id, CL_DEVICE_VERSION, buffer); /* "OpenCL 3.0 ..." */
    if (strncmp(buffer, "OpenCL ", 7) == 0) {
        major = buffer[7] - '0';
    }
    if (major == 2) {
        return "-cl-std=CL2.0";
    }
    if (major < 3 || device_number(id, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT) == 0) {
        return NULL;
    }
    return language_has_3(id) ? "-cl-std=CL3.0" : "-cl-std=CL2.0";
}

static void set_traits(cl_device_id id, eni_traits *traits)
{
    size_t sizes[16] = {0};
    uint64_t bits = device_number(id, CL_DEVICE_ADDRESS_BITS);
    uint64_t max_grid = bits != 0 && bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
    *traits = (eni_traits){
        .tick_ns = 1.0, /* event stamps are ns, whatever their resolution */
        .counter_bits = 64,
        .queue_limit = ENI_OPENCL_QUEUES,
        .device_count = 1,
        .max_group_threads = device_number(id, CL_DEVICE_MAX_WORK_GROUP_SIZE),
        .max_group = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
        .max_grid = {max_grid, max_grid, max_grid},
    };
    if (traits->max_group_threads == 0) {
        traits->max_group_threads = UINT64_MAX;
    }
    if (eni_cl.clGetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL) == CL_SUCCESS) {
        for (int i = 0; i < 3; i++) {
            traits->max_group[i] = sizes[i] != 0 ? sizes[i] : UINT64_MAX;
        }
    }
}

/* ---- open and close ---- */

static void opencl_close(void *handle)
{
    opencl_device *device = handle;
    eni_opencl_pairs_free(device);
    if (device->service != NULL) {
        eni_cl.clReleaseCommandQueue(device->service);
    }
    if (device->context != NULL) {
        eni_cl.clReleaseContext(device->context);
    }
    pthread_mutex_destroy(&device->clock.lock);
    ENI_DELETE(device);
}

static enigma_status make_context(opencl_device *device, cl_platform_id platform)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_int error;
    device->context = eni_cl.clCreateContext(properties, 1, &device->id, NULL, NULL, &error);
    if (device->context == NULL) {
        return eni_opencl_fail(error, "clCreateContext");
    }
    device->service = eni_cl.clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &error);
    if (device->service == NULL) {
        return eni_opencl_fail(error, "clCreateCommandQueue");
    }
    return ENIGMA_OK;
}

static enigma_status opencl_open(uint32_t index, const void *config, void **out, eni_traits *traits, eni_facts *facts)
{
    char buffer[TEXT_LIMIT];
    (void)config;
    *out = NULL;
    assert(index < found.count);
    opencl_device *device = ENI_NEW(opencl_device);
    if (device == NULL) {
        return ENI_NO_MEMORY();
    }
    pthread_mutex_init(&device->clock.lock, NULL);
    device->id = found.devices[index];
    enigma_status status = make_context(device, found.platforms[index]);
    if (status != ENIGMA_OK) {
        opencl_close(device);
        return status;
    }
    set_traits(device->id, traits);
    device->language = partial_groups_language(device->id);
    traits->partial_groups = device->language != NULL;
    device->takes_il =
        eni_cl.clCreateProgramWithIL != NULL && device_text(device->id, CL_DEVICE_IL_VERSION, buffer).size != 0;
    describe(device->id, found.platforms[index], facts);
    *out = device;
    return ENIGMA_OK;
}

/* ---- memory ---- */

typedef struct opencl_buffer {
    opencl_device *device;
    cl_mem memory;
} opencl_buffer;

static enigma_status fill_with_zeros(opencl_device *device, cl_mem memory, size_t size)
{
    const uint8_t zero = 0;
    ENI_CL_TRY(eni_cl.clEnqueueFillBuffer(device->service, memory, &zero, sizeof zero, 0, size, 0, NULL, NULL),
               "clEnqueueFillBuffer");
    ENI_CL_TRY(eni_cl.clFinish(device->service), "clFinish");
    return ENIGMA_OK;
}

static enigma_status make_memory(opencl_buffer *buffer, size_t size, const void *data)
{
    char what[96];
    cl_int error;
    cl_bitfield flags = CL_MEM_READ_WRITE | (data == NULL ? 0 : CL_MEM_COPY_HOST_PTR);
    buffer->memory = eni_cl.clCreateBuffer(buffer->device->context, flags, size, (void *)data, &error);
    if (buffer->memory == NULL) {
        snprintf(what, sizeof what, "clCreateBuffer of %zu bytes", size);
        return eni_opencl_fail(error, what);
    }
    if (data == NULL) {
        enigma_status status = fill_with_zeros(buffer->device, buffer->memory, size);
        if (status != ENIGMA_OK) {
            eni_cl.clReleaseMemObject(buffer->memory);
            return status;
        }
    }
    return ENIGMA_OK;
}

static enigma_status opencl_buffer_create(void *device, size_t size, const void *data, void **out)
{
    *out = NULL;
    opencl_buffer *buffer = ENI_NEW(opencl_buffer);
    if (buffer == NULL) {
        return ENI_NO_MEMORY();
    }
    buffer->device = device;
    enigma_status status = make_memory(buffer, size, data);
    if (status != ENIGMA_OK) {
        ENI_DELETE(buffer);
        return status;
    }
    *out = buffer;
    return ENIGMA_OK;
}

static enigma_status opencl_buffer_write(void *handle, size_t offset, const void *data, size_t size)
{
    opencl_buffer *buffer = handle;
    ENI_CL_TRY(eni_cl.clEnqueueWriteBuffer(buffer->device->service, buffer->memory, CL_TRUE, offset, size, data, 0,
                                           NULL, NULL),
               "clEnqueueWriteBuffer");
    return ENIGMA_OK;
}

static enigma_status opencl_buffer_read(void *handle, size_t offset, void *data, size_t size)
{
    opencl_buffer *buffer = handle;
    ENI_CL_TRY(
        eni_cl.clEnqueueReadBuffer(buffer->device->service, buffer->memory, CL_TRUE, offset, size, data, 0, NULL, NULL),
        "clEnqueueReadBuffer");
    return ENIGMA_OK;
}

static void opencl_buffer_free(void *handle)
{
    opencl_buffer *buffer = handle;
    eni_cl.clReleaseMemObject(buffer->memory);
    ENI_DELETE(buffer);
}

enigma_status eni_opencl_kernel_bind_buffer(void *handle, uint32_t index, void *buffer_handle)
{
    const opencl_kernel *kernel = handle;
    const opencl_buffer *buffer = buffer_handle;
    ENI_CL_TRY(eni_cl.clSetKernelArg(kernel->kernel, index, sizeof buffer->memory, &buffer->memory),
               "clSetKernelArg of a buffer");
    return ENIGMA_OK;
}

static double opencl_kernel_occupancy(void *kernel, enigma_size3 threads)
{
    (void)kernel, (void)threads;
    return -1.0; /* OpenCL has no such value */
}

const eni_backend eni_backend_opencl = {
    .name = "opencl",
    .title = "OpenCL",
    .needs = NEEDS,
    .automatic = true,
    .load = opencl_load,
    .device_count = opencl_device_count,
    .open = opencl_open,
    .close = opencl_close,
    .buffer_create = opencl_buffer_create,
    .buffer_write = opencl_buffer_write,
    .buffer_read = opencl_buffer_read,
    .buffer_free = opencl_buffer_free,
    .program_build = eni_opencl_program_build,
    .program_free = eni_opencl_program_free,
    .kernel_create = eni_opencl_kernel_create,
    .kernel_bind_buffer = eni_opencl_kernel_bind_buffer,
    .kernel_bind_scalar = eni_opencl_kernel_bind_scalar,
    .kernel_occupancy = opencl_kernel_occupancy,
    .kernel_free = eni_opencl_kernel_free,
    .launch = eni_opencl_launch,
    .finish = eni_opencl_finish,
    .poll = eni_opencl_poll,
    .wait = eni_opencl_wait,
    .stamps = eni_opencl_stamps,
    .release = eni_opencl_release,
    .clock_pair = eni_opencl_clock_pair,
};
