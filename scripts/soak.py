"""The long run of scripts/soak: soak.py <seconds>. Rounds of everything a program may do; memory after each fifth of the time."""

import gc
import os
import pathlib
import sys
import tempfile
import threading
import time

import enigma
from enigma.testing import ScriptedRuntime

GROWTH_KIB = 4096  # between the first and the last fifth; a leak of 100 bytes a round is more
GRID, THREADS = (64, 1, 1), (8, 1, 1)


def resident_kib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS in /proc/self/status")


def usage():
    gc.collect()
    return resident_kib(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def record(runtime, number):
    """Scopes and dispatches, some of which fail or have no time; names that come again and names that do not."""
    prepared = runtime.prepare("soak", [bytes(64)], 64)
    with enigma.scope(f"round {number}", metrics={"flops": 1e6, "bytes": number}, tag=["a", (1, 2.5), {"k": None}]):
        for i in range(20):
            with enigma.scope("step", index=i):
                runtime.script([(1000 * i + 1, 1000 * i + 500) if i % 5 else None])
                prepared.dispatch(GRID, THREADS, wait=i % 3 != 0)
        runtime.script([RuntimeError("the device is lost")])
        try:
            prepared.dispatch(GRID, THREADS)
        except RuntimeError:
            pass
    prepared.release()


def present(profiler, folder):
    profiler.export_chrome_trace(folder / "soak.trace.json")
    profiler.export_hatchet(folder / "soak.hatchet.json")
    profiler.save(folder / "soak.enigma")
    for group in ("name", "call_path"):
        profiler.key_averages(group_by=group).table(sort_by="gpu_total_us")
    assert enigma.load(folder / "soak.enigma").tree().count("\n") == profiler.tree().count("\n")
    try:
        profiler.export_hatchet("/dev/full")
        raise AssertionError("/dev/full took a file")
    except OSError:
        pass


def one_round(number, folder):
    enigma.register_kernel_hook("soak", lambda **launch: {"flops": number})
    with ScriptedRuntime(queues=2) as runtime, enigma.profile(record_shapes=True, profile_memory=True) as profiler:
        record(runtime, number)
        worker = threading.Thread(target=lambda: [enigma.scope("off").__enter__() for _ in range(3)])
        worker.start()
        worker.join()
    present(profiler, folder)
    enigma.unregister_kernel_hook("soak")


def main():
    seconds = float(sys.argv[1])
    readings, rounds = [], 0
    with tempfile.TemporaryDirectory(prefix="enigma-soak-") as name:
        started = time.monotonic()
        for fifth in range(1, 6):
            while time.monotonic() - started < seconds * fifth / 5:
                one_round(rounds, pathlib.Path(name))
                rounds += 1
            readings.append(usage())
            print(f"{rounds:8} rounds: {readings[-1][0]} KiB, {readings[-1][1]} files, {readings[-1][2]} threads", flush=True)
    (first, *before), (last, *after) = readings[0], readings[-1]
    failures = []
    if last - first > GROWTH_KIB:
        failures.append(f"memory grew by {last - first} KiB in {rounds} rounds")
    if before != after:
        failures.append(f"files and threads went from {before} to {after}")
    print("\n".join(failures) or "nothing grew")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
