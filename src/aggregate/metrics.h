/* Sums of metrics by group (a row, a tree node) and key, in the order in which the keys of a group first appear. Used by
 * rows and tree while they build, on one thread; the keys are lent by the profile. A zeroed table becomes usable by init. */
#ifndef ENI_AGGREGATE_METRICS_H
#define ENI_AGGREGATE_METRICS_H

#include "aggregate/ids.h"
#include "aggregate/rates.h"
#include "aggregate/stats.h"
#include "store/profile.h"

typedef struct eni_metric_total {
    enigma_text key;
    uint32_t key_id; /* equal for equal keys */
    uint32_t next;   /* the next of the same group, UINT32_MAX: none */
    uint32_t name;   /* the number under which it was found last, 0: none */
    uint32_t drives; /* a bit for the rate that it drives */
    eni_sum sum;
} eni_metric_total;

#define ENI_METRIC_RECENT 16 /* a power of two */

typedef struct eni_metric_table {
    eni_ids keys;
    eni_map slots; /* group << 32 | key to index in totals */
    eni_metric_total *totals;
    size_t count, capacity;
    struct eni_metric_chain {
        uint32_t first, last, count;
        uint32_t next; /* where the next metric is expected: events of a group carry the same keys in the same order */
    } * chains;        /* one a group */
    size_t groups;
    struct eni_metric_recent {
        uint32_t name, key_id; /* name number (0: empty) to key */
    } recent[ENI_METRIC_RECENT];
    uint32_t rate_keys[ENI_RATE_COUNT]; /* the keys that drive rates, UINT32_MAX: not seen */
} eni_metric_table;

enigma_status eni_metrics_init(eni_metric_table *table, size_t groups);
/* Adds the metrics of an event to a group; *carried receives a bit for each rate that one of them drives. */
enigma_status eni_metrics_add(eni_metric_table *table, const enigma_profile *profile, const eni_event *event,
                              uint32_t group, uint32_t *carried);
/* The first total of a group; NULL: it has none. Follow with eni_metrics_next. */
const eni_metric_total *eni_metrics_first(const eni_metric_table *table, uint32_t group);
const eni_metric_total *eni_metrics_next(const eni_metric_table *table, const eni_metric_total *total);
size_t eni_metrics_count(const eni_metric_table *table, uint32_t group);
/* The total of a group that drives a rate; NULL: it has none. */
const eni_metric_total *eni_metrics_rate(const eni_metric_table *table, uint32_t group, enum eni_rate rate);
void eni_metrics_free(eni_metric_table *table);

#endif
