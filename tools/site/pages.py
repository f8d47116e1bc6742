# SPDX-License-Identifier: BSD-2-Clause
"""Collects what Sphinx reads: the documents as they are, and the pages made from the sources."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tools.site import api, registers, requests
from tools.site.markdown import contents

__all__ = ["ROOT", "START", "collect", "navigation"]

ROOT = Path(__file__).resolve().parents[2]
#: The first page.
START = "README.md"
#: The list of documents, by kind of reader, from which the navigation is taken.
_LIST = "docs/README.md"
#: Folder of the generated pages, beside `docs`.
_REFERENCE = "reference"
_LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def navigation() -> dict[str, list[str]]:
    """The documents that the list names, from the root of the checkout, by its headings."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^## ", (ROOT / _LIST).read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        links = [_target(_LIST, each[1]) for each in _LINK.finditer(text)]
        found[heading] = [link for link in links if link != START]
    return found


def _target(page: str, link: str) -> str:
    """What a link in a page leads to, from the root of the checkout."""
    return str((ROOT / page).parent.joinpath(link).resolve().relative_to(ROOT))


def collect(folder: Path) -> None:
    """Fills `folder` with pages, and the pictures and files that they link, as in the checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    entries = navigation()
    pages = [START, _LIST, *(page for part in entries.values() for page in part)]
    # The first page of each names the others.
    made = (api.pages(), registers.pages(), requests.pages())
    for page in pages:
        text = (ROOT / page).read_text()
        for found in _LINK.finditer(text):
            target = _target(page, found[1])
            if target not in pages:
                _copy(target, folder)
            if target.endswith(".md") and target not in pages:
                # Sphinx would look for a page; this is offered as a file.
                text = text.replace(found[0], f"](path:{found[1]})")
        if page == START:
            reference = [f"{_REFERENCE}/{next(iter(part))}" for part in made]
            parts = {"": [_LIST], **entries, "Reference": reference}
            text += "\n" + "".join(contents(*part) for part in parts.items())
        _write(folder / page, text)
    for part in made:
        for name, text in part.items():
            _write(folder / _REFERENCE / name, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _copy(name: str, folder: Path) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, path)
