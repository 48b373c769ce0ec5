/* Scopes of a thread: paths, order, metrics, metadata, ends out of order, nested profilers. Times by the scripted clock. */
#include "support.h"

static int clock_setup(void **state)
{
    (void)state;
    enigma_scripted_clock_begin(1000000);
    return 0;
}

static int clock_teardown(void **state)
{
    (void)state;
    enigma_scripted_clock_end();
    return 0;
}

static void nested(void)
{
    ENIGMA_SCOPE("outer");
    enigma_scripted_clock_advance(10);
    {
        ENIGMA_SCOPE("inner");
        enigma_scripted_clock_advance(5);
    }
    enigma_scripted_clock_advance(1);
}

static void test_off_records_nothing(void **state)
{
    (void)state;
    assert_int_equal(enigma_gate, 0);
    assert_null(enigma_profiler_active());
    nested();
    enigma_scope scope = enigma_begin("text");
    assert_int_equal(scope.id, 0);
    enigma_end(scope);
}

static void test_paths_times_and_order(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    assert_ptr_equal(enigma_profiler_active(), profiler);
    nested();
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 2);
    enigma_event inner = event_at(profile, 0);
    assert_string_equal(path_text(profile, inner.path), "outer/inner");
    assert_int_equal(inner.end_ns - inner.start_ns, 5);
    enigma_event outer = event_at(profile, 1);
    assert_string_equal(path_text(profile, outer.path), "outer");
    assert_int_equal(outer.start_ns, 1000000);
    assert_int_equal(outer.end_ns, 1000016);
    assert_float_equal(outer.self_us, 0.011, 1e-12);
    assert_string_equal(outer.category.data, "scope");
    assert_null(outer.kernel_name.data);
    enigma_profile_free(profile);
}

/* Equal stamps everywhere: the order of ending comes from the nesting alone. */
static void test_order_of_ending_with_equal_stamps(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    {
        ENIGMA_SCOPE("p");
        {
            ENIGMA_SCOPE("a");
        }
        {
            ENIGMA_SCOPE("b");
            {
                ENIGMA_SCOPE("c");
            }
        }
    }
    enigma_profile *profile = profile_stopped(profiler);
    const char *expected[] = {"p/a", "p/b/c", "p/b", "p"};
    assert_int_equal(enigma_profile_event_count(profile), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(path_text(profile, event_at(profile, i).path), expected[i]);
    }
    enigma_profile_free(profile);
}

static void test_text_is_compared_by_content(void **state)
{
    (void)state;
    char name[8] = "one";
    enigma_profiler *profiler = profiler_started();
    enigma_end(enigma_begin(name));
    memcpy(name, "two", 4);
    enigma_end(enigma_begin(name));
    enigma_end(enigma_begin("one"));
    enigma_end(enigma_begin(NULL));
    enigma_profile *profile = profile_stopped(profiler);
    assert_string_equal(event_at(profile, 0).name.data, "one");
    assert_string_equal(event_at(profile, 1).name.data, "two");
    assert_int_equal(event_at(profile, 2).path, event_at(profile, 0).path);
    assert_string_equal(event_at(profile, 3).name.data, "");
    enigma_profile_free(profile);
}

static void test_metrics_and_metadata(void **state)
{
    (void)state;
    const enigma_metric metrics[] = {{"flops", 2e9}, {"bytes", -1}};
    const enigma_field shape[] = {{{NULL, 0}, {ENIGMA_INT, {.integer = -3}}}, {{NULL, 0}, {ENIGMA_DOUBLE, {.number = 0.5}}}};
    const enigma_field metadata[] = {
        {{"layer", 0}, {ENIGMA_TEXT, {.text = {"a\0b", 3}}}},
        {{"shape", 0}, {ENIGMA_TUPLE, {.items = {shape, 2}}}},
        {{"none", 0}, {ENIGMA_NULL, {.integer = 0}}},
    };
    const enigma_scope_desc desc = {sizeof desc, {"s", 0}, {"mine", 0}, metrics, 2, metadata, 3};
    enigma_profiler *profiler = profiler_started();
    enigma_end(enigma_begin_desc(&desc));
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event event = event_at(profile, 0);
    assert_string_equal(event.category.data, "mine");
    assert_int_equal(event.metric_count, 2);
    assert_string_equal(event.metrics[0].key, "flops");
    assert_float_equal(event.metrics[0].value, 2e9, 0);
    assert_float_equal(event.metrics[1].value, -1, 0);
    assert_int_equal(event.metadata_count, 3);
    assert_memory_equal(metadata_of(&event, "layer")->as.text.data, "a\0b", 4);
    const enigma_value *tuple = metadata_of(&event, "shape");
    assert_int_equal(tuple->type, ENIGMA_TUPLE);
    assert_int_equal(tuple->as.items.count, 2);
    assert_int_equal(tuple->as.items.data[0].value.as.integer, -3);
    assert_float_equal(tuple->as.items.data[1].value.as.number, 0.5, 0);
    assert_int_equal(metadata_of(&event, "none")->type, ENIGMA_NULL);
    enigma_profile_free(profile);
}

