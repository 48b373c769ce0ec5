"""Random operations on many contexts, compared with a model. Copies of a context are the only thing that shares a stack; scopes and
profilers may be left in any order from any context."""

import contextvars
import gc
import random

import pytest
from scope_helpers import PORTABLE, check_nothing_left, info, place

from enigma import profile, scope

NOWHERE = (None, None)


class Frame:
    """A scope or, without an object, the entry of a profiler. places: where it may be, by what the model cannot know. A frame
    that is left in order stays open for those who copied it."""

    def __init__(self, entry, places):
        self.entry, self.places, self.stale = entry, places, False

    def closed(self, live):
        return self.stale or all(profiler not in live for profiler, _ in self.places)


class Context:
    """own: frames opened here, outermost first. base: what was inherited, once known; before, source and what it had then."""

    def __init__(self, context, base=None, source=None, model=None):
        self.context, self.own, self.base = context, [], base
        self.origin = source and (source.base, source.origin, list(source.own), set(model.effective(source)))
        self.chain = source.chain + source.own if source else []


class Model:
    def __init__(self, seed, others):
        self.rnd = random.Random(seed)
        self.others = [contextvars.ContextVar("m%d" % i) for i in range(others)]
        self.contexts = [Context(contextvars.Context(), NOWHERE)]
        self.frames, self.live, self.outer = [], {}, {}
        self.exact = 0

    def resolve(self, found):
        while found[0] is not None and found[0] not in self.live:
            found = self.outer[found[0]]
        return found

    def late(self, origin):
        """What may be inherited: a scope that is closed elsewhere between the copy and its first use may or may not count."""
        base, source, own, now = origin
        now = set(now)
        for frame in reversed(own):
            now |= frame.places
            if not frame.closed(self.live):
                return now
        return now | ({base} if base is not None else self.late(source))

    def effective(self, context):
        frames = context.chain + context.own if PORTABLE else context.own
        for frame in reversed(frames):
            if not frame.closed(self.live):
                return {self.resolve(p) for p in frame.places}
        if PORTABLE:
            return {NOWHERE}
        inherited = {context.base} if context.base is not None else self.late(context.origin)
        return {self.resolve(p) for p in inherited}

    def settle(self, context):
        while context.own and context.own[-1].closed(self.live):
            context.own.pop()

    # ---- operations

    def enter_scope(self, context):
        if len(self.frames) >= 60:
            return
        self.settle(context)
        name = self.rnd.choice("abc")
        entry = scope(name)
        now = self.effective(context)
        context.context.run(entry.__enter__)
        recorded = {(p, path + (name,)) for p, path in now if p is not None}
        if recorded and len(recorded) == len(now):
            frame = Frame(entry, recorded)
            context.own.append(frame)
            self.frames.append(frame)
        else:  # not recorded, or nobody knows: leave it at once
            context.context.run(entry.__exit__, None, None, None)

    def leave_scope(self, context):
        if not self.frames:
            return
        frame = self.rnd.choice(self.frames)
        own = [f for f in context.own if f.entry and not f.closed(self.live)]
        if own and self.rnd.random() < 0.7:  # mostly in order
            frame = own[-1]
        self.settle(context)
        context.context.run(frame.entry.__exit__, None, None, None)
        self.frames.remove(frame)
        if context.own and context.own[-1] is frame:
            context.own.pop()
        else:
            frame.stale = True

    def enter_profiler(self, context):
        if len(self.live) >= 6:
            return
        self.settle(context)
        profiler = profile()
        self.outer[profiler] = context.context.run(place)
        context.context.run(profiler.__enter__)
        self.live[profiler] = True
        self.note(context, self.outer[profiler])
        context.own.append(Frame(None, {(profiler, self.outer[profiler][1] or ())}))

    def leave_profiler(self, context):
        if len(self.live) > 1:
            profiler = self.rnd.choice(list(self.live))
            context.context.run(profiler.__exit__, None, None, None)
            del self.live[profiler]

    def copy(self, context):
        if len(self.contexts) < 25:
            self.contexts.append(Context(context.context.copy(), source=context, model=self))

    def drop(self, context):
        if len(self.contexts) > 1:
            self.contexts.remove(context)

    def set_other(self, context):
        if self.others:
            context.context.run(self.rnd.choice(self.others).set, object())

    def look(self, context):
        found = context.context.run(place)
        self.settle(context)
        wanted = self.effective(context)
        assert found in wanted
        self.exact += len(wanted) == 1
        self.note(context, found)

    def note(self, context, found):
        if not context.own:
            context.base = found

    OPERATIONS = (
        (enter_scope, 30),
        (leave_scope, 30),
        (copy, 15),
        (drop, 5),
        (set_other, 10),
        (enter_profiler, 3),
        (leave_profiler, 2),
        (look, 20),
    )

    def run(self, steps):
        operations, weights = zip(*self.OPERATIONS)
        self.enter_profiler(self.contexts[0])
        for operation in self.rnd.choices(operations, weights, k=steps):
            operation(self, self.rnd.choice(self.contexts))
        for frame in self.frames:
            frame.entry.__exit__(None, None, None)
        for profiler in list(self.live):
            profiler.__exit__(None, None, None)
        for context in self.contexts:
            assert context.context.run(place) == NOWHERE
        return self.exact


@pytest.mark.parametrize("others", [0, 2, 12, 60])
def test_random_operations(others):
    gc.collect()
    assert info()["live"] == 0
    exact = 0
    for seed in range(150):
        exact += Model(seed * 100 + others, others).run(400)
    check_nothing_left()
    assert exact > 3000
