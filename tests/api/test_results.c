/* Rows, table and tree as a user sees them, with exact numbers. Cases A01 to A11, C05, D01, D08 to D14, G05, G08. */
#include "enigma.h"

#include "recording.h"

#include <math.h>

/* ---- rows ---- */

static void a01_reading_changes_nothing(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < 3; i++) {
        enigma_scope scope = enigma_begin("s");
        advance(1000 + (uint64_t)i);
        enigma_end(scope);
    }
    enigma_profile *profile = recording_end(profiler);
    enigma_event before[3], after[3];
    for (size_t i = 0; i < 3; i++) {
        before[i] = (enigma_event){.struct_size = sizeof before[i]};
        assert_int_equal(enigma_profile_event(profile, i, &before[i]), ENIGMA_OK);
    }
    enigma_result *a = averages(profile, ENIGMA_GROUP_NAME), *b = averages(profile, ENIGMA_GROUP_NAME);
    assert_true(row_named(a, "s")->cpu_total_us == 3.003 && row_named(b, "s")->cpu_total_us == 3.003);
    for (size_t i = 0; i < 3; i++) {
        after[i] = (enigma_event){.struct_size = sizeof after[i]};
        assert_int_equal(enigma_profile_event(profile, i, &after[i]), ENIGMA_OK);
        assert_int_equal(before[i].end_ns, after[i].end_ns);
        assert_int_equal(before[i].start_ns, after[i].start_ns);
    }
    enigma_result_free(a);
    enigma_profile_free(profile); /* the result keeps it */
    assert_int_equal(row_named(b, "s")->calls, 3);
    enigma_result_free(b);
}

static void a03_gpu_time_is_not_counted_twice(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope outer = enigma_begin("outer"), inner = enigma_begin("inner");
    add_kernel("k", 150000, 100000);
    enigma_end(inner);
    enigma_end(outer);
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *rows[8];
    double kernels = 0.0;
    size_t count = enigma_result_row_count(result);
    assert_int_equal(count, 3);
    assert_int_equal(enigma_result_rows(result, NULL, rows, 8), ENIGMA_OK);
    for (size_t i = 0; i < count; i++) {
        assert_true(rows[i]->gpu_total_us == 100.0 && rows[i]->gpu_busy_us == 100.0);
        kernels += rows[i]->kernel_name.data != NULL ? rows[i]->gpu_total_us : 0.0;
    }
    assert_true(kernels == 100.0);
    assert_true(row_named(result, "gpu_dispatch")->is_gpu_work == 1 && row_named(result, "outer")->is_gpu_work == 0);
    assert_true(row_named(result, "gpu_dispatch")->median_us == 100.0 &&
                row_named(result, "outer")->median_us == 150.0);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void a05_many_calls(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < 10; i++) {
        enigma_scope scope = enigma_begin("iteration");
        for (int k = 0; k < 3; k++) {
            add_kernel("k", 2500, 2000);
        }
        enigma_end(scope);
    }
    enigma_profile *profile = recording_end(profiler);
    static const char *const names[] = {"gpu_dispatch", "iteration/gpu_dispatch:k"};
    for (int group = ENIGMA_GROUP_NAME; group <= ENIGMA_GROUP_CALL_PATH; group++) {
        enigma_result *result = averages(profile, (enum enigma_group)group);
        const enigma_row *row = row_named(result, names[group]);
        assert_int_equal(row->calls, 30);
        assert_true(row->gpu_total_us == 60.0 && row->gpu_avg_us == 2.0 && row->cpu_avg_us == 2.5);
        assert_int_equal(row->call_path_count, group == ENIGMA_GROUP_NAME ? 0 : 2);
        enigma_result_free(result);
    }
    enigma_profile_free(profile);
}

