"""enigma.testing: what a scripted dispatch reports, what it raises, and a clock that moves only when told."""

import gc
import time
import weakref

import enigma
import pytest
from enigma.testing import ScriptedRuntime, scripted_clock

GRID, THREADS = (8, 1, 1), (8, 1, 1)


def record(prepared, times=1, **options):
    with enigma.profile() as profiler:
        for _ in range(times):
            prepared.dispatch(GRID, THREADS, **options)
    return profiler.events()


# ---- The clock ----------------------------------------------------------------------------------------------------------


def test_clock_moves_only_when_told():
    with scripted_clock() as clock:
        assert clock.now == 1_000_000
        clock.advance(7)
        assert clock.now == 1_000_007
        with enigma.profile() as profiler:
            with enigma.scope("s"):
                clock.advance(250)
        (event,) = profiler.events()
        assert (event.start_ns, event.end_ns) == (1_000_007, 1_000_257)


def test_clock_is_restored():
    before = time.monotonic_ns()
    with scripted_clock(start_ns=5) as clock:
        assert clock.now == 5
    assert clock.now >= before
    with pytest.raises(ZeroDivisionError):
        with scripted_clock(5):
            raise ZeroDivisionError
    assert clock.now >= before


def test_clock_is_restored_when_it_is_dropped():
    clock = scripted_clock(5)
    clock.__enter__()
    assert clock.now == 5
    del clock
    assert scripted_clock().now > 5


def test_clock_errors():
    clock = scripted_clock()
    with pytest.raises(RuntimeError):
        clock.advance(1)
    with clock:
        with pytest.raises(RuntimeError):
            clock.__enter__()
        for wrong in (-1, 2**64):
            with pytest.raises(ValueError):
                clock.advance(wrong)
        for wrong in (1.5, "1", None, True):
            with pytest.raises(TypeError):
                clock.advance(wrong)
        assert clock.now == 1_000_000
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError):
            scripted_clock(wrong)
    with pytest.raises(TypeError):
        scripted_clock("1")


# ---- Dispatches ---------------------------------------------------------------------------------------------------------


def test_default_is_a_microsecond(fake, clock):
    prepared = fake.prepare("k")
    start = clock.now
    (event,) = record(prepared)
    assert event.gpu_time_us == 1.0 and event.duration_us == 1.0 and event.category == "scripted"
    assert (event.gpu_start_ns, event.gpu_end_ns) == (start, start + 1_000)
    assert prepared.dispatch_timed(GRID, THREADS) == 1.0


def test_prepare_has_defaults(fake):
    prepared = fake.prepare("anything at all")
    assert prepared.kernel_name == "anything at all" and prepared.read_output() is None
    assert fake.prepare(name="k", inputs=[b"1234"], output_size=[4, 8]).read_output() == [bytes(4), bytes(8)]
    assert fake.prepare(fake.compile("any source", "k"), (), 3).read_output() == bytes(3)
    with pytest.raises(TypeError):
        fake.prepare(1)
    with pytest.raises(ValueError):
        fake.prepare(ScriptedRuntime().compile("any source", "k"))


def test_script_is_taken_in_order_and_by_untimed_dispatches_too(fake, clock):
    prepared = fake.prepare("k")
    fake.script([(clock.now, clock.now + 5_000), (clock.now + 5_000, clock.now + 7_000)])
    prepared.dispatch(GRID, THREADS)
    assert clock.now == 1_005_000
    (event,) = record(prepared)
    assert event.gpu_time_us == 2.0
    assert (fake.untimed_dispatches, fake.timed_dispatches) == (1, 1)
    assert record(prepared)[0].gpu_time_us == 1.0
    prepared.dispatch_timed(GRID, THREADS)
    assert (fake.untimed_dispatches, fake.timed_dispatches) == (1, 3)


def test_stamps_that_are_not_available(fake):
    prepared = fake.prepare("k")
    fake.script([None, None])
    (event,) = record(prepared)
    assert event.gpu_time_us == 0.0 and event.metadata["gpu_time"] and event.gpu_start_ns == 0
    assert prepared.dispatch_timed(GRID, THREADS) == 0.0


@pytest.mark.parametrize("stamps", [(0, 7_000), (7_000, 0), (2**64 - 1, 7_000), (7_000, 2**64 - 1), (9_000, 7_000)])
def test_stamps_that_cannot_be_right_take_no_time(fake, clock, stamps):
    k = fake.prepare("k")
    fake.script([stamps])
    with enigma.profile() as p:
        k.dispatch(GRID, THREADS)
    (event,) = p.events()
    assert (clock.now, event.duration_us, event.gpu_time_us) == (1_000_000, 0.0, 0.0)
    assert event.metadata["gpu_time"]


