"""Cases A: what the API means. Under the scripted clock, so every number is exact."""

import asyncio
import dataclasses
import itertools
import re
import sys
import threading
import warnings

import enigma
import pytest
from caselib import (
    GRID, MS, THREADS, US, dispatch, dispatches, export_all, simulating, hatchet_json, hatchet_node,
    hatchet_nodes, named, one, path_row, row_of)

scope = enigma.scope


@pytest.fixture
def sim():
    with simulating() as made:
        yield made


def fields_of(event):
    return {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}


# ---- A01, A02: reading changes nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group_by", ["name", "call_path"])
def test_a01_aggregating_leaves_events_alone(sim, group_by, tmp_path):
    """After two key_averages and every export all event fields are as before, and both results are equal."""
    with enigma.profile(profile_memory=True) as p:
        for i in range(3):
            with scope("s", metrics={"flops": 10.0 + i}, tag=i):
                sim.run("k", us=i + 1, metrics={"bytes": 7.0})
    events = p.events()
    before = [fields_of(e) for e in events]
    durations = [e.duration_us for e in events]
    first, second = p.key_averages(group_by=group_by), p.key_averages(group_by=group_by)
    export_all(p, tmp_path)
    assert first.rows() == second.rows() and first.table() == second.table()
    assert [fields_of(e) for e in events] == before
    assert [e.duration_us for e in events] == durations == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert p.events() == events


def test_a01_events_are_frozen(sim):
    """Assigning or deleting any field or property of an event raises, and so does changing what a field returned."""
    with enigma.profile() as p:
        with scope("s", metrics={"flops": 1.0}, tag=[1]):
            sim.run("k")
    for event in p.events():
        for name in [*fields_of(event), "duration_us", "label", "node_path", "new"]:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(event, name, None)
            with pytest.raises(AttributeError):
                delattr(event, name)
    event = named(p, "s")
    event.metrics["flops"] = 5.0
    event.metadata["tag"] = 5
    again = named(p, "s")
    assert again.metrics == {"flops": 1.0} and again.metadata["tag"] == [1]
    p.events().clear()
    assert len(p.events()) == 2


def test_a01_rows_are_frozen(sim):
    """Assigning any property of a row raises; its metrics are a copy."""
    with enigma.profile() as p:
        sim.run("k", metrics={"flops": 1.0})
    row = one(p.key_averages().rows())
    for name in row.as_dict():
        with pytest.raises(AttributeError):
            setattr(row, name, 0)
    row.metrics["flops"] = 5.0
    assert row.metrics == {"flops": 1.0}


@pytest.mark.parametrize("flops", [1.0, 2e9, 123456789.0, 0.1, 0.0, 2.0**60])
def test_a02_tables_are_pure(sim, flops):
    """Two tables are the same text, and the metric is the raw number before and after."""
    with enigma.profile() as p:
        sim.run("k", us=100, metrics={"flops": flops})
    result = p.key_averages()
    assert result.rows()[0].metrics["flops"] == flops
    a = result.table()
    b = result.table()
    assert a == b
    assert result.rows()[0].metrics["flops"] == flops
    assert result.table(sort_by="name") == a
    assert p.tree() == p.tree()


# ---- A03 to A06: nothing counts twice ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_a03_gpu_time_counts_once(sim, depth, tmp_path):
    """Rows of kernels add up to the device time; scope rows show it inclusively, everywhere the same."""
    names = [f"level {i}" for i in range(depth)]
    with enigma.profile() as p:
        scopes = [scope(name) for name in names]
        for s in scopes:
            s.__enter__()
        sim.run("k", us=100)
        for s in reversed(scopes):
            s.__exit__(None, None, None)
    for group_by in ("name", "call_path"):
        rows = p.key_averages(group_by=group_by).rows()
        assert sum(r.gpu_total_us for r in rows if r.kernel_name) == 100.0
        assert [r.gpu_total_us for r in rows] == [100.0] * (depth + 1)
        assert [r.gpu_busy_us for r in rows] == [100.0] * (depth + 1)
    assert [e.gpu_time_us for e in p.events()] == [100.0] * (depth + 1)
    lines = p.tree().splitlines()[-(depth + 1):]
    assert all(line.endswith("gpu 100.000") for line in lines)
    table = p.key_averages().table()
    assert f"{100.0 * (depth + 1):.3f}" not in table
    assert not any("total" in line.lower() and "100.000" not in line for line in table.splitlines()[2:])
    literal = hatchet_json(p, tmp_path)
    nodes = [node for _, node in hatchet_nodes(literal)]
    assert sum(node["metrics"]["gpu_time"] for node in nodes) == 100.0
    assert {node["metrics"]["gpu_time (inc)"] for node in nodes} == {100.0}


def test_a03_siblings_add_up(sim):
    """A scope around several kernels and scopes has the sum of them all, each once."""
    with enigma.profile() as p:
        with scope("outer"):
            sim.run("a", us=10)
            with scope("inner"):
                sim.run("a", us=20)
                sim.run("b", us=30)
            sim.run("b", us=40)
    result = p.key_averages()
    assert row_of(result, "outer").gpu_total_us == 100.0
    assert row_of(result, "inner").gpu_total_us == 50.0
    assert row_of(result, "gpu_dispatch", "a").gpu_total_us == 30.0
    assert row_of(result, "gpu_dispatch", "b").gpu_total_us == 70.0
    merged = result.by_name("gpu_dispatch")
    assert (merged.kernel_name, merged.calls, merged.gpu_total_us) == (None, 4, 100.0)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a04_only_the_innermost_profiler_records(sim, depth):
    """Of nested profilers exactly the innermost has the dispatch, once, with calls == 1."""
    profilers = [enigma.profile() for _ in range(depth)]
    for p in profilers:
        p.__enter__()
        assert enigma.get_active_profiler() is p
    sim.run("k")
    for p in reversed(profilers):
        assert enigma.get_active_profiler() is p
        p.__exit__(None, None, None)
    assert enigma.get_active_profiler() is None
    assert [len(p.events()) for p in profilers] == [0] * (depth - 1) + [1]
    assert one(profilers[-1].key_averages().rows()).calls == 1
    assert sim.runtime.timed_dispatches == 1


