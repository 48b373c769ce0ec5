#include "support.h"

#include <errno.h>
#include <math.h>

#include "base/json_write.h"

static eni_str out;
static eni_sink sink;
static eni_json json;

static void begin(void)
{
    out = (eni_str){0};
    assert_int_equal(eni_sink_init(&sink, eni_sink_to_str, &out), ENIGMA_OK);
    eni_json_init(&json, &sink);
}

static void expect(const char *text)
{
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_OK);
    assert_string_equal(out.data, text);
    eni_str_free(&out);
}

static void commas_and_nesting(void **state)
{
    (void)state;
    begin();
    eni_json_begin_object(&json);
    eni_json_key(&json, "a");
    eni_json_begin_array(&json);
    eni_json_int(&json, INT64_MIN);
    eni_json_uint(&json, UINT64_MAX);
    eni_json_begin_array(&json);
    eni_json_end_array(&json);
    eni_json_begin_object(&json);
    eni_json_end_object(&json);
    eni_json_bool(&json, true);
    eni_json_bool(&json, false);
    eni_json_null(&json);
    eni_json_us(&json, -1);
    eni_json_end_array(&json);
    eni_json_key(&json, "");
    eni_json_string(&json, "x");
    eni_json_key_text(&json, (enigma_text){"k\"\0", 3});
    eni_json_text(&json, (enigma_text){NULL, 0});
    eni_json_end_object(&json);
    expect("{\"a\":[-9223372036854775808,18446744073709551615,[],{},true,false,null,-0.001],\"\":\"x\","
           "\"k\\\"\\u0000\":null}");
}

static void lines(void **state)
{
    (void)state;
    begin();
    eni_json_begin_array(&json);
    for (int i = 0; i < 3; i++) {
        eni_json_line(&json);
        eni_json_int(&json, i);
    }
    eni_json_line(&json);
    eni_json_end_array(&json);
    eni_json_line(&json);
    expect("[\n0,\n1,\n2\n]");
    begin();
    eni_json_begin_object(&json);
    eni_json_line(&json);
    eni_json_key(&json, "a");
    eni_json_int(&json, 1);
    eni_json_line(&json);
    eni_json_key(&json, "b");
    eni_json_int(&json, 2);
    eni_json_end_object(&json);
    expect("{\n\"a\":1,\n\"b\":2}");
}

static void expect_text(const char *bytes, size_t size, const char *quoted)
{
    begin();
    eni_json_text(&json, (enigma_text){bytes, size});
    expect(quoted);
}

static void texts_are_escaped_and_repaired(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *quoted;
    } table[] = {
        {"", 0, "\"\""},
        {"a\"b\\c/'", 7, "\"a\\\"b\\\\c/'\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\0\x01\x1f\x7f", 4, "\"\\u0000\\u0001\\u001f\\u007f\""},
        {"GPU \xf0\x9f\x9a\x80", 8, "\"GPU \xf0\x9f\x9a\x80\""},
        {"\xff\xc0\x80\xed\xa0\x80z", 7,
         "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\""},
        {"</script>", 9, "\"</script>\""},
        {"\xe2\x80\xa8", 3, "\"\xe2\x80\xa8\""},
    };
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        expect_text(table[i].bytes, table[i].size, table[i].quoted);
    }
}

static void numbers(void **state)
{
    (void)state;
    begin();
    eni_json_begin_array(&json);
    eni_json_double(&json, 0.1);
    eni_json_double(&json, 1e300);
    eni_json_double(&json, -0.0);
    eni_json_double(&json, NAN);
    eni_json_double(&json, INFINITY);
    eni_json_double(&json, -INFINITY);
    eni_json_end_array(&json);
    expect("[0.1,1e+300,-0,null,null,null]");
}

static enigma_text text(const char *data) { return (enigma_text){data, strlen(data)}; }

