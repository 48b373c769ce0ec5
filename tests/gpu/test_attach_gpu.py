"""attach="cuda" on a GPU, against torch.profiler in alternating runs of the same program: names, counts, durations, paths, sums.

Run by scripts/gpu-check; needs PYTHONPATH to have enigma, and PyTorch (with Triton), CuPy where the test says so."""

import collections
import functools
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROUNDS = {"transformer": 3, "triton": 1, "cupy": 1}  # a process each, which takes longest to load PyTorch
TICK_US = 0.0325  # of the GPU's clock, 32 ns, and its rounding
FEW = 10  # launches whose median says nothing


@functools.cache
def has_device():
    """Asked by a child, since this process keeps off CUDA."""
    code = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0) != 0)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def usable(*modules):
    return has_device() and all(importlib.util.find_spec(module) for module in modules)


def run(what, tool):
    done = subprocess.run([sys.executable, HERE / "program.py", what, tool], capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def results():
    """what: (runs under enigma, runs under torch.profiler), alternating."""
    cache = {}

    def get(what, module):
        if not usable("torch", module):
            pytest.skip(f"no CUDA device, no PyTorch or no {module}")
        if what not in cache:
            runs = [(run(what, "enigma"), run(what, "torch")) for _ in range(ROUNDS[what])]
            cache[what] = [pair[0] for pair in runs], [pair[1] for pair in runs]
        return cache[what]
    return get


CASES = pytest.mark.parametrize("what, module", [("transformer", "torch"), ("triton", "triton"), ("cupy", "cupy")])


@CASES
def test_names_and_counts(what, module, results):
    ours, theirs = results(what, module)
    for a, b in zip(ours, theirs, strict=True):
        kernels = collections.Counter(name for name, _ in a["kernels"])
        assert kernels == collections.Counter(name for name, _ in b["kernels"])
        assert collections.Counter(map(tuple, a["copies"])) == collections.Counter(map(tuple, b["copies"]))
        assert collections.Counter(a["fills"]) == collections.Counter(b["fills"])
        assert a["unfinished"] == []


def medians(runs):
    """name: the median of each run, on the grid of the clock"""
    found = collections.defaultdict(list)
    for result in runs:
        by_name = collections.defaultdict(list)
        for name, us in result["kernels"]:
            by_name[name].append(us)
        for name, times in by_name.items():
            found[name].append((statistics.median_low(times), len(times)))
    return found


@CASES
def test_durations(what, module, results):
    """Each kernel's median within 1 % or one 32 ns tick of what torch.profiler has in one of its processes (they differ from
    one to the next by about that: addresses are others), the total within 0.5 % or, where kernels are so short that a tick is
    more, one tick a launch."""
    ours, theirs = (medians(runs) for runs in results(what, module))
    off, totals = [], [0.0, 0.0]
    for name in ours:
        for i, side in enumerate((ours, theirs)):
            totals[i] += statistics.mean(median for median, _ in side[name]) * ours[name][0][1]
        a, b = ([median for median, _ in side[name]] for side in (ours, theirs))
        gap = max(min(a) - max(b), min(b) - max(a))
        if gap > max(0.01 * max(b), TICK_US) and ours[name][0][1] >= FEW:
            off.append(f"{a} us, torch {b} us, {ours[name][0][1]} times: {name[:80]}")
    print(f"{what}: {len(ours)} kernels, total {totals[0]:.1f} us, torch {totals[1]:.1f} us "
          f"({100 * (totals[0] / totals[1] - 1):+.2f} %)")
    assert not off, "\n".join(off)
    launches = sum(side[0][1] for side in ours.values())
    assert abs(totals[0] - totals[1]) <= max(0.005 * totals[1], TICK_US * launches)


@CASES
def test_sums(what, module, results):
    """A scope's GPU time is the sum over the work launched under it."""
    for result in results(what, module)[0]:
        for path, times in result["scopes"].items():
            names = path.split("/")
            inside = sum(us for call_path, us in result["own"] if call_path[:len(names)] == names)
            assert sum(times) == pytest.approx(inside, abs=0.01 * len(times)), path


def test_paths_of_the_transformer(results):
    for result in results("transformer", "torch")[0]:
        places = {tuple(path) for path, _ in result["own"]}
        assert places >= {("step", "forward"), ("step", "backward"), ("step", "optimizer"), ("step", "streams"), ("replay",)}
        assert places <= {("step", "forward"), ("step", "backward"), ("step", "optimizer"), ("step", "streams"), ("replay",),
                          ("capture",), ()}
        backward = [path for path in result["paths"] if path[:2] == ["step", "backward"]]
        assert any(path[-1] == "owner" for path in backward)  # autograd's own thread


def test_graph_of_the_transformer(results):
    """Nodes lie under the replay, the graph, and where they were captured; each replay is counted once."""
    for result in results("transformer", "torch")[0]:
        in_graphs = [path for path in result["paths"] if any(name.startswith("graph:") for name in path[:-2])]
        assert len({path[-2] for path in in_graphs}) >= 3  # mul, add, sum
        for path in in_graphs:
            at = next(i for i, name in enumerate(path) if name.startswith("graph:"))
            assert path[:at] in ([], ["replay"]) and path[at + 1:-2] == ["capture"], path
        assert result["replays"] == 21


BENCHMARK = """
import json, statistics, enigma, torch
x = torch.rand(1 << 22, device="cuda")
b = enigma.benchmark(lambda: x.mul_(1.5).add_(1), repeat=50, warmup=10)
with enigma.profile(attach="cuda") as p:
    for _ in range(50):
        x.mul_(1.5).add_(1)
kernels = [e.gpu_time_us for e in p.events() if e.name == "gpu_dispatch"]
pairs = [a + b for a, b in zip(kernels[::2], kernels[1::2], strict=True)]
print(json.dumps([b.calls, b.median_us, statistics.median(pairs)]))
"""


def test_benchmark_of_a_callable():
    if not usable("torch"):
        pytest.skip("no CUDA device or no PyTorch")
    done = subprocess.run([sys.executable, "-c", BENCHMARK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    calls, median, expected = json.loads(done.stdout.splitlines()[-1])
    print(f"benchmark: {median:.3f} us, by events {expected:.3f} us")
    assert calls == 50 and median == pytest.approx(expected, abs=2 * TICK_US + 0.01 * expected)


def test_cublas_from_c():
    program = os.environ.get("ENIGMA_GPU_CUBLAS")
    if not program:
        pytest.skip("the C program was not built (ENIGMA_GPU_CUBLAS)")
    done = subprocess.run([program], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
