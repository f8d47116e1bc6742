# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: slots of prepared jobs, and the queues that start them (docs/queue.md)."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..board.backend import LaunchCounts, Piece
from ..board.queue_memory import QueueMemory
from ..errors import PeerdmaError, UnsupportedError
from ..memory.mailbox import DoorbellPage
from ..memory.memory import DataPath, Memory
from ..memory.pages import SharedPages
from ..memory.scatter import ScatterList
from ..regs import (
    BAR_DMA,
    DESCRIPTOR,
    EXTENSION,
    LAUNCH_PLACES,
    LAUNCH_QUEUE,
    LAUNCH_SLOT,
    LAUNCH_SLOTS,
    LAUNCH_TICKET,
    STREAM_WINDOW,
    Block,
    Capability,
    LaunchEnd,
)
from ..uapi import Reason
from ..vfio.function import PciFunction
from ..vfio.platform import Platform
from .chain import BLOCK_DESCRIPTORS, write_chain
from .prepared import descriptor_columns
from .registers import Bank, Registers
from .xdma import Direction, Mapped, Mappings, Xdma

__all__ = ["MOST_BYTES", "LaunchJob", "LaunchQueues", "LaunchRun", "Leg", "no_dmabuf"]

#: What a job may move: other runs wait for its channels so long. The library's own steps are not
#: longer.
MOST_BYTES = 1 << 20
_ALL_BITS = 0xFFFF_FFFF
#: Reads of a register within which the board has written a record and looked at what is next.
_READS = 100
#: Close before the counters wrap, so that every program goes through that.
_FIRST_TICKET = (1 << 32) - 300
_GENERATIONS = (1 << LAUNCH_QUEUE["control"].field("generation").width) - 1
_STUCK = (
    "the board did not end a launched job in time, so it was taken off the bus, and no transfer "
    "can be made. Close the board and open it again, which resets it"
)


class Leg(NamedTuple):
    """A job's part on one channel."""

    direction: Direction
    memory: ScatterList
    #: card address of the first byte, or `peerdma.regs.STREAM_WINDOW`
    card: int


class LaunchJob(NamedTuple):
    """What can be launched: where it goes, if that is memory, and its legs, that of H2C first."""

    #: a frame's record is the last one
    destination: Sequence[Piece]
    legs: Sequence[Leg]
    #: of a job that takes the next frame: where the record goes, 32 bytes
    record: ScatterList | None = None
    #: see `peerdma.board.backend.LaunchPlan`
    independent: bool = False

    @property
    def copies(self) -> bool:
        """Whether it is a copy."""
        return len(self.legs) > 1

    @property
    def held(self) -> int:
        """Descriptors of each leg that its slots have; those after them are in memory."""
        return 1 if self.record is None else 2

    @property
    def slots(self) -> int:
        """How many it has. Two are one of an even number, and the one after it."""
        return self.held * len(self.legs)

    @property
    def waits(self) -> bool:
        """Whether it lasts until the user block has made, or taken, so many bytes, or a frame."""
        return not self.copies and self.legs[0].card == STREAM_WINDOW

    @property
    def overlaps(self) -> bool:
        """Whether its run may be under way with others': its bytes arrive in their order.

        Not those for card RAM, where reads of an earlier run may come last. Nor those of frames,
        which the board takes one after the other. Nor of copies that read what others write.
        """
        if self.record is not None:
            return False
        return self.independent or self.waits or self.legs[0].direction is Direction.C2H


def _put(block: Block, name: str, **fields: int) -> int:
    register = block[name]
    return sum(register.field(field).put(int(value)) for field, value in fields.items())


def _write_address(bank: Bank, name: str, address: int) -> None:
    bank.write(f"{name}_lo", address & _ALL_BITS)
    bank.write(f"{name}_hi", address >> 32)


