/* Inside of gpu/: the objects behind sections 11 to 14 of enigma.h, common to all backends.
 *
 * Locks, outer first: a runtime's `lock` (calls to the backend, caches of prepared kernels), its `clock_lock`, the one pending
 * lock (queues of launched work, the list of runtimes; pending.c). Hooks and interrupt checks run with none held. The pending
 * lock alone is known to the fork handlers: objects made before a fork are refused by their generation before any other lock
 * is tried. */
#ifndef ENI_GPU_GPU_H
#define ENI_GPU_GPU_H

#include "backends/backend.h"
#include "base/thread.h"
#include "record/profiler.h"
#include "store/profile.h"

typedef struct eni_pending eni_pending;

/* Work that was launched and not waited for, in order of launch. Under the pending lock. */
typedef struct eni_gpu_queue {
    eni_pending *head, *tail;
} eni_gpu_queue;

/* What asynchronous work failed with, until a wait reports it. Under the pending lock. */
typedef struct eni_gpu_failure {
    enigma_status status;
    char *message;
} eni_gpu_failure;

/* A profiler that a device of a runtime is registered in. */
typedef struct eni_gpu_registration {
    uint64_t profiler;  /* its id, 0: free */
    uint32_t device;    /* the device's number there */
    uint64_t paired_ns; /* host clock: when the clocks were last compared for it */
    uint64_t used_ns;   /* host clock: when work was last launched for it */
} eni_gpu_registration;
enum { ENI_REGISTRATIONS = 4 };

/* A device's clock, and who was told about it. Under the runtime's clock_lock. */
typedef struct eni_gpu_clock {
    eni_gpu_registration registrations[ENI_REGISTRATIONS];
    uint32_t next;           /* to be replaced when all are taken */
    bool known;              /* the two below hold */
    uint64_t ticks, host_ns; /* the last reading, continued past the counter's width */
} eni_gpu_clock;

struct enigma_runtime {
    uint32_t references; /* atomic: the user's, and one for each object made from it */
    uint32_t generation; /* of the process that made it (eni_fork_generation) */
    uint32_t released;   /* atomic: the user's reference is gone */
    const eni_backend *backend;
    void *device;
    eni_traits traits;
    eni_facts facts;
    uint64_t key; /* serial number, never reused */
    eni_mutex lock, clock_lock;
    eni_gpu_queue *queues; /* traits.device_count * traits.queue_limit */
    size_t queue_count;
    eni_gpu_clock *clocks; /* traits.device_count */
    eni_gpu_failure failure;
    struct enigma_runtime *next, *previous; /* list of all, under the pending lock; by rising key from the last */
};

struct enigma_buffer {
    uint32_t references; /* atomic: the user's, and one for each prepared kernel that uses it */
    enigma_runtime *runtime;
    void *handle;
    size_t size;
};

struct enigma_kernel {
    uint32_t references; /* atomic: the user's, and one for each prepared kernel */
    enigma_runtime *runtime;
    void *program;
    void *handle; /* an instance that is asked and never launched */
    const eni_kernel_info *info;
    enigma_text name;
};

/* Where the last dispatch of a prepared kernel was recorded. Under the runtime's lock. */
typedef struct eni_record_cache {
    uint64_t profiler; /* its id, 0: nothing is cached */
    enigma_path path, node;
    uint32_t category;
    uint64_t launch_profiler;
    enigma_size3 grid, threads;
    uint32_t queue, device, launch;
} eni_record_cache;

struct enigma_prepared {
    uint32_t references; /* atomic: the user's, and one for each launch that is not complete */
    enigma_kernel *kernel;
    void *handle; /* the backend's instance with the arguments bound */
    const eni_kernel_info *info;
    enigma_buffer **buffers; /* in the order of the arguments; the last output_count are outputs */
    size_t buffer_count, output_count;
    uint64_t input_bytes, output_bytes; /* of buffers */
    enigma_value input_shapes;          /* a list of (shape, dtype), in arena */
    eni_arena arena;
    eni_record_cache cache;
    uint64_t pending; /* launches that are not complete; under the pending lock */
    eni_gpu_failure failure;
};

/* ---- runtime.c ---- */

/* Takes over config's meaning as the backend's open() does. */
enigma_status eni_runtime_create(const eni_backend *backend, uint32_t index, const void *config, enigma_runtime **out);
void eni_runtime_retain(enigma_runtime *runtime);
void eni_runtime_release(enigma_runtime *runtime);
/* ENIGMA_E_STATE when the runtime is an ancestor process's. */
enigma_status eni_runtime_check(const enigma_runtime *runtime);

/* ---- buffer.c ---- */

enigma_status eni_buffer_make(enigma_runtime *runtime, size_t size, const void *data, enigma_buffer **out);
void eni_buffer_retain(enigma_buffer *buffer);

/* ---- kernel.c, prepare.c ---- */

void eni_kernel_retain(enigma_kernel *kernel);

/* The steps of enigma_prepare, which enigma_execute takes one by one: check and allocate; make the kernel instance; make and bind the
 * inputs; make and bind the outputs. After begin, eni_prepared_release undoes whatever was done. */
enigma_status eni_prepare_begin(enigma_kernel *kernel, const enigma_argument *inputs, size_t input_count,
                                const size_t *output_sizes, size_t output_count, enigma_prepared **out);
