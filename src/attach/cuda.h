/* Inside of the CUDA attacher, whose names begin with eni_tap_ (the backend has eni_cuda_). A launch is noted on its thread
 * (cuda_launch.c), its records come later on a thread of CUPTI's (cuda_record.c); whoever reads or ends a profile puts the two together
 * and makes events of them (cuda_drain.c, cuda_event.c).
 *
 * Locks, outer first: `drain`, under which notes and records are matched and events written; `queue`, a leaf that callbacks take too,
 * for what they share. Neither is held around a call of CUDA, of cupti/ or of a hook. */
#ifndef ENI_ATTACH_CUDA_H
#define ENI_ATTACH_CUDA_H

#include "attach/attach.h"
#include "attach/table.h"
#include "base/intern.h"
#include "base/thread.h"
#include "cupti/cupti.h"

/* ---- notes of launches (cuda_launch.c) ---- */

/* A launch as its thread notes it. Its drainer reads it once `end` is set. */
typedef struct eni_tap_note {
    uint64_t start, end; /* ticks of the call; end is atomic, 0: the thread is inside of it */
    uint64_t scope, serial;
    uint32_t correlation, path;
    uint8_t family; /* enum eni_cupti_family; 0: it brings no work of its own (it failed, or was captured) */
    uint8_t source; /* enum eni_spot_source */
} eni_tap_note;

typedef struct eni_tap_chunk {
    struct eni_tap_chunk *next; /* atomic */
    uint32_t used;              /* atomic */
    uint32_t capacity;
    eni_tap_note notes[];
} eni_tap_chunk;

/* The notes of one thread, which alone appends; under the drain lock they are taken off the front. */
typedef struct eni_tap_log {
    struct eni_tap_log *next; /* list of all, under the queue lock */
    uint64_t thread_id;
    uint32_t dead; /* atomic: the thread is gone */
    uint32_t read; /* notes of `front` that are taken */
    eni_tap_chunk *front, *back;
    eni_tap_note *open; /* the call that the thread is in, NULL: none that is noted */
    void *context;      /* CUcontext of its last launch */
    uint64_t sessions;  /* for which that context was told */
} eni_tap_log;

void eni_tap_enter(const eni_cupti_launch *launch);
void eni_tap_leave(const eni_cupti_launch *launch);
void eni_tap_graph(const eni_cupti_graph_event *event);
void eni_tap_log_forget(void); /* the calling thread's, in a forked child */
/* The oldest note of a log that is complete; NULL: none. Under the drain lock. */
const eni_tap_note *eni_tap_log_front(eni_tap_log *log);
void eni_tap_log_pop(eni_tap_log *log);
/* Whether the thread is inside of the launch of that correlation. */
bool eni_tap_log_is_in(const eni_tap_log *log, uint32_t correlation);
/* Frees the logs of threads that are gone and whose notes are taken. Under the drain lock. */
void eni_tap_logs_tidy(void);

/* Where a node of a graph was made. */
typedef struct eni_tap_node {
    uint64_t node; /* CUPTI's id */
    uint64_t serial;
    uint32_t path;
    uint32_t graph; /* that it is part of */
} eni_tap_node;
enum { ENI_TAP_NODE_LIMIT = 1 << 20 };

/* ---- records (cuda_record.c) ---- */

/* What pieces of work have in common that differ in their times alone; all of it counts for equality. */
typedef struct eni_tap_shape {
    uint32_t family, device, context, stream;
    uint32_t name; /* id of the mangled name, ENI_INTERN_NONE: none */
    uint32_t registers, static_bytes, dynamic_bytes;
    uint32_t grid[3], block[3];
    uint64_t bytes;
    uint32_t kind; /* enum eni_cupti_copy; of a fill its value */
    uint32_t source_device, target_device, pad;
} eni_tap_shape;

typedef struct eni_tap_record {
    uint64_t start_ns, end_ns, node;
    uint32_t correlation, shape, graph;
    uint32_t time; /* enum eni_cupti_time */
} eni_tap_record;

