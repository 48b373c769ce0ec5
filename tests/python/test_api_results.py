"""ProfilerResult and ProfilerRow: sorting, merging, printing, files, and what is wrong said so."""

import copy
import csv
import dataclasses
import os
import pathlib

import enigma
import pytest

GRID, THREADS = (64, 1, 1), (32, 1, 1)
FIELDS = [name for name in enigma.ProfilerRow.__match_args__ if name not in ("metrics", "call_path")]


@pytest.fixture
def profiler(fake, clock):
    """Two kernels of the same event name in two scopes, and a scope without device work."""
    with enigma.profile() as profiler:
        for name, kernel, times, flops in [("b", "k1", 3, 1e6), ("a", "k2", 1, None)]:
            with enigma.scope(name):
                prepared = fake.prepare(kernel)
                for _ in range(times):
                    fake.script([(clock.now, clock.now + 2_000)])
                    prepared.dispatch(GRID, THREADS, metrics=None if flops is None else {"flops": flops})
        with enigma.scope("idle"):
            clock.advance(500)
    return profiler


@pytest.fixture
def result(profiler):
    return profiler.key_averages()


def test_rows_by_name(result):
    rows = result.rows()
    assert [(r.name, r.kernel_name) for r in rows] == [
        ("b", None), ("gpu_dispatch", "k1"), ("a", None), ("gpu_dispatch", "k2"), ("idle", None)]
    k1 = rows[1]
    assert (k1.calls, k1.cpu_total_us, k1.gpu_total_us, k1.gpu_avg_us) == (3, 6.0, 6.0, 2.0)
    assert (k1.min_us, k1.median_us, k1.max_us, k1.gpu_busy_us) == (2.0, 2.0, 2.0, 6.0)
    assert k1.metrics == {"flops": 3e6} and k1.gflops_per_s == 500.0 and k1.rate_source == "gpu"
    assert rows[3].metrics == {} and rows[3].gflops_per_s == 0.0 and rows[3].rate_source is None
    assert k1.call_path == ()


def test_rows_by_call_path(profiler):
    rows = profiler.key_averages(group_by="call_path").rows(sort_by="name")
    assert [r.name for r in rows] == ["a", "a/gpu_dispatch:k2", "b", "b/gpu_dispatch:k1", "idle"]
    assert rows[1].call_path == ("a", "gpu_dispatch:k2")


def test_result_is_a_sized_iterable(result):
    assert len(result) == 5 and list(result) == result.rows()
    assert repr(result) == "<enigma.ProfilerResult of 5 rows>"
    assert str(result) == result.table()


def test_by_name(result):
    assert result.by_name("idle").cpu_total_us == 0.5
    merged = result.by_name("gpu_dispatch")
    assert merged.kernel_name is None and merged.calls == 4 and merged.gpu_total_us == 8.0
    assert result.by_name(name="a") == result.by_name("a")
    with pytest.raises(KeyError, match="missing") as raised:
        result.by_name("missing")
    assert raised.value.args == ("missing",)
    for wrong in (None, b"a", 1):
        with pytest.raises(TypeError):
            result.by_name(wrong)


@pytest.mark.parametrize("field", FIELDS)
def test_sort_by_every_field(result, field):
    rows = result.rows(sort_by=field)
    values = [getattr(r, field) for r in rows]
    if isinstance(result.rows()[0].as_dict()[field], (int, float)):
        assert values == sorted(values, reverse=True)
        for one, other in zip(rows, rows[1:], strict=False):
            if getattr(one, field) == getattr(other, field):
                assert (one.name, one.kernel_name or "") <= (other.name, other.kernel_name or "")
    else:
        present = [v for v in values if v is not None]
        assert present == sorted(present)
    assert result.table(sort_by=field)


@pytest.mark.parametrize("wrong", ["nope", "", None, "metrics", "call_path", "cpu_total_us\0", 3, b"calls", ["calls"]],
                         ids=repr)
def test_wrong_sort(result, wrong):
    for method in (result.rows, result.table):
        with pytest.raises(ValueError) as raised:
            method(sort_by=wrong)
        assert all(field in str(raised.value) for field in FIELDS)
    with pytest.raises(TypeError):
        result.rows("calls")


