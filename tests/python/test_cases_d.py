"""Cases D: numbers and units. Every one is exact, since both clocks are scripted; E05 to E17, which are numbers too, stand
at the end."""

import fractions
import math
import os
import signal
import statistics
import sys
import threading
import time

import enigma
import numpy as np
import pytest
from caselib import (
    GRID, MS, SECOND, SOURCE, THREADS, US, assert_flagged, chrome_trace, dispatch, dispatches, export_all, footer,
    gpu_slices, hatchet_nodes, named, one, row_of, simulating)

scope = enigma.scope


@pytest.fixture
def sim():
    with simulating() as made:
        yield made


# ---- D01 to D04: stamps that cannot be right --------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [64, 48, 32])
@pytest.mark.parametrize("reversed_by", [1, 1000, SECOND])
def test_d01_end_before_start(tmp_path, bits, reversed_by):
    """No 1.8e19: flagged, counted, 0 in sums, and calls still count it."""
    with simulating(start_ns=3 * SECOND, counter_bits=bits) as sim, enigma.profile() as p:
        with scope("s"):
            sim.run("k", us=10)
            sim.run("k", stamps=(2 * SECOND, 2 * SECOND - reversed_by))
            sim.run("k", us=10)
    good, bad, good_too = dispatches(p)
    assert_flagged(p, bad)
    assert (good.gpu_time_us, good_too.gpu_time_us) == (10.0, 10.0)
    row = row_of(p.key_averages(), "gpu_dispatch", "k")
    assert (row.calls, row.gpu_total_us, row.gpu_busy_us) == (3, 20.0, 20.0)
    assert (row.min_us, row.median_us, row.max_us) == (10.0, 10.0, 10.0)
    assert row_of(p.key_averages(), "s").gpu_total_us == 20.0
    out = export_all(p, tmp_path)
    assert out["chrome"].metadata["gpu_invalid"] == 1 and len(gpu_slices(out["chrome"])) == 2
    assert "1 GPU time" in out["tree"]


INVALID = {
    "not available": (64, None),
    "untouched": (64, (0, 0)),
    "start untouched": (64, (0, 2 * MS)),
    "end untouched": (64, (2 * MS, 0)),
    "all ones": (64, (2**64 - 1, 2**64 - 1)),
    "end all ones": (64, (2 * MS, 2**64 - 1)),
    "start all ones": (64, (2**64 - 1, 2 * MS)),
    "32 bits of ones": (32, (2**32 - 1, 2**32 - 1)),
    "16 bits of ones": (16, (5, 2**16 - 1)),
    "zero after cutting": (32, (2**32, 2**32 + 10)),
}


@pytest.mark.parametrize("bits, stamps", INVALID.values(), ids=INVALID.keys())
def test_d02_no_stamps(bits, stamps):
    """Flagged, CPU time kept, no exception from the dispatch; metrics stay, with a rate of 0."""
    with simulating(counter_bits=bits) as sim, enigma.profile() as p:
        with scope("s"):
            sim.advance(5 * US)
            sim.run("k", stamps=stamps, metrics={"flops": 1e6})
            sim.advance(5 * US)
    event = dispatch(p)
    assert_flagged(p, event)
    assert event.duration_us >= 0.0 and event.metrics == {"flops": 1e6}
    assert event.start_ns == named(p, "s").start_ns + 5 * US
    row = row_of(p.key_averages(), "gpu_dispatch", "k")
    assert (row.calls, row.gpu_total_us, row.metrics) == (1, 0.0, {"flops": 1e6})
    assert math.isfinite(row.gflops_per_s)


def test_d02_reasons_differ(sim):
    """Each kind of bad stamp has its own words, and the profile counts them all."""
    entries = [None, (0, 5), (7 * MS, 6 * MS), (2**64 - 1, 5)]
    with enigma.profile() as p:
        for stamps in entries:
            sim.run("k", stamps=stamps)
    reasons = [e.metadata["gpu_time"] for e in p.events()]
    assert len(set(reasons)) == len(entries)
    assert any(line.startswith("4 ") for line in footer(p))


def test_d02_dispatch_timed_without_stamps(sim):
    """dispatch_timed gives 0.0, never a number made of nothing."""
    sim.runtime.script([None, (5, 3), (1_000, 2_500)])
    assert [sim.kernel("k").dispatch_timed(GRID, THREADS) for _ in range(3)] == [0.0, 0.0, 1.5]


