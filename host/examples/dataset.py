#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Frames of a sensor on the board as a data set of PyTorch, for a DataLoader; each is checked.

The sensor is the board's pattern source; without a board this starts a simulated one that has it.
"""

import argparse
import itertools
import sys
from pathlib import Path

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma.testing
from peerdma.cli.main import guarded

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch.utils import data  # pyright: ignore[reportMissingImports]
except ImportError:
    sys.exit("dataset.py: this example needs PyTorch: https://pytorch.org/get-started/locally/")

NBYTES = 4096


class FrameDataset(data.IterableDataset):
    """Frames of a board, as tensors of bytes, whose memory the library finds by DLPack.

    A sample is a copy of the tensor that the board wrote. With `borrow` it is that tensor, written
    again once the next sample is asked for: for batch_size=None. A DataLoader's worker opens the
    board itself, as one opened before fork() is refused there; it sends samples later, and copies.
    """

    def __init__(self, path: str | None, count: int, device: str, *, borrow: bool = False):
        self.path, self.count, self.device, self.borrow = path, count, device, borrow

    def __iter__(self):
        worker = data.get_worker_info()
        if worker and worker.num_workers > 1:
            raise peerdma.UnsupportedError("a board has one stream of frames: take one worker")
        options = [] if self.path else ["--user", "pattern"]
        ring = [torch.empty(NBYTES, dtype=torch.uint8, device=self.device) for _ in range(4)]
        with peerdma.open(self.path or "sim", arguments=options) as board:
            source = peerdma.testing.PatternSource(board)
            source.start(NBYTES)
            try:
                with board.frames(ring) as frames:
                    for frame in itertools.islice(frames, self.count):
                        yield frame.array if self.borrow and not worker else frame.array.clone()
            finally:
                source.stop()


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", metavar="PATH", help="a board with the pattern source")
    parser.add_argument("--frames", type=int, default=16, metavar="N", help="to look at (16)")
    parser.add_argument("--batch", type=int, metavar="N", help="frames in a batch (none: borrow)")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="0 or 1 (0)")
    return guarded("dataset.py", lambda: run(**vars(parser.parse_args())))


def run(board: str | None, frames: int, batch: int | None, workers: int) -> int:
    """Loads as asked for; returns 1 if a frame is wrong."""
    device = "cuda" if torch.cuda.is_available() and not workers else "cpu"
    dataset = FrameDataset(board, frames, device, borrow=batch is None)
    seeds = itertools.count()
    for loaded in data.DataLoader(dataset, batch_size=batch, num_workers=workers):
        for row in loaded.reshape(-1, NBYTES).tolist():
            if row != peerdma.testing.pattern.fill_bytes(next(seeds), 0, NBYTES).tolist():
                sys.exit("a frame is not what was sent")
    print(f"{next(seeds)} frames on {device}, all right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
