#!/usr/bin/env python3
"""What libenigma exports is what enigma.h declares, and nothing else: check_exports.py <libenigma.so>."""

import subprocess
import sys

import header

# What instrumented builds add.
TOOLS = ("__asan_", "__tsan_", "__ubsan_", "__sanitizer_", "__gcov", "__llvm_", "__odr_asan")


def exported(library):
    """Names defined in the library's dynamic symbol table, without the versions and sections that some linkers add."""
    flags = ["-gU"] if sys.platform == "darwin" else ["-D", "--defined-only"]
    lines = subprocess.run(["nm", *flags, library], check=True, capture_output=True, text=True).stdout.splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines if line}
    if sys.platform == "darwin":
        names = {name.removeprefix("_") for name in names}
    return {name for name in names if not name.startswith(TOOLS)}


def declared():
    _, declarations = header.read()
    return {d.name for d in declarations if d.kind in ("function", "variable") and not d.inline}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    have, want = exported(sys.argv[1]), declared()
    failures = [f"{name} is exported and not declared in enigma.h" for name in sorted(have - want)]
    failures += [f"{name} is declared in enigma.h and not exported" for name in sorted(want - have)]
    print("\n".join(failures) or f"{len(have)} symbols are exported, as declared")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
