"""Cases H: bad input. Errors come at the call that is wrong, whether a profiler is active or not."""

import contextlib
import decimal
import fractions
import math
import re
import time

import enigma
import numpy as np
import pytest
from caselib import GRID, THREADS, US, dispatch, export_all, named, one, simulating

scope = enigma.scope
both = pytest.mark.parametrize("make", [enigma.scope, enigma.record_function], ids=["scope", "record_function"])
on_and_off = pytest.mark.parametrize("on", [False, True], ids=["off", "on"])


@pytest.fixture
def sim():
    with simulating() as made:
        yield made


def profiled(on):
    return enigma.profile() if on else contextlib.nullcontext()


class Text(str):
    """A str that is not plain."""


class Broken(str):
    def __eq__(self, other):
        raise AssertionError("compared")

    def __hash__(self):
        raise AssertionError("hashed")


# ---- H01, H02: scopes ----------------------------------------------------------------------------------------------------------


@both
@on_and_off
@pytest.mark.parametrize("name", [None, 3, b"x", 1.5, ["x"], ("x",), object(), bytearray(b"x"), np.str_ is None], ids=repr)
def test_h01_name_is_no_text(make, on, name):
    """TypeError at the call, on or off."""
    with profiled(on):
        with pytest.raises(TypeError, match="str"):
            make(name)
        with pytest.raises(TypeError, match="str"):
            make(name=name)


@both
@pytest.mark.parametrize("name", [Text("x"), Broken("x"), np.str_("x")], ids=["subclass", "broken subclass", "numpy"])
def test_h01_str_subclasses(sim, make, name):
    """A str subclass is a name, by its text."""
    with enigma.profile() as p:
        with make(name):
            assert sim.path() == ("x",)
    event = p.events()[-1]
    assert event.call_path == ("x",) and type(event.name) is str


@both
@on_and_off
@pytest.mark.parametrize("args, kwargs", [
    ((), {}), (("a", "b"), {}), (("a",), {"name": "b"}), (("a", {"flops": 1}), {}), (("a",), {"category": None}),
    (("a",), {"category": 3}), (("a",), {"category": b"c"})])
def test_h01_wrong_calls(make, on, args, kwargs):
    """No name, too many positions, a category that is no str: TypeError at the call."""
    with profiled(on):
        with pytest.raises(TypeError):
            make(*args, **kwargs)


@both
@pytest.mark.parametrize("args, kwargs, word", [
    ((), {}, "missing .* 'name'"), (("a", "b"), {}, "one positional argument"), (("a",), {"name": "b"}, "multiple values .* 'name'"),
    ((3,), {}, "name"), (("a",), {"category": 3}, "category"), (("a",), {"metrics": 3}, "metrics")])
def test_h01_errors_fit_both_functions(make, args, kwargs, word):
    """What was wrong is named, and no function that was not called."""
    with pytest.raises(TypeError, match=word) as caught:
        make(*args, **kwargs)
    assert "()" not in str(caught.value)


@both
def test_h01_name_by_keyword(sim, make):
    """name may be given by keyword; record_function has the category python."""
    with enigma.profile() as p:
        with make(name="n", category="own"):
            pass
        with make("m"):
            pass
    assert [(e.name, e.category) for e in p.events()] == [
        ("n", "own"), ("m", "python" if make is enigma.record_function else "scope")]


@both
@on_and_off
@pytest.mark.parametrize("metrics", [3, "flops", [("flops", 1)], {"flops"}, ("flops", 1), object(), 1.5, b""], ids=repr)
def test_h02_metrics_are_no_dict(make, on, metrics):
    """TypeError at the call, on or off."""
    with profiled(on):
        with pytest.raises(TypeError, match="metrics"):
            make("s", metrics=metrics)


BAD_METRICS = [
    ({"flops": "many"}, "flops"), ({"flops": None}, "flops"), ({"flops": 1j}, "flops"), ({"flops": [1]}, "flops"),
    ({"flops": {}}, "flops"), ({"ok": 1, "bad": b"1"}, "bad"), ({"flops": np.zeros(2)}, "flops"), ({3: 1}, "3"), ({None: 1}, "None"),
    ({b"flops": 1}, "flops"), ({("a",): 1}, "a"),
]


@both
@pytest.mark.parametrize("metrics, named_key", BAD_METRICS, ids=lambda v: repr(v)[:30])
def test_h02_wrong_metric_values(sim, make, metrics, named_key):
    """TypeError that names the key, on entry and never at export; nothing is recorded and the path is as it was."""
    with enigma.profile() as p:
        s = make("s", metrics=metrics)
        with pytest.raises(TypeError, match=named_key):
            s.__enter__()
        assert sim.path() == ()
    assert [e.kernel_name for e in p.events()] == ["probe"]


