/* Tracks of a timeline. See tracks.h. */
#include "present/tracks.h"

#include <stdlib.h>

#include "base/intern.h"

#define DEVICE_PID 1000000000u /* above every real pid */

/* ---- processes and queues ---- */

/* A queue of a device, as found. */
typedef struct queue {
    uint32_t device, device_id, queue;
    uint32_t found; /* in order of first use */
} queue;

static int compare(uint32_t a, uint32_t b) { return (a > b) - (a < b); }

/* By the device's number, which several runtimes may use, then the device itself, then the queue. */
static int by_device(const void *a, const void *b)
{
    const queue *x = a, *y = b;
    int order = compare(x->device_id, y->device_id);
    order = order != 0 ? order : compare(x->device, y->device);
    return order != 0 ? order : compare(x->queue, y->queue);
}

typedef struct queues {
    queue *items;
    size_t count, capacity;
    eni_map known;   /* launch to queue, then device and queue to queue */
    eni_map devices; /* device, or number of one that is not known, to a dense number */
} queues;

/* Two runtimes may use the same device_id; the device's entry tells them apart. */
static enigma_status find_queue(queues *q, const eni_launch *launch, uint32_t *out)
{
    uint64_t device_key = launch->device != ENI_NO_DEVICE ? launch->device : (uint64_t)1 << 32 | launch->device_id;
    uint32_t *device = eni_map_put(&q->devices, device_key, (uint32_t)q->devices.count);
    uint32_t *known = device == NULL ? NULL : eni_map_put(&q->known, (uint64_t)*device << 32 | launch->queue, ENI_NONE);
    if (known == NULL || !eni_grow((void **)&q->items, &q->capacity, q->count, sizeof *q->items)) {
        return ENI_NO_MEMORY();
    }
    if (*known == ENI_NONE) {
        *known = (uint32_t)q->count;
        q->items[q->count] = (queue){launch->device, launch->device_id, launch->queue, (uint32_t)q->count};
        q->count++;
    }
    *out = *known;
    return ENIGMA_OK;
}

static enigma_status put_process(eni_tracks *t, uint32_t pid, uint32_t device, uint32_t device_id)
{
    if (!eni_grow((void **)&t->processes, &t->process_capacity, t->process_count, sizeof *t->processes)) {
        return ENI_NO_MEMORY();
    }
    t->processes[t->process_count++] = (eni_process){pid, device, device_id};
    return ENIGMA_OK;
}

static enigma_status put_track(eni_tracks *t, uint32_t number)
{
    if (!eni_grow((void **)&t->tracks, &t->track_capacity, t->track_count, sizeof *t->tracks)) {
        return ENI_NO_MEMORY();
    }
    t->tracks[t->track_count++] = (eni_track){(uint32_t)t->process_count - 1, number, 0};
    return ENIGMA_OK;
}

static bool same_device(const queue *a, const queue *b)
{
    return a->device == b->device && a->device_id == b->device_id;
}

/* Queues in order become tracks; track_of maps what was found. */
static enigma_status put_queues(eni_tracks *t, queues *q, uint32_t *track_of)
{
    if (q->count > 0) {
        qsort(q->items, q->count, sizeof *q->items, by_device);
    }
    for (size_t i = 0; i < q->count; i++) {
        const queue *item = &q->items[i];
        if (i == 0 || !same_device(item, &q->items[i - 1])) {
            uint32_t pid = DEVICE_PID + (uint32_t)t->process_count;
            pid += pid == t->processes[0].pid ? DEVICE_PID : 0;
            ENI_TRY(put_process(t, pid, item->device, item->device_id));
        }
        track_of[item->found] = (uint32_t)t->track_count;
        ENI_TRY(put_track(t, item->queue));
    }
    return ENIGMA_OK;
}

/* ---- slices ---- */

/* What other threads recorded for one lies on its track: the first of each thread_id stands for all. */
static enigma_status track_threads(const enigma_profile *profile, uint32_t *track_of)
{
    eni_map first = {NULL, 0, 0};
    enigma_status status = ENIGMA_OK;
    for (size_t i = 0; i < profile->thread_count && status == ENIGMA_OK; i++) {
        const uint32_t *found = eni_map_put(&first, profile->threads[i].thread_id, (uint32_t)i);
        status = found == NULL ? ENI_NO_MEMORY() : ENIGMA_OK;
        track_of[i] = found == NULL ? 0 : *found;
    }
    eni_map_free(&first);
    return status;
}