/* Longer lists than one block of the journal holds come back whole and in order. */
static void test_many_metrics_and_fields(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static enigma_metric metrics[COUNT];
    static enigma_field fields[COUNT];
    static char keys[COUNT][8];
    for (int i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        metrics[i] = (enigma_metric){keys[i], i};
        fields[i] = (enigma_field){{keys[i], 0}, {ENIGMA_INT, {.integer = i}}};
    }
    const enigma_scope_desc desc = {sizeof desc, {"s", 0}, {NULL, 0}, metrics, COUNT, fields, COUNT};
    enigma_profiler *profiler = profiler_started();
    enigma_end(enigma_begin_desc(&desc));
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event event = event_at(profile, 0);
    assert_int_equal(event.metric_count, COUNT);
    assert_int_equal(event.metadata_count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_string_equal(event.metrics[i].key, keys[i]);
        assert_float_equal(event.metrics[i].value, i, 0);
        assert_int_equal(event.metadata[i].value.as.integer, i);
    }
    enigma_profile_free(profile);
}

/* Containers nested deeper than the limit end in "...", however deep they were. */
static void test_metadata_depth_is_bounded(void **state)
{
    (void)state;
    static enigma_field nest[200];
    nest[199] = (enigma_field){{NULL, 0}, {ENIGMA_INT, {.integer = 1}}};
    for (int i = 198; i >= 0; i--) {
        nest[i] = (enigma_field){{NULL, 0}, {ENIGMA_LIST, {.items = {&nest[i + 1], 1}}}};
    }
    nest[0].key = text_of("deep");
    const enigma_scope_desc desc = {sizeof desc, {"s", 0}, {NULL, 0}, NULL, 0, nest, 1};
    enigma_profiler *profiler = profiler_started();
    enigma_end(enigma_begin_desc(&desc));
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event event = event_at(profile, 0);
    const enigma_value *value = metadata_of(&event, "deep");
    int depth = 0;
    while (value->type == ENIGMA_LIST) {
        value = &value->as.items.data[0].value;
        depth++;
    }
    assert_int_equal(value->type, ENIGMA_TEXT);
    assert_string_equal(value->as.text.data, "...");
    assert_int_equal(depth, 32);
    enigma_profile_free(profile);
}

/* A25, A26: ends in any order, twice, and of nothing. */
static void test_ends_out_of_order(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    enigma_scope a = enigma_begin("a");
    enigma_scope b = enigma_begin("b");
    enigma_end(a);
    enigma_scope c = enigma_begin("c");
    enigma_end(c);
    enigma_end(c);
    enigma_end(b);
    enigma_end((enigma_scope){0, NULL});
    enigma_end((enigma_scope){12345, NULL});
    enigma_end(enigma_begin("d"));
    assert_int_equal(enigma_context_current().scope, 0);
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 4);
    for (size_t i = 0; i < 4; i++) {
        enigma_event event = event_at(profile, i);
        const char *path = path_text(profile, event.path);
        if (event.name.data[0] == 'd') {
            assert_string_equal(path, "d");
        } else if (event.name.data[0] == 'c') {
            assert_string_equal(path, "a/b/c");
        }
    }
    enigma_profile_free(profile);
}

static void test_nested_profilers(void **state)
{
    (void)state;
    enigma_profiler *outer = profiler_started();
    enigma_scope a = enigma_begin("a");
    enigma_profiler *inner = profiler_started();
    enigma_end(enigma_begin("b"));
    enigma_profile *profile = profile_stopped(inner);
    assert_int_equal(enigma_profile_event_count(profile), 1);
    assert_string_equal(path_text(profile, event_at(profile, 0).path), "a/b");
    enigma_profile_free(profile);
    enigma_end(enigma_begin("c"));
    enigma_end(a);
    profile = profile_stopped(outer);
    assert_int_equal(enigma_profile_event_count(profile), 2);
    assert_string_equal(path_text(profile, event_at(profile, 0).path), "a/c");
    enigma_profile_free(profile);
}

static void test_stop_with_open_scopes(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    enigma_scope open = enigma_begin("open");
    enigma_scripted_clock_advance(7);
    enigma_profile *running = NULL;
    assert_ok(enigma_profiler_snapshot(profiler, &running));
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(running, &counts);
    assert_int_equal(counts.events, 0);
    assert_int_equal(counts.open_scopes, 1);
    enigma_profile_free(running);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event event = event_at(profile, 0);
    assert_int_equal(event.end_ns - event.start_ns, 7);
    assert_int_equal(metadata_of(&event, "unfinished")->type, ENIGMA_BOOL);
    enigma_end(open); /* of a profiler that is gone */
    enigma_profile_free(profile);
}

