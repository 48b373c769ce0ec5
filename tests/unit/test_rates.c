/* The formula of rates. Cases D07, D08. */
#include "aggregate/rates.h"

#include <math.h>

#include "support.h"

static void d07_units(void **state)
{
    (void)state;
    assert_true(eni_rate_giga_per_s(2e9, 1000.0) == 2000.0);
    assert_true(eni_rate_giga_per_s(1e9, 1000.0) == 1000.0);
    assert_true(eni_rate_giga_per_s(-2e9, 1000.0) == -2000.0);
}

static void d08_no_time_and_no_number(void **state)
{
    (void)state;
    assert_true(eni_rate_giga_per_s(1e6, 0.0) == 0.0);
    assert_true(eni_rate_giga_per_s(0.0, 0.0) == 0.0);
    assert_true(eni_rate_giga_per_s(1e6, -1.0) == 0.0);
    assert_true(eni_rate_giga_per_s(INFINITY, 1.0) == 0.0);
    assert_true(eni_rate_giga_per_s(NAN, 1.0) == 0.0);
    assert_true(eni_rate_giga_per_s(1.0, NAN) == 0.0);
    assert_true(eni_rate_giga_per_s(1e308, 1e-300) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(d07_units), cmocka_unit_test(d08_no_time_and_no_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
