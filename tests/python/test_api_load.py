"""save and load: what was recorded comes back the same, and what is no profile is said to be none."""

import os

import enigma
import pytest

GRID, THREADS = (64, 1, 1), (32, 1, 1)


@pytest.fixture
def profiler(fake, clock):
    prepared = fake.prepare("k", [bytes(4)], 4)
    fake.script([(clock.now, clock.now + 5_000), None])
    with enigma.profile(record_shapes=True, profile_memory=True) as profiler:
        with enigma.scope("\u00fc \U0001f680", metrics={"flops": 1e9, "nan": float("nan")}, note=[1, None, ("a", {"b": 2.5})]):
            prepared.dispatch(GRID, THREADS)
            prepared.dispatch(GRID, THREADS)
    return profiler


def plain(event):
    """Everything that an event shows, comparable where a metric is NaN."""
    return repr(event), event.label, event.node_path, event.duration_us


def test_round_trip(profiler, tmp_path):
    path = tmp_path / "a.enigma"
    profiler.save(path)
    loaded = enigma.load(path)
    assert type(loaded) is enigma.Profiler
    assert list(map(plain, loaded.events())) == list(map(plain, profiler.events()))
    for group in ("name", "call_path"):
        assert loaded.key_averages(group_by=group).table() == profiler.key_averages(group_by=group).table()
    assert loaded.tree() == profiler.tree()
    loaded.save(tmp_path / "b.enigma")
    assert enigma.load(path=os.fsencode(tmp_path / "b.enigma")).tree() == profiler.tree()


def test_a_loaded_profiler_cannot_be_entered(profiler, tmp_path):
    profiler.save(tmp_path / "a.enigma")
    loaded = enigma.load(tmp_path / "a.enigma")
    with pytest.raises(RuntimeError):
        loaded.__enter__()
    loaded.__exit__(None, None, None)
    assert len(loaded.events()) == 3


def test_what_is_no_profile(profiler, tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        enigma.load(tmp_path / "missing")
    assert raised.value.filename == os.fspath(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        enigma.load(tmp_path)
    profiler.save(tmp_path / "a.enigma")
    whole = (tmp_path / "a.enigma").read_bytes()
    for content in (b"", b"x", b"\0" * 64, b"not a profile" * 100, whole[:40], b"X" + whole[1:]):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ValueError):
            enigma.load(tmp_path / "bad")
    for wrong in (None, 3):
        with pytest.raises(TypeError):
            enigma.load(wrong)
