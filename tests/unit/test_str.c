#include "support.h"

#include <locale.h>
#include <math.h>

#include "base/str.h"

static void text_grows(void **state)
{
    (void)state;
    eni_str str = {0};
    eni_str_append(&str, NULL, 0);
    eni_str_puts(&str, "ab");
    eni_str_putc(&str, '\0');
    eni_str_printf(&str, "%d-%s", 5, "x");
    assert_int_equal(str.size, 6);
    assert_memory_equal(str.data,
                        "ab\0"
                        "5-x\0",
                        7);
    char wide[1000];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    for (int i = 0; i < 100; i++) {
        eni_str_printf(&str, "%s", wide);
    }
    assert_int_equal(str.size, 6 + 100 * 999);
    assert_int_equal(str.data[str.size], '\0');
    assert_false(str.failed);
    eni_str_append(&str, wide, SIZE_MAX - 10);
    assert_true(str.failed);
    size_t size = str.size;
    eni_str_puts(&str, "more");
    assert_int_equal(str.size, size);
    eni_str_free(&str);
    assert_false(str.failed);
}

static void memory_failure_sticks(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    eni_str str = {0};
    failing.left = 1;
    for (int i = 0; i < 100; i++) {
        eni_str_printf(&str, "%s", "some text to fill it");
    }
    assert_true(str.failed);
    failing.left = -1;
    eni_str_puts(&str, "x");
    assert_true(str.failed);
    eni_str_free(&str);
    failing_end(&failing);
}

static void texts_compare(void **state)
{
    (void)state;
    enigma_text absent = {NULL, 0}, empty = {"", 0}, a = {"a", 1}, ab = {"ab", 2}, high = {"\xff", 1};
    const enigma_text rising[] = {absent, empty, a, ab, high};
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++) {
            int order = eni_text_compare(rising[i], rising[k]);
            assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
            assert_int_equal(eni_text_equal(rising[i], rising[k]), i == k);
        }
    }
    assert_int_equal(eni_text_in((enigma_text){"abc", 0}).size, 3);
    assert_int_equal(eni_text_in((enigma_text){"abc", 2}).size, 2);
    assert_int_equal(eni_text_in((enigma_text){NULL, 5}).size, 0);
    assert_null(eni_text_of(NULL).data);
    assert_int_not_equal(eni_text_hash((enigma_text){"a\0", 2}), eni_text_hash(a));
}

/* The code points of a byte string, invalid pieces as FFFD. */
static void expect(const char *bytes, size_t size, const uint32_t *codes, size_t count)
{
    char *exact = malloc(size == 0 ? 1 : size); /* so that a sanitizer sees a read past the end */
    memcpy(exact, bytes, size);
    const char *at = exact, *end = exact + size;
    for (size_t i = 0; i < count; i++) {
        assert_true(at < end);
        assert_int_equal(eni_utf8_next(&at, end), codes[i]);
    }
    assert_ptr_equal(at, end);
    free(exact);
}
#define EXPECT(bytes, ...)                                                                                             \
    expect(bytes, sizeof bytes - 1, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)
#define BAD 0xfffd

static void utf8_is_repaired(void **state)
{
    (void)state;
    EXPECT("a\x7f", 'a', 0x7f);
    EXPECT("\xc2\x80\xdf\xbf", 0x80, 0x7ff);
    EXPECT("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", 0x800, 0xd7ff, 0xe000, 0xffff);
    EXPECT("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 0x10000, 0x10ffff);
    EXPECT("\xf0\x9f\x9a\x80", 0x1f680);
    EXPECT("\xc0\x80", BAD, BAD);          /* overlong NUL */
    EXPECT("\xc1\xbf", BAD, BAD);          /* overlong */
    EXPECT("\xe0\x80\x80", BAD, BAD, BAD); /* overlong */
    EXPECT("\xe0\x9f\xbf", BAD, BAD, BAD); /* overlong */
    EXPECT("\xf0\x8f\xbf\xbf", BAD, BAD, BAD, BAD);
    EXPECT("\xed\xa0\x80", BAD, BAD, BAD);          /* a surrogate */
    EXPECT("\xf4\x90\x80\x80", BAD, BAD, BAD, BAD); /* above 10FFFF */
    EXPECT("\xf5\xff\xfe\x80", BAD, BAD, BAD, BAD);
    EXPECT("\xe2\x82", BAD); /* cut short: one piece */
    EXPECT("\xe2\x82x", BAD, 'x');
    EXPECT("\xf0\x9f\x9a", BAD);
    EXPECT("\xf0\x9f\xc3\xa9", BAD, 0xe9);
    EXPECT("\xc3", BAD);
    EXPECT("\xc3(", BAD, '(');
    EXPECT("\x80", BAD);
}

static void utf8_round_trip(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x110000; code++) {
        char bytes[4];
        size_t size = eni_utf8_put(code, bytes);
        const char *at = bytes;
        uint32_t expected = (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff ? BAD : code;
        assert_int_equal(eni_utf8_next(&at, bytes + size), expected);
        assert_ptr_equal(at, bytes + size);
    }
}

static void widths(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        int columns;
    } table[] = {{'a', 1},     {0xe9, 1},   {0x301, 0},    {0x200b, 0},  {0x200d, 0}, {0xfe0f, 0},  {0x4e2d, 2},
                 {0x1f680, 2}, {0xff21, 2}, {0xac00, 2},   {0x3042, 2},  {0x1100, 2}, {0x1160, 0},  {0xad, 1},
                 {0x0378, 1},  {0xffff, 1}, {0x10ffff, 1}, {0x20000, 2}, {0x30a0, 2}, {0xe0100, 0}, {BAD, 1}};
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        assert_int_equal(eni_utf8_width(table[i].code), table[i].columns);
    }
}

static void doubles_read_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } table[] = {{0.0, "0"},
                 {-0.0, "-0"},
                 {0.1, "0.1"},
                 {100, "100"},
                 {1e21, "1e+21"},
                 {1.0 / 3, "0.3333333333333333"},
                 {5e-324, "4.94065645841247e-324"},
                 {1e-7, "1e-07"},
                 {123456789012345678.0, "1.2345678901234568e+17"}};
    char out[ENI_DOUBLE_BYTES];
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        assert_int_equal(eni_str_double(table[i].value, out), strlen(table[i].text));
        assert_string_equal(out, table[i].text);
    }
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double value, again;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            eni_str_double(value, out);
            again = strtod(out, NULL);
            assert_memory_equal(&again, &value, sizeof value);
        }
    }
}

/* Any installed locale with a decimal comma will do. */
static void locales_change_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8",
                                        "de_AT.UTF-8", "nl_NL.UTF-8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; set == NULL && i < ENI_COUNT_OF(names); i++) {
        set = setlocale(LC_NUMERIC, names[i]);
    }
    if (set == NULL) {
        printf("no locale with a decimal comma is installed\n");
        skip();
    }
    eni_str str = {0};
    char out[ENI_DOUBLE_BYTES];
    eni_str_printf(&str, "%.1f", 1.5);
    eni_str_double(2.25, out);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(str.data, "1.5");
    assert_string_equal(out, "2.25");
    eni_str_free(&str);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows),        cmocka_unit_test(memory_failure_sticks),  cmocka_unit_test(texts_compare),
        cmocka_unit_test(utf8_is_repaired),  cmocka_unit_test(utf8_round_trip),        cmocka_unit_test(widths),
        cmocka_unit_test(doubles_read_back), cmocka_unit_test(locales_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
