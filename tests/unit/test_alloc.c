#include "support.h"

#include "base/alloc.h"

static void sizes_that_overflow_give_nothing(void **state)
{
    (void)state;
    assert_null(eni_alloc(SIZE_MAX));
    assert_null(eni_alloc_zero((size_t)PTRDIFF_MAX + 1));
    char *block = eni_alloc(8);
    memcpy(block, "1234567", 8);
    assert_null(eni_resize(block, 8, SIZE_MAX));
    assert_string_equal(block, "1234567");
    eni_free(block, 8);
    eni_free(NULL, 8);

    void *array = NULL;
    size_t capacity = 0;
    assert_false(eni_grow(&array, &capacity, SIZE_MAX / 4, 16));
    assert_false(eni_grow(&array, &capacity, SIZE_MAX - 1, 1));
    assert_null(array);
    assert_int_equal(capacity, 0);
}

static void empty_blocks_are_blocks(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    void *empty = eni_alloc(0);
    assert_non_null(empty);
    empty = eni_resize(empty, 0, 100);
    assert_non_null(empty);
    empty = eni_resize(empty, 100, 0);
    assert_non_null(empty);
    eni_free(empty, 0);
    failing_end(&failing);
}

static void grow_keeps_what_is_there(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    uint32_t *items = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(eni_grow((void **)&items, &capacity, i, sizeof *items));
        assert_true(capacity > i);
        items[i] = i * 3;
    }
    failing.left = 0;
    uint32_t *before = items;
    size_t count = capacity;
    assert_false(eni_grow((void **)&items, &capacity, count, sizeof *items));
    assert_ptr_equal(items, before);
    assert_int_equal(capacity, count);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(items[i], i * 3);
    }
    eni_free(items, capacity * sizeof *items);
    failing_end(&failing);
}

static void allocator_is_refused_while_blocks_are_out(void **state)
{
    (void)state;
    char *text = eni_strdup("held");
    failing_allocator failing = {.left = -1};
    assert_int_equal(enigma_set_allocator(failing_resize, &failing), ENIGMA_E_STATE);
    assert_non_null(strstr(enigma_error_message(), "1 block"));
    assert_int_equal(failing.blocks, 0);
    eni_strfree(text);
    failing_begin(&failing);
    failing_end(&failing);
}

static void zeroed_and_copied(void **state)
{
    (void)state;
    unsigned char *zero = eni_alloc_zero(64), none[64] = {0};
    assert_memory_equal(zero, none, 64);
    eni_free(zero, 64);
    char *copy = eni_strdup("");
    assert_string_equal(copy, "");
    eni_strfree(copy);
    eni_strfree(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_overflow_give_nothing),
        cmocka_unit_test(empty_blocks_are_blocks),
        cmocka_unit_test(grow_keeps_what_is_there),
        cmocka_unit_test(allocator_is_refused_while_blocks_are_out),
        cmocka_unit_test(zeroed_and_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
