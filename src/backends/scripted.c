/* The testing backend (section 16): runs nothing, reports the device stamps that it is told. Only gpu/ calls it, through the
 * contract and the two controls at the end; never chosen on its own.
 *
 * Each queue keeps a schedule on the host clock: work starts when it is launched and the queue's earlier work has ended,
 * and lasts its device time. Waiting for work moves a scripted host clock to its end. Under the real host clock the default
 * microsecond really passes, and told stamps, which need not fit the clock, end at once. */
#include <assert.h>
#include <math.h>

#include "backends/backend.h"
#include "base/clock.h"
#include "base/str.h"

enum { DEFAULT_WORK_NS = 1000, MAX_GROUP_THREADS = 1024 };

/* When work was launched and when it ends, on the host clock. A clock that shows a time before the launch is another one (it was
 * replaced meanwhile): the work is over then. */
typedef struct scripted_span {
    uint64_t launch_ns, end_ns;
} scripted_span;

typedef struct scripted_queue {
    enigma_script *scripts; /* head .. count are still to come; messages are copies, of failures only */
    size_t head, count, capacity;
    scripted_span last; /* its last work; atomic each */
} scripted_queue;

typedef struct scripted_device {
    enigma_scripted_options options;
    scripted_queue *queues; /* options.devices * options.queues */
    size_t queue_count;
    uint64_t untimed, timed; /* atomic */
} scripted_device;

typedef struct scripted_buffer {
    char *data;
    size_t size;
} scripted_buffer;

typedef struct scripted_kernel {
    eni_kernel_info info;
} scripted_kernel;

typedef struct scripted_ticket {
    eni_stamps stamps;
    scripted_span span;
} scripted_ticket;

/* ---- clocks ---- */

