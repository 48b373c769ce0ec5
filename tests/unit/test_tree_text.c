/* The tree as text: header, indentation, depth, names. */
#include "enigma.h"

#include "../api/recording.h"

static void assert_tree(const enigma_profile *profile, const char *expected)
{
    written text = tree_of(profile);
    assert_string_equal(text.data, expected);
    free(text.data);
}

static void two_blanks_a_level(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope a = enigma_begin("a\nb"), empty = enigma_begin("");
    add_kernel("k", 1500, 700);
    enigma_end(empty);
    enigma_end(a);
    enigma_end(enigma_begin("z"));
    enigma_profile *profile = recording_end(p);
    assert_tree(profile, "Call tree of 4 events: calls, inclusive CPU and GPU time in us\n"
                         "a\\nb  calls 1  cpu 1.500  gpu 0.700\n"
                         "  \"\"  calls 1  cpu 1.500  gpu 0.700\n"
                         "    gpu_dispatch:k  calls 1  cpu 1.500  gpu 0.700\n"
                         "z  calls 1  cpu 0.000  gpu 0.000\n");
    enigma_profile_free(profile);
}

static void what_is_missing_is_one_line(void **state)
{
    enigma_profile *profile = NULL;
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    add_work(&(work){.kernel = "k", .gpu_start = 9, .gpu_end = 8});
    enigma_scope open = enigma_begin("open");
    assert_int_equal(enigma_profiler_snapshot(p, &profile), ENIGMA_OK);
    enigma_end(open);
    enigma_profile_free(recording_end(p));
    assert_tree(profile, "Call tree of 1 event: calls, inclusive CPU and GPU time in us\n"
                         "1 GPU time not valid and counted as 0: the event's metadata gpu_time says why; 1 scope still "
                         "open, not counted\n"
                         "gpu_dispatch:k  calls 1  cpu 0.000  gpu 0.000\n");
    enigma_profile_free(profile);
}

static void g07_deep_lines_print_their_depth(void **state)
{
    enigma_scope scopes[67];
    char expected[256];
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    for (int i = 0; i < 67; i++) {
        scopes[i] = enigma_begin("f");
    }
    for (int i = 67; i > 0; i--) {
        enigma_end(scopes[i - 1]);
    }
    enigma_profile *profile = recording_end(p);
    written text = tree_of(profile);
    for (int level = 63; level < 67; level++) {
        int blanks = level < 64 ? 2 * level : 128;
        int size = snprintf(expected, sizeof expected, "\n%*s", blanks, "");
        snprintf(expected + size, sizeof expected - (size_t)size, level > 64 ? "[%d] f  calls 1" : "f  calls 1", level);
        assert_int_equal(occurrences(text.data, expected), 1);
    }
    free(text.data);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_blanks_a_level),
        cmocka_unit_test(what_is_missing_is_one_line),
        cmocka_unit_test(g07_deep_lines_print_their_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
