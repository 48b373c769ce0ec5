/* Owns the log: silent unless ENIGMA_LOG says otherwise. A line is one write, so lines of several threads do not mix. Any
 * thread; keeps errno. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include "base/settings.h"

#define LINE_BYTES 2048

static const char *const names[] = {NULL, "error", "warn", "info", "debug"};
static int level; /* 0: silent */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Line breaks and the like become blanks, so that a message stays one line. */
static void write_line(const char *name, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
static void write_line(const char *name, const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "enigma: %s: ", name);
    int size = vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    used += size < 0 ? 0 : size;
    if (used > LINE_BYTES - 1) {
        used = LINE_BYTES - 1; /* the NUL's place takes the newline */
    }
    for (int i = 0; i < used; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) {
            line[i] = ' ';
        }
    }
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)used);
    (void)written; /* nobody is left to be told */
}

static void say(enum eni_log_level at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(enum eni_log_level at, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(names[at], format, arguments);
    va_end(arguments);
}

static void init(void)
{
    const char *wanted = eni_settings_now()->log;
    if (wanted == NULL) {
        return;
    }
    for (int i = ENI_LOG_ERROR; i <= ENI_LOG_DEBUG; i++) {
        if (strcmp(wanted, names[i]) == 0) {
            level = i;
            return;
        }
    }
    level = ENI_LOG_WARN;
    say(ENI_LOG_WARN, "ENIGMA_LOG=\"%.100s\": error, warn, info and debug are allowed; warn is taken", wanted);
}

void eni_log(enum eni_log_level at, const char *format, ...)
{
    pthread_once(&once, init);
    if ((int)at > level) {
        return;
    }
    int saved_errno = errno;
    va_list arguments;
    va_start(arguments, format);
    write_line(names[at], format, arguments);
    va_end(arguments);
    errno = saved_errno;
}
