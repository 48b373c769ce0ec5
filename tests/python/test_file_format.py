"""docs/file-format.md is enough to write a reader: this one is written from it, and must see what the library sees."""

import math
import struct

import enigma
import pytest

NAMES, NODES, CATEGORIES, LAUNCHES, DEVICES, PAIRS, FIELDS, PIECES, RECORDS, SIDE = range(10)
SCRIPTED = 1 << 63


class File:
    """An .enigma file by the page's words, without the library."""

    def __init__(self, data):
        magic, version, header_size, self.pid, _, self.dropped, self.end_ticks = struct.unpack_from("<8sIIIIQQ", data)
        assert (magic, version, header_size) == (b"ENIGMA\r\n", 1, 64)
        self.streams, self.thread_ids = {}, {}
        at = 64
        while at < len(data):
            chunk, stream, _, owner, _, base, capacity, used, thread_id = struct.unpack_from("<IHHIIQQQQ", data, at)
            assert chunk == 0x4B4E4843 and capacity % 8 == used % 8 == 0 and used <= capacity
            content = self.streams.setdefault((stream, owner), {})
            content[base] = data[at + 64 : at + 64 + used]
            self.thread_ids[owner] = thread_id
            at += 64 + capacity
        assert at == len(data)
        for key, parts in self.streams.items():
            self.streams[key] = b"".join(parts[base] for base in sorted(parts))

    def entries(self, layout, stream, owner=0):
        return list(struct.iter_unpack("<" + layout, self.streams.get((stream, owner), b"")))

    def name(self, offset):
        if offset == 0:
            return None
        names = self.streams[NAMES, 0]
        (size,) = struct.unpack_from("<I", names, offset * 8)
        return names[offset * 8 + 4 : offset * 8 + 4 + size].decode()

    def ns(self, ticks):
        if ticks & SCRIPTED:
            return ticks - SCRIPTED
        pieces = self.entries("QQd", PIECES)
        if not pieces:
            return ticks
        start, ns, rate = (
            [piece for piece in pieces if piece[0] <= ticks][-1:][0] if pieces[0][0] <= ticks else pieces[0]
        )
        return (
            ns + math.floor((ticks - start) * rate)
            if ticks >= start
            else max(0, ns - math.ceil((start - ticks) * rate))
        )

    def paths(self, index):
        """(node path, call path) of a node."""
        nodes = self.entries("IIII", NODES)
        path, call_path = [], []
        while index != 0:
            index, name, kernel, runtime = nodes[index]
            path.insert(0, self.name(name) + (":" + self.name(kernel) if kernel else ""))
            call_path[:0] = [] if runtime & 1 else [self.name(name)]
        return tuple(path), tuple(call_path)

    def field(self, data, at):
        """(key, value, where the next one begins)."""
        key, kind, payload = struct.unpack_from("<IIQ", data, at)
        at += 16
        if kind == 4:
            return self.name(key), data[at : at + payload].decode(), at + (payload + 8) // 8 * 8
        if kind < 4:
            simple = {0: "<8x", 1: "<?7x", 2: "<q", 3: "<d"}[kind]
            value = struct.unpack(simple, struct.pack("<Q", payload))
            return self.name(key), value[0] if value else None, at
        items = []
        for _ in range(payload):
            item_key, item, at = self.field(data, at)
            items.append((item_key, item))
        values = [item for _, item in items]
        return self.name(key), {5: values, 6: tuple(values), 7: dict(items)}[kind], at

    def side(self, owner, offset):
        """(id of a foreign parent, GPU block, metrics, metadata) of a record."""
        data, blocks = self.streams.get((SIDE, owner), b""), []
        while offset != 0:
            blocks.insert(0, offset * 8)
            (offset,) = struct.unpack_from("<I", data, offset * 8)
        parent, gpu, metrics, metadata = 0, None, {}, {}
        for at in blocks:
            _, metric_count, field_count, flags = struct.unpack_from("<IHBB", data, at)
            at += 8
            if flags & 1:
                (parent,), at = struct.unpack_from("<Q", data, at), at + 8
            if flags & 2:
                gpu, at = struct.unpack_from("<QQQII", data, at), at + 32
            for _ in range(metric_count):
                key, _, value = struct.unpack_from("<IId", data, at)
                metrics[self.name(key)], at = value, at + 16
            for _ in range(field_count):
                key, value, at = self.field(data, at)
                metadata[key] = value
        return parent, gpu, metrics, metadata

    def gpu_time_us(self, gpu):
        start, end, _, launch, status = gpu
        device = self.launch(launch)[10]
        tick_ns, bits = self.entries("dII16x", DEVICES)[device][:2] if device != 0xFFFFFFFF else (1.0, 64)
        return (end - start) % (1 << bits) * tick_ns / 1000 if status == 1 else 0.0

    def launch(self, index):
        return self.entries("3Q3QQQIIIII12x", LAUNCHES)[index]

    def events(self):
        """A dict for each event, thread by thread."""
        categories = [self.name(name) for name, _ in self.entries("II", CATEGORIES)]
        for owner in sorted(owner for stream, owner in self.streams if stream == RECORDS):
            for start, end, node, _, side, kind, category, flags, _ in self.entries("QQIIIBBBB", RECORDS, owner):
                if end == 0 and self.end_ticks == 0:
                    continue
                _, gpu, metrics, metadata = self.side(owner, side)
                start_ns, (path, call_path) = self.ns(start), self.paths(node)
                yield {
                    "node_path": path,
                    "call_path": call_path,
                    "category": categories[category],
                    "start_ns": start_ns,
                    "end_ns": max(start_ns, self.ns(end or self.end_ticks)),
                    "thread_id": self.thread_ids[owner],
                    "metrics": metrics,
                    "written": metadata,
                    "unfinished": end == 0 or flags & 1 == 1,
                    "gpu": gpu if kind == 1 else None,
                }


