"""python -m enigma: the enigma command that belongs to this package."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find_command():
    """The command beside this interpreter, of the build tree this package lies in, or on the PATH."""
    package = Path(__file__).absolute().parent
    places = [Path(sysconfig.get_path("scripts")), package.parents[1] / "bin"]
    return shutil.which("enigma", path=os.pathsep.join(map(str, places))) or shutil.which("enigma")


def main():
    command = find_command()
    if command is None:
        sys.exit("enigma: the enigma command is not installed beside this package")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
