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

from ..errors import Timeout
from ..memory.scatter import Numbers
from ..regs import DESCRIPTOR, PUSH_DESCRIPTORS, Status
from .chain import one_descriptor, write_chain
from .dma_channel import Access, Direction, DmaChannel
from .engine import Engine

__all__ = ["Prepared", "Ring", "Run", "Side"]

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
    """A chain of descriptors, ready to be started."""

    #: what is copied to the ring; nothing if it is pushed
    image: bytes
    descriptors: int
    #: register writes that give its address to the channel, or push it
    load: list[Access]


class Side:
    """One direction of a transfer, as a sequence of chains.

    Parameters
    ----------
    engine : Engine
    direction : Direction
    ring : Ring
        Where its chains are written. If the descriptors do not fit, there are several chains. A
        chain of a few descriptors is pushed into the board instead, if that takes them.
    bus, card, lengths : sequence of int, or numpy.ndarray of uint64
        One entry per descriptor, at least one: bus addresses, card addresses, bytes.
    """

    def __init__(
        self,
        engine: Engine,
        direction: Direction,
        ring: Ring,
        bus: Numbers,
        card: Numbers,
        lengths: Numbers,
    ):
        self.direction = direction
        self.channel: DmaChannel = engine.channels[direction]
        self._pushes = engine.pushes
        self._ring = ring.bytes
        sources, destinations = (bus, card) if direction is Direction.H2C else (card, bus)
        if len(lengths) == 1:
            self.nbytes: int = int(lengths[0])
            image = one_descriptor(sources[0], destinations[0], self.nbytes)
            self.chains: list[_Chain] = [self._chain(image, 1, ring.address, 0)]
            return
        self.nbytes = int(np.sum(lengths))
        self.chains = []
        most = len(ring.descriptors)
        for start in range(0, len(lengths), most):
            source, destination, length = (
                np.asarray(column[start : start + most], np.uint64)
                for column in (sources, destinations, lengths)
            )
            memory = np.zeros(len(length), DESCRIPTOR)
            adjacent = write_chain(memory, ring.address, source, destination, length)
            self.chains.append(self._chain(memory.tobytes(), len(memory), ring.address, adjacent))

    def _chain(self, image: bytes, descriptors: int, address: int, adjacent: int) -> _Chain:
        if self._pushes and descriptors <= PUSH_DESCRIPTORS:
            return _Chain(b"", descriptors, self.channel.push(image))
        return _Chain(image, descriptors, self.channel.load(address, adjacent))

    def start(self, number: int) -> None:
        """Starts one of its chains."""
        image, _, load = self.chains[number]
        self._ring[: len(image)] = image
        self.channel.start(load)


class Prepared:
    """A transfer of one or two sides, which run at the same time.

    Parameters
    ----------
    engine : Engine
    sides : sequence of Side
        In the order in which they are started.
    """

    def __init__(self, engine: Engine, sides: Sequence[Side]):
        self.engine = engine
        self.sides: list[Side] = list(sides)
        self.seconds: float = engine.seconds_for(sum(side.nbytes for side in sides))

    def start(self) -> Run:
        """Starts the transfer; raises TransferError if the engine cannot be used."""
        return Run(self)

    def run(self) -> int:
        """Runs the transfer; returns the busy clock cycles of the side that is started first.

        Raises
        ------
        TransferError, Timeout
            The engine has then been stopped: it accesses no memory any more, and the next transfer
            is not affected. How much was transferred is unknown.
        """
        run = self.start()
        registers = self.engine.registers
        left = self.seconds
        try:
            while not run.ended:
                if not registers.wait_interrupt(left):
                    raise run.late()
                found = run.look()
                registers.interrupt_done()
                run.advance(found)
                left = max(0.0, run.until - time.monotonic())
        except BaseException:
            run.stop()
            raise
        return run.cycles


class Run:
    """A run of a prepared transfer, from its start on.

    Attributes
    ----------
    until : float
        When it must have ended, as `time.monotonic` counts.
    ended : bool
        Whether all sides have ended without an error.
    cycles : int
        Busy clock cycles of the side that was started first, of the chains that have ended.
    """

    __slots__ = ("_prepared", "_running", "cycles", "ended", "until")

    def __init__(self, prepared: Prepared):
        prepared.engine.require_usable()
        self._prepared = prepared
        self.cycles: int = 0
        self.ended: bool = False
        self.until: float = time.monotonic() + prepared.seconds
        #: number of the chain that runs, for each side that has not ended
        self._running = dict.fromkeys(prepared.sides, 0)
        try:
            for side in prepared.sides:
                side.start(0)
        except BaseException:
            self.stop()
            raise

    def look(self) -> list[tuple[Side, int]]:
        """What each side that runs reports; to be called after an interrupt."""
        return [(side, side.channel.take_status()) for side in self._running]

    def advance(self, found: list[tuple[Side, int]]) -> None:
        """Goes on after `look`: starts the next chain of a side, or notes its end.

        Raises
        ------
        TransferError
            If a side failed. The caller stops the run.
        """
        engine, running = self._prepared.engine, self._running
        for side, status in found:
            if not status & ~_BUSY:
                continue
            number = running[side]
            engine.check(side.direction, status, side.chains[number].descriptors)
            busy = side.channel.busy_cycles()
            if side is self._prepared.sides[0]:
                self.cycles += busy
            side.channel.disarm()
            if number + 1 < len(side.chains):
                running[side] = number + 1
                side.start(number + 1)
            else:
                del running[side]
        self.ended = not running

    def late(self) -> Timeout:
        """The error for a run that has not ended in its time."""
        side = next(iter(self._running))
        return self._prepared.engine.timed_out(side.direction, side.nbytes, self._prepared.seconds)

    def stop(self) -> None:
        """Stops all sides: the engine does not access the memory any more."""
        self._prepared.engine.stop([side.direction for side in self._prepared.sides])
