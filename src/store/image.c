/* Copying a journal out into an image while its threads go on recording.
 *
 * Order makes the copy consistent: records first, then the side blocks they refer to, then the shared streams, each of which
 * was published before what refers to it. Within a record `end` is read before what is final once it is set; a GPU block is
 * read from its status down, so that stamps under a final status are complete. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/journal.h"

typedef struct part_list {
    eni_image_part *parts;
    size_t count, capacity;
} part_list;

static bool parts_add(part_list *list, const eni_chunk *chunk, const uint8_t *data, uint64_t used)
{
    if (used == 0) {
        return true;
    }
    if (!eni_grow((void **)&list->parts, &list->capacity, list->count, sizeof *list->parts)) {
        return false;
    }
    list->parts[list->count++] = (eni_image_part){chunk, data, used};
    return true;
}

static bool parts_add_stream(part_list *list, const eni_stream *stream)
{
    for (size_t i = 0; i < stream->count; i++) {
        const eni_chunk *chunk = stream->chunks[i];
        uint64_t used = __atomic_load_n(&chunk->used, __ATOMIC_ACQUIRE);
        if (!parts_add(list, chunk, (const uint8_t *)(chunk + 1), used)) {
            return false;
        }
    }
    return true;
}

/* ---- building ---- */

static int part_order(const void *left, const void *right)
{
    const eni_image_part *a = left;
    const eni_image_part *b = right;
    if (a->chunk->stream != b->chunk->stream) {
        return a->chunk->stream < b->chunk->stream ? -1 : 1;
    }
    if (a->chunk->owner != b->chunk->owner) {
        return a->chunk->owner < b->chunk->owner ? -1 : 1;
    }
    return a->chunk->base < b->chunk->base ? -1 : a->chunk->base > b->chunk->base;
}

static bool same_stream(const eni_image_part *a, const eni_image_part *b)
{
    return a->chunk->stream == b->chunk->stream && a->chunk->owner == b->chunk->owner;
}

static void copy_records(uint64_t *to, const uint64_t *from, uint64_t size)
{
    for (uint64_t i = 0; i < size / 8; i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    }
}

static void copy_side(uint64_t *to, const uint64_t *from, uint64_t size)
{
    for (uint64_t i = size / 8; i > 0; i--) {
        to[i - 1] = __atomic_load_n(&from[i - 1], __ATOMIC_ACQUIRE);
    }
}

static void part_copy(uint8_t *to, const eni_image_part *part)
{
    if (part->chunk->stream == ENI_STREAM_RECORDS) {
        copy_records((uint64_t *)(void *)to, (const uint64_t *)(const void *)part->data, part->used);
    } else if (part->chunk->stream == ENI_STREAM_SIDE) {
        copy_side((uint64_t *)(void *)to, (const uint64_t *)(const void *)part->data, part->used);
    } else {
        memcpy(to, part->data, part->used);
    }
}

static enigma_status image_size(const eni_image_part *parts, size_t count, size_t *out)
{
    size_t size = sizeof(eni_image_header);
    for (size_t i = 0; i < count; i++) {
        size_t add = (i == 0 || !same_stream(&parts[i - 1], &parts[i])) ? sizeof(eni_chunk) : 0;
        if (__builtin_add_overflow(size, add, &size) || __builtin_add_overflow(size, (size_t)parts[i].used, &size)) {
            return ENI_NO_MEMORY();
        }
    }
    *out = size;
    return ENIGMA_OK;
}

/* Parts must not overlap or leave gaps within a stream; used is a multiple of 8. */
static enigma_status parts_check(const eni_image_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool first = i == 0 || !same_stream(&parts[i - 1], &parts[i]);
        uint64_t expected = first ? 0 : parts[i - 1].chunk->base + parts[i - 1].used;
        if (parts[i].chunk->base != expected || parts[i].used % 8 != 0) {
            return ENI_FAIL(ENIGMA_E_FORMAT, "stream %u of owner %u is damaged at offset %llu", parts[i].chunk->stream,
                            parts[i].chunk->owner, (unsigned long long)parts[i].chunk->base);
        }
    }
    return ENIGMA_OK;
}

