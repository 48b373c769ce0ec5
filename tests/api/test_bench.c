/* Benchmarks (section 15) on the scripted runtime: counts, statistics, rates and refusals, exact. */
#include <math.h>

#include "support.h"

typedef struct fixture {
    enigma_runtime *runtime;
    enigma_prepared *prepared;
} fixture;

static fixture set_up(void)
{
    fixture f = {0};
    enigma_kernel *kernel = NULL;
    uint8_t in[64] = {0};
    const enigma_argument input = {.kind = ENIGMA_ARGUMENT_DATA, .data = in, .size = sizeof in};
    const size_t output = 32;
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = ""};
    enigma_scripted_clock_begin(1000000);
    assert_ok(enigma_scripted_open(NULL, &f.runtime));
    assert_ok(enigma_kernel_compile(f.runtime, &desc, &kernel));
    assert_ok(enigma_prepare(kernel, &input, 1, &output, 1, &f.prepared));
    enigma_kernel_free(kernel);
    return f;
}

static void tear_down(fixture *f)
{
    enigma_prepared_free(f->prepared);
    enigma_runtime_free(f->runtime);
    enigma_scripted_clock_end();
}

/* Scripts runs of so many us each. */
static void push_us(const fixture *f, const double *us, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enigma_script script = {ENIGMA_SCRIPT_TIMES, 1000, 1000 + (uint64_t)(us[i] * 1000.0), NULL};
        assert_ok(enigma_scripted_push(f->runtime, 0, 0, &script, 1));
    }
}

static enigma_benchmark_options options_of(uint64_t repeat, uint64_t warmup)
{
    enigma_benchmark_options options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    options.repeat = repeat;
    options.warmup = warmup;
    options.grid.x = 64;
    return options;
}

static enigma_benchmark_info info_of(const enigma_benchmark *benchmark)
{
    enigma_benchmark_info info = {.struct_size = sizeof info};
    enigma_benchmark_get(benchmark, &info);
    return info;
}

static int append(void *user, const void *data, size_t size)
{
    char *text = user;
    size_t used = strlen(text);
    assert_true(used + size < 1000);
    memcpy(text + used, data, size);
    text[used + size] = '\0';
    return 0;
}

static const char *summary_of(const enigma_benchmark *benchmark)
{
    static char text[1000];
    text[0] = '\0';
    assert_ok(enigma_benchmark_write_summary(benchmark, append, text));
    assert_null(strchr(text, '\n'));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf "));
    return text;
}

static enigma_benchmark *of_times(const double *times, size_t count, double flops, double bytes)
{
    enigma_benchmark *benchmark = NULL;
    assert_ok(enigma_benchmark_from_times(text_of("k"), times, count, flops, bytes, &benchmark));
    return benchmark;
}

static void times_are_raw_and_in_run_order(void **state)
{
    (void)state;
    fixture f = set_up();
    const double us[7] = {500.0, 400.0, 3.0, 1.0, 5.0, 2.0, 4.0}; /* two of warm-up, five measured */
    enigma_benchmark_options options = options_of(5, 2);
    enigma_benchmark *benchmark = NULL;
    uint64_t untimed, timed;
    push_us(&f, us, 7);
    options.flops = 3e6;
    options.bytes_moved = 6e6;
    assert_ok(enigma_benchmark_kernel(f.prepared, &options, &benchmark));
    assert_ok(enigma_scripted_counts(f.runtime, &untimed, &timed));
    assert_int_equal(untimed, 2);
    assert_int_equal(timed, 5);
    enigma_benchmark_info info = info_of(benchmark);
    assert_string_equal(info.kernel_name.data, "k");
    assert_int_equal(info.calls, 5);
    for (int i = 0; i < 5; i++) {
        assert_float_equal(info.gpu_times_us[i], us[i + 2], 0.0);
    }
    assert_float_equal(info.min_us, 1.0, 0.0);
    assert_float_equal(info.median_us, 3.0, 0.0);
    assert_float_equal(info.mean_us, 3.0, 1e-12);
    assert_float_equal(info.p90_us, 4.6, 1e-12);
    assert_float_equal(info.max_us, 5.0, 0.0);
    assert_float_equal(info.gflops_per_s, 1000.0, 1e-9);
    assert_float_equal(info.gbytes_per_s, 2000.0, 1e-9);
    enigma_benchmark_free(benchmark);
    tear_down(&f);
}

