/* The CUDA backend: finding the driver, the devices, opening one, its facts and its memory. Compiling is in cuda_nvrtc.c and
 * cuda_program.c, kernels, launches and timing in cuda_kernel.c, cuda_launch.c, cuda_timer.c, cuda_events.c and cuda_clock.c. Called by gpu/
 * alone, as backend.h says. */
#include "backends/cuda.h"

#include <assert.h>

#include "base/dynlib.h"
#include "base/str.h"
#include "cupti/cupti.h"

#define NEEDS "an NVIDIA GPU and its driver, which brings libcuda.so.1 (Debian: libcuda1; else NVIDIA's installer)"

enum { TEXT_LIMIT = 512 };

eni_cuda_functions eni_cu;

/* What load() and device_count() found. Under the lock; constant once loaded and started. */
static struct {
    eni_mutex lock;
    bool loaded, started;
    uint32_t generation; /* of the process that started the driver */
    int version, count;
} found = {.lock = ENI_MUTEX_INIT};

/* ---- errors ---- */

static enigma_status status_of(cu_result error)
{
    switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return ENIGMA_E_NO_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_LAUNCH_RESOURCES:
        return ENIGMA_E_INVALID;
    default:
        return ENIGMA_E_DEVICE;
    }
}

enigma_status eni_cuda_fail(cu_result error, const char *what)
{
    const char *name = NULL, *words = NULL;
    eni_cu.cuGetErrorName(error, &name);
    eni_cu.cuGetErrorString(error, &words);
    return ENI_FAIL(status_of(error), "CUDA: %s failed: %s (%d): %s", what, name == NULL ? "unknown error" : name,
                    error, words == NULL ? "no description" : words);
}

/* ---- the driver and the devices ---- */

static enigma_status load_library(void)
{
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    static const eni_dynlib_symbol symbols[] = {
#define ENI_CUDA_FUNCTION(required, name, symbol, parameters) {symbol, offsetof(eni_cuda_functions, name), required},
#define ENI_NVRTC_FUNCTION(required, result, name, parameters)
#include "abi/cuda_symbols.def"
#undef ENI_CUDA_FUNCTION
#undef ENI_NVRTC_FUNCTION
    };
    void *library;
    enigma_status status = eni_dynlib_open(names, &library);
    if (status == ENIGMA_OK) {
        status = eni_dynlib_load(library, symbols, ENI_COUNT_OF(symbols), &eni_cu);
    }
    if (status == ENIGMA_E_UNAVAILABLE) {
        char *reason = eni_strdup(enigma_error_message());
        status = ENI_FAIL(ENIGMA_E_UNAVAILABLE, "CUDA is not available: %s; it needs %s", reason == NULL ? "" : reason,
                          NEEDS);
        eni_strfree(reason);
    }
    return status;
}

static enigma_status cuda_load(void)
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

static enigma_status start_driver(void)
{
    const char *name = NULL;
    int count = 0;
    cu_result error = eni_cu.cuInit(0);
    if (error == CUDA_SUCCESS) {
        error = eni_cu.cuDeviceGetCount(&count);
    }
    if (error != CUDA_SUCCESS || count <= 0) {
        eni_cu.cuGetErrorName(error, &name);
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "CUDA has no device here: the driver says %s (%d); it needs %s",
                        error == CUDA_SUCCESS ? "that there are none"
                        : name == NULL        ? "unknown error"
                                              : name,
                        error, NEEDS);
    }
    eni_cu.cuDriverGetVersion(&found.version);
    found.count = count;
    found.generation = eni_fork_generation;
    found.started = true;
    return ENIGMA_OK;
}

static enigma_status cuda_device_count(uint32_t *out)
{
    enigma_status status = ENIGMA_OK;
    *out = 0;
    eni_lock(&found.lock);
    if (!found.started) {
        status = start_driver();
    } else if (found.generation != eni_fork_generation) {
        status = ENI_FAIL(ENIGMA_E_STATE, "CUDA was started before fork, and does not work in the child process: fork "
                                          "before the first use, or start a new process");
    }
    if (status == ENIGMA_OK) {
        *out = (uint32_t)found.count;
    }
    eni_unlock(&found.lock);
    return status;
}

int eni_cuda_version(void) { return found.version; }

enigma_status eni_cuda_enter(const cuda_device *device)
{
    ENI_CU_TRY(eni_cu.cuCtxPushCurrent(device->context), "cuCtxPushCurrent");
    return ENIGMA_OK;
}

/* ---- facts ---- */

int eni_cuda_attribute(const cuda_device *device, int attribute)
{
    int value = 0;
    return eni_cu.cuDeviceGetAttribute(&value, attribute, device->id) == CUDA_SUCCESS && value > 0 ? value : 0;
}

