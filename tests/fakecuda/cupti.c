/* The fake CUPTI: one subscriber, callbacks of the calls that are enabled, records kept until a flush packs them into buffers. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "fake.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the callers have their own */
#pragma GCC visibility push(default)

enum { DOMAINS = 4, CBIDS = 1024, KINDS = 64, LATE_FLUSHES = 3 };

typedef struct record {
    struct record *next;
    size_t size;
    int wait;     /* flushes to go */
    bool running; /* a forced flush brings it, without an end */
    bool device;  /* its times are the device's */
    uint64_t bytes[32];
} record;

static struct {
    pthread_mutex_t lock;
    cupti_callback callback;
    void *user;
    bool enabled[DOMAINS][CBIDS], kinds[KINDS];
    cupti_buffer_requested requested;
    cupti_buffer_completed completed;
    cupti_timestamp timestamp;
    uint64_t first_stamp, first_device; /* both clocks when the callback was given */
    record *head, *tail;
    uint8_t *buffer; /* the next one to fill, asked for with the first record as the real one does; NULL: none yet */
    size_t buffer_size;
    size_t dropped;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    uint32_t domain, cbid;
    const char *name;
} names[] = {{1, 115, "cuLaunch"},
             {1, 277, "cuMemcpyHtoDAsync_v2"},
             {1, 307, "cuLaunchKernel"},
             {1, 442, "cuLaunchKernel_ptsz"},
             {1, 477, "cuLaunchCooperativeKernel"},
             {1, 216, "cuMemsetD8Async"},
             {1, 514, "cuGraphLaunch"},
             {1, 515, "cuGraphLaunch_ptsz"},
             {1, 527, "cuLaunchHostFunc"},
             {1, 652, "cuLaunchKernelEx"},
             {1, 653, "cuLaunchKernelEx_ptsz"},
             {2, 41, "cudaMemcpyAsync_v3020"},
             {2, 51, "cudaMemsetAsync_v3020"},
             {2, 211, "cudaLaunchKernel_v7000"},
             {2, 284, "cudaLaunchHostFunc_v10000"},
             {2, 311, "cudaGraphLaunch_v10000"},
             {2, 430, "cudaLaunchKernelExC_v11060"},
             {2, 505, "__cudaLaunchKernel_v13000"}};

/* ---- what the driver tells ---- */

void fake_cupti_call(uint32_t domain, uint32_t cbid, const void *data)
{
    pthread_mutex_lock(&state.lock);
    cupti_callback callback = fake_cupti_enabled(domain, cbid) ? state.callback : NULL;
    void *user = state.user;
    pthread_mutex_unlock(&state.lock);
    if (callback != NULL) {
        callback(user, domain, cbid, data);
    }
}

bool fake_cupti_enabled(uint32_t domain, uint32_t cbid) { return state.enabled[domain][cbid]; }

static void on_call(uint32_t cbid, uint32_t site, const void *parameters, const char *symbol, uint32_t correlation,
                    const int32_t *result)
{
    const cupti_call call = {.site = site,
                             .function_name = "cuLaunchKernel",
                             .parameters = parameters,
                             .return_value = result,
                             .symbol_name = symbol,
                             .context_id = 1,
                             .correlation = correlation};
    fake_cupti_call(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &call);
}

static record *new_record(const void *bytes, size_t size)
{
    record *r = calloc(1, sizeof *r);
    memcpy(r->bytes, bytes, size);
    r->size = size;
    return r;
}

/* Asks for a buffer unless there is one. */
static void ask_for_buffer(void)
{
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0;
    pthread_mutex_lock(&state.lock);
    bool wanted = state.buffer == NULL && state.requested != NULL;
    pthread_mutex_unlock(&state.lock);
    if (!wanted) {
        return;
    }
    state.requested(&buffer, &size, &most);
    if (buffer == NULL || ((uintptr_t)buffer & 7) != 0) {
        abort(); /* what CUPTI does not take */
    }
    fake_add(FAKE_BUFFERS_OUT, 1);
    pthread_mutex_lock(&state.lock);
    uint8_t *surplus = state.buffer != NULL ? buffer : NULL; /* another thread asked, too */
    if (surplus == NULL) {
        state.buffer = buffer;
        state.buffer_size = size;
    }
    pthread_mutex_unlock(&state.lock);
    if (surplus != NULL) {
        fake_add(FAKE_BUFFERS_OUT, -1);
        state.completed(NULL, 0, surplus, size, 0);
    }
}

/* The buffer that is there, no longer held here. */
static uint8_t *take_buffer(size_t *size)
{
    pthread_mutex_lock(&state.lock);
    uint8_t *buffer = state.buffer;
    *size = state.buffer_size;
    state.buffer = NULL;
    pthread_mutex_unlock(&state.lock);
    return buffer;
}

static void append(record *r)
{
    ask_for_buffer();
    pthread_mutex_lock(&state.lock);
    *(state.head == NULL ? &state.head : &state.tail->next) = r;
    state.tail = r;
    pthread_mutex_unlock(&state.lock);
}

