#!/usr/bin/env python3
"""What attach="cuda" costs beside torch.profiler (CUDA only) and Proton, in one run on a GPU machine.

    bench/gpu_attach.py [rounds]      needs PyTorch with Triton, and enigma in PYTHONPATH

Each tool has a process of its own, since CUPTI takes one at a time; in it segments with and without the tool alternate, and
what a tool adds is the median over the pairs. Prints a table and, last, one line of JSON."""

import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

LAUNCHES, WARM_UP = 5000, 500
SLEEP_CYCLES, SLEEP_LAUNCHES = 18000, 2000
MANY = 200_000
HERE = os.path.dirname(os.path.abspath(__file__))


class Enigma:
    """begin and end are timed by nobody; scope is what a user writes for a scope with metrics."""

    def begin(self):
        import enigma

        self.profiler = enigma.profile(attach="cuda")
        self.profiler.__enter__()
        self.scope = enigma.scope

    def end(self):
        self.profiler.__exit__(None, None, None)

    def tree(self, folder):
        self.end()
        with open(os.path.join(folder, "tree.txt"), "w") as out:
            out.write(self.profiler.tree())

    def trace(self, folder):
        self.end()
        self.profiler.export_chrome_trace(os.path.join(folder, "trace.json"))

    def with_metrics(self, name, metrics):
        return self.scope(name, metrics=metrics)


class Torch:
    def begin(self):
        import torch

        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self.profiler.__enter__()
        self.scope = torch.profiler.record_function

    def end(self):
        self.profiler.__exit__(None, None, None)

    def trace(self, folder):
        self.end()
        self.profiler.export_chrome_trace(os.path.join(folder, "trace.json"))


class Proton:
    data = "tree"

    def begin(self):
        import triton.profiler as proton

        self.proton = proton
        self.folder = tempfile.mkdtemp()
        self.session = proton.start(os.path.join(self.folder, "p"), data=self.data)
        self.scope = proton.scope

    def end(self):
        self.proton.finalize()

    def tree(self, folder):
        self.end()

    def with_metrics(self, name, metrics):
        return self.scope(name, metrics=metrics)


class ProtonTrace(Proton):
    data = "trace"

    def trace(self, folder):
        self.end()


TOOLS = {"enigma": Enigma, "torch": Torch, "proton": Proton, "proton-trace": ProtonTrace}


def bodies():
    import torch
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "gpu"))
    import triton_kernels

    x = torch.zeros(1024, device="cuda")
    out = torch.empty_like(x)
    kernel = triton_kernels.add_kernel[(1,)]

    def op():
        x.add_(1)

    def triton_launch():
        kernel(x, x, out, 1024, BLOCK=1024)

    for _ in range(100):
        op()
        triton_launch()
    torch.cuda.synchronize()
    return {"torch op": op, "Triton kernel": triton_launch}


def segment(body, launches=LAUNCHES):
    """ns per launch on the host, the end of the work waited for; without what a tool does once when it starts."""
    import torch

    for _ in range(WARM_UP):
        body()
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(launches):
        body()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start) / launches


def gpu_segment():
    """ns per kernel of about 10 us on the GPU, back to back."""
    import torch

    for _ in range(10):
        torch.cuda._sleep(SLEEP_CYCLES)
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(SLEEP_LAUNCHES):
        torch.cuda._sleep(SLEEP_CYCLES)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e6 / SLEEP_LAUNCHES


def pairs(tool, rounds, measure, profiled=None):
    """(median without, median added) in ns."""
    plain, added = [], []
    for _ in range(rounds):
        without = measure()
        tool.begin()
        with_tool = (profiled or measure)()
        tool.end()
        plain.append(without)
        added.append(with_tool - without)
    return statistics.median(plain), statistics.median(added)


def cost(name, rounds):
    tool, out = TOOLS[name](), {}
    for what, body in bodies().items():
        out[what] = pairs(tool, rounds, lambda body=body: segment(body))
        if hasattr(tool, "with_metrics"):
            def scoped(body=body):
                with tool.with_metrics("s", {"flops": 1024.0, "bytes": 4096.0}):
                    body()
            out[what + ", scope and metrics"] = pairs(tool, rounds, lambda body=body: segment(body), lambda: segment(scoped))
    out["10 us kernel, on the GPU"] = pairs(tool, rounds, gpu_segment)
    return out


def resident(trimmed=False):
    """Bytes of this process in memory; trimmed: without what its allocator has free."""
    if trimmed:
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def many(name, what):
    """Seconds from the end of MANY launches to a written tree or trace; bytes a launch that the process grew by until then, and
    that are in use once all is written."""
    import torch

    tool, body = TOOLS[name](), bodies()["torch op"]
    tool.begin()
    for _ in range(1000):
        body()
    torch.cuda.synchronize()
    before = resident(trimmed=True)
    for _ in range(MANY):
        body()
    torch.cuda.synchronize()
    during = resident()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        getattr(tool, what)(folder)
        seconds = time.perf_counter() - start
    return seconds, (during - before) / MANY, (resident(trimmed=True) - before) / MANY


def child(*arguments):
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])


def main(rounds):
    """Exit status: 1 when our own part failed, 77 where nothing can be measured. A missing tool has a row that says so."""
    ready = "import torch, triton, sys; sys.exit(not torch.cuda.is_available())"
    if subprocess.run([sys.executable, "-c", ready], capture_output=True).returncode:
        print("skipped: no PyTorch with Triton and a CUDA device")
        return 77
    costs = {name: child("cost", name, rounds) for name in ("enigma", "torch", "proton")}
    reports = {f"{name}, {what}": child("many", name, what)
               for name, what in (("enigma", "tree"), ("proton", "tree"), ("enigma", "trace"), ("torch", "trace"),
                                  ("proton-trace", "trace"))}
    for name, rows in costs.items():
        if isinstance(rows, str):
            print(f"{name}: {rows}")
            continue
        for what, (plain, added) in rows.items():
            print(f"{name:<8} {what:<36} {plain:9.0f} ns alone   {added:+9.0f} ns added")
    for what, row in reports.items():
        print(f"{MANY} launches, {what:<22} " + (row if isinstance(row, str) else
                                                 f"{row[0]:7.3f} s to the file   {row[1]:7.1f} B a launch before, "
                                                 f"{row[2]:7.1f} B after"))
    print(json.dumps({"costs": costs, "reports": reports}))
    return any(isinstance(row, str) for name, row in (costs | reports).items() if name.startswith("enigma"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["cost"]:
        print(json.dumps(cost(sys.argv[2], int(sys.argv[3]))))
    elif sys.argv[1:2] == ["many"]:
        print(json.dumps(many(sys.argv[2], sys.argv[3])))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 6))
