/* Order statistics and means: the one place that knows how a percentile is interpolated. Called by rows (per row) and
 * by benchmarks (per run), on any thread; nothing is kept. */
#ifndef ENI_AGGREGATE_STATS_H
#define ENI_AGGREGATE_STATS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct eni_stats {
    double min, median, mean, p90, max;
} eni_stats;

/* Sorts ascending, in place. The values are numbers (no NaN). */
void eni_stats_sort(double *values, size_t n);

/* The q-th percentile, q from 0 to 100, of n ascending values: linear interpolation between order statistics, NumPy's
 * default. 0 for n 0. The result never leaves the two values it lies between. */
double eni_stats_percentile(const double *sorted, size_t n, double q);

/* The least, the middle two (equal for odd n) and the greatest of n whole numbers, n not 0, in linear time. The values are left in
 * another order, or fewer. */
typedef struct eni_middle {
    uint64_t min, below, above, max;
} eni_middle;
eni_middle eni_stats_middle(uint64_t *values, size_t n);

/* The median from the middle two, as eni_stats_percentile gives it for q 50. */
double eni_stats_median(double below, double above);

/* The mean, summed with compensation. 0 for n 0. */
double eni_stats_mean(const double *values, size_t n);

/* All of them for n ascending values; all 0 for n 0. */
void eni_stats_of(const double *sorted, size_t n, eni_stats *out);

/* A sum that does not lose small terms (Neumaier). Start zeroed; infinities and NaN pass through as in a plain sum. */
typedef struct eni_sum {
    double total, lost;
} eni_sum;
static inline void eni_sum_add(eni_sum *sum, double value)
{
    double total = sum->total + value;
    if (isfinite(total)) {
        sum->lost += fabs(sum->total) >= fabs(value) ? (sum->total - total) + value : (value - total) + sum->total;
    }
    sum->total = total;
}
double eni_sum_get(const eni_sum *sum);

#endif
