# SPDX-License-Identifier: BSD-2-Clause
"""Transfers whose descriptors are prepared once and run any number of times.

A transfer of a few bytes takes little more than its register accesses, and preparing a chain takes
longer than these. So everything that does not change from run to run is computed beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..regs import DESCRIPTOR, Status
from .chain import write_chain
from .dma_channel import Access, Direction, DmaChannel
from .engine import Engine

__all__ = ["Prepared", "Ring", "Side"]

_BUSY = int(Status.BUSY)


class Ring:
    """Memory for descriptors that the board can read.

    Parameters
    ----------
    memory : numpy.ndarray of DESCRIPTOR
    address : int
        Its bus address, a multiple of 4 KiB.
    """

    def __init__(self, memory: np.ndarray, address: int):
        self.descriptors = memory
        #: the same memory as `descriptors`
        self.bytes: memoryview = memory.view(np.uint8).data
        self.address = address

    def part(self, index: int, count: int) -> Ring:
        """Number `index` of `count` equal parts."""
        size = len(self.descriptors) // count
        start = index * size
        address = self.address + start * DESCRIPTOR.itemsize
        return Ring(self.descriptors[start : start + size], address)


class _Chain(NamedTuple):
    """A chain of descriptors, ready to be copied to the ring."""

    image: bytes
    descriptors: int
    #: register writes that give its address to the channel
    load: list[Access]


class Side:
    """One direction of a transfer, as a sequence of chains.

    Parameters
    ----------
    engine : Engine
    direction : Direction
    ring : Ring
        Where its chains are written. If the descriptors do not fit, there are several chains.
    bus, card, lengths : numpy.ndarray of uint64
        One entry per descriptor, at least one: bus addresses, card addresses, bytes.
    """

    def __init__(
        self,
        engine: Engine,
        direction: Direction,
        ring: Ring,
        bus: np.ndarray,
        card: np.ndarray,
        lengths: np.ndarray,
    ):
        self.direction = direction
        self.channel: DmaChannel = engine.channels[direction]
        self.nbytes: int = int(lengths.sum())
        self._ring = ring.bytes
        self._registers = engine.registers
        self.chains: list[_Chain] = []
        columns = (bus, card) if direction is Direction.H2C else (card, bus)
        most = len(ring.descriptors)
        for start in range(0, len(lengths), most):
            source, destination, length = (
                column[start : start + most] for column in (*columns, lengths)
            )
            memory = np.zeros(len(length), DESCRIPTOR)
            adjacent = write_chain(memory, ring.address, source, destination, length)
            load = self.channel.load(ring.address, adjacent)
            self.chains.append(_Chain(memory.tobytes(), len(memory), load))

    def start(self, number: int) -> None:
        """Starts one of its chains."""
        image, _, load = self.chains[number]
        write, channel = self._registers.write32, self.channel
        self._ring[: len(image)] = image
        for bar, offset, value in load:
            write(bar, offset, value)
        self._registers.read32(*channel.status_rc)
        for bar, offset, value in channel.arm:
            write(bar, offset, value)


class Prepared:
    """A transfer of one or two sides, which run at the same time.

    Parameters
    ----------
    engine : Engine
    sides : sequence of Side
        In the order in which they are started.
    """

    def __init__(self, engine: Engine, sides: Sequence[Side]):
        self._engine = engine
        self._sides = list(sides)
        self._seconds = engine.seconds_for(sum(side.nbytes for side in sides))

    def run(self) -> int:
        """Runs the transfer; returns the busy clock cycles of the side that is started first.

        Raises
        ------
        TransferError, Timeout
            The engine has then been stopped: it accesses no memory any more, and the next transfer
            is not affected. How much was transferred is unknown.
        """
        engine, sides = self._engine, self._sides
        first = sides[0]
        engine.require_usable()
        registers = engine.registers
        left = self._seconds
        end = time.monotonic() + left
        cycles = 0
        #: number of the chain that runs, for each side that has not ended
        running = dict.fromkeys(sides, 0)
        try:
            for side in sides:
                side.start(0)
            while running:
                if not registers.wait_interrupt(left):
                    late = next(iter(running))
                    raise engine.timed_out(late.direction, late.nbytes, self._seconds)
                found = [(side, side.channel.take_status()) for side in running]
                registers.interrupt_done()
                for side, status in found:
                    if not status & ~_BUSY:
                        continue
                    number = running[side]
                    engine.check(side.direction, status, side.chains[number].descriptors)
                    busy = side.channel.busy_cycles()
                    if side is first:
                        cycles += busy
                    side.channel.disarm()
                    if number + 1 < len(side.chains):
                        running[side] = number + 1
                        side.start(number + 1)
                    else:
                        del running[side]
                left = max(0.0, end - time.monotonic())
        except BaseException:
            # The caller may unmap the memory next, so the engine must not access it any more.
            engine.stop([side.direction for side in sides])
            raise
        return cycles
