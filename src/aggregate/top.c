/* The first rows of a result in some order, copied into a result of their own. Any thread. */
#include <stdlib.h>

#include "aggregate/rows.h"

static bool copy_metrics(eni_arena *arena, enigma_row *row)
{
    enigma_metric *metrics = eni_arena_copy(arena, row->metrics, row->metric_count * sizeof *metrics);
    for (size_t i = 0; metrics != NULL && i < row->metric_count; i++) {
        enigma_text key;
        if (!eni_arena_text(arena, eni_text_of(metrics[i].key), &key)) {
            return false;
        }
        metrics[i].key = key.data;
    }
    row->metrics = metrics;
    return metrics != NULL;
}

static bool copy_call_path(eni_arena *arena, enigma_row *row)
{
    enigma_text *names = eni_arena_copy(arena, row->call_path, row->call_path_count * sizeof *names);
    for (size_t i = 0; names != NULL && i < row->call_path_count; i++) {
        if (!eni_arena_text(arena, names[i], &names[i])) {
            return false;
        }
    }
    row->call_path = names;
    return names != NULL;
}

/* Makes a row refer to copies of what it refers to. */
static bool row_own(eni_arena *arena, enigma_row *row)
{
    return eni_arena_text(arena, row->name, &row->name) && eni_arena_text(arena, row->kernel_name, &row->kernel_name) &&
           (row->metric_count == 0 || copy_metrics(arena, row)) &&
           (row->call_path_count == 0 || copy_call_path(arena, row));
}

static bool rows_copy(enigma_result *result, const enigma_row *const *rows, size_t count, enigma_row **out)
{
    *out = eni_arena_alloc(&result->arena, count * sizeof **out);
    if (*out == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        (*out)[i] = *rows[i];
        if (!row_own(&result->arena, &(*out)[i])) {
            return false;
        }
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const enigma_row *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

/* room has place for as many pointers as from has rows of either kind. */
static bool fill(enigma_result *result, const enigma_result *from, const enigma_row **room, size_t count)
{
    if (count > 0) {
        qsort(room, count, sizeof *room, by_place); /* back into the order in which results keep them */
    }
    if (!rows_copy(result, room, count, &result->rows)) {
        return false;
    }
    for (size_t i = 0; i < from->merged_count; i++) {
        room[i] = &from->merged[i]; /* the row of a name speaks for all rows of that name, kept or not */
    }
    result->row_count = count;
    result->merged_count = from->merged_count;
    return rows_copy(result, room, from->merged_count, &result->merged);
}

static enigma_status result_copy(const enigma_result *from, const enigma_row **room, size_t count, enigma_result **out)
{
    enigma_result *result = ENI_NEW(enigma_result);
    if (result == NULL) {
        return ENI_NO_MEMORY();
    }
    result->profile = eni_profile_retain(from->profile);
    result->group = from->group;
    if (!fill(result, from, room, count)) {
        enigma_result_free(result);
        return ENI_NO_MEMORY();
    }
    *out = result;
    return ENIGMA_OK;
}

enigma_status enigma_result_top(const enigma_result *result, const char *sort_by, size_t limit, enigma_result **out)
{
    size_t size = (result->row_count + result->merged_count) * sizeof(const enigma_row *);
    const enigma_row **room = eni_alloc(size);
    *out = NULL;
    if (room == NULL) {
        return ENI_NO_MEMORY();
    }
    enigma_status status = enigma_result_rows(result, sort_by, room, limit);
    if (status == ENIGMA_OK) {
        status = result_copy(result, room, limit < result->row_count ? limit : result->row_count, out);
    }
    eni_free(room, size);
    return status;
}
