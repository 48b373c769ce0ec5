"""enigma.scope and enigma.record_function in one context: nesting, arguments, what is recorded, decorating."""

import asyncio
import contextlib
import functools
import gc
import inspect
import math
import pickle
import sys
import types
import weakref

import pytest
from scope_helpers import check_nothing_left, current_path, info, paths

import enigma
from enigma import profile, record_function, scope


@pytest.fixture(autouse=True)
def _nothing_left():
    gc.collect()
    assert info()["live"] == 0
    yield
    check_nothing_left()


# ---- nesting ----------------------------------------------------------------------------------------------------------


def test_nesting():
    with profile() as p:
        with scope("a"):
            assert current_path() == ("a",)
            with scope("b"):
                assert current_path() == ("a", "b")
            with scope("b"):
                pass
        assert current_path() == ()
    assert paths(p) == ["a/b", "a/b", "a"]
    for event in p.events():
        assert event.start_ns <= event.end_ns
    inner1, inner2, outer = p.events()
    assert outer.start_ns <= inner1.start_ns <= inner1.end_ns <= inner2.start_ns <= inner2.end_ns <= outer.end_ns
    assert outer.self_us == pytest.approx(outer.duration_us - inner1.duration_us - inner2.duration_us)


def test_off():
    with scope("a"):
        assert current_path() is None
    with profile() as p:
        pass
    with scope("a"):
        pass
    assert p.events() == []


def test_entered_off_left_on():
    s = scope("a")
    s.__enter__()
    with profile() as p:
        s.__exit__(None, None, None)
        assert current_path() == ()
    assert p.events() == []


def test_entered_on_left_off():
    s = scope("a")
    with profile() as p:
        s.__enter__()
    s.__exit__(None, None, None)
    (event,) = p.events()
    assert (event.call_path, event.metadata) == (("a",), {"unfinished": True})
    with profile() as q:
        with scope("b"):
            pass
    assert paths(q) == ["b"]


def test_exit_without_enter():
    with profile() as p:
        s = scope("a")
        s.__exit__(None, None, None)
        with s:
            pass
        s.__exit__(None, None, None)
    assert paths(p) == ["a"]


def test_enter_returns_the_scope():
    s = scope("a")
    with s as entered:
        assert entered is s
    with profile(), s as entered:
        assert entered is s


def test_names_by_value():
    class Name(str):
        pass

    with profile() as p:
        for i in range(100):
            with scope("n%d" % (i % 10)), scope(Name("x")):
                pass
    assert len(p.events()) == 200
    assert sorted({e.call_path for e in p.events()}) == sorted(
        [("n%d" % i,) for i in range(10)] + [("n%d" % i, "x") for i in range(10)]
    )
    assert all(type(name) is str for e in p.events() for name in e.call_path)


def test_many_scopes_and_names():
    with profile() as p:
        for _ in range(100000):
            with scope("a"):
                pass
        for i in range(3000):
            with scope(str(i)):
                pass
    events = p.events()
    assert len(events) == 103000
    assert len({e.call_path for e in events}) == 3001
    assert events[-1].call_path == ("2999",)


def test_nested_profiles():
    with profile() as p:
        with scope("a"):
            with profile() as q:
                with scope("b"):
                    pass
            with scope("c"):
                pass
    assert paths(p) == ["a/c", "a"]
    assert paths(q) == ["a/b"]


def test_profiles_left_out_of_order():
    p, q = profile(), profile()
    p.__enter__()
    s = scope("s").__enter__()
    q.__enter__()
    p.__exit__(None, None, None)
    with scope("x"):
        pass
    s.__exit__(None, None, None)
    with scope("y"):
        pass
    q.__exit__(None, None, None)
    assert current_path() is None
    assert paths(p) == ["s"]
    assert paths(q) == ["s/x", "s/y"]


def test_scope_open_across_an_inner_profile():
    p, q = profile(), profile()
    with p:
        with q:
            s = scope("s").__enter__()
        assert enigma.get_active_profiler() is p
        assert current_path() == ()
        with scope("t"):
            s.__exit__(None, None, None)
            assert current_path() == ("t",)
    assert paths(p) == ["t"]
    assert paths(q) == ["s"]


def test_reused():
    s = scope("a")
    with profile() as p:
        with s:
            with scope("b"):
                with s:
                    with s:
                        pass
                with s:
                    pass
        with s:
            pass
        assert current_path() == ()
    assert paths(p) == ["a/b/a/a", "a/b/a", "a/b/a", "a/b", "a", "a"]
    with s:
        pass
    assert len(p.events()) == 6


