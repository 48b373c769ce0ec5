/* What each thread keeps: its frame stack, its active profiler, its lanes; and the starts and stops of profilers on it. */
#include <string.h>

#include "record/recorder.h"
#include "record/spot.h"

ENI_THREAD_LOCAL eni_thread eni_thread_current;
uint32_t enigma_gate;

static eni_mutex threads_lock = ENI_MUTEX_INIT; /* the list of threads, for scopes ended by another one */
static eni_thread *threads;
static uint64_t thread_count; /* under threads_lock */
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

/* ---- frames ---- */

static bool frames_room(eni_thread *thread)
{
    size_t count = (size_t)(thread->frames_end - thread->frames);
    size_t depth = (size_t)(thread->top - thread->frames);
    size_t wanted = count == 0 ? 64 : count * 2;
    eni_lock(&thread->frames_lock);
    eni_frame *frames = eni_resize(thread->frames, count * sizeof *frames, wanted * sizeof *frames);
    if (frames != NULL) {
        thread->frames = frames;
        thread->frames_end = frames + wanted;
        thread->top = frames + depth;
    }
    eni_unlock(&thread->frames_lock);
    return frames != NULL;
}

bool eni_frame_push(eni_thread *thread, const eni_frame *frame)
{
    if (ENI_UNLIKELY(thread->top + 1 == thread->frames_end) && !frames_room(thread)) {
        return false;
    }
    eni_frame *top = ++thread->top;
    top->scope = frame->scope;
    top->record = frame->record;
    top->outer = frame->outer;
    top->node = frame->node;
    __atomic_store_n(&top->id, frame->id, __ATOMIC_RELEASE); /* others look for it */
    return true;
}

/* ---- life of a thread ---- */

static void marks_drop(eni_thread *thread)
{
    for (eni_frame *frame = thread->top; frame > thread->frames; frame--) {
        if (frame->id == ENI_FRAME_MARK && thread->profiler != NULL) {
            enigma_profiler *ended = thread->profiler;
            thread->profiler = frame->outer;
            __atomic_fetch_sub(&enigma_gate, 1, __ATOMIC_RELAXED);
            eni_profiler_release(ended);
        }
    }
}

static void thread_exit(void *arg)
{
    eni_thread *thread = arg;
    marks_drop(thread);
    eni_lock(&threads_lock);
    if (thread->previous != NULL) {
        thread->previous->next = thread->next;
    } else {
        threads = thread->next;
    }
    if (thread->next != NULL) {
        thread->next->previous = thread->previous;
    }
    eni_unlock(&threads_lock);
    eni_free(thread->frames, (size_t)(thread->frames_end - thread->frames) * sizeof *thread->frames);
    pthread_mutex_destroy(&thread->frames_lock);
    memset(thread, 0, sizeof *thread);
}

static void exit_init(void) { pthread_key_create(&exit_key, thread_exit); }

static bool thread_register(eni_thread *thread)
{
    pthread_once(&exit_once, exit_init);
    pthread_mutex_init(&thread->frames_lock, NULL);
    thread->top = thread->frames;
    if (!frames_room(thread) || pthread_setspecific(exit_key, thread) != 0) {
        eni_free(thread->frames, (size_t)(thread->frames_end - thread->frames) * sizeof *thread->frames);
        memset(thread, 0, sizeof *thread);
        return false;
    }
    *thread->top = (eni_frame){.id = ENI_FRAME_MARK};
    eni_lock(&threads_lock);
    thread->key = ++thread_count;
    thread->next = threads;
    if (threads != NULL) {
        threads->previous = thread;
    }
    threads = thread;
    eni_unlock(&threads_lock);
    thread->next_id = thread->key << 40 | 2;
    return true;
}

eni_thread *eni_thread_get(void)
{
    eni_thread *thread = &eni_thread_current;
    return thread->key != 0 || thread_register(thread) ? thread : NULL;
}

/* ---- lanes ---- */

eni_lane *eni_thread_lane_slow(enigma_profiler *profiler)
{
    eni_thread *thread = eni_thread_get();
    eni_lane *lane = thread == NULL ? NULL : eni_journal_lane(&profiler->journal, thread->key, eni_thread_id());
    if (lane == NULL) {
        eni_journal_drop(&profiler->journal);
        return NULL;
    }
    size_t slot = profiler->serial & 3;
    thread->cache[slot].serial = profiler->serial;
    thread->cache[slot].lane = lane;
    return lane;
}

void eni_thread_forget_lanes(void)
{
    eni_thread *thread = &eni_thread_current;
    memset(thread->cache, 0, sizeof thread->cache);
    thread->lane = NULL;
}

/* ---- fork ---- */

