"""Kernel hooks: called by keyword, once for each recorded dispatch without metrics; what they do wrong stays theirs."""

import gc
import threading
import warnings
import weakref

import enigma
import pytest

GRID, THREADS = (64, 2, 1), (32, 1, 1)


@pytest.fixture
def dispatch(fake):
    """Dispatches k under a profiler of its own and returns the event's metrics."""
    prepared = fake.prepare("k")

    def dispatch(**options):
        with enigma.profile() as profiler:
            prepared.dispatch(GRID, THREADS, **options)
        (event,) = profiler.events()
        assert event.gpu_time_us == 1.0 and event.kernel_name == "k"
        return event.metrics

    return dispatch


def test_called_by_keyword(dispatch, register):
    calls = []

    def hook(*args, **kwargs):
        calls.append((args, kwargs))
        return {"flops": 4, "bytes": 2.5}

    register("k", hook)
    assert dispatch() == {"flops": 4.0, "bytes": 2.5}
    assert calls == [((), {"kernel_name": "k", "grid": GRID, "threads": THREADS})]


def test_not_called_when_it_is_not_wanted(fake, dispatch, register):
    calls = []
    register("k", lambda **info: calls.append(info))
    register("other", lambda **info: calls.append(info))
    prepared = fake.prepare("k")
    prepared.dispatch(GRID, THREADS)  # no profiler
    prepared.dispatch_timed(GRID, THREADS)
    assert calls == []
    assert dispatch(metrics={"flops": 1}) == {"flops": 1.0}
    assert calls == []
    assert dispatch() == {} and len(calls) == 1


def test_last_registration_wins_and_unregister_removes_it(dispatch, register):
    register("k", lambda **info: {"flops": 1})
    register("k", lambda **info: {"flops": 2})
    assert dispatch() == {"flops": 2.0}
    enigma.unregister_kernel_hook("k")
    assert dispatch() == {}
    enigma.unregister_kernel_hook("k")
    enigma.unregister_kernel_hook(kernel_name="never registered")


def raising(**info):
    raise KeyError("boom")