def test_reused_with_metrics():
    s = scope("a", metrics={"m": 2}, layer=1, category="mine")
    with profile() as p:
        with s, s:
            pass
    assert [(e.metrics, e.metadata, e.category) for e in p.events()] == [({"m": 2.0}, {"layer": 1}, "mine")] * 2


def test_exit_stack():
    with profile() as p, contextlib.ExitStack() as stack:
        stack.enter_context(scope("a"))
        stack.enter_context(scope("b"))
    assert paths(p) == ["a/b", "a"]
    with pytest.raises(TypeError):
        scope.__enter__(3)
    with pytest.raises(TypeError):
        scope.__enter__()


# ---- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [scope, record_function])
@pytest.mark.parametrize("on", [False, True])
def test_bad_arguments(make, on):
    with profile() if on else contextlib.nullcontext():
        for name in (None, 3, b"x", ["x"]):
            with pytest.raises(TypeError, match="name must be str"):
                make(name)
        for metrics in (3, [("flops", 1)], "flops", ()):
            with pytest.raises(TypeError, match="metrics must be a dict"):
                make("a", metrics=metrics)
        with pytest.raises(TypeError, match="category must be str"):
            make("a", category=1)
        with pytest.raises(TypeError, match="missing"):
            make()
        with pytest.raises(TypeError, match="positional"):
            make("a", "b")
        with pytest.raises(TypeError, match="multiple values"):
            make("a", name="b")


def test_name_by_keyword():
    with profile() as p:
        with scope(name="a"), record_function(name="b", layer=2):
            pass
    assert paths(p) == ["a/b", "a"]
    assert p.events()[0].metadata == {"layer": 2}


def test_keywords():
    with profile() as p:
        with scope("a", metrics={"flops": 1.0, "bytes": 2}, layer=3):
            pass
        with scope("b", layer=[1], x=2, y=3, z=4, metrics=None):
            pass
        with scope("c", **{"".join(["met", "rics"]): {"m": 1}}):
            pass
        with scope("d", metrics={}):
            pass
    found = [(e.metrics, e.metadata) for e in p.events()]
    assert found == [
        ({"flops": 1.0, "bytes": 2.0}, {"layer": 3}),
        ({}, {"layer": [1], "x": 2, "y": 3, "z": 4}),
        ({"m": 1.0}, {}),
        ({}, {}),
    ]


def test_categories():
    class Text(str):
        pass

    with profile() as p:
        for make, arguments in (
            (scope, {}),
            (scope, {"category": "scope"}),
            (scope, {"category": "python"}),
            (scope, {"category": "io"}),
            (scope, {"category": "".join(["i", "o"])}),
            (scope, {"category": Text("é")}),
            (record_function, {}),
            (record_function, {"category": "scope"}),
            (record_function, {"category": "io", "metrics": {"m": 1}}),
        ):
            with make("a", **arguments):
                pass
    assert [e.category for e in p.events()] == ["scope", "scope", "python", "io", "io", "é", "python", "scope", "io"]


def test_record_function_is_a_scope():
    s = record_function("a", metrics={"m": 1}, layer=2)
    assert type(s) is scope
    with profile() as p, s, s:
        pass
    assert [(e.category, e.metrics, e.metadata) for e in p.events()] == [("python", {"m": 1.0}, {"layer": 2})] * 2


def test_signatures():
    assert str(inspect.signature(scope)) == "(name, *, metrics=None, category='scope', **metadata)"
    assert str(inspect.signature(record_function)) == "(name, *, category='python', metrics=None, **metadata)"
    assert str(inspect.signature(enigma.get_active_profiler)) == "()"
    for function in (scope, record_function, profile, enigma.get_active_profiler, enigma.Profiler):
        assert inspect.getdoc(function)


@pytest.mark.parametrize(
    "name", ["", "a/b", 'a"b', "a\0b", "\x01\x7f", "é", "🚀", "\ud800", "x" * 100000, "it's", "</script>"], ids=ascii
)
def test_any_name_round_trips(name):
    with profile() as p:
        with scope(name, **{name or "k": name}):
            pass
    (event,) = p.events()
    assert event.name == name
    assert event.call_path == (name,)
    assert event.metadata == {name or "k": name}


def test_repr():
    assert repr(scope("a'b")) == '<enigma.scope "a\'b">'


# ---- metrics ----------------------------------------------------------------------------------------------------------


class Real:
    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value


