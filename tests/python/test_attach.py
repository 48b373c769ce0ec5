"""enigma.profile(attach="cuda") on a fake CUPTI: arguments, and under which path the launches of threads, tasks and contexts go."""

import asyncio
import contextvars
import gc
import inspect
import subprocess
import sys
import threading

import cuda_fake
import enigma
import pytest

fake = None
needs_fake = pytest.mark.skipif(not cuda_fake.FOLDER.is_dir(), reason="the fake CUDA libraries are not built (ENIGMA_BUILD_DIR)")


@pytest.fixture(scope="module", autouse=True)
def fakes():
    """The fakes stay in the process once they are loaded, and then are its CUDA: conftest.py has this file run last."""
    global fake
    fake = cuda_fake.load()


def launch(name, us=1.0):
    cuda_fake.launch(fake, name, us)


def work(p):
    """kernel name: [(call path, path_source)]"""
    found = {}
    for e in p.events():
        if e.name == "gpu_dispatch":
            found.setdefault(e.kernel_name, []).append((e.call_path, e.metadata.get("path_source")))
    return found


@pytest.mark.parametrize("attach", [1, b"cuda", {"cuda"}, ("cuda", 1), [None], {"cuda": 1}, object()])
def test_attach_is_text(attach):
    with pytest.raises(TypeError, match="attach"):
        enigma.profile(attach=attach)


@pytest.mark.parametrize("attach", ["", "CUDA", "opencl", "cuda,cuda", "cuda\0", ("cuda", "rocm"), [""]])
def test_attach_names(attach):
    with pytest.raises(ValueError, match="attach"):
        enigma.profile(attach=attach)


def test_attach_lists_the_names():
    with pytest.raises(ValueError, match='"cuda"'):
        enigma.profile(attach="rocm")


@pytest.mark.parametrize("attach", [None, (), []])
def test_attach_nothing(attach):
    with enigma.profile(attach=attach) as p, enigma.scope("s"):
        pass
    assert [e.name for e in p.events()] == ["s"]


def test_signature():
    assert inspect.signature(enigma.profile).parameters["attach"].default is None


def test_without_cuda(tmp_path):
    """No CUPTI at all: a RuntimeError on entering that says what is missing, and the program runs on."""
    code = """
import enigma
p = enigma.profile(attach="cuda")
try:
    p.__enter__()
except RuntimeError as error:
    assert "libcupti" in str(error) or "CUPTI" in str(error), error
    print("refused")
else:
    p.__exit__(None, None, None)
    print("has CUPTI")
with enigma.profile() as p, enigma.scope("s"):
    pass
assert [e.name for e in p.events()] == ["s"]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() in ("refused", "has CUPTI"), done.stderr


@needs_fake
@pytest.mark.parametrize("attach", ["cuda", ("cuda",), ["cuda", "cuda"]])
def test_scopes(attach):
    with enigma.profile(attach=attach) as p:
        launch("none")
        with enigma.scope("a"):
            launch("in a", 2.0)
            with enigma.scope("b"), enigma.scope("c"):
                launch("in c", 3.0)
            launch("in a", 2.0)
        launch("none")
    launch("after")
    assert work(p) == {"none": [((), None)] * 2, "in a": [(("a",), None)] * 2, "in c": [(("a", "b", "c"), None)]}
    times = {e.name: e.gpu_time_us for e in p.events() if e.category == "scope"}
    assert times["b"] == times["c"] > 0.0
    assert times["a"] == pytest.approx(times["c"] / 3.0 * 7.0, abs=0.01)  # stamps are in ticks of the host's clock
    e = p.events()[0]
    assert (e.name, e.category, e.grid, e.threads) == ("gpu_dispatch", "cuda", (128, 1, 1), (32, 1, 1))
    assert e.metadata["blocks"] == (4, 1, 1) and e.metadata["stream"] == 7 and e.metadata["registers_per_thread"] == 16
    assert e.thread_id == threading.get_native_id()
    assert p.key_averages().by_name("gpu_dispatch").calls == 5


@needs_fake
def test_bodies_that_raise():
    with enigma.profile(attach="cuda") as p:
        with pytest.raises(KeyError), enigma.scope("a"):
            with enigma.scope("b"):
                raise KeyError
        launch("k")
    assert work(p) == {"k": [((), None)]}


@needs_fake
def test_threads_without_a_profiler():
    """What autograd does: launches on a thread of its own go where the owner is."""
    with enigma.profile(attach="cuda") as p, enigma.scope("step"):
        with enigma.scope("backward"):
            t = threading.Thread(target=launch, args=("k",))
            t.start()
            t.join()
    assert work(p) == {"k": [(("step", "backward"), "owner")]}


@needs_fake
def test_threads_with_a_context():
    def body(name):
        with enigma.scope(name):
            for _ in range(20):
                launch(name)
        launch("after")

    with enigma.profile(attach="cuda") as p, enigma.scope("all"):
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(body, f"t{i}")) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    found = work(p)
    assert found.pop("after") == [(("all",), None)] * 8
    assert found == {f"t{i}": [(("all", f"t{i}"), None)] * 20 for i in range(8)}


@needs_fake
def test_tasks():
    """Tasks that take turns on one thread launch under their own paths, also right after they were switched to."""
    async def task(name):
        with enigma.scope(name):
            launch(name)
            for _ in range(5):
                await asyncio.sleep(0)
                launch(name)
            with enigma.scope("inner"):
                await asyncio.sleep(0)
                launch(name + " inner")
            await asyncio.sleep(0)
            launch(name)

    async def main():
        with enigma.scope("main"):
            await asyncio.gather(*[task(f"t{i}") for i in range(6)])
            launch("main")

    with enigma.profile(attach="cuda") as p:
        asyncio.run(main())
    found = work(p)
    assert found.pop("main") == [(("main",), None)]
    for i in range(6):
        assert found.pop(f"t{i}") == [(("main", f"t{i}"), None)] * 7
        assert found.pop(f"t{i} inner") == [(("main", f"t{i}", "inner"), None)]
    assert not found


@needs_fake
def test_a_task_that_opened_nothing_does_not_inherit_anothers_path():
    async def opens():
        with enigma.scope("other"):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def opens_nothing():
        await asyncio.sleep(0)
        launch("k")

    async def main():
        await asyncio.gather(opens(), opens_nothing())

    with enigma.profile(attach="cuda") as p, enigma.scope("owner"):
        asyncio.run(main())
    assert work(p) == {"k": [(("owner",), "owner")]}


@needs_fake
def test_contexts_that_died_leave_nothing():
    """A context gets the address of one that died; it has launched nothing under that one's path."""
    def opens():
        with enigma.scope("dead"):
            pass
        held.append(enigma.scope("open"))
        held[-1].__enter__()

    held = []
    with enigma.profile(attach="cuda") as p:
        for _ in range(200):
            context = contextvars.copy_context()
            context.run(opens)
            child = context.copy()  # keeps what the context held
            del context
            held.append(child)
            contextvars.copy_context().run(launch, "fresh")
    assert work(p) == {"fresh": [((), "owner")] * 200}
    held.clear()
    gc.collect()


