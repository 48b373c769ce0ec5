/* Hash tables with open addressing and linear probing, at most two thirds full: text to a dense id, and number to number.
 * Called by whoever owns the table, under the owner's lock. */
#include "base/intern.h"

#include <stdint.h>

#include "base/str.h"

#define FIRST_SLOTS 16

static bool needs_room(size_t count, size_t slot_count) { return count + 1 > slot_count / 3 * 2; }

static size_t next_slot_count(size_t slot_count, size_t slot_bytes)
{
    size_t fresh = slot_count == 0 ? FIRST_SLOTS : slot_count * 2;
    return fresh > SIZE_MAX / 4 / slot_bytes ? 0 : fresh;
}

/* The slot of a text: its own, or the empty one where it belongs. */
static size_t text_slot(const eni_intern *table, const uint32_t *slots, size_t slot_count, enigma_text text)
{
    size_t at = (size_t)eni_text_hash(text) & (slot_count - 1);
    while (slots[at] != 0 && !eni_text_equal(table->texts[slots[at] - 1], text)) {
        at = (at + 1) & (slot_count - 1);
    }
    return at;
}

static bool grow_texts(eni_intern *table)
{
    size_t fresh = next_slot_count(table->slot_count, sizeof(uint32_t));
    uint32_t *slots = fresh == 0 ? NULL : eni_alloc_zero(fresh * sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t id = 0; id < table->count; id++) {
        slots[text_slot(table, slots, fresh, table->texts[id])] = (uint32_t)id + 1;
    }
    eni_free(table->slots, table->slot_count * sizeof *slots);
    table->slots = slots;
    table->slot_count = fresh;
    return true;
}

uint32_t eni_intern_find(const eni_intern *table, enigma_text text)
{
    if (table->slot_count == 0) {
        return ENI_INTERN_NONE;
    }
    uint32_t found = table->slots[text_slot(table, table->slots, table->slot_count, text)];
    return found == 0 ? ENI_INTERN_NONE : found - 1;
}

uint32_t eni_intern_put(eni_intern *table, enigma_text text)
{
    uint32_t found = eni_intern_find(table, text);
    if (found != ENI_INTERN_NONE) {
        return found;
    }
    if (table->count >= UINT32_MAX - 1) {
        return ENI_INTERN_NONE;
    }
    if (needs_room(table->count, table->slot_count) && !grow_texts(table)) {
        return ENI_INTERN_NONE;
    }
    if (!eni_grow((void **)&table->texts, &table->capacity, table->count, sizeof *table->texts)) {
        return ENI_INTERN_NONE;
    }
    enigma_text copy;
    if (!eni_arena_text(&table->arena, text, &copy)) {
        return ENI_INTERN_NONE;
    }
    uint32_t id = (uint32_t)table->count++;
    table->texts[id] = copy;
    table->slots[text_slot(table, table->slots, table->slot_count, copy)] = id + 1;
    return id;
}

enigma_text eni_intern_text(const eni_intern *table, uint32_t id)
{
    return id < table->count ? table->texts[id] : (enigma_text){NULL, 0};
}

void eni_intern_free(eni_intern *table)
{
    eni_arena_free(&table->arena);
    eni_free(table->texts, table->capacity * sizeof *table->texts);
    eni_free(table->slots, table->slot_count * sizeof *table->slots);
    *table = (eni_intern){0};
}

/* A finalizer that spreads neighbouring keys over all bits. */
static size_t key_hash(uint64_t key)
{
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    return (size_t)key;
}

static size_t key_slot(const eni_map *map, uint64_t key)
{
    size_t at = key_hash(key) & (map->slot_count - 1);
    while (map->slots[at].used && map->slots[at].key != key) {
        at = (at + 1) & (map->slot_count - 1);
    }
    return at;
}

static bool grow_map(eni_map *map)
{
    eni_map fresh = {NULL, map->count, next_slot_count(map->slot_count, sizeof *map->slots)};
    fresh.slots = fresh.slot_count == 0 ? NULL : eni_alloc_zero(fresh.slot_count * sizeof *fresh.slots);
    if (fresh.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < map->slot_count; i++) {
        if (map->slots[i].used) {
            fresh.slots[key_slot(&fresh, map->slots[i].key)] = map->slots[i];
        }
    }
    eni_map_free(map);
    *map = fresh;
    return true;
}

uint32_t *eni_map_put(eni_map *map, uint64_t key, uint32_t fresh)
{
    if (map->slot_count != 0) {
        size_t at = key_slot(map, key);
        if (map->slots[at].used) {
            return &map->slots[at].value;
        }
    }
    if (needs_room(map->count, map->slot_count) && !grow_map(map)) {
        return NULL;
    }
    size_t at = key_slot(map, key);
    map->slots[at].key = key;
    map->slots[at].value = fresh;
    map->slots[at].used = 1;
    map->count++;
    return &map->slots[at].value;
}

const uint32_t *eni_map_find(const eni_map *map, uint64_t key)
{
    if (map->slot_count == 0) {
        return NULL;
    }
    size_t at = key_slot(map, key);
    return map->slots[at].used ? &map->slots[at].value : NULL;
}

void eni_map_free(eni_map *map)
{
    eni_free(map->slots, map->slot_count * sizeof *map->slots);
    *map = (eni_map){0};
}
