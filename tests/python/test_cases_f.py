"""Cases F: life cycle. What runs in processes of its own is in texts below, so that it can exit, fork and be killed."""

import contextvars
import gc
import multiprocessing
import os
import signal
import sys
import threading

import chrome_check
import enigma
import numpy as np
import pytest
from caselib import (
    GRID, MS, SOURCE, THREADS, US, assert_flagged, dispatch, dispatches, export_all, forks_beside_threads,
    measures_memory, named, one, python, resident_kib,
    row_of, simulating, strict_json)

scope = enigma.scope


@pytest.fixture
def sim():
    with simulating() as made:
        yield made


@pytest.fixture
def spin(opencl):
    """A kernel on the device that takes some time, and its size."""
    size = 2048
    return opencl.prepare(opencl.compile(SOURCE, "spin"), [np.array([20_000], np.int32)], size * 4), (size, 1, 1)


# ---- F01, F02: asynchronous work -------------------------------------------------------------------------------------------


def test_f01_leaving_waits(sim):
    """Dispatched and left at once: the exit waits, each event has its GPU time, calls are complete."""
    with enigma.profile() as p:
        with scope("s"):
            for us in (10, 20, 30):
                sim.run("k", us=us, wait=False)
        before = sim.now
    assert sim.now == before + 60 * US
    assert [e.gpu_time_us for e in dispatches(p)] == [10.0, 20.0, 30.0]
    row = row_of(p.key_averages(), "gpu_dispatch", "k")
    assert (row.calls, row.gpu_total_us) == (3, 60.0)
    assert named(p, "s").gpu_time_us == 60.0 and named(p, "s").duration_us == 0.0


def test_f01_leaving_waits_on_a_device(spin):
    """The same on a real device, many dispatches deep."""
    prepared, grid = spin
    with enigma.profile() as p:
        for _ in range(50):
            prepared.dispatch(grid, (64, 1, 1), wait=False)
    assert len(p.events()) == 50
    assert all(e.gpu_time_us > 0 and "gpu_time" not in e.metadata for e in p.events())


def test_f01_body_raises(sim):
    """The same when the body raises: the exception leaves as it came."""
    error = ValueError("x")
    with pytest.raises(ValueError) as caught:
        with enigma.profile() as p:
            sim.run("k", us=10, wait=False)
            raise error
    assert caught.value is error
    assert dispatch(p).gpu_time_us == 10.0


def test_f01_work_of_the_inner_profiler_only(sim):
    """Leaving the inner profiler resolves its work; the outer one's is resolved when that is left."""
    with enigma.profile() as outer:
        sim.run("o", us=10, wait=False)
        with enigma.profile() as inner:
            sim.run("i", us=20, wait=False)
        assert dispatch(inner).gpu_time_us == 20.0
    assert dispatch(outer).gpu_time_us == 10.0


@pytest.mark.parametrize("complete", ["read_output", "wait", "synchronize", "release", "drop", "another dispatch"])
def test_f02_completed_without_an_explicit_wait(sim, complete):
    """Work that is completed only by a read, a release or another dispatch is reported all the same."""
    kernel = sim.runtime.prepare("k", (), 16)
    other = sim.kernel("other")
    with enigma.profile() as p:
        sim.runtime.script([(sim.now, sim.now + 15 * US)])
        kernel.dispatch(GRID, THREADS, wait=False)
        if complete == "another dispatch":
            other.dispatch(GRID, THREADS)
        elif complete == "synchronize":
            sim.runtime.synchronize()
        elif complete == "drop":
            del kernel
            gc.collect()
        else:
            getattr(kernel, complete)()
    event = dispatch(p, "k")
    assert (event.gpu_time_us, "gpu_time" in event.metadata) == (15.0, False)


def test_f02_read_before_it_is_complete(sim):
    """A profile read while work is under way has the event flagged as unfinished and counted; afterwards it is resolved."""
    with enigma.profile() as p:
        sim.run("k", us=10, wait=False)
        early = dispatch(p)
        assert early.metadata["gpu_time"] == "unfinished"
        assert_flagged(p, early)
        sim.runtime.synchronize()
        assert dispatch(p).gpu_time_us == 10.0
    assert early.gpu_time_us == 0.0 and dispatch(p).gpu_time_us == 10.0


