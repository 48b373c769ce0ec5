"""Cases C: files are valid for their readers. Chrome traces pass chrome_check; Hatchet files load in llnl-hatchet."""

import array
import csv
import errno
import io
import json
import math
import os
import pathlib
import random
import resource
import subprocess
import sys
import threading

import chrome_check
import enigma
import numpy as np
import pytest
from caselib import (
    HARD_NAMES, US, chrome_trace, cpu_slices, dispatch, dispatches, export_all, footer, gpu_slices, hard_names,
    hatchet_frame, hatchet_json, hatchet_node, hatchet_nodes, named, one, python, row_of, simulating)

scope = enigma.scope

EXPORTS = {
    "hatchet": lambda p, path: p.export_hatchet(path),
    "chrome": lambda p, path: p.export_chrome_trace(path),
    "enigma": lambda p, path: p.save(path),
    "csv": lambda p, path: p.key_averages().to_csv(path),
}
exports = pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS.keys())


@pytest.fixture
def sim():
    with simulating() as made:
        yield made


@pytest.fixture
def small(sim):
    """A profile with a scope and a dispatch."""
    with enigma.profile() as p:
        with scope("s"):
            sim.run("k", us=3)
    return p


# ---- C01, C02, C04: text -------------------------------------------------------------------------------------------------


@hard_names
def test_c01_names_come_back(sim, tmp_path, name):
    """Scope, kernel, category, metric and metadata texts read back as they were from both exports, rows and events."""
    kernel, key = name.replace("\0", "0") or "k", name.replace("\0", "0")
    with enigma.profile() as p:
        with scope(name, metrics={key: 1.5}, category=name, text=name, nested={name: [name]}):
            sim.run(kernel)
    event = named(p, name)
    assert (event.name, event.category, event.call_path, event.metrics) == (name, name, (name,), {key: 1.5})
    assert event.metadata == {"text": name, "nested": {name: [name]}}
    assert dispatch(p).kernel_name == kernel
    assert p.key_averages().by_name(name).name == name
    trace = chrome_trace(p, tmp_path)
    outer, inner = cpu_slices(trace)
    assert (outer.name, outer.cat, outer.args["call_path"]) == (name, name, [name])
    assert outer.args["metrics"] == {key: 1.5}
    assert outer.args["metadata"] == {"text": name, "nested": {name: [name]}}
    assert inner.args["kernel_name"] == kernel
    assert one(gpu_slices(trace)).name == kernel
    literal = hatchet_json(p, tmp_path)
    node = hatchet_node(literal, name)
    assert node["metrics"][key] == 1.5
    assert hatchet_node(literal, f"gpu_dispatch:{kernel}")["metrics"]["count"] == 1
    p.key_averages().to_csv(tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", encoding="utf-8", newline="") as file:
        assert name in {row["name"] for row in csv.DictReader(file, strict=True)}


@hard_names
def test_c01_names_load_in_hatchet(sim, tmp_path, name):
    """The real reader keeps the names."""
    with enigma.profile() as p:
        with scope(name):
            sim.run("k")
    graph = hatchet_frame(p, tmp_path)
    assert name in set(graph.dataframe["name"])
    assert graph.tree()


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, 0x80, 0x9F, 0xAD, 0x200B, 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF])
def test_c02_control_characters(sim, tmp_path, code):
    """Each comes back from valid JSON; the table and the tree never print one."""
    name = f"a{chr(code)}b"
    with enigma.profile() as p:
        with scope(name):
            sim.run("k")
    out = export_all(p, tmp_path)
    assert [s.name for s in cpu_slices(out["chrome"])] == [name, "gpu_dispatch:k"]
    assert hatchet_node(out["hatchet"], name)
    if code < 0x20 or 0x7F <= code < 0xA0:
        for text in (out["table"], out["paths"], out["tree"]):
            assert chr(code) not in text.replace("\n", "")
        assert len(out["table"].splitlines()) == 4 and len(out["tree"].splitlines()) == 3


@pytest.mark.parametrize("name", ["GPU \U0001f680", "\u77e9\u9635\u4e58\u6cd5", "\xe9", "\U0010ffff"])
def test_c04_raw_utf8(sim, tmp_path, name):
    """The trace holds raw UTF-8, no escape of it."""
    with enigma.profile() as p:
        with scope(name, text=name):
            sim.run(name)
    for export in ("export_chrome_trace", "export_hatchet"):
        getattr(p, export)(tmp_path / "out.json")
        data = (tmp_path / "out.json").read_bytes()
        assert name.encode() in data
        assert b"\\ud" not in data.lower() and b"\\u" not in data


@pytest.mark.parametrize("name", ["\ud800", "a\udfffb", "\udc80\udcff", "\ud83d\ude80"])
def test_c04_lone_surrogates(sim, tmp_path, name):
    """What is no character is shown as U+FFFD in files; in Python the str comes back."""
    with enigma.profile() as p:
        with scope(name, text=name):
            sim.run("k")
    assert p.events()[-1].name == name
    out = export_all(p, tmp_path)
    assert "\ufffd" in cpu_slices(out["chrome"])[0].name
    assert any("\ufffd" in path[-1] for path, _ in hatchet_nodes(out["hatchet"]))
    for text in (out["table"], out["tree"]):
        text.encode("utf-8")


# ---- C05, C06: values ----------------------------------------------------------------------------------------------------

NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@pytest.mark.parametrize("value", NOT_FINITE.values(), ids=NOT_FINITE.keys())
@pytest.mark.parametrize("key", ["flops", "bytes", "x"])
def test_c05_metrics_that_are_not_finite(sim, tmp_path, key, value):
    """Kept in the event; the files pass strict parsers; the table shows "-" and no word of it."""
    with enigma.profile() as p:
        with scope("s", metrics={key: value}):
            sim.run("k", us=2, metrics={key: value})
    for event in p.events():
        assert math.isnan(event.metrics[key]) if math.isnan(value) else event.metrics[key] == value
    out = export_all(p, tmp_path)
    for text in (out["table"], out["paths"], out["tree"]):
        assert "nan" not in text.lower() and "inf" not in text.lower()
    if key != "x":
        assert all(line.split()[-2 + (key == "bytes")] == "-" for line in out["table"].splitlines()[2:4])
    slice_value = cpu_slices(out["chrome"])[0].args.get("metrics", {}).get(key)
    assert slice_value is None or isinstance(slice_value, str)
    for _, node in hatchet_nodes(out["hatchet"]):
        assert all(math.isfinite(v) for v in node["metrics"].values())
    graph = hatchet_frame(p, tmp_path)
    assert np.isfinite(graph.dataframe[key]).all()


def test_c05_together(sim, tmp_path):
    """The case as it stands: flops inf, x nan, y -inf in one scope, beside finite ones."""
    with enigma.profile() as p:
        with scope("s", metrics={"flops": math.inf, "x": math.nan, "y": -math.inf, "fine": 3}):
            sim.advance(5 * US)
    out = export_all(p, tmp_path)
    assert hatchet_node(out["hatchet"], "s")["metrics"]["fine"] == 3
    assert cpu_slices(out["chrome"])[0].args["metrics"]["fine"] == 3
    table = out["table"].lower()
    assert "-" in table.splitlines()[2].split() and "inf" not in table and "nan" not in table


@pytest.mark.parametrize("value", NOT_FINITE.values(), ids=NOT_FINITE.keys())
def test_c05_metadata_that_is_not_finite(sim, tmp_path, value):
    """The same for metadata, nested too."""
    with enigma.profile() as p:
        with scope("s", x=value, nested=[{"y": (value,)}]):
            pass
    export_all(p, tmp_path)


class Silly:
    def __repr__(self):
        raise ValueError("no repr of me")


class Surrogate:
    def __repr__(self):
        return "\ud800"


class Device:
    """An array on a device: reading its contents would synchronise."""
    shape = (2, 3)
    dtype = "float32"

    def __repr__(self):
        raise AssertionError("the contents were read")


def cyclic_list():
    made = [1]
    made.append(made)
    return made


def cyclic_dict():
    made = {"a": 1}
    made["self"] = {"deeper": made}
    return made


def deep(levels):
    made = "bottom"
    for _ in range(levels):
        made = [made]
    return made


PLAIN = {
    "none": None, "true": True, "int": 3, "negative": -3, "big": 2**62, "float": 0.1, "text": "t", "empty": "",
    "list": [1, "a", None], "tuple": (1, (2, 3)), "dict": {"a": 1, "b": [True]}, "nothing": [], "no entries": {},
}
OTHER = {
    "bytes": b"\x00\xff'", "long bytes": bytes(10**7), "numpy scalar": np.float32(1.5), "numpy int": np.int64(-7),
    "numpy bool": np.bool_(True), "numpy array": np.zeros((1000, 1000)), "0-d array": np.array(3.0),
    "text array": np.array(["a"]), "set": {1, 2}, "frozenset": frozenset("ab"), "object": object(), "class": int,
    "function": len, "lambda": lambda: 0, "module": os, "path": pathlib.Path("/x"), "complex": 1j, "range": range(10**9),
    "silly": Silly(), "surrogate": Surrogate(), "device": Device(), "cyclic list": cyclic_list(), "cyclic dict": cyclic_dict(),
    "deep": deep(500), "very deep": deep(50_000), "wide": list(range(100_000)), "huge int": 10**4000,
    "long text": "x" * 10**7, "int keys": {1: "a", 2: "b"}, "colliding keys": {1: "a", "1": "b"},
    "same repaired": {"\ud800": 1, "\udfff": 2}, "tuple keys": {(1, 2): 3}, "array.array": array.array("i", [1]),
    "exception": ValueError("x"), "generator": (i for i in ()), "memoryview": memoryview(b"abc"), "ellipsis": ...,
}


@pytest.mark.parametrize("value", PLAIN.values(), ids=PLAIN.keys())
def test_c06_plain_metadata_comes_back(sim, tmp_path, value):
    """None, numbers, texts and tuples, lists and dicts of them read back as they were."""
    with enigma.profile() as p:
        with scope("s", value=value):
            pass
    kept = named(p, "s").metadata["value"]
    assert kept == value and type(kept) is type(value)
    written = cpu_slices(chrome_trace(p, tmp_path))[0].args["metadata"]["value"]
    assert written == json.loads(json.dumps(value))