class LaunchQueues:
    """The slots and launch queues of a board, all of which are free at first.

    Parameters
    ----------
    xdma : Xdma
    platform : Platform
    mappings : Mappings
    """

    def __init__(self, xdma: Xdma, platform: Platform, mappings: Mappings):
        extension = xdma.extension
        if extension is None or Capability.LAUNCH not in extension.capabilities:
            raise UnsupportedError(
                "this board's gateware has no launch queues: build it with launch_queues=2 "
                "(.venv/bin/python -m hw.build core --launch-queues 2), or take a simulated board "
                'that has them, open("sim", arguments=["--launch-queues", "2"])'
            )
        self.xdma: Xdma = xdma
        self.function: PciFunction = platform.function
        self.platform: Platform = platform
        self.mappings: Mappings = mappings
        self.registers: Registers = xdma.engine.registers
        self._free_slots = set(range(LAUNCH_SLOTS))
        #: open queues with jobs to or from the user stream, and those of them that take frames
        self._streaming = self._receiving = 0
        count = Bank(self.registers, EXTENSION).fields("channels")["launch_queues"]
        self._free_queues = list(range(count))
        self._generations = itertools.count()
        for slot in range(LAUNCH_SLOTS):
            # A reset leaves them as they are.
            self.slot(slot).write("control", 0)

    def slot(self, number: int) -> Bank:
        """The registers of a slot."""
        base = LAUNCH_SLOT.base + number * LAUNCH_SLOT.stride
        return Bank(self.registers, LAUNCH_SLOT, base)

    def ticket(self, number: int) -> Bank:
        """The registers of a place for tickets at work."""
        base = LAUNCH_TICKET.base + number * LAUNCH_TICKET.stride
        return Bank(self.registers, LAUNCH_TICKET, base)

    def take(self, jobs: Sequence[LaunchJob]) -> tuple[int, list[list[int]], int]:
        """A queue, the slots of each job, and a generation.

        Raises
        ------
        UnsupportedError
            If there are not enough, or the board makes no such jobs.
        """
        if not self.xdma.copies and any(job.copies for job in jobs):
            raise UnsupportedError(
                "launch queues make copies in one pass through the board's user stream, and its "
                f"user block is {self.xdma.user_block or 'none'}. Build the gateware with --user "
                "pass, or give the queue plans of prepare_write and prepare_read"
            )
        if not self._free_queues:
            raise UnsupportedError(
                "all launch queues of this board are in use: close another queue first"
            )
        free, taken = set(self._free_slots), []
        for job in jobs:
            sets = [set(range(n, n + job.slots)) for n in range(0, LAUNCH_SLOTS, job.slots)]
            found = next((each for each in sets if each <= free), None)
            if found is None:
                raise UnsupportedError(
                    f"{len(jobs)} plans do not fit: of the board's {LAUNCH_SLOTS} slots, of which "
                    f"a copy and a receive take two, {len(self._free_slots)} are free. Give the "
                    "queue fewer plans, or close another queue"
                )
            free -= found
            taken.append(sorted(found))
        self._free_slots = free
        return self._free_queues.pop(0), taken, next(self._generations) % _GENERATIONS + 1

    def give_back(self, queue: int, slots: Sequence[Sequence[int]]) -> None:
        """Undoes `take`."""
        self._free_queues.append(queue)
        self._free_slots.update(*slots)

    def stream(self, receives: bool) -> None:
        """Notes a queue with jobs to or from the user stream; the first for frames empties it."""
        if receives and not self._receiving:
            self.xdma.begin_frames()
        self._streaming += 1
        self._receiving += receives

    def leave_stream(self, receives: bool) -> None:
        """Undoes `stream`; what the last one leaves there is discarded, if the board answers."""
        self._streaming -= 1
        self._receiving -= receives
        if not self._streaming:
            with contextlib.suppress(PeerdmaError):
                self.xdma.engine.flush_stream()


def _device(memory: Memory) -> object:
    """What memory is in, as far as that is known: else it is a device of its own."""
    return getattr(memory, "cuda_device", None) or getattr(memory, "gpu", memory)


def _mapped(piece: Piece) -> Mapped:
    assert isinstance(piece.handle, Mapped), "not this backend's"
    return piece.handle


def _flush_address(destination: Sequence[Piece]) -> int | None:
    """A dword of the destination that has to be read before the record; None if none has to be.

    The record goes to host memory. Data that goes there too is written before it; data that goes
    to another device parts with it at a switch, and a read of that device pushes it.
    """
    elsewhere = [
        each
        for each in destination
        if each.start < each.stop and each.handle.path is not DataPath.HOST_MEMORY
    ]
    devices = {id(_device(_mapped(each).memory)) for each in elsewhere}
    if len(devices) > 1:
        raise UnsupportedError(
            f"the destination of a plan of a queue is in the memory of {len(devices)} devices, and "
            "the board reads back from one before it says that the copy is done. Make a plan for "
            "each device"
        )
    if not elsewhere:
        return None
    last = elsewhere[-1]
    part = _mapped(last).scatter.part(last.start, last.stop)
    return int(part.addresses[-1]) + int(part.lengths[-1]) - 1 & ~3


def no_dmabuf() -> UnsupportedError:
    """Why no page of the board can be exported."""
    return UnsupportedError(
        "only the kernel driver makes dma-bufs of a board's pages. Give the board to it "
        "(docs/driver.md)"
    )


