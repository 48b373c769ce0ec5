/* Inside of the CUDA backend (cuda*.c). Locks, all leaves: a stream's own, the event pool's, the timer's; all else follows the
 * contract's rule of one thread at a time. Every entry makes the device's primary context current and restores the caller's. */
#ifndef ENI_BACKENDS_CUDA_H
#define ENI_BACKENDS_CUDA_H

#include "abi/cuda_abi.h"
#include "backends/backend.h"
#include "base/thread.h"

enum { ENI_CUDA_STREAMS = 64 };

/* The driver's functions; filled by load(), constant afterwards. */
extern eni_cuda_functions eni_cu;

typedef struct cuda_device cuda_device;

/* How launches are timed. */
enum cuda_timer {
    CUDA_TIMER_UNKNOWN = 0, /* not asked for yet */
    CUDA_TIMER_CUPTI = 1,
    CUDA_TIMER_EVENTS = 2
};

/* An event that lies between two launches: the end of one and, where they follow at once, the start of the next. */
typedef struct cuda_boundary {
    cu_event event;
    uint32_t references;        /* atomic */
    struct cuda_boundary *next; /* in the pool */
} cuda_boundary;

/* One queue of ours. Launches are numbered from 1; all up to `complete` are known to be over. */
typedef struct cuda_queue {
    cu_stream stream;    /* NULL: not made yet */
    uint64_t launched;   /* atomic */
    uint64_t complete;   /* atomic */
    eni_mutex lock;      /* the marker */
    cu_event marker;     /* NULL: none yet */
    uint64_t marker_at;  /* the launch that it follows; 0: not recorded */
    cuda_boundary *last; /* end of the last launch, when that was timed by events; else NULL */
} cuda_queue;

/* CUPTI's stamps against the host's clock. Under gpu/'s clock lock, one thread at a time. */
typedef struct cuda_clock {
    cu_stream stream; /* of the markers; NULL: not made yet */
    cu_module module;
    cu_function function; /* NULL: cannot be loaded */
    int64_t offset_ns;    /* host less CUPTI */
    uint32_t uncertainty_ns;
} cuda_clock;

struct cuda_device {
    cu_device id;
    uint32_t index;
    cu_context context;
    cu_stream service; /* transfers, clock readings */
    cuda_queue queues[ENI_CUDA_STREAMS];
    uint32_t max_blocks[3];
    int capability;       /* 90 for 9.0 */
    int threads_per_unit; /* of a multiprocessor; 0: not known */
    int warp;
    enum cuda_timer timer; /* atomic: set once */
    cuda_clock clock;
    struct cuda_events *events; /* of the event timer; NULL: not used */
};

typedef struct cuda_kernel {
    cuda_device *device;
    struct cuda_program *program; /* a reference */
    cu_function function;
    eni_kernel_info info;
    eni_arena arena;   /* what info points to */
    void **parameters; /* what cuLaunchKernel reads */
    uint32_t parameter_count;
    bool launched; /* its code is loaded */
} cuda_kernel;

typedef struct cuda_ticket {
    cuda_device *device;
    cuda_queue *queue;
    uint64_t number; /* of the launch in its queue */
    bool timed;
    enum cuda_timer timer;
    /* CUPTI: under the timer's lock while it is listed */
    uint32_t correlation; /* 0: not seen */
    uint32_t filled;      /* atomic: the record came */
    uint64_t start_ns, end_ns;
    struct cuda_ticket *next;
    /* events */
    cuda_boundary *start, *end;
} cuda_ticket;

/* The failure of a call: what was attempted, the error's name and words. */
enigma_status eni_cuda_fail(cu_result error, const char *what);
#define ENI_CU_TRY(call, what)                                                                                         \
    do {                                                                                                               \
        cu_result eni_cu_error_ = (call);                                                                              \
        if (ENI_UNLIKELY(eni_cu_error_ != CUDA_SUCCESS)) {                                                             \
            return eni_cuda_fail(eni_cu_error_, (what));                                                               \
        }                                                                                                              \
    } while (0)

