"""python -m enigma is the enigma command of this package."""

import os
import subprocess
import sys

import enigma
import pytest
from enigma.__main__ import find_command


def run(*args):
    return subprocess.run([sys.executable, "-m", "enigma", *map(os.fspath, args)], capture_output=True, text=True)


@pytest.fixture(autouse=True)
def command():
    if find_command() is None:
        pytest.skip("this build has no enigma command")


def test_it_reads_what_the_package_saves(fake, clock, tmp_path):
    with enigma.profile() as profiler:
        with enigma.scope("a scope"):
            clock.advance(1_000)
            fake.prepare("a_kernel").dispatch((1, 1, 1), (1, 1, 1))
    profiler.save(tmp_path / "x.enigma")
    done = run("report", tmp_path / "x.enigma")
    assert done.returncode == 0, done.stderr
    assert "a scope" in done.stdout and "a_kernel" in done.stdout


def test_its_exit_status_is_passed_on(tmp_path):
    done = run("report", tmp_path / "missing.enigma")
    assert done.returncode != 0 and "missing.enigma" in done.stderr
    assert run("--help").returncode == 0
