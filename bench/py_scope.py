"""Python scopes, off and on, beside a context manager that does nothing, written in C and created for each use.

All in one run, in turns, the empty loop taken off; a figure is the median over the rounds. Exit status 1 when a ratio is over its
limit, 77 when there is no C compiler for the floor.
"""

import importlib.util
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import enigma

COUNT = 20_000
ROUNDS = 41


def load_floor(folder):
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        print("py_scope: skipped, no C compiler (%s) for the floor" % compiler)
        sys.exit(77)
    source = pathlib.Path(__file__).with_name("noop_cm.c")
    target = folder / ("noop_cm" + sysconfig.get_config_var("EXT_SUFFIX"))
    include = sysconfig.get_path("include")
    subprocess.run([compiler, "-O2", "-fPIC", "-shared", "-I", include, source, "-o", target], check=True)
    spec = importlib.util.spec_from_file_location("noop_cm", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Noop


def make_loops(noop):
    """Each runs COUNT times what it is named for; True: under a profiler."""
    scope, record_function = enigma.scope, enigma.record_function
    times = range(COUNT)
    reused = scope("a")
    metrics = {"flops": 1.0}
    two = {"flops": 1e6, "bytes": 4e6}

    @scope("a")
    def decorated():
        pass

    def plain():
        pass

    def empty():
        for _ in times:
            pass

    def floor():
        for _ in times:
            with noop("a"):
                pass

    def created():
        for _ in times:
            with scope("a"):
                pass

    def again():
        for _ in times:
            with reused:
                pass

    def nested():
        for _ in range(COUNT // 8):
            with scope("a"), scope("b"), scope("c"), scope("d"), scope("e"), scope("f"), scope("g"), scope("h"):
                pass

    def python():
        for _ in times:
            with record_function("a"):
                pass

    def counted():
        for _ in times:
            with scope("a", metrics=two):
                pass

    def keywords():
        for _ in times:
            with scope("a", metrics=metrics, layer=3):
                pass

    def call():
        for _ in times:
            decorated()

    def call_plain():
        for _ in times:
            plain()

    return empty, floor, {
        "scope": created,
        "scope, reused": again,
        "scope, depth 8": nested,
        "record_function": python,
        "scope, two metrics": counted,
        "scope, metrics and metadata": keywords,
        "decorated call": call,
        "plain call": call_plain,
    }


def timed(loop, on):
    if not on:
        start = time.perf_counter_ns()
        loop()
        return (time.perf_counter_ns() - start) / COUNT
    with enigma.profile():
        loop()  # the pages of the journal are there, then
    with enigma.profile():
        start = time.perf_counter_ns()
        loop()
        return (time.perf_counter_ns() - start) / COUNT


def measure(noop):
    empty, floor, loops = make_loops(noop)
    variants = {("empty loop", False): empty, ("floor", False): floor}
    variants.update({(name, on): loop for on in (False, True) for name, loop in loops.items()})
    samples = {key: [] for key in variants}
    for _ in range(ROUNDS):
        for (name, on), loop in variants.items():
            samples[name, on].append(timed(loop, on))
    base = statistics.median(samples["empty loop", False])
    return {key: statistics.median(values) - base for key, values in samples.items()}


def main():
    with tempfile.TemporaryDirectory() as folder:
        result = measure(load_floor(pathlib.Path(folder)))
    floor = result["floor", False]
    limits = {("scope", False): 1.5, ("scope", True): 3.0}
    print("Python scopes, ns each (x the do-nothing C context manager, %.1f ns), CPython %s" % (floor, sys.version.split()[0]))
    bad = 0
    for name, on in result:
        if name in ("empty loop", "floor"):
            continue
        ratio, limit = result[name, on] / floor, limits.get((name, on))
        over = limit is not None and ratio > limit
        bad += over
        note = "" if limit is None else "  limit %.1fx%s" % (limit, "  OVER" if over else "")
        print("  %-28s %-3s %7.1f  %5.2fx%s" % (name, "on" if on else "off", result[name, on], ratio, note))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
