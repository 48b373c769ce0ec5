/* The mapped file of backing.h. It grows by segments, each reserved and mapped at once; a chunk never crosses segments, and what is left
 * of one is covered by a chunk that holds nothing. Behind the last chunk there are zeros. */
#include "store/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sink.h"
#include "base/thread.h"

#define SEGMENT_MIN ((size_t)256 * 1024)
#define SEGMENT_MAX ((size_t)8 * 1024 * 1024)
#define UNIT 64u /* chunks begin and end on multiples of a header, so that what is left of a segment has room for one */
#define MIRROR_MIN 4096u
#define MIRROR_MAX ((size_t)1024 * 1024)

typedef struct segment {
    uint8_t *data;
    size_t mapped, size, used; /* size: how much of it chunks may take */
    uint64_t offset;           /* in the file */
} segment;

/* The segment after the last, made ahead by a thread of its own once segments are big. */
typedef struct ahead {
    pthread_t thread;
    bool running;
    int fd;
    segment made;
    enigma_status status;
} ahead;

struct eni_backing {
    int fd; /* -1: given up (fork) or finished */
    segment *segments;
    size_t count, capacity;
    ahead next;
    eni_chunk *mirrors[ENI_STREAM_RECORDS]; /* the last chunk of each shared stream */
    eni_image_header *header;
};

/* ---- segments ---- */

static int reserve(int fd, uint64_t offset, size_t size)
{
#if defined(__linux__)
    return posix_fallocate(fd, (off_t)offset, (off_t)size);
#else
    return ftruncate(fd, (off_t)(offset + size)) == 0 ? 0 : errno; /* macOS: no reserving by this name */
#endif
}

#if !defined(MAP_POPULATE)
#define MAP_POPULATE 0
#endif

/* Reserves, maps and faults in a segment; populated at once, since faults one by one cost more than what is recorded. */
static enigma_status segment_make(int fd, segment *made)
{
    int error = reserve(fd, made->offset, made->mapped);
    if (error != 0) {
        return eni_error_io(error, "cannot reserve space in", "the profile's file");
    }
    made->data = mmap(NULL, made->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)made->offset);
    return made->data == MAP_FAILED ? eni_error_io(errno, "cannot map", "the profile's file") : ENIGMA_OK;
}

static void *make_ahead(void *arg)
{
    ahead *next = arg;
    next->status = segment_make(next->fd, &next->made);
    return NULL;
}

/* Where the segment after the last lies, and how big it is. */
static segment segment_after(const eni_backing *backing)
{
    if (backing->count == 0) {
        return (segment){.mapped = SEGMENT_MIN};
    }
    const segment *last = &backing->segments[backing->count - 1];
    return (segment){.offset = last->offset + last->mapped,
                     .mapped = last->mapped * 2 < SEGMENT_MAX ? last->mapped * 2 : SEGMENT_MAX};
}

static void start_ahead(eni_backing *backing)
{
    if (backing->segments[backing->count - 1].mapped < SEGMENT_MAX / 4) {
        return;
    }
    backing->next = (ahead){.fd = backing->fd, .made = segment_after(backing)};
    backing->next.running = eni_thread_start(&backing->next.thread, make_ahead, &backing->next);
}

/* What was made ahead; false: nothing was, or it failed, and then it is tried once more by who needs it. */
static bool take_ahead(eni_backing *backing, segment *out)
{
    if (!backing->next.running) {
        return false;
    }
    pthread_join(backing->next.thread, NULL);
    backing->next.running = false;
    *out = backing->next.made;
    return backing->next.status == ENIGMA_OK;
}

