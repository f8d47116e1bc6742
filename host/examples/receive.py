#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A kernel takes frames of a sensor by itself: it receives, checks and gives back in a loop.

Nothing of this program runs in between. By a launch queue the kernel has the board put each frame
into one of a few buffers, and waits for it. It checks that no number is missing, and the frame's
CRC, against the record that the board has written behind it, and submits the buffer again. On a
CUDA GPU the kernel is compiled by NVRTC; on the emulated GPU it is the same source, compiled as C++
by g++, in a thread of the CPU.

The sensor is the board's pattern source, which makes frames as fast as they are taken. So from the
start of one frame to that of the next is as long as board and kernel need for a frame. That is what
is told, in cycles of the board, as the records have it. The first frames do not count, which waited
on the board before any was taken.

Without a board this starts a simulated one that has launch queues and the pattern source.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np

import peerdma
from peerdma import testing
from peerdma.cli.main import guarded
from peerdma.cli.tails import tails
from peerdma.regs import FRAME_RECORD

#: Nanoseconds for one frame, at most.
LIMIT = 30_000_000_000
#: The board keeps so many frames before they are taken.
WAITING = 16
RECORD = FRAME_RECORD.itemsize


class Memory(NamedTuple):
    """What the kernel has."""

    #: a row for each buffer
    data: peerdma.Surface
    #: of the frame in each buffer
    records: peerdma.Surface
    #: for each frame, when it began
    times: peerdma.Surface
    #: what the kernel says at its end
    report: peerdma.Surface


