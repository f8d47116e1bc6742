#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Records frames of a sensor on the board into a file, and checks each there by the board's CRC.

The file is a .npy that any program opens with numpy.load(FILE, mmap_mode="r"). The sensor is the
board's pattern source; without a board this starts a simulated one that has it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import zlib
from pathlib import Path

import numpy as np

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma import testing
from peerdma.cli.main import guarded


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", metavar="FILE", help="to be written")
    parser.add_argument("--board", metavar="PATH", help="socket of a simulated board that runs")
    parser.add_argument("--frames", type=int, default=64, metavar="N", help="to record (64)")
    parser.add_argument("--words", type=int, default=4096, metavar="N", help="of a frame (4096)")
    parser.add_argument("--ring", type=int, default=4, metavar="N", help="frames in memory (4)")
    arguments = parser.parse_args()
    return guarded("record.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Records as asked for."""
    if arguments.board:
        board = peerdma.open(arguments.board)
    else:
        board = peerdma.open("sim", arguments=["--user", "pattern"])
    shape = (arguments.frames, arguments.words)
    file = np.lib.format.open_memmap(arguments.file, mode="w+", dtype=np.uint32, shape=shape)
    ring = [np.empty(arguments.words, np.uint32) for _ in range(arguments.ring)]
    with board:
        source = testing.PatternSource(board)
        source.start(ring[0].nbytes, seed=1)
        try:
            with board.frames(ring) as frames:
                dropped = 0
                for frame in itertools.islice(frames, arguments.frames):
                    row, record = file[frame.number], frame.record
                    row[:] = frame.array
                    if record is None:
                        raise peerdma.UnsupportedError("this board makes no records of frames")
                    # Of the file's row: what the memory held, and was copied from it.
                    if zlib.crc32(row) != record.crc:
                        raise peerdma.TransferError(f"frame {frame.number} is not what was sent")
                    dropped = record.dropped
        finally:
            source.stop()
    file.flush()
    print(f"{arguments.frames} frames of {ring[0].nbytes} bytes, all right; {dropped} dropped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
