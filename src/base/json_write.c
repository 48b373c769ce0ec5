/* Streaming JSON: commas, nesting and the escaping of text. A writer belongs to the thread that uses its sink. */
#include "base/json_write.h"

#include <errno.h>
#include <math.h>

#include "base/intern.h"

#define SMALL_DICT 16 /* keys that are compared one by one */
#define VALUE_DEPTH 40 /* deeper than the 32 that values may nest */

void eni_json_init(eni_json *json, eni_sink *sink)
{
    json->sink = sink;
    json->depth = 0;
    json->after_key = false;
    json->line_due = false;
    json->has_element[0] = 0;
}

static bool has_element(const eni_json *json) { return json->has_element[json->depth / 8] >> (json->depth % 8) & 1; }

static void set_has_element(eni_json *json, bool value)
{
    uint8_t bit = (uint8_t)(1u << (json->depth % 8));
    uint8_t *byte = &json->has_element[json->depth / 8];
    *byte = value ? *byte | bit : *byte & (uint8_t)~bit;
}

static void write_line_due(eni_json *json)
{
    if (json->line_due) {
        json->line_due = false;
        eni_sink_putc(json->sink, '\n');
    }
}

/* Due before each key, and before each value that has none. */
static void separate(eni_json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->depth != 0) {
        if (has_element(json)) {
            eni_sink_putc(json->sink, ',');
        }
        set_has_element(json, true);
    }
    write_line_due(json);
}

static void begin(eni_json *json, char bracket)
{
    separate(json);
    if (json->depth + 1 > ENI_JSON_DEPTH) {
        json->sink->error = json->sink->error == 0 ? EOVERFLOW : json->sink->error;
        return;
    }
    json->depth++;
    set_has_element(json, false);
    eni_sink_putc(json->sink, bracket);
}

static void end(eni_json *json, char bracket)
{
    if (json->depth != 0) { /* 0 after an overflow alone, when the sink has failed */
        json->depth--;
    }
    write_line_due(json);
    eni_sink_putc(json->sink, bracket);
}

void eni_json_begin_object(eni_json *json) { begin(json, '{'); }
void eni_json_end_object(eni_json *json) { end(json, '}'); }
void eni_json_begin_array(eni_json *json) { begin(json, '['); }
void eni_json_end_array(eni_json *json) { end(json, ']'); }

