"""Random nested, recursive, overlapping and outliving workloads, compared with a model that is written from the rules alone: inclusive
GPU time of each entry, self time, totals that count an instant once, busy unions, rates and what they were taken over; then the same
numbers in Hatchet, in a saved profile and in the file that was written meanwhile."""

import contextvars
import dataclasses
import json
import math
import random

import chrome_check
import enigma
import pytest
from enigma.testing import ScriptedRuntime, scripted_clock

GRID, THREADS = (64, 1, 1), (32, 1, 1)
QUEUES, INPUT, OUTPUT = 3, 8, 4


@dataclasses.dataclass(eq=False)
class Event:
    name: str
    kernel: str | None
    metrics: dict
    above: list  # the entries above it, outermost first
    start: int
    end: int = 0  # 0: open
    stamps: tuple | None = None  # of a dispatch, where they can be right
    work: list = dataclasses.field(default_factory=list)  # the dispatches made while it was open
    below: list = dataclasses.field(default_factory=list)

    @property
    def call_path(self):
        return tuple(e.name for e in self.above) + (() if self.kernel else (self.name,))

    @property
    def node_path(self):
        return (*self.call_path, f"{self.name}:{self.kernel}") if self.kernel else self.call_path

    @property
    def cpu(self):
        return self.end - self.start

    @property
    def gpu(self):
        return sum(end - start for start, end in self.intervals())

    def intervals(self):
        return [e.stamps for e in ([self] if self.kernel else self.work) if e.stamps]

    def own(self):
        return self.cpu - union([(max(e.start, self.start), min(e.end, self.end)) for e in self.below])


def union(intervals):
    total, to = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, to))
        to = max(to, end)
    return total


class Workload:
    """What is done is noted here; contexts are copied, and a copy goes on when the scopes that it was made in are left."""

    def __init__(self, seed, clock):
        self.dice, self.clock, self.events = random.Random(seed), clock, []
        self.runtime = ScriptedRuntime(queues=QUEUES)
        self.kernels = [self.runtime.prepare(name, [bytes(INPUT)], OUTPUT) for name in ("plain", "hooked")]
        self.contexts = [(contextvars.Context(), [], [])]  # the context, what it inherited, what it entered

    def add(self, context, name, kernel=None, metrics=None):
        event = Event(name, kernel, metrics or {}, context[1] + [e for e, _ in context[2]], self.clock.now)
        if event.above:
            event.above[-1].below.append(event)
        self.events.append(event)
        return event

    def enter(self, context):
        if len(context[1]) + len(context[2]) < 8:
            name = self.dice.choice("abc")
            metrics = self.dice.choice((None, None, {"flops": self.dice.randrange(1, 100)}, {"bytes": 1.5, "own": 2}))
            scope = enigma.scope(name, metrics=metrics)
            event = self.add(context, name, metrics=metrics)
            context[0].run(scope.__enter__)
            context[2].append((event, scope))

    def leave(self, context):
        if context[2]:
            event, scope = context[2].pop()
            context[0].run(scope.__exit__, None, None, None)
            event.end = self.clock.now

    def copy(self, context):
        if len(self.contexts) < 6:
            self.contexts.append((context[0].copy(), context[1] + [e for e, _ in context[2]], []))

    def dispatch(self, context):
        queue, kernel = self.dice.randrange(QUEUES), self.dice.choice(self.kernels)
        start = self.clock.now + self.dice.randrange(30_000)
        stamps = self.dice.choice([(start, start + self.dice.randrange(20_000))] * 6 + [None, (start, start - 1)])
        metrics = self.dice.choice((None, None, {"flops": 5}, {"bytes": 7, "own": 1}))
        self.runtime.script([stamps], queue=queue)
        hooked = {"flops": GRID[0], "bytes": 3} if kernel.kernel_name == "hooked" else None
        event = self.add(context, "gpu_dispatch", kernel.kernel_name, metrics or hooked)
        event.stamps = stamps if stamps and stamps[1] >= stamps[0] else None
        for entry in event.above:
            if not entry.end:
                entry.work.append(event)
        wait = self.dice.random() < 0.5
        context[0].run(kernel.dispatch, GRID, THREADS, wait=wait, queue=queue, metrics=metrics)
        event.end = self.clock.now

    def run(self, profiler):
        self.contexts[0][0].run(profiler.__enter__)
        does = self.dice.choices((self.enter, self.leave, self.dispatch, self.copy), (3, 3, 3, 1), k=90)
        for do in does + [self.leave] * 100:
            self.clock.advance(self.dice.randrange(1, 20_000))
            do(self.dice.choice(self.contexts))
        for context in self.contexts:
            while context[2]:
                self.leave(context)
        self.contexts[0][0].run(profiler.__exit__, None, None, None)
        return self.events


