/* Aggregated rows: enigma_profile_key_averages and what reads its result. A result is immutable once made, so any thread may
 * read it. present/ writes it as a table and as CSV. */
#ifndef ENI_AGGREGATE_ROWS_H
#define ENI_AGGREGATE_ROWS_H

#include "aggregate/groups.h"

struct enigma_result {
    const enigma_profile *profile;
    enum enigma_group group;
    eni_arena arena;  /* texts, paths, metrics and the rows */
    enigma_row *rows; /* by name, then kernel, then first appearance */
    size_t row_count;
    enigma_row *merged; /* one for each name that several rows have, by name */
    size_t merged_count;
};

/* Sums the events of each group into a row, in the groups' order. Rows and metrics go to arena. (sums.c) */
enigma_status eni_rows_sum(const enigma_profile *profile, const eni_groups *groups, eni_arena *arena, enigma_row **out);

/* The field of a name; ENIGMA_E_INVALID lists the names there are. */
enigma_status eni_row_field_find(const char *name, const enigma_row_field **out);
/* The text behind a TEXT or SOURCE field: "gpu", "cpu" or absent for SOURCE. */
enigma_text eni_row_field_text(const enigma_row *row, const enigma_row_field *field);
uint64_t eni_row_field_uint(const enigma_row *row, const enigma_row_field *field);
double eni_row_field_double(const enigma_row *row, const enigma_row_field *field);

/* The total of a metric in a row, NULL: it has none of that key. */
const enigma_metric *eni_row_metric(const enigma_row *row, const char *key);

#endif
