/* Results: made from groups and sums, then sorted, searched and freed. See rows.h. */
#include "aggregate/rows.h"

#include <stddef.h>
#include <stdlib.h>

#include "aggregate/rates.h"

/* ---- the fields ---- */

#define FIELD(member, kind)                                                                                            \
    {                                                                                                                  \
#member, ENIGMA_FIELD_##kind, offsetof(enigma_row, member)                                                     \
    }
static const enigma_row_field fields[] = {
    FIELD(name, TEXT),           FIELD(kernel_name, TEXT),  FIELD(calls, UINT),           FIELD(cpu_total_us, DOUBLE),
    FIELD(gpu_total_us, DOUBLE), FIELD(cpu_avg_us, DOUBLE), FIELD(gpu_avg_us, DOUBLE),    FIELD(min_us, DOUBLE),
    FIELD(median_us, DOUBLE),    FIELD(max_us, DOUBLE),     FIELD(self_total_us, DOUBLE), FIELD(gpu_busy_us, DOUBLE),
    FIELD(input_bytes, UINT),    FIELD(output_bytes, UINT), FIELD(gflops_per_s, DOUBLE),  FIELD(gbytes_per_s, DOUBLE),
    FIELD(rate_source, SOURCE),
};
#undef FIELD

const enigma_row_field *enigma_row_field_at(size_t index)
{
    return index < ENI_COUNT_OF(fields) ? &fields[index] : NULL;
}

enigma_status eni_row_field_find(const char *name, const enigma_row_field **out)
{
    *out = NULL;
    for (size_t i = 0; i < ENI_COUNT_OF(fields); i++) {
        if (strcmp(fields[i].name, name) == 0) {
            *out = &fields[i];
            return ENIGMA_OK;
        }
    }
    eni_str names = {NULL, 0, 0, false};
    for (size_t i = 0; i < ENI_COUNT_OF(fields); i++) {
        eni_str_printf(&names, "%s%s", i == 0 ? "" : ", ", fields[i].name);
    }
    enigma_status status =
        names.failed ? ENI_NO_MEMORY()
                     : ENI_FAIL(ENIGMA_E_INVALID, "sort_by must be one of %s, not '%.100s'", names.data, name);
    eni_str_free(&names);
    return status;
}

static const void *member(const enigma_row *row, const enigma_row_field *field)
{
    return (const char *)row + field->offset;
}

enigma_text eni_row_field_text(const enigma_row *row, const enigma_row_field *field)
{
    static const char *const sources[] = {
        [ENIGMA_RATE_NONE] = NULL, [ENIGMA_RATE_GPU] = "gpu", [ENIGMA_RATE_CPU] = "cpu"};
    if (field->kind == ENIGMA_FIELD_SOURCE) {
        return eni_text_of(sources[*(const uint32_t *)member(row, field)]);
    }
    return *(const enigma_text *)member(row, field);
}

uint64_t eni_row_field_uint(const enigma_row *row, const enigma_row_field *field)
{
    return *(const uint64_t *)member(row, field);
}

double eni_row_field_double(const enigma_row *row, const enigma_row_field *field)
{
    return *(const double *)member(row, field);
}

const enigma_metric *eni_row_metric(const enigma_row *row, const char *key)
{
    for (size_t i = 0; i < row->metric_count; i++) {
        if (strcmp(row->metrics[i].key, key) == 0) {
            return &row->metrics[i];
        }
    }
    return NULL;
}

/* ---- making ---- */

static enigma_status fill(enigma_result *result)
{
    eni_groups groups = {0}, merged = {0};
    ENI_TRY(eni_groups_find(result->profile, result->group, &result->arena, &groups));
    enigma_status status = eni_rows_sum(result->profile, &groups, &result->arena, &result->rows);
    if (status != ENIGMA_OK) {
        goto failed;
    }
    result->row_count = groups.count;
    status = eni_groups_merge(result->profile, &groups, &merged);
    if (status == ENIGMA_OK && merged.count > 0) {
        status = eni_rows_sum(result->profile, &merged, &result->arena, &result->merged);
    }
    if (status == ENIGMA_OK) {
        result->merged_count = merged.count;
    }
    eni_groups_free(&merged);
failed:
    eni_groups_free(&groups);
    return status;
}

