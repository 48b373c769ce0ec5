/* Sealing: from an image to the table of events that all readers share. Everything an image says is checked here, once.
 *
 * Steps: find the streams; names, categories, launches, devices; nodes with their labels; records to events in order of
 * ending; parents and self time; GPU work; then what is derived (inclusive GPU time, counts). */
#include "store/seal.h"

#include <string.h>

#define DAMAGED(profile, ...) seal_damaged((profile), __VA_ARGS__)

static enigma_status seal_damaged(const enigma_profile *profile, const char *what, uint64_t where)
{
    return ENI_FAIL(ENIGMA_E_FORMAT, "%s is damaged: %s %llu", profile->private_->source, what, (unsigned long long)where);
}

/* ---- streams ---- */

static enigma_status thread_of(enigma_profile *profile, const eni_chunk *chunk, eni_thread_streams **out)
{
    eni_profile_private *own = profile->private_;
    for (size_t i = profile->thread_count; i > 0; i--) {
        if (own->threads[i - 1].owner == chunk->owner) {
            *out = &own->threads[i - 1];
            return ENIGMA_OK;
        }
    }
    if (!eni_grow((void **)&own->threads, &own->thread_capacity, profile->thread_count, sizeof *own->threads)) {
        return ENI_NO_MEMORY();
    }
    *out = &own->threads[profile->thread_count++];
    **out = (eni_thread_streams){.owner = chunk->owner, .thread_id = chunk->thread_id};
    return ENIGMA_OK;
}

static enigma_status stream_take(enigma_profile *profile, const eni_chunk *chunk)
{
    eni_span span = {(const uint8_t *)(chunk + 1), chunk->used};
    eni_span *place = NULL;
    if (chunk->stream < ENI_STREAM_RECORDS) {
        place = &profile->private_->shared[chunk->stream];
    } else {
        eni_thread_streams *thread = NULL;
        ENI_TRY(thread_of(profile, chunk, &thread));
        place = chunk->stream == ENI_STREAM_RECORDS ? &thread->records : &thread->side;
    }
    if (place->data != NULL) {
        return DAMAGED(profile, "a second run of stream", chunk->stream);
    }
    *place = span;
    return ENIGMA_OK;
}

static enigma_status find_streams(enigma_profile *profile)
{
    size_t at = sizeof(eni_image_header);
    while (profile->image_size - at >= sizeof(eni_chunk)) {
        const eni_chunk *chunk = (const eni_chunk *)(const void *)(profile->image + at);
        size_t room = profile->image_size - at - sizeof *chunk;
        if (chunk->magic != ENI_CHUNK_MAGIC || chunk->stream >= ENI_STREAM_COUNT || chunk->used > room || chunk->used % 8 != 0 ||
            (chunk->stream >= ENI_STREAM_RECORDS) != (chunk->owner != 0)) {
            return DAMAGED(profile, "chunk at byte", at);
        }
        ENI_TRY(stream_take(profile, chunk));
        at += sizeof *chunk + chunk->used;
    }
    return at == profile->image_size ? ENIGMA_OK : DAMAGED(profile, "bytes after", at);
}

/* A stream of fixed-size entries. */
static size_t entries(const enigma_profile *profile, uint32_t stream, size_t size)
{
    return profile->private_->shared[stream].size / size;
}

/* ---- names, categories, launches, devices ---- */

static enigma_status take_categories(enigma_profile *profile)
{
    const eni_span *span = &profile->private_->shared[ENI_STREAM_CATEGORIES];
    size_t count = span->size / 8;
    profile->categories = eni_alloc_zero((count + 1) * sizeof *profile->categories);
    if (profile->categories == NULL) {
        return ENI_NO_MEMORY();
    }
    profile->category_count = count;
    for (size_t i = 0; i < count; i++) {
        uint32_t name;
        memcpy(&name, span->data + i * 8, sizeof name);
        if (!eni_profile_name(profile, name, &profile->categories[i])) {
            return DAMAGED(profile, "category", i);
        }
    }
    return ENIGMA_OK;
}

static bool shared_fields_good(const enigma_profile *profile, uint32_t fields)
{
    const eni_span *span = &profile->private_->shared[ENI_STREAM_FIELDS];
    return fields == 0 || ((uint64_t)fields * 8 < span->size &&
                           eni_field_check(profile, span->data + (size_t)fields * 8, span->data + span->size, 0) != NULL);
}

