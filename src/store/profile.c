/* Reading a sealed profile: names, side blocks, metrics, metadata, and the public accessors of section 8. */
#include "store/profile.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "store/seal.h"

/* ---- names and side blocks ---- */

bool eni_profile_name(const enigma_profile *profile, uint32_t name, enigma_text *out)
{
    const eni_span *span = &profile->private_->shared[ENI_STREAM_NAMES];
    uint64_t at = (uint64_t)name * 8;
    uint32_t size;
    *out = (enigma_text){NULL, 0};
    if (name == 0 || at + sizeof size >= span->size) {
        return false;
    }
    memcpy(&size, span->data + at, sizeof size);
    if (span->size - at - sizeof size <= size || span->data[at + sizeof size + size] != 0) {
        return false;
    }
    *out = (enigma_text){(const char *)span->data + at + sizeof size, size};
    return true;
}

const eni_side_block *eni_side_at(const eni_thread_streams *thread, uint32_t offset)
{
    uint64_t at = (uint64_t)offset * 8;
    if (offset == 0 || at + sizeof(eni_side_block) > thread->side.size) {
        return NULL;
    }
    const eni_side_block *block = (const eni_side_block *)(const void *)(thread->side.data + at);
    size_t size = sizeof *block + (block->flags & ENI_SIDE_PARENT ? sizeof(uint64_t) : 0) +
                  (block->flags & ENI_SIDE_GPU ? sizeof(eni_gpu_block) : 0) + block->metrics * sizeof(eni_metric_entry) +
                  block->fields * sizeof(eni_field_entry);
    return at + size <= thread->side.size && block->next < offset ? block : NULL;
}

const uint64_t *eni_side_parent(const eni_side_block *block)
{
    return block->flags & ENI_SIDE_PARENT ? (const uint64_t *)(const void *)(block + 1) : NULL;
}

static const uint8_t *side_after_parent(const eni_side_block *block)
{
    return (const uint8_t *)(block + 1) + (block->flags & ENI_SIDE_PARENT ? sizeof(uint64_t) : 0);
}

const eni_gpu_block *eni_side_gpu(const eni_side_block *block)
{
    return block->flags & ENI_SIDE_GPU ? (const eni_gpu_block *)(const void *)side_after_parent(block) : NULL;
}

const eni_metric_entry *eni_side_metrics(const eni_side_block *block)
{
    const uint8_t *at = side_after_parent(block) + (block->flags & ENI_SIDE_GPU ? sizeof(eni_gpu_block) : 0);
    return (const eni_metric_entry *)(const void *)at;
}

const eni_field_entry *eni_side_fields(const eni_side_block *block)
{
    return (const eni_field_entry *)(const void *)(eni_side_metrics(block) + block->metrics);
}

/* ---- encoded fields ---- */

const uint8_t *eni_field_check(const enigma_profile *profile, const uint8_t *at, const uint8_t *end, uint32_t depth)
{
    eni_field_entry entry;
    enigma_text key;
    if ((size_t)(end - at) < sizeof entry || depth > ENI_FIELD_DEPTH + 1) {
        return NULL;
    }
    memcpy(&entry, at, sizeof entry);
    at += sizeof entry;
    if (entry.type > ENIGMA_DICT || (entry.key != 0 && !eni_profile_name(profile, entry.key, &key))) {
        return NULL;
    }
    if (entry.type == ENIGMA_TEXT) {
        bool fits = entry.payload < (size_t)(end - at) && eni_text_room(entry.payload) <= (size_t)(end - at);
        return fits && at[entry.payload] == 0 ? at + eni_text_room(entry.payload) : NULL;
    }
    if (entry.type >= ENIGMA_LIST) {
        for (uint64_t i = 0; i < entry.payload && at != NULL; i++) {
            at = eni_field_check(profile, at, end, depth + 1);
        }
    }
    return at;
}

