# SPDX-License-Identifier: BSD-2-Clause
"""The mutants: realistic bugs of the gateware, each with a quick test that must turn red.

A row is: the rule that is broken, file in hw/, source fragment, what it becomes, tests, and "demo"
if the demo must notice it as well. The fragment is in its file exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import channels, physical, requests, surroundings, whole

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """One bug."""

    #: the rule that it breaks
    name: str
    #: path from the root of the checkout
    file: str
    old: str
    new: str
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
        for part in (requests, channels, surroundings, physical)
        for row in part.ROWS
    ),
    *(_mutant("tests/sim", *row) for row in whole.ROWS),
]
