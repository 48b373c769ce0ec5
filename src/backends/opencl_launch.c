/* Launches on OpenCL: a pair of queues for each queue of ours, and the tickets of launches that are waited for. The untimed path
 * without a ticket is clEnqueueNDRangeKernel and clFinish and nothing else. */
#include <assert.h>

#include "backends/opencl.h"
#include "base/clock.h"

typedef struct opencl_ticket {
    opencl_device *device;
    cl_event event;
    bool timed;
    uint64_t before_ticks, after_ticks; /* host: around the enqueue call */
} opencl_ticket;

/* ---- queues ---- */

static enigma_status make_queue(const opencl_device *device, cl_bitfield properties, cl_command_queue *out)
{
    cl_int error = CL_SUCCESS;
    if (*out == NULL) {
        *out = eni_cl.clCreateCommandQueue(device->context, device->id, properties, &error);
    }
    return *out == NULL ? eni_opencl_fail(error, "clCreateCommandQueue") : ENIGMA_OK;
}

void eni_opencl_pairs_free(opencl_device *device)
{
    for (int i = 0; i < ENI_OPENCL_QUEUES; i++) {
        opencl_pair *pair = &device->pairs[i];
        if (pair->last_timed != NULL) {
            eni_cl.clReleaseEvent(pair->last_timed);
        }
        if (pair->timed != NULL) {
            eni_cl.clReleaseCommandQueue(pair->timed);
        }
        if (pair->fast != NULL) {
            eni_cl.clReleaseCommandQueue(pair->fast);
        }
    }
}

static bool has_unfinished_untimed(const opencl_pair *pair)
{
    return __atomic_load_n(&pair->launched, __ATOMIC_RELAXED) != __atomic_load_n(&pair->finished, __ATOMIC_RELAXED);
}

static bool last_is_timed(const opencl_pair *pair)
{
    return __atomic_load_n(&pair->last_is_timed, __ATOMIC_RELAXED) != 0;
}

/* The execution status of a command: CL_COMPLETE, above it while it is not complete, below it when it failed. */
static cl_int state_of(cl_event event)
{
    cl_int state = CL_COMPLETE;
    cl_int error = eni_cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return error != CL_SUCCESS ? error : state;
}

/* What a launch has to wait for on the other queue of its pair: an event (a reference of the caller's), or NULL. Only the first
 * launch after a change of queue needs one, since each queue is in order. */
static enigma_status order_after(opencl_pair *pair, bool timed, cl_event *out)
{
    *out = NULL;
    if (timed == last_is_timed(pair)) {
        return ENIGMA_OK;
    }
    if (timed) {
        if (has_unfinished_untimed(pair)) {
            ENI_CL_TRY(eni_cl.clEnqueueMarkerWithWaitList(pair->fast, 0, NULL, out), "clEnqueueMarkerWithWaitList");
            eni_cl.clFlush(pair->fast);
        }
    } else if (pair->last_timed != NULL && state_of(pair->last_timed) > CL_COMPLETE) {
        eni_cl.clRetainEvent(pair->last_timed);
        *out = pair->last_timed;
    }
    return ENIGMA_OK;
}

/* ---- launches ---- */

static enigma_status enqueue(cl_command_queue queue, const eni_launch_request *request, cl_event after, cl_event *event)
{
    const opencl_kernel *kernel = request->kernel;
    const size_t global[3] = {request->grid.x, request->grid.y, request->grid.z};
    const size_t local[3] = {request->threads.x, request->threads.y, request->threads.z};
    cl_uint dimensions = request->grid.z > 1 || request->threads.z > 1   ? 3
                         : request->grid.y > 1 || request->threads.y > 1 ? 2
                                                                         : 1;
    ENI_CL_TRY(eni_cl.clEnqueueNDRangeKernel(queue, kernel->kernel, dimensions, NULL, global, local, after != NULL,
                                             after != NULL ? &after : NULL, event),
               "clEnqueueNDRangeKernel");
    return ENIGMA_OK;
}

/* Enqueues in order with the other queue of the pair. */
static enigma_status enqueue_ordered(opencl_pair *pair, const eni_launch_request *request, cl_event *event)
{
    cl_event after;
    ENI_TRY(order_after(pair, request->timed, &after));
    enigma_status status = enqueue(request->timed ? pair->timed : pair->fast, request, after, event);
    if (after != NULL) {
        eni_cl.clReleaseEvent(after);
    }
    return status;
}

static void note_launch(opencl_pair *pair, bool timed, cl_event event)
{
    __atomic_store_n(&pair->last_is_timed, timed, __ATOMIC_RELAXED);
    if (!timed) {
        __atomic_fetch_add(&pair->launched, 1, __ATOMIC_RELAXED);
        return;
    }
    if (pair->last_timed != NULL) {
        eni_cl.clReleaseEvent(pair->last_timed);
    }
    eni_cl.clRetainEvent(event);
    pair->last_timed = event;
}

