# SPDX-License-Identifier: BSD-2-Clause
"""The kernel driver's requests as a page, from its headers' comments.

Offsets, sizes and codes are those of `peerdma.uapi`, which a test of its own holds against the
headers.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import inspect
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from peerdma import uapi
from tools.site.markdown import anchored, code, link, plain, slug, table

__all__ = ["HEADERS", "Comment", "comments", "pages"]

#: The driver's interface.
HEADERS = tuple(
    Path(__file__).resolve().parents[2] / "driver" / name
    for name in ("peerdma_uapi.h", "peerdma_picoevb.h")
)

_TOP = """\
# Requests of the driver

Made from `driver/peerdma_uapi.h` and `driver/peerdma_picoevb.h`; `host/peerdma/uapi.py` has the
same for Python.

"""


@dataclass
class Comment:
    """A kernel-doc comment.

    Attributes
    ----------
    kind : str
        "struct" or "enum".
    name, summary : str
    members : dict of str to str
        Descriptions by name, in the order of the comment.
    text : str
        The paragraphs below.
    """

    kind: str
    name: str
    summary: str
    members: dict[str, str] = field(default_factory=dict)
    text: str = ""


def comments(header: str) -> list[Comment]:
    """The kernel-doc comments of a C header's text, in its order."""
    found = []
    for body in re.findall(r"/\*\*\n(.*?) \*/", header, flags=re.DOTALL):
        lines = [re.sub(r"^ \*[ ]?", "", line) for line in body.splitlines()]
        heading = re.fullmatch(r"(struct|enum) (\w+) - (.*)", lines[0])
        if heading is None:
            raise ValueError(f"no struct or enum is described by: {lines[0]}")
        comment = Comment(*heading.groups())
        members, _, comment.text = "\n".join(lines[1:]).partition("\n\n")
        for name, text in re.findall(r"@(\w+): ((?:.|\n(?!@))*)", members):
            comment.members[name] = " ".join(text.split())
        found.append(comment)
    return found


@functools.cache
def _described() -> dict[str, Comment]:
    """What the headers describe, by name."""
    return {each.name: each for path in HEADERS for each in comments(path.read_text())}


def pages() -> dict[str, str]:
    """Markdown by the name of its file."""
    headers = [path.read_text() for path in HEADERS]
    parts = [_TOP, _preface(headers[0]), _codes("".join(headers)), "## Structures\n\n"]
    parts += [_structure(each) for each in _described().values() if each.kind == "struct"]
    parts += ["## Enumerations and flags\n\n"]
    parts += [_enumeration(each) for each in _described().values() if each.kind == "enum"]
    return {"requests.md": "".join(parts) + _flags("".join(headers))}


def _mirror(name: str) -> type:
    """The class of `peerdma.uapi` that mirrors `struct peerdma_x` or `enum peerdma_x`."""
    (found,) = [
        each
        for each in vars(uapi).values()
        if inspect.isclass(each) and (each.__doc__ or "") == name
    ]
    return found


def _text(text: str) -> str:
    """Words of a C comment: names are code, types link to their place, the rest is as it stands."""

    def piece(found: re.Match) -> str:
        if found["type"]:
            known = found["type"].split()[1] in _described()
            return link(code(found["type"]), slug(found["type"])) if known else code(found["type"])
        if found["special"]:
            return f"\\{found['special']}"
        return code(found["member"] or found["name"])

    return re.sub(
        r"(?P<type>(?:struct|enum) peerdma_\w+)|@(?P<member>\w+)|(?P<name>\w*_\w*(?:\*|\.h)?)"
        r"|(?P<special>[\\*<>|\[\]])",
        piece,
        " ".join(text.split()),
    )


def _preface(header: str) -> str:
    """The comment at the top of a header: paragraphs, and a list of error numbers."""
    (top,) = re.findall(r"\A.*?\n/\*\n(.*?) \*/", header, flags=re.DOTALL)
    lines = "\n".join(re.sub(r"^ \*", "", line) for line in top.splitlines())
    text = ""
    for paragraph in re.split(r"\n[ ]?\n", textwrap.dedent(lines)):
        errors = re.findall(r"^ (E[A-Z0-9]+) +((?:.|\n(?! E))*)", paragraph, flags=re.MULTILINE)
        rows = ((anchored(code(name), slug(name)), _text(words)) for name, words in errors)
        text += table(("errno", "meaning"), rows) if errors else _text(paragraph) + "\n\n"
    return text


def _argument(request: uapi.Ioctl) -> Comment | None:
    """The structure that a request is about: it names the request, or has its name."""
    for comment in _described().values():
        named = comment.summary.startswith(f"PEERDMA_IOC_{request.name}:")
        if named or comment.name == f"peerdma_{request.name.lower()}":
            return comment
    return None


def _codes(headers: str) -> str:
    rows = []
    remarks = _remarks(headers)
    for request in uapi.Ioctl:
        comment = _argument(request)
        name = anchored(code(f"PEERDMA_IOC_{request.name}"), slug("ioc", request.name))
        if comment is None:
            argument, words = "", _text(remarks[f"PEERDMA_IOC_{request.name}"])
        else:
            argument = link(code(f"struct {comment.name}"), slug(f"struct {comment.name}"))
            words = _text(re.sub(r"^PEERDMA_IOC_\w+: ", "", comment.summary))
        rows.append((name, code(f"{request.value:#010x}"), argument, words))
    return "## Requests\n\n" + table(("request", "code", "argument", "description"), rows)


def _structure(comment: Comment) -> str:
    mirror = _mirror(f"struct {comment.name}")
    assert issubclass(mirror, ctypes.Structure)
    rows = []
    for name, *_ in mirror._fields_:
        place = getattr(mirror, name)
        rows.append(
            (
                str(place.offset),
                str(place.size),
                anchored(code(name), slug("struct", comment.name, name)),
                _text(comment.members[name]),
            )
        )
    return (
        f"({slug('struct', comment.name)})=\n### struct {plain(comment.name)}\n\n"
        f"{_text(comment.summary)}. {ctypes.sizeof(mirror)} bytes.\n\n"
        + table(("byte", "bytes", "member", "description"), rows)
        + "".join(f"{_text(each)}\n\n" for each in comment.text.split("\n\n") if each.strip())
    )


def _enumeration(comment: Comment) -> str:
    mirror = _mirror(f"enum {comment.name}")
    assert issubclass(mirror, enum.IntEnum)
    rows = [
        (str(member.value), anchored(code(name), slug(name)), _text(words))
        for member, (name, words) in zip(mirror, comment.members.items(), strict=True)
    ]
    return (
        f"({slug('enum', comment.name)})=\n### enum {plain(comment.name)}\n\n"
        + f"{_text(comment.summary)}\n\n"
        + table(("value", "name", "description"), rows)
    )


def _remarks(headers: str) -> dict[str, str]:
    """The names that headers define, with the comment above each; several may share one."""
    pattern = r"(?:/\* ((?:[^*]|\*(?!/))*) \*/\n)?#define (PEERDMA_\w+)\t"
    return {name: words.replace("\n *", " ") for words, name in re.findall(pattern, headers)}


def _flags(headers: str) -> str:
    remarks = _remarks(headers)
    rows = (
        (anchored(code(name), slug(name)), bit, _text(remarks[name]))
        for name, bit in re.findall(r"#define (PEERDMA_\w+)\t+\(1 << (\d+)\)", headers)
    )
    return "### Flags\n\n" + table(("name", "bit", "description"), rows)
