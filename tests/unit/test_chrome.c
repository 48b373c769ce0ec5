/* Chrome traces, event by event: each is a line of its own. The strict checker of tests/python/chrome_check.py and the real Perfetto
 * UI see more. Cases C02, C04, C06, C17, C20 to C26, G07. */
#include <math.h>

#include "enigma.h"

#include "../api/recording.h"

typedef struct slice {
    long pid, tid;
    long long ts_ns, dur_ns;
    const char *line; /* in the text, which ends at its newline */
} slice;

typedef struct trace {
    written text;
    slice *slices;
    size_t count;
} trace;

static long long ns_of(const char *line, const char *key)
{
    long long us;
    int rest, used = 0;
    const char *at = strstr(line, key);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(key), "%lld.%3d%n", &us, &rest, &used), 2);
    assert_true(at[strlen(key) + (size_t)used - 4] == '.' &&
                at[strlen(key) + (size_t)used] == ','); /* three decimals */
    return us * 1000 + rest;
}

static trace trace_of(const enigma_profile *profile)
{
    trace t = {.text = exported(profile, "chrome")};
    t.slices = calloc(occurrences(t.text.data, "{\"ph\":\"X\"") + 1, sizeof *t.slices);
    assert_non_null(t.slices);
    for (char *at = strstr(t.text.data, "{\"ph\":\"X\""); at != NULL; at = strstr(at + 1, "{\"ph\":\"X\"")) {
        slice *s = &t.slices[t.count++];
        s->line = at;
        assert_int_equal(sscanf(at, "{\"ph\":\"X\",\"pid\":%ld,\"tid\":%ld", &s->pid, &s->tid), 2);
        s->ts_ns = ns_of(at, "\"ts\":");
        s->dur_ns = ns_of(at, "\"dur\":");
    }
    for (char *at = strchr(t.text.data, '\n'); at != NULL; at = strchr(at + 1, '\n')) {
        *at = '\0'; /* each line is a text of its own now */
    }
    return t;
}

static void trace_free(trace *t)
{
    free(t->text.data);
    free(t->slices);
}

/* The slice of a name, the nth of them. */
static const slice *slice_named(const trace *t, const char *name, int nth)
{
    char key[128];
    snprintf(key, sizeof key, "\"name\":\"%s\"", name);
    for (size_t i = 0; i < t->count; i++) {
        if (strstr(t->slices[i].line, key) != NULL && nth-- == 0) {
            return &t->slices[i];
        }
    }
    fail_msg("no slice %s", name);
    return NULL;
}

static size_t lines_with(const trace *t, const char *piece)
{
    size_t count = 0;
    for (size_t at = 0; at < t->text.size; at += strlen(t->text.data + at) + 1) {
        count += strstr(t->text.data + at, piece) != NULL;
    }
    return count;
}

static void c17_overlapping_kernels(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    add_work(&(work){.kernel = "a", .cpu_ns = 10, .gpu_start = 2000000, .gpu_end = 2000100});
    add_work(&(work){.kernel = "b", .cpu_ns = 10, .gpu_start = 2000099, .gpu_end = 2000200}); /* by 1 ns */
    add_work(&(work){.kernel = "c", .cpu_ns = 10, .gpu_start = 2000200, .gpu_end = 2000300});
    add_work(&(work){.kernel = "d", .cpu_ns = 10, .gpu_start = 2000000, .gpu_end = 2000100, .queue = 1});
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    const slice *a = slice_named(&t, "a", 0), *b = slice_named(&t, "b", 0), *c = slice_named(&t, "c", 0),
                *d = slice_named(&t, "d", 0);
    assert_true(a->pid == b->pid && a->tid != b->tid && a->tid == c->tid && d->tid != a->tid && d->tid != b->tid);
    assert_true(b->ts_ns - a->ts_ns == 99 && b->dur_ns == 101 && a->dur_ns == 100);
    assert_int_equal(lines_with(&t, "\"GPU 0 queue 0 (overlap 1)\""), 1);
    trace_free(&t);
    enigma_profile_free(profile);
}