static void test_start_and_stop_pair(void **state)
{
    (void)state;
    enigma_profiler *a = profiler_started();
    enigma_profiler *b = profiler_started();
    assert_int_equal(enigma_profiler_stop(a), ENIGMA_E_STATE);
    assert_ok(enigma_profiler_stop(b));
    assert_ok(enigma_profiler_stop(a));
    assert_int_equal(enigma_profiler_stop(a), ENIGMA_E_STATE);
    assert_int_equal(enigma_gate, 0);
    assert_ok(enigma_profiler_start(a)); /* again: goes on recording */
    enigma_end(enigma_begin("later"));
    enigma_profile *profile = profile_stopped(a);
    assert_int_equal(enigma_profile_event_count(profile), 1);
    enigma_profile_free(profile);
    enigma_profiler_free(b);
}

static void test_same_profiler_started_twice(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    enigma_scope a = enigma_begin("a");
    assert_ok(enigma_profiler_start(profiler));
    enigma_end(enigma_begin("b"));
    assert_ok(enigma_profiler_stop(profiler));
    enigma_end(a);
    enigma_profile *profile = profile_stopped(profiler);
    assert_string_equal(path_text(profile, event_at(profile, 0).path), "a/b");
    assert_string_equal(path_text(profile, event_at(profile, 1).path), "a");
    enigma_profile_free(profile);
}

static void test_free_while_active(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    enigma_scope scope = enigma_begin("a");
    enigma_profiler_free(profiler);
    assert_null(enigma_profiler_active());
    assert_int_equal(enigma_begin("b").id, 0);
    enigma_end(scope);
    assert_ok(enigma_profiler_stop(profiler)); /* the start kept it alive */
    assert_int_equal(enigma_gate, 0);
}

static void test_bad_options(void **state)
{
    (void)state;
    enigma_profiler *profiler = (enigma_profiler *)state;
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    options.capture_path = "x.trace";
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_E_INVALID);
    assert_null(profiler);
    assert_non_null(strstr(enigma_error_message(), ".gputrace"));
    options.capture_path = NULL;
    options.flags = 1u << 30;
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_E_INVALID);
}

static void test_added_events(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    enigma_scope s = enigma_begin("s");
    enigma_context here = enigma_context_current();
    enigma_event event = {.struct_size = sizeof event,
                          .name = text_of("copy"),
                          .category = text_of("cuda"),
                          .kernel_name = text_of("k"),
                          .path = here.path,
                          .start_ns = 1000100,
                          .end_ns = 1000200,
                          .gpu_start_ns = 1000300,
                          .gpu_end_ns = 1001300,
                          .is_gpu_work = 1,
                          .grid = {4, 1, 1},
                          .input_bytes = 16};
    enigma_profiler_add_event(profiler, &event, here.scope);
    enigma_scripted_clock_advance(5000);
    enigma_end(s);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event read = event_at(profile, 0);
    assert_string_equal(path_text(profile, read.path), "s/copy:k");
    assert_int_equal(enigma_profile_call_depth(profile, read.path), 1);
    assert_float_equal(read.gpu_time_us, 1.0, 1e-12);
    assert_int_equal(read.gpu_start_ns, 1000300);
    assert_int_equal(read.grid.x, 4);
    assert_int_equal(read.input_bytes, 16);
    assert_float_equal(event_at(profile, 1).gpu_time_us, 1.0, 1e-12); /* inclusive on the scope */
    enigma_profile_free(profile);
}

/* G07: deep nesting neither recurses nor loses a path. */
static void test_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 5000 };
    static enigma_scope scopes[DEPTH];
    enigma_profiler *profiler = profiler_started();
    for (int i = 0; i < DEPTH; i++) {
        scopes[i] = enigma_begin("d");
    }
    for (int i = DEPTH - 1; i >= 0; i--) {
        enigma_end(scopes[i]);
    }
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), DEPTH);
    assert_int_equal(enigma_profile_path_depth(profile, event_at(profile, 0).path), DEPTH);
    assert_int_equal(enigma_profile_path_depth(profile, event_at(profile, DEPTH - 1).path), 1);
    enigma_profile_free(profile);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, clock_setup, clock_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_off_records_nothing),
        TEST(test_paths_times_and_order),
        TEST(test_order_of_ending_with_equal_stamps),
        TEST(test_text_is_compared_by_content),
        TEST(test_metrics_and_metadata),
        TEST(test_many_metrics_and_fields),
        TEST(test_metadata_depth_is_bounded),
        TEST(test_ends_out_of_order),
        TEST(test_nested_profilers),
        TEST(test_stop_with_open_scopes),
        TEST(test_start_and_stop_pair),
        TEST(test_same_profiler_started_twice),
        TEST(test_free_while_active),
        TEST(test_bad_options),
        TEST(test_added_events),
        TEST(test_deep_nesting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
