"""What the tests of scopes and contexts share."""

import gc

from enigma import _enigma, get_active_profiler

current_path = _enigma._current_path
PORTABLE = _enigma._context_info()["mode"] == "portable"


def info():
    return _enigma._context_info()


def paths(profiler):
    """Call paths in order of ending."""
    return ["/".join(event.call_path) for event in profiler.events()]


def start_order(profiler):
    return ["/".join(e.call_path) for e in sorted(profiler.events(), key=lambda e: (e.start_ns, -e.end_ns))]


def place():
    """Where the calling context records: the profiler and the path."""
    return get_active_profiler(), current_path()


def check_nothing_left():
    """Nothing is active here, and nothing closed is kept in any context."""
    assert current_path() is None
    gc.collect()
    gc.collect()
    state = info()
    assert (state["live"], state["stale"]) == (0, 0)
