/* Text to a dense 32-bit id and back; ids count from 0 in order of first use. Not thread-safe: the owner locks. Text is
 * kept once, with a NUL after it, and stays where it is until the table is freed. A zeroed table is empty. */
#ifndef ENI_BASE_INTERN_H
#define ENI_BASE_INTERN_H

#include "base/arena.h"

typedef struct eni_intern {
    eni_arena arena;
    enigma_text *texts;
    size_t count, capacity;
    uint32_t *slots; /* id + 1, 0 empty; size slot_count, a power of two */
    size_t slot_count;
} eni_intern;

#define ENI_INTERN_NONE UINT32_MAX

uint32_t eni_intern_put(eni_intern *table, enigma_text text);        /* NONE: no memory */
uint32_t eni_intern_find(const eni_intern *table, enigma_text text); /* NONE: not there */
enigma_text eni_intern_text(const eni_intern *table, uint32_t id);   /* lent */
void eni_intern_free(eni_intern *table);

/* A hash map from a 64-bit key to a 32-bit value. Not thread-safe. A zeroed map is empty. */
typedef struct eni_map {
    struct {
        uint64_t key;
        uint32_t value, used;
    } * slots;
    size_t count, slot_count;
} eni_map;

uint32_t *eni_map_put(eni_map *map, uint64_t key,
                      uint32_t fresh);                          /* where its value is, fresh if new; NULL: no memory */
const uint32_t *eni_map_find(const eni_map *map, uint64_t key); /* NULL: not there */
void eni_map_free(eni_map *map);

#endif
