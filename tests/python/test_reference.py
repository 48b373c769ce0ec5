"""The API reference as a table, compared with the module: every name, parameter, default, field, property and method."""

import dataclasses
import inspect

import enigma
import pytest

REFERENCE = """
function profile(record_shapes=False, profile_memory=False, capture=None)
function scope(name, *, metrics=None, category='scope', **metadata)
function record_function(name, *, category='python', **metadata)
function get_active_profiler()
function register_kernel_hook(kernel_name, hook)
function unregister_kernel_hook(kernel_name)
function benchmark_kernel(prepared, *, grid, threads, repeat=100, warmup=10, flops=None, bytes_moved=None)
function profile_kernel(prepared, *, grid, threads, repeat=50, warmup=5, profile_memory=True)
method Profiler.events(self)
method Profiler.key_averages(self, *, group_by='name')
method Profiler.tree(self)
method Profiler.export_hatchet(self, path)
method Profiler.export_chrome_trace(self, path)
method ProfilerResult.rows(self, *, sort_by='cpu_total_us')
method ProfilerResult.by_name(self, name)
method ProfilerResult.table(self, *, sort_by='cpu_total_us')
method KernelBenchmark.summary(self)
property ProfilerRow.name str
property ProfilerRow.kernel_name str|None
property ProfilerRow.calls int
property ProfilerRow.cpu_total_us float
property ProfilerRow.gpu_total_us float
property ProfilerRow.cpu_avg_us float
property ProfilerRow.gpu_avg_us float
property ProfilerRow.input_bytes int
property ProfilerRow.output_bytes int
property ProfilerRow.metrics dict
property ProfilerRow.gflops_per_s float
property ProfilerRow.gbytes_per_s float
field ProfilerEvent.name str
field ProfilerEvent.category str
field ProfilerEvent.start_ns int
field ProfilerEvent.end_ns int
field ProfilerEvent.kernel_name str|None
field ProfilerEvent.grid tuple|None
field ProfilerEvent.threads tuple|None
field ProfilerEvent.input_bytes int
field ProfilerEvent.output_bytes int
field ProfilerEvent.buffer_count int
field ProfilerEvent.gpu_time_us float
field ProfilerEvent.call_path tuple
field ProfilerEvent.metrics dict
field ProfilerEvent.metadata dict
property ProfilerEvent.duration_us float
property ProfilerEvent.label str
property ProfilerEvent.node_path tuple
field KernelBenchmark.kernel_name str
property KernelBenchmark.calls int
field KernelBenchmark.gpu_times_us tuple
property KernelBenchmark.min_us float
property KernelBenchmark.median_us float
property KernelBenchmark.mean_us float
property KernelBenchmark.p90_us float
property KernelBenchmark.max_us float
property KernelBenchmark.gflops_per_s float
property KernelBenchmark.gbytes_per_s float
"""

# What semantics.md adds.
ADDITIONS = """
property ProfilerRow.min_us float
property ProfilerRow.median_us float
property ProfilerRow.max_us float
property ProfilerRow.self_total_us float
property ProfilerRow.gpu_busy_us float
property ProfilerRow.rate_source str|None
property ProfilerRow.call_path tuple
method ProfilerRow.as_dict(self)
method ProfilerResult.to_csv(self, path)
method Profiler.save(self, path)
method Profiler.iter_events(self)
function load(path)
function benchmark(fn, *, repeat=100, warmup=10, flops=None, bytes_moved=None, attach='cuda')
field ProfilerEvent.thread_id int
field ProfilerEvent.queue_id int
field ProfilerEvent.device_id int
field ProfilerEvent.self_us float
field ProfilerEvent.gpu_start_ns int
field ProfilerEvent.gpu_end_ns int
field KernelBenchmark.flops float|None
field KernelBenchmark.bytes_moved float|None
function Runtime(backend=None, device=None)
function OpenCLRuntime(device=None)
function CUDARuntime(device=None)
function MetalRuntime(device=None)
method Runtime.compile(self, source, name, *, options=None)
method Runtime.prepare(self, kernel, inputs, output_size=None)
method Runtime.execute(self, kernel, inputs, output_size, *, grid, threads)
method Runtime.synchronize(self)
method Runtime.release(self)
property Runtime.device dict
method PreparedKernel.dispatch(self, grid, threads, *, wait=True, queue=0, device=0, metrics=None)
method PreparedKernel.dispatch_timed(self, grid, threads, *, queue=0, device=0)
method PreparedKernel.wait(self)
method PreparedKernel.read_output(self)
method PreparedKernel.release(self)
property PreparedKernel.kernel_name str
"""

