/* Names and figures of the text table. Cases A02, D07, G08. */
#include <math.h>

#include "present/shown.h"

#include "../api/recording.h"

static const char *shown(enigma_text text, size_t limit, size_t *columns)
{
    static eni_str out;
    out.size = 0;
    eni_str_puts(&out, "");
    *columns = eni_shown_append(&out, text, limit);
    return out.size == 0 ? "" : out.data;
}

static void assert_shown(const char *text, size_t limit, const char *expected, size_t expected_columns)
{
    size_t columns;
    assert_string_equal(shown((enigma_text){text, strlen(text)}, limit, &columns), expected);
    assert_int_equal(columns, expected_columns);
}

#define DOTS "\xe2\x80\xa6"

static void names_of_functions_lose_what_tells_least(void **state)
{
    (void)state;
    assert_shown("void ns::add<float>(float const*, int)", 38, "void ns::add<float>(float const*, int)", 38);
    assert_shown("void ns::add<float>(float const*, int)", 37, "ns::add<float>(" DOTS ")", 17);
    assert_shown("gpu_dispatch:void ns::add<float>(float const*, int)", 40, "gpu_dispatch:ns::add<float>(" DOTS ")",
                 30);
    assert_shown("void (anonymous namespace)::k<(int)3>(void (*)(int))", 48,
                 "(anonymous namespace)::k<(int)3>(" DOTS ")", 35);
    assert_shown("ns::k(int, int, int)", 10, "ns::k(" DOTS ")", 8);
    assert_shown("ns::longest::k(int, int, int)", 12, "ns::l" DOTS "::k(" DOTS ")", 12);
    /* no functions */
    assert_shown("step (of many, of all)", 14, "step (" DOTS "of all)", 14);
    assert_shown("a::b (of many, of all)", 14, "a::b (" DOTS "of all)", 14);
    assert_shown("(a::b, of all of them)", 14, "(a::b," DOTS "f them)", 14);
    assert_shown("a::b, of all of them))", 14, "a::b, " DOTS " them))", 14);
    assert_shown("a::void f() and more of", 14, "a::voi" DOTS "more of", 14);
}

static void names_are_cut_in_the_middle(void **state)
{
    size_t columns;
    (void)state;
    assert_shown("abcdefghij", 10, "abcdefghij", 10);
    assert_shown("abcdefghijk", 10, "abcd\xe2\x80\xa6ghijk", 10);
    assert_shown("ab", 3, "ab", 2);
    assert_shown("abcd", 3,
                 "a\xe2\x80\xa6"
                 "d",
                 3);
    assert_shown("", 10, "\"\"", 2);
    assert_string_equal(shown((enigma_text){NULL, 0}, 10, &columns), "");
    assert_int_equal(columns, 0);
}

static void columns_are_those_of_a_terminal(void **state)
{
    (void)state;
    assert_shown("\xe7\x9f\xa9\xe9\x98\xb5", 10, "\xe7\x9f\xa9\xe9\x98\xb5", 4); /* wide */
    assert_shown("e\xcc\x81", 10, "e\xcc\x81", 1);                               /* combining */
    assert_shown("\xe7\x9f\xa9\xe9\x98\xb5\xe4\xb9\x98\xe6\xb3\x95", 7,
                 "\xe7\x9f\xa9\xe2\x80\xa6\xe4\xb9\x98\xe6\xb3\x95", 7);
    assert_shown("a\tb\x7f", 10, "a\\tb\\x7f", 8);
    assert_shown("\xff", 10, "\xef\xbf\xbd", 1);
    assert_shown("\x1b[2J\x1b[2J\x1b[2J", 12, "\\x1b[\xe2\x80\xa6[2J", 9); /* escapes are not cut in two */
}

