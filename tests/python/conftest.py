"""Fixtures of all Python tests: scripted runtimes under a scripted clock, and the OpenCL device where there is one."""

import os
import signal
import tempfile

# Before any driver is loaded: PoCL keeps compiled kernels, and a test run leaves nothing behind.
_pocl_cache = tempfile.TemporaryDirectory(prefix="enigma-pocl-")
os.environ.setdefault("POCL_CACHE_DIR", _pocl_cache.name)

import enigma  # noqa: E402
import pytest  # noqa: E402
from enigma.testing import ScriptedRuntime, scripted_clock  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_left_active():
    """A test that leaves a profiler active would change the next one."""
    assert enigma.get_active_profiler() is None
    yield
    assert enigma.get_active_profiler() is None


@pytest.fixture
def clock():
    """A host clock that starts at 1 ms and moves only by advance() and scripted device time."""
    with scripted_clock() as clock:
        yield clock


@pytest.fixture
def fake(clock):
    """A scripted runtime under the scripted clock."""
    return ScriptedRuntime()


@pytest.fixture
def register():
    """register_kernel_hook, undone at the end of the test."""
    names = []

    def register(name, hook):
        names.append(name)
        enigma.register_kernel_hook(name, hook)

    yield register
    for name in names:
        enigma.unregister_kernel_hook(name)


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background of a shell that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def opencl():
    """The OpenCL runtime; tests that need it are skipped on a machine without a device."""
    try:
        runtime = enigma.OpenCLRuntime()
    except RuntimeError as error:
        pytest.skip(f"no OpenCL device: {error}")
    yield runtime
    runtime.release()


def pytest_collection_modifyitems(items):
    """Files that change the process for all that come after them run last."""
    items.sort(key=lambda item: item.path.name in ("test_attach.py",))