@pytest.mark.parametrize("value", OTHER.values(), ids=OTHER.keys())
def test_c06_odd_metadata(sim, tmp_path, value):
    """Export never fails; what is no plain value is a repr of limited length, arrays are type, shape and dtype."""
    with enigma.profile() as p:
        with scope("s", value=value, after="kept"):
            sim.run("k")
    event = named(p, "s")
    assert event.metadata["after"] == "kept"
    kept = event.metadata["value"]
    assert isinstance(kept, (type(None), bool, int, float, str, tuple, list, dict))
    if isinstance(kept, str) and not isinstance(value, str):
        assert len(kept) <= 1000
    export_all(p, tmp_path)


def test_c06_metric_keys_that_read_alike(sim, tmp_path):
    """Keys that only the repair of lone surrogates makes equal: the files are valid, and nothing adds up by accident."""
    with enigma.profile() as p:
        with scope("s", metrics={"\ud800": 1, "\udfff": 2, "x": 4}):
            pass
    out = export_all(p, tmp_path)
    assert cpu_slices(out["chrome"])[0].args["metrics"]["x"] == 4
    assert {1, 2, 4} <= set(hatchet_node(out["hatchet"], "s")["metrics"].values())


def test_c06_arrays_are_described(sim):
    """An array becomes its type, shape and dtype; a NumPy scalar its number."""
    with enigma.profile() as p:
        with scope("s", a=np.zeros((2, 3), np.int16), d=Device(), f=np.float64(0.1), i=np.uint8(200)):
            pass
    metadata = named(p, "s").metadata
    assert metadata["a"] == {"type": "numpy.ndarray", "shape": (2, 3), "dtype": "int16"}
    assert metadata["d"]["shape"] == (2, 3) and metadata["d"]["dtype"] == "float32"
    assert (metadata["f"], metadata["i"]) == (0.1, 200)


def test_c06_metadata_is_copied_at_entry(sim):
    """Changing a list or dict afterwards changes nothing that was recorded, and events hold no user object."""
    values, table = [1, 2], {"a": [1]}
    before = sys.getrefcount(values), sys.getrefcount(table)
    with enigma.profile() as p:
        with scope("s", values=values, table=table):
            values.append(3)
            table["a"].append(2)
    assert named(p, "s").metadata == {"values": [1, 2], "table": {"a": [1]}}
    assert (sys.getrefcount(values), sys.getrefcount(table)) == before


RESERVED = ["ts", "dur", "ph", "pid", "tid", "cat", "id", "args", "bp", "s", "event", "call_path", "kernel_name", "metadata",
            "start_ns", "gpu_time_us", "time", "children", "frame", "error", "unfinished", "gpu_time", "self", "class"]


def test_c06_reserved_keys(sim, tmp_path):
    """Metadata and metrics named like fields of a file do not overwrite them, and come back."""
    with enigma.profile() as p:
        with scope("s", metrics={key: i for i, key in enumerate(RESERVED)}, **{key: f"my {key}" for key in RESERVED}):
            sim.advance(5 * US)
    event = named(p, "s")
    assert event.metadata == {key: f"my {key}" for key in RESERVED}
    piece = one(cpu_slices(chrome_trace(p, tmp_path)))
    assert (piece.name, piece.cat, piece.start, piece.end) == ("s", "scope", 0, 5 * US)
    assert piece.args["call_path"] == ["s"]
    assert piece.args["metadata"] == {key: f"my {key}" for key in RESERVED}
    assert piece.args["metrics"] == {key: i for i, key in enumerate(RESERVED)}
    node = hatchet_node(hatchet_json(p, tmp_path), "s")
    assert (node["metrics"]["time"], node["frame"]["name"]) == (5.0, "s")


# ---- C07 to C16: Hatchet -------------------------------------------------------------------------------------------------


def test_c07_hatchet_empty_profile(tmp_path):
    """Loads, one node, time 0."""
    with enigma.profile() as p:
        pass
    graph = hatchet_frame(p, tmp_path)
    assert len(graph.dataframe) == 1
    assert graph.dataframe["time"].tolist() == graph.dataframe["time (inc)"].tolist() == [0.0]
    assert graph.tree()


@pytest.mark.parametrize("names", [[""], ["", ""], ["a", "", "b"], ["", "(unnamed)"]])
def test_c08_hatchet_empty_names(sim, tmp_path, names):
    """Empty names have a placeholder; the file loads, and siblings that look alike stay apart."""
    with enigma.profile() as p:
        for name in names:
            with scope(name):
                sim.advance(US)
        with scope("kernel"):
            sim.run("k")
    graph = hatchet_frame(p, tmp_path)
    assert all(graph.dataframe["name"]) and graph.tree()
    literal = hatchet_json(p, tmp_path)
    top = [n for path, n in hatchet_nodes(literal) if len(path) == 2]
    assert sum(n["metrics"]["count"] for n in top) == len(names) + 1
    assert len({tuple(n["frame"].items()) for n in top}) == len(set(names)) + 1


def test_c09_hatchet_frames(sim, tmp_path):
    """Frames hold only texts under fixed keys, whatever grids, kernels and metadata there are; it loads."""
    with enigma.profile() as p:
        for grid in ((1, 1, 1), (64, 2, 3), (7, 1, 1)):
            with scope("s", grid=grid, none=None):
                sim.run("k", grid=grid, threads=(1, 1, 1))
                sim.run("other", grid=grid, threads=(1, 1, 1))
            with scope("k"):
                pass
        sim.runtime.execute(sim.runtime.compile("source", "k"), [b"1234"], 4, grid=(1, 1, 1), threads=(1, 1, 1))
    literal = hatchet_json(p, tmp_path)
    for _, node in hatchet_nodes(literal):
        assert set(node["frame"]) == {"name", "type"}
        assert all(isinstance(v, str) and v for v in node["frame"].values())
        assert set(node) == {"frame", "metrics", "children"}
    graph = hatchet_frame(p, tmp_path)
    assert graph.filter(lambda row: row["gpu_time"] > 0).tree()


