/* Memory that runs out at every step: each public function is run with an allocator that fails on its first, second, third ...
 * call until it succeeds. Right status every time, nothing left behind, nothing crashes; recording drops and counts. */
#include "limited.h"

static enigma_status create_profiler(void)
{
    enigma_profiler *profiler;
    enigma_status status = enigma_profiler_create(NULL, &profiler);
    enigma_profiler_free(profiler);
    return status;
}

static void test_create(void **state)
{
    (void)state;
    until_it_succeeds(create_profiler, 1000);
}

static enigma_profiler *full; /* with events of every kind */

static enigma_status snapshot(void)
{
    enigma_profile *profile;
    enigma_status status = enigma_profiler_snapshot(full, &profile);
    enigma_profile_free(profile);
    return status;
}

static enigma_profile *sealed;

static enigma_status read_event(void)
{
    enigma_event event = {.struct_size = sizeof event};
    return enigma_profile_event(sealed, 1, &event);
}

static enigma_status key_averages(void)
{
    enigma_result *result;
    enigma_status status = enigma_profile_key_averages(sealed, ENIGMA_GROUP_CALL_PATH, &result);
    enigma_result_free(result);
    return status;
}

static int discard(void *user, const void *data, size_t size)
{
    (void)user;
    (void)data;
    (void)size;
    return 0;
}

static enigma_status tree(void) { return enigma_profile_write_tree(sealed, discard, NULL); }
static enigma_status hatchet(void) { return enigma_export(sealed, "hatchet", discard, NULL); }
static enigma_status chrome(void) { return enigma_export(sealed, "chrome", discard, NULL); }

static enigma_status table(void)
{
    enigma_result *result;
    enigma_status status = enigma_profile_key_averages(sealed, ENIGMA_GROUP_NAME, &result);
    if (status == ENIGMA_OK) {
        status = enigma_result_write_table(result, NULL, discard, NULL);
    }
    enigma_result_free(result);
    return status;
}

static enigma_status top_as_json(void)
{
    enigma_result *result, *top = NULL;
    enigma_status status = enigma_profile_key_averages(sealed, ENIGMA_GROUP_CALL_PATH, &result);
    if (status == ENIGMA_OK) {
        status = enigma_result_top(result, "calls", 2, &top);
    }
    enigma_result_free(result);
    if (status == ENIGMA_OK) {
        status = enigma_result_write_json(top, NULL, discard, NULL);
    }
    enigma_result_free(top);
    return status;
}

static enigma_status reload(void)
{
    enigma_profile *profile;
    enigma_status status = enigma_profile_load("oom.enigma", &profile);
    enigma_profile_free(profile);
    return status;
}

static void record_some(void)
{
    const enigma_metric metrics[] = {{"flops", 1}};
    const enigma_field fields[] = {{{"text", 0}, {ENIGMA_TEXT, {.text = {"some text", 0}}}}};
    const enigma_scope_desc desc = {sizeof desc, {"described", 0}, {"mine", 0}, metrics, 1, fields, 1};
    enigma_scope outer = enigma_begin("outer");
    enigma_scope inner = enigma_begin_desc(&desc);
    enigma_context here = enigma_context_current();
    const enigma_event event = {.struct_size = sizeof event,
                                .name = text_of("copy"),
                                .category = text_of("cuda"),
                                .path = here.path,
                                .start_ns = 100,
                                .end_ns = 200,
                                .gpu_start_ns = 100,
                                .gpu_end_ns = 200,
                                .is_gpu_work = 1};
    enigma_profiler_add_event(here.profiler, &event, here.scope);
    enigma_end(inner);
    enigma_end(outer);
}

static void test_read(void **state)
{
    (void)state;
    full = profiler_started();
    for (int i = 0; i < 300; i++) {
        record_some();
    }
    assert_ok(enigma_profiler_stop(full));
    until_it_succeeds(snapshot, 1000);
    assert_ok(enigma_profiler_snapshot(full, &sealed));
    assert_ok(enigma_profile_save(sealed, "oom.enigma"));
    assert_ok(read_event()); /* what a thread keeps for reading is there */
    until_it_succeeds(key_averages, 10000);
    until_it_succeeds(table, 10000);
    until_it_succeeds(top_as_json, 10000);
    until_it_succeeds(tree, 10000);
    until_it_succeeds(hatchet, 10000);
    until_it_succeeds(chrome, 10000);
    until_it_succeeds(reload, 10000);
    enigma_profile_free(sealed);
    enigma_profiler_free(full);
    remove("oom.enigma");
}

/* Recording never fails: with fewer and fewer refusals it keeps more and more, and what it lost is counted. */
static void test_record(void **state)
{
    (void)state;
    for (long allowed = 0; allowed < 60; allowed++) {
        enigma_profiler *profiler;
        assert_ok(enigma_profiler_create(NULL, &profiler));
        memory.left = allowed;
        enigma_status started = enigma_profiler_start(profiler);
        if (started == ENIGMA_OK) {
            for (int i = 0; i < 200; i++) {
                record_some();
            }
        }
        memory.left = -1;
        if (started == ENIGMA_OK) {
            enigma_profile *profile = profile_stopped(profiler);
            enigma_counts counts = {.struct_size = sizeof counts};
            enigma_profile_get_counts(profile, &counts);
            assert_true(counts.events <= 600);
            assert_true(counts.events == 600 || counts.dropped > 0);
            enigma_profile_free(profile);
        } else {
            assert_int_equal(started, ENIGMA_E_NO_MEMORY);
            enigma_profiler_free(profiler);
        }
        assert_int_equal(enigma_gate, 0);
    }
}

static size_t no_metrics(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    (void)user;
    (void)info;
    (void)out;
    (void)capacity;
    return 0;
}

static enigma_status hook(void)
{
    enigma_status status = enigma_hook_register(text_of("k"), no_metrics, NULL, NULL);
    enigma_hook_unregister(text_of("k"));
    return status;
}

static void test_hook(void **state)
{
    (void)state;
    until_it_succeeds(hook, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_hook),
    };
    return cmocka_run_group_tests(tests, limited_setup, NULL);
}