const enigma_field *eni_field_decode(const enigma_profile *profile, eni_arena *arena, const uint8_t *at, size_t count,
                                     const uint8_t **next)
{
    *next = at;
    enigma_field *fields = count > SIZE_MAX / sizeof *fields ? NULL : eni_arena_alloc(arena, count * sizeof *fields + 1);
    for (size_t i = 0; fields != NULL && i < count; i++) {
        eni_field_entry entry;
        memcpy(&entry, *next, sizeof entry);
        *next += sizeof entry;
        fields[i].value.type = entry.type;
        eni_profile_name(profile, entry.key, &fields[i].key);
        if (entry.type == ENIGMA_TEXT) {
            fields[i].value.as.text = (enigma_text){(const char *)*next, (size_t)entry.payload};
            *next += eni_text_room(entry.payload);
        } else if (entry.type >= ENIGMA_LIST) {
            const enigma_field *items = eni_field_decode(profile, arena, *next, (size_t)entry.payload, next);
            if (items == NULL) {
                return NULL;
            }
            fields[i].value.as.items = (enigma_items){items, (size_t)entry.payload};
        } else {
            memcpy(&fields[i].value.as, &entry.payload, sizeof entry.payload);
        }
    }
    return fields;
}

/* ---- metrics ---- */

/* Of several blocks each step begins at the newest, to which the event points. */
static const eni_side_block *nth_block(const eni_thread_streams *thread, const eni_side_block *block, uint32_t skip)
{
    for (; skip > 0; skip--) {
        block = eni_side_at(thread, block->next);
    }
    return block;
}

/* Moves to the next side block in the order of writing; NULL at the end. Blocks are linked newest first; most events have one. */
static const eni_side_block *next_block(const enigma_profile *profile, const eni_event *event, eni_cursor *cursor)
{
    if (cursor->started && cursor->left == 0) {
        return NULL;
    }
    const eni_thread_streams *thread = &profile->private_->threads[event->thread];
    const eni_side_block *newest = eni_side_at(thread, event->side);
    if (!cursor->started) {
        cursor->started = 1;
        for (const eni_side_block *b = newest; b != NULL; b = b->next == 0 ? NULL : eni_side_at(thread, b->next)) {
            cursor->left++;
        }
    }
    return cursor->left == 0 ? NULL : nth_block(thread, newest, --cursor->left);
}

const eni_metric_entry *eni_profile_next_metrics(const enigma_profile *profile, const eni_event *event, eni_cursor *cursor,
                                                 size_t *count)
{
    const eni_side_block *block = NULL;
    if (!cursor->started && event->side != 0) { /* most have one block */
        block = eni_side_at(&profile->private_->threads[event->thread], event->side);
        if (block != NULL && block->next == 0) {
            cursor->started = 1;
            *count = block->metrics;
            return block->metrics == 0 ? NULL : eni_side_metrics(block);
        }
    }
    while (event->side != 0 && (block = next_block(profile, event, cursor)) != NULL) {
        if (block->metrics != 0) {
            *count = block->metrics;
            return eni_side_metrics(block);
        }
    }
    *count = 0;
    return NULL;
}

bool eni_profile_next_metric(const enigma_profile *profile, const eni_event *event, eni_cursor *cursor, enigma_text *key,
                             double *value)
{
    if (cursor->index == cursor->count) {
        cursor->entries = eni_profile_next_metrics(profile, event, cursor, &cursor->count);
        cursor->index = 0;
        if (cursor->entries == NULL) {
            return false;
        }
    }
    const eni_metric_entry *metric = &cursor->entries[cursor->index++];
    eni_profile_name(profile, metric->key, key);
    *value = metric->value;
    return true;
}

/* ---- metadata ---- */

const char *eni_gpu_status_text(uint32_t status)
{
    static const char *const texts[ENI_GPU_STATUS_COUNT] = {
        [ENI_GPU_PENDING] = "unfinished",
        [ENI_GPU_VALID] = NULL,
        [ENI_GPU_UNAVAILABLE] = "not available",
        [ENI_GPU_REVERSED] = "end before start",
        [ENI_GPU_ZERO] = "a stamp is 0",
        [ENI_GPU_ALL_ONES] = "a stamp is all ones",
        [ENI_GPU_FAILED] = "the command failed",
    };
    return status < ENI_GPU_STATUS_COUNT ? texts[status] : "unknown";
}

/* A list of fields that grows in an arena. */
typedef struct field_list {
    eni_arena *arena;
    enigma_field *fields;
    size_t count, capacity;
    eni_intern keys; /* once there are many: the number of a key is the index of its field */
    bool failed;
} field_list;

#define FEW_FIELDS 32 /* looked through one by one */

