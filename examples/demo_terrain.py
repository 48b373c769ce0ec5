"""The demo in Python: shaded relief of real terrain.

The data is an elevation model of the Jacksboro fault in Tennessee (USGS, 403 x 344 points), which matplotlib ships.
On it run:

    smooth      a Gaussian filter, 9 x 9 points
    hillshade   how the sun lights each point, for three times of day
    sky_view    how much of the sky each point sees: 16 rays of 48 steps
    histogram   of the shaded relief, by atomic additions

The three times of day are asyncio tasks that queue their work without waiting; the sky view runs in a thread that
asyncio.to_thread starts. Both inherit profiler and call path. Every result is compared with the same computation in
NumPy.

Prints rows by name and by call path, the tree and a benchmark line, and writes an .enigma file, a Chrome trace, a
Hatchet file and the relief as a picture to the folder given (default: the current one). Exits with 77 where NumPy,
the data or a device is missing.
"""

import asyncio
import importlib.util
import sys
from pathlib import Path

import enigma

SKIPPED = 77
try:
    import numpy as np
except ImportError:
    print("skipped: numpy is missing")
    sys.exit(SKIPPED)

GROUP = 16
RADIUS, SIGMA = 4, 2.0  # of the filter, in points
RAYS, REACH = 16, 48  # of the sky view: directions, and points along each
BINS = 64
SUNS = {"09:00": (110.0, 25.0), "12:00": (180.0, 60.0), "17:00": (260.0, 20.0)}  # azimuth and height, degrees

SOURCE = """
#define CLAMPED(x, y) (clamp(y, 0, HEIGHT - 1) * WIDTH + clamp(x, 0, WIDTH - 1))
#define PLACE                                                                   \\
    int x = get_global_id(0), y = get_global_id(1);                             \\
    if (x >= WIDTH || y >= HEIGHT)                                              \\
        return;

__kernel void smooth(__global const float *in, __constant float *weights, __global float *out)
{
    PLACE
    float sum = 0;
    for (int dy = -RADIUS; dy <= RADIUS; dy++)
        for (int dx = -RADIUS; dx <= RADIUS; dx++)
            sum += weights[dy + RADIUS] * weights[dx + RADIUS] * in[CLAMPED(x + dx, y + dy)];
    out[y * WIDTH + x] = sum;
}

/* The sun's direction times the normal; cell: the distances between points in x and y. */
__kernel void hillshade(__global const float *z, __constant float *cell, __constant float *sun, __global float *out)
{
    PLACE
    float zx = (z[CLAMPED(x + 1, y)] - z[CLAMPED(x - 1, y)]) / (2 * cell[0]);
    float zy = (z[CLAMPED(x, y + 1)] - z[CLAMPED(x, y - 1)]) / (2 * cell[1]);
    float light = (sun[2] - sun[0] * zx - sun[1] * zy) / sqrt(1 + zx * zx + zy * zy);
    out[y * WIDTH + x] = max(light, 0.0f);
}

/* Rays: for each direction and step the point's offset in x and y, and one over its distance. */
__kernel void sky_view(__global const float *z, __constant int *offsets, __constant float *nearness,
                       __global float *out)
{
    PLACE
    float here = z[y * WIDTH + x], seen = 0;
    for (int ray = 0; ray < RAYS; ray++) {
        float steepest = 0;
        for (int step = 0; step < REACH; step++) {
            int at = ray * REACH + step;
            float rise = z[CLAMPED(x + offsets[2 * at], y + offsets[2 * at + 1])] - here;
            steepest = max(steepest, rise * nearness[at]);
        }
        seen += 1 - steepest / sqrt(1 + steepest * steepest);
    }
    out[y * WIDTH + x] = seen / RAYS;
}

__kernel void histogram(__global const float *in, __global int *counts)
{
    PLACE
    atomic_inc(&counts[clamp((int)(in[y * WIDTH + x] * BINS), 0, BINS - 1)]);
}
"""


# ---- The data ------------------------------------------------------------------------------------------------------


def load():
    """Elevation in metres (rows from north to south), and the distances between points in x and y."""
    spec = importlib.util.find_spec("matplotlib")
    path = Path(spec.origin).parent / "mpl-data/sample_data/jacksboro_fault_dem.npz" if spec else None
    if path is None or not path.exists():
        print("skipped: matplotlib's sample data (jacksboro_fault_dem.npz) is missing")
        sys.exit(SKIPPED)
    with np.load(path) as data:
        metres = 111_200  # a degree of latitude
        cell = metres * data["dx"] * np.cos(np.radians(data["ymin"])), metres * data["dy"]
        return data["elevation"].astype(np.float32), np.array(cell, np.float32)


def gaussian():
    weights = np.exp(-(np.arange(-RADIUS, RADIUS + 1) ** 2) / (2 * SIGMA**2))
    return (weights / weights.sum()).astype(np.float32)


def sun_direction(azimuth, height):
    """A unit vector: x to the east, y to the south, z up."""
    a, h = np.radians([azimuth, height])
    return np.array([np.sin(a) * np.cos(h), -np.cos(a) * np.cos(h), np.sin(h)], np.float32)


