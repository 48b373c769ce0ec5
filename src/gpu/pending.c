/* Owns the work that was launched and not waited for: a list for each queue of each runtime, in order of launch, since queues
 * complete in order. Whoever waits, dispatches next or ends a profile completes it: stamps go into the event's block, then the
 * references are dropped. Any thread. In a forked child all of it belongs to the parent and is forgotten. */
#include <assert.h>
#include <sched.h>
#include <time.h>

#include "base/str.h"
#include "gpu/gpu.h"

enum { TIDY_LIMIT = 4, SPINS = 64 };
#define FIRST_NAP_NS UINT64_C(20000)
#define LONGEST_NAP_NS UINT64_C(1000000)
#define INTERRUPT_CHECK_NS UINT64_C(50000000)

static eni_mutex pending_lock = ENI_MUTEX_INIT;
static enigma_runtime *runtimes; /* newest first */

/* ---- waiting ---- */

/* The state of a wait by polling: spins briefly, then naps ever longer, and asks now and then whether to give up. */
typedef struct backoff {
    uint32_t spins;
    uint64_t nap_ns, asked_ns;
} backoff;

enigma_status eni_gpu_check_interrupt(uint64_t *asked_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* the system's time: a scripted host clock may stand still */
    uint64_t now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    if (*asked_ns == 0) {
        *asked_ns = now_ns; /* asking may be dear (another thread's interpreter lock): not before the first 50 ms */
    }
    if (now_ns - *asked_ns < INTERRUPT_CHECK_NS) {
        return ENIGMA_OK;
    }
    *asked_ns = now_ns;
    return eni_interrupted() ? ENI_FAIL(ENIGMA_E_INTERRUPTED, "interrupted while using the device") : ENIGMA_OK;
}

static enigma_status backoff_pause(backoff *state)
{
    if (state->spins++ < SPINS) {
        sched_yield();
        return ENIGMA_OK;
    }
    state->nap_ns = state->nap_ns == 0 ? FIRST_NAP_NS : state->nap_ns + state->nap_ns / 4;
    state->nap_ns = state->nap_ns < LONGEST_NAP_NS ? state->nap_ns : LONGEST_NAP_NS;
    const struct timespec nap = {0, (long)state->nap_ns};
    nanosleep(&nap, NULL);
    return eni_gpu_check_interrupt(&state->asked_ns);
}

bool eni_gpu_may_block(const enigma_runtime *runtime) { return runtime->traits.instant || !eni_interruptible(); }

enigma_status eni_gpu_wait(const enigma_runtime *runtime, void *ticket)
{
    if (eni_gpu_may_block(runtime)) {
        return runtime->backend->wait(ticket);
    }
    backoff state = {0};
    for (;;) {
        int complete = runtime->backend->poll(ticket);
        if (complete != 0) {
            return complete < 0 ? (enigma_status)complete : ENIGMA_OK;
        }
        ENI_TRY(backoff_pause(&state));
    }
}

/* ---- entries ---- */

eni_pending *eni_pending_new(void) { return ENI_NEW(eni_pending); }

void eni_pending_delete(eni_pending *pending)
{
    if (pending != NULL) {
        ENI_DELETE(pending);
    }
}

/* eni_pending_tidy looks at it without the lock. */
static void set_head(eni_gpu_queue *queue, eni_pending *head)
{
    __atomic_store_n(&queue->head, head, __ATOMIC_RELAXED);
}

void eni_pending_add(eni_pending *pending, enigma_prepared *prepared, void *ticket, uint32_t device, uint32_t queue,
                     enigma_profiler *profiler, eni_gpu_block *block)
{
    enigma_runtime *runtime = prepared->kernel->runtime;
    *pending = (eni_pending){.prepared = prepared, .ticket = ticket, .profiler = profiler, .block = block};
    pending->queue = device * runtime->traits.queue_limit + queue;
    eni_prepared_retain(prepared);
    if (profiler != NULL) {
        eni_profiler_retain(profiler);
    }
    eni_lock(&pending_lock);
    eni_gpu_queue *list = &runtime->queues[pending->queue];
    if (list->head == NULL) {
        set_head(list, pending);
    } else {
        list->tail->next = pending;
    }
    list->tail = pending;
    prepared->pending++;
    eni_unlock(&pending_lock);
}

/* Keeps the first failure until a wait reports it. */
static void note_failure(eni_gpu_failure *failure, enigma_status status)
{
    if (failure->status == ENIGMA_OK) {
        failure->status = status;
        failure->message = eni_strdup(enigma_error_message());
    }
}

/* Takes the stamps of the complete head of a queue and unlinks it. With the lock held; the caller drops its references later, since
 * that may free device objects. */
