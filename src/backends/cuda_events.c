/* Timing by events around launches, where CUPTI is missing or taken. Two events enclose more than the kernel: the device's own
 * work on them, and, when the stream was idle, the host's time between the three calls. So an idle stream is held by a wait on a word
 * of host memory until all three are queued, and what a pair around an empty kernel takes is measured once and subtracted. Two timed
 * launches that follow each other on a busy stream share the event between them. Under the device's calling rule but for the pool
 * and the anchor, which `stamps` and `release` use from any thread. */
#include <assert.h>
#include <stdlib.h>

#include "backends/cuda.h"
#include "base/clock.h"
#include "base/log.h"

#define ANCHOR_NS UINT64_C(500000000) /* elapsed times are floats of ms: near in time they are exact to tens of ns */
enum { CALIBRATION_RUNS = 31, ANCHOR_TRIES = 5 };

typedef struct cuda_events {
    eni_mutex lock; /* the pool and the anchor */
    cuda_boundary *pool;
    cu_event anchor;
    uint64_t anchor_ns; /* host clock at the anchor */
    uint32_t anchor_width;
    bool anchored;
    uint32_t *gate; /* host memory that streams wait on; NULL: this driver cannot */
    cu_pointer gate_address;
    uint32_t gate_value;
    cu_module module; /* the empty kernel's */
    double empty_us;  /* what a pair around it takes */
} cuda_events;

/* ---- boundaries ---- */

static enigma_status take_boundary(cuda_events *events, cuda_boundary **out)
{
    eni_lock(&events->lock);
    cuda_boundary *boundary = events->pool;
    if (boundary != NULL) {
        events->pool = boundary->next;
    }
    eni_unlock(&events->lock);
    *out = NULL;
    if (boundary == NULL) {
        boundary = ENI_NEW(cuda_boundary);
        if (boundary == NULL) {
            return ENI_NO_MEMORY();
        }
        cu_result error = eni_cu.cuEventCreate(&boundary->event, 0);
        if (error != CUDA_SUCCESS) {
            ENI_DELETE(boundary);
            return eni_cuda_fail(error, "cuEventCreate");
        }
    }
    boundary->references = 1;
    *out = boundary;
    return ENIGMA_OK;
}

