"""Testing code that profiles, without a GPU: a runtime that reports what it is told, and a clock that moves when told.

    from enigma.testing import ScriptedRuntime, scripted_clock

    with scripted_clock() as clock:
        rt = ScriptedRuntime()
        kernel = rt.prepare("k")
        rt.script([(1_000, 101_000)])                       # the next dispatch: 100 us of device time
        with enigma.profile() as prof:
            kernel.dispatch((64, 1, 1), (64, 1, 1))
            clock.advance(5_000)

So that every number in a test is exact.
"""

from ._enigma import ScriptedRuntime, scripted_clock

__all__ = ["ScriptedRuntime", "scripted_clock"]
