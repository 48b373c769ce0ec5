/* Inside of bench/: what timing a kernel and profiling it share. */
#ifndef ENI_BENCH_BENCH_H
#define ENI_BENCH_BENCH_H

#include "gpu/gpu.h"

/* ENIGMA_E_INVALID unless both are finite; negative: not given. */
enigma_status eni_bench_check_work(double flops, double bytes_moved);
/* Waits for earlier work, then runs on the untimed path, interruptibly. Checks the dispatch first. */
enigma_status eni_bench_warm_up(enigma_prepared *prepared, const enigma_dispatch_options *dispatch, uint64_t runs);

#endif