def test_exceptions_are_raised_as_they_are(fake):
    class Special(ValueError):
        pass

    prepared = fake.prepare("k")
    errors = [Special("one"), KeyError("two"), Special("one"), SystemExit(3)]
    fake.script([errors[0], (1, 2), *errors[1:]])
    with enigma.profile() as profiler:
        with pytest.raises(Special) as raised:
            prepared.dispatch(GRID, THREADS)
        assert raised.value is errors[0]
        prepared.dispatch(GRID, THREADS)
        for error, call in zip(errors[1:], [prepared.dispatch, prepared.dispatch_timed, prepared.dispatch], strict=True):
            with pytest.raises(type(error)) as raised:
                call(GRID, THREADS)
            assert raised.value is error
    events = profiler.events()
    assert [e.metadata.get("error") for e in events] == ["Special: one", None, "KeyError: 'two'", "SystemExit: 3"]
    prepared.dispatch(GRID, THREADS)


def test_exceptions_belong_to_their_queue(clock):
    runtime = ScriptedRuntime(queues=2, devices=2)
    prepared = runtime.prepare("k")
    same = [ValueError("same") for _ in range(4)]
    for i, error in enumerate(same):
        runtime.script([error], queue=i % 2, device=i // 2)
    for i in (3, 1, 2, 0):
        with pytest.raises(ValueError) as raised:
            prepared.dispatch(GRID, THREADS, queue=i % 2, device=i // 2)
        assert raised.value is same[i]


def test_exceptions_leave_execute_and_benchmarks_too(fake):
    kernel = fake.compile("any", "k")
    prepared = fake.prepare("k")
    for call in (lambda: fake.execute(kernel, [], None, grid=GRID, threads=THREADS),
                 lambda: enigma.benchmark_kernel(prepared, grid=GRID, threads=THREADS),
                 lambda: enigma.profile_kernel(prepared, grid=GRID, threads=THREADS)):
        error = LookupError("gone")
        fake.script([error])
        with pytest.raises(LookupError) as raised:
            call()
        assert raised.value is error


def test_a_script_that_refers_to_its_runtime_is_collected():
    class Special(ValueError):  # builtin exceptions take no weak references
        pass

    runtime = ScriptedRuntime()
    error = Special("x")
    error.runtime = runtime
    runtime.script([error])
    gone = weakref.ref(error)
    del error, runtime
    gc.collect()
    assert gone() is None


def test_queues_and_devices(clock):
    runtime = ScriptedRuntime(queues=2, devices=3)
    prepared = runtime.prepare("k")
    start = clock.now
    runtime.script([(start, start + 9_000)], queue=1, device=2)
    with enigma.profile() as profiler:
        prepared.dispatch(GRID, THREADS, queue=1, device=2)
        prepared.dispatch(GRID, THREADS)
    told, default = profiler.events()
    assert (told.gpu_time_us, told.queue_id, told.device_id) == (9.0, 1, 2)
    assert (default.gpu_time_us, default.queue_id, default.device_id) == (1.0, 0, 0)
    for wrong in ({"queue": 2}, {"device": 3}):
        with pytest.raises(ValueError):
            prepared.dispatch(GRID, THREADS, **wrong)
        with pytest.raises(ValueError):
            runtime.script([None], **wrong)


def test_waiting_is_what_moves_the_clock(fake, clock):
    prepared = fake.prepare("k")
    fake.script([(clock.now, clock.now + 10_000)])
    prepared.dispatch(GRID, THREADS, wait=False)
    assert clock.now == 1_000_000
    prepared.wait()
    assert clock.now == 1_010_000
    fake.script([(clock.now, clock.now + 10_000)] * 2)
    prepared.dispatch(GRID, THREADS, wait=False)
    fake.synchronize()
    assert clock.now == 1_020_000


@pytest.mark.parametrize("offset", [0, 10**12, -500_000, 2**62])
def test_clock_offset(clock, offset):
    prepared = ScriptedRuntime(clock_offset_ns=offset).prepare("k")
    (event,) = record(prepared)
    assert event.gpu_time_us == 1.0
    assert (event.gpu_start_ns, event.gpu_end_ns) == (event.start_ns, event.end_ns)


def test_ticks_and_counter_bits(clock):
    runtime = ScriptedRuntime(tick_ns=10.0, counter_bits=32)
    prepared = runtime.prepare("k")
    runtime.script([(0xFFFFFFF0 * 10, 0x100000010 * 10), (105, 119)])
    wrapped, floored = record(prepared, 2)
    assert wrapped.gpu_time_us == pytest.approx(0.32, abs=0)
    assert floored.gpu_time_us == pytest.approx(0.01, abs=0)


def test_drift_is_followed(clock):
    runtime = ScriptedRuntime(drift_ppm=50.0)
    prepared = runtime.prepare("k")
    with enigma.profile() as profiler:
        for _ in range(10):
            clock.advance(60 * 10**9)
            prepared.dispatch(GRID, THREADS)
    for event in profiler.events():
        assert abs(event.gpu_start_ns - event.start_ns) < 20_000


@pytest.mark.parametrize("options", [
    {"tick_ns": 0.0}, {"tick_ns": -1.0}, {"tick_ns": float("nan")}, {"counter_bits": 0}, {"counter_bits": 65},
    {"queues": 0}, {"devices": 0}, {"queues": -1}, {"drift_ppm": float("inf")}, {"counter_bits": 2**40},
    {"tick_ns": 1e300}, {"tick_ns": 1e9}, {"tick_ns": float("inf")}, {"clock_offset_ns": 2**63}], ids=str)
def test_wrong_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ScriptedRuntime(**options)


@pytest.mark.parametrize("tick_ns", [1e-300, 1e-3, 1 / 3, 1e6, 999_999_999.0])
def test_any_tick_that_is_taken_can_be_read(tick_ns):
    """Whatever the ticks are, the profile has its events."""
    with scripted_clock():
        (event,) = record(ScriptedRuntime(tick_ns=tick_ns).prepare("k"))
    assert event.gpu_time_us == pytest.approx(0.0 if tick_ns > 1000 or tick_ns < 1e-6 else 1.0, rel=1e-3)


@pytest.mark.parametrize("options", [{"queues": 1.5}, {"devices": "1"}, {"clock_offset_ns": 1.5}, {"drift_ppm": "1"},
                                     {"tick_ns": None}, {"clock_offset_ns": True}, {"nope": 1}], ids=str)
def test_wrong_option_types(options):
    with pytest.raises(TypeError, match=next(iter(options))):
        ScriptedRuntime(**options)


@pytest.mark.parametrize("name", ["\ud800", "k\udfff\ud83d", "\u202ek", "\U0001f680", " ", "k\x1b[0m", "k" * 100_000], ids=ascii)
def test_any_kernel_name(name):
    """A hook finds it, and the event has the same text."""
    enigma.register_kernel_hook(name, lambda **_: {"flops": 1})
    try:
        (event,) = record(ScriptedRuntime().prepare(name))
    finally:
        enigma.unregister_kernel_hook(name)
    assert (event.kernel_name, event.metrics) == (name, {"flops": 1})


@pytest.mark.parametrize("entry, error", [
    ((1,), ValueError), ((1, 2, 3), ValueError), ((-1, 2), ValueError), ((1, 2**64), ValueError), (("1", 2), TypeError),
    ((True, 2), TypeError), ((1.0, 2), TypeError), ((None, 2), TypeError), ((1, float("nan")), TypeError), ([1, 2], TypeError), (5, TypeError), (ValueError, TypeError)], ids=str)
def test_wrong_entries_queue_nothing(fake, entry, error):
    with pytest.raises(error):
        fake.script([(1, 500_001), entry])
    assert record(fake.prepare("k"))[0].gpu_time_us == 1.0


def test_script_takes_any_iterable(fake):
    with pytest.raises(TypeError):
        fake.script(None)
    fake.script((1, 1 + 2_000 * i) for i in range(1, 3))
    assert [e.gpu_time_us for e in record(fake.prepare("k"), 2)] == [2.0, 4.0]


def test_a_scripted_runtime_is_a_runtime(fake):
    assert isinstance(fake, enigma.Runtime)
    assert fake.device["backend"] == "scripted"
    with fake as entered:
        assert entered is fake
    for call in (lambda: fake.prepare("k"), lambda: fake.script([None]), lambda: fake.timed_dispatches, fake.synchronize):
        with pytest.raises(RuntimeError, match="released"):
            call()
    fake.release()