/* Makes the device's context current; every enter that succeeds has its leave. */
enigma_status eni_cuda_enter(const cuda_device *device);
static inline void eni_cuda_leave(void)
{
    cu_context ours;
    eni_cu.cuCtxPopCurrent(&ours);
}
int eni_cuda_attribute(const cuda_device *device, int attribute); /* 0: not known */

int eni_cuda_version(void); /* of the driver, 13000 for 13.0 */

/* cuda_nvrtc.c: source text to an image for the device. */

/* A compiled image: a cubin, or PTX with a NUL after it. */
typedef struct cuda_image {
    char *data;
    size_t size;
} cuda_image;
enigma_status eni_cuda_compile(const cuda_device *device, const char *source, size_t size, const char *options,
                               cuda_image *out);
void eni_cuda_image_free(cuda_image *image);

/* cuda_program.c */
enigma_status eni_cuda_program_build(void *device, const char *source, size_t size, const char *suffix,
                                     const char *options, void **program);
void eni_cuda_program_free(void *program);
void eni_cuda_program_unref(struct cuda_program *program);

/* cuda_kernel.c */
enigma_status eni_cuda_kernel_create(void *program, const char *name, void **kernel, const eni_kernel_info **info);
enigma_status eni_cuda_kernel_bind_buffer(void *kernel, uint32_t index, void *buffer);
enigma_status eni_cuda_kernel_bind_scalar(void *kernel, uint32_t index, const void *data, size_t size);
double eni_cuda_kernel_occupancy(void *kernel, enigma_size3 threads);
void eni_cuda_kernel_free(void *kernel);
cu_pointer eni_cuda_buffer_address(const void *buffer);

/* cuda_launch.c */
enigma_status eni_cuda_launch(void *device, const eni_launch_request *request, void **ticket);
enigma_status eni_cuda_finish(void *device, uint32_t device_index, uint32_t queue);
int eni_cuda_poll(void *ticket);
enigma_status eni_cuda_wait(void *ticket);
void eni_cuda_release(void *ticket);
void eni_cuda_queues_free(cuda_device *device);

/* cuda_timer.c: by CUPTI's records. The ticket is known by its launch's correlation from the callback at the launch on. */
enigma_status eni_cuda_cupti_start(void);
void eni_cuda_cupti_stop(void);
void eni_cuda_cupti_mark(cuda_ticket *ticket); /* this thread's launches are the ticket's; NULL: nobody's */
void eni_cuda_cupti_bound(void);               /* flushes when very many records are outstanding */
void eni_cuda_cupti_stamps(cuda_ticket *ticket, eni_stamps *out);
void eni_cuda_cupti_forget(cuda_ticket *ticket); /* before a ticket is freed */

/* cuda_clock.c */
enigma_status eni_cuda_clock_pair(void *device, uint32_t device_index, eni_clock_pair *out);
void eni_cuda_clock_close(cuda_device *device);                              /* in its context */
enigma_status eni_cuda_load_empty(cu_module *module, cu_function *function); /* likewise */

/* cuda_events.c: by events around the launch, where there is no CUPTI. In the device's context. */
enigma_status eni_cuda_events_open(cuda_device *device);
void eni_cuda_events_close(cuda_device *device);
/* Before and after the launch; after a failed one, abandon. may_hold: the stream may be held meanwhile, since the launch waits for
 * nothing: a kernel's first one may wait for the whole device while its code is loaded. */
enigma_status eni_cuda_events_begin(cuda_device *device, cuda_queue *queue, cuda_ticket *ticket, bool may_hold);
enigma_status eni_cuda_events_end(cuda_device *device, cuda_queue *queue, cuda_ticket *ticket);
void eni_cuda_events_abandon(cuda_device *device, cuda_queue *queue, cuda_ticket *ticket);
void eni_cuda_events_drop(cuda_device *device, cuda_ticket *ticket);
void eni_cuda_events_forget_last(cuda_device *device, cuda_queue *queue); /* an untimed launch comes between */
void eni_cuda_events_stamps(cuda_ticket *ticket, eni_stamps *out);
uint32_t eni_cuda_events_uncertainty(const cuda_device *device); /* ns between their clock and the host's */

#endif
