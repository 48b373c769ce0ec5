"""enigma.profile(file=...): a profile that is on disk while it is recorded. What survives kills is tested in C (api/test_file.c)."""

import errno
import os
import signal
import subprocess
import sys
import textwrap

import pytest

import enigma
from enigma import scope
from enigma.testing import ScriptedRuntime, scripted_clock

GRID = (1, 1, 1)


def named(profiler):
    return [(e.call_path, e.start_ns, e.end_ns, e.gpu_time_us, e.metrics, e.metadata) for e in profiler.events()]


def test_reads_like_the_profiler(tmp_path):
    path = tmp_path / "run.enigma"
    with scripted_clock() as clock, enigma.profile(file=path) as p:
        runtime = ScriptedRuntime()
        kernel = runtime.prepare("k")
        with scope("outer", metrics={"flops": 2.0}, shape=(1, 2)):
            clock.advance(100)
            kernel.dispatch(GRID, GRID)
            with scope("inner"):
                clock.advance(50)
            live = enigma.load(path)
            assert [e.call_path for e in live.events()] == [("outer",), ("outer", "inner")]
    loaded = enigma.load(path)
    assert named(loaded) == named(p)
    assert loaded.tree() == p.tree()
    assert loaded.key_averages().table() == p.key_averages().table()


def test_made_when_it_is_entered(tmp_path):
    path = tmp_path / "run.enigma"
    p = enigma.profile(file=str(path).encode())
    assert not path.exists()
    with p:
        assert enigma.load(path).events() == []


@pytest.mark.parametrize("path, error", [
    ("missing/run.enigma", FileNotFoundError), (".", IsADirectoryError), ("/dev/full", OSError), ("", FileNotFoundError),
])
def test_files_that_cannot_be(tmp_path, monkeypatch, path, error):
    monkeypatch.chdir(tmp_path)
    p = enigma.profile(file=path)
    with pytest.raises(error) as caught, p:
        pass
    assert caught.value.filename == path
    assert enigma.get_active_profiler() is None


@pytest.mark.parametrize("there", [True, False])
def test_links_are_followed(tmp_path, there):
    """As for every other file: what a link points to is replaced, the link stays, and an old file's mode is kept."""
    target = tmp_path / "real" / "run.enigma"
    target.parent.mkdir()
    link, above = tmp_path / "link", tmp_path / "above"
    link.symlink_to("real/run.enigma")
    above.symlink_to(link)
    if there:
        target.write_text("old")
        target.chmod(0o640)
    with enigma.profile(file=above), scope("a"):
        pass
    assert link.is_symlink() and above.is_symlink() and not target.is_symlink()
    assert [e.name for e in enigma.load(target).events()] == ["a"]
    assert not there or target.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in target.parent.iterdir()] == ["run.enigma"]


def test_links_that_lead_nowhere(tmp_path):
    loop, gone = tmp_path / "loop", tmp_path / "gone"
    loop.symlink_to("loop")
    gone.symlink_to("missing/run.enigma")
    for path, number in ((loop, errno.ELOOP), (gone, errno.ENOENT)):
        with pytest.raises(OSError) as caught, enigma.profile(file=path):
            pass
        assert (caught.value.errno, caught.value.filename) == (number, str(path))
        assert path.is_symlink()


def test_names_as_long_as_they_may_be(tmp_path):
    path = tmp_path / ("n" * 255)
    with enigma.profile(file=path), scope("a"):
        pass
    assert len(enigma.load(path).events()) == 1


@pytest.mark.parametrize("path", [3, 2.5, ["x"], object()])
def test_what_is_no_path(path):
    with pytest.raises(TypeError):
        enigma.profile(file=path)


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.abort()", "sys.exit(3)", "raise RuntimeError"])
def test_processes_that_end_inside(tmp_path, end):
    code = textwrap.dedent(f"""
        import os, sys, enigma
        with enigma.profile(file="run.enigma"):
            for i in range(1000):
                with enigma.scope("outer", layer=i):
                    with enigma.scope("inner", metrics={{"flops": i}}):
                        pass
            with enigma.scope("open"):
                {end}
    """)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, timeout=60)
    assert done.returncode in (1, 3, -signal.SIGKILL, -signal.SIGABRT)
    events = enigma.load(tmp_path / "run.enigma").events()
    assert [e.name for e in events[:2000]] == ["inner", "outer"] * 1000
    assert [e.metrics["flops"] for e in events[:2000:2]] == list(range(1000))
    assert [e.metadata["layer"] for e in events[1:2000:2]] == list(range(1000))
