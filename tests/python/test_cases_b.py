"""Cases B: threads, tasks and generators. Order is made by barriers, events and the scripted clock, never by sleeping."""

import asyncio
import concurrent.futures
import contextvars
import gc
import itertools
import logging
import sys
import threading

import enigma
import pytest
from caselib import US, chrome_trace, dispatch, dispatches, named, one, path_row, row_of, simulating

scope = enigma.scope


@pytest.fixture
def sim():
    with simulating() as made:
        yield made


@pytest.fixture
def quiet(caplog, monkeypatch):
    """Nothing may be logged or raised where nobody looks."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with caplog.at_level(logging.DEBUG, logger="enigma"), caplog.at_level(logging.WARNING):
        yield
    gc.collect()
    assert unraisable == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def in_thread(function, *args):
    """Runs function in a new thread and returns its result."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


async def meet(events, mine):
    """Waits until all have come here."""
    events[mine].set()
    for event in events:
        await event.wait()


# ---- Tasks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [2, 3, 20])
def test_b01_sibling_tasks(sim, tasks):
    """Tasks that interleave inside their scopes have paths of their own, never one under another."""

    async def task(i, entered, dispatched):
        with scope(f"t{i}"):
            await meet(entered, i)
            sim.run(f"k{i}")
            await meet(dispatched, i)

    async def main():
        entered = [asyncio.Event() for _ in range(tasks)]
        dispatched = [asyncio.Event() for _ in range(tasks)]
        await asyncio.gather(*(task(i, entered, dispatched) for i in range(tasks)))

    with enigma.profile() as p:
        asyncio.run(main())
        assert sim.path() == ()
    assert {(e.kernel_name, e.call_path) for e in dispatches(p) if e.kernel_name != "probe"} == {
        (f"k{i}", (f"t{i}",)) for i in range(tasks)}
    for i in range(tasks):
        event = named(p, f"t{i}")
        assert (event.call_path, event.gpu_time_us) == ((f"t{i}",), 1.0)


def test_b01_tasks_under_a_parent(sim):
    """Under a common scope each is its child; the parent's device time is the sum of them all."""

    async def task(i, entered):
        with scope(f"t{i}"):
            await meet(entered, i)
            sim.run("k", us=10)

    async def main():
        entered = [asyncio.Event() for _ in range(3)]
        with scope("parent"):
            await asyncio.gather(*(task(i, entered) for i in range(3)))

    with enigma.profile() as p:
        asyncio.run(main())
    assert sorted(e.call_path for e in dispatches(p)) == [("parent", f"t{i}") for i in range(3)]
    assert named(p, "parent").gpu_time_us == 30.0
    assert path_row(p, ("parent",)).gpu_total_us == 30.0


def test_b02_child_task_outlives_its_parent(sim):
    """The child has the path of its creation; the parent's event ends at its own exit."""

    async def child(go):
        await go.wait()
        with scope("c"):
            sim.run("k", us=7)

    async def main():
        go = asyncio.Event()
        with scope("parent"):
            task = asyncio.create_task(child(go))
            await asyncio.sleep(0)
            sim.advance(3 * US)
        sim.advance(5 * US)
        go.set()
        await task
        assert sim.path() == ()

    with enigma.profile() as p:
        asyncio.run(main())
    parent, c = named(p, "parent"), named(p, "c")
    assert c.call_path == ("parent", "c") and dispatch(p, "k").call_path == ("parent", "c")
    assert parent.duration_us == 3.0
    assert c.start_ns == parent.end_ns + 5 * US
    assert (parent.gpu_time_us, c.gpu_time_us) == (0.0, 7.0)
    assert "unfinished" not in parent.metadata and "error" not in parent.metadata


@pytest.mark.parametrize("gap_ns", [0, 1])
def test_b02_work_after_the_scope_is_not_its(sim, gap_ns):
    """GPU time belongs to the entries that are open at the launch, also where the clock did not move since one was left."""
    with enigma.profile() as p:
        with scope("parent"):
            sim.advance(3 * US)
            context = contextvars.copy_context()
        sim.advance(gap_ns)
        context.run(sim.run, "k", us=7)
        with scope("at its end"):
            sim.run("k", us=2)
    parent, last = named(p, "parent"), named(p, "at its end")
    assert [e.call_path for e in dispatches(p)] == [("parent",), ("at its end",)]
    assert (parent.gpu_time_us, last.gpu_time_us) == (0.0, 2.0)
    row = row_of(p.key_averages(), "parent")
    assert (row.gpu_total_us, row.gpu_busy_us) == (0.0, 0.0)


