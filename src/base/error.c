/* Owns the texts of the statuses and, for each thread, the detail of its last failure. The detail is allocated at the first
 * failure of a thread and freed when the thread ends; what is thread-local is small, since the library's thread-local
 * data lies in the few bytes that the loader keeps for libraries loaded late. */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"

/* Both texts are blocks of their own, NULL when there is none. */
typedef struct detail {
    char *message, *path;
} detail;

static ENI_THREAD_LOCAL detail *thread_detail;
static ENI_THREAD_LOCAL const char *thread_constant; /* what to say when there was no memory for the detail */
static ENI_THREAD_LOCAL int thread_errno;

static pthread_key_t end_of_thread;
static pthread_once_t end_of_thread_once = PTHREAD_ONCE_INIT;

static void detail_clear(detail *what)
{
    eni_strfree(what->message);
    eni_strfree(what->path);
    what->message = what->path = NULL;
}

static void detail_free(void *what)
{
    detail_clear(what);
    eni_free(what, sizeof(detail));
    thread_detail = NULL;
}

static void make_key(void) { pthread_key_create(&end_of_thread, detail_free); }

static detail *detail_get(void)
{
    if (thread_detail == NULL) {
        thread_detail = ENI_NEW(detail);
        if (thread_detail != NULL) {
            pthread_once(&end_of_thread_once, make_key);
            pthread_setspecific(end_of_thread, thread_detail);
        }
    }
    return thread_detail;
}

void eni_error_forget(void)
{
    if (thread_detail != NULL) {
        pthread_setspecific(end_of_thread, NULL);
        detail_free(thread_detail);
    }
    thread_constant = NULL;
    thread_errno = 0;
}

/* printf into a block of exactly the right size; NULL: no memory. */
static char *format_text(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));
static char *format_text(const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (size < 0) {
        return NULL;
    }
    char *text = eni_alloc((size_t)size + 1);
    if (text == NULL) {
        return NULL;
    }
    vsnprintf(text, (size_t)size + 1, format, arguments);
    /* eni_strfree takes the size from the text, so a NUL within it (from %c) must not stay. */
    for (size_t left = (size_t)size; left > 0 && (left = strlen(text)) < (size_t)size;) {
        text[left] = '?';
    }
    return text;
}

enigma_status eni_error_set(enigma_status status, int errnum, const char *path, const char *format, ...)
{
    int saved_errno = errno;
    va_list arguments;
    va_start(arguments, format);
    /* The arguments may be the old detail, so it goes last. */
    char *message = format_text(format, arguments);
    va_end(arguments);
    char *path_copy = path == NULL ? NULL : eni_strdup(path);
    detail *what = detail_get();
    thread_errno = errnum;
    if (what != NULL) {
        detail_clear(what);
        what->message = message;
        what->path = path_copy;
    } else {
        eni_strfree(message);
        eni_strfree(path_copy);
        message = NULL;
    }
    thread_constant = message == NULL ? enigma_status_text(status) : NULL;
    eni_log(ENI_LOG_DEBUG, "%s: %s", enigma_status_name(status), enigma_error_message());
    errno = saved_errno;
    return status;
}

enigma_status eni_error_io(int errnum, const char *what, const char *path)
{
    char buffer[256];
    const char *words = eni_error_words(errnum, buffer, sizeof buffer);
    return eni_error_set(ENIGMA_E_IO, errnum, path, "%s %s: %s", what, path, words);
}

const char *eni_error_words(int errnum, char *buffer, size_t size)
{
#if defined(__GLIBC__)
    return strerror_r(errnum, buffer, size);
#else
    if (strerror_r(errnum, buffer, size) != 0) {
        snprintf(buffer, size, "error %d", errnum);
    }
    return buffer;
#endif
}

const char *enigma_error_message(void)
{
    if (thread_constant != NULL) {
        return thread_constant;
    }
    return thread_detail == NULL || thread_detail->message == NULL ? "" : thread_detail->message;
}

int enigma_error_errno(void) { return thread_errno; }

const char *enigma_error_path(void)
{
    return thread_detail == NULL || thread_detail->path == NULL ? "" : thread_detail->path;
}

const char *enigma_status_name(enigma_status status)
{
    switch ((int)status) {
    case ENIGMA_OK:
        return "OK";
#define STATUS_NAME(name, value, text, exception)                                                                      \
    case value:                                                                                                        \
        return #name;
        ENIGMA_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "UNKNOWN";
    }
}

const char *enigma_status_text(enigma_status status)
{
    switch ((int)status) {
    case ENIGMA_OK:
        return "success";
#define STATUS_TEXT(name, value, text, exception)                                                                      \
    case value:                                                                                                        \
        return text;
        ENIGMA_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

#define VERSION_TEXT_(major, minor, patch) #major "." #minor "." #patch
#define VERSION_TEXT(major, minor, patch) VERSION_TEXT_(major, minor, patch)

uint32_t enigma_version_number(void)
{
    return ENIGMA_VERSION_MAJOR * 10000 + ENIGMA_VERSION_MINOR * 100 + ENIGMA_VERSION_PATCH;
}

const char *enigma_version_string(void)
{
    return VERSION_TEXT(ENIGMA_VERSION_MAJOR, ENIGMA_VERSION_MINOR, ENIGMA_VERSION_PATCH);
}
