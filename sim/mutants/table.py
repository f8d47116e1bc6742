# SPDX-License-Identifier: BSD-2-Clause
"""The mutants: realistic bugs of the gateware, each with a quick test that must turn red.

A row is: name, file in hw/, old text, new text, tests, and "demo" if the demo must notice it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..copies import Edit
from . import channels, launch, physical, requests, surroundings, ultrascale, whole

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant(Edit):
    """A bug, and what has to find it."""

    #: pytest's arguments, apart from options: at least one of these tests fails
    tests: tuple[str, ...]
    #: the demo, too, must notice it
    demo: bool = False


def _mutant(folder: str, name: str, file: str, old: str, new: str, tests: str, *demo) -> Mutant:
    named = tuple(f"{folder}/{test}" for test in tests.split())
    return Mutant(name, f"hw/{file}", old, new, named, demo == ("demo",))


MUTANTS = [
    *(
        _mutant("tests/hw", *row)
        for part in (requests, channels, launch, surroundings, physical, ultrascale)
        for row in part.ROWS
    ),
    *(_mutant("tests/sim", *row) for row in whole.ROWS),
]
