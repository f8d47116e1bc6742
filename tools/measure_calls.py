# SPDX-License-Identifier: BSD-2-Clause
"""``make perf-host``: measures the overhead of the Python library for a copy.

Stand-ins for board and driver, in this process, finish each transfer at once, so that only software
takes time. Each way to make a transfer and a bare sequence that does the same are run in turn, many
times. The bare sequence is the same register accesses with prepared descriptors, or the driver's
request, poll and read with a prepared structure. Each time is divided by that of the bare sequence
of its round: median and quartiles of these ratios tell more than the times on a busy machine. The
times are told as percentiles, by nearest rank; - is one of too few rounds.

With a CUDA GPU, surfaces in its memory are measured, too: what CUDA is asked for takes its time.

Writes build/perf/calls.json. Times depend on the machine, so none counts as a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import select
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from peerdma import uapi
from peerdma.board.board import Board
from peerdma.cli.tails import TAILS, tails
from peerdma.errors import GpuNotFound
from peerdma.gpus import gpu as open_gpu
from peerdma.kernel import node as kernel_node
from peerdma.kernel.backend import KernelBackend
from peerdma.regs import (
    C2H_CHANNEL_BASE,
    CHANNEL,
    EXTENSION,
    EXTENSION_MAGIC,
    PASS_THROUGH,
    Capability,
    Status,
    identifier,
)
from peerdma.uapi import Event, Feature, Ioctl
from peerdma.userspace.backend import UserSpaceBackend
from peerdma.vfio_user import platform
from peerdma.vfio_user.wire import DeviceFlag

__all__ = ["BARE", "CASES", "THREADED", "Case", "Measured", "main", "measure"]

#: Each way to make a transfer, by name, and as `BARE` the bare sequence that does the same.
Case = dict[str, Callable[[], object]]
#: Microseconds of each, one of each per round.
Measured = dict[str, list[float]]
BARE = "bare sequence"
#: The ways that have a thread at work.
THREADED = ("submit, result", "submit, await")
_NBYTES = 4096
#: Pairs of source and destination that are copied in turn.
_PAIRS = 1000


class _Registers:
    """A stand-in for the board, registers only: each run has ended as soon as it is started."""

    lost = False
    identity = (0x10EE, 0x7021, 0x10EE, 0x5045)
    interrupt = mock.Mock()
    interrupt.name = "MSIX"

    def __init__(self, *_, **__):
        self._values = {
            EXTENSION.address("magic"): EXTENSION_MAGIC,
            EXTENSION.address("version"): EXTENSION["version"].reset,
            EXTENSION.address("capabilities"): int(Capability.STREAM),
            EXTENSION.address("card_ram_size"): 65_536,
            EXTENSION.address("link"): 0x0002_0012,
            EXTENSION.address("clock_khz"): 125_000,
            EXTENSION.address("time_scale"): 1,
            EXTENSION.address("user_block"): int.from_bytes(PASS_THROUGH.encode(), "little"),
            EXTENSION.address("user_ratio"): 0x0101,
        }
        for target, base in enumerate((CHANNEL.base, C2H_CHANNEL_BASE)):
            good = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED
            for name, value in (
                ("identifier", identifier(target)),
                ("status_rc", int(good)),
                ("completed_count", 1),
                ("perf_cycles_lo", 1000),
            ):
                self._values[CHANNEL.address(name, base=base)] = value

    @property
    def device(self) -> _Registers:
        """This, as the registers of a function."""
        return self

    def read32(self, bar: int, offset: int) -> int:
        """The value of a register."""
        return self._values.get(offset, 0)

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Does nothing."""

    def take_lost_writes(self) -> None:
        """None were lost."""

    def wait(self, until: float | None) -> None:
        """Nothing to wait for."""

    def wake(self) -> None:
        """Nobody waits."""

    def take_interrupt(self) -> bool:
        """The interrupt has always come."""
        return True

    def interrupt_done(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def _recorded(registers: _Registers, call: Callable[[], object]) -> list[Callable[[], object]]:
    """The register accesses that `call` makes, to repeat them without it."""
    steps: list[Callable[[], object]] = []

    def spy(name: str):
        real = getattr(type(registers), name)

        def method(*arguments):
            steps.append((name, arguments))
            return real(registers, *arguments)

        return method

    names = ("read32", "write32", "take_interrupt", "interrupt_done")
    for name in names:
        setattr(registers, name, spy(name))
    call()
    for name in names:
        delattr(registers, name)
    return steps


@contextlib.contextmanager
def _copies(board: Board) -> Iterator[Case]:
    """The ways to make a copy of `_NBYTES` with the library."""
    size = _NBYTES + _PAIRS
    buffers = [np.zeros(size, np.uint8) for _ in range(2)]
    arrays = [np.zeros(_NBYTES, np.uint8) for _ in range(2)]
    loop = asyncio.new_event_loop()
    with (
        contextlib.closing(loop),
        board.pin(buffers[0]) as source,
        board.pin(buffers[1]) as target,
        _surfaces(board) as surfaces,
    ):
        one = source[:_NBYTES], target[:_NBYTES]
        plan = board.prepare(*one)
        spans = [slice(at, at + _NBYTES) for at in range(_PAIRS)]
        pairs = itertools.cycle([(source[each], target[each]) for each in spans])

        async def awaited() -> None:
            await plan.submit()

        yield {
            "Plan.run": plan.run,
            "Board.copy": lambda: board.copy(*one),
            f"{_PAIRS} pairs in turn": lambda: board.copy(*next(pairs)),
            "Board.copy, arrays": lambda: board.copy(*arrays),
            "Plan.run, arrays": board.prepare(*arrays).run,
            **surfaces,
            THREADED[0]: lambda: plan.submit().result(),
            THREADED[1]: lambda: loop.run_until_complete(awaited()),
        }


@contextlib.contextmanager
def _surfaces(board: Board) -> Iterator[Case]:
    """Copies between surfaces in a CUDA GPU's memory; none without a GPU."""
    try:
        gpu = open_gpu("cuda", memory="device")
    except GpuNotFound:
        yield {}
        return
    with (
        gpu,
        gpu.surface(_NBYTES) as source,
        gpu.surface(_NBYTES) as target,
        board.pin(source) as s,
        board.pin(target) as t,
    ):
        yield {
            "Board.copy, CUDA surfaces": lambda: board.copy(s, t),
            "Plan.run, CUDA surfaces": board.prepare(s, t).run,
        }


@contextlib.contextmanager
def _writes(board: Board) -> Iterator[Case]:
    array = np.zeros(_NBYTES, np.uint8)
    with board.pin(array) as pin:
        yield {
            "Board.write": lambda: board.write(pin),
            "Board.write, array": lambda: board.write(array),
        }


@contextlib.contextmanager
def _reads(board: Board) -> Iterator[Case]:
    array = np.zeros(_NBYTES, np.uint8)
    with board.pin(array) as pin:
        yield {
            "Board.read": lambda: board.read(pin),
            "Board.read, array": lambda: board.read(array),
        }


#: Makes the ways to make a transfer on a board.
Ways = Callable[[Board], contextlib.AbstractContextManager[Case]]


@contextlib.contextmanager
def _user_space(make: Ways) -> Iterator[Case]:
    client = mock.Mock(lost=False)
    client.return_value.device_info.return_value.flags = DeviceFlag.PCI
    client.return_value.lost = False
    with (
        mock.patch.object(platform, "VfioUserClient", client),
        mock.patch.object(platform, "SocketFunction", _Registers),
    ):
        backend = UserSpaceBackend(platform.SocketPlatform(""), "stand-in")
    registers = backend._function
    with Board(backend) as board, make(board) as ways:
        call = next(iter(ways.values()))
        ring = backend._driver.ring_bytes
        ring[:] = bytes(len(ring))
        call()
        places = [slice(at, at + 32) for at in (0, len(ring) // 2)]
        images = [(place, bytes(ring[place])) for place in places if any(ring[place])]
        steps = _recorded(registers, call)

        def bare():
            reads, writes = registers.read32, registers.write32
            for place, image in images:
                ring[place] = image
            for name, arguments in steps:
                if name == "read32":
                    reads(*arguments)
                elif name == "write32":
                    writes(*arguments)
                elif name == "take_interrupt":
                    registers.take_interrupt()
                else:
                    registers.interrupt_done()

        yield {**ways, BARE: bare}


@contextlib.contextmanager
def _kernel(make: Ways, op: uapi.Op) -> Iterator[Case]:
    ended = bytes(Event(job=1, bytes=_NBYTES, cycles=1000))

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "node"))
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR)

        def ioctl(fd: int, code: int, argument) -> int:
            if code == Ioctl.SUBMIT:
                argument.job = 1
                os.write(pipe, ended)
            elif code == Ioctl.GET_INFO:
                argument.uapi_version = uapi.UAPI_VERSION[0] << 16
                argument.features = Feature.STREAM_COPY
                argument.time_scale, argument.card_ram_size = 1, _NBYTES
            elif code in (Ioctl.PIN_PAGES, Ioctl.PIN_DMABUF):
                argument.handle = 1
            return 0

        with mock.patch.object(kernel_node.fcntl, "ioctl", ioctl):
            node = kernel_node.KernelNode(path)
            with Board(KernelBackend(node)) as board, make(board) as ways:
                submit = uapi.Submit(op=op, src_handle=1, dst_handle=1, length=_NBYTES)
                poll = select.poll()
                poll.register(pipe, select.POLLIN)
                size = 64 * len(ended)

                def bare():
                    kernel_node.fcntl.ioctl(pipe, Ioctl.SUBMIT, submit)
                    poll.poll(60_000)
                    os.read(pipe, size)

                yield {**ways, BARE: bare}
        os.close(pipe)


