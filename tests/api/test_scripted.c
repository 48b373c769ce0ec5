/* The scripted runtime and clock (section 16), and through them every number that the dispatch path makes: exact, on any machine. */
#include <math.h>

#include "support.h"

#define START UINT64_C(1000000)

typedef struct fixture {
    enigma_runtime *runtime;
    enigma_kernel *kernel;
    enigma_prepared *prepared;
} fixture;

/* A scripted runtime with one prepared kernel "k", under the scripted clock. */
static fixture set_up(const enigma_scripted_options *options)
{
    fixture f = {0};
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = ""};
    enigma_scripted_clock_begin(START);
    assert_ok(enigma_scripted_open(options, &f.runtime));
    assert_ok(enigma_kernel_compile(f.runtime, &desc, &f.kernel));
    assert_ok(enigma_prepare(f.kernel, NULL, 0, NULL, 0, &f.prepared));
    return f;
}

static void tear_down(fixture *f)
{
    enigma_prepared_free(f->prepared);
    enigma_kernel_free(f->kernel);
    enigma_runtime_free(f->runtime);
    enigma_scripted_clock_end();
}

static enigma_dispatch_options plain(void)
{
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.grid.x = 256;
    options.threads.x = 64;
    return options;
}

static void dispatch(const fixture *f)
{
    enigma_dispatch_options options = plain();
    assert_ok(enigma_dispatch(f->prepared, &options));
}

static void push_times(const fixture *f, uint64_t start, uint64_t end)
{
    enigma_script script = {ENIGMA_SCRIPT_TIMES, start, end, NULL};
    assert_ok(enigma_scripted_push(f->runtime, 0, 0, &script, 1));
}

static void assert_counts(const fixture *f, uint64_t untimed, uint64_t timed)
{
    uint64_t got[2];
    assert_ok(enigma_scripted_counts(f->runtime, &got[0], &got[1]));
    assert_int_equal(got[0], untimed);
    assert_int_equal(got[1], timed);
}

/* Records one dispatch that reports these stamps and gives its event; the caller frees the profile. */
static enigma_event record_one(const fixture *f, uint64_t start, uint64_t end, enigma_profile **profile)
{
    enigma_profiler *profiler = profiler_started();
    push_times(f, start, end);
    dispatch(f);
    *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(*profile), 1);
    return event_at(*profile, 0);
}

/* ---- the runtime and its clock ---- */

