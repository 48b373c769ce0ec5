/* Streaming JSON into a sink: commas, nesting and escaping, the only place that escapes text. Output is strict JSON: text is
 * raw UTF-8 with control bytes, quotes and backslashes escaped and invalid bytes as U+FFFD; NaN and infinities become null.
 * Compact, or one element a line where the caller asks for eni_json_line. */
#ifndef ENI_BASE_JSON_WRITE_H
#define ENI_BASE_JSON_WRITE_H

#include "base/sink.h"

#define ENI_JSON_DEPTH 1100 /* nesting that one writer can track */

typedef struct eni_json {
    eni_sink *sink;
    uint32_t depth;
    bool after_key, line_due;
    uint8_t has_element[ENI_JSON_DEPTH / 8 + 1]; /* a bit a level: a comma is due */
} eni_json;

void eni_json_init(eni_json *json, eni_sink *sink);
void eni_json_begin_object(eni_json *json);
void eni_json_end_object(eni_json *json);
void eni_json_begin_array(eni_json *json);
void eni_json_end_array(eni_json *json);
void eni_json_key(eni_json *json, const char *key);
void eni_json_key_text(eni_json *json, enigma_text key);
void eni_json_text(eni_json *json, enigma_text text); /* absent: null */
void eni_json_string(eni_json *json, const char *text);
void eni_json_int(eni_json *json, int64_t value);
void eni_json_uint(eni_json *json, uint64_t value);
void eni_json_double(eni_json *json, double value); /* shortest that reads back the same; not finite: null */
void eni_json_us(eni_json *json, int64_t ns);       /* us with three decimals */
void eni_json_bool(eni_json *json, bool value);
void eni_json_null(eni_json *json);
void eni_json_value(eni_json *json,
                    const enigma_value *value); /* containers and all; not finite: text "NaN", "Infinity" */
void eni_json_line(eni_json *json);             /* a newline before the next element or closing bracket */

#endif
