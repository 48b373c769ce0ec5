/* GFLOP/s and GB/s. See rates.h. */
#include "aggregate/rates.h"

#include <math.h>

enum eni_rate eni_rate_of(enigma_text key)
{
    static const char *const names[ENI_RATE_COUNT] = {ENI_RATE_FLOPS, ENI_RATE_BYTES};
    int rate = 0;
    while (rate < ENI_RATE_COUNT && !eni_text_equal(key, eni_text_of(names[rate]))) {
        rate++;
    }
    return (enum eni_rate)rate;
}

double eni_rate_giga_per_s(double count, double us)
{
    double rate = us > 0.0 ? count / (us * 1000.0) : 0.0;
    return isfinite(rate) ? rate : 0.0;
}