def test_metric_values():
    values = {"b": True, "i": 7, "big": 2**63, "huge": 2**70, "f": 0.5, "neg": -3, "real": Real(1.5)}
    with profile() as p:
        with scope("a", metrics=values):
            pass
    metrics = p.events()[0].metrics
    assert metrics == {"b": 1.0, "i": 7.0, "big": 2.0**63, "huge": 2.0**70, "f": 0.5, "neg": -3.0, "real": 1.5}
    assert all(type(v) is float for v in metrics.values())


def test_metric_values_that_are_not_finite():
    with profile() as p:
        with scope("a", metrics={"nan": math.nan, "inf": math.inf, "ninf": -math.inf, "over": 10**400, "under": -(10**400)}):
            pass
    metrics = p.events()[0].metrics
    assert math.isnan(metrics.pop("nan"))
    assert metrics == {"inf": math.inf, "ninf": -math.inf, "over": math.inf, "under": -math.inf}


def raises_value_error():
    raise ValueError("no value")


BAD_VALUES = ["x", None, [1], 1j, object(), Real("no float"), type("R", (), {"__float__": lambda self: raises_value_error()})()]


@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda v: type(v).__name__)
def test_bad_metric_value_names_the_key(value):
    with profile() as p:
        with scope("outer"):
            s = scope("a", metrics={"good": 1, "bad one": value})
            with pytest.raises(TypeError, match="bad one"):
                with s:
                    pytest.fail("the scope must not be entered")
            assert current_path() == ("outer",)
            s.__exit__(None, None, None)
            assert current_path() == ("outer",)
    assert paths(p) == ["outer"]
    with s:  # off: not looked at
        pass


def test_metric_error_keeps_its_cause():
    with profile():
        with pytest.raises(TypeError) as caught:
            scope("a", metrics={"k": BAD_VALUES[-1]}).__enter__()
    assert isinstance(caught.value.__cause__, ValueError)


def test_metric_keyboard_interrupt_leaves():
    class Interrupting:
        def __float__(self):
            raise KeyboardInterrupt

    with profile() as p:
        with pytest.raises(KeyboardInterrupt):
            scope("a", metrics={"k": Interrupting()}).__enter__()
    assert p.events() == []


def test_metric_keys():
    with profile():
        for key, error in ((1, TypeError), (None, TypeError), (b"k", TypeError), ("a\0b", ValueError)):
            with pytest.raises(error, match="keys"):
                scope("a", metrics={key: 1}).__enter__()
    with profile() as p:
        with scope("a", metrics={"é🚀": 1, "\ud800": 2, "": 3}):
            pass
    assert p.events()[0].metrics == {"é🚀": 1.0, "\ud800": 2.0, "": 3.0}


def test_many_metrics():
    values = {"m%d" % i: i for i in range(5000)}
    with profile() as p:
        with scope("a", metrics=values):
            pass
    assert p.events()[0].metrics == values


def test_metric_values_run_code():
    class Evil:
        def __float__(self):
            metrics["new"] = 1.0  # changes the dict while it is read
            with scope("evil", metrics={"e": 1.0}):
                return 7.0

    metrics = {"x": Evil(), "y": 2.0}
    with profile() as p:
        with scope("a", metrics=metrics):
            pass
    found = {"/".join(e.call_path): e.metrics for e in p.events()}
    assert found == {"evil": {"e": 1.0}, "a": {"x": 7.0, "y": 2.0}}


def test_metric_value_leaves_the_profiler():
    p = profile()

    class Evil:
        def __float__(self):
            p.__exit__(None, None, None)
            return 1.0

    with p:
        with scope("a", metrics={"x": Evil()}):
            assert current_path() is None
    assert p.events() == []


# ---- metadata ---------------------------------------------------------------------------------------------------------


class Array:
    """Looks like a device array: its contents must not be touched."""

    shape = (2, 3)
    dtype = "float32"

    def __repr__(self):
        raise AssertionError("the repr of an array")

    __str__ = __float__ = __repr__


def metadata_of(**metadata):
    with profile() as p:
        with scope("a", **metadata):
            pass
    return p.events()[0].metadata


def test_metadata_values():
    values = {
        "none": None,
        "true": True,
        "int": -5,
        "max": 2**63 - 1,
        "min": -(2**63),
        "float": 0.25,
        "text": "é\ud800\0",
        "tuple": (1, "a", (None, [2.5])),
        "list": [1, (2,), {"k": (3,)}],
        "dict": {"a": {"b": []}, "c": ()},
        "long": list(range(3000)),
    }
    found = metadata_of(**values)
    assert found == values
    assert type(found["true"]) is bool
    assert type(found["tuple"]) is tuple and type(found["tuple"][2]) is tuple