enigma_status enigma_profile_key_averages(const enigma_profile *profile, enum enigma_group group, enigma_result **out)
{
    *out = NULL;
    if ((int)group != ENIGMA_GROUP_NAME && (int)group != ENIGMA_GROUP_CALL_PATH) {
        return ENI_FAIL(ENIGMA_E_INVALID, "group_by must be name (%d) or call_path (%d), not %d", ENIGMA_GROUP_NAME,
                        ENIGMA_GROUP_CALL_PATH, (int)group);
    }
    enigma_result *result = ENI_NEW(enigma_result);
    if (result == NULL) {
        return ENI_NO_MEMORY();
    }
    result->profile = eni_profile_retain(profile);
    result->group = group;
    enigma_status status = fill(result);
    if (status != ENIGMA_OK) {
        enigma_result_free(result);
        return status;
    }
    *out = result;
    return ENIGMA_OK;
}

void enigma_result_free(enigma_result *result)
{
    if (result == NULL) {
        return;
    }
    eni_arena_free(&result->arena);
    enigma_profile_free((enigma_profile *)(uintptr_t)result->profile);
    ENI_DELETE(result);
}

size_t enigma_result_row_count(const enigma_result *result) { return result->row_count; }

/* ---- sorting ---- */

typedef struct sort_entry {
    const enigma_row *row; /* rows lie by name, then kernel: their order is the tie-break */
    const enigma_row_field *field;
    double number;
} sort_entry;

static int by_position(const sort_entry *a, const sort_entry *b) { return (a->row > b->row) - (a->row < b->row); }

static int by_number(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    int order = (x->number < y->number) - (x->number > y->number);
    return order != 0 ? order : by_position(x, y);
}

static int by_uint(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    uint64_t p = eni_row_field_uint(x->row, x->field), q = eni_row_field_uint(y->row, y->field);
    return p != q ? (p < q) - (p > q) : by_position(x, y);
}

static int by_text(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    int order = eni_text_compare(eni_row_field_text(x->row, x->field), eni_row_field_text(y->row, y->field));
    return order != 0 ? order : by_position(x, y);
}

static void sort_entries(sort_entry *entries, size_t count, const enigma_row_field *field)
{
    bool number = field->kind == ENIGMA_FIELD_DOUBLE;
    for (size_t i = 0; number && i < count; i++) {
        entries[i].number = eni_row_field_double(entries[i].row, field);
    }
    qsort(entries, count, sizeof *entries, number ? by_number : field->kind == ENIGMA_FIELD_UINT ? by_uint : by_text);
}

enigma_status enigma_result_rows(const enigma_result *result, const char *sort_by, const enigma_row **out,
                                 size_t capacity)
{
    const enigma_row_field *field;
    ENI_TRY(eni_row_field_find(sort_by == NULL ? "cpu_total_us" : sort_by, &field));
    sort_entry *entries = eni_alloc(result->row_count * sizeof *entries);
    if (entries == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < result->row_count; i++) {
        entries[i] = (sort_entry){&result->rows[i], field, 0.0};
    }
    if (result->row_count > 0) {
        sort_entries(entries, result->row_count, field);
    }
    for (size_t i = 0; i < result->row_count && i < capacity; i++) {
        out[i] = entries[i].row;
    }
    eni_free(entries, result->row_count * sizeof *entries);
    return ENIGMA_OK;
}

/* ---- searching ---- */

/* The first row of a name among rows by name; NULL: none. */
static const enigma_row *search(const enigma_row *rows, size_t count, enigma_text name)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (eni_text_compare(rows[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && eni_text_compare(rows[low].name, name) == 0 ? &rows[low] : NULL;
}

enigma_status enigma_result_by_name(const enigma_result *result, enigma_text name, const enigma_row **out)
{
    enigma_text exact = eni_text_in(name);
    *out = search(result->merged, result->merged_count, exact);
    if (*out == NULL) {
        *out = search(result->rows, result->row_count, exact);
    }
    if (*out == NULL) {
        int size = exact.size > 200 ? 200 : (int)exact.size;
        return ENI_FAIL(ENIGMA_E_NOT_FOUND, "%.*s", size, exact.data == NULL ? "" : exact.data);
    }
    return ENIGMA_OK;
}
