/* Order statistics and means. See stats.h. */
#include "aggregate/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void eni_stats_sort(double *values, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (values[i] < values[i - 1]) {
            qsort(values, n, sizeof *values, compare_doubles);
            return;
        }
    }
}

double eni_stats_percentile(const double *sorted, size_t n, double q)
{
    if (n == 0) {
        return 0.0;
    }
    double at = (double)(n - 1) * (q / 100.0);
    size_t low = (size_t)at;
    if (low >= n - 1) {
        return sorted[n - 1];
    }
    double below = sorted[low], above = sorted[low + 1], share = at - (double)low;
    double gap = above - below;
    /* From the nearer end, as NumPy does: exact at both ends. Clamped, since rounding must not leave the interval. */
    double value = share < 0.5 ? below + gap * share : above - gap * (1.0 - share);
    return fmin(fmax(value, below), above);
}

void eni_sum_add(eni_sum *sum, double value)
{
    double total = sum->total + value;
    if (isfinite(total)) {
        sum->lost += fabs(sum->total) >= fabs(value) ? (sum->total - total) + value : (value - total) + sum->total;
    }
    sum->total = total;
}

double eni_sum_get(const eni_sum *sum) { return isfinite(sum->total) ? sum->total + sum->lost : sum->total; }

double eni_stats_mean(const double *values, size_t n)
{
    eni_sum sum = {0.0, 0.0};
    for (size_t i = 0; i < n; i++) {
        eni_sum_add(&sum, values[i]);
    }
    return n == 0 ? 0.0 : eni_sum_get(&sum) / (double)n;
}

void eni_stats_of(const double *sorted, size_t n, eni_stats *out)
{
    out->min = eni_stats_percentile(sorted, n, 0.0);
    out->median = eni_stats_percentile(sorted, n, 50.0);
    /* The mean of equal values may round past them. */
    out->mean = n == 0 ? 0.0 : fmin(fmax(eni_stats_mean(sorted, n), sorted[0]), sorted[n - 1]);
    out->p90 = eni_stats_percentile(sorted, n, 90.0);
    out->max = eni_stats_percentile(sorted, n, 100.0);
}