@pytest.mark.parametrize("metrics, named_key", BAD_METRICS, ids=lambda v: repr(v)[:30])
def test_h02_wrong_metric_values_off(metrics, named_key):
    """When off the values are not looked at."""
    with scope("s", metrics=metrics):
        pass


@on_and_off
@pytest.mark.parametrize("metrics, named_key", BAD_METRICS, ids=lambda v: repr(v)[:30])
def test_h02_wrong_dispatch_metrics(sim, on, metrics, named_key):
    """For a dispatch: TypeError before anything runs."""
    with profiled(on) as p:
        with pytest.raises(TypeError):
            sim.kernel("k").dispatch(GRID, THREADS, metrics=metrics)
        with pytest.raises(TypeError):
            sim.kernel("k").dispatch(GRID, THREADS, metrics=[1])
    assert sim.runtime.timed_dispatches == sim.runtime.untimed_dispatches == 0
    assert p is None or p.events() == []


class Real:
    def __float__(self):
        return 2.5


class Index:
    def __index__(self):
        return 7


@pytest.mark.parametrize("value, kept", [
    (-1, -1.0), (-1e9, -1e9), (0, 0.0), (True, 1.0), (Real(), 2.5), (Index(), 7.0), (np.float32(0.5), 0.5), (np.int64(3), 3.0),
    (np.uint64(2**63), 2.0**63), (np.array(4.0), 4.0), (-0.0, -0.0), (5e-324, 5e-324), (fractions.Fraction(1, 4), 0.25), (decimal.Decimal("1.5"), 1.5)], ids=repr)
def test_h02_numbers_are_kept_as_given(sim, tmp_path, value, kept):
    """Negative numbers, bools, NumPy scalars and what has __float__ are numbers."""
    with enigma.profile() as p:
        with scope("s", metrics={"flops": value}):
            sim.advance(US)
    assert named(p, "s").metrics == {"flops": kept} and type(named(p, "s").metrics["flops"]) is float
    assert one(p.key_averages().rows()).metrics == {"flops": kept}
    assert export_all(p, tmp_path)["hatchet"]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("make", [lambda x: x, fractions.Fraction, lambda x: fractions.Fraction(2 * x, 3), decimal.Decimal])
def test_h02_numbers_beyond_a_double(make, sign):
    """As large as it gets, of the same sign; an error nowhere."""
    with enigma.profile() as p:
        with scope("s", metrics={"flops": make(sign * 10**400)}):
            pass
    assert named(p, "s").metrics == {"flops": sign * math.inf}


@pytest.mark.parametrize("key", ["\0", "a\0b", "flops\0"])
def test_h02_nul_in_a_key(key):
    """ValueError that shows the key; for a hook a warning."""
    with simulating() as sim, enigma.profile() as p:
        with pytest.raises(ValueError, match=re.escape(repr(key))):
            scope("s", metrics={key: 1}).__enter__()
        enigma.register_kernel_hook("k", lambda **_: {key: 1})
        with pytest.warns(RuntimeWarning, match=re.escape(repr(key))):
            sim.run("k")
        enigma.unregister_kernel_hook("k")
    assert [e.metrics for e in p.events()] == [{}]


class Raises:
    def __float__(self):
        raise ZeroDivisionError("mine")


def test_h02_float_that_raises(sim):
    """TypeError that names the key, with the cause."""
    with enigma.profile() as p:
        with pytest.raises(TypeError, match="flops") as caught:
            with scope("s", metrics={"flops": Raises()}):
                pytest.fail("the body ran")
    assert isinstance(caught.value.__cause__ or caught.value.__context__, ZeroDivisionError)
    assert p.events() == []


@pytest.mark.parametrize("size", [300, 70_000])
def test_h02_huge_dict(sim, tmp_path, size):
    """A dict of very many metrics is kept, or dropped and counted; never an error, never half of it unsaid."""
    metrics = {f"m{i}": i for i in range(size)}
    with enigma.profile() as p:
        with scope("s", metrics=metrics):
            pass
    out = export_all(p, tmp_path)
    kept = named(p, "s").metrics
    assert kept == metrics or (out["chrome"].metadata["dropped"] > 0 and "dropped" in out["table"])
    if size == 300:
        assert kept == metrics


@pytest.mark.parametrize("size", [200, 300, 70_000])
def test_h02_much_metadata(sim, tmp_path, size):
    """The same for metadata."""
    metadata = {f"m{i}": i for i in range(size)}
    with enigma.profile() as p:
        with scope("s", **metadata):
            pass
    out = export_all(p, tmp_path)
    kept = named(p, "s").metadata
    assert kept == metadata or (out["chrome"].metadata["dropped"] > 0 and "dropped" in out["table"])
    if size == 200:
        assert kept == metadata