static enigma_status launch_with_ticket(opencl_device *device, opencl_pair *pair, const eni_launch_request *request,
                                        void **out)
{
    opencl_ticket *ticket = ENI_NEW(opencl_ticket);
    if (ticket == NULL) {
        return ENI_NO_MEMORY();
    }
    ticket->device = device;
    ticket->timed = request->timed;
    ticket->before_ticks = eni_clock_ticks();
    enigma_status status = enqueue_ordered(pair, request, &ticket->event);
    ticket->after_ticks = eni_clock_ticks();
    if (status != ENIGMA_OK) {
        ENI_DELETE(ticket);
        return status;
    }
    note_launch(pair, request->timed, ticket->event);
    eni_cl.clFlush(request->timed ? pair->timed : pair->fast);
    *out = ticket;
    return ENIGMA_OK;
}

enigma_status eni_opencl_launch(void *handle, const eni_launch_request *request, void **ticket)
{
    opencl_device *device = handle;
    opencl_pair *pair = &device->pairs[request->queue];
    assert(ticket != NULL || !request->timed);
    if (ticket != NULL) {
        *ticket = NULL;
    }
    if (request->timed) {
        ENI_TRY(make_queue(device, CL_QUEUE_PROFILING_ENABLE, &pair->timed));
    } else {
        ENI_TRY(make_queue(device, 0, &pair->fast));
    }
    if (ticket != NULL) {
        return launch_with_ticket(device, pair, request, ticket);
    }
    ENI_TRY(enqueue_ordered(pair, request, NULL));
    note_launch(pair, false, NULL);
    return ENIGMA_OK;
}

enigma_status eni_opencl_finish(void *handle, uint32_t device_index, uint32_t queue)
{
    opencl_device *device = handle;
    opencl_pair *pair = &device->pairs[queue];
    (void)device_index;
    uint64_t launched = __atomic_load_n(&pair->launched, __ATOMIC_RELAXED);
    cl_command_queue last = last_is_timed(pair) ? pair->timed : pair->fast;
    if (last == NULL) {
        return ENIGMA_OK;
    }
    ENI_CL_TRY(eni_cl.clFinish(last), "clFinish");
    __atomic_store_n(&pair->finished, launched, __ATOMIC_RELAXED);
    return ENIGMA_OK;
}

/* ---- tickets ---- */

static enigma_status fail_as(cl_int state)
{
    return ENI_FAIL(ENIGMA_E_DEVICE, "OpenCL: the kernel failed on the device: %s (%d)", eni_opencl_error_name(state),
                    state);
}

int eni_opencl_poll(void *handle)
{
    const opencl_ticket *ticket = handle;
    cl_int state = state_of(ticket->event);
    return state == CL_COMPLETE ? 1 : state > CL_COMPLETE ? 0 : (int)fail_as(state);
}

enigma_status eni_opencl_wait(void *handle)
{
    const opencl_ticket *ticket = handle;
    cl_int error = eni_cl.clWaitForEvents(1, &ticket->event);
    if (error == CL_SUCCESS) {
        return ENIGMA_OK;
    }
    cl_int state = state_of(ticket->event); /* says more than "an event in the wait list failed" */
    return state < CL_COMPLETE ? fail_as(state) : eni_opencl_fail(error, "clWaitForEvents");
}

void eni_opencl_stamps(void *handle, eni_stamps *out)
{
    const opencl_ticket *ticket = handle;
    uint64_t seen_ns = eni_clock_now_ns();
    *out = (eni_stamps){.scheduling_us = -1.0};
    assert(ticket->timed);
    uint64_t queued = eni_opencl_stamp(ticket->event, CL_PROFILING_COMMAND_QUEUED);
    out->available = eni_cl.clGetEventProfilingInfo(ticket->event, CL_PROFILING_COMMAND_END, sizeof out->end, &out->end,
                                                    NULL) == CL_SUCCESS;
    out->submit = eni_opencl_stamp(ticket->event, CL_PROFILING_COMMAND_SUBMIT);
    out->start = eni_opencl_stamp(ticket->event, CL_PROFILING_COMMAND_START);
    if (queued != 0 && out->submit >= queued) {
        out->scheduling_us = (double)(out->submit - queued) / 1000.0;
    }
    eni_opencl_clock_note(&ticket->device->clock, &(opencl_sighting){.before = eni_clock_ns(ticket->before_ticks),
                                                                     .after = eni_clock_ns(ticket->after_ticks),
                                                                     .complete = seen_ns,
                                                                     .queued = queued,
                                                                     .start = out->start,
                                                                     .end = out->end});
}

void eni_opencl_release(void *handle)
{
    opencl_ticket *ticket = handle;
    eni_cl.clReleaseEvent(ticket->event);
    ENI_DELETE(ticket);
}
