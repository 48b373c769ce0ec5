/* How CUPTI's stamps lie against the host's clock. CUPTI converts the device's stamps itself, with a rate that it measures over a short
 * while and renews after seconds: between, they drift by some 40 ppm, over 100 us in a few seconds. So a pair of readings here is an
 * empty kernel on a stream of its own: it ran after its launch began and before it was seen to be over, and what CUPTI says of it
 * differs from that by an offset within known bounds. Called by gpu/ about every 100 ms of recorded work. */
#include "backends/cuda.h"
#include "base/clock.h"
#include "base/log.h"

#define PATIENCE_NS UINT64_C(1000000) /* for one marker on a busy device */
#define GOOD_WIDTH_NS 12000           /* bounds this near leave no more than the launch's and the query's own time */
#define SEEN_LATE_NS 3000             /* from a kernel's end until a polling thread sees it, about */
enum { MARKERS = 5 };

/* A kernel that does nothing, in a form that every driver compiles for its device. */
static const char empty_kernel[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                   ".visible .entry eni_empty()\n{\n\tret;\n}\n";

enigma_status eni_cuda_load_empty(cu_module *module, cu_function *function)
{
    ENI_CU_TRY(eni_cu.cuModuleLoadDataEx(module, empty_kernel, 0, NULL, NULL), "cuModuleLoadDataEx");
    ENI_CU_TRY(eni_cu.cuModuleGetFunction(function, *module, "eni_empty"), "cuModuleGetFunction");
    return ENIGMA_OK;
}

/* One marker: host times around it, in ns; the ticket knows CUPTI's. */
typedef struct marker {
    cuda_ticket ticket;
    uint64_t before, after; /* after 0: it did not come in time */
} marker;

/* Host less CUPTI, in ns. */
typedef struct bounds {
    int64_t low, high;
} bounds;

/* ---- markers ---- */

static bool make_ready(cuda_device *device)
{
    cuda_clock *clock = &device->clock;
    if (clock->stream != NULL) {
        return clock->function != NULL;
    }
    if (eni_cu.cuStreamCreate(&clock->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return false;
    }
    if (eni_cuda_load_empty(&clock->module, &clock->function) != ENIGMA_OK) {
        eni_log(ENI_LOG_WARN, "CUDA: device clocks are compared by CUPTI alone: %s", enigma_error_message());
        clock->function = NULL;
        return false;
    }
    eni_cu.cuLaunchKernel(clock->function, 1, 1, 1, 1, 1, 1, 0, clock->stream, NULL, NULL); /* loads the code */
    eni_cu.cuStreamSynchronize(clock->stream);
    return true;
}

/* Launches a marker and looks until it is over. A device that is busy for long is not waited for. */
static void send(cuda_device *device, marker *out)
{
    cuda_clock *clock = &device->clock;
    *out = (marker){.ticket = {.device = device, .timer = CUDA_TIMER_CUPTI}};
    eni_cuda_cupti_mark(&out->ticket);
    out->before = eni_clock_real_ns();
    cu_result error = eni_cu.cuLaunchKernel(clock->function, 1, 1, 1, 1, 1, 1, 0, clock->stream, NULL, NULL);
    eni_cuda_cupti_mark(NULL);
    uint64_t now = eni_clock_real_ns();
    while (error == CUDA_SUCCESS && out->after == 0 && now - out->before < PATIENCE_NS) {
        cu_result state = eni_cu.cuStreamQuery(clock->stream);
        now = eni_clock_real_ns();
        out->after = state == CUDA_SUCCESS ? now : 0;
        error = state == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : state;
    }
}

static bool is_told(const eni_stamps *stamps)
{
    return stamps->available && stamps->start != 0 && stamps->end >= stamps->start;
}

/* What all markers together allow. False: none of them came. */
static bool gather(marker *markers, bounds *out)
{
    bool known = false;
    *out = (bounds){INT64_MIN / 2, INT64_MAX / 2};
    for (int i = 0; i < MARKERS; i++) {
        eni_stamps stamps = {0};
        if (markers[i].after != 0) {
            eni_cuda_cupti_stamps(&markers[i].ticket, &stamps);
        }
        if (is_told(&stamps)) {
            int64_t low = (int64_t)(markers[i].before - stamps.start), high = (int64_t)(markers[i].after - stamps.end);
            out->low = low > out->low ? low : out->low;
            out->high = high < out->high ? high : out->high;
            known = true;
        }
        eni_cuda_cupti_forget(&markers[i].ticket);
    }
    return known && out->low <= out->high;
}

/* ---- the pair ---- */

/* Between near bounds the middle; where the markers had to wait for other work, what is known of how late an end is seen. */
static int64_t choose(bounds allowed)
{
    int64_t width = allowed.high - allowed.low;
    return width <= GOOD_WIDTH_NS ? allowed.low + width / 2 : allowed.high - SEEN_LATE_NS;
}

static void compare(cuda_device *device)
{
    marker markers[MARKERS];
    bounds allowed;
    cuda_clock *clock = &device->clock;
    if (!make_ready(device)) {
        return;
    }
    for (int i = 0; i < MARKERS; i++) {
        send(device, &markers[i]);
    }
    if (!gather(markers, &allowed)) {
        return; /* the last offset stands */
    }
    int64_t width = allowed.high - allowed.low;
    clock->offset_ns = choose(allowed);
    clock->uncertainty_ns = (uint32_t)(width < UINT32_MAX ? width / 2 + 1 : UINT32_MAX);
}

enigma_status eni_cuda_clock_pair(void *handle, uint32_t device_index, eni_clock_pair *out)
{
    cuda_device *device = handle;
    cuda_clock *clock = &device->clock;
    (void)device_index;
    if (__atomic_load_n(&device->timer, __ATOMIC_ACQUIRE) == CUDA_TIMER_CUPTI && eni_cuda_enter(device) == ENIGMA_OK) {
        compare(device);
        eni_cuda_leave();
    }
    out->host_ticks = eni_clock_ticks();
    out->device_ticks = eni_clock_real_ns() - (uint64_t)clock->offset_ns;
    out->uncertainty_ns = device->events != NULL       ? eni_cuda_events_uncertainty(device)
                          : clock->uncertainty_ns == 0 ? 1000
                                                       : clock->uncertainty_ns;
    return ENIGMA_OK;
}

void eni_cuda_clock_close(cuda_device *device)
{
    if (device->clock.module != NULL) {
        eni_cu.cuModuleUnload(device->clock.module);
    }
    if (device->clock.stream != NULL) {
        eni_cu.cuStreamDestroy(device->clock.stream);
    }
}
