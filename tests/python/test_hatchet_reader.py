"""Hatchet exports in the real reader. Cases A13, C05 to C16, G07: what it reads is what was measured, and what it works out
itself agrees with what was written."""

import json
import math
import random

import enigma
import numpy
import pytest
from enigma.testing import ScriptedRuntime

hatchet = pytest.importorskip("hatchet", reason="llnl-hatchet is not installed")

GRID, THREADS = (64, 1, 1), (32, 1, 1)
COLUMNS = ["time", "gpu_time", "count", "bytes", "flops", "input_bytes", "output_bytes", "dropped"]


def load(profiler, path):
    """The documented line, and the literal."""
    profiler.export_hatchet(path)
    with open(path, encoding="utf-8") as f:
        frame = hatchet.GraphFrame.from_literal(json.load(f))
    with open(path, encoding="utf-8") as f:
        return frame, json.load(f)


def column(frame, name, node):
    """The one value of a column at the node of a name."""
    rows = frame.dataframe[frame.dataframe["name"] == node]
    assert len(rows) == 1, frame.dataframe["name"].tolist()
    return rows[name].iloc[0]


def assert_same(a, b, columns):
    for name in columns:
        numpy.testing.assert_allclose(
            a.dataframe[name].to_numpy(float), b.dataframe[name].to_numpy(float), rtol=1e-9, atol=1e-9, err_msg=name)


def assert_consistent(frame):
    """Hatchet's own inclusive columns are those of the file."""
    assert sorted(f"{name} (inc)" for name in frame.exc_metrics) == sorted(frame.inc_metrics)
    again = frame.deepcopy()
    again.update_inclusive_columns()
    assert_same(frame, again, frame.inc_metrics)


def subtree(node, key):
    return node["metrics"][key] + sum(subtree(child, key) for child in node["children"])


def all_nodes(literal):
    stack = list(literal)
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node["children"])


def test_c07_empty_profile(tmp_path):
    with enigma.profile() as p:
        pass
    frame, literal = load(p, tmp_path / "a.json")
    assert len(frame.dataframe) == 1
    assert frame.dataframe["time"].sum() == 0 and frame.dataframe["count (inc)"].sum() == 0
    assert set(COLUMNS) <= set(frame.exc_metrics)
    assert_consistent(frame)
    assert len(literal) == 1
    frame.tree()


def test_c08_empty_name(clock, tmp_path):
    with enigma.profile() as p:
        with enigma.scope(""):
            clock.advance(5_000)
        with enigma.scope("(unnamed)"):  # what stands for the empty name must not swallow this one
            clock.advance(7_000)
    frame, _ = load(p, tmp_path / "a.json")
    assert sorted(frame.dataframe["time"]) == [0.0, 5.0, 7.0]
    assert all(isinstance(name, str) and name for name in frame.dataframe["name"])


def test_c09_frames_are_plain(fake, tmp_path):
    kernels = [fake.prepare(name, [bytes(8)], 8) for name in ("a", "b")]
    with enigma.profile(record_shapes=True, profile_memory=True) as p:
        for index, kernel in enumerate(kernels * 2):
            with enigma.scope(f"s{index % 2}", number=index, shape=[1, 2]):
                kernel.dispatch((64 * (index + 1), 1, 1), THREADS)
    frame, literal = load(p, tmp_path / "a.json")
    for node in all_nodes(literal):
        assert set(node) == {"frame", "metrics", "children"}
        assert set(node["frame"]) == {"name", "type"}
        assert all(isinstance(value, str) and value for value in node["frame"].values())
    assert column(frame, "input_bytes", "gpu_dispatch:a") == 16
    assert column(frame, "output_bytes (inc)", "s1") == 16
    assert_consistent(frame)


def test_a13_metrics_are_per_node(fake, register, tmp_path):
    register("k", lambda **_: {"flops": 100})
    kernel = fake.prepare("k")
    with enigma.profile() as p:
        with enigma.scope("s", metrics={"flops": 100}):
            kernel.dispatch(GRID, THREADS)
    frame, _ = load(p, tmp_path / "a.json")
    assert column(frame, "flops", "s") == 100 and column(frame, "flops", "gpu_dispatch:k") == 100
    assert column(frame, "flops (inc)", "s") == 200
    assert column(frame, "gpu_time", "s") == 0 and column(frame, "gpu_time (inc)", "s") == 1.0


def test_c10_two_profiles_subtract(clock, tmp_path):
    def run(step, **metrics):
        with enigma.profile() as p:
            for name in ("a", "b"):
                with enigma.scope(name, metrics=metrics):
                    clock.advance(step)
        return p

    one, _ = load(run(5_000, flops=1e6), tmp_path / "a.json")
    two, _ = load(run(2_000), tmp_path / "b.json")
    difference = one - two
    assert column(difference, "time", "a") == 3.0
    assert column(difference, "flops", "b") == 1e6
    assert difference.dataframe["time (inc)"].max() == 6.0


def test_c11_keys_that_collide(clock, tmp_path):
    keys = ["name", "node", "time", "time (inc)", "_hatchet_nid", "nid", "type", "", "count", "user.time", "x (inc)", "x",
            "dropped", "user.time.2"]
    with enigma.profile() as p:
        with enigma.scope("s", metrics={key: 100.0 + index for index, key in enumerate(keys)}):
            clock.advance(3_000)
    frame, literal = load(p, tmp_path / "a.json")
    assert column(frame, "time", "s") == 3.0 and column(frame, "time (inc)", "s") == 3.0
    values = [value for key, value in next(n for n in all_nodes(literal) if n["frame"]["name"] == "s")["metrics"].items()
              if not key.endswith("(inc)")]
    assert sorted(value for value in values if value >= 100) == [100.0 + index for index in range(len(keys))]
    assert {"ROOT", "s"} == set(frame.dataframe["name"])
    assert_consistent(frame)
    frame.tree()


