/* Device stamps: whether they can be right, and how the device's clock lies against the host's. A device is compared when a
 * profiler first meets it, then about every 100 ms of work, and when a profile ends. Called on any thread. */
#include "base/clock.h"

#include "gpu/gpu.h"

#define PAIR_INTERVAL_NS UINT64_C(100000000)

static uint64_t mask_of(uint32_t bits) { return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1; }

uint32_t eni_gpu_judge(const eni_stamps *stamps, uint32_t counter_bits)
{
    uint64_t ticks;
    if (!stamps->available) {
        return ENI_GPU_UNAVAILABLE;
    }
    if (stamps->start == 0 || stamps->end == 0) {
        return ENI_GPU_ZERO;
    }
    if (eni_stamp_is_ones(stamps->start, counter_bits) || eni_stamp_is_ones(stamps->end, counter_bits)) {
        return ENI_GPU_ALL_ONES;
    }
    return eni_ticks_between(stamps->start, stamps->end, counter_bits, &ticks) ? ENI_GPU_VALID : ENI_GPU_REVERSED;
}

double eni_gpu_stamps_us(const eni_stamps *stamps, const eni_traits *traits)
{
    uint64_t ticks;
    eni_ticks_between(stamps->start, stamps->end, traits->counter_bits, &ticks);
    return (double)ticks * traits->tick_ns / 1000.0;
}

void eni_gpu_fill_block(eni_gpu_block *block, const eni_stamps *stamps, uint32_t verdict)
{
    if (block == NULL) {
        return;
    }
    __atomic_store_n(&block->start, stamps->start, __ATOMIC_RELAXED);
    __atomic_store_n(&block->end, stamps->end, __ATOMIC_RELAXED);
    __atomic_store_n(&block->submit, stamps->submit, __ATOMIC_RELAXED);
    __atomic_store_n(&block->status, verdict, __ATOMIC_RELEASE);
}

/* Continues a reading past the counter's width: the value nearest to where the counter should be by now. */
static uint64_t continue_ticks(const eni_gpu_clock *clock, const eni_traits *traits, uint64_t raw, uint64_t host_ns)
{
    uint64_t mask = mask_of(traits->counter_bits);
    if (!clock->known || mask == UINT64_MAX || host_ns < clock->host_ns) { /* the last: another host clock */
        return raw;
    }
    uint64_t likely = clock->ticks + (uint64_t)((double)(host_ns - clock->host_ns) / traits->tick_ns);
    uint64_t ahead = (raw - likely) & mask;
    uint64_t behind = (likely - raw) & mask;
    return ahead <= behind || behind > likely ? likely + ahead : likely - behind;
}

/* Compares the clocks of a device and records the pair. With clock_lock held. A device that cannot tell leaves no pair: its stamps
 * then stand as they are. */
static void pair(enigma_runtime *runtime, uint32_t device, enigma_profiler *profiler,
                 eni_gpu_registration *registration)
{
    eni_clock_pair reading;
    eni_gpu_clock *clock = &runtime->clocks[device];
    if (runtime->backend->clock_pair(runtime->device, device, &reading) != ENIGMA_OK) {
        return;
    }
    uint64_t host_ns = eni_clock_ns(reading.host_ticks);
    clock->ticks = continue_ticks(clock, &runtime->traits, reading.device_ticks, host_ns);
    clock->host_ns = host_ns;
    clock->known = true;
    registration->paired_ns = host_ns;
    eni_profiler_pair(profiler, registration->device, clock->ticks, reading.host_ticks, reading.uncertainty_ns);
}

static eni_gpu_registration *find(eni_gpu_clock *clock, uint64_t profiler)
{
    for (int i = 0; i < ENI_REGISTRATIONS; i++) {
        if (clock->registrations[i].profiler == profiler) {
            return &clock->registrations[i];
        }
    }
    return NULL;
}

static eni_gpu_registration *enter(enigma_runtime *runtime, uint32_t device, enigma_profiler *profiler)
{
    eni_gpu_clock *clock = &runtime->clocks[device];
    eni_gpu_registration *registration = &clock->registrations[clock->next++ % ENI_REGISTRATIONS];
    uint32_t number = eni_profiler_device(profiler, runtime->key, device, runtime->traits.tick_ns,
                                          runtime->traits.counter_bits, runtime->facts.fields, runtime->facts.count);
    *registration = (eni_gpu_registration){.profiler = eni_profiler_id(profiler), .device = number};
    return registration;
}

uint32_t eni_gpu_clock_device(enigma_runtime *runtime, uint32_t device, enigma_profiler *profiler)
{
    eni_lock(&runtime->clock_lock);
    uint64_t now = eni_clock_now_ns();
    eni_gpu_registration *registration = find(&runtime->clocks[device], eni_profiler_id(profiler));
    if (registration == NULL) {
        registration = enter(runtime, device, profiler);
        pair(runtime, device, profiler, registration);
    } else if (now - registration->paired_ns >= PAIR_INTERVAL_NS) { /* also when the host clock was set back */
        pair(runtime, device, profiler, registration);
    }
    registration->used_ns = now;
    uint32_t number = registration->device;
    eni_unlock(&runtime->clock_lock);
    return number;
}

void eni_gpu_clock_settle(enigma_runtime *runtime, enigma_profiler *profiler)
{
    eni_lock(&runtime->clock_lock);
    for (uint32_t device = 0; device < runtime->traits.device_count; device++) {
        eni_gpu_registration *registration = find(&runtime->clocks[device], eni_profiler_id(profiler));
        if (registration != NULL && registration->used_ns != 0) {
            pair(runtime, device, profiler, registration);
            registration->used_ns = 0;
        }
    }
    eni_unlock(&runtime->clock_lock);
}