def test_a04_leaving_restores_the_outer_profiler(sim):
    """After the inner profiler is left the outer one records again; scopes of the outer stay at the front of inner paths."""
    with enigma.profile() as outer:
        with scope("o"):
            sim.run("first")
            with enigma.profile() as inner:
                with scope("i"):
                    sim.run("second")
            sim.run("third")
    assert [(e.name, e.kernel_name, e.call_path) for e in outer.events()] == [
        ("gpu_dispatch", "first", ("o",)), ("gpu_dispatch", "third", ("o",)), ("o", None, ("o",))]
    assert [(e.name, e.kernel_name, e.call_path) for e in inner.events()] == [
        ("gpu_dispatch", "second", ("o", "i")), ("i", None, ("o", "i"))]


@pytest.mark.parametrize("per_iteration, iterations, us", [(3, 10, 2), (1, 1, 5), (7, 4, 0.5)])
def test_a05_averages(sim, per_iteration, iterations, us):
    """calls, gpu_total_us and gpu_avg_us are exact, by name and under the one call path."""
    with enigma.profile() as p:
        for _ in range(iterations):
            with scope("step"):
                for _ in range(per_iteration):
                    sim.run("k", us=us)
    calls = per_iteration * iterations
    for row in (row_of(p.key_averages(), "gpu_dispatch", "k"), path_row(p, ("step", "gpu_dispatch:k"), "k")):
        assert (row.calls, row.gpu_total_us, row.gpu_avg_us) == (calls, calls * us, us)
        assert (row.min_us, row.median_us, row.max_us) == (us, us, us)
    step = row_of(p.key_averages(), "step")
    assert (step.calls, step.gpu_total_us, step.gpu_avg_us) == (iterations, calls * us, per_iteration * us)


def test_a06_recursion_counts_an_instant_once(sim):
    """f in f, 10 ms and 4 ms: two calls, 10 ms in all; each path has its own."""
    with enigma.profile() as p:
        with scope("f"):
            sim.advance(3 * MS)
            with scope("f"):
                sim.advance(4 * MS)
            sim.advance(3 * MS)
    row = row_of(p.key_averages(), "f")
    assert (row.calls, row.cpu_total_us, row.self_total_us) == (2, 10_000.0, 10_000.0)
    assert row.cpu_avg_us == 5_000.0
    assert (row.min_us, row.max_us) == (4_000.0, 10_000.0)
    assert (path_row(p, ("f",)).calls, path_row(p, ("f",)).cpu_total_us) == (1, 10_000.0)
    assert (path_row(p, ("f", "f")).calls, path_row(p, ("f", "f")).cpu_total_us) == (1, 4_000.0)


