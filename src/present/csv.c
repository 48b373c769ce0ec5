/* Rows as CSV (RFC 4180): a column for each row field, then one for each metric. Reads a result, keeps nothing;
 * any thread. */
#include <errno.h>

#include "aggregate/rows.h"
#include "base/intern.h"
#include "base/sink.h"

/* The metric keys of all rows, in order of first appearance. */
static bool collect_keys(const enigma_result *result, eni_intern *keys)
{
    for (size_t i = 0; i < result->row_count; i++) {
        for (size_t m = 0; m < result->rows[i].metric_count; m++) {
            if (eni_intern_put(keys, eni_text_of(result->rows[i].metrics[m].key)) == ENI_INTERN_NONE) {
                return false;
            }
        }
    }
    return true;
}

/* A text cell, repaired to UTF-8, quoted where it has to be. */
static void write_text(eni_sink *sink, enigma_text text)
{
    bool quoted = false;
    for (size_t i = 0; i < text.size && !quoted; i++) {
        quoted = memchr(",\"\r\n", text.data[i], 4) != NULL;
    }
    eni_sink_puts(sink, quoted ? "\"" : "");
    for (const char *at = text.data, *end = text.data + text.size; at < end;) {
        char bytes[4];
        size_t size = eni_utf8_put(eni_utf8_next(&at, end), bytes);
        eni_sink_puts(sink, bytes[0] == '"' ? "\"" : "");
        eni_sink_write(sink, bytes, size);
    }
    eni_sink_puts(sink, quoted ? "\"" : "");
}

/* A number cell; not finite: empty. */
static void write_double(eni_sink *sink, double value)
{
    char digits[ENI_DOUBLE_BYTES];
    if (value - value == 0.0) {
        eni_sink_write(sink, digits, eni_str_double(value, digits));
    }
}

static void write_field(eni_sink *sink, const enigma_row *row, const enigma_row_field *field)
{
    switch (field->kind) {
    case ENIGMA_FIELD_UINT:
        eni_sink_u64(sink, eni_row_field_uint(row, field));
        break;
    case ENIGMA_FIELD_DOUBLE:
        write_double(sink, eni_row_field_double(row, field));
        break;
    default:
        write_text(sink, eni_row_field_text(row, field));
    }
}

static void write_head(eni_sink *sink, const eni_intern *keys)
{
    const enigma_row_field *field;
    for (size_t i = 0; (field = enigma_row_field_at(i)) != NULL; i++) {
        eni_sink_puts(sink, i == 0 ? "" : ",");
        eni_sink_puts(sink, field->name);
    }
    for (size_t i = 0; i < keys->count; i++) {
        eni_str title = {0};
        eni_str_puts(&title, "metrics.");
        eni_str_append(&title, keys->texts[i].data, keys->texts[i].size);
        eni_sink_putc(sink, ',');
        write_text(sink, (enigma_text){title.data, title.size});
        sink->error = title.failed && sink->error == 0 ? ENOMEM : sink->error;
        eni_str_free(&title);
    }
    eni_sink_puts(sink, "\r\n");
}

/* cells: room for the row's metric of each key. */
static void write_row(eni_sink *sink, const enigma_row *row, const eni_intern *keys, const enigma_metric **cells)
{
    const enigma_row_field *field;
    memset(cells, 0, keys->count * sizeof *cells);
    for (size_t m = 0; m < row->metric_count; m++) {
        cells[eni_intern_find(keys, eni_text_of(row->metrics[m].key))] = &row->metrics[m];
    }
    for (size_t i = 0; (field = enigma_row_field_at(i)) != NULL; i++) {
        eni_sink_puts(sink, i == 0 ? "" : ",");
        write_field(sink, row, field);
    }
    for (size_t i = 0; i < keys->count; i++) {
        eni_sink_putc(sink, ',');
        if (cells[i] != NULL) {
            write_double(sink, cells[i]->value);
        }
    }
    eni_sink_puts(sink, "\r\n");
}

typedef struct csv {
    const enigma_row **rows;
    size_t count;
    eni_intern keys;
    const enigma_metric **cells;
} csv;

static enigma_status write_body(eni_sink *sink, const void *arg)
{
    const csv *table = arg;
    write_head(sink, &table->keys);
    for (size_t i = 0; i < table->count; i++) {
        write_row(sink, table->rows[i], &table->keys, table->cells);
    }
    return ENIGMA_OK;
}

enigma_status enigma_result_save_csv(const enigma_result *result, const char *path)
{
    csv table = {.count = result->row_count};
    table.rows = eni_alloc(table.count * sizeof *table.rows);
    enigma_status status = ENI_NO_MEMORY();
    if (table.rows != NULL && collect_keys(result, &table.keys)) {
        table.cells = eni_alloc((table.keys.count + 1) * sizeof *table.cells);
        status = table.cells == NULL ? ENI_NO_MEMORY() : enigma_result_rows(result, NULL, table.rows, table.count);
    }
    if (status == ENIGMA_OK) {
        status = eni_sink_file(path, write_body, &table);
    }
    eni_free(table.cells, (table.keys.count + 1) * sizeof *table.cells);
    eni_intern_free(&table.keys);
    eni_free(table.rows, table.count * sizeof *table.rows);
    return status;
}
