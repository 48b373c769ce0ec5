"""Scopes in generators, copied contexts and threads: each context has its own stack, and a copy keeps what was open when it was
made."""

import contextlib
import contextvars
import gc
import random
import sys
import threading
import weakref

import pytest
from scope_helpers import PORTABLE, check_nothing_left, current_path, info, paths, place, start_order

from enigma import _enigma, get_active_profiler, profile, scope


@pytest.fixture(autouse=True)
def _nothing_left():
    gc.collect()
    assert info()["live"] == 0
    yield
    check_nothing_left()


def opened(name):
    """A generator that holds a scope open while it is suspended."""
    with scope(name):
        yield current_path()


# ---- generators -------------------------------------------------------------------------------------------------------


def test_interleaved():
    with profile() as p:
        a, b = opened("a"), opened("b")
        assert next(a) == ("a",)
        assert next(b) == ("a", "b")
        a.close()
        assert current_path() == ("a", "b")
        b.close()
        assert current_path() == ()
        with scope("x"):
            pass
    assert paths(p) == ["a", "a/b", "x"]
    assert all(e.metadata == {} for e in p.events())


def test_many_interleaved():
    rnd = random.Random(1)
    with profile() as p:
        for _ in range(50):
            suspended = [opened(str(i)) for i in range(8)]
            for generator in suspended:
                next(generator)
            rnd.shuffle(suspended)
            for generator in suspended:
                generator.close()
            assert current_path() == ()
    assert len(p.events()) == 400


def test_abandoned_and_collected_in_another_thread():
    def g(name):
        with scope(name):
            me = yield  # a cycle: only the collector can close it
            yield me

    with profile() as p:
        with scope("m"):
            x = g("x")
            next(x)
            x.send(x)
            gc.disable()
            try:
                del x
                assert current_path() == ("m", "x")
                t = threading.Thread(target=gc.collect)
                t.start()
                t.join()
            finally:
                gc.enable()
            assert current_path() == ("m",)
            with scope("y"):
                pass
    assert start_order(p) == ["m", "m/x", "m/y"]


def test_context_dies_first():
    p = profile()
    context = contextvars.copy_context()
    x = opened("g")
    context.run(lambda: (p.__enter__(), next(x)))
    del context
    gc.collect()
    x.close()
    p.__exit__(None, None, None)
    assert paths(p) == ["g"]
    assert p.events()[0].metadata == {}


def test_profiler_dies_before_scope_is_left():
    def g():
        with scope("g", layer=1):
            yield

    context = contextvars.copy_context()
    x = g()

    def start():
        p = profile()
        p.__enter__()
        next(x)
        p.__exit__(None, None, None)

    context.run(start)
    del context
    gc.collect()
    x.close()


def test_profiler_that_is_never_left_dies_with_its_context():
    context = contextvars.copy_context()
    x = opened("g")
    context.run(lambda: (profile().__enter__(), next(x)))
    assert info()["live"] == 1
    del context
    gc.collect()
    assert info()["live"] == 1  # the open scope may still be left
    del x
    gc.collect()
    assert info()["live"] == 0


def test_closed_in_another_context_while_inherited():
    with profile():
        with scope("a"):
            x = opened("g")
            next(x)
            c1, c2 = contextvars.copy_context(), contextvars.copy_context()
            assert c1.run(current_path) == ("a", "g")
            c1.run(x.close)
            # inherited for good; in portable mode a scope closed elsewhere is dropped everywhere
            assert c1.run(current_path) == (("a",) if PORTABLE else ("a", "g"))
            assert current_path() == ("a",)
            assert contextvars.copy_context().run(current_path) == ("a",)
            del c2


def test_copied_after_foreign_close():
    with profile():
        with scope("a"):
            x = opened("g")
            next(x)
            contextvars.copy_context().run(x.close)
            child = contextvars.copy_context()  # before any scope operation here
            assert child.run(current_path) == ("a",)


# ---- copied contexts --------------------------------------------------------------------------------------------------


def test_copy_inherits_what_was_open_when_copied():
    with profile():
        with scope("a"):
            c = contextvars.copy_context()
        with scope("b"):
            d = contextvars.copy_context()
            with scope("c"):
                assert c.run(current_path) == ("a",)
                assert d.run(current_path) == ("b",)
        e = contextvars.copy_context()
        with scope("z"):
            assert e.run(current_path) == ()


@pytest.mark.parametrize("count", [0, 1, 3, 10, 20, 40, 200, 1000])
def test_copy_then_other_variable(count):
    """The copy sets other variables, so it no longer shares the tree of variables with its parent."""
    others = [contextvars.ContextVar("o%d" % i) for i in range(count)]

    def run():
        for v in others:
            v.set(1)
        with profile():
            with scope("a"):
                kids = [contextvars.copy_context() for _ in range(8)]
                for kid, v in zip(kids, (others or [contextvars.ContextVar("z")]) * 8):
                    kid.run(v.set, 2)
            with scope("b"):
                more = contextvars.copy_context()
                more.run(contextvars.ContextVar("y").set, 1)
                for v in others[:5]:
                    v.set(3)
                with scope("c"):
                    for kid in kids:
                        assert kid.run(current_path) == ("a",)
                    assert current_path() == ("b", "c")
                assert current_path() == ("b",)
            assert current_path() == ()
            assert more.run(current_path) == ("b",)

    contextvars.Context().run(run)


