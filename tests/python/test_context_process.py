"""Profilers and scopes against what else a process does: collection, fork, other interpreters, interpreter exit, signals."""

import gc
import os
import pathlib
import resource
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from scope_helpers import check_nothing_left, current_path, info, paths

import enigma
from enigma import get_active_profiler, profile, scope


@pytest.fixture(autouse=True)
def _nothing_left():
    gc.collect()
    assert info()["live"] == 0
    yield
    check_nothing_left()


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), **environment),
        capture_output=True,
        text=True,
        timeout=120,
    )


# ---- memory -----------------------------------------------------------------------------------------------------------


def one_short_profile():
    with profile() as p:
        with scope("a", metrics={"flops": 1.0}, layer=3):
            with scope("b"):
                pass
    assert len(p.events()) == 2


def resident_kib():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() // 1024


def memory_is_plain():
    """Whether what is freed is used again: sanitizers keep it for a while."""
    return sys.platform.startswith("linux") and "san.so" not in open("/proc/self/maps").read()


@pytest.mark.skipif(not memory_is_plain(), reason="needs /proc, and no sanitizer")
def test_f10_short_profiles_leave_nothing_without_the_collector():
    gc.collect()
    gc.disable()
    try:
        for _ in range(200):
            one_short_profile()
        blocks, resident = sys.getallocatedblocks(), resident_kib()
        for _ in range(10000):
            one_short_profile()
        assert sys.getallocatedblocks() - blocks < 100
        assert resident_kib() - resident < 2048
    finally:
        gc.enable()
    assert gc.collect() == 0


def test_collecting_all_the_time():
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(20):
            s = scope("again", layer=[1])
            with profile() as p:
                with s, s:
                    with scope("b", metrics={"m": 1}, x={"y": [s]}):
                        pass
                with profile() as q, s:
                    assert current_path() == ("again",)
            assert paths(p) == ["again/again/b", "again/again", "again"]
            assert paths(q) == ["again"]
    finally:
        gc.set_threshold(*threshold)


def test_no_allocation_when_off():
    s = scope("a")
    for _ in range(100):
        with s, scope("b", layer=1):
            pass
    before = sys.getallocatedblocks()
    for _ in range(100000):
        with s, scope("b", layer=1):
            pass
    assert sys.getallocatedblocks() - before < 50


# ---- fork -------------------------------------------------------------------------------------------------------------


def in_child(check):
    """Runs check in a forked child and returns what went wrong there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        failure = b""
        try:
            check()
        except BaseException as error:
            failure = repr(error).encode()
        os.write(writing, failure)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        failure = pipe.read().decode()
    os.waitpid(pid, 0)
    return failure


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@fork
def test_f07_fork_in_a_scope(tmp_path):
    target = tmp_path / "parent.enigma"
    with profile() as p:
        with scope("before"):
            pass
        outer = scope("outer").__enter__()

        def check():
            assert get_active_profiler() is p
            assert current_path() == ("outer",)
            assert p.events() == []
            with scope("child"):
                assert current_path() == ("outer", "child")
            outer.__exit__(None, None, None)
            assert current_path() == ()
            with scope("after"):
                pass
            assert paths(p) == ["outer/child", "after"]
            p.__exit__(None, None, None)
            assert get_active_profiler() is None
            assert paths(p) == ["outer/child", "after"]
            p.export_hatchet(tmp_path / "child.json")

        assert in_child(check) == ""
        assert current_path() == ("outer",)
        outer.__exit__(None, None, None)
    assert paths(p) == ["before", "outer"]
    assert (tmp_path / "child.json").stat().st_size > 0
    assert not target.exists()


@fork
def test_fork_after_the_profiler():
    with profile() as p:
        with scope("a"):
            pass
    events = p.events()

    def check():
        assert p.events() == events
        with profile() as q, scope("b"):
            pass
        assert paths(q) == ["b"]

    assert in_child(check) == ""


@fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_another_thread_records():
    stop = threading.Event()

    def record():
        while not stop.is_set():
            with profile() as q:
                for i in range(100):
                    with scope("a"), scope("new name %d" % i, layer=1):
                        pass
            counted.append(len(q.events()))

    counted = []
    thread = threading.Thread(target=record)
    thread.start()
    try:
        with profile() as p, scope("outer"):

            def check():
                with scope("child"):
                    pass
                assert paths(p) == ["outer/child"]

            for _ in range(30):
                assert in_child(check) == ""
    finally:
        stop.set()
        thread.join()
    assert set(counted) == {200}


# ---- other interpreters -----------------------------------------------------------------------------------------------

INTERPRETER = """
    import sys
    sys.path[:0] = %r
    import asyncio
    import enigma
    from enigma import profile, scope, _enigma
    assert _enigma._context_info()["live"] == 0
    path = _enigma._current_path
    assert path() is None

    async def child(name):
        with scope(name):
            await asyncio.sleep(0)
            assert path() == ("m", name)

    async def main():
        with scope("m"):
            await asyncio.gather(*(child(n) for n in "abc"))

    with profile() as p:
        try:
            asyncio.run(main())
        except Exception as e:      # asyncio itself may not support this interpreter
            if "interpreter" not in str(e): raise
        with scope("x", metrics={"m": 1}, layer=[1]):
            with scope("y"): pass
    assert p.events()[-1].call_path == ("x",)
    assert p.events()[-1].metadata == {"layer": [1]}

    @scope("f")
    def f():
        return path()

    with profile():
        assert f() == ("f",)