@pytest.mark.parametrize("how", ["before", "inside"])
def test_b02_profiler_and_tasks(sim, how):
    """A task made before the profiler is entered is not recorded; one made inside is, until the profiler is left."""

    async def child(go, done):
        await go.wait()
        with scope("c"):
            sim.run("k")
        done.set()

    async def main():
        go, done = asyncio.Event(), asyncio.Event()
        if how == "before":
            task = asyncio.create_task(child(go, done))
        with enigma.profile() as p:
            if how == "inside":
                task = asyncio.create_task(child(go, done))
            go.set()
            await done.wait()
        await task
        return p

    p = asyncio.run(main())
    assert len(dispatches(p)) == (1 if how == "inside" else 0)


def test_b02_task_goes_on_after_the_profiler(sim):
    """A profiler that was left is active nowhere, copied contexts included; the task sees the outer one there."""

    async def child(entered, go):
        with scope("c"):
            entered.set()
            await go.wait()
            assert enigma.get_active_profiler() is outer
            sim.run("late")
        with scope("d"):
            sim.run("later")

    async def main():
        entered, go = asyncio.Event(), asyncio.Event()
        with enigma.profile() as inner:
            task = asyncio.create_task(child(entered, go))
            await entered.wait()
        go.set()
        await task
        return inner

    with enigma.profile() as outer:
        inner = asyncio.run(main())
    assert "unfinished" in one(inner.events()).metadata
    assert {e.kernel_name for e in dispatches(outer)} == {"late", "later"}
    assert named(outer, "d").call_path == ("d",)


@pytest.mark.parametrize("how", ["aclose in a task", "break", "loop shutdown", "exception", "collected"])
def test_b03_async_generator_closed_elsewhere(sim, quiet, how):
    """No exception, no log line; the event is recorded, and the caller's path is what it was."""

    async def g():
        with scope("g"):
            yield 1
            yield 2

    async def close(it):
        await it.aclose()

    async def leave_early():
        async for _ in g():
            break

    async def main():
        with scope("caller"):
            it = g()
            if how == "aclose in a task":
                assert await it.__anext__() == 1
                await asyncio.create_task(close(it))
            elif how == "break":
                await leave_early()
            elif how == "loop shutdown":
                kept.append(it)
                await it.__anext__()
                return
            elif how == "exception":
                await it.__anext__()
                with pytest.raises(LookupError):
                    await asyncio.create_task(it.athrow(LookupError("x")))
            else:
                await it.__anext__()
                del it
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert sim.path() == ("caller",)

    kept = []
    with enigma.profile() as p:
        asyncio.run(main())
        assert sim.path() == ()
    assert named(p, "g").call_path == ("caller", "g")
    assert "unfinished" not in named(p, "g").metadata


# ---- Generators ------------------------------------------------------------------------------------------------------------


def held(name):
    with scope(name):
        yield name


@pytest.mark.parametrize("opened", list(itertools.permutations("ABC"))[:4], ids="".join)
@pytest.mark.parametrize("closed", list(itertools.permutations("ABC")), ids="".join)
def test_b04_interleaved_generators(sim, opened, closed):
    """Generators opened and closed in any order leave nothing on the path."""
    with enigma.profile() as p:
        generators = {name: held(name) for name in opened}
        for name in opened:
            next(generators[name])
        assert sim.path() == opened
        still = list(opened)
        for name in closed:
            generators[name].close()
            still.remove(name)
            assert sim.path()[-1:] == tuple(still[-1:])
        assert sim.path() == ()
        sim.run("late")
    assert dispatch(p, "late").call_path == ()
    assert sorted(e.name for e in p.events() if e.category == "scope") == ["A", "B", "C"]


def test_b04_interleaved_around_a_scope(sim):
    """A generator that is closed while a scope is open leaves that scope's path whole."""
    with enigma.profile() as p:
        g = held("G")
        next(g)
        with scope("S"):
            g.close()
            assert sim.path()[-1] == "S"
            with scope("T"):
                assert sim.path()[-2:] == ("S", "T")
        assert sim.path() == ()
    assert len([e for e in p.events() if e.category == "scope"]) == 3


@pytest.mark.parametrize("end", ["close", "exhaust", "throw", "collect"])
def test_b05_generator_leak_seen_by_the_caller(sim, end):
    """The caller sees the scope while the generator is suspended inside it, and not afterwards, whatever ends it."""
    with enigma.profile() as p:
        it = held("g")
        next(it)
        sim.run("during")
        if end == "close":
            it.close()
        elif end == "exhaust":
            assert list(it) == []
        elif end == "throw":
            with pytest.raises(ValueError):
                it.throw(ValueError("x"))
        del it
        gc.collect()
        sim.run("after")
    assert dispatch(p, "during").call_path == ("g",)
    assert dispatch(p, "after").call_path == ()
    assert ("error" in named(p, "g").metadata) == (end == "throw")


