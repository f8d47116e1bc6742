# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that are prepared once, and their runs.

A transfer of a few bytes takes little more than its register accesses, and preparing a chain takes
longer than these. So everything that does not change from run to run is computed beforehand: a
`Prepared` transfer is a sequence of steps, and a step one chain of descriptors, or several, for
each channel that it needs. None of that changes. What does is in the `Run`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..board import backend
from ..board.backend import Moved, Progress
from ..board.transfer import Through
from ..errors import PeerdmaError, Timeout, UnsupportedError
from ..memory.scatter import ScatterList
from ..regs import (
    BAR_DMA,
    DESC_COMPLETED,
    DESC_MAGIC,
    DESC_MAX_LENGTH,
    DESC_STOP,
    DESCRIPTOR,
    PUSH_DESCRIPTORS,
    STREAM_WINDOW,
    Status,
)
from .chain import MAGIC_SHIFT, write_chain
from .engine import GOOD, Access, Direction, DmaChannel, Engine

__all__ = ["Chain", "Lazy", "Prepared", "Ring", "Rings", "Run", "Step", "descriptor_columns"]

_BAR, _H2C = BAR_DMA[0], Direction.H2C
_BUSY = int(Status.BUSY)
_LAYOUT = struct.Struct(
    "<" + "".join("Q" if DESCRIPTOR[name].itemsize == 8 else "I" for name in DESCRIPTOR.names or ())
)
#: `control` of a descriptor that is a chain of its own.
_ONLY = DESC_MAGIC << MAGIC_SHIFT | DESC_COMPLETED | DESC_STOP


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


class Chain(NamedTuple):
    """A chain of descriptors of one channel, ready to be started."""

    channel: DmaChannel
    ring: Ring
    #: what is copied to the ring; nothing if it is pushed
    image: bytes
    descriptors: int
    #: register writes that give its address to the channel, or push it
    load: list[Access]
    #: of it and of all that follow
    nbytes: int
    #: what is started when it has ended
    next: Chain | None

    def start(self) -> None:
        """Starts it."""
        if self.image:
            self.ring.bytes[: len(self.image)] = self.image
        self.channel.start(self.load)


class Step(NamedTuple):
    """A part of a transfer that is made at once."""

    #: the first of each channel, in the order in which they are started
    chains: tuple[Chain, ...]
    #: how long it may take
    seconds: float
    #: Started again after it was stopped, it moves the same bytes to the same places: they do not
    #: go through a user block.
    repeats: bool
    #: bytes of the transfer that have been moved when it has ended
    reached: int


class Lazy:
    """Steps of a long transfer: made when they are needed, each time that it runs."""

    def __init__(self, make: Callable[[], Iterator[Step]]):
        self._make = make

    def __iter__(self) -> Iterator[Step]:
        return self._make()


class Prepared(backend.Prepared):
    """A transfer that can be run any number of times. Immutable."""

    __slots__ = ("directions", "limit", "nbytes", "steps", "through")

    def __init__(
        self,
        steps: Iterable[Step],
        nbytes: int,
        directions: frozenset[Direction],
        limit: float | None,
        through: Through,
    ):
        self.steps: Iterable[Step] = steps
        self.nbytes: int = nbytes
        #: the channels that it needs, from its first step to its last
        self.directions: frozenset[Direction] = directions
        self.limit: float | None = limit
        self.through: Through = through


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