/* 0 means that the driver does not know. */
static void number_fact(eni_facts *facts, const cuda_device *device, const char *key, int attribute, int divisor)
{
    int value = eni_cuda_attribute(device, attribute);
    if (value != 0) {
        eni_facts_uint(facts, key, (uint64_t)(value / divisor));
    }
}

/* Digits with points between: "580.159.04". */
static bool is_version(const char *word)
{
    return strspn(word, "0123456789.") == strlen(word) && strchr(word, '.') != NULL && word[0] != '.';
}

/* The kernel module's version: the driver's library tells only the CUDA version. */
static bool read_module_version(char out[64])
{
    char line[512], *rest = line;
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    bool known = false;
    if (file == NULL) {
        return false;
    }
    if (fgets(line, sizeof line, file) != NULL) {
        for (char *word; !known && (word = strsep(&rest, " \t\n")) != NULL;) {
            known = is_version(word) && snprintf(out, 64, "%s", word) < 64;
        }
    }
    fclose(file);
    return known;
}

static void describe_versions(const cuda_device *device, eni_facts *facts)
{
    char text[96], module[64];
    int major = found.version / 1000, minor = found.version % 1000 / 10;
    if (read_module_version(module)) {
        eni_facts_text(facts, "driver", eni_text_of(module));
    } else {
        snprintf(text, sizeof text, "CUDA %d.%d", major, minor);
        eni_facts_text(facts, "driver", eni_text_of(text));
    }
    snprintf(text, sizeof text, "CUDA %d.%d, compute capability %d.%d", major, minor, device->capability / 10,
             device->capability % 10);
    eni_facts_text(facts, "version", eni_text_of(text));
    snprintf(text, sizeof text, "%d.%d", device->capability / 10, device->capability % 10);
    eni_facts_text(facts, "compute_capability", eni_text_of(text));
    snprintf(text, sizeof text, "%d.%d", major, minor);
    eni_facts_text(facts, "cuda_version", eni_text_of(text));
}

static void describe(const cuda_device *device, eni_facts *facts)
{
    char text[TEXT_LIMIT];
    size_t memory = 0;
    if (eni_cu.cuDeviceGetName(text, TEXT_LIMIT, device->id) == CUDA_SUCCESS) {
        eni_facts_text(facts, "name", eni_text_of(text));
    }
    eni_facts_text(facts, "vendor", eni_text_of("NVIDIA"));
    eni_facts_text(facts, "type", eni_text_of("gpu"));
    describe_versions(device, facts);
    if (eni_cu.cuDeviceGetPCIBusId(text, TEXT_LIMIT, device->id) == CUDA_SUCCESS) {
        eni_facts_text(facts, "pci_bus_id", eni_text_of(text));
    }
    number_fact(facts, device, "compute_units", CU_DEVICE_MULTIPROCESSOR_COUNT, 1);
    number_fact(facts, device, "clock_mhz", CU_DEVICE_CLOCK_RATE, 1000);
    number_fact(facts, device, "memory_clock_mhz", CU_DEVICE_MEMORY_CLOCK_RATE, 1000);
    number_fact(facts, device, "memory_bus_bits", CU_DEVICE_MEMORY_BUS_WIDTH, 1);
    if (eni_cu.cuDeviceTotalMem(&memory, device->id) == CUDA_SUCCESS) {
        eni_facts_uint(facts, "memory_bytes", memory);
    }
    number_fact(facts, device, "local_memory_bytes", CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK, 1);
    number_fact(facts, device, "local_memory_per_unit_bytes", CU_DEVICE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 1);
    number_fact(facts, device, "cache_bytes", CU_DEVICE_L2_CACHE_SIZE, 1);
    number_fact(facts, device, "registers_per_group", CU_DEVICE_MAX_REGISTERS_PER_BLOCK, 1);
    number_fact(facts, device, "max_threads_per_unit", CU_DEVICE_MAX_THREADS_PER_MULTIPROCESSOR, 1);
    number_fact(facts, device, "execution_width", CU_DEVICE_WARP_SIZE, 1);
}

/* Which clock a timed launch will have: known before the first one, since a profile should say it. */
static void describe_timer(eni_facts *facts)
{
    if (eni_cupti_probe() == ENIGMA_OK) {
        eni_facts_text(facts, "timer", eni_text_of("CUPTI activity"));
        return;
    }
    eni_facts_text(facts, "timer", eni_text_of("event pairs, calibrated"));
    eni_facts_text(facts, "timer_reason", eni_text_of(enigma_error_message()));
}

