# SPDX-License-Identifier: BSD-2-Clause
"""Private copies of the checkout: edits of them, such as planted bugs, and programs in them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .compile.tools import ROOT

__all__ = ["Edit", "environment", "private_copy"]


@dataclass(frozen=True)
class Edit:
    """Replaces a text in one file of a copy.

    Attributes
    ----------
    name : str
        What it is made for; of a planted bug, the bug or the rule that it breaks.
    file : str
        Path from the root of the checkout.
    old, new : str
        The text, which is in the file exactly once, and what it becomes.
    """

    name: str
    file: str
    old: str
    new: str

    def apply(self, checkout: Path) -> None:
        """Edit the file of a copy.

        Raises
        ------
        ValueError
            If the old text is not in the file exactly once.
        """
        source = checkout / self.file
        text = source.read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.name!r} edits a text that {self.file} has {count} times, not once; adapt "
                f"the edit to the file:\n{self.old}"
            )
        source.write_text(text.replace(self.old, self.new))


def private_copy(where: Path) -> Path:
    """Copy what the gateware's tests need into a folder; finished builds are shared."""
    for part in ("hw", "flow", "host", "sim", "tests", "tools"):
        shutil.rmtree(where / part, ignore_errors=True)
        shutil.copytree(ROOT / part, where / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", where)
    (ROOT / "build").mkdir(exist_ok=True)
    if not (where / "build").exists():
        (where / "build").symlink_to(ROOT / "build")
    return where


def environment(checkout: Path) -> dict[str, str]:
    """The environment in which Python imports the modules of a checkout, ours or a copy."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(checkout), str(checkout / "host")))}
