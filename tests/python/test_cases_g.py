"""Cases G: many events, deep paths, long names. Counts and memory; how long it takes is for bench/ to say."""

import contextlib
import contextvars
import gc
import os
import sys
import threading

import chrome_check
import enigma
import pytest
from caselib import (
    US, chrome_trace, cpu_slices, dispatches, gpu_slices, hatchet_frame, hatchet_json, hatchet_nodes, measures_memory, named, one, python,
    resident_kib, row_of, simulating)

scope = enigma.scope


@pytest.fixture
def sim():
    with simulating() as made:
        yield made


@contextlib.contextmanager
def nested(names):
    """Scopes of these names, one inside the other, without recursion."""
    opened = []
    for name in names:
        s = scope(name)
        s.__enter__()
        opened.append(s)
    yield
    while opened:
        opened.pop().__exit__(None, None, None)


# ---- G01, G02 ------------------------------------------------------------------------------------------------------------------


@measures_memory
def test_g01_off_costs_no_memory():
    """A million scopes without a profiler allocate nothing that stays."""

    def run(count):
        for _ in range(count):
            with scope("x"):
                pass

    run(1000)
    gc.collect()
    memory, blocks = resident_kib(), sys.getallocatedblocks()
    run(1_000_000)
    assert sys.getallocatedblocks() - blocks < 50
    assert resident_kib() - memory < 512
    with enigma.profile() as p:
        pass
    assert p.events() == []


class Watched:
    """Tells when anything looks at it."""

    def __init__(self):
        self.seen = []

    def __float__(self):
        self.seen.append("float")
        return 1.0

    def __repr__(self):
        self.seen.append("repr")
        return "watched"

    def __str__(self):
        self.seen.append("str")
        return "watched"

    @property
    def shape(self):
        self.seen.append("shape")
        raise AttributeError("shape")


def test_g01_off_evaluates_nothing():
    """Metric values and metadata are not looked at when off, and once when on."""
    watched = Watched()
    for _ in range(10):
        with scope("x", metrics={"flops": watched}, category="c", thing=watched):
            pass
        with enigma.record_function("x", thing=watched):
            pass
    assert watched.seen == []
    with enigma.profile() as p:
        with scope("x", metrics={"flops": watched}, thing=watched):
            pass
    assert watched.seen.count("float") == 1 and watched.seen.count("repr") == 1
    assert named(p, "x").metrics == {"flops": 1.0} and named(p, "x").metadata == {"thing": "watched"}
    count = len(watched.seen)
    p.events(), p.tree(), p.key_averages().table()
    assert len(watched.seen) == count


def test_g01_off_after_a_profile():
    """After a profiler was left scopes record nothing and grow nothing."""
    with enigma.profile() as p:
        with scope("x"):
            pass
    gc.collect()
    blocks = sys.getallocatedblocks()
    for _ in range(100_000):
        with scope("x", metrics={"flops": 1}, tag="t"):
            pass
    assert sys.getallocatedblocks() - blocks < 50
    assert len(p.events()) == 1


@measures_memory
def test_g02_active_counts(sim):
    """A million scopes with a profiler are a million events, at a bounded size each, none of it Python objects."""
    with enigma.profile() as p:
        with scope("x"):
            pass
        gc.collect()
        memory, blocks = resident_kib(), sys.getallocatedblocks()
        for _ in range(1_000_000):
            with scope("x"):
                pass
        assert sys.getallocatedblocks() - blocks < 500
        assert resident_kib() - memory < 1_000_000 * 64 // 1024
    row = one(p.key_averages().rows())
    assert (row.name, row.calls) == ("x", 1_000_001)
    assert "dropped" not in p.key_averages().table() + p.tree()


# ---- G04 ------------------------------------------------------------------------------------------------------------------------

DROPS = """
import resource, sys
import enigma
with enigma.profile() as p:
    with enigma.scope("first"):
        pass
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20), resource.RLIM_INFINITY))
    text = "x" * 60_000
    for i in range(5_000):
        with enigma.scope("s", text=text):
            pass
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with enigma.scope("last"):
        pass
events = p.events()
table = p.key_averages().table()
p.export_chrome_trace(sys.argv[1] + "/x.trace.json")
p.export_hatchet(sys.argv[1] + "/x.hatchet.json")
import json
print(json.dumps({"names": [e.name for e in events], "table": table, "tree": p.tree()}))
"""


@measures_memory
def test_g04_drops_are_counted(tmp_path):
    """Out of memory: nothing fails, and what was dropped is counted in the table, the tree and every file."""
    import json
    done = python(DROPS, tmp_path)
    report = json.loads(done.stdout)
    names = report["names"]
    trace = chrome_check.check_file(tmp_path / "x.trace.json")
    dropped = trace.metadata["dropped"]
    assert dropped > 0
    assert names[0] == "first" and names[-1] == "last" and names.count("s") <= 5_000
    assert f"{dropped} event" in report["table"] and "dropped" in report["table"]
    assert f"{dropped} event" in report["tree"] and "dropped" in report["tree"]
    with open(tmp_path / "x.hatchet.json", encoding="utf-8") as file:
        assert json.load(file)[0]["metrics"]["dropped"] == dropped
    assert done.stderr == ""