def test_addresses_reused():
    """Two sets of other variables can put a new tree where the old one was."""
    v = contextvars.ContextVar("v")
    with profile():
        for i in range(1000):
            with scope("a"):
                v.set(i)
                c = contextvars.copy_context()
                v.set(i + 1)
                if i % 3:
                    v.set(i + 2)
            with scope("b"):
                assert c.run(current_path) == ("a",)


def test_deep():
    depth = 20000
    with profile() as p:
        with contextlib.ExitStack() as stack:
            for _ in range(depth):
                stack.enter_context(scope("a"))
            c = contextvars.copy_context()
            assert len(c.run(current_path)) == depth
    assert len(p.events()) == depth
    context = contextvars.Context()

    def abandon():
        with profile():
            for _ in range(depth):
                scope("b").__enter__()

    context.run(abandon)
    del context


def test_context_at_the_address_of_a_dead_one():
    with profile():
        for _ in range(100):
            a = contextvars.copy_context()
            x = opened("g")
            a.run(next, x)
            b = a.copy()
            del a
            c = b.copy()  # often where a was
            del b
            assert c.run(current_path) == ("g",)
            h = scope("h")
            c.run(h.__enter__)
            assert c.run(current_path) == ("g", "h")
            x.close()
            assert c.run(current_path) == ("g", "h")
            c.run(h.__exit__, None, None, None)
            assert c.run(current_path) == (() if PORTABLE else ("g",))
            assert current_path() == ()


def test_finalizer_runs_scopes():
    """What a released frame holds may use scopes and copy contexts when it goes."""
    kept = []

    class Bomb:
        def __del__(self):
            with scope("del"):
                kept.append((contextvars.copy_context(), current_path()))

    def g():
        with scope("g", bomb=Bomb()):
            yield

    with profile() as p:
        for _ in range(50):
            a = contextvars.copy_context()
            x = g()
            a.run(next, x)
            b = a.copy()
            del a
            del x  # closes it here: stale in a context that only b has
            b.run(lambda: [scope("k").__enter__() for _ in range(3)])
            b.run(current_path)
            del b
        for c, path in kept:
            assert c.run(current_path) == path
        del c
        kept.clear()
    assert len(p.events()) == 250


def test_empty_context():
    def f():
        assert current_path() is None
        with scope("b"):
            pass

    with profile() as p:
        with scope("a"):
            contextvars.Context().run(f)
    assert paths(p) == ["a"]


def test_profiler_in_a_copy_only():
    def f():
        with scope("b"):
            pass

    p = profile()
    c = contextvars.copy_context()
    c.run(p.__enter__)
    with scope("a"):
        assert current_path() is None
    c.run(f)
    c.run(p.__exit__, None, None, None)
    assert paths(p) == ["b"]


def test_reused_object_in_two_contexts():
    s = scope("s")
    with profile() as p:
        c = contextvars.copy_context()
        empty = contextvars.Context()
        empty.run(s.__enter__)  # no profiler there
        s.__enter__()
        c.run(s.__enter__)
        empty.run(s.__exit__, None, None, None)
        assert (current_path(), c.run(current_path)) == (("s",), ("s",))
        s.__exit__(None, None, None)
        assert (current_path(), c.run(current_path)) == ((), ("s",))
        c.run(s.__exit__, None, None, None)
        assert c.run(current_path) == ()
    assert paths(p) == ["s", "s"]


# ---- which profiler is active -----------------------------------------------------------------------------------------


def test_active_profiler():
    assert get_active_profiler() is None
    with profile() as p:
        assert get_active_profiler() is p
        with profile() as q:
            assert get_active_profiler() is q
        assert get_active_profiler() is p
    assert get_active_profiler() is None


def test_profiler_that_was_left_is_active_nowhere():
    with profile() as p:
        with scope("a"):
            c = contextvars.copy_context()
    assert c.run(place) == (None, None)

    def f():
        with scope("late"):
            pass

    c.run(f)
    with profile():
        assert c.run(place) == (None, None)
        c.run(f)
    assert paths(p) == ["a"]


def test_profiler_that_was_left_gives_way_to_its_outer_one_in_copies():
    with profile() as outer:
        with scope("o"):
            with profile() as inner:
                with scope("i"):
                    c, d = contextvars.copy_context(), contextvars.copy_context()
                    assert c.run(place) == (inner, ("o", "i"))
                    s = scope("in c")
                    c.run(s.__enter__)
            assert d.run(place) == (outer, ("o",))
            assert c.run(place) == (outer, ("o",))

            def f():
                with scope("x"):
                    pass

            c.run(f)
            d.run(f)
            c.run(s.__exit__, None, None, None)
            assert c.run(place) == (outer, ("o",))
    assert c.run(place) == (None, None)
    assert paths(outer) == ["o/x", "o/x", "o"]
    assert sorted(paths(inner)) == ["o/i", "o/i/in c"]