static eni_pending *complete_head(enigma_runtime *runtime, eni_gpu_queue *queue, int state)
{
    eni_pending *head = queue->head;
    uint32_t verdict = ENI_GPU_FAILED;
    eni_stamps stamps = {0};
    if (state > 0 && head->profiler != NULL) {
        runtime->backend->stamps(head->ticket, &stamps);
        verdict = eni_gpu_judge(&stamps, runtime->traits.counter_bits);
    } else if (state < 0) {
        note_failure(&head->prepared->failure, (enigma_status)state);
        note_failure(&runtime->failure, (enigma_status)state);
    }
    eni_gpu_fill_block(head->block, &stamps, verdict);
    head->prepared->pending--;
    set_head(queue, head->next);
    if (queue->head == NULL) {
        queue->tail = NULL;
    }
    return head;
}

/* Whether completing an entry costs nothing but the query. */
static bool is_cheap(const enigma_runtime *runtime, const eni_pending *item)
{
    return item->profiler == NULL || runtime->backend->stamps_ready == NULL ||
           runtime->backend->stamps_ready(item->ticket);
}

/* Completes finished heads of a queue, at most so many, all or up to the first that is not cheap; adds them to the list of what is to
 * be released. With the lock held. */
static void harvest(enigma_runtime *runtime, eni_gpu_queue *queue, uint32_t limit, bool all, eni_pending **done)
{
    while (limit-- > 0 && queue->head != NULL && !queue->head->claimed && (all || is_cheap(runtime, queue->head))) {
        int state = runtime->backend->poll(queue->head->ticket);
        if (state == 0) {
            return;
        }
        eni_pending *item = complete_head(runtime, queue, state);
        item->next = *done;
        *done = item;
    }
}

/* Drops what completed entries held. With no lock held. */
static void release_all(eni_pending *done)
{
    while (done != NULL) {
        eni_pending *next = done->next;
        done->prepared->kernel->runtime->backend->release(done->ticket);
        if (done->profiler != NULL) {
            eni_profiler_release(done->profiler);
        }
        eni_prepared_release(done->prepared);
        ENI_DELETE(done);
        done = next;
    }
}

void eni_pending_tidy(enigma_runtime *runtime, uint32_t device, uint32_t queue)
{
    eni_gpu_queue *list = &runtime->queues[device * runtime->traits.queue_limit + queue];
    if (__atomic_load_n(&list->head, __ATOMIC_RELAXED) == NULL) {
        return;
    }
    eni_pending *done = NULL;
    eni_lock(&pending_lock);
    harvest(runtime, list, TIDY_LIMIT, false, &done);
    eni_unlock(&pending_lock);
    release_all(done);
}

/* ---- waiting for many ---- */

static bool takes(const eni_pending_filter *filter, const eni_pending *item)
{
    return (filter->prepared == NULL || filter->prepared == item->prepared) &&
           (filter->profiler == NULL || filter->profiler == item->profiler);
}

static bool holds_any(const eni_gpu_queue *queue, const eni_pending_filter *filter)
{
    for (const eni_pending *item = queue->head; item != NULL; item = item->next) {
        if (takes(filter, item)) {
            return true;
        }
    }
    return false;
}

/* A head that stands before work of the filter, and its queue. */
typedef struct obstacle {
    enigma_runtime *runtime;
    eni_gpu_queue *queue;
    bool left; /* there is work of the filter, if only claimed by another thread */
} obstacle;

/* Completes what is finished on the queues that hold work of the filter; finds what is to be waited for. With the lock held. */
static obstacle sweep(const eni_pending_filter *filter, eni_pending **done)
{
    obstacle found = {0};
    for (enigma_runtime *runtime = runtimes; runtime != NULL; runtime = runtime->next) {
        if (filter->runtime != NULL && filter->runtime != runtime) {
            continue;
        }
        for (size_t i = 0; i < runtime->queue_count; i++) {
            eni_gpu_queue *queue = &runtime->queues[i];
            if (!holds_any(queue, filter)) {
                continue;
            }
            harvest(runtime, queue, UINT32_MAX, true, done);
            if (holds_any(queue, filter)) {
                found.left = true;
                if (!queue->head->claimed && found.runtime == NULL) {
                    found.runtime = runtime;
                    found.queue = queue;
                }
            }
        }
    }
    return found;
}

