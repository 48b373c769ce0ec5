/* The clock's map against a counter that drifts as the test says. Nothing here reads a clock. */
#include "support.h"

#include <math.h>
#include <pthread.h>

#include "base/clock_map.h"
#include "base/error.h"

/* A counter of rate ticks a ns that drifts against the reference; ns is the reference's time. */
typedef struct fake_clock {
    double ticks, rate;
    uint64_t ns;
} fake_clock;

static eni_clock_reading read_fake(const fake_clock *fake)
{
    return (eni_clock_reading){(uint64_t)fake->ticks, fake->ns};
}

static void pass(fake_clock *fake, uint64_t ns, double drift_ppm)
{
    fake->ns += ns;
    fake->ticks += (double)ns * fake->rate * (1 + drift_ppm * 1e-6);
}

static uint64_t random_below(uint64_t limit)
{
    static uint64_t bits = 7;
    bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (bits >> 11) % limit;
}

static eni_clock_map *start(fake_clock *fake)
{
    eni_clock_map *map = calloc(1, sizeof *map);
    eni_clock_reading first = read_fake(fake);
    pass(fake, 2000000, 0);
    assert_true(eni_clock_map_start(map, first, read_fake(fake)));
    return map;
}

static void finish(eni_clock_map *map)
{
    eni_clock_map_free(map);
    free(map);
}

static double error_ns(const eni_clock_map *map, const fake_clock *fake)
{
    return (double)eni_clock_map_ns(map, (uint64_t)fake->ticks) - (double)fake->ns;
}

static void one_piece_is_a_line(void **state)
{
    (void)state;
    eni_clock_map *map = calloc(1, sizeof *map);
    assert_true(eni_clock_map_start(map, (eni_clock_reading){1000, 5000}, (eni_clock_reading){3000, 6000}));
    assert_int_equal(eni_clock_map_ns(map, 1000), 5000);
    assert_int_equal(eni_clock_map_ns(map, 1001), 5000);
    assert_int_equal(eni_clock_map_ns(map, 1002), 5001);
    assert_int_equal(eni_clock_map_ns(map, 998), 4999);
    assert_int_equal(eni_clock_map_ns(map, 997), 4998); /* floor on both sides */
    assert_int_equal(eni_clock_map_ns(map, 0), 4500);
    assert_int_equal(eni_clock_map_ticks(map, 5001), 1002);
    assert_int_equal(eni_clock_map_ticks(map, 4999), 997 + 1);
    assert_int_equal(eni_clock_map_ticks(map, 0), 0);
    finish(map);
    map = calloc(1, sizeof *map);
    assert_false(eni_clock_map_start(map, (eni_clock_reading){1000, 5000}, (eni_clock_reading){1000, 6000}));
    assert_false(eni_clock_map_start(map, (eni_clock_reading){1000, 5000}, (eni_clock_reading){900, 6000}));
    assert_int_equal(map->count, 0);
    finish(map);
}

/* Whatever is asked of it, the map rises, what was read once stays, and ticks and ns are inverse. */
static void many_disciplines(double rate, double drift_ppm, bool steps)
{
    enum { ROUNDS = 3000 };
    static uint64_t ticks[ROUNDS], ns[ROUNDS];
    fake_clock fake = {1e9, rate, UINT64_C(1700000000000000000)};
    eni_clock_map *map = start(&fake);
    double drift = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pass(&fake, random_below(i % 5 == 0 ? 200000000 : 3000000) + 1, drift);
        drift = fmax(-drift_ppm, fmin(drift_ppm, drift + ((double)random_below(201) - 100) * drift_ppm / 1000));
        eni_clock_reading noisy = read_fake(&fake);
        noisy.ns += random_below(100);
        eni_clock_map_discipline(map, noisy, steps && random_below(4) == 0);
        ticks[i] =
            noisy.ticks + random_below((uint64_t)(50000 * rate) + 1); /* before the next reading or a slew's start */
        ns[i] = eni_clock_map_ns(map, ticks[i]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(eni_clock_map_ns(map, ticks[i]), ns[i]);
    }
    uint64_t before = 0;
    uint64_t end = (uint64_t)fake.ticks, at = UINT64_C(1000000000);
    for (; at < end; at += random_below((uint64_t)(1e6 * rate) + 1) + 1) {
        uint64_t now = eni_clock_map_ns(map, at);
        assert_true(now >= before);
        before = now;
        uint64_t back = eni_clock_map_ticks(map, now);
        assert_true(eni_clock_map_ns(map, back) >= now);
        assert_true(back <= at);
    }
    for (uint32_t i = 1; i < eni_clock_map_count(map); i++) { /* the seams, closely */
        const eni_clock_piece *piece = eni_clock_map_piece(map, i);
        assert_true(piece->ticks > eni_clock_map_piece(map, i - 1)->ticks);
        assert_true(eni_clock_map_ns(map, piece->ticks - 1) <= eni_clock_map_ns(map, piece->ticks));
        for (uint64_t tick = piece->ticks - 5; tick < piece->ticks + 5; tick++) {
            uint64_t back = eni_clock_map_ticks(map, eni_clock_map_ns(map, tick));
            assert_true(back <= tick);
            assert_true(eni_clock_map_ns(map, back) >= eni_clock_map_ns(map, tick));
        }
    }
    finish(map);
}

static void maps_never_go_back(void **state)
{
    (void)state;
    many_disciplines(2.4, 30, false);
    many_disciplines(2.4, 30, true);
    many_disciplines(0.024, 100, true);
    many_disciplines(1.0, 500, true);
    many_disciplines(5.0, 0, false);
}

