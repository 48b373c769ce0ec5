/* What the command prints is made of: the first rows of a result, rows as JSON, the list of settings. */
#include "support.h"

#include <math.h>

typedef struct text_out {
    char data[8192];
    size_t size, limit;
} text_out;

static int collect(void *user, const void *data, size_t size)
{
    text_out *out = user;
    if (out->size + size >= sizeof out->data || (out->limit != 0 && out->size + size > out->limit)) {
        return 1;
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
    out->data[out->size] = 0;
    return 0;
}

static void scope_for(const char *name, uint64_t ns, const char *key, double value)
{
    enigma_metric metric = {key, value};
    enigma_scope_desc desc = {
        .struct_size = sizeof desc, .name = text_of(name), .metrics = &metric, .metric_count = key != NULL};
    enigma_scope scope = enigma_begin_desc(&desc);
    enigma_scripted_clock_advance(ns);
    enigma_end(scope);
}

/* Rows b (30 us, two calls), c (20 us), "q\"\n" (10 us), with a metric each, two of them no numbers for JSON. */
static enigma_profile *recorded(void)
{
    enigma_scripted_clock_begin(1000000);
    enigma_profiler *profiler = profiler_started();
    scope_for("b", 10000, "flops", 1e6);
    scope_for("c", 20000, "x", NAN);
    scope_for("b", 20000, "flops", 2e6);
    scope_for("q\"\n", 10000, "y", INFINITY);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_scripted_clock_end();
    return profile;
}

static enigma_result *rows_of(enum enigma_group group)
{
    enigma_profile *profile = recorded();
    enigma_result *rows = NULL;
    assert_ok(enigma_profile_key_averages(profile, group, &rows));
    enigma_profile_free(profile);
    return rows;
}

static void check_first(const enigma_result *top, const char *sort_by, const char *const *names, size_t count)
{
    const enigma_row *rows[4];
    assert_int_equal(enigma_result_row_count(top), count);
    assert_ok(enigma_result_rows(top, sort_by, rows, 4));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(rows[i]->name.data, names[i]);
    }
}

static void top_is_the_beginning_of_the_order(void **state)
{
    (void)state;
    static const char *const by_time[] = {"b", "c", "q\"\n"}, *const by_name[] = {"b", "c", "q\"\n"};
    enigma_result *rows = rows_of(ENIGMA_GROUP_NAME);
    for (size_t limit = 0; limit <= 5; limit++) {
        size_t count = limit < 3 ? limit : 3;
        enigma_result *top = NULL, *named = NULL;
        assert_ok(enigma_result_top(rows, NULL, limit, &top));
        assert_ok(enigma_result_top(rows, "name", limit, &named));
        check_first(top, NULL, by_time, count);
        check_first(named, "name", by_name, count);
        enigma_result_free(named);
        enigma_result_free(top);
    }
    enigma_result_free(rows);
}

static void top_sorts_by_any_field(void **state)
{
    (void)state;
    static const char *const by_max[] = {"b", "c"}, *const by_average[] = {"c"};
    enigma_result *rows = rows_of(ENIGMA_GROUP_NAME), *top = NULL;
    assert_ok(enigma_result_top(rows, "max_us", 2, &top));
    check_first(top, "max_us", by_max, 2);
    enigma_result_free(top);
    assert_ok(enigma_result_top(rows, "cpu_avg_us", 1, &top));
    check_first(top, "cpu_avg_us", by_average, 1);
    enigma_result_free(top);
    assert_int_equal(enigma_result_top(rows, "nope", 1, &top), ENIGMA_E_INVALID);
    assert_null(top);
    enigma_result_free(rows);
}

static void top_stands_alone(void **state)
{
    (void)state;
    enigma_result *rows = rows_of(ENIGMA_GROUP_CALL_PATH), *top = NULL;
    const enigma_row *row = NULL;
    assert_ok(enigma_result_top(rows, NULL, 1, &top));
    enigma_result_free(rows);
    assert_ok(enigma_result_by_name(top, text_of("b"), &row));
    assert_int_equal(row->calls, 2);
    assert_string_equal(row->metrics[0].key, "flops");
    assert_true(row->metrics[0].value == 3e6);
    assert_int_equal(row->call_path_count, 1);
    assert_string_equal(row->call_path[0].data, "b");
    assert_int_equal(enigma_result_by_name(top, text_of("c"), &row), ENIGMA_E_NOT_FOUND);
    enigma_result_free(top);
}

