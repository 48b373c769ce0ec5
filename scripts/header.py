"""Reads include/enigma.h into sections and declarations; what check_docs, check_exports and gen_reference share. Not a C
parser: it knows the one form that the header is written in."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include" / "enigma.h"

SECTION = re.compile(r"^/\* ==== (\d+) (.+?) =+ \*/$")
FIELDS = ("Threads", "Parameters", "Returns", "Free with")


@dataclasses.dataclass
class Declaration:
    kind: str  # function, variable, type, enum, macro, callback
    name: str
    code: str
    comment: str  # without stars, "" where there is none
    line: int
    section: str
    inline: bool = False

    @property
    def fields(self):
        """The comment's text ("") and its fields by name."""
        parts, current = {"": []}, ""
        for line in self.comment.splitlines():
            match = re.match(rf"({'|'.join(FIELDS)}): ?(.*)", line)
            if match:
                current, line = match[1], match[2]
                parts[current] = []
            parts[current].append(line)
        return {name: "\n".join(lines).strip() for name, lines in parts.items()}

    @property
    def parameters(self):
        """(type and all, name) of a function's parameters."""
        inside = re.search(rf"\b{self.name}\(([^)]*)\)", self.code)[1]
        found = [" ".join(part.split()) for part in inside.split(",")]
        return [(text, re.search(r"(\w+)(\[\])?$", text)[1]) for text in found if text and text != "void"]

    @property
    def returns_value(self):
        head = self.code[: self.code.index(self.name)]
        return "*" in head or not re.search(r"\bvoid\b", head)


def clean_comment(text):
    lines = text.strip()[2:-2].splitlines()
    return "\n".join(re.sub(r"^ \* ?", "", line).strip() for line in lines).strip()


def statements(text):
    """(line number, kind, text) of comments, preprocessor lines and C statements, in order."""
    at, line = 0, 1
    pattern = re.compile(
        r"(?P<space>\s+)"
        r"|(?P<comment>/\*.*?\*/)"
        r"|(?P<directive>\#(?:[^\n]*\\\n)*[^\n]*)"
        r'|(?P<language>extern "C" \{|\}(?= /\* extern))'
        r"|(?P<code>(?:[^;{}/#]|/(?!\*)|/\*.*?\*/)*(?:\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}[^;{}\n]*?;|"
        r"\{(?:[^{}]|\{[^{}]*\})*\}(?=\n)|;)[^\S\n]*(?:/\*[^\n]*?\*/(?=\n))?)",
        re.S,
    )
    while at < len(text):
        match = pattern.match(text, at)
        if not match:
            raise SystemExit(f"{HEADER}:{line}: not understood: {text[at:at + 80]!r}")
        if match.lastgroup != "space":
            yield line, match.lastgroup, match[0]
        line += match[0].count("\n")
        at = match.end()


def without_comments(code):
    return re.sub(r"/\*.*?\*/", "", code, flags=re.S)


def declare(code, comment, line, section):
    bare = without_comments(code).strip()
    make = lambda kind, name, **more: Declaration(kind, name, code.strip(), comment, line, section, **more)  # noqa: E731
    if match := re.match(r"#define (\w+)", bare):
        return make("macro", match[1])
    if bare.startswith("#"):
        return None
    if match := re.match(r"(?:extern ENIGMA_API|ENIGMA_API extern) [\w ]+?(\w+);", bare):
        return make("variable", match[1])
    if match := re.match(r"ENIGMA_API [^(]*?(\w+)\(", bare):
        return make("function", match[1])
    if match := re.match(r"static inline [^(]*?(\w+)\(", bare):
        return make("function", match[1], inline=True)
    if match := re.match(r"typedef .*?\(\*(\w+)\)", bare, re.S):
        return make("callback", match[1])
    if match := re.match(r"typedef (?:struct|enum) (\w+)|typedef .*?(\w+);", bare, re.S):
        return make("enum" if bare.startswith("typedef enum") else "type", match[1] or match[2])
    if match := re.match(r"enum (\w+)", bare):
        return make("enum", match[1])
    return None


def read():
    """(sections in order, declarations in order). Only what lies in a numbered section counts."""
    sections, declarations, conditional = [], [], []
    comment, comment_end = "", 0  # comment_end: the line where a declaration must begin to be the comment's
    for line, kind, text in statements(HEADER.read_text()):
        end = line + text.count("\n") + 1
        if kind == "comment":
            if match := SECTION.match(text):
                sections.append((int(match[1]), match[2]))
            else:
                comment, comment_end = clean_comment(text), end
            continue
        word = re.match(r"#\s*(\w+)", text)[1] if kind == "directive" else ""
        if word in ("if", "ifdef", "ifndef"):
            conditional.append((text, comment if comment_end == line else ""))
        elif word == "else":  # both branches declare the same; a comment over the first holds for the second
            comment, comment_end = conditional[-1][1], line
            conditional[-1] = ("else", "")
        elif word == "endif":
            conditional.pop()
        if not sections or any("__cplusplus" in text for text, _ in conditional):
            continue
        made = declare(text, comment if comment_end == line else "", line, sections[-1][1])
        if made:
            declarations.append(made)
        if kind == "directive" or (made and is_private(made.name)):
            comment_end = end if comment_end == line else comment_end  # it may stand over a run of them
        else:
            comment_end = 0
    return sections, declarations


def is_private(name):
    return name.endswith("_")