static enigma_status take_launches(enigma_profile *profile)
{
    const eni_span *span = &profile->private_->shared[ENI_STREAM_LAUNCHES];
    profile->launches = (const eni_launch *)(const void *)span->data;
    profile->launch_count = entries(profile, ENI_STREAM_LAUNCHES, sizeof(eni_launch));
    for (size_t i = 0; i < profile->launch_count; i++) {
        const eni_launch *launch = &profile->launches[i];
        if ((launch->device != ENI_NO_DEVICE && launch->device >= profile->device_count) ||
            !shared_fields_good(profile, launch->fields)) {
            return DAMAGED(profile, "launch", i);
        }
    }
    return ENIGMA_OK;
}

static enigma_status take_devices(enigma_profile *profile)
{
    const eni_span *span = &profile->private_->shared[ENI_STREAM_DEVICES];
    profile->devices = (const eni_device_entry *)(const void *)span->data;
    profile->device_count = entries(profile, ENI_STREAM_DEVICES, sizeof(eni_device_entry));
    for (size_t i = 0; i < profile->device_count; i++) {
        const eni_device_entry *device = &profile->devices[i];
        if (!(device->tick_ns > 0) || !(device->tick_ns < 1e9) || device->counter_bits < 1 || device->counter_bits > 64 ||
            !shared_fields_good(profile, device->fields)) {
            return DAMAGED(profile, "device", i);
        }
    }
    return ENIGMA_OK;
}

/* ---- nodes ---- */

/* The label of a node as an id: equal texts, equal ids. */
static enigma_status node_label(enigma_profile *profile, eni_node_info *node, uint32_t *out)
{
    eni_str joined = {NULL, 0, 0, false};
    enigma_text label = node->name;
    if (node->kernel.data != NULL) {
        eni_str_append(&joined, node->name.data, node->name.size);
        eni_str_putc(&joined, ':');
        eni_str_append(&joined, node->kernel.data, node->kernel.size);
        label = (enigma_text){joined.data, joined.size};
    }
    *out = joined.failed ? ENI_INTERN_NONE : eni_intern_put(&profile->private_->labels, label);
    eni_str_free(&joined);
    if (*out == ENI_INTERN_NONE) {
        return ENI_NO_MEMORY();
    }
    node->label = node->kernel.data == NULL ? node->name : eni_intern_text(&profile->private_->labels, *out);
    return ENIGMA_OK;
}

static enigma_status take_node(enigma_profile *profile, const eni_node *from, uint32_t index, eni_map *paths)
{
    eni_node_info *node = &profile->nodes[index];
    if (!eni_profile_name(profile, from->name, &node->name) || from->parent >= index ||
        (from->kernel != 0 && !eni_profile_name(profile, from->kernel, &node->kernel))) {
        return DAMAGED(profile, "call-path node", index);
    }
    const eni_node_info *parent = &profile->nodes[from->parent];
    uint32_t label = 0;
    ENI_TRY(node_label(profile, node, &label));
    node->parent = from->parent;
    node->runtime = (from->flags & ENI_NODE_RUNTIME) != 0;
    node->depth = parent->depth + 1;
    node->call_depth = node->runtime ? parent->call_depth : parent->call_depth + 1;
    uint32_t *path = eni_map_put(paths, (uint64_t)parent->path << 32 | label, index);
    if (path == NULL) {
        return ENI_NO_MEMORY();
    }
    node->path = *path;
    return ENIGMA_OK;
}

static enigma_status take_nodes(enigma_profile *profile)
{
    const eni_node *from = (const eni_node *)(const void *)profile->private_->shared[ENI_STREAM_NODES].data;
    size_t count = entries(profile, ENI_STREAM_NODES, sizeof(eni_node));
    eni_map paths = {NULL, 0, 0};
    if (count == 0 || count >= ENI_NONE) {
        return DAMAGED(profile, "number of call-path nodes", count);
    }
    profile->nodes = eni_alloc_zero(count * sizeof *profile->nodes);
    if (profile->nodes == NULL) {
        return ENI_NO_MEMORY();
    }
    profile->node_count = count;
    profile->nodes[0] = (eni_node_info){.name = {"", 0}, .label = {"", 0}, .parent = ENI_NONE};
    enigma_status status = ENIGMA_OK;
    for (size_t i = 1; i < count && status == ENIGMA_OK; i++) {
        status = take_node(profile, &from[i], (uint32_t)i, &paths);
    }
    eni_map_free(&paths);
    return status;
}