@pytest.mark.parametrize("depth", [2, 5, 40])
def test_a06_mutual_recursion(sim, depth):
    """f > g > f > g ...: each name counts the time of its outermost entry, kernels included."""
    with enigma.profile() as p:
        scopes = [scope("fg"[i % 2]) for i in range(depth)]
        for s in scopes:
            sim.advance(MS)
            s.__enter__()
        sim.run("k", us=100)
        for s in reversed(scopes):
            s.__exit__(None, None, None)
    result = p.key_averages()
    f, g = row_of(result, "f"), row_of(result, "g")
    assert (f.calls, g.calls) == ((depth + 1) // 2, depth // 2)
    assert f.cpu_total_us == (depth - 1) * 1000.0 + 100.0
    assert g.cpu_total_us == (depth - 2) * 1000.0 + 100.0
    assert (f.gpu_total_us, g.gpu_total_us) == (100.0, 100.0)
    assert f.self_total_us + g.self_total_us == (depth - 1) * 1000.0


def test_a06_repeats_are_no_recursion(sim):
    """The same name one after the other adds its times."""
    with enigma.profile() as p:
        for ns in (MS, 2 * MS, 3 * MS):
            with scope("f"):
                sim.advance(ns)
    row = row_of(p.key_averages(), "f")
    assert (row.calls, row.cpu_total_us, row.median_us) == (3, 6_000.0, 2_000.0)


# ---- A07, A08: bad arguments of results -----------------------------------------------------------------------------------


@pytest.fixture
def ranked(sim):
    """A result with ties and a row of each kind."""
    with enigma.profile(profile_memory=True) as p:
        for kernel, us in (("b", 20), ("a", 20), ("c", 5), ("d", 40)):
            with scope("same"):
                sim.run(kernel, us=us, metrics={"flops": 100.0, "bytes": 50.0})
        with scope("empty"):
            sim.advance(70 * US)
        with scope("also empty"):
            sim.advance(70 * US)
    return p.key_averages()


def sortable(row):
    return [k for k, v in row.as_dict().items() if not isinstance(v, (dict, tuple, list))]


@pytest.mark.parametrize("sort_by", ["nope", "", None, 3, "metrics", "call_path", "cpu_total", "CPU_TOTAL_US", " calls",
                                     "calls\0", "calls\0x", "as_dict", "\u77e9"])
def test_a07_wrong_sort_by(ranked, sort_by):
    """rows() and table() raise ValueError that lists the valid names: no silent default."""
    for method in (ranked.rows, ranked.table):
        with pytest.raises(ValueError) as caught:
            method(sort_by=sort_by)
        for name in sortable(ranked.rows()[0]):
            assert name in str(caught.value)


def test_a07_sort_by_is_a_keyword(ranked):
    """The reference has a * there."""
    with pytest.raises(TypeError):
        ranked.rows("calls")
    with pytest.raises(TypeError):
        ranked.table("calls")


@pytest.mark.parametrize("sort_by", [
    "name", "kernel_name", "calls", "cpu_total_us", "gpu_total_us", "cpu_avg_us", "gpu_avg_us", "input_bytes",
    "output_bytes", "gflops_per_s", "gbytes_per_s", "min_us", "median_us", "max_us", "self_total_us", "gpu_busy_us",
    "rate_source"])
def test_a07_valid_sort_by(ranked, sort_by):
    """Numbers sort descending, text ascending, ties by name; the table has the same order."""
    rows = ranked.rows(sort_by=sort_by)
    assert sort_by in sortable(rows[0])
    values = [getattr(row, sort_by) for row in rows]
    present = [v for v in values if v is not None]
    assert present == sorted(present, reverse=not isinstance(present[0], str))
    for (value, row), (next_value, next_row) in itertools.pairwise(zip(values, rows)):
        if value == next_value:
            assert (row.name, row.kernel_name or "") <= (next_row.name, next_row.kernel_name or "")
    shown = [line.split("  ")[0].strip() for line in ranked.table(sort_by=sort_by).splitlines()[2:2 + len(rows)]]
    assert shown == [row.name for row in rows]
    assert sorted(map(repr, rows)) == sorted(map(repr, ranked.rows()))


def test_a07_default_is_cpu_total(ranked):
    """rows() and table() without an argument sort by cpu_total_us."""
    assert ranked.rows() == ranked.rows(sort_by="cpu_total_us")
    assert ranked.table() == ranked.table(sort_by="cpu_total_us")


def test_a07_every_sortable_field_is_tested(ranked):
    """The list above is the list of the product."""
    mark = one(m for m in test_a07_valid_sort_by.pytestmark if m.name == "parametrize")
    assert sorted(mark.args[1]) == sorted(sortable(ranked.rows()[0]))


@pytest.mark.parametrize("name", ["missing", "", "it's", 'a"b', "a\nb", "\U0001f680", "gpu_dispatch:k", "gpu_dispatch\0"])
def test_a08_missing_name(sim, name):
    """by_name raises KeyError that contains the name, and the profile is as before."""
    with enigma.profile() as p:
        sim.run("k")
    result = p.key_averages()
    before = result.table(), p.events()
    with pytest.raises(KeyError) as caught:
        result.by_name(name)
    assert caught.value.args == (name,)
    assert (result.table(), p.events()) == before


@pytest.mark.parametrize("name", [None, 3, b"gpu_dispatch"])
def test_a08_name_must_be_text(sim, name):
    """by_name of something else than a str is a TypeError."""
    with enigma.profile() as p:
        sim.run("k")
    with pytest.raises(TypeError):
        p.key_averages().by_name(name)


def test_a08_empty_profile():
    """by_name in a profile without events raises KeyError too."""
    with enigma.profile() as p:
        pass
    with pytest.raises(KeyError, match="anything"):
        p.key_averages().by_name("anything")


# ---- A10, A11: keys are values, not texts --------------------------------------------------------------------------------


def test_a10_label_is_not_the_key(sim, tmp_path):
    """A scope that is called like a kernel's label does not merge with it in rows, tree or file."""
    with enigma.profile() as p:
        with scope("gpu_dispatch:b"):
            sim.advance(3 * US)
        sim.run("b", us=5)
    event = dispatch(p)
    assert (event.name, event.kernel_name, event.label) == ("gpu_dispatch", "b", "gpu_dispatch:b")
    assert named(p, "gpu_dispatch:b").label == "gpu_dispatch:b"
    rows = p.key_averages().rows()
    assert [(r.name, r.kernel_name, r.calls, r.cpu_total_us) for r in rows] == [
        ("gpu_dispatch", "b", 1, 5.0), ("gpu_dispatch:b", None, 1, 3.0)]
    rows = p.key_averages(group_by="call_path").rows()
    assert [(r.call_path, r.kernel_name, r.calls) for r in rows] == [
        (("gpu_dispatch:b",), "b", 1), (("gpu_dispatch:b",), None, 1)]
    assert len([line for line in p.tree().splitlines() if line.startswith("gpu_dispatch:b")]) == 2
    nodes = [n for path, n in hatchet_nodes(hatchet_json(p, tmp_path)) if path[-1] == "gpu_dispatch:b"]
    assert sorted(n["metrics"]["time"] for n in nodes) == [3.0, 5.0]
    assert len({tuple(sorted(n["frame"].items())) for n in nodes}) == 2


@pytest.mark.parametrize("name, kernel, label", [
    ("a:b", "b", "a:b:b"), ("a", "b", "a:b"), ("a", None, "a"), ("", "k", ":k"), ("a", "", "a:"), ("a:", "b", "a::b")])
def test_a10_label_rule(name, kernel, label):
    """label is name, or name:kernel_name where there is a kernel."""
    event = enigma.ProfilerEvent(name=name, category="scope", start_ns=1, end_ns=2, kernel_name=kernel, call_path=("x",))
    assert event.label == label
    assert event.node_path[-1] == (label if kernel is not None else event.node_path[-1])


def test_a10_kernels_of_one_name_in_two_scopes(sim):
    """By name one row, by call path two."""
    with enigma.profile() as p:
        for name in ("x", "y"):
            with scope(name):
                sim.run("k", us=2)
    assert row_of(p.key_averages(), "gpu_dispatch", "k").calls == 2
    assert path_row(p, ("x", "gpu_dispatch:k"), "k").calls == path_row(p, ("y", "gpu_dispatch:k"), "k").calls == 1


@pytest.mark.parametrize("first, second", [
    (("a/b", "c"), ("a", "b/c")),
    (("a;b", "c"), ("a", "b;c")),
    (("a > b", "c"), ("a", "b > c")),
    (("a\nb", "c"), ("a", "b\nc")),
    (("a\0b", "c"), ("a", "b\0c")),
    (("a,b", "c"), ("a", "b,c")),
    (("a\x1fb", "c"), ("a", "b\x1fc")),
    (("a", "", "b"), ("a", "b")),
    (("", "a"), ("a", "")),
    (("a/", "b"), ("a", "/b")),
    (("a", "b", "c"), ("a/b/c",)),
])
def test_a11_paths_are_never_joined(sim, tmp_path, first, second):
    """Paths that look alike when joined stay apart in events, rows, tree and files."""
    with enigma.profile() as p:
        for path, us in ((first, 3), (second, 4)):
            scopes = [scope(name) for name in path]
            for s in scopes:
                s.__enter__()
            sim.run("k", us=us)
            for s in reversed(scopes):
                s.__exit__(None, None, None)
    assert [e.call_path for e in dispatches(p)] == [first, second]
    for path, us in ((first, 3.0), (second, 4.0)):
        row = path_row(p, (*path, "gpu_dispatch:k"), "k")
        assert (row.calls, row.gpu_total_us) == (1, us)
        assert row.name == "/".join((*path, "gpu_dispatch:k"))
        scope_row = path_row(p, path)
        assert scope_row.gpu_total_us >= us
    node_times = {path[1:]: n["metrics"]["gpu_time"] for path, n in hatchet_nodes(hatchet_json(p, tmp_path))}
    shown = [tuple(name or "(unnamed)" for name in (*path, "gpu_dispatch:k")) for path in (first, second)]
    assert [node_times[path] for path in shown] == [3.0, 4.0]
    nodes = {path[:i] for path in (first, second) for i in range(1, len(path) + 1)}
    assert len(p.tree().splitlines()) == 1 + len(nodes) + 2


# ---- A13 to A17: metrics and hooks -----------------------------------------------------------------------------------------


def test_a13_metrics_belong_to_their_node(sim, register, tmp_path):
    """A scope's flops and its kernel's stand side by side: no total adds them but Hatchet's inclusive one."""
    register("k", lambda **_: {"flops": 100})
    with enigma.profile() as p:
        with scope("s", metrics={"flops": 100}):
            sim.run("k", us=10)
    result = p.key_averages()
    assert row_of(result, "s").metrics == {"flops": 100.0}
    assert row_of(result, "gpu_dispatch", "k").metrics == {"flops": 100.0}
    literal = hatchet_json(p, tmp_path)
    scope_node, kernel_node = hatchet_node(literal, "s"), hatchet_node(literal, "gpu_dispatch:k")
    assert (scope_node["metrics"]["flops"], scope_node["metrics"]["flops (inc)"]) == (100.0, 200.0)
    assert (kernel_node["metrics"]["flops"], kernel_node["metrics"]["flops (inc)"]) == (100.0, 100.0)
    assert "200" not in result.table()


def test_a14_hook_is_asked_when_there_are_no_metrics(sim, register):
    """With metrics of its own a dispatch asks no hook; without, once, by keyword, with kernel_name, grid and threads."""
    calls = []

    def hook(*args, **kwargs):
        calls.append((args, kwargs))
        return {"flops": 5}

    register("k", hook)
    with enigma.profile() as p:
        sim.run("k", metrics={"bytes": 3})
        assert calls == []
        sim.run("k", grid=(64, 2, 1), threads=(16, 2, 1))
    assert calls == [((), {"kernel_name": "k", "grid": (64, 2, 1), "threads": (16, 2, 1)})]
    assert [e.metrics for e in p.events()] == [{"bytes": 3.0}, {"flops": 5.0}]


@pytest.mark.parametrize("metrics, asked", [(None, 1), ({}, 1), ({"x": 0}, 0), ({"flops": float("nan")}, 0)])
def test_a14_what_counts_as_metrics(sim, register, metrics, asked):
    """None and an empty dict are no metrics; anything else is."""
    calls = []
    register("k", lambda **kwargs: calls.append(kwargs))
    with enigma.profile():
        sim.run("k", metrics=metrics)
    assert len(calls) == asked


def test_a14_other_kernels_untimed_runs_and_scopes_ask_nothing(sim, register):
    """Only recorded dispatches of that very kernel fire its hook."""
    calls = []
    register("k", lambda **kwargs: calls.append(kwargs))
    sim.run("k")
    with enigma.profile():
        sim.run("kk")
        sim.run("K")
        with scope("k"):
            pass
        sim.kernel("k").dispatch_timed(GRID, THREADS)
        enigma.benchmark_kernel(sim.kernel("k"), grid=GRID, threads=THREADS, repeat=2)
    assert calls == []


@pytest.mark.parametrize("answer", [None, {}], ids=repr)
def test_a14_hook_may_decline(sim, register, answer, recwarn):
    """None and {} are answers, without a warning."""
    register("k", lambda **_: answer)
    with enigma.profile() as p:
        sim.run("k")
    assert dispatch(p).metrics == {} and not recwarn.list


class Unconvertible:
    def __float__(self):
        raise OverflowError("no float of me")


def raises(**_):
    raise ValueError("broken hook")


def divides(**_):
    return {"flops": 1 / 0}


JUNK = {
    "raises": (raises, {}),
    "divides by zero": (divides, {}),
    "list": (lambda **_: [1, 2], {}),
    "text": (lambda **_: "flops", {}),
    "number": (lambda **_: 3.0, {}),
    "text value": (lambda **_: {"flops": "many"}, {}),
    "none value": (lambda **_: {"flops": None}, {}),
    "complex value": (lambda **_: {"flops": 1j}, {}),
    "key is no text": (lambda **_: {1: 2.0}, {}),
    "broken number": (lambda **_: {"flops": Unconvertible()}, {}),
    "nan": (lambda **_: {"flops": float("nan")}, {}),
    "infinite": (lambda **_: {"flops": float("inf")}, {}),
    "takes no keywords": (lambda: {"flops": 1}, {}),
    "takes positions": (lambda name, grid, threads: {"flops": 1}, {}),
}


@pytest.mark.parametrize("hook, metrics", JUNK.values(), ids=JUNK.keys())
def test_a16_hook_faults_do_not_reach_the_dispatch(sim, register, hook, metrics):
    """The dispatch is as it would be, the event has no metrics, and there is one warning that names hook and error."""
    register("k", hook)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with enigma.profile() as p:
            for _ in range(3):
                sim.run("k", us=7)
    assert [(e.gpu_time_us, e.metrics, "error" in e.metadata) for e in p.events()] == [(7.0, metrics, False)] * 3
    warning = one(caught)
    assert warning.category is RuntimeWarning
    assert "k" in str(warning.message) and hook.__qualname__.split(".")[-1] in str(warning.message)


@pytest.mark.parametrize("value", [-1, -0.5, 0, True, 2**70])
def test_a16_odd_numbers_are_numbers(sim, register, value, recwarn):
    """Negative and big numbers and bools are kept as given, without a warning."""
    register("k", lambda **_: {"flops": value})
    with enigma.profile() as p:
        sim.run("k")
    assert dispatch(p).metrics == {"flops": float(value)} and not recwarn.list


def test_a16_finite_ones_may_stay(sim, register):
    """Of a dict with a NaN in it at most the finite ones are kept."""
    register("k", lambda **_: {"flops": float("nan"), "bytes": 4})
    with enigma.profile() as p, pytest.warns(RuntimeWarning):
        sim.run("k")
    assert dispatch(p).metrics in ({}, {"bytes": 4.0})


def test_a16_warning_as_error_does_not_reach_the_dispatch(sim, register, monkeypatch):
    """With warnings turned into errors the dispatch still returns; the error goes to sys.unraisablehook."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    register("k", raises)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with enigma.profile() as p:
            sim.run("k", us=3)
            sim.run("k", us=3)
    assert [e.gpu_time_us for e in p.events()] == [3.0, 3.0]
    assert isinstance(one(seen).exc_value, RuntimeWarning)


def test_a16_registering_again_warns_again(sim, register):
    """One warning a registration: the same junk registered twice warns twice."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with enigma.profile():
            for _ in range(2):
                register("k", raises)
                sim.run("k")
                sim.run("k")
    assert len(caught) == 2


def test_a16_hook_unregisters_itself(sim, register):
    """The call in progress still counts; the next dispatch has no metrics."""

    def hook(**_):
        enigma.unregister_kernel_hook("k")
        return {"flops": 1}

    register("k", hook)
    with enigma.profile() as p:
        sim.run("k")
        sim.run("k")
    assert [e.metrics for e in p.events()] == [{"flops": 1.0}, {}]


def test_a16_hook_replaces_itself(sim, register):
    """A hook may register its successor while it runs."""

    def hook(**_):
        enigma.register_kernel_hook("k", lambda **_: {"flops": 2})
        return {"flops": 1}

    register("k", hook)
    with enigma.profile() as p:
        sim.run("k")
        sim.run("k")
    assert [e.metrics for e in p.events()] == [{"flops": 1.0}, {"flops": 2.0}]


@pytest.mark.parametrize("inner", ["k", "other"])
def test_a16_hook_that_dispatches(sim, register, inner):
    """A dispatch made inside a hook runs and is recorded, and no hook is called from inside a hook."""
    calls = []

    def hook(**kwargs):
        calls.append(kwargs["kernel_name"])
        sim.run(inner)
        return {"flops": 1}

    sim.kernel("other")
    register("k", hook)
    register("other", hook)
    with enigma.profile() as p:
        sim.run("k")
    assert calls == ["k"]
    assert sorted((e.kernel_name, tuple(e.metrics)) for e in p.events()) == sorted([("k", ("flops",)), (inner, ())])


def test_a16_hook_that_opens_scopes_and_reads(sim, register):
    """A hook may open scopes and read the profiler that is recording."""

    def hook(**_):
        with scope("in hook"):
            enigma.get_active_profiler().events()
        return {"flops": 1}

    register("k", hook)
    with enigma.profile() as p:
        with scope("s"):
            sim.run("k")
        assert sim.path() == ()
    assert dispatch(p, "k").metrics == {"flops": 1.0}
    assert named(p, "in hook").call_path[-1] == "in hook"


@pytest.mark.parametrize("name", ["none", "", "k", "\U0001f680"])
def test_a16_unregistering_nothing_is_silent(name, recwarn):
    """unregister_kernel_hook of what is not there does nothing, twice too."""
    assert enigma.unregister_kernel_hook(name) is None
    assert enigma.unregister_kernel_hook(name) is None
    assert not recwarn.list


@pytest.mark.parametrize("name, hook", [(None, print), (3, print), (b"k", print), ("k", None), ("k", {"flops": 1})])
def test_a16_registering_nonsense(name, hook):
    """A name that is no str or a hook that is not callable is a TypeError at once."""
    with pytest.raises(TypeError):
        enigma.register_kernel_hook(name, hook)


def test_a17_last_registration_wins(sim, register):
    """Registering again replaces; unregistering once removes."""
    register("k", lambda **_: {"flops": 1})
    register("k", lambda **_: {"flops": 2})
    with enigma.profile() as p:
        sim.run("k")
        enigma.unregister_kernel_hook("k")
        sim.run("k")
    assert [e.metrics for e in p.events()] == [{"flops": 2.0}, {}]


def test_a17_replaced_hooks_are_let_go(register):
    """A hook that was replaced or unregistered is no longer referred to."""

    def hook(**_):
        return None

    before = sys.getrefcount(hook)
    for _ in range(100):
        register("k", hook)
    enigma.unregister_kernel_hook("k")
    assert sys.getrefcount(hook) == before


def test_a17_registering_while_another_thread_dispatches(sim, register):
    """No crash, and each event has the metrics of one of the registered hooks or none."""
    rounds, start = 2_000, threading.Barrier(2)

    def change():
        start.wait()
        for i in range(rounds):
            pair = (lambda **_: {"flops": 1}), (lambda **_: {"flops": 2})
            enigma.register_kernel_hook("k", pair[i % 2])
            if i % 3 == 0:
                enigma.unregister_kernel_hook("k")

    register("k", lambda **_: {"flops": 1})
    thread = threading.Thread(target=change)
    thread.start()
    with enigma.profile() as p:
        start.wait()
        for _ in range(rounds):
            sim.run("k")
        thread.join()
    seen = {tuple(e.metrics.items()) for e in p.events()}
    assert len(p.events()) == rounds
    assert seen <= {(), (("flops", 1.0),), (("flops", 2.0),)}


# ---- A19 to A23: profilers ---------------------------------------------------------------------------------------------------


def test_a19_scope_opened_while_nothing_records(sim):
    """Such a scope is on no path and no event; a profiler that starts later begins at ()."""
    with scope("x"):
        with enigma.profile() as p1:
            sim.run("k")
        with enigma.profile() as p2:
            sim.run("k")
            with scope("y"):
                sim.run("k")
    with enigma.profile() as p3:
        sim.run("k")
    assert [e.call_path for e in p1.events()] == [()]
    assert [e.call_path for e in p2.events()] == [(), ("y",), ("y",)]
    assert [e.call_path for e in p3.events()] == [()]


def test_a19_scope_opened_under_another_profiler(sim):
    """It is at the front of the inner profiler's paths while it is open, and not afterwards."""
    with enigma.profile() as outer:
        with scope("x"):
            with enigma.profile() as p1:
                sim.run("k")
        with enigma.profile() as p2:
            sim.run("k")
    assert [e.call_path for e in p1.events()] == [("x",)]
    assert [e.call_path for e in p2.events()] == [()]
    assert [e.name for e in outer.events()] == ["x"]


def test_a19_scope_outlives_the_profiler(sim):
    """A scope left after its profiler has the profiler's end and is marked; nothing of it is in the next one."""
    s = scope("x")
    with enigma.profile() as p1:
        s.__enter__()
        sim.advance(5 * US)
    sim.advance(100 * US)
    with enigma.profile() as p2:
        sim.run("k")
        s.__exit__(None, None, None)
        sim.run("k")
    event = one(p1.events())
    assert (event.name, event.duration_us, "unfinished" in event.metadata) == ("x", 5.0, True)
    assert [e.call_path for e in p2.events()] == [(), ()]


def test_a20_leaving_twice(sim):
    """The second exit does nothing: no crash, no change."""
    p = enigma.profile()
    with p:
        sim.run("k")
    before = p.events()
    for _ in range(3):
        p.__exit__(None, None, None)
    assert p.events() == before and enigma.get_active_profiler() is None
    with enigma.profile() as other:
        p.__exit__(None, None, None)
        assert enigma.get_active_profiler() is other


def test_a20_leaving_without_entering(tmp_path):
    """Exit before enter does nothing; what was never entered reads as empty."""
    p = enigma.profile()
    p.__exit__(None, None, None)
    assert p.events() == [] and p.key_averages().rows() == []
    assert export_all(p, tmp_path)["hatchet"]


def test_a20_reading_before_leaving(sim, tmp_path):
    """Events, rows and files taken while it records hold what is finished so far."""
    with enigma.profile() as p:
        assert p.events() == []
        assert export_all(p, tmp_path)["hatchet"]
        with scope("open"):
            with scope("done"):
                sim.run("k", us=4)
            assert [e.label for e in p.events()] == ["gpu_dispatch:k", "done"]
            assert row_of(p.key_averages(), "done").calls == 1
            out = export_all(p, tmp_path)
            assert hatchet_node(out["hatchet"], "gpu_dispatch:k")["metrics"]["gpu_time"] == 4.0
            early = p.events()
        assert len(early) == 2
    assert [e.label for e in p.events()] == ["gpu_dispatch:k", "done", "open"]
    assert early == p.events()[:2]


def test_a20_results_are_snapshots(sim):
    """A result taken before more was recorded stays as it was."""
    with enigma.profile() as p:
        sim.run("k")
        result = p.key_averages()
        table = result.table()
        sim.run("k")
    assert result.table() == table and one(result.rows()).calls == 1
    assert one(p.key_averages().rows()).calls == 2


def test_a22_profiler_is_entered_once(sim):
    """Entering again raises RuntimeError, while it is active and afterwards, and changes nothing."""
    p = enigma.profile()
    with p:
        sim.run("k")
        with pytest.raises(RuntimeError):
            p.__enter__()
        assert enigma.get_active_profiler() is p
        sim.run("k")
    with pytest.raises(RuntimeError):
        p.__enter__()
    assert enigma.get_active_profiler() is None
    sim.run("k")
    assert len(p.events()) == 2


@pytest.mark.parametrize("times", [2, 3, 10])
def test_a22_scope_is_entered_again(sim, times):
    """Each entry of a scope object is an event of its own, with its own times."""
    s = scope("s", metrics={"flops": 1}, tag="t")
    with enigma.profile() as p:
        for i in range(times):
            with s:
                sim.advance((i + 1) * US)
    assert [e.duration_us for e in p.events()] == [float(i + 1) for i in range(times)]
    assert {(e.call_path, e.metrics["flops"], e.metadata["tag"]) for e in p.events()} == {(("s",), 1.0, "t")}


def test_a22_scope_is_entered_nested(sim):
    """The same object inside itself: each exit ends the innermost entry."""
    s = scope("s")
    with enigma.profile() as p:
        with s:
            sim.advance(US)
            with s:
                sim.advance(2 * US)
                with s:
                    sim.advance(4 * US)
            sim.advance(8 * US)
        assert sim.path() == ()
    assert [(e.call_path, e.duration_us) for e in p.events()[:3]] == [
        (("s",) * 3, 4.0), (("s",) * 2, 6.0), (("s",), 15.0)]


def test_a22_scope_is_entered_under_two_profilers(sim):
    """Entries under different profilers, and under none, do not mix."""
    s = scope("s")
    with s:
        sim.advance(US)
    with enigma.profile() as p1, s:
        sim.advance(2 * US)
    with s:
        sim.advance(US)
    with enigma.profile() as p2, s:
        sim.advance(3 * US)
    assert (named(p1, "s").duration_us, named(p2, "s").duration_us) == (2.0, 3.0)


@pytest.mark.parametrize("path", ["x.trace", "x", "", "gputrace", "x.gputrace.txt", "x.gputrace/", "x.GPUTRACE"])
def test_a23_capture_suffix(path):
    """Another suffix is a ValueError at the call of profile()."""
    with pytest.raises(ValueError, match="gputrace"):
        enigma.profile(capture=path)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS can capture")
@pytest.mark.parametrize("as_path", [str, lambda s: __import__("pathlib").Path(s)], ids=["str", "Path"])
@pytest.mark.parametrize("enabled", [None, "0", "1"])
def test_a23_capture_where_it_is_not_possible(tmp_path, monkeypatch, as_path, enabled):
    """Entering raises RuntimeError that names what is missing; the body does not run, nothing is active or written."""
    if enabled is None:
        monkeypatch.delenv("MTL_CAPTURE_ENABLED", raising=False)
    else:
        monkeypatch.setenv("MTL_CAPTURE_ENABLED", enabled)
    target = tmp_path / "x.gputrace"
    p = enigma.profile(capture=as_path(str(target)))
    with pytest.raises(RuntimeError, match="(?i)metal|MTL_CAPTURE_ENABLED"):
        with p:
            pytest.fail("the body ran")
    assert enigma.get_active_profiler() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS can capture")
def test_a23_capture_leaves_what_exists(tmp_path):
    """A target that exists is not touched."""
    target = tmp_path / "x.gputrace"
    target.write_text("mine")
    with pytest.raises(RuntimeError), enigma.profile(capture=target):
        pytest.fail("the body ran")
    assert target.read_text() == "mine"


@pytest.mark.parametrize("path", [3, 1.5, object(), ["x.gputrace"]])
def test_a23_capture_is_a_path(path):
    """Something that is no path is a TypeError."""
    with pytest.raises(TypeError):
        enigma.profile(capture=path)


# ---- A26: out of order -----------------------------------------------------------------------------------------------------


def test_a26_exit_out_of_order(sim):
    """a, b entered, a left, dispatch, b left: no exception, () at the end, the dispatch under b."""
    with enigma.profile() as p:
        a, b = scope("a"), scope("b")
        a.__enter__()
        b.__enter__()
        sim.advance(US)
        a.__exit__(None, None, None)
        sim.run("k", us=5)
        b.__exit__(None, None, None)
        assert sim.path() == ()
    assert dispatch(p, "k").call_path in (("b",), ("a", "b"))
    assert (named(p, "a").duration_us, named(p, "b").duration_us) == (1.0, 6.0)


@pytest.mark.parametrize("order", list(itertools.permutations("abcd"))[::3], ids="".join)
def test_a26_any_order(sim, order):
    """Four scopes left in any order: each event has its own times, and no name stays on the path."""
    with enigma.profile() as p:
        scopes = {name: scope(name) for name in "abcd"}
        for name in "abcd":
            scopes[name].__enter__()
        left = set()
        for name in order:
            sim.advance(US)
            scopes[name].__exit__(None, None, None)
            left.add(name)
            innermost = max(set("abcd") - left, default=None)
            assert (sim.path() or (None,))[-1] == innermost
        assert sim.path() == ()
        with scope("after"):
            pass
    assert named(p, "after").call_path == ("after",)
    for name in "abcd":
        probes = order.index(name)
        assert named(p, name).duration_us == probes + 1 + probes * 1.0


def test_a26_exit_twice_and_exit_first(sim):
    """Leaving a scope that is not open raises nothing and changes nothing."""
    with enigma.profile() as p:
        s = scope("s")
        s.__exit__(None, None, None)
        with scope("outer"):
            with s:
                pass
            s.__exit__(None, None, None)
            assert sim.path() == ("outer",)
    assert [e.name for e in p.events() if e.category == "scope"] == ["s", "outer"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), GeneratorExit(), StopIteration(3)], ids=repr)
