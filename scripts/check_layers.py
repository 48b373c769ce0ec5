#!/usr/bin/env python3
"""Holds the walls of the house: who may include whom, tables that match their files, one place that escapes text, and no
exit, abort or printf in the library."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder: what it may include besides its own headers and enigma.h. An entry is a folder of src/ or a file.
LAYERS = {
    "src/base": [],
    "src/store": ["base"],
    "src/record": ["base", "store"],
    "src/abi": [],
    "src/backends": ["base"],  # and the abi headers of its own name
    "src/cupti": ["base", "abi/cupti_abi.h", "abi/cupti_symbols.def", "abi/cuda_abi.h", "abi/cuda_symbols.def"],
    "src/attach": ["base", "store", "record", "cupti/cupti.h", "abi/cuda_abi.h"],
    "src/gpu": ["base", "backends/backend.h", "store", "record"],
    "src/aggregate": ["base", "store"],
    "src/present": ["base", "store", "aggregate"],
    "src/bench": ["base", "store", "record", "gpu", "aggregate"],
    "tool": [],
    "python/src": [],
    "preload": [],  # and the abi headers of its own name
    "tests/api": [],
    "tests/oom": [],
    "examples": [],
}

# Backend: the folder of its vendor's tracing library, which it alone may include.
VENDOR_TOOLS = {"cuda": "cupti"}

# Table: (macros of its rows, file of a row, files that need a row).
TABLES = {
    "src/attach/attachers.def": ("ENI_ATTACHER", "src/attach/{}.c", r"\bconst eni_attacher eni_attacher_(\w+) ="),
    "src/backends/backends.def": ("ENI_BACKEND", "src/backends/{}.c", r"\bconst eni_backend eni_backend_(\w+) ="),
    "src/present/exporters.def": ("ENI_EXPORTER", "src/present/{}.c", r"\beni_export_(\w+)\(.*\n?\{"),
    "tool/commands.def": ("ENIGMA_COMMAND", "tool/cmd_{}.c", r"\bcli_command_body cli_(\w+)"),
    "preload/interceptors.def": ("ENIGMA_INTERCEPTOR", "preload/{}.c", None),
}
WITHOUT_ROW = {"scripted"}  # the testing backend is never chosen by name

FORBIDDEN = re.compile(r"(?<![\w.>])(exit|_exit|_Exit|abort|printf|vprintf|puts|putchar|perror|system)\s*\(")
STDERR = re.compile(r"\b(stdout|stderr)\b")
ESCAPES = re.compile(r"\\\\u00|\\\\u%|'\\\\\\\\'|\"\\\\\\\\\\\\\"")  # writing \u00xx or a backslash is escaping
ESCAPERS = {"json_write.c": "for JSON", "shown.c": "for terminals"}


def code_of(path):
    """A file without comments; line numbers stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, path.read_text(), flags=re.S)


def files(folder, suffixes=(".c", ".h", ".def")):
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in suffixes)


def own_abi(path):
    """opencl.c, opencl_queue.c and opencl_layer.c may include abi/opencl_*."""
    return rf"abi/{path.stem.split('_')[0]}_(abi\.h|symbols\.def)"


def include_allowed(path, folder, included):
    if included == "enigma.h":
        return True
    if folder in ("src/backends", "preload") and re.fullmatch(own_abi(path), included.removeprefix("src/")):
        return True
    if folder == "src/backends" and included.split("/")[0] == VENDOR_TOOLS.get(path.stem.split("_")[0]):
        return True
    if folder == "src/backends" and included.startswith("backends/"):  # its own headers alone
        stem = path.stem.split("_")[0]
        return included in ("backends/backend.h", "backends/backends.def") or included.startswith(f"backends/{stem}")
    if folder == "src/abi":
        return re.fullmatch(own_abi(path), included) is not None
    if folder.startswith("src/"):
        own = folder.removeprefix("src/")
        return any(included == entry or included.startswith(entry + "/") for entry in [own, *LAYERS[folder]])
    if folder == "tests/oom" and included == "../api/support.h":  # which includes enigma.h alone
        return True
    return (path.parent / included).exists() and ".." not in included


def check_includes():
    for folder in LAYERS:
        for path in files(folder):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if match and not include_allowed(path, folder, match[1]):
                    yield f"{path.relative_to(ROOT)}:{number}: {folder} may not include {match[1]}"


def check_folders():
    for path in sorted((ROOT / "src").iterdir()):
        if path.is_dir() and f"src/{path.name}" not in LAYERS:
            yield f"src/{path.name}: a folder without a rule in scripts/check_layers.py"


def check_tables():
    for table, (macro, pattern, definition) in TABLES.items():
        if not (ROOT / table).exists():
            continue
        rows = re.findall(rf"^{macro}\((\w+)", code_of(ROOT / table), re.M)
        for row in rows:
            if not (ROOT / pattern.format(row)).exists():
                yield f"{table}: row {row} has no file {pattern.format(row)}"
        for path in files(pathlib.Path(table).parent, (".c",)):
            for name in re.findall(definition, code_of(path)) if definition else []:
                if name not in rows and name not in WITHOUT_ROW:
                    yield f"{path.relative_to(ROOT)}: {name} has no row in {table}"


def check_words():
    for path in files("src"):
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(code_of(path).splitlines(), 1):
            if FORBIDDEN.search(line) and "format(printf" not in line:
                yield f"{name}:{number}: the library never exits, aborts or prints: {line.strip()}"
            if STDERR.search(line):
                yield f"{name}:{number}: only base/log.c writes to standard error"
            if ESCAPES.search(line) and path.name not in ESCAPERS:
                yield f"{name}:{number}: only {' and '.join(ESCAPERS)} escape text"


def main():
    failures = [*check_includes(), *check_folders(), *check_tables(), *check_words()]
    print("\n".join(failures) or "the layers hold")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