@pytest.mark.parametrize("first, second", [
    ({"flops": 5}, None), (None, {"flops": 5}), ({"flops": 5}, {"bytes": 2}), ({"bytes": 1, "flops": 2}, {"flops": 1})])
def test_c10_hatchet_fixed_keys(sim, tmp_path, first, second):
    """Profiles with and without flops have the same keys on every node and subtract in either direction."""
    profilers = []
    for metrics in (first, second):
        with enigma.profile() as p:
            with scope("s", metrics=metrics):
                sim.run("k", us=2)
        profilers.append(p)
    keys = [{frozenset(n["metrics"]) for _, n in hatchet_nodes(hatchet_json(p, tmp_path))} for p in profilers]
    assert keys[0] == keys[1] and len(keys[0]) == 1
    a, b = (hatchet_frame(p, tmp_path, f"{i}.json") for i, p in enumerate(profilers))
    flops = (first or {}).get("flops", 0) - (second or {}).get("flops", 0)
    difference = a - b
    assert difference.dataframe["flops"].sum() == flops
    assert abs(difference.dataframe["time"]).sum() == 0.0
    assert (b - a).dataframe["flops"].sum() == -flops


@pytest.mark.parametrize("key", ["name", "node", "type", "time", "time (inc)", "_hatchet_nid", "nid", "gpu_time", "count",
                                 "count (inc)", "flops (inc)", "(inc)", "", "_missing_node", "rank", "thread", "children"])
def test_c11_hatchet_reserved_metrics(sim, tmp_path, key):
    """Node names and our metrics are intact; the user's value is there, under a changed key where it would collide."""
    with enigma.profile() as p:
        with scope("s", metrics={key: 4321.0, "flops": 1}):
            sim.advance(5 * US)
    graph = hatchet_frame(p, tmp_path)
    assert sorted(graph.dataframe["name"]) == ["ROOT", "s"]
    assert graph.tree()
    graph.update_inclusive_columns()
    metrics = hatchet_node(hatchet_json(p, tmp_path), "s")["metrics"]
    assert (metrics["time"], metrics["time (inc)"], metrics["count"], metrics["flops"]) == (5.0, 5.0, 1, 1)
    found = [k for k, v in metrics.items() if v == 4321.0]
    assert len(found) == 2 and sorted(found)[1] == f"{sorted(found)[0]} (inc)"


def test_c11_hatchet_all_reserved_at_once(sim, tmp_path):
    """Changed keys do not collide with each other either."""
    keys = ["name", "user.name", "node", "user.node", "time", "user.time", "user.user.time", "x (inc)", "x [inc]", "x"]
    with enigma.profile() as p:
        with scope("s", metrics={key: 1000.0 + i for i, key in enumerate(keys)}):
            pass
    values = list(hatchet_node(hatchet_json(p, tmp_path), "s")["metrics"].values())
    assert all(values.count(1000.0 + i) == 2 for i in range(len(keys)))
    assert hatchet_frame(p, tmp_path).tree()


def random_tree(sim, random_, depth):
    for _ in range(random_.randrange(1, 4)):
        with scope(random_.choice("abcdef"), metrics={"flops": random_.randrange(1000), "own": random_.random()}):
            sim.advance(random_.randrange(1, 1_000_000))
            if depth and random_.random() < 0.7:
                random_tree(sim, random_, depth - 1)
            if random_.random() < 0.5:
                sim.run(random_.choice("kl"), us=random_.randrange(1, 1000) / 8, metrics={"bytes": random_.randrange(10**6)})
            sim.advance(random_.randrange(0, 1000))


@pytest.mark.parametrize("seed", range(6))
def test_c13_hatchet_sums(sim, tmp_path, seed):
    """Of a random tree every X (inc) is the subtree's sum of X, and stays so when the reader recomputes it."""
    sim.kernel("k", inputs=[bytes(64)], output_size=32)
    with enigma.profile(profile_memory=True) as p:
        random_tree(sim, random.Random(seed), 5)
    literal = hatchet_json(p, tmp_path)
    sums = {}
    nodes = hatchet_nodes(literal)
    for path, node in sorted(nodes, key=lambda item: -len(item[0])):
        below = [sums[id(child)] for child in node["children"]]
        own = {k: v for k, v in node["metrics"].items() if not k.endswith(" (inc)")}
        assert {f"{k} (inc)" for k in own} == {k for k in node["metrics"] if k.endswith(" (inc)")}
        sums[id(node)] = {k: v + sum(b[k] for b in below) for k, v in own.items()}
        for k, total in sums[id(node)].items():
            assert node["metrics"][f"{k} (inc)"] == pytest.approx(total, rel=1e-9, abs=1e-9)
    root = literal[0]["metrics"]
    scopes = [e for e in p.events() if e.category == "scope"]
    assert root["time (inc)"] == pytest.approx(sum(e.duration_us for e in p.events() if len(e.node_path) == 1), rel=1e-9)
    assert root["gpu_time (inc)"] == pytest.approx(sum(e.gpu_time_us for e in dispatches(p)), rel=1e-9)
    assert root["count (inc)"] == len(p.events())
    assert root["flops (inc)"] == sum(e.metrics["flops"] for e in scopes)
    assert root["bytes (inc)"] == sum(e.metrics["bytes"] for e in dispatches(p))
    assert root["input_bytes (inc)"] == sum(e.input_bytes for e in p.events())

    graph = hatchet_frame(p, tmp_path)
    exclusive = [c for c in graph.exc_metrics if c not in ("name", "type")]
    assert {"time", "gpu_time", "count", "bytes", "flops"} <= set(exclusive)
    before = graph.dataframe.copy()
    graph.update_inclusive_columns()
    for column in graph.inc_metrics:
        np.testing.assert_allclose(graph.dataframe[column], before[column], rtol=1e-9, atol=1e-9)
    squashed = graph.filter(lambda row: row["count"] > 0).dataframe
    assert squashed["time"].sum() == pytest.approx(root["time (inc)"], rel=1e-9)