@pytest.mark.parametrize("bits, tick_ns, start, end, us", [
    (32, 10.0, 0xFFFFFFF0, 0x10, 0.32),
    (32, 1.0, 0xFFFFFFF0, 0x10, 0.032),
    (24, 100.0, 0xFFFFFE, 0x000001, 0.3),
    (16, 1000.0, 0xFFF0, 0x0F, 31.0),
    (40, 1.0, 2**40 - 100, 900, 1.0),
    (64, 1.0, 2**64 - 100, 900, 1.0),
    (32, 10.0, 0x10, 0x30, 0.32),
    (32, 1.0, 0x7FFFFFFF, 0x80000001, 0.002),
])
def test_d04_counters_wrap(bits, tick_ns, start, end, us):
    """A counter that wraps between start and end is subtracted modulo its width."""
    span = 1 << bits
    ticks = (start, end if end > start else end + (span if bits < 64 else 0))
    with simulating(start_ns=10 * SECOND, counter_bits=bits, tick_ns=tick_ns) as sim, enigma.profile() as p:
        sim.run("k", stamps=tuple(t * int(tick_ns) for t in ticks))
    event = dispatch(p)
    assert event.gpu_time_us == pytest.approx(us, rel=1e-12)
    assert "gpu_time" not in event.metadata
    sim.runtime.script([tuple(t * int(tick_ns) for t in ticks)])
    assert sim.kernel("k").dispatch_timed(GRID, THREADS) == pytest.approx(us, rel=1e-12)


@pytest.mark.parametrize("bits", [20, 24, 32])
def test_d04_wraps_between_dispatches(bits):
    """Over many wraps of the counter each dispatch lands where the host clock says."""
    with simulating(counter_bits=bits) as sim, enigma.profile() as p:
        for _ in range(50):
            sim.run("k")
            sim.advance((1 << bits) // 7)
    assert [e.gpu_time_us for e in p.events()] == [1.0] * 50
    assert all(abs(e.gpu_start_ns - e.start_ns) <= 20 * US for e in p.events())
    assert all("gpu_clock" not in e.metadata for e in p.events())


# ---- D05 to D11: units, rates, sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tick_ns", [1.0, 0.5, 10.0, 1000 / 24, 1000 / 19.2, 83.33333333333333, 320.0, 1000.0, 1e6])
def test_d05_units(tick_ns):
    """1 234 567 ns are 1234.567 us within the source's resolution, from a source of any tick."""
    with simulating(tick_ns=tick_ns) as sim, enigma.profile() as p:
        sim.run("k", us=1234.567)
    assert dispatch(p).gpu_time_us == pytest.approx(1234.567, abs=tick_ns / 1000)
    event = dispatch(p)
    assert (event.gpu_end_ns - event.gpu_start_ns) / 1000 == pytest.approx(1234.567, abs=tick_ns / 1000 + 0.001)


def test_d05_units_of_opencl(opencl):
    """On a real device the time is the stamps' difference in us, and lies inside the dispatch."""
    a = np.arange(1024, dtype=np.int32)
    prepared = opencl.prepare(opencl.compile(SOURCE, "twice"), [a], a.nbytes)
    with enigma.profile() as p:
        for _ in range(5):
            prepared.dispatch((1024, 1, 1), (64, 1, 1))
    assert (np.frombuffer(prepared.read_output(), np.int32) == 2 * a).all()
    for event in dispatches(p):
        assert 0.0 < event.gpu_time_us <= event.duration_us
        assert (event.gpu_end_ns - event.gpu_start_ns) / 1000 == pytest.approx(event.gpu_time_us, rel=0.05, abs=0.1)
        assert event.category == "opencl"


@pytest.mark.parametrize("flops, bytes_, us, gflops, gbytes", [
    (2e9, 1e9, 1000, 2000.0, 1000.0),
    (1, 1, 1, 0.001, 0.001),
    (2**30, 2**30, 1000, 1073.741824, 1073.741824),
    (123.0, 456.0, 0.5, 0.246, 0.912),
    (0, 5e3, 5, 0.0, 1.0),
])
def test_d07_rates(sim, flops, bytes_, us, gflops, gbytes):
    """GFLOP/s and GB/s count in 10^9; the table says GB/s; scopes and benchmarks have the same formula."""
    work = {"flops": flops, "bytes": bytes_}
    with enigma.profile() as p:
        with scope("s", metrics=work):
            sim.run("k", us=us, metrics=work)
    for row in p.key_averages().rows():
        assert row.gflops_per_s == pytest.approx(gflops, rel=1e-12)
        assert row.gbytes_per_s == pytest.approx(gbytes, rel=1e-12)
        assert row.rate_source == "gpu"
    header = p.key_averages().table().splitlines()[0]
    assert "GFLOP/s" in header and "GB/s" in header and "GiB" not in header
    sim.runtime.script([(sim.now, sim.now + round(us * US))] * 3)
    bench = enigma.benchmark_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=3, warmup=0, flops=flops,
                                    bytes_moved=bytes_)
    assert bench.gflops_per_s == pytest.approx(gflops, rel=1e-12)
    assert bench.gbytes_per_s == pytest.approx(gbytes, rel=1e-12)


