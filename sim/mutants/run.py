# SPDX-License-Identifier: BSD-2-Clause
"""A private copy of the checkout, one bug in it, and the tests that have to find it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .table import Mutant

__all__ = ["ROOT", "break_it", "private_copy", "run_tests"]

ROOT = Path(__file__).resolve().parents[2]
#: Bound of one run of tests, in seconds; compiling the core for a bench takes most of it.
LIMIT = 600


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


def break_it(checkout: Path, mutant: Mutant) -> str:
    """Put the bug into a copy; returns the text of the file without it.

    Raises
    ------
    ValueError
        If the fragment is not in its file exactly once.
    """
    source = checkout / mutant.file
    text = source.read_text()
    count = text.count(mutant.old)
    if count != 1 or mutant.old == mutant.new:
        raise ValueError(
            f"{mutant.name}: {mutant.file} has the fragment {count} times, not once; follow the "
            f"edit of the gateware in sim/mutants/table.py:\n{mutant.old}"
        )
    source.write_text(text.replace(mutant.old, mutant.new))
    return text


def run_tests(checkout: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy up to the first that fails.

    Exit status 0 is green, 1 is red, everything else is neither.

    Raises
    ------
    subprocess.TimeoutExpired
        After `LIMIT` seconds.
    """
    paths = os.pathsep.join((str(checkout), str(checkout / "host")))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
