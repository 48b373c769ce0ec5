"""The runtime on a real OpenCL device: compiling, binding, running, and every mistake before anything runs."""

import array
import ctypes
import gc
import os
import pathlib
import struct
import sys
import weakref

import enigma
import pytest

SOURCE = """
__kernel void add(__global const float *a, __global const float *b, __global float *c)
{
    size_t i = get_global_id(0);
    c[i] = a[i] + b[i];
}
__kernel void scale(__global const float *a, float s, int n, __global float *c)
{
    size_t i = get_global_id(0);
    if (i < (size_t)n) c[i] = a[i] * s;
}
__kernel void two(__global int *first, __global int *second)
{
    size_t i = get_global_id(0);
    first[i] = (int)i;
    second[i] = -(int)i;
}
__kernel void count(__global int *n) { atomic_inc(n); }
__kernel void sizes(__global ulong *out)
{
    if (get_global_id(0) == 0 && get_global_id(1) == 0 && get_global_id(2) == 0)
        for (int d = 0; d < 3; d++) { out[d] = get_global_size(d); out[3 + d] = get_local_size(d); }
}
__kernel void nothing(void) {}
__kernel void local_memory(__local float *x, __global float *y) { y[0] = x[0]; }
"""
N = 1024
GRID, THREADS = (N, 1, 1), (64, 1, 1)
A = array.array("f", range(N))
B = array.array("f", (2 * i for i in range(N)))


def floats(data):
    return list(array.array("f", data))


@pytest.fixture(scope="module")
def kernels(opencl):
    names = ["add", "scale", "two", "count", "sizes", "nothing", "local_memory"]
    return {name: opencl.compile(SOURCE, name) for name in names}


# ---- Devices ------------------------------------------------------------------------------------------------------------


def test_device_facts(opencl):
    facts = opencl.device
    assert facts["backend"] == "opencl"
    for name in ("name", "driver", "version"):
        assert facts[name] and isinstance(facts[name], str)
    for name in ("compute_units", "memory_bytes", "max_group_threads"):
        assert facts[name] > 0
    assert isinstance(facts["partial_groups"], bool)
    facts.clear()
    assert opencl.device["backend"] == "opencl"


def test_ways_to_open(opencl):
    for runtime in (enigma.Runtime("opencl"), enigma.Runtime(backend="opencl", device=0), enigma.OpenCLRuntime(0),
                    enigma.OpenCLRuntime(device=0)):
        with runtime:
            assert type(runtime) is enigma.OpenCLRuntime and runtime.device == opencl.device
    with enigma.Runtime() as best, enigma.Runtime(None, None) as same:
        assert isinstance(best, enigma.Runtime) and best.device == same.device


def test_subclassing(opencl):
    class Mine(enigma.OpenCLRuntime):
        pass

    with Mine() as runtime:
        assert type(runtime) is Mine and repr(runtime).startswith("<Mine on ")
        assert runtime.compile(SOURCE, "add").name == "add"


def test_wrong_backends_and_devices(opencl):
    for wrong in ("vulkan", "", "OpenCL "):
        with pytest.raises(ValueError, match="opencl"):
            enigma.Runtime(wrong)
    for wrong in (10_000, -1, 2**40):
        with pytest.raises(ValueError):
            enigma.OpenCLRuntime(wrong)
    for wrong in ("0", 1.0, True):
        with pytest.raises(TypeError):
            enigma.OpenCLRuntime(wrong)
    with pytest.raises(TypeError):
        enigma.Runtime(1)


@pytest.mark.parametrize("name", ["CUDA", "Metal"])
def test_backends_that_are_missing_say_what_they_need(name):
    try:
        getattr(enigma, name + "Runtime")().release()
    except RuntimeError as error:
        assert name in str(error) and len(str(error)) > 30
    with pytest.raises((RuntimeError, ValueError)):
        enigma.Runtime(name.lower(), device=10_000)


# ---- Compiling ----------------------------------------------------------------------------------------------------------


