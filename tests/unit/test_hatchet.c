/* Hatchet literals as text; tests/python/test_hatchet_reader.py loads them in the real reader. Cases A13, C05, C07, C08, C11, G07. */
#include <math.h>

#include "enigma.h"

#include "../api/recording.h"

/* The line of the nth node of a name; it ends at its newline. */
static const char *node_line(written *text, const char *name, int nth)
{
    static char line[4096];
    char key[256];
    snprintf(key, sizeof key, "{\"frame\":{\"name\":\"%s\",", name);
    const char *at = text->data;
    for (; (at = strstr(at, key)) != NULL && nth > 0; nth--) {
        at++;
    }
    if (at == NULL) {
        fail_msg("no node %s", name);
        return "";
    }
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

static void assert_has(const char *line, const char *piece)
{
    if (strstr(line, piece) == NULL) {
        fail_msg("no %s in %s", piece, line);
    }
}

static void c07_an_empty_profile_has_a_root(void **state)
{
    (void)state;
    enigma_profile *profile = recording_end(recording_begin(RECORDING_START));
    written text = exported(profile, "hatchet");
    assert_int_equal(
        strncmp(text.data, "[\n{\"frame\":{\"name\":\"ROOT\",\"type\":\"root\"},\"metrics\":{\"time\":0.000,", 60), 0);
    assert_memory_equal(text.data + text.size - 18, "},\"children\":[]}]\n", 18);
    assert_int_equal(occurrences(text.data, "frame"), 1);
    free(text.data);
    enigma_profile_free(profile);
}

static void a13_every_node_has_every_key(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope scope = begin_with("s", "flops", 100, "mine", 0.5);
    add_work(&(work){.kernel = "k",
                     .cpu_ns = 2000,
                     .gpu_start = 5000,
                     .gpu_end = 6000,
                     .key = "flops",
                     .value = 100,
                     .input_bytes = 7});
    advance(1000);
    enigma_end(scope);
    enigma_profile *profile = recording_end(p);
    written text = exported(profile, "hatchet");
    static const char *const keys[] = {"time",        "gpu_time",     "count",   "bytes", "flops",
                                       "input_bytes", "output_bytes", "dropped", "mine"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "\"%s\":", keys[i]);
        assert_int_equal(occurrences(text.data, key), 3);
        snprintf(key, sizeof key, "\"%s (inc)\":", keys[i]);
        assert_int_equal(occurrences(text.data, key), 3);
    }
    const char *line = node_line(&text, "s", 0);
    assert_has(line, "\"type\":\"scope\"},\"metrics\":{\"time\":1.000,\"time "
                     "(inc)\":3.000,\"gpu_time\":0.000,\"gpu_time (inc)\":1.000");
    assert_has(line, "\"count\":1,\"count (inc)\":2,\"input_bytes\":0,\"input_bytes (inc)\":7");
    assert_has(line, "\"flops\":100,\"flops (inc)\":200,\"mine\":0.5,\"mine (inc)\":0.5}");
    line = node_line(&text, "gpu_dispatch:k", 0);
    assert_has(line, "\"type\":\"gpu\"},\"metrics\":{\"time\":2.000,\"time (inc)\":2.000,\"gpu_time\":1.000,\"gpu_time "
                     "(inc)\":1.000");
    assert_has(line, "\"mine\":0,");
    free(text.data);
    enigma_profile_free(profile);
}

static void c08_names_that_would_collide(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_end(enigma_begin("(unnamed)"));
    enigma_end(enigma_begin(""));
    enigma_end(enigma_begin("\xff"));
    enigma_end(enigma_begin("\xfe"));
    enigma_end(enigma_begin("\xef\xbf\xbd"));
    enigma_profile *profile = recording_end(p);
    written text = exported(profile, "hatchet");
    node_line(&text, "(unnamed)", 0);
    node_line(&text, "(unnamed) #2", 0);
    node_line(&text, "\xef\xbf\xbd", 0);
    node_line(&text, "\xef\xbf\xbd #2", 0);
    node_line(&text, "\xef\xbf\xbd #3", 0);
    assert_int_equal(occurrences(text.data, "\"name\":\"\""), 0);
    free(text.data);
    enigma_profile_free(profile);
}

static void c11_keys_that_collide(void **state)
{
    static const char *const keys[] = {"name",    "time", "user.time", "time (inc)", "x (inc)",
                                       "x [inc]", "",     "\xff",      "\xfe",       "dropped"};
    static const char *const written_as[] = {"user.name",         "user.time",    "user.user.time", "time [inc]",
                                             "x [inc]",           "user.x [inc]", "user.",          "\xef\xbf\xbd",
                                             "user.\xef\xbf\xbd", "user.dropped"};
    enigma_metric metrics[10];
    (void)state;
    for (size_t i = 0; i < 10; i++) {
        metrics[i] = (enigma_metric){keys[i], 100.0 + (double)i};
    }
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope_desc desc = {.struct_size = sizeof desc, .name = {"s", 1}, .metrics = metrics, .metric_count = 10};
    enigma_end(enigma_begin_desc(&desc));
    enigma_profile *profile = recording_end(p);
    written text = exported(profile, "hatchet");
    const char *line = node_line(&text, "s", 0);
    for (size_t i = 0; i < 10; i++) {
        char piece[128];
        snprintf(piece, sizeof piece, ",\"%s\":%zu,\"%s (inc)\":%zu", written_as[i], 100 + i, written_as[i], 100 + i);
        assert_has(line, piece);
    }
    free(text.data);
    enigma_profile_free(profile);
}

static void c05_only_numbers(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope a = begin_with("a", "flops", INFINITY, "big", 1e308);
    enigma_end(begin_with("b", "bytes", NAN, "big", 1e308));
    enigma_end(a);
    enigma_profile *profile = recording_end(p);
    written text = exported(profile, "hatchet");
    assert_int_equal(occurrences(text.data, "null") + occurrences(text.data, "NaN") + occurrences(text.data, "nf"), 0);
    assert_has(node_line(&text, "a", 0),
               "\"flops\":0,\"flops (inc)\":0,\"big\":1e+308,\"big (inc)\":1.7976931348623157e+308");
    free(text.data);
    enigma_profile_free(profile);
}

static void g07_deeper_calls_fold(void **state)
{
    enum { DEEP = 1000 };
    static enigma_scope scopes[DEEP];
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    for (int i = 0; i < DEEP; i++) {
        scopes[i] = begin_with("f", "flops", 1, NULL, 0);
        advance(1000);
    }
    for (int i = DEEP; i > 0; i--) {
        enigma_end(scopes[i - 1]);
    }
    enigma_profile *profile = recording_end(p);
    written text = exported(profile, "hatchet");
    assert_int_equal(occurrences(text.data, "\"frame\""), 400);
    const char *line = node_line(&text, "(deeper calls)", 0);
    assert_has(line, "\"time\":602.000,\"time (inc)\":602.000");
    assert_has(line, "\"count\":602,");
    assert_has(line, "\"flops\":602,");
    assert_has(node_line(&text, "ROOT", 0), "\"flops (inc)\":1000");
    free(text.data);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a13_every_node_has_every_key),    cmocka_unit_test(c05_only_numbers),
        cmocka_unit_test(c07_an_empty_profile_has_a_root), cmocka_unit_test(c08_names_that_would_collide),
        cmocka_unit_test(c11_keys_that_collide),           cmocka_unit_test(g07_deeper_calls_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