static enigma_status segment_add(eni_backing *backing, size_t needed)
{
    segment made;
    if (backing->fd < 0 || !eni_grow((void **)&backing->segments, &backing->capacity, backing->count, sizeof made)) {
        return ENI_NO_MEMORY();
    }
    bool ready = take_ahead(backing, &made);
    if (ready && made.mapped < needed) {
        munmap(made.data, made.mapped); /* a name of megabytes: the reserved space is taken by the bigger one */
        ready = false;
    }
    if (!ready) {
        made = segment_after(backing);
        while (made.mapped < needed) {
            made.mapped *= 2;
        }
        ENI_TRY(segment_make(backing->fd, &made));
    }
    made.size = made.mapped;
    backing->segments[backing->count++] = made;
    start_ahead(backing);
    return ENIGMA_OK;
}

static eni_chunk *place(segment *in, const eni_chunk *head, size_t capacity)
{
    eni_chunk *chunk = (eni_chunk *)(void *)(in->data + in->used);
    uint32_t magic = head->magic;
    *chunk = *head;
    chunk->capacity = capacity;
    chunk->magic = 0;
    __atomic_store_n(&chunk->magic, magic, __ATOMIC_RELEASE); /* a reader sees the whole header or none */
    in->used += sizeof *chunk + capacity;
    return chunk;
}

/* Covers what is left of a segment, so that a reader finds the next one. */
static void cover_rest(segment *in)
{
    static const eni_chunk filler = {.magic = ENI_CHUNK_MAGIC, .stream = ENI_STREAM_NAMES};
    if (in->size != in->used) {
        place(in, &filler, in->size - in->used - sizeof filler);
    }
}

eni_chunk *eni_backing_chunk(eni_backing *backing, const eni_chunk *head, size_t capacity)
{
    capacity = (capacity + UNIT - 1) & ~(size_t)(UNIT - 1);
    size_t needed = sizeof *head + capacity;
    segment *last = &backing->segments[backing->count - 1];
    if (last->size - last->used < needed) {
        /* the old segment is covered last: until then its zeros end the file for a reader, and nothing behind them is needed */
        if (segment_add(backing, needed) != ENIGMA_OK) {
            return NULL;
        }
        cover_rest(&backing->segments[backing->count - 2]);
        last = &backing->segments[backing->count - 1];
    }
    return place(last, head, capacity);
}

/* ---- shared streams ---- */

static eni_chunk *mirror_chunk(eni_backing *backing, uint32_t stream, uint64_t base, size_t size)
{
    const eni_chunk *last = backing->mirrors[stream];
    const eni_chunk head = {.magic = ENI_CHUNK_MAGIC, .stream = (uint16_t)stream, .base = base};
    size_t capacity = last == NULL ? MIRROR_MIN : last->capacity * 2 < MIRROR_MAX ? last->capacity * 2 : MIRROR_MAX;
    return eni_backing_chunk(backing, &head, capacity < size ? size : capacity);
}

bool eni_backing_mirror(eni_backing *backing, uint32_t stream, uint64_t base, const void *data, size_t size)
{
    eni_chunk *chunk = backing->mirrors[stream];
    if (chunk == NULL || chunk->capacity - chunk->used < size) {
        chunk = mirror_chunk(backing, stream, base, size);
        if (chunk == NULL) {
            return false;
        }
        backing->mirrors[stream] = chunk;
    }
    memcpy((uint8_t *)(chunk + 1) + chunk->used, data, size);
    __atomic_store_n(&chunk->used, chunk->used + size, __ATOMIC_RELEASE);
    return true;
}

void eni_backing_count_dropped(eni_backing *backing, uint64_t dropped)
{
    __atomic_store_n(&backing->header->dropped, dropped, __ATOMIC_RELAXED);
}

/* ---- life ---- */

/* A file in the making, beside the one that it will replace. */
typedef struct making {
    eni_str target, name; /* links followed */
} making;