def test_metadata_is_copied_at_entry():
    items = [1]
    with profile() as p:
        s = scope("a", items=items)
        items.append(2)
        with s:
            items.append(3)
    assert p.events()[0].metadata == {"items": [1, 2]}


def test_metadata_of_other_types():
    class Odd:
        def __repr__(self):
            return "o" * 5000

    class Broken:
        def __repr__(self):
            raise ValueError

    class Count(int):
        pass

    point = types.SimpleNamespace(x=1)
    found = metadata_of(
        odd=Odd(), broken=Broken(), bytes=b"\xff" * 100000, big=2**70, over=10**400, count=Count(3), point=point, keys={1: 2, (3,): 4}
    )
    assert len(found["odd"]) == 1000
    assert found["odd"] == "o" * 997 + "..."
    assert "Broken" in found["broken"]
    assert found["bytes"].startswith("b'\\xff\\xff") and len(found["bytes"]) == 1000
    assert found["big"] == 2.0**70 and type(found["big"]) is float
    assert found["over"] == math.inf
    assert found["count"] == 3 and type(found["count"]) is int
    assert found["point"] == "namespace(x=1)"
    assert found["keys"] == {"1": 2, "(3,)": 4}


def test_metadata_arrays():
    found = metadata_of(a=Array(), nested=[Array()])
    expected = {"type": __name__ + ".Array", "shape": (2, 3), "dtype": "float32"}
    assert found == {"a": expected, "nested": [expected]}


