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

from ..errors import Timeout, UnsupportedError
from ..memory.scatter import ScatterList
from ..regs import (
    BAR_DMA,
    DESC_MAX_LENGTH,
    DESCRIPTOR,
    PUSH_DESCRIPTORS,
    STREAM_WINDOW,
    Status,
)
from .chain import one_descriptor, write_chain
from .dma_channel import Access, Direction, DmaChannel
from .engine import GOOD, Engine

__all__ = ["Ring", "Run", "Side", "descriptor_columns"]

_BAR, _H2C = BAR_DMA[0], Direction.H2C
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
    #: what is started when it has ended
    next: _Chain | None


def descriptor_columns(memory: ScatterList, card: int) -> np.ndarray:
    """Descriptors of a transfer, as three rows of uint64: bus addresses, card addresses, bytes."""
    addresses, lengths = (
        np.asarray(each, np.uint64) for each in memory.pieces_up_to(DESC_MAX_LENGTH)
    )
    cards = np.full(len(lengths), card, np.uint64)
    if not card & STREAM_WINDOW:
        # Each begins in card RAM where the one before ends.
        cards += np.cumsum(lengths) - lengths
    return np.array([addresses, cards, lengths])


class Side:
    """One direction of a transfer, as a sequence of chains that begins with `first`.

    Parameters
    ----------
    engine : Engine
    direction : Direction
    ring : Ring
        Where its chains are written. If the descriptors do not fit, there are several chains. A
        chain of a few descriptors is pushed into the board instead, if that takes them.
    memory : ScatterList
        At least one byte.
    card : int
        Where that goes to, or comes from: a card address, or `peerdma.regs.STREAM_WINDOW`.
    """

    def __init__(
        self,
        engine: Engine,
        direction: Direction,
        ring: Ring,
        memory: ScatterList,
        card: int,
    ):
        self.direction = direction
        self.channel: DmaChannel = engine.channels[direction]
        self._pushes = engine.pushes
        self._ring = ring.bytes
        self.most: int = len(ring.descriptors)
        self.nbytes: int = memory.nbytes
        if memory.single and self.nbytes <= DESC_MAX_LENGTH:
            # As most memory is: numpy would take longer for it than the transfer.
            bus = memory.single[0]
            places = (bus, card) if direction is _H2C else (card, bus)
            image = one_descriptor(*places, self.nbytes)
            self.first: _Chain = self._chain(image, 1, ring.address, 0, None)
            return
        columns = descriptor_columns(memory, card)
        sources, destinations, lengths = columns if direction is _H2C else columns[[1, 0, 2]]
        most, following = self.most, None
        for start in reversed(range(0, len(lengths), most)):
            source, destination, length = (
                column[start : start + most] for column in (sources, destinations, lengths)
            )
            chain = np.zeros(len(length), DESCRIPTOR)
            adjacent = write_chain(chain, ring.address, source, destination, length)
            image = chain.tobytes()
            following = self._chain(image, len(chain), ring.address, adjacent, following)
        assert following
        self.first = following

    def _chain(
        self, image: bytes, descriptors: int, address: int, adjacent: int, following: _Chain | None
    ) -> _Chain:
        if self._pushes and descriptors <= PUSH_DESCRIPTORS:
            return _Chain(b"", descriptors, self.channel.push(image), following)
        return _Chain(image, descriptors, self.channel.load(address, adjacent), following)

    def start(self, chain: _Chain) -> None:
        """Starts one of its chains."""
        image, _, load, _ = chain
        if image:
            self._ring[: len(image)] = image
        self.channel.start(load)