FAULTS = {
    "raises": (raising, {}, "KeyError: 'boom'"),
    "list": (lambda **info: [1], {}, "list"),
    "text value": (lambda **info: {"flops": "many", "bytes": 1}, {}, "flops"),
    "int key": (lambda **info: {1: 1}, {}, "int"),
    "nan": (lambda **info: {"flops": float("nan"), "bytes": 8}, {"bytes": 8.0}, "finite"),
    "inf": (lambda **info: {"flops": float("-inf")}, {}, "finite"),
    "no keywords": (lambda: {}, {}, "TypeError"),
    "too many": (lambda **info: {f"m{i}": i for i in range(1000)}, None, "more metrics"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_one_warning_for_each_registration(dispatch, register, name):
    hook, metrics, text = FAULTS[name]
    register("k", hook)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = dispatch()
        assert dispatch() == first
        assert metrics is None or first == metrics
        (warning,) = caught
        assert warning.category is RuntimeWarning
        assert hook.__qualname__ in str(warning.message) and "'k'" in str(warning.message)
        assert text in str(warning.message)
        register("k", hook)  # arms it again
        dispatch()
        assert len(caught) == 2


@pytest.mark.parametrize("answer, metrics", [
    (None, {}), ({}, {}), ({"flops": -1}, {"flops": -1.0}), ({"flops": True}, {"flops": 1.0}),
    ({"flops": 2**70}, {"flops": 2.0**70})], ids=str)
def test_what_is_no_fault(dispatch, register, answer, metrics):
    register("k", lambda **info: answer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dispatch() == metrics


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_warning_turned_into_an_error_never_reaches_the_dispatch(dispatch, register):
    register("k", raising)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dispatch() == {}


def test_a_hook_may_unregister_itself(dispatch, register):
    def hook(**info):
        enigma.unregister_kernel_hook("k")
        return {"flops": 3}

    register("k", hook)
    assert dispatch() == {"flops": 3.0}
    assert dispatch() == {}


def test_a_hook_may_dispatch_and_is_not_called_from_inside_itself(fake, register):
    prepared, other = fake.prepare("k"), fake.prepare("other")
    calls = []

    def hook(**info):
        calls.append(info["kernel_name"])
        prepared.dispatch((8, 1, 1), (8, 1, 1))
        other.dispatch((8, 1, 1), (8, 1, 1))
        return {"flops": len(calls)}

    register("k", hook)
    with enigma.profile() as profiler:
        prepared.dispatch(GRID, THREADS)
    events = profiler.events()
    assert calls == ["k"]
    assert sorted((e.grid[0], e.kernel_name, e.metrics.get("flops")) for e in events) == [
        (8, "k", None), (8, "other", None), (64, "k", 1.0)]


def test_a_hook_may_release_what_is_being_dispatched(fake, register):
    prepared = fake.prepare("k", [bytes(4)], 4)
    register("k", lambda **info: prepared.release())
    with enigma.profile() as profiler:
        prepared.dispatch(GRID, THREADS)
    assert len(profiler.events()) == 1
    with pytest.raises(RuntimeError, match="released"):
        prepared.dispatch(GRID, THREADS)


def test_the_same_dict_changed_each_time_is_copied(fake, register):
    answer = {"flops": 0}

    def hook(**info):
        answer["flops"] += 1
        return answer

    register("k", hook)
    prepared = fake.prepare("k")
    with enigma.profile() as profiler:
        for _ in range(3):
            prepared.dispatch(GRID, THREADS)
    assert [e.metrics for e in profiler.events()] == [{"flops": 1.0}, {"flops": 2.0}, {"flops": 3.0}]


def test_keyboard_interrupt_in_a_hook_is_raised_by_the_program(fake, register, interruptible):
    prepared = fake.prepare("k")

    def hook(**info):
        raise KeyboardInterrupt

    register("k", hook)
    with enigma.profile() as profiler:
        with pytest.raises(KeyboardInterrupt), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared.dispatch(GRID, THREADS)
            for _ in range(1000):  # the signal is seen by the next instructions
                pass
    assert len(profiler.events()) == 1


@pytest.mark.parametrize("name, hook", [(None, print), (b"k", print), (1, print), ("k", None), ("k", {"flops": 1})])
def test_wrong_arguments(name, hook):
    with pytest.raises(TypeError):
        enigma.register_kernel_hook(name, hook)
    with pytest.raises(TypeError):
        enigma.register_kernel_hook("k")
    if not isinstance(name, str):
        with pytest.raises(TypeError):
            enigma.unregister_kernel_hook(name)


def test_a_hook_is_freed_when_it_is_replaced_or_removed(dispatch):
    class Hook:
        def __call__(self, **info):
            return {"flops": 1}

    first, second = Hook(), Hook()
    gone = [weakref.ref(first), weakref.ref(second)]
    enigma.register_kernel_hook("k", first)
    del first
    dispatch()
    assert gone[0]() is not None
    enigma.register_kernel_hook("k", second)
    del second
    gc.collect()
    assert gone[0]() is None and gone[1]() is not None
    enigma.unregister_kernel_hook("k")
    gc.collect()
    assert gone[1]() is None


def test_registering_while_another_thread_dispatches(fake):
    prepared = fake.prepare("k")
    stop = threading.Event()

    def register_often():
        value = 0
        while not stop.is_set():
            value += 1
            enigma.register_kernel_hook("k", lambda value=value, **info: {f"m{value}": value})
        enigma.unregister_kernel_hook("k")

    other = threading.Thread(target=register_often)
    with enigma.profile() as profiler:
        other.start()
        try:
            for _ in range(500):
                prepared.dispatch(GRID, THREADS)
        finally:
            stop.set()
            other.join()
    events = profiler.events()
    assert len(events) == 500
    for event in events:
        assert all(key == f"m{value:.0f}" for key, value in event.metrics.items())


def test_no_lock_is_held_while_a_hook_runs(fake, register):
    """A hook may wait for another thread that uses the same runtime and the same prepared kernel."""
    prepared, other = fake.prepare("k"), fake.prepare("other")

    def hook(**info):
        def work():
            prepared.dispatch((8, 1, 1), (8, 1, 1))
            other.dispatch((8, 1, 1), (8, 1, 1))
            fake.synchronize()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return {"flops": 1}

    register("k", hook)
    with enigma.profile() as profiler:
        for _ in range(3):
            prepared.dispatch(GRID, THREADS)
    assert [e.metrics for e in profiler.events()] == [{"flops": 1.0}] * 3
    assert fake.untimed_dispatches == 6


def test_another_thread_may_release_everything_while_a_hook_runs(fake, register):
    prepared = fake.prepare("k", [bytes(4)], 4)

    def hook(**info):
        thread = threading.Thread(target=lambda: (prepared.release(), fake.release()))
        thread.start()
        thread.join()

    register("k", hook)
    with enigma.profile() as profiler:
        prepared.dispatch(GRID, THREADS)
    assert len(profiler.events()) == 1
    with pytest.raises(RuntimeError, match="released"):
        prepared.read_output()