class Shape:
    """A shape that is a sequence, but no tuple."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (2, 3)[index]


class ShapedByAnother(Array):
    shape = Shape()


class ExportsOnly(Array):
    shape = dtype = property()

    def __dlpack__(self, **_):
        raise AssertionError("the contents of an array")


class ScalarOfOther(Array):
    shape = Shape
    dtype = "bfloat16"

    def __array__(self, *_):
        raise AssertionError("the contents of an array")


@pytest.mark.parametrize(
    "array, shape, dtype",
    [(ShapedByAnother(), (2, 3), "float32"), (ExportsOnly(), None, None), (ScalarOfOther(), None, "bfloat16")],
    ids=["shape", "dlpack", "scalar"])
def test_metadata_of_arrays_of_any_library(array, shape, dtype):
    described = {"type": f"{__name__}.{type(array).__name__}", "shape": shape, "dtype": dtype}
    assert metadata_of(a=array, nested=(array,)) == {"a": described, "nested": (described,)}


def test_metadata_of_array_types():
    numpy = pytest.importorskip("numpy")
    assert metadata_of(a=numpy.ndarray, b=Array) == {"a": repr(numpy.ndarray), "b": repr(Array)}


def test_metadata_numpy():
    numpy = pytest.importorskip("numpy")
    found = metadata_of(a=numpy.zeros((2, 3), "float32"), s=numpy.float32(2.5), i=numpy.int64(7), z=numpy.array(3.0))
    assert found["a"] == {"type": "numpy.ndarray", "shape": (2, 3), "dtype": "float32"}
    assert (found["s"], found["i"]) == (2.5, 7)
    assert found["z"] == {"type": "numpy.ndarray", "shape": (), "dtype": "float64"}


def test_metadata_that_has_every_attribute():
    from unittest.mock import MagicMock

    found = metadata_of(mock=MagicMock(name="m"))
    assert "MagicMock" in found["mock"]


def test_metadata_cycles_and_depth():
    cycle = [1]
    cycle.append(cycle)
    table = {}
    table["self"] = [table]
    deep = []
    for _ in range(100000):
        deep = [deep]
    found = metadata_of(cycle=cycle, table=table, deep=deep)
    assert found["cycle"] == [1, "..."]
    assert found["table"] == {"self": ["..."]}
    depth, value = 0, found["deep"]
    while isinstance(value, list):
        depth, value = depth + 1, value[0]
    assert value == "..." and 16 <= depth <= 33


def test_metadata_that_doubles_at_each_level():
    value = []
    for _ in range(31):
        value = [value, value]
    found = metadata_of(value=value)["value"]
    text = repr(found)
    assert "..." in text


def test_metadata_repr_runs_code():
    class Evil:
        def __repr__(self):
            values.clear()
            with scope("evil"):
                return "evil"

    values = [Evil(), 1, 2]
    with profile() as p:
        with scope("a", values=values):
            pass
    assert paths(p) == ["evil", "a"]
    assert p.events()[1].metadata == {"values": ["evil", 1, 2]}


def test_metadata_named_like_arguments_of_the_event():
    found = metadata_of(start_ns=1, args=2, ts=3, self=4, function=5)
    assert found == {"start_ns": 1, "args": 2, "ts": 3, "self": 4, "function": 5}


# ---- exceptions -------------------------------------------------------------------------------------------------------


def test_exceptions():
    with profile() as p:
        for exception in (ValueError, KeyboardInterrupt, StopIteration):
            with pytest.raises(exception) as caught:
                with scope("a"):
                    with scope("b"):
                        raise exception("x")
            assert caught.value.args == ("x",)
        assert current_path() == ()
    errors = [e.metadata["error"] for e in p.events()]
    assert errors == [text for name in ("ValueError", "KeyboardInterrupt", "StopIteration") for text in [name + ": x"] * 2]


def test_error_text():
    class Silent(Exception):
        pass

    class Broken(Exception):
        def __str__(self):
            raise RuntimeError

    cases = [Silent(), Broken(), ValueError("\ud800é"), ValueError("x" * 5000)]
    with profile() as p:
        for exception in cases:
            with pytest.raises(type(exception)) as caught:
                with scope("a", layer=1):
                    raise exception
            assert caught.value is exception
    errors = [e.metadata["error"] for e in p.events()]
    assert errors == ["Silent", "Broken", "ValueError: \ud800é", ("ValueError: " + "x" * 5000)[:1000]]
    assert all(e.metadata["layer"] == 1 for e in p.events())


def test_error_text_runs_code():
    s = scope("a")

    class Evil(Exception):
        def __str__(self):
            s.__exit__(None, None, None)
            return "evil"

    with profile() as p:
        with pytest.raises(Evil):
            with s:
                raise Evil
        assert current_path() == ()
    assert paths(p) == ["a"]


def test_odd_arguments_of_exit():
    with profile() as p:
        for arguments in ((ValueError, None, None), ("text", "value", None), (None, ValueError("x"), None)):
            s = scope("a")
            s.__enter__()
            assert s.__exit__(*arguments) is None
    assert [e.metadata.get("error") for e in p.events()] == ["ValueError", "exception: value", None]


# ---- decorators -------------------------------------------------------------------------------------------------------


def test_decorator():
    @scope("f", metrics={"m": 1})
    def f(n: int) -> tuple:
        "doc"
        return f(n - 1) if n else current_path()

    class C:
        @scope("meth")
        def m(self, x, *, y):
            return self, x, y, current_path()

        @staticmethod
        @scope("inner")
        def inner_static(x):
            return x, current_path()

        @scope("outer")
        @staticmethod
        def outer_static(x):
            return x, current_path()

        @classmethod
        @scope("class")
        def made(cls):
            return cls, current_path()

    assert (f.__name__, f.__doc__, f(2)) == ("f", "doc", None)
    assert str(inspect.signature(f)) == "(n: int) -> tuple"
    assert f.__wrapped__(0) is None
    c = C()
    with profile() as p:
        assert f(2) == ("f", "f", "f")
        assert c.m(1, y=2) == (c, 1, 2, ("meth",))
        assert C.m(c, 1, y=2) == (c, 1, 2, ("meth",))
        assert c.inner_static(3) == C.inner_static(3) == (3, ("inner",))
        assert c.outer_static(3) == C.outer_static(3) == (3, ("outer",))
        assert C.made() == (C, ("class",))
        with pytest.raises(RecursionError):
            f(10**6)
        assert current_path() == ()
    assert paths(p)[:3] == ["f/f/f", "f/f", "f"]
    assert p.events()[0].metrics == {"m": 1.0}


def test_decorated_callables():
    class Call:
        def __call__(self, x):
            return x, current_path()

    with profile():
        assert scope("p")(functools.partial(max, 3))(5) == 5
        assert scope("b")(len)([1, 2]) == 2
        assert scope("c")(Call())(1) == (1, ("c",))
    for bad in (3, "text", None, classmethod(lambda cls: 1)):
        with pytest.raises(TypeError):
            scope("x")(bad)


@scope("module level")
def module_level(x):
    return x + 1


def test_decorated_function_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert weakref.ref(module_level)() is module_level


def test_decorated_function_that_raises():
    @scope("f")
    def f():
        raise error

    error = ValueError("x")
    with profile() as p:
        with pytest.raises(ValueError) as caught:
            f()
        assert caught.value is error
        assert current_path() == ()
    assert p.events()[0].metadata == {"error": "ValueError: x"}


def test_decorated_function_with_a_bad_metric():
    @scope("f", metrics={"k": "text"})
    def f():
        return "ran"

    assert f() == "ran"
    with profile():
        with pytest.raises(TypeError, match="'k'"):
            f()


def test_decorated_generator():
    sent = []

    @scope("gen", layer=1)
    def g(n):
        "doc"
        for i in range(n):
            sent.append((yield i, current_path()))
        return "end"

    assert inspect.isgeneratorfunction(g)
    assert (g.__name__, g.__doc__) == ("g", "doc")
    with profile() as p:
        it = g(3)
        assert p.events() == [] and current_path() == ()  # made, not started
        assert next(it) == (0, ("gen",))
        assert it.send("s") == (1, ("gen",))
        assert next(it) == (2, ("gen",))
        with pytest.raises(StopIteration) as stop:
            next(it)
        assert (stop.value.value, sent) == ("end", ["s", None, None])
        assert current_path() == ()
        with pytest.raises(KeyError):
            it = g(2)
            next(it)
            it.throw(KeyError("k"))
        it = g(2)
        next(it)
        it.close()
        assert current_path() == ()
    assert [e.metadata for e in p.events()] == [{"layer": 1}, {"layer": 1, "error": "KeyError: 'k'"}, {"layer": 1}]


def test_decorated_coroutine():
    @scope("co")
    async def co(x):
        await asyncio.sleep(0)
        return x, current_path()

    assert inspect.iscoroutinefunction(co) and asyncio.iscoroutinefunction(co)

    async def main():
        made = co(1)
        assert current_path() == ()
        assert await made == (1, ("co",))
        found = await asyncio.gather(*(co(i) for i in range(5)))
        assert found == [(i, ("co",)) for i in range(5)]
        assert current_path() == ()

    with profile() as p:
        asyncio.run(main())
    assert paths(p) == ["co"] * 6


def test_decorated_async_generator():
    log = []

    @scope("agen")
    async def agen(n):
        try:
            for i in range(n):
                try:
                    log.append((yield i, current_path()))
                except KeyError:
                    log.append("caught")
        finally:
            log.append("closed")

    assert inspect.isasyncgenfunction(agen)

    async def main():
        assert [x async for x in agen(2)] == [(0, ("agen",)), (1, ("agen",))]
        it = agen(5)
        await it.__anext__()
        assert await it.asend("sent") == (1, ("agen",))
        assert await it.athrow(KeyError()) == (2, ("agen",))
        await it.aclose()
        assert current_path() == ()
        with pytest.raises(ValueError):
            it = agen(5)
            await it.__anext__()
            await it.athrow(ValueError("v"))
        assert current_path() == ()

    with profile() as p:
        asyncio.run(main())
    assert log == [None, None, "closed", "sent", "caught", "closed", "closed"]
    assert paths(p) == ["agen"] * 3
    assert [e.metadata.get("error") for e in p.events()] == [None, None, "ValueError: v"]


# ---- memory -----------------------------------------------------------------------------------------------------------


def test_cycle_through_metadata_is_collected():
    class Box:
        pass

    for arguments in (lambda b: {"box": b}, lambda b: {"metrics": {"box": b}}, lambda b: {"a": 1, "b": 2, "c": 3, "d": b}):
        b = Box()
        b.scope = scope("a", **arguments(b))
        ref = weakref.ref(b)
        del b
        gc.collect()
        assert ref() is None


def test_decorated_function_in_a_cycle_is_collected():
    def f():
        return g

    g = scope("f")(f)
    ref = weakref.ref(f)
    del f, g
    gc.collect()
    assert ref() is None


def test_references_are_given_back():
    name, category, value = "n" * 10, "c" * 10, object()
    metrics = {"m" * 5: 1.0}
    counted = (name, category, value, metrics)

    def use():
        with profile() as p:
            for _ in range(20):
                with scope(name, metrics=metrics, category=category, value=value):
                    with scope(name):
                        pass
                with pytest.raises(TypeError):
                    scope(name, metrics={"k": "v"}, value=value).__enter__()
        p.events()

    use()
    gc.collect()
    before = [sys.getrefcount(x) for x in counted]
    use()
    gc.collect()
    assert [sys.getrefcount(x) for x in counted] == before
