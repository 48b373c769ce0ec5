/* Owns the allocator of the library and counts what it has given out. Called from everywhere, on any thread; the counts are
 * relaxed atomics, since they are only compared when nothing else runs. */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>

#include <sys/mman.h>

/* Big blocks are mapped by themselves: they ask for huge pages (fewer faults while they are filled for the first time), grow without
 * being copied where the system can move pages, and go back to it at once when they are freed. */
#define HUGE_PAGE ((size_t)2 * 1024 * 1024)

static bool is_big(size_t size) { return size >= HUGE_PAGE; }

static size_t whole_pages(size_t size) { return (size + 65535) & ~(size_t)65535; /* a multiple of every page size in use */ }

static void *big_alloc(size_t size)
{
    size = whole_pages(size);
    char *block = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        return NULL;
    }
    size_t before = (size_t)(-(uintptr_t)block & (HUGE_PAGE - 1));
    if (before != 0) {
        munmap(block, before);
    }
    if (before != HUGE_PAGE) {
        munmap(block + before + size, HUGE_PAGE - before);
    }
#if defined(MADV_HUGEPAGE)
    madvise(block + before, size, MADV_HUGEPAGE);
#endif
    return block + before;
}

static void block_free(void *ptr, size_t size)
{
    if (is_big(size)) {
        munmap(ptr, whole_pages(size));
    } else {
        free(ptr);
    }
}

/* To a block of the other kind, or from one mapping to another. */
static void *block_move(void *ptr, size_t old_size, size_t new_size)
{
#if defined(MREMAP_MAYMOVE)
    if (is_big(old_size) && is_big(new_size)) {
        void *moved = mremap(ptr, whole_pages(old_size), whole_pages(new_size), MREMAP_MAYMOVE);
        return moved == MAP_FAILED ? NULL : moved;
    }
#endif
    void *block = is_big(new_size) ? big_alloc(new_size) : malloc(new_size);
    if (block != NULL) {
        memcpy(block, ptr, old_size < new_size ? old_size : new_size);
        block_free(ptr, old_size);
    }
    return block;
}

static void *default_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    if (new_size == 0) {
        if (ptr != NULL) {
            block_free(ptr, old_size);
        }
        return NULL;
    }
    if (ptr == NULL) {
        return is_big(new_size) ? big_alloc(new_size) : malloc(new_size);
    }
    return is_big(old_size) || is_big(new_size) ? block_move(ptr, old_size, new_size) : realloc(ptr, new_size);
}

static struct {
    enigma_resize_fn resize;
    void *user;
    size_t blocks; /* given out and not freed */
} allocator = {default_resize, NULL, 0};

/* Size 0 would mean "free" to the allocator, so empty blocks have one byte. */
static size_t real_size(size_t size) { return size == 0 ? 1 : size; }

void *eni_resize(void *ptr, size_t old_size, size_t new_size)
{
    if (new_size > PTRDIFF_MAX) {
        return NULL;
    }
    void *block = allocator.resize(allocator.user, ptr, ptr == NULL ? 0 : real_size(old_size), real_size(new_size));
    if (ptr == NULL && block != NULL) {
        __atomic_add_fetch(&allocator.blocks, 1, __ATOMIC_RELAXED);
    }
    return block;
}

void *eni_alloc(size_t size) { return eni_resize(NULL, 0, size); }

void *eni_alloc_zero(size_t size)
{
    void *block = eni_alloc(size);
    if (block != NULL) {
        memset(block, 0, size);
    }
    return block;
}

void eni_free(void *ptr, size_t size)
{
    if (ptr != NULL) {
        allocator.resize(allocator.user, ptr, real_size(size), 0);
        __atomic_sub_fetch(&allocator.blocks, 1, __ATOMIC_RELAXED);
    }
}

char *eni_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = eni_alloc(size);
    if (copy != NULL) {
        memcpy(copy, text, size);
    }
    return copy;
}

void eni_strfree(char *text)
{
    if (text != NULL) {
        eni_free(text, strlen(text) + 1);
    }
}

bool eni_grow(void **array, size_t *capacity, size_t count, size_t element_size)
{
    if (count < *capacity) {
        return true;
    }
    size_t fresh = *capacity < 8 ? 8 : *capacity;
    while (fresh <= count) {
        if (__builtin_mul_overflow(fresh, (size_t)2, &fresh)) {
            return false;
        }
    }
    size_t bytes;
    if (__builtin_mul_overflow(fresh, element_size, &bytes)) {
        return false;
    }
    void *block = eni_resize(*array, *capacity * element_size, bytes);
    if (block == NULL) {
        return false;
    }
    *array = block;
    *capacity = fresh;
    return true;
}

enigma_status enigma_set_allocator(enigma_resize_fn resize, void *user)
{
    eni_error_forget();
    size_t blocks = __atomic_load_n(&allocator.blocks, __ATOMIC_RELAXED);
    if (blocks != 0) {
        return ENI_FAIL(ENIGMA_E_STATE, "the allocator cannot be replaced: %zu blocks of the present one are in use",
                        blocks);
    }
    allocator.resize = resize == NULL ? default_resize : resize;
    allocator.user = resize == NULL ? NULL : user;
    return ENIGMA_OK;
}