CASES = {
    "user space": partial(_user_space, _copies),
    "user space, write": partial(_user_space, _writes),
    "user space, read": partial(_user_space, _reads),
    "kernel driver": partial(_kernel, _copies, uapi.Op.COPY),
    "kernel driver, write": partial(_kernel, _writes, uapi.Op.H2C),
    "kernel driver, read": partial(_kernel, _reads, uapi.Op.C2H),
}


def measure(case: Case, rounds: int) -> Measured:
    """Microseconds of all, run in turn, so that other load on the machine affects all."""
    clock = time.perf_counter_ns
    found: Measured = {name: [] for name in case}
    both = [(call, found[name].append) for name, call in case.items()]
    for _ in range(rounds):
        for call, note in both:
            began = clock()
            call()
            note((clock() - began) / 1e3)
    return found


def _row(values: list[float], bare: list[float]) -> dict[str, float | None]:
    ratios = [value / base for value, base in zip(values, bare, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {**tails(values), "ratio": middle, "25 %": low, "75 %": high}


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m tools.measure_calls",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=20_000, metavar="N", help="(20000)")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/perf/calls.json"))
    arguments = parser.parse_args(argv)
    heads = (*TAILS, "ratio", "25 %", "75 %")
    print(f"{f'{_NBYTES} bytes, µs':46}" + "".join(f"{head:>10}" for head in heads))
    found = {}
    for name, case in CASES.items():
        with case() as calls:
            # Apart, as the thread that ends a job disturbs what comes next.
            threaded = {call: calls.pop(call) for call in THREADED if call in calls}
            rows: dict[str, dict[str, float | None]] = {}
            for group in (calls, threaded | {BARE: calls[BARE]}):
                measure(group, arguments.rounds // 10)  # first caches and branches
                times = measure(group, arguments.rounds)
                rows = {call: _row(each, times[BARE]) for call, each in times.items()} | rows
        for call, row in rows.items():
            values = ("-" if row[head] is None else f"{row[head]:.2f}" for head in heads)
            cells = "".join(f"{value:>10}" for value in values)
            print(f"{f'{name}: {call}':46}{cells}")
        found[name] = rows
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