/* The index of a key; list->count: it is not there. */
static size_t list_find(field_list *list, enigma_text key)
{
    size_t at = 0;
    if (list->count < FEW_FIELDS) {
        while (at < list->count && !eni_text_equal(list->fields[at].key, key)) {
            at++;
        }
        return at;
    }
    while (list->keys.count < list->count && !list->failed) {
        list->failed = eni_intern_put(&list->keys, list->fields[list->keys.count].key) == ENI_INTERN_NONE;
    }
    at = eni_intern_find(&list->keys, key);
    return at < list->count ? at : list->count;
}

static void list_put(field_list *list, enigma_text key, enigma_value value)
{
    size_t at = list_find(list, key);
    if (at < list->count) {
        list->fields[at].value = value; /* the later wins, as in a dict */
        return;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 8 : list->capacity * 2;
        enigma_field *fields = eni_arena_alloc(list->arena, capacity * sizeof *fields);
        if (fields == NULL) {
            list->failed = true;
            return;
        }
        if (list->count != 0) {
            memcpy(fields, list->fields, list->count * sizeof *fields);
        }
        list->fields = fields;
        list->capacity = capacity;
    }
    list->fields[list->count++] = (enigma_field){key, value};
}

static void list_put_text(field_list *list, const char *key, const char *text)
{
    enigma_text copy;
    if (!eni_arena_text(list->arena, eni_text_of(text), &copy)) {
        list->failed = true;
        return;
    }
    list_put(list, eni_text_of(key), (enigma_value){ENIGMA_TEXT, {.text = copy}});
}

static void list_put_all(field_list *list, const enigma_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        list_put(list, fields[i].key, fields[i].value);
    }
}

static void put_written(field_list *list, const enigma_profile *profile, const eni_event *event)
{
    const eni_span *side = &profile->private_->threads[event->thread].side;
    const eni_side_block *block;
    eni_cursor cursor = {0};
    while (!list->failed && event->side != 0 && (block = next_block(profile, event, &cursor)) != NULL) {
        const uint8_t *at = (const uint8_t *)eni_side_fields(block);
        for (uint32_t k = 0; k < block->fields; k++) {
            const uint8_t *next = eni_field_check(profile, at, side->data + side->size, 0);
            const enigma_field *field = next == NULL ? NULL : eni_field_decode(profile, list->arena, at, 1, &next);
            if (field == NULL) {
                list->failed = next != NULL;
                break;
            }
            list_put(list, field->key, field->value);
            at = next;
        }
    }
}

/* A DICT in FIELDS, decoded. */
static bool shared_fields(const enigma_profile *profile, eni_arena *arena, uint32_t offset, enigma_items *out)
{
    const uint8_t *next;
    *out = (enigma_items){NULL, 0};
    if (offset == 0) {
        return true;
    }
    const uint8_t *at = profile->private_->shared[ENI_STREAM_FIELDS].data + (size_t)offset * 8;
    const enigma_field *dict = eni_field_decode(profile, arena, at, 1, &next);
    if (dict == NULL) {
        return false;
    }
    if (dict->value.type == ENIGMA_DICT) {
        *out = dict->value.as.items;
    }
    return true;
}

static void put_gpu(field_list *list, const enigma_profile *profile, const eni_event *event)
{
    const eni_gpu_event *gpu = &profile->gpu[event->gpu];
    enigma_items shared;
    if (!shared_fields(profile, list->arena, profile->launches[gpu->launch].fields, &shared)) {
        list->failed = true;
        return;
    }
    list_put_all(list, shared.data, shared.count);
    if (gpu->queue_wait_us >= 0) {
        list_put(list, eni_text_of("queue_wait_us"), (enigma_value){ENIGMA_DOUBLE, {.number = gpu->queue_wait_us}});
    }
    if (gpu->status != ENI_GPU_VALID) {
        list_put_text(list, "gpu_time", eni_gpu_status_text(gpu->status));
    }
    if (gpu->skew_ns != 0) {
        char text[80];
        snprintf(text, sizeof text, "skew: starts %.3f us before its launch", gpu->skew_ns / 1000.0);
        list_put_text(list, "gpu_clock", text);
    }
}

enigma_status eni_profile_device_facts(const enigma_profile *profile, size_t device, eni_arena *arena, enigma_items *out)
{
    return shared_fields(profile, arena, profile->devices[device].fields, out) ? ENIGMA_OK : ENI_NO_MEMORY();
}

