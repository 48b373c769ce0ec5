/* .enigma files: a profile's image as it is, so a file that was saved whole is sealed where it was read. One whose chunks lie
 * otherwise (several of a stream, room left in them) is gathered into an image first.
 *
 * A file that is not complete may be written at this moment. It is read like a live journal: records first, then what they refer to,
 * stage by stage; by read(), since the writer may cut the file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sink.h"
#include "store/journal.h"
#include "store/profile.h"

static enigma_status save_body(eni_sink *sink, const void *arg)
{
    const enigma_profile *profile = arg;
    eni_sink_write(sink, profile->image, profile->image_size);
    return ENIGMA_OK;
}

enigma_status enigma_profile_save(const enigma_profile *profile, const char *path)
{
    return eni_sink_file(path, save_body, profile);
}

/* Room for a file whose size the system knows, and a byte that finds its end; pipes and the like grow from little. */
static size_t expected_size(FILE *file)
{
    struct stat info;
    return fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size + 1 : 65536;
}

/* Reads what is left of a file; free with eni_free(data, capacity). */
static enigma_status read_all(FILE *file, const char *path, uint8_t **out, size_t *capacity, size_t *size)
{
    *out = NULL;
    *capacity = *size = 0;
    enigma_status status = ENIGMA_OK;
    for (;;) {
        if (*size == *capacity) {
            size_t wanted = *capacity == 0 ? expected_size(file) : *capacity * 2;
            uint8_t *data = eni_resize(*out, *capacity, wanted);
            if (data == NULL) {
                status = ENI_NO_MEMORY();
                break;
            }
            *out = data;
            *capacity = wanted;
        }
        size_t got = fread(*out + *size, 1, *capacity - *size, file);
        *size += got;
        if (got == 0) {
            status = ferror(file) ? eni_error_io(errno, "cannot read", path) : ENIGMA_OK;
            break;
        }
    }
    return status;
}

static enigma_status file_parts(const uint8_t *data, size_t size, const char *path, eni_image_part **parts, size_t *capacity,
                                size_t *count)
{
    size_t at = sizeof(eni_image_header);
    while (size - at >= sizeof(eni_chunk)) {
        const eni_chunk *chunk = (const eni_chunk *)(const void *)(data + at);
        size_t room = size - at - sizeof *chunk;
        if (chunk->magic != ENI_CHUNK_MAGIC || chunk->capacity > room || chunk->used > chunk->capacity ||
            chunk->capacity % 8 != 0) {
            return ENI_FAIL(ENIGMA_E_FORMAT, "%s is damaged: chunk at byte %zu", path, at);
        }
        if (chunk->capacity != 0) {
            if (!eni_grow((void **)parts, capacity, *count, sizeof **parts)) {
                return ENI_NO_MEMORY();
            }
            (*parts)[(*count)++] = (eni_image_part){chunk, (const uint8_t *)(chunk + 1), chunk->used};
        }
        at += sizeof *chunk + chunk->capacity;
    }
    return at == size ? ENIGMA_OK : ENI_FAIL(ENIGMA_E_FORMAT, "%s is cut short at byte %zu", path, size);
}

/* Each stream of each owner once, with nothing left over: what eni_image_build would make. */
static bool is_image(const eni_image_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const eni_chunk *chunk = parts[i].chunk;
        if (chunk->base != 0 || chunk->capacity != chunk->used) {
            return false;
        }
    }
    return true; /* a second run of a stream is found when it is sealed */
}

/* Drops the chunks that hold nothing. */
static size_t without_empty(eni_image_part *parts, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].used != 0) {
            parts[kept++] = parts[i];
        }
    }
    return kept;
}