static void case_d20_percentiles_are_linear(void **state)
{
    (void)state;
    const double ten[10] = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, one[1] = {5}, two[2] = {1, 100};
    enigma_benchmark *benchmark = of_times(ten, 10, -1.0, -1.0);
    assert_float_equal(info_of(benchmark).median_us, 5.5, 1e-12);
    assert_float_equal(info_of(benchmark).p90_us, 9.1, 1e-12);
    assert_float_equal(info_of(benchmark).gpu_times_us[0], 10.0, 0.0); /* not sorted */
    enigma_benchmark_free(benchmark);
    benchmark = of_times(one, 1, -1.0, -1.0);
    assert_float_equal(info_of(benchmark).median_us, 5.0, 0.0);
    assert_float_equal(info_of(benchmark).p90_us, 5.0, 0.0);
    enigma_benchmark_free(benchmark);
    benchmark = of_times(two, 2, -1.0, -1.0);
    assert_float_equal(info_of(benchmark).median_us, 50.5, 1e-12);
    assert_float_equal(info_of(benchmark).p90_us, 90.1, 1e-12);
    enigma_benchmark_free(benchmark);
}

static void case_d22_one_and_two_runs_are_enough(void **state)
{
    (void)state;
    for (uint64_t repeat = 1; repeat <= 2; repeat++) {
        fixture f = set_up();
        enigma_benchmark *benchmark = NULL;
        enigma_benchmark_options options = options_of(repeat, 0);
        assert_ok(enigma_benchmark_kernel(f.prepared, &options, &benchmark));
        enigma_benchmark_info info = info_of(benchmark);
        assert_true(isfinite(info.min_us) && isfinite(info.mean_us) && isfinite(info.p90_us));
        assert_float_equal(info.max_us, 1.0, 0.0);
        assert_true(strlen(summary_of(benchmark)) > 0);
        enigma_benchmark_free(benchmark);
        tear_down(&f);
    }
}

static void case_e07_arguments_are_checked_before_the_first_dispatch(void **state)
{
    (void)state;
    fixture f = set_up();
    enigma_benchmark *benchmark = NULL;
    enigma_benchmark_options bad[7];
    for (int i = 0; i < 7; i++) {
        bad[i] = options_of(10, 5);
    }
    bad[0].repeat = 0;
    bad[1].flops = (double)NAN;
    bad[2].bytes_moved = (double)INFINITY;
    bad[3].grid.x = 0;
    bad[4].threads.x = 1000000;
    bad[5].queue = 7;
    bad[6].struct_size = 4;
    for (int i = 0; i < 7; i++) {
        assert_int_equal(enigma_benchmark_kernel(f.prepared, &bad[i], &benchmark), ENIGMA_E_INVALID);
        assert_null(benchmark);
    }
    assert_int_equal(enigma_benchmark_kernel(NULL, &bad[0], &benchmark), ENIGMA_E_INVALID);
    assert_int_equal(enigma_benchmark_kernel(f.prepared, NULL, &benchmark), ENIGMA_E_INVALID);
    enigma_result *result = NULL;
    enigma_profile_kernel_options rows = ENIGMA_PROFILE_KERNEL_OPTIONS_INIT;
    rows.repeat = 0;
    assert_int_equal(enigma_profile_kernel(f.prepared, &rows, &result), ENIGMA_E_INVALID);
    rows.repeat = 1;
    rows.threads.x = 0;
    assert_int_equal(enigma_profile_kernel(f.prepared, &rows, &result), ENIGMA_E_INVALID);
    assert_null(result);
    uint64_t untimed, timed;
    assert_ok(enigma_scripted_counts(f.runtime, &untimed, &timed));
    assert_int_equal(untimed + timed, 0);
    tear_down(&f);
}

static int stop_at_once(void *user)
{
    ++*(int *)user;
    return 1;
}

/* Case E08: a run that would take for ever ends when asked to, and the device is usable afterwards. */
static void case_e08_a_long_benchmark_can_be_interrupted(void **state)
{
    (void)state;
    fixture f = set_up();
    int asked = 0;
    enigma_benchmark *benchmark = NULL;
    enigma_benchmark_options options = options_of(1, UINT64_MAX);
    enigma_set_interrupt(stop_at_once, &asked);
    enigma_status status = enigma_benchmark_kernel(f.prepared, &options, &benchmark);
    enigma_set_interrupt(NULL, NULL);
    assert_int_equal(status, ENIGMA_E_INTERRUPTED);
    assert_null(benchmark);
    assert_int_equal(asked, 1);
    options = options_of(3, 0);
    assert_ok(enigma_benchmark_kernel(f.prepared, &options, &benchmark));
    enigma_benchmark_free(benchmark);
    tear_down(&f);
}

