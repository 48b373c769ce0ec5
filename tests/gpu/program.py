"""A program that uses the GPU in one of several ways, run under one tool; prints what the tool saw as JSON.

    program.py <what> <tool> [steps]

what: transformer, triton, cupy; tool: enigma or torch (torch.profiler, CUDA only). CUPTI takes one tool at a time, so the
tests run this program once for each and compare. Work before the region that is profiled is the same for all."""

import collections
import json
import os
import sys
import tempfile
from contextlib import nullcontext


def transformer(steps):
    """Forward, backward and optimizer of a block, two streams, and a CUDA graph replayed; each part under a scope."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 8, 512, dropout=0.0, batch_first=True, device="cuda")
    optimizer = torch.optim.AdamW(layer.parameters())
    batch = torch.randn(8, 128, 256, device="cuda")
    host = torch.randn(1024).pin_memory()
    other = torch.cuda.Stream()
    side = torch.randn(1 << 20, device="cuda")
    static = torch.randn(1 << 16, device="cuda")

    def step(scope):
        with scope("forward"):
            loss = layer(batch).square().mean()
        with scope("backward"):
            loss.backward()
        with scope("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        with scope("streams"), torch.cuda.stream(other):
            other.wait_stream(torch.cuda.current_stream())
            side.mul_(1.0001)
            side.zero_()
            host.to("cuda", non_blocking=True).sum()
        torch.cuda.current_stream().wait_stream(other)

    def captured():
        static.mul_(1.5).add_(1.0)
        return static.sum()

    for _ in range(3):
        step(nullcontext)
        captured()
    graph = torch.cuda.CUDAGraph()

    def run(scope):
        for _ in range(steps):
            with scope("step"):
                step(scope)
            with scope("replay"):
                graph.replay()
        torch.cuda.synchronize()

    def prepare(scope):
        with scope("capture"), torch.cuda.graph(graph):
            captured()
        graph.replay()
        torch.cuda.synchronize()

    return prepare, run


def triton(steps):
    import torch
    import triton_kernels

    x = torch.rand(1 << 18, device="cuda")
    y = torch.rand(1 << 18, device="cuda")
    rows = torch.rand(512, 1000, device="cuda")

    def run(scope):
        for _ in range(steps):
            with scope("add"):
                triton_kernels.add(x, y)
            with scope("softmax"):
                triton_kernels.softmax(rows)
        torch.cuda.synchronize()

    return (lambda scope: (triton_kernels.add(x, y), triton_kernels.softmax(rows), torch.cuda.synchronize())), run


def cupy(steps):
    import cupy as cp

    a = cp.random.random((256, 256), dtype=cp.float32)

    def once(scope):
        with scope("elementwise"):
            b = a * 2 + 1
        with scope("matmul"):
            c = b @ a
        with scope("reduce"):
            return float(c.sum())

    def run(scope):
        for _ in range(steps):
            once(scope)
        cp.cuda.Device().synchronize()

    return (lambda scope: once(nullcontext)), run


def with_enigma(prepare, run, in_region):
    import enigma

    with enigma.profile(attach="cuda") as profiler:
        if in_region:
            prepare(enigma.scope)
        run(enigma.scope)
    kernels, copies, fills, paths, scopes = [], [], [], [], {}
    for e in profiler.events():
        if e.name == "gpu_dispatch":
            kernels.append((e.kernel_name, e.gpu_time_us))
            paths.append((*e.node_path[:-1], e.kernel_name, e.metadata.get("path_source", "")))
        elif e.name == "memcpy":
            copies.append((e.metadata["kind"], e.metadata["bytes"]))
        elif e.name == "memset":
            fills.append(e.metadata["bytes"])
        elif e.category == "scope":
            scopes.setdefault("/".join(e.call_path), []).append(e.gpu_time_us)
    replays = sum(row.calls for row in profiler.key_averages().rows() if row.name.startswith("graph:"))
    unfinished = [e.kernel_name for e in profiler.events() if e.metadata.get("gpu_time")]
    own = [(e.call_path, e.gpu_time_us) for e in profiler.events() if e.name in ("gpu_dispatch", "memcpy", "memset")]
    return dict(kernels=kernels, copies=copies, fills=fills, paths=sorted(set(paths)), replays=replays,
                unfinished=unfinished, scopes=scopes, own=own)


def with_torch(prepare, run, in_region, tmp):
    import torch
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        if in_region:
            prepare(nullcontext)
        run(nullcontext)
    profiler.export_chrome_trace(tmp)
    events = json.load(open(tmp))["traceEvents"]
    kinds = collections.defaultdict(list)
    for e in events:
        kinds[e.get("cat")].append(e)
    kinds["kernel"].sort(key=lambda e: e["ts"])
    return dict(kernels=[(e["name"], e["dur"]) for e in kinds["kernel"]],
                copies=[(e["name"].split()[1], e["args"]["bytes"]) for e in kinds["gpu_memcpy"]],
                fills=[e["args"]["bytes"] for e in kinds["gpu_memset"]])


def main():
    what, tool = sys.argv[1:3]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    prepare, run = {"transformer": transformer, "triton": triton, "cupy": cupy}[what](steps)
    in_region = what == "transformer"  # so that the graph's capture is seen
    if not in_region:
        prepare(nullcontext)
    if tool == "enigma":
        result = with_enigma(prepare, run, in_region)
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = with_torch(prepare, run, in_region, os.path.join(folder, "trace.json"))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