/* Cutting takes time by the columns, not by the size, and never a piece of a character. */
static void tails_are_whole(void **state)
{
    enum { SIZE = 3 << 20 };
    size_t columns;
    (void)state;
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (size_t i = 0; i < SIZE; i++) {
        text[i] = "\xe2\x82\xac"[i % 3];
    }
    const char *out = shown((enigma_text){text, SIZE}, 9, &columns);
    assert_string_equal(
        out,
        "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x80\xa6\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    assert_int_equal(columns, 9);
    memset(text, '\x80', SIZE); /* nothing but bytes that cannot begin a character */
    shown((enigma_text){text, SIZE}, 9, &columns);
    assert_true(columns <= 9);
    free(text);
}

static void missing_things_are_said(void **state)
{
    enigma_counts counts = {.dropped = 1, .gpu_invalid = 2, .gpu_unfinished = 1, .gpu_skewed = 3, .open_scopes = 1};
    eni_str out = {0};
    (void)state;
    eni_shown_missing(&out, &counts, "\n");
    assert_int_equal(occurrences(out.data, "\n"), 4);
    assert_non_null(strstr(out.data, "1 event dropped"));
    assert_non_null(strstr(out.data, "\n2 GPU times not valid"));
    assert_non_null(strstr(out.data, "\n1 GPU event not complete"));
    assert_non_null(strstr(out.data, "\n3 GPU events starting before"));
    assert_non_null(strstr(out.data, "\n1 scope still open"));
    eni_str_free(&out);
    eni_shown_missing(&out, &(enigma_counts){.events = 5, .gpu_events = 5}, "\n");
    assert_int_equal(out.size, 0);
    eni_str_free(&out);
}

/* One row with the given figures, as its line in the table. */
static void assert_row(const char *kernel, uint64_t cpu_ns, uint64_t gpu_ns, double flops, const char *expected)
{
    enigma_profiler *p = recording_begin(RECORDING_START);
    add_work(&(work){.name = "n",
                     .kernel = kernel,
                     .cpu_ns = cpu_ns,
                     .gpu_start = 1000,
                     .gpu_end = 1000 + gpu_ns,
                     .key = "flops",
                     .value = flops});
    enigma_profile *profile = recording_end(p);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    written table = table_of(result, NULL);
    const char *line = strchr(strchr(table.data, '\n') + 1, '\n') + 1;
    char packed[256];
    size_t size = 0;
    for (const char *at = line; *at != '\n'; at++) { /* one blank between the cells */
        if (*at != ' ' || packed[size - 1] != ' ') {
            packed[size++] = *at;
        }
    }
    packed[size] = '\0';
    assert_string_equal(packed, expected);
    free(table.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

static void d07_figures(void **state)
{
    (void)state;
    assert_row("k", 1500000, 1000000, 2e9, "n k 1 1500.000 1500.000 1000.000 1000.000 2000.00 -");
    assert_row("k", 1, 1, 1, "n k 1 0.001 0.001 0.001 0.001 1.00 -");
    assert_row(NULL, 0, 0, 5, "n 1 0.000 0.000 0.000 0.000 - -");
    assert_row("k", 10, 1000000, 1, "n k 1 0.010 0.010 1000.000 1000.000 1.000e-06 -");
    assert_row("k", UINT64_C(4000000000000000000), 1000, -2.5e3, "n k 1 4.000e+15 4.000e+15 1.000 1.000 -2.50 -");
    assert_row("k", 10, 1000, 1e300, "n k 1 0.010 0.010 1.000 1.000 1.000e+297 -");
}

static void columns_line_up(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    add_kernel("k", 123456789, 10);
    enigma_end(enigma_begin("\xe7\x9f\xa9\xe9\x98\xb5"));
    enigma_profile *profile = recording_end(p);
    enigma_result *result = averages(profile, ENIGMA_GROUP_NAME);
    written table = table_of(result, NULL);
    assert_string_equal(
        table.data,
        "Name          Kernel  Calls  CPU total us  CPU avg us  GPU total us  GPU avg us\n"
        "------------  ------  -----  ------------  ----------  ------------  ----------\n"
        "gpu_dispatch  k           1    123456.789  123456.789         0.010       0.010\n"
        "\xe7\x9f\xa9\xe9\x98\xb5                      1         0.000       0.000         0.000       0.000\n");
    free(table.data);
    enigma_result_free(result);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_cut_in_the_middle),
        cmocka_unit_test(names_of_functions_lose_what_tells_least),
        cmocka_unit_test(columns_are_those_of_a_terminal),
        cmocka_unit_test(tails_are_whole),
        cmocka_unit_test(missing_things_are_said),
        cmocka_unit_test(d07_figures),
        cmocka_unit_test(columns_line_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