static void a06_recursion_counts_an_instant_once(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope outer = begin_with("f", "flops", 100, NULL, 0);
    advance(3000000);
    enigma_scope between = enigma_begin("g"), inner = begin_with("f", "flops", 40, NULL, 0);
    add_kernel("k", 4000000, 1000000);
    enigma_end(inner);
    enigma_end(between);
    advance(3000000);
    enigma_end(outer);
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *f = row_named(result, "f");
    assert_int_equal(f->calls, 2);
    assert_true(f->cpu_total_us == 10000.0 && f->gpu_total_us == 1000.0 && f->gpu_busy_us == 1000.0);
    assert_true(f->self_total_us == 6000.0 && f->min_us == 4000.0 && f->max_us == 10000.0 && f->median_us == 7000.0);
    assert_true(row_metric(f, "flops") == 140.0);
    assert_int_equal(f->rate_source, ENIGMA_RATE_GPU);
    assert_true(f->gflops_per_s == 140.0 / (1000.0 * 1000.0));
    enigma_result_free(result);
    result = averages(profile, ENIGMA_GROUP_CALL_PATH);
    assert_true(row_named(result, "f")->cpu_total_us == 10000.0 && row_named(result, "f/g/f")->cpu_total_us == 4000.0);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

/* The flops of the inner call must not lose their time because an outer one without flops is open. */
static void a06_rate_of_recursion_takes_the_carriers_time(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope outer = enigma_begin("f");
    advance(1000);
    enigma_scope inner = begin_with("f", "flops", 8000, NULL, 0);
    advance(4000);
    enigma_end(inner);
    enigma_end(outer);
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *f = row_named(result, "f");
    assert_true(f->cpu_total_us == 5.0 && f->gflops_per_s == 2.0);
    assert_int_equal(f->rate_source, ENIGMA_RATE_CPU);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static int follows(const enigma_row *a, const enigma_row *b, const enigma_row_field *field)
{
    const char *x = (const char *)a + field->offset, *y = (const char *)b + field->offset;
    if (field->kind == ENIGMA_FIELD_UINT) {
        return *(const uint64_t *)x >= *(const uint64_t *)y;
    }
    if (field->kind == ENIGMA_FIELD_DOUBLE) {
        return *(const double *)x >= *(const double *)y;
    }
    if (field->kind == ENIGMA_FIELD_SOURCE) { /* absent, "cpu", "gpu" */
        static const int order[] = {[ENIGMA_RATE_NONE] = 0, [ENIGMA_RATE_CPU] = 1, [ENIGMA_RATE_GPU] = 2};
        return order[*(const uint32_t *)x] <= order[*(const uint32_t *)y];
    }
    const char *p = ((const enigma_text *)x)->data, *q = ((const enigma_text *)y)->data;
    return p == NULL || (q != NULL && strcmp(p, q) <= 0);
}

static void a07_sorting(void **state)
{
    static const char *const wrong[] = {"nope", "", "Calls", "calls ", "metrics", "call_path"};
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i * 7 % 12);
        enigma_scope scope = begin_with(name, i % 3 == 0 ? NULL : i % 3 == 1 ? "flops" : "bytes", i * 1e6, NULL, 0);
        if (i % 2 == 0) {
            add_work(&(work){.kernel = i % 4 == 0 ? "a" : "b",
                             .cpu_ns = 500,
                             .gpu_start = enigma_now_ns(),
                             .gpu_end = enigma_now_ns() + 100u * (unsigned)i,
                             .input_bytes = (uint64_t)i});
        }
        advance((uint64_t)(i % 4) * 1000);
        enigma_end(scope);
    }
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *rows[16];
    size_t count = enigma_result_row_count(result);
    assert_int_equal(count, 14);
    const enigma_row_field *field;
    size_t fields = 0;
    for (; (field = enigma_row_field_at(fields)) != NULL; fields++) {
        assert_int_equal(enigma_result_rows(result, field->name, rows, 16), ENIGMA_OK);
        for (size_t i = 1; i < count; i++) {
            assert_true(follows(rows[i - 1], rows[i], field));
            if (follows(rows[i], rows[i - 1], field)) { /* equal: by name, then kernel */
                int order = strcmp(rows[i - 1]->name.data, rows[i]->name.data);
                assert_true(order < 0 ||
                            (order == 0 && strcmp(rows[i - 1]->kernel_name.data, rows[i]->kernel_name.data) < 0));
            }
        }
    }
    assert_true(fields >= 17);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(enigma_result_rows(result, wrong[i], rows, 16), ENIGMA_E_INVALID);
        assert_non_null(strstr(enigma_error_message(), "cpu_total_us"));
        assert_non_null(strstr(enigma_error_message(), "rate_source"));
        assert_int_equal(enigma_result_write_table(result, wrong[i], write_to, &(written){0}), ENIGMA_E_INVALID);
    }
    rows[1] = NULL;
    assert_int_equal(enigma_result_rows(result, "name", rows, 1), ENIGMA_OK);
    assert_null(rows[1]);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void a08_by_name(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    add_kernel("a", 2000, 1000);
    add_kernel("b", 2000, 3000);
    add_kernel("b", 2000, 5000);
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "gpu_dispatch");
    assert_null(row->kernel_name.data);
    assert_int_equal(row->calls, 3);
    assert_true(row->gpu_total_us == 9.0 && row->median_us == 3.0 && row->max_us == 5.0 && row->cpu_total_us == 6.0);
    /* the union: [0,1], [2,5], [4,9] us */
    assert_true(row->gpu_busy_us == 8.0);
    assert_int_equal(enigma_result_by_name(result, (enigma_text){"missing", 0}, &row), ENIGMA_E_NOT_FOUND);
    assert_null(row);
    assert_non_null(strstr(enigma_error_message(), "missing"));
    assert_int_equal(enigma_result_by_name(result, (enigma_text){"gpu_dispatchX", 12}, &row), ENIGMA_OK);
    enigma_result_free(result);
    assert_int_equal(enigma_profile_key_averages(profile, (enum enigma_group)7, &result), ENIGMA_E_INVALID);
    assert_null(result);
    enigma_profile_free(profile);
}