def rays(cell):
    """Offsets of the points along each ray, and one over their distances."""
    angles = 2 * np.pi * np.arange(RAYS) / RAYS
    steps = np.arange(1, REACH + 1)
    offsets = np.rint(np.stack([np.outer(np.cos(angles), steps), np.outer(np.sin(angles), steps)], axis=-1))
    return offsets.astype(np.int32), (1 / np.hypot(*np.moveaxis(offsets * cell, -1, 0))).astype(np.float32)


# ---- The same in NumPy ---------------------------------------------------------------------------------------------


def shifted(z, dx, dy):
    """z at (x + dx, y + dy), the edge continued."""
    height, width = z.shape
    return z[np.clip(np.arange(height) + dy, 0, height - 1)][:, np.clip(np.arange(width) + dx, 0, width - 1)]


def reference_smooth(z, weights):
    taps = [(offset, float(weights[offset + RADIUS])) for offset in range(-RADIUS, RADIUS + 1)]
    rows = sum(weight * shifted(z, 0, offset) for offset, weight in taps)
    return sum(weight * shifted(rows, offset, 0) for offset, weight in taps)


def reference_hillshade(z, cell, sun):
    zx = (shifted(z, 1, 0) - shifted(z, -1, 0)) / (2 * cell[0])
    zy = (shifted(z, 0, 1) - shifted(z, 0, -1)) / (2 * cell[1])
    return np.maximum((sun[2] - sun[0] * zx - sun[1] * zy) / np.sqrt(1 + zx * zx + zy * zy), 0)


def reference_sky_view(z, offsets, nearness):
    seen = np.zeros(z.shape)
    for ray in range(RAYS):
        steepest = np.zeros(z.shape)
        for step in range(REACH):
            np.maximum(steepest, (shifted(z, *offsets[ray, step]) - z) * nearness[ray, step], out=steepest)
        seen += 1 - steepest / np.sqrt(1 + steepest * steepest)
    return seen / RAYS


# ---- On the device -------------------------------------------------------------------------------------------------