void fake_cupti_record(const void *bytes, size_t size) { append(new_record(bytes, size)); }

static void on_kernel(const fake_kernel_run *run)
{
    uint64_t bytes[32] = {0};
    cupti_kernel_record *k = (cupti_kernel_record *)bytes;
    enum fake_time time = FAKE_TIME_RIGHT;
    if (strcmp(run->name, "eni_empty") != 0) { /* the library's own */
        time = (enum fake_time)fake_get(FAKE_NEXT_TIME);
        fake_set(FAKE_NEXT_TIME, FAKE_TIME_RIGHT);
    }
    if (!__atomic_load_n(&state.kinds[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], __ATOMIC_RELAXED) ||
        time == FAKE_TIME_LOST) {
        return;
    }
    *k = (cupti_kernel_record){.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               .registers = (uint16_t)run->registers,
                               .start = time == FAKE_TIME_ZERO ? 0 : run->start,
                               .end = time == FAKE_TIME_ZERO       ? 0
                                      : time == FAKE_TIME_REVERSED ? run->start - 640
                                                                   : run->end,
                               .correlation = run->correlation,
                               .context = 1,
                               .stream = 13,
                               .name = run->name};
    for (int i = 0; i < 3; i++) {
        k->grid[i] = (int32_t)run->grid[i];
        k->block[i] = (int32_t)run->block[i];
    }
    record *r = new_record(bytes, (size_t)fake_get(FAKE_KERNEL_BYTES));
    r->device = time != FAKE_TIME_ZERO;
    r->running = time == FAKE_TIME_RUNNING;
    r->wait = time == FAKE_TIME_LATE ? LATE_FLUSHES : 0;
    append(r);
}

__attribute__((constructor)) static void hook(void)
{
    fake_hook.call = on_call;
    fake_hook.kernel = on_kernel;
}

/* ---- the interface ---- */

cupti_result cuptiGetVersion(uint32_t *out)
{
#ifdef FAKE_OLD
    *out = 15;
#else
    *out = 130001;
#endif
    return CUPTI_SUCCESS;
}

cupti_result cuptiGetResultString(cupti_result result, const char **out)
{
    *out = result == CUPTI_ERROR_NOT_INITIALIZED ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR";
    return CUPTI_SUCCESS;
}

#ifndef FAKE_BROKEN
cupti_result cuptiSubscribe(cupti_subscriber *out, cupti_callback callback, void *user)
{
    cupti_result error = (cupti_result)fake_get(FAKE_SUBSCRIBE_ERROR);
    if (error != CUPTI_SUCCESS || fake_get(FAKE_SUBSCRIBED) != 0) {
        return error != CUPTI_SUCCESS ? error : CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&state.lock);
    state.callback = callback;
    state.user = user;
    pthread_mutex_unlock(&state.lock);
    fake_set(FAKE_SUBSCRIBED, 1);
    *out = &state;
    return CUPTI_SUCCESS;
}
#endif

cupti_result cuptiUnsubscribe(cupti_subscriber subscriber)
{
    (void)subscriber;
    pthread_mutex_lock(&state.lock);
    state.callback = NULL;
    memset(state.enabled, 0, sizeof state.enabled);
    pthread_mutex_unlock(&state.lock);
    fake_set(FAKE_SUBSCRIBED, 0);
    return CUPTI_SUCCESS;
}

cupti_result cuptiEnableCallback(uint32_t enable, cupti_subscriber subscriber, uint32_t domain, uint32_t cbid)
{
    (void)subscriber;
    pthread_mutex_lock(&state.lock);
    state.enabled[domain][cbid] = enable != 0;
    pthread_mutex_unlock(&state.lock);
    return CUPTI_SUCCESS;
}

cupti_result cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **out)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].domain == domain && names[i].cbid == cbid) {
            *out = names[i].name;
            return CUPTI_SUCCESS;
        }
    }
    return 1;
}

cupti_result cuptiGetTimestamp(uint64_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return CUPTI_SUCCESS;
}

/* Both clocks at one moment, at the narrowest of some tries. */
static void read_clocks(uint64_t *stamp, uint64_t *device)
{
    uint64_t narrowest = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t now = 0, before = fake_device_clock();
        if (state.timestamp != NULL) {
            now = state.timestamp();
        } else {
            cuptiGetTimestamp(&now);
        }
        uint64_t width = fake_device_clock() - before;
        if (width < narrowest) {
            narrowest = width;
            *stamp = now;
            *device = before + width / 2;
        }
    }
}

#ifndef FAKE_OLD
cupti_result cuptiActivityRegisterTimestampCallback(cupti_timestamp callback)
{
    state.timestamp = callback;
    read_clocks(&state.first_stamp, &state.first_device);
    return CUPTI_SUCCESS;
}
#endif

