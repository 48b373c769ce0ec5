/* Inside of record/: the profiler and what each thread keeps. */
#ifndef ENI_RECORD_RECORDER_H
#define ENI_RECORD_RECORDER_H

#include "base/clock.h"
#include "record/profiler.h"
#include "store/journal.h"

struct enigma_profiler {
    int32_t references;
    uint32_t flags;
    uint32_t attach;    /* what it attaches to (eni_attach_hooks), 0: nothing */
    uint32_t recording; /* atomic; 0 once sealed or freed */
    uint32_t running;   /* atomic: starts and opens that have not ended */
    uint64_t serial;    /* never reused; new in a forked child, so that cached lanes no longer match */
    uint64_t end_ticks; /* when it was sealed */
    eni_journal journal;
    eni_intern categories; /* under the journal's lock */
    char *capture_path;
    char *file_path; /* of the file that its first start makes; NULL: none, or made */
    enigma_profiler *next, *previous; /* registry of all, for fork */
    struct {
        uint64_t key;
        uint32_t device_id, device;
    } *devices; /* under the journal's lock */
    size_t device_count, device_capacity;
    eni_map launches; /* content hash to launch + 1 */
};

/* One open scope of a thread, or the mark of a started profiler. */
typedef struct eni_frame {
    uint64_t id; /* token; 0: ended out of order, popped when it comes to the top; ENI_FRAME_MARK: a start. Atomic. */
    uint64_t scope; /* record id, 0: none */
    eni_record *record;
    enigma_profiler *outer; /* of a mark: the profiler that was active before */
    uint32_t node;
} eni_frame;
#define ENI_FRAME_MARK 1u

typedef struct eni_thread {
    enigma_profiler *profiler; /* active, NULL: none */
    eni_lane *lane;            /* of the active profiler; NULL: look it up */
    eni_frame *top;            /* never below frames[0], a mark of its own */
    eni_frame *frames, *frames_end;
    uint64_t next_id; /* of the next frame: key << 40 | count */
    uint64_t key;     /* process-unique, from 1; 0: not registered yet */
    struct {
        uint64_t serial;
        eni_lane *lane;
    } cache[4]; /* lanes of profilers named explicitly */
    uint32_t shared;       /* the active profiler attaches to something, so others may ask where this thread is */
    eni_mutex frames_lock; /* held where frames move, and by others who end a scope of this thread */
    struct eni_thread *next, *previous;
} eni_thread;

extern ENI_THREAD_LOCAL eni_thread eni_thread_current;

/* The calling thread's state, registered. NULL: no memory. */
eni_thread *eni_thread_get(void);
/* The calling thread's lane in a profiler; NULL: no memory (counted). */
eni_lane *eni_thread_lane_slow(enigma_profiler *profiler);
static inline eni_lane *eni_thread_lane(enigma_profiler *profiler)
{
    const eni_thread *thread = &eni_thread_current;
    uint64_t serial = __atomic_load_n(&profiler->serial, __ATOMIC_RELAXED);
    size_t slot = serial & 3;
    return thread->cache[slot].serial == serial ? thread->cache[slot].lane : eni_thread_lane_slow(profiler);
}
/* Pushes a frame; false: no memory. */
bool eni_frame_push(eni_thread *thread, const eni_frame *frame);
/* Ends the scope of a token in the stack of the thread that it belongs to. */
void eni_frame_end_elsewhere(uint64_t id, uint64_t ticks);
/* Forgets every cached lane of the calling thread (in a forked child). */
void eni_thread_forget_lanes(void);

static inline bool eni_recording(const enigma_profiler *profiler)
{
    return __atomic_load_n(&profiler->recording, __ATOMIC_RELAXED) != 0;
}

/* Appends a record whose start is stamped last, and publishes it. NULL: dropped. *id receives its id. */
eni_record *eni_record_append(eni_lane *lane, uint32_t kind, uint32_t node, uint64_t parent, uint32_t category,
                              uint64_t start_ticks, uint64_t *id);
static inline void eni_record_end(eni_record *record, uint64_t ticks)
{
    if (__atomic_load_n(&record->end, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&record->end, ticks, __ATOMIC_RELEASE);
    }
}
/* Adds a side block with metrics and fields to a record of any lane of the profiler, written into the calling thread's lane when
 * the record is of it; annotations from other threads are dropped and counted. */
void eni_record_annotate(enigma_profiler *profiler, eni_record *record, uint64_t id, const enigma_metric *metrics,
                         size_t metric_count, const enigma_field *fields, size_t field_count);

/* Ends what enigma_profiler_open began: waits for asynchronous work, ends the capture. */
enigma_status eni_profiler_close(enigma_profiler *profiler);

/* A node; the parent when memory ran out. Takes the journal's lock. */
uint32_t eni_profiler_node(enigma_profiler *profiler, uint32_t parent, enigma_text name, enigma_text kernel, uint32_t flags);

#endif
