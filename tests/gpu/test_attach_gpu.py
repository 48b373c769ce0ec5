"""attach="cuda" on a GPU, against torch.profiler in alternating runs of the same program: names, counts, durations, paths, sums.

Run by scripts/gpu-check; needs PYTHONPATH to have enigma, and PyTorch (with Triton), CuPy where the test says so."""

import collections
import functools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("ENIGMA_GPU_ROUNDS", "2"))


@functools.cache
def has(module):
    """Whether a child can use it on a GPU; this process loads none of them."""
    code = f"import {module}, torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def run(what, tool):
    done = subprocess.run([sys.executable, HERE / "program.py", what, tool], capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def results():
    """what: (runs under enigma, runs under torch.profiler), alternating."""
    cache = {}

    def get(what, module):
        if not has(module):
            pytest.skip(f"no PyTorch with a CUDA device, or no {module}")
        if what not in cache:
            runs = [(run(what, "enigma"), run(what, "torch")) for _ in range(ROUNDS)]
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


@CASES
def test_durations(what, module, results):
    """Each kernel's median within 1 % or one 32 ns tick, the total within 0.5 %, over all rounds."""
    ours, theirs = results(what, module)

    def pooled(runs):
        by_name = collections.defaultdict(list)
        for result in runs:
            for name, us in result["kernels"]:
                by_name[name].append(us)
        return by_name

    a, b = pooled(ours), pooled(theirs)
    off, total_a, total_b = [], 0.0, 0.0
    for name in a:
        median_a, median_b = statistics.median(a[name]), statistics.median(b[name])
        total_a += median_a * len(a[name])
        total_b += median_b * len(b[name])
        if abs(median_a - median_b) > max(0.01 * median_b, 0.0325):
            off.append(f"{median_a:.3f} us, torch {median_b:.3f} us, {len(a[name])} times: {name[:80]}")
    print(f"{what}: {len(a)} kernels, total {total_a:.1f} us, torch {total_b:.1f} us ({100 * (total_a / total_b - 1):+.2f} %)")
    assert not off, "\n".join(off)
    assert abs(total_a / total_b - 1) <= 0.005


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


def test_cublas_from_c():
    program = os.environ.get("ENIGMA_GPU_CUBLAS")
    if not program:
        pytest.skip("the C program was not built (ENIGMA_GPU_CUBLAS)")
    done = subprocess.run([program], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