static void drop_boundary(cuda_events *events, cuda_boundary *boundary)
{
    if (boundary == NULL || __atomic_sub_fetch(&boundary->references, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    eni_lock(&events->lock);
    boundary->next = events->pool;
    events->pool = boundary;
    eni_unlock(&events->lock);
}

static cuda_boundary *share(cuda_boundary *boundary)
{
    __atomic_fetch_add(&boundary->references, 1, __ATOMIC_RELAXED);
    return boundary;
}

/* A new boundary at the end of the stream. */
static enigma_status put_boundary(cuda_events *events, cu_stream stream, cuda_boundary **out)
{
    ENI_TRY(take_boundary(events, out));
    cu_result error = eni_cu.cuEventRecord((*out)->event, stream);
    if (error != CUDA_SUCCESS) {
        drop_boundary(events, *out);
        *out = NULL;
        return eni_cuda_fail(error, "cuEventRecord");
    }
    return ENIGMA_OK;
}

/* ---- the gate ---- */

static void make_gate(cuda_events *events)
{
    void *memory = NULL;
    if (eni_cu.cuStreamWaitValue32 == NULL ||
        eni_cu.cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS) {
        return;
    }
    if (eni_cu.cuMemHostGetDevicePointer(&events->gate_address, memory, 0) != CUDA_SUCCESS) {
        eni_cu.cuMemFreeHost(memory);
        return;
    }
    events->gate = memory;
    __atomic_store_n(events->gate, 0, __ATOMIC_RELEASE);
}

/* Holds the stream until open_gate. */
static void close_gate(cuda_events *events, cu_stream stream)
{
    if (events->gate != NULL && eni_cu.cuStreamWaitValue32(stream, events->gate_address, events->gate_value + 1,
                                                           CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) {
        eni_log(ENI_LOG_WARN, "CUDA: streams cannot wait on memory; short kernels seem longer");
        eni_cu.cuMemFreeHost(events->gate);
        events->gate = NULL;
    }
}

static void open_gate(cuda_events *events)
{
    if (events->gate != NULL) {
        __atomic_store_n(events->gate, ++events->gate_value, __ATOMIC_RELEASE);
    }
}

/* ---- launches ---- */

void eni_cuda_events_forget_last(cuda_device *device, cuda_queue *queue)
{
    if (queue->last != NULL) {
        drop_boundary(device->events, queue->last);
        queue->last = NULL;
    }
}

enigma_status eni_cuda_events_begin(cuda_device *device, cuda_queue *queue, cuda_ticket *ticket, bool may_hold)
{
    cuda_events *events = device->events;
    if (queue->last != NULL && eni_cu.cuEventQuery(queue->last->event) == CUDA_ERROR_NOT_READY) {
        ticket->start = share(queue->last);
        return ENIGMA_OK;
    }
    if (may_hold && eni_cu.cuStreamQuery(queue->stream) == CUDA_SUCCESS) {
        close_gate(events, queue->stream);
    }
    enigma_status status = put_boundary(events, queue->stream, &ticket->start);
    if (status != ENIGMA_OK) {
        open_gate(events);
    }
    return status;
}

enigma_status eni_cuda_events_end(cuda_device *device, cuda_queue *queue, cuda_ticket *ticket)
{
    cuda_events *events = device->events;
    eni_cuda_events_forget_last(device, queue);
    enigma_status status = put_boundary(events, queue->stream, &ticket->end);
    open_gate(events);
    if (status == ENIGMA_OK) {
        queue->last = share(ticket->end);
    }
    return status;
}

void eni_cuda_events_abandon(cuda_device *device, cuda_queue *queue, cuda_ticket *ticket)
{
    (void)ticket; /* what it holds goes with it */
    open_gate(device->events);
    eni_cuda_events_forget_last(device, queue);
}

void eni_cuda_events_drop(cuda_device *device, cuda_ticket *ticket)
{
    drop_boundary(device->events, ticket->start);
    drop_boundary(device->events, ticket->end);
}

/* ---- stamps ---- */

static bool elapsed_ns(cu_event from, cu_event to, double *out)
{
    float ms = 0.0f;
    if (eni_cu.cuEventElapsedTime(&ms, from, to) != CUDA_SUCCESS) {
        return false;
    }
    *out = (double)ms * 1e6;
    return true;
}

/* One reading of both clocks: an event on an idle stream comes between its record and the end of the wait for it. */
static bool read_anchor(const cuda_device *device, cu_event event, uint64_t *ns, uint64_t *width)
{
    uint64_t before = eni_clock_real_ns();
    if (eni_cu.cuEventRecord(event, device->service) != CUDA_SUCCESS ||
        eni_cu.cuEventSynchronize(event) != CUDA_SUCCESS) {
        return false;
    }
    *width = eni_clock_real_ns() - before;
    *ns = before + *width / 2;
    return true;
}

/* Puts the anchor near the present, at the narrowest of a few tries. With the lock held. */
static bool renew_anchor(cuda_device *device)
{
    cuda_events *events = device->events;
    uint64_t ns, width, best = UINT64_MAX;
    for (int i = 0; i < ANCHOR_TRIES; i++) {
        cu_event event;
        if (eni_cu.cuEventCreate(&event, 0) != CUDA_SUCCESS) {
            break;
        }
        if (read_anchor(device, event, &ns, &width) && width < best) {
            best = width;
            events->anchor_ns = ns;
            cu_event old = events->anchor;
            events->anchor = event;
            event = old;
        }
        if (event != NULL) {
            eni_cu.cuEventDestroy(event);
        }
    }
    events->anchored = best != UINT64_MAX;
    events->anchor_width = best < UINT32_MAX ? (uint32_t)best : UINT32_MAX;
    return events->anchored;
}

/* Where an event lies on the host's clock. */
static bool place(cuda_device *device, cu_event event, uint64_t *out)
{
    cuda_events *events = device->events;
    double ns = 0.0;
    eni_lock(&events->lock);
    bool near =
        events->anchored && elapsed_ns(events->anchor, event, &ns) && ns < (double)ANCHOR_NS && ns > -(double)ANCHOR_NS;
    if (!near) {
        near = renew_anchor(device) && elapsed_ns(events->anchor, event, &ns);
    }
    *out = near ? events->anchor_ns + (uint64_t)(int64_t)ns : 0;
    eni_unlock(&events->lock);
    return near;
}

uint32_t eni_cuda_events_uncertainty(const cuda_device *device)
{
    cuda_events *events = device->events;
    eni_lock(&events->lock);
    uint32_t width = events->anchored ? events->anchor_width / 2 + 1 : 100000;
    eni_unlock(&events->lock);
    return width;
}

static void stamps(cuda_ticket *ticket, eni_stamps *out)
{
    double ns;
    uint64_t start;
    if (!elapsed_ns(ticket->start->event, ticket->end->event, &ns) ||
        !place(ticket->device, ticket->start->event, &start)) {
        return;
    }
    ns -= ticket->device->events->empty_us * 1000.0;
    out->available = true;
    out->start = start;
    out->end = start + (uint64_t)(ns > 0.0 ? ns : 0.0);
}

void eni_cuda_events_stamps(cuda_ticket *ticket, eni_stamps *out)
{
    if (eni_cuda_enter(ticket->device) == ENIGMA_OK) {
        stamps(ticket, out);
        eni_cuda_leave();
    }
}

/* ---- calibration ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One pair with nothing, or with the empty kernel, between. */
static bool time_pair(cuda_device *device, cu_function function, bool may_hold, double *out_us)
{
    cuda_queue queue = {.stream = device->service};
    cuda_ticket ticket = {.device = device};
    double ns = 0.0;
    if (eni_cuda_events_begin(device, &queue, &ticket, may_hold) != ENIGMA_OK) {
        return false;
    }
    cu_result error = function == NULL
                          ? CUDA_SUCCESS
                          : eni_cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, device->service, NULL, NULL);
    bool good = eni_cuda_events_end(device, &queue, &ticket) == ENIGMA_OK && error == CUDA_SUCCESS &&
                eni_cu.cuStreamSynchronize(device->service) == CUDA_SUCCESS && ticket.end != NULL &&
                elapsed_ns(ticket.start->event, ticket.end->event, &ns);
    eni_cuda_events_forget_last(device, &queue);
    eni_cuda_events_drop(device, &ticket);
    *out_us = ns / 1000.0;
    return good;
}

static void calibrate(cuda_device *device)
{
    double times[CALIBRATION_RUNS];
    cu_function function = NULL;
    int count = 0;
    cuda_events *events = device->events;
    if (eni_cuda_load_empty(&events->module, &function) != ENIGMA_OK) {
        function = NULL; /* then what a pair around nothing takes is a lower bound */
    }
    time_pair(device, function, false, &times[0]); /* the first one loads code */
    for (int i = 0; i < CALIBRATION_RUNS; i++) {
        count += time_pair(device, function, true, &times[count]);
    }
    if (count > 0) {
        qsort(times, (size_t)count, sizeof times[0], compare);
        events->empty_us = times[count / 2];
    }
    eni_log(ENI_LOG_INFO, "CUDA: a pair of events around nothing takes %.3f us", events->empty_us);
}

/* ---- open and close ---- */

enigma_status eni_cuda_events_open(cuda_device *device)
{
    device->events = ENI_NEW(cuda_events);
    if (device->events == NULL) {
        return ENI_NO_MEMORY();
    }
    pthread_mutex_init(&device->events->lock, NULL);
    make_gate(device->events);
    calibrate(device);
    return ENIGMA_OK;
}

void eni_cuda_events_close(cuda_device *device)
{
    cuda_events *events = device->events;
    if (events == NULL) {
        return;
    }
    while (events->pool != NULL) {
        cuda_boundary *next = events->pool->next;
        eni_cu.cuEventDestroy(events->pool->event);
        ENI_DELETE(events->pool);
        events->pool = next;
    }
    if (events->anchor != NULL) {
        eni_cu.cuEventDestroy(events->anchor);
    }
    if (events->gate != NULL) {
        eni_cu.cuMemFreeHost(events->gate);
    }
    if (events->module != NULL) {
        eni_cu.cuModuleUnload(events->module);
    }
    pthread_mutex_destroy(&events->lock);
    ENI_DELETE(events);
    device->events = NULL;
}
