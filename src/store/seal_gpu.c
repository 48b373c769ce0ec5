/* Sealing GPU work: the counter is continued past its width, mapped to the host clock by the paired readings of both clocks, and
 * compared with the launch. What the stamps are worth was judged when they were read (eni_gpu_status). */
#include <math.h>
#include <string.h>

#include "store/seal.h"

#define LONGEST_NS 4e18 /* more is no duration */
#define SLOPE_SPAN_NS 10e6 /* readings closer than this say less about the rate than the nominal tick does */

/* The readings of one device, in order, with the host's stamps as ns. */
typedef struct pair {
    uint64_t ticks, ns;
    uint32_t uncertainty_ns;
} pair;

typedef struct device_map {
    pair *pairs;
    size_t count, capacity;
    double tick_ns;
    uint64_t mask; /* of the counter's width */
} device_map;

static uint64_t counter_mask(uint32_t bits) { return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1; }

static enigma_status maps_fill(const enigma_profile *profile, device_map *maps)
{
    const eni_span *pieces = &profile->private_->shared[ENI_STREAM_PIECES];
    const eni_span *span = &profile->private_->shared[ENI_STREAM_PAIRS];
    const eni_clock_pair_entry *entry = (const eni_clock_pair_entry *)(const void *)span->data;
    for (size_t i = 0; i < span->size / sizeof *entry; i++) {
        if (entry[i].device >= profile->device_count) {
            return ENI_FAIL(ENIGMA_E_FORMAT, "%s is damaged: clock pair %zu", profile->private_->source, i);
        }
        device_map *map = &maps[entry[i].device];
        if (map->count > 0 && entry[i].device_ticks <= map->pairs[map->count - 1].ticks) {
            continue; /* taken out of order by another thread: the one kept is as good */
        }
        if (!eni_grow((void **)&map->pairs, &map->capacity, map->count, sizeof *map->pairs)) {
            return ENI_NO_MEMORY();
        }
        uint64_t ns = eni_clock_convert((const eni_clock_piece *)(const void *)pieces->data,
                                        (uint32_t)(pieces->size / sizeof(eni_clock_piece)), entry[i].host_ticks);
        map->pairs[map->count++] = (pair){entry[i].device_ticks, ns, entry[i].uncertainty_ns};
    }
    return ENIGMA_OK;
}

/* ns per tick between two readings; the nominal one where they are too close to tell. */
static double slope(const device_map *map, const pair *a, const pair *b)
{
    double ns = (double)(int64_t)(b->ns - a->ns);
    double ticks = (double)(b->ticks - a->ticks);
    double measured = ns / ticks;
    bool usable = ns >= SLOPE_SPAN_NS && measured > 0.5 * map->tick_ns && measured < 2 * map->tick_ns;
    return usable ? measured : map->tick_ns;
}