/* ---- records to events ---- */

static const eni_record *record_at(const eni_thread_streams *thread, size_t index)
{
    return (const eni_record *)(const void *)thread->records.data + index;
}

static size_t record_count(const eni_thread_streams *thread) { return thread->records.size / sizeof(eni_record); }

/* The clock's map as saved, and the piece that was used last: stamps come nearly in order. */
typedef struct clock_map {
    const eni_clock_piece *pieces;
    uint32_t count, last;
} clock_map;

static clock_map clock_map_of(const enigma_profile *profile)
{
    const eni_span *span = &profile->private_->shared[ENI_STREAM_PIECES];
    return (clock_map){(const eni_clock_piece *)(const void *)span->data, (uint32_t)(span->size / sizeof(eni_clock_piece)), 0};
}

static uint64_t to_ns(clock_map *map, uint64_t ticks)
{
    return eni_clock_convert_near(map->pieces, map->count, ticks, &map->last);
}

typedef struct seal_work {
    size_t count;
    bool sorted; /* by end, so far */
    uint32_t *stack;
    size_t stack_size, stack_capacity;
    clock_map map;
} seal_work;

/* Event number i is where it stays: what refers to it, and what its node knows. */
static void settle(enigma_profile *profile, uint32_t i, uint32_t record)
{
    const eni_event *event = &profile->events[i];
    eni_node_info *node = &profile->nodes[event->node];
    profile->private_->threads[event->thread].event_of[record] = i;
    node->first = node->calls++ == 0 ? i : node->first;
    node->gpu_calls += event->kind == ENI_KIND_GPU;
}

static void widen(enigma_profile *profile, uint64_t start_ns, uint64_t end_ns)
{
    if (start_ns < profile->start_ns) {
        profile->start_ns = start_ns;
    }
    if (end_ns > profile->end_ns) {
        profile->end_ns = end_ns;
    }
}

/* Makes the event of a record, unless it is still open. Its parent is the record's number until parents are known. */
static enigma_status event_put(enigma_profile *profile, seal_work *work, uint32_t thread, uint32_t index)
{
    const eni_thread_streams *streams = &profile->private_->threads[thread];
    const eni_record *record = record_at(streams, index);
    uint64_t ticks = record->end != 0 ? record->end : profile->header->end_ticks;
    if (ticks == 0) {
        profile->counts.open_scopes++;
        return ENIGMA_OK;
    }
    if (record->node >= profile->node_count || record->category >= profile->category_count || record->kind > ENI_KIND_EVENT ||
        (record->side != 0 && eni_side_at(streams, record->side) == NULL)) {
        return DAMAGED(profile, "record", index);
    }
    uint64_t start_ns = to_ns(&work->map, record->start), end_ns = to_ns(&work->map, ticks);
    end_ns = end_ns < start_ns ? start_ns : end_ns;
    eni_event *event = &profile->events[work->count];
    *event = (eni_event){.start_ns = start_ns,
                         .end_ns = end_ns,
                         .self_ns = end_ns - start_ns,
                         .node = record->node,
                         .parent = index,
                         .thread = thread,
                         .gpu = ENI_NONE,
                         .side = record->side,
                         .kind = record->kind,
                         .category = record->category,
                         .flags = (uint8_t)(record->flags | (record->end == 0 ? ENI_RECORD_UNFINISHED : 0))};
    widen(profile, start_ns, end_ns);
    work->sorted = work->sorted && (work->count == 0 || event[-1].end_ns <= end_ns);
    settle(profile, (uint32_t)work->count++, index);
    return ENIGMA_OK;
}

static bool stack_push(seal_work *work, uint32_t record)
{
    if (work->stack_size == work->stack_capacity &&
        !eni_grow((void **)&work->stack, &work->stack_capacity, work->stack_size, sizeof *work->stack)) {
        return false;
    }
    work->stack[work->stack_size++] = record;
    return true;
}