static bool is_plain(unsigned char byte) { return byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\'; }

static void write_escaped(eni_sink *sink, uint32_t code)
{
    static const char hex[] = "0123456789abcdef";
    static const char short_forms[][2] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                          {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    for (size_t i = 0; i < ENI_COUNT_OF(short_forms); i++) {
        if (code == (unsigned char)short_forms[i][0]) {
            eni_sink_write(sink, (char[]){'\\', short_forms[i][1]}, 2);
            return;
        }
    }
    eni_sink_write(sink, (char[]){'\\', 'u', '0', '0', hex[code >> 4 & 15], hex[code & 15]}, 6);
}

/* Control bytes, quotes and backslashes are escaped; the rest is raw UTF-8, repaired. */
static void write_quoted(eni_sink *sink, enigma_text text)
{
    const char *at = text.data, *stop = text.data + text.size;
    eni_sink_putc(sink, '"');
    while (at < stop) {
        const char *plain = at;
        while (at < stop && is_plain((unsigned char)*at)) {
            at++;
        }
        eni_sink_write(sink, plain, (size_t)(at - plain));
        if (at == stop) {
            break;
        }
        uint32_t code = eni_utf8_next(&at, stop);
        if (code < 0x80) {
            write_escaped(sink, code);
        } else {
            char bytes[4];
            eni_sink_write(sink, bytes, eni_utf8_put(code, bytes));
        }
    }
    eni_sink_putc(sink, '"');
}

void eni_json_key_text(eni_json *json, enigma_text key)
{
    separate(json);
    write_quoted(json->sink, key.data == NULL ? eni_text_of("") : key);
    eni_sink_putc(json->sink, ':');
    json->after_key = true;
}

void eni_json_key(eni_json *json, const char *key) { eni_json_key_text(json, eni_text_of(key)); }

void eni_json_text(eni_json *json, enigma_text text)
{
    if (text.data == NULL) {
        eni_json_null(json);
        return;
    }
    separate(json);
    write_quoted(json->sink, text);
}

void eni_json_string(eni_json *json, const char *text) { eni_json_text(json, eni_text_of(text)); }

void eni_json_int(eni_json *json, int64_t value)
{
    separate(json);
    if (value < 0) {
        eni_sink_putc(json->sink, '-');
    }
    eni_sink_u64(json->sink, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void eni_json_uint(eni_json *json, uint64_t value)
{
    separate(json);
    eni_sink_u64(json->sink, value);
}

void eni_json_double(eni_json *json, double value)
{
    if (!isfinite(value)) {
        eni_json_null(json);
        return;
    }
    char digits[ENI_DOUBLE_BYTES];
    separate(json);
    eni_sink_write(json->sink, digits, eni_str_double(value, digits));
}

void eni_json_us(eni_json *json, int64_t ns)
{
    separate(json);
    eni_sink_us(json->sink, ns);
}

void eni_json_bool(eni_json *json, bool value)
{
    separate(json);
    eni_sink_puts(json->sink, value ? "true" : "false");
}

void eni_json_null(eni_json *json)
{
    separate(json);
    eni_sink_puts(json->sink, "null");
}

static void write_number(eni_json *json, double value)
{
    if (isfinite(value)) {
        eni_json_double(json, value);
    } else {
        eni_json_string(json, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    }
}

static void write_value(eni_json *json, const enigma_value *value, int depth);

/* Marks the items of a dict that a later item of the same key replaces, since readers disagree about keys that stand twice. Keys are
 * the same that are written alike: also where only the repair of invalid bytes makes them so. Free with eni_free(.., count). */
static bool *mark_replaced(const enigma_items *items)
{
    bool *replaced = eni_alloc_zero(items->count);
    eni_intern keys = {0};
    eni_str shown = {0};
    for (size_t i = items->count; i > 0 && replaced != NULL; i--) {
        enigma_text key = items->data[i - 1].key.data == NULL ? eni_text_of("") : items->data[i - 1].key;
        size_t known = keys.count;
        shown.size = 0;
        eni_str_puts(&shown, "");
        for (const char *at = key.data, *stop = key.data + key.size; at < stop;) {
            char bytes[4];
            eni_str_append(&shown, bytes, eni_utf8_put(eni_utf8_next(&at, stop), bytes));
        }
        if (shown.failed || eni_intern_put(&keys, (enigma_text){shown.data, shown.size}) == ENI_INTERN_NONE) {
            eni_free(replaced, items->count);
            replaced = NULL;
        } else {
            replaced[i - 1] = keys.count == known;
        }
    }
    eni_str_free(&shown);
    eni_intern_free(&keys);
    return replaced;
}

/* Whether all keys of a small dict differ already in what needs no repair: size, or ASCII bytes. */
static bool keys_differ(const enigma_items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        for (size_t k = 0; k < items->data[i].key.size; k++) {
            if ((unsigned char)items->data[i].key.data[k] >= 0x80) {
                return false;
            }
        }
        for (size_t k = 0; k < i; k++) {
            if (eni_text_equal(items->data[i].key, items->data[k].key)) {
                return false;
            }
        }
    }
    return true;
}

static void write_items(eni_json *json, const enigma_value *value, int depth)
{
    const enigma_items *items = &value->as.items;
    bool dict = value->type == ENIGMA_DICT;
    bool *replaced = NULL;
    if (dict && !(items->count <= SMALL_DICT && keys_differ(items))) {
        replaced = mark_replaced(items);
        if (replaced == NULL) {
            json->sink->error = json->sink->error == 0 ? ENOMEM : json->sink->error;
        }
    }
    begin(json, dict ? '{' : '[');
    for (size_t i = 0; i < items->count; i++) {
        if (replaced != NULL && replaced[i]) {
            continue;
        }
        if (dict) {
            eni_json_key_text(json, items->data[i].key);
        }
        write_value(json, &items->data[i].value, depth + 1);
    }
    end(json, dict ? '}' : ']');
    eni_free(replaced, items->count);
}

static void write_value(eni_json *json, const enigma_value *value, int depth)
{
    switch (value->type) {
    case ENIGMA_BOOL:
        eni_json_bool(json, value->as.integer != 0);
        break;
    case ENIGMA_INT:
        eni_json_int(json, value->as.integer);
        break;
    case ENIGMA_DOUBLE:
        write_number(json, value->as.number);
        break;
    case ENIGMA_TEXT:
        eni_json_text(json, value->as.text);
        break;
    case ENIGMA_LIST:
    case ENIGMA_TUPLE:
    case ENIGMA_DICT:
        if (depth < VALUE_DEPTH) {
            write_items(json, value, depth);
        } else {
            eni_json_string(json, "...");
        }
        break;
    default:
        eni_json_null(json);
    }
}

void eni_json_value(eni_json *json, const enigma_value *value) { write_value(json, value, 0); }

void eni_json_line(eni_json *json) { json->line_due = true; }
