/* Inside of the OpenCL backend (opencl*.c). Locks: the device's clock has its own, a leaf; all else follows the contract's rule of one
 * thread at a time. */
#ifndef ENI_BACKENDS_OPENCL_H
#define ENI_BACKENDS_OPENCL_H

#include "abi/opencl_abi.h"
#include "backends/backend.h"
#include "base/thread.h"

enum { ENI_OPENCL_QUEUES = 64 };

/* The functions of the loader library; filled by load(), constant afterwards. */
extern eni_opencl_functions eni_cl;

/* Two in-order queues that act as one: without and with profiling. A launch on one waits for what is on the other. */
typedef struct opencl_pair {
    cl_command_queue fast, timed;
    uint64_t launched, finished; /* atomic: untimed launches so far, and how many of them are known to be complete */
    uint32_t last_is_timed;      /* atomic */
    cl_event last_timed;         /* of the last timed launch; NULL: none */
} opencl_pair;

/* Where the stamps of a device's events are compared with the host. */
enum opencl_clock_source {
    OPENCL_CLOCK_UNKNOWN = 0,
    OPENCL_CLOCK_TIMER = 1,    /* clGetDeviceAndHostTimer */
    OPENCL_CLOCK_QUEUED = 2,   /* QUEUED lies within the enqueue call */
    OPENCL_CLOCK_EXECUTION = 3 /* START and END lie between the enqueue call and the end of the wait */
};

/* Device clock less host clock, in ns, known to lie in an interval. */
typedef struct opencl_interval {
    int64_t low, high;
} opencl_interval;

typedef struct opencl_clock {
    eni_mutex lock;
    enum opencl_clock_source source;
    bool known;
    opencl_interval offset; /* as of host_ns; grows with time by what the clocks may drift */
    uint64_t host_ns;
} opencl_clock;

typedef struct opencl_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue service; /* transfers and clock markers; with profiling */
    opencl_pair pairs[ENI_OPENCL_QUEUES];
    opencl_clock clock;
    const char *language; /* "-cl-std=..." that partial groups need; NULL: none */
    bool takes_il;        /* SPIR-V */
} opencl_device;

typedef struct opencl_kernel {
    opencl_device *device;
    cl_kernel kernel;
    eni_kernel_info info;
    eni_arena arena; /* what info points to */
} opencl_kernel;

/* The failure of a call: what was attempted, the error's name and number. */
enigma_status eni_opencl_fail(cl_int error, const char *what);
#define ENI_CL_TRY(call, what)                                                                                         \
    do {                                                                                                               \
        cl_int eni_cl_error_ = (call);                                                                                 \
        if (ENI_UNLIKELY(eni_cl_error_ != CL_SUCCESS)) {                                                               \
            return eni_opencl_fail(eni_cl_error_, (what));                                                             \
        }                                                                                                              \
    } while (0)
const char *eni_opencl_error_name(cl_int error);

/* opencl_program.c */
enigma_status eni_opencl_program_build(void *device, const char *source, size_t size, const char *suffix,
                                       const char *options, void **program);
void eni_opencl_program_free(void *program);
enigma_status eni_opencl_kernel_create(void *program, const char *name, void **kernel, const eni_kernel_info **info);
enigma_status eni_opencl_kernel_bind_buffer(void *kernel, uint32_t index, void *buffer);
enigma_status eni_opencl_kernel_bind_scalar(void *kernel, uint32_t index, const void *data, size_t size);
void eni_opencl_kernel_free(void *kernel);

/* opencl_launch.c */
enigma_status eni_opencl_launch(void *device, const eni_launch_request *request, void **ticket);
enigma_status eni_opencl_finish(void *device, uint32_t device_index, uint32_t queue);
int eni_opencl_poll(void *ticket);
enigma_status eni_opencl_wait(void *ticket);
void eni_opencl_stamps(void *ticket, eni_stamps *out);
void eni_opencl_release(void *ticket);
void eni_opencl_pairs_free(opencl_device *device);

/* opencl_clock.c */

/* What one command tells about the clocks: host times in ns; 0: not known. */
typedef struct opencl_sighting {
    uint64_t before, after, complete; /* host: around the enqueue call, after the end was seen */
    uint64_t queued, start, end;      /* device */
} opencl_sighting;
void eni_opencl_clock_note(opencl_clock *clock, const opencl_sighting *seen);
enigma_status eni_opencl_clock_pair(void *device, uint32_t device_index, eni_clock_pair *out);
uint64_t eni_opencl_stamp(cl_event event, cl_uint which); /* 0: not available */

#endif