#: Runs the kernel, which takes so many frames.
Kernel = Callable[[peerdma.DeviceQueue, int, Memory], None]
#: After device.cuh.
KERNEL = r"""
#ifdef __CUDACC__
#define KERNEL extern "C" __global__
#define CONSTANT __constant__
#else
#define KERNEL extern "C"
#define CONSTANT static const
#endif

// FRAME_RECORD of peerdma.regs
struct record {
    unsigned long long cycles, reserved;
    unsigned bytes, dropped, crc, number;
};

CONSTANT unsigned crcs[16] = {
    0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
    0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C,
};

PEERDMA_FUNCTION unsigned crc_of(const volatile unsigned *data, unsigned words) {
    unsigned crc = ~0u;
    for (unsigned i = 0; i < words; i++) {
        crc ^= data[i];
        for (int nibble = 0; nibble < 8; nibble++) crc = crc >> 4 ^ crcs[crc & 15];
    }
    return ~crc;
}

// One thread. Buffer n is that of plan n. report: how the last ticket ended, frames taken, those
// that were lost before them, and those that were wrong.
KERNEL void receive(peerdma_queue queue, unsigned frames, unsigned words,
                    const volatile unsigned *data, const volatile record *records,
                    volatile unsigned long long *times, unsigned long long limit,
                    volatile int *report) {
    unsigned tickets[32], submitted = 0, frame = 0, wrong = 0, lost = 0, next = 0;
    int result = PEERDMA_OK;
    for (; frame < frames; frame++) {
        for (; submitted < frames && submitted < frame + queue.plans; submitted++) {
            unsigned plan = submitted % queue.plans;
            result = peerdma_submit(queue, plan, tickets + plan, limit);
            if (result != PEERDMA_OK) break;
        }
        unsigned buffer = frame % queue.plans;
        if (result == PEERDMA_OK) result = peerdma_wait(queue, tickets[buffer], limit);
        if (result != PEERDMA_OK) break;
        const volatile record &found = records[buffer];
        unsigned number = found.number & 0x7FFFFFFF;  // the upper bit is always set
        lost += number - next;
        next = number + 1;
        if (found.bytes != 4 * words || found.crc != crc_of(data + buffer * words, words)) wrong++;
        times[frame] = found.cycles;
    }
    report[0] = result;
    report[1] = (int)frame;
    report[2] = (int)lost;
    report[3] = (int)wrong;
}
"""


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", metavar="PATH", help="a board with these")
    parser.add_argument("--gpu", default="auto", metavar="auto|emulated|cuda[:N]", help="(auto)")
    parser.add_argument("--memory", default="host", choices=("host", "device"), help="(host)")
    parser.add_argument("--frames", type=int, default=2000, metavar="N", help="to take (2000)")
    parser.add_argument("--words", type=int, default=64, metavar="N", help="of a frame (64)")
    parser.add_argument("--buffers", type=int, default=4, metavar="N", help="1 to 32 (4)")
    arguments = parser.parse_args()
    if not 1 <= arguments.buffers <= 32:
        parser.error("there are 1 to 32 buffers")
    return guarded("receive.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Runs the kernel; returns 1 if a frame was lost or wrong."""
    count, words, buffers = arguments.frames, arguments.words, arguments.buffers
    options = [] if arguments.board else ["--user", "pattern", "--launch-queues", "2"]
    with contextlib.ExitStack() as used:
        gpu = used.enter_context(peerdma.gpu(arguments.gpu, memory=arguments.memory))
        kernel = by_thread() if gpu.emulated else by_cuda(gpu)
        board = used.enter_context(peerdma.open(arguments.board or "sim", arguments=options))
        memory = Memory(
            gpu.surface((buffers, words), "u4"),
            gpu.surface(buffers, FRAME_RECORD),
            gpu.surface(count, "u8"),
            gpu.surface(4, "i4"),
        )
        frames, records = board.pin(memory.data), board.pin(memory.records)
        plans = [
            board.prepare_receive(part(frames, n, 4 * words), part(records, n, RECORD))
            for n in range(buffers)
        ]
        sensor = testing.PatternSource(board)
        sensor.start(4 * words, seed=1)
        used.callback(sensor.stop)
        with board.queue(plans, gpu=gpu) as queue:
            kernel(queue.device, count, memory)
            rung, _, _ = queue.doorbell.partition(":")
    result, taken, lost, wrong = memory.report.get().tolist()
    print(f"{taken} frames of {4 * words} bytes that {gpu.name} took by {rung}: {lost} lost")
    if result or lost or wrong:
        print(f"the last ticket ended with {result}; {wrong} frames were wrong", file=sys.stderr)
        return 1
    between = np.diff(memory.times.get().astype(np.int64))[WAITING + buffers :]
    if len(between):
        known = (
            f"{name} {value}"
            for name, value in tails(between.tolist()).items()
            if value is not None
        )
        print(f"cycles of the board from one frame to the next: {', '.join(known)}")
    return 0


def part(pin: peerdma.Pin, number: int, nbytes: int) -> peerdma.Span:
    """One of many parts of so many bytes each."""
    return pin[number * nbytes : (number + 1) * nbytes]


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
        receive = ctypes.CDLL(str(file)).receive
    word, pointer = ctypes.c_uint, ctypes.c_void_p
    receive.argtypes = [peerdma.DeviceQueue, word, word, pointer, pointer, pointer]
    receive.argtypes += [ctypes.c_ulonglong, pointer]
    receive.restype = None
    return receive


def by_thread() -> Kernel:
    """The kernel in this thread of the CPU."""
    receive = compiled()

    def run(queue: peerdma.DeviceQueue, count: int, memory: Memory) -> None:
        *places, report = (surface.address for surface in memory)
        receive(queue, count, memory.data.shape[1], *places, LIMIT, report)

    return run


def by_cuda(gpu: peerdma.Gpu) -> Kernel:
    """The kernel on a CUDA GPU."""
    from peerdma.cuda.gpu import CudaGpu
    from peerdma.cuda.program import POINTER, SIZE, WORD, Program
    from peerdma.cuda.surface import CudaSurface

    assert isinstance(gpu, CudaGpu)
    device = gpu.device
    program = Program(device, "receive.cu", source())

    def pointer(surface: peerdma.Surface) -> tuple[int, type]:
        assert isinstance(surface, CudaSurface)
        return surface.device_address, POINTER

    def run(queue: peerdma.DeviceQueue, count: int, memory: Memory) -> None:
        *places, report = (pointer(surface) for surface in memory)
        numbers = (count, WORD), (memory.data.shape[1], WORD)
        with device.current():
            program.launch(
                "receive", (queue, None), *numbers, *places, (LIMIT, SIZE), report, one=True
            )
            device.synchronize()

    return run


if __name__ == "__main__":
    sys.exit(main())
