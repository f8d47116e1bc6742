#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A kernel of Numba makes data, has the board copy it, and checks what has arrived."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
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
#: After device.cuh, whose struct Numba does not know: the kernel has its address. What a function
#: of CUDA C++ returns, Numba takes by its first argument.
FUNCTION = r"""
extern "C" __device__ int copied(int *result, unsigned long long queue, unsigned plan,
                                 unsigned long long limit) {
    unsigned ticket;
    *result = peerdma_submit(*(const peerdma_queue *)queue, plan, &ticket, limit);
    if (*result == PEERDMA_OK)
        *result = peerdma_wait(*(const peerdma_queue *)queue, ticket, limit);
    return 0;
}
"""


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", metavar="PATH", help="a board with launch queues")
    arguments = parser.parse_args()
    return guarded("numba_queue.py", lambda: run(arguments.board))


def run(path: str | None) -> int:
    """Has a kernel copy and check; returns 1 if something was wrong."""
    try:
        cuda: Any = importlib.import_module("numba.cuda")
    except ImportError:
        text = "this example needs Numba's package for CUDA: https://nvidia.github.io/numba-cuda/user/installation.html"
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
        with tempfile.TemporaryDirectory() as folder:
            code = Path(folder, "copied.cu")
            header = Path(peerdma.include_dir(), "peerdma", "device.cuh")
            code.write_text(header.read_text() + FUNCTION)
            copied = cuda.declare_device("copied", "int32(uint64, uint32, uint64)", link=str(code))
            struct = cuda.to_device(np.frombuffer(bytes(queue.device), np.uint8))
            arrays = [cuda.as_cuda_array(each) for each in (source, destination, report)]
            at = np.uint64(struct.__cuda_array_interface__["data"][0])

            @cuda.jit
            def kernel(queue, source, destination, report):
                for i in range(cuda.threadIdx.x, source.size, cuda.blockDim.x):
                    source[i] = i * 3 + 1
                cuda.syncthreads()
                if cuda.threadIdx.x == 0:
                    report[0] = copied(queue, 0, LIMIT)
                cuda.syncthreads()
                for i in range(cuda.threadIdx.x, source.size, cuda.blockDim.x):
                    if destination[i] != i * 3 + 1:
                        cuda.atomic.add(report, 1, 1)

            kernel[1, 256](at, *arrays)
            cuda.synchronize()
        result, wrong = report.get().tolist()
    print(f"result {result} of the board's copy, {wrong} of {WORDS} words wrong")
    return int(bool(result or wrong))


if __name__ == "__main__":
    sys.exit(main())
