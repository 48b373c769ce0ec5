#!/usr/bin/env python3
"""Writes docs/reference.md from include/enigma.h and src/base/settings.def; with --check only says whether it is up to date."""

import re
import sys

import header

OUTPUT = header.ROOT / "docs" / "reference.md"
SETTINGS = header.ROOT / "src" / "base" / "settings.def"

INTRO = """# C reference

Generated from `include/enigma.h` and `src/base/settings.def` by `scripts/gen_reference.py` (`make docs`); edit those.
"""


def manual():
    """The header's own first comment, without the list of contents."""
    text = header.clean_comment(re.match(r"/\*.*?\*/", header.HEADER.read_text(), re.S)[0])
    paragraphs = [p for p in text.split("\n\n") if not re.match(r"\s*1 Version", p)]
    return "\n\n".join(prose(p) for p in paragraphs)


def code_of(declaration):
    code = declaration.code
    if declaration.inline:
        code = code[: code.index("{")].rstrip() + ";"
    if declaration.kind == "macro" and "(literal)" in code:  # how it is made says nothing to a caller
        code = code[: code.index(")") + 1] + " ..."
    return code.replace("ENIGMA_API ", "")


def prose(text):
    """Comment text as Markdown: what looks like markup is kept as it is."""
    return re.sub(r"([*<>|]|\b_|_\b|(?<=\*)_)", r"\\\1", " ".join(text.split()))


def entry(declaration):
    lines = [f"### {declaration.name}", "", "```c", code_of(declaration), "```", ""]
    fields = declaration.fields
    if fields[""]:
        lines += [prose(fields[""]), ""]
    lines += [f"- **{name}:** {prose(fields[name])}" for name in header.FIELDS if name in fields]
    return "\n".join(lines).rstrip() + "\n"


def settings():
    text = re.sub(r"/\*.*?\*/", "", SETTINGS.read_text(), flags=re.S)
    rows = re.findall(r'^ENI_SETTING\((\w+), \w+, "(\w+)", ([^,]+), "(.*)"\)$', text, re.M)
    lines = ["## Settings", "", "Read from the environment, once a process.", ""]
    lines += ["| variable | type | default | what it does |", "| --- | --- | --- | --- |"]
    for kind, name, fallback, help_text in rows:
        default = "not set" if fallback.strip() == "NULL" else f"`{fallback.strip()}`"
        lines.append(f"| `{name}` | {kind} | {default} | {prose(help_text)} |")
    return "\n".join(lines) + "\n"


def reference():
    sections, declarations = header.read()
    parts = [INTRO, manual() + "\n"]
    parts.append("\n".join(f"{number}. [{title}](#{anchor(title)})" for number, title in sections)
                 + f"\n{len(sections) + 1}. [Settings](#settings)\n")
    for _, title in sections:
        parts.append(f"## {title}\n")
        parts += [entry(d) for d in declarations if d.section == title and not header.is_private(d.name)]
    parts.append(settings())
    return "\n".join(parts)


def anchor(title):
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def main():
    text = reference()
    if sys.argv[1:] == ["--check"]:
        if not OUTPUT.exists() or OUTPUT.read_text() != text:
            print("docs/reference.md is stale: run make docs")
            return 1
        print("docs/reference.md is up to date")
        return 0
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
