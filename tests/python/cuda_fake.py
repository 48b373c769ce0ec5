"""Launches and records told to the fake CUPTI (tests/fakecuda) as the real one tells them, for tests of attach="cuda" without a GPU."""

import ctypes
import itertools
import os
import re
import time
from pathlib import Path

FOLDER = Path(os.environ.get("ENIGMA_BUILD_DIR", "")) / "tests" / "fakecuda" / "new"
KERNEL, GRAPH = 211, 311  # cudaLaunchKernel, cudaGraphLaunch
RUNTIME_API = 2
SETTINGS = re.findall(r"^    FAKE_([A-Z_]+),", (Path(__file__).parent.parent / "fakecuda" / "fake.h").read_text(), re.M)
SUBSCRIBE_ERROR, SUBSCRIBED = SETTINGS.index("SUBSCRIBE_ERROR"), SETTINGS.index("SUBSCRIBED")


class Call(ctypes.Structure):
    _fields_ = [("site", ctypes.c_uint32), ("function_name", ctypes.c_char_p), ("parameters", ctypes.c_void_p),
                ("return_value", ctypes.POINTER(ctypes.c_int32)), ("symbol_name", ctypes.c_char_p),
                ("context", ctypes.c_void_p), ("context_id", ctypes.c_uint32), ("correlation_data", ctypes.c_void_p),
                ("correlation", ctypes.c_uint32)]


class KernelRecord(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("cache", ctypes.c_uint8 * 2), ("registers", ctypes.c_uint16),
                ("partitioned", ctypes.c_uint32 * 2), ("start", ctypes.c_uint64), ("end", ctypes.c_uint64),
                ("completed", ctypes.c_uint64), ("device", ctypes.c_uint32), ("context", ctypes.c_uint32),
                ("stream", ctypes.c_uint32), ("grid", ctypes.c_int32 * 3), ("block", ctypes.c_int32 * 3),
                ("static_bytes", ctypes.c_int32), ("dynamic_bytes", ctypes.c_int32), ("local_bytes", ctypes.c_uint32 * 2),
                ("correlation", ctypes.c_uint32), ("grid_id", ctypes.c_int64), ("name", ctypes.c_char_p),
                ("rest", ctypes.c_uint8 * 104)]


assert ctypes.sizeof(KernelRecord) == 216
correlations = itertools.count(1)
kept = []  # names, which records point to


def load():
    """Loads the fakes where the library finds them first; None: they are not built."""
    if not FOLDER.is_dir():
        return None
    for name in ("libcuda.so.1", "libcupti.so.13"):
        ctypes.CDLL(str(FOLDER / name), mode=ctypes.RTLD_GLOBAL)
    fake = ctypes.CDLL(str(FOLDER / "libcupti.so.13"))
    fake.fake_cupti_record.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    fake.fake_cupti_call.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p]
    driver = ctypes.CDLL(str(FOLDER / "libcuda.so.1"))
    driver.fake_set.argtypes = [ctypes.c_int, ctypes.c_long]
    driver.fake_get.restype = ctypes.c_long
    fake.driver = driver
    return fake


def launch(fake, name="kernel", us=1.0, cbid=KERNEL):
    """One kernel, launched on this thread without the GIL (ctypes releases it), and its record."""
    result = ctypes.c_int32(0)
    correlation = next(correlations)
    text = name.encode()
    kept.append(text)
    for site in (0, 1):
        call = Call(site=site, function_name=b"a call", return_value=ctypes.pointer(result), symbol_name=text, context_id=1,
                    correlation=correlation)
        fake.fake_cupti_call(RUNTIME_API, cbid, ctypes.byref(call))
    start = time.monotonic_ns()
    record = KernelRecord(kind=10, start=start, end=start + int(us * 1000), context=1, stream=7, registers=16,
                          grid=(4, 1, 1), block=(32, 1, 1), correlation=correlation, name=text)
    fake.fake_cupti_record(ctypes.byref(record), ctypes.sizeof(record))
