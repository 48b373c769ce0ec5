"""benchmark_kernel, profile_kernel and KernelBenchmark, with exact times from a script."""

import copy
import dataclasses
import math
import pickle

import enigma
import pytest
from enigma.testing import ScriptedRuntime

GRID, THREADS = (64, 1, 1), (32, 1, 1)
SIZES = {"grid": GRID, "threads": THREADS}


@pytest.fixture
def prepared(fake):
    return fake.prepare("k", [bytes(12)], 8)


def script_us(fake, *times):
    fake.script([None if us is None else (1_000, 1_000 + round(us * 1_000)) for us in times])


# ---- benchmark_kernel ---------------------------------------------------------------------------------------------------


def test_times_in_run_order_after_the_warm_up(fake, prepared):
    script_us(fake, 99, 98, 5, 3, 4, 1, 2)
    bench = enigma.benchmark_kernel(prepared, **SIZES, repeat=5, warmup=2, flops=2e6, bytes_moved=1e6)
    assert bench.gpu_times_us == (5.0, 3.0, 4.0, 1.0, 2.0)
    assert (bench.kernel_name, bench.calls) == ("k", 5)
    assert (bench.min_us, bench.median_us, bench.mean_us, bench.max_us) == (1.0, 3.0, 3.0, 5.0)
    assert bench.p90_us == pytest.approx(4.6, rel=1e-12)
    assert bench.gflops_per_s == pytest.approx(2e6 / 3_000, rel=1e-12)
    assert bench.gbytes_per_s == pytest.approx(1e6 / 3_000, rel=1e-12)
    assert (bench.flops, bench.bytes_moved) == (2e6, 1e6)
    assert (fake.untimed_dispatches, fake.timed_dispatches) == (2, 5)


def test_defaults(fake, prepared):
    bench = enigma.benchmark_kernel(prepared, **SIZES)
    assert bench.calls == 100 and bench.flops is None and bench.bytes_moved is None
    assert (fake.untimed_dispatches, fake.timed_dispatches) == (10, 100)
    enigma.profile_kernel(prepared, **SIZES)
    assert (fake.untimed_dispatches, fake.timed_dispatches) == (15, 150)


def test_nothing_is_recorded_and_no_hook_is_asked(prepared, register):
    register("k", lambda **info: pytest.fail("asked"))
    with enigma.profile() as profiler:
        with enigma.scope("s"):
            enigma.benchmark_kernel(prepared, **SIZES, repeat=3)
            assert enigma.get_active_profiler() is profiler
    (event,) = profiler.events()
    assert event.name == "s" and event.gpu_time_us == 0.0


def test_a_failing_run_is_raised_and_the_profiler_stays(fake, prepared):
    with enigma.profile() as profiler:
        for call in (enigma.benchmark_kernel, enigma.profile_kernel):
            fake.script([(1, 2), RuntimeError("lost")])
            with pytest.raises(RuntimeError, match="lost"):
                call(prepared, **SIZES, repeat=5, warmup=0)
            assert enigma.get_active_profiler() is profiler
        prepared.dispatch(GRID, THREADS)
    assert len(profiler.events()) == 1


def test_a_run_without_device_time_is_an_error(fake, prepared):
    script_us(fake, 1, None)
    with pytest.raises(RuntimeError, match="time"):
        enigma.benchmark_kernel(prepared, **SIZES, repeat=3, warmup=0)


WRONG_RUNS = [({"repeat": 0}, ValueError), ({"repeat": -1}, ValueError), ({"warmup": -1}, ValueError),
              ({"repeat": 2**70}, ValueError), ({"warmup": -(2**70)}, ValueError), ({"repeat": True}, TypeError),
              ({"repeat": 1.5}, TypeError), ({"repeat": "3"}, TypeError), ({"repeat": None}, TypeError),
              ({"warmup": False}, TypeError), ({"warmup": 2.0}, TypeError), ({"nope": 1}, TypeError),
              ({"grid": (0, 1, 1)}, ValueError), ({"grid": (-1, 1, 1)}, ValueError), ({"grid": (1, 1, 1, 1)}, ValueError),
              ({"grid": 64}, TypeError), ({"threads": (32.0, 1, 1)}, TypeError), ({"threads": (10**6, 1, 1)}, ValueError),
              ({"threads": None}, TypeError)]
