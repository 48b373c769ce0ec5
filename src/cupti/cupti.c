/* Owns the one CUPTI session: finding the library, subscribing, what is enabled, flushing. start, stop and flush are for any thread
 * but CUPTI's own callbacks; cuptiFinalize is never called, since it races with launches on other threads. */
#include "cupti/session.h"

#include <time.h>

#include "base/clock.h"
#include "base/dynlib.h"
#include "base/log.h"
#include "base/str.h"
#include "cupti/locate.h"

#define FIRST_NAP_NS UINT64_C(20000)
#define LONGEST_NAP_NS UINT64_C(5000000)
enum { CLOCK_TRIES = 5 };

eni_cupti_functions eni_cu_pti;
const eni_cupti_consumer *eni_cupti_consumers[ENI_CUPTI_CONSUMERS];
uint32_t eni_cupti_epoch;
bool eni_cupti_own_clock;
int64_t eni_cupti_offset_ns;
uint32_t eni_cupti_generation;

/* Under the lock, but for what is atomic. Lock order: outside of what consumers take. */
static struct {
    eni_mutex lock;
    bool loaded;
    uint32_t version; /* atomic */
    cupti_subscriber subscriber;
    uint32_t starts[ENI_CUPTI_CONSUMERS]; /* of the consumer in the same place */
    uint32_t sessions;                    /* starts in all */
    uint32_t records, launches;           /* families that are enabled */
    bool graphs;
} session = {.lock = ENI_MUTEX_INIT};

/* ---- clock ---- */

/* CUPTI gets ticks, which run evenly, and interpolates between readings far apart; nanoseconds of ours may step when they are compared
 * with the system's clock. */
static uint64_t host_ticks(void) { return eni_clock_real_ticks(); }

void eni_cupti_compare_clocks(void)
{
    uint64_t narrowest = UINT64_MAX;
    int64_t offset = 0;
    if (__atomic_load_n(&eni_cupti_own_clock, __ATOMIC_RELAXED)) {
        return;
    }
    for (int i = 0; i < CLOCK_TRIES; i++) {
        uint64_t theirs = 0, before = eni_clock_real_ns();
        if (eni_cu_pti.cuptiGetTimestamp(&theirs) != CUPTI_SUCCESS) {
            return;
        }
        uint64_t width = eni_clock_real_ns() - before;
        if (width < narrowest) {
            narrowest = width;
            offset = (int64_t)(before + width / 2 - theirs);
        }
    }
    __atomic_store_n(&eni_cupti_offset_ns, offset, __ATOMIC_RELAXED);
}

/* Before anything is enabled: CUPTI then converts the device's stamps to this clock itself. */
static void give_clock(void)
{
    bool own = eni_cu_pti.cuptiActivityRegisterTimestampCallback != NULL &&
               eni_cu_pti.cuptiActivityRegisterTimestampCallback(host_ticks) == CUPTI_SUCCESS;
    __atomic_store_n(&eni_cupti_own_clock, own, __ATOMIC_RELAXED);
    if (own) {
        __atomic_store_n(&eni_cupti_offset_ns, 0, __ATOMIC_RELAXED);
    }
    eni_cupti_compare_clocks();
}

/* ---- errors ---- */

static enigma_status fail_call(const char *what, cupti_result result)
{
    const char *words = NULL;
    switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    case CUPTI_ERROR_MAX_LIMIT_REACHED: /* what it was called before CUDA 12 */
        return ENI_FAIL(
            ENIGMA_E_UNAVAILABLE,
            "another tool (a profiler such as Nsight Systems, Nsight Compute or torch.profiler) holds CUPTI in "
            "this process, and CUPTI takes one at a time: end it first (%s: error %d)",
            what, result);
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE,
                        "the NVIDIA driver does not let this user profile here (the module parameter "
                        "NVreg_RestrictProfilingToAdminUsers, or a virtual GPU without profiling; %s: error %d)",
                        what, result);
    default:
        if (eni_cu_pti.cuptiGetResultString(result, &words) != CUPTI_SUCCESS || words == NULL) {
            words = "unknown error";
        }
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "CUPTI: %s failed: %s (%d)", what, words, result);
    }
}

/* ---- the library ---- */

static enigma_status open_library(void **out)
{
    static const char *const names[] = {"libcupti.so.13",
                                        "libcupti.so.12",
                                        "libcupti.so.11.8",
                                        "libcupti.so.11.7",
                                        "libcupti.so.11.6",
                                        "libcupti.so.11.5",
                                        "libcupti.so.11.4",
                                        "libcupti.so.11.3",
                                        "libcupti.so.11.2",
                                        "libcupti.so.11.1",
                                        NULL};
    return eni_cuda_locate(names, out);
}