static enigma_status take_events(eni_tracks *t, const uint32_t *track_of)
{
    const enigma_profile *profile = t->profile;
    t->cpu = eni_alloc(profile->event_count * sizeof *t->cpu);
    t->cpu_places = eni_alloc(profile->event_count * sizeof *t->cpu_places);
    if (t->cpu == NULL || t->cpu_places == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < profile->event_count; i++) {
        const eni_event *event = &profile->events[i];
        t->cpu[i] =
            (eni_slice){event->start_ns, event->end_ns, track_of[event->thread], profile->nodes[event->node].depth,
                        (uint32_t)i,     event->parent};
    }
    t->cpu_count = profile->event_count;
    return ENIGMA_OK;
}

static enigma_status take_gpu(eni_tracks *t, queues *q)
{
    const enigma_profile *profile = t->profile;
    t->gpu = eni_alloc(profile->gpu_count * sizeof *t->gpu);
    t->gpu_places = eni_alloc(profile->gpu_count * sizeof *t->gpu_places);
    if (t->gpu == NULL || t->gpu_places == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < profile->gpu_count; i++) {
        const eni_gpu_event *gpu = &profile->gpu[i];
        if (gpu->status == ENI_GPU_VALID) {
            uint32_t track = 0;
            ENI_TRY(find_queue(q, &profile->launches[gpu->launch], &track));
            t->gpu[t->gpu_count++] = (eni_slice){gpu->start_ns, gpu->end_ns, track, 0, (uint32_t)i, ENI_NONE};
        }
    }
    return ENIGMA_OK;
}

static enigma_status take_queues(eni_tracks *t)
{
    queues q = {0};
    uint32_t *track_of = NULL;
    enigma_status status = take_gpu(t, &q);
    if (status == ENIGMA_OK) {
        track_of = eni_alloc(q.count * sizeof *track_of);
        status = track_of == NULL ? ENI_NO_MEMORY() : put_queues(t, &q, track_of);
    }
    for (size_t i = 0; i < t->gpu_count && status == ENIGMA_OK; i++) {
        t->gpu[i].track = track_of[t->gpu[i].track];
    }
    eni_free(track_of, q.count * sizeof *track_of);
    eni_free(q.items, q.capacity * sizeof *q.items);
    eni_map_free(&q.known);
    eni_map_free(&q.devices);
    return status;
}

/* ---- numbers ---- */

/* Lanes of a track have consecutive tids; a run that would hold the real pid begins behind it. */
static enigma_status give_numbers(eni_tracks *t)
{
    uint32_t next = 1, pid = t->processes[0].pid;
    for (uint32_t i = 0; i < t->track_count; i++) {
        if (next <= pid && pid < next + t->lanes[i]) {
            next = pid + 1;
        }
        t->tracks[i].first_tid = next;
        next += t->lanes[i];
        for (uint32_t lane = 0; lane < t->lanes[i]; lane++) {
            if (!eni_grow((void **)&t->rows, &t->row_capacity, t->row_count, sizeof *t->rows)) {
                return ENI_NO_MEMORY();
            }
            t->rows[t->row_count++] = (struct eni_track_lane){i, lane};
        }
    }
    return ENIGMA_OK;
}

static enigma_status build(eni_tracks *t)
{
    const enigma_profile *profile = t->profile;
    ENI_TRY(put_process(t, profile->header->pid == 0 ? 1 : profile->header->pid, ENI_NO_DEVICE, 0));
    for (size_t i = 0; i < profile->thread_count; i++) {
        ENI_TRY(put_track(t, (uint32_t)i));
    }
    uint32_t *track_of = eni_alloc((profile->thread_count + 1) * sizeof *track_of);
    enigma_status status = track_of == NULL ? ENI_NO_MEMORY() : track_threads(profile, track_of);
    status = status == ENIGMA_OK ? take_events(t, track_of) : status;
    eni_free(track_of, (profile->thread_count + 1) * sizeof *track_of);
    ENI_TRY(status);
    ENI_TRY(take_queues(t));
    t->lanes = eni_alloc_zero(t->track_count * sizeof *t->lanes);
    if (t->lanes == NULL) {
        return ENI_NO_MEMORY();
    }
    ENI_TRY(eni_lanes_assign(t->cpu, t->cpu_count, t->cpu_places, profile->event_count, t->lanes));
    ENI_TRY(eni_lanes_assign(t->gpu, t->gpu_count, t->gpu_places, profile->gpu_count, t->lanes));
    return give_numbers(t);
}