def test_compile_from_a_file(opencl, tmp_path):
    path = tmp_path / "\u00fc kernels.cl"
    path.write_text(SOURCE)
    for source in (path, str(path), os.fspath(path), SOURCE, SOURCE.encode()):
        kernel = opencl.compile(source, name="add")
        assert kernel.name == "add" and repr(kernel) == "<Kernel 'add'>"


def test_one_line_of_source_is_no_path(opencl):
    assert opencl.compile("__kernel void f(void) {}", "f").name == "f"
    assert opencl.compile("__kernel void f(void) {}\n// see other.cl", "f").name == "f"


def test_missing_file(opencl, tmp_path):
    for source in ("missing.cl", "missing.metallib", pathlib.Path("missing.cl"), tmp_path / "no.cl"):
        with pytest.raises(FileNotFoundError) as raised:
            opencl.compile(source, "f")
        assert raised.value.filename == os.fspath(source)
    with pytest.raises(IsADirectoryError):
        opencl.compile(tmp_path, "f")


def test_compile_errors_have_the_log(opencl):
    with pytest.raises(RuntimeError, match="undeclared_thing"):
        opencl.compile("__kernel void f(void)\n{ undeclared_thing(); }", "f")
    with pytest.raises(KeyError, match="scale"):
        opencl.compile(SOURCE, "missing")


def test_compile_options(opencl):
    source = "__kernel void f(__global int *x) {\n x[0] = VALUE; }"
    with pytest.raises(RuntimeError):
        opencl.compile(source, "f")
    kernel = opencl.compile(source, "f", options="-DVALUE=42")
    assert struct.unpack("i", opencl.execute(kernel, [], 4, grid=(1, 1, 1), threads=(1, 1, 1))) == (42,)


@pytest.mark.parametrize("source, name, error", [
    ("", "f", ValueError), (b"", "f", ValueError), (SOURCE, "", ValueError), (SOURCE, "a\0b", ValueError),
    (None, "f", TypeError), (3, "f", TypeError), (SOURCE, None, TypeError), (SOURCE, b"add", TypeError)], ids=str)
def test_wrong_compile_arguments(opencl, source, name, error):
    with pytest.raises(error):
        opencl.compile(source, name)


# ---- Running ------------------------------------------------------------------------------------------------------------


def test_execute(opencl, kernels):
    out = opencl.execute(kernels["add"], [A, B], N * 4, grid=GRID, threads=THREADS)
    assert type(out) is bytes and floats(out) == [3.0 * i for i in range(N)]


def test_scalars(opencl, kernels):
    out = opencl.execute(kernels["scale"], [A, ctypes.c_float(2.5), ctypes.c_int(10)], N * 4, grid=GRID, threads=THREADS)
    assert floats(out) == [2.5 * i if i < 10 else 0.0 for i in range(N)]
    numpy = pytest.importorskip("numpy")
    inputs = [A, numpy.float32(0.5), numpy.array(N, numpy.int32)]
    assert floats(opencl.execute(kernels["scale"], inputs, N * 4, grid=GRID, threads=THREADS)) == [0.5 * i for i in range(N)]


def test_views_that_are_not_contiguous(opencl, kernels):
    numpy = pytest.importorskip("numpy")
    wide = numpy.arange(4 * N, dtype=numpy.float32)
    out = opencl.execute(kernels["add"], [wide[::4], wide[::-4]], N * 4, grid=GRID, threads=THREADS)
    assert floats(out) == list(wide[::4] + wide[::-4])


def test_several_outputs(opencl, kernels):
    first, second = opencl.execute(kernels["two"], [], [N * 4, N * 4], grid=GRID, threads=THREADS)
    assert list(array.array("i", first)) == list(range(N))
    assert list(array.array("i", second)) == [-i for i in range(N)]


def test_no_outputs(opencl, kernels):
    for none in (None, [], 0):
        assert opencl.execute(kernels["nothing"], [], none, grid=(1, 1, 1), threads=(1, 1, 1)) is None


