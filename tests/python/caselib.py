"""What the case tests share: a scripted runtime that knows its clock, readers of the exports, names that are hard to write.

Called by tests/python/test_cases_*.py only. Every number comes from the scripted clock, so tests assert it exactly.

Cases that have no test in test_cases_*.py, or only a part of one:

    A23            that a capture is stopped when the body raises needs Metal; the errors elsewhere are tested
    A25, B10       C only: tests/api/test_scopes.c and tests/api/test_threads.c, as is B11, which has a sibling here
    C31            needs the Perfetto protobuf exporter, which is not offered yet
    C32            needs the speedscope and folded exporters, which are not offered yet
    D05            OpenCL and the scripted backend's ticks are tested; CUDA's and Metal's units need their devices
    D17            needs a fake OpenCL driver; that the time is the kernel's own event's is asserted on a real device
    E01, E02       need the host-gap and warm-up reports of the benchmark options
    E04            needs the cold-cache option
    E10, E11       need the resolution and bimodality reports
    F04            the streaming export is not offered yet; what the exit leaves behind is tested
    F16            needs graph replay
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys

import chrome_check
import enigma
import pytest
from enigma.testing import ScriptedRuntime, scripted_clock

GRID = (64, 1, 1)
THREADS = (32, 1, 1)
US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

# Names that some writer or reader of some format is known to get wrong.
HARD_NAMES = {
    "quote": 'a"b',
    "backslash": "C:\\dir\\new",
    "apostrophe": "it's",
    "script": "</script>",
    "json": '{"k":1}',
    "escape-like": "\\u0041\\n",
    "percent": "100%s %n",
    "slash": "a/b/c",
    "semicolon": "a;b c 12",
    "arrow": "a > b",
    "colon": "gpu_dispatch:k",
    "blank": "  two  blanks  ",
    "number": "42",
    "word": "null",
    "emoji": "GPU \U0001f680",
    "chinese": "\u77e9\u9635\u4e58\u6cd5",
    "right-to-left": "\u05d0\u05d1 \u202e cba",
    "combining": "e\u0301\u0301",
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "line separator": "a\u2028b\u2029c",
    "bom": "\ufeffname",
    "last plane": "\U0010ffff\uffff",
    "latin-1": "\xe9\xff\xa0",
    "newline": "a\nb\r\nc",
    "tab": "a\tb",
    "nul": "a\x00b",
    "delete": "a\x7fb",
    "control": "".join(map(chr, range(1, 0x20))),
    "c1": "\x80\x9f",
    "long": "n" * 5_000,
    "template": "void gemm<float, (int)8, std::pair<int, long> >(float const*)",
}
hard_names = pytest.mark.parametrize("name", HARD_NAMES.values(), ids=HARD_NAMES.keys())


class Simulation:
    """A scripted runtime under a scripted clock: what runs takes exactly the time that it is given."""

    def __init__(self, clock, **options):
        self.clock = clock
        self.runtime = ScriptedRuntime(**options)
        self.prepared = {}

    @property
    def now(self):
        return self.clock.now

    def advance(self, ns):
        self.clock.advance(ns)

    def kernel(self, name="k", **arguments):
        """The PreparedKernel of a name, made when first asked for."""
        if name not in self.prepared:
            self.prepared[name] = self.runtime.prepare(name, **arguments)
        return self.prepared[name]

    def run(self, name="k", us=None, *, stamps=(), grid=GRID, threads=THREADS, queue=0, device=0, **options):
        """Dispatches: us is the device time, begun now; stamps is a script entry as it is; neither: the default 1 us."""
        kernel = self.kernel(name)
        if us is not None:
            stamps = (self.now, self.now + round(us * US))
        if stamps != ():
            self.runtime.script([stamps], queue=queue, device=device)
        kernel.dispatch(grid, threads, queue=queue, device=device, **options)

    def path(self):
        """The call path at this place, as the active profiler sees it."""
        profiler = enigma.get_active_profiler()
        assert profiler is not None
        before = len(profiler.events())
        self.run("probe")
        events = profiler.events()
        assert len(events) == before + 1
        return events[-1].call_path


@contextlib.contextmanager
def simulating(start_ns=1_000_000, **options):
    with scripted_clock(start_ns=start_ns) as clock:
        yield Simulation(clock, **options)


# ---- Events -------------------------------------------------------------------------------------------------------------


def one(items):
    """The only item."""
    items = list(items)
    assert len(items) == 1, items
    return items[0]


def dispatches(profiler, kernel=None):
    return [e for e in profiler.events() if e.name == "gpu_dispatch" and kernel in (None, e.kernel_name)]


def dispatch(profiler, kernel=None):
    return one(dispatches(profiler, kernel))


def named(profiler, name):
    return one(e for e in profiler.events() if e.name == name)


def row_of(result, name, kernel=None):
    return one(r for r in result.rows() if r.name == name and r.kernel_name == kernel)


def path_row(profiler, path, kernel=None):
    rows = profiler.key_averages(group_by="call_path").rows()
    return one(r for r in rows if r.call_path == tuple(path) and r.kernel_name == kernel)


def assert_flagged(profiler, event, count=1):
    """The event is there without device time, says why, and the profile says how many there are."""
    assert event.gpu_time_us == 0.0
    assert event.gpu_start_ns == 0 and event.gpu_end_ns == 0
    assert isinstance(event.metadata["gpu_time"], str) and event.metadata["gpu_time"]
    assert any(line.startswith(f"{count} ") for line in footer(profiler)), profiler.key_averages().table()


def footer(profiler):
    """The lines under the table."""
    result = profiler.key_averages()
    lines = result.table().splitlines()
    return lines[2 + len(result.rows()):]


# ---- Exports ------------------------------------------------------------------------------------------------------------


def strict_json(data):
    """Parses bytes as JSON is defined: UTF-8, no NaN or Infinity, no key twice."""

    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    def pairs(items):
        keys = [k for k, _ in items]
        assert len(keys) == len(set(keys)), f"a key stands twice in {keys}"
        return dict(items)

    return json.loads(data.decode("utf-8"), parse_constant=refuse, object_pairs_hook=pairs)


def hatchet_json(profiler, tmp_path, name="profile.hatchet.json"):
    path = tmp_path / name
    profiler.export_hatchet(path)
    return strict_json(path.read_bytes())


def hatchet_frame(profiler, tmp_path, name="profile.hatchet.json"):
    """The export in the real reader."""
    hatchet = pytest.importorskip("hatchet", reason="llnl-hatchet is not installed")
    path = tmp_path / name
    profiler.export_hatchet(path)
    with open(path, encoding="utf-8") as file:
        return hatchet.GraphFrame.from_literal(json.load(file))


def hatchet_nodes(literal):
    """(path, node) of every node, without recursion."""
    found, stack = [], [((), node) for node in literal]
    while stack:
        above, node = stack.pop()
        path = above + (node["frame"]["name"],)
        found.append((path, node))
        stack.extend((path, child) for child in node.get("children", ()))
    return found


def hatchet_node(literal, name):
    return one(node for path, node in hatchet_nodes(literal) if path[-1] == name)


def chrome_trace(profiler, tmp_path, name="profile.trace.json"):
    """The export, checked for everything that a reader takes amiss."""
    path = tmp_path / name
    profiler.export_chrome_trace(path)
    return chrome_check.check_file(path)


def gpu_slices(trace):
    """The slices on the tracks of devices, in order of time."""
    found = [s for s in trace.slices if trace.threads[s.track].startswith("GPU")]
    return sorted(found, key=lambda s: (s.start, s.end))


def cpu_slices(trace):
    return [s for s in trace.slices if not trace.threads[s.track].startswith("GPU")]


def export_all(profiler, tmp_path):
    """Every way out, each once; what the files hold."""
    profiler.key_averages().to_csv(tmp_path / "rows.csv")
    profiler.save(tmp_path / "profile.enigma")
    return {
        "table": profiler.key_averages().table(),
        "paths": profiler.key_averages(group_by="call_path").table(),
        "tree": profiler.tree(),
        "hatchet": hatchet_json(profiler, tmp_path),
        "chrome": chrome_trace(profiler, tmp_path),
    }


# ---- Devices and processes ----------------------------------------------------------------------------------------------


SOURCE = """
__kernel void twice(__global const int *a, __global int *out)
{
    size_t i = get_global_id(0);
    out[i] = 2 * a[i];
}

__kernel void spin(__global const int *rounds, __global int *out)
{
    int x = (int)get_global_id(0);
    for (int i = 0; i < rounds[0]; i++) {
        x = x * 1103515245 + 12345;
    }
    out[get_global_id(0)] = x;
}
"""


def python(code, *arguments, check=True, **options):
    """Runs code in a new interpreter that finds the same packages."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    env.update(options.pop("env", {}))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, env=env, timeout=300, **options)
    if check:
        assert done.returncode == 0, done.stderr
    return done


LIBC = ctypes.CDLL(None)
ASAN = "libasan" in os.environ.get("LD_PRELOAD", "")
measures_memory = pytest.mark.skipif(ASAN, reason="AddressSanitizer keeps freed memory and needs a large address space")
forks_beside_threads = pytest.mark.skipif(ASAN, reason="AddressSanitizer's allocator may stay locked in a forked child")


def resident_kib():
    """Resident memory of this process, without what the C library keeps for reuse."""
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)
    with open("/proc/self/status", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("VmRSS")).split()[1])
