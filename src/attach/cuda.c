/* attach="cuda": sessions begin and end here. An end waits for the work launched so far: no new launches are noted for the profiler,
 * the contexts are synchronised, CUPTI hands out what it has, and what has no record then is unfinished. */
#include "attach/cuda.h"

#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "record/spot.h"

#define PATIENCE_NS UINT64_C(2000000000)
#define NAP_NS 50000
#define CHECK_NS UINT64_C(50000000)

static const eni_cupti_consumer consumer = {
    .records = ENI_CUPTI_KERNEL | ENI_CUPTI_MEMCPY | ENI_CUPTI_MEMSET,
    .launches = ENI_CUPTI_KERNEL | ENI_CUPTI_MEMCPY | ENI_CUPTI_MEMSET | ENI_CUPTI_GRAPH,
    .batch_begin = eni_tap_batch_begin,
    .record = eni_tap_record_arrived,
    .batch_end = eni_tap_batch_end,
    .enter = eni_tap_enter,
    .leave = eni_tap_leave,
    .graph = eni_tap_graph,
};

/* ---- begin ---- */

/* Records that CUPTI or we had no memory for since a session began. */
static uint64_t dropped_since(const eni_tap_session *session)
{
    eni_cupti_counts counts;
    eni_cupti_get_counts(&counts);
    eni_lock(&eni_tap_queue_.lock);
    uint64_t lost = eni_tap_queue_.lost;
    eni_unlock(&eni_tap_queue_.lock);
    return counts.dropped + lost - session->dropped_before;
}

static enigma_status begin(enigma_profiler *profiler)
{
    eni_tap_session *session = ENI_NEW(eni_tap_session);
    if (session == NULL) {
        return ENI_NO_MEMORY();
    }
    enigma_status status = eni_cupti_start(&consumer);
    if (status != ENIGMA_OK) {
        ENI_DELETE(session);
        return status;
    }
    session->profiler = profiler;
    session->serial = eni_profiler_id(profiler);
    session->category = enigma_category(profiler, eni_text_of("cuda"));
    session->dropped_before = dropped_since(session);
    eni_lock(&eni_tap_drain_.lock);
    session->next = eni_tap_drain_.sessions;
    eni_tap_drain_.sessions = session;
    eni_unlock(&eni_tap_drain_.lock);
    __atomic_add_fetch(&eni_tap_queue_.sessions, 1, __ATOMIC_RELAXED);
    return ENIGMA_OK;
}

/* ---- end ---- */

/* A copy of the contexts that were launched in, to be freed with *capacity. */
static void **copy_contexts(size_t *count, size_t *capacity)
{
    eni_tap_queue *queue = &eni_tap_queue_;
    eni_lock(&queue->lock);
    *count = queue->context_count;
    *capacity = *count * sizeof(void *);
    void **copy = *count == 0 ? NULL : eni_alloc(*capacity);
    for (size_t i = 0; copy != NULL && i < *count; i++) {
        copy[i] = queue->contexts[i];
    }
    eni_unlock(&queue->lock);
    *count = copy == NULL ? 0 : *count;
    return copy;
}

static enigma_status synchronize(void)
{
    size_t count, capacity;
    void **contexts = copy_contexts(&count, &capacity);
    enigma_status status = eni_tap_synchronize(contexts, count);
    eni_free(contexts, capacity);
    return status;
}

/* The state of a wait for records. */
typedef struct wait {
    uint64_t serial, asked_ns;
    bool interrupted;
} wait;

static uint64_t steady_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* the system's time: a scripted host clock may stand still */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Asks whether to give up, every 50 ms. */
static bool wait_is_interrupted(wait *state)
{
    uint64_t now = steady_ns();
    if (state->asked_ns == 0) {
        state->asked_ns = now;
    }
    if (!state->interrupted && now - state->asked_ns >= CHECK_NS) {
        state->asked_ns = now;
        state->interrupted = eni_interrupted();
    }
    return state->interrupted;
}

static bool wait_is_done(void *user)
{
    wait *state = user;
    return eni_tap_drain_is_done(state->serial) || wait_is_interrupted(state);
}

/* Others may still be turning records of this session into events. */
static void await_drainers(wait *state)
{
    while (eni_tap_drain_others() && !wait_is_interrupted(state)) {
        const struct timespec nap = {0, NAP_NS};
        nanosleep(&nap, NULL);
    }
}

/* Completes what a session has launched. */
static enigma_status complete(uint64_t serial)
{
    wait state = {.serial = serial};
    ENI_TRY(synchronize());
    eni_cupti_flush(wait_is_done, &state, PATIENCE_NS);
    eni_tap_drain_all();
    await_drainers(&state);
    return state.interrupted ? ENI_FAIL(ENIGMA_E_INTERRUPTED, "interrupted while waiting for CUPTI's records")
                             : ENIGMA_OK;
}

static eni_tap_session *unlink_session(uint64_t serial)
{
    eni_tap_session **at = &eni_tap_drain_.sessions;
    while (*at != NULL && (*at)->serial != serial) {
        at = &(*at)->next;
    }
    eni_tap_session *session = *at;
    if (session != NULL) {
        *at = session->next;
    }
    return session;
}

static bool has_session(uint64_t serial)
{
    eni_lock(&eni_tap_drain_.lock);
    bool found = eni_tap_session_of(serial) != NULL;
    eni_unlock(&eni_tap_drain_.lock);
    return found;
}

static enigma_status end(enigma_profiler *profiler, bool waits)
{
    uint64_t serial = eni_profiler_id(profiler);
    enigma_status status = ENIGMA_OK;
    if (!has_session(serial)) {
        return ENIGMA_OK;
    }
    if (waits) {
        status = complete(serial);
    }
    eni_lock(&eni_tap_drain_.lock);
    eni_tap_session *session = eni_tap_session_of(serial);
    if (session != NULL) {
        if (waits) {
            eni_tap_drain_rest(session, dropped_since(session));
        }
        unlink_session(serial);
    }
    eni_unlock(&eni_tap_drain_.lock);
    if (session != NULL) {
        eni_cupti_stop(&consumer);
        eni_tap_session_free(session);
    }
    eni_lock(&eni_tap_drain_.lock);
    eni_tap_drain_reset();
    eni_unlock(&eni_tap_drain_.lock);
    return status;
}

static void drain(enigma_profiler *profiler)
{
    if (has_session(eni_profiler_id(profiler))) {
        eni_cupti_flush(NULL, NULL, 0);
        eni_tap_drain_all();
    }
}

const eni_attacher eni_attacher_cuda = {"cuda", begin, end, drain};

/* ---- fork ---- */

static void before_fork(void)
{
    eni_lock(&eni_tap_drain_.lock);
    eni_lock(&eni_tap_queue_.lock);
}

static void after_fork(void)
{
    eni_unlock(&eni_tap_queue_.lock);
    eni_unlock(&eni_tap_drain_.lock);
}

/* CUPTI works in the parent alone; the notes of threads that are not here stay where they are. */
static void after_fork_in_child(void)
{
    eni_tap_drain_.sessions = NULL;
    eni_tap_drain_.drainers = 0;
    eni_tap_queue_.logs = NULL;
    eni_tap_log_forget();
    after_fork();
}

__attribute__((constructor)) static void set_up(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_ATTACH, before_fork, after_fork, after_fork_in_child};
    eni_thread_at_fork(&handler);
}