# record_function passes metrics on as scope does, which the reference does not show.
EXTRA_PARAMETERS = {"profile": ("attach", "file"), "record_function": {"metrics"}}


def parse(table):
    for line in filter(None, table.splitlines()):
        kind, rest = line.split(" ", 1)
        yield kind, rest


def rows(*kinds):
    return [pytest.param(kind, rest, id=rest) for kind, rest in parse(REFERENCE + ADDITIONS) if kind in kinds]


def resolve(path):
    found = enigma
    for part in path.split("."):
        found = getattr(found, part)
    return found


def expected_signature(text):
    """The signature of "f(a, *, b=1)" as Python itself reads it."""
    name, parameters = text.split("(", 1)
    namespace = {}
    exec(f"def f({parameters}: pass", namespace)
    return name, inspect.signature(namespace["f"])


@pytest.mark.parametrize("kind, text", rows("function", "method"))
def test_signature(kind, text):
    name, expected = expected_signature(text)
    function = resolve(name)
    actual = inspect.signature(function)
    kept = [p for p in actual.parameters.values() if p.name not in EXTRA_PARAMETERS.get(name, ())]
    shown = [(p.name, p.kind, p.default) for p in kept]
    wanted = [(p.name, p.kind, p.default) for p in expected.parameters.values()]
    if kind == "method":  # C methods take self by position only
        assert shown[0][0] == wanted[0][0] == "self"
        shown, wanted = shown[1:], wanted[1:]
    assert shown == wanted
    assert function.__doc__ and function.__doc__.strip()


@pytest.fixture(scope="module")
def specimens():
    """An object of each class, with every kind of event behind it."""
    from enigma.testing import ScriptedRuntime, scripted_clock

    with scripted_clock() as clock:
        runtime = ScriptedRuntime()
        prepared = runtime.prepare("k", [bytes(8)], 16)
        with enigma.profile(record_shapes=True, profile_memory=True) as profiler:
            with enigma.scope("s", metrics={"flops": 1.0}):
                clock.advance(10)
                prepared.dispatch((4, 1, 1), (2, 1, 1))
        events = {e.name: e for e in profiler.events()}
        yield {
            "ProfilerRow": profiler.key_averages().rows(),
            "ProfilerEvent": [events["s"], events["gpu_dispatch"]],
            "KernelBenchmark": [
                enigma.KernelBenchmark("k", (1.0, 2.0)),
                enigma.KernelBenchmark("k", (1.0, 2.0), 1.0, 2.0),
            ],
            "Runtime": [runtime],
            "PreparedKernel": [prepared],
        }


TYPES = {"str": str, "int": int, "float": float, "dict": dict, "tuple": tuple, "None": type(None)}


@pytest.mark.parametrize("kind, text", rows("field", "property"))
def test_property(kind, text, specimens):
    path, types = text.split(" ")
    class_name, name = path.split(".")
    for specimen in specimens[class_name]:
        value = getattr(specimen, name)
        assert type(value) in [TYPES[t] for t in types.split("|")]
    assert inspect.getattr_static(resolve(class_name), name).__doc__


@pytest.mark.parametrize("class_name", ["ProfilerEvent", "KernelBenchmark"])
def test_dataclass_fields(class_name):
    cls = resolve(class_name)
    listed = [rest.split(" ")[0].split(".")[1] for kind, rest in parse(REFERENCE + ADDITIONS)
              if kind == "field" and rest.startswith(class_name + ".")]
    assert dataclasses.is_dataclass(cls)
    assert [f.name for f in dataclasses.fields(cls)] == listed
    assert list(cls.__match_args__) == listed
    assert list(inspect.signature(cls).parameters) == listed


def test_row_properties_are_all_listed():
    listed = {rest.split(" ")[0].split(".")[1] for kind, rest in parse(REFERENCE + ADDITIONS)
              if kind == "property" and rest.startswith("ProfilerRow.")}
    assert set(enigma.ProfilerRow.__match_args__) == listed


def test_all_is_what_the_reference_lists():
    names = {rest.split("(")[0].split(".")[0].split(" ")[0] for _, rest in parse(REFERENCE + ADDITIONS)}
    assert set(enigma.__all__) == names | {"Kernel", "__version__"}
    assert all(hasattr(enigma, name) for name in enigma.__all__)


def test_every_export_is_documented():
    for name in enigma.__all__:
        assert name == "__version__" or getattr(enigma, name).__doc__, name


def test_numpy_is_no_dependency(tmp_path):
    import subprocess
    import sys

    code = "import sys; sys.modules['numpy'] = None; import enigma, enigma.testing; print(enigma.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == enigma.__version__, done.stderr