static void set_traits(cuda_device *device, eni_traits *traits)
{
    *traits = (eni_traits){
        .tick_ns = 1.0, /* stamps are on the host's clock, in ns */
        .counter_bits = 64,
        .queue_limit = ENI_CUDA_STREAMS,
        .device_count = 1,
        .max_group_threads = (uint64_t)eni_cuda_attribute(device, CU_DEVICE_MAX_THREADS_PER_BLOCK),
    };
    for (int i = 0; i < 3; i++) {
        device->max_blocks[i] = (uint32_t)eni_cuda_attribute(device, CU_DEVICE_MAX_GRID_DIM_X + i);
        traits->max_group[i] = (uint64_t)eni_cuda_attribute(device, CU_DEVICE_MAX_BLOCK_DIM_X + i);
        traits->max_grid[i] = device->max_blocks[i] * traits->max_group[i]; /* the blocks are checked at the launch */
    }
}

/* ---- open and close ---- */

/* In the device's context. */
static void close_in_context(cuda_device *device)
{
    eni_cuda_queues_free(device);
    eni_cuda_clock_close(device);
    eni_cuda_events_close(device);
    if (device->service != NULL) {
        eni_cu.cuStreamDestroy(device->service);
    }
}

static void cuda_close(void *handle)
{
    cuda_device *device = handle;
    if (device->timer == CUDA_TIMER_CUPTI) {
        eni_cuda_cupti_stop();
    }
    if (device->context != NULL) {
        if (eni_cuda_enter(device) == ENIGMA_OK) {
            close_in_context(device);
            eni_cuda_leave();
        }
        eni_cu.cuDevicePrimaryCtxRelease(device->id);
    }
    for (int i = 0; i < ENI_CUDA_STREAMS; i++) {
        pthread_mutex_destroy(&device->queues[i].lock);
    }
    ENI_DELETE(device);
}

static enigma_status make_context(cuda_device *device, uint32_t index)
{
    ENI_CU_TRY(eni_cu.cuDeviceGet(&device->id, (int)index), "cuDeviceGet");
    ENI_CU_TRY(eni_cu.cuDevicePrimaryCtxRetain(&device->context, device->id), "cuDevicePrimaryCtxRetain");
    ENI_TRY(eni_cuda_enter(device));
    cu_result error = eni_cu.cuStreamCreate(&device->service, CU_STREAM_NON_BLOCKING);
    eni_cuda_leave();
    return error == CUDA_SUCCESS ? ENIGMA_OK : eni_cuda_fail(error, "cuStreamCreate");
}