def test_d07_columns_only_with_metrics(sim):
    """Without flops and bytes there are no rate columns."""
    with enigma.profile() as p:
        sim.run("k", metrics={"other": 1})
    header = p.key_averages().table().splitlines()[0]
    assert "GFLOP/s" not in header and "GB/s" not in header


@pytest.mark.parametrize("kind", ["scope", "dispatch", "flagged"])
def test_d08_no_time(sim, tmp_path, kind):
    """Work without any time: 0.0, "-" in the table, no division by zero, no inf."""
    with enigma.profile() as p:
        if kind == "scope":
            with scope("s", metrics={"flops": 1e6, "bytes": 1e6}):
                pass
        else:
            sim.run("k", stamps=None if kind == "flagged" else (sim.now, sim.now), metrics={"flops": 1e6, "bytes": 1e6})
    row = one(p.key_averages().rows())
    assert (row.gflops_per_s, row.gbytes_per_s, row.rate_source) == (0.0, 0.0, None)
    line = p.key_averages().table().splitlines()[2]
    assert line.split()[-2:] == ["-", "-"]
    text = str(export_all(p, tmp_path))
    assert "inf" not in text.replace("info", "") and "nan" not in text


def test_d08_cpu_fallback(sim):
    """Without GPU time at all the rate is over CPU time, and says so."""
    with enigma.profile() as p:
        with scope("s", metrics={"flops": 2e6, "bytes": 1e6}):
            sim.advance(MS)
    row = one(p.key_averages().rows())
    assert (row.gflops_per_s, row.gbytes_per_s, row.rate_source) == (2.0, 1.0, "cpu")


@pytest.mark.parametrize("key, field", [("flops", "gflops_per_s"), ("bytes", "gbytes_per_s")])
def test_d10_mixed_rows(sim, key, field):
    """Of 3 events with the metric and 2 without: the sum of 3, over the time of those 3."""
    with enigma.profile() as p:
        for i in range(5):
            sim.run("k", us=10 if i % 2 == 0 else 1000, metrics={key: 2e6} if i % 2 == 0 else None)
    row = one(p.key_averages().rows())
    assert (row.calls, row.metrics, row.gpu_total_us) == (5, {key: 6e6}, 2030.0)
    assert getattr(row, field) == pytest.approx(6e6 / 30.0 / 1000.0, rel=1e-12)


def test_d10_flops_and_bytes_on_different_events(sim):
    """Each rate is over the events that carry its own metric."""
    with enigma.profile() as p:
        sim.run("k", us=10, metrics={"flops": 1e6})
        sim.run("k", us=40, metrics={"bytes": 1e6})
    row = one(p.key_averages().rows())
    assert (row.gflops_per_s, row.gbytes_per_s) == (100.0, 25.0)


def test_d10_carriers_without_valid_time(sim):
    """A carrier whose time is not known adds its metric to the sum and not to the rate."""
    with enigma.profile() as p:
        sim.run("k", us=10, metrics={"flops": 1e6})
        sim.run("k", stamps=None, metrics={"flops": 1e6})
    row = one(p.key_averages().rows())
    assert (row.metrics["flops"], row.gflops_per_s) == (2e6, 100.0)


@pytest.mark.parametrize("value, count", [
    (2**63, 1), (2**64, 1), (2**70, 1), (10**300, 1), (2**63 - 1, 3), (10**18, 100), (1e18, 100), (2**53 + 1, 2), (1.7e308, 3),
    (10**400, 2)])
def test_d11_big_counts(sim, tmp_path, value, count):
    """Sums of big integers are right to a double, never negative, never wrapped; files stay valid."""
    with enigma.profile() as p:
        with scope("s"):
            for _ in range(count):
                sim.run("k", us=1, metrics={"flops": value, "bytes": value})
    try:
        expected = float(value * count)
    except OverflowError:
        expected = math.inf
    row = row_of(p.key_averages(), "gpu_dispatch", "k")
    assert row.metrics["flops"] == row.metrics["bytes"] == pytest.approx(expected, rel=1e-15)
    assert row.gflops_per_s >= 0.0
    out = export_all(p, tmp_path)
    for _, node in hatchet_nodes(out["hatchet"]):
        assert all(v >= 0 and math.isfinite(v) for v in node["metrics"].values())
    assert "inf" not in out["table"]


