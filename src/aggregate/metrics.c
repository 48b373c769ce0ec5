/* Sums of metrics. See metrics.h. */
#include "aggregate/metrics.h"

#include "base/str.h"

#define NONE UINT32_MAX

enigma_status eni_metrics_init(eni_metric_table *table, size_t groups)
{
    *table = (eni_metric_table){0};
    table->chains = eni_alloc(groups * sizeof *table->chains);
    if (table->chains == NULL && groups != 0) {
        return ENI_NO_MEMORY();
    }
    table->groups = groups;
    for (size_t i = 0; i < groups; i++) {
        table->chains[i] = (struct eni_metric_chain){NONE, NONE, 0};
    }
    return ENIGMA_OK;
}

/* Appends an empty total to a group's chain. */
static enigma_status append(eni_metric_table *table, uint32_t group, enigma_text key, uint32_t key_id)
{
    if (table->count == NONE ||
        !eni_grow((void **)&table->totals, &table->capacity, table->count, sizeof *table->totals)) {
        return ENI_NO_MEMORY();
    }
    uint32_t slot = (uint32_t)table->count++;
    table->totals[slot] = (eni_metric_total){key, key_id, NONE, {0.0, 0.0}};
    struct eni_metric_chain *chain = &table->chains[group];
    if (chain->last == NONE) {
        chain->first = slot;
    } else {
        table->totals[chain->last].next = slot;
    }
    chain->last = slot;
    chain->count++;
    return ENIGMA_OK;
}

enigma_status eni_metrics_add(eni_metric_table *table, uint32_t group, enigma_text key, double value)
{
    uint32_t key_id;
    key = key.data == NULL ? eni_text_of("") : key; /* a damaged file may have no name there */
    ENI_TRY(eni_ids_get(&table->keys, key, &key_id));
    uint32_t *slot = eni_map_put(&table->slots, (uint64_t)group << 32 | key_id, NONE);
    if (slot == NULL) {
        return ENI_NO_MEMORY();
    }
    if (*slot == NONE) {
        ENI_TRY(append(table, group, key, key_id));
        *slot = (uint32_t)(table->count - 1);
    }
    eni_sum_add(&table->totals[*slot].sum, value);
    return ENIGMA_OK;
}

const eni_metric_total *eni_metrics_first(const eni_metric_table *table, uint32_t group)
{
    uint32_t slot = table->chains[group].first;
    return slot == NONE ? NULL : &table->totals[slot];
}

const eni_metric_total *eni_metrics_next(const eni_metric_table *table, const eni_metric_total *total)
{
    return total->next == NONE ? NULL : &table->totals[total->next];
}

size_t eni_metrics_count(const eni_metric_table *table, uint32_t group) { return table->chains[group].count; }

void eni_metrics_free(eni_metric_table *table)
{
    eni_ids_free(&table->keys);
    eni_map_free(&table->slots);
    eni_free(table->totals, table->capacity * sizeof *table->totals);
    eni_free(table->chains, table->groups * sizeof *table->chains);
    *table = (eni_metric_table){0};
}