def test_c13_hatchet_has_no_averages(sim, tmp_path):
    """Everything written adds up: twice the work is twice every number."""
    literals = []
    for rounds in (1, 2):
        with enigma.profile(profile_memory=True) as p:
            for _ in range(rounds):
                with scope("s", metrics={"flops": 5}):
                    sim.run("k", us=3, metrics={"bytes": 7})
        literals.append({path: n["metrics"] for path, n in hatchet_nodes(hatchet_json(p, tmp_path))})
    once, twice = literals
    assert once.keys() == twice.keys()
    for path, metrics in once.items():
        assert {k: 2 * v for k, v in metrics.items()} == twice[path]


def test_c14_hatchet_repeated_scope(sim, tmp_path):
    """A scope entered 1000 times is one node with count 1000; a profile less itself is all zeros."""
    with enigma.profile() as p:
        for _ in range(1000):
            with scope("s"):
                sim.run("k")
    graph = hatchet_frame(p, tmp_path)
    counts = dict(zip(graph.dataframe["name"], graph.dataframe["count"]))
    assert counts == {"ROOT": 0, "s": 1000, "gpu_dispatch:k": 1000}
    difference = graph - hatchet_frame(p, tmp_path)
    for column in graph.exc_metrics + graph.inc_metrics:
        assert (difference.dataframe[column] == 0).all()


def test_c14_hatchet_merges_threads(sim, tmp_path):
    """The same path from several threads is one node too."""
    import contextvars
    with enigma.profile() as p:
        for _ in range(4):
            def body():
                with scope("s"):
                    sim.run("k")
            thread = threading.Thread(target=contextvars.copy_context().run, args=(body,))
            thread.start()
            thread.join()
    assert hatchet_node(hatchet_json(p, tmp_path), "s")["metrics"]["count"] == 4


def test_c16_hatchet_holds_only_nodes(small, tmp_path):
    """The top-level list has nodes and nothing else, so the documented line loads it."""
    literal = hatchet_json(small, tmp_path)
    assert isinstance(literal, list) and len(literal) >= 1
    for node in literal:
        assert set(node) == {"frame", "metrics", "children"}


# ---- C17 to C26: Chrome --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second_at, second_us", [(9.999, 10), (0, 10), (5, 2), (0, 5), (5, 5), (10, 10), (0.001, 10)])
def test_c17_chrome_overlap_on_one_queue(tmp_path, second_at, second_us):
    """Two kernels that overlap by 1 ns, or in any other way, never partly overlap on one track; stamps are unchanged."""
    with simulating() as sim, enigma.profile() as p:
        base = sim.now
        starts = (base, base + round(second_at * US))
        ends = (base + 10 * US, starts[1] + second_us * US)
        sim.runtime.script(zip(starts, ends))
        sim.run("a", wait=False)
        sim.run("b", wait=False)
    assert [(e.gpu_start_ns, e.gpu_end_ns) for e in dispatches(p)] == list(zip(starts, ends))
    trace = chrome_trace(p, tmp_path)  # chrome_check refuses partial overlap
    pieces = {s.name: s for s in gpu_slices(trace)}
    for name, start, end in zip("ab", starts, ends):
        assert (pieces[name].start + trace.base_ns, pieces[name].end + trace.base_ns) == (start, end)
    a, b = pieces["a"], pieces["b"]
    nested = (a.start <= b.start and b.end <= a.end) or (b.start <= a.start and a.end <= b.end)
    if not nested and b.start < a.end:
        assert a.track != b.track


@pytest.mark.parametrize("queues", [2, 3, 9])
def test_c17_chrome_concurrent_queues(tmp_path, queues):
    """Kernels at the same time on several queues are on tracks of their own, with names of their own."""
    with simulating(queues=queues) as sim, enigma.profile() as p:
        stamps = (sim.now, sim.now + 10 * US)
        for queue in range(queues):
            sim.run("k", stamps=stamps, queue=queue, wait=False)
    trace = chrome_trace(p, tmp_path)
    pieces = gpu_slices(trace)
    assert len({s.track for s in pieces}) == queues
    assert sorted(trace.threads[s.track] for s in pieces) == [f"GPU 0 queue {q}" for q in range(queues)]