def test_d11_big_byte_counts(sim):
    """Byte counts are exact integers."""
    sim.kernel("k", inputs=[bytes(1_000_003)], output_size=[7, 11])
    with enigma.profile(profile_memory=True) as p:
        for _ in range(1000):
            sim.run("k")
    row = one(p.key_averages().rows())
    assert (row.input_bytes, row.output_bytes) == (1_000_003_000, 18_000)
    assert type(row.input_bytes) is int


# ---- D13 to D16: sums over time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ns, count", [(100, 1_000_000), (333, 1_000), (1, 10_000)])
def test_d13_many_small_times(sim, ns, count):
    """A million times 0.1 us are 100000.0 us."""
    start = sim.now
    sim.runtime.script([(start + i * ns, start + (i + 1) * ns) for i in range(count)])
    kernel = sim.kernel("k")
    with enigma.profile() as p:
        for _ in range(count):
            kernel.dispatch(GRID, THREADS)
    row = one(p.key_averages().rows())
    assert (row.calls, row.gpu_total_us) == (count, count * ns / 1000)
    assert row.gpu_avg_us == pytest.approx(ns / 1000, rel=1e-12)
    assert row.gpu_busy_us == row.cpu_total_us == count * ns / 1000


def test_d13_metrics_are_summed_with_care(sim):
    """Ten thousand times 0.1, and small ones beside a big one."""
    with enigma.profile() as p:
        with scope("s", metrics={"x": 1e16, "y": 0.0}):
            pass
        for _ in range(10_000):
            with scope("s", metrics={"x": 1.0, "y": 0.1}):
                pass
    metrics = one(p.key_averages().rows()).metrics
    assert metrics["x"] == 1e16 + 10_000
    assert metrics["y"] == pytest.approx(float(10_000 * fractions.Fraction(0.1)), rel=1e-15)


@pytest.mark.parametrize("queues", [2, 4])
def test_d14_overlapping_queues(tmp_path, queues):
    """One kernel of 100 us on each of several queues at once: the sum is their number times 100, the union is 100."""
    with simulating(queues=queues) as sim, enigma.profile() as p:
        with scope("s"):
            for queue in range(queues):
                sim.run("k", us=100, queue=queue, wait=False)
            sim.runtime.synchronize()
    for row in p.key_averages().rows():
        assert (row.gpu_total_us, row.gpu_busy_us) == (100.0 * queues, 100.0)
    assert row_of(p.key_averages(), "s").cpu_total_us == 100.0
    assert [e.queue_id for e in dispatches(p)] == list(range(queues))
    assert "%" not in p.key_averages().table() + p.tree()
    assert len({s.track for s in gpu_slices(chrome_trace(p, tmp_path))}) == queues


@pytest.mark.parametrize("second_at, union", [(0, 100), (50, 150), (99, 199), (100, 200), (150, 200)])
def test_d14_partial_overlap(second_at, union):
    """The union of two intervals, however they lie."""
    with simulating(queues=2) as sim, enigma.profile() as p:
        base = sim.now
        sim.run("k", stamps=(base, base + 100 * US), queue=0, wait=False)
        sim.run("k", stamps=(base + second_at * US, base + (second_at + 100) * US), queue=1, wait=False)
    row = one(p.key_averages().rows())
    assert (row.gpu_total_us, row.gpu_busy_us) == (200.0, float(union))


@pytest.mark.parametrize("offset_ns", [10**12, -(10**15), 0, 10**18])
@pytest.mark.parametrize("drift_ppm", [50.0, -50.0, 0.0, 200.0])
def test_d16_drifting_clocks(offset_ns, drift_ppm):
    """Offset and drift over ten minutes: device and host times of a dispatch differ by less than 20 us throughout."""
    with simulating(start_ns=SECOND, clock_offset_ns=offset_ns, drift_ppm=drift_ppm) as sim, enigma.profile() as p:
        for second in range(600):
            sim.run("k")
            sim.advance(SECOND - 1000)
    assert len(p.events()) == 600
    for event in p.events():
        assert abs(event.gpu_start_ns - event.start_ns) < 20 * US
        assert abs(event.gpu_end_ns - event.end_ns) < 20 * US
        assert event.gpu_time_us == pytest.approx(1.0, abs=0.002)
        assert "gpu_time" not in event.metadata