def test_inputs_are_copied_when_they_are_bound(opencl, kernels):
    a = array.array("f", A)
    with opencl.prepare(kernels["add"], [a, B], N * 4) as prepared:
        a[0] = 1e9
        prepared.dispatch(GRID, THREADS)
        assert floats(prepared.read_output()) == [3.0 * i for i in range(N)]
        assert list(a[:2]) == [1e9, 1.0]


def test_outputs_start_zeroed_and_persist(opencl, kernels):
    with opencl.prepare(kernels["count"], [], 4) as prepared:
        assert prepared.read_output() == bytes(4)
        for _ in range(3):
            prepared.dispatch((10, 1, 1), (5, 1, 1))
        assert struct.unpack("i", prepared.read_output()) == (30,)


def test_sizes_are_those_asked_for(opencl, kernels):
    out = opencl.execute(kernels["sizes"], [], 48, grid=(8, 6, 4), threads=(4, 3, 2))
    assert struct.unpack("6Q", out) == (8, 6, 4, 4, 3, 2)
    assert opencl.execute(kernels["sizes"], [], 48, grid=[8, 6, 4], threads=[4, 3, 2]) == out


def test_order_is_kept_between_the_untimed_and_the_timed_path(opencl):
    source = "__kernel void follow(__global int *x, int k, __global int *y) {\n x[0] = x[0] * 3 + k; y[0] = x[0]; }"
    expected = 0
    with opencl.prepare(opencl.compile(source, "follow"), [bytes(4), ctypes.c_int(1)], 4) as one:
        for i in range(30):
            expected = expected * 3 + 1 & 0xFFFFFFFF
            if i % 3 == 0:
                one.dispatch((1, 1, 1), (1, 1, 1), wait=False)
            elif i % 3 == 1:
                one.dispatch_timed((1, 1, 1), (1, 1, 1))
            else:
                with enigma.profile():
                    one.dispatch((1, 1, 1), (1, 1, 1), wait=False)
        assert struct.unpack("I", one.read_output()) == (expected,)


def test_asynchronous_dispatches(opencl, kernels):
    with opencl.prepare(kernels["count"], [], 4) as prepared:
        with enigma.profile() as profiler:
            for _ in range(50):
                prepared.dispatch((10, 1, 1), (5, 1, 1), wait=False)
        assert struct.unpack("i", prepared.read_output()) == (500,)
        events = profiler.events()
        assert len(events) == 50 and all(e.gpu_time_us > 0 for e in events)
        prepared.dispatch((10, 1, 1), (5, 1, 1), wait=False, queue=1)
        prepared.wait()
        opencl.synchronize()
        assert struct.unpack("i", prepared.read_output()) == (510,)


def test_dispatch_timed(opencl, kernels):
    with opencl.prepare(kernels["add"], [A, B], N * 4) as prepared:
        with enigma.profile() as profiler:
            us = prepared.dispatch_timed(GRID, THREADS)
        assert type(us) is float and us > 0 and profiler.events() == []


def test_recorded_events(opencl, kernels):
    with opencl.prepare(kernels["add"], [A, B], N * 4) as prepared:
        with enigma.profile(record_shapes=True, profile_memory=True) as profiler:
            with enigma.scope("s"):
                prepared.dispatch(grid=GRID, threads=THREADS, metrics={"flops": N})
    dispatch, scope = profiler.events()
    assert (dispatch.name, dispatch.category, dispatch.kernel_name) == ("gpu_dispatch", "opencl", "add")
    assert dispatch.gpu_time_us > 0 and scope.gpu_time_us == dispatch.gpu_time_us
    assert dispatch.gpu_end_ns - dispatch.gpu_start_ns == pytest.approx(dispatch.gpu_time_us * 1000, abs=2)
    assert (dispatch.input_bytes, dispatch.output_bytes, dispatch.buffer_count) == (N * 8, N * 4, 3)
    assert dispatch.metadata["input_shapes"] == [((N,), "float32")] * 2
    assert dispatch.call_path == ("s",) and dispatch.metrics == {"flops": float(N)}