@pytest.mark.parametrize("seed", range(5))
def test_c17_chrome_random_overlaps(tmp_path, seed):
    """Any mess of intervals on three queues passes the checker with every interval as it was."""
    random_ = random.Random(seed)
    with simulating(queues=3) as sim, enigma.profile() as p:
        expected = []
        for i in range(60):
            start = sim.now + random_.randrange(0, 50)
            stamps = (start, start + random_.choice([0, 1, 2, 5, 20, 50]))
            sim.run(f"k{i}", stamps=stamps, queue=random_.randrange(3), wait=False)
            expected.append((f"k{i}", *stamps))
    trace = chrome_trace(p, tmp_path)
    assert sorted((s.name, s.start + trace.base_ns, s.end + trace.base_ns) for s in gpu_slices(trace)) == sorted(expected)


@pytest.mark.parametrize("ns", [10_000_000, 1, 999, 1_000, 1_001, 123_456_789, 86_400 * 10**9])
def test_c19_chrome_unit(sim, tmp_path, ns):
    """ts and dur are microseconds with three decimals: 10 ms are 10000.000."""
    with enigma.profile() as p:
        with scope("before"):
            sim.advance(2_500)
        with scope("s"):
            sim.advance(ns)
    trace = chrome_trace(p, tmp_path)
    event = one(e for e in trace.data["traceEvents"] if e["ph"] == "X" and e["name"] == "s")
    assert (event["dur"].text, event["ts"].text) == (f"{ns // 1000}.{ns % 1000:03}", "2.500")
    assert trace.data["displayTimeUnit"] in ("ns", "ms")


@pytest.mark.parametrize("start_ns", [1_700_000_000_000_000_000, 1, 2**53 + 1, 2**62])
def test_c20_chrome_big_base(tmp_path, start_ns):
    """At a base of 1.7e18 ns two kernels of 40 ns, 60 ns apart, are exactly 0.040 long and 0.060 apart; the base is an int."""
    with simulating(start_ns=start_ns) as sim, enigma.profile() as p:
        first = (sim.now, sim.now + 40)
        second = (first[1] + 60, first[1] + 100)
        sim.run("k", stamps=first)
        sim.advance(60)
        sim.run("k", stamps=second)
    trace = chrome_trace(p, tmp_path)
    names = trace.threads
    a, b = (e for e in trace.data["traceEvents"] if e["ph"] == "X" and names[e["pid"], e["tid"]].startswith("GPU"))
    assert (a["ts"].text, a["dur"].text, b["ts"].text, b["dur"].text) == ("0.000", "0.040", "0.100", "0.040")
    assert trace.data["metadata"]["baseTimeNanoseconds"] == start_ns
    assert [(e.start_ns, e.gpu_start_ns, e.gpu_end_ns) for e in p.events()] == [(s, s, e) for s, e in (first, second)]


def test_c22_chrome_tid(small, tmp_path):
    """The device queue with index 0 has a tid that is not 0 and not the pid, and a name."""
    trace = chrome_trace(small, tmp_path)
    piece = one(gpu_slices(trace))
    assert piece.tid not in (0, piece.pid) and piece.pid != 0
    assert trace.threads[piece.track] == "GPU 0 queue 0"
    assert {s.pid for s in cpu_slices(trace)} == {os.getpid()}
    assert all(s.tid != 0 for s in trace.slices)


@pytest.mark.parametrize("devices", [2, 5])
def test_c23_chrome_devices(tmp_path, devices):
    """Devices with the same queue id are separate processes and tracks."""
    with simulating(devices=devices) as sim, enigma.profile() as p:
        for device in range(devices):
            sim.run("k", us=10, device=device, wait=False)
    assert [(e.device_id, e.queue_id) for e in dispatches(p)] == [(d, 0) for d in range(devices)]
    trace = chrome_trace(p, tmp_path)
    pieces = gpu_slices(trace)
    assert len({s.pid for s in pieces}) == len({s.track for s in pieces}) == devices
    assert sorted(trace.threads[s.track] for s in pieces) == [f"GPU {d} queue 0" for d in range(devices)]
    row = row_of(p.key_averages(), "gpu_dispatch", "k")
    assert (row.calls, row.gpu_total_us, row.gpu_busy_us) == (devices, 10.0 * devices, 10.0)


def test_c23_chrome_two_runtimes(tmp_path):
    """Two runtimes whose devices have the same index are separate tracks too."""
    with simulating() as sim, enigma.profile() as p:
        other = enigma.testing.ScriptedRuntime()
        sim.run("k", us=5, wait=False)
        other.prepare("k").dispatch((1, 1, 1), (1, 1, 1), wait=False)
    assert len({s.pid for s in gpu_slices(chrome_trace(p, tmp_path))}) == 2


