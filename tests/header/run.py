"""Compiles enigma.h as a user would, by every compiler that is there, and runs the C++ program.

run.py <include> <library> --flags=<flags>
"""

import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-Wshadow"]
C_STANDARDS = ["c99", "c11", "c17"]
CPP_STANDARDS = ["c++11", "c++14", "c++17", "c++20"]


def compiles(compiler, standard, source, *rest):
    command = [compiler, f"-std={standard}", *STRICT, source, *rest]
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=False).returncode == 0


def main():
    include, library, flags = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3].removeprefix("--flags=").split()
    failed, tried = 0, 0
    for compilers, standards, source in (
        (("gcc", "clang", "cc"), C_STANDARDS, HERE / "use.c"),
        (("g++", "clang++", "c++"), CPP_STANDARDS, HERE / "use.cpp"),
    ):
        for compiler in filter(shutil.which, compilers):
            for standard in standards:
                tried += 1
                failed += not compiles(compiler, standard, source, f"-I{include}", "-fsyntax-only")
    if shutil.which("c++"):
        link = [*flags, "-o", "use", "-L", library.parent, f"-Wl,-rpath,{library.parent}", "-lenigma"]
        failed += not compiles("c++", "c++11", HERE / "use.cpp", f"-I{include}", *link)
        failed += not failed and subprocess.run(["./use"], check=False).returncode != 0
    print(f"{tried} ways to compile it, {failed} failed")
    return failed != 0 or tried == 0


if __name__ == "__main__":
    sys.exit(main())