def test_execute_is_recorded_with_its_steps(opencl, kernels):
    with enigma.profile() as profiler:
        opencl.execute(kernels["add"], [A, B], N * 4, grid=GRID, threads=THREADS)
    events = profiler.events()
    assert {e.name for e in events} == {
        "execute_total", "load_library", "create_pipeline", "create_input_buffers", "create_output_buffers", "gpu_dispatch",
        "read_output", "release_resources"}
    assert {e.kernel_name for e in events} == {"add"}
    assert all(e.node_path[0] == "execute_total:add" for e in events)
    assert [e.category for e in events if e.name != "gpu_dispatch"] == ["runtime"] * 7


# ---- Mistakes -----------------------------------------------------------------------------------------------------------


def test_argument_count_and_kind(opencl, kernels):
    cases = [(["add"], [A], N * 4), (["add"], [A, B, A], N * 4), (["add"], [A, B], None), (["add"], [A, B], [4, 4]),
             (["scale"], [A, ctypes.c_double(1), ctypes.c_int(1)], N * 4),
             (["scale"], [A, A, ctypes.c_int(1)], N * 4), (["scale"], [ctypes.c_float(1)] * 2 + [ctypes.c_int(1)], N * 4),
             (["add"], [b"", B], N * 4), (["local_memory"], [A], 4)]
    for (name,), inputs, size in cases:
        with pytest.raises(ValueError, match=name):
            opencl.prepare(kernels[name], inputs, size)
        with pytest.raises(ValueError, match=name):
            opencl.execute(kernels[name], inputs, size, grid=GRID, threads=THREADS)


SIZES = [((0, 1, 1), ValueError), ((-1, 1, 1), ValueError), ((1, 1), ValueError), ((1, 1, 1, 1), ValueError),
         ((2**70, 1, 1), ValueError), (1, TypeError), (None, TypeError), ("111", TypeError), ((1.0, 1, 1), TypeError),
         ((True, 1, 1), TypeError), (("1", 1, 1), TypeError), ({1, 2, 3}, TypeError)]


@pytest.mark.parametrize("wrong, error", SIZES, ids=str)
def test_wrong_sizes(opencl, kernels, wrong, error):
    with opencl.prepare(kernels["count"], [], 4) as prepared:
        for call in (prepared.dispatch, prepared.dispatch_timed):
            with pytest.raises(error, match="grid"):
                call(wrong, (1, 1, 1))
            with pytest.raises(error, match="threads"):
                call((1, 1, 1), wrong)
        with pytest.raises(error, match="grid"):
            opencl.execute(kernels["count"], [], 4, grid=wrong, threads=(1, 1, 1))
        assert prepared.read_output() == bytes(4)


def test_sizes_beyond_the_device(opencl, kernels):
    most = opencl.device["max_group_threads"]
    with opencl.prepare(kernels["count"], [], 4) as prepared:
        with enigma.profile() as profiler:
            with pytest.raises(ValueError):
                prepared.dispatch((most * 2, 1, 1), (most * 2, 1, 1))
            if not opencl.device["partial_groups"]:
                with pytest.raises(ValueError, match="multiple"):
                    prepared.dispatch((10, 1, 1), (4, 1, 1))
        assert profiler.events() == [] and prepared.read_output() == bytes(4)


def test_wrong_dispatch_arguments(opencl, kernels):
    with opencl.prepare(kernels["count"], [], 4) as prepared:
        for call in (prepared.dispatch, prepared.dispatch_timed):
            for args, kwargs in [((), {}), (((1, 1, 1),), {}), (((1, 1, 1), (1, 1, 1), True), {}),
                                 (((1, 1, 1), (1, 1, 1)), {"grid": (1, 1, 1)}), (((1, 1, 1), (1, 1, 1)), {"nope": 1}),
                                 (((1, 1, 1), (1, 1, 1)), {"queue": "1"}), (((1, 1, 1), (1, 1, 1)), {"queue": True})]:
                with pytest.raises(TypeError):
                    call(*args, **kwargs)
            for wrong in ({"queue": -1}, {"queue": 10**6}, {"device": 1}, {"device": 2**40}):
                with pytest.raises(ValueError):
                    call((1, 1, 1), (1, 1, 1), **wrong)
        with pytest.raises(TypeError):
            prepared.dispatch_timed((1, 1, 1), (1, 1, 1), wait=False)
        for wrong in ([1], "flops", 3, {"flops": "x"}, {1: 1}):
            with pytest.raises(TypeError):
                prepared.dispatch((1, 1, 1), (1, 1, 1), metrics=wrong)
        assert prepared.read_output() == bytes(4)


