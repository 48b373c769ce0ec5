/* Rows from inside: grouping by value, the field table, recursion and busy time where tasks and threads make it hard, and running out
 * of memory. Cases A10, A11, G11. */
#include "aggregate/rows.h"

#include <pthread.h>

#include "../api/recording.h"
#include "support.h"

/* ---- groups of a profile made by hand ---- */

typedef struct fake {
    enigma_profile profile;
    eni_node_info nodes[8];
    eni_event events[8];
} fake;

static enigma_text text(const char *data) { return (enigma_text){data, strlen(data)}; }

static void fake_node(fake *f, const char *name, const char *kernel, uint32_t path)
{
    uint32_t index = (uint32_t)f->profile.node_count++;
    f->profile.nodes = f->nodes;
    f->profile.events = f->events;
    f->nodes[index] = (eni_node_info){.name = text(name),
                                      .label = text(name),
                                      .parent = index == 0 ? ENI_NONE : 0,
                                      .path = path,
                                      .depth = index == 0 ? 0 : 1};
    if (kernel != NULL) {
        f->nodes[index].kernel = text(kernel);
    }
    if (index > 0) {
        f->nodes[index].calls = 1;
        f->nodes[index].first = (uint32_t)f->profile.event_count;
        f->profile.follow = true;
        f->events[f->profile.event_count++] =
            (eni_event){.end_ns = 10, .node = index, .parent = ENI_NONE, .gpu = ENI_NONE};
    }
}

static void equal_texts_are_one_group_wherever_they_lie(void **state)
{
    char a[] = "same", b[] = "same";
    fake f = {0};
    eni_groups groups, merged;
    eni_arena arena = {0};
    (void)state;
    fake_node(&f, "", NULL, 0);
    fake_node(&f, a, NULL, 1);
    fake_node(&f, b, NULL, 2);
    fake_node(&f, a, "", 3); /* an empty kernel name is one */
    fake_node(&f, b, "k", 4);
    fake_node(&f, "other", "k", 5);
    assert_int_equal(eni_groups_find(&f.profile, ENIGMA_GROUP_NAME, &arena, &groups), ENIGMA_OK);
    assert_int_equal(groups.count, 4);
    assert_true(!groups.nested && groups.of_node[1] == groups.of_node[2] && groups.of_node[0] == ENI_NONE);
    assert_string_equal(groups.items[0].name.data, "other");
    assert_null(groups.items[1].kernel.data); /* absent comes first */
    assert_string_equal(groups.items[2].kernel.data, "");
    assert_int_equal(eni_groups_merge(&f.profile, &groups, &merged), ENIGMA_OK);
    assert_int_equal(merged.count, 1);
    assert_null(merged.items[0].kernel.data);
    assert_true(merged.of_node[1] == 0 && merged.of_node[4] == 0 && merged.of_node[5] == ENI_NONE);
    eni_groups_free(&merged);
    eni_groups_free(&groups);
    eni_arena_free(&arena);
}

static void fields_are_found_by_name(void **state)
{
    const enigma_row_field *field;
    (void)state;
    for (size_t i = 0; enigma_row_field_at(i) != NULL; i++) {
        assert_int_equal(eni_row_field_find(enigma_row_field_at(i)->name, &field), ENIGMA_OK);
        assert_ptr_equal(field, enigma_row_field_at(i));
        assert_int_equal(eni_row_field_find("no such field", &field), ENIGMA_E_INVALID);
        assert_non_null(strstr(enigma_error_message(), enigma_row_field_at(i)->name));
    }
    enigma_row row = {.name = text("n"), .calls = 7, .cpu_total_us = 1.5, .rate_source = ENIGMA_RATE_CPU};
    assert_int_equal(eni_row_field_find("calls", &field), ENIGMA_OK);
    assert_int_equal(eni_row_field_uint(&row, field), 7);
    assert_int_equal(eni_row_field_find("cpu_total_us", &field), ENIGMA_OK);
    assert_true(eni_row_field_double(&row, field) == 1.5);
    assert_int_equal(eni_row_field_find("rate_source", &field), ENIGMA_OK);
    assert_string_equal(eni_row_field_text(&row, field).data, "cpu");
    row.rate_source = ENIGMA_RATE_NONE;
    assert_null(eni_row_field_text(&row, field).data);
    assert_int_equal(eni_row_field_find("kernel_name", &field), ENIGMA_OK);
    assert_null(eni_row_field_text(&row, field).data);
}

/* ---- recorded ---- */

