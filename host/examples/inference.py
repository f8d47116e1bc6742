#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A loop of inference on a sensor's frames: the board writes them where the model reads them.

With PyTorch and a CUDA GPU, frames go into tensors, and the model runs in a stream: the loop queues
its work for a frame, and the board fills other tensors meanwhile. Else the model is numpy's, in
surfaces of the emulated GPU.

The sensor is the board's pattern source; without a board this starts a simulated one that has it.
Each result is compared with what the CPU makes of the frame that was sent.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma import testing
from peerdma.cli.main import guarded
from peerdma.testing import pattern

PIXELS, CLASSES, SEED = 64 * 64, 10, 1
#: One layer, so that this is about frames.
WEIGHTS = np.random.default_rng(SEED).random((PIXELS, CLASSES), np.float32)


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", metavar="PATH", help="a board with the pattern source")
    parser.add_argument("--frames", type=int, default=16, metavar="N", help="to look at (16)")
    parser.add_argument("--ring", type=int, default=4, metavar="N", help="frames in it (4)")
    arguments = parser.parse_args()
    return guarded("inference.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Infers as asked for; returns 1 if a result is wrong."""
    options = [] if arguments.board else ["--user", "pattern"]
    with peerdma.open(arguments.board or "sim", arguments=options) as board:
        source = testing.PatternSource(board)
        source.start(PIXELS, seed=SEED)
        infer = with_torch if has_torch() else with_numpy
        scores = infer(board, arguments.frames, arguments.ring)
        source.stop()
    for number, found in enumerate(scores):
        expected = pattern.fill_bytes(SEED + number, 0, PIXELS).astype(np.float32) / 255 @ WEIGHTS
        if not np.allclose(found, expected, rtol=1e-2):
            print(f"the scores of frame {number} are wrong", file=sys.stderr)
            return 1
    print(f"{len(scores)} frames by {infer.__name__}, all scores right")
    return 0


def has_torch() -> bool:
    """Whether there is PyTorch, and a GPU for it."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    return torch.cuda.is_available()


def with_torch(board: peerdma.Board, count: int, ring: int) -> np.ndarray:
    """The scores of so many frames, each frame in a tensor of the GPU."""
    import torch  # pyright: ignore[reportMissingImports]

    tensors = [torch.zeros(PIXELS, dtype=torch.uint8, device="cuda") for _ in range(ring)]
    weights = torch.from_numpy(WEIGHTS).cuda()
    scores = torch.zeros((count, CLASSES), device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # for what was made above
    with torch.cuda.stream(stream), board.frames(tensors, stream=stream) as frames:
        for frame in itertools.islice(frames, count):
            # Queued. The tensor goes back to the board when the GPU is done with it.
            scores[frame.number] = frame.array.float() / 255 @ weights
    stream.synchronize()
    return scores.cpu().numpy()


def with_numpy(board: peerdma.Board, count: int, ring: int) -> np.ndarray:
    """The same by the CPU, in surfaces that a kernel of the emulated GPU would read."""
    scores = np.zeros((count, CLASSES), np.float32)
    with peerdma.gpu("emulated") as gpu:
        surfaces = [gpu.surface(PIXELS) for _ in range(ring)]
        with board.frames(surfaces) as frames:
            for frame in itertools.islice(frames, count):
                # The surface goes back to the board when the next frame is asked for.
                scores[frame.number] = frame.array.get().astype(np.float32) / 255 @ WEIGHTS
    return scores


if __name__ == "__main__":
    sys.exit(main())