static void without_a_script_a_dispatch_takes_a_microsecond(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    assert_int_equal(enigma_now_ns(), START);
    dispatch(&f);
    assert_int_equal(enigma_now_ns(), START + 1000);
    assert_counts(&f, 1, 0);
    enigma_profiler *profiler = profiler_started();
    dispatch(&f);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event event = event_at(profile, 0);
    assert_int_equal(event.start_ns, START + 1000);
    assert_int_equal(event.end_ns, START + 2000);
    assert_int_equal(event.gpu_start_ns, START + 1000);
    assert_int_equal(event.gpu_end_ns, START + 2000);
    assert_float_equal(event.gpu_time_us, 1.0, 0.0);
    assert_string_equal(event.name.data, "gpu_dispatch");
    assert_string_equal(event.category.data, "scripted");
    assert_string_equal(event.kernel_name.data, "k");
    assert_counts(&f, 1, 1);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void stamps_are_those_told(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_profile *profile;
    enigma_event event = record_one(&f, START + 10, START + 100010, &profile);
    assert_float_equal(event.gpu_time_us, 100.0, 0.0);
    assert_int_equal(event.gpu_start_raw, START + 10);
    assert_int_equal(event.gpu_end_raw, START + 100010);
    assert_int_equal(event.gpu_start_ns, START + 10);
    assert_int_equal(event.end_ns - event.start_ns, 100000); /* the wait moves the clock by the device time */
    assert_null(metadata_of(&event, "gpu_time"));
    enigma_profile_free(profile);
    tear_down(&f);
}

static void each_dispatch_takes_one_entry(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    double us;
    enigma_dispatch_options options = plain();
    push_times(&f, 1000, 3000);
    push_times(&f, 1000, 6000);
    push_times(&f, 1000, 8000);
    dispatch(&f); /* untimed */
    assert_int_equal(enigma_now_ns(), START + 2000);
    assert_ok(enigma_dispatch_timed(f.prepared, &options, &us));
    assert_float_equal(us, 5.0, 0.0);
    enigma_profiler *profiler = profiler_started();
    dispatch(&f);
    enigma_profile *profile = profile_stopped(profiler);
    assert_float_equal(event_at(profile, 0).gpu_time_us, 7.0, 0.0);
    enigma_profile_free(profile);
    assert_counts(&f, 1, 2);
    assert_ok(enigma_dispatch_timed(f.prepared, &options, &us)); /* the script is used up */
    assert_float_equal(us, 1.0, 0.0);
    tear_down(&f);
}

static void failures_are_raised_and_keep_their_event(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    const enigma_script scripts[2] = {{.kind = ENIGMA_SCRIPT_FAILURE, .message = "the device is lost"},
                                      {.kind = ENIGMA_SCRIPT_FAILURE}};
    enigma_dispatch_options options = plain();
    assert_ok(enigma_scripted_push(f.runtime, 0, 0, scripts, 2));
    enigma_profiler *profiler = profiler_started();
    assert_int_equal(enigma_dispatch(f.prepared, &options), ENIGMA_E_DEVICE);
    assert_string_equal(enigma_error_message(), "the device is lost");
    assert_int_equal(enigma_dispatch(f.prepared, &options), ENIGMA_E_DEVICE);
    dispatch(&f);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    assert_int_equal(counts.events, 3);
    assert_int_equal(counts.gpu_invalid, 2);
    enigma_event event = event_at(profile, 0);
    assert_float_equal(event.gpu_time_us, 0.0, 0.0);
    assert_string_equal(metadata_of(&event, "error")->as.text.data, "the device is lost");
    assert_non_null(metadata_of(&event, "gpu_time"));
    assert_counts(&f, 0, 1);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    enigma_runtime *runtime = NULL;
    enigma_scripted_options bad[7];
    for (int i = 0; i < 7; i++) {
        bad[i] = (enigma_scripted_options)ENIGMA_SCRIPTED_OPTIONS_INIT;
    }
    bad[0].tick_ns = 0.0;
    bad[1].tick_ns = (double)NAN;
    bad[2].counter_bits = 0;
    bad[3].counter_bits = 65;
    bad[4].queues = 0;
    bad[5].devices = 0;
    bad[6].drift_ppm = (double)INFINITY;
    for (int i = 0; i < 7; i++) {
        assert_int_equal(enigma_scripted_open(&bad[i], &runtime), ENIGMA_E_INVALID);
        assert_null(runtime);
    }
    fixture f = set_up(NULL);
    enigma_script script = {.kind = 7};
    assert_int_equal(enigma_scripted_push(f.runtime, 0, 0, &script, 1), ENIGMA_E_INVALID);
    assert_int_equal(enigma_scripted_push(f.runtime, 1, 0, &script, 0), ENIGMA_E_INVALID);
    assert_int_equal(enigma_scripted_push(f.runtime, 0, 1, &script, 0), ENIGMA_E_INVALID);
    assert_int_equal(enigma_scripted_push(NULL, 0, 0, &script, 0), ENIGMA_E_INVALID);
    tear_down(&f);
}

/* ---- device stamps ---- */

typedef struct bad_stamps {
    uint64_t start, end;
} bad_stamps;

static void case_d01_stamps_that_cannot_be_right_are_flagged(void **state)
{
    (void)state;
    static const bad_stamps bad[] = {{5000, 4999}, {2000000000, 1000000000}, {0, 5000},
                                     {5000, 0},    {UINT64_MAX, 5000},       {5000, UINT64_MAX}};
    fixture f = set_up(NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enigma_profile *profile;
        enigma_counts counts = {.struct_size = sizeof counts};
        enigma_event event = record_one(&f, bad[i].start, bad[i].end, &profile);
        assert_float_equal(event.gpu_time_us, 0.0, 0.0);
        assert_int_equal(event.gpu_start_ns, 0);
        assert_int_equal(event.gpu_end_ns, 0);
        assert_int_equal(event.is_gpu_work, 1);
        assert_true(metadata_of(&event, "gpu_time")->as.text.size > 0);
        enigma_profile_get_counts(profile, &counts);
        assert_int_equal(counts.gpu_invalid, 1);
        enigma_profile_free(profile);
        double us = 1.0;
        enigma_dispatch_options options = plain();
        push_times(&f, bad[i].start, bad[i].end);
        assert_ok(enigma_dispatch_timed(f.prepared, &options, &us));
        assert_float_equal(us, 0.0, 0.0);
        assert_true(strstr(enigma_error_message(), "device time") != NULL);
    }
    tear_down(&f);
}

static void case_d02_stamps_that_are_not_available_are_flagged(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_script script = {.kind = ENIGMA_SCRIPT_UNAVAILABLE, .start_ns = 5, .end_ns = 10};
    enigma_profiler *profiler = profiler_started();
    assert_ok(enigma_scripted_push(f.runtime, 0, 0, &script, 1));
    dispatch(&f);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event event = event_at(profile, 0);
    assert_float_equal(event.gpu_time_us, 0.0, 0.0);
    assert_non_null(metadata_of(&event, "gpu_time"));
    assert_int_equal(event.end_ns, event.start_ns);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void no_time_at_all_is_a_valid_time(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_profile *profile;
    enigma_event event = record_one(&f, START, START, &profile);
    assert_float_equal(event.gpu_time_us, 0.0, 0.0);
    assert_int_equal(event.gpu_start_ns, START);
    assert_null(metadata_of(&event, "gpu_time"));
    enigma_profile_free(profile);
    tear_down(&f);
}

static void case_d04_narrow_counters_wrap(void **state)
{
    (void)state;
    enigma_scripted_options options = ENIGMA_SCRIPTED_OPTIONS_INIT;
    options.tick_ns = 10.0;
    options.counter_bits = 32;
    fixture f = set_up(&options);
    enigma_profile *profile;
    enigma_event event = record_one(&f, UINT64_C(0xFFFFFFF0) * 10, UINT64_C(0x10) * 10, &profile);
    assert_float_equal(event.gpu_time_us, 0.32, 1e-12);
    assert_int_equal(event.gpu_start_raw, 0xFFFFFFF0);
    assert_int_equal(event.gpu_end_raw, 0x10);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void stamps_are_floored_to_ticks(void **state)
{
    (void)state;
    enigma_scripted_options options = ENIGMA_SCRIPTED_OPTIONS_INIT;
    options.tick_ns = 100.0;
    fixture f = set_up(&options);
    enigma_profile *profile;
    enigma_event event = record_one(&f, 10199, 10301, &profile);
    assert_int_equal(event.gpu_start_raw, 101);
    assert_int_equal(event.gpu_end_raw, 103);
    assert_float_equal(event.gpu_time_us, 0.2, 1e-12);
    enigma_profile_free(profile);
    tear_down(&f);
    options.tick_ns = 0.5;
    f = set_up(&options);
    event = record_one(&f, 10, 13, &profile);
    assert_int_equal(event.gpu_start_raw, 20);
    assert_int_equal(event.gpu_end_raw, 26);
    assert_float_equal(event.gpu_time_us, 0.003, 1e-12);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void case_d16_a_far_drifting_clock_is_mapped_to_the_host(void **state)
{
    (void)state;
    enigma_scripted_options options = ENIGMA_SCRIPTED_OPTIONS_INIT;
    options.clock_offset_ns = INT64_C(1000000000000);
    options.drift_ppm = 50.0;
    fixture f = set_up(&options);
    enigma_profiler *profiler = profiler_started();
    for (int i = 0; i < 600; i++) { /* ten minutes */
        dispatch(&f);
        enigma_scripted_clock_advance(UINT64_C(1000000000));
    }
    enigma_profile *profile = profile_stopped(profiler);
    for (size_t i = 0; i < 600; i++) {
        enigma_event event = event_at(profile, i);
        int64_t off = (int64_t)(event.gpu_start_ns - event.start_ns);
        assert_true(off > -20000 && off < 20000);
        assert_true(event.gpu_start_raw >= UINT64_C(1000000000000));
    }
    enigma_profile_free(profile);
    tear_down(&f);
}

static void narrow_drifting_counters_are_followed_over_many_wraps(void **state)
{
    (void)state;
    enigma_scripted_options options = ENIGMA_SCRIPTED_OPTIONS_INIT;
    options.clock_offset_ns = -INT64_C(777777);
    options.drift_ppm = -30.0;
    options.counter_bits = 30; /* wraps about every second */
    fixture f = set_up(&options);
    enigma_profiler *profiler = profiler_started();
    for (int i = 0; i < 300; i++) {
        dispatch(&f);
        enigma_scripted_clock_advance(UINT64_C(3700000000)); /* several wraps between two dispatches */
    }
    enigma_profile *profile = profile_stopped(profiler);
    for (size_t i = 0; i < 300; i++) {
        enigma_event event = event_at(profile, i);
        int64_t off = (int64_t)(event.gpu_start_ns - event.start_ns);
        assert_true(off > -20000 && off < 20000);
        assert_float_equal(event.gpu_time_us, 1.0, 0.002);
    }
    enigma_profile_free(profile);
    tear_down(&f);
}

/* ---- queues, devices, asynchronous work ---- */

static void asynchronous_work_runs_on_the_schedule_of_its_queue(void **state)
{
    (void)state;
    enigma_scripted_options config = ENIGMA_SCRIPTED_OPTIONS_INIT;
    config.queues = 2;
    fixture f = set_up(&config);
    enigma_profiler *profiler = profiler_started();
    enigma_dispatch_options options = plain();
    options.flags = ENIGMA_DISPATCH_ASYNC;
    for (uint32_t i = 0; i < 4; i++) {
        options.queue = i / 3;
        assert_ok(enigma_dispatch(f.prepared, &options));
    }
    assert_int_equal(enigma_now_ns(), START); /* nobody waited */
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_now_ns(), START + 3000); /* leaving did */
    for (size_t i = 0; i < 4; i++) {
        enigma_event event = event_at(profile, i);
        uint64_t begins = START + (i < 3 ? i * 1000 : 0);
        assert_int_equal(event.start_ns, START);
        assert_int_equal(event.end_ns, START);
        assert_int_equal(event.gpu_start_ns, begins);
        assert_int_equal(event.gpu_end_ns, begins + 1000);
        assert_int_equal(event.queue_id, i / 3);
        assert_float_equal(metadata_of(&event, "queue_wait_us")->as.number, (double)(i < 3 ? i : 0), 1e-9);
    }
    enigma_profile_free(profile);
    tear_down(&f);
}

static void a_waiting_dispatch_ends_after_earlier_work(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_dispatch_options options = plain();
    options.flags = ENIGMA_DISPATCH_ASYNC;
    assert_ok(enigma_dispatch(f.prepared, &options));
    assert_ok(enigma_dispatch(f.prepared, &options));
    dispatch(&f);
    assert_int_equal(enigma_now_ns(), START + 3000);
    assert_ok(enigma_dispatch(f.prepared, &options));
    assert_ok(enigma_prepared_wait(f.prepared));
    assert_int_equal(enigma_now_ns(), START + 4000);
    assert_ok(enigma_runtime_synchronize(f.runtime));
    assert_int_equal(enigma_now_ns(), START + 4000);
    tear_down(&f);
}

static void snapshots_do_not_wait_for_asynchronous_work(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_profiler *profiler = profiler_started();
    enigma_dispatch_options options = plain();
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile *profile = NULL;
    options.flags = ENIGMA_DISPATCH_ASYNC;
    assert_ok(enigma_dispatch(f.prepared, &options));
    assert_ok(enigma_profiler_snapshot(profiler, &profile));
    enigma_profile_get_counts(profile, &counts);
    assert_int_equal(counts.gpu_unfinished, 1);
    enigma_profile_free(profile);
    enigma_scripted_clock_advance(1000);
    assert_ok(enigma_profiler_snapshot(profiler, &profile)); /* complete meanwhile */
    enigma_profile_get_counts(profile, &counts);
    assert_int_equal(counts.gpu_unfinished, 0);
    assert_float_equal(event_at(profile, 0).gpu_time_us, 1.0, 0.0);
    enigma_profile_free(profile);
    enigma_profile_free(profile_stopped(profiler));
    tear_down(&f);
}

static void devices_and_queues_have_scripts_of_their_own(void **state)
{
    (void)state;
    enigma_scripted_options config = ENIGMA_SCRIPTED_OPTIONS_INIT;
    config.queues = 2;
    config.devices = 2;
    fixture f = set_up(&config);
    for (uint32_t i = 0; i < 4; i++) {
        enigma_script script = {ENIGMA_SCRIPT_TIMES, START, START + 1000 * (i + 1), NULL};
        assert_ok(enigma_scripted_push(f.runtime, i / 2, i % 2, &script, 1));
    }
    enigma_profiler *profiler = profiler_started();
    for (uint32_t i = 4; i-- > 0;) {
        enigma_dispatch_options options = plain();
        options.device = i / 2;
        options.queue = i % 2;
        assert_ok(enigma_dispatch(f.prepared, &options));
    }
    enigma_profile *profile = profile_stopped(profiler);
    for (uint32_t i = 0; i < 4; i++) {
        enigma_event event = event_at(profile, i);
        assert_int_equal(event.device_id * 2 + event.queue_id, 3 - i);
        assert_float_equal(event.gpu_time_us, (double)(4 - i), 0.0);
    }
    enigma_profile_free(profile);
    tear_down(&f);
}

/* ---- where it is recorded ---- */

static void dispatches_go_under_the_open_scopes(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_profiler *profiler = profiler_started();
    enigma_scope outer = enigma_begin("outer");
    dispatch(&f);
    enigma_scope inner = enigma_begin("inner");
    dispatch(&f);
    enigma_end(inner);
    dispatch(&f);
    enigma_end(outer);
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 5);
    assert_string_equal(path_text(profile, event_at(profile, 0).path), "outer/gpu_dispatch:k");
    assert_string_equal(path_text(profile, event_at(profile, 1).path), "outer/inner/gpu_dispatch:k");
    assert_string_equal(path_text(profile, event_at(profile, 3).path), "outer/gpu_dispatch:k");
    enigma_event scope = event_at(profile, 4);
    assert_string_equal(scope.name.data, "outer");
    assert_float_equal(scope.gpu_time_us, 3.0, 1e-9);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void nothing_is_recorded_when_told_not_to(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_profiler *profiler = profiler_started();
    enigma_dispatch_options options = plain();
    const enigma_context nowhere = {0};
    double us;
    options.flags = ENIGMA_DISPATCH_UNRECORDED;
    assert_ok(enigma_dispatch(f.prepared, &options));
    options.flags = 0;
    options.context = &nowhere;
    assert_ok(enigma_dispatch(f.prepared, &options));
    assert_ok(enigma_dispatch_timed(f.prepared, &options, &us));
    assert_counts(&f, 2, 1);
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 0);
    enigma_profile_free(profile);
    tear_down(&f);
}

static size_t counting_hook(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    assert_true(capacity >= 1);
    assert_string_equal(info->kernel_name.data, "k");
    assert_int_equal(info->grid.x, 256);
    assert_int_equal(info->threads.x, 64);
    ++*(int *)user;
    out[0] = (enigma_metric){"flops", 2e9};
    return 1;
}

static void case_a14_a_hook_is_asked_once_for_each_recorded_dispatch_without_metrics(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    int asked = 0;
    const enigma_metric own = {"flops", 5.0};
    enigma_dispatch_options options = plain();
    assert_ok(enigma_hook_register(text_of("k"), counting_hook, NULL, &asked));
    dispatch(&f);
    assert_int_equal(asked, 0); /* not recorded */
    enigma_profiler *profiler = profiler_started();
    dispatch(&f);
    assert_int_equal(asked, 1);
    options.metrics = &own;
    options.metric_count = 1;
    assert_ok(enigma_dispatch(f.prepared, &options));
    assert_int_equal(asked, 1);
    enigma_hook_unregister(text_of("k"));
    dispatch(&f);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event event = event_at(profile, 0);
    assert_int_equal(event.metric_count, 1);
    assert_float_equal(event.metrics[0].value, 2e9, 0.0);
    event = event_at(profile, 1);
    assert_float_equal(event.metrics[0].value, 5.0, 0.0);
    assert_int_equal(event_at(profile, 2).metric_count, 0);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void several_profilers_and_shapes_do_not_mix(void **state)
{
    (void)state;
    fixture f = set_up(NULL);
    enigma_profiler *profilers[6];
    enigma_context contexts[6];
    for (int i = 0; i < 6; i++) {
        assert_ok(enigma_profiler_create(NULL, &profilers[i]));
        assert_ok(enigma_profiler_open(profilers[i]));
        contexts[i] = (enigma_context){.profiler = profilers[i]};
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 6; i++) {
            enigma_dispatch_options options = plain();
            options.context = &contexts[i];
            options.grid.x = 64 * (uint64_t)(i + 1);
            assert_ok(enigma_dispatch(f.prepared, &options));
        }
    }
    for (int i = 0; i < 6; i++) {
        enigma_profile *profile = NULL;
        assert_ok(enigma_profiler_seal(profilers[i]));
        assert_ok(enigma_profiler_snapshot(profilers[i], &profile));
        enigma_profiler_free(profilers[i]);
        assert_int_equal(enigma_profile_event_count(profile), 3);
        for (size_t k = 0; k < 3; k++) {
            enigma_event event = event_at(profile, k);
            assert_int_equal(event.grid.x, 64 * (i + 1));
            assert_float_equal(event.gpu_time_us, 1.0, 0.0);
            assert_int_equal(event.gpu_start_ns, event.start_ns);
        }
        enigma_profile_free(profile);
    }
    tear_down(&f);
}

static void the_real_clock_works_too(void **state)
{
    (void)state;
    enigma_runtime *runtime = NULL;
    enigma_kernel *kernel = NULL;
    enigma_prepared *prepared = NULL;
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = ""};
    assert_ok(enigma_scripted_open(NULL, &runtime));
    assert_ok(enigma_kernel_compile(runtime, &desc, &kernel));
    assert_ok(enigma_prepare(kernel, NULL, 0, NULL, 0, &prepared));
    enigma_profiler *profiler = profiler_started();
    enigma_dispatch_options options = plain();
    for (int i = 0; i < 10; i++) {
        assert_ok(enigma_dispatch(prepared, &options));
    }
    enigma_profile *profile = profile_stopped(profiler);
    for (size_t i = 0; i < 10; i++) {
        enigma_event event = event_at(profile, i);
        assert_float_equal(event.gpu_time_us, 1.0, 0.0);
        assert_true(event.end_ns - event.start_ns >= 1000);
    }
    enigma_profile_free(profile);
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_script_a_dispatch_takes_a_microsecond),
        cmocka_unit_test(stamps_are_those_told),
        cmocka_unit_test(each_dispatch_takes_one_entry),
        cmocka_unit_test(failures_are_raised_and_keep_their_event),
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(case_d01_stamps_that_cannot_be_right_are_flagged),
        cmocka_unit_test(case_d02_stamps_that_are_not_available_are_flagged),
        cmocka_unit_test(no_time_at_all_is_a_valid_time),
        cmocka_unit_test(case_d04_narrow_counters_wrap),
        cmocka_unit_test(stamps_are_floored_to_ticks),
        cmocka_unit_test(case_d16_a_far_drifting_clock_is_mapped_to_the_host),
        cmocka_unit_test(narrow_drifting_counters_are_followed_over_many_wraps),
        cmocka_unit_test(asynchronous_work_runs_on_the_schedule_of_its_queue),
        cmocka_unit_test(a_waiting_dispatch_ends_after_earlier_work),
        cmocka_unit_test(snapshots_do_not_wait_for_asynchronous_work),
        cmocka_unit_test(devices_and_queues_have_scripts_of_their_own),
        cmocka_unit_test(dispatches_go_under_the_open_scopes),
        cmocka_unit_test(nothing_is_recorded_when_told_not_to),
        cmocka_unit_test(case_a14_a_hook_is_asked_once_for_each_recorded_dispatch_without_metrics),
        cmocka_unit_test(several_profilers_and_shapes_do_not_mix),
        cmocka_unit_test(the_real_clock_works_too),
    };
    return cmocka_run_group_tests_name("scripted", tests, NULL, NULL);
}
