"""The demos of `make demo`, run whole: their results are correct, and what they print and write agrees with itself."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77


def build_dir():
    folder = os.environ.get("ENIGMA_BUILD_DIR")
    if folder is None:
        pytest.skip("ENIGMA_BUILD_DIR does not say where the C demo and the command are")
    return Path(folder)


def run_demo(command, folder):
    result = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=240)
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout + result.stderr)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def terrain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terrain")
    return folder, run_demo([sys.executable, ROOT / "examples/demo_terrain.py"], folder)


@pytest.fixture(scope="module")
def poisson(tmp_path_factory):
    folder = tmp_path_factory.mktemp("poisson")
    return folder, run_demo([build_dir() / "examples/demo_poisson"], folder)


@pytest.fixture(params=["terrain", "poisson"])
def demo(request):
    folder, output = request.getfixturevalue(request.param)
    return request.param, folder, output


# ---- Reading what is printed ---------------------------------------------------------------------------------------


def section(output, title):
    """The lines under a title, up to the next one."""
    lines = output.split(f"\n{title}\n\n", 1)[1].splitlines()
    end = next((i for i in range(1, len(lines)) if not lines[i - 1] and re.match(r"[A-Z]", lines[i])), len(lines))
    return [line for line in lines[:end] if line]


def table(output, title):
    """The rows of a table: a dict for each, by column title."""
    heads, rule, *lines = section(output, title)
    spans = [(match.start(), match.end()) for match in re.finditer("-+", rule)]
    return [{heads[a:b].strip(): line[a:b].strip() for a, b in spans} for line in lines]


def kernels(rows):
    """Calls and GPU time by kernel."""
    found = {}
    for row in rows:
        if row["Kernel"]:
            calls, us = found.get(row["Kernel"], (0, 0.0))
            found[row["Kernel"]] = calls + int(row["Calls"]), us + float(row["GPU total us"])
    return found


def tree(output):
    """(depth, name, calls, cpu, gpu) of each node."""
    line = re.compile(r"^( *)(.*?) +calls +(\d+) +cpu +([\d.]+) +gpu +([\d.]+)$")
    matches = [line.match(text) for text in section(output, "Call tree")]
    nodes = [match.groups() for match in matches if match]
    return [(len(indent) // 2, name, int(calls), float(cpu), float(gpu)) for indent, name, calls, cpu, gpu in nodes]


# ---- The tests -----------------------------------------------------------------------------------------------------


def test_results_are_correct(demo):
    name, _, output = demo
    verdicts = re.findall(r": (correct|WRONG)$", output, re.M)
    assert verdicts == ["correct"] * {"terrain": 4, "poisson": 2}[name]


def test_every_dispatch_is_counted(terrain, poisson):
    by_name = kernels(table(terrain[1], "Rows by name"))
    assert {kernel: calls for kernel, (calls, _) in by_name.items()} == {
        "smooth": 1,
        "hillshade": 3,
        "sky_view": 1,
        "histogram": 1,
    }
    iterations = sum(map(int, re.findall(r"(\d+) iterations", poisson[1])))
    by_name = kernels(table(poisson[1], "Rows by name"))
    assert by_name.pop("dot_product")[0] == 2 * iterations
    assert [calls for calls, _ in by_name.values()] == [iterations] * 5


def test_device_time_is_the_same_in_every_view(demo):
    _, _, output = demo
    by_name, by_path = (table(output, title) for title in ("Rows by name", "Rows by call path"))
    assert all(us > 0 for _, us in kernels(by_name).values())
    for kernel, (calls, us) in kernels(by_path).items():
        assert kernels(by_name)[kernel] == (calls, pytest.approx(us, abs=0.01))
    roots = sum(gpu for depth, *_, gpu in tree(output) if depth == 0)
    assert roots == pytest.approx(sum(us for _, us in kernels(by_name).values()), abs=0.1)


def test_contexts_have_paths_of_their_own(terrain, poisson):
    names = [row["Name"] for row in table(terrain[1], "Rows by call path")]
    for hour in ("09:00", "12:00", "17:00"):
        assert f"relief/sun at {hour}/gpu_dispatch:hillshade" in names
    assert "relief/sky/gpu_dispatch:sky_view" in names
    assert [name for depth, name, *_ in tree(terrain[1]) if depth == 0] == ["relief"]
    assert {name for depth, name, *_ in tree(poisson[1]) if depth == 0} == {"charges", "waves"}


def test_rates_come_from_the_work_counts(poisson):
    points = 256 * 256
    rows = {row["Kernel"] or row["Name"]: row for row in table(poisson[1], "Rows by name")}
    for name, flops, moved in [("laplacian", 5, 8), ("update", 4, 24), ("direction", 2, 12), ("dot_product", 2, 8)]:
        average_us = float(rows[name]["GPU avg us"])
        assert float(rows[name]["GFLOP/s"]) == pytest.approx(flops * points / average_us / 1000, rel=0.01, abs=0.01)
        assert float(rows[name]["GB/s"]) == pytest.approx(moved * points / average_us / 1000, rel=0.01, abs=0.01)
    assert rows["step_turn"]["GFLOP/s"] == "-"
    assert float(rows["iterate"]["GFLOP/s"]) > 0


def test_benchmark_line(demo):
    _, _, output = demo
    (line,) = section(output, "Benchmark, device time only")
    times = [float(value) for value in re.findall(r"([\d.]+) us", line)]
    smallest, median, _, p90, largest = times
    assert 0 < smallest <= median <= p90 <= largest
    assert "GFLOP/s" in line and "GB/s" in line


def test_files_hold_what_was_printed(demo):
    name, folder, output = demo
    trace = json.loads((folder / f"demo_{name}.trace.json").read_text())
    dispatches = sum(calls for calls, _ in kernels(table(output, "Rows by name")).values())
    assert (
        len([e for e in trace["traceEvents"] if e["ph"] == "X" and e["name"].startswith("gpu_dispatch:")]) == dispatches
    )
    assert isinstance(json.loads((folder / f"demo_{name}.hatchet.json").read_text()), list)
    for file in folder.iterdir():
        assert str(file) in output


def test_the_command_reads_the_saved_profile(demo):
    name, folder, output = demo
    command = [build_dir() / "bin/enigma", "report", folder / f"demo_{name}.enigma", "--by", "path"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() == section(
        output, "Rows by call path"
    )