enigma_status eni_tracks_build(const enigma_profile *profile, eni_tracks *out)
{
    *out = (eni_tracks){.profile = profile};
    enigma_status status = build(out);
    if (status != ENIGMA_OK) {
        eni_tracks_free(out);
    }
    return status;
}

void eni_tracks_free(eni_tracks *tracks)
{
    if (tracks->profile == NULL) {
        return;
    }
    size_t events = tracks->profile->event_count, gpus = tracks->profile->gpu_count;
    eni_free(tracks->cpu, events * sizeof *tracks->cpu);
    eni_free(tracks->cpu_places, events * sizeof *tracks->cpu_places);
    eni_free(tracks->gpu, gpus * sizeof *tracks->gpu);
    eni_free(tracks->gpu_places, gpus * sizeof *tracks->gpu_places);
    eni_free(tracks->processes, tracks->process_capacity * sizeof *tracks->processes);
    eni_free(tracks->lanes, tracks->track_count * sizeof *tracks->lanes);
    eni_free(tracks->tracks, tracks->track_capacity * sizeof *tracks->tracks);
    eni_free(tracks->rows, tracks->row_capacity * sizeof *tracks->rows);
    *tracks = (eni_tracks){0};
}

/* ---- reading ---- */

static eni_track_id lane_id(const eni_tracks *tracks, uint32_t track, uint32_t lane)
{
    const eni_track *at = &tracks->tracks[track];
    return (eni_track_id){tracks->processes[at->process].pid, at->first_tid + lane};
}

eni_track_id eni_tracks_cpu(const eni_tracks *tracks, uint32_t event)
{
    const eni_place *place = &tracks->cpu_places[event];
    return lane_id(tracks, tracks->cpu[place->slice].track, place->lane);
}

eni_track_id eni_tracks_gpu(const eni_tracks *tracks, uint32_t gpu)
{
    const eni_place *place = &tracks->gpu_places[gpu];
    return lane_id(tracks, tracks->gpu[place->slice].track, place->lane);
}

bool eni_tracks_info(const eni_tracks *tracks, size_t index, eni_track_info *out)
{
    if (index >= tracks->row_count) {
        return false;
    }
    const struct eni_track_lane *row = &tracks->rows[index];
    *out = (eni_track_info){lane_id(tracks, row->track, row->lane), tracks->tracks[row->track].process};
    return true;
}

void eni_tracks_name(const eni_tracks *tracks, size_t index, eni_str *out)
{
    const struct eni_track_lane *row = &tracks->rows[index];
    const eni_track *track = &tracks->tracks[row->track];
    if (track->process == 0) {
        uint64_t thread = tracks->profile->threads[track->number].thread_id;
        eni_str_printf(out, "%s %llu", thread == tracks->processes[0].pid ? "Main thread" : "Thread",
                       (unsigned long long)thread);
    } else {
        eni_str_printf(out, "GPU %u queue %u", (unsigned)tracks->processes[track->process].device_id,
                       (unsigned)track->number);
    }
    if (row->lane > 0) {
        eni_str_printf(out, " (overlap %u)", (unsigned)row->lane);
    }
}

enigma_status eni_tracks_process_name(const eni_tracks *tracks, size_t index, eni_arena *arena, eni_str *out)
{
    uint32_t number = tracks->tracks[tracks->rows[index].track].process;
    const eni_process *process = &tracks->processes[number];
    enigma_items facts = {NULL, 0};
    if (number == 0) {
        eni_str_printf(out, "CPU (process %u)", (unsigned)process->pid);
        return ENIGMA_OK;
    }
    eni_str_printf(out, "GPU %u", (unsigned)process->device_id);
    if (process->device != ENI_NO_DEVICE) {
        eni_arena_reset(arena);
        ENI_TRY(eni_profile_device_facts(tracks->profile, process->device, arena, &facts));
    }
    for (size_t i = 0; i < facts.count; i++) {
        if (eni_text_equal(facts.data[i].key, eni_text_of("name")) && facts.data[i].value.type == ENIGMA_TEXT) {
            eni_str_puts(out, ": ");
            eni_str_append(out, facts.data[i].value.as.text.data, facts.data[i].value.as.text.size);
        }
    }
    return ENIGMA_OK;
}
