"""ProfilerEvent: a frozen dataclass, whether it is a handle on a profile or made by hand."""

import copy
import dataclasses
import gc
import json
import pickle
import sys

import enigma
import pytest

GRID, THREADS = (64, 1, 1), (32, 1, 1)


@pytest.fixture
def profiler(fake, clock):
    """outer { 2 us; dispatch k, 100 us; 3 us } with a runtime parent above a second dispatch (execute)."""
    prepared = fake.prepare("k", [bytes(12)], 8)
    kernel = fake.compile("any", "k2")
    with enigma.profile(profile_memory=True) as profiler:
        with enigma.scope("outer", metrics={"flops": 5}, note=["a", {"b": (1, None)}]):
            clock.advance(2_000)
            fake.script([(clock.now, clock.now + 100_000)])
            prepared.dispatch(GRID, THREADS, metrics={"flops": 7, "bytes": 2.5})
            clock.advance(3_000)
            fake.execute(kernel, [bytes(4)], 4, grid=GRID, threads=THREADS)
    return profiler


@pytest.fixture
def events(profiler):
    return profiler.events()


def by_label(events):
    return {e.label: e for e in events}


def test_fields_of_a_dispatch(events):
    event = by_label(events)["gpu_dispatch:k"]
    assert (event.name, event.category, event.kernel_name) == ("gpu_dispatch", "scripted", "k")
    assert (event.start_ns, event.end_ns, event.duration_us) == (1_002_000, 1_102_000, 100.0)
    assert (event.grid, event.threads) == (GRID, THREADS)
    assert (event.input_bytes, event.output_bytes, event.buffer_count) == (12, 8, 2)
    assert event.gpu_time_us == 100.0
    assert (event.gpu_start_ns, event.gpu_end_ns) == (1_002_000, 1_102_000)
    assert event.call_path == ("outer",)
    assert event.node_path == ("outer", "gpu_dispatch:k")
    assert event.metrics == {"flops": 7.0, "bytes": 2.5}
    assert (event.queue_id, event.device_id) == (0, 0)


def test_fields_of_a_scope(events):
    event = by_label(events)["outer"]
    assert event.kernel_name is event.grid is event.threads is None
    assert event.call_path == event.node_path == ("outer",)
    assert event.metrics == {"flops": 5.0}
    assert event.metadata == {"note": ["a", {"b": (1, None)}]}
    assert event.gpu_time_us == 101.0
    assert (event.gpu_start_ns, event.gpu_end_ns) == (0, 0)
    assert event.self_us == 5.0


def test_runtime_parents_are_in_the_node_path_only(events):
    event = by_label(events)["gpu_dispatch:k2"]
    assert event.call_path == ("outer",)
    assert event.node_path == ("outer", "execute_total:k2", "gpu_dispatch:k2")


def test_events_is_a_new_list_in_order_of_ending(profiler):
    first, second = profiler.events(), profiler.events()
    assert type(first) is list and first == second and first is not second
    assert [e.end_ns for e in first] == sorted(e.end_ns for e in first)
    first.clear()
    assert len(profiler.events()) == len(second)


def test_iter_events_gives_what_events_lists_one_by_one(profiler):
    events = profiler.events()
    iterator = profiler.iter_events()
    assert iter(iterator) is iterator and iterator.__length_hint__() == len(events)
    assert next(iterator) == events[0]
    assert iterator.__length_hint__() == len(events) - 1
    assert list(iterator) == events[1:]
    assert next(iterator, None) is None and iterator.__length_hint__() == 0


def test_iter_events_outlives_its_profiler_and_sees_what_was_there(clock):
    with enigma.profile() as profiler:
        with enigma.scope("early"):
            clock.advance(1_000)
        iterator = profiler.iter_events()
        with enigma.scope("late"):
            clock.advance(1_000)
    assert [e.name for e in profiler.iter_events()] == ["early", "late"]
    del profiler
    gc.collect()
    assert [e.name for e in iterator] == ["early"]


def test_iter_events_of_an_empty_profile():
    with enigma.profile() as profiler:
        pass
    assert list(profiler.iter_events()) == []


def test_handles_are_small(events):
    assert sys.getsizeof(events[0]) <= 48
    assert not gc.is_tracked(events[0])


def test_dicts_are_fresh(events):
    event = by_label(events)["outer"]
    event.metrics["flops"] = 9
    event.metadata["note"].append(1)
    event.metadata["note"][1]["b"] = 2
    assert event.metrics == {"flops": 5.0}
    assert event.metadata == {"note": ["a", {"b": (1, None)}]}
    made = dataclasses.replace(event)
    made.metrics["flops"] = 9
    made.metadata["note"][1]["b"] = 2
    assert made == event


