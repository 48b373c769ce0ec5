"""Two versions of a kernel compared by device time: a matrix transposed directly, and through local memory.

Exits with 77 where there is no device.
"""

import sys
from array import array

import enigma

SIZE, TILE = 1024, 16
SOURCE = f"""
#define SIZE {SIZE}
#define TILE {TILE}

__kernel void direct(__global const float *in, __global float *out)
{{
    size_t x = get_global_id(0), y = get_global_id(1);
    out[x * SIZE + y] = in[y * SIZE + x];
}}

__kernel void tiled(__global const float *in, __global float *out)
{{
    __local float tile[TILE][TILE + 1];
    size_t lx = get_local_id(0), ly = get_local_id(1);
    size_t gx = get_group_id(0) * TILE, gy = get_group_id(1) * TILE;
    tile[ly][lx] = in[(gy + ly) * SIZE + gx + lx];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[(gx + ly) * SIZE + gy + lx] = tile[lx][ly];
}}
"""

try:
    rt = enigma.Runtime("opencl")
except RuntimeError as error:
    print(f"skipped: {error}")
    sys.exit(77)

print(rt.device["name"])
matrix = array("f", range(SIZE * SIZE))
results = {}
for name in ("direct", "tiled"):
    with rt.prepare(rt.compile(SOURCE, name), [matrix], len(matrix) * 4) as kernel:
        bench = enigma.benchmark_kernel(
            kernel, grid=(SIZE, SIZE, 1), threads=(TILE, TILE, 1), repeat=50, warmup=5, bytes_moved=8 * len(matrix)
        )
        out = array("f", kernel.read_output())
    assert all(out[i * SIZE : i * SIZE + 4] == matrix[i : 4 * SIZE : SIZE] for i in (0, 1, SIZE - 1)), name
    results[name] = bench
    print(bench.summary())

ratio = results["direct"].median_us / results["tiled"].median_us
print(f"tiled takes {1 / ratio:.2f} x the time of direct (by the medians)")