static void add_dispatch(enigma_profiler *profiler, const char *kernel)
{
    enigma_event event = {.struct_size = sizeof event, .name = text_of("gpu_dispatch"), .kernel_name = text_of(kernel)};
    event.start_ns = 1000000;
    event.end_ns = 1001000;
    enigma_profiler_add_event(profiler, &event, 0);
}

static void top_keeps_merged_rows(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    enigma_result *rows = NULL, *top = NULL;
    const enigma_row *row = NULL;
    add_dispatch(profiler, "k1");
    add_dispatch(profiler, "k2");
    enigma_profile *profile = profile_stopped(profiler);
    assert_ok(enigma_profile_key_averages(profile, ENIGMA_GROUP_NAME, &rows));
    assert_ok(enigma_result_top(rows, NULL, 1, &top));
    enigma_result_free(rows);
    assert_int_equal(enigma_result_row_count(top), 1);
    assert_ok(enigma_result_by_name(top, text_of("gpu_dispatch"), &row));
    assert_int_equal(row->calls, 2);
    assert_null(row->kernel_name.data);
    enigma_result_free(top);
    enigma_profile_free(profile);
}

static void json_is_strict(void **state)
{
    (void)state;
    enigma_result *rows = rows_of(ENIGMA_GROUP_NAME);
    text_out out = {.size = 0};
    assert_ok(enigma_result_write_json(rows, NULL, collect, &out));
    assert_int_equal(strncmp(out.data, "{\"rows\":[\n{\"name\":\"b\",\"kernel_name\":null,\"calls\":2,", 51), 0);
    assert_non_null(strstr(out.data, "\"metrics\":{\"flops\":3000000},\"call_path\":null}"));
    assert_non_null(strstr(out.data, "\"name\":\"q\\\"\\n\""));
    assert_non_null(strstr(out.data, "\"metrics\":{\"x\":null}"));
    assert_non_null(strstr(out.data, "\"metrics\":{\"y\":null}"));
    assert_null(strstr(out.data, "nan"));
    assert_null(strstr(out.data, "inf"));
    assert_string_equal(out.data + out.size - 4, "\n]}\n");
    enigma_result_free(rows);
}

static void json_fails_whole(void **state)
{
    (void)state;
    enigma_result *rows = rows_of(ENIGMA_GROUP_CALL_PATH);
    text_out out = {.limit = 1};
    assert_int_equal(enigma_result_write_json(rows, NULL, collect, &out), ENIGMA_E_IO);
    assert_int_equal(enigma_result_write_json(rows, "nope", collect, &out), ENIGMA_E_INVALID);
    assert_int_equal(out.size, 0);
    out.limit = 0;
    assert_ok(enigma_result_write_json(rows, "name", collect, &out));
    assert_non_null(strstr(out.data, "\"call_path\":[\"b\"]"));
    enigma_result_free(rows);
}

static void settings_are_listed(void **state)
{
    (void)state;
    const enigma_setting_info *setting;
    size_t count = 0, device = 0;
    for (; (setting = enigma_setting_at(count)) != NULL; count++) {
        assert_int_equal(strncmp(setting->name, "ENIGMA_", 7), 0);
        assert_true(strlen(setting->help) > 10);
        assert_true(strcmp(setting->type, "text") == 0 || strcmp(setting->type, "number") == 0 ||
                    strcmp(setting->type, "flag") == 0);
        device += strcmp(setting->name, "ENIGMA_DEVICE") == 0 && strcmp(setting->fallback, "0") == 0;
    }
    assert_true(count >= 4);
    assert_int_equal(device, 1);
    assert_null(enigma_setting_at(count + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_is_the_beginning_of_the_order),
        cmocka_unit_test(top_sorts_by_any_field),
        cmocka_unit_test(top_stands_alone),
        cmocka_unit_test(top_keeps_merged_rows),
        cmocka_unit_test(json_is_strict),
        cmocka_unit_test(json_fails_whole),
        cmocka_unit_test(settings_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