/* Records lie in order of beginning; an event ends after what is inside it. So a stack of open ones, popped whenever a record
 * comes that is not inside the top, gives the order of ending where end stamps are equal. */
static enigma_status thread_events(enigma_profile *profile, seal_work *work, uint32_t thread)
{
    const eni_thread_streams *streams = &profile->private_->threads[thread];
    size_t count = record_count(streams);
    work->stack_size = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t parent = record_at(streams, i)->parent;
        while (work->stack_size > 0 && work->stack[work->stack_size - 1] + 1 != parent) {
            ENI_TRY(event_put(profile, work, thread, work->stack[--work->stack_size]));
        }
        if (!stack_push(work, (uint32_t)i)) {
            return ENI_NO_MEMORY();
        }
    }
    while (work->stack_size > 0) {
        ENI_TRY(event_put(profile, work, thread, work->stack[--work->stack_size]));
    }
    return ENIGMA_OK;
}

/* ---- order ---- */

/* Which event comes when. */
typedef struct rank {
    uint64_t ns;
    uint32_t event;
} rank;

static bool ranks_sorted(const rank *ranks, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (ranks[i].ns < ranks[i - 1].ns) {
            return false;
        }
    }
    return true;
}

static void merge(const rank *a, size_t a_count, const rank *b, size_t b_count, rank *out)
{
    while (a_count > 0 && b_count > 0) {
        if (b->ns < a->ns) {
            *out++ = *b++;
            b_count--;
        } else {
            *out++ = *a++;
            a_count--;
        }
    }
    memcpy(out, a_count > 0 ? a : b, (a_count + b_count) * sizeof *out);
}

/* Stable, and linear where they are in order already. */
static enigma_status ranks_sort(rank *ranks, size_t count)
{
    if (ranks_sorted(ranks, count)) {
        return ENIGMA_OK;
    }
    rank *other = eni_alloc(count * sizeof *other);
    if (other == NULL) {
        return ENI_NO_MEMORY();
    }
    rank *from = ranks;
    rank *to = other;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t left = count - at < width ? count - at : width;
            size_t right = count - at - left < width ? count - at - left : width;
            merge(from + at, left, from + at + left, right, to + at);
        }
        rank *swap = from;
        from = to;
        to = swap;
    }
    if (from != ranks) {
        memcpy(ranks, from, count * sizeof *ranks);
    }
    eni_free(other, count * sizeof *other);
    return ENIGMA_OK;
}

/* Moves each event to its place, along the cycles of the permutation. */
static void permute(eni_event *events, rank *ranks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        eni_event first = events[i];
        size_t at = i;
        while (ranks[at].event != i) {
            size_t from = ranks[at].event;
            events[at] = events[from];
            ranks[at].event = (uint32_t)at;
            at = from;
        }
        events[at] = first;
        ranks[at].event = (uint32_t)at;
    }
}

/* What one thread recorded is in order, unless tasks overlap. */
static enigma_status events_sort(enigma_profile *profile, const seal_work *work)
{
    if (work->sorted) {
        return ENIGMA_OK;
    }
    rank *ranks = eni_alloc(work->count * sizeof *ranks);
    if (ranks == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < work->count; i++) {
        ranks[i] = (rank){profile->events[i].end_ns, (uint32_t)i};
    }
    enigma_status status = ranks_sort(ranks, work->count);
    if (status == ENIGMA_OK) {
        permute(profile->events, ranks, work->count);
        for (size_t i = 0; i < profile->node_count; i++) {
            profile->nodes[i].calls = profile->nodes[i].gpu_calls = 0;
        }
        for (size_t i = 0; i < work->count; i++) {
            settle(profile, (uint32_t)i, profile->events[i].parent);
        }
    }
    eni_free(ranks, work->count * sizeof *ranks);
    return status;
}

