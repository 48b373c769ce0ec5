#include "support.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

static uint64_t reference_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void it_is_the_monotonic_clock(void **state)
{
    (void)state;
    eni_clock_ready();
    eni_clock_discipline(true);
    /* Between two readings of the reference, up to what two readings of different counters may differ by. */
    uint64_t before = reference_ns(), now = eni_clock_now_ns(), after = reference_ns();
    assert_true(now + 100000 >= before);
    assert_true(now <= after + 100000);
}

static void it_never_goes_back(void **state)
{
    (void)state;
    uint64_t before = 0, before_ticks = 0;
    for (int i = 0; i < 20000; i++) {
        if (i % 100 == 0) {
            eni_clock_discipline(i % 200 == 0);
        }
        uint64_t ticks = eni_clock_ticks();
        uint64_t now = eni_clock_ns(ticks);
        assert_true(ticks >= before_ticks);
        assert_true(now >= before);
        before = now;
        before_ticks = ticks;
        uint64_t back = eni_clock_ticks_of(now);
        assert_true(eni_clock_ns(back) >= now);
        assert_true(back <= ticks);
    }
}

static void saved_pieces_convert_alike(void **state)
{
    (void)state;
    eni_clock_discipline(true);
    eni_clock_piece pieces[1024];
    uint32_t count = eni_clock_pieces(pieces, ENI_COUNT_OF(pieces));
    assert_true(count <= ENI_COUNT_OF(pieces));
    uint64_t ticks = eni_clock_ticks();
    assert_int_equal(eni_clock_convert(pieces, count, ticks), eni_clock_ns(ticks));
    assert_int_equal(eni_clock_pieces(NULL, 0), count);
    assert_int_equal(eni_clock_convert(NULL, 0, 123), 123);
    assert_int_equal(eni_clock_convert(pieces, count, 5 | ENI_CLOCK_SCRIPTED_BIT), 5);
    const eni_clock_piece two[] = {{100, 1000, 1.0}, {200, 1200, 2.0}};
    assert_int_equal(eni_clock_convert(two, 2, 90), 990);
    assert_int_equal(eni_clock_convert(two, 2, 199), 1099);
    assert_int_equal(eni_clock_convert(two, 2, 200), 1200);
    assert_int_equal(eni_clock_convert(two, 2, 210), 1220);
    /* A damaged file may hold any rate and any start. */
    static const double rates[] = {-1.0, 0.0, 1e300, -1e300, INFINITY, -INFINITY, NAN, 5e-324};
    static const uint64_t ends[] = {0, 1, 1000, UINT64_MAX >> 1};
    for (size_t i = 0; i < ENI_COUNT_OF(rates); i++) {
        const eni_clock_piece odd = {1000, UINT64_MAX - 5, rates[i]};
        for (size_t k = 0; k < ENI_COUNT_OF(ends); k++) {
            uint64_t ns = eni_clock_convert(&odd, 1, ends[k]);
            assert_true(ends[k] >= odd.ticks ? ns >= odd.ns : ns <= odd.ns);
        }
    }
}

static void scripted_clocks_move_when_told(void **state)
{
    (void)state;
    uint64_t real_before = eni_clock_now_ns();
    enigma_scripted_clock_advance(1); /* does nothing: the real clock runs */
    enigma_scripted_clock_begin(1000000);
    assert_true(eni_clock_is_scripted());
    assert_int_equal(enigma_now_ns(), 1000000);
    assert_int_equal(enigma_now_ns(), 1000000);
    enigma_scripted_clock_advance(7);
    uint64_t stamp = eni_clock_ticks();
    assert_int_equal(eni_clock_ns(stamp), 1000007);
    assert_int_equal(eni_clock_ticks_of(1000007), stamp);
    eni_clock_discipline(true);
    assert_int_equal(enigma_now_ns(), 1000007);

    enigma_scripted_clock_begin(5); /* nested: it never goes back */
    assert_int_equal(enigma_now_ns(), 1000007);
    enigma_scripted_clock_begin(2000000);
    assert_int_equal(enigma_now_ns(), 2000000);
    enigma_scripted_clock_end();
    enigma_scripted_clock_end();
    assert_int_equal(enigma_now_ns(), 2000000);
    enigma_scripted_clock_end();
    assert_false(eni_clock_is_scripted());
    assert_true(enigma_now_ns() >= real_before);
    assert_int_equal(eni_clock_ns(stamp), 1000007); /* stamps of both kinds may lie side by side */
    enigma_scripted_clock_end();                    /* one too many */
    assert_true(enigma_now_ns() >= real_before);
    enigma_scripted_clock_begin(42);
    assert_int_equal(enigma_now_ns(), 42);
    enigma_scripted_clock_end();
}

static void *read_and_discipline(void *unused)
{
    (void)unused;
    uint64_t before = 0;
    for (int i = 0; i < 2000; i++) {
        eni_clock_discipline(false);
        uint64_t now = eni_clock_now_ns();
        assert_true(now >= before);
        before = now;
    }
    return NULL;
}

static void any_thread_may_use_it(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_and_discipline, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

static int print_source(void)
{
    eni_clock_ready();
    uint64_t ticks = eni_clock_ticks();
    printf("%s", eni_clock_ns(ticks) == ticks && eni_clock_ticks_of(ticks) == ticks && eni_clock_pieces(NULL, 0) == 0
                     ? "monotonic"
                     : "counter");
    return 0;
}

static void the_setting_chooses(void **state)
{
    (void)state;
    child_result *child = malloc(sizeof *child);
    run_self("source", "ENIGMA_CLOCK", "monotonic", child);
    assert_int_equal(child->exit_code, 0);
    assert_string_equal(child->out, "monotonic");
    run_self("source", "ENIGMA_CLOCK", "", child);
    char usual[32];
    assert_true(strlen(child->out) < sizeof usual);
    memcpy(usual, child->out, sizeof usual);
    run_self("source", "ENIGMA_CLOCK", "sundial", child);
    assert_string_equal(child->out, usual);
    free(child);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "source") == 0) {
        return print_source();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_monotonic_clock),  cmocka_unit_test(it_never_goes_back),
        cmocka_unit_test(saved_pieces_convert_alike), cmocka_unit_test(scripted_clocks_move_when_told),
        cmocka_unit_test(any_thread_may_use_it),      cmocka_unit_test(the_setting_chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