def test_c05_numbers_that_are_none(clock, tmp_path):
    with enigma.profile() as p:
        with enigma.scope("s", metrics={"flops": math.inf, "x": math.nan, "y": -math.inf}):
            clock.advance(1_000)
        with enigma.scope("t", metrics={"x": 2.0, "big": 1e308}), enigma.scope("u", metrics={"big": 1e308}):
            clock.advance(1_000)
    frame, _ = load(p, tmp_path / "a.json")
    for name in frame.exc_metrics + frame.inc_metrics:
        assert numpy.isfinite(frame.dataframe[name].to_numpy(float)).all(), name
    assert column(frame, "x", "t") == 2.0 and column(frame, "x", "s") == 0.0


def test_c13_sums_of_a_random_tree(clock, tmp_path):
    runtime = ScriptedRuntime(queues=2)
    kernels = [runtime.prepare(f"k{index}", [bytes(4)], 4) for index in range(3)]
    dice = random.Random(13)

    def grow(depth):
        for _ in range(dice.randrange(1, 4)):
            with enigma.scope(f"n{dice.randrange(5)}", metrics={"bytes": dice.random(), "mine": dice.random() - 0.5}):
                clock.advance(dice.randrange(10_000))
                if dice.random() < 0.5:
                    dice.choice(kernels).dispatch(GRID, THREADS, metrics={"flops": dice.random() * 1e9})
                if depth < 6:
                    grow(depth + 1)

    with enigma.profile(profile_memory=True) as p:
        grow(0)
    frame, literal = load(p, tmp_path / "a.json")
    assert {"mine", *COLUMNS} == set(frame.exc_metrics)
    assert_consistent(frame)
    for node in all_nodes(literal):
        for key in frame.exc_metrics:
            assert node["metrics"][f"{key} (inc)"] == pytest.approx(subtree(node, key), rel=1e-9, abs=1e-9), key
    events = p.events()
    assert frame.dataframe["count"].sum() == len(events)
    kernel_us = sum(event.gpu_time_us for event in events if event.kernel_name)
    assert frame.dataframe["gpu_time"].sum() == pytest.approx(kernel_us, rel=1e-9)
    total = sum(event.duration_us for event in events if len(event.node_path) == 1)
    assert frame.dataframe["time (inc)"].max() == pytest.approx(total, rel=1e-9)


def test_c14_repeated_scopes_are_one_node(clock, tmp_path):
    with enigma.profile() as p:
        for _ in range(1000):
            with enigma.scope("s"):
                clock.advance(1_000)
    frame, _ = load(p, tmp_path / "a.json")
    assert column(frame, "count", "s") == 1000 and column(frame, "time", "s") == 1000.0
    other, _ = load(p, tmp_path / "b.json")
    difference = frame - other
    for name in difference.exc_metrics + difference.inc_metrics:
        assert (difference.dataframe[name].to_numpy(float) == 0).all(), name


def test_c16_only_nodes_at_the_top(fake, tmp_path):
    kernel = fake.prepare("k")
    with enigma.profile() as p:
        kernel.dispatch(GRID, THREADS)
    _, literal = load(p, tmp_path / "a.json")
    assert isinstance(literal, list)
    assert all(set(node) == {"frame", "metrics", "children"} for node in literal)


def test_filter_and_query(fake, tmp_path):
    kernel = fake.prepare("k")
    with enigma.profile() as p:
        with enigma.scope("train"), enigma.scope("step"):
            kernel.dispatch(GRID, THREADS)
        with enigma.scope("idle"):
            pass
    frame, _ = load(p, tmp_path / "a.json")
    hot = frame.filter(lambda row: row["gpu_time (inc)"] > 0, num_procs=1)
    assert set(hot.dataframe["name"]) == {"ROOT", "train", "step", "gpu_dispatch:k"}
    assert hot.dataframe["gpu_time (inc)"].max() == 1.0
    text = frame.tree(metric_column="gpu_time (inc)")
    assert "gpu_dispatch:k" in text and "train" in text


def test_names_come_back(clock, tmp_path):
    names = ['a"b', "C:\\dir\\new", "it's", "</script>", '{"k":1}', "GPU \U0001f680", "\u77e9\u9635", "a\nb\tc", "\x01\x7f", "(inc)", "a/b"]
    with enigma.profile() as p:
        for name in names:
            with enigma.scope(name):
                clock.advance(1_000)
    frame, _ = load(p, tmp_path / "a.json")
    assert sorted(frame.dataframe["name"]) == sorted(["ROOT", *names])


def test_g07_deep_trees_fold(clock, tmp_path):
    def run(top):
        with enigma.profile() as p:
            scopes = [enigma.scope("f") for _ in range(5000)]
            with enigma.scope(top):
                for scope in scopes:
                    scope.__enter__()
                    clock.advance(1_000)
                for scope in reversed(scopes):
                    scope.__exit__(None, None, None)
        return p

    frame, literal = load(run("top"), tmp_path / "a.json")
    depth, level = 0, literal
    while level:
        depth, level = depth + 1, [child for node in level for child in node["children"]]
    assert depth == 400
    assert frame.dataframe["count"].sum() == 5001 and frame.dataframe["time"].sum() == 5000.0
    assert frame.dataframe["time (inc)"].max() == 5000.0
    assert column(frame, "count", "(deeper calls)") == 5001 - 398
    assert_consistent(frame)
    assert "(deeper calls)" in frame.tree()