enigma_status eni_prepare_instance(enigma_prepared *prepared);
enigma_status eni_prepare_inputs(enigma_prepared *prepared, const enigma_argument *inputs, size_t input_count);
enigma_status eni_prepare_outputs(enigma_prepared *prepared, size_t input_count, const size_t *output_sizes,
                                  size_t output_count);
void eni_prepared_retain(enigma_prepared *prepared);
void eni_prepared_release(enigma_prepared *prepared);

/* ---- clock.c ---- */

/* Judges the stamps of a complete launch: enum eni_gpu_status. The one place that does. */
uint32_t eni_gpu_judge(const eni_stamps *stamps, uint32_t counter_bits);
/* Completes an event's block, which others may be copying; NULL does nothing. */
void eni_gpu_fill_block(eni_gpu_block *block, const eni_stamps *stamps, uint32_t verdict);
double eni_gpu_stamps_us(const eni_stamps *stamps, const eni_traits *traits); /* of valid ones */

/* The number of a device in a profiler, registered with its facts when it is new there. Compares the clocks when that is due. */
uint32_t eni_gpu_clock_device(enigma_runtime *runtime, uint32_t device, enigma_profiler *profiler);
/* Compares the clocks of all devices that worked for a profiler since they were last compared for it. */
void eni_gpu_clock_settle(enigma_runtime *runtime, enigma_profiler *profiler);

/* ---- pending.c ---- */

struct eni_pending {
    eni_pending *next;
    enigma_prepared *prepared; /* a reference */
    void *ticket;
    enigma_profiler *profiler; /* a reference; NULL: not recorded */
    eni_gpu_block *block;      /* NULL: dropped, or not recorded */
    uint32_t queue;            /* index in the runtime's queues */
    bool claimed;              /* a thread is blocked on its ticket */
};

/* Which work a wait is for: members that are NULL do not matter. */
typedef struct eni_pending_filter {
    const enigma_runtime *runtime;
    const enigma_prepared *prepared;
    const enigma_profiler *profiler;
} eni_pending_filter;

/* Room for one entry, made before the launch so that adding cannot fail. NULL: no memory. */
eni_pending *eni_pending_new(void);
void eni_pending_delete(eni_pending *pending);
/* Adds a launch to the end of its queue; takes over the ticket, and references to prepared and profiler. */
void eni_pending_add(eni_pending *pending, enigma_prepared *prepared, void *ticket, uint32_t device, uint32_t queue,
                     enigma_profiler *profiler, eni_gpu_block *block);
/* Completes at most a few finished launches of a queue, so that a program that never waits stays bounded. */
void eni_pending_tidy(enigma_runtime *runtime, uint32_t device, uint32_t queue);
/* Waits for what the filter takes; completes other finished work on the way. ENIGMA_E_INTERRUPTED. */
enigma_status eni_pending_wait(const eni_pending_filter *filter);
/* Gives a failure of asynchronous work once. */
enigma_status eni_pending_failure(eni_gpu_failure *failure);
/* Whether waits may block in the driver: nobody could interrupt them, or they take no time. */
bool eni_gpu_may_block(const enigma_runtime *runtime);
/* Asks whether to give up, every 50 ms from the first call on; *asked_ns starts as 0. */
enigma_status eni_gpu_check_interrupt(uint64_t *asked_ns);
/* Waits for one launch that is not in a queue: ENIGMA_E_INTERRUPTED leaves it running. */
enigma_status eni_gpu_wait(const enigma_runtime *runtime, void *ticket);

void eni_pending_enlist(enigma_runtime *runtime);
void eni_pending_delist(enigma_runtime *runtime);
/* The next runtime of this process by key after the given one, with a reference; NULL: none. */
enigma_runtime *eni_pending_next_runtime(uint64_t after);

/* ---- dispatch.c, record.c ---- */

/* Everything about a dispatch that can be refused before it runs. */
enigma_status eni_dispatch_check(enigma_prepared *prepared, const enigma_dispatch_options *options);
/* The device time of one run. why: NULL when us holds, else the reason that there is no valid one. */
typedef struct eni_measure_result {
    double us;
    const char *why;
} eni_measure_result;
enum { ENI_MEASURE_BATCH = 64 };
/* Timed, unrecorded dispatches one after the other, each waited for before the next; the stamps are taken after the last, since some
 * backends give many for the price of one. count: at most ENI_MEASURE_BATCH. Asks between them whether to give up. */
enigma_status eni_dispatch_measure_batch(enigma_prepared *prepared, const enigma_dispatch_options *options,
                                         size_t count, uint64_t *asked_ns, eni_measure_result *out);
/* An untimed one; waits unless ENIGMA_DISPATCH_ASYNC is set. Options were checked. */
enigma_status eni_dispatch_untimed(enigma_prepared *prepared, const enigma_dispatch_options *options);
/* Launches, under the runtime's lock. ticket: as the backend's launch(). */
enigma_status eni_dispatch_launch(enigma_prepared *prepared, const enigma_dispatch_options *options, bool timed,
                                  void **ticket);
static inline bool eni_dispatch_is_async(const enigma_dispatch_options *options)
{
    return (options->flags & ENIGMA_DISPATCH_ASYNC) != 0;
}
/* A recorded one. Options were checked, the context has a profiler that records. */
enigma_status eni_record_dispatch(enigma_prepared *prepared, const enigma_dispatch_options *options,
                                  const enigma_context *context);
/* The place where a dispatch is recorded; its profiler is NULL when it is not. */
enigma_context eni_dispatch_context(const enigma_dispatch_options *options);

#endif
