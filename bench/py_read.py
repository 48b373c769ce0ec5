"""What reading a million events costs in Python: the list of handles, the first and all of the iterator, one field of each.

The median over the rounds, in ms; exit status 1 when one is over its limit.
"""

import statistics
import sys
import time

import enigma

EVENTS = 1_000_000
ROUNDS = 5


def record():
    scope = enigma.scope
    with enigma.profile() as prof:
        for _ in range(EVENTS // 8):
            with scope("a"), scope("b"), scope("c"), scope("d"), scope("e"), scope("f"), scope("g"), scope("h"):
                pass
    return prof


def drain(iterator):
    for _ in iterator:
        pass


def timed(function, *args):
    start = time.perf_counter()
    result = function(*args)
    taken = (time.perf_counter() - start) * 1e3
    del result
    return taken


def measure_once(prof, take):
    take("first look: seals, first event", lambda: next(prof.iter_events()))
    take("first event", lambda: next(prof.iter_events()))
    take("iter_events(), all", lambda: drain(prof.iter_events()))
    take("events()", prof.events)
    events = prof.events()
    take("one field of each", lambda: sum(event.duration_us for event in events))
    take("key_averages()", prof.key_averages)
    take("tree()", prof.tree)


def measure():
    samples = {}

    def take(name, function, *args):
        samples.setdefault(name, []).append(timed(function, *args))

    for _ in range(ROUNDS):
        measure_once(record(), take)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def main():
    limits = {"events()": 200.0, "key_averages()": 50.0, "tree()": 50.0, "first event": 1.0}
    over = 0
    print("A million events read in Python, ms, CPython %s" % sys.version.split()[0])
    for name, ms in measure().items():
        limit = limits.get(name)
        bad = limit is not None and ms > limit
        over += bad
        note = "" if limit is None else "  limit %.0f%s" % (limit, "  OVER" if bad else "")
        print("  %-32s %8.3f%s" % (name, ms, note))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
