"""Installs a build into a folder, moves that folder, and builds and runs a user's program against it: by CMake's package and
by pkg-config. run.py <cmake> <build> <compiler> --flags=<flags>"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def run(*command, **environment):
    print("+", *command, flush=True)
    return subprocess.run(
        [str(part) for part in command], check=True, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ).stdout


def by_cmake(cmake, prefix, compiler, flags):
    folder = pathlib.Path("by-cmake")
    run(cmake, "-S", HERE, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={compiler}",
        f"-DCMAKE_C_FLAGS={flags}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", folder)
    run(folder / "consumer")


def by_pkg_config(prefix, compiler, flags):
    if not shutil.which("pkg-config"):
        print("no pkg-config: that way was not tried")
        return
    (pc,) = prefix.rglob("enigma.pc")
    words = run("pkg-config", "--cflags", "--libs", "enigma", PKG_CONFIG_PATH=str(pc.parent)).split()
    library = next(word.removeprefix("-L") for word in words if word.startswith("-L"))
    run(compiler, *flags.split(), HERE / "consumer.c", "-o", "by-pkg-config", *words)
    run("./by-pkg-config", LD_LIBRARY_PATH=library)
    version = run("pkg-config", "--modversion", "enigma", PKG_CONFIG_PATH=str(pc.parent)).strip()
    installed = (prefix / "include" / "enigma.h").read_text()
    numbers = [installed.split(f"ENIGMA_VERSION_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH")]
    assert version == ".".join(numbers), version


def main():
    cmake, build, compiler, flags = sys.argv[1:]
    flags = flags.removeprefix("--flags=")
    for name in ("first", "moved", "by-cmake"):
        shutil.rmtree(name, ignore_errors=True)
    run(cmake, "--install", build, "--prefix", pathlib.Path("first").resolve())
    prefix = pathlib.Path("first").rename("moved").resolve()
    tool = prefix / "bin" / "enigma"
    if tool.exists():
        run(tool, "--help")
    by_cmake(cmake, prefix, compiler, flags)
    by_pkg_config(prefix, compiler, flags)


if __name__ == "__main__":
    main()