class Run:
    """A transfer of one or two sides, prepared once, to be made any number of times.

    One at a time: it needs the channels of its sides. Whoever starts it calls `look` and `advance`
    after each interrupt, until that returns True, or `stop`.

    Parameters
    ----------
    engine : Engine
    sides : sequence of Side
        In the order in which they are started.
    repeats : bool
        As the attribute.

    Attributes
    ----------
    repeats : bool
        Started again after it was stopped, it moves the same bytes to the same places: they do not
        go through a user block.
    until : float
        When it must have ended, as `time.monotonic` counts.
    cycles : int
        Busy clock cycles of the side that was started first, of the chains that have ended.
    """

    __slots__ = (
        "_doubtful",
        "_engine",
        "_first",
        "_found",
        "_running",
        "_seconds",
        "_sides",
        "cycles",
        "repeats",
        "until",
    )

    def __init__(self, engine: Engine, sides: Sequence[Side], *, repeats: bool):
        self._engine = engine
        self.repeats: bool = repeats
        self._sides: dict[Side, _Chain] = {side: side.first for side in sides}
        self._first = sides[0]
        self._seconds = engine.seconds_for(sum([side.nbytes for side in sides]))
        self.until: float = 0.0
        self.cycles: int = 0
        #: the chain that runs, for each side that has not ended
        self._running: dict[Side, _Chain] = {}
        #: what these reported, since it was seen to
        self._found: dict[Side, int] = {}
        #: whether an interrupt may have lost what a side reported, which a look clears
        self._doubtful = False

    @property
    def started(self) -> bool:
        """Whether a side of it runs, as far as is known."""
        return bool(self._running)

    def start(self) -> None:
        """Starts the transfer; raises TransferError if the engine cannot be used."""
        if self._engine.stuck:
            self._engine.require_usable()
        if self._engine.launching and len(self._sides) > 1 and self._first.first.next:
            # A launched copy drops what is in the stream while C2H is between two chains.
            raise UnsupportedError(
                "while a launch queue is open, 1 MiB of a copy's destination can have at most "
                f"{self._first.most} pieces. Close the queue first, or give it a plan of the copy"
            )
        self.cycles = 0
        self.until = time.monotonic() + self._seconds
        self._found, self._doubtful = {}, False
        self._running = self._sides.copy()
        try:
            for side, chain in self._sides.items():
                side.start(chain)
        except BaseException:
            self.stop()
            raise

    def look(self) -> None:
        """Takes what each side that runs reports; to be called after an interrupt."""
        found, read = self._found, self._engine.registers.read32
        doubtful, self._doubtful = self._doubtful, True
        for side in self._running:
            status = read(_BAR, side.channel.status_rc)
            if doubtful and not status & _BUSY:
                # It has ended. If that was with an error, its count of descriptors says so.
                status |= GOOD
            found[side] = found.get(side, 0) | status
        self._doubtful = False

    def advance(self) -> bool:
        """Goes on after `look`; returns whether all sides have ended without an error.

        Raises
        ------
        TransferError
            If a side failed. The caller stops the run.
        """
        running, found = self._running, self._found
        for side in list(running):
            status = found.get(side, 0)
            if not status & ~_BUSY:
                continue
            del found[side]
            channel, (_, descriptors, _, following) = side.channel, running[side]
            self._engine.check(channel, status, descriptors)
            if side is self._first:
                self.cycles += channel.busy_cycles()
            channel.disarm()
            if following is None:
                del running[side]
            else:
                running[side] = following
                side.start(following)
        return not running

    def start_again(self) -> None:
        """Starts a run that `repeats` from its beginning; it was stopped."""
        if len(self._sides) > 1:
            self._engine.flush_stream()
        self.start()

    def late(self) -> Timeout:
        """The error for a run that has not ended in its time."""
        side = next(iter(self._running or self._sides))
        return self._engine.timed_out(side.direction, side.nbytes, self._seconds)

    def stop(self) -> None:
        """Stops all sides: the engine does not access the memory any more."""
        self._engine.stop([side.direction for side in self._sides])
        self._running = {}

    def run(self) -> int:
        """Makes the transfer; returns the busy clock cycles of the side that is started first.

        Raises
        ------
        TransferError, Timeout
            The engine has then been stopped: it accesses no memory any more, and the next transfer
            is not affected. How much was transferred is unknown.
        """
        self.start()
        function = self._engine.function
        try:
            ended = False
            while not ended:
                if not function.wait_interrupt(max(0.0, self.until - time.monotonic())):
                    raise self.late()
                self.look()
                function.interrupt_done()
                ended = self.advance()
        except BaseException:
            self.stop()
            raise
        return self.cycles
