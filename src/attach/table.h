/* A hash table of entries that come and go. An entry is any struct whose first member is its key, a uint64_t that is not 0. Not
 * thread-safe. A table with entry_size set and the rest zero is empty. */
#ifndef ENI_ATTACH_TABLE_H
#define ENI_ATTACH_TABLE_H

#include "base/alloc.h"

typedef struct eni_table {
    size_t entry_size;
    char *slots;
    size_t count, slot_count; /* slot_count: 0 or a power of two */
} eni_table;

/* The entry of a key, zeroed but for the key when it is new. NULL: no memory. Moves the others. */
void *eni_table_put(eni_table *table, uint64_t key);
void *eni_table_find(const eni_table *table, uint64_t key); /* NULL: not there */
/* Removes an entry, which may be one that eni_table_each gives. Moves others. */
void eni_table_remove(eni_table *table, void *entry);
/* The first entry in the slots from *at on; *at is then the slot after it. NULL: none. After a removal start over. */
void *eni_table_each(const eni_table *table, size_t *at);
void eni_table_clear(eni_table *table); /* frees all */

#endif