@pytest.mark.parametrize("context", ["empty", "copied"])
def test_b05_generator_collected_in_another_thread(sim, quiet, context):
    """Dropping the last reference in another thread ends the scope; here the path is clean again."""
    with enigma.profile() as p:
        with scope("outer"):
            holder = [held("g")]
            next(holder[0])
            assert sim.path() == ("outer", "g")
            run = contextvars.copy_context().run if context == "copied" else lambda f: f()
            in_thread(run, holder.clear)
            gc.collect()
            assert sim.path() == ("outer",)
            with scope("next"):
                assert sim.path() == ("outer", "next")
        assert sim.path() == ()
    event = named(p, "g")
    assert event.call_path == ("outer", "g") and event.thread_id == threading.get_native_id()


def test_b05_generator_finished_under_another_profiler(sim):
    """A scope opened under one profiler and left under another belongs to the first."""
    with enigma.profile() as first:
        g = held("g")
        next(g)
        with enigma.profile() as second:
            g.close()
            assert sim.path() == ("g",)
        assert sim.path() == ()
    assert named(first, "g").call_path == ("g",)
    assert {e.kernel_name for e in second.events()} == {"probe"}


# ---- Threads ---------------------------------------------------------------------------------------------------------------


def work(sim):
    with scope("s"):
        sim.run("k")
    return enigma.get_active_profiler()


@pytest.mark.parametrize("how", ["Thread", "pool", "copied", "copied pool", "to_thread", "run_in_executor"])
def test_b07_threads_and_contexts(sim, how):
    """A thread without a copied context records nothing; a copied context and asyncio.to_thread do, with the parent's path."""
    results = []

    async def coroutine():
        if how == "to_thread":
            results.append(await asyncio.to_thread(work, sim))
        else:
            results.append(await asyncio.get_running_loop().run_in_executor(None, work, sim))

    with enigma.profile() as p:
        with scope("parent"):
            if how == "Thread":
                thread = threading.Thread(target=lambda: results.append(work(sim)))
                thread.start()
                thread.join()
            elif how == "pool":
                results.append(in_thread(work, sim))
            elif how == "copied":
                context = contextvars.copy_context()
                thread = threading.Thread(target=lambda: results.append(context.run(work, sim)))
                thread.start()
                thread.join()
            elif how == "copied pool":
                results.append(in_thread(contextvars.copy_context().run, work, sim))
            else:
                asyncio.run(coroutine())
    recorded = how in ("copied", "copied pool", "to_thread")
    assert results == [p if recorded else None]
    assert [e.call_path for e in dispatches(p)] == ([("parent", "s")] if recorded else [])
    assert named(p, "parent").gpu_time_us == (1.0 if recorded else 0.0)
    if recorded:
        assert named(p, "s").thread_id != named(p, "parent").thread_id


def test_b07_thread_with_a_profiler_of_its_own(sim):
    """A thread may enter its own profiler while main's records; neither sees the other's work."""

    def own(ready):
        with enigma.profile() as mine:
            ready.wait()
            with scope("mine"):
                sim.run("mine")
            ready.wait()
        return mine

    ready = threading.Barrier(2)
    with enigma.profile() as p, concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(own, ready)
        ready.wait()
        with scope("main"):
            sim.run("main")
        ready.wait()
        mine = future.result()
    assert [e.label for e in p.events()] == ["gpu_dispatch:main", "main"]
    assert [e.label for e in mine.events()] == ["gpu_dispatch:mine", "mine"]


def test_b08_scopes_of_two_threads_never_nest(sim):
    """A worker opens w before main opens m, a thousand times, both recorded: two roots, main never under the worker."""
    rounds, turn = 1000, threading.Barrier(2)

    def worker():
        for _ in range(rounds):
            with scope("w"):
                turn.wait()  # main enters now
                turn.wait()  # main has left
            turn.wait()

    with enigma.profile() as p:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(worker,))
        thread.start()
        for _ in range(rounds):
            turn.wait()
            with scope("m"):
                sim.run("k")
            turn.wait()
            turn.wait()
        thread.join()
    rows = {r.call_path: r.calls for r in p.key_averages(group_by="call_path").rows()}
    assert rows == {("w",): rounds, ("m",): rounds, ("m", "gpu_dispatch:k"): rounds}
    assert all(e.gpu_time_us == 0.0 for e in p.events() if e.name == "w")


