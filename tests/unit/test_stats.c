/* Order statistics against NumPy's numbers. Cases D20, D22. */
#include "aggregate/stats.h"

#include <math.h>

#include "support.h"

static void assert_close(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b)))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

static void d20_percentiles(void **state)
{
    static const double ten[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, one[] = {5}, two[] = {1, 100};
    eni_stats stats;
    (void)state;
    eni_stats_of(ten, 10, &stats);
    assert_true(stats.min == 1 && stats.median == 5.5 && stats.mean == 5.5 && stats.max == 10);
    assert_close(stats.p90, 9.1);
    eni_stats_of(one, 1, &stats);
    assert_true(stats.min == 5 && stats.median == 5 && stats.mean == 5 && stats.p90 == 5 && stats.max == 5);
    eni_stats_of(two, 2, &stats);
    assert_true(stats.median == 50.5);
    assert_close(stats.p90, 90.1);
}

static void d22_none_and_few(void **state)
{
    eni_stats stats;
    (void)state;
    eni_stats_of(NULL, 0, &stats);
    assert_true(stats.min == 0 && stats.median == 0 && stats.mean == 0 && stats.p90 == 0 && stats.max == 0);
    assert_true(eni_stats_percentile(NULL, 0, 50) == 0);
}

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Whatever the values: in order, and between their neighbours. */
static void order_always_holds(void **state)
{
    double values[37];
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t n = 1 + random_next(&seed) % 37;
        for (size_t i = 0; i < n; i++) {
            values[i] = ldexp((double)(random_next(&seed) % 1000), (int)(random_next(&seed) % 80) - 40);
        }
        eni_stats_sort(values, n);
        eni_stats s;
        eni_stats_of(values, n, &s);
        assert_true(s.min <= s.median && s.median <= s.p90 && s.p90 <= s.max);
        assert_true(s.min <= s.mean && s.mean <= s.max);
        for (double q = 0; q <= 100; q += 6.25) {
            double at = eni_stats_percentile(values, n, q);
            size_t low = (size_t)((double)(n - 1) * (q / 100.0));
            assert_true(values[low] <= at && at <= values[low + 1 < n ? low + 1 : low]);
        }
    }
}

static void mean_keeps_small_terms(void **state)
{
    double values[10001];
    (void)state;
    values[0] = 1e16;
    for (size_t i = 1; i <= 10000; i++) {
        values[i] = 1.0;
    }
    assert_true(eni_stats_mean(values, 10001) == (1e16 + 10000.0) / 10001.0);
}

static void sums_pass_infinities_on(void **state)
{
    eni_sum sum = {0, 0};
    (void)state;
    eni_sum_add(&sum, 1.0);
    eni_sum_add(&sum, INFINITY);
    eni_sum_add(&sum, 1.0);
    assert_true(eni_sum_get(&sum) == INFINITY);
    eni_sum_add(&sum, -INFINITY);
    assert_true(isnan(eni_sum_get(&sum)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d20_percentiles),         cmocka_unit_test(d22_none_and_few),
        cmocka_unit_test(order_always_holds),      cmocka_unit_test(mean_keeps_small_terms),
        cmocka_unit_test(sums_pass_infinities_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
