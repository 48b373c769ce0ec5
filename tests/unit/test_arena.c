#include "support.h"

#include "base/arena.h"

static void blocks_are_apart_and_aligned(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    eni_arena arena = {0};
    enum { COUNT = 2000 };
    unsigned char *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = eni_arena_alloc(&arena, i % 97);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        memset(blocks[i], (int)(i & 0xff), i % 97);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < i % 97; k++) {
            assert_int_equal(blocks[i][k], i & 0xff);
        }
    }
    assert_non_null(eni_arena_alloc(&arena, 1 << 20));
    eni_arena_free(&arena);
    assert_int_equal(failing.blocks, 0);
    assert_non_null(eni_arena_alloc(&arena, 1)); /* ready again */
    eni_arena_free(&arena);
    failing_end(&failing);
}

static void reset_keeps_the_largest(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    eni_arena arena = {0};
    eni_arena_reset(&arena);
    for (int i = 0; i < 100; i++) {
        assert_non_null(eni_arena_alloc(&arena, 1000));
    }
    eni_arena_reset(&arena);
    assert_int_equal(failing.blocks, 1);
    failing.left = 0;
    assert_non_null(eni_arena_alloc(&arena, 10000)); /* the largest block has room for it */
    assert_null(eni_arena_alloc(&arena, 10 << 20));
    assert_null(eni_arena_alloc(&arena, SIZE_MAX));
    assert_null(eni_arena_alloc(&arena, SIZE_MAX - 15));
    failing.left = -1;
    eni_arena_free(&arena);
    failing_end(&failing);
}

static void texts_are_copied(void **state)
{
    (void)state;
    eni_arena arena = {0};
    char source[] = "a\0b";
    enigma_text out;
    assert_true(eni_arena_text(&arena, (enigma_text){source, 3}, &out));
    source[0] = 'x';
    assert_int_equal(out.size, 3);
    assert_memory_equal(out.data, "a\0b\0", 4);
    assert_true(eni_arena_text(&arena, (enigma_text){NULL, 0}, &out));
    assert_null(out.data);
    assert_true(eni_arena_text(&arena, (enigma_text){"", 0}, &out));
    assert_non_null(out.data);
    assert_false(eni_arena_text(&arena, (enigma_text){"", SIZE_MAX}, &out));
    assert_null(out.data);
    assert_memory_equal(eni_arena_copy(&arena, "1234", 4), "1234", 4);
    assert_non_null(eni_arena_copy(&arena, NULL, 0));
    eni_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_apart_and_aligned),
        cmocka_unit_test(reset_keeps_the_largest),
        cmocka_unit_test(texts_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