# ---- G05, G11: many -----------------------------------------------------------------------------------------------------------------


@measures_memory
def test_g05_many_names():
    """A million distinct names: a million rows, and the memory is freed afterwards."""
    done = python("""
import ctypes, gc, sys, enigma
def resident():
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # what the C library keeps for reuse is not ours
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1])
before = resident()
count = 1_000_000
with enigma.profile() as p:
    for i in range(count):
        with enigma.scope(f"scope number {i}"):
            pass
result = p.key_averages()
assert len(result) == count
assert result.by_name("scope number 999999").calls == 1
assert len(p.key_averages(group_by="call_path")) == count
full = resident()
del p, result
gc.collect()
after = resident()
assert after - before < (full - before) / 20, (before, full, after)
""")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("count", [20_000])
def test_g05_many_names_in_files(sim, tmp_path, count):
    """Files and tree hold every one of many names, also where each is under another path."""
    with enigma.profile() as p:
        for i in range(count):
            with scope(f"s{i % 100}"), scope(f"t{i}"):
                pass
    assert len(chrome_trace(p, tmp_path).slices) == 2 * count
    assert len(hatchet_nodes(hatchet_json(p, tmp_path))) == 1 + 100 + count
    assert len(p.tree().splitlines()) == 1 + 100 + count


def test_g05_many_kernels_metrics_and_threads(sim):
    """Thousands of kernel names, metric keys and short-lived threads."""
    with enigma.profile() as p:
        for i in range(3_000):
            sim.run(f"k{i}", metrics={f"m{i}": i})
        for i in range(300):
            thread = threading.Thread(target=contextvars.copy_context().run, args=(thread_body,))
            thread.start()
            thread.join()
    result = p.key_averages()
    assert len(result) == 3_000 + 1
    assert row_of(result, "gpu_dispatch", "k2999").metrics == {"m2999": 2999.0}
    assert len(result.by_name("gpu_dispatch").metrics) == 3_000
    assert result.by_name("in thread").calls == 300


def thread_body():
    with scope("in thread"):
        pass


def test_g11_independent_of_the_hash_seed():
    """Rows of many events are the same, in the same order, whatever Python's hash seed is."""
    code = """
import enigma
from enigma.testing import ScriptedRuntime, scripted_clock
with scripted_clock() as clock, enigma.profile() as p:
    runtime = ScriptedRuntime()
    for i in range(2000):
        with enigma.scope(f"s{i % 37}", metrics={f"m{i % 5}": i}):
            runtime.prepare(f"k{i % 7}").dispatch((1, 1, 1), (1, 1, 1))
print(p.key_averages().table(), p.key_averages(group_by="call_path").table(), p.tree())
for row in p.key_averages().rows():
    print(row)
"""
    texts = {python(code, env={"PYTHONHASHSEED": seed}).stdout for seed in ("0", "1", "4242")}
    assert len(texts) == 1


def test_g11_a_million_events(sim):
    """key_averages over a million events is exact."""
    with enigma.profile() as p:
        for i in range(250_000):
            with scope("a"):
                with scope("b"):
                    sim.advance(3)
            with scope("b"):
                with scope("b"):
                    sim.advance(2)
    result = p.key_averages()
    a, b = row_of(result, "a"), row_of(result, "b")
    assert (a.calls, a.cpu_total_us, a.self_total_us) == (250_000, 750.0, 0.0)
    assert (b.calls, b.cpu_total_us, b.self_total_us) == (750_000, 1_250.0, 1_250.0)
    assert len(p.key_averages(group_by="call_path")) == 4


# ---- G07: depth ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 63, 64, 65, 66, 397, 398, 399, 400, 401, 402, 511, 512, 513, 5_000, 50_000])
def test_g07_depth(sim, tmp_path, depth):
    """Nothing overflows: rows, tree, files and dealloc; the Hatchet file is loadable, Chrome folds below 512."""
    with enigma.profile() as p:
        with nested(f"d{i}" for i in range(depth)):
            sim.run("k", us=5)
        assert sim.path() == ()
    probe, own = 1, depth + 1
    assert len(p.events()) == own + probe
    assert dispatches(p, "k")[0].call_path == tuple(f"d{i}" for i in range(depth))
    result = p.key_averages()
    assert len(result) == own + probe
    assert row_of(result, "d0").gpu_total_us == row_of(result, f"d{depth - 1}").gpu_total_us == 5.0
    if depth <= 5_000:
        deepest = one(r for r in p.key_averages(group_by="call_path").rows() if r.kernel_name == "k")
        assert len(deepest.call_path) == own
    lines = p.tree().splitlines()
    assert len(lines) == 1 + own + probe
    assert max(len(line) - len(line.lstrip(" ")) for line in lines) == min(2 * depth, 128)
    trace = chrome_trace(p, tmp_path)  # chrome_check refuses more than 512 levels
    shown = len(cpu_slices(trace))
    assert shown == min(own, 512) + probe
    assert trace.metadata["folded_slices"] == own + probe - shown
    assert [s.name for s in gpu_slices(trace)] == ["k", "probe"]
    literal = hatchet_json(p, tmp_path)
    nodes = hatchet_nodes(literal)
    assert max(len(path) for path, _ in nodes) == min(depth + 2, 400)
    root = literal[0]["metrics"]
    assert (root["count (inc)"], root["gpu_time (inc)"]) == (own + probe, 6.0)
    assert hatchet_frame(p, tmp_path).dataframe["count"].sum() == own + probe
    del p, result
    gc.collect()


