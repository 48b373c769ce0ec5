"""What the documentation shows: its Python blocks run and print what stands below them, its C compiles and runs."""

import contextlib
import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import enigma
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/guide.md"]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def sections():
    """The blocks of each section that has Python, as (language, text)."""
    for page in PAGES:
        parts = re.split(r"^## (.*)$", (ROOT / page).read_text(), flags=re.M)
        for heading, text in zip(["", *parts[1::2]], parts[0::2], strict=True):
            blocks = [block for block in FENCE.findall(text) if block[0] in ("python", "text")]
            if blocks:
                yield pytest.param(blocks, id=f"{page}: {heading}")


def run_python(text, namespace):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(text, "block", "exec"), namespace)
    return output.getvalue()


@pytest.mark.parametrize("blocks", list(sections()))
def test_python_blocks(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if any('enigma.Runtime("opencl")' in text for _, text in blocks):
        try:
            enigma.Runtime("opencl")
        except RuntimeError as error:
            pytest.skip(str(error))
    namespace, printed = {"__name__": "__main__"}, ""
    with contextlib.ExitStack() as ends:  # blocks begin a scripted clock without an end, to be short
        for language, text in blocks:
            if language == "python":
                printed = run_python(text, namespace)
                if "clock" in namespace:
                    ends.callback(namespace.pop("clock").__exit__, None, None, None)
            else:
                assert printed.strip("\n").splitlines() == text.strip("\n").splitlines()


def c_blocks():
    for page in PAGES:
        for language, text in FENCE.findall((ROOT / page).read_text()):
            if language == "c":
                yield pytest.param(text, id=page)


@pytest.mark.parametrize("text", list(c_blocks()))
def test_c_blocks(text, tmp_path):
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path / "block"
    source = tmp_path / "block.c"
    source.write_text("#include <enigma.h>\n" + text)
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", f"-I{ROOT / 'include'}"]
    if "int main" not in text:
        subprocess.run([compiler, *warnings, "-fsyntax-only", source], check=True)
        return
    folder = os.environ.get("ENIGMA_BUILD_DIR")
    if folder is None:
        pytest.skip("ENIGMA_BUILD_DIR does not say where the library is")
    library = Path(folder) / "lib"
    subprocess.run(
        [compiler, *warnings, source, f"-L{library}", f"-Wl,-rpath,{library}", "-lenigma", "-o", program], check=True
    )
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert re.search(r"^work  .*cpu", output, re.M)


@pytest.mark.parametrize(
    "page", [*PAGES, "CONTRIBUTING.md", "docs/decisions.md", "docs/file-format.md", "src/README.md"]
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
