# SPDX-License-Identifier: BSD-2-Clause
"""Kernels with a launch queue: on a real GPU, else as C++ by a thread of the emulated one."""

import ctypes
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import peerdma
from peerdma.cuda.program import POINTER, SIZE, WORD, Program
from peerdma.uapi import Reason
from tests.host.board.launch_helpers import LAUNCHING, PAGES
from tests.host.conftest import CUDA

#: Words of each plan's copy, and nanoseconds for one, at most.
SIZES = (1, 16, 100, 777, 1024, 2000, 3333, 4096)
LIMIT = 20_000_000_000
HEADER = '#include <peerdma/device.cuh>\n#define KERNEL extern "C"\n'
SOURCE = r"""
// `count` copies by plans in random order, several on their way; each is checked when it is done.
KERNEL void mixed(peerdma_queue queue, const unsigned long long *sources,
                  const unsigned long long *destinations, const unsigned *words, unsigned count,
                  unsigned random, unsigned long long limit, volatile int *report) {
    unsigned tickets[64], made[64] = {0}, wrong = 0, done = 0;
    int result = PEERDMA_OK;
    for (unsigned step = 1; step <= count + queue.plans; step++) {
        random = random * 1664525u + 1013904223u;
        unsigned plan = step <= count ? (random >> 16) % queue.plans : step - count - 1;
        volatile unsigned *source = (volatile unsigned *)sources[plan];
        volatile unsigned *destination = (volatile unsigned *)destinations[plan];
        if (made[plan]) {
            result = peerdma_wait(queue, tickets[plan], limit);
            if (result != PEERDMA_OK) break;
            for (unsigned i = 0; i < words[plan]; i++)
                wrong += destination[i] != (made[plan] + i) * 2654435761u;
            done++;
        }
        made[plan] = step;
        if (step > count) continue;
        for (unsigned i = 0; i < words[plan]; i++) source[i] = (step + i) * 2654435761u;
        result = peerdma_submit(queue, plan, &tickets[plan], limit);
        if (result != PEERDMA_OK) break;
    }
    report[0] = result;
    report[1] = (int)wrong;
    report[2] = (int)done;
}

// Random words all over the queue's memory and its page, and tails that the board takes notice of.
KERNEL void scribble(peerdma_queue queue, unsigned count, unsigned random) {
    unsigned *memory = (unsigned *)queue.entries;
    for (unsigned i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        peerdma_store(memory + random / 7 % 2048, random);
        if (i % 16 == 0) {
            unsigned tail = (peerdma_load(queue.published) + random % 9) & 0xFFFF;
            unsigned word = queue.generation << 16 | tail;
            peerdma_store(queue.tail, word);
            if (queue.doorbell) {
                unsigned place = i % 32 ? random / 9 % 512 : 0;
                peerdma_store(queue.doorbell + place, (unsigned long long)random << 32 | word);
            }
            peerdma_fence();
        }
    }
}
"""


@pytest.fixture(params=["emulated", *CUDA])
def gpu(request):
    with peerdma.gpu(*CUDA.get(request.param, ("emulated",))[:1], memory=memory_of(request)) as gpu:
        yield gpu


def memory_of(request):
    return CUDA[request.param][1] if request.param in CUDA else "host"


@pytest.fixture(params=["shadow tail", "page of registers"])
def doorbell(request):
    """What the queue's `doorbell` begins with."""
    return request.param


@pytest.fixture
def board(doorbell):
    pages = PAGES if doorbell == "page of registers" else ()
    with peerdma.open("sim", arguments=(*LAUNCHING, *pages)) as board:
        yield board


@pytest.fixture
def run(gpu, tmp_path):
    """Calls a kernel by one thread: name, queue, and further arguments with their types."""
    if gpu.emulated:
        library = tmp_path / "kernels.so"
        command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "-x", "c++", "-"]
        command += [f"-I{peerdma.include_dir()}", "-o", str(library)]
        subprocess.run(command, input=HEADER + SOURCE, text=True, check=True)
        kernels = ctypes.CDLL(str(library))

        def call(name, queue, *arguments):
            kernel = getattr(kernels, name)
            kernel.argtypes = [type(queue), *(kind for _, kind in arguments)]
            kernel(queue, *(value for value, _ in arguments))

        return call
    text = Path(peerdma.include_dir(), "peerdma", "device.cuh").read_text()
    program = Program(
        gpu.device, "kernels.cu", text + '\n#define KERNEL extern "C" __global__\n' + SOURCE
    )

    def launch(name, queue, *arguments):
        with gpu.device.current():
            program.launch(name, (queue, None), *arguments, one=True)
            gpu.device.synchronize()

    return launch


def address(surface):
    """Where kernels find a surface."""
    return getattr(surface, "device_address", None) or surface.address


def test_one_launch_makes_a_thousand_copies_of_mixed_sizes(board, gpu, run, doorbell, seed):
    sides = [(gpu.surface(words, "u4"), gpu.surface(words, "u4")) for words in SIZES]
    tables = [gpu.surface(len(SIZES), kind) for kind in ("u8", "u8", "u4")]
    for table, values in zip(
        tables,
        ([address(here) for here, _ in sides], [address(there) for _, there in sides], SIZES),
        strict=True,
    ):
        table.set(np.array(values, table.dtype))
    report = gpu.surface(3, "i4")
    with board.queue([board.prepare(*pair) for pair in sides], gpu=gpu, depth=8) as queue:
        numbers = (1000, WORD), (seed, WORD), (LIMIT, SIZE)
        places = [(address(table), POINTER) for table in tables]
        run("mixed", queue.device, *places, *numbers, (address(report), POINTER))
        assert report.get().tolist() == [0, 0, 1000]
        assert queue.stats().completed == 1000
        assert queue.doorbell.startswith(doorbell)


def test_a_kernel_that_scribbles_harms_its_queue_only(board, gpu, run, seed):
    sides = [(gpu.surface(64, "u4"), gpu.surface(64, "u4")) for _ in range(3)]
    for here, _ in sides:
        here.set(np.arange(64, dtype="u4") + seed)
    plans = [board.prepare(*pair) for pair in sides]
    with board.queue(plans[:1], gpu=gpu, depth=8) as other:
        for number in range(5):
            with board.queue(plans[1:2], gpu=gpu, depth=8) as queue:
                run("scribble", queue.device, (3000, WORD), ((seed + number) % 2**32, WORD))
                other.wait(other.submit(0))
                plans[2].run()
                time.sleep(0.1)
                queue.stats()
                assert queue._memory.ended in (Reason.NONE, Reason.ENGINE)
        for index in (0, 2):
            assert (sides[index][1].get() == sides[index][0].get()).all()