bool eni_profile_has_metadata(const enigma_profile *profile, const eni_event *event)
{
    const eni_side_block *block;
    eni_cursor cursor = {0};
    if (event->gpu != ENI_NONE || (event->flags & ENI_RECORD_UNFINISHED) != 0) {
        return true;
    }
    while (event->side != 0 && (block = next_block(profile, event, &cursor)) != NULL) {
        if (block->fields != 0) {
            return true;
        }
    }
    return false;
}

enigma_status eni_profile_metadata(const enigma_profile *profile, const eni_event *event, eni_arena *arena,
                                   const enigma_field **fields, size_t *count)
{
    field_list list = {.arena = arena};
    put_written(&list, profile, event);
    if (event->gpu != ENI_NONE) {
        put_gpu(&list, profile, event);
    }
    if (event->flags & ENI_RECORD_UNFINISHED) {
        list_put(&list, eni_text_of("unfinished"), (enigma_value){ENIGMA_BOOL, {.integer = 1}});
    }
    *fields = list.fields;
    *count = list.failed ? 0 : list.count;
    eni_intern_free(&list.keys);
    return list.failed ? ENI_NO_MEMORY() : ENIGMA_OK;
}

/* ---- the public accessors ---- */

size_t enigma_profile_event_count(const enigma_profile *profile) { return profile->event_count; }

/* What an event that was handed out points to, of each thread. */
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void scratch_free(void *arena)
{
    eni_arena_free(arena);
    eni_free(arena, sizeof(eni_arena));
}

static void scratch_init(void) { pthread_key_create(&scratch_key, scratch_free); }

static eni_arena *scratch(void)
{
    pthread_once(&scratch_once, scratch_init);
    eni_arena *arena = pthread_getspecific(scratch_key);
    if (arena == NULL) {
        arena = ENI_NEW(eni_arena);
        if (arena != NULL && pthread_setspecific(scratch_key, arena) != 0) {
            ENI_DELETE(arena);
            arena = NULL;
        }
    }
    if (arena != NULL) {
        eni_arena_reset(arena);
    }
    return arena;
}

static enigma_status put_metrics(const enigma_profile *profile, const eni_event *event, eni_arena *arena, enigma_event *out)
{
    eni_cursor cursor = {0};
    enigma_text key;
    double value;
    size_t count = 0;
    while (eni_profile_next_metric(profile, event, &cursor, &key, &value)) {
        count++;
    }
    enigma_metric *metrics = eni_arena_alloc(arena, count * sizeof *metrics + 1);
    if (metrics == NULL) {
        return ENI_NO_MEMORY();
    }
    cursor = (eni_cursor){0};
    for (size_t i = 0; i < count && eni_profile_next_metric(profile, event, &cursor, &key, &value); i++) {
        metrics[i] = (enigma_metric){key.data == NULL ? "" : key.data, value};
    }
    out->metrics = metrics;
    out->metric_count = count;
    return ENIGMA_OK;
}

static void put_launch(const enigma_profile *profile, const eni_event *event, enigma_event *out)
{
    const eni_gpu_event *gpu = &profile->gpu[event->gpu];
    const eni_launch *launch = &profile->launches[gpu->launch];
    out->is_gpu_work = 1;
    out->gpu_time_us = gpu->time_us;
    out->gpu_start_ns = gpu->start_ns;
    out->gpu_end_ns = gpu->end_ns;
    out->gpu_start_raw = gpu->start_raw;
    out->gpu_end_raw = gpu->end_raw;
    out->grid = (enigma_size3){launch->grid[0], launch->grid[1], launch->grid[2]};
    out->threads = (enigma_size3){launch->threads[0], launch->threads[1], launch->threads[2]};
    out->input_bytes = launch->input_bytes;
    out->output_bytes = launch->output_bytes;
    out->buffer_count = launch->buffer_count;
    out->queue_id = launch->queue;
    out->device_id = launch->device_id;
}