/* A task that outlives its creator: its later work is not the creator's. */
static void work_of_a_task_that_outlives_its_creator(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_path outer = enigma_path_child(p, 0, text("outer")), inner = enigma_path_child(p, outer, text("task"));
    enigma_scope a = enigma_scope_open(p, outer, 0, 0);
    advance(1000);
    enigma_scope b = enigma_scope_open(p, inner, a.id, 0);
    enigma_event event = {.struct_size = sizeof event,
                          .name = text("gpu_dispatch"),
                          .category = text("scripted"),
                          .path = inner,
                          .kernel_name = text("k"),
                          .is_gpu_work = 1};
    for (int i = 0; i < 2; i++) {
        event.start_ns = enigma_now_ns();
        event.end_ns = event.start_ns + 100;
        event.gpu_start_ns = event.start_ns;
        event.gpu_end_ns = event.start_ns + 400;
        enigma_profiler_add_event(p, &event, b.id);
        advance(1000);
        if (i == 0) {
            enigma_scope_close(p, a);
            advance(1000);
        }
    }
    enigma_scope_close(p, b);
    enigma_profile *profile = recording_end(p);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    assert_true(row_named(result, "outer")->gpu_total_us == 0.4 && row_named(result, "outer")->gpu_busy_us == 0.4);
    assert_true(row_named(result, "task")->gpu_total_us == 0.8 && row_named(result, "task")->gpu_busy_us == 0.8);
    assert_true(row_named(result, "outer")->self_total_us == 1.0 && row_named(result, "outer")->cpu_total_us == 2.0);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void *same_scope(void *profiler)
{
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    enigma_scope scope = enigma_begin("f");
    advance(500);
    enigma_end(scope);
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    return NULL;
}

static void parallel_threads_add_up(void **state)
{
    pthread_t thread;
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope scope = enigma_begin("f");
    assert_int_equal(pthread_create(&thread, NULL, same_scope, p), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    enigma_end(scope);
    enigma_profile *profile = recording_end(p);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    assert_int_equal(row_named(result, "f")->calls, 2);
    assert_true(row_named(result, "f")->cpu_total_us == 1.0);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

/* Steps of the runtime have no GPU time; rates of a parent and a child do not mix. */
static void runtime_steps_have_no_gpu_time(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope scope = enigma_begin("s");
    add_work(&(work){.name = "read_output", .kernel = "k", .cpu_ns = 500, .not_gpu = 1});
    add_kernel("k", 1000, 700);
    enigma_end(scope);
    enigma_profile *profile = recording_end(p);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *step = row_named(result, "read_output");
    assert_true(step->gpu_total_us == 0 && step->gpu_busy_us == 0 && step->is_gpu_work == 0 && step->median_us == 0.5);
    assert_string_equal(step->kernel_name.data, "k");
    assert_true(row_named(result, "s")->gpu_total_us == 0.7);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void a_name_of_both_kinds_is_counted_once(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope scope = enigma_begin("copy");
    add_work(&(work){.name = "copy", .cpu_ns = 1000, .gpu_start = 5000, .gpu_end = 9000});
    enigma_end(scope);
    enigma_profile *profile = recording_end(p);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    const enigma_row *row = row_named(result, "copy");
    assert_int_equal(row->calls, 2);
    assert_true(row->gpu_total_us == 4.0 && row->cpu_total_us == 1.0 && row->is_gpu_work == 0);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

/* Serves all tests here, since it stays once memory is in use. */
static failing_allocator failing = {.left = -1};

static void running_out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope scope = begin_with("f", "flops", 1, "x", 2), inner = enigma_begin("f");
    add_kernel("a", 10, 10);
    add_kernel("b", 10, 10);
    enigma_end(inner);
    enigma_end(scope);
    enigma_profile *profile = recording_end(p);
    size_t before = 0;
    for (int group = ENIGMA_GROUP_NAME; group <= ENIGMA_GROUP_CALL_PATH; group++) {
        enigma_status status = ENIGMA_E_NO_MEMORY;
        for (long left = 0; status != ENIGMA_OK; left++) {
            enigma_result *result = NULL;
            failing.left = left;
            status = enigma_profile_key_averages(profile, (enum enigma_group)group, &result);
            failing.left = -1;
            assert_true(status == ENIGMA_OK || (status == ENIGMA_E_NO_MEMORY && result == NULL));
            enigma_result_free(result);
            before = left == 0 ? failing.blocks : before; /* the first failure takes the place of an earlier message */
            assert_int_equal(failing.blocks, before);
            assert_true(left < 200);
        }
    }
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_texts_are_one_group_wherever_they_lie),
        cmocka_unit_test(fields_are_found_by_name),
        cmocka_unit_test(work_of_a_task_that_outlives_its_creator),
        cmocka_unit_test(parallel_threads_add_up),
        cmocka_unit_test(runtime_steps_have_no_gpu_time),
        cmocka_unit_test(a_name_of_both_kinds_is_counted_once),
        cmocka_unit_test(running_out_of_memory_leaves_nothing),
    };
    return enigma_set_allocator(failing_resize, &failing) + cmocka_run_group_tests(tests, NULL, NULL);
}
