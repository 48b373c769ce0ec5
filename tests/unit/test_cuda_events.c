/* The CUDA backend where another tool holds CUPTI: event pairs, held streams, shared boundaries. */
#include "cuda_fake.h"

static void the_facts_say_why(void **state)
{
    (void)state;
    assert_string_equal(fact_of("timer")->as.text.data, "event pairs, calibrated");
    assert_non_null(strstr(fact_of("timer_reason")->as.text.data, "another tool"));
}

static void an_idle_stream_is_held_while_the_pair_is_queued(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(1.0f);
    enigma_dispatch_options options = sizes(256, 64);
    double us;
    assert_ok(enigma_dispatch_timed(prepared, &options, &us)); /* calibrates; the first launch is not held */
    long gates = fake.get(FAKE_GATES), events = fake.get(FAKE_EVENTS);
    for (int i = 0; i < 10; i++) {
        assert_ok(enigma_dispatch_timed(prepared, &options, &us));
        assert_true(us >= 0.0);
        assert_null(strstr(enigma_error_message(), "not valid"));
    }
    assert_int_equal(fake.get(FAKE_GATES), gates + 10);
    assert_true(fake.get(FAKE_EVENTS) >= events + 20);
    check_output(prepared, 1.0f);
    enigma_prepared_free(prepared);
}

static void launches_on_a_busy_stream_share_boundaries(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(1.0f);
    enigma_profiler *profiler = recording();
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(256, 64);
    options.context = &context;
    assert_ok(enigma_dispatch(prepared, &options));
    options.flags = ENIGMA_DISPATCH_ASYNC;
    fake.set(FAKE_HOLD, 1);
    long events = fake.get(FAKE_EVENTS), gates = fake.get(FAKE_GATES);
    for (int i = 0; i < 2; i++) { /* each poll of the one before asks a marker too, so few of them */
        assert_ok(enigma_dispatch(prepared, &options));
    }
    assert_true(fake.get(FAKE_EVENTS) - events <= 4); /* 3 boundaries and at most a marker */
    assert_int_equal(fake.get(FAKE_GATES), gates + 1);
    fake.set(FAKE_HOLD, 0);
    enigma_profile *profile = sealed(profiler);
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    assert_int_equal(counts.gpu_events, 3);
    assert_int_equal(counts.gpu_invalid, 0);
    for (size_t i = 0; i < 3; i++) {
        enigma_event event = event_at(profile, i);
        assert_true(event.gpu_end_ns >= event.gpu_start_ns && event.gpu_start_ns != 0);
    }
    enigma_profile_free(profile);
    enigma_prepared_free(prepared);
}

static void untimed_launches_come_between(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(1.0f);
    enigma_dispatch_options options = sizes(256, 64);
    double us;
    for (int i = 0; i < 20; i++) {
        options.flags = i % 2 == 0 ? ENIGMA_DISPATCH_ASYNC : 0;
        assert_ok(i % 2 == 0 ? enigma_dispatch(prepared, &options) : enigma_dispatch_timed(prepared, &options, &us));
    }
    fake.set(FAKE_LAUNCH_ERROR, CUDA_ERROR_LAUNCH_RESOURCES);
    assert_int_equal(enigma_dispatch_timed(prepared, &options, &us), ENIGMA_E_INVALID);
    assert_ok(enigma_dispatch_timed(prepared, &options, &us)); /* the stream is not held for ever */
    check_output(prepared, 1.0f);
    enigma_prepared_free(prepared);
}

static void events_are_freed_with_the_runtime(void **state)
{
    (void)state;
    enigma_runtime_free(runtime);
    assert_int_equal(fake.get(FAKE_EVENTS_ALIVE), 0);
    assert_int_equal(fake.get(FAKE_CONTEXT_DEPTH), 0);
    assert_ok(enigma_runtime_open("cuda", 0, &runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_facts_say_why),
        cmocka_unit_test(an_idle_stream_is_held_while_the_pair_is_queued),
        cmocka_unit_test(launches_on_a_busy_stream_share_boundaries),
        cmocka_unit_test(untimed_launches_come_between),
        cmocka_unit_test(events_are_freed_with_the_runtime),
    };
    if (!fake_load("new", &fake)) {
        return 1;
    }
    fake.set(FAKE_SUBSCRIBED, 1); /* another tool */
    return cmocka_run_group_tests_name("cuda_events", tests, open_runtime, close_runtime);
}