def test_g07_deep_recursion_of_one_name(sim, tmp_path):
    """One name 5000 deep is one row whose time counts once."""
    with enigma.profile() as p:
        with nested(["f"] * 5_000):
            sim.advance(7 * US)
    row = one(p.key_averages().rows())
    assert (row.calls, row.cpu_total_us, row.self_total_us) == (5_000, 7.0, 7.0)
    chrome_trace(p, tmp_path)
    assert hatchet_json(p, tmp_path)[0]["metrics"]["time (inc)"] == 7.0


def test_g07_deep_python_recursion(sim):
    """A decorated function that recurses to Python's own limit raises RecursionError and leaves a clean path."""

    @enigma.scope("f")
    def f():
        f()

    with enigma.profile() as p:
        with pytest.raises(RecursionError):
            f()
        assert sim.path() == ()
    assert p.key_averages().by_name("f").calls > 10


def test_g07_deep_profilers(sim):
    """Hundreds of profilers inside each other: only the innermost records; all are freed."""
    profilers = [enigma.profile() for _ in range(500)]
    for i, p in enumerate(profilers):
        p.__enter__()
        scope(f"never left {i}").__enter__()
    sim.run("k")
    for p in reversed(profilers):
        p.__exit__(None, None, None)
    assert len(profilers[-1].events()) == 2
    assert len(dispatches(profilers[-1])[0].call_path) == 500
    assert all([e.name for e in p.events()] == [f"never left {i}"] for i, p in enumerate(profilers[:-1]))
    assert enigma.get_active_profiler() is None


# ---- G08: long names -------------------------------------------------------------------------------------------------------------------

GEMM = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_{}_align4, cutlass::arch::Sm80, {}>(Params)"


@pytest.mark.parametrize("make", [
    lambda i: "n" * 1_000_000 + str(i),
    lambda i: str(i) + "n" * 1_000_000,
    lambda i: "n" * 500_000 + str(i) + "n" * 500_000,
    lambda i: GEMM.format("nt", i) + " " * 80 + "x",
    lambda i: GEMM.format(f"t{i}", "float") * 3,
    lambda i: "\u77e9" * 100_000 + str(i),
], ids=["megabyte, end differs", "megabyte, begin differs", "megabyte, middle differs", "C++", "C++ three times", "wide"])
def test_g08_long_names(sim, tmp_path, make):
    """The table shortens with an ellipsis and keeps rows distinct; files and events have the whole name."""
    names = [make(i) for i in range(3)]
    with enigma.profile() as p:
        for name in names:
            sim.run(name, us=2)
            with scope(name):
                pass
    lines = p.key_averages().table(sort_by="name").splitlines()[2:]
    assert len(lines) == 6 and len(set(lines)) == 6
    assert all("\u2026" in line and len(line) < 400 for line in lines)
    assert all(len(line) < 2_000 for line in p.tree().splitlines())
    assert {e.kernel_name for e in dispatches(p)} == set(names)
    assert {r.kernel_name for r in p.key_averages().rows()} == {None, *names}
    assert {s.name for s in gpu_slices(chrome_trace(p, tmp_path))} == set(names)
    assert {path[-1] for path, _ in hatchet_nodes(hatchet_json(p, tmp_path))} >= {*names, *(f"gpu_dispatch:{n}" for n in names)}


def test_g08_names_that_fit_are_whole(sim):
    """Names of ordinary length are not shortened."""
    name = "a" * 40
    with enigma.profile() as p:
        sim.run(name)
    assert name in p.key_averages().table() and name in p.tree()


# ---- G10 ----------------------------------------------------------------------------------------------------------------------------------


def test_g10_launches_pair_across_threads(sim, tmp_path):
    """Events of many threads have the same numbers within their thread; launch and kernel still pair, each its own."""
    rounds, threads = 200, 6

    def run(number):
        for i in range(rounds):
            sim.run(f"k{number}", us=1 + number)

    for number in range(threads):
        sim.kernel(f"k{number}")
    lock = threading.Lock()

    def locked(number):
        for _ in range(rounds):
            with lock:
                sim.run(f"k{number}", us=1 + number)

    with enigma.profile() as p:
        pool = [threading.Thread(target=contextvars.copy_context().run, args=(locked, n)) for n in range(threads)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
    trace = chrome_trace(p, tmp_path)
    assert len(trace.flows) == len({flow.id for flow in trace.flows}) == rounds * threads
    for flow in trace.flows:
        assert flow.launch.args["kernel_name"] == flow.target.name
        assert flow.target.start >= flow.launch.start and flow.target.end == flow.launch.end
    assert os.getpid() in {s.pid for s in trace.slices}
