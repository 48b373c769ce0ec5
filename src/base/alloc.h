/* Every allocation of the library goes through here, to the allocator that enigma_set_allocator gave. All return NULL
 * when memory ran out; sizes are checked for overflow. The old size goes with every call, as the public
 * enigma_resize_fn wants it. */
#ifndef ENI_BASE_ALLOC_H
#define ENI_BASE_ALLOC_H

#include <stdbool.h>

#include "base/error.h"

void *eni_alloc(size_t size); /* not zeroed */
void *eni_alloc_zero(size_t size);
void *eni_resize(void *ptr, size_t old_size, size_t new_size); /* old block stays on failure */
void eni_free(void *ptr, size_t size);                         /* NULL does nothing */
char *eni_strdup(const char *text);                            /* free with eni_strfree */
void eni_strfree(char *text);

/* Makes room for at least count + 1 elements in a growing array: *capacity doubles, *array may move. False: no memory,
 * nothing changed. Use: if (!eni_grow((void **)&items, &capacity, count, sizeof *items)) ... */
bool eni_grow(void **array, size_t *capacity, size_t count, size_t element_size);

#define ENI_NEW(type) ((type *)eni_alloc_zero(sizeof(type)))
#define ENI_DELETE(ptr) eni_free((ptr), sizeof *(ptr))

#endif