@pytest.mark.parametrize("threads", [2, 8])
def test_b11_exports_while_threads_record(tmp_path, threads):
    """Each export taken meanwhile parses and holds, of each thread, a prefix of what it did, with whole paths."""
    steps, start = 2_000, threading.Barrier(threads + 1)

    def worker(number):
        start.wait()
        for i in range(steps):
            with scope(f"t{number}", index=i):
                with scope("inner"):
                    pass

    with simulating() as sim, enigma.profile() as p:
        pool = [threading.Thread(target=contextvars.copy_context().run, args=(worker, n)) for n in range(threads)]
        for thread in pool:
            thread.start()
        start.wait()
        taken = []
        while any(thread.is_alive() for thread in pool) and len(taken) < 20:
            taken.append((chrome_trace(p, tmp_path).slices, p.events()))
        for thread in pool:
            thread.join()
        assert sim.path() == ()
    final = [e for e in p.events() if e.category == "scope"]
    assert len(final) == 2 * threads * steps
    for slices, events in [*taken, ([], final)]:
        for number in range(threads):
            indices = [e.metadata["index"] for e in events if e.name == f"t{number}"]
            assert indices == list(range(len(indices)))
            inner = [e for e in events if e.call_path == (f"t{number}", "inner")]
            assert len(inner) - len(indices) in (0, 1)
        assert {e.call_path[-1] for e in events if e.category == "scope"} <= {
            "inner", *(f"t{n}" for n in range(threads))}
        for s in slices:
            assert s.args["call_path"][-1] == s.name


@pytest.mark.parametrize("context", ["empty", "copied"])
def test_b13_profiler_left_on_another_thread(sim, context):
    """Works, or RuntimeError; either way nothing is active and the events are there."""
    p = enigma.profile()
    p.__enter__()
    with scope("s"):
        sim.run("k")
    run = contextvars.copy_context().run if context == "copied" else lambda f, *a: f(*a)
    try:
        in_thread(run, p.__exit__, None, None, None)
    except RuntimeError:
        p.__exit__(None, None, None)
    assert enigma.get_active_profiler() is None
    sim.run("k")
    assert [e.label for e in p.events()] == ["gpu_dispatch:k", "s"]
    with enigma.profile() as again:
        assert sim.path() == ()
    assert len(again.events()) == 1


def test_b13_scope_left_on_another_thread(sim):
    """The event keeps the thread that entered; both threads' paths are right afterwards."""
    with enigma.profile() as p:
        s = scope("s")
        s.__enter__()
        sim.advance(4 * US)
        in_thread(s.__exit__, None, None, None)
        assert sim.path() == ()
    event = named(p, "s")
    assert (event.duration_us, event.thread_id) == (4.0, threading.get_native_id())


def test_b13_profilers_left_out_of_order(sim):
    """The outer one left first: the inner stays active until it is left, then nothing is."""
    outer, inner = enigma.profile(), enigma.profile()
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert enigma.get_active_profiler() is inner
    sim.run("k")
    inner.__exit__(None, None, None)
    assert enigma.get_active_profiler() is None
    assert (len(outer.events()), len(inner.events())) == (0, 1)


def test_b14_callbacks_in_one_context(sim):
    """A loop that runs all its callbacks in one context interleaves their scopes: nothing leaks, other contexts are whole."""
    with enigma.profile() as p:
        with scope("main"):
            shared = contextvars.copy_context()
            a, b = scope("a"), scope("b")
            shared.run(a.__enter__)
            shared.run(b.__enter__)
            assert sim.path() == ("main",)
            shared.run(a.__exit__, None, None, None)
            assert shared.run(sim.path)[-1] == "b"
            shared.run(b.__exit__, None, None, None)
            assert shared.run(sim.path) == ("main",)
            assert sim.path() == ("main",)
        assert sim.path() == ()
    assert named(p, "a").call_path == ("main", "a")
    assert named(p, "b").call_path[0] == "main" and named(p, "b").call_path[-1] == "b"


def test_b14_deep_contexts(sim):
    """A context copied within a copied context, a hundred deep, inherits every scope once."""

    def descend(level):
        if level == 0:
            return sim.path()
        with scope(str(level)):
            return contextvars.copy_context().run(descend, level - 1)

    with enigma.profile():
        assert descend(100) == tuple(str(level) for level in range(100, 0, -1))
        assert sim.path() == ()