WRONG_WORK = [({name: value}, error) for name in ("flops", "bytes_moved")
              for value, error in [(-1, ValueError), (math.nan, ValueError), (math.inf, ValueError), (10**400, ValueError),
                                   ("1", TypeError), (1j, TypeError), ([1], TypeError)]]


def ids(value):
    text = str(value)
    return text if len(text) < 40 else text[:40]


@pytest.mark.parametrize("wrong, error", WRONG_RUNS + WRONG_WORK, ids=ids)
def test_benchmark_arguments_are_checked_before_the_first_dispatch(fake, prepared, wrong, error):
    with pytest.raises(error):
        enigma.benchmark_kernel(prepared, **{**SIZES, **wrong})
    assert (fake.untimed_dispatches, fake.timed_dispatches) == (0, 0)


@pytest.mark.parametrize("wrong, error", WRONG_RUNS, ids=ids)
def test_profile_arguments_are_checked_before_the_first_dispatch(fake, prepared, wrong, error):
    with pytest.raises(error):
        enigma.profile_kernel(prepared, **{**SIZES, **wrong})
    assert (fake.untimed_dispatches, fake.timed_dispatches) == (0, 0)


@pytest.mark.parametrize("call", [enigma.benchmark_kernel, enigma.profile_kernel])
def test_wrong_calls(prepared, call):
    for args, kwargs in [((), SIZES), ((prepared,), {}), ((prepared,), {"grid": GRID}), ((prepared, GRID, THREADS), {}),
                         ((None,), SIZES), (("k",), SIZES)]:
        with pytest.raises(TypeError):
            call(*args, **kwargs)


def test_numbers_of_other_types(fake, prepared):
    numpy = pytest.importorskip("numpy")
    bench = enigma.benchmark_kernel(prepared, grid=[numpy.int64(64), 1, 1], threads=THREADS, repeat=numpy.int32(2),
                                    warmup=numpy.uint8(0), flops=numpy.float32(8), bytes_moved=7)
    assert (bench.calls, bench.flops, bench.bytes_moved) == (2, 8.0, 7.0)


# ---- profile_kernel -----------------------------------------------------------------------------------------------------


def test_profile_kernel(fake, prepared):
    script_us(fake, 50, 2, 4, 6)
    result = enigma.profile_kernel(prepared, **SIZES, repeat=3, warmup=1)
    assert type(result) is enigma.ProfilerResult
    (row,) = result
    assert (row.name, row.kernel_name, row.calls, row.gpu_total_us, row.median_us) == ("gpu_dispatch", "k", 3, 12.0, 4.0)
    assert (row.input_bytes, row.output_bytes) == (36, 24)
    (row,) = enigma.profile_kernel(prepared, **SIZES, repeat=3, profile_memory=False)
    assert (row.input_bytes, row.output_bytes) == (0, 0)


def test_profile_kernel_asks_hooks_and_is_seen_by_no_other_profiler(prepared, register):
    register("k", lambda **info: {"flops": 1e6})
    with enigma.profile() as profiler:
        (row,) = enigma.profile_kernel(prepared, **SIZES, repeat=4)
        assert enigma.get_active_profiler() is profiler
    assert profiler.events() == []
    assert row.metrics == {"flops": 4e6} and row.gflops_per_s == 1000.0


def test_profile_kernel_keeps_what_has_no_device_time(fake, prepared):
    script_us(fake, 2, None)
    (row,) = enigma.profile_kernel(prepared, **SIZES, repeat=2, warmup=0)
    assert (row.calls, row.gpu_total_us) == (2, 2.0)


# ---- KernelBenchmark ----------------------------------------------------------------------------------------------------


def test_made_by_hand():
    bench = enigma.KernelBenchmark("k", [1, 2.5], flops=3)
    assert bench == enigma.KernelBenchmark(kernel_name="k", gpu_times_us=(1.0, 2.5), flops=3.0, bytes_moved=None)
    assert bench.gpu_times_us == (1.0, 2.5) and bench.bytes_moved is None and bench.gbytes_per_s == 0.0


