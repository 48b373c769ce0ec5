#!/usr/bin/env python3
"""Every public declaration of enigma.h is documented in the one form: what it is; for functions Threads, Parameters (each named),
Returns and Free with, each exactly where it applies."""

import re
import sys

import header


def made_objects(declaration, free_functions):
    """The free functions of the objects that a function gives to its caller."""
    for text, name in declaration.parameters:
        match = re.match(r"(enigma_\w+) \*\*(\w+)$", text)
        if match and name.startswith("out") and match[1] + "_free" in free_functions:
            yield match[1] + "_free"


def check_function(declaration, free_functions):
    fields = declaration.fields
    if not fields[""]:
        yield "says nothing about what it does"
    if not fields.get("Threads"):
        yield "has no Threads:"
    listed = fields.get("Parameters")
    if declaration.parameters and listed is None:
        yield "has no Parameters:"
    if not declaration.parameters and listed is not None:
        yield "has Parameters: and takes none"
    for _, name in declaration.parameters:
        word = "counts?" if name.endswith("_count") else name
        if listed is not None and not re.search(rf"\b{word}\b", listed):
            yield f"does not say what {name} is"
    if declaration.returns_value != ("Returns" in fields):
        yield "has Returns: and returns nothing" if "Returns" in fields else "has no Returns:"
    wanted = set(made_objects(declaration, free_functions))
    given = set(re.findall(r"enigma_\w+_free", fields.get("Free with", "")))
    if wanted != given:
        yield f"needs Free with: {', '.join(wanted) or 'nothing'}"


def main():
    sections, declarations = header.read()
    names = {d.name for d in declarations}
    free_functions = {name for name in names if name.endswith("_free")}
    failures = []
    if [number for number, _ in sections] != list(range(1, len(sections) + 1)):
        failures.append("the sections are not numbered from 1")
    contents = header.HEADER.read_text().split("*/", 1)[0]
    failures += [f'the list of contents lacks "{n} {t}"' for n, t in sections if not re.search(rf"\b{n} {t}\b", contents)]
    for d in declarations:
        if header.is_private(d.name):
            continue
        problems = list(check_function(d, free_functions)) if d.kind == "function" else []
        # A constant may speak through the comment of its neighbours or at its end; _INIT is in its struct's comments.
        if d.kind not in ("function", "macro") and not d.comment:
            problems.append("has no comment")
        failures += [f"include/enigma.h:{d.line}: {d.name} {problem}" for problem in problems]
    print("\n".join(failures) or f"{len(declarations)} declarations are documented")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
