/* Bump allocation of things that are freed together. Not thread-safe. A zeroed arena is empty and ready. */
#ifndef ENI_BASE_ARENA_H
#define ENI_BASE_ARENA_H

#include "base/alloc.h"

typedef struct eni_arena_block eni_arena_block;
typedef struct eni_arena {
    eni_arena_block *blocks;
    char *next, *end;
} eni_arena;

void *eni_arena_alloc(eni_arena *arena, size_t size); /* 16-byte aligned, not zeroed; NULL: no memory */
void *eni_arena_copy(eni_arena *arena, const void *data, size_t size);
/* A copy with a NUL after it; data NULL (absent) stays absent. */
bool eni_arena_text(eni_arena *arena, enigma_text text, enigma_text *out);
void eni_arena_reset(eni_arena *arena); /* empties it, keeps its largest block */
void eni_arena_free(eni_arena *arena);  /* frees all; the arena is empty and ready again */

#endif
