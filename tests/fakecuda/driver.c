/* The fake driver: one device; a thread for each stream that runs what is queued on it, in order. */
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

#define EXPORT __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the callers have their own */
#pragma GCC visibility push(default)

enum { LAUNCH_CBID = 307, STACK_LIMIT = 16, ENTRY_LIMIT = 32 };

/* ---- settings ---- */

static long settings[FAKE_SETTINGS] = {
    [FAKE_DEVICES] = 1, [FAKE_CAPABILITY] = 90, [FAKE_ARCH_LIMIT] = 90, [FAKE_KERNEL_BYTES] = 216};
static __thread long context_depth;
static __thread cu_context stack[STACK_LIMIT];
fake_hooks fake_hook;

long fake_get(enum fake_setting setting)
{
    return setting == FAKE_CONTEXT_DEPTH ? context_depth : __atomic_load_n(&settings[setting], __ATOMIC_SEQ_CST);
}
void fake_set(enum fake_setting setting, long value) { __atomic_store_n(&settings[setting], value, __ATOMIC_SEQ_CST); }
void fake_add(enum fake_setting setting, long more) { __atomic_fetch_add(&settings[setting], more, __ATOMIC_SEQ_CST); }

static cu_result take_once(enum fake_setting setting)
{
    return (cu_result)__atomic_exchange_n(&settings[setting], 0, __ATOMIC_SEQ_CST);
}

/* In steps of 32 ns, far from any clock of the host. */
uint64_t fake_device_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + UINT64_C(7000000000000000);
    return ns & ~UINT64_C(31);
}

/* ---- modules and functions ---- */

typedef struct entry {
    const char *name;
    uint32_t count;
    const size_t *sizes;
    void (*run)(void **arguments, const uint32_t *grid, const uint32_t *block);
} entry;

typedef struct module {
    void *library;
    entry *entries; /* ends with a NULL name */
    entry own[ENTRY_LIMIT];
    char text[4096];
} module;

/* ---- streams ---- */

typedef struct event {
    uint32_t pending; /* atomic: records that have not run */
    uint64_t at;
    bool timed;
} event;

typedef struct task {
    struct task *next;
    const entry *function; /* a launch */
    void *arguments[64];
    uint32_t grid[3], block[3], correlation;
    event *record;           /* or an event */
    const uint32_t *address; /* or a wait on memory */
    uint32_t value;
    _Alignas(16) char values[4096];
} task;

typedef struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *head, *tail;
    long outstanding; /* with the running one */
    bool quit;
} stream;

static void run_task(task *t)
{
    while (fake_get(FAKE_HOLD) != 0) {
        sched_yield();
    }
    if (t->record != NULL) {
        t->record->at = fake_device_clock();
        __atomic_fetch_sub(&t->record->pending, 1, __ATOMIC_RELEASE);
    } else if (t->address != NULL) {
        while ((int32_t)(__atomic_load_n(t->address, __ATOMIC_ACQUIRE) - t->value) < 0) {
            sched_yield();
        }
    } else {
        uint64_t start = fake_device_clock();
        if (t->function->run != NULL && fake_get(FAKE_STICKY_ERROR) == 0) { /* a failed context runs nothing more */
            t->function->run(t->arguments, t->grid, t->block);
        }
        fake_kernel_run run = {
            .correlation = t->correlation, .start = start, .name = t->function->name, .registers = 24};
        do {
            run.end = fake_device_clock();
        } while (run.end == start); /* no kernel takes less than a tick */
        memcpy(run.grid, t->grid, sizeof run.grid);
        memcpy(run.block, t->block, sizeof run.block);
        if (fake_hook.kernel != NULL) {
            fake_hook.kernel(&run);
        }
    }
}