static enigma_status load(void)
{
    static const eni_dynlib_symbol symbols[] = {
#define ENI_CUPTI_FUNCTION(required, name, parameters) {#name, offsetof(eni_cupti_functions, name), required},
#include "abi/cupti_symbols.def"
#undef ENI_CUPTI_FUNCTION
    };
    void *library;
    uint32_t version = 0;
    if (session.loaded) {
        return ENIGMA_OK;
    }
    ENI_TRY(open_library(&library));
    ENI_TRY(eni_dynlib_load(library, symbols, ENI_COUNT_OF(symbols), &eni_cu_pti));
    cupti_result result = eni_cu_pti.cuptiGetVersion(&version);
    if (result != CUPTI_SUCCESS) {
        return fail_call("cuptiGetVersion", result);
    }
    if (version < CUPTI_VERSION_MINIMUM) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "CUPTI's version is %u; it must be %d (CUDA 11.1) or newer", version,
                        CUPTI_VERSION_MINIMUM);
    }
    eni_cupti_calls_load();
    __atomic_store_n(&session.version, version, __ATOMIC_RELAXED);
    session.loaded = true;
    eni_log(ENI_LOG_INFO, "CUPTI version %u", version);
    return ENIGMA_OK;
}

uint32_t eni_cupti_version(void) { return __atomic_load_n(&session.version, __ATOMIC_RELAXED); }

/* ---- enabling ---- */

/* The activity kinds of a family; 0 ends the list. */
static const uint32_t kinds_of_kernel[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 0};
static const uint32_t kinds_of_memcpy[] = {CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2, 0};
static const uint32_t kinds_of_memset[] = {CUPTI_ACTIVITY_KIND_MEMSET, 0};
static const struct {
    uint32_t family;
    const uint32_t *kinds;
} activities[] = {
    {ENI_CUPTI_KERNEL, kinds_of_kernel}, {ENI_CUPTI_MEMCPY, kinds_of_memcpy}, {ENI_CUPTI_MEMSET, kinds_of_memset}};

static enigma_status enable_records(uint32_t families)
{
    for (size_t i = 0; i < ENI_COUNT_OF(activities); i++) {
        if ((families & ~session.records & activities[i].family) == 0) {
            continue;
        }
        for (const uint32_t *kind = activities[i].kinds; *kind != 0; kind++) {
            cupti_result result = eni_cu_pti.cuptiActivityEnable(*kind);
            if (result != CUPTI_SUCCESS) {
                return fail_call("cuptiActivityEnable", result);
            }
        }
        session.records |= activities[i].family;
    }
    return ENIGMA_OK;
}

static void disable_records(void)
{
    for (size_t i = 0; i < ENI_COUNT_OF(activities); i++) {
        for (const uint32_t *kind = activities[i].kinds; (session.records & activities[i].family) != 0 && *kind != 0;
             kind++) {
            eni_cu_pti.cuptiActivityDisable(*kind);
        }
    }
    session.records = 0;
}

/* What a consumer needs beyond what is enabled. Nothing is disabled before the last one stops, so that a call that was entered under
 * a callback is also left under it. */
static enigma_status enable_for(const eni_cupti_consumer *consumer)
{
    uint32_t launches = consumer->launches & ~session.launches;
    bool graphs = consumer->graph != NULL && !session.graphs;
    ENI_TRY(enable_records(consumer->records));
    if (launches != 0 || graphs) {
        eni_cupti_calls_enable(session.subscriber, launches, graphs, true);
        session.launches |= launches;
        session.graphs |= graphs;
    }
    return ENIGMA_OK;
}

/* Before the first call of CUDA there is nothing to hand out, and some versions hang when asked. */
static bool is_active(void) { return __atomic_load_n(&eni_cupti_active, __ATOMIC_RELAXED) != 0; }

static void close_session(void)
{
    eni_cupti_calls_enable(session.subscriber, session.launches, session.graphs, false);
    session.launches = 0;
    session.graphs = false;
    disable_records();
    if (is_active()) {
        eni_cu_pti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); /* gives the buffers back */
    }
    eni_cu_pti.cuptiUnsubscribe(session.subscriber);
    session.subscriber = NULL;
    eni_cupti_buffers_trim();
}

static enigma_status open_session(void)
{
    if (!eni_cupti_buffers_warm()) {
        return ENI_NO_MEMORY();
    }
    eni_clock_ready();
    __atomic_add_fetch(&eni_cupti_epoch, 1, __ATOMIC_RELAXED);
    cupti_result result = eni_cu_pti.cuptiSubscribe(&session.subscriber, eni_cupti_call, NULL);
    if (result != CUPTI_SUCCESS) {
        session.subscriber = NULL;
        eni_cupti_buffers_trim();
        return fail_call("cuptiSubscribe", result);
    }
    give_clock();
    result = eni_cu_pti.cuptiActivityRegisterCallbacks(eni_cupti_buffer_requested, eni_cupti_buffer_completed);
    if (result != CUPTI_SUCCESS) {
        close_session();
        return fail_call("cuptiActivityRegisterCallbacks", result);
    }
    return ENIGMA_OK;
}

/* ---- consumers ---- */

