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

/* An image that grows. */
typedef struct builder {
    uint8_t *image;
    size_t size, capacity;
} builder;

static enigma_status builder_reserve(builder *to, size_t capacity)
{
    if (capacity <= to->capacity) {
        return ENIGMA_OK;
    }
    uint8_t *image = eni_resize(to->image, to->capacity, capacity);
    if (image == NULL) {
        return ENI_NO_MEMORY();
    }
    to->image = image;
    to->capacity = capacity;
    return ENIGMA_OK;
}

/* What parts take in an image: their bytes and a header for each stream. */
static enigma_status parts_size(const eni_image_part *parts, size_t count, size_t *size)
{
    for (size_t i = 0; i < count; i++) {
        size_t add = (i == 0 || !same_stream(&parts[i - 1], &parts[i])) ? sizeof(eni_chunk) : 0;
        if (__builtin_add_overflow(*size, add, size) || __builtin_add_overflow(*size, (size_t)parts[i].used, size)) {
            return ENI_NO_MEMORY();
        }
    }
    return ENIGMA_OK;
}

/* Appends whole streams. */
static enigma_status builder_add(builder *to, eni_image_part *parts, size_t count)
{
    size_t size = to->size;
    if (count > 1) {
        qsort(parts, count, sizeof *parts, part_order);
    }
    ENI_TRY(parts_check(parts, count));
    ENI_TRY(parts_size(parts, count, &size));
    ENI_TRY(builder_reserve(to, size));
    eni_chunk *chunk = NULL;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || !same_stream(&parts[i - 1], &parts[i])) {
            chunk = (eni_chunk *)(void *)(to->image + to->size);
            *chunk = (eni_chunk){.magic = ENI_CHUNK_MAGIC,
                                 .stream = parts[i].chunk->stream,
                                 .owner = parts[i].chunk->owner,
                                 .thread_id = parts[i].chunk->thread_id};
            to->size += sizeof *chunk;
        }
        part_copy(to->image + to->size, &parts[i]);
        to->size += parts[i].used;
        chunk->used += parts[i].used;
        chunk->capacity = chunk->used;
    }
    return ENIGMA_OK;
}

static enigma_status builder_begin(builder *to, const eni_image_header *header, size_t expected)
{
    *to = (builder){NULL, 0, 0};
    ENI_TRY(builder_reserve(to, sizeof *header + expected));
    memcpy(to->image, header, sizeof *header);
    to->size = sizeof *header;
    return ENIGMA_OK;
}

/* Hands the image over, or gives it up where something failed. */
static enigma_status builder_end(builder *from, enigma_status status, uint8_t **image, size_t *size)
{
    uint8_t *fitting = status == ENIGMA_OK ? eni_resize(from->image, from->capacity, from->size) : NULL;
    if (fitting == NULL) {
        eni_free(from->image, from->capacity);
        return status == ENIGMA_OK ? ENI_NO_MEMORY() : status;
    }
    *image = fitting;
    *size = from->size;
    return ENIGMA_OK;
}

enigma_status eni_image_build(const eni_image_header *header, eni_image_part *parts, size_t count, uint8_t **image, size_t *size)
{
    builder to;
    *image = NULL;
    *size = 0;
    enigma_status status = builder_begin(&to, header, 0);
    if (status == ENIGMA_OK) {
        status = builder_add(&to, parts, count);
    }
    return builder_end(&to, status, image, size);
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

static enigma_status add_list(builder *to, part_list *list, bool listed)
{
    return listed ? builder_add(to, list->parts, list->count) : ENI_NO_MEMORY();
}

static enigma_status add_records(builder *to, eni_journal *journal)
{
    part_list list = {NULL, 0, 0};
    enigma_status status = add_list(to, &list, parts_add_lanes(&list, journal, true));
    eni_free(list.parts, list.capacity * sizeof *list.parts);
    return status;
}

/* Everything that records refer to, listed after they were copied. */
static enigma_status add_referred(builder *to, eni_journal *journal)
{
    part_list list = {NULL, 0, 0};
    pieces_part pieces = {.pieces = NULL};
    bool listed = parts_add_lanes(&list, journal, false) && parts_add_shared(&list, journal) && pieces_take(&pieces) &&
                  parts_add(&list, &pieces.chunk, (const uint8_t *)pieces.pieces, pieces.count * sizeof *pieces.pieces);
    enigma_status status = add_list(to, &list, listed);
    eni_free(pieces.pieces, (pieces.count + 1) * sizeof *pieces.pieces);
    eni_free(list.parts, list.capacity * sizeof *list.parts);
    return status;
}

enigma_status eni_journal_image(eni_journal *journal, const eni_image_options *options, uint8_t **image, size_t *size)
{
    const eni_image_header header = {.magic = ENI_IMAGE_MAGIC,
                                     .version = ENI_IMAGE_VERSION,
                                     .header_size = sizeof header,
                                     .pid = options->pid,
                                     .flags = options->flags,
                                     .dropped = __atomic_load_n(&journal->dropped, __ATOMIC_RELAXED),
                                     .end_ticks = options->end_ticks};
    builder to;
    *image = NULL;
    *size = 0;
    enigma_status status = builder_begin(&to, &header, 0);
    if (status == ENIGMA_OK) {
        status = add_records(&to, journal);
    }
    if (status == ENIGMA_OK) {
        status = add_referred(&to, journal);
    }
    return builder_end(&to, status, image, size);
}
