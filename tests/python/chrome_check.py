"""A strict checker of Chrome traces: everything that some reader of them takes amiss is an error here.

    trace = chrome_check.check_file(path)   # raises TraceError that says what is wrong and where
    trace.slices                            # [Slice], in file order; times in integer ns

Run as a program it checks the files named and prints a line for each.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
import sys

MAX_DEPTH = 512  # nested slices that the readers keep
PHASES = {"X", "M", "s", "f"}
NAMES = {"process_name", "thread_name"}
ORDERS = {"process_sort_index", "thread_sort_index"}


class TraceError(AssertionError):
    """What is wrong with a trace."""


class Decimal3(float):
    """A number that remembers how it was written."""

    text: str

    def __new__(cls, text):
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclasses.dataclass
class Slice:
    index: int
    pid: int
    tid: int
    start: int
    end: int
    name: str
    cat: str
    args: dict
    depth: int = 0

    @property
    def track(self):
        return self.pid, self.tid


@dataclasses.dataclass
class Flow:
    id: int
    launch: Slice
    target: Slice


@dataclasses.dataclass
class Trace:
    data: dict
    slices: list
    flows: list
    processes: dict  # pid to name
    threads: dict  # (pid, tid) to name
    metadata: dict
    base_ns: int

    def named(self, name):
        return [piece for piece in self.slices if piece.name == name]


def require(condition, *what):
    if not condition:
        raise TraceError(" ".join(str(part)[:300] for part in what))


# ---- text ------------------------------------------------------------------------------------------------------------


def _unique(pairs):
    keys = [key for key, _ in pairs]
    twice = [key for key, count in collections.Counter(keys).items() if count > 1]
    require(not twice, "key given twice:", twice)
    return dict(pairs)


def _no_constant(name):
    raise TraceError(f"bare {name}")


def parse(raw: bytes) -> dict:
    """Strict JSON as the readers take it."""
    require(not raw.startswith(b"\xef\xbb\xbf"), "byte order mark")
    require(re.match(rb'\s*\{\s*"', raw), "does not begin with an object:", raw[:20])
    text = raw.decode("utf-8", errors="strict")
    for escape in re.finditer(r"\\+u([0-9a-fA-F]{4})", text):
        backslashes = len(escape.group(0)) - 5
        if backslashes % 2 == 1:
            require(not 0xD800 <= int(escape.group(1), 16) < 0xE000, "surrogate escape at", escape.start())
    require(not re.search("[\ud800-\udfff]", text), "a surrogate")
    return json.loads(text, parse_float=Decimal3, parse_constant=_no_constant, object_pairs_hook=_unique)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _ns(event, key):
    """Microseconds with three decimals as integer ns."""
    value = event.get(key)
    require(isinstance(value, Decimal3), key, "is no decimal number in", event)
    match = re.fullmatch(r"(0|[1-9][0-9]*)\.([0-9]{3})", value.text)
    require(match, key, "is not written with three decimals:", value.text)
    return int(match.group(1)) * 1000 + int(match.group(2))


def _finite(value, where):
    if isinstance(value, dict):
        for key, inner in value.items():
            _finite(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            _finite(inner, where)
    elif isinstance(value, float):
        require(value == value and abs(value) != float("inf"), "not finite:", where)


# ---- events ----------------------------------------------------------------------------------------------------------


def _check_ids(event):
    for key in ("pid", "tid"):
        value = event.get(key)
        require(_is_int(value) and 0 < value < 2**32, key, "is no integer from 1 to 2**32 - 1 in", event)


def _take_slice(event, index):
    start, length = _ns(event, "ts"), _ns(event, "dur")
    for key in ("name", "cat"):
        require(isinstance(event.get(key), str), key, "is no text in", event)
    require(isinstance(event.get("args"), dict), "args is no object in", event)
    require(set(event) == {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"}, "keys", sorted(event))
    return Slice(index, event["pid"], event["tid"], start, start + length, event["name"], event["cat"], event["args"])


def _take_name(event, names):
    key = (event["name"], event["pid"]) + ((event["tid"],) if event["name"].startswith("thread") else ())
    require(key not in names, "named twice:", key)
    args = event.get("args")
    require(isinstance(args, dict) and len(args) == 1, "args of", event)
    if event["name"] in NAMES:
        require(isinstance(args.get("name"), str) and args["name"], "no name in", event)
        names[key] = args["name"]
    else:
        require(event["name"] in ORDERS and _is_int(args.get("sort_index")), "unknown metadata event", event)
        names[key] = args["sort_index"]


def _check_nesting(slices):
    tracks = collections.defaultdict(list)
    for piece in slices:
        tracks[piece.track].append(piece)
    for pieces in tracks.values():
        stack = []
        for piece in sorted(pieces, key=lambda p: (p.start, -p.end, p.index)):
            while stack and stack[-1].end <= piece.start:
                stack.pop()
            require(not stack or piece.end <= stack[-1].end, "overlap on a track:", piece, "and", stack[-1:])
            stack.append(piece)
            piece.depth = len(stack)
            require(len(stack) <= MAX_DEPTH, "deeper than", MAX_DEPTH, ":", piece)
    return tracks


def _bound(tracks, event, index, ns):
    """The slice that an arrow binds to: the innermost that is open at ns and written before it."""
    open_then = [p for p in tracks[event["pid"], event["tid"]] if p.start <= ns < p.end and p.index < index]
    require(open_then, "an arrow outside every slice:", event)
    return max(open_then, key=lambda p: p.depth)


def _check_flows(events, tracks):
    begins, flows, ended = {}, [], set()
    for index, event in enumerate(events):
        if event["ph"] not in ("s", "f"):
            continue
        ns = _ns(event, "ts")
        require(_is_int(event.get("id")), "the id is no integer in", event)
        require(isinstance(event.get("name"), str) and isinstance(event.get("cat"), str), "name or cat of", event)
        if event["ph"] == "s":
            require(event["id"] not in begins, "begun twice:", event)
            begins[event["id"]] = event, ns, _bound(tracks, event, index, ns)
            continue
        require(event.get("bp") == "e", "binding of", event)
        require(event["id"] in begins, "an arrow ends before it begins:", event)
        require(event["id"] not in ended, "ended twice:", event)
        begin, begin_ns, launch = begins[event["id"]]
        require((begin["name"], begin["cat"]) == (event["name"], event["cat"]), "name or cat differ:", event)
        require(begin_ns <= ns, "an arrow goes back in time:", event)
        flows.append(Flow(event["id"], launch, _bound(tracks, event, index, ns)))
        ended.add(event["id"])
    require(ended == set(begins), "arrows that do not end:", set(begins) - ended)
    return flows


def _check_head(data):
    require(data.get("displayTimeUnit") in ("ns", "ms"), "displayTimeUnit", data.get("displayTimeUnit"))
    base = data.get("baseTimeNanoseconds")
    require(_is_int(base) and base >= 0, "baseTimeNanoseconds", base)
    metadata = data.get("metadata")
    require(isinstance(metadata, dict), "metadata is no object")
    require(metadata.get("baseTimeNanoseconds") == base, "baseTimeNanoseconds of the metadata")
    for key in ("events", "dropped", "gpu_invalid", "gpu_unfinished", "gpu_skewed", "open_scopes", "folded_slices"):
        require(_is_int(metadata.get(key)) and metadata[key] >= 0, "count", key, metadata.get(key))
    return metadata, base


def check(raw: bytes) -> Trace:
    """Checks the bytes of a trace; raises TraceError."""
    data = parse(raw)
    metadata, base = _check_head(data)
    events = data.get("traceEvents")
    require(isinstance(events, list), "traceEvents is no list")
    _finite(data, "trace")
    slices, names = [], {}
    for index, event in enumerate(events):
        require(isinstance(event, dict) and event.get("ph") in PHASES, "phase of", event)
        _check_ids(event)
        if event["ph"] == "X":
            slices.append(_take_slice(event, index))
        elif event["ph"] == "M":
            _take_name(event, names)
    processes = {key[1]: name for key, name in names.items() if key[0] == "process_name"}
    threads = {key[1:]: name for key, name in names.items() if key[0] == "thread_name"}
    tracks = _check_nesting(slices)
    for pid, tid in tracks:
        require(pid in processes, "process without a name:", pid)
        require((pid, tid) in threads, "thread without a name:", (pid, tid))
        require(not processes[pid].startswith("GPU") or tid != pid, "a queue on the main thread of its process:", tid)
    require(not slices or min(piece.start for piece in slices) == 0, "the time base is not the earliest stamp")
    return Trace(data, slices, _check_flows(events, tracks), processes, threads, metadata, base)


def check_file(path) -> Trace:
    with open(path, "rb") as file:
        return check(file.read())


def main(paths):
    failed = 0
    for path in paths:
        try:
            trace = check_file(path)
            print(f"{path}: {len(trace.slices)} slices, {len(trace.threads)} tracks, {len(trace.flows)} arrows, good")
        except (TraceError, ValueError, OSError) as error:
            print(f"{path}: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
