"""One runtime, several threads; dropping while another thread works; fork; interrupts."""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import enigma
import pytest

SOURCE = """
__kernel void count(__global int *n) { atomic_inc(n); }
__kernel void spin(__global float *x, int rounds)
{
    float v = x[0];
    for (int i = 0; i < rounds; i++) v = sin(v) + 1.0f;
    x[0] = v;
}
"""
ONE = (1, 1, 1)


@pytest.fixture
def count(opencl):
    with opencl.prepare(opencl.compile(SOURCE, "count"), [], 4) as prepared:
        yield prepared


@pytest.fixture
def spin(opencl):
    """A dispatch of this takes tens of milliseconds or more."""
    with opencl.prepare(opencl.compile(SOURCE, "spin"), [bytes(4), ctypes.c_int(2_000_000)], None) as prepared:
        yield prepared


def in_threads(functions):
    """Runs the functions at once, each in a thread; raises the first error."""
    errors = []
    start = threading.Barrier(len(functions))

    def guarded(function):
        try:
            start.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[f]) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_share_a_prepared_kernel(count):
    def work():
        for i in range(200):
            count.dispatch(ONE, ONE, wait=i % 2 == 0)

    in_threads([work] * 4)
    assert struct.unpack("i", count.read_output()) == (800,)


def test_threads_share_a_runtime_for_everything(opencl, count):
    kernel = opencl.compile(SOURCE, "count")

    def execute():
        for _ in range(30):
            assert struct.unpack("i", opencl.execute(kernel, [], 4, grid=(4, 1, 1), threads=ONE)) == (4,)

    def compile_and_drop():
        for _ in range(5):
            mine = opencl.prepare(opencl.compile(SOURCE, "count"), [], 4)
            mine.dispatch((3, 1, 1), ONE)
            assert struct.unpack("i", mine.read_output()) == (3,)

    def record():
        with enigma.profile() as profiler:
            for _ in range(50):
                count.dispatch(ONE, ONE)
        assert [e.kernel_name for e in profiler.events()] == ["count"] * 50

    def measure():
        assert enigma.benchmark_kernel(count, grid=ONE, threads=ONE, repeat=20, warmup=2).calls == 20

    in_threads([execute, compile_and_drop, record, measure])
    assert struct.unpack("i", count.read_output()) == (72,)


def test_the_gil_is_free_during_a_dispatch(spin):
    """The other thread runs while the kernel does: it is seen to move between the start and the end of the dispatch."""
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(None)

    other = threading.Thread(target=tick)
    other.start()
    try:
        before = len(ticks)
        spin.dispatch(ONE, ONE)
        moved = len(ticks) - before
    finally:
        stop.set()
        other.join()
    assert moved > 100


def test_dropping_while_another_thread_holds_the_runtime(opencl, spin):
    running = threading.Event()

    def busy():
        running.set()
        for _ in range(3):
            spin.dispatch(ONE, ONE)

    other = threading.Thread(target=busy)
    kernel = opencl.compile(SOURCE, "count")
    dropped = [opencl.prepare(kernel, [], 4) for _ in range(10)]
    other.start()
    running.wait()
    while dropped:
        dropped.pop()
    del kernel
    other.join()
    opencl.synchronize()


def test_releasing_a_runtime_that_another_thread_uses(opencl):
    runtime = enigma.OpenCLRuntime()
    prepared = runtime.prepare(runtime.compile(SOURCE, "count"), [], 4)
    running = threading.Event()
    errors = []

    def busy():
        try:
            for _ in range(300):
                prepared.dispatch(ONE, ONE)
                running.set()
        except RuntimeError as error:
            errors.append(str(error))

    other = threading.Thread(target=busy)
    other.start()
    running.wait()
    prepared.release()
    runtime.release()
    other.join()
    assert errors in ([], ["the prepared kernel was released"])


