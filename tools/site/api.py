# SPDX-License-Identifier: BSD-2-Clause
"""The public names of the library as a page, which Sphinx fills from their docstrings."""

from __future__ import annotations

import inspect

import peerdma
from peerdma import testing

__all__ = ["SECTIONS", "VALUES", "pages"]

#: Headings by the part of the library in which a name is defined.
SECTIONS = {
    "opening gpus": "Boards and GPUs",
    "board": "Copying",
    "memory uapi": "Memory",
    "errors": "Errors",
}
#: Values, which have neither a module nor a docstring: their heading, and what they are.
VALUES = {
    "USER_STREAM": (
        "Copying",
        "The card address of the user stream, for `Board.write`, `Board.read`, and plans of them.",
    ),
}

_TOP = """\
# API

What `import peerdma` has, from the docstrings. A program that needs the whole story begins with
[the README](../README.md#use-it), [arrays](../docs/arrays.md) and [jobs](../docs/jobs.md).

"""


def _section(name: str) -> str:
    if name in VALUES:
        return VALUES[name][0]
    part = getattr(peerdma, name).__module__.split(".")[1]
    return next(heading for parts, heading in SECTIONS.items() if part in parts.split())


def _directive(module: str, name: str) -> str:
    if name in VALUES:
        return f".. autodata:: {module}.{name}\n   :no-value:\n\n   {VALUES[name][1]}\n\n"
    found = getattr(__import__(module, fromlist=[name]), name)
    if inspect.ismodule(found):
        return f".. automodule:: {found.__name__}\n   :members:\n\n"
    if inspect.isclass(found):
        return f".. autoclass:: {module}.{name}\n   :members:\n\n"
    return f".. autofunction:: {module}.{name}\n\n"


def pages() -> dict[str, str]:
    """Markdown by the name of its file."""
    names = [name for name in peerdma.__all__ if not name.startswith("__")]
    text = _TOP
    for heading in SECTIONS.values():
        found = [_directive("peerdma", name) for name in names if _section(name) == heading]
        text += f"## {heading}\n\n```{{eval-rst}}\n{''.join(found)}```\n\n"
    found = [_directive("peerdma.testing", name) for name in testing.__all__]
    text += f"## Tests of transfers: peerdma.testing\n\n```{{eval-rst}}\n{''.join(found)}```\n"
    return {"api.md": text}