class LaunchRun:
    """See `peerdma.board.backend.Launching`.

    Parameters
    ----------
    queues : LaunchQueues
    jobs : sequence of LaunchJob
    memory : QueueMemory
    """

    slots: list[int]
    generation: int
    page: DoorbellPage | str
    #: nothing but a register tells it, or that the board is gone
    reports = False

    def __init__(self, queues: LaunchQueues, jobs: Sequence[LaunchJob], memory: QueueMemory):
        self._jobs = jobs
        self._queues = queues
        self._engine = queues.xdma.engine
        self._function = queues.function
        self._memory = memory
        flushes = [_flush_address(job.destination) for job in jobs]
        largest = max(job.legs[0].memory.nbytes for job in jobs)
        if largest > MOST_BYTES:
            raise UnsupportedError(
                f"a plan of {largest} bytes is too large for a queue, where one has at most "
                f"{MOST_BYTES}: other transfers wait as long as it takes. Divide it"
            )
        with contextlib.ExitStack() as undo:
            self._number, slots, self.generation = queues.take(jobs)
            undo.callback(queues.give_back, self._number, slots)
            self.slots = [first for first, *_ in slots]
            if any(job.waits for job in jobs):
                receives = any(job.record for job in jobs)
                queues.stream(receives)
                undo.callback(queues.leave_stream, receives)
            self._bank = Bank(
                queues.registers,
                LAUNCH_QUEUE,
                LAUNCH_QUEUE.base + self._number * LAUNCH_QUEUE.stride,
            )
            pinned = queues.mappings.pin(memory.pages)
            undo.callback(queues.mappings.unpin, pinned)
            (base,) = (int(address) for address in pinned.scatter.addresses)
            memory.start(_FIRST_TICKET)
            chains = iter(self._chains(jobs, undo))
            undo.callback(self._stop)
            done = base + memory.offset("done")
            for index, job in enumerate(jobs):
                for slot in slots[index]:
                    self._fill(slot, next(chains))
                self._validate(self.slots[index], job, flushes[index], done + 4 * index)
            undo.callback(self._launches, -1)
            self._launches(1)
            self._arm(base)
            self.page = queues.platform.doorbell(self._number)
            self._undo = undo.pop_all()

    def _chains(self, jobs: Sequence[LaunchJob], undo: contextlib.ExitStack) -> list[np.ndarray]:
        """The descriptor of each slot, job after job; those after them are in memory."""
        columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        held: list[int] = []
        for job in jobs:
            for leg in job.legs:
                # A record has a descriptor of its own, also if it is right behind the frame.
                parts = [part for part in (leg.memory, job.record) if part is not None]
                table = [descriptor_columns(part, leg.card) for part in parts]
                bus, card, lengths = np.concatenate(table, axis=1)
                ends = (bus, card) if leg.direction is Direction.H2C else (card, bus)
                columns.append((*ends, lengths))
                held.append(job.held)
        # A chain begins where a block of descriptors may. One that is in its slots needs no memory.
        counts = [len(lengths) for *_, lengths in columns]
        blocks = [
            -(-count // BLOCK_DESCRIPTORS) * (count > most)
            for count, most in zip(counts, held, strict=True)
        ]
        sizes = [count * BLOCK_DESCRIPTORS for count in blocks]
        table, address = np.zeros(BLOCK_DESCRIPTORS, DESCRIPTOR), 0
        if total := sum(sizes):
            # Not in the queue's memory, which a GPU can write.
            pages = SharedPages("descriptors", total * DESCRIPTOR.itemsize)
            pinned = self._queues.mappings.pin(pages)
            undo.callback(self._queues.mappings.unpin, pinned)
            (address,) = (int(each) for each in pinned.scatter.addresses)
            table = pages.array().view(DESCRIPTOR)
        chains, start = [], 0
        for each, size, most in zip(columns, sizes, held, strict=True):
            at = table[start : start + size] if size else np.zeros(most, DESCRIPTOR)
            write_chain(at, address + start * DESCRIPTOR.itemsize, *each)
            chains += [at[n : n + 1].copy() for n in range(most)]
            start += size
        return chains

    def _fill(self, slot: int, descriptor: np.ndarray) -> None:
        """Writes a descriptor into a slot."""
        base = LAUNCH_SLOT.base + slot * LAUNCH_SLOT.stride
        for number, dword in enumerate(descriptor.view("<u4").tolist()):
            self._queues.registers.write32(BAR_DMA[0], base + 4 * number, dword)

    def _validate(self, slot: int, job: LaunchJob, flush: int | None, done: int) -> None:
        """Makes a job valid whose slots are filled, by the first of them."""
        bank = self._queues.slot(slot)
        _write_address(bank, "flush", flush or 0)
        _write_address(bank, "done", done)
        kind = {"pair": job.copies, "c2h": job.legs[0].direction is Direction.C2H}
        kind |= {"overlap": job.overlaps, "receive": job.record is not None}
        fields = {"flush": flush is not None, "done": 1, "queue": self._number}
        bank.write("control", _put(LAUNCH_SLOT, "control", valid=1, **kind, **fields))

    def _launches(self, more: int) -> None:
        self._engine.launching += more

    def _arm(self, base: int) -> None:
        memory, bank = self._memory, self._bank
        for name, member in (("ring", "entries"), ("records", "records"), ("shadow", "tail")):
            _write_address(bank, name, base + memory.offset(member))
        bank.write("first", memory.first & 0xFFFF)
        self._control(armed=1, polls=1, generation=self.generation)

    def _control(self, **fields: int) -> None:
        mask = self._memory.depth - 1
        self._bank.write("control", _put(LAUNCH_QUEUE, "control", mask=mask, **fields))

    # While it is open ------------------------------------------------------------------------

    def check(self) -> None:
        """Sees whether the board has ended the queue, or a ticket failed; ends it then."""
        memory = self._memory
        if memory.ended:
            return
        try:
            state = self._bank.fields("state")
        except PeerdmaError:
            memory.end(Reason.LOST)
            raise
        if state["failed"]:
            memory.note(state["status"])
        if not state["armed"]:
            self._end(Reason.RESET)
        elif state["end"] != LaunchEnd.NONE:
            self._end(Reason.ENGINE, LaunchEnd(state["end"]))

    def counts(self) -> LaunchCounts:
        """What the board counts."""
        return LaunchCounts(self._bank.read("ignored"), self._queues.xdma.engine.clock())

    def export(self) -> int:
        """Not possible: dma-bufs are made in the kernel."""
        raise no_dmabuf()

    def resume(self) -> None:
        """Has the board start tickets again."""
        self._bank.write("resume", 1)
        for _ in range(_READS):
            # It does that when no ticket is at work.
            if not self._bank.fields("state")["failed"]:
                break
        self._memory.note(0)
        self.check()

    def invalidate(self, index: int) -> None:
        """The board does not use the memory of a plan any more when this returns."""
        slot, job = self.slots[index], self._jobs[index]
        self._queues.slot(slot).write("control", 0)
        self.check()
        if not self._memory.ended:
            # What waits for the user block may do so forever; other jobs share a channel in turn.
            seconds = self._engine.seconds_for(0 if job.waits else MOST_BYTES)
            if not self._settle(seconds, lambda state: slot in self._at_work(state)):
                self._end(Reason.UNPINNED)

    def close(self) -> None:
        """Ends the queue, which gives back its slots and memory. Closing again does nothing."""
        self._end(Reason.CANCELLED)
        self._undo.close()

    # Ending ----------------------------------------------------------------------------------

    def _end(self, why: Reason, fault: LaunchEnd = LaunchEnd.NONE) -> None:
        """Ends the queue, unless it has; each ticket has a record then."""
        if self._memory.ended:
            return
        try:
            self._disarm()
        except PeerdmaError:
            why, fault = Reason.LOST, LaunchEnd.NONE
        self._memory.end(why, fault)

    def _disarm(self) -> None:
        # The mask stays: an aborted ticket has a record, which has its place by that.
        self._control(armed=0)
        if not self._settle(self._engine.seconds_for(MOST_BYTES), lambda state: True):
            self._engine.stuck = _STUCK
            self._function.leave_bus()

    def _stop(self) -> None:
        """Disarms, and invalidates all slots, if the board answers."""
        with contextlib.suppress(PeerdmaError):
            for slot in self.slots:
                self._queues.slot(slot).write("control", 0)
            self._disarm()

    def _at_work(self, state: Mapping[str, int]) -> Iterator[int]:
        """The slots of the tickets that were at work by this `state`.

        A ticket keeps its place for as long as it is at work: a slot that is not found at one place
        after the other has no ticket at work any more.
        """
        first = state["place"] - state["recorded"]
        count = state["ending"] + state["running"] + state["starting"]
        for place in range(first, first + count):
            number = LAUNCH_PLACES * self._number + place % LAUNCH_PLACES
            yield self._queues.ticket(number).read("slot")

    def _settle(self, seconds: float, concerned: Callable[[dict[str, int]], bool]) -> bool:
        """Waits until no job of concern is at work; False if one still is after so long."""
        until = time.monotonic() + seconds
        while (state := self._bank.fields("state"))["busy"] and concerned(state):
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return True