enigma_status enigma_profile_event(const enigma_profile *profile, size_t index, enigma_event *out)
{
    if (index >= profile->event_count) {
        return ENI_FAIL(ENIGMA_E_INVALID, "event %zu of %zu", index, profile->event_count);
    }
    const eni_event *event = &profile->events[index];
    const eni_node_info *node = &profile->nodes[event->node];
    eni_arena *arena = scratch();
    enigma_event full = {.struct_size = out->struct_size,
                         .name = node->name,
                         .category = profile->categories[event->category],
                         .kernel_name = node->kernel,
                         .path = event->node,
                         .start_ns = event->start_ns,
                         .end_ns = event->end_ns,
                         .gpu_time_us = (double)event->gpu_ns / 1000.0,
                         .self_us = (double)event->self_ns / 1000.0,
                         .thread_id = profile->threads[event->thread].thread_id};
    if (event->gpu != ENI_NONE) {
        put_launch(profile, event, &full);
    }
    if (arena == NULL) {
        return ENI_NO_MEMORY();
    }
    ENI_TRY(put_metrics(profile, event, arena, &full));
    ENI_TRY(eni_profile_metadata(profile, event, arena, &full.metadata, &full.metadata_count));
    memcpy(out, &full, out->struct_size < sizeof full ? out->struct_size : sizeof full);
    return ENIGMA_OK;
}

size_t enigma_profile_path_depth(const enigma_profile *profile, enigma_path path)
{
    return path < profile->node_count ? profile->nodes[path].depth : 0;
}

size_t enigma_profile_call_depth(const enigma_profile *profile, enigma_path path)
{
    return path < profile->node_count ? profile->nodes[path].call_depth : 0;
}

size_t enigma_profile_path_names(const enigma_profile *profile, enigma_path path, enigma_text *out, size_t capacity)
{
    size_t depth = enigma_profile_path_depth(profile, path);
    for (size_t level = depth; level > 0; level--) {
        if (level <= capacity) {
            out[level - 1] = profile->nodes[path].label;
        }
        path = profile->nodes[path].parent;
    }
    return depth < capacity ? depth : capacity;
}

void enigma_profile_get_counts(const enigma_profile *profile, enigma_counts *out)
{
    uint32_t size = out->struct_size;
    memcpy(out, &profile->counts, size < sizeof *out ? size : sizeof *out);
    out->struct_size = size;
}

static const char *clock_name(const enigma_profile *profile)
{
    size_t pieces = profile->private_->shared[ENI_STREAM_PIECES].size;
    return pieces == 0 ? "CLOCK_MONOTONIC" : "counter mapped to CLOCK_MONOTONIC";
}

int enigma_profile_fact(const enigma_profile *profile, size_t index, enigma_field *out)
{
    eni_arena *arena = scratch();
    if (index == 0) {
        *out = (enigma_field){eni_text_of("clock"), {ENIGMA_TEXT, {.text = eni_text_of(clock_name(profile))}}};
        return 1;
    }
    if (index == 1) {
        *out = (enigma_field){eni_text_of("pid"), {ENIGMA_INT, {.integer = profile->header->pid}}};
        return 1;
    }
    if (arena == NULL || index - 2 >= profile->device_count) {
        return 0;
    }
    *out = (enigma_field){eni_text_of("device"), {ENIGMA_DICT, {.items = {NULL, 0}}}};
    return shared_fields(profile, arena, profile->devices[index - 2].fields, &out->value.as.items);
}

/* ---- life ---- */

const enigma_profile *eni_profile_retain(const enigma_profile *profile)
{
    __atomic_fetch_add((int32_t *)&profile->references, 1, __ATOMIC_RELAXED);
    return profile;
}

void enigma_profile_free(enigma_profile *profile)
{
    if (profile == NULL || __atomic_sub_fetch(&profile->references, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    eni_profile_private *own = profile->private_;
    eni_free(profile->events, (profile->event_count + 1) * sizeof *profile->events);
    eni_free(profile->gpu, own->gpu_capacity * sizeof *profile->gpu);
    eni_free(profile->nodes, profile->node_count * sizeof *profile->nodes);
    eni_free(profile->threads, (profile->thread_count + 1) * sizeof *profile->threads);
    eni_free(profile->categories, (profile->category_count + 1) * sizeof *profile->categories);
    eni_intern_free(&own->labels);
    eni_free(own->threads, own->thread_capacity * sizeof *own->threads);
    ENI_DELETE(own);
    eni_free(profile->image, profile->image_size);
    ENI_DELETE(profile);
}
