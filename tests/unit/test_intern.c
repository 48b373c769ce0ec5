#include "support.h"

#include "base/intern.h"
#include "base/str.h"

static enigma_text numbered(char *room, size_t size, uint32_t i)
{
    int used = snprintf(room, size, "name %u", i);
    return (enigma_text){room, (size_t)used};
}

static void ids_are_dense_and_texts_stay(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    eni_intern table = {0};
    char room[32];
    enum { COUNT = 20000 };
    assert_int_equal(eni_intern_find(&table, eni_text_of("name 0")), ENI_INTERN_NONE);
    const char *first = NULL;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(eni_intern_put(&table, numbered(room, sizeof room, i)), i);
        }
        first = first == NULL ? eni_intern_text(&table, 0).data : first;
    }
    assert_ptr_equal(eni_intern_text(&table, 0).data, first);
    for (uint32_t i = 0; i < COUNT; i++) {
        enigma_text text = eni_intern_text(&table, i);
        assert_string_equal(text.data, numbered(room, sizeof room, i).data);
        assert_int_equal(eni_intern_find(&table, text), i);
    }
    assert_int_equal(table.count, COUNT);
    assert_null(eni_intern_text(&table, COUNT).data);
    assert_null(eni_intern_text(&table, ENI_INTERN_NONE).data);
    eni_intern_free(&table);
    failing_end(&failing);
}

static void any_bytes_are_a_text(void **state)
{
    (void)state;
    eni_intern table = {0};
    const enigma_text texts[] = {{"", 0},     {"\0", 1}, {"\0\0", 2}, {"a\0b", 3},
                                 {"a\0c", 3}, {"a", 1},  {NULL, 0},   {"\xff\xfe", 2}};
    for (uint32_t i = 0; i < ENI_COUNT_OF(texts); i++) {
        assert_int_equal(eni_intern_put(&table, texts[i]), i);
    }
    for (uint32_t i = 0; i < ENI_COUNT_OF(texts); i++) {
        assert_int_equal(eni_intern_find(&table, texts[i]), i);
        assert_true(eni_text_equal(eni_intern_text(&table, i), texts[i]));
    }
    eni_intern_free(&table);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    eni_intern table = {0};
    char room[32];
    uint32_t count = 0, refused = 0;
    while (count < 500) {
        failing.left = refused % 5; /* fails at the first, second ... allocation of a put */
        uint32_t id = eni_intern_put(&table, numbered(room, sizeof room, count));
        if (id == ENI_INTERN_NONE) {
            refused++;
            assert_int_equal(table.count, count);
            assert_int_equal(eni_intern_find(&table, numbered(room, sizeof room, count)), ENI_INTERN_NONE);
        } else {
            assert_int_equal(id, count++);
        }
    }
    assert_true(refused > 0);
    failing.left = -1;
    eni_intern_free(&table);
    failing_end(&failing);
}

static void maps_keep_their_values(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    eni_map map = {0};
    assert_null(eni_map_find(&map, 0));
    enum { COUNT = 20000 };
    for (uint32_t i = 0; i < COUNT; i++) {
        *eni_map_put(&map, (uint64_t)i << 40, 1) += i; /* low bits all alike */
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(*eni_map_find(&map, (uint64_t)i << 40), i + 1);
        assert_int_equal(*eni_map_put(&map, (uint64_t)i << 40, 99), i + 1);
    }
    assert_null(eni_map_find(&map, 1));
    assert_int_equal(map.count, COUNT);
    failing.left = 0;
    uint64_t key = 3;
    while (eni_map_put(&map, key, 5) != NULL) {
        key += 2;
    }
    assert_null(eni_map_find(&map, key));
    assert_int_equal(*eni_map_find(&map, 3), 5);
    failing.left = -1;
    eni_map_free(&map);
    failing_end(&failing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_dense_and_texts_stay),
        cmocka_unit_test(any_bytes_are_a_text),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(maps_keep_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