class Rings:
    """Makes steps, whose chains are written to a ring for each direction.

    Parameters
    ----------
    engine : Engine
    ring : Ring
        Divided between the directions.
    """

    def __init__(self, engine: Engine, ring: Ring):
        self._engine = engine
        self._ends = {
            direction: (engine.channels[direction], ring.part(index, 2))
            for index, direction in enumerate((Direction.C2H, Direction.H2C))
        }

    def card(
        self, direction: Direction, memory: ScatterList, address: int, reached: int | None = None
    ) -> Step:
        """A step between memory, at least one byte, and card RAM.

        `reached` as in `Step`; by default, it is the whole transfer.
        """
        chain = self._chain(direction, memory, address)
        reached = memory.nbytes if reached is None else reached
        seconds = self._engine.seconds_for(memory.nbytes)
        return Step((chain,), seconds, address < STREAM_WINDOW, reached)

    def stream(
        self,
        source: ScatterList,
        destination: ScatterList,
        reached: int | None = None,
        *,
        repeats: bool = False,
    ) -> Step:
        """A step through the user block, both ways at once; `repeats` and `reached` as in `Step`.

        Lengths have to match what the user block makes of the bytes; neither is empty.
        """
        # C2H is started first, so that its cycle counter covers the whole copy.
        to_memory = self._chain(Direction.C2H, destination, STREAM_WINDOW)
        to_board = self._chain(Direction.H2C, source, STREAM_WINDOW)
        seconds = self._engine.seconds_for(source.nbytes + destination.nbytes)
        reached = source.nbytes if reached is None else reached
        return Step((to_memory, to_board), seconds, repeats, reached)

    def _chain(self, direction: Direction, memory: ScatterList, card: int) -> Chain:
        """The first chain of one direction; if the descriptors do not fit the ring, of several.

        `card` is a card address, or `peerdma.regs.STREAM_WINDOW`.
        """
        channel, ring = self._ends[direction]
        nbytes = memory.nbytes
        if memory.single and nbytes <= DESC_MAX_LENGTH:
            # As most memory is: numpy would take longer for it than the transfer.
            bus = memory.single[0]
            places = (bus, card) if direction is _H2C else (card, bus)
            image = _LAYOUT.pack(_ONLY, nbytes, *places, 0)
            return self._ready(channel, ring, image, 1, 0, nbytes, None)
        columns = descriptor_columns(memory, card)
        sources, destinations, lengths = columns if direction is _H2C else columns[[1, 0, 2]]
        most, following = len(ring.descriptors), None
        for start in reversed(range(0, len(lengths), most)):
            source, destination, length = (
                column[start : start + most] for column in (sources, destinations, lengths)
            )
            chain = np.zeros(len(length), DESCRIPTOR)
            adjacent = write_chain(chain, ring.address, source, destination, length)
            left = int(lengths[start:].sum())
            following = self._ready(
                channel, ring, chain.tobytes(), len(chain), adjacent, left, following
            )
        assert following
        return following

    def _ready(
        self,
        channel: DmaChannel,
        ring: Ring,
        image: bytes,
        descriptors: int,
        adjacent: int,
        nbytes: int,
        following: Chain | None,
    ) -> Chain:
        """A chain; one of a few descriptors is pushed into the board, if that takes them."""
        if self._engine.pushes and descriptors <= PUSH_DESCRIPTORS:
            image, load = b"", channel.push(image)
        else:
            load = channel.load(ring.address, adjacent)
        return Chain(channel, ring, image, descriptors, load, nbytes, following)


