/* What the tests of the public interface share. Include after the header under test. */
#ifndef TESTS_API_SUPPORT_H
#define TESTS_API_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "enigma.h"

#define assert_ok(call) assert_int_equal((call), ENIGMA_OK)

static inline enigma_text text_of(const char *text) { return (enigma_text){text, 0}; }

static inline enigma_profiler *profiler_started(void)
{
    enigma_profiler *profiler = NULL;
    assert_ok(enigma_profiler_create(NULL, &profiler));
    assert_ok(enigma_profiler_start(profiler));
    return profiler;
}

/* Stops, seals into a profile and frees the profiler. */
static inline enigma_profile *profile_stopped(enigma_profiler *profiler)
{
    enigma_profile *profile = NULL;
    assert_ok(enigma_profiler_stop(profiler));
    assert_ok(enigma_profiler_snapshot(profiler, &profile));
    enigma_profiler_free(profiler);
    return profile;
}

static inline enigma_event event_at(const enigma_profile *profile, size_t index)
{
    enigma_event event = {.struct_size = sizeof event};
    assert_ok(enigma_profile_event(profile, index, &event));
    return event;
}

/* The call path of a node as "a/b/c", in a buffer of its own for each call (of 8). */
static inline const char *path_text(const enigma_profile *profile, enigma_path path)
{
    static char buffers[8][512];
    static int next;
    char *out = buffers[next++ % 8];
    enigma_text names[64];
    size_t count = enigma_profile_path_names(profile, path, names, 64);
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < count; i++) {
        at += (size_t)snprintf(out + at, sizeof buffers[0] - at, "%s%s", i == 0 ? "" : "/", names[i].data);
    }
    return out;
}

/* The value of a metadata key, NULL when absent. */
static inline const enigma_value *metadata_of(const enigma_event *event, const char *key)
{
    for (size_t i = 0; i < event->metadata_count; i++) {
        if (strcmp(event->metadata[i].key.data, key) == 0) {
            return &event->metadata[i].value;
        }
    }
    return NULL;
}

#endif