@pytest.mark.parametrize("wrong", ["callpath", "", None, 3, b"name", "name\0"], ids=repr)
def test_wrong_group(profiler, wrong):
    with pytest.raises(ValueError, match='"name".*"call_path"'):
        profiler.key_averages(group_by=wrong)
    with pytest.raises(TypeError):
        profiler.key_averages("name")


def test_rows_are_frozen_values(profiler, result):
    row, same = result.rows()[1], profiler.key_averages().rows()[1]
    assert row == same and row is not same and hash(row) == hash(same) and row != result.rows()[2]
    assert profiler.key_averages() == result
    assert result != profiler.key_averages(group_by="call_path")
    assert copy.deepcopy(result) is copy.copy(result) is result and copy.deepcopy(row) is copy.copy(row) is row
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.calls = 1
    row.metrics["flops"] = 0
    assert row.metrics == {"flops": 3e6}
    assert repr(row).startswith("ProfilerRow(name='gpu_dispatch', kernel_name='k1', calls=3, ")
    with pytest.raises(TypeError):
        enigma.ProfilerRow()
    with pytest.raises(TypeError):
        enigma.ProfilerResult()


def test_as_dict(result):
    row = result.rows()[1]
    as_dict = row.as_dict()
    assert list(as_dict) == list(enigma.ProfilerRow.__match_args__)
    assert all(as_dict[name] == getattr(row, name) for name in as_dict)
    as_dict["calls"] = 0
    assert row.calls == 3


def test_rows_outlive_their_result(profiler):
    row = profiler.key_averages().by_name("idle")
    del profiler
    assert row.name == "idle"


def test_table_is_pure(result):
    first = result.table()
    assert first == result.table() and "GFLOP/s" in first and "500" in first
    order = [line.split()[0] for line in result.table(sort_by="name").splitlines()[2:7]]
    assert order == sorted(order)


def test_tree(profiler):
    tree = profiler.tree()
    assert tree == profiler.tree()
    assert [line for line in tree.splitlines() if line.startswith("  gpu_dispatch:k1")]


def test_csv(result, tmp_path):
    path = tmp_path / "rows.csv"
    result.to_csv(path)
    with open(path, newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines] == [r.name for r in result.rows()]
    assert [float(line["gpu_total_us"]) for line in lines] == [r.gpu_total_us for r in result.rows()]
    assert set(FIELDS) <= set(lines[0])


def writers(profiler):
    exports = [getattr(profiler, name) for name in dir(profiler) if name.startswith("export_")]
    return [profiler.key_averages().to_csv, profiler.save, *exports]


def test_path_types(profiler, tmp_path):
    names = ["plain", "\u00fcml\u00e4ut \U0001f680", os.fsdecode(b"undecodable \xff")]
    assert len(writers(profiler)) >= 4
    for write in writers(profiler):
        for kind in (str, os.fsencode, pathlib.Path):
            for name in names:
                target = tmp_path / name
                write(kind(target))
                assert target.stat().st_size > 0
                target.unlink()
        write(path=tmp_path / "keyword")
        assert os.listdir(tmp_path) == ["keyword"]
        (tmp_path / "keyword").unlink()


def test_wrong_paths(profiler, tmp_path):
    missing = tmp_path / "missing" / "file"
    for write in writers(profiler):
        with pytest.raises(FileNotFoundError) as raised:
            write(missing)
        assert os.fspath(missing) in (raised.value.filename, os.fspath(raised.value.filename))
        with pytest.raises(IsADirectoryError) as raised:
            write(tmp_path)
        assert raised.value.filename == os.fspath(tmp_path)
        for wrong in (None, 1, 1.5, [tmp_path]):
            with pytest.raises(TypeError):
                write(wrong)
        with pytest.raises(ValueError):
            write("a\0b")
        with pytest.raises(TypeError):
            write()
    assert os.listdir(tmp_path) == []


def test_full_disk(profiler):
    for write in writers(profiler):
        with pytest.raises(OSError) as raised:
            write("/dev/full")
        assert raised.value.filename == "/dev/full" and raised.value.errno == 28