# ---- H04 to H07 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group_by", ["callpath", "", None, 3, "Name", "name ", b"name", ["name"], "call_path\0"], ids=repr)
def test_h04_wrong_group_by(sim, group_by):
    """ValueError that lists "name" and "call_path"."""
    with enigma.profile() as p:
        sim.run("k")
    with pytest.raises(ValueError) as caught:
        p.key_averages(group_by=group_by)
    assert '"name"' in str(caught.value).replace("'", '"') and '"call_path"' in str(caught.value).replace("'", '"')


def test_h04_group_by_is_a_keyword(sim):
    """The reference has a * there."""
    with enigma.profile() as p:
        pass
    with pytest.raises(TypeError):
        p.key_averages("name")


@both
def test_h05_dict_is_copied_at_entry(sim, make):
    """What the dict holds on entry counts: changing it in the body, or afterwards, changes nothing."""
    metrics = {"flops": 0}
    s = make("s", metrics=metrics)
    metrics["flops"] = 1
    with enigma.profile() as p:
        with s:
            metrics["flops"] = 9
            metrics["bytes"] = 9
        metrics.clear()
    assert named(p, "s").metrics == {"flops": 1.0}
    assert metrics == {}


def test_h05_dict_changed_between_entries(sim):
    """Each entry copies anew."""
    metrics = {"flops": 1}
    s = scope("s", metrics=metrics)
    with enigma.profile() as p:
        for i in range(3):
            metrics["flops"] = i
            with s:
                pass
    assert [e.metrics["flops"] for e in p.events()] == [0.0, 1.0, 2.0]


class Meddler:
    """Changes the dict that it is being read from."""

    def __init__(self, target):
        self.target = target

    def __float__(self):
        for i in range(100):
            self.target[f"new {i}"] = 1
        self.target.pop("first", None)
        return 2.0


def test_h05_dict_changed_while_it_is_copied(sim):
    """A __float__ that changes the dict meanwhile does no harm; what was there on entry is kept."""
    metrics = {"first": 1}
    metrics["flops"] = Meddler(metrics)
    metrics["last"] = 3
    with enigma.profile() as p:
        with scope("s", metrics=metrics):
            pass
    assert named(p, "s").metrics == {"first": 1.0, "flops": 2.0, "last": 3.0}


def test_h05_dispatch_metrics_are_copied(sim):
    """The same for a dispatch that completes later."""
    metrics = {"flops": 1}
    with enigma.profile() as p:
        sim.run("k", metrics=metrics, wait=False)
        metrics["flops"] = 9
    assert dispatch(p).metrics == {"flops": 1.0}


def test_h07_hook_returns_one_dict(sim, register):
    """A hook that returns the same dict each time and changes it: each event has its own copy."""
    shared = {"flops": 0}

    def hook(**_):
        shared["flops"] += 1
        return shared

    register("k", hook)
    with enigma.profile() as p:
        for _ in range(3):
            sim.run("k")
    assert [e.metrics for e in p.events()] == [{"flops": 1.0}, {"flops": 2.0}, {"flops": 3.0}]


def test_h07_keys_that_change(sim, register):
    """Keys made anew for each dispatch, and long ones, are kept for each event."""
    counter = iter(range(1000))
    register("k", lambda **_: {f"key {next(counter)} " + "x" * 1000: 1})
    with enigma.profile() as p:
        for _ in range(50):
            sim.run("k")
    assert [one(e.metrics) for e in p.events()] == [f"key {i} " + "x" * 1000 for i in range(50)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, float("1e400")])
@pytest.mark.parametrize("name", ["flops", "bytes_moved"])
def test_h08_benchmark_work_that_is_not_finite(sim, name, value):
    """ValueError before anything runs."""
    with pytest.raises(ValueError, match=name):
        enigma.benchmark_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, **{name: value})
    assert sim.runtime.untimed_dispatches == 0


@pytest.mark.parametrize("name", ["perf_counter_ns", "perf_counter", "time_ns", "time", "monotonic_ns", "monotonic"])
def test_h10_patched_clocks(monkeypatch, name):
    """Python's clocks patched, to stand still or run backwards, have no effect: durations stay >= 0 and in order."""
    backwards = iter(range(10**9, 0, -1))
    monkeypatch.setattr(time, name, lambda: next(backwards))
    runtime = enigma.testing.ScriptedRuntime()
    kernel = runtime.prepare("k")
    with enigma.profile() as p:
        for _ in range(100):
            with scope("s"):
                kernel.dispatch(GRID, THREADS)
    events = p.events()
    assert len(events) == 200 and all(0 <= e.start_ns <= e.end_ns for e in events)
    assert [e.end_ns for e in events] == sorted(e.end_ns for e in events)
    assert all(e.duration_us >= 0 and e.self_us >= 0 for e in events)