static void case_e14_earlier_work_is_out_of_the_way(void **state)
{
    (void)state;
    fixture f = set_up();
    const double us[2] = {50000.0, 2.0};
    enigma_benchmark *benchmark = NULL;
    enigma_benchmark_options options = options_of(1, 0);
    enigma_dispatch_options earlier = ENIGMA_DISPATCH_OPTIONS_INIT;
    earlier.flags = ENIGMA_DISPATCH_ASYNC;
    push_us(&f, us, 2);
    assert_ok(enigma_dispatch(f.prepared, &earlier));
    assert_ok(enigma_benchmark_kernel(f.prepared, &options, &benchmark));
    assert_float_equal(info_of(benchmark).max_us, 2.0, 0.0);
    assert_int_equal(enigma_now_ns(), 1000000 + 50002000);
    enigma_benchmark_free(benchmark);
    tear_down(&f);
}

static void a_run_without_valid_stamps_fails(void **state)
{
    (void)state;
    fixture f = set_up();
    enigma_benchmark *benchmark = NULL;
    enigma_benchmark_options options = options_of(3, 0);
    const enigma_script scripts[2] = {{ENIGMA_SCRIPT_TIMES, 1000, 2000, NULL}, {.kind = ENIGMA_SCRIPT_UNAVAILABLE}};
    assert_ok(enigma_scripted_push(f.runtime, 0, 0, scripts, 2));
    assert_int_equal(enigma_benchmark_kernel(f.prepared, &options, &benchmark), ENIGMA_E_DEVICE);
    assert_null(benchmark);
    assert_non_null(strstr(enigma_error_message(), "run 2 of 3"));
    const enigma_script failure = {.kind = ENIGMA_SCRIPT_FAILURE, .message = "lost"};
    assert_ok(enigma_scripted_push(f.runtime, 0, 0, &failure, 1));
    assert_int_equal(enigma_benchmark_kernel(f.prepared, &options, &benchmark), ENIGMA_E_DEVICE);
    assert_string_equal(enigma_error_message(), "lost");
    tear_down(&f);
}

static void an_active_profiler_sees_nothing_of_it(void **state)
{
    (void)state;
    fixture f = set_up();
    enigma_benchmark *benchmark = NULL;
    enigma_result *result = NULL;
    enigma_benchmark_options options = options_of(5, 5);
    enigma_profile_kernel_options rows = ENIGMA_PROFILE_KERNEL_OPTIONS_INIT;
    const enigma_script failure = {.kind = ENIGMA_SCRIPT_FAILURE};
    enigma_profiler *profiler = profiler_started();
    enigma_scope scope = enigma_begin("s");
    assert_ok(enigma_benchmark_kernel(f.prepared, &options, &benchmark));
    enigma_benchmark_free(benchmark);
    assert_ok(enigma_profile_kernel(f.prepared, &rows, &result));
    assert_ok(enigma_scripted_push(f.runtime, 0, 0, &failure, 1));
    assert_int_equal(enigma_benchmark_kernel(f.prepared, &options, &benchmark), ENIGMA_E_DEVICE);
    assert_ok(enigma_scripted_push(f.runtime, 0, 0, &failure, 1));
    enigma_result_free(result);
    assert_int_equal(enigma_profile_kernel(f.prepared, &rows, &result), ENIGMA_E_DEVICE);
    assert_ptr_equal(enigma_profiler_active(), profiler);
    enigma_end(scope);
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 1);
    assert_float_equal(event_at(profile, 0).gpu_time_us, 0.0, 0.0);
    enigma_profile_free(profile);
    tear_down(&f);
}

static void case_e16_profile_kernel_gives_rows_of_the_repeats_alone(void **state)
{
    (void)state;
    fixture f = set_up();
    double us[15];
    enigma_result *result = NULL;
    const enigma_row *row = NULL;
    enigma_profile_kernel_options options = ENIGMA_PROFILE_KERNEL_OPTIONS_INIT;
    for (int i = 0; i < 15; i++) {
        us[i] = i < 5 ? 999.0 : i - 4;
    }
    push_us(&f, us, 15);
    options.repeat = 10;
    assert_int_equal(options.profile_memory, 1);
    assert_ok(enigma_profile_kernel(f.prepared, &options, &result));
    assert_int_equal(enigma_result_row_count(result), 1);
    assert_ok(enigma_result_by_name(result, text_of("gpu_dispatch"), &row));
    assert_string_equal(row->kernel_name.data, "k");
    assert_int_equal(row->calls, 10);
    assert_float_equal(row->gpu_total_us, 55.0, 1e-9);
    assert_float_equal(row->median_us, 5.5, 1e-9);
    assert_int_equal(row->input_bytes, 640);
    assert_int_equal(row->output_bytes, 320);
    enigma_result_free(result);
    options.profile_memory = 0;
    assert_ok(enigma_profile_kernel(f.prepared, &options, &result));
    assert_ok(enigma_result_by_name(result, text_of("gpu_dispatch"), &row));
    assert_int_equal(row->input_bytes, 0);
    enigma_result_free(result);
    tear_down(&f);
}

