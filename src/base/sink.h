/* Where bytes go: a callback, a file, or memory. Buffered; the first error sticks, and eni_sink_finish reports it. */
#ifndef ENI_BASE_SINK_H
#define ENI_BASE_SINK_H

#include "base/str.h"

typedef struct eni_sink eni_sink;
struct eni_sink {
    enigma_write_fn write;
    void *user;
    char *buffer;
    size_t used, capacity;
    int error; /* what write returned, or ENOMEM */
};

enigma_status eni_sink_init(eni_sink *sink, enigma_write_fn write, void *user);
void eni_sink_write(eni_sink *sink, const void *data, size_t size);
void eni_sink_puts(eni_sink *sink, const char *text);
void eni_sink_flush(eni_sink *sink); /* hands over what is buffered */
/* Room for size bytes, at most ENI_SINK_ROOM, to be filled in place; then tell where they end. */
#define ENI_SINK_ROOM 4096
static inline char *eni_sink_room(eni_sink *sink, size_t size)
{
    if (ENI_UNLIKELY(size > sink->capacity - sink->used)) {
        eni_sink_flush(sink);
    }
    return sink->buffer + sink->used;
}
static inline void eni_sink_filled(eni_sink *sink, const char *end) { sink->used = (size_t)(end - sink->buffer); }
void eni_sink_putc(eni_sink *sink, char c);
void eni_sink_printf(eni_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));
void eni_sink_u64(eni_sink *sink, uint64_t value);
/* Microseconds with exactly three decimals from integer ns, "12.345". */
void eni_sink_us(eni_sink *sink, int64_t ns);
/* Flushes, frees the buffer and gives the sticky error as ENIGMA_E_IO. Always call it once after init succeeded. */
enigma_status eni_sink_finish(eni_sink *sink);

/* What writes a whole file into a sink. */
typedef enigma_status (*eni_sink_body_fn)(eni_sink *sink, const void *arg);

/* Writes a file, whole or not at all: beside the target, synced, then renamed over it, keeping its mode; symbolic links
 * are followed; a target that exists and is no regular file (pipe, device) is written in place. Errors are ENIGMA_E_IO with
 * errno and path, and leave an existing target as it was and nothing beside it. */
enigma_status eni_sink_file(const char *path, eni_sink_body_fn body, const void *arg);

/* The parts of it, for who writes a file that is whole in another way. Each gives 0 or an errno, eni_file_beside a file that is
 * open for reading and writing, or -1 and errno.
 * The file that a path means in the end, links followed; it need not exist. */
int eni_file_target(const char *path, eni_str *out);
/* Makes a file beside target, with the rights that a new file gets; name receives its path. */
int eni_file_beside(const char *target, eni_str *name);
/* Gives a file the owner of an old one where we may, then the mode, which a change of owner would cut. */
struct stat;
int eni_file_keep_rights(int fd, const struct stat *old);

/* An enigma_write_fn that appends to an eni_str (user). */
int eni_sink_to_str(void *user, const void *data, size_t size);

#endif