static enigma_status take_events(enigma_profile *profile, seal_work *work)
{
    size_t total = 0;
    for (size_t i = 0; i < profile->thread_count; i++) {
        eni_thread_streams *thread = &profile->private_->threads[i];
        size_t count = record_count(thread);
        total += count;
        thread->event_of = eni_alloc(count == 0 ? 1 : count * sizeof *thread->event_of);
        if (thread->event_of == NULL) {
            return ENI_NO_MEMORY();
        }
        memset(thread->event_of, 0xff, count * sizeof *thread->event_of);
    }
    if (total >= ENI_NONE) {
        return DAMAGED(profile, "number of records", total);
    }
    profile->events = eni_alloc((total + 1) * sizeof *profile->events);
    profile->event_count = total; /* the room; corrected below */
    if (profile->events == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < profile->thread_count; i++) {
        ENI_TRY(thread_events(profile, work, (uint32_t)i));
    }
    return events_sort(profile, work);
}

/* ---- parents and self time ---- */

/* The thread and record an id stands for; false: none here (an ancestor process's, or nothing). */
static bool record_of_id(const enigma_profile *profile, uint64_t id, uint32_t *thread, uint32_t *record)
{
    for (size_t i = 0; i < profile->thread_count; i++) {
        const eni_thread_streams *streams = &profile->private_->threads[i];
        if (streams->owner == id >> 32 && (uint32_t)id != 0 && (uint32_t)id <= record_count(streams)) {
            *thread = (uint32_t)i;
            *record = (uint32_t)id - 1;
            return true;
        }
    }
    return false;
}

/* The record that encloses one; false: none. */
static bool enclosing(const enigma_profile *profile, uint32_t *thread, uint32_t *record)
{
    const eni_thread_streams *streams = &profile->private_->threads[*thread];
    const eni_record *from = record_at(streams, *record);
    if ((from->flags & ENI_RECORD_FOREIGN_PARENT) == 0) {
        if (from->parent == 0 || from->parent > *record) {
            return false;
        }
        *record = from->parent - 1;
        return true;
    }
    for (const eni_side_block *block = eni_side_at(streams, from->side); block != NULL; block = eni_side_at(streams, block->next)) {
        const uint64_t *id = eni_side_parent(block);
        if (id != NULL) {
            return record_of_id(profile, *id, thread, record);
        }
        if (block->next == 0) {
            break;
        }
    }
    return false;
}

/* A record and its event. */
typedef struct place {
    uint32_t thread, record, event;
} place;

/* The nearest enclosing event; open records in between are passed over. Bounded, since a hostile image may go in circles. */
static bool parent_of(const enigma_profile *profile, const place *from, place *out)
{
    *out = *from;
    for (uint32_t steps = 0; steps < 64 && enclosing(profile, &out->thread, &out->record); steps++) {
        out->event = profile->private_->threads[out->thread].event_of[out->record];
        if (out->event != ENI_NONE) {
            return true;
        }
    }
    return false;
}

/* An order in which every parent comes before its children: by start, then thread, then record. Records that a recorder wrote
 * have it; in a hostile image it excludes circles. */
static bool comes_before(const enigma_profile *profile, const place *parent, const place *child)
{
    uint64_t above = profile->events[parent->event].start_ns, start = profile->events[child->event].start_ns;
    if (above != start) {
        return above < start;
    }
    return parent->thread != child->thread ? parent->thread < child->thread : parent->record < child->record;
}

#define STEPS 64 /* how far up an event's parent is looked for among the nodes above its own */

static bool is_above(const eni_node_info *nodes, uint32_t above, uint32_t at)
{
    for (int steps = 0; steps < STEPS && at != 0 && at != ENI_NONE; steps++) {
        at = nodes[at].parent;
        if (at == above) {
            return true;
        }
    }
    return false;
}

/* Takes the part of a child that no sibling before it covers from its parent's self time. */
static void cover(enigma_profile *profile, uint64_t *covered_to, uint32_t index)
{
    const eni_event *child = &profile->events[index];
    if (child->parent == ENI_NONE) {
        return;
    }
    eni_event *parent = &profile->events[child->parent];
    uint64_t *to = &covered_to[child->parent];
    uint64_t from = child->start_ns > *to ? child->start_ns : *to;
    uint64_t end = child->end_ns < parent->end_ns ? child->end_ns : parent->end_ns;
    from = from > parent->start_ns ? from : parent->start_ns;
    if (end > from) {
        parent->self_ns -= end - from;
        *to = end;
    }
}

/* Parents of a thread's events, and the self time of these: self = duration less the union of the direct children's intervals.
 * Records lie in order of beginning, so the union grows at its end. */
