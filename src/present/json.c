/* Rows as JSON, each with the fields that a row has by name. Reads a result, keeps nothing; any thread. */
#include "aggregate/rows.h"
#include "base/json_write.h"

static void write_field(eni_json *json, const enigma_row *row, const enigma_row_field *field)
{
    eni_json_key(json, field->name);
    switch (field->kind) {
    case ENIGMA_FIELD_UINT:
        eni_json_uint(json, eni_row_field_uint(row, field));
        break;
    case ENIGMA_FIELD_DOUBLE:
        eni_json_double(json, eni_row_field_double(row, field));
        break;
    default:
        eni_json_text(json, eni_row_field_text(row, field));
    }
}

static void write_metrics(eni_json *json, const enigma_row *row)
{
    eni_json_key(json, "metrics");
    eni_json_begin_object(json);
    for (size_t i = 0; i < row->metric_count; i++) {
        eni_json_key(json, row->metrics[i].key);
        eni_json_double(json, row->metrics[i].value);
    }
    eni_json_end_object(json);
}

static void write_call_path(eni_json *json, const enigma_row *row, enum enigma_group group)
{
    eni_json_key(json, "call_path");
    if (group != ENIGMA_GROUP_CALL_PATH) {
        eni_json_null(json);
        return;
    }
    eni_json_begin_array(json);
    for (size_t i = 0; i < row->call_path_count; i++) {
        eni_json_text(json, row->call_path[i]);
    }
    eni_json_end_array(json);
}

static void write_row(eni_json *json, const enigma_row *row, enum enigma_group group)
{
    const enigma_row_field *field;
    eni_json_line(json);
    eni_json_begin_object(json);
    for (size_t i = 0; (field = enigma_row_field_at(i)) != NULL; i++) {
        write_field(json, row, field);
    }
    write_metrics(json, row);
    write_call_path(json, row, group);
    eni_json_end_object(json);
}

static enigma_status write_rows(const enigma_result *result, const enigma_row **rows, enigma_write_fn write, void *user)
{
    eni_sink sink;
    eni_json json;
    ENI_TRY(eni_sink_init(&sink, write, user));
    eni_json_init(&json, &sink);
    eni_json_begin_object(&json);
    eni_json_key(&json, "rows");
    eni_json_begin_array(&json);
    for (size_t i = 0; i < result->row_count; i++) {
        write_row(&json, rows[i], result->group);
    }
    eni_json_line(&json);
    eni_json_end_array(&json);
    eni_json_end_object(&json);
    eni_sink_putc(&sink, '\n');
    return eni_sink_finish(&sink);
}

enigma_status enigma_result_write_json(const enigma_result *result, const char *sort_by, enigma_write_fn write,
                                       void *user)
{
    size_t size = result->row_count * sizeof(const enigma_row *);
    const enigma_row **rows = eni_alloc(size);
    if (rows == NULL) {
        return ENI_NO_MEMORY();
    }
    enigma_status status = enigma_result_rows(result, sort_by, rows, result->row_count);
    if (status == ENIGMA_OK) {
        status = write_rows(result, rows, write, user);
    }
    eni_free(rows, size);
    return status;
}