def test_a26_body_raises(sim, error):
    """The exception leaves as it came, the stack is restored, the scope that raised is marked (closing is no error)."""
    with enigma.profile() as p:
        with pytest.raises(type(error)) as caught:
            with scope("outer"):
                with scope("inner"):
                    sim.run("k")
                    raise error
        assert caught.value is error
        assert sim.path() == ()
    for name in ("inner", "outer"):
        marked = named(p, name).metadata.get("error", "")
        assert (type(error).__name__ in marked) == (type(error) is not GeneratorExit)
    assert dispatch(p, "k").call_path == ("outer", "inner")


# ---- A28: decorator ----------------------------------------------------------------------------------------------------------


def test_a28_decorated_function(sim):
    """One event a call; arguments, result and name pass through."""

    @enigma.scope("f", metrics={"flops": 2}, tag="t")
    def f(a, *rest, b=1, **more):
        """Doc of f."""
        sim.run("k")
        return a, rest, b, more

    assert f(1) == (1, (), 1, {})
    with enigma.profile() as p:
        assert f(1, 2, b=3, c=4) == (1, (2,), 3, {"c": 4})
        assert f(a=5) == (5, (), 1, {})
        assert sim.path() == ()
    assert (f.__name__, f.__doc__) == ("f", "Doc of f.")
    events = [e for e in p.events() if e.name == "f"]
    assert [(e.call_path, e.metrics, e.metadata["tag"]) for e in events] == [(("f",), {"flops": 2.0}, "t")] * 2
    assert [e.call_path for e in dispatches(p, "k")] == [("f",)] * 2


