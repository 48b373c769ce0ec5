/* An allocator that fails when told, and running a step until it no longer does. */
#ifndef TESTS_OOM_LIMITED_H
#define TESTS_OOM_LIMITED_H

#include "../api/support.h"

typedef struct counting {
    long left; /* calls that still succeed; -1: all */
    size_t blocks;
    long calls;
} counting;

static counting memory;

static void *limited(void *user, void *ptr, size_t old_size, size_t new_size)
{
    counting *state = user;
    (void)old_size;
    if (new_size == 0) {
        state->blocks -= ptr != NULL;
        free(ptr);
        return NULL;
    }
    state->calls++;
    if (state->left == 0) {
        return NULL;
    }
    if (state->left > 0) {
        state->left--;
    }
    void *fresh = realloc(ptr, new_size);
    state->blocks += ptr == NULL && fresh != NULL;
    return fresh;
}

/* Runs step with 0, 1, 2 ... allocations allowed until it says ENIGMA_OK; step frees what it made. */
static void until_it_succeeds(enigma_status (*step)(void), long limit)
{
    for (long allowed = 0; allowed < limit; allowed++) {
        size_t before = memory.blocks;
        memory.left = allowed;
        enigma_status status = step();
        memory.left = -1;
        if (status == ENIGMA_OK) {
            return;
        }
        assert_int_equal(status, ENIGMA_E_NO_MEMORY);
        assert_int_equal(memory.blocks, before);
    }
    fail_msg("did not succeed with %ld allocations", limit);
}

/* For cmocka_run_group_tests. */
static int limited_setup(void **state)
{
    (void)state;
    memory.left = -1;
    return enigma_set_allocator(limited, &memory) == ENIGMA_OK ? 0 : -1;
}

#endif
