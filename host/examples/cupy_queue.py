#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A kernel of CuPy makes data, has the board copy it, and checks what has arrived."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np

import peerdma
from peerdma.cli.main import guarded

WORDS = 4096
#: Nanoseconds for the copy, at most.
LIMIT = 10_000_000_000
KERNEL = r"""
#include <peerdma/device.cuh>

extern "C" __global__ void copied(peerdma_queue queue, volatile unsigned *source,
                                  volatile unsigned *destination, unsigned words,
                                  unsigned long long limit, volatile int *report) {
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) source[i] = i * 2654435761u;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned ticket;
        int result = peerdma_submit(queue, 0, &ticket, limit);
        if (result == PEERDMA_OK) result = peerdma_wait(queue, ticket, limit);
        report[0] = result;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
        if (destination[i] != i * 2654435761u) atomicAdd((int *)report + 1, 1);
}
"""


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", metavar="PATH", help="a board with launch queues")
    arguments = parser.parse_args()
    return guarded("cupy_queue.py", lambda: run(arguments.board))


def run(path: str | None) -> int:
    """Has a kernel copy and check; returns 1 if something was wrong."""
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError:
        text = "this example needs CuPy: https://docs.cupy.dev/en/stable/install.html"
        raise peerdma.UnsupportedError(text) from None
    options = [] if path else ["--launch-queues", "2"]
    with (
        peerdma.gpu("cuda", memory="host") as gpu,
        peerdma.open(path or "sim", arguments=options) as board,
        gpu.surface(WORDS, "u4") as source,
        gpu.surface(WORDS, "u4") as destination,
        gpu.surface(2, "i4") as report,
        board.queue([board.prepare(source, destination)], gpu=gpu) as queue,
    ):
        kernel = cupy.RawKernel(KERNEL, "copied", options=("-I" + peerdma.include_dir(),))
        # An array of numpy with one element is an argument by value.
        value = bytes(queue.device)
        struct = np.frombuffer(value, f"V{len(value)}")
        arrays = [cupy.asarray(surface) for surface in (source, destination, report)]
        numbers = np.uint32(WORDS), np.uint64(LIMIT)
        kernel((1,), (256,), (struct, *arrays[:2], *numbers, arrays[2]))
        cupy.cuda.Device().synchronize()
        result, wrong = report.get().tolist()
    print(f"result {result} of the board's copy, {wrong} of {WORDS} words wrong")
    return int(bool(result or wrong))


if __name__ == "__main__":
    sys.exit(main())