static void case_e17_the_summary_is_one_line_with_units(void **state)
{
    (void)state;
    const double times[3] = {1.0, 2.0, 3.0}, none[1] = {0.0};
    enigma_benchmark *benchmark = of_times(times, 3, -1.0, -1.0);
    const char *summary = summary_of(benchmark);
    static const char *const parts[] = {"k",           "min 1.000 us", "p50 2.000 us", "mean 2.000 us", "p90 2.800 us",
                                        "max 3.000 us"};
    for (size_t i = 0; i < 6; i++) {
        assert_non_null(strstr(summary, parts[i]));
    }
    assert_null(strstr(summary, "FLOP"));
    enigma_benchmark_free(benchmark);
    benchmark = of_times(times, 3, 2e6, -1.0);
    assert_non_null(strstr(summary_of(benchmark), "1000.000 GFLOP/s"));
    assert_null(strstr(summary_of(benchmark), "GB/s"));
    enigma_benchmark_free(benchmark);
    benchmark = of_times(times, 3, 2e6, 4e6);
    assert_non_null(strstr(summary_of(benchmark), "2000.000 GB/s"));
    enigma_benchmark_free(benchmark);
    benchmark = of_times(none, 1, 2e6, 4e6); /* no time: no rate, and no division */
    assert_non_null(strstr(summary_of(benchmark), "0.000 GFLOP/s"));
    enigma_benchmark_free(benchmark);
    assert_ok(enigma_benchmark_from_times((enigma_text){"a\nb\0c", 5}, times, 3, -1.0, -1.0, &benchmark));
    assert_true(strlen(summary_of(benchmark)) > 40); /* still one line, and whole */
    enigma_benchmark_free(benchmark);
}

static void case_h08_work_and_times_must_be_finite(void **state)
{
    (void)state;
    const double good[1] = {1.0}, bad[2] = {1.0, (double)NAN}, negative[1] = {-1.0};
    enigma_benchmark *benchmark = NULL;
    assert_int_equal(enigma_benchmark_from_times(text_of("k"), good, 1, (double)NAN, -1.0, &benchmark),
                     ENIGMA_E_INVALID);
    assert_int_equal(enigma_benchmark_from_times(text_of("k"), good, 1, -1.0, (double)INFINITY, &benchmark),
                     ENIGMA_E_INVALID);
    assert_int_equal(enigma_benchmark_from_times(text_of("k"), bad, 2, -1.0, -1.0, &benchmark), ENIGMA_E_INVALID);
    assert_int_equal(enigma_benchmark_from_times(text_of("k"), negative, 1, -1.0, -1.0, &benchmark), ENIGMA_E_INVALID);
    assert_int_equal(enigma_benchmark_from_times(text_of("k"), good, 0, -1.0, -1.0, &benchmark), ENIGMA_E_INVALID);
    assert_int_equal(enigma_benchmark_from_times(text_of("k"), NULL, 1, -1.0, -1.0, &benchmark), ENIGMA_E_INVALID);
    assert_null(benchmark);
    enigma_benchmark_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_raw_and_in_run_order),
        cmocka_unit_test(case_d20_percentiles_are_linear),
        cmocka_unit_test(case_d22_one_and_two_runs_are_enough),
        cmocka_unit_test(case_e07_arguments_are_checked_before_the_first_dispatch),
        cmocka_unit_test(case_e08_a_long_benchmark_can_be_interrupted),
        cmocka_unit_test(case_e14_earlier_work_is_out_of_the_way),
        cmocka_unit_test(a_run_without_valid_stamps_fails),
        cmocka_unit_test(an_active_profiler_sees_nothing_of_it),
        cmocka_unit_test(case_e16_profile_kernel_gives_rows_of_the_repeats_alone),
        cmocka_unit_test(case_e17_the_summary_is_one_line_with_units),
        cmocka_unit_test(case_h08_work_and_times_must_be_finite),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