enigma_status eni_image_build(const eni_image_header *header, eni_image_part *parts, size_t count, uint8_t **out, size_t *out_size)
{
    size_t size = 0;
    *out = NULL;
    *out_size = 0;
    if (count > 1) {
        qsort(parts, count, sizeof *parts, part_order);
    }
    ENI_TRY(parts_check(parts, count));
    ENI_TRY(image_size(parts, count, &size));
    uint8_t *image = eni_alloc(size);
    if (image == NULL) {
        return ENI_NO_MEMORY();
    }
    memcpy(image, header, sizeof *header);
    uint8_t *at = image + sizeof *header;
    eni_chunk *chunk = NULL;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || !same_stream(&parts[i - 1], &parts[i])) {
            chunk = (eni_chunk *)(void *)at;
            *chunk = (eni_chunk){.magic = ENI_CHUNK_MAGIC,
                                 .stream = parts[i].chunk->stream,
                                 .owner = parts[i].chunk->owner,
                                 .thread_id = parts[i].chunk->thread_id};
            at += sizeof *chunk;
        }
        part_copy(at, &parts[i]);
        at += parts[i].used;
        chunk->used += parts[i].used;
        chunk->capacity = chunk->used;
    }
    *out = image;
    *out_size = size;
    return ENIGMA_OK;
}

/* ---- copying a journal ---- */

/* Pieces are the clock's; they are laid into the image as a stream like the others. */
typedef struct pieces_part {
    eni_chunk chunk;
    eni_clock_piece *pieces;
    uint32_t count;
} pieces_part;

static bool pieces_take(pieces_part *part)
{
    part->count = eni_clock_pieces(NULL, 0);
    part->pieces = eni_alloc_zero((part->count + 1) * sizeof *part->pieces);
    if (part->pieces == NULL) {
        return false;
    }
    eni_clock_pieces(part->pieces, part->count);
    part->chunk = (eni_chunk){.magic = ENI_CHUNK_MAGIC, .stream = ENI_STREAM_PIECES};
    return true;
}

/* The list of lanes and their record chunks as they are now; side and shared streams are listed after the records were read. */
static bool parts_add_lanes(part_list *list, eni_journal *journal, bool records)
{
    bool ok = true;
    eni_lock(&journal->lock);
    for (eni_lane *lane = journal->lanes; lane != NULL && ok; lane = lane->next_lane) {
        ok = parts_add_stream(list, records ? &lane->records : &lane->side);
    }
    eni_unlock(&journal->lock);
    return ok;
}

static bool parts_add_shared(part_list *list, eni_journal *journal)
{
    bool ok = true;
    eni_lock(&journal->lock);
    for (size_t kind = 0; kind < ENI_STREAM_RECORDS && ok; kind++) {
        ok = parts_add_stream(list, &journal->shared[kind]);
    }
    eni_unlock(&journal->lock);
    return ok;
}

/* A private copy of what records refer by: their bytes, read before anything else is listed. */
static uint8_t *records_take(part_list *list, size_t *size)
{
    *size = 0;
    for (size_t i = 0; i < list->count; i++) {
        *size += list->parts[i].used;
    }
    uint8_t *copy = eni_alloc(*size == 0 ? 1 : *size);
    uint8_t *at = copy;
    for (size_t i = 0; i < list->count && copy != NULL; i++) {
        part_copy(at, &list->parts[i]);
        list->parts[i].data = at;
        at += list->parts[i].used;
    }
    return copy;
}

enigma_status eni_journal_image(eni_journal *journal, const eni_image_options *options, uint8_t **image, size_t *size)
{
    part_list list = {NULL, 0, 0};
    pieces_part pieces = {.pieces = NULL};
    uint8_t *records = NULL;
    size_t records_size = 0;
    enigma_status status = ENIGMA_E_NO_MEMORY;
    *image = NULL;
    *size = 0;
    if (!parts_add_lanes(&list, journal, true) || (records = records_take(&list, &records_size)) == NULL ||
        !parts_add_lanes(&list, journal, false) || !parts_add_shared(&list, journal) || !pieces_take(&pieces) ||
        !parts_add(&list, &pieces.chunk, (const uint8_t *)pieces.pieces, pieces.count * sizeof *pieces.pieces)) {
        status = ENI_NO_MEMORY();
        goto done;
    }
    eni_image_header header = {.magic = ENI_IMAGE_MAGIC,
                               .version = ENI_IMAGE_VERSION,
                               .header_size = sizeof header,
                               .pid = options->pid,
                               .flags = options->flags,
                               .dropped = __atomic_load_n(&journal->dropped, __ATOMIC_RELAXED),
                               .end_ticks = options->end_ticks};
    status = eni_image_build(&header, list.parts, list.count, image, size);
done:
    eni_free(records, records_size == 0 ? 1 : records_size);
    eni_free(pieces.pieces, (pieces.count + 1) * sizeof *pieces.pieces);
    eni_free(list.parts, list.capacity * sizeof *list.parts);
    return status;
}
