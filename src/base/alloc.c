/* Owns the allocator of the library and counts what it has given out. Called from everywhere, on any thread; the counts are
 * relaxed atomics, since they are only compared when nothing else runs. */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#define HUGE_PAGE ((size_t)2 * 1024 * 1024)

/* Big blocks ask for huge pages: fewer faults while they are filled for the first time. */
static void *big_alloc(size_t size)
{
    void *block = NULL;
    if (posix_memalign(&block, HUGE_PAGE, size) != 0) {
        return NULL;
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(block, size, MADV_HUGEPAGE);
#endif
    return block;
}

static void *default_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return ptr == NULL && new_size >= HUGE_PAGE ? big_alloc(new_size) : realloc(ptr, new_size);
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