def test_wrong_kernels(opencl, kernels):
    for wrong in ("add", None, A):
        with pytest.raises(TypeError):
            opencl.prepare(wrong, [A, B], N * 4)
    with enigma.OpenCLRuntime() as other:
        with pytest.raises(ValueError, match="another runtime"):
            other.prepare(kernels["add"], [A, B], N * 4)
    with pytest.raises(TypeError):
        opencl.execute(kernels["nothing"], [], None, grid=(1, 1, 1))
    with pytest.raises(TypeError):
        opencl.execute(kernels["nothing"], [], None, (1, 1, 1), (1, 1, 1))


# ---- Release ------------------------------------------------------------------------------------------------------------


def test_use_after_release(opencl, kernels):
    prepared = opencl.prepare(kernels["count"], [], 4)
    with prepared as entered:
        assert entered is prepared
    prepared.release()
    assert "released" in repr(prepared) and prepared.kernel_name == "count"
    for call in (lambda: prepared.dispatch((1, 1, 1), (1, 1, 1)), lambda: prepared.dispatch_timed((1, 1, 1), (1, 1, 1)),
                 prepared.wait, prepared.read_output, prepared.__enter__,
                 lambda: enigma.benchmark_kernel(prepared, grid=(1, 1, 1), threads=(1, 1, 1)),
                 lambda: enigma.profile_kernel(prepared, grid=(1, 1, 1), threads=(1, 1, 1))):
        with pytest.raises(RuntimeError, match="released"):
            call()


def test_released_runtime(opencl):
    runtime = enigma.OpenCLRuntime()
    kernel = runtime.compile(SOURCE, "count")
    prepared = runtime.prepare(kernel, [], 4)
    with runtime as entered:
        assert entered is runtime
    runtime.release()
    for call in (lambda: runtime.compile(SOURCE, "count"), lambda: runtime.prepare(kernel, [], 4), runtime.synchronize,
                 lambda: runtime.execute(kernel, [], 4, grid=(1, 1, 1), threads=(1, 1, 1)), runtime.__enter__):
        with pytest.raises(RuntimeError, match="released"):
            call()
    assert runtime.device["backend"] == "opencl" and "released" in repr(runtime)
    prepared.dispatch((3, 1, 1), (1, 1, 1))
    assert struct.unpack("i", prepared.read_output()) == (3,)


def test_any_order_of_dropping(opencl):
    runtime = enigma.OpenCLRuntime()
    kernel = runtime.compile(SOURCE, "count")
    prepared = runtime.prepare(kernel, [], 4)
    prepared.dispatch((3, 1, 1), (1, 1, 1), wait=False)
    del runtime
    gc.collect()
    del kernel
    gc.collect()
    assert struct.unpack("i", prepared.read_output()) == (3,)
    prepared.dispatch((3, 1, 1), (1, 1, 1), wait=False)
    del prepared
    gc.collect()


def test_weak_references(opencl):
    runtime = enigma.OpenCLRuntime()
    kernel = runtime.compile(SOURCE, "count")
    prepared = runtime.prepare(kernel, [], 4)
    gone = [weakref.ref(x) for x in (runtime, kernel, prepared)]
    assert [ref() for ref in gone] == [runtime, kernel, prepared]
    del runtime, kernel, prepared
    assert [ref() for ref in gone] == [None] * 3


def test_references(opencl, kernels):
    before = sys.getrefcount(opencl)
    for _ in range(20):
        prepared = opencl.prepare(kernels["count"], [], 4)
        prepared.dispatch((1, 1, 1), (1, 1, 1))
        del prepared
    assert sys.getrefcount(opencl) == before
