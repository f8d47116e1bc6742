# SPDX-License-Identifier: BSD-2-Clause
"""``make mutants``: does a named quick test find each bug that could be in the gateware?

Results are kept in build/mutants.json, by a hash of the bug and of all that its tests depend on: a
run that was stopped goes on where it was, and after an edit only what it concerns runs again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

from ..compile.tools import ROOT
from ..copies import private_copy
from .run import run_tests
from .table import MUTANTS, Mutant

__all__ = ["APART", "attempt", "main"]

#: Folders that no test of a mutant depends on.
APART = {"campaign", "formal", "mutants"}
KEPT = ROOT / "build" / "mutants.json"


def _digest(checkout: Path, *parts: str) -> str:
    """A hash of the sources in a copy and of these words."""
    digest = hashlib.sha256("\0".join(parts).encode())
    folders = ("hw", "host/peerdma", "sim", "tests/hw", "tests/sim")
    for path in sorted(path for folder in folders for path in (checkout / folder).rglob("*.py")):
        if path.parent.name not in APART:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _state(checkout: Path, tests: tuple[str, ...]) -> str:
    """ "red", "green", or what came in between."""
    try:
        done = run_tests(checkout, *tests)
    except subprocess.TimeoutExpired:
        return "too slow"
    return {0: "green", 1: "red"}.get(done.returncode, f"no result:\n{done.stdout}")


def attempt(checkout: Path, mutant: Mutant, kept: dict[str, str]) -> str:
    """Put a bug into a copy and take it out again: "found", or what else its tests said.

    `kept` has what tests said without a bug, by their digest, and is added to.
    """
    sound = _digest(checkout, *mutant.tests)
    if sound not in kept:
        kept[sound] = _state(checkout, mutant.tests)
    if kept[sound] != "green":
        return f"its tests are {kept[sound]} without it"
    source = checkout / mutant.file
    text = source.read_text()
    mutant.apply(checkout)
    try:
        state = _state(checkout, mutant.tests)
    finally:
        source.write_text(text)
    return {"red": "found", "green": "SURVIVED"}.get(state, state)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status: 1 if a bug was not found."""
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m sim.mutants", description=__doc__)
    parser.add_argument("name", nargs="*", help="words in the names of mutants to try (all)")
    names = parser.parse_args(argv).name
    chosen = [one for one in MUTANTS if not names or any(name in one.name for name in names)]
    if not chosen:
        listed = "\n".join(f"  {mutant.name}" for mutant in MUTANTS)
        print(f"There is no mutant called {' or '.join(names)}. There are:\n{listed}")
        return 2
    checkout = ROOT / "build" / "mutants"
    checkout.mkdir(parents=True, exist_ok=True)
    private_copy(checkout)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    missed = []
    for number, mutant in enumerate(chosen, 1):
        key = _digest(checkout, mutant.file, mutant.old, mutant.new, *mutant.tests)
        began = time.monotonic()
        if kept.get(key) != "found":
            kept[key] = attempt(checkout, mutant, kept)
            KEPT.write_text(json.dumps(kept))
        seconds = time.monotonic() - began
        print(f"{number:3}/{len(chosen)} {mutant.name}: {kept[key]} ({seconds:.0f} s)", flush=True)
        if kept[key] != "found":
            missed.append(mutant)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found")
    for mutant in missed:
        print(f"NOT FOUND {mutant.name}: {mutant.file}, by {' '.join(mutant.tests)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