static void thread_parents(enigma_profile *profile, uint32_t thread, uint64_t *covered_to, bool *foreign)
{
    const eni_thread_streams *streams = &profile->private_->threads[thread];
    size_t count = record_count(streams);
    for (size_t i = 0; i < count; i++) {
        const place own = {thread, (uint32_t)i, streams->event_of[i]};
        place parent;
        if (own.event == ENI_NONE) {
            continue;
        }
        eni_event *event = &profile->events[own.event];
        event->parent = ENI_NONE;
        if (parent_of(profile, &own, &parent) && comes_before(profile, &parent, &own)) {
            event->parent = parent.event;
            *foreign = *foreign || parent.thread != thread;
            profile->follow = profile->follow && is_above(profile->nodes, profile->events[parent.event].node, event->node);
            cover(profile, covered_to, own.event);
        }
    }
}

/* The same where some parent is another thread's: the events of all threads in the order of their beginning. */
static enigma_status cover_by_start(enigma_profile *profile, uint64_t *covered_to)
{
    size_t count = 0;
    rank *order = eni_alloc((profile->event_count + 1) * sizeof *order);
    if (order == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < profile->thread_count; i++) {
        const eni_thread_streams *thread = &profile->private_->threads[i];
        for (size_t k = 0; k < record_count(thread); k++) {
            if (thread->event_of[k] != ENI_NONE) {
                order[count++] = (rank){profile->events[thread->event_of[k]].start_ns, thread->event_of[k]};
            }
        }
    }
    for (size_t i = 0; i < profile->event_count; i++) {
        profile->events[i].self_ns = eni_event_duration_ns(&profile->events[i]);
        covered_to[i] = 0;
    }
    enigma_status status = ranks_sort(order, count);
    for (size_t i = 0; i < count && status == ENIGMA_OK; i++) {
        cover(profile, covered_to, order[i].event);
    }
    eni_free(order, (profile->event_count + 1) * sizeof *order);
    return status;
}

static enigma_status take_parents(enigma_profile *profile)
{
    bool foreign = false;
    uint64_t *covered_to = eni_alloc_zero((profile->event_count + 1) * sizeof *covered_to);
    if (covered_to == NULL) {
        return ENI_NO_MEMORY();
    }
    profile->follow = true;
    for (size_t i = 0; i < profile->thread_count; i++) {
        thread_parents(profile, (uint32_t)i, covered_to, &foreign);
    }
    enigma_status status = foreign ? cover_by_start(profile, covered_to) : ENIGMA_OK;
    eni_free(covered_to, (profile->event_count + 1) * sizeof *covered_to);
    return status;
}

/* ---- what is derived ---- */

static void add_gpu_time(enigma_profile *profile)
{
    for (size_t i = 0; i < profile->gpu_count; i++) {
        const eni_event *work = &profile->events[profile->gpu[i].event];
        if (profile->gpu[i].status != ENI_GPU_VALID) {
            continue;
        }
        for (uint32_t at = work->parent; at != ENI_NONE; at = profile->events[at].parent) {
            eni_event *scope = &profile->events[at];
            if (eni_event_held(scope, work)) {
                scope->gpu_ns += work->gpu_ns;
            }
        }
    }
}

static void add_counts(enigma_profile *profile)
{
    enigma_counts *counts = &profile->counts;
    counts->events = profile->event_count;
    counts->dropped = profile->header->dropped;
    counts->gpu_events = profile->gpu_count;
    for (size_t i = 0; i < profile->gpu_count; i++) {
        const eni_gpu_event *gpu = &profile->gpu[i];
        counts->gpu_unfinished += gpu->status == ENI_GPU_PENDING;
        counts->gpu_invalid += gpu->status != ENI_GPU_PENDING && gpu->status != ENI_GPU_VALID;
        counts->gpu_skewed += gpu->skew_ns != 0;
        if (gpu->status == ENI_GPU_VALID) {
            widen(profile, gpu->start_ns, gpu->end_ns);
        }
    }
}

static enigma_status take_threads(enigma_profile *profile)
{
    profile->threads = eni_alloc_zero((profile->thread_count + 1) * sizeof *profile->threads);
    if (profile->threads == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < profile->thread_count; i++) {
        const eni_thread_streams *from = &profile->private_->threads[i];
        profile->threads[i] = (eni_thread_info){from->thread_id, from->owner};
    }
    return ENIGMA_OK;
}