@pytest.mark.parametrize("drift_ppm", [50.0, -50.0])
@pytest.mark.parametrize("tick_ns, bits", [(1.0, 64), (83.333, 64), (1000.0, 32), (10.0, 36)])
def test_d16_drift_with_long_gaps(drift_ppm, tick_ns, bits):
    """Work only now and then, coarse ticks and narrow counters: still below 20 us plus a tick."""
    with simulating(start_ns=SECOND, clock_offset_ns=10**12, drift_ppm=drift_ppm, tick_ns=tick_ns, counter_bits=bits) as sim:
        with enigma.profile() as p:
            for pause in (1, 10, 60, 200, 5, 324):
                sim.run("k")
                sim.advance(pause * SECOND)
            sim.run("k")
    for event in p.events():
        assert abs(event.gpu_start_ns - event.start_ns) < 20 * US + tick_ns


def test_d17_time_is_the_kernels_own(opencl):
    """Device time is of the kernel's own event: it grows with the kernel's work, and waits add nothing to it."""
    size = 4096
    prepared = {
        rounds: opencl.prepare(opencl.compile(SOURCE, "spin"), [np.array([rounds], np.int32)], size * 4)
        for rounds in (1, 20_000)}
    with enigma.profile() as p:
        for rounds in (1, 20_000, 1):
            prepared[rounds].dispatch((size, 1, 1), (64, 1, 1), wait=False)
        opencl.synchronize()
    before, long, after = (e.gpu_time_us for e in dispatches(p))
    assert long > before and long > after


# ---- D19 to D22 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [False, True])
def test_d19_bytes(sim, on):
    """Off: 0. On: ints; buffers only, on gpu_dispatch only; by-value arguments do not count; buffer_count is always there."""
    a, b = np.zeros(100, np.float32), np.zeros((3, 5), np.int64)
    sim.kernel("k", inputs=[a, b, np.float32(2)], output_size=[400, 80])
    with enigma.profile(profile_memory=on) as p:
        with scope("s"):
            sim.run("k")
    event = dispatch(p)
    assert (event.input_bytes, event.output_bytes) == ((400 + 120, 480) if on else (0, 0))
    assert type(event.input_bytes) is type(event.output_bytes) is int
    assert event.buffer_count == 4
    outer = named(p, "s")
    assert (outer.input_bytes, outer.output_bytes, outer.buffer_count) == (0, 0, 0)
    row = row_of(p.key_averages(), "gpu_dispatch", "k")
    assert (row.input_bytes, row.output_bytes) == (event.input_bytes, event.output_bytes)


def test_d19_execute_counts_once(sim):
    """Of the steps of execute() only gpu_dispatch has bytes."""
    kernel = sim.runtime.compile("source", "k")
    with enigma.profile(profile_memory=True) as p:
        assert len(sim.runtime.execute(kernel, [b"12345678"], 4, grid=GRID, threads=THREADS)) == 4
    assert [(e.name, e.input_bytes, e.output_bytes) for e in p.events() if e.input_bytes or e.output_bytes] == [
        ("gpu_dispatch", 8, 4)]
    assert {e.name for e in p.events()} >= {"execute_total", "gpu_dispatch", "read_output"}


@pytest.mark.parametrize("shapes", [False, True])
def test_d19_shapes(sim, shapes):
    """record_shapes puts one (shape, dtype) per input on gpu_dispatch."""
    sim.kernel("k", inputs=[np.zeros((2, 3), np.float32), b"abc", np.int16(4)], output_size=4)
    with enigma.profile(record_shapes=shapes) as p:
        sim.run("k")
    metadata = dispatch(p).metadata
    if shapes:
        assert metadata["input_shapes"][0] == ((2, 3), "float32")
        assert metadata["input_shapes"][1][0] == (3,)
        assert metadata["input_shapes"][2] == ((), "int16")
    else:
        assert "input_shapes" not in metadata


def bench_of(sim, times_us, **options):
    """A benchmark whose runs take these times."""
    sim.runtime.script([(MS, MS + round(us * US)) for us in times_us])
    return enigma.benchmark_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=len(times_us), warmup=0, **options)


