# SPDX-License-Identifier: BSD-2-Clause
"""Boards with launch queues, and threads of C++ that use one by device.cuh as a GPU would."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import peerdma
from peerdma.board.queue_memory import QueueMemory
from peerdma.regs import LAUNCH_SLOT, LaunchStatus
from peerdma.uapi import Reason
from tests.boards import options
from tests.host.programs import ROOT

__all__ = ["LAUNCHING", "PAGES", "Copies", "Threads", "compiled", "controls", "kernel_end"]

#: Options of a simulated board that has them.
LAUNCHING = options("launching")
#: And of one that offers their doorbells as pages.
PAGES = ("--doorbell-pages",)
_SOURCE = Path(__file__).with_name("producers.cpp")
_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")


def compiled(folder: Path) -> ctypes.CDLL:
    """The library of producers.cpp, compiled into a folder with the header that users include."""
    library = folder / "producers.so"
    include = f"-I{peerdma.include_dir()}"
    subprocess.run(["g++", *_FLAGS, include, str(_SOURCE), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def kernel_end(folder: Path) -> Callable[[QueueMemory, Reason, LaunchStatus], None]:
    """How the kernel driver ends a queue, of its own source, compiled into a folder.

    Called with the queue's memory, why it ends, and the status of tickets that have no record.
    """
    for name in ("bitfield.h", "bits.h", "build_bug.h"):
        header = folder / "linux" / name
        header.parent.mkdir(exist_ok=True)
        header.touch()  # kernel_tickets.c has what is used of them
    # What is done with a queue's memory comes before what is done with the board.
    driver = ROOT / "driver"
    text = (driver / "engine/launch_queue.c").read_text()
    tickets, _ = text.split("static bool launch_queue_runs(")
    (folder / "tickets.c").write_text(tickets)
    library, source = folder / "tickets.so", _SOURCE.with_name("kernel_tickets.c")
    folders = [f"-I{path}" for path in (folder, ROOT, driver / "engine", driver / "registers")]
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    flags = ("-O2", *warnings, "-shared", "-fPIC", *folders)
    subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True)
    end = ctypes.CDLL(str(library)).kernel_end

    def call(memory: QueueMemory, reason: Reason, status: LaunchStatus) -> None:
        places = [
            ctypes.c_void_p(memory.pages.address + memory.offset(name))
            for name in ("entries", "records", "state")
        ]
        end(*places, memory.depth, reason, status)

    return call


def controls(board, monkeypatch, plans, *names: str) -> list[tuple[int, ...]]:
    """Fields of the control of each plan's slot, as they are written."""
    device, written = board._backend._function.device, {}
    write = device.write32

    def spy(bar, offset, value):
        written[offset] = value
        write(bar, offset, value)

    with monkeypatch.context() as patched:
        patched.setattr(device, "write32", spy)
        with board.queue(plans) as queue:
            base, control = LAUNCH_SLOT.base + LAUNCH_SLOT["control"].offset, LAUNCH_SLOT["control"]
            words = [written[base + LAUNCH_SLOT.stride * slot] for slot in queue._run.slots]
    return [tuple(control.field(name).get(word) for name in names) for word in words]


class Copies:
    """Sources with random bytes, destinations, and a plan for each pair.

    Parameters
    ----------
    board : peerdma.Board
    make : callable
        Makes memory of so many bytes: surfaces or arrays.
    sizes : sequence of int
    """

    def __init__(self, board, make, sizes: Sequence[int], seed: int = 0):
        self._random = np.random.default_rng(seed)
        self.sources = [make(size) for size in sizes]
        self.destinations = [make(size) for size in sizes]
        self.fill()
        pairs = zip(self.sources, self.destinations, strict=True)
        self.plans = [board.prepare(*pair) for pair in pairs]

    @staticmethod
    def bytes(memory) -> np.ndarray:
        """The bytes of what `make` has made."""
        return memory if isinstance(memory, np.ndarray) else memory.array

    def fill(self):
        """New bytes for all sources."""
        for source in self.sources:
            data = self.bytes(source)
            data[:] = self._random.integers(0, 256, len(data), dtype="u1")

    def right(self, index: int) -> bool:
        """Whether a destination has what its source has."""
        here, there = self.sources[index], self.destinations[index]
        return bool((self.bytes(here) == self.bytes(there)).all())


class Threads:
    """What threads of C++ did with a queue; see `work` in producers.cpp."""

    def __init__(self, library: ctypes.CDLL):
        self._library = library

    def work(self, queue, plans: Sequence[int], threads: int, seconds: float = 60.0):
        """Each thread submits its part of `plans` and waits for each; (tickets, results)."""
        names = np.array(plans, np.uint32)
        tickets, results = np.zeros(len(names), np.uint32), np.zeros(len(names), np.int32)
        places = [each.ctypes.data_as(ctypes.c_void_p) for each in (names, tickets, results)]
        limit = ctypes.c_ulonglong(int(seconds * 1e9))
        self._library.work(ctypes.byref(queue), len(names), threads, limit, *places)
        return tickets.tolist(), results.tolist()