"""


def interpreters():
    try:
        if sys.version_info >= (3, 13):
            import _interpreters as module
        else:
            import _xxsubinterpreters as module
    except ImportError:
        pytest.skip("no subinterpreters")
    return module


def interpreter_kinds(module):
    if sys.version_info >= (3, 13):
        return [lambda: module.create("legacy"), lambda: module.create("isolated")]
    if sys.version_info >= (3, 12):
        return [lambda: module.create(isolated=False), lambda: module.create(isolated=True)]
    return [module.create]


def interpreter_code():
    return textwrap.dedent(INTERPRETER) % [str(pathlib.Path(enigma.__file__).parent.parent)]


def test_other_interpreters():
    module = interpreters()
    for create in interpreter_kinds(module):
        with profile() as p:
            with scope("outer"):
                for _ in range(3):
                    other = create()
                    assert module.run_string(other, interpreter_code()) is None
                    module.destroy(other)
                    assert current_path() == ("outer",)
        assert paths(p) == ["outer"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="interpreters share one lock")
def test_other_interpreters_at_once():
    module = interpreters()
    create = interpreter_kinds(module)[1]
    results, code = [], interpreter_code()

    def run():
        for _ in range(3):
            other = create()
            results.append(module.run_string(other, code))
            module.destroy(other)

    threads = [threading.Thread(target=run) for _ in range(3)]
    with profile() as p:
        for t in threads:
            t.start()
        for _ in range(20000):
            with scope("main"):
                pass
        for t in threads:
            t.join()
    assert set(results) == {None}
    assert len(p.events()) == 20000


# ---- ends of the interpreter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "raise SystemExit(3)",
        "os._exit(3)",
        "atexit.register(lambda: (p.__exit__(None, None, None), os._exit(3)))",
        "g = suspended(); next(g); keep.append(g); sys.exit(3)",
        "keep.append(enigma.scope('last').__enter__()); sys.exit(3)",
        "threading.Thread(target=lambda: None).start(); sys.exit(3)",
    ],
)
def test_exit_inside_scopes(end):
    done = run_python(
        f"""
        import atexit, os, sys, threading
        import enigma

        keep = []

        def suspended():
            with enigma.scope("g"):
                yield

        p = enigma.profile().__enter__()
        with enigma.scope("a"):
            {end}
        """
    )
    assert (done.returncode, done.stderr) == (3, "")


def test_exit_marks_the_scope_that_raised():
    done = run_python(
        """
        import sys
        import enigma

        p = enigma.profile()
        try:
            with p, enigma.scope("a"):
                sys.exit(3)
        finally:
            print([(e.name, e.metadata) for e in p.events()])
        """
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "[('a', {'error': 'SystemExit: 3'})]\n"


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_f05_keyboard_interrupt_gives_a_full_profile():
    p = profile()
    with pytest.raises(KeyboardInterrupt):
        with p:
            with scope("done"):
                pass
            with scope("a"):
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(10**7):
                    pass
    assert [(e.name, e.metadata) for e in p.events()] == [("done", {}), ("a", {"error": "KeyboardInterrupt"})]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_f08_spawned_process_has_no_profiler(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import enigma

            def child(queue):
                queue.put(enigma.get_active_profiler() is None)

            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                with enigma.profile() as p, enigma.scope("a"):
                    queue = context.Queue()
                    process = context.Process(target=child, args=(queue,))
                    process.start()
                    assert queue.get(timeout=60) is True
                    process.join()
                assert len(p.events()) == 1
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_reimported_module_has_contexts_of_its_own():
    import importlib

    old = sys.modules.pop("enigma._enigma")
    try:
        new = importlib.import_module("enigma._enigma")
        assert new.scope is not old.scope
        with new.profile() as p:
            with new.scope("a"), old.scope("b"):
                assert old._current_path() is None
        assert paths(p) == ["a"]
    finally:
        sys.modules["enigma._enigma"] = old
        enigma._enigma = old
    del new, p
    gc.collect()
