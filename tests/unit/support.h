/* What several unit tests need: cmocka, an allocator that fails when told, and running the test's own program again with
 * another environment (settings are read once a process). */
#ifndef TESTS_UNIT_SUPPORT_H
#define TESTS_UNIT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "enigma.h"

/* Fails the (left + 1)th allocation and all after it; left negative: none. Checks that old sizes are told right. */
typedef struct failing_allocator {
    long left;
    size_t bytes, blocks;
} failing_allocator;

typedef struct failing_header {
    size_t size, padding;
} failing_header;

static inline void *failing_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    failing_allocator *state = user;
    failing_header *old = ptr == NULL ? NULL : (failing_header *)ptr - 1;
    assert_int_equal(old == NULL ? 0 : old->size, old_size);
    if (new_size == 0) {
        state->bytes -= old_size;
        state->blocks -= old != NULL;
        free(old);
        return NULL;
    }
    if (state->left == 0) {
        return NULL;
    }
    state->left -= state->left > 0;
    failing_header *fresh = malloc(sizeof *fresh + new_size);
    assert_non_null(fresh);
    fresh->size = new_size;
    if (old != NULL) {
        memcpy(fresh + 1, ptr, old_size < new_size ? old_size : new_size);
    }
    state->blocks += old == NULL;
    state->bytes += new_size - old_size;
    free(old); /* always moves, so that who keeps an old pointer is caught */
    return fresh + 1;
}

/* Installs it; failing_end checks that nothing is left. */
static inline void failing_begin(failing_allocator *state)
{
    *state = (failing_allocator){.left = -1};
    assert_int_equal(enigma_set_allocator(failing_resize, state), ENIGMA_OK);
}

static inline void failing_end(failing_allocator *state)
{
    assert_int_equal(enigma_set_allocator(NULL, NULL), ENIGMA_OK);
    assert_int_equal(state->blocks, 0);
    assert_int_equal(state->bytes, 0);
}

typedef struct child_result {
    int exit_code; /* -1: ended by a signal */
    char out[8192], err[8192];
} child_result;

static inline void read_all(int fd, char *out, size_t size)
{
    size_t used = 0;
    for (ssize_t got; used + 1 < size && (got = read(fd, out + used, size - 1 - used)) > 0;) {
        used += (size_t)got;
    }
    out[used] = '\0';
    close(fd);
}

/* Runs this program again as `<program> mode`, with one more variable (NULL: none), and gives what it wrote. */
static inline void run_self(const char *mode, const char *variable, const char *value, child_result *result)
{
    int out[2], err[2], status;
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        close(out[0]);
        close(err[0]);
        if (variable != NULL) {
            setenv(variable, value, 1);
        }
        execl("/proc/self/exe", "test", mode, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    read_all(out[0], result->out, sizeof result->out);
    read_all(err[0], result->err, sizeof result->err);
    assert_int_equal(waitpid(child, &status, 0), child);
    result->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