static uint64_t counter_mask(const scripted_device *device)
{
    uint32_t bits = device->options.counter_bits;
    return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

/* The counter at a time of the device's clock: floored to ticks, cut to its width. */
static uint64_t counter_at(const scripted_device *device, uint64_t ns)
{
    double tick = device->options.tick_ns;
    uint64_t ticks;
    if (tick == floor(tick) && tick < 1e18) {
        ticks = ns / (uint64_t)tick;
    } else {
        ticks = (uint64_t)floorl((long double)ns / (long double)tick);
    }
    return ticks & counter_mask(device);
}

/* The device's clock at a host time. Before its own zero (a large negative offset) it reads 2^64 less, as a counter would. */
static uint64_t device_ns(const scripted_device *device, uint64_t host_ns)
{
    int64_t drift = (int64_t)llroundl((long double)host_ns * (long double)device->options.drift_ppm / 1e6L);
    return host_ns + (uint64_t)device->options.clock_offset_ns + (uint64_t)drift;
}

/* What is left of work, in ns. */
static uint64_t left_of(scripted_span span, uint64_t now)
{
    return now >= span.launch_ns && now < span.end_ns ? span.end_ns - now : 0;
}

static void wait_for(scripted_span span)
{
    uint64_t left = left_of(span, eni_clock_now_ns());
    if (left != 0 && eni_clock_is_scripted()) {
        enigma_scripted_clock_advance(left);
        return;
    }
    while (left != 0) { /* at most the default microsecond of each launch that is queued */
        left = left_of(span, eni_clock_now_ns());
    }
}

static scripted_span last_of(const scripted_queue *queue)
{
    return (scripted_span){__atomic_load_n(&queue->last.launch_ns, __ATOMIC_RELAXED),
                           __atomic_load_n(&queue->last.end_ns, __ATOMIC_RELAXED)};
}

/* ---- device ---- */

static enigma_status scripted_load(void) { return ENIGMA_OK; }

static enigma_status scripted_device_count(uint32_t *out)
{
    *out = 1;
    return ENIGMA_OK;
}

static enigma_status check_options(const enigma_scripted_options *options)
{
    if (!(options->tick_ns > 0.0) || !(options->tick_ns < 1e9)) { /* what a profile's device may have */
        return ENI_FAIL(ENIGMA_E_INVALID, "tick_ns is %g; it must be above 0 and below 1e9", options->tick_ns);
    }
    if (!isfinite(options->drift_ppm) || fabs(options->drift_ppm) >= 1e6) {
        return ENI_FAIL(ENIGMA_E_INVALID, "drift_ppm is %g; it must be a number below a million", options->drift_ppm);
    }
    if (options->counter_bits < 1 || options->counter_bits > 64) {
        return ENI_FAIL(ENIGMA_E_INVALID, "counter_bits is %u; it must be 1 to 64", options->counter_bits);
    }
    if (options->queues < 1 || options->queues > 4096 || options->devices < 1 || options->devices > 4096) {
        return ENI_FAIL(ENIGMA_E_INVALID, "queues is %u and devices %u; each must be 1 to 4096", options->queues,
                        options->devices);
    }
    return ENIGMA_OK;
}

static void describe(const scripted_device *device, eni_traits *traits, eni_facts *facts)
{
    *traits = (eni_traits){
        .tick_ns = device->options.tick_ns,
        .counter_bits = device->options.counter_bits,
        .queue_limit = device->options.queues,
        .device_count = device->options.devices,
        .partial_groups = device->options.partial_groups != 0,
        .instant = true,
        .max_group_threads = MAX_GROUP_THREADS,
        .max_group = {MAX_GROUP_THREADS, MAX_GROUP_THREADS, MAX_GROUP_THREADS},
        .max_grid = {UINT32_MAX, UINT32_MAX, UINT32_MAX},
    };
    eni_facts_text(facts, "name", eni_text_of("scripted device"));
    eni_facts_text(facts, "vendor", eni_text_of("enigma"));
    eni_facts_text(facts, "driver", eni_text_of("scripted"));
    eni_facts_text(facts, "version", eni_text_of(enigma_version_string()));
    eni_facts_double(facts, "timer_resolution_ns", device->options.tick_ns);
}

static void scripted_close(void *handle)
{
    scripted_device *device = handle;
    for (size_t i = 0; i < device->queue_count; i++) {
        scripted_queue *queue = &device->queues[i];
        for (size_t k = queue->head; k < queue->count; k++) {
            eni_strfree((char *)queue->scripts[k].message);
        }
        eni_free(queue->scripts, queue->capacity * sizeof *queue->scripts);
    }
    eni_free(device->queues, device->queue_count * sizeof *device->queues);
    ENI_DELETE(device);
}

static enigma_status scripted_open(uint32_t index, const void *config, void **out, eni_traits *traits, eni_facts *facts)
{
    const enigma_scripted_options *options = config;
    *out = NULL;
    assert(index == 0);
    (void)index;
    ENI_TRY(check_options(options));
    scripted_device *device = ENI_NEW(scripted_device);
    if (device == NULL) {
        return ENI_NO_MEMORY();
    }
    device->options = *options;
    device->queue_count = (size_t)options->queues * options->devices;
    device->queues = eni_alloc_zero(device->queue_count * sizeof *device->queues);
    if (device->queues == NULL) {
        ENI_DELETE(device);
        return ENI_NO_MEMORY();
    }
    describe(device, traits, facts);
    *out = device;
    return ENIGMA_OK;
}

/* ---- buffers, programs, kernels ---- */

static enigma_status scripted_buffer_create(void *device, size_t size, const void *data, void **out)
{
    (void)device;
    *out = NULL;
    scripted_buffer *buffer = ENI_NEW(scripted_buffer);
    if (buffer == NULL) {
        return ENI_NO_MEMORY();
    }
    buffer->size = size;
    buffer->data = size == 0 ? NULL : eni_alloc_zero(size);
    if (size != 0 && buffer->data == NULL) {
        ENI_DELETE(buffer);
        return ENI_NO_MEMORY();
    }
    if (data != NULL && size != 0) {
        memcpy(buffer->data, data, size);
    }
    *out = buffer;
    return ENIGMA_OK;
}

static enigma_status scripted_buffer_write(void *handle, size_t offset, const void *data, size_t size)
{
    scripted_buffer *buffer = handle;
    if (size != 0) {
        memcpy(buffer->data + offset, data, size);
    }
    return ENIGMA_OK;
}

static enigma_status scripted_buffer_read(void *handle, size_t offset, void *data, size_t size)
{
    const scripted_buffer *buffer = handle;
    if (size != 0) {
        memcpy(data, buffer->data + offset, size);
    }
    return ENIGMA_OK;
}

static void scripted_buffer_free(void *handle)
{
    scripted_buffer *buffer = handle;
    eni_free(buffer->data, buffer->size);
    ENI_DELETE(buffer);
}

/* A program holds nothing: any source has any kernel. The device stands for it. */
static enigma_status scripted_program_build(void *device, const char *source, size_t size, const char *suffix,
                                            const char *options, void **out)
{
    (void)source, (void)size, (void)suffix, (void)options;
    *out = device;
    return ENIGMA_OK;
}

static void scripted_program_free(void *program) { (void)program; }

static enigma_status scripted_kernel_create(void *program, const char *name, void **out, const eni_kernel_info **info)
{
    (void)program, (void)name;
    *out = NULL;
    scripted_kernel *kernel = ENI_NEW(scripted_kernel);
    if (kernel == NULL) {
        return ENI_NO_MEMORY();
    }
    kernel->info = (eni_kernel_info){
        .argument_count = ENI_ANY_ARGUMENTS, .max_group_threads = MAX_GROUP_THREADS, .static_memory_bytes = -1};
    *out = kernel;
    *info = &kernel->info;
    return ENIGMA_OK;
}

static enigma_status scripted_kernel_bind_buffer(void *kernel, uint32_t index, void *buffer)
{
    (void)kernel, (void)index, (void)buffer;
    return ENIGMA_OK;
}

static enigma_status scripted_kernel_bind_scalar(void *kernel, uint32_t index, const void *data, size_t size)
{
    (void)kernel, (void)index, (void)data, (void)size;
    return ENIGMA_OK;
}

static double scripted_kernel_occupancy(void *kernel, enigma_size3 threads)
{
    (void)kernel, (void)threads;
    return -1.0;
}

static void scripted_kernel_free(void *handle)
{
    scripted_kernel *kernel = handle;
    ENI_DELETE(kernel);
}

/* ---- launches ---- */

static scripted_queue *queue_of(const scripted_device *device, uint32_t device_index, uint32_t queue)
{
    return &device->queues[(size_t)device_index * device->options.queues + queue];
}

/* Takes the queue's next entry; false: there is none. The entry's message is the caller's. */
static bool take_script(scripted_queue *queue, enigma_script *out)
{
    if (queue->head == queue->count) {
        return false;
    }
    *out = queue->scripts[queue->head++];
    if (queue->head == queue->count) {
        queue->head = queue->count = 0;
    }
    return true;
}

static bool is_stamp(const scripted_device *device, uint64_t stamp)
{
    return stamp != 0 && !eni_stamp_is_ones(stamp, device->options.counter_bits);
}

/* How long told work lasts on the schedule: no time where the stamps cannot be right. */
static uint64_t told_work_ns(const scripted_device *device, const eni_stamps *stamps)
{
    uint64_t ticks = 0;
    if (!eni_clock_is_scripted() || !stamps->available || !is_stamp(device, stamps->start) ||
        !is_stamp(device, stamps->end) ||
        !eni_ticks_between(stamps->start, stamps->end, device->options.counter_bits, &ticks)) {
        return 0;
    }
    return (uint64_t)llroundl((long double)ticks * (long double)device->options.tick_ns);
}

/* Puts one launch on the schedule and gives its stamps. */
static void run(scripted_device *device, scripted_queue *queue, const enigma_script *script, scripted_ticket *out)
{
    uint64_t now = eni_clock_now_ns();
    uint64_t start = now + left_of(last_of(queue), now);
    uint64_t work = DEFAULT_WORK_NS;
    out->stamps = (eni_stamps){.available = true, .scheduling_us = -1.0};
    if (script == NULL) {
        uint64_t device_start = device_ns(device, start);
        out->stamps.submit = counter_at(device, device_ns(device, now));
        out->stamps.start = counter_at(device, device_start);
        out->stamps.end = counter_at(device, device_start + DEFAULT_WORK_NS);
    } else {
        out->stamps.available = script->kind == ENIGMA_SCRIPT_TIMES;
        out->stamps.start = counter_at(device, script->start_ns);
        out->stamps.end = counter_at(device, script->end_ns);
        work = told_work_ns(device, &out->stamps);
    }
    out->span = (scripted_span){now, start + work};
    __atomic_store_n(&queue->last.launch_ns, out->span.launch_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&queue->last.end_ns, out->span.end_ns, __ATOMIC_RELAXED);
}

static enigma_status fail_as_told(const enigma_script *script)
{
    enigma_status status = ENI_FAIL(ENIGMA_E_DEVICE, "%s", script->message);
    eni_strfree((char *)script->message);
    return status;
}

static enigma_status scripted_launch(void *handle, const eni_launch_request *request, void **out)
{
    scripted_device *device = handle;
    scripted_queue *queue = queue_of(device, request->device, request->queue);
    scripted_ticket *ticket = NULL;
    if (out != NULL) {
        *out = NULL;
        ticket = ENI_NEW(scripted_ticket);
        if (ticket == NULL) {
            return ENI_NO_MEMORY();
        }
    }
    enigma_script script;
    bool told = take_script(queue, &script);
    if (told && script.kind == ENIGMA_SCRIPT_FAILURE) {
        eni_free(ticket, sizeof *ticket);
        return fail_as_told(&script);
    }
    scripted_ticket unwanted;
    run(device, queue, told ? &script : NULL, ticket != NULL ? ticket : &unwanted);
    __atomic_fetch_add(request->timed ? &device->timed : &device->untimed, 1, __ATOMIC_RELAXED);
    if (out != NULL) {
        *out = ticket;
    }
    return ENIGMA_OK;
}

static enigma_status scripted_finish(void *handle, uint32_t device_index, uint32_t queue)
{
    const scripted_device *device = handle;
    wait_for(last_of(queue_of(device, device_index, queue)));
    return ENIGMA_OK;
}

static int scripted_poll(void *handle)
{
    const scripted_ticket *ticket = handle;
    return left_of(ticket->span, eni_clock_now_ns()) == 0;
}

static enigma_status scripted_wait(void *handle)
{
    const scripted_ticket *ticket = handle;
    wait_for(ticket->span);
    return ENIGMA_OK;
}

static void scripted_stamps(void *handle, eni_stamps *out)
{
    const scripted_ticket *ticket = handle;
    *out = ticket->stamps;
}

static void scripted_release(void *handle)
{
    scripted_ticket *ticket = handle;
    ENI_DELETE(ticket);
}

static enigma_status scripted_clock_pair(void *handle, uint32_t device_index, eni_clock_pair *out)
{
    const scripted_device *device = handle;
    (void)device_index;
    out->host_ticks = eni_clock_ticks();
    out->device_ticks = counter_at(device, device_ns(device, eni_clock_ns(out->host_ticks)));
    out->uncertainty_ns = (uint32_t)ceil(fmin(device->options.tick_ns, 1e9));
    return ENIGMA_OK;
}

/* ---- controls ---- */

/* Appends a copy of one entry. */
static bool push_script(scripted_queue *queue, const enigma_script *script)
{
    enigma_script copy = *script;
    copy.message = NULL;
    if (script->kind == ENIGMA_SCRIPT_FAILURE) {
        copy.message = eni_strdup(script->message == NULL ? "scripted failure" : script->message);
        if (copy.message == NULL) {
            return false;
        }
    }
    if (!eni_grow((void **)&queue->scripts, &queue->capacity, queue->count, sizeof *queue->scripts)) {
        eni_strfree((char *)copy.message);
        return false;
    }
    queue->scripts[queue->count++] = copy;
    return true;
}

enigma_status eni_scripted_push(void *handle, uint32_t device_index, uint32_t queue_index, const enigma_script *scripts,
                                size_t count)
{
    scripted_device *device = handle;
    scripted_queue *queue = queue_of(device, device_index, queue_index);
    size_t before = queue->count;
    for (size_t i = 0; i < count; i++) {
        if (!push_script(queue, &scripts[i])) {
            while (queue->count > before) {
                eni_strfree((char *)queue->scripts[--queue->count].message);
            }
            return ENI_NO_MEMORY();
        }
    }
    return ENIGMA_OK;
}

void eni_scripted_counts(const void *handle, uint64_t *untimed, uint64_t *timed)
{
    const scripted_device *device = handle;
    *untimed = __atomic_load_n(&device->untimed, __ATOMIC_RELAXED);
    *timed = __atomic_load_n(&device->timed, __ATOMIC_RELAXED);
}

const eni_backend eni_backend_scripted = {
    .name = "scripted",
    .title = "scripted",
    .needs = "nothing",
    .load = scripted_load,
    .device_count = scripted_device_count,
    .open = scripted_open,
    .close = scripted_close,
    .buffer_create = scripted_buffer_create,
    .buffer_write = scripted_buffer_write,
    .buffer_read = scripted_buffer_read,
    .buffer_free = scripted_buffer_free,
    .program_build = scripted_program_build,
    .program_free = scripted_program_free,
    .kernel_create = scripted_kernel_create,
    .kernel_bind_buffer = scripted_kernel_bind_buffer,
    .kernel_bind_scalar = scripted_kernel_bind_scalar,
    .kernel_occupancy = scripted_kernel_occupancy,
    .kernel_free = scripted_kernel_free,
    .launch = scripted_launch,
    .finish = scripted_finish,
    .poll = scripted_poll,
    .wait = scripted_wait,
    .stamps = scripted_stamps,
    .release = scripted_release,
    .clock_pair = scripted_clock_pair,
};