/* The image in a file's bytes; *bytes is taken over where it is one as it lies. */
static enigma_status image_from_file(uint8_t **bytes, size_t *capacity, size_t size, const char *path, uint8_t **image,
                                     size_t *image_size)
{
    const uint8_t *data = *bytes;
    eni_image_part *parts = NULL;
    size_t part_capacity = 0;
    size_t count = 0;
    eni_image_header header;
    if (size < sizeof header || memcmp(data, ENI_IMAGE_MAGIC, sizeof header.magic) != 0) {
        return ENI_FAIL(ENIGMA_E_FORMAT, "%s is not an enigma profile", path);
    }
    memcpy(&header, data, sizeof header);
    enigma_status status = file_parts(data, size, path, &parts, &part_capacity, &count);
    if (status == ENIGMA_OK && is_image(parts, count)) {
        *image = eni_resize(*bytes, *capacity, size);
        status = *image == NULL ? ENI_NO_MEMORY() : ENIGMA_OK;
        if (*image != NULL) {
            *image_size = size;
            *bytes = NULL;
            *capacity = 0;
        }
    } else if (status == ENIGMA_OK) {
        count = without_empty(parts, count);
        status = eni_image_build(&header, parts, count, image, image_size);
    }
    eni_free(parts, part_capacity * sizeof *parts);
    return status;
}

/* ---- files that are still written ---- */

/* Chunks read one by one, each with its header before its bytes. */
typedef struct chunk_list {
    eni_image_part *parts;
    size_t count, capacity;
} chunk_list;

static void chunks_free(chunk_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        eni_free((void *)list->parts[i].chunk, sizeof(eni_chunk) + list->parts[i].used);
    }
    eni_free(list->parts, list->capacity * sizeof *list->parts);
}

/* As much as there is of size bytes at an offset. */
static enigma_status read_at(FILE *file, uint64_t offset, void *data, size_t size, const char *path, size_t *got)
{
    *got = 0;
    while (*got < size) {
        ssize_t more = pread(fileno(file), (char *)data + *got, size - *got, (off_t)(offset + *got));
        if (more < 0 && errno != EINTR) {
            return eni_error_io(errno, "cannot read", path);
        }
        if (more == 0) {
            break;
        }
        *got += more > 0 ? (size_t)more : 0;
    }
    return ENIGMA_OK;
}

static enigma_status chunk_take(FILE *file, uint64_t offset, const eni_chunk *head, const char *path, chunk_list *list)
{
    size_t got;
    eni_chunk *chunk = NULL;
    if (eni_grow((void **)&list->parts, &list->capacity, list->count, sizeof *list->parts)) {
        chunk = eni_alloc(sizeof *chunk + head->used);
    }
    if (chunk == NULL) {
        return ENI_NO_MEMORY();
    }
    *chunk = *head;
    list->parts[list->count++] = (eni_image_part){chunk, (const uint8_t *)(chunk + 1), head->used};
    ENI_TRY(read_at(file, offset, chunk + 1, head->used, path, &got));
    return got == head->used ? ENIGMA_OK : ENI_FAIL(ENIGMA_E_FORMAT, "%s is cut short at byte %llu", path,
                                                    (unsigned long long)(offset + got));
}

/* Where chunks lie, up to where nothing was written yet. */
typedef struct offset_list {
    uint64_t *offsets;
    size_t count, capacity;
} offset_list;

static enigma_status read_head(FILE *file, const char *path, uint64_t at, uint64_t size, eni_chunk *head, bool *there)
{
    size_t got;
    ENI_TRY(read_at(file, at, head, sizeof *head, path, &got));
    *there = got == sizeof *head && head->magic != 0;
    if (*there && (head->magic != ENI_CHUNK_MAGIC || head->stream >= ENI_STREAM_COUNT || head->used > head->capacity || head->used % 8 != 0 || head->capacity > size)) {
        return ENI_FAIL(ENIGMA_E_FORMAT, "%s is damaged: chunk at byte %llu", path, (unsigned long long)at);
    }
    return ENIGMA_OK;
}

static enigma_status chunks_find(FILE *file, const char *path, uint64_t size, offset_list *list)
{
    for (uint64_t at = sizeof(eni_image_header);;) {
        eni_chunk head;
        bool there;
        ENI_TRY(read_head(file, path, at, size, &head, &there));
        if (!there) {
            return ENIGMA_OK;
        }
        if (!eni_grow((void **)&list->offsets, &list->capacity, list->count, sizeof *list->offsets)) {
            return ENI_NO_MEMORY();
        }
        list->offsets[list->count++] = at;
        at += sizeof head + head.capacity;
    }
}