@pytest.mark.parametrize("times, median, p90", [
    (list(range(1, 11)), 5.5, 9.1), ([5], 5.0, 5.0), ([1, 100], 50.5, 90.1), ([3, 1, 2], 2.0, 2.8),
    ([7] * 9, 7.0, 7.0), ([10, 1, 1, 1], 1.0, 7.3), ([0, 0, 0], 0.0, 0.0)])
def test_d20_percentiles(sim, times, median, p90):
    """Median and p90 by linear interpolation, as NumPy's; min <= median <= p90 <= max; the mean is exact."""
    bench = bench_of(sim, times)
    assert (bench.median_us, bench.p90_us) == (median, pytest.approx(p90, rel=1e-12))
    assert bench.p90_us == pytest.approx(float(np.percentile(times, 90)), rel=1e-12)
    assert bench.min_us <= bench.median_us <= bench.p90_us <= bench.max_us
    assert (bench.min_us, bench.max_us) == (min(times), max(times))
    assert bench.mean_us == pytest.approx(statistics.fmean(times), rel=1e-15)
    assert bench.gpu_times_us == tuple(map(float, times)) and bench.calls == len(times)
    again = enigma.KernelBenchmark(kernel_name="k", gpu_times_us=tuple(map(float, times)))
    assert (again.median_us, again.p90_us, again.mean_us) == (bench.median_us, bench.p90_us, bench.mean_us)


@pytest.mark.parametrize("seed", range(5))
def test_d20_random_times(sim, seed):
    """The same for random times of random number."""
    random_ = np.random.default_rng(seed)
    times = np.round(random_.exponential(50.0, random_.integers(1, 200)), 3)
    bench = bench_of(sim, times)
    assert bench.median_us == pytest.approx(np.median(times), rel=1e-12)
    assert bench.p90_us == pytest.approx(np.percentile(times, 90), rel=1e-12)
    assert bench.mean_us == pytest.approx(times.mean(), rel=1e-12)
    assert bench.min_us <= bench.median_us <= bench.p90_us <= bench.max_us


@pytest.mark.parametrize("repeat", [1, 2])
def test_d22_few_runs(sim, repeat):
    """With one or two runs all statistics are finite and summary() is a line."""
    bench = bench_of(sim, [4.0] * repeat, flops=1e6, bytes_moved=1e6)
    for value in (bench.min_us, bench.median_us, bench.mean_us, bench.p90_us, bench.max_us, bench.gflops_per_s,
                  bench.gbytes_per_s):
        assert math.isfinite(value)
    assert bench.calls == repeat
    assert len(bench.summary().splitlines()) == 1


# ---- E05 to E17 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warmup, seen", [(10, False), (1, False), (0, True)])
def test_e05_first_dispatch_compiles(sim, warmup, seen):
    """300 ms of the first dispatch are not among the times with a warm-up; without one max_us shows them."""
    sim.runtime.script([(MS, 301 * MS)])
    bench = enigma.benchmark_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=20, warmup=warmup)
    assert (bench.max_us == 300_000.0) == seen
    assert bench.median_us == 1.0 and bench.calls == 20
    assert (sim.runtime.untimed_dispatches, sim.runtime.timed_dispatches) == (warmup, 20)


BAD_RUNS = [
    ({"repeat": 0}, ValueError), ({"repeat": -1}, ValueError), ({"repeat": True}, TypeError), ({"repeat": 1.5}, TypeError),
    ({"repeat": "3"}, TypeError), ({"repeat": None}, TypeError), ({"repeat": 2**64}, ValueError), ({"repeat": -(2**70)}, ValueError),
    ({"warmup": -1}, ValueError), ({"warmup": 1.0}, TypeError), ({"warmup": False}, TypeError), ({"warmup": None}, TypeError),
    ({"grid": (0, 1, 1)}, ValueError), ({"grid": (-1, 1, 1)}, ValueError), ({"grid": (1, 1, 1, 1)}, ValueError),
    ({"grid": ()}, ValueError), ({"grid": (1.0, 1, 1)}, TypeError), ({"grid": "111"}, TypeError), ({"grid": None}, TypeError),
    ({"grid": (2**40, 1, 1)}, ValueError), ({"grid": (2**70, 1, 1)}, ValueError),
    ({"threads": (0, 1, 1)}, ValueError), ({"threads": (2048, 1, 1)}, ValueError), ({"threads": (64, 64, 1)}, ValueError),
    ({"threads": (1, 1, 1, 1)}, ValueError), ({"threads": (1, None, 1)}, TypeError),
]
BAD_WORK = [
    ({name: value}, error)
    for name in ("flops", "bytes_moved")
    for value, error in ((-1, ValueError), (math.nan, ValueError), (math.inf, ValueError), (-math.inf, ValueError),
                         ("1", TypeError), ([1], TypeError), (1j, TypeError))
]


