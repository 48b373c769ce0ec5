/* Throughput from a count and a time: the formula, once. Called by rows, exporters and benchmarks, on any thread. */
#ifndef ENI_AGGREGATE_RATES_H
#define ENI_AGGREGATE_RATES_H

#include "base/str.h"

/* The metric keys that drive rates. */
#define ENI_RATE_FLOPS "flops"
#define ENI_RATE_BYTES "bytes"
enum eni_rate { ENI_RATE_OF_FLOPS = 0, ENI_RATE_OF_BYTES = 1, ENI_RATE_COUNT = 2 };
/* Which rate a metric drives; ENI_RATE_COUNT: none. */
enum eni_rate eni_rate_of(enigma_text key);

/* Billions per second: GFLOP/s of a count of operations, GB/s of a count of bytes. 0 when there is no time or the result
 * is no number. */
double eni_rate_giga_per_s(double count, double us);

#endif