static void values(void **state)
{
    (void)state;
    const enigma_field items[] = {
        {{NULL, 0}, {ENIGMA_NULL, {0}}},
        {{NULL, 0}, {ENIGMA_BOOL, {.integer = 2}}},
        {{NULL, 0}, {ENIGMA_INT, {.integer = -3}}},
        {{NULL, 0}, {ENIGMA_DOUBLE, {.number = 2.5}}},
        {{NULL, 0}, {ENIGMA_DOUBLE, {.number = NAN}}},
        {{NULL, 0}, {ENIGMA_DOUBLE, {.number = INFINITY}}},
        {{NULL, 0}, {ENIGMA_DOUBLE, {.number = -INFINITY}}},
        {{NULL, 0}, {ENIGMA_TEXT, {.text = text("t")}}},
        {{NULL, 0}, {ENIGMA_TUPLE, {.items = {NULL, 0}}}},
        {{NULL, 0}, {77, {0}}},
    };
    const enigma_field pair[] = {{text("k"), {ENIGMA_LIST, {.items = {items, ENI_COUNT_OF(items)}}}},
                                 {text("name"), {ENIGMA_DICT, {.items = {NULL, 0}}}}};
    const enigma_value dict = {ENIGMA_DICT, {.items = {pair, 2}}};
    begin();
    eni_json_value(&json, &dict);
    expect("{\"k\":[null,true,-3,2.5,\"NaN\",\"Infinity\",\"-Infinity\",\"t\",[],null],\"name\":{}}");
}

/* Of keys that would be written alike the last wins, in small dicts and in big ones. */
static void keys_stand_once(void **state)
{
    enigma_field many[40];
    char names[40][8];
    (void)state;
    const enigma_field few[] = {{text("a"), {ENIGMA_INT, {.integer = 1}}},
                                {text("\xff"), {ENIGMA_INT, {.integer = 2}}},
                                {text("\xfe"), {ENIGMA_INT, {.integer = 3}}},
                                {text("a"), {ENIGMA_INT, {.integer = 4}}},
                                {text(""), {ENIGMA_INT, {.integer = 5}}}};
    const enigma_value dict = {ENIGMA_DICT, {.items = {few, ENI_COUNT_OF(few)}}};
    begin();
    eni_json_value(&json, &dict);
    expect("{\"\xef\xbf\xbd\":3,\"a\":4,\"\":5}");
    for (size_t i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "k%zu", i % 39);
        many[i] = (enigma_field){text(names[i]), {ENIGMA_INT, {.integer = (int64_t)i}}};
    }
    const enigma_value big = {ENIGMA_DICT, {.items = {many, 40}}};
    begin();
    eni_json_value(&json, &big);
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_OK);
    assert_null(strstr(out.data, "\"k0\":0,"));
    assert_non_null(strstr(out.data, "{\"k1\":1,\"k2\":2,"));
    assert_non_null(strstr(out.data, ",\"k38\":38,\"k0\":39}"));
    eni_str_free(&out);
}

static void values_that_contain_themselves_end(void **state)
{
    (void)state;
    enigma_field self = {{NULL, 0}, {ENIGMA_LIST, {.items = {NULL, 1}}}};
    self.value.as.items.data = &self;
    begin();
    eni_json_value(&json, &self.value);
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_OK);
    assert_non_null(strstr(out.data, "[\"...\"]"));
    eni_str_free(&out);
}

static void depth_is_bounded(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < ENI_JSON_DEPTH; i++) {
        eni_json_begin_array(&json);
    }
    assert_int_equal(sink.error, 0);
    for (int i = 0; i < ENI_JSON_DEPTH; i++) {
        eni_json_end_array(&json);
    }
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_OK);
    assert_int_equal(out.size, 2 * ENI_JSON_DEPTH);
    eni_str_free(&out);
    begin();
    for (int i = 0; i < ENI_JSON_DEPTH + 3; i++) {
        eni_json_begin_object(&json);
    }
    for (int i = 0; i < ENI_JSON_DEPTH + 3; i++) {
        eni_json_end_object(&json);
    }
    assert_int_equal(sink.error, EOVERFLOW);
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_E_IO);
    eni_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_and_nesting),
        cmocka_unit_test(lines),
        cmocka_unit_test(texts_are_escaped_and_repaired),
        cmocka_unit_test(numbers),
        cmocka_unit_test(values),
        cmocka_unit_test(keys_stand_once),
        cmocka_unit_test(values_that_contain_themselves_end),
        cmocka_unit_test(depth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