def record(fake, clock):
    """Scopes with all kinds of metadata, GPU work that is valid and not, an open scope, a thread."""
    kernel = fake.prepare("k", [b"1234"], 8)
    with enigma.profile(profile_memory=True) as prof:
        left_open = enigma.scope("open", note=None)
        left_open.__enter__()
        with enigma.scope(
            "päth/ü", metrics={"flops": 1.5, "n": 2}, a=True, b=-7, c=2.5, d="é", e=[1, "x", ()], f={"g": {}}
        ):
            clock.advance(1_000)
            fake.script([(5_000, 9_250), None])
            kernel.dispatch((64, 2, 1), (32, 1, 1), metrics={"bytes": 64})
            with enigma.record_function(""):
                kernel.dispatch((64, 1, 1), (64, 1, 1))
        clock.advance(500)
    return prof


def same_event(file, seen, event):
    assert (seen["node_path"], seen["call_path"]) == (event.node_path, event.call_path)
    for field in ("category", "start_ns", "end_ns", "thread_id", "metrics"):
        assert seen[field] == getattr(event, field), field
    assert seen["written"].items() <= event.metadata.items()
    assert seen["unfinished"] == event.metadata.get("unfinished", False)
    if seen["gpu"] is not None:
        launch = file.launch(seen["gpu"][3])
        assert file.gpu_time_us(seen["gpu"]) == pytest.approx(event.gpu_time_us, rel=1e-12)
        assert (launch[0:3], launch[3:6]) == (event.grid, event.threads)
        assert launch[6:9] == (event.input_bytes, event.output_bytes, event.buffer_count)


def compare(prof, path):
    prof.save(path)
    file = File(path.read_bytes())
    key = lambda event: (event["end_ns"], event["start_ns"], event["node_path"])  # noqa: E731
    seen = sorted(file.events(), key=key)
    events = sorted(prof.events(), key=lambda e: (e.end_ns, e.start_ns, e.node_path))
    assert len(seen) == len(events)
    for one, event in zip(seen, events, strict=True):
        same_event(file, one, event)
    return file


def test_a_reader_written_from_the_page_sees_the_same(fake, clock, tmp_path):
    file = compare(record(fake, clock), tmp_path / "p.enigma")
    assert file.dropped == 0 and file.end_ticks != 0
    (device,) = file.entries("dII16x", DEVICES)
    assert device[:2] == (1.0, 64)


def test_the_same_with_the_real_clock_and_threads(tmp_path):
    import contextvars
    import threading

    def work(name):
        with enigma.scope(name):
            pass

    with enigma.profile() as prof, enigma.scope("main"):
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(work, f"thread {i}")) for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    compare(prof, tmp_path / "p.enigma")
    assert {event.call_path for event in prof.events()} == {("main",), *(("main", f"thread {i}") for i in range(3))}