static enigma_status cuda_open(uint32_t index, const void *config, void **out, eni_traits *traits, eni_facts *facts)
{
    (void)config;
    *out = NULL;
    assert(index < (uint32_t)found.count);
    cuda_device *device = ENI_NEW(cuda_device);
    if (device == NULL) {
        return ENI_NO_MEMORY();
    }
    for (int i = 0; i < ENI_CUDA_STREAMS; i++) {
        pthread_mutex_init(&device->queues[i].lock, NULL);
    }
    device->index = index;
    enigma_status status = make_context(device, index);
    if (status != ENIGMA_OK) {
        cuda_close(device);
        return status;
    }
    device->capability = eni_cuda_attribute(device, CU_DEVICE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                         eni_cuda_attribute(device, CU_DEVICE_COMPUTE_CAPABILITY_MINOR);
    device->threads_per_unit = eni_cuda_attribute(device, CU_DEVICE_MAX_THREADS_PER_MULTIPROCESSOR);
    device->warp = eni_cuda_attribute(device, CU_DEVICE_WARP_SIZE);
    set_traits(device, traits);
    describe(device, facts);
    describe_timer(facts);
    *out = device;
    return ENIGMA_OK;
}

/* ---- memory ---- */

typedef struct cuda_buffer {
    cuda_device *device;
    cu_pointer memory;
} cuda_buffer;

cu_pointer eni_cuda_buffer_address(const void *buffer) { return ((const cuda_buffer *)buffer)->memory; }

/* The three below run in the device's context. */
static enigma_status fill(const cuda_buffer *buffer, size_t size, const void *data)
{
    cu_stream stream = buffer->device->service;
    if (data == NULL) {
        ENI_CU_TRY(eni_cu.cuMemsetD8Async(buffer->memory, 0, size, stream), "cuMemsetD8Async");
    } else {
        ENI_CU_TRY(eni_cu.cuMemcpyHtoDAsync(buffer->memory, data, size, stream), "cuMemcpyHtoDAsync");
    }
    ENI_CU_TRY(eni_cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    return ENIGMA_OK;
}

static enigma_status make_memory(cuda_buffer *buffer, size_t size, const void *data)
{
    char what[96];
    cu_result error = eni_cu.cuMemAlloc(&buffer->memory, size);
    if (error != CUDA_SUCCESS) {
        snprintf(what, sizeof what, "cuMemAlloc of %zu bytes", size);
        return eni_cuda_fail(error, what);
    }
    enigma_status status = fill(buffer, size, data);
    if (status != ENIGMA_OK) {
        eni_cu.cuMemFree(buffer->memory);
    }
    return status;
}

static enigma_status read_memory(const cuda_buffer *buffer, size_t offset, void *data, size_t size)
{
    cu_stream stream = buffer->device->service;
    ENI_CU_TRY(eni_cu.cuMemcpyDtoHAsync(data, buffer->memory + offset, size, stream), "cuMemcpyDtoHAsync");
    ENI_CU_TRY(eni_cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    return ENIGMA_OK;
}

static enigma_status cuda_buffer_create(void *device, size_t size, const void *data, void **out)
{
    *out = NULL;
    cuda_buffer *buffer = ENI_NEW(cuda_buffer);
    if (buffer == NULL) {
        return ENI_NO_MEMORY();
    }
    buffer->device = device;
    enigma_status status = eni_cuda_enter(device);
    if (status == ENIGMA_OK) {
        status = make_memory(buffer, size, data);
        eni_cuda_leave();
    }
    if (status != ENIGMA_OK) {
        ENI_DELETE(buffer);
        return status;
    }
    *out = buffer;
    return ENIGMA_OK;
}

static enigma_status cuda_buffer_write(void *handle, size_t offset, const void *data, size_t size)
{
    const cuda_buffer *buffer = handle;
    if (size == 0) {
        return ENIGMA_OK;
    }
    ENI_TRY(eni_cuda_enter(buffer->device));
    const cuda_buffer part = {buffer->device, buffer->memory + offset};
    enigma_status status = fill(&part, size, data);
    eni_cuda_leave();
    return status;
}

static enigma_status cuda_buffer_read(void *handle, size_t offset, void *data, size_t size)
{
    const cuda_buffer *buffer = handle;
    if (size == 0) {
        return ENIGMA_OK;
    }
    ENI_TRY(eni_cuda_enter(buffer->device));
    enigma_status status = read_memory(buffer, offset, data, size);
    eni_cuda_leave();
    return status;
}

static void cuda_buffer_free(void *handle)
{
    cuda_buffer *buffer = handle;
    if (eni_cuda_enter(buffer->device) == ENIGMA_OK) {
        eni_cu.cuMemFree(buffer->memory);
        eni_cuda_leave();
    }
    ENI_DELETE(buffer);
}

/* ---- stamps ---- */

static void cuda_stamps(void *handle, eni_stamps *out)
{
    cuda_ticket *ticket = handle;
    *out = (eni_stamps){.scheduling_us = -1.0};
    assert(ticket->timed);
    if (ticket->timer == CUDA_TIMER_CUPTI) {
        eni_cuda_cupti_stamps(ticket, out);
    } else {
        eni_cuda_events_stamps(ticket, out);
    }
}

static bool cuda_stamps_ready(void *handle)
{
    const cuda_ticket *ticket = handle;
    return ticket->timer != CUDA_TIMER_CUPTI || __atomic_load_n(&ticket->filled, __ATOMIC_ACQUIRE) != 0;
}

const eni_backend eni_backend_cuda = {
    .name = "cuda",
    .title = "CUDA",
    .needs = NEEDS,
    .automatic = true,
    .load = cuda_load,
    .device_count = cuda_device_count,
    .open = cuda_open,
    .close = cuda_close,
    .buffer_create = cuda_buffer_create,
    .buffer_write = cuda_buffer_write,
    .buffer_read = cuda_buffer_read,
    .buffer_free = cuda_buffer_free,
    .program_build = eni_cuda_program_build,
    .program_free = eni_cuda_program_free,
    .kernel_create = eni_cuda_kernel_create,
    .kernel_bind_buffer = eni_cuda_kernel_bind_buffer,
    .kernel_bind_scalar = eni_cuda_kernel_bind_scalar,
    .kernel_occupancy = eni_cuda_kernel_occupancy,
    .kernel_free = eni_cuda_kernel_free,
    .launch = eni_cuda_launch,
    .finish = eni_cuda_finish,
    .poll = eni_cuda_poll,
    .wait = eni_cuda_wait,
    .stamps = cuda_stamps,
    .stamps_ready = cuda_stamps_ready,
    .release = eni_cuda_release,
    .clock_pair = eni_cuda_clock_pair,
};
