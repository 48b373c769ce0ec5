/* .enigma files: a profile's image as it is, so a file that was saved whole is sealed where it was read. One whose chunks lie
 * otherwise (several of a stream, room left in them) is gathered into an image first. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* Reads a whole file; free with eni_free(data, capacity). */
static enigma_status read_all(const char *path, uint8_t **out, size_t *capacity, size_t *size)
{
    FILE *file = fopen(path, "rb");
    *out = NULL;
    *capacity = *size = 0;
    if (file == NULL) {
        return eni_error_io(errno, "cannot open", path);
    }
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
    fclose(file);
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
        status = eni_image_build(&header, parts, count, image, image_size);
    }
    eni_free(parts, part_capacity * sizeof *parts);
    return status;
}

enigma_status enigma_profile_load(const char *path, enigma_profile **out)
{
    uint8_t *data = NULL;
    uint8_t *image = NULL;
    size_t capacity = 0;
    size_t size = 0;
    size_t image_size = 0;
    *out = NULL;
    enigma_status status = path == NULL ? ENI_FAIL(ENIGMA_E_INVALID, "path is NULL") : read_all(path, &data, &capacity, &size);
    if (status == ENIGMA_OK) {
        status = image_from_file(&data, &capacity, size, path, &image, &image_size);
    }
    eni_free(data, capacity);
    return status == ENIGMA_OK ? eni_profile_from_image(image, image_size, path, out) : status;
}