static void c20_big_base(void **state)
{
    (void)state;
    const uint64_t base = UINT64_C(1700000000000000000);
    enigma_profiler *profiler = recording_begin(base);
    add_work(&(work){.kernel = "a", .cpu_ns = 10, .gpu_start = base + 1000, .gpu_end = base + 1040});
    add_work(&(work){.kernel = "b", .cpu_ns = 10, .gpu_start = base + 1100, .gpu_end = base + 1140});
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    const slice *a = slice_named(&t, "a", 0), *b = slice_named(&t, "b", 0);
    assert_true(a->dur_ns == 40 && b->dur_ns == 40 && b->ts_ns - a->ts_ns - a->dur_ns == 60);
    assert_non_null(strstr(a->line, "\"ts\":1.000,\"dur\":0.040"));
    assert_int_equal(occurrences(t.text.data, "\"baseTimeNanoseconds\":1700000000000000000,"), 2);
    trace_free(&t);
    enigma_profile_free(profile);
}

static void c22_c23_tracks_of_queues(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    for (uint32_t device = 0; device < 2; device++) {
        add_work(&(work){.kernel = "k", .cpu_ns = 10, .gpu_start = 2000000, .gpu_end = 2000100, .device = device});
    }
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    const slice *a = slice_named(&t, "k", 0), *b = slice_named(&t, "k", 1), *cpu = slice_named(&t, "gpu_dispatch:k", 0);
    assert_true(a->pid != b->pid && a->pid != cpu->pid && b->pid != cpu->pid && a->tid != b->tid);
    assert_true(a->tid > 0 && a->tid != a->pid && b->tid > 0 && b->tid != b->pid && cpu->tid > 0);
    assert_int_equal(lines_with(&t, "\"thread_name\",\"args\":{\"name\":\"GPU 0 queue 0\"}"), 1);
    assert_int_equal(lines_with(&t, "\"thread_name\",\"args\":{\"name\":\"GPU 1 queue 0\"}"), 1);
    assert_int_equal(lines_with(&t, "\"process_name\""), 3);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME); /* rows are by name */
    assert_int_equal(enigma_result_row_count(result), 1);
    enigma_result_free(result);
    trace_free(&t);
    enigma_profile_free(profile);
}

static void c25_kernel_before_its_launch(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    advance(10000);
    uint64_t now = enigma_now_ns();
    add_work(&(work){.kernel = "early", .cpu_ns = 5000, .gpu_start = now - 2000, .gpu_end = now + 1000});
    add_work(&(work){.kernel = "gone", .cpu_ns = 5000, .gpu_start = now - 2000, .gpu_end = now - 1000, .queue = 1});
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    const slice *kernel = slice_named(&t, "early", 0), *launch = slice_named(&t, "gpu_dispatch:early", 0);
    assert_true(kernel->ts_ns == 0 && kernel->dur_ns == 3000 && launch->ts_ns == 2000);
    /* its arrow begins at the launch and ends in the kernel, not before; the other has none */
    assert_int_equal(lines_with(&t, "{\"ph\":\"s\""), 1);
    assert_int_equal(lines_with(&t, "{\"ph\":\"f\""), 1);
    assert_int_equal(lines_with(&t, "\"ts\":2.000,\"name\":\"launch\",\"cat\":\"launch\",\"id\":1"), 2);
    trace_free(&t);
    enigma_profile_free(profile);
}

static void c26_zero_is_a_length(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_end(enigma_begin("instant"));
    advance(100);
    add_work(&(work){.kernel = "k", .cpu_ns = 50, .gpu_start = enigma_now_ns(), .gpu_end = enigma_now_ns()});
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    assert_true(slice_named(&t, "instant", 0)->dur_ns == 0 && slice_named(&t, "k", 0)->dur_ns == 0);
    assert_int_equal(lines_with(&t, "{\"ph\":\"s\""), 0); /* nothing to end in */
    trace_free(&t);
    enigma_profile_free(profile);
}

static void arrows_bind_inside(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope scope = enigma_begin("s");
    advance(100);
    add_kernel("sync", 1000, 500);
    uint64_t now = enigma_now_ns();
    add_work(&(work){.kernel = "async", .cpu_ns = 0, .gpu_start = now + 10, .gpu_end = now + 20});
    advance(100);
    enigma_end(scope);
    now = enigma_now_ns();
    add_work(&(work){.kernel = "alone", .cpu_ns = 0, .gpu_start = now + 10, .gpu_end = now + 20});
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    assert_int_equal(lines_with(&t, "{\"ph\":\"s\""), 2); /* nothing is open around the last */
    assert_int_equal(lines_with(&t, "{\"ph\":\"f\""), 2);
    assert_int_equal(lines_with(&t, "\"bp\":\"e\""), 2);
    trace_free(&t);
    enigma_profile_free(profile);
}

