/* Bump allocation. Blocks form a list, newest first; all but the newest are full. Called by whoever owns the arena, on one
 * thread at a time. */
#include "base/arena.h"

#include <stdint.h>

#define ALIGNMENT 16
#define FIRST_BLOCK_BYTES 1024
#define LARGEST_BLOCK_BYTES (256 * 1024)

struct eni_arena_block {
    eni_arena_block *older;
    size_t size; /* with this header */
};

#define HEADER_BYTES ((sizeof(eni_arena_block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

static void use_block(eni_arena *arena, eni_arena_block *block)
{
    arena->blocks = block;
    arena->next = (char *)block + HEADER_BYTES;
    arena->end = (char *)block + block->size;
}

/* A newest block with room for size bytes. Blocks double, so that their number stays logarithmic. */
static bool add_block(eni_arena *arena, size_t size)
{
    size_t bytes = arena->blocks == NULL ? FIRST_BLOCK_BYTES : arena->blocks->size * 2;
    if (bytes > LARGEST_BLOCK_BYTES) {
        bytes = LARGEST_BLOCK_BYTES;
    }
    if (bytes < size + HEADER_BYTES) {
        bytes = size + HEADER_BYTES;
    }
    eni_arena_block *block = eni_alloc(bytes);
    if (block == NULL) {
        return false;
    }
    block->older = arena->blocks;
    block->size = bytes;
    use_block(arena, block);
    return true;
}

void *eni_arena_alloc(eni_arena *arena, size_t size)
{
    if (size > PTRDIFF_MAX / 2) {
        return NULL;
    }
    size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (arena->blocks == NULL || (size_t)(arena->end - arena->next) < rounded) {
        if (!add_block(arena, rounded)) {
            return NULL;
        }
    }
    void *out = arena->next;
    arena->next += rounded;
    return out;
}

void *eni_arena_copy(eni_arena *arena, const void *data, size_t size)
{
    void *out = eni_arena_alloc(arena, size);
    if (out != NULL && size != 0) {
        memcpy(out, data, size);
    }
    return out;
}

bool eni_arena_text(eni_arena *arena, enigma_text text, enigma_text *out)
{
    *out = (enigma_text){NULL, 0};
    if (text.data == NULL) {
        return true;
    }
    if (text.size == SIZE_MAX) {
        return false;
    }
    char *copy = eni_arena_alloc(arena, text.size + 1);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    *out = (enigma_text){copy, text.size};
    return true;
}

/* Frees all blocks but kept. */
static void free_blocks(eni_arena *arena, const eni_arena_block *kept)
{
    eni_arena_block *block = arena->blocks;
    while (block != NULL) {
        eni_arena_block *older = block->older;
        if (block != kept) {
            eni_free(block, block->size);
        }
        block = older;
    }
    *arena = (eni_arena){0};
}

void eni_arena_reset(eni_arena *arena)
{
    eni_arena_block *largest = arena->blocks;
    for (eni_arena_block *block = largest; block != NULL; block = block->older) {
        if (block->size > largest->size) {
            largest = block;
        }
    }
    free_blocks(arena, largest);
    if (largest != NULL) {
        largest->older = NULL;
        use_block(arena, largest);
    }
}

void eni_arena_free(eni_arena *arena) { free_blocks(arena, NULL); }