@needs_fake
def test_nested_profilers():
    with enigma.profile(attach="cuda") as outer, enigma.scope("s"):
        launch("outer")
        with enigma.profile():
            launch("unseen")
            with enigma.profile(attach="cuda") as inner, enigma.scope("i"):
                launch("inner")
            launch("unseen")
        launch("outer")
    assert work(inner) == {"inner": [(("s", "i"), None)]}
    assert work(outer) == {"outer": [(("s",), None)] * 2}


@needs_fake
def test_starts_again():
    for i in range(3):
        with enigma.profile(attach="cuda") as p, enigma.scope("s"):
            launch(f"k{i}")
        launch("between")
        assert work(p) == {f"k{i}": [(("s",), None)]}


@needs_fake
def test_hooks():
    def hook(kernel_name, grid, threads):
        seen.append((kernel_name, grid, threads, threading.get_ident()))
        if len(seen) == 2:
            raise ValueError("no")
        return {"flops": 1000.0}

    seen = []
    enigma.register_kernel_hook("hooked", hook)
    try:
        with pytest.warns(RuntimeWarning, match="no"):
            with enigma.profile(attach="cuda") as p:
                for _ in range(3):
                    launch("hooked")
                assert not seen
    finally:
        enigma.unregister_kernel_hook("hooked")
    assert seen == [("hooked", (128, 1, 1), (32, 1, 1), threading.get_ident())] * 3
    assert [e.metrics for e in p.events()] == [{"flops": 1000.0}, {}, {"flops": 1000.0}]


@needs_fake
def test_a_hook_may_read_the_profile():
    enigma.register_kernel_hook("hooked", lambda **_: {"flops": float(len(p.events()))})
    try:
        with enigma.profile(attach="cuda") as p:
            for _ in range(100):
                launch("hooked")
    finally:
        enigma.unregister_kernel_hook("hooked")
    assert len(work(p)["hooked"]) == 100


@needs_fake
def test_reading_while_it_runs():
    with enigma.profile(attach="cuda") as p:
        for i in range(1, 6):
            launch("k")
            assert len(p.events()) == i


@needs_fake
def test_another_tool():
    fake.driver.fake_set(cuda_fake.SUBSCRIBE_ERROR, 39)
    try:
        with pytest.raises(RuntimeError, match="another tool"):
            enigma.profile(attach="cuda").__enter__()
        launch("k")
        with enigma.profile() as p, enigma.scope("s"):
            pass
        assert [e.name for e in p.events()] == ["s"]
    finally:
        fake.driver.fake_set(cuda_fake.SUBSCRIBE_ERROR, 0)
    with enigma.profile(attach="cuda") as p:
        assert fake.driver.fake_get(cuda_fake.SUBSCRIBED) == 1
        launch("k")
    assert fake.driver.fake_get(cuda_fake.SUBSCRIBED) == 0
    assert len(work(p)["k"]) == 1


@needs_fake
def test_dropped_while_entered():
    p = enigma.profile(attach="cuda")
    contextvars.copy_context().run(p.__enter__)
    launch("k")
    del p
    gc.collect()
    assert fake.driver.fake_get(cuda_fake.SUBSCRIBED) == 0


@needs_fake
def test_exports(tmp_path):
    import json

    name = "void deep::copy<float, 4>(float*, float const*)"
    with enigma.profile(attach="cuda") as p, enigma.scope("s"):
        launch("_ZN4deep4copyIfLi4EEEvPT_PKS1_")
    assert p.events()[0].kernel_name == name
    p.export_chrome_trace(tmp_path / "t.json")
    p.export_hatchet(tmp_path / "h.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    assert any(name in json.dumps(e) for e in trace["traceEvents"])
    assert name in (tmp_path / "h.json").read_text()
