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

/* From the nearer end, as NumPy does: exact at both ends. Clamped, since rounding must not leave the interval. */
static double between(double below, double above, double share)
{
    double gap = above - below;
    double value = share < 0.5 ? below + gap * share : above - gap * (1.0 - share);
    return fmin(fmax(value, below), above);
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
    return between(sorted[low], sorted[low + 1], at - (double)low);
}

/* ---- selection ---- */

#define BUCKETS 976 /* 16 for each power of two from 32 on; below, one for each number */

#define FEW 24      /* values that are sorted */

static unsigned bucket_of(uint64_t distance)
{
    unsigned shift = 59 - (unsigned)__builtin_clzll(distance | 31);
    return (shift << 4) + (unsigned)(distance >> shift);
}

static void find_ends(const uint64_t *values, size_t n, uint64_t *min, uint64_t *max)
{
    *min = *max = values[0];
    for (size_t i = 1; i < n; i++) {
        *min = values[i] < *min ? values[i] : *min;
        *max = values[i] > *max ? values[i] : *max;
    }
}

/* Keeps the values in one bucket, at the front. Returns the least of those in later buckets and of above. */
static uint64_t keep_bucket(uint64_t *values, size_t n, uint64_t min, unsigned bucket, uint64_t above)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t value = values[i];
        unsigned at = bucket_of(value - min);
        above = at > bucket && value < above ? value : above;
        values[kept] = value; /* kept <= i */
        kept += at == bucket;
    }
    return above;
}

static void insertion_sort(uint64_t *values, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t value = values[i];
        size_t at = i;
        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
        }
        values[at] = value;
    }
}

/* Each round keeps the bucket with the lower middle one, a sixteenth of the range or less: a handful of rounds for any 64-bit
 * values, most often two. */
eni_middle eni_stats_middle(uint64_t *values, size_t n)
{
    size_t low = (n - 1) / 2, high = n / 2;
    uint64_t min, max, above = UINT64_MAX;
    find_ends(values, n, &min, &max);
    eni_middle middle = {.min = min, .max = max};
    while (min != max && n > FEW) {
        uint32_t counts[BUCKETS] = {0};
        for (size_t i = 0; i < n; i++) {
            counts[bucket_of(values[i] - min)]++;
        }
        unsigned bucket = 0;
        for (; low >= counts[bucket]; bucket++) {
            low -= counts[bucket];
            high -= counts[bucket];
        }
        above = keep_bucket(values, n, min, bucket, above);
        n = counts[bucket];
        find_ends(values, n, &min, &max);
    }
    insertion_sort(values, n <= FEW ? n : 0);
    middle.below = values[low];
    middle.above = high < n ? values[high] : above;
    return middle;
}

double eni_stats_median(double below, double above) { return between(below, above, below == above ? 0.0 : 0.5); }

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
