/* backends/registry.c: the table's own promises, and the list of device facts. */
#include "support.h"

#include "backends/backend.h"
#include "base/str.h"

static void rows_are_whole_or_not_built(void **state)
{
    (void)state;
    const eni_backend *row;
    for (size_t i = 0; (row = eni_backend_at(i)) != NULL; i++) {
        bool built = row->load != NULL;
        const void *const needed[] = {(void *)row->device_count,
                                      (void *)row->open,
                                      (void *)row->close,
                                      (void *)row->buffer_create,
                                      (void *)row->buffer_write,
                                      (void *)row->buffer_read,
                                      (void *)row->buffer_free,
                                      (void *)row->program_build,
                                      (void *)row->program_free,
                                      (void *)row->launch,
                                      (void *)row->finish,
                                      (void *)row->kernel_create,
                                      (void *)row->kernel_free,
                                      (void *)row->poll,
                                      (void *)row->wait,
                                      (void *)row->stamps,
                                      (void *)row->release,
                                      (void *)row->clock_pair,
                                      (void *)row->kernel_occupancy,
                                      (void *)row->kernel_bind_buffer,
                                      (void *)row->kernel_bind_scalar};
        assert_true(row->automatic);
        assert_non_null(row->needs);
        for (size_t k = 0; k < ENI_COUNT_OF(needed); k++) {
            assert_int_equal(needed[k] != NULL, built);
        }
        assert_int_equal(row->capture_begin != NULL, row->capture_end != NULL);
        assert_string_equal(enigma_backend_at(i)->name, row->name);
        assert_int_equal(enigma_backend_at(i)->built, built);
    }
    assert_false(eni_backend_scripted.automatic);
}

static void facts_are_copied(void **state)
{
    (void)state;
    char text[] = "abc";
    const uint64_t three[3] = {1, 2, UINT64_MAX};
    eni_facts facts = {0};
    eni_facts_text(&facts, "text", (enigma_text){text, 3});
    text[0] = 'x';
    eni_facts_uint(&facts, "big", UINT64_MAX);
    eni_facts_double(&facts, "number", 2.5);
    eni_facts_bool(&facts, "truth", true);
    eni_facts_uint3(&facts, "sizes", three);
    assert_false(facts.failed);
    assert_int_equal(facts.count, 5);
    assert_string_equal(facts.fields[0].value.as.text.data, "abc");
    assert_int_equal(facts.fields[1].value.as.integer, INT64_MAX); /* no wrap */
    assert_int_equal(facts.fields[3].value.type, ENIGMA_BOOL);
    assert_int_equal(facts.fields[4].value.as.items.count, 3);
    assert_int_equal(facts.fields[4].value.as.items.data[2].value.as.integer, INT64_MAX);
    eni_facts_free(&facts);
    assert_int_equal(facts.count, 0);
}

static void facts_note_that_memory_ran_out(void **state)
{
    (void)state;
    failing_allocator memory;
    failing_begin(&memory);
    for (long allowed = 0; allowed < 3; allowed++) {
        eni_facts facts = {0};
        const uint64_t three[3] = {1, 2, 3};
        memory.left = allowed;
        eni_facts_text(&facts, "text", eni_text_of("abc"));
        eni_facts_uint3(&facts, "sizes", three);
        memory.left = -1;
        assert_int_equal(facts.failed, allowed < 2);
        eni_facts_free(&facts);
    }
    failing_end(&memory);
}

static void ticks_are_counted_modulo_the_width(void **state)
{
    (void)state;
    uint64_t ticks;
    assert_true(eni_ticks_between(0xFFFFFFF0, 0x10, 32, &ticks));
    assert_int_equal(ticks, 0x20);
    assert_false(eni_ticks_between(0x10, 0xF, 32, &ticks));
    assert_int_equal(ticks, 0);
    assert_true(eni_ticks_between(5, 5, 64, &ticks));
    assert_int_equal(ticks, 0);
    assert_false(eni_ticks_between(5, 4, 64, &ticks));
    assert_true(eni_ticks_between(UINT64_MAX, 1, 64, &ticks));
    assert_int_equal(ticks, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole_or_not_built),
        cmocka_unit_test(facts_are_copied),
        cmocka_unit_test(facts_note_that_memory_ran_out),
        cmocka_unit_test(ticks_are_counted_modulo_the_width),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
