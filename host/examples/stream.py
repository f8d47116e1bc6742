#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Streams frames of a sensor on the board into a ring of GPU surfaces, and checks each there.

The sensor is the board's pattern source; without a board this starts a simulated one that has it.
With --overwrite the board waits for nobody, and a GPU that is too slow sees fewer frames.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma import testing
from peerdma.cli.main import guarded


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", metavar="PATH", help="socket of a simulated board that runs")
    parser.add_argument("--frames", type=int, default=8, metavar="N", help="to look at (8)")
    parser.add_argument("--words", type=int, default=4096, metavar="N", help="of a frame (4096)")
    parser.add_argument("--surfaces", type=int, default=3, metavar="N", help="in the ring (3)")
    parser.add_argument("--overwrite", action="store_true", help="the newest frames, not all")
    arguments = parser.parse_args()
    return guarded("stream.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Streams as asked for."""
    if arguments.board:
        board = peerdma.open(arguments.board)
    else:
        board = peerdma.open("sim", arguments=["--user", "pattern"])
    with board, peerdma.gpu() as gpu:
        surfaces = [gpu.surface(arguments.words, "u4") for _ in range(arguments.surfaces)]
        source = testing.PatternSource(board)
        source.start(surfaces[0].nbytes, seed=1)
        with board.frames(surfaces, overwrite=arguments.overwrite) as frames:
            for frame in itertools.islice(frames, arguments.frames):
                # Frame n holds the pattern of seed 1 + n; a GPU would work on it instead.
                try:
                    gpu.verify(frame.array, seed=1 + frame.number)
                    when = f"begun at cycle {frame.record.cycles}, " if frame.record else ""
                    print(f"frame {frame.number}: {when}every word is right")
                except peerdma.VerifyError:
                    if frame.intact():
                        raise
                    print(f"frame {frame.number}: written over before it was checked")
            print(f"{arguments.frames} frames, {frames.dropped} dropped in between")
        source.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
