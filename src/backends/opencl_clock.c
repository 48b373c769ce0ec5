/* The device's clock on OpenCL. clGetDeviceAndHostTimer is not there on many devices, so every enqueue is used as a reading too: its
 * QUEUED stamp lies within the call, on whatever clock the device stamps with. Each such bracket bounds the offset between the
 * clocks; their running intersection is far narrower than any of them. Bounds are let go at the rate that clocks may drift. */
#include <sched.h>

#include "backends/opencl.h"
#include "base/clock.h"

#define DRIFT_PPM         50   /* clocks are not expected to drift apart faster */
#define GOOD_ENOUGH_NS    1500 /* an interval this wide needs no further readings */
#define STALE_NS          UINT64_C(1000000000)
#define MISMATCH_SLACK_NS 20000 /* intervals of one clock lie at most this far apart */
enum { FIRST_READINGS = 48, LATER_READINGS = 8, TIMER_READINGS = 8, MARKER_POLLS = 4000 };

uint64_t eni_opencl_stamp(cl_event event, cl_uint which)
{
    cl_ulong stamp = 0;
    cl_int error = eni_cl.clGetEventProfilingInfo(event, which, sizeof stamp, &stamp, NULL);
    return error == CL_SUCCESS && stamp != UINT64_MAX ? stamp : 0;
}

/* ---- intervals ---- */

static const opencl_interval everything = {INT64_MIN / 2, INT64_MAX / 2};

static opencl_interval cut(opencl_interval a, opencl_interval b)
{
    return (opencl_interval){a.low > b.low ? a.low : b.low, a.high < b.high ? a.high : b.high};
}

static bool agree(opencl_interval a, opencl_interval b)
{
    opencl_interval common = cut(a, b);
    return common.low - common.high <= MISMATCH_SLACK_NS;
}

/* How far the offset may have moved in a time. */
static int64_t drift_in(uint64_t ns) { return (int64_t)(ns * DRIFT_PPM / 1000000) + 1; }

/* The device stamped between two host times. */
static opencl_interval bracket(uint64_t device, uint64_t before, uint64_t after)
{
    int64_t slack = drift_in(after - before);
    return (opencl_interval){(int64_t)(device - after) - slack, (int64_t)(device - before) + slack};
}

static opencl_interval queued_bracket(const opencl_sighting *seen)
{
    return seen->queued == 0 ? everything : bracket(seen->queued, seen->before, seen->after);
}

/* START is after the enqueue call began, END before its completion was seen. */
static opencl_interval execution_bracket(const opencl_sighting *seen)
{
    opencl_interval offset = everything;
    if (seen->start != 0 && seen->end >= seen->start) {
        int64_t slack = drift_in(seen->complete - seen->before);
        offset.low = (int64_t)(seen->end - seen->complete) - slack;
        offset.high = (int64_t)(seen->start - seen->before) + slack;
    }
    return offset;
}

/* Takes one more reading into the running intersection. With the lock held. One that does not fit starts anew: a clock was set,
 * or drifts faster than expected. */
static void narrow(opencl_clock *clock, opencl_interval reading, uint64_t host_ns)
{
    if (reading.low == everything.low || reading.high == everything.high) {
        return;
    }
    if (clock->known && host_ns >= clock->host_ns) {
        int64_t slack = drift_in(host_ns - clock->host_ns);
        opencl_interval kept = {clock->offset.low - slack, clock->offset.high + slack};
        opencl_interval common = cut(kept, reading);
        if (common.low <= common.high) {
            reading = common;
        }
    }
    clock->offset = reading;
    clock->host_ns = host_ns;
    clock->known = true;
}

static void note(opencl_clock *clock, const opencl_sighting *seen)
{
    if (clock->source == OPENCL_CLOCK_QUEUED) {
        narrow(clock, queued_bracket(seen), seen->after);
    } else if (clock->source == OPENCL_CLOCK_EXECUTION) {
        narrow(clock, execution_bracket(seen), seen->after);
    }
}

void eni_opencl_clock_note(opencl_clock *clock, const opencl_sighting *seen)
{
    eni_lock(&clock->lock);
    note(clock, seen);
    eni_unlock(&clock->lock);
}

/* ---- readings on purpose ---- */

static bool read_timer(const opencl_device *device, opencl_interval *out, uint64_t *host_ns)
{
    cl_ulong device_time = 0, host_time = 0;
    if (eni_cl.clGetDeviceAndHostTimer == NULL) {
        return false;
    }
    uint64_t before = eni_clock_ticks();
    cl_int error = eni_cl.clGetDeviceAndHostTimer(device->id, &device_time, &host_time);
    uint64_t after = eni_clock_ticks();
    if (error != CL_SUCCESS || device_time == 0) {
        return false;
    }
    *host_ns = eni_clock_ns(after);
    *out = bracket(device_time, eni_clock_ns(before), *host_ns);
    return true;
}