def test_f02_on_a_device(spin):
    """On a real device, completed by reading the output alone."""
    prepared, grid = spin
    with enigma.profile() as p:
        prepared.dispatch(grid, (64, 1, 1), wait=False)
        prepared.read_output()
    assert dispatch(p).gpu_time_us > 0


# ---- F04, F05: ends of processes -----------------------------------------------------------------------------------------------

PRELUDE = """
import os, signal, sys, threading
import enigma
from enigma.testing import ScriptedRuntime, scripted_clock
runtime = ScriptedRuntime()
kernel = runtime.prepare("k")
def go():
    kernel.dispatch((1, 1, 1), (1, 1, 1))
"""


@pytest.mark.parametrize("end, code", [
    ("os._exit(7)", 7), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL), ("os.abort()", -signal.SIGABRT),
    ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM), ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP)])
def test_f04_f05_hard_ends(tmp_path, end, code):
    """The process ends as it was told, without a word, a handler or a file of ours."""
    done = python(PRELUDE + f"""
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
with enigma.profile() as p, enigma.scope("s"):
    go()
    {end}
""", check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert list(tmp_path.iterdir()) == []


def test_f05_no_signal_handlers():
    """Importing, profiling, dispatching and exporting leave every handler as it was."""
    python(PRELUDE + """
handlers = lambda: {s: signal.getsignal(s) for s in signal.valid_signals()}
masks = lambda: [line for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn", "SigBlk"))]
before = handlers(), masks()
with enigma.profile() as p, enigma.scope("s"):
    go()
    assert (handlers(), masks()) == before
p.export_chrome_trace("/dev/null")
assert (handlers(), masks()) == before
""")


@pytest.mark.parametrize("where", ["body", "hook"])
def test_f05_keyboard_interrupt(tmp_path, where):
    """SIGINT in the body: KeyboardInterrupt, and the profile is full."""
    done = python(PRELUDE + f"""
def hook(**_):
    signal.raise_signal(signal.SIGINT)
    return {{"flops": 1}}
where = {where!r}
try:
    with enigma.profile() as p, enigma.scope("s"):
        go()
        if where == "hook":
            enigma.register_kernel_hook("k", hook)
            go()
        else:
            signal.raise_signal(signal.SIGINT)
        for _ in range(1000):
            pass
        raise SystemExit("not interrupted")
except KeyboardInterrupt:
    pass
events = p.events()
assert [e.name for e in events][-1] == "s" and events[0].kernel_name == "k", events
assert "KeyboardInterrupt" in events[-1].metadata["error"]
p.export_chrome_trace(sys.argv[1])
print("whole")
""", tmp_path / "x.trace.json")
    assert done.stdout == "whole\n"
    assert "s" in {s.name for s in chrome_check.check_file(tmp_path / "x.trace.json").slices}


@pytest.mark.parametrize("how", ["sys.exit(3)", "raise SystemExit(3)", "exit at the end"])
def test_f05_exit_inside_a_scope(tmp_path, how):
    """sys.exit inside a scope: events are complete in an atexit handler, the exit code is the program's."""
    done = python(PRELUDE + f"""
import atexit
def report():
    print([e.label for e in p.events()], "error" in p.events()[-1].metadata, enigma.get_active_profiler() is None)
atexit.register(report)
with enigma.profile() as p, enigma.scope("s"):
    go()
    if {how!r} != "exit at the end":
        {how if "(" in how else "pass"}
sys.exit(3)
""", check=False)
    assert done.returncode == 3
    assert done.stdout == f"['gpu_dispatch:k', 's'] {how != 'exit at the end'} True\n" and done.stderr == ""


@pytest.mark.parametrize("what", ["profiler", "scope", "generator", "thread", "result", "hook", "asynchronous"])
def test_f05_interpreter_ends_with_things_open(what):
    """The interpreter ends quietly whatever is still open or alive."""
    done = python(PRELUDE + f"""
what = {what!r}
p = enigma.profile()
p.__enter__()
go()
if what == "scope":
    s = enigma.scope("s"); s.__enter__()
elif what == "generator":
    def g():
        with enigma.scope("g"):
            yield
    it = g(); next(it)
elif what == "thread":
    ready = threading.Event()
    def run():
        with enigma.profile(), enigma.scope("t"):
            ready.set()
            threading.Event().wait()
    threading.Thread(target=run, daemon=True).start()
    ready.wait()
elif what == "result":
    rows = p.key_averages().rows(); events = p.events()
elif what == "hook":
    enigma.register_kernel_hook("k", lambda **_: {{"flops": 1}}); go()
elif what == "asynchronous":
    kernel.dispatch((1, 1, 1), (1, 1, 1), wait=False)
""")
    assert (done.stdout, done.stderr) == ("", "")


# ---- F07, F08: other processes ---------------------------------------------------------------------------------------------------

FORK = PRELUDE + """
import json, warnings
warnings.simplefilter("ignore", DeprecationWarning)
out = sys.argv[1]
with enigma.profile() as p:
    with enigma.scope("before"):
        go()
    with enigma.scope("p"):
        pid = os.fork()
        if pid == 0:
            report = {"active": enigma.get_active_profiler() is p, "inherited": [e.label for e in p.events()]}
            try:
                go()
                report["dispatch"] = "ran"
            except RuntimeError as error:
                report["dispatch"] = str(error)
            with enigma.scope("c"):
                fresh = ScriptedRuntime()
                fresh.prepare("child").dispatch((1, 1, 1), (1, 1, 1))
            report["events"] = [[e.label, list(e.call_path)] for e in p.events()]
            p.export_chrome_trace(out + "/child.trace.json")
            p.export_hatchet(out + "/child.hatchet.json")
            with open(out + "/report.json", "w") as file:
                json.dump(report, file)
            p.__exit__(None, None, None)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        go()
p.export_chrome_trace(out + "/parent.trace.json")
"""


def test_f07_fork_in_a_scope(tmp_path):
    """The child's profiler is active and empty with the path kept, its events have its pid, the parent's runtime refuses
    there; the parent is untouched."""
    python(FORK, tmp_path)
    report = strict_json((tmp_path / "report.json").read_bytes())
    assert report["active"] is True and report["inherited"] == []
    assert "fork" in report["dispatch"]
    mine = [tuple(e) for e in map(lambda e: (e[0], tuple(e[1])), report["events"])]
    assert ("gpu_dispatch:child", ("p", "c")) in mine and ("c", ("p", "c")) in mine
    assert not any(label in ("before", "p") for label, _ in mine)
    child = chrome_check.check_file(tmp_path / "child.trace.json")
    parent = chrome_check.check_file(tmp_path / "parent.trace.json")
    pids = [{s.pid for s in t.slices if s.name in ("c", "p")} for t in (child, parent)]
    assert len(pids[0]) == len(pids[1]) == 1 and pids[0] != pids[1]
    assert child.metadata["pid"] == pids[0].pop() and parent.metadata["pid"] == pids[1].pop()
    assert sorted(s.name for s in parent.slices if s.name in ("before", "p", "c")) == ["before", "p"]


@forks_beside_threads
def test_f07_fork_while_threads_record(tmp_path):
    """Forking again and again while other threads record, intern and export never deadlocks the child."""
    python(PRELUDE + """
import contextvars, warnings
warnings.simplefilter("ignore", DeprecationWarning)
stop = threading.Event()
with enigma.profile() as p:
    def record(n):
        for i in range(50_000):
            with enigma.scope(f"{n} {i % 3_000}", text=str(i)):
                if stop.is_set():
                    return
    def export():
        while not stop.is_set():
            p.export_chrome_trace(sys.argv[1])
    threads = [threading.Thread(target=contextvars.copy_context().run, args=(record, n)) for n in range(3)]
    threads.append(threading.Thread(target=export))
    for t in threads:
        t.start()
    try:
        for i in range(20):
            pid = os.fork()
            if pid == 0:
                with enigma.scope(f"child {i}"):
                    pass
                names = [e.name for e in p.events()]
                p.key_averages().table()
                p.export_hatchet("/dev/null")
                os._exit(0 if names == [f"child {i}"] else 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
    for t in threads:
        t.join()
assert not any(e.name.startswith("child") for e in p.events())
""", tmp_path / "x.trace.json")


def test_f07_scopes_open_over_the_fork(sim, tmp_path):
    """In the child, ending a scope that was opened before the fork records nothing and takes its name off the path."""
    with enigma.profile() as p:
        with scope("outer"):
            inner = scope("inner")
            inner.__enter__()
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                failed = 1
                try:
                    paths = []
                    with scope("child"):
                        paths.append(p.events())
                    paths.append(p.events()[-1].call_path)
                    inner.__exit__(None, None, None)
                    with scope("child 2"):
                        pass
                    paths.append(p.events()[-1].call_path)
                    good = paths == [[], ("outer", "inner", "child"), ("outer", "child 2")]
                    failed = 0 if good and len(p.events()) == 2 else 2
                    os.write(write, repr((paths, p.events())).encode()[:4000])
                finally:
                    os._exit(failed)
            os.close(write)
            status = os.waitpid(pid, 0)[1]
            with os.fdopen(read) as file:
                assert status == 0, file.read()
            inner.__exit__(None, None, None)
    assert [e.name for e in p.events()] == ["inner", "outer"]


def child_report(queue):
    queue.put((enigma.get_active_profiler() is None, os.getpid()))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_f08_multiprocessing(method):
    """A spawned child has no active profiler."""
    context = multiprocessing.get_context(method)
    with enigma.profile():
        queue = context.SimpleQueue()
        process = context.Process(target=child_report, args=(queue,))
        process.start()
        inactive, pid = queue.get()
        process.join()
    assert inactive is True and pid != os.getpid() and process.exitcode == 0


# ---- F10, F11: memory -------------------------------------------------------------------------------------------------------------


@measures_memory
def test_f10_many_short_profiles():
    """Ten thousand profiles without the garbage collector: memory is stable after the first, no reference cycles."""
    runtime = enigma.testing.ScriptedRuntime()
    kernel = runtime.prepare("k")

    def once():
        with enigma.profile() as p:
            with scope("s", metrics={"flops": 1}, tag="x"):
                kernel.dispatch((1, 1, 1), (1, 1, 1))
        assert len(p.events()) == 2
        p.key_averages().rows()
        p.tree()

    gc.collect()
    gc.disable()
    try:
        for _ in range(500):
            once()
        before, blocks = resident_kib(), sys.getallocatedblocks()
        for _ in range(9_500):
            once()
        assert resident_kib() - before < 4_096
        assert sys.getallocatedblocks() - blocks < 500
        assert gc.collect() == 0
    finally:
        gc.enable()


@measures_memory
def test_f10_profiles_are_freed(sim):
    """A big profile's memory comes back when the last reference goes, whichever that is."""
    with enigma.profile() as p:
        for _ in range(100_000):
            with scope("s", tag="x" * 100):
                pass
    full = resident_kib()
    event = p.events()[0]
    del p
    assert event.metadata["tag"] == "x" * 100
    del event
    gc.collect()
    assert full - resident_kib() > 5_000


@measures_memory
@pytest.mark.parametrize("way", ["release", "with", "drop"])
def test_f11_buffers_are_freed(way):
    """Events hold no buffers: device memory is freed while the profile lives."""
    runtime = enigma.testing.ScriptedRuntime()
    data = np.ones(8 << 20, np.uint8)
    kernel = runtime.compile("source", "k")
    with enigma.profile(record_shapes=True, profile_memory=True) as p:
        before = resident_kib()
        for i in range(100):
            prepared = runtime.prepare(kernel, [data], data.nbytes)
            for _ in range(10):
                prepared.dispatch(GRID, THREADS)
            if way == "release":
                prepared.release()
            elif way == "with":
                with prepared:
                    pass
            del prepared
        assert resident_kib() - before < 10 * (data.nbytes >> 10)  # kept for good it would be 200
    assert len(p.events()) == 1000
    assert row_of(p.key_averages(), "gpu_dispatch", "k").input_bytes == 1000 * data.nbytes


def test_f11_objects_go_in_any_order(sim):
    """Runtime, kernel, prepared kernel, profile, events and rows may be dropped in any order."""
    runtime = enigma.testing.ScriptedRuntime()
    kernel = runtime.compile("source", "k")
    prepared = runtime.prepare(kernel, [b"1234"], 4)
    p = enigma.profile()
    with p:
        prepared.dispatch(GRID, THREADS, wait=False)
        del runtime, kernel
        gc.collect()
        prepared.dispatch(GRID, THREADS)
        del prepared
        gc.collect()
    result, events = p.key_averages(), p.events()
    del p
    gc.collect()
    assert one(result.rows()).calls == 2
    rows = result.rows()
    del result
    gc.collect()
    assert rows[0].kernel_name == "k" and [e.kernel_name for e in events] == ["k", "k"]


# ---- F13, F14, F17 ----------------------------------------------------------------------------------------------------------------


class DeviceLost(Exception):
    pass


@pytest.mark.parametrize("error", [RuntimeError("device lost"), DeviceLost("gone"), MemoryError(), KeyError("k"),
                                   OSError(5, "io")], ids=repr)
def test_f13_kernel_fails(sim, tmp_path, error):
    """The very exception is passed on, the event stays and is marked, later scopes and dispatches are right."""
    with enigma.profile() as p:
        with scope("s"):
            sim.run("good", us=2)
            with pytest.raises(type(error)) as caught:
                sim.run("bad", stamps=error)
            assert caught.value is error
            sim.run("good", us=3)
        assert sim.path() == ()
    event = dispatch(p, "bad")
    assert event.gpu_time_us == 0.0 and event.metadata["error"]
    assert event.call_path == ("s",)
    assert [e.gpu_time_us for e in dispatches(p, "good")] == [2.0, 3.0]
    assert named(p, "s").gpu_time_us == 5.0 and "error" not in named(p, "s").metadata
    row = row_of(p.key_averages(), "gpu_dispatch", "bad")
    assert (row.calls, row.gpu_total_us) == (1, 0.0)
    export_all(p, tmp_path)


@pytest.mark.parametrize("call", ["dispatch", "asynchronous", "timed", "benchmark", "profile_kernel", "execute"])
def test_f13_every_way_to_fail(sim, call):
    """Each way to run a kernel passes the exception on and leaves the runtime usable."""
    error = RuntimeError("device lost")
    kernel = sim.kernel("k", inputs=[b"1"], output_size=4)
    sim.runtime.script([(MS, MS + US), error])
    ways = {
        "dispatch": lambda: kernel.dispatch(GRID, THREADS),
        "asynchronous": lambda: kernel.dispatch(GRID, THREADS, wait=False),
        "timed": lambda: kernel.dispatch_timed(GRID, THREADS),
        "benchmark": lambda: enigma.benchmark_kernel(kernel, grid=GRID, threads=THREADS, repeat=5, warmup=0),
        "profile_kernel": lambda: enigma.profile_kernel(kernel, grid=GRID, threads=THREADS, repeat=5, warmup=0),
        "execute": lambda: sim.runtime.execute(sim.runtime.compile("s", "k"), [b"1"], 4, grid=GRID, threads=THREADS),
    }
    with enigma.profile() as p:
        if call not in ("benchmark", "profile_kernel"):
            ways[call]()
        with pytest.raises(RuntimeError) as caught:
            ways[call]()
            kernel.wait()
        assert caught.value is error
        assert enigma.get_active_profiler() is p
        sim.run("k", us=4)
    assert dispatches(p)[-1].gpu_time_us == 4.0


def test_f13_bad_sizes_run_nothing(sim):
    """A wrong grid is an error before anything runs, and no event."""
    with enigma.profile() as p:
        for grid, threads in (((0, 1, 1), THREADS), (GRID, (0, 1, 1)), ((1, 1), THREADS), (GRID, (4096, 1, 1))):
            with pytest.raises((ValueError, TypeError)):
                sim.kernel("k").dispatch(grid, threads)
    assert p.events() == [] and sim.runtime.timed_dispatches == 0


def test_f13_compile_error(opencl):
    """A source that does not compile: RuntimeError with the compiler's log; the profiler goes on."""
    with enigma.profile() as p:
        with pytest.raises(RuntimeError, match="undeclared_thing"):
            opencl.compile("__kernel void f(__global int *a) { a[0] = undeclared_thing; }", "f")
        with scope("after"):
            pass
    assert [e.name for e in p.events()] == ["after"]


def test_f14_runtime_made_after_the_profiler():
    """Its events are recorded, and facts of its device are in the files."""
    with enigma.profile() as p:
        runtime = enigma.testing.ScriptedRuntime()
        runtime.prepare("k").dispatch(GRID, THREADS)
        other = enigma.testing.ScriptedRuntime(queues=2)
        other.prepare("k").dispatch(GRID, THREADS, queue=1)
    assert [(e.kernel_name, e.queue_id) for e in p.events()] == [("k", 0), ("k", 1)]


def test_f14_runtime_made_after_the_profiler_on_a_device(opencl):
    """The same for a real device."""
    with enigma.profile() as p:
        runtime = enigma.Runtime("opencl")
        a = np.arange(256, dtype=np.int32)
        out = runtime.execute(runtime.compile(SOURCE, "twice"), [a], a.nbytes, grid=(256, 1, 1), threads=(64, 1, 1))
    assert (np.frombuffer(out, np.int32) == 2 * a).all()
    assert dispatch(p).gpu_time_us > 0
    steps = {"load_library", "create_pipeline", "create_input_buffers", "create_output_buffers", "gpu_dispatch",
             "read_output", "release_resources"}
    assert {e.name for e in p.events()} == steps | {"execute_total"}
    assert {e.kernel_name for e in p.events()} == {"twice"}


NO_GPU = """
import sys, enigma
with enigma.profile() as p:
    with enigma.scope("s", metrics={"flops": 1}):
        pass
assert [e.name for e in p.events()] == ["s"]
p.key_averages().table(); p.tree()
p.export_chrome_trace(sys.argv[1] + "/x.trace.json")
p.export_hatchet(sys.argv[1] + "/x.hatchet.json")
for make in (lambda: enigma.Runtime("opencl"), enigma.OpenCLRuntime, enigma.Runtime, enigma.CUDARuntime, enigma.MetalRuntime):
    try:
        make()
    except RuntimeError as error:
        print(error)
    else:
        sys.exit(77)
"""


@pytest.mark.parametrize("missing", ["driver", "library", "broken library"])
def test_f17_no_gpu_at_all(tmp_path, missing):
    """Import, scopes and exports work; a runtime raises RuntimeError that names what was looked for."""
    vendors, libraries = tmp_path / "vendors", tmp_path / "lib"
    vendors.mkdir()
    libraries.mkdir()
    env = {"OCL_ICD_VENDORS": str(vendors), "OPENCL_VENDOR_PATH": str(vendors)}
    if missing != "driver":
        (libraries / "libOpenCL.so.1").write_bytes(b"" if missing == "library" else b"\x7fELF" + bytes(4000))
        env["LD_LIBRARY_PATH"] = str(libraries)
    done = python(NO_GPU, tmp_path, check=False, env=env)
    if done.returncode == 77:
        pytest.skip("this machine's devices cannot be hidden from a process")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    assert any("OpenCL" in line for line in lines)
    assert any("CUDA" in line for line in lines) and any("Metal" in line for line in lines)
    assert done.stderr == ""
    assert [s.name for s in chrome_check.check_file(tmp_path / "x.trace.json").slices] == ["s"]


@pytest.mark.parametrize("name", ["nope", "", "OpenCL", "scripted", "opencl ", "opencl\0"])
def test_f17_unknown_backend(name):
    """A name that is no backend is a ValueError; the testing backend is never opened by name."""
    with pytest.raises(ValueError):
        enigma.Runtime(name)


def test_f17_runtime_used_from_many_threads(sim):
    """A runtime that several threads use at once counts every dispatch."""
    kernel, rounds = sim.kernel("k"), 500

    def run():
        for _ in range(rounds):
            kernel.dispatch(GRID, THREADS)

    with enigma.profile() as p:
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(run,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(p.events()) == sim.runtime.timed_dispatches == 4 * rounds
    assert one(p.key_averages().rows()).gpu_total_us == 4.0 * rounds
