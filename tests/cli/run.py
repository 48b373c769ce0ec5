#!/usr/bin/env python3
"""Runs one test of the enigma command: run.py [--set-exact-output] <enigma> <fixture> <test.sh>

The script runs under sh in the working folder, with $ENIGMA the command and $FIXTURE the program that writes a profile
with known numbers (fixture.c). Its standard output is compared with <test>.stdout.exact, or line by line with
<test>.stdout.glob, where a line that is ** stands for any number of lines. --set-exact-output writes the .exact file
anew instead: look at git diff afterwards.
"""

import difflib
import fnmatch
import os
import subprocess
import sys
from pathlib import Path

TIME_LIMIT_S = 120
SKIPPED = 77


def run(command, fixture, script):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ENIGMA_")}
    environment |= {"ENIGMA": command, "FIXTURE": fixture, "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["sh", "-u", script], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=TIME_LIMIT_S
    )


def matches(patterns, lines):
    """Whether the lines are what the patterns say."""
    if not patterns:
        return not lines
    if patterns[0] == "**":
        return any(matches(patterns[1:], lines[skipped:]) for skipped in range(len(lines) + 1))
    return bool(lines) and fnmatch.fnmatchcase(lines[0], patterns[0]) and matches(patterns[1:], lines[1:])


def difference(expected, actual, name):
    return "\n".join(difflib.unified_diff(expected, actual, name, "output", lineterm=""))


def compare(script, output):
    """What is wrong with the output; empty: nothing."""
    exact, glob = script.with_suffix(".stdout.exact"), script.with_suffix(".stdout.glob")
    lines = output.decode(errors="backslashreplace").splitlines()
    if exact.exists():
        return "" if output == exact.read_bytes() else difference(exact.read_text().splitlines(), lines, exact.name)
    if glob.exists():
        patterns = glob.read_text().splitlines()
        return "" if matches(patterns, lines) else difference(patterns, lines, glob.name)
    return f"there is neither {exact.name} nor {glob.name}"


def main(arguments):
    rewrite = "--set-exact-output" in arguments
    command, fixture, script = (argument for argument in arguments if argument != "--set-exact-output")
    result = run(command, fixture, script)
    if result.returncode == SKIPPED:
        print(result.stdout.decode(errors="backslashreplace"))
        return SKIPPED
    if result.returncode != 0:
        print(result.stdout.decode(errors="backslashreplace"))
        print(f"{script}: exit code {result.returncode}")
        return 1
    if rewrite:
        Path(script).with_suffix(".stdout.exact").write_bytes(result.stdout)
        return 0
    problem = compare(Path(script), result.stdout)
    print(problem or "as expected")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
