#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Kernel, board, kernel: a kernel makes data, has the board copy it, and checks what has arrived.

Nothing of this program runs in between: the kernel itself starts each copy, by a launch queue, and
sees it end. With --memory device, a simulated board that does not reach the GPU's memory has a
thread of this program copy from and to it, which is said. On a CUDA GPU the kernel is compiled by
NVRTC, and copies of a graph follow, which is launched again and again while the source changes. On
the emulated GPU it is the same source, compiled as C++ by g++; its threads are the CPU's, and there
is no graph.

Without a board this starts a simulated one that has launch queues.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np

import peerdma
from peerdma.cli.main import guarded

#: Words of each plan's copy.
SIZES = (16, 1000, 4096)
#: Nanoseconds for one copy, at most.
LIMIT = 30_000_000_000
Surfaces = Sequence[peerdma.Surface]
#: (source, destination) of each plan
Sides = Sequence[tuple[peerdma.Surface, peerdma.Surface]]
#: Runs the kernel for each plan: the queue, rounds, sides, where each reports.
Kernel = Callable[[peerdma.DeviceQueue, int, Sides, Surfaces], None]
#: After device.cuh. One thread for each plan.
KERNEL = r"""
#ifdef __CUDACC__
#define KERNEL extern "C" __global__
#else
#define KERNEL extern "C"
#endif

KERNEL void rounds(peerdma_queue queue, unsigned plan, unsigned words, unsigned count,
                   volatile unsigned *source, volatile unsigned *destination,
                   unsigned long long limit, volatile int *report) {
    int result = PEERDMA_OK;
    unsigned wrong = 0;
    for (unsigned round = 0; round < count && result == PEERDMA_OK; round++) {
        for (unsigned i = 0; i < words; i++) source[i] = (round * words + i) * 2654435761u + plan;
        unsigned ticket;
        result = peerdma_submit(queue, plan, &ticket, limit);
        if (result == PEERDMA_OK) result = peerdma_wait(queue, ticket, limit);
        if (result != PEERDMA_OK) break;
        for (unsigned i = 0; i < words; i++)
            wrong += destination[i] != (round * words + i) * 2654435761u + plan;
    }
    report[0] = result;
    report[1] = (int)wrong;
}

#ifdef __CUDACC__
// A graph: `made`, the board's copy, `checked`. report: how often it ran, and wrong words.
KERNEL void made(volatile unsigned *source, unsigned words, const volatile int *report) {
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
        source[i] = (report[0] * words + i) * 2654435761u;
}
KERNEL void checked(const volatile unsigned *destination, unsigned words, volatile int *report) {
    int round = report[0];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
        if (destination[i] != (round * words + i) * 2654435761u) atomicAdd((int *)report + 1, 1);
    __syncthreads();
    if (threadIdx.x == 0) report[0] = round + 1;
}
#endif
"""


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", metavar="PATH", help="a board with launch queues")
    parser.add_argument("--gpu", default="auto", metavar="auto|emulated|cuda[:N]", help="(auto)")
    parser.add_argument("--memory", default="host", choices=("host", "device"), help="(host)")
    parser.add_argument("--launches", type=int, default=1000, metavar="N", help="of a graph (1000)")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="of each plan (20)")
    arguments = parser.parse_args()
    return guarded("launch_queue.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Runs the kernels; returns 1 if a copy failed or a word was wrong."""
    options = [] if arguments.board else ["--launch-queues", "2"]
    with contextlib.ExitStack() as used:
        gpu = used.enter_context(peerdma.gpu(arguments.gpu, memory=arguments.memory))
        kernel = by_threads() if gpu.emulated else by_cuda(gpu)
        board = used.enter_context(peerdma.open(arguments.board or "sim", arguments=options))
        sides = [(gpu.surface(words, "u4"), gpu.surface(words, "u4")) for words in SIZES]
        reports = [gpu.surface(2, "i4") for _ in SIZES]
        plans = [board.prepare(*pair) for pair in sides]
        with board.queue(plans, gpu=gpu) as queue:
            before = queue.stats().cycles
            kernel(queue.device, arguments.rounds, sides, reports)
            after = queue.stats()
            graph = None if gpu.emulated else by_graph(gpu, queue, sides[-1], arguments.launches)
    found = [report.get().tolist() for report in reports]
    if any(result or wrong for result, wrong in found):
        print(f"result and wrong words of each plan: {found}", file=sys.stderr)
        return 1
    doorbell, _, _ = queue.doorbell.partition(":")
    print(f"{after.completed} copies that {gpu.name} started by {doorbell}, all words right")
    if before is not None and after.cycles is not None:
        print(f"{(after.cycles - before) / after.completed:.0f} cycles of the board for each")
    if any(peerdma.DataPath.STAGED in plan.path for plan in plans):
        print("a thread of this program copied from and to the GPU for the simulated board")
    if graph is None:
        print("no graph: that takes a CUDA GPU")
    elif graph != [arguments.launches, 0]:
        print(f"launches of a graph, and wrong words: {graph}", file=sys.stderr)
        return 1
    else:
        print(f"{arguments.launches} launches of a graph, the source changed by each, all right")
    return 0


def source() -> str:
    """The header, and the kernel."""
    return Path(peerdma.include_dir(), "peerdma", "device.cuh").read_text() + KERNEL


def compiled() -> Callable[..., None]:
    """The kernel as a function of C++."""
    if not shutil.which("g++"):
        raise peerdma.UnsupportedError(
            "the emulated GPU runs the kernel as C++, and there is no g++: install it, or use a "
            "CUDA GPU (--gpu cuda)"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.so")
        command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "-o", str(file)]
        subprocess.run([*command, "-x", "c++", "-"], input=source(), text=True, check=True)
        rounds = ctypes.CDLL(str(file)).rounds
    word, pointer = ctypes.c_uint, ctypes.c_void_p
    rounds.argtypes = [peerdma.DeviceQueue, word, word, word, pointer, pointer]
    rounds.argtypes += [ctypes.c_ulonglong, pointer]
    rounds.restype = None
    return rounds


def by_threads() -> Kernel:
    """The kernel by threads of the CPU, one for each plan."""
    rounds = compiled()

    def run(queue: peerdma.DeviceQueue, count: int, sides: Sides, reports: Surfaces) -> None:
        with ThreadPoolExecutor(len(sides)) as threads:
            calls = []
            for plan, ((here, there), report) in enumerate(zip(sides, reports, strict=True)):
                places = here.address, there.address, LIMIT, report.address
                calls.append(threads.submit(rounds, queue, plan, here.shape[0], count, *places))
            for call in calls:
                call.result()

    return run


def by_cuda(gpu: peerdma.Gpu) -> Kernel:
    """The kernel on a CUDA GPU, for one plan after the other."""
    from peerdma.cuda.gpu import CudaGpu
    from peerdma.cuda.program import SIZE, WORD, Program

    assert isinstance(gpu, CudaGpu)
    device = gpu.device
    program = Program(device, "launch_queue.cu", source())

    def run(queue: peerdma.DeviceQueue, count: int, sides: Sides, reports: Surfaces) -> None:
        with device.current():
            for plan, ((here, there), report) in enumerate(zip(sides, reports, strict=True)):
                numbers = [(value, WORD) for value in (plan, here.shape[0], count)]
                places = pointer(here), pointer(there), (LIMIT, SIZE), pointer(report)
                program.launch("rounds", (queue, None), *numbers, *places, one=True)
            device.synchronize()

    return run


def pointer(surface: peerdma.Surface) -> tuple[int, type]:
    """A surface as an argument of a kernel."""
    from peerdma.cuda.program import POINTER
    from peerdma.cuda.surface import CudaSurface

    assert isinstance(surface, CudaSurface)
    return surface.device_address, POINTER


def by_graph(
    gpu: peerdma.Gpu, queue: peerdma.Queue, sides: tuple[peerdma.Surface, peerdma.Surface], n: int
) -> list[int]:
    """Launches a graph of kernel, copy and kernel `n` times; returns launches, and wrong words."""
    from peerdma.cuda.gpu import CudaGpu
    from peerdma.cuda.program import WORD, Program

    assert isinstance(gpu, CudaGpu)
    device, plan = gpu.device, len(SIZES) - 1
    program = Program(device, "launch_queue.cu", source())
    report, words = gpu.surface(2, "i4"), (sides[0].shape[0], WORD)

    def call(function: str, *arguments: object) -> Any:
        return device.driver.call(function, *arguments, action="launch a graph")

    with contextlib.ExitStack() as undo, device.current():
        # Not the library's own, in which a simulated board's copies of GPU memory are made.
        stream = device.new_stream(undo)
        launch = functools.partial(program.launch, stream=stream, one=True)
        made = "made", pointer(sides[0]), words, pointer(report)
        checked = "checked", pointer(sides[1]), words, pointer(report)
        # Each kernel is loaded when it is first launched: not in a capture, nor behind a stream
        # that waits for the board, which may wait for CUDA.
        launch(*made)
        launch(*checked)
        device.synchronize(stream)
        report.set(np.zeros(2, np.int32))
        modes = device.driver.api.CUstreamCaptureMode
        call("cuStreamBeginCapture", stream, modes.CU_STREAM_CAPTURE_MODE_RELAXED)
        launch(*made)
        queue.enqueue(plan, stream)
        launch(*checked)
        graph = call("cuStreamEndCapture", stream)
        executable = call("cuGraphInstantiate", graph, 0)
        for _ in range(n):
            call("cuGraphLaunch", executable, stream)
        device.synchronize(stream)
        call("cuGraphExecDestroy", executable)
        call("cuGraphDestroy", graph)
    queue.check()
    return report.get().tolist()


if __name__ == "__main__":
    sys.exit(main())
