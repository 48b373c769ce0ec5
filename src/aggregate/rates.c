/* GFLOP/s and GB/s. See rates.h. */
#include "aggregate/rates.h"

#include <math.h>

double eni_rate_giga_per_s(double count, double us)
{
    double rate = us > 0.0 ? count / (us * 1000.0) : 0.0;
    return isfinite(rate) ? rate : 0.0;
}
