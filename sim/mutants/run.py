# SPDX-License-Identifier: BSD-2-Clause
"""Runs the tests that have to find a bug in a private copy of the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..copies import environment

__all__ = ["run_tests"]

#: Bound of one run of tests, in seconds; compiling the core for a bench takes most of it.
LIMIT = 600


def run_tests(checkout: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy up to the first that fails.

    Exit status 0 is green, 1 is red, everything else is neither.

    Raises
    ------
    subprocess.TimeoutExpired
        After `LIMIT` seconds.
    """
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        cwd=checkout,
        env=environment(checkout),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
