/* The sealed profile: an image and what is worked out from it once. Immutable, so any thread may read. Everything that
 * aggregates or presents reads only this. */
#ifndef ENI_STORE_PROFILE_H
#define ENI_STORE_PROFILE_H

#include "base/arena.h"
#include "base/str.h"
#include "store/layout.h"

#define ENI_NONE UINT32_MAX

/* A finished event. Invariants: node < node_count; parent is ENI_NONE or an event whose record encloses this one in its
 * context (it may have ended earlier: a task that outlives its creator); start_ns <= end_ns. */
typedef struct eni_event {
    uint64_t start_ns, end_ns;
    uint64_t gpu_ns;  /* GPU work: its own valid time, else 0; otherwise the sum over the work launched while it was open */
    uint64_t self_ns; /* own duration less the union of its direct children, clipped to it */
    uint32_t node, parent;
    uint32_t thread; /* index in threads */
    uint32_t gpu;    /* index in gpu, ENI_NONE: no GPU work */
    uint32_t side;   /* offset in its thread's side stream, 0: none */
    uint8_t kind, category, flags, reserved; /* enum eni_record_kind, index in categories, enum eni_record_flags */
} eni_event;

/* The device side of GPU work. */
typedef struct eni_gpu_event {
    uint64_t start_ns, end_ns;         /* host clock; both 0 unless status is ENI_GPU_VALID */
    uint64_t start_raw, end_raw;       /* device ticks as given */
    double time_us, queue_wait_us;     /* queue_wait_us < 0: not known */
    uint32_t event;                    /* index in events */
    uint32_t launch;                   /* index in launches */
    uint32_t status;                   /* enum eni_gpu_status */
    uint32_t skew_ns;                  /* how long before its launch it starts, beyond the clocks' uncertainty; 0: not */
} eni_gpu_event;

typedef struct eni_node_info {
    enigma_text name, kernel, label; /* label: name, or name:kernel; kernel absent: none */
    uint32_t parent;                 /* ENI_NONE for the root; always a smaller index */
    uint32_t depth, call_depth;      /* names from the root; those of the user's scopes */
    uint32_t runtime;                /* 1: no scope of the user's */
    uint32_t path;                   /* equal for two nodes exactly when their names from the root are equal */
    uint32_t calls, gpu_calls;       /* its events; those that are GPU work */
    uint32_t first;                  /* the first of its events, where it has any */
} eni_node_info;

typedef struct eni_thread_info {
    uint64_t thread_id;
    uint32_t owner;
} eni_thread_info;

struct enigma_profile {
    int32_t references;
    uint8_t *image;
    size_t image_size;
    const eni_image_header *header;

    eni_event *events; /* in order of ending */
    size_t event_count;
    eni_gpu_event *gpu; /* in order of their events */
    size_t gpu_count;
    eni_node_info *nodes;
    size_t node_count;
    eni_thread_info *threads;
    size_t thread_count;
    enigma_text *categories;
    size_t category_count;
    const eni_launch *launches; /* contiguous copies; the first is "none" */
    size_t launch_count;
    const eni_device_entry *devices;
    size_t device_count;
    uint64_t start_ns, end_ns; /* earliest and latest stamp, host and GPU; 0 when there are none */
    enigma_counts counts;
    bool follow; /* every event lies below one of a node above its own, or below none */

    struct eni_profile_private *private_; /* streams, arenas */
};

/* Seals an image (takes it over, also on failure); name is for error messages. Every reference in it is checked: a damaged
 * or hostile image is ENIGMA_E_FORMAT, never a crash. */
enigma_status eni_profile_from_image(uint8_t *image, size_t size, const char *name, enigma_profile **out);

const enigma_profile *eni_profile_retain(const enigma_profile *profile); /* enigma_profile_free releases */

/* Walks the metrics of an event in the order given: start with *cursor zeroed; false at the end. Keys are lent. */
typedef struct eni_cursor {
    const eni_metric_entry *entries;
    size_t index, count;
    uint32_t left, started; /* left: blocks to come, once started */
} eni_cursor;
bool eni_profile_next_metric(const enigma_profile *profile, const eni_event *event, eni_cursor *cursor, enigma_text *key,
                             double *value);
/* The same a run at a time, for who reads many: the keys are numbers for eni_profile_name. NULL at the end. A walk uses one of the
 * two. */
const eni_metric_entry *eni_profile_next_metrics(const enigma_profile *profile, const eni_event *event, eni_cursor *cursor,
                                                 size_t *count);
/* A name by its number (layout.h, NAMES); false, and absent: there is none. */
bool eni_profile_name(const enigma_profile *profile, uint32_t name, enigma_text *out);

/* The metadata of an event as written, plus what sealing knows: the kernel's shared facts, "queue_wait_us", "gpu_time",
 * "gpu_clock", "unfinished", in that order. Uses memory of arena, which the caller owns (base/arena.h). */
enigma_status eni_profile_metadata(const enigma_profile *profile, const eni_event *event, eni_arena *arena,
                                   const enigma_field **fields, size_t *count);
bool eni_profile_has_metadata(const enigma_profile *profile, const eni_event *event);

/* What is known of a device, as enigma_profile_fact gives it, in memory of arena. */
enigma_status eni_profile_device_facts(const enigma_profile *profile, size_t device, eni_arena *arena, enigma_items *out);

static inline uint64_t eni_event_duration_ns(const eni_event *event) { return event->end_ns - event->start_ns; }

/* Whether GPU work was launched while this scope above it was open. Of work that begins on the scope's last tick only what
 * ends on it, too, can be inside: longer work began when the scope had been left. */
static inline bool eni_event_held(const eni_event *scope, const eni_event *work)
{
    return scope->kind == ENI_KIND_SCOPE &&
           (scope->end_ns > work->start_ns || (scope->end_ns == work->start_ns && work->end_ns == work->start_ns));
}

/* The launch of GPU work, NULL otherwise. */
static inline const eni_launch *eni_event_launch(const enigma_profile *profile, const eni_event *event)
{
    return event->gpu == ENI_NONE ? NULL : &profile->launches[profile->gpu[event->gpu].launch];
}

/* Why there is no device time, as text ("end before start"); NULL for ENI_GPU_VALID. */
const char *eni_gpu_status_text(uint32_t status);

#endif