/* The place of a consumer, or of NULL: a free one. -1: none. */
static int place_of(const eni_cupti_consumer *consumer)
{
    for (int i = 0; i < ENI_CUPTI_CONSUMERS; i++) {
        if (eni_cupti_consumers[i] == consumer) {
            return i;
        }
    }
    return -1;
}

static enigma_status add_consumer(const eni_cupti_consumer *consumer)
{
    int place = place_of(NULL);
    if (place < 0) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "CUPTI has too many consumers in this process");
    }
    bool first = session.sessions == 0;
    if (first) {
        ENI_TRY(open_session());
    }
    __atomic_store_n(&eni_cupti_consumers[place], consumer, __ATOMIC_RELEASE);
    enigma_status status = enable_for(consumer);
    if (status != ENIGMA_OK) {
        __atomic_store_n(&eni_cupti_consumers[place], NULL, __ATOMIC_RELEASE);
        if (first) {
            close_session();
        }
        return status;
    }
    session.starts[place] = 1;
    session.sessions++;
    return ENIGMA_OK;
}

static enigma_status start(const eni_cupti_consumer *consumer)
{
    int place = place_of(consumer);
    ENI_TRY(load());
    if (place >= 0) {
        session.starts[place]++;
        session.sessions++;
        return ENIGMA_OK;
    }
    return add_consumer(consumer);
}

/* CUPTI's threads and locks are the parent's. */
static enigma_status check_process(void)
{
    if (!session.loaded) {
        __atomic_store_n(&eni_cupti_generation, eni_fork_generation, __ATOMIC_RELAXED);
    }
    if (eni_cupti_in_child()) {
        return ENI_FAIL(ENIGMA_E_STATE,
                        "CUPTI was used before fork and does not work in the child process: fork before "
                        "the first use, or start a new process");
    }
    return ENIGMA_OK;
}

enigma_status eni_cupti_start(const eni_cupti_consumer *consumer)
{
    eni_lock(&session.lock);
    enigma_status status = check_process();
    if (status == ENIGMA_OK) {
        status = start(consumer);
    }
    eni_unlock(&session.lock);
    return status;
}

static enigma_status probe(void)
{
    cupti_subscriber subscriber = NULL;
    ENI_TRY(load());
    if (session.sessions != 0) {
        return ENIGMA_OK;
    }
    cupti_result result = eni_cu_pti.cuptiSubscribe(&subscriber, eni_cupti_call, NULL);
    if (result != CUPTI_SUCCESS) {
        return fail_call("cuptiSubscribe", result);
    }
    eni_cu_pti.cuptiUnsubscribe(subscriber);
    return ENIGMA_OK;
}

enigma_status eni_cupti_probe(void)
{
    eni_lock(&session.lock);
    enigma_status status = check_process();
    if (status == ENIGMA_OK) {
        status = probe();
    }
    eni_unlock(&session.lock);
    return status;
}

void eni_cupti_stop(const eni_cupti_consumer *consumer)
{
    eni_lock(&session.lock);
    int place = eni_cupti_in_child() ? -1 : place_of(consumer);
    if (place >= 0) {
        session.sessions--;
        if (--session.starts[place] == 0) {
            __atomic_store_n(&eni_cupti_consumers[place], NULL, __ATOMIC_RELEASE);
        }
        if (session.sessions == 0) {
            close_session();
        }
    }
    eni_unlock(&session.lock);
}

/* ---- flushing ---- */

static void flush_once(uint32_t flags)
{
    eni_lock(&session.lock);
    if (session.sessions != 0 && !eni_cupti_in_child() && is_active()) {
        eni_cu_pti.cuptiActivityFlushAll(flags);
    }
    eni_unlock(&session.lock);
}

static uint64_t steady_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* the system's time: a scripted host clock may stand still */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

bool eni_cupti_flush(bool (*done)(void *user), void *user, uint64_t patience_ns)
{
    uint64_t begin = steady_ns(), nap = FIRST_NAP_NS;
    for (;;) {
        flush_once(0);
        if (done == NULL || done(user)) {
            return true;
        }
        if (steady_ns() - begin >= patience_ns) {
            break;
        }
        const struct timespec rest = {0, (long)nap};
        nanosleep(&rest, NULL);
        nap = nap * 2 < LONGEST_NAP_NS ? nap * 2 : LONGEST_NAP_NS;
    }
    flush_once(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    return done(user);
}

void eni_cupti_get_counts(eni_cupti_counts *out)
{
    const uint64_t *from = (const uint64_t *)&eni_cupti_totals;
    uint64_t *to = (uint64_t *)out;
    for (size_t i = 0; i < sizeof *out / sizeof *to; i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
}

/* ---- fork ---- */

static void before_fork(void) { eni_lock(&session.lock); }
static void after_fork(void) { eni_unlock(&session.lock); }

__attribute__((constructor)) static void set_up(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_CUPTI, before_fork, after_fork, after_fork};
    eni_thread_at_fork(&handler);
}
