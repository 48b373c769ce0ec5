/* Placing slices on lanes: one sweep over each track by start. See lanes.h.
 *
 * A lane is a stack of nested slices; its lowest one says how long the lane is taken. Busy lanes wait in a heap by that
 * end, free ones in a heap by number, so that work that overlaps nothing stays on lane 0. O(n log n). */
#include "present/lanes.h"

#include <stdlib.h>

#define POINT_DEPTH 256 /* below this, one more slice inside is never too deep for a viewer */

typedef struct heap {
    struct heap_entry {
        uint64_t key;
        uint32_t lane;
    } * entries;
    size_t count, capacity;
} heap;

typedef struct sweep {
    const eni_slice *slices;
    eni_place *places;
    uint32_t *tops; /* id of the innermost slice of each lane */
    size_t lane_count, lane_capacity;
    heap busy, idle;
} sweep;

/* ---- heaps ---- */

static bool before(struct heap_entry a, struct heap_entry b)
{
    return a.key != b.key ? a.key < b.key : a.lane < b.lane;
}

static bool heap_put(heap *h, uint64_t key, uint32_t lane)
{
    if (!eni_grow((void **)&h->entries, &h->capacity, h->count, sizeof *h->entries)) {
        return false;
    }
    struct heap_entry entry = {key, lane};
    size_t at = h->count++;
    while (at > 0 && before(entry, h->entries[(at - 1) / 2])) {
        h->entries[at] = h->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->entries[at] = entry;
    return true;
}

static uint32_t heap_take(heap *h)
{
    uint32_t lane = h->entries[0].lane;
    struct heap_entry last = h->entries[--h->count];
    size_t at = 0;
    for (size_t child = 1; child < h->count; child = 2 * at + 1) {
        if (child + 1 < h->count && before(h->entries[child + 1], h->entries[child])) {
            child++;
        }
        if (!before(h->entries[child], last)) {
            break;
        }
        h->entries[at] = h->entries[child];
        at = child;
    }
    h->entries[at] = last;
    return lane;
}

/* ---- one slice ---- */

static const eni_slice *slice_of(const sweep *s, uint32_t id) { return &s->slices[s->places[id].slice]; }

/* The slice below one on its lane, ENI_NONE: it is the lowest. */
static uint32_t below(const sweep *s, uint32_t id)
{
    return s->places[id].depth > 1 ? slice_of(s, id)->parent : ENI_NONE;
}

/* Whether the parent has been placed on this track. */
static bool parent_here(const sweep *s, const eni_slice *slice, size_t position)
{
    if (slice->parent == ENI_NONE || s->places[slice->parent].slice == ENI_NONE) {
        return false;
    }
    return s->places[slice->parent].slice < position && slice_of(s, slice->parent)->track == slice->track;
}

/* Puts a slice into its parent; false: something else is open there, or it ends later. */
static bool place_inside(sweep *s, const eni_slice *slice, eni_place *place)
{
    const eni_place *parent = &s->places[slice->parent];
    if (slice->start_ns == slice->end_ns && slice_of(s, slice->parent)->end_ns >= slice->end_ns) {
        /* A point overlaps nothing partly, and never becomes the top: more of the same instant may follow in any order. */
        place->lane = parent->lane;
        place->depth = parent->depth + 1;
        return true;
    }
    uint32_t top = s->tops[parent->lane];
    while (top != ENI_NONE && top != slice->parent && slice_of(s, top)->end_ns <= slice->start_ns) {
        top = below(s, top);
    }
    if (top != slice->parent || slice_of(s, top)->end_ns < slice->end_ns) {
        return false;
    }
    place->lane = parent->lane;
    place->depth = parent->depth + 1;
    s->tops[place->lane] = slice->id;
    return true;
}

static enigma_status place_outermost(sweep *s, const eni_slice *slice, eni_place *place)
{
    while (s->busy.count > 0 && s->busy.entries[0].key <= slice->start_ns) {
        uint32_t lane = heap_take(&s->busy);
        if (!heap_put(&s->idle, lane, lane)) {
            return ENI_NO_MEMORY();
        }
    }
    if (s->idle.count == 0 && s->lane_count > 0 && slice->start_ns == slice->end_ns &&
        s->places[s->tops[0]].depth < POINT_DEPTH) {
        place->lane = 0; /* a point overlaps nothing partly: it needs no lane of its own */
        place->depth = 1;
        return ENIGMA_OK;
    }
    if (s->idle.count == 0) {
        if (!eni_grow((void **)&s->tops, &s->lane_capacity, s->lane_count, sizeof *s->tops)) {
            return ENI_NO_MEMORY();
        }
        place->lane = (uint32_t)s->lane_count++;
    } else {
        place->lane = heap_take(&s->idle);
    }
    place->depth = 1;
    s->tops[place->lane] = slice->id;
    return heap_put(&s->busy, slice->end_ns, place->lane) ? ENIGMA_OK : ENI_NO_MEMORY();
}

/* ---- the sweep ---- */

static int by_track_and_start(const void *a, const void *b)
{
    const eni_slice *x = a, *y = b;
    if (x->track != y->track) {
        return x->track < y->track ? -1 : 1;
    }
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    if (x->end_ns != y->end_ns) {
        return x->end_ns > y->end_ns ? -1 : 1;
    }
    if (x->level != y->level) {
        return x->level < y->level ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static enigma_status place_all(sweep *s, size_t count, uint32_t *lanes)
{
    for (size_t i = 0; i < count; i++) {
        const eni_slice *slice = &s->slices[i];
        if (i == 0 || slice->track != s->slices[i - 1].track) {
            s->lane_count = s->busy.count = s->idle.count = 0;
        }
        eni_place *place = &s->places[slice->id];
        place->slice = (uint32_t)i;
        if (!parent_here(s, slice, i) || !place_inside(s, slice, place)) {
            ENI_TRY(place_outermost(s, slice, place));
        }
        lanes[slice->track] = (uint32_t)s->lane_count;
    }
    return ENIGMA_OK;
}

enigma_status eni_lanes_assign(eni_slice *slices, size_t count, eni_place *places, size_t id_count, uint32_t *lanes)
{
    sweep s = {.slices = slices, .places = places};
    for (size_t i = 0; i < id_count; i++) {
        places[i] = (eni_place){ENI_NONE, 0, 0};
    }
    if (count > 0) {
        qsort(slices, count, sizeof *slices, by_track_and_start);
    }
    enigma_status status = place_all(&s, count, lanes);
    eni_free(s.tops, s.lane_capacity * sizeof *s.tops);
    eni_free(s.busy.entries, s.busy.capacity * sizeof *s.busy.entries);
    eni_free(s.idle.entries, s.idle.capacity * sizeof *s.idle.entries);
    return status;
}