@pytest.mark.parametrize("options, error", BAD_RUNS + BAD_WORK, ids=lambda v: str(v)[:40])
def test_e07_benchmark_arguments(sim, options, error):
    """A wrong argument is an error before anything runs."""
    arguments = {"grid": GRID, "threads": THREADS, **options}
    with pytest.raises(error):
        enigma.benchmark_kernel(sim.kernel("k"), **arguments)
    assert sim.runtime.untimed_dispatches == sim.runtime.timed_dispatches == 0


@pytest.mark.parametrize("options, error", BAD_RUNS, ids=lambda v: str(v)[:40])
def test_e07_profile_kernel_arguments(sim, options, error):
    """The same for profile_kernel."""
    arguments = {"grid": GRID, "threads": THREADS, **options}
    with pytest.raises(error):
        enigma.profile_kernel(sim.kernel("k"), **arguments)
    assert sim.runtime.untimed_dispatches == sim.runtime.timed_dispatches == 0


@pytest.mark.parametrize("thing", [None, "k", 3, object()], ids=repr)
@pytest.mark.parametrize("function", [enigma.benchmark_kernel, enigma.profile_kernel], ids=lambda f: f.__name__)
def test_e07_not_a_prepared_kernel(function, thing):
    """TypeError for what is no PreparedKernel; grid and threads have no default."""
    with pytest.raises(TypeError):
        function(thing, grid=GRID, threads=THREADS)
    with pytest.raises(TypeError):
        function(thing)


def test_e07_released_kernel(sim):
    """A released kernel is a RuntimeError before anything runs."""
    kernel = sim.kernel("k")
    kernel.release()
    for function in (enigma.benchmark_kernel, enigma.profile_kernel):
        with pytest.raises(RuntimeError):
            function(kernel, grid=GRID, threads=THREADS)
    assert sim.runtime.timed_dispatches == 0


def interrupt_inside(name):
    """Sends Ctrl-C once the main thread is inside the function of that name."""
    main = threading.main_thread().ident

    def watch():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            frame = sys._current_frames().get(main)
            while frame is not None:
                if frame.f_code.co_name == name:
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                frame = frame.f_back
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.parametrize("function", [enigma.benchmark_kernel, enigma.profile_kernel], ids=lambda f: f.__name__)
@pytest.mark.parametrize("options", [{"repeat": 10**9}, {"repeat": 1, "warmup": 10**9}], ids=["repeat", "warmup"])
def test_e08_ctrl_c(sim, function, options):
    """Ctrl-C ends a run of a thousand million; the runtime works afterwards and the outer profiler is active again."""

    def long_run():
        function(sim.kernel("k"), grid=GRID, threads=THREADS, **options)

    with enigma.profile() as p:
        watcher = interrupt_inside("long_run")
        with pytest.raises(KeyboardInterrupt):
            long_run()
        watcher.join()
        assert enigma.get_active_profiler() is p
        sim.run("k", us=3)
    assert [e.gpu_time_us for e in p.events()] == [3.0]
    assert function(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=2, warmup=1)


def test_e08_ctrl_c_on_a_device(opencl):
    """The same on a real device: it is usable afterwards."""
    a = np.arange(1024, dtype=np.int32)
    prepared = opencl.prepare(opencl.compile(SOURCE, "twice"), [a], a.nbytes)

    def long_run():
        enigma.benchmark_kernel(prepared, grid=(1024, 1, 1), threads=(64, 1, 1), repeat=10**8)

    watcher = interrupt_inside("long_run")
    with pytest.raises(KeyboardInterrupt):
        long_run()
    watcher.join()
    prepared.dispatch((1024, 1, 1), (64, 1, 1))
    assert (np.frombuffer(prepared.read_output(), np.int32) == 2 * a).all()


def test_e13_two_devices(tmp_path):
    """A kernel on device 1 is timed on device 1, while device 0 has other work."""
    with simulating(devices=2) as sim:
        kernel = sim.kernel("k")
        sim.runtime.script([(MS, 51 * MS)], device=0)
        sim.runtime.script([(MS, MS + 7 * US)] * 2, device=1)
        assert kernel.dispatch_timed(GRID, THREADS, device=1) == 7.0
        with enigma.profile() as p:
            kernel.dispatch(GRID, THREADS, device=1)
            kernel.dispatch(GRID, THREADS, device=0)
    assert [(e.device_id, e.gpu_time_us) for e in p.events()] == [(1, 7.0), (0, 50_000.0)]
    trace = chrome_trace(p, tmp_path)
    assert sorted(trace.threads[s.track] for s in gpu_slices(trace)) == ["GPU 0 queue 0", "GPU 1 queue 0"]