/* Events lie in room for all records; what open ones left over is given back. */
static void fit_events(enigma_profile *profile, size_t count)
{
    eni_event *events = eni_resize(profile->events, (profile->event_count + 1) * sizeof *events, (count + 1) * sizeof *events);
    if (events != NULL) {
        profile->events = events;
        profile->event_count = count;
    }
}

static enigma_status seal_events(enigma_profile *profile)
{
    seal_work work = {.sorted = true, .map = clock_map_of(profile)};
    profile->start_ns = UINT64_MAX; /* a stamp may be 0 */
    enigma_status status = take_events(profile, &work);
    eni_free(work.stack, work.stack_capacity * sizeof *work.stack);
    ENI_TRY(status);
    fit_events(profile, work.count);
    if (profile->event_count != work.count) {
        return ENI_NO_MEMORY();
    }
    profile->start_ns = work.count > 0 ? profile->start_ns : 0;
    return take_parents(profile);
}

/* Pieces that a clock can have: in order, and with a rate. */
static enigma_status check_clock(const enigma_profile *profile)
{
    clock_map map = clock_map_of(profile);
    for (uint32_t i = 0; i < map.count; i++) {
        bool later = i == 0 || map.pieces[i].ticks >= map.pieces[i - 1].ticks;
        if (!later || !(map.pieces[i].ns_per_tick > 0) || !(map.pieces[i].ns_per_tick < 1e6)) {
            return DAMAGED(profile, "clock piece", i);
        }
    }
    return ENIGMA_OK;
}

static enigma_status seal(enigma_profile *profile)
{
    ENI_TRY(find_streams(profile));
    ENI_TRY(check_clock(profile));
    ENI_TRY(take_categories(profile));
    ENI_TRY(take_devices(profile));
    ENI_TRY(take_launches(profile));
    ENI_TRY(take_nodes(profile));
    ENI_TRY(take_threads(profile));
    ENI_TRY(seal_events(profile));
    ENI_TRY(eni_seal_gpu(profile));
    add_gpu_time(profile);
    add_counts(profile);
    return ENIGMA_OK;
}

static void drop_work(enigma_profile *profile)
{
    for (size_t i = 0; i < profile->thread_count; i++) {
        eni_thread_streams *thread = &profile->private_->threads[i];
        size_t count = record_count(thread);
        eni_free(thread->event_of, count == 0 ? 1 : count * sizeof *thread->event_of);
        thread->event_of = NULL;
    }
}

static enigma_status header_check(const eni_image_header *header, size_t size, const char *name)
{
    if (size < sizeof *header || memcmp(header->magic, ENI_IMAGE_MAGIC, sizeof header->magic) != 0) {
        return ENI_FAIL(ENIGMA_E_FORMAT, "%s is not an enigma profile", name);
    }
    if (header->version != ENI_IMAGE_VERSION || header->header_size != sizeof *header) {
        return ENI_FAIL(ENIGMA_E_FORMAT, "%s has format version %u; this library reads version %u", name, header->version,
                        ENI_IMAGE_VERSION);
    }
    return ENIGMA_OK;
}

enigma_status eni_profile_from_image(uint8_t *image, size_t size, const char *name, enigma_profile **out)
{
    *out = NULL;
    enigma_status status = header_check((const eni_image_header *)(const void *)image, size, name);
    enigma_profile *profile = status == ENIGMA_OK ? ENI_NEW(enigma_profile) : NULL;
    if (profile != NULL) {
        profile->private_ = ENI_NEW(eni_profile_private);
    }
    if (profile == NULL || profile->private_ == NULL) {
        ENI_DELETE(profile);
        eni_free(image, size);
        return status == ENIGMA_OK ? ENI_NO_MEMORY() : status;
    }
    profile->references = 1;
    profile->image = image;
    profile->image_size = size;
    profile->header = (const eni_image_header *)(const void *)image;
    profile->private_->source = name;
    status = seal(profile);
    profile->private_->source = NULL;
    drop_work(profile);
    if (status != ENIGMA_OK) {
        enigma_profile_free(profile);
        return status;
    }
    *out = profile;
    return ENIGMA_OK;
}