class Terrain:
    """The kernels, compiled for one size of terrain on a runtime of their own."""

    def __init__(self, shape):
        self.rt = enigma.Runtime("opencl")
        self.shape = shape
        height, width = shape
        self.grid = (-(-width // GROUP) * GROUP, -(-height // GROUP) * GROUP, 1)  # padded to whole groups
        self.threads = (GROUP, GROUP, 1)
        constants = {"WIDTH": width, "HEIGHT": height, "RADIUS": RADIUS, "RAYS": RAYS, "REACH": REACH, "BINS": BINS}
        options = " ".join(f"-D{name}={value}" for name, value in constants.items())
        names = ("smooth", "hillshade", "sky_view", "histogram")
        self.kernels = {name: self.rt.compile(SOURCE, name, options=options) for name in names}

    def prepare(self, name, inputs, output_size=None):
        """A prepared kernel; the output is as large as the terrain unless another size is given."""
        return self.rt.prepare(self.kernels[name], inputs, output_size or 4 * self.shape[0] * self.shape[1])

    def run(self, name, inputs, output_size=None, dtype=np.float32):
        """One dispatch; gives the output."""
        with self.prepare(name, inputs, output_size) as kernel:
            kernel.dispatch(self.grid, self.threads)
            return np.frombuffer(kernel.read_output(), dtype)

    def warm_up(self, elevation, cell):
        """Runs each kernel once. Nothing is recorded while no profiler is active; drivers finish compiling here."""
        self.run("smooth", [elevation, gaussian()])
        self.run("hillshade", [elevation, cell, sun_direction(*SUNS["12:00"])])
        self.run("sky_view", [elevation, *rays(cell)])
        self.run("histogram", [elevation], 4 * BINS)


async def light(terrain, z, cell, hour):
    """One time of day, in a task of its own: queued, then the other tasks go on, then read."""
    azimuth, height = SUNS[hour]
    with enigma.scope(f"sun at {hour}", azimuth=azimuth, height=height):
        with terrain.prepare("hillshade", [z, cell, sun_direction(azimuth, height)]) as kernel:
            kernel.dispatch(terrain.grid, terrain.threads, wait=False)
            await asyncio.sleep(0)
            kernel.wait()
            return np.frombuffer(kernel.read_output(), np.float32)


def sky(terrain, z, cell):
    """The sky view, in a thread."""
    with enigma.scope("sky", metrics={"rays": z.size * RAYS}):
        return terrain.run("sky_view", [z, *rays(cell)])


async def pipeline(terrain, elevation, cell):
    """All results by name. The sky view has a runtime of its own, so that it runs beside the rest."""
    other = Terrain(elevation.shape)
    other.warm_up(elevation, cell)
    with enigma.profile(profile_memory=True) as prof, enigma.scope("relief", metrics=total_work(elevation.size)):
        with enigma.scope("denoise"):
            z = terrain.run("smooth", [elevation, gaussian()])
        lights = (light(terrain, z, cell, hour) for hour in SUNS)
        seen, *suns = await asyncio.gather(asyncio.to_thread(sky, other, z, cell), *lights)
        with enigma.record_function("combine"):
            relief = (0.5 * sum(suns) / len(suns) + 0.5 * seen).astype(np.float32)
        with enigma.scope("statistics"):
            counts = terrain.run("histogram", [relief], 4 * BINS, np.int32)
    arrays = {"smooth": z, "sky_view": seen, "hillshade": np.stack(suns), "relief": relief, "histogram": counts}
    return prof, arrays


# ---- What is known of the kernels ----------------------------------------------------------------------------------


def work(points):
    """Floating-point operations of each kernel, and its bytes (each array once) where they may be the limit."""
    return {
        "smooth": {"flops": points * 3 * (2 * RADIUS + 1) ** 2, "bytes": points * 8},
        "hillshade": {"flops": points * 15, "bytes": points * 8},
        "sky_view": {"flops": points * RAYS * (3 * REACH + 6)},
        "histogram": {"bytes": points * 4},
    }


def total_work(points):
    """Of the whole pipeline: hillshade runs once for each sun."""
    kernels = work(points)
    runs = {"hillshade": len(SUNS)}
    return {"flops": sum(runs.get(name, 1) * metrics.get("flops", 0) for name, metrics in kernels.items())}


def check(results, elevation, cell):
    """Compares with NumPy, each kernel on its own input; gives whether all is right."""
    offsets, nearness = rays(cell)
    z = results["smooth"].reshape(elevation.shape).astype(np.float64)
    bins = np.clip((results["relief"] * np.float32(BINS)).astype(np.int32), 0, BINS - 1)
    expected = {
        "smooth": reference_smooth(elevation.astype(np.float64), gaussian()),
        "hillshade": np.stack([reference_hillshade(z, cell, sun_direction(*sun)) for sun in SUNS.values()]),
        "sky_view": reference_sky_view(z, offsets, nearness),
        "histogram": np.bincount(bins.ravel(), minlength=BINS),
    }
    good = True
    for name, right in expected.items():
        difference = float(np.max(np.abs(results[name].ravel() - right.ravel())) / np.max(np.abs(right)))
        allowed = 0.0 if name == "histogram" else 1e-4
        good = good and difference <= allowed
        print(f"{name:<10} largest relative difference from NumPy {difference:.1e}: "
              f"{'correct' if difference <= allowed else 'WRONG'}")  # fmt: skip
    return good


def section(title, text):
    print(f"\n{title}\n\n{text.rstrip()}")


def show(prof, bench, folder):
    section("Rows by name", prof.key_averages().table())
    section("Rows by call path", prof.key_averages(group_by="call_path").table())
    section("Call tree", prof.tree())
    section("Benchmark, device time only", bench.summary())

    trace, hatchet, saved = (folder / f"demo_terrain.{suffix}" for suffix in ("trace.json", "hatchet.json", "enigma"))
    prof.export_chrome_trace(trace)
    prof.export_hatchet(hatchet)
    prof.save(saved)
    print("\nFiles\n")
    print(f"  {trace}\n    open https://ui.perfetto.dev and drop it there, or load it in chrome://tracing")
    print(f"  {hatchet}\n    python -c \"import hatchet, json; "
          f"print(hatchet.GraphFrame.from_literal(json.load(open('{hatchet}'))).tree('time (inc)'))\"")  # fmt: skip
    print(f"  {saved}\n    enigma report {saved} --by path")


def write_picture(relief, shape, path):
    scaled = np.clip(relief / relief.max() * 255, 0, 255).astype(np.uint8)
    path.write_bytes(b"P5 %d %d 255\n" % (shape[1], shape[0]) + scaled.tobytes())
    print(f"  {path}\n    the shaded relief, for any picture viewer")


def benchmark(terrain, elevation, counts):
    with terrain.prepare("smooth", [elevation, gaussian()]) as kernel:
        flops, moved = counts["flops"], counts["bytes"]
        return enigma.benchmark_kernel(
            kernel, grid=terrain.grid, threads=terrain.threads, repeat=50, flops=flops, bytes_moved=moved
        )


def main(folder):
    elevation, cell = load()
    try:
        terrain = Terrain(elevation.shape)
    except RuntimeError as error:
        print(f"skipped: {error}")
        return SKIPPED
    height, width = elevation.shape
    print(f"Shaded relief of {width} x {height} points on {terrain.rt.device['name']}\n")
    terrain.warm_up(elevation, cell)
    kernels = work(elevation.size)
    for name, metrics in kernels.items():
        enigma.register_kernel_hook(name, lambda metrics=metrics, **launch: metrics)
    prof, results = asyncio.run(pipeline(terrain, elevation, cell))
    for name in kernels:
        enigma.unregister_kernel_hook(name)

    good = check(results, elevation, cell)
    show(prof, benchmark(terrain, elevation, kernels["smooth"]), folder)
    write_picture(results["relief"], elevation.shape, folder / "demo_terrain.pgm")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