static void a10_labels_are_not_keys(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope scope = enigma_begin("a:b");
    advance(1000);
    enigma_end(scope);
    add_work(&(work){.name = "a", .kernel = "b", .cpu_ns = 2000, .gpu_start = 5000, .gpu_end = 6000});
    enigma_profile *profile = recording_end(profiler);
    for (int group = ENIGMA_GROUP_NAME; group <= ENIGMA_GROUP_CALL_PATH; group++) {
        enigma_result *result = averages(profile, (enum enigma_group)group);
        assert_int_equal(enigma_result_row_count(result), 2);
        enigma_result_free(result);
    }
    written tree = tree_of(profile);
    assert_int_equal(occurrences(tree.data, "a:b  calls 1"), 2);
    free(tree.data);
    enigma_profile_free(profile);
}

static void a11_separators_in_names(void **state)
{
    static const char *const pairs[][2] = {{"a/b", "c"}, {"a", "b/c"},   {"x;y", "z"},
                                           {"x", "y;z"}, {"p > q", "r"}, {"p", "q > r"}};
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (size_t i = 0; i < 6; i++) {
        enigma_scope outer = enigma_begin(pairs[i][0]), inner = enigma_begin(pairs[i][1]);
        advance(1000 * (i + 1));
        enigma_end(inner);
        enigma_end(outer);
    }
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_CALL_PATH);
    assert_int_equal(enigma_result_row_count(result), 12);
    const enigma_row *row = row_named(result, "a/b/c");
    assert_int_equal(row->calls, 2);
    assert_true(row->cpu_total_us == 3.0);
    assert_int_equal(row->call_path_count, 0); /* it has no one path */
    written table = table_of(result, "name");
    assert_int_equal(occurrences(table.data, "a/b/c "), 2);
    assert_int_equal(occurrences(table.data, "a/b/c #2 "), 1); /* told apart */
    written tree = tree_of(profile);
    assert_int_equal(occurrences(tree.data, "\n  b/c  calls 1"), 1);
    assert_int_equal(occurrences(tree.data, "\n  c  calls 1"), 1);
    free(tree.data);
    free(table.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

/* ---- numbers ---- */

static void c05_numbers_that_are_none(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope scope = begin_with("s", "flops", INFINITY, "x", NAN);
    advance(1000);
    enigma_end(scope);
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "s");
    assert_true(row_metric(row, "flops") == INFINITY && isnan(row_metric(row, "x")));
    assert_true(row->gflops_per_s == 0.0);
    assert_int_equal(row->rate_source, ENIGMA_RATE_NONE);
    written table = table_of(result, NULL);
    assert_non_null(strstr(table.data, "GFLOP/s"));
    assert_non_null(strstr(table.data, " - "));
    assert_null(strstr(table.data, "inf"));
    assert_null(strstr(table.data, "nan"));
    free(table.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void d01_impossible_stamps(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope scope = enigma_begin("s");
    add_work(
        &(work){.kernel = "k", .cpu_ns = 9000, .gpu_start = 2000001, .gpu_end = 2000000, .key = "flops", .value = 1e6});
    add_work(&(work){
        .kernel = "k", .cpu_ns = 9000, .gpu_start = 2000000000, .gpu_end = 1000000, .key = "flops", .value = 1e6});
    add_work(
        &(work){.kernel = "k", .cpu_ns = 9000, .gpu_start = 1020000, .gpu_end = 1024000, .key = "flops", .value = 1e6});
    add_work(&(work){.kernel = "k", .cpu_ns = 9000, .gpu_start = 0, .gpu_end = 0, .key = "flops", .value = 1e6});
    enigma_end(scope);
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "gpu_dispatch");
    assert_int_equal(row->calls, 4);
    assert_true(row->gpu_total_us == 4.0 && row->min_us == 4.0 && row->max_us == 4.0 && row->gpu_avg_us == 1.0);
    assert_true(row_metric(row, "flops") == 4e6);
    assert_true(row->gflops_per_s == 1e6 / (4.0 * 1000.0)); /* of the one whose time is known */
    assert_true(row_named(result, "s")->gpu_total_us == 4.0);
    written table = table_of(result, NULL), tree = tree_of(profile);
    assert_non_null(strstr(table.data, "\n3 GPU times not valid"));
    assert_non_null(strstr(tree.data, "\n3 GPU times not valid"));
    free(table.data);
    free(tree.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void d08_no_time(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_end(begin_with("s", "flops", 1e6, "bytes", 1e6));
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "s");
    assert_true(row->gflops_per_s == 0.0 && row->gbytes_per_s == 0.0);
    assert_int_equal(row->rate_source, ENIGMA_RATE_NONE);
    written table = table_of(result, NULL);
    size_t size = table.size;
    assert_memory_equal(table.data + size - 2, "-\n", 2);
    free(table.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void d10_only_carriers_give_the_rate(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < 5; i++) {
        uint64_t now = enigma_now_ns();
        add_work(&(work){.kernel = "k",
                         .cpu_ns = 5000,
                         .gpu_start = now,
                         .gpu_end = now + 1000,
                         .key = i < 3 ? "flops" : NULL,
                         .value = 2e6});
    }
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "gpu_dispatch");
    assert_true(row_metric(row, "flops") == 6e6 && row->gpu_total_us == 5.0);
    assert_true(row->gflops_per_s == 2000.0); /* 6e6 in 3 us */
    assert_int_equal(row->rate_source, ENIGMA_RATE_GPU);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void d11_big_counts(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < 100; i++) {
        add_work(&(work){.kernel = "k",
                         .cpu_ns = 5000,
                         .gpu_start = 1000,
                         .gpu_end = 2000,
                         .key = "flops",
                         .value = 0x1p70,
                         .key2 = "bytes",
                         .value2 = 1e18,
                         .input_bytes = UINT64_MAX / 8,
                         .output_bytes = 3});
    }
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "gpu_dispatch");
    assert_true(row_metric(row, "flops") == 100 * 0x1p70 && row_metric(row, "bytes") == 1e20);
    assert_true(row->input_bytes == UINT64_MAX && row->output_bytes == 300);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void d13_small_times_add_up(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < 1000000; i++) {
        add_work(&(work){.kernel = "k",
                         .cpu_ns = 300,
                         .gpu_start = 1000 + 200u * (unsigned)i,
                         .gpu_end = 1100 + 200u * (unsigned)i});
    }
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "gpu_dispatch");
    assert_true(row->gpu_total_us == 100000.0 && row->cpu_total_us == 300000.0 && row->gpu_busy_us == 100000.0);
    assert_int_equal(row->calls, 1000000);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void d14_overlapping_queues(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope scope = enigma_begin("s");
    for (uint32_t queue = 0; queue < 2; queue++) {
        add_work(&(work){.kernel = "k", .cpu_ns = 1000, .gpu_start = 2000000, .gpu_end = 2100000, .queue = queue});
    }
    enigma_end(scope);
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    static const char *const names[] = {"s", "gpu_dispatch"};
    for (size_t i = 0; i < 2; i++) {
        assert_true(row_named(result, names[i])->gpu_total_us == 200.0 &&
                    row_named(result, names[i])->gpu_busy_us == 100.0);
    }
    enigma_result_free(result);
    enigma_profile_free(profile);
}

/* ---- text ---- */

static void a02_table_is_pure(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    add_work(&(work){.kernel = "k", .cpu_ns = 5000, .gpu_start = 1000, .gpu_end = 2000, .key = "flops", .value = 2e6});
    enigma_end(enigma_begin("s"));
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    written a = table_of(result, NULL), b = table_of(result, NULL), c = tree_of(profile), d = tree_of(profile);
    assert_string_equal(a.data, b.data);
    assert_string_equal(c.data, d.data);
    assert_true(row_metric(row_named(result, "gpu_dispatch"), "flops") == 2e6);
    assert_non_null(strstr(a.data, "2000.00"));
    assert_non_null(strstr(a.data, "GB/s"));
    free(a.data);
    free(b.data);
    free(c.data);
    free(d.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void table_of_nothing(void **state)
{
    (void)state;
    enigma_profile *profile = recording_end(recording_begin(RECORDING_START));
    enigma_result *result = averages(profile, ENIGMA_GROUP_CALL_PATH);
    assert_int_equal(enigma_result_row_count(result), 0);
    written table = table_of(result, NULL), tree = tree_of(profile);
    assert_non_null(strstr(table.data, "Name"));
    assert_null(strstr(table.data, "GFLOP/s"));
    assert_non_null(strstr(tree.data, "0 events"));
    free(table.data);
    free(tree.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static size_t line_count(const char *text) { return occurrences(text, "\n"); }

static void g05_a_million_names(void **state)
{
    enum { NAMES = 1000000 };
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < NAMES; i++) {
        char name[24];
        snprintf(name, sizeof name, "name %d", i);
        enigma_scope scope = enigma_begin(name);
        advance((uint64_t)i);
        enigma_end(scope);
    }
    enigma_profile *profile = recording_end(profiler);
    for (int group = ENIGMA_GROUP_NAME; group <= ENIGMA_GROUP_CALL_PATH; group++) {
        enigma_result *result = averages(profile, (enum enigma_group)group);
        assert_int_equal(enigma_result_row_count(result), NAMES);
        assert_true(row_named(result, "name 123456")->cpu_total_us == 123.456);
        if (group == ENIGMA_GROUP_NAME) {
            written table = table_of(result, NULL);
            assert_int_equal(line_count(table.data), NAMES + 2);
            free(table.data);
        }
        enigma_result_free(result);
    }
    written tree = tree_of(profile);
    assert_int_equal(line_count(tree.data), NAMES + 1);
    free(tree.data);
    enigma_profile_free(profile);
}

static void g07_five_thousand_deep(void **state)
{
    enum { DEEP = 5000 };
    static enigma_scope scopes[DEEP];
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < DEEP; i++) {
        scopes[i] = enigma_begin("f");
        advance(10);
    }
    add_kernel("k", 1000, 500);
    for (int i = DEEP; i > 0; i--) {
        enigma_end(scopes[i - 1]);
    }
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *f = row_named(result, "f");
    assert_int_equal(f->calls, DEEP);
    assert_true(f->cpu_total_us == 51.0 && f->gpu_total_us == 0.5 && f->gpu_busy_us == 0.5 && f->self_total_us == 50.0);
    enigma_result_free(result);
    result = averages(profile, ENIGMA_GROUP_CALL_PATH);
    assert_int_equal(enigma_result_row_count(result), DEEP + 1);
    enigma_result_free(result);
    written tree = tree_of(profile);
    assert_int_equal(line_count(tree.data), DEEP + 2);
    assert_non_null(strstr(tree.data, "[4999] f  calls 1"));
    const char *longest = strstr(tree.data, "[5000] gpu_dispatch:k");
    assert_non_null(longest);
    assert_true(longest - tree.data >= 129 && longest[-129] == '\n');
    free(tree.data);
    enigma_profile_free(profile);
}

static void g08_long_names_stay_distinct(void **state)
{
    enum { SIZE = 1 << 20 };
    (void)state;
    char *name = malloc(SIZE + 1);
    assert_non_null(name);
    memset(name, 'x', SIZE);
    name[SIZE] = '\0';
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (int i = 0; i < 3; i++) {
        name[SIZE / 2] = (char)('a' + i);
        enigma_end(enigma_begin(name));
    }
    name[SIZE - 1] = 'z';
    enigma_end(enigma_begin(name));
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    assert_int_equal(enigma_result_row_count(result), 4);
    written table = table_of(result, NULL), tree = tree_of(profile);
    assert_true(table.size < 2000 && tree.size < 2000);
    assert_int_equal(occurrences(table.data, "\xe2\x80\xa6"), 4);
    assert_int_equal(occurrences(table.data, "x #2 "), 1);
    assert_int_equal(occurrences(table.data, "x #3 "), 1);
    assert_int_equal(occurrences(table.data, "xz "), 1);
    written chrome = exported(profile, "chrome");
    name[SIZE - 1] = 'z';
    assert_non_null(strstr(chrome.data, name));
    free(chrome.data);
    free(table.data);
    free(tree.data);
    free(name);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void control_characters_are_escaped(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_end(enigma_begin("a\n\x1b[31mb\x7f\xff\xc2\x85\xe2\x80\xae"));
    enigma_end(enigma_begin("a\\n\\x1b[31mb\\x7f\xff\\x85\\u202e"));
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    written table = table_of(result, NULL), tree = tree_of(profile);
    static const char shown[] = "a\\n\\x1b[31mb\\x7f\xef\xbf\xbd\\x85\\u202e";
    assert_int_equal(occurrences(table.data, shown), 2);
    assert_int_equal(occurrences(tree.data, shown), 2);
    assert_int_equal(occurrences(table.data, " #2 "), 1);
    assert_int_equal(line_count(table.data), 4);
    free(table.data);
    free(tree.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static int refuse(void *user, const void *data, size_t size)
{
    (void)data;
    (void)size;
    ++*(int *)user;
    return 28;
}

static void write_errors_come_back(void **state)
{
    int calls = 0;
    (void)state;
    enigma_profile *profile = recording_end(recording_begin(RECORDING_START));
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    assert_int_equal(enigma_result_write_table(result, NULL, refuse, &calls), ENIGMA_E_IO);
    assert_int_equal(enigma_profile_write_tree(profile, refuse, &calls), ENIGMA_E_IO);
    assert_int_equal(calls, 2);
    assert_int_equal(enigma_result_save_csv(result, "/nonexistent/x.csv"), ENIGMA_E_IO);
    assert_string_equal(enigma_error_path(), "/nonexistent/x.csv");
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void csv_has_every_field(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope scope = begin_with("a,\"b\"\nc", "flops", 3e6, "my,key", NAN);
    advance(1500);
    enigma_end(scope);
    add_work(&(work){.kernel = "k", .cpu_ns = 500, .gpu_start = 1000, .gpu_end = 2000, .input_bytes = 7});
    enigma_profile *profile = recording_end(profiler);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    assert_int_equal(enigma_result_save_csv(result, "rows.csv"), ENIGMA_OK);
    char text[2048];
    FILE *file = fopen("rows.csv", "rb");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    assert_string_equal(
        text,
        "name,kernel_name,calls,cpu_total_us,gpu_total_us,cpu_avg_us,gpu_avg_us,min_us,median_us,max_us,self_total_us,"
        "gpu_busy_us,input_bytes,output_bytes,gflops_per_s,gbytes_per_s,rate_source,metrics.flops,\"metrics.my,"
        "key\"\r\n"
        "\"a,\"\"b\"\"\nc\",,1,1.5,0,1.5,0,1.5,1.5,1.5,1.5,0,0,0,2000,0,cpu,3000000,\r\n"
        "gpu_dispatch,k,1,0.5,1,0.5,1,1,1,1,0.5,1,7,0,0,0,,,\r\n");
    enigma_result_free(result);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a01_reading_changes_nothing),
        cmocka_unit_test(a02_table_is_pure),
        cmocka_unit_test(a03_gpu_time_is_not_counted_twice),
        cmocka_unit_test(a05_many_calls),
        cmocka_unit_test(a06_recursion_counts_an_instant_once),
        cmocka_unit_test(a06_rate_of_recursion_takes_the_carriers_time),
        cmocka_unit_test(a07_sorting),
        cmocka_unit_test(a08_by_name),
        cmocka_unit_test(a10_labels_are_not_keys),
        cmocka_unit_test(a11_separators_in_names),
        cmocka_unit_test(c05_numbers_that_are_none),
        cmocka_unit_test(d01_impossible_stamps),
        cmocka_unit_test(d08_no_time),
        cmocka_unit_test(d10_only_carriers_give_the_rate),
        cmocka_unit_test(d11_big_counts),
        cmocka_unit_test(d13_small_times_add_up),
        cmocka_unit_test(d14_overlapping_queues),
        cmocka_unit_test(table_of_nothing),
        cmocka_unit_test(g05_a_million_names),
        cmocka_unit_test(g07_five_thousand_deep),
        cmocka_unit_test(g08_long_names_stay_distinct),
        cmocka_unit_test(control_characters_are_escaped),
        cmocka_unit_test(write_errors_come_back),
        cmocka_unit_test(csv_has_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
