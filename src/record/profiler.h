/* The recorder, as the GPU side and the public functions use it. A profiler owns one journal (store/journal.h); it is
 * reference-counted: the creator holds one reference, pending GPU work one each.
 *
 * None of these fail visibly: what cannot be kept is dropped and counted, and the functions below take what their
 * predecessors gave in that case (id 0, NULL, launch 0). */
#ifndef ENI_RECORD_PROFILER_H
#define ENI_RECORD_PROFILER_H

#include "base/arena.h"
#include "store/layout.h"

uint32_t eni_profiler_flags(const enigma_profiler *profiler);      /* enum enigma_profiler_flags */
uint64_t eni_profiler_id(const enigma_profiler *profiler);         /* never 0, never given to another profiler: for caches */
bool eni_profiler_recording(const enigma_profiler *profiler);      /* false once sealed */
void eni_profiler_retain(enigma_profiler *profiler);
void eni_profiler_release(enigma_profiler *profiler);
void eni_profiler_count_drop(enigma_profiler *profiler);

/* The names of a path of a profiler, outermost last, in memory of arena. False: no memory, names is NULL. */
bool eni_profiler_path_names(enigma_profiler *profiler, enigma_path path, eni_arena *arena, enigma_text **names, size_t *count);

/* The node of a runtime event: name and kernel under a parent node. Takes a lock; cache it. */
enigma_path eni_profiler_runtime_path(enigma_profiler *profiler, enigma_path parent, enigma_text name, enigma_text kernel);

/* Opens a record of any kind (ENI_KIND_*) at an explicit node. start_ticks 0: the clock is read, last. */
enigma_scope eni_profiler_begin(enigma_profiler *profiler, uint32_t kind, enigma_path node, uint64_t parent, uint32_t category,
                                uint64_t start_ticks);
/* Adds a pending GPU block to an open record of kind ENI_KIND_GPU; NULL: dropped. The block stays where it is as long as the
 * profiler is referenced; fill start, end and submit first, then store status with release. */
eni_gpu_block *eni_profiler_gpu_block(enigma_profiler *profiler, enigma_scope scope, uint32_t launch);
/* Ends a record. end_ticks 0: the clock is read, first. */
void eni_profiler_end(enigma_profiler *profiler, enigma_scope scope, uint64_t end_ticks);
/* enigma_scope_annotate adds metrics and metadata. */

/* GPU work, or a step of it, that a thread launched and another one records, also after the profiler was sealed. */
typedef struct eni_foreign_event {
    uint32_t kind; /* ENI_KIND_GPU or ENI_KIND_EVENT */
    enigma_path node;
    uint32_t category, launch;
    uint64_t parent; /* id of the record that encloses it, 0: none */
    uint64_t start_ticks, end_ticks;
    uint64_t gpu_start_ns, gpu_end_ns, submit_ns;
    uint32_t status; /* enum eni_gpu_status */
    const enigma_metric *metrics;
    size_t metric_count;
} eni_foreign_event;
typedef struct eni_lane eni_lane;
/* The lane of what others record for a thread; the caller keeps all use of it under one lock. NULL: no memory (counted). Good as
 * long as the profiler is referenced and no fork happened. */
eni_lane *eni_profiler_foreign_lane(enigma_profiler *profiler, uint64_t thread_id);
/* The record's id; 0: dropped. */
uint64_t eni_profiler_add_foreign(eni_lane *lane, const eni_foreign_event *event);

/* The number of a device in this profiler: the same key (a serial number of the runtime's, never reused) and device_id give the
 * same number. */
uint32_t eni_profiler_device(enigma_profiler *profiler, uint64_t key, uint32_t device_id, double tick_ns, uint32_t counter_bits,
                             const enigma_field *facts, size_t fact_count);
/* The number of a launch shape: equal arguments give the same number. launch->fields is ignored; fields are what is shared by
 * its dispatches ("max_threads_per_threadgroup", "input_shapes", ...). Takes a lock; cache it. */
uint32_t eni_profiler_launch(enigma_profiler *profiler, const eni_launch *launch, const enigma_field *fields, size_t field_count);
/* Records a paired reading of a device's clock and the host's. */
void eni_profiler_pair(enigma_profiler *profiler, uint32_t device, uint64_t device_ticks, uint64_t host_ticks,
                       uint32_t uncertainty_ns);

/* Set by gpu/: resolves the pending GPU work of a profiler, with wait until it is complete, else what is complete now.
 * ENIGMA_E_INTERRUPTED when the wait was ended. NULL until the first dispatch. */
extern enigma_status (*eni_profiler_drain)(enigma_profiler *profiler, bool wait);
/* Set by gpu/: begins (path) or ends (NULL) the vendor capture of a profiler. NULL: there is no runtime at all. */
extern enigma_status (*eni_profiler_capture)(const char *path);

/* Attaching to the launches of other code, set by attach/. NULL: there is none. */
typedef struct eni_attach_hooks {
    enigma_status (*parse)(const char *names, uint32_t *out); /* names of enigma_profiler_options to bits */
    enigma_status (*begin)(enigma_profiler *profiler, uint32_t attach); /* a profiler goes live */
    /* It ends; with wait the work launched so far is completed (ENIGMA_E_INTERRUPTED), else only what is at hand is taken. Does
     * nothing for a profiler that was not begun. */
    enigma_status (*end)(enigma_profiler *profiler, bool wait);
    void (*drain)(enigma_profiler *profiler); /* records what is complete now */
} eni_attach_hooks;
extern const eni_attach_hooks *eni_profiler_attach;

/* Asks the hook of a kernel, with no lock held; 0: none. Never recursive. The keys live until eni_hooks_done(*asked), which is owed
 * in any case. */
typedef struct eni_hook eni_hook;
size_t eni_hooks_ask(const enigma_dispatch_info *info, enigma_metric *out, size_t capacity, eni_hook **asked);
void eni_hooks_done(eni_hook *asked); /* NULL does nothing */
#define ENI_HOOK_METRICS 64

/* The interrupt check of enigma_set_interrupt; false: none, or go on. */
bool eni_interrupted(void);
bool eni_interruptible(void); /* whether there is a check at all; false: waits may block */

#endif
