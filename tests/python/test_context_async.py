"""Scopes in asyncio: each task has its own stack, a child starts with what was open when it was made."""

import asyncio
import contextvars
import gc
import resource
import sys

import pytest
from scope_helpers import check_nothing_left, current_path, info, paths

from enigma import profile, scope


@pytest.fixture(autouse=True)
def _nothing_left():
    gc.collect()
    assert info()["live"] == 0
    yield
    check_nothing_left()


def run(coroutine):
    with profile() as p:
        with scope("main"):
            asyncio.run(coroutine)
        assert current_path() == ()
    return p


async def path_is(path):
    assert current_path() == path


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_gather_siblings():
    async def child(name):
        for i in range(5):
            with scope(name):
                await asyncio.sleep(0)
                assert current_path() == ("main", "root", name)
                with scope("in"):
                    await turns(i % 3)
                    assert current_path() == ("main", "root", name, "in")

    async def root():
        with scope("root"):
            await asyncio.gather(*(child("c%d" % i) for i in range(10)))
            assert current_path() == ("main", "root")

    p = run(root())
    events = p.events()
    assert len(events) == 102
    assert not any(e.metadata for e in events)
    assert len({e.call_path for e in events}) == 2 + 20


def test_child_outlives_parent():
    v = contextvars.ContextVar("v")
    seen = []

    async def child(n):
        if n % 2:
            v.set(n)
        await turns(n % 3)
        with scope("child"):
            seen.append(current_path())
            await turns(2)
            seen.append(current_path())

    async def parent():
        with scope("p"):
            return [asyncio.ensure_future(child(i)) for i in range(6)]

    async def root():
        tasks = await asyncio.ensure_future(parent())
        with scope("other"):
            with scope("deep"):
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)

    run(root())
    assert set(seen) == {("main", "p", "child")}
    assert len(seen) == 12


def test_profiler_that_was_left_is_not_active_in_a_task():
    async def child(release):
        await release.wait()
        with scope("late"):
            assert current_path() is None

    async def root():
        release = asyncio.Event()
        with profile() as p:
            task = asyncio.ensure_future(child(release))
            await turns(2)
        assert current_path() is None
        release.set()
        await task
        return p

    assert asyncio.run(root()).events() == []


def test_async_generator_closed_by_another_task():
    async def agen():
        with scope("agen"):
            while True:
                yield current_path()

    async def root():
        g = agen()
        assert await g.__anext__() == ("main", "agen")
        await asyncio.ensure_future(g.aclose())
        assert current_path() == ("main",)
        h = agen()
        await h.__anext__()
        task = asyncio.ensure_future(h.__anext__())
        assert await task == ("main", "agen")
        await h.aclose()
        assert current_path() == ("main",)
        await asyncio.ensure_future(path_is(("main",)))

    p = run(root())
    assert paths(p) == ["main/agen", "main/agen", "main"]
    assert not any(e.metadata for e in p.events())


def test_abandoned_async_generator():
    async def agen():
        with scope("agen"):
            yield 1
            yield 2

    async def root():
        with scope("r"):
            async for _ in agen():
                break
            gc.collect()
            await turns(5)  # the loop closes it in a task of its own
            await asyncio.ensure_future(path_is(("main", "r")))
            assert current_path() == ("main", "r")

    p = run(root())
    assert sorted(paths(p)) == ["main", "main/r", "main/r/agen"]


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="eager tasks came with 3.12")
def test_eager_tasks():
    async def child(name, n):
        with scope(name):
            assert current_path() == ("main", "e", name)
            await turns(n)
            assert current_path() == ("main", "e", name)

    async def root():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        with scope("e"):
            tasks = [asyncio.create_task(child("c%d" % i, i % 3)) for i in range(9)]
            assert current_path() == ("main", "e")
        with scope("f"):
            await asyncio.gather(*tasks)
            assert current_path() == ("main", "f")

    run(root())


def test_cancelled():
    async def child():
        with scope("c"):
            with scope("d"):
                await asyncio.get_running_loop().create_future()

    async def root():
        task = asyncio.ensure_future(child())
        await asyncio.sleep(0)
        with scope("x"):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert current_path() == ("main", "x")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(child(), 0.001)
        assert current_path() == ("main",)

    p = run(root())
    assert sorted(paths(p)) == sorted(["main/c/d", "main/c", "main/x", "main/c/d", "main/c", "main"])


def test_loop_callbacks_and_executor():
    async def root():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with scope("s"):
            loop.call_soon(lambda: future.set_result(current_path()))
            context = contextvars.copy_context()
            executed = loop.run_in_executor(None, context.run, current_path)
            assert await asyncio.to_thread(current_path) == ("main", "s")
        assert await future == ("main", "s")
        assert await executed == ("main", "s")

    run(root())


def test_many_tasks_leave_nothing_behind():
    v = contextvars.ContextVar("v")

    async def child(i):
        if i & 1:
            v.set(i)
        with scope("c", i=i):
            await asyncio.sleep(0)
            with scope("d"):
                pass

    async def batch(n):
        with profile() as p:
            with scope("b"):
                tasks = []
                for i in range(n):
                    with scope("spawn"):
                        tasks.append(asyncio.ensure_future(child(i)))
                await asyncio.gather(*tasks)
        return p

    async def root():
        used = []
        for _ in range(8):
            p = await batch(2000)
            assert len(p.events()) == 6001
            del p
            gc.collect()
            used.append((sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
        return used

    used = asyncio.run(root())
    assert abs(used[-1][0] - used[2][0]) < 500, used
    assert used[-1][1] - used[3][1] < 30000, used


def test_tasks_pending_at_exit():
    async def child():
        with scope("c"):
            await asyncio.get_running_loop().create_future()

    async def root():
        task = asyncio.ensure_future(child())
        await asyncio.sleep(0)
        return task

    loop = asyncio.new_event_loop()
    with profile() as p:
        task = loop.run_until_complete(root())
    loop.set_exception_handler(lambda *a: None)
    task._log_destroy_pending = False
    del task
    loop.close()
    gc.collect()
    assert [e.metadata for e in p.events()] == [{"unfinished": True}]