@pytest.mark.parametrize("start_ns, early_ns", [(0, 0), (0, 100), (1, 0), (1, 500), (500, 499), (500, 10_000)])
def test_c20_chrome_base_near_zero(tmp_path, start_ns, early_ns):
    """A host clock that begins at 0, and kernels that would map before that: no stamp is taken for "none", none is negative."""
    with enigma.testing.scripted_clock(start_ns=start_ns) as clock:
        runtime = enigma.testing.ScriptedRuntime(clock_offset_ns=10**9)
        with enigma.profile() as p, scope("s"):
            runtime.script([(10**9 + start_ns - early_ns, 10**9 + start_ns + 1000)])
            runtime.prepare("k").dispatch((1, 1, 1), (1, 1, 1))
            clock.advance(40)
    trace = chrome_trace(p, tmp_path)
    stamps = [stamp for e in p.events() for stamp in (e.start_ns, e.gpu_start_ns) if stamp == e.start_ns or e.gpu_end_ns]
    assert trace.data["metadata"]["baseTimeNanoseconds"] == min(stamps) == max(0, start_ns - early_ns)
    assert all(e["ts"].text[0] != "-" for e in trace.data["traceEvents"] if "ts" in e)


@pytest.mark.parametrize("early_ns", [2_000, 1_000, 500_000])
def test_c25_chrome_kernel_before_its_launch(sim, tmp_path, early_ns):
    """Kept with its stamps, marked as skewed and counted; no negative dur."""
    with enigma.profile() as p:
        sim.run("fine", us=1)
        sim.advance(600 * US)
        stamps = (sim.now - early_ns, sim.now + 5 * US)
        launch_ns = sim.now
        sim.run("k", stamps=stamps)
    event = dispatch(p, "k")
    assert (event.start_ns, event.gpu_start_ns, event.gpu_end_ns) == (launch_ns, *stamps)
    assert event.gpu_time_us == (early_ns + 5 * US) / 1000
    assert "skew" in event.metadata["gpu_clock"]
    assert "gpu_clock" not in dispatch(p, "fine").metadata
    assert any(line.startswith("1 ") for line in footer(p))
    trace = chrome_trace(p, tmp_path)
    assert trace.metadata["gpu_skewed"] == 1
    piece = one(s for s in gpu_slices(trace) if s.name == "k")
    assert (piece.start + trace.base_ns, piece.end + trace.base_ns) == stamps


def test_c26_chrome_zero(sim, tmp_path):
    """A dispatch and a scope of 0 ns are written with dur 0 and are not missing anywhere."""
    with enigma.profile() as p:
        with scope("s"):
            sim.run("k", us=0)
    event = dispatch(p)
    assert (event.gpu_time_us, event.gpu_start_ns, event.gpu_end_ns) == (0.0, sim.now, sim.now)
    assert "gpu_time" not in event.metadata and footer(p) == []
    trace = chrome_trace(p, tmp_path)
    assert [s.name for s in cpu_slices(trace)] == ["s", "gpu_dispatch:k"] and one(gpu_slices(trace)).name == "k"
    assert {e["dur"].text for e in trace.data["traceEvents"] if e["ph"] == "X"} == {"0.000"}
    assert trace.metadata["gpu_invalid"] == 0
    assert row_of(p.key_averages(), "gpu_dispatch", "k").calls == 1
    assert hatchet_node(hatchet_json(p, tmp_path), "gpu_dispatch:k")["metrics"]["count"] == 1


def test_c26_chrome_many_zeros(sim, tmp_path):
    """Many zero-length scopes at one instant nest as they were."""
    with enigma.profile() as p:
        for _ in range(3):
            with scope("a"):
                with scope("b"):
                    pass
                with scope("c"):
                    pass
    trace = chrome_trace(p, tmp_path)
    assert sorted(s.name for s in trace.slices) == list("aaabbbccc")


# ---- C28, C29: writing ------------------------------------------------------------------------------------------------------


@exports
def test_c28_disk_full(small, export):
    """A full disk is an OSError with errno and path."""
    with pytest.raises(OSError) as caught:
        export(small, "/dev/full")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")


@exports
def test_c28_path_is_a_directory(small, tmp_path, export):
    """IsADirectoryError with the path, and nothing left in or beside it."""
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        export(small, target)
    assert caught.value.filename == str(target)
    assert list(tmp_path.iterdir()) == [target] and list(target.iterdir()) == []


@exports
def test_c28_parent_is_a_file(small, tmp_path, export):
    """NotADirectoryError with the path."""
    (tmp_path / "file").write_text("mine")
    target = tmp_path / "file" / "x.json"
    with pytest.raises(NotADirectoryError) as caught:
        export(small, target)
    assert caught.value.filename == str(target)
    assert (tmp_path / "file").read_text() == "mine"


@exports
def test_c28_name_too_long(small, tmp_path, export):
    """OSError with the path; a name that just fits works."""
    with pytest.raises(OSError) as caught:
        export(small, tmp_path / ("n" * 300))
    assert caught.value.errno == errno.ENAMETOOLONG
    export(small, tmp_path / ("n" * 255))
    assert [p.name for p in tmp_path.iterdir()] == ["n" * 255]


@exports
def test_c28_replaces_whole(small, tmp_path, export):
    """An existing file is replaced, longer or shorter, with its permissions kept; no other file is left."""
    target = tmp_path / "x"
    export(small, target)
    good = target.read_bytes()
    target.write_bytes(b"z" * 100_000)
    target.chmod(0o640)
    export(small, target)
    assert target.read_bytes() == good
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [target]


