"""The tests of scopes and contexts once more in the other mode, which is chosen when the module is loaded."""

import os
import pathlib
import subprocess
import sys

import pytest
from scope_helpers import PORTABLE

HERE = pathlib.Path(__file__).parent
FILES = sorted(p.name for p in HERE.glob("test_context*.py") if p.name != pathlib.Path(__file__).name) + ["test_scope.py"]


@pytest.mark.skipif(PORTABLE, reason="this is the portable mode")
def test_everything_in_portable_mode():
    environment = dict(os.environ, ENIGMA_PORTABLE_CONTEXT="1")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *FILES],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
