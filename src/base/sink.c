/* Where bytes go. A sink belongs to the thread that writes into it. Files are made whole or not at all: written under a
 * name of their own in the target's folder, synced, renamed. */
#include "base/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define BUFFER_BYTES (32 * 1024)
#define LINK_LIMIT 40
#define NAME_TRIES 100

enigma_status eni_sink_init(eni_sink *sink, enigma_write_fn write, void *user)
{
    *sink = (eni_sink){.write = write, .user = user};
    sink->buffer = eni_alloc(BUFFER_BYTES);
    if (sink->buffer == NULL) {
        return ENI_NO_MEMORY();
    }
    sink->capacity = BUFFER_BYTES;
    return ENIGMA_OK;
}

static void hand_over(eni_sink *sink, const void *data, size_t size)
{
    if (sink->error == 0 && size != 0) {
        sink->error = sink->write(sink->user, data, size);
    }
}

void eni_sink_flush(eni_sink *sink)
{
    hand_over(sink, sink->buffer, sink->used);
    sink->used = 0;
}

void eni_sink_write(eni_sink *sink, const void *data, size_t size)
{
    if (size > sink->capacity - sink->used) {
        eni_sink_flush(sink);
        if (size >= sink->capacity) {
            hand_over(sink, data, size);
            return;
        }
    }
    if (size != 0) {
        memcpy(sink->buffer + sink->used, data, size);
        sink->used += size;
    }
}

void eni_sink_puts(eni_sink *sink, const char *text) { eni_sink_write(sink, text, strlen(text)); }

void eni_sink_putc(eni_sink *sink, char c)
{
    *eni_sink_room(sink, 1) = c;
    sink->used++;
}

/* What is longer than the room left is formatted apart. */
void eni_sink_printf(eni_sink *sink, const char *format, ...)
{
    size_t room = sink->capacity - sink->used;
    va_list arguments;
    va_start(arguments, format);
    int size = eni_str_format(sink->buffer + sink->used, room, format, arguments);
    va_end(arguments);
    if (size >= 0 && (size_t)size < room) {
        sink->used += (size_t)size;
        return;
    }
    char *text = size < 0 ? NULL : eni_alloc((size_t)size + 1);
    if (text == NULL) {
        sink->error = sink->error == 0 ? ENOMEM : sink->error;
        return;
    }
    va_start(arguments, format);
    eni_str_format(text, (size_t)size + 1, format, arguments);
    va_end(arguments);
    eni_sink_write(sink, text, (size_t)size);
    eni_free(text, (size_t)size + 1);
}

void eni_sink_u64(eni_sink *sink, uint64_t value)
{
    char *room = eni_sink_room(sink, ENI_U64_BYTES);
    eni_sink_filled(sink, eni_str_u64(value, room));
}

void eni_sink_us(eni_sink *sink, int64_t ns)
{
    if (ns < 0) {
        eni_sink_putc(sink, '-');
    }
    char *room = eni_sink_room(sink, ENI_US_BYTES);
    eni_sink_filled(sink, eni_str_us(ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns, room));
}

/* Flushes and frees; gives the sticky error. */
static int finish(eni_sink *sink)
{
    eni_sink_flush(sink);
    eni_free(sink->buffer, sink->capacity);
    sink->buffer = NULL;
    sink->capacity = 0;
    return sink->error;
}

enigma_status eni_sink_finish(eni_sink *sink)
{
    int error = finish(sink);
    if (error == 0) {
        return ENIGMA_OK;
    }
    if (error == ENOMEM && sink->write == eni_sink_to_str) {
        return ENI_NO_MEMORY();
    }
    return eni_error_set(ENIGMA_E_IO, error > 0 ? error : 0, NULL, "the output function ended the writing with %d",
                         error);
}

int eni_sink_to_str(void *user, const void *data, size_t size)
{
    eni_str *str = user;
    eni_str_append(str, data, size);
    return str->failed ? ENOMEM : 0;
}

/* ---- Files ---------------------------------------------------------------------------------------------------------- */

/* A write end that is a pipe raises SIGPIPE when nobody reads; a library must not end the program, so the signal is held
 * back on this thread and taken away again. */
static int write_quietly(int fd, const char *data, size_t size)
{
    while (size != 0) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno != EINTR) {
            return errno;
        }
        if (written > 0) {
            data += written;
            size -= (size_t)written;
        }
    }
    return 0;
}