@pytest.mark.parametrize("times, median, p90", [(range(1, 11), 5.5, 9.1), ([5], 5, 5), ([1, 100], 50.5, 90.1)], ids=str)
def test_percentiles(times, median, p90):
    bench = enigma.KernelBenchmark("k", times)
    assert bench.median_us == median and bench.p90_us == pytest.approx(p90, rel=1e-12)
    assert bench.min_us <= bench.median_us <= bench.p90_us <= bench.max_us
    assert bench.mean_us == pytest.approx(sum(times) / len(times), rel=1e-12)
    numpy = pytest.importorskip("numpy")
    assert bench.p90_us == pytest.approx(numpy.percentile(times, 90), rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"flops": 1e6}, {"flops": 1e6, "bytes_moved": 2e6}, {"flops": 0}], ids=str)
def test_summary(options):
    for times in ([1.0], [1.0, 2.0], [0.0, 0.0]):
        text = enigma.KernelBenchmark("k", times, **options).summary()
        assert "\n" not in text and "nan" not in text and "inf" not in text
        assert all(word in text for word in ("k", "min", "p50", "mean", "p90", "max", "us"))
    assert ("GFLOP/s" in text) <= ("flops" in options)


def test_frozen_dataclass():
    bench = enigma.KernelBenchmark("k", (1.0, 2.0), 5.0)
    assert dataclasses.asdict(bench) == {"kernel_name": "k", "gpu_times_us": (1.0, 2.0), "flops": 5.0, "bytes_moved": None}
    assert dataclasses.replace(bench, flops=None) == enigma.KernelBenchmark("k", (1.0, 2.0))
    assert bench.__replace__(flops=6) != bench
    assert repr(bench) == "KernelBenchmark(kernel_name='k', gpu_times_us=(1.0, 2.0), flops=5.0, bytes_moved=None)"
    assert eval(repr(bench), {"KernelBenchmark": enigma.KernelBenchmark}) == bench
    assert pickle.loads(pickle.dumps(bench)) == bench and hash(pickle.loads(pickle.dumps(bench))) == hash(bench)
    assert copy.copy(bench) is bench and copy.deepcopy(bench) is bench
    assert bench != dataclasses.asdict(bench)
    for name in ("kernel_name", "median_us", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(bench, name, 1)


@pytest.mark.parametrize("args, error", [
    (("k", ()), ValueError), (("k", [math.nan]), ValueError), (("k", [-1.0]), ValueError), (("k", [math.inf]), ValueError),
    (("k", ["1"]), TypeError), (("k", 1.0), TypeError), ((1, [1.0]), TypeError), (("k",), TypeError),
    (("k", [1.0], -1.0), ValueError), (("k", [1.0], math.nan), ValueError), (("k", [1.0], None, math.inf), ValueError),
    (("k", [1.0], "1"), TypeError)], ids=str)
def test_made_by_hand_checks(args, error):
    with pytest.raises(error):
        enigma.KernelBenchmark(*args)


def test_warm_up_of_zero_counts_the_first_run(clock):
    fake = ScriptedRuntime()
    script_us(fake, 300_000, 1, 1)
    bench = enigma.benchmark_kernel(fake.prepare("k"), **SIZES, repeat=3, warmup=0)
    assert bench.max_us == 300_000.0 and bench.median_us == 1.0


def test_on_a_device(opencl):
    kernel = opencl.compile("__kernel void twice(__global float *x) {\n x[get_global_id(0)] *= 2; }", "twice")
    with opencl.prepare(kernel, [], 4096) as prepared:
        bench = enigma.benchmark_kernel(prepared, grid=(1024, 1, 1), threads=(64, 1, 1), repeat=20, flops=1024)
        assert bench.calls == 20 and bench.kernel_name == "twice" and 0 < bench.min_us <= bench.median_us <= bench.max_us
        assert bench.gflops_per_s == pytest.approx(1024 / (bench.median_us * 1000))
        (row,) = enigma.profile_kernel(prepared, grid=(1024, 1, 1), threads=(64, 1, 1), repeat=20)
        assert row.calls == 20 and row.gpu_total_us > 0 and row.output_bytes == 20 * 4096