enum { ENI_TAP_BLOCK_RECORDS = 1600 };
typedef struct eni_tap_block {
    struct eni_tap_block *next;
    uint32_t count, read;
    eni_tap_record records[ENI_TAP_BLOCK_RECORDS];
} eni_tap_block;

void eni_tap_batch_begin(void);
void eni_tap_record_arrived(const eni_cupti_record *record);
void eni_tap_batch_end(void);

/* Under the queue lock; the lists and tables that callbacks and drainers share. */
typedef struct eni_tap_queue {
    eni_mutex lock;
    eni_tap_log *logs;
    eni_tap_block *first, *last; /* records that came and were not taken */
    eni_intern names;
    const char *recent[64]; /* names of kernels by their address, and their ids */
    uint32_t recent_ids[64];
    eni_tap_shape *shapes;
    size_t shape_count, shape_capacity;
    eni_map shape_ids;
    eni_table nodes; /* eni_tap_node */
    void **contexts; /* CUcontexts that were launched in */
    size_t context_count, context_capacity;
    uint64_t sessions; /* counts those that began; atomic */
    uint64_t lost;     /* records that no memory was left for */
} eni_tap_queue;
extern eni_tap_queue eni_tap_queue_;

/* ---- matching, events (cuda_drain.c) ---- */

/* A profiler that is attached. */
typedef struct eni_tap_session {
    struct eni_tap_session *next;
    enigma_profiler *profiler; /* not held: it ends its session before it goes */
    uint64_t serial;
    uint32_t category;
    uint64_t pending;        /* kernels that were launched and have no record yet */
    uint64_t dropped_before; /* by CUPTI, when it began */
    eni_map nodes;           /* path and shape's name to node, for what is no part of a graph */
    eni_map launches;        /* shape and source to launch */
    eni_map streams;         /* device, context and stream to queue */
    struct eni_tap_lane {
        uint64_t thread_id;
        eni_lane *lane;
    } * lanes;
    size_t lane_count, lane_capacity;
} eni_tap_session;

/* A launch whose records are to come, or may. */
typedef struct eni_tap_pending {
    uint64_t key; /* from the correlation */
    eni_tap_note note;
    uint64_t thread_id;
    uint64_t graph_event; /* id of a graph's replay, 0: no record of it came yet */
} eni_tap_pending;

enum { ENI_TAP_RECENT = 1 << 16 };

/* Under the drain lock. */
typedef struct eni_tap_drain {
    eni_mutex lock;
    eni_tap_session *sessions;
    uint32_t drainers;       /* threads that turn records into events */
    eni_table pending;       /* eni_tap_pending */
    eni_tap_record *waiting; /* records whose launching call has not returned yet */
    size_t waiting_count, waiting_capacity;
    eni_tap_block *block; /* being read */
    uint32_t *loose;      /* correlations of launches that nobody counts on, a ring of ENI_TAP_RECENT */
    uint32_t loose_at;
    enigma_text *shown; /* demangled names by their id, absent: not asked yet */
    size_t shown_count;
    eni_arena texts;
} eni_tap_drain;
extern eni_tap_drain eni_tap_drain_;

eni_tap_session *eni_tap_session_of(uint64_t serial); /* NULL: none. Under the drain lock */
void eni_tap_session_free(eni_tap_session *session);
/* Takes what has come and makes events of it, in all sessions. With no lock held. */
void eni_tap_drain_all(void);
bool eni_tap_drain_others(void); /* whether other threads are at it */
/* The same, to ask whether all kernels of a session have come. */
bool eni_tap_drain_is_done(uint64_t serial);
/* What has not come by now will not: kernels become events without times, the rest is forgotten. dropped: records that are known to be
 * lost, and are counted unless they were such a kernel's. Under the drain lock. */
void eni_tap_drain_rest(eni_tap_session *session, uint64_t dropped);
/* Forgets all that is left, once no session is. Under the drain lock. */
void eni_tap_drain_reset(void);

/* ---- the driver (cuda_sync.c) ---- */

/* Waits until the contexts' work is complete: ENIGMA_E_INTERRUPTED. */
enigma_status eni_tap_synchronize(void *const *contexts, size_t count);

#endif