static int write_to_fd(void *user, const void *data, size_t size)
{
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    int error = write_quietly(*(const int *)user, data, size);
    if (error == EPIPE && !was_pending) {
        sigpending(&pending);
        if (sigismember(&pending, SIGPIPE) == 1) {
            int taken;
            sigwait(&pipe_signal, &taken);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Some files cannot be synced, and need not be. */
static int sync_fd(int fd)
{
    while (fsync(fd) != 0) {
        if (errno != EINTR) {
            return errno == EINVAL || errno == EROFS || errno == ENOTSUP || errno == ENOSYS ? 0 : errno;
        }
    }
    return 0;
}

/* Fills an open file by body. A write error goes before what body says about it. *errnum: 0, or the errno of the write that
 * failed; then the status is for the caller to make. */
static enigma_status fill(int fd, eni_sink_body_fn body, const void *arg, int *errnum)
{
    eni_sink sink;
    ENI_TRY(eni_sink_init(&sink, write_to_fd, &fd));
    enigma_status status = body(&sink, arg);
    *errnum = finish(&sink);
    if (*errnum == 0 && status == ENIGMA_OK) {
        *errnum = sync_fd(fd);
    }
    return *errnum == 0 ? status : ENIGMA_E_IO;
}

static enigma_status write_in_place(const char *path, eni_sink_body_fn body, const void *arg)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return eni_error_io(errno, "cannot open", path);
    }
    int errnum = 0;
    enigma_status status = fill(fd, body, arg, &errnum);
    if (close(fd) != 0 && status == ENIGMA_OK) {
        errnum = errno;
    }
    return errnum == 0 ? status : eni_error_io(errnum, "cannot write", path);
}

/* How much of a path names its folder, with the last slash. */
static size_t folder_size(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* Appends what the symbolic link path points to, seen from the caller's folder. */
static int read_link(const char *path, eni_str *out)
{
    char link[PATH_MAX];
    ssize_t size = readlink(path, link, sizeof link);
    if (size < 0 || size == (ssize_t)sizeof link) {
        return size < 0 ? errno : ENAMETOOLONG;
    }
    if (size == 0 || link[0] != '/') {
        eni_str_append(out, path, folder_size(path));
    }
    eni_str_append(out, link, (size_t)size);
    return out->failed ? ENOMEM : 0;
}

int eni_file_target(const char *path, eni_str *out)
{
    eni_str_puts(out, path);
    for (int i = 0; out->data != NULL && !out->failed && is_link(out->data); i++) {
        eni_str next = {0};
        int errnum = i == LINK_LIMIT ? ELOOP : read_link(out->data, &next);
        eni_str_free(out);
        *out = next;
        if (errnum != 0) {
            return errnum;
        }
    }
    return out->failed || out->data == NULL ? ENOMEM : 0;
}

int eni_file_beside(const char *target, eni_str *name)
{
    static uint32_t serial;
    for (int i = 0; i < NAME_TRIES; i++) {
        name->size = 0;
        eni_str_append(name, target, folder_size(target));
        eni_str_printf(name, ".enigma-%u-%x-%llx", eni_process_id(), __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED),
                       (unsigned long long)eni_clock_ticks() & 0xffffff);
        if (name->failed) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(name->data, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

int eni_file_keep_rights(int fd, const struct stat *old)
{
    struct stat fresh;
    if (fstat(fd, &fresh) != 0) {
        return errno;
    }
    if (fresh.st_uid != old->st_uid || fresh.st_gid != old->st_gid) {
        int ignored = fchown(fd, old->st_uid, old->st_gid);
        (void)ignored;
    }
    return fchmod(fd, old->st_mode & 07777) == 0 ? 0 : errno;
}

/* The rename itself must survive too; where a folder cannot be synced nothing is lost but that. */
static void sync_folder(const char *target)
{
    eni_str folder = {0};
    eni_str_append(&folder, target, folder_size(target));
    eni_str_putc(&folder, '.');
    int fd = folder.failed ? -1 : open(folder.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        sync_fd(fd);
        close(fd);
    }
    eni_str_free(&folder);
}

/* old: what is at target now, NULL: nothing. path: the caller's name for it, for messages. */
static enigma_status replace(const char *path, const char *target, const struct stat *old, eni_sink_body_fn body,
                             const void *arg)
{
    eni_str name = {0};
    enigma_status status = ENIGMA_OK;
    int errnum = 0;
    int fd = eni_file_beside(target, &name);
    if (fd < 0) {
        status = eni_error_io(errno, "cannot create", path);
        goto name;
    }
    status = fill(fd, body, arg, &errnum);
    if (status == ENIGMA_OK && old != NULL) {
        errnum = eni_file_keep_rights(fd, old);
    }
    if (close(fd) != 0 && status == ENIGMA_OK && errnum == 0) {
        errnum = errno;
    }
    if (status == ENIGMA_OK && errnum == 0 && rename(name.data, target) != 0) {
        errnum = errno;
    }
    if (errnum != 0) {
        status = eni_error_io(errnum, "cannot write", path);
    }
    if (status != ENIGMA_OK) {
        unlink(name.data);
    } else {
        sync_folder(target);
    }
name:
    eni_str_free(&name);
    return status;
}

enigma_status eni_sink_file(const char *path, eni_sink_body_fn body, const void *arg)
{
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (!exists && errno != ENOENT) {
        return eni_error_io(errno, "cannot write", path);
    }
    if (*path == '\0' || (!exists && path[strlen(path) - 1] == '/')) {
        return eni_error_io(ENOENT, "cannot write", path);
    }
    if (exists && S_ISDIR(info.st_mode)) {
        return eni_error_io(EISDIR, "cannot write", path);
    }
    if (exists && !S_ISREG(info.st_mode)) {
        return write_in_place(path, body, arg);
    }
    eni_str target = {0};
    int errnum = eni_file_target(path, &target);
    enigma_status status = errnum == 0        ? replace(path, target.data, exists ? &info : NULL, body, arg)
                           : errnum == ENOMEM ? ENI_NO_MEMORY()
                                              : eni_error_io(errnum, "cannot write", path);
    eni_str_free(&target);
    return status;
}