def outermost(events):
    group = set(events)
    return [e for e in events if not group.intersection(e.above)]


def rate(events, key):
    """Of a row: the count by ns and what it was taken over; (0.0, None) where it cannot be told."""
    carriers = [e for e in events if key in e.metrics]
    gpu = any(e.gpu for e in outermost(events))
    time = sum(e.gpu if gpu else e.cpu for e in outermost(carriers))
    count = sum(e.metrics[key] for e in carriers if not (gpu and e.kernel and not e.stamps))
    return (count / time, "gpu" if gpu else "cpu") if time and count else (0.0, None)


def row(events):
    total = outermost(events)
    metrics = {}
    for event in events:
        for key, value in event.metrics.items():
            metrics[key] = metrics.get(key, 0.0) + value
    (flops, source), (moved, other) = rate(events, "flops"), rate(events, "bytes")
    calls, dispatches = len(events), sum(e.kernel is not None for e in events)
    return {
        "calls": calls, "cpu_total_us": sum(e.cpu for e in total) / 1e3, "gpu_total_us": sum(e.gpu for e in total) / 1e3,
        "self_total_us": sum(e.own() for e in events) / 1e3,
        "gpu_busy_us": union([i for e in events for i in e.intervals()]) / 1e3, "gflops_per_s": flops,
        "gbytes_per_s": moved, "rate_source": source or other, "metrics": metrics,
        "input_bytes": INPUT * dispatches, "output_bytes": OUTPUT * dispatches}


def check_events(profiler, events):
    found = sorted((e.start_ns, e.end_ns, e.node_path, e.call_path, sorted(e.metrics.items()), e.gpu_time_us, e.self_us)
                   for e in profiler.events())
    wanted = sorted((e.start, e.end, e.node_path, e.call_path, sorted(e.metrics.items()), e.gpu / 1e3, e.own() / 1e3)
                    for e in events)
    assert found == wanted
    ends = [e.end_ns for e in profiler.events()]
    assert ends == sorted(ends)


def check_rows(profiler, events, group_by, key_of_event, key_of_row):
    groups = {}
    for event in events:
        groups.setdefault((key_of_event(event), event.kernel), []).append(event)
    rows = {(key_of_row(r), r.kernel_name): r.as_dict() for r in profiler.key_averages(group_by=group_by)}
    assert rows.keys() == groups.keys()
    for key, group in groups.items():
        for field, value in row(group).items():
            close = value if field == "rate_source" else pytest.approx(value, rel=1e-9)
            assert rows[key][field] == close, (key, field)


def check_files(profiler, events, others, folder):
    profiler.export_chrome_trace(folder / "trace.json")
    chrome_check.check_file(folder / "trace.json")
    profiler.export_hatchet(folder / "a.json")
    nodes = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    sums = {key: 0.0 for key in ("time", "gpu_time", "count")}
    while nodes:
        node = nodes.pop()
        nodes.extend(node["children"])
        for key in sums:
            sums[key] += node["metrics"][key]
    assert math.isclose(sums["time"], sum(e.own() for e in events) / 1e3, rel_tol=1e-9)
    assert math.isclose(sums["gpu_time"], sum(e.gpu for e in events if e.kernel) / 1e3, rel_tol=1e-9, abs_tol=1e-9)
    assert sums["count"] == len(events)
    for other in others:
        assert other.events() == profiler.events() and other.tree() == profiler.tree()
        other.export_hatchet(folder / "b.json")
        assert (folder / "b.json").read_bytes() == (folder / "a.json").read_bytes()


@pytest.mark.parametrize("seed", range(40))
def test_numbers_of_random_workloads(seed, register, tmp_path):
    register("hooked", lambda **info: {"flops": info["grid"][0], "bytes": 3})
    with scripted_clock(start_ns=(1, 1_000_000, 10**12)[seed % 3]) as clock:
        profiler = enigma.profile(profile_memory=True, file=tmp_path / "live.enigma")
        events = Workload(seed, clock).run(profiler)
    check_events(profiler, events)
    check_rows(profiler, events, "name", lambda e: e.name, lambda r: r.name)
    check_rows(profiler, events, "call_path", lambda e: e.node_path, lambda r: tuple(r.call_path))
    profiler.save(tmp_path / "saved.enigma")
    others = [enigma.load(tmp_path / name) for name in ("saved.enigma", "live.enigma")]
    check_files(profiler, events, others, tmp_path)