static void slews_are_bounded_and_converge(void **state)
{
    (void)state;
    fake_clock fake = {5e8, 2.5, 1000000};
    eni_clock_map *map = start(&fake);
    /* 10 ppm for an hour, looked at each second: the rate is learnt, the error stays below 20 us and ends small. */
    double worst = 0;
    for (int second = 0; second < 3600; second++) {
        pass(&fake, 1000000000, 10);
        worst = fmax(worst, fabs(error_ns(map, &fake)));
        eni_clock_map_discipline(map, read_fake(&fake), false);
    }
    assert_true(worst < 20000);
    assert_true(fabs(error_ns(map, &fake)) < 1000);
    for (uint32_t i = 1; i < eni_clock_map_count(map); i++) {
        double slope = eni_clock_map_piece(map, i)->ns_per_tick * 2.5;
        assert_true(fabs(slope - 1) < 220e-6);
    }
    assert_true(eni_clock_map_count(map) < 3600); /* where nothing is wrong nothing is added */
    finish(map);
}

static void steps_only_go_forward_and_only_when_allowed(void **state)
{
    (void)state;
    fake_clock fake = {0, 1, 0};
    eni_clock_map *map = start(&fake);
    pass(&fake, 1000000000, 0);
    fake.ns += 30000000; /* the reference jumps ahead of the counter */
    eni_clock_map_discipline(map, read_fake(&fake), false);
    assert_true(error_ns(map, &fake) < -29900000); /* not at once */
    uint32_t count = eni_clock_map_count(map);
    eni_clock_map_discipline(map, read_fake(&fake), false);
    assert_int_equal(eni_clock_map_count(map), count); /* one steering in 50 ms */
    pass(&fake, 1000000000, 0);
    eni_clock_map_discipline(map, read_fake(&fake), true);
    assert_true(fabs(error_ns(map, &fake)) < 2);
    uint64_t shown = eni_clock_map_ns(map, (uint64_t)fake.ticks);
    pass(&fake, 1000000000, 0);
    fake.ns -= 30000000;
    eni_clock_map_discipline(map, read_fake(&fake), true);
    assert_true(error_ns(map, &fake) > 29900000); /* ahead: it does not go back */
    assert_true(eni_clock_map_ns(map, (uint64_t)fake.ticks) > shown);
    /* A time that the jump left out belongs to the tick of the jump. */
    uint64_t left_out = eni_clock_map_ticks(map, shown - 100000);
    assert_true(eni_clock_map_ns(map, left_out) >= shown - 1);
    finish(map);
}

static void a_clock_that_stood_still_keeps_its_rate(void **state)
{
    (void)state;
    fake_clock fake = {0, 2, 0};
    eni_clock_map *map = start(&fake);
    pass(&fake, 1000000000, 0);
    fake.ns += UINT64_C(3600000000000); /* the counter slept for an hour */
    eni_clock_map_discipline(map, read_fake(&fake), true);
    assert_true(fabs(error_ns(map, &fake)) < 2);
    pass(&fake, 1000000000, 0);
    assert_true(fabs(error_ns(map, &fake)) < 10);
    uint32_t count = eni_clock_map_count(map);
    eni_clock_map_discipline(map, (eni_clock_reading){5, 5}, true); /* the counter went back to 0 */
    assert_int_equal(eni_clock_map_count(map), count);
    finish(map);
}

static void memory_runs_out(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    fake_clock fake = {0, 1, 0};
    eni_clock_map *map = start(&fake);
    failing.left = 0;
    for (int i = 0; i < 2 * ENI_CLOCK_CHUNK; i++) {
        pass(&fake, 1000000000, i % 2 == 0 ? 100 : -100);
        eni_clock_map_discipline(map, read_fake(&fake), true);
    }
    assert_true(eni_clock_map_count(map) <= ENI_CLOCK_CHUNK);
    assert_true(eni_clock_map_count(map) >= ENI_CLOCK_CHUNK - 1);
    failing.left = -1;
    for (int i = 0; i < 2 * ENI_CLOCK_CHUNK; i++) {
        pass(&fake, 1000000000, i % 2 == 0 ? 100 : -100);
        eni_clock_map_discipline(map, read_fake(&fake), true);
    }
    assert_true(eni_clock_map_count(map) > 2 * ENI_CLOCK_CHUNK);
    finish(map);
    failing_end(&failing);
}

/* Readers need no lock: while one thread adds pieces, what others see rises and never tears. */
static eni_clock_map *shared;
static uint64_t shared_ticks; /* the newest reading */
static int done;

static void *reader(void *unused)
{
    (void)unused;
    uint64_t before = 0;
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        uint64_t ns = eni_clock_map_ns(shared, __atomic_load_n(&shared_ticks, __ATOMIC_ACQUIRE));
        assert_true(ns >= before);
        before = ns;
    }
    return NULL;
}

static void readers_take_no_lock(void **state)
{
    (void)state;
    fake_clock fake = {0, 1, 0};
    shared = start(&fake);
    shared_ticks = (uint64_t)fake.ticks;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, reader, NULL), 0);
    }
    for (int i = 0; i < 3000; i++) {
        pass(&fake, 100000000, i % 2 == 0 ? 50 : -50);
        eni_clock_map_discipline(shared, read_fake(&fake), i % 3 == 0);
        __atomic_store_n(&shared_ticks, (uint64_t)fake.ticks, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    finish(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_piece_is_a_line),
        cmocka_unit_test(maps_never_go_back),
        cmocka_unit_test(slews_are_bounded_and_converge),
        cmocka_unit_test(steps_only_go_forward_and_only_when_allowed),
        cmocka_unit_test(a_clock_that_stood_still_keeps_its_rate),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(readers_take_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
