/* Takes CUPTI's records in, small: what many have in common is kept once. On whichever thread CUPTI hands them out, between
 * batch_begin and batch_end. */
#include <string.h>

#include "attach/cuda.h"
#include "base/str.h"

eni_tap_queue eni_tap_queue_ = {.lock = ENI_MUTEX_INIT, .nodes = {.entry_size = sizeof(eni_tap_node)}};

void eni_tap_batch_begin(void) { eni_lock(&eni_tap_queue_.lock); }

void eni_tap_batch_end(void) { eni_unlock(&eni_tap_queue_.lock); }

/* A kernel's records mostly bring the same pointer. */
static uint32_t name_id(eni_tap_queue *queue, const char *name)
{
    if (name == NULL) {
        return ENI_INTERN_NONE;
    }
    size_t slot = ((uintptr_t)name >> 4 ^ (uintptr_t)name >> 10) & (ENI_COUNT_OF(queue->recent) - 1);
    if (queue->recent[slot] == name) {
        uint32_t id = queue->recent_ids[slot];
        if (strcmp(eni_intern_text(&queue->names, id).data, name) == 0) {
            return id;
        }
    }
    uint32_t id = eni_intern_put(&queue->names, eni_text_of(name));
    if (id != ENI_INTERN_NONE) {
        queue->recent[slot] = name;
        queue->recent_ids[slot] = id;
    }
    return id;
}

static void shape_of(eni_tap_queue *queue, const eni_cupti_record *record, eni_tap_shape *out)
{
    memset(out, 0, sizeof *out);
    out->family = record->family;
    out->device = record->device;
    out->context = record->context;
    out->stream = record->stream;
    out->name = ENI_INTERN_NONE;
    switch (record->family) {
    case ENI_CUPTI_KERNEL:
        out->name = name_id(queue, record->as.kernel.name);
        memcpy(out->grid, record->as.kernel.grid, sizeof out->grid);
        memcpy(out->block, record->as.kernel.block, sizeof out->block);
        out->registers = record->as.kernel.registers;
        out->static_bytes = record->as.kernel.static_bytes;
        out->dynamic_bytes = record->as.kernel.dynamic_bytes;
        break;
    case ENI_CUPTI_MEMCPY:
        out->bytes = record->as.copy.bytes;
        out->kind = record->as.copy.kind;
        out->source_device = record->as.copy.source_device;
        out->target_device = record->as.copy.target_device;
        break;
    default:
        out->bytes = record->as.fill.bytes;
        out->kind = record->as.fill.value;
        break;
    }
}

/* The number of a shape by a 64-bit hash of all of it: among a million shapes the odds of one clash are 3 in 10^8. */
static uint32_t shape_id(eni_tap_queue *queue, const eni_tap_shape *shape)
{
    uint64_t hash = eni_text_hash((enigma_text){(const char *)shape, sizeof *shape});
    uint32_t *id = eni_map_put(&queue->shape_ids, hash, UINT32_MAX);
    if (id == NULL) {
        return UINT32_MAX;
    }
    if (*id == UINT32_MAX &&
        eni_grow((void **)&queue->shapes, &queue->shape_capacity, queue->shape_count, sizeof *queue->shapes)) {
        *id = (uint32_t)queue->shape_count;
        queue->shapes[queue->shape_count++] = *shape;
    }
    return *id;
}

/* Room at the end of the queue; NULL: no memory. */
static eni_tap_record *room(eni_tap_queue *queue)
{
    eni_tap_block *last = queue->last;
    if (last == NULL || last->count == ENI_TAP_BLOCK_RECORDS) {
        eni_tap_block *more = eni_alloc(sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        more->next = NULL;
        more->count = more->read = 0;
        *(last == NULL ? &queue->first : &last->next) = more;
        queue->last = last = more;
    }
    return &last->records[last->count];
}

void eni_tap_record_arrived(const eni_cupti_record *record)
{
    eni_tap_queue *queue = &eni_tap_queue_;
    eni_tap_shape shape;
    shape_of(queue, record, &shape);
    uint32_t id = shape_id(queue, &shape);
    eni_tap_record *to = id == UINT32_MAX ? NULL : room(queue);
    if (to == NULL) {
        queue->lost++;
        return;
    }
    *to = (eni_tap_record){record->start_ns, record->end_ns, record->graph_node, record->correlation, id,
                           record->graph,    record->time};
    queue->last->count++;
}
