#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Divides a copy among several boards, which work at the same time.

Without --board, this starts two simulated boards.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

import numpy as np

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma.cli.main import guarded


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--board", action="append", metavar="PATH", help="what peerdma.open takes; give several"
    )
    parser.add_argument("--size", type=int, default=1 << 20, metavar="BYTES", help="(1 MiB)")
    arguments = parser.parse_args()
    return guarded("boards.py", lambda: run(arguments.board or ["sim", "sim"], arguments.size))


def run(paths: list[str], nbytes: int) -> int:
    """Copies `nbytes` random bytes; returns 1 if they arrive changed."""
    source = np.random.default_rng().integers(0, 256, nbytes, np.uint8)
    target = np.zeros_like(source)
    with contextlib.ExitStack() as stack:
        boards = [stack.enter_context(peerdma.open(path)) for path in paths]
        # Views: each board reads and writes its part in place.
        sources, targets = (np.array_split(whole, len(boards)) for whole in (source, target))
        jobs = [board.submit(*part) for board, *part in zip(boards, sources, targets, strict=True)]
        for path, job in zip(paths, jobs, strict=True):
            transfer = job.result()
            print(f"{path}: {transfer.bytes} bytes in {transfer.cycles} cycles: {transfer.path}")
    if not np.array_equal(source, target):
        print("the bytes are not those of the source", file=sys.stderr)
        return 1
    print(f"{nbytes} bytes in {len(boards)} parts, all of them right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
