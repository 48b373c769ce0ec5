/* Open addressing with linear probing; a removal moves what was pushed aside back to its place. See table.h. */
#include "attach/table.h"

#include <string.h>

static void *slot(const eni_table *table, size_t index) { return table->slots + index * table->entry_size; }

static uint64_t key_of(const eni_table *table, size_t index)
{
    uint64_t key;
    memcpy(&key, slot(table, index), sizeof key);
    return key;
}

static size_t home(const eni_table *table, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (table->slot_count - 1);
}

/* Where a key is or would be; the table is never full. */
static size_t place(const eni_table *table, uint64_t key)
{
    size_t at = home(table, key);
    for (uint64_t other; (other = key_of(table, at)) != 0 && other != key;) {
        at = (at + 1) & (table->slot_count - 1);
    }
    return at;
}

static bool grow(eni_table *table)
{
    size_t slots = table->slot_count == 0 ? 64 : table->slot_count * 2;
    eni_table bigger = {table->entry_size, eni_alloc_zero(slots * table->entry_size), table->count, slots};
    if (bigger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < table->slot_count; i++) {
        uint64_t key = key_of(table, i);
        if (key != 0) {
            memcpy(slot(&bigger, place(&bigger, key)), slot(table, i), table->entry_size);
        }
    }
    eni_free(table->slots, table->slot_count * table->entry_size);
    *table = bigger;
    return true;
}

void *eni_table_put(eni_table *table, uint64_t key)
{
    if ((table->count + 1) * 2 > table->slot_count && !grow(table)) {
        return NULL;
    }
    size_t at = place(table, key);
    char *entry = slot(table, at);
    if (key_of(table, at) == 0) {
        memset(entry, 0, table->entry_size);
        memcpy(entry, &key, sizeof key);
        table->count++;
    }
    return entry;
}

void *eni_table_find(const eni_table *table, uint64_t key)
{
    size_t at = table->slot_count == 0 ? 0 : place(table, key);
    return table->slot_count == 0 || key_of(table, at) == 0 ? NULL : slot(table, at);
}

void eni_table_remove(eni_table *table, void *entry)
{
    size_t mask = table->slot_count - 1;
    size_t hole = (size_t)((char *)entry - table->slots) / table->entry_size;
    for (size_t at = (hole + 1) & mask; key_of(table, at) != 0; at = (at + 1) & mask) {
        size_t wanted = home(table, key_of(table, at));
        if (((at - wanted) & mask) >= ((at - hole) & mask)) {
            memcpy(slot(table, hole), slot(table, at), table->entry_size);
            hole = at;
        }
    }
    memset(slot(table, hole), 0, sizeof(uint64_t));
    table->count--;
}

void *eni_table_each(const eni_table *table, size_t *at)
{
    while (*at < table->slot_count) {
        size_t index = (*at)++;
        if (key_of(table, index) != 0) {
            return slot(table, index);
        }
    }
    return NULL;
}

void eni_table_clear(eni_table *table)
{
    eni_free(table->slots, table->slot_count * table->entry_size);
    *table = (eni_table){.entry_size = table->entry_size};
}
