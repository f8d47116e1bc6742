# SPDX-License-Identifier: BSD-2-Clause
"""Pieces of Markdown, as MyST reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["anchored", "code", "contents", "link", "plain", "slug", "table"]


def slug(*names: str) -> str:
    """The anchor of something by its names, from the outermost in."""
    return re.sub(r"[_ ]", "-", "-".join(names).lower())


def code(text: str) -> str:
    """Text in a fixed-width font."""
    return f"`{text}`"


def plain(text: str) -> str:
    """Text that stands for itself, whatever is special in Markdown. Code stays code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_<>\[\]|#{}~$])", r"\\\1", part)
        for part in parts
    )


def link(text: str, anchor: str, page: str = "") -> str:
    """A link to an anchor, of the same page unless one is named."""
    return f"[{text}]({page}#{anchor})"


def anchored(text: str, anchor: str) -> str:
    """Text within a line that can be linked to."""
    return f"[{text}]{{#{anchor}}}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def contents(caption: str, names: Iterable[str]) -> str:
    """Entries of the site's navigation: files, relative to the page that this is part of."""
    heading = f":caption: {caption}\n" if caption else ""
    return "".join(
        ["```{toctree}\n:hidden:\n", heading, *(f"{name}\n" for name in names), "```\n\n"]
    )