def test_profiler_left_elsewhere_while_its_context_was_copied():
    with profile():
        with scope("a"):
            c = contextvars.copy_context()
            inner, b = profile(), scope("b")
            c.run(inner.__enter__)
            c.run(b.__enter__)
            inner.__exit__(None, None, None)
            d = c.copy()
            wanted = (get_active_profiler(), ("a",))
            assert c.run(place) == wanted
            c.run(b.__exit__, None, None, None)
            assert c.run(place) == wanted
            assert d.run(place) == wanted


def test_middle_profiler_left_first():
    a, b, c = profile(), profile(), profile()
    for p, name in ((a, "a"), (b, "b"), (c, "c")):
        p.__enter__()
        scope(name).__enter__()
    b.__exit__(None, None, None)
    assert place() == (c, ("a", "b", "c"))
    c.__exit__(None, None, None)
    assert place() == (a, ("a",))
    a.__exit__(None, None, None)
    assert place() == (None, None)


def test_profiler_entered_in_another_context_than_left():
    p = profile()
    c = contextvars.copy_context()
    c.run(p.__enter__)
    p.__exit__(None, None, None)
    assert c.run(place) == (None, None)
    assert info()["live"] == 0


def test_memory_of_left_profilers_is_freed():
    class Token:
        pass

    def nest(depth):
        with profile():
            if depth:
                nest(depth - 1)
            else:
                contexts.append(contextvars.copy_context())

    contexts = []
    nest(100)
    context = contexts.pop()
    assert context.run(place) == (None, None)
    token = Token()
    ref = weakref.ref(token)
    variable = contextvars.ContextVar("t")
    context.run(variable.set, token)
    del token, context
    gc.collect()
    assert ref() is None


def test_long_chain_of_outer_profilers_goes_without_recursion():
    context = contextvars.Context()

    def enter_many():
        for _ in range(50000):
            profile().__enter__()

    context.run(enter_many)
    assert info()["live"] == 50000
    del context
    gc.collect()
    assert info()["live"] == 0


# ---- threads ----------------------------------------------------------------------------------------------------------


def run_thread(function, *args):
    errors = []

    def body():
        try:
            function(*args)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.skipif(getattr(sys.flags, "thread_inherit_context", 0), reason="threads inherit the context")
def test_plain_thread_is_empty():
    def f():
        assert current_path() is None
        with scope("t"):
            pass

    with profile() as p:
        with scope("a"):
            run_thread(f)
    assert paths(p) == ["a"]


def test_copied_context_in_thread():
    def f():
        assert current_path() == ("a",)
        with scope("t"):
            pass

    with profile() as p:
        with scope("a"):
            run_thread(contextvars.copy_context().run, f)
            assert current_path() == ("a",)
    assert start_order(p) == ["a", "a/t"]
    assert len({e.thread_id for e in p.events()}) == 2


def test_one_context_in_many_threads_in_turn():
    with profile() as p:
        with scope("a"):
            c = contextvars.copy_context()
            s = scope("s")
            run_thread(c.run, s.__enter__)

            def check():
                assert current_path() == ("a", "s")

            run_thread(c.run, check)
            run_thread(c.run, s.__exit__, None, None, None)
            assert c.run(current_path) == ("a",)
    assert paths(p) == ["a/s", "a"]
    assert all(e.metadata == {} for e in p.events())


def test_threads_at_once():
    count, threads = 5000, 6
    s = scope("shared")

    def f():
        for i in range(count):
            with scope("x"):
                with s:
                    if i % 500 == 0:
                        assert current_path() == ("root", "x", "shared")

    with profile() as p:
        with scope("root"):
            errors = []

            def run(context):
                try:
                    context.run(f)
                except BaseException as error:
                    errors.append(error)

            workers = [threading.Thread(target=run, args=(contextvars.copy_context(),)) for _ in range(threads)]
            old = sys.getswitchinterval()
            sys.setswitchinterval(1e-5)
            try:
                for w in workers:
                    w.start()
                for w in workers:
                    w.join()
            finally:
                sys.setswitchinterval(old)
    assert errors == []
    events = p.events()
    assert len(events) == 2 * count * threads + 1
    assert {e.call_path for e in events} == {("root",), ("root", "x"), ("root", "x", "shared")}
    assert not any(e.metadata for e in events)


def test_short_threads():
    def f():
        with scope("t"):
            pass

    with profile() as p:
        for _ in range(200):
            run_thread(contextvars.copy_context().run, f)
    assert paths(p) == ["t"] * 200


def test_profiler_left_in_another_thread():
    p = profile()
    p.__enter__()
    scope("s").__enter__()
    run_thread(p.__exit__, None, None, None)
    assert place() == (None, None)
    assert [(e.call_path, e.metadata) for e in p.events()] == [(("s",), {"unfinished": True})]


def test_mode_is_what_was_asked_for():
    import os

    wanted = "portable" if os.environ.get("ENIGMA_PORTABLE_CONTEXT") == "1" else "in place"
    assert _enigma._context_info()["mode"] == wanted