class Run:
    """A transfer from its start on: it waits for its channels, then runs step by step.

    Whoever starts a step calls `look` and `advance` after each interrupt, until that returns True,
    or `stop`.

    Parameters
    ----------
    engine : Engine
    prepared : Prepared
    tag : object
        Of whoever starts it.
    progress : callable, optional

    Attributes
    ----------
    step : Step or None
        The step that runs; None before the first one.
    until : float
        When the step must have ended, as `time.monotonic` counts; or, of one that `waits`, when to
        look again.
    cycles : int
        Busy clock cycles of the channel that is started first, of the steps that have ended.
    since : float
    began : int or None
        When it started, by `time.monotonic`, and by the board's clock.
    waits : bool
        The step is to be started when there is room for completions, or has been long enough.
    patience : float or None
        When it has been.
    outcome : Moved, PeerdmaError or None
        How it ended; it may still be among those that run if an interrupt came.
    """

    __slots__ = (
        "_cycles",
        "_doubtful",
        "_engine",
        "_found",
        "_running",
        "_steps",
        "_told",
        "began",
        "cycles",
        "outcome",
        "patience",
        "prepared",
        "progress",
        "since",
        "step",
        "tag",
        "until",
        "waits",
    )

    def __init__(self, engine: Engine, prepared: Prepared, tag: object, progress: Progress | None):
        self._engine = engine
        self.prepared: Prepared = prepared
        self.tag: object = tag
        self.progress: Progress | None = progress
        self._steps: Iterator[Step] = iter(prepared.steps)
        self.step: Step | None = None
        #: bytes that were last told
        self._told = 0
        self.cycles: int = 0
        #: of the step that runs
        self._cycles = 0
        self.until: float = 0.0
        self.since: float = 0.0
        self.began: int | None = None
        self.waits: bool = False
        self.patience: float | None = None
        self.outcome: Moved | PeerdmaError | None = None
        #: the chain that runs, of each channel that has not ended
        self._running: dict[DmaChannel, Chain] = {}
        #: what these reported, since it was seen to
        self._found: dict[DmaChannel, int] = {}
        #: whether an interrupt may have lost what a channel reported, which a look clears
        self._doubtful = False

    @property
    def started(self) -> bool:
        """Whether a chain of it runs, as far as is known."""
        return bool(self._running)

    def next(self) -> Step | None:
        """Goes to the next step, which is not started; None if there is none."""
        step = next(self._steps, None)
        if step is not None:
            self.step = step
        return step

    def start(self, step: Step) -> None:
        """Starts the step, from its beginning; TransferError if the engine cannot be used."""
        if self._engine.stuck:
            self._engine.require_usable()
        first = step.chains[0]
        if self._engine.launching and len(step.chains) > 1 and first.next:
            # A launched copy drops what is in the stream while C2H is between two chains.
            raise UnsupportedError(
                "while a launch queue is open, 1 MiB of a copy's destination can have at most "
                f"{len(first.ring.descriptors)} pieces. Close the queue first, or give it a plan "
                "of the copy"
            )
        self._cycles = 0
        self.until = time.monotonic() + step.seconds
        self._found, self._doubtful = {}, False
        # Before they start: what is interrupted then has to be stopped.
        running = self._running = {}
        for chain in step.chains:
            running[chain.channel] = chain
        try:
            for chain in step.chains:
                chain.start()
        except BaseException:
            self.stop()
            raise

    def look(self) -> None:
        """Takes what each channel that runs reports; to be called after an interrupt."""
        found, read = self._found, self._engine.registers.read32
        doubtful, self._doubtful = self._doubtful, True
        for channel in self._running:
            status = read(_BAR, channel.status_rc)
            if doubtful and not status & _BUSY:
                # It has ended. If that was with an error, its count of descriptors says so.
                status |= GOOD
            found[channel] = found.get(channel, 0) | status
        self._doubtful = False

    def advance(self) -> bool:
        """Goes on after `look`; whether all chains of the step have ended without an error.

        Raises
        ------
        TransferError
            If one failed. The caller stops the run.
        """
        running, found, step = self._running, self._found, self.step
        if step is None:
            return False
        for channel in list(running):
            status = found.get(channel, 0)
            if not status & ~_BUSY:
                continue
            del found[channel]
            chain = running[channel]
            self._engine.check(channel, status, chain.descriptors)
            if channel is step.chains[0].channel:
                self._cycles += channel.busy_cycles()
            channel.disarm()
            if chain.next is None:
                del running[channel]
            else:
                running[channel] = chain.next
                chain.next.start()
        if running:
            return False
        self.cycles += self._cycles
        if self.progress and step.reached > self._told:
            self._told = step.reached
            self.progress(step.reached, self.prepared.nbytes)
        return True

    def start_again(self, step: Step) -> None:
        """Starts a step that `repeats` from its beginning; it was stopped."""
        if len(step.chains) > 1:
            self._engine.flush_stream()
        self.start(step)

    def late(self) -> Timeout:
        """The error for a step that has not ended in its time."""
        step = self.step
        assert step, "no step runs"
        channel = next(iter(self._running), step.chains[0].channel)
        (nbytes,) = (each.nbytes for each in step.chains if each.channel is channel)
        return self._engine.timed_out(channel.direction, nbytes, step.seconds)

    def stop(self) -> None:
        """Stops the step: the engine does not access its memory any more."""
        if self.step is not None:
            self._engine.stop([chain.channel.direction for chain in self.step.chains])
        self._running = {}