/* The file is made beside its target and renamed over it, so that whoever reads an old file of that name goes on reading that. */
static enigma_status open_file(const char *path, int *fd, making *file)
{
    struct stat old;
    bool exists = stat(path, &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) {
        return eni_error_io(S_ISDIR(old.st_mode) ? EISDIR : EINVAL, "a profile is recorded into a regular file, not", path);
    }
    int errnum = *path == '\0' ? ENOENT : eni_file_target(path, &file->target);
    if (errnum == 0) {
        *fd = eni_file_beside(file->target.data, &file->name);
        errnum = *fd < 0 ? errno : exists ? eni_file_keep_rights(*fd, &old) : 0;
    }
    return errnum == 0 ? ENIGMA_OK : eni_error_io(errnum, "cannot make", path);
}

static enigma_status begin(eni_backing *backing, const char *path, const making *file, uint32_t pid)
{
    ENI_TRY(segment_add(backing, sizeof(eni_image_header)));
    segment *first = &backing->segments[0];
    backing->header = (eni_image_header *)(void *)first->data;
    *backing->header = (eni_image_header){
        .magic = ENI_IMAGE_MAGIC, .version = ENI_IMAGE_VERSION, .header_size = sizeof(eni_image_header), .pid = pid};
    first->used = sizeof(eni_image_header);
    return rename(file->name.data, file->target.data) == 0 ? ENIGMA_OK : eni_error_io(errno, "cannot make", path);
}

enigma_status eni_backing_create(const char *path, uint32_t pid, eni_backing **out)
{
    making file = {0};
    eni_backing *backing = ENI_NEW(eni_backing);
    *out = NULL;
    if (backing == NULL) {
        return ENI_NO_MEMORY();
    }
    backing->fd = -1;
    enigma_status status = open_file(path, &backing->fd, &file);
    if (status == ENIGMA_OK) {
        status = begin(backing, path, &file, pid);
    }
    if (status != ENIGMA_OK && backing->fd >= 0) {
        unlink(file.name.data);
    }
    eni_str_free(&file.name);
    eni_str_free(&file.target);
    if (status != ENIGMA_OK) {
        eni_backing_free(backing);
        return status;
    }
    *out = backing;
    return ENIGMA_OK;
}

static void drop_ahead(eni_backing *backing)
{
    segment unused;
    if (take_ahead(backing, &unused)) {
        munmap(unused.data, unused.mapped);
    }
}

void eni_backing_finish(eni_backing *backing, uint64_t end_ticks)
{
    segment *last = &backing->segments[backing->count - 1];
    if (backing->fd < 0) {
        return;
    }
    drop_ahead(backing);
    __atomic_store_n(&backing->header->end_ticks, end_ticks, __ATOMIC_RELEASE);
    __atomic_store_n(&backing->header->flags, ENI_IMAGE_COMPLETE, __ATOMIC_RELEASE);
    /* Chunks stay within the file, so a write that comes late faults nowhere; and none is placed behind them. */
    last->size = last->used;
    if (ftruncate(backing->fd, (off_t)(last->offset + last->used)) != 0) {
        eni_log(ENI_LOG_WARN, "cannot cut a profile's file to its length; what is too much is zeros, and readers end there");
    }
    close(backing->fd);
    backing->fd = -1;
}

void eni_backing_disown(eni_backing *backing)
{
    backing->next.running = false; /* the thread is the parent's; what it maps there is not here */
    for (size_t i = 0; i < backing->count && backing->fd >= 0; i++) {
        const segment *s = &backing->segments[i];
        mmap(s->data, s->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, backing->fd, (off_t)s->offset);
    }
    if (backing->fd >= 0) {
        close(backing->fd);
        backing->fd = -1;
    }
}

void eni_backing_free(eni_backing *backing)
{
    if (backing == NULL) {
        return;
    }
    drop_ahead(backing);
    for (size_t i = 0; i < backing->count; i++) {
        munmap(backing->segments[i].data, backing->segments[i].mapped);
    }
    if (backing->fd >= 0) {
        close(backing->fd);
    }
    eni_free(backing->segments, backing->capacity * sizeof *backing->segments);
    ENI_DELETE(backing);
}
