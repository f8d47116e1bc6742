#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Loads a file into GPU memory: the board reads the file's pages where the system caches them.

The file is mapped, not read: a piece of it is pinned, and so comes from the disk, while the board
copies those before. Only a few pieces are pinned at a time, however long the file is.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections import deque
from pathlib import Path

import numpy as np

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma.cli.main import guarded
from peerdma.opening import add_board_option

#: Pieces that the board is to copy at a time; it makes one of these copies after the other.
DEPTH = 3


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    add_board_option(parser)
    parser.add_argument("--piece", type=int, default=4 << 20, metavar="BYTES", help="(4 MiB)")
    arguments = parser.parse_args()
    return guarded("load_file.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Loads the file and prints the CRC of what is in the GPU's memory then."""
    size = arguments.file.stat().st_size
    content = np.memmap(arguments.file, np.uint8, "r") if size else np.empty(0, np.uint8)
    with (
        peerdma.open(arguments.board) as board,
        peerdma.gpu() as gpu,
        gpu.surface(size) as surface,
        board.pin(surface) as pin,
    ):
        jobs: deque[peerdma.Job] = deque()
        for start in range(0, size, arguments.piece):
            stop = min(start + arguments.piece, size)
            if len(jobs) == DEPTH:
                jobs.popleft().result()
            jobs.append(board.submit(content[start:stop], pin[start:stop]))
        while jobs:
            jobs.popleft().result()
        crc = zlib.crc32(surface.get().tobytes())
        print(f"{size} bytes in {gpu.name}: {pin.path}, CRC-32 {crc:08x}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