cupti_result cuptiActivityRegisterCallbacks(cupti_buffer_requested requested, cupti_buffer_completed completed)
{
    state.requested = requested;
    state.completed = completed;
    return CUPTI_SUCCESS;
}

cupti_result cuptiActivityEnable(uint32_t kind)
{
    cupti_result error = (cupti_result)fake_get(FAKE_ENABLE_ERROR);
    __atomic_store_n(&state.kinds[kind], error == CUPTI_SUCCESS, __ATOMIC_RELAXED);
    return error;
}

cupti_result cuptiActivityDisable(uint32_t kind)
{
    __atomic_store_n(&state.kinds[kind], false, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

/* Takes what a flush may hand out, in order. */
static record *take_ready(bool forced)
{
    record *ready = NULL, **end = &ready;
    pthread_mutex_lock(&state.lock);
    for (record **at = &state.head; *at != NULL;) {
        record *r = *at;
        if (r->wait > 0) {
            r->wait--;
        }
        if ((r->wait > 0 || r->running) && !forced) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->next = NULL;
        *end = r;
        end = &r->next;
    }
    state.tail = state.head;
    while (state.tail != NULL && state.tail->next != NULL) {
        state.tail = state.tail->next;
    }
    pthread_mutex_unlock(&state.lock);
    return ready;
}

/* The device's times on the clock that CUPTI stamps with: on a line between two readings of both. */
static void convert(record *r)
{
    uint64_t stamp = 0, device = 0;
    cupti_kernel_record *k = (cupti_kernel_record *)r->bytes;
    if (!r->device) {
        return;
    }
    read_clocks(&stamp, &device);
    long double rate = state.timestamp == NULL || device == state.first_device
                           ? 1.0L
                           : (long double)(stamp - state.first_stamp) / (long double)(device - state.first_device);
    stamp += (uint64_t)(int64_t)((long double)fake_get(FAKE_SKEW_NS) * rate);
    k->start = stamp - (uint64_t)((long double)(device - k->start) * rate);
    k->end = r->running ? 0 : stamp - (uint64_t)((long double)(int64_t)(device - k->end) * rate);
}

static size_t usable(size_t size)
{
    long limit = fake_get(FAKE_BUFFER_LIMIT);
    return limit > 0 && (size_t)limit < size ? (size_t)limit : size;
}

/* Packs records into one buffer; gives those that are left. */
static record *fill_buffer(record *list)
{
    size_t size = 0, used = 0;
    uint8_t *buffer;
    do {
        ask_for_buffer();
        buffer = take_buffer(&size);
    } while (buffer == NULL);
    while (list != NULL && used + list->size <= usable(size)) {
        record *next = list->next;
        convert(list);
        memcpy(buffer + used, list->bytes, list->size);
        used += list->size;
        free(list);
        list = next;
    }
    if (used == 0) { /* no room for a single one */
        record *next = list->next;
        __atomic_fetch_add(&state.dropped, 1, __ATOMIC_RELAXED);
        free(list);
        list = next;
    }
    fake_add(FAKE_BUFFERS_OUT, -1);
    state.completed(NULL, 0, buffer, size, used);
    return list;
}

cupti_result cuptiActivityFlushAll(uint32_t flags)
{
    fake_add(FAKE_FLUSHES, 1);
    for (record *list = take_ready((flags & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0); list != NULL;) {
        list = fill_buffer(list);
    }
    size_t size;
    uint8_t *empty = (flags & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0 ? take_buffer(&size) : NULL;
    if (empty != NULL) {
        fake_add(FAKE_BUFFERS_OUT, -1);
        state.completed(NULL, 0, empty, size, 0);
    }
    return CUPTI_SUCCESS;
}

static size_t size_of_kind(uint32_t kind)
{
    return kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? (size_t)fake_get(FAKE_KERNEL_BYTES)
           : kind == CUPTI_ACTIVITY_KIND_MEMSET          ? 88
                                                         : 96;
}

cupti_result cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_size, void **at)
{
    uint8_t *next = *at == NULL ? buffer : (uint8_t *)*at + size_of_kind(*(const uint32_t *)*at);
    if (next >= buffer + valid_size) {
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    *at = next;
    return CUPTI_SUCCESS;
}

cupti_result cuptiActivityGetNumDroppedRecords(void *context, uint32_t on, size_t *out)
{
    (void)context, (void)on;
    *out = __atomic_exchange_n(&state.dropped, 0, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

#ifndef FAKE_OLD
/* A graph's handle is its number. */
cupti_result cuptiGetGraphNodeId(void *node, uint64_t *out)
{
    *out = (uint64_t)(uintptr_t)node;
    return CUPTI_SUCCESS;
}

cupti_result cuptiGetGraphId(void *graph, uint32_t *out)
{
    *out = (uint32_t)(uintptr_t)graph;
    return CUPTI_SUCCESS;
}

cupti_result cuptiGetGraphExecId(void *exec, uint32_t *out) { return cuptiGetGraphId(exec, out); }
#endif
