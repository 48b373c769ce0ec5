"""enigma.benchmark(fn): the device time of what a callable launches, on a fake CUPTI and the scripted runtime."""

import cuda_fake
import enigma
import pytest
from enigma.testing import ScriptedRuntime

fake = cuda_fake.load()
needs_fake = pytest.mark.skipif(fake is None, reason="the fake CUDA libraries are not built (ENIGMA_BUILD_DIR)")


def launch(name, us=1.0):
    cuda_fake.launch(fake, name, us)


def scripted(times):
    rt = ScriptedRuntime()
    k = rt.prepare("k")
    rt.script([(1, 1 + int(us * 1000)) for us in times])
    return k


def test_own_runtimes():
    k = scripted([50, 1, 2, 3, 4, 5, 6])

    def twice():
        k.dispatch((1, 1, 1), (1, 1, 1))
        with enigma.scope("inner"):
            k.dispatch((1, 1, 1), (1, 1, 1))

    k.dispatch((1, 1, 1), (1, 1, 1))
    with enigma.profile() as outer, enigma.scope("outer"):
        b = enigma.benchmark(twice, repeat=3, warmup=0, flops=5000, bytes_moved=10, attach=None)
    assert isinstance(b, enigma.KernelBenchmark)
    assert b.gpu_times_us == (3.0, 7.0, 11.0) and b.calls == 3 and b.median_us == 7.0
    assert b.kernel_name == twice.__qualname__ and (b.flops, b.bytes_moved) == (5000.0, 10.0)
    assert [e.name for e in outer.events()] == ["outer"]


def test_calls():
    calls = []
    k = scripted([1] * 12)

    class Work:
        def __call__(self):
            calls.append(enigma.get_active_profiler())
            k.dispatch((1, 1, 1), (1, 1, 1))

    b = enigma.benchmark(Work(), repeat=5, warmup=2, attach=None)
    assert calls[:2] == [None, None] and len(calls) == 7 and None not in calls[2:] and b.calls == 5
    assert b.kernel_name == Work.__qualname__
    assert enigma.get_active_profiler() is None


@pytest.mark.parametrize("error, arguments", [
    (ValueError, dict(repeat=0)), (ValueError, dict(warmup=-1)), (TypeError, dict(repeat=1.5)), (TypeError, dict(warmup=True)),
    (ValueError, dict(flops=-1)), (ValueError, dict(bytes_moved=float("nan"))), (ValueError, dict(attach="rocm")),
    (TypeError, dict(attach=3))])
def test_arguments(error, arguments):
    with pytest.raises(error):
        enigma.benchmark(lambda: None, **({"attach": None, "warmup": 0} | arguments))


def test_not_callable():
    with pytest.raises(TypeError, match="callable"):
        enigma.benchmark(3)


def test_nothing_launched():
    with pytest.raises(RuntimeError, match="run 1 has no device time"):
        enigma.benchmark(lambda: None, repeat=2, warmup=0, attach=None)
    assert enigma.get_active_profiler() is None


@pytest.mark.parametrize("at", [1, 3])
def test_what_it_raises(at):
    """In a warm-up and in a timed run: it comes out as it is, and nothing stays active."""
    def fails():
        calls.append(1)
        if len(calls) == at:
            raise KeyError("mine")
        k.dispatch((1, 1, 1), (1, 1, 1))

    calls = []
    k = scripted([1] * 5)
    with pytest.raises(KeyError, match="mine"):
        enigma.benchmark(fails, repeat=4, warmup=1, attach=None)
    assert len(calls) == at and enigma.get_active_profiler() is None


@needs_fake
def test_attached():
    def work():
        launch("a", 2.0)
        launch("b", 3.0)

    with enigma.profile(attach="cuda") as outer:
        b = enigma.benchmark(work, repeat=4, warmup=1)
        launch("after")
    assert b.calls == 4 and b.max_us == pytest.approx(b.min_us, abs=0.01) and b.min_us > 0.0
    assert sorted(e.kernel_name for e in outer.events()) == ["a", "after", "b"]  # the warm-up's and the last


@needs_fake
def test_another_tool():
    fake.driver.fake_set(cuda_fake.SUBSCRIBE_ERROR, 39)
    try:
        with pytest.raises(RuntimeError, match="another tool"):
            enigma.benchmark(lambda: launch("k"), warmup=0)
    finally:
        fake.driver.fake_set(cuda_fake.SUBSCRIBE_ERROR, 0)
    assert enigma.get_active_profiler() is None