@pytest.mark.parametrize("name", ["name", "start_ns", "metrics", "label", "something_new"])
def test_frozen(events, name):
    for event in (events[0], dataclasses.replace(events[0])):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(event, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(event, name)
        with pytest.raises((TypeError, AttributeError)):
            object.__setattr__(event, name, 1)
    with pytest.raises(TypeError):
        setattr(enigma.ProfilerEvent, name, 1)


def test_asdict_and_json(events):
    event = by_label(events)["gpu_dispatch:k"]
    as_dict = dataclasses.asdict(event)
    assert list(as_dict) == [f.name for f in dataclasses.fields(enigma.ProfilerEvent)]
    assert all(as_dict[name] == getattr(event, name) for name in as_dict)
    assert json.loads(json.dumps(as_dict))["metrics"] == {"flops": 7.0, "bytes": 2.5}
    assert len(dataclasses.astuple(event)) == len(as_dict)


def test_replace(events):
    event = by_label(events)["gpu_dispatch:k"]
    changed = dataclasses.replace(event, name="other", metrics={"x": 1})
    assert type(changed) is enigma.ProfilerEvent
    assert (changed.name, changed.label, changed.metrics) == ("other", "other:k", {"x": 1.0})
    assert changed.end_ns == event.end_ns and changed != event
    assert dataclasses.replace(changed, name=event.name, metrics=event.metrics) == event
    assert event.__replace__(name="other", metrics={"x": 1}) == changed
    with pytest.raises(TypeError):
        dataclasses.replace(event, duration_us=1.0)


def test_equality_is_by_value(events, profiler):
    event = by_label(events)["gpu_dispatch:k"]
    made = enigma.ProfilerEvent(**dataclasses.asdict(event))
    assert made == event and not made != event and hash(made) == hash(event)
    assert event != dataclasses.replace(event, start_ns=1)
    assert event != dataclasses.asdict(event) and event != "event"
    assert len(set(events) | set(profiler.events())) == len(events)
    with pytest.raises(TypeError):
        events[0] < events[1]  # noqa: B015


def test_pickle_and_copy(events):
    for event in events:
        back = pickle.loads(pickle.dumps(event))
        assert type(back) is enigma.ProfilerEvent
        assert back == event and back.node_path == event.node_path and hash(back) == hash(event)
        assert pickle.loads(pickle.dumps(back)).node_path == event.node_path
        assert copy.copy(event) is event and copy.deepcopy(event) is event


def test_repr_reads_like_a_dataclass(events):
    event = by_label(events)["gpu_dispatch:k"]
    assert repr(event).startswith("ProfilerEvent(name='gpu_dispatch', category='scripted', start_ns=1002000, ")
    assert eval(repr(event), {"ProfilerEvent": enigma.ProfilerEvent}) == event


def test_match(events):
    match by_label(events)["gpu_dispatch:k"]:
        case enigma.ProfilerEvent("gpu_dispatch", "scripted", start, kernel_name="k"):
            assert start == 1_002_000
        case _:
            pytest.fail("no match")


def test_made_by_hand_with_defaults():
    event = enigma.ProfilerEvent("n", "c", 1_000, 3_500)
    assert event == enigma.ProfilerEvent(name="n", category="c", start_ns=1_000, end_ns=3_500)
    assert event.duration_us == 2.5 and event.label == "n" and event.node_path == ("n",)
    assert event.kernel_name is event.grid is event.threads is None
    assert event.call_path == () and event.metrics == {} and event.metadata == {}
    assert event.metrics is not enigma.ProfilerEvent("n", "c", 1, 2).metrics
    numbers = ["input_bytes", "output_bytes", "buffer_count", "gpu_time_us", "thread_id", "queue_id", "device_id",
               "self_us", "gpu_start_ns", "gpu_end_ns"]
    assert [getattr(event, name) for name in numbers] == [0] * len(numbers)


def test_node_path_of_what_is_made_by_hand():
    scope = enigma.ProfilerEvent("s", "scope", 0, 1, call_path=("a", "s"))
    assert scope.node_path == ("a", "s")
    dispatch = enigma.ProfilerEvent("s", "opencl", 0, 1, kernel_name="k", call_path=("a", "s"))
    assert dispatch.node_path == ("a", "s", "s:k")


def test_made_by_hand_copies_what_it_is_given():
    class Text(str):
        pass

    path, metadata, metrics = [Text("a")], {"k": [1], "object": object()}, {"m": 1}
    event = enigma.ProfilerEvent(Text("n"), "c", True, 2, call_path=path, metadata=metadata, metrics=metrics,
                                 grid=[1, 2, 3])
    path.append("b")
    metadata["k"].append(2)
    metrics["m"] = 2
    assert event.call_path == ("a",) and event.metrics == {"m": 1.0} and event.metadata["k"] == [1]
    assert event.metadata["object"].startswith("<object object")
    assert event.grid == (1, 2, 3)
    assert type(event.name) is type(event.call_path[0]) is str and type(event.start_ns) is int


@pytest.mark.parametrize("wrong", [
    {"name": None}, {"name": b"n"}, {"category": 1}, {"start_ns": "1"}, {"end_ns": 1.5}, {"kernel_name": 1},
    {"grid": 4}, {"grid": (1, 2, "3")}, {"call_path": "a"}, {"call_path": (1,)}, {"metrics": [1]},
    {"metrics": {"a": "b"}}, {"metrics": {1: 1}}, {"metadata": []}, {"gpu_time_us": "1"}, {"nope": 1}], ids=str)
def test_made_by_hand_checks_types(wrong):
    with pytest.raises(TypeError):
        enigma.ProfilerEvent(**{"name": "n", "category": "c", "start_ns": 1, "end_ns": 2, **wrong})


def test_made_by_hand_checks_sizes():
    with pytest.raises(ValueError, match="grid"):
        enigma.ProfilerEvent("n", "c", 1, 2, grid=(1, 2))
    with pytest.raises(TypeError):
        enigma.ProfilerEvent("n", "c", 1)


def test_events_outlive_their_profiler(fake):
    prepared = fake.prepare("k")
    with enigma.profile() as profiler:
        prepared.dispatch(GRID, THREADS)
    (event,) = profiler.events()
    del profiler
    prepared.release()
    gc.collect()
    assert event.kernel_name == "k"


def test_fields_do_not_leak():
    enigma.ProfilerEvent("n", "c", 1, 2, metadata={"a": [1, (2, {"b": "c"})]})
    before = sys.getrefcount(None)
    for _ in range(1_000):
        event = enigma.ProfilerEvent("n", "c", 1, 2, metadata={"a": [None]})
        repr(event), hash(event), event.node_path, event == dataclasses.replace(event), event.metadata
    del event
    assert abs(sys.getrefcount(None) - before) < 100