def interrupt_soon(after=0.2):
    timer = threading.Timer(after, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    return timer


def test_ctrl_c_ends_a_benchmark_and_the_device_stays_usable(spin, interruptible):
    timer = interrupt_soon()
    with enigma.profile() as profiler:
        with pytest.raises(KeyboardInterrupt):
            enigma.benchmark_kernel(spin, grid=ONE, threads=ONE, repeat=10**6, warmup=0)
        timer.join()
        assert enigma.get_active_profiler() is profiler
        spin.dispatch(ONE, ONE)
    assert len(profiler.events()) == 1
    assert enigma.benchmark_kernel(spin, grid=ONE, threads=ONE, repeat=1, warmup=0).min_us > 0


@pytest.mark.parametrize("call", ["profile_kernel", "warmup", "dispatch", "synchronize", "execute", "read_output"])
def test_ctrl_c_ends_every_wait(opencl, spin, interruptible, call):
    def warm_up():
        enigma.benchmark_kernel(spin, grid=ONE, threads=ONE, repeat=1, warmup=10**6)

    def dispatch():
        while True:
            spin.dispatch(ONE, ONE)

    def synchronize():
        for _ in range(10_000):
            spin.dispatch(ONE, ONE, wait=False)
            opencl.synchronize()

    def execute():
        kernel = opencl.compile(SOURCE, "spin")
        while True:
            opencl.execute(kernel, [bytes(4), ctypes.c_int(100_000)], None, grid=ONE, threads=ONE)

    def profile_kernel():
        enigma.profile_kernel(spin, grid=ONE, threads=ONE, repeat=10**6)

    def read_output():
        with opencl.prepare(opencl.compile(SOURCE.replace("int rounds", "int rounds, __global int *y"), "spin"),
                            [bytes(4), ctypes.c_int(2_000_000)], 4) as prepared:
            while True:
                for _ in range(50):
                    prepared.dispatch(ONE, ONE, wait=False)
                prepared.read_output()

    functions = {"read_output": read_output, "profile_kernel": profile_kernel, "warmup": warm_up, "dispatch": dispatch, "synchronize": synchronize,
                 "execute": execute}
    timer = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        functions[call]()
    timer.join()
    spin.dispatch(ONE, ONE)


def test_a_signal_handler_that_raises_is_what_is_raised(spin):
    class Stop(Exception):
        pass

    def handler(number, frame):
        raise Stop

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR1])
        timer.start()
        with pytest.raises(Stop):
            enigma.benchmark_kernel(spin, grid=ONE, threads=ONE, repeat=10**6)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_runtime_made_before_fork_refuses_in_the_child(opencl, count):
    count.dispatch(ONE, ONE)
    pid = os.fork()
    if pid == 0:
        try:
            for call in (lambda: count.dispatch(ONE, ONE), count.read_output, opencl.synchronize,
                         lambda: opencl.compile(SOURCE, "count"), count.release):
                try:
                    call()
                except RuntimeError as error:
                    if "fork" not in str(error):
                        os._exit(2)
                else:
                    os._exit(3)
            os._exit(0)
        except BaseException:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    count.dispatch(ONE, ONE)
    assert struct.unpack("i", count.read_output()) == (2,)


EXITS = {
    "objects left": "",
    "thread left": """
import threading
def forever():
    while True:
        prepared.dispatch((1, 1, 1), (1, 1, 1))
threading.Thread(target=forever, daemon=True).start()
""",
    "hook left": """
enigma.register_kernel_hook("count", lambda **info: {"flops": 1})
with enigma.profile():
    prepared.dispatch((1, 1, 1), (1, 1, 1))
""",
    "work left": """
prepared.dispatch((1, 1, 1), (1, 1, 1), wait=False)
""",
    "profiler left": """
profiler = enigma.profile()
profiler.__enter__()
enigma.scope("open").__enter__()
prepared.dispatch((1, 1, 1), (1, 1, 1), wait=False)
""",
    "exit in a scope": """
import sys
with enigma.profile() as profiler, enigma.scope("s"):
    prepared.dispatch((1, 1, 1), (1, 1, 1))
    sys.exit(0)
""",
    "cycle": """
class C: pass
c = C()
c.me, c.prepared, c.runtime = c, prepared, runtime
""",
}


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_exits_cleanly(opencl, name):
    code = f"import enigma\nruntime = enigma.OpenCLRuntime()\nprepared = runtime.prepare(runtime.compile({SOURCE!r}, 'count'), [], 4)\n"
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code + EXITS[name]], capture_output=True, text=True,
                          timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_waiting_for_the_lock_sees_signals(opencl, spin, interruptible):
    """The main thread waits for the runtime while another holds it; Ctrl-C ends that wait."""
    running, stop = threading.Event(), threading.Event()

    def busy():
        running.set()
        while not stop.is_set():
            enigma.benchmark_kernel(spin, grid=ONE, threads=ONE, repeat=5, warmup=0)

    other = threading.Thread(target=busy)
    other.start()
    running.wait()
    timer = interrupt_soon()
    try:
        with pytest.raises(KeyboardInterrupt):
            deadline = time.monotonic() + 100
            while time.monotonic() < deadline:
                opencl.synchronize()
    finally:
        stop.set()
        other.join()
        timer.join()