@pytest.mark.parametrize("options", [{"device": 2}, {"device": -1}, {"queue": 1}, {"queue": -1}, {"device": "0"},
                                     {"queue": 0.0}, {"queue": 2**40}])
def test_e13_no_such_device_or_queue(options):
    """ValueError or TypeError before anything runs."""
    with simulating(devices=2) as sim:
        for method in (sim.kernel("k").dispatch, sim.kernel("k").dispatch_timed):
            with pytest.raises((ValueError, TypeError)):
                method(GRID, THREADS, **options)
        assert sim.runtime.untimed_dispatches == sim.runtime.timed_dispatches == 0


def test_e14_other_work_in_the_queue(sim):
    """A kernel of 50 ms queued just before: the queue is drained first, and no sample has it in."""
    other = sim.kernel("other")
    sim.runtime.script([(sim.now, sim.now + 50 * MS)])
    before = sim.now
    other.dispatch(GRID, THREADS, wait=False)
    assert sim.now == before
    bench = enigma.benchmark_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=5, warmup=0)
    assert bench.gpu_times_us == (1.0,) * 5
    assert sim.now == before + 50 * MS + 5 * US


def test_e16_profile_kernel_agrees_with_benchmark_kernel(sim):
    """The same runs: equal times, calls == repeat without the warm-up, bytes on by default."""
    times = [3.0, 1.0, 2.0, 10.0]
    sim.kernel("k", inputs=[bytes(100)], output_size=28)
    bench = bench_of(sim, times)
    sim.runtime.script([None] * 2 + [(MS, MS + round(us * US)) for us in times])
    with enigma.profile() as outer:
        result = enigma.profile_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=4, warmup=2)
    row = row_of(result, "gpu_dispatch", "k")
    assert (row.calls, row.gpu_total_us, row.median_us) == (4, sum(times), bench.median_us)
    assert (row.min_us, row.max_us) == (bench.min_us, bench.max_us)
    assert (row.input_bytes, row.output_bytes) == (400, 112)
    assert outer.events() == []
    assert sim.runtime.untimed_dispatches == 2
    off = enigma.profile_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=1, profile_memory=False)
    assert row_of(off, "gpu_dispatch", "k").input_bytes == 0


def test_e16_defaults(sim):
    """benchmark_kernel: 100 after 10; profile_kernel: 50 after 5."""
    assert enigma.benchmark_kernel(sim.kernel("k"), grid=GRID, threads=THREADS).calls == 100
    assert (sim.runtime.untimed_dispatches, sim.runtime.timed_dispatches) == (10, 100)
    result = enigma.profile_kernel(sim.kernel("k"), grid=GRID, threads=THREADS)
    assert row_of(result, "gpu_dispatch", "k").calls == 50
    assert (sim.runtime.untimed_dispatches, sim.runtime.timed_dispatches) == (15, 150)


@pytest.mark.parametrize("times", [[1.0, 2.0], [0.0, 0.0], [1e6]])
@pytest.mark.parametrize("options, gflops, gbytes", [
    ({}, False, False), ({"flops": 3e6}, True, False), ({"bytes_moved": 2e6}, False, True),
    ({"flops": 3e6, "bytes_moved": 2e6}, True, True)])
def test_e17_summary(sim, times, options, gflops, gbytes):
    """One line that names min, p50, mean, p90 and max, and the rates that are known; no nan."""
    bench = bench_of(sim, times, **options)
    text = bench.summary()
    assert len(text.splitlines()) == 1 and "\n" not in text
    assert all(word in text for word in ("k", "min", "p50", "mean", "p90", "max", "us"))
    assert "nan" not in text.lower() and "inf" not in text.lower()
    timed = bench.median_us > 0
    if timed:
        assert (("GFLOP/s" in text), ("GB/s" in text)) == (gflops, gbytes)
        assert bench.gflops_per_s == pytest.approx(3e6 / bench.median_us / 1000 if gflops else 0.0)
        assert bench.gbytes_per_s == pytest.approx(2e6 / bench.median_us / 1000 if gbytes else 0.0)
    else:
        assert (bench.gflops_per_s, bench.gbytes_per_s) == (0.0, 0.0)
    assert bench.summary() == text