/* Waits a bounded while: a device that is busy with a long kernel is not waited for. */
static bool completes_soon(cl_event event)
{
    for (int i = 0; i < MARKER_POLLS; i++) {
        cl_int state = CL_COMPLETE;
        if (eni_cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL) != CL_SUCCESS ||
            state < CL_COMPLETE) {
            return false;
        }
        if (state == CL_COMPLETE) {
            return true;
        }
        if (i % 16 == 15) {
            sched_yield();
        }
    }
    return false;
}

/* Enqueues an empty command and gives its stamps. */
static bool send_marker(const opencl_device *device, opencl_sighting *out)
{
    cl_event event;
    uint64_t before = eni_clock_ticks();
    cl_int error = eni_cl.clEnqueueMarkerWithWaitList(device->service, 0, NULL, &event);
    uint64_t after = eni_clock_ticks();
    if (error != CL_SUCCESS) {
        return false;
    }
    eni_cl.clFlush(device->service);
    bool complete = completes_soon(event);
    if (complete) {
        out->complete = eni_clock_now_ns();
        out->before = eni_clock_ns(before);
        out->after = eni_clock_ns(after);
        out->queued = eni_opencl_stamp(event, CL_PROFILING_COMMAND_QUEUED);
        out->start = eni_opencl_stamp(event, CL_PROFILING_COMMAND_START);
        out->end = eni_opencl_stamp(event, CL_PROFILING_COMMAND_END);
    }
    eni_cl.clReleaseEvent(event);
    return complete;
}

/* Finds out which stamps can be compared with the host: the timer if it shares the clock of the execution stamps, else QUEUED if
 * that does, else the execution stamps themselves. */
static void choose_source(opencl_device *device)
{
    opencl_interval queued = everything, execution = everything, timer;
    uint64_t host_ns;
    opencl_sighting seen;
    int markers = 0;
    for (int i = 0; i < 4; i++) {
        if (send_marker(device, &seen)) {
            queued = cut(queued, queued_bracket(&seen));
            execution = cut(execution, execution_bracket(&seen));
            markers++;
        }
    }
    if (markers == 0) {
        return; /* the device is busy; later */
    }
    if (read_timer(device, &timer, &host_ns) && agree(timer, execution) && agree(timer, queued)) {
        device->clock.source = OPENCL_CLOCK_TIMER;
    } else if (queued.low != everything.low && agree(queued, execution)) {
        device->clock.source = OPENCL_CLOCK_QUEUED;
    } else {
        device->clock.source = OPENCL_CLOCK_EXECUTION;
    }
}

static void read_timers(opencl_device *device)
{
    opencl_interval reading;
    uint64_t host_ns;
    for (int i = 0; i < TIMER_READINGS && read_timer(device, &reading, &host_ns); i++) {
        narrow(&device->clock, reading, host_ns);
    }
}

static void read_markers(opencl_device *device, int limit)
{
    opencl_sighting seen;
    const opencl_clock *clock = &device->clock;
    for (int i = 0; i < limit; i++) {
        bool fresh = clock->known && eni_clock_now_ns() - clock->host_ns < STALE_NS;
        if (fresh && clock->offset.high - clock->offset.low <= GOOD_ENOUGH_NS && i > 0) {
            return;
        }
        if (!send_marker(device, &seen)) {
            return;
        }
        note(&device->clock, &seen);
    }
}

static enigma_status pair(opencl_device *device, eni_clock_pair *out)
{
    opencl_clock *clock = &device->clock;
    bool first = !clock->known || eni_clock_now_ns() - clock->host_ns >= STALE_NS;
    if (clock->source == OPENCL_CLOCK_UNKNOWN) {
        choose_source(device);
    }
    if (clock->source == OPENCL_CLOCK_TIMER) {
        read_timers(device);
    } else if (clock->source != OPENCL_CLOCK_UNKNOWN) {
        read_markers(device, first ? FIRST_READINGS : LATER_READINGS);
    }
    if (!clock->known) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "the device's clock cannot be compared with the host's");
    }
    out->host_ticks = eni_clock_ticks();
    uint64_t host_ns = eni_clock_ns(out->host_ticks);
    int64_t middle = clock->offset.low + (clock->offset.high - clock->offset.low) / 2;
    uint64_t age = host_ns > clock->host_ns ? host_ns - clock->host_ns : 0;
    uint64_t uncertainty = (uint64_t)(clock->offset.high - clock->offset.low) / 2 + (uint64_t)drift_in(age);
    out->device_ticks = host_ns + (uint64_t)middle;
    out->uncertainty_ns = uncertainty < UINT32_MAX ? (uint32_t)uncertainty : UINT32_MAX;
    return ENIGMA_OK;
}

enigma_status eni_opencl_clock_pair(void *handle, uint32_t device_index, eni_clock_pair *out)
{
    opencl_device *device = handle;
    (void)device_index;
    eni_lock(&device->clock.lock);
    enigma_status status = pair(device, out);
    eni_unlock(&device->clock.lock);
    return status;
}