static void fork_before(void) { eni_lock(&threads_lock); }
static void fork_parent(void) { eni_unlock(&threads_lock); }

/* The other threads do not exist in the child; their frames stay where they are, unreachable. */
static void fork_child(void)
{
    eni_thread *thread = &eni_thread_current;
    threads = thread->key != 0 ? thread : NULL;
    thread->next = thread->previous = NULL;
    pthread_mutex_init(&thread->frames_lock, NULL);
    eni_unlock(&threads_lock);
}

__attribute__((constructor)) static void fork_register(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_RECORD, fork_before, fork_parent, fork_child};
    eni_thread_at_fork(&handler);
}

/* ---- start and stop ---- */

static void set_active(eni_thread *thread, enigma_profiler *profiler)
{
    thread->profiler = profiler;
    thread->lane = NULL;
    thread->shared = profiler != NULL && profiler->attach != 0;
    if (thread->shared) {
        eni_spot_share();
    }
}

enigma_status enigma_profiler_start(enigma_profiler *profiler)
{
    eni_thread *thread = eni_thread_get();
    if (profiler == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "profiler is NULL");
    }
    if (thread == NULL) {
        return ENI_NO_MEMORY();
    }
    ENI_TRY(enigma_profiler_open(profiler));
    enigma_profiler *outer = thread->profiler;
    uint32_t path = outer == NULL ? 0 : enigma_path_import(profiler, outer, thread->top->node);
    /* the same profiler started again goes on inside its own open scope */
    const eni_frame mark = {ENI_FRAME_MARK, outer == profiler ? thread->top->scope : 0, NULL, outer, path};
    if (!eni_frame_push(thread, &mark)) {
        eni_profiler_close(profiler);
        return ENI_NO_MEMORY();
    }
    eni_profiler_retain(profiler);
    set_active(thread, profiler);
    __atomic_fetch_add(&enigma_gate, 1, __ATOMIC_RELAXED);
    return ENIGMA_OK;
}

/* Ends the scopes that are open above the innermost mark. */
static eni_frame *close_open_frames(eni_thread *thread)
{
    uint64_t now = eni_clock_ticks();
    eni_frame *frame = thread->top;
    for (; frame->id != ENI_FRAME_MARK; frame--) {
        if (__atomic_exchange_n(&frame->id, 0, __ATOMIC_ACQ_REL) != 0 && frame->record != NULL) {
            uint8_t flags = __atomic_load_n(&frame->record->flags, __ATOMIC_RELAXED);
            __atomic_store_n(&frame->record->flags, (uint8_t)(flags | ENI_RECORD_UNFINISHED), __ATOMIC_RELAXED);
            eni_record_end(frame->record, now);
        }
    }
    return frame;
}

enigma_status enigma_profiler_stop(enigma_profiler *profiler)
{
    eni_thread *thread = &eni_thread_current;
    if (profiler == NULL || thread->key == 0 || thread->profiler != profiler) {
        return ENI_FAIL(ENIGMA_E_STATE, "the profiler is not the innermost one started on this thread");
    }
    eni_frame *mark = close_open_frames(thread);
    thread->top = mark - 1;
    set_active(thread, mark->outer);
    __atomic_fetch_sub(&enigma_gate, 1, __ATOMIC_RELAXED);
    enigma_status status = eni_profiler_close(profiler);
    eni_profiler_release(profiler);
    return status;
}

enigma_profiler *enigma_profiler_active(void)
{
    enigma_profiler *profiler = eni_thread_current.profiler;
    return profiler != NULL && eni_recording(profiler) ? profiler : NULL;
}

enigma_context enigma_context_current(void)
{
    const eni_thread *thread = &eni_thread_current;
    enigma_profiler *profiler = enigma_profiler_active();
    if (profiler == NULL) {
        return (enigma_context){NULL, 0, 0};
    }
    return (enigma_context){profiler, thread->top->node, thread->top->scope};
}

/* ---- scopes ended by another thread ---- */

void eni_frame_end_elsewhere(uint64_t id, uint64_t ticks)
{
    eni_lock(&threads_lock);
    eni_thread *thread = threads;
    while (thread != NULL && thread->key != id >> 40) {
        thread = thread->next;
    }
    if (thread != NULL) {
        eni_lock(&thread->frames_lock);
        for (eni_frame *frame = thread->frames; frame < thread->frames_end; frame++) {
            uint64_t expected = id;
            if (__atomic_load_n(&frame->id, __ATOMIC_ACQUIRE) == id &&
                __atomic_compare_exchange_n(&frame->id, &expected, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
                eni_record_end(frame->record, ticks);
                break;
            }
        }
        eni_unlock(&thread->frames_lock);
    }
    eni_unlock(&threads_lock);
}
