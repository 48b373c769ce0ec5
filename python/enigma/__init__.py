"""Call-path profiling, kernel hooks, derived throughput and unbiased benchmarking for GPU kernels.

    import enigma

    rt = enigma.Runtime("opencl")                           # Runtime() opens the best backend
    kernel = rt.compile(source, "vector_add")
    prepared = rt.prepare(kernel, [a, b], n * 4)

    with enigma.profile() as prof:
        with enigma.scope("add", metrics={"flops": n}):
            prepared.dispatch((n, 1, 1), (256, 1, 1))

    print(prof.key_averages().table())
    print(prof.tree())
    prof.export_chrome_trace("trace.json")

Every profiling function does nothing where no profiler is active. Times named *_ns are integer nanoseconds on the
monotonic clock, *_us are float microseconds; GFLOP/s and GB/s count in 10**9.
"""

from ._enigma import (
    CUDARuntime,
    Kernel,
    KernelBenchmark,
    MetalRuntime,
    OpenCLRuntime,
    PreparedKernel,
    Profiler,
    ProfilerEvent,
    ProfilerResult,
    ProfilerRow,
    Runtime,
    __version__,
    benchmark,
    benchmark_kernel,
    get_active_profiler,
    load,
    profile,
    profile_kernel,
    record_function,
    register_kernel_hook,
    scope,
    unregister_kernel_hook,
)

__all__ = [
    "CUDARuntime",
    "Kernel",
    "KernelBenchmark",
    "MetalRuntime",
    "OpenCLRuntime",
    "PreparedKernel",
    "Profiler",
    "ProfilerEvent",
    "ProfilerResult",
    "ProfilerRow",
    "Runtime",
    "__version__",
    "benchmark",
    "benchmark_kernel",
    "get_active_profiler",
    "load",
    "profile",
    "profile_kernel",
    "record_function",
    "register_kernel_hook",
    "scope",
    "unregister_kernel_hook",
]