/* Blocks on the head of a queue, which is claimed so that nobody else completes it meanwhile. The lock is held at both ends. */
static void block_on(const obstacle *found, eni_pending **done)
{
    eni_pending *head = found->queue->head;
    head->claimed = true;
    eni_unlock(&pending_lock);
    enigma_status status = found->runtime->backend->wait(head->ticket);
    eni_lock(&pending_lock);
    assert(found->queue->head == head);
    head->claimed = false;
    head = complete_head(found->runtime, found->queue, status == ENIGMA_OK ? 1 : (int)status);
    head->next = *done;
    *done = head;
}

enigma_status eni_pending_wait(const eni_pending_filter *filter)
{
    backoff state = {0};
    for (;;) {
        eni_pending *done = NULL;
        eni_lock(&pending_lock);
        obstacle found = sweep(filter, &done);
        bool blocks = found.runtime != NULL && eni_gpu_may_block(found.runtime);
        if (blocks) {
            block_on(&found, &done);
        }
        eni_unlock(&pending_lock);
        release_all(done);
        if (!found.left) {
            return ENIGMA_OK;
        }
        if (!blocks) {
            ENI_TRY(backoff_pause(&state));
        }
    }
}

enigma_status eni_pending_failure(eni_gpu_failure *failure)
{
    eni_lock(&pending_lock);
    eni_gpu_failure noted = *failure;
    *failure = (eni_gpu_failure){0};
    eni_unlock(&pending_lock);
    if (noted.status == ENIGMA_OK) {
        return ENIGMA_OK;
    }
    enigma_status status = ENI_FAIL(noted.status, "%s", noted.message == NULL ? "out of memory" : noted.message);
    eni_strfree(noted.message);
    return status;
}

/* ---- the list of runtimes ---- */

void eni_pending_enlist(enigma_runtime *runtime)
{
    static uint64_t keys;
    eni_lock(&pending_lock);
    runtime->key = ++keys;
    runtime->next = runtimes;
    if (runtimes != NULL) {
        runtimes->previous = runtime;
    }
    runtimes = runtime;
    eni_unlock(&pending_lock);
}

void eni_pending_delist(enigma_runtime *runtime)
{
    eni_lock(&pending_lock);
    if (runtime->next != NULL) {
        runtime->next->previous = runtime->previous;
    }
    *(runtime->previous == NULL ? &runtimes : &runtime->previous->next) = runtime->next;
    eni_unlock(&pending_lock);
}

/* A reference, unless the last one is just being dropped. */
static bool try_retain(enigma_runtime *runtime)
{
    uint32_t count = __atomic_load_n(&runtime->references, __ATOMIC_RELAXED);
    while (count != 0) {
        if (__atomic_compare_exchange_n(&runtime->references, &count, count + 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            return true;
        }
    }
    return false;
}

enigma_runtime *eni_pending_next_runtime(uint64_t after)
{
    enigma_runtime *found;
    eni_lock(&pending_lock);
    do {
        found = NULL;
        for (enigma_runtime *runtime = runtimes; runtime != NULL && runtime->key > after; runtime = runtime->next) {
            found = runtime;
        }
        after = found == NULL ? after : found->key;
    } while (found != NULL && !try_retain(found));
    eni_unlock(&pending_lock);
    return found;
}

/* ---- what the recorder calls, and fork ---- */

static enigma_status drain(enigma_profiler *profiler, bool wait)
{
    enigma_status status = ENIGMA_OK;
    if (wait) {
        status = eni_pending_wait(&(eni_pending_filter){.profiler = profiler});
    } else {
        eni_pending *done = NULL;
        eni_lock(&pending_lock);
        sweep(&(eni_pending_filter){.profiler = profiler}, &done);
        eni_unlock(&pending_lock);
        release_all(done);
    }
    for (enigma_runtime *runtime = eni_pending_next_runtime(0); runtime != NULL;) {
        uint64_t key = runtime->key;
        eni_gpu_clock_settle(runtime, profiler);
        eni_runtime_release(runtime);
        runtime = eni_pending_next_runtime(key);
    }
    return status;
}

static void before_fork(void) { eni_lock(&pending_lock); }

static void after_fork_in_parent(void) { eni_unlock(&pending_lock); }

/* The driver's state is the parent's: nothing of it may be touched, not even to free it. */
static void after_fork_in_child(void)
{
    for (enigma_runtime *runtime = runtimes; runtime != NULL; runtime = runtime->next) {
        for (size_t i = 0; i < runtime->queue_count; i++) {
            runtime->queues[i] = (eni_gpu_queue){0};
        }
    }
    runtimes = NULL;
    eni_unlock(&pending_lock);
}

__attribute__((constructor)) static void set_up(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_GPU, before_fork, after_fork_in_parent, after_fork_in_child};
    eni_thread_at_fork(&handler);
    eni_profiler_drain = drain;
}