/* The last reading at or before ticks; the first when there is none before. */
static size_t pair_before(const device_map *map, uint64_t ticks)
{
    size_t low = 0;
    size_t high = map->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (map->pairs[middle].ticks <= ticks) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint64_t map_ns(const device_map *map, uint64_t ticks)
{
    if (map->count == 0) {
        return map->tick_ns == 1.0 ? ticks : (uint64_t)llround((double)ticks * map->tick_ns); /* host ns stay exact */
    }
    size_t at = pair_before(map, ticks);
    const pair *from = &map->pairs[at];
    double rate = map->tick_ns;
    if (map->count > 1) {
        size_t a = at + 1 < map->count ? at : map->count - 2;
        /* past the ends the whole span says most */
        rate = ticks >= from->ticks && at + 1 < map->count ? slope(map, &map->pairs[a], &map->pairs[a + 1])
                                                           : slope(map, &map->pairs[0], &map->pairs[map->count - 1]);
    }
    double ahead = (double)(int64_t)(ticks - from->ticks) * rate;
    ahead = ahead > LONGEST_NS ? LONGEST_NS : ahead < -LONGEST_NS ? -LONGEST_NS : ahead; /* a file may say anything */
    return ahead < -(double)from->ns ? 0 : from->ns + (uint64_t)llround(ahead);          /* never before the host's 0 */
}

/* The stamp that a counter of this width stands for, nearest to what the host time of the launch makes likely. */
static uint64_t continued(const device_map *map, uint64_t raw, uint64_t host_ns)
{
    if (map->mask == UINT64_MAX || map->count == 0) {
        return raw;
    }
    size_t at = 0;
    while (at + 1 < map->count && map->pairs[at + 1].ns <= host_ns) {
        at++;
    }
    const pair *near = &map->pairs[at];
    uint64_t likely = near->ticks + (uint64_t)llround((double)(int64_t)(host_ns - near->ns) / map->tick_ns);
    uint64_t ahead = (raw - likely) & map->mask;
    uint64_t behind = (likely - raw) & map->mask;
    return ahead <= behind ? likely + ahead : likely - behind;
}

static const eni_gpu_block *gpu_block_of(const enigma_profile *profile, const eni_event *event)
{
    const eni_thread_streams *thread = &profile->private_->threads[event->thread];
    for (uint32_t at = event->side; at != 0;) {
        const eni_side_block *block = eni_side_at(thread, at);
        const eni_gpu_block *gpu = block == NULL ? NULL : eni_side_gpu(block);
        if (block == NULL || gpu != NULL) {
            return gpu;
        }
        at = block->next < at ? block->next : 0;
    }
    return NULL;
}

/* Device times of valid stamps, on the host clock. */
static void place(eni_gpu_event *gpu, eni_event *event, const eni_gpu_block *block, const device_map *map)
{
    uint64_t ticks = (block->end - block->start) & map->mask;
    uint64_t start = continued(map, block->start, event->start_ns);
    uint64_t wait = (block->start - block->submit) & map->mask;
    if (ticks > map->mask / 2 || (double)ticks * map->tick_ns > LONGEST_NS) {
        gpu->status = ENI_GPU_REVERSED; /* no recorder calls that valid, but a file may */
        return;
    }
    gpu->time_us = (double)ticks * map->tick_ns / 1000.0;
    gpu->start_ns = map_ns(map, start);
    gpu->end_ns = map_ns(map, start + ticks);
    if (gpu->end_ns < gpu->start_ns) {
        gpu->end_ns = gpu->start_ns;
    }
    event->gpu_ns = (uint64_t)llround((double)ticks * map->tick_ns);
    if (block->submit != 0 && wait <= map->mask / 2) {
        gpu->queue_wait_us = (double)wait * map->tick_ns / 1000.0;
    }
    uint32_t uncertainty = map->count == 0 ? 0 : map->pairs[pair_before(map, start)].uncertainty_ns;
    if (map->count > 0 && gpu->start_ns + uncertainty < event->start_ns) {
        uint64_t early = event->start_ns - gpu->start_ns;
        gpu->skew_ns = early > UINT32_MAX ? UINT32_MAX : (uint32_t)early;
    }
}

static enigma_status gpu_from(enigma_profile *profile, const device_map *maps, uint32_t index)
{
    static const device_map host = {.tick_ns = 1.0, .mask = UINT64_MAX};
    eni_event *event = &profile->events[index];
    const eni_gpu_block *block = gpu_block_of(profile, event);
    if (block == NULL || block->launch >= profile->launch_count || block->status >= ENI_GPU_STATUS_COUNT) {
        return ENI_FAIL(ENIGMA_E_FORMAT, "%s is damaged: GPU work of event %u", profile->private_->source, index);
    }
    uint32_t device = profile->launches[block->launch].device;
    event->gpu = (uint32_t)profile->gpu_count;
    eni_gpu_event *gpu = &profile->gpu[profile->gpu_count++];
    *gpu = (eni_gpu_event){.start_raw = block->start,
                           .end_raw = block->end,
                           .queue_wait_us = -1.0,
                           .event = index,
                           .launch = block->launch,
                           .status = block->status};
    if (block->status == ENI_GPU_VALID) {
        place(gpu, event, block, device == ENI_NO_DEVICE ? &host : &maps[device]);
    }
    return ENIGMA_OK;
}

static enigma_status take_gpu(enigma_profile *profile, const device_map *maps)
{
    size_t count = 0;
    for (size_t i = 0; i < profile->node_count; i++) {
        count += profile->nodes[i].gpu_calls;
    }
    profile->private_->gpu_capacity = count + 1;
    profile->gpu = eni_alloc((count + 1) * sizeof *profile->gpu);
    if (profile->gpu == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; profile->gpu_count < count; i++) {
        if (profile->events[i].kind == ENI_KIND_GPU) {
            ENI_TRY(gpu_from(profile, maps, (uint32_t)i));
        }
    }
    return ENIGMA_OK;
}

enigma_status eni_seal_gpu(enigma_profile *profile)
{
    device_map *maps = eni_alloc_zero((profile->device_count + 1) * sizeof *maps);
    if (maps == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < profile->device_count; i++) {
        maps[i].tick_ns = profile->devices[i].tick_ns;
        maps[i].mask = counter_mask(profile->devices[i].counter_bits);
    }
    enigma_status status = maps_fill(profile, maps);
    if (status == ENIGMA_OK) {
        status = take_gpu(profile, maps);
    }
    for (size_t i = 0; i < profile->device_count; i++) {
        eni_free(maps[i].pairs, maps[i].capacity * sizeof *maps[i].pairs);
    }
    eni_free(maps, (profile->device_count + 1) * sizeof *maps);
    return status;
}