static void *work(void *user)
{
    stream *s = user;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->head == NULL && !s->quit) {
            pthread_cond_wait(&s->changed, &s->lock);
        }
        task *t = s->head;
        if (t == NULL) {
            break;
        }
        s->head = t->next;
        pthread_mutex_unlock(&s->lock);
        run_task(t);
        free(t);
        pthread_mutex_lock(&s->lock);
        s->outstanding--;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void push(stream *s, task *t)
{
    pthread_mutex_lock(&s->lock);
    *(s->head == NULL ? &s->head : &s->tail->next) = t;
    s->tail = t;
    s->outstanding++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void drain(stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->outstanding != 0) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

cu_result cuStreamCreate(cu_stream *out, uint32_t flags)
{
    if (context_depth == 0 || flags != CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stream *s = calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_create(&s->thread, NULL, work, s);
    *out = s;
    return CUDA_SUCCESS;
}

cu_result cuStreamDestroy_v2(cu_stream handle)
{
    stream *s = handle;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    return CUDA_SUCCESS;
}

cu_result cuStreamQuery(cu_stream handle)
{
    stream *s = handle;
    cu_result sticky = (cu_result)fake_get(FAKE_STICKY_ERROR);
    if (sticky != 0) {
        drain(s); /* what was queued is over, if not done */
        return sticky;
    }
    pthread_mutex_lock(&s->lock);
    bool busy = s->outstanding != 0;
    pthread_mutex_unlock(&s->lock);
    return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

cu_result cuStreamSynchronize(cu_stream handle)
{
    drain(handle);
    return (cu_result)fake_get(FAKE_STICKY_ERROR);
}

#ifndef FAKE_OLD
cu_result cuStreamWaitValue32_v2(cu_stream handle, cu_pointer address, uint32_t value, uint32_t flags)
{
    if (flags != CU_STREAM_WAIT_VALUE_GEQ) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    task *t = calloc(1, sizeof *t);
    t->address = (const uint32_t *)(uintptr_t)address;
    t->value = value;
    fake_add(FAKE_GATES, 1);
    push(handle, t);
    return CUDA_SUCCESS;
}
#endif

/* ---- events ---- */

cu_result cuEventCreate(cu_event *out, uint32_t flags)
{
    event *e = calloc(1, sizeof *e);
    e->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    fake_add(FAKE_EVENTS_ALIVE, 1);
    *out = e;
    return CUDA_SUCCESS;
}

cu_result cuEventDestroy_v2(cu_event handle)
{
    event *e = handle;
    while (__atomic_load_n(&e->pending, __ATOMIC_ACQUIRE) != 0) {
        sched_yield();
    }
    fake_add(FAKE_EVENTS_ALIVE, -1);
    free(e);
    return CUDA_SUCCESS;
}

cu_result cuEventRecord(cu_event handle, cu_stream on)
{
    event *e = handle;
    task *t = calloc(1, sizeof *t);
    __atomic_fetch_add(&e->pending, 1, __ATOMIC_RELAXED);
    t->record = e;
    fake_add(FAKE_EVENTS, 1);
    push(on, t);
    return CUDA_SUCCESS;
}

cu_result cuEventQuery(cu_event handle)
{
    event *e = handle;
    cu_result sticky = (cu_result)fake_get(FAKE_STICKY_ERROR);
    return sticky != 0                                           ? sticky
           : __atomic_load_n(&e->pending, __ATOMIC_ACQUIRE) != 0 ? CUDA_ERROR_NOT_READY
                                                                 : CUDA_SUCCESS;
}

cu_result cuEventSynchronize(cu_event handle)
{
    event *e = handle;
    while (__atomic_load_n(&e->pending, __ATOMIC_ACQUIRE) != 0) {
        sched_yield();
    }
    return (cu_result)fake_get(FAKE_STICKY_ERROR);
}

cu_result cuEventElapsedTime(float *out_ms, cu_event start, cu_event end)
{
    const event *a = start, *b = end;
    if (!a->timed || !b->timed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (cuEventQuery(start) != CUDA_SUCCESS || cuEventQuery(end) != CUDA_SUCCESS) {
        return CUDA_ERROR_NOT_READY;
    }
    *out_ms = (float)((double)(int64_t)(b->at - a->at) / 1e6);
    return CUDA_SUCCESS;
}

/* ---- the device ---- */

cu_result cuInit(uint32_t flags)
{
    (void)flags;
    return (cu_result)fake_get(FAKE_INIT_ERROR);
}

cu_result cuDriverGetVersion(int *out)
{
#ifdef FAKE_OLD
    *out = 11080;
#else
    *out = 13000;
#endif
    return CUDA_SUCCESS;
}

cu_result cuGetErrorName(cu_result error, const char **out)
{
    *out = error == CUDA_ERROR_NO_DEVICE          ? "CUDA_ERROR_NO_DEVICE"
           : error == CUDA_ERROR_OUT_OF_MEMORY    ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == CUDA_ERROR_INVALID_VALUE    ? "CUDA_ERROR_INVALID_VALUE"
           : error == CUDA_ERROR_NO_BINARY        ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
           : error == CUDA_ERROR_INVALID_IMAGE    ? "CUDA_ERROR_INVALID_IMAGE"
           : error == 700                         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : error == CUDA_ERROR_LAUNCH_RESOURCES ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
                                                  : NULL;
    return *out == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

cu_result cuGetErrorString(cu_result error, const char **out)
{
    *out = error == 700 ? "an illegal memory access was encountered" : "an error";
    return CUDA_SUCCESS;
}

cu_result cuDeviceGetCount(int *out)
{
    *out = (int)fake_get(FAKE_DEVICES);
    return CUDA_SUCCESS;
}

cu_result cuDeviceGet(cu_device *out, int index)
{
    *out = index;
    return index < fake_get(FAKE_DEVICES) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cu_result cuDeviceGetName(char *out, int size, cu_device device)
{
    snprintf(out, (size_t)size, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

cu_result cuDeviceGetPCIBusId(char *out, int size, cu_device device)
{
    snprintf(out, (size_t)size, "0000:%02d:00.0", device);
    return CUDA_SUCCESS;
}

cu_result cuDeviceTotalMem_v2(size_t *out, cu_device device)
{
    (void)device;
    *out = (size_t)1 << 33;
    return CUDA_SUCCESS;
}

cu_result cuDeviceGetAttribute(int *out, int attribute, cu_device device)
{
    static const int values[128] = {[CU_DEVICE_MAX_THREADS_PER_BLOCK] = 1024,
                                    [CU_DEVICE_MAX_BLOCK_DIM_X] = 1024,
                                    [CU_DEVICE_MAX_BLOCK_DIM_X + 1] = 1024,
                                    [CU_DEVICE_MAX_BLOCK_DIM_X + 2] = 64,
                                    [CU_DEVICE_MAX_GRID_DIM_X] = 2147483647,
                                    [CU_DEVICE_MAX_GRID_DIM_X + 1] = 65535,
                                    [CU_DEVICE_MAX_GRID_DIM_X + 2] = 65535,
                                    [CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK] = 49152,
                                    [CU_DEVICE_WARP_SIZE] = 32,
                                    [CU_DEVICE_CLOCK_RATE] = 1980000,
                                    [CU_DEVICE_MULTIPROCESSOR_COUNT] = 132,
                                    [CU_DEVICE_L2_CACHE_SIZE] = 62914560,
                                    [CU_DEVICE_MAX_THREADS_PER_MULTIPROCESSOR] = 2048};
    (void)device;
    long capability = fake_get(FAKE_CAPABILITY);
    *out = attribute == CU_DEVICE_COMPUTE_CAPABILITY_MAJOR   ? (int)(capability / 10)
           : attribute == CU_DEVICE_COMPUTE_CAPABILITY_MINOR ? (int)(capability % 10)
           : attribute < 128                                 ? values[attribute]
                                                             : 0;
    return CUDA_SUCCESS;
}

static char context_of_device;

cu_result cuDevicePrimaryCtxRetain(cu_context *out, cu_device device)
{
    (void)device;
    *out = &context_of_device;
    return CUDA_SUCCESS;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    (void)device;
    return CUDA_SUCCESS;
}

cu_result cuCtxPushCurrent_v2(cu_context context)
{
    if (context_depth == STACK_LIMIT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stack[context_depth++] = context;
    return CUDA_SUCCESS;
}

#ifndef FAKE_BROKEN
cu_result cuCtxPopCurrent_v2(cu_context *out)
{
    if (context_depth == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = stack[--context_depth];
    return CUDA_SUCCESS;
}
#endif

cu_result cuCtxSynchronize(void)
{
    while (fake_get(FAKE_HOLD) != 0) {
        sched_yield();
    }
    fake_add(FAKE_SYNCHRONIZED, 1);
    return context_depth == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- memory ---- */

cu_result cuMemAlloc_v2(cu_pointer *out, size_t size)
{
    void *memory = context_depth == 0 || size > (size_t)1 << 33 ? NULL : malloc(size);
    *out = (cu_pointer)(uintptr_t)memory;
    return memory == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

cu_result cuMemFree_v2(cu_pointer memory)
{
    free((void *)(uintptr_t)memory);
    return CUDA_SUCCESS;
}

cu_result cuMemHostAlloc(void **out, size_t size, uint32_t flags)
{
    (void)flags;
    *out = calloc(1, size);
    return CUDA_SUCCESS;
}

cu_result cuMemFreeHost(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

cu_result cuMemHostGetDevicePointer_v2(cu_pointer *out, void *host, uint32_t flags)
{
    (void)flags;
    *out = (cu_pointer)(uintptr_t)host;
    return CUDA_SUCCESS;
}

cu_result cuMemcpyHtoDAsync_v2(cu_pointer target, const void *source, size_t size, cu_stream on)
{
    drain(on);
    memcpy((void *)(uintptr_t)target, source, size);
    return CUDA_SUCCESS;
}

cu_result cuMemcpyDtoHAsync_v2(void *target, cu_pointer source, size_t size, cu_stream on)
{
    drain(on);
    memcpy(target, (const void *)(uintptr_t)source, size);
    return CUDA_SUCCESS;
}

cu_result cuMemsetD8Async(cu_pointer target, unsigned char value, size_t size, cu_stream on)
{
    drain(on);
    memset((void *)(uintptr_t)target, value, size);
    return CUDA_SUCCESS;
}

/* ---- modules ---- */

/* PTX: kernels by name that do nothing. */
static void read_ptx(module *m, const char *text)
{
    size_t count = 0, used = 0;
    m->entries = m->own;
    for (const char *at = text; (at = strstr(at, ".entry ")) != NULL && count + 1 < ENTRY_LIMIT;) {
        at += 7;
        size_t size = strcspn(at, "( \n");
        m->own[count++].name = m->text + used;
        memcpy(m->text + used, at, size);
        used += size + 1;
    }
}

/* An image of the fake compiler: a shared object. */
static bool read_image(module *m, const void *image)
{
    char path[64];
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    size_t size = head.e_shoff + (size_t)head.e_shnum * head.e_shentsize; /* the section headers are the last part */
    int file = head.e_shoff == 0 ? -1 : memfd_create("kernel", 0);
    if (file < 0 || write(file, image, size) != (ssize_t)size) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    m->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
    m->entries = m->library == NULL ? NULL : dlsym(m->library, "fake_kernels");
    return m->entries != NULL;
}

cu_result cuModuleLoadDataEx(cu_module *out, const void *image, uint32_t count, int *options, void **values)
{
    cu_result error = take_once(FAKE_LOAD_ERROR);
    module *m = calloc(1, sizeof *m);
    if (error == CUDA_SUCCESS && memcmp(image, "\177ELF", 4) == 0) {
        error = read_image(m, image) ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY;
    } else if (error == CUDA_SUCCESS && strstr(image, ".version ") != NULL) {
        read_ptx(m, image);
    } else if (error == CUDA_SUCCESS) {
        error = CUDA_ERROR_INVALID_IMAGE;
    }
    if (error != CUDA_SUCCESS) {
        for (uint32_t i = 0; i < count; i++) {
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
                snprintf(values[i], 64, "ptxas fatal: the fake linker's log");
            }
        }
        free(m);
        return error;
    }
    *out = m;
    return CUDA_SUCCESS;
}

cu_result cuModuleUnload(cu_module handle)
{
    module *m = handle;
    if (m->library != NULL) {
        dlclose(m->library);
    }
    free(m);
    return CUDA_SUCCESS;
}

cu_result cuModuleGetFunction(cu_function *out, cu_module handle, const char *name)
{
    module *m = handle;
    for (entry *e = m->entries; e->name != NULL; e++) {
        if (strcmp(e->name, name) == 0) {
            *out = e;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

#ifndef FAKE_OLD
cu_result cuModuleGetFunctionCount(uint32_t *out, cu_module handle)
{
    module *m = handle;
    for (*out = 0; m->entries[*out].name != NULL; ++*out) {
    }
    return CUDA_SUCCESS;
}

cu_result cuModuleEnumerateFunctions(cu_function *functions, uint32_t count, cu_module handle)
{
    module *m = handle;
    for (uint32_t i = 0; i < count; i++) {
        functions[i] = &m->entries[i];
    }
    return CUDA_SUCCESS;
}

cu_result cuFuncGetName(const char **out, cu_function function)
{
    *out = ((const entry *)function)->name;
    return CUDA_SUCCESS;
}

cu_result cuFuncGetParamInfo(cu_function function, size_t index, size_t *offset, size_t *size)
{
    const entry *e = function;
    if (index >= e->count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = index * 8;
    *size = e->sizes[index];
    return CUDA_SUCCESS;
}
#endif

cu_result cuFuncGetAttribute(int *out, int attribute, cu_function function)
{
    (void)function;
    *out = attribute == CU_FUNC_MAX_THREADS_PER_BLOCK ? 1024 : attribute == CU_FUNC_NUM_REGS ? 24 : 0;
    return CUDA_SUCCESS;
}

cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, cu_function function, int block_size,
                                                      size_t dynamic_bytes)
{
    (void)function, (void)dynamic_bytes;
    *out = 2048 / block_size < 32 ? 2048 / block_size : 32;
    return CUDA_SUCCESS;
}

/* ---- launches ---- */

static void queue_launch(const cupti_driver_launch *launch, void **parameters, uint32_t correlation)
{
    task *t = calloc(1, sizeof *t);
    size_t used = 0;
    t->function = launch->function;
    t->correlation = correlation;
    memcpy(t->grid, launch->grid, sizeof t->grid);
    memcpy(t->block, launch->block, sizeof t->block);
    for (uint32_t i = 0; i < t->function->count; i++) {
        t->arguments[i] = t->values + used;
        memcpy(t->values + used, parameters[i], t->function->sizes[i]);
        used += (t->function->sizes[i] + 15) & ~(size_t)15;
    }
    fake_add(FAKE_LAUNCHES, 1);
    push(launch->stream, t);
}

cu_result cuLaunchKernel(cu_function function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x,
                         uint32_t block_y, uint32_t block_z, uint32_t dynamic_bytes, cu_stream on, void **parameters,
                         void **extra)
{
    static uint32_t last_correlation = 1000;
    (void)extra;
    const cupti_driver_launch launch = {
        function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_bytes, on};
    uint32_t correlation = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
    const char *name = ((const entry *)function)->name;
    if (fake_hook.call != NULL) {
        fake_hook.call(LAUNCH_CBID, CUPTI_API_ENTER, &launch, name, correlation, NULL);
    }
    cu_result error = take_once(FAKE_LAUNCH_ERROR);
    if (error == CUDA_SUCCESS) {
        queue_launch(&launch, parameters, correlation);
    }
    if (fake_hook.call != NULL) {
        fake_hook.call(LAUNCH_CBID, CUPTI_API_EXIT, &launch, name, correlation, &error);
    }
    return error;
}