static void c04_names_are_raw_utf8(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_end(enigma_begin("GPU \xf0\x9f\x9a\x80 \xe7\x9f\xa9"));
    enigma_end(enigma_begin("\x01\x1f\x7f\"\\\xff"));
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    slice_named(&t, "GPU \xf0\x9f\x9a\x80 \xe7\x9f\xa9", 0);
    slice_named(&t, "\\u0001\\u001f\\u007f\\\"\\\\\xef\xbf\xbd", 0);
    assert_int_equal(lines_with(&t, "\\ud"), 0);
    trace_free(&t);
    enigma_profile_free(profile);
}

static void c06_keys_of_the_user_overwrite_nothing(void **state)
{
    static const char *const keys[] = {"name", "ts", "args", "pid", "call_path", "metrics"};
    enigma_field fields[6];
    enigma_metric metrics[6];
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        fields[i] = (enigma_field){{keys[i], strlen(keys[i])}, {ENIGMA_INT, {.integer = 99}}};
        metrics[i] = (enigma_metric){keys[i], 98.0};
    }
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope_desc desc = {.struct_size = sizeof desc,
                              .name = {"s", 1},
                              .metrics = metrics,
                              .metric_count = 6,
                              .metadata = fields,
                              .metadata_count = 6};
    enigma_end(enigma_begin_desc(&desc));
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    const slice *s = slice_named(&t, "s", 0);
    const char *args = strstr(s->line, "\"args\":{\"call_path\":[\"s\"],\"metrics\":{\"name\":98,");
    assert_non_null(args);
    assert_non_null(
        strstr(args, "\"metadata\":{\"name\":99,\"ts\":99,\"args\":99,\"pid\":99,\"call_path\":99,\"metrics\":99}}}"));
    trace_free(&t);
    enigma_profile_free(profile);
}

static void g07_deep_slices_fold(void **state)
{
    enum { DEEP = 600 };
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
    trace t = trace_of(profile);
    assert_int_equal(t.count, 512 + 1);                                    /* and the kernel on its queue */
    assert_int_equal(occurrences(t.text.data, "\"folded_slices\":89"), 1); /* in the metadata */
    assert_int_equal(lines_with(&t, "\"folded_slices\":89,\"call_depth\":512"), 1);
    assert_int_equal(lines_with(&t, "{\"ph\":\"s\""), 1); /* the launch's arrow begins in what stands for it */
    trace_free(&t);
    enigma_profile_free(profile);
}

static void overlapping_tasks_of_a_thread(void **state)
{
    (void)state;
    enigma_profiler *profiler = recording_begin(RECORDING_START);
    enigma_scope a = enigma_scope_open(profiler, enigma_path_child(profiler, 0, (enigma_text){"a", 0}), 0, 0);
    advance(50);
    enigma_scope b = enigma_scope_open(profiler, enigma_path_child(profiler, 0, (enigma_text){"b", 0}), 0, 0);
    advance(50);
    enigma_scope_close(profiler, a);
    advance(50);
    enigma_scope_close(profiler, b);
    enigma_profile *profile = recording_end(profiler);
    trace t = trace_of(profile);
    assert_true(slice_named(&t, "a", 0)->pid == slice_named(&t, "b", 0)->pid);
    assert_true(slice_named(&t, "a", 0)->tid != slice_named(&t, "b", 0)->tid);
    trace_free(&t);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c04_names_are_raw_utf8),   cmocka_unit_test(c06_keys_of_the_user_overwrite_nothing),
        cmocka_unit_test(c17_overlapping_kernels),  cmocka_unit_test(c20_big_base),
        cmocka_unit_test(c22_c23_tracks_of_queues), cmocka_unit_test(c25_kernel_before_its_launch),
        cmocka_unit_test(c26_zero_is_a_length),     cmocka_unit_test(arrows_bind_inside),
        cmocka_unit_test(g07_deep_slices_fold),     cmocka_unit_test(overlapping_tasks_of_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
