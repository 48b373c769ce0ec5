/* Sums of metrics. See metrics.h. */
#include "aggregate/metrics.h"

#include "base/str.h"

#define NONE UINT32_MAX

enigma_status eni_metrics_init(eni_metric_table *table, size_t groups)
{
    *table = (eni_metric_table){.rate_keys = {NONE, NONE}};
    table->chains = eni_alloc(groups * sizeof *table->chains);
    if (table->chains == NULL && groups != 0) {
        return ENI_NO_MEMORY();
    }
    table->groups = groups;
    for (size_t i = 0; i < groups; i++) {
        table->chains[i] = (struct eni_metric_chain){NONE, NONE, 0, NONE};
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
    uint32_t drives = 0;
    for (uint32_t rate = 0; rate < ENI_RATE_COUNT; rate++) {
        drives |= (uint32_t)(key_id == table->rate_keys[rate]) << rate;
    }
    table->totals[slot] = (eni_metric_total){key, key_id, NONE, 0, drives, {0.0, 0.0}};
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

static enigma_text key_of(const enigma_profile *profile, uint32_t name)
{
    enigma_text key;
    return eni_profile_name(profile, name, &key) ? key : eni_text_of(""); /* a damaged file may have no name there */
}

/* A key that was not met lately: by its text, since equal texts may lie in several places of a damaged file. */
static enigma_status look_up(eni_metric_table *table, const enigma_profile *profile, uint32_t name, uint32_t *out)
{
    enigma_text key = key_of(profile, name);
    ENI_TRY(eni_ids_get(&table->keys, key, out));
    enum eni_rate rate = eni_rate_of(key);
    if (rate != ENI_RATE_COUNT) {
        table->rate_keys[rate] = *out;
    }
    if (name != 0) {
        table->recent[name % ENI_METRIC_RECENT] = (struct eni_metric_recent){name, *out};
    }
    return ENIGMA_OK;
}

/* The total of a key that is not the one expected; made when it is the first. Its text is the profile's, which outlives the table. */
static enigma_status find_total(eni_metric_table *table, const enigma_profile *profile, uint32_t group, uint32_t name,
                                uint32_t key_id, uint32_t *out)
{
    uint32_t *slot = eni_map_put(&table->slots, (uint64_t)group << 32 | key_id, NONE);
    if (slot == NULL) {
        return ENI_NO_MEMORY();
    }
    if (*slot == NONE) {
        enigma_text key = key_of(profile, name);
        ENI_TRY(append(table, group, key, key_id));
        *slot = (uint32_t)(table->count - 1);
    }
    *out = *slot;
    return ENIGMA_OK;
}

/* The total of a metric that is not the one expected. */
static enigma_status look_for(eni_metric_table *table, const enigma_profile *profile, uint32_t group, uint32_t name,
                              uint32_t *slot)
{
    const struct eni_metric_recent *recent = &table->recent[name % ENI_METRIC_RECENT];
    uint32_t key_id = recent->key_id;
    if (recent->name != name || name == 0) {
        ENI_TRY(look_up(table, profile, name, &key_id));
    }
    if (*slot == NONE || table->totals[*slot].key_id != key_id) {
        ENI_TRY(find_total(table, profile, group, name, key_id, slot));
    }
    table->totals[*slot].name = name;
    return ENIGMA_OK;
}

/* Events of a group mostly carry what the one before carried, so the next total of the chain is most often the right one. */
static enigma_status add_run(eni_metric_table *table, const enigma_profile *profile, uint32_t group,
                             const eni_metric_entry *entries, size_t count, uint32_t *carried)
{
    struct eni_metric_chain *chain = &table->chains[group];
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = chain->next, name = entries[i].key;
        if (ENI_UNLIKELY(slot == NONE || table->totals[slot].name != name || name == 0)) {
            ENI_TRY(look_for(table, profile, group, name, &slot));
        }
        eni_metric_total *total = &table->totals[slot];
        eni_sum_add(&total->sum, entries[i].value);
        *carried |= total->drives;
        chain->next = total->next == NONE ? chain->first : total->next;
    }
    return ENIGMA_OK;
}

enigma_status eni_metrics_add(eni_metric_table *table, const enigma_profile *profile, const eni_event *event,
                              uint32_t group, uint32_t *carried)
{
    eni_cursor cursor = {0};
    size_t count;
    *carried = 0;
    do {
        const eni_metric_entry *entries = eni_profile_next_metrics(profile, event, &cursor, &count);
        ENI_TRY(add_run(table, profile, group, entries, count, carried));
    } while (cursor.left > 0);
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

const eni_metric_total *eni_metrics_rate(const eni_metric_table *table, uint32_t group, enum eni_rate rate)
{
    const eni_metric_total *total = eni_metrics_first(table, group);
    while (total != NULL && total->key_id != table->rate_keys[rate]) {
        total = eni_metrics_next(table, total);
    }
    return total;
}

void eni_metrics_free(eni_metric_table *table)
{
    eni_ids_free(&table->keys);
    eni_map_free(&table->slots);
    eni_free(table->totals, table->capacity * sizeof *table->totals);
    eni_free(table->chains, table->groups * sizeof *table->chains);
    *table = (eni_metric_table){0};
}
