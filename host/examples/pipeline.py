#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Blocks of samples through a GPU, in two streams: the board brings them there and takes them back.

The program queues all of it and waits once. While CuPy works on a block in one stream, the board
copies blocks of the other. Without CuPy the emulated GPU works on them, one after the other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma.cli.main import guarded
from peerdma.opening import add_board_option

try:
    import cupy  # pyright: ignore[reportMissingImports]
except ImportError:
    cupy = None

#: What the GPU does with each sample.
GAIN = 2.5


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_board_option(parser)
    parser.add_argument("--blocks", type=int, default=8, metavar="N", help="(8)")
    parser.add_argument("--samples", type=int, default=4096, metavar="N", help="of a block (4096)")
    arguments = parser.parse_args()
    return guarded("pipeline.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Sends random blocks through the pipeline; returns 1 if a result is wrong."""
    blocks = np.random.default_rng().random((arguments.blocks, arguments.samples), np.float32)
    with peerdma.open(arguments.board) as board:
        results = (in_streams if cupy else one_by_one)(board, blocks)
    if not np.array_equal(results, blocks * np.float32(GAIN)):
        print("a result is wrong", file=sys.stderr)
        return 1
    print(f"{len(blocks)} blocks of {blocks[0].nbytes} bytes, all of them right")
    return 0


def in_streams(board: peerdma.Board, blocks: np.ndarray) -> np.ndarray:
    """What CuPy makes of the blocks."""
    assert cupy
    results = np.empty_like(blocks)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    # A stream's next block comes when its last one has left: each needs one buffer.
    buffers = [cupy.zeros(blocks.shape[1], np.float32) for _ in streams]
    # Once before the board has a part in it: CUDA loads a kernel at its first launch, and may wait
    # for all streams then.
    cupy.multiply(buffers[0], np.float32(GAIN), out=buffers[0])
    cupy.cuda.Device().synchronize()
    jobs = []
    for number, (block, result) in enumerate(zip(blocks, results, strict=True)):
        stream, buffer = streams[number % 2], buffers[number % 2]
        with stream:
            jobs.append(board.copy(block, buffer, stream=stream))
            cupy.multiply(buffer, np.float32(GAIN), out=buffer)
            jobs.append(board.copy(buffer, result, stream=stream))
    for job in jobs:
        job.result()  # or raises what went wrong with the copy
    return results


def one_by_one(board: peerdma.Board, blocks: np.ndarray) -> np.ndarray:
    """The same on the emulated GPU, which has no streams."""
    results = np.empty_like(blocks)
    with peerdma.gpu("emulated") as gpu, gpu.surface(blocks.shape[1], "f4") as buffer:
        for block, result in zip(blocks, results, strict=True):
            board.copy(block, buffer)
            buffer.set(buffer.get() * np.float32(GAIN))
            board.copy(buffer, result)
    return results


if __name__ == "__main__":
    sys.exit(main())