/* The order in which streams are read: each after those that refer to it, since what is referred to was written first. */
enum { STAGES = 6 };
static const uint8_t stage_of[ENI_STREAM_COUNT] = {
    [ENI_STREAM_RECORDS] = 0, [ENI_STREAM_SIDE] = 1,    [ENI_STREAM_NODES] = 2,  [ENI_STREAM_CATEGORIES] = 2,
    [ENI_STREAM_LAUNCHES] = 2, [ENI_STREAM_PAIRS] = 2,  [ENI_STREAM_DEVICES] = 3, [ENI_STREAM_FIELDS] = 4,
    [ENI_STREAM_NAMES] = 5,   [ENI_STREAM_PIECES] = 5,
};

/* Takes the chunks of a stage. All are found before the first is read: so one that has a successor is read when it is full, and there
 * is no gap between them. */
static enigma_status chunks_take(FILE *file, const char *path, uint32_t stage, chunk_list *list)
{
    struct stat info;
    uint64_t size = fstat(fileno(file), &info) == 0 ? (uint64_t)info.st_size : 0;
    offset_list found = {NULL, 0, 0};
    enigma_status status = chunks_find(file, path, size, &found);
    for (size_t i = 0; i < found.count && status == ENIGMA_OK; i++) {
        eni_chunk head;
        bool there = false;
        status = read_head(file, path, found.offsets[i], size, &head, &there);
        if (status == ENIGMA_OK && there && head.used != 0 && stage_of[head.stream] == stage) {
            status = chunk_take(file, found.offsets[i] + sizeof head, &head, path, list);
        }
    }
    eni_free(found.offsets, found.capacity * sizeof *found.offsets);
    return status;
}

static enigma_status image_from_live(FILE *file, const eni_image_header *header, const char *path, uint8_t **image, size_t *size)
{
    chunk_list list = {NULL, 0, 0};
    eni_image_header complete = *header;
    enigma_status status = ENIGMA_OK;
    for (uint32_t stage = 0; stage < STAGES && status == ENIGMA_OK; stage++) {
        status = chunks_take(file, path, stage, &list);
    }
    if (status == ENIGMA_OK) {
        complete.flags |= ENI_IMAGE_COMPLETE;
        status = eni_image_build(&complete, list.parts, list.count, image, size);
    }
    chunks_free(&list);
    return status;
}

/* ---- loading ---- */

static enigma_status image_from_whole(FILE *file, const char *path, uint8_t **image, size_t *image_size)
{
    uint8_t *data = NULL;
    size_t capacity = 0;
    size_t size = 0;
    enigma_status status = read_all(file, path, &data, &capacity, &size);
    if (status == ENIGMA_OK) {
        status = image_from_file(&data, &capacity, size, path, image, image_size);
    }
    eni_free(data, capacity);
    return status;
}

/* Whether a regular file begins as one that is not complete. */
static bool is_live(FILE *file, eni_image_header *header)
{
    struct stat info;
    return fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) &&
           pread(fileno(file), header, sizeof *header, 0) == (ssize_t)sizeof *header &&
           memcmp(header->magic, ENI_IMAGE_MAGIC, sizeof header->magic) == 0 && (header->flags & ENI_IMAGE_COMPLETE) == 0;
}

enigma_status enigma_profile_load(const char *path, enigma_profile **out)
{
    uint8_t *image = NULL;
    size_t size = 0;
    eni_image_header header;
    *out = NULL;
    if (path == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "path is NULL");
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return eni_error_io(errno, "cannot open", path);
    }
    enigma_status status = is_live(file, &header) ? image_from_live(file, &header, path, &image, &size)
                                                  : image_from_whole(file, path, &image, &size);
    fclose(file);
    return status == ENIGMA_OK ? eni_profile_from_image(image, size, path, out) : status;
}