def test_a28_decorated_function_that_raises(sim):
    """The exception passes, the stack is restored, the event is marked."""

    @enigma.scope("f")
    def f():
        raise LookupError("here")

    with enigma.profile() as p:
        for _ in range(2):
            with pytest.raises(LookupError, match="here"):
                f()
        assert sim.path() == ()
    events = [e for e in p.events() if e.name == "f"]
    assert len(events) == 2 and all("LookupError" in e.metadata["error"] for e in events)


def test_a28_recursive_function(sim):
    """Each level is its own event."""

    @enigma.scope("f")
    def f(n):
        sim.advance(US)
        return n and f(n - 1)

    with enigma.profile() as p:
        f(3)
    assert [e.call_path for e in p.events()] == [("f",) * n for n in (4, 3, 2, 1)]
    assert row_of(p.key_averages(), "f").cpu_total_us == 4.0


def test_a28_methods(sim):
    """Methods, class methods, static methods and properties keep what they are bound to."""

    class C:
        @enigma.scope("method")
        def method(self):
            return self

        @classmethod
        @enigma.scope("class")
        def of_class(cls):
            return cls

        @staticmethod
        @enigma.scope("static")
        def static(x):
            return x

        @enigma.scope("outer static")
        @staticmethod
        def outer_static(x):
            return x

        @property
        @enigma.record_function("property")
        def value(self):
            return self

    c = C()
    with enigma.profile() as p:
        assert c.method() is c and C.of_class() is C and c.of_class() is C
        assert C.static(4) == 4 and c.outer_static(5) == 5 and c.value is c
    assert [e.name for e in p.events()] == ["method", "class", "class", "static", "outer static", "property"]
    assert p.events()[-1].category == "python"