FILL = """
import resource, signal, sys
import enigma
from enigma.testing import scripted_clock
with scripted_clock(), enigma.profile() as p:
    for i in range(5000):
        with enigma.scope(f"scope {i}"):
            pass
signal.signal(signal.SIGXFSZ, getattr(signal, sys.argv[3]))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
if sys.argv[1] == "csv":
    p.key_averages().to_csv(sys.argv[2])
else:
    {"hatchet": p.export_hatchet, "chrome": p.export_chrome_trace, "enigma": p.save}[sys.argv[1]](sys.argv[2])
"""


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("name", EXPORTS)
def test_c28_write_fails_half_way(tmp_path, name, existing):
    """A file that cannot be written to its end: OSError, the old file intact or none at all, nothing left over."""
    target = tmp_path / "x"
    if existing:
        target.write_text("good")
    done = python(FILL, name, target, "SIG_IGN", check=False)
    assert done.returncode == 1 and "File too large" in done.stderr and str(target) in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == (["x"] if existing else [])
    if existing:
        assert target.read_text() == "good"


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("name", EXPORTS)
def test_c28_killed_half_way(tmp_path, name, existing):
    """Killed in the middle of writing: the old file is intact, or there is none under that name."""
    target = tmp_path / "x"
    if existing:
        target.write_text("good")
    done = python(FILL, name, target, "SIG_DFL", check=False, preexec_fn=no_core)
    assert done.returncode < 0
    assert target.exists() == existing
    if existing:
        assert target.read_text() == "good"


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@exports
def test_c28_symlink_is_followed(small, tmp_path, export):
    """The link stays a link; what it points to is replaced, or made."""
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.parent.mkdir()
    link.symlink_to(real)
    export(small, link)
    first = real.read_bytes()
    real.write_text("old")
    export(small, link)
    assert link.is_symlink() and real.read_bytes() == first
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "link", "real"]


@exports
def test_c28_pipes_are_written_in_place(small, tmp_path, export):
    """A named pipe gets the bytes that a file would, and stays a pipe."""
    export(small, tmp_path / "file")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    export(small, pipe)
    reader.join()
    assert got == [(tmp_path / "file").read_bytes()]
    assert pipe.is_fifo()


def test_c28_standard_output(tmp_path):
    """/dev/stdout works, whatever it is."""
    code = """
import enigma
with enigma.profile() as p, enigma.scope("s"):
    pass
p.export_chrome_trace("/dev/stdout")
"""
    trace = chrome_check.check(python(code).stdout.encode())
    assert [s.name for s in trace.slices] == ["s"]


PATHS = {
    "str": lambda p: str(p / "out"),
    "Path": lambda p: p / "out",
    "bytes": lambda p: os.fsencode(p / "out"),
    "non-ASCII str": lambda p: str(p / "\xe9\u77e9\U0001f680 out"),
    "non-ASCII Path": lambda p: p / "\xe9\u77e9\U0001f680 out",
    "blanks and quotes": lambda p: p / " it's \"a\" file\n",
    "no UTF-8": lambda p: os.fsencode(p) + b"/\xff\xfe",
    "no UTF-8 as str": lambda p: str(p) + "/\udcff",
    "dots": lambda p: str(p) + "/./../" + p.name + "/out",
}


@exports
@pytest.mark.parametrize("make", PATHS.values(), ids=PATHS.keys())
def test_c29_path_types(small, tmp_path, export, make):
    """str, Path, bytes and odd names all work, and make exactly that file."""
    path = make(tmp_path)
    export(small, path)
    assert os.path.getsize(path) > 0
    assert len(list(tmp_path.iterdir())) == 1


@exports
def test_c29_relative_paths(small, tmp_path, monkeypatch, export):
    """A bare name is in the current folder."""
    monkeypatch.chdir(tmp_path)
    export(small, "out")
    assert os.path.getsize(tmp_path / "out") > 0


@exports
@pytest.mark.parametrize("path", ["missing/x.json", "a/b/c/x.json"])
def test_c29_missing_parent(small, tmp_path, export, path):
    """FileNotFoundError with the path, and no folder is made."""
    target = tmp_path / path
    with pytest.raises(FileNotFoundError) as caught:
        export(small, target)
    assert caught.value.filename == str(target)
    assert list(tmp_path.iterdir()) == []


@exports
@pytest.mark.parametrize("path, error", [(None, TypeError), (3, TypeError), (1.5, TypeError), (io.BytesIO(), TypeError),
                                         ("a\0b", ValueError), (b"a\0b", ValueError), ("", FileNotFoundError)])
def test_c29_what_is_no_path(small, export, path, error):
    """TypeError, ValueError for a NUL, FileNotFoundError for the empty one."""
    with pytest.raises(error) as caught:
        export(small, path)
    assert not isinstance(caught.value, OSError) or caught.value.filename == path


@exports
def test_c29_path_by_keyword(small, tmp_path, export):
    """The reference names the parameter path."""
    for method in (small.export_hatchet, small.export_chrome_trace, small.save, small.key_averages().to_csv):
        method(path=tmp_path / "out")
    assert export is not None and (tmp_path / "out").exists()


def test_names_of_the_list_are_all_different():
    """The list of hard names has no name twice."""
    assert len(set(HARD_NAMES.values())) == len(HARD_NAMES)


def test_exports_by_a_program(tmp_path, small):
    """chrome_check as a program accepts the trace, as a user would run it."""
    small.export_chrome_trace(tmp_path / "x.trace.json")
    subprocess.run([sys.executable, chrome_check.__file__, tmp_path / "x.trace.json"], check=True, capture_output=True)
