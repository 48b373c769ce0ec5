"""A kernel profiled in ten lines. Exits with 77 where there is no device."""

import sys
from array import array

import enigma

SOURCE = """
__kernel void saxpy(float a, __global const float *x, __global float *y)
{
    size_t i = get_global_id(0);
    y[i] = a * x[i] + y[i];
}
"""
COUNT = 1 << 20

try:
    rt = enigma.Runtime("opencl")
except RuntimeError as error:
    print(f"skipped: {error}")
    sys.exit(77)

x = array("f", range(COUNT))
a = memoryview(array("f", [2.0])).cast("B").cast("f", shape=[])  # 0-d: passed by value
saxpy = rt.prepare(rt.compile(SOURCE, "saxpy"), [a, x], COUNT * 4)

with enigma.profile() as prof, enigma.scope("steps"):
    for _ in range(5):
        saxpy.dispatch((COUNT, 1, 1), (256, 1, 1), metrics={"flops": 2 * COUNT, "bytes": 12 * COUNT})

print(prof.key_averages().table(), end="\n\n")
print(prof.tree())

y = array("f", saxpy.read_output())
assert y[1000] == 5 * 2.0 * 1000, y[1000]