def test_a28_coroutines_and_generators(sim):
    """The body is timed, not the making of the object."""

    @enigma.scope("coroutine")
    async def coroutine():
        sim.advance(3 * US)
        return 1

    @enigma.scope("generator")
    def generator():
        got = yield 1
        sim.advance(4 * US)
        yield got

    @enigma.scope("async generator")
    async def async_generator():
        yield 1
        sim.advance(5 * US)
        yield 2

    async def main():
        made = coroutine()
        sim.advance(100 * US)
        assert await made == 1
        return [item async for item in async_generator()]

    with enigma.profile() as p:
        assert asyncio.run(main()) == [1, 2]
        g = generator()
        assert (next(g), g.send("sent")) == (1, "sent")
        g.close()
        assert sim.path() == ()
    times = {e.name: e.duration_us for e in p.events()}
    assert (times["coroutine"], times["generator"], times["async generator"]) == (3.0, 4.0, 5.0)


@pytest.mark.parametrize("thing", [None, 3, "f", [], object()], ids=repr)
def test_a28_decorating_what_is_no_function(thing):
    """TypeError at decoration, not at the call."""
    with pytest.raises(TypeError):
        enigma.scope("f")(thing)


def test_a28_calls_from_threads(sim):
    """A decorated function is one object used by many threads: each call its own event."""

    @enigma.scope("f")
    def f(barrier):
        barrier.wait()

    import contextvars
    with enigma.profile() as p:
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(f, barrier)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    events = [e for e in p.events() if e.name == "f"]
    assert len(events) == 4 and {e.call_path for e in events} == {("f",)}
    assert len({e.thread_id for e in events}) == 4
    assert re.fullmatch(r"f\s+4\s.*", p.key_averages().table().splitlines()[2])
