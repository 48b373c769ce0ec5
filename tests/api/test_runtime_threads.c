/* One scripted runtime and one prepared kernel shared by many threads: nothing is lost, twice, or torn while profiles are taken. */
#include <pthread.h>

#include "support.h"

enum { THREADS = 8, DISPATCHES = 2000 };

typedef struct work {
    enigma_prepared *prepared;
    enigma_profiler *profiler;
    uint32_t number;
    uint32_t failures;
} work;

static void *dispatch_many(void *user)
{
    work *w = user;
    const enigma_context context = {.profiler = w->profiler};
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.context = &context;
    options.queue = w->number % 4;
    for (int i = 0; i < DISPATCHES; i++) {
        options.flags = i % 3 == 0 ? ENIGMA_DISPATCH_ASYNC : 0;
        options.grid.x = 1 + (uint64_t)(i % 5);
        w->failures += enigma_dispatch(w->prepared, &options) != ENIGMA_OK;
        if (i % 100 == 0) {
            w->failures += enigma_prepared_wait(w->prepared) != ENIGMA_OK;
        }
    }
    return NULL;
}

static void case_b11_threads_share_a_runtime_while_profiles_are_taken(void **state)
{
    (void)state;
    enigma_scripted_options config = ENIGMA_SCRIPTED_OPTIONS_INIT;
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = ""};
    enigma_runtime *runtime = NULL;
    enigma_kernel *kernel = NULL;
    enigma_prepared *prepared = NULL;
    enigma_profiler *profiler = NULL;
    enigma_profile *profile = NULL;
    pthread_t threads[THREADS];
    work works[THREADS];
    config.queues = 4;
    assert_ok(enigma_scripted_open(&config, &runtime));
    assert_ok(enigma_kernel_compile(runtime, &desc, &kernel));
    assert_ok(enigma_prepare(kernel, NULL, 0, NULL, 0, &prepared));
    assert_ok(enigma_profiler_create(NULL, &profiler));
    assert_ok(enigma_profiler_open(profiler));
    for (uint32_t i = 0; i < THREADS; i++) {
        works[i] = (work){prepared, profiler, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, dispatch_many, &works[i]), 0);
    }
    size_t seen = 0;
    for (int i = 0; i < 20; i++) {
        assert_ok(enigma_profiler_snapshot(profiler, &profile));
        assert_true(enigma_profile_event_count(profile) >= seen);
        seen = enigma_profile_event_count(profile);
        enigma_profile_free(profile);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(works[i].failures, 0);
    }
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
    assert_ok(enigma_profiler_seal(profiler));
    assert_ok(enigma_profiler_snapshot(profiler, &profile));
    enigma_profiler_free(profiler);
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    assert_int_equal(counts.events, THREADS * DISPATCHES);
    assert_int_equal(counts.gpu_events, THREADS * DISPATCHES);
    assert_int_equal(counts.gpu_invalid + counts.gpu_unfinished + counts.dropped, 0);
    for (size_t i = 0; i < counts.events; i++) {
        enigma_event event = event_at(profile, i);
        assert_float_equal(event.gpu_time_us, 1.0, 0.0);
        assert_true(event.gpu_start_ns >= event.start_ns);
    }
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_b11_threads_share_a_runtime_while_profiles_are_taken),
    };
    return cmocka_run_group_tests_name("runtime_threads", tests, NULL, NULL);
}
