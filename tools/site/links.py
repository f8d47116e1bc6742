# SPDX-License-Identifier: BSD-2-Clause
"""Checks built pages: links lead to pages and anchors, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["wrong_links"]

#: What a browser loads with a page, by the tag's attribute.
_LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("object", "data"),
}


class _Page(HTMLParser):
    """Anchors of a page, and addresses with whether the browser loads them."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors = {""}
        self.addresses: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif value and (name in ("href", "src") or (tag, name) in _LOADED):
                self.addresses.append((value, (tag, name) in _LOADED))


def wrong_links(folder: Path) -> Iterator[str]:
    """What is wrong with the pages and style sheets below `folder`, a line each."""
    pages = {path.resolve(): _Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        for address, loaded in page.addresses:
            parts = urlsplit(address)
            target = path.parent / unquote(parts.path) if parts.path else path
            target = target.resolve()
            here = path.relative_to(folder.resolve())
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    yield f"{here} loads {address}"
            elif not target.is_file():
                yield f"{here} links to {address}, which is not there"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{here} links to {address}: there is no such anchor"
    for path in sorted(folder.rglob("*.css")):
        for address in re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]*)", path.read_text()
        ):
            yield f"{path.relative_to(folder)} loads {address}"
