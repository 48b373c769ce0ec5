/* Launches on CUDA: a non-blocking stream for each queue, timed or not, and the tickets of launches that are waited for. A launch
 * costs no event of its own, which would hold the next kernel up: whether it is over is known from its stream being empty, or from
 * an event recorded behind it when somebody asks and later launches follow, which answers for all launches before. */
#include <assert.h>

#include "backends/cuda.h"

/* ---- queues ---- */

static enigma_status make_stream(cuda_queue *queue)
{
    if (queue->stream == NULL) {
        ENI_CU_TRY(eni_cu.cuStreamCreate(&queue->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    return ENIGMA_OK;
}

void eni_cuda_queues_free(cuda_device *device)
{
    for (int i = 0; i < ENI_CUDA_STREAMS; i++) {
        cuda_queue *queue = &device->queues[i];
        eni_cuda_events_forget_last(device, queue);
        if (queue->marker != NULL) {
            eni_cu.cuEventDestroy(queue->marker);
        }
        if (queue->stream != NULL) {
            eni_cu.cuStreamDestroy(queue->stream);
        }
    }
}

static uint64_t launched_on(const cuda_queue *queue) { return __atomic_load_n(&queue->launched, __ATOMIC_ACQUIRE); }

static bool is_complete(const cuda_queue *queue, uint64_t number)
{
    return __atomic_load_n(&queue->complete, __ATOMIC_ACQUIRE) >= number;
}

static void note_complete(cuda_queue *queue, uint64_t number)
{
    uint64_t known = __atomic_load_n(&queue->complete, __ATOMIC_RELAXED);
    while (known < number &&
           !__atomic_compare_exchange_n(&queue->complete, &known, number, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

/* ---- launches ---- */

static enigma_status check_blocks(const cuda_device *device, const uint64_t blocks[3])
{
    for (int i = 0; i < 3; i++) {
        if (blocks[i] > device->max_blocks[i]) {
            return ENI_FAIL(ENIGMA_E_INVALID, "grid.%c is %llu groups of threads.%c; this device takes at most %u",
                            "xyz"[i], (unsigned long long)blocks[i], "xyz"[i], device -> max_blocks[i]);
        }
    }
    return ENIGMA_OK;
}

static enigma_status run(const cuda_device *device, const cuda_queue *queue, const eni_launch_request *request)
{
    cuda_kernel *kernel = request->kernel;
    const enigma_size3 *threads = &request->threads;
    const uint64_t blocks[3] = {request->grid.x / threads->x, request->grid.y / threads->y,
                                request->grid.z / threads->z};
    ENI_TRY(check_blocks(device, blocks));
    ENI_CU_TRY(eni_cu.cuLaunchKernel(kernel->function, (uint32_t)blocks[0], (uint32_t)blocks[1], (uint32_t)blocks[2],
                                     (uint32_t)threads->x, (uint32_t)threads->y, (uint32_t)threads->z, 0, queue->stream,
                                     kernel->parameters, NULL),
               "cuLaunchKernel");
    kernel->launched = true;
    return ENIGMA_OK;
}

/* Decides once for a device how it is timed. In its context. */
static enigma_status choose_timer(cuda_device *device)
{
    if (device->timer != CUDA_TIMER_UNKNOWN) {
        return ENIGMA_OK;
    }
    if (eni_cuda_cupti_start() == ENIGMA_OK) {
        __atomic_store_n(&device->timer, CUDA_TIMER_CUPTI, __ATOMIC_RELEASE);
        return ENIGMA_OK;
    }
    ENI_TRY(eni_cuda_events_open(device));
    __atomic_store_n(&device->timer, CUDA_TIMER_EVENTS, __ATOMIC_RELEASE);
    return ENIGMA_OK;
}

static enigma_status run_timed(cuda_device *device, cuda_queue *queue, const eni_launch_request *request,
                               cuda_ticket *ticket)
{
    ENI_TRY(choose_timer(device));
    ticket->timer = device->timer;
    if (ticket->timer == CUDA_TIMER_CUPTI) {
        eni_cuda_cupti_bound();
        eni_cuda_cupti_mark(ticket);
        enigma_status status = run(device, queue, request);
        eni_cuda_cupti_mark(NULL);
        return status;
    }
    ENI_TRY(eni_cuda_events_begin(device, queue, ticket, ((const cuda_kernel *)request->kernel)->launched));
    enigma_status status = run(device, queue, request);
    if (status != ENIGMA_OK) {
        eni_cuda_events_abandon(device, queue, ticket);
        return status;
    }
    return eni_cuda_events_end(device, queue, ticket);
}

static enigma_status run_any(cuda_device *device, cuda_queue *queue, const eni_launch_request *request,
                             cuda_ticket *ticket)
{
    ENI_TRY(make_stream(queue));
    if (request->timed) {
        return run_timed(device, queue, request, ticket);
    }
    eni_cuda_events_forget_last(device, queue);
    return run(device, queue, request);
}

static void free_ticket(cuda_ticket *ticket)
{
    if (ticket->timer == CUDA_TIMER_CUPTI) {
        eni_cuda_cupti_forget(ticket);
    } else if (ticket->timer == CUDA_TIMER_EVENTS) {
        eni_cuda_events_drop(ticket->device, ticket);
    }
    ENI_DELETE(ticket);
}

static enigma_status launch(cuda_device *device, cuda_queue *queue, const eni_launch_request *request,
                            cuda_ticket *ticket)
{
    ENI_TRY(eni_cuda_enter(device));
    enigma_status status = run_any(device, queue, request, ticket);
    eni_cuda_leave();
    if (status == ENIGMA_OK) {
        uint64_t number = __atomic_add_fetch(&queue->launched, 1, __ATOMIC_RELEASE);
        if (ticket != NULL) {
            ticket->number = number;
        }
    }
    return status;
}

enigma_status eni_cuda_launch(void *handle, const eni_launch_request *request, void **out)
{
    cuda_device *device = handle;
    cuda_queue *queue = &device->queues[request->queue];
    cuda_ticket *ticket = NULL;
    assert(out != NULL || !request->timed);
    if (out != NULL) {
        *out = NULL;
        ticket = ENI_NEW(cuda_ticket);
        if (ticket == NULL) {
            return ENI_NO_MEMORY();
        }
        ticket->device = device;
        ticket->queue = queue;
        ticket->timed = request->timed;
    }
    enigma_status status = launch(device, queue, request, ticket);
    if (out == NULL) {
        return status;
    }
    if (status != ENIGMA_OK) {
        free_ticket(ticket);
        return status;
    }
    *out = ticket;
    return ENIGMA_OK;
}

/* Waits until the stream is empty. In the device's context. */
static enigma_status drain(cuda_queue *queue)
{
    uint64_t launched = launched_on(queue);
    ENI_CU_TRY(eni_cu.cuStreamSynchronize(queue->stream), "cuStreamSynchronize");
    note_complete(queue, launched);
    return ENIGMA_OK;
}

enigma_status eni_cuda_finish(void *handle, uint32_t device_index, uint32_t queue_index)
{
    cuda_device *device = handle;
    cuda_queue *queue = &device->queues[queue_index];
    (void)device_index;
    if (queue->stream == NULL) {
        return ENIGMA_OK;
    }
    ENI_TRY(eni_cuda_enter(device));
    enigma_status status = drain(queue);
    eni_cuda_leave();
    return status;
}

/* ---- tickets ---- */

/* Makes sure that an event lies behind the ticket's launch: an earlier one that has not come yet is left to come first. With the
 * queue's lock held. */
static cu_result place_marker(cuda_queue *queue, uint64_t number)
{
    if (queue->marker_at >= number) {
        return CUDA_SUCCESS;
    }
    if (queue->marker == NULL) {
        cu_result error = eni_cu.cuEventCreate(&queue->marker, CU_EVENT_DISABLE_TIMING);
        if (error != CUDA_SUCCESS) {
            return error;
        }
    }
    uint64_t launched = launched_on(queue);
    cu_result error = eni_cu.cuEventRecord(queue->marker, queue->stream);
    queue->marker_at = error == CUDA_SUCCESS ? launched : 0;
    return error;
}

/* Notes how far the marker shows the queue to be. With the queue's lock held. */
static cu_result look_at_marker(cuda_queue *queue)
{
    if (queue->marker_at == 0) {
        return CUDA_SUCCESS;
    }
    cu_result error = eni_cu.cuEventQuery(queue->marker);
    if (error == CUDA_SUCCESS) {
        note_complete(queue, queue->marker_at);
        queue->marker_at = 0;
    }
    return error;
}

static cu_result poll_marker(cuda_queue *queue, uint64_t number)
{
    eni_lock(&queue->lock);
    cu_result error = look_at_marker(queue);
    if (error == CUDA_SUCCESS && !is_complete(queue, number)) {
        error = place_marker(queue, number);
        if (error == CUDA_SUCCESS) {
            error = look_at_marker(queue);
        }
    }
    eni_unlock(&queue->lock);
    return error;
}

/* CUDA_SUCCESS: over; CUDA_ERROR_NOT_READY: not yet; else it failed. In the device's context. */
static cu_result ask(cuda_queue *queue, uint64_t number)
{
    uint64_t launched = launched_on(queue);
    cu_result error = eni_cu.cuStreamQuery(queue->stream);
    if (error == CUDA_SUCCESS) {
        note_complete(queue, launched);
        return CUDA_SUCCESS;
    }
    if (error != CUDA_ERROR_NOT_READY || number == launched) {
        return error;
    }
    error = poll_marker(queue, number);
    return error == CUDA_SUCCESS && !is_complete(queue, number) ? CUDA_ERROR_NOT_READY : error;
}

static enigma_status fail_as(cu_result error)
{
    return error == CUDA_SUCCESS ? ENIGMA_OK : eni_cuda_fail(error, "the kernel");
}

int eni_cuda_poll(void *handle)
{
    const cuda_ticket *ticket = handle;
    if (is_complete(ticket->queue, ticket->number)) {
        return 1;
    }
    enigma_status status = eni_cuda_enter(ticket->device);
    if (status != ENIGMA_OK) {
        return (int)status;
    }
    cu_result error = ask(ticket->queue, ticket->number);
    eni_cuda_leave();
    return error == CUDA_SUCCESS ? 1 : error == CUDA_ERROR_NOT_READY ? 0 : (int)fail_as(error);
}

/* Blocks on an event of its own behind the launch, since others may move the queue's marker meanwhile. In the device's context. */
static cu_result block_on_event(cuda_queue *queue)
{
    cu_event event;
    uint64_t launched = launched_on(queue);
    cu_result error = eni_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (error != CUDA_SUCCESS) {
        return error;
    }
    error = eni_cu.cuEventRecord(event, queue->stream);
    if (error == CUDA_SUCCESS) {
        error = eni_cu.cuEventSynchronize(event);
    }
    if (error == CUDA_SUCCESS) {
        note_complete(queue, launched);
    }
    eni_cu.cuEventDestroy(event);
    return error;
}

enigma_status eni_cuda_wait(void *handle)
{
    const cuda_ticket *ticket = handle;
    cuda_queue *queue = ticket->queue;
    if (is_complete(queue, ticket->number)) {
        return ENIGMA_OK;
    }
    ENI_TRY(eni_cuda_enter(ticket->device));
    uint64_t launched = launched_on(queue);
    cu_result error = launched == ticket->number ? eni_cu.cuStreamSynchronize(queue->stream) : block_on_event(queue);
    eni_cuda_leave();
    if (error == CUDA_SUCCESS) {
        note_complete(queue, ticket->number);
    }
    return fail_as(error);
}

void eni_cuda_release(void *handle) { free_ticket(handle); }
