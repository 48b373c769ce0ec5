/* Standard output with its errors noticed, and error lines. Used by all of the tool, on the main thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "args.h"

static int write_errno; /* of the first write to standard output that failed */

static void note_failure(void)
{
    if (write_errno == 0) {
        write_errno = errno != 0 ? errno : EIO;
    }
}

int cli_write(void *user, const void *data, size_t size)
{
    (void)user;
    if (fwrite(data, 1, size, stdout) != size) {
        note_failure();
    }
    return write_errno;
}

void cli_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (vprintf(format, arguments) < 0) {
        note_failure();
    }
    va_end(arguments);
}

/* Messages may have several lines (a driver's words); scripts want one. */
static void print_line(const char *format, va_list arguments)
{
    char text[2048];
    vsnprintf(text, sizeof text, format, arguments);
    for (char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ') {
            *at = ' ';
        }
    }
    fprintf(stderr, "enigma: %s\n", text);
}

int cli_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    return CLI_FAILURE;
}

int cli_usage(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_finish(int code)
{
    if (fflush(stdout) != 0) {
        note_failure();
    }
    return write_errno == 0 ? code : cli_fail("cannot write to standard output: %s", strerror(write_errno));
}
