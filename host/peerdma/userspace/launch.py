# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: slots of prepared copies, and the queues that start them (docs/queue.md)."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
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
    LAUNCH_QUEUE,
    LAUNCH_SLOT,
    LAUNCH_SLOTS,
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
from .xdma import Mapped, Mappings, Xdma

__all__ = ["MOST_BYTES", "Copy", "LaunchQueues", "LaunchRun", "no_dmabuf"]

#: What a job may move: other runs wait for its channels so long. The library's own steps are not
#: longer.
MOST_BYTES = 1 << 20
#: A copy has the slot of an even number, and the one after it.
_SLOTS_OF_A_COPY = 2
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


class Copy(NamedTuple):
    """A copy that can be launched: where it goes, and both sides as the board sees them."""

    pieces: Sequence[Piece]
    source: ScatterList
    destination: ScatterList


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
        if not xdma.copies:
            raise UnsupportedError(
                "launch queues make copies, which take one pass through the board's user stream, "
                f"and its user block is {xdma.user_block or 'none'}. Build the gateware with "
                "--user pass"
            )
        self.xdma: Xdma = xdma
        self.function: PciFunction = platform.function
        self.platform: Platform = platform
        self.mappings: Mappings = mappings
        self.registers: Registers = xdma.engine.registers
        self._free_slots = list(range(0, LAUNCH_SLOTS, _SLOTS_OF_A_COPY))
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

    def take(self, copies: int) -> tuple[int, list[int], int]:
        """A queue, slots, and a generation; UnsupportedError if there are not enough."""
        if not self._free_queues:
            raise UnsupportedError(
                "all launch queues of this board are in use: close another queue first"
            )
        if copies > len(self._free_slots):
            raise UnsupportedError(
                f"{copies} copies do not fit: the board has slots for {len(self._free_slots)} "
                f"more, of {LAUNCH_SLOTS // _SLOTS_OF_A_COPY}. Give the queue fewer plans, or "
                "close another queue"
            )
        slots = [self._free_slots.pop(0) for _ in range(copies)]
        return self._free_queues.pop(0), slots, next(self._generations) % _GENERATIONS + 1

    def give_back(self, queue: int, slots: Sequence[int]) -> None:
        """Undoes `take`."""
        self._free_queues.append(queue)
        self._free_slots += slots


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


def _works_on(state: Mapping[str, int], slot: int) -> bool:
    """Whether a busy queue has a ticket of the slot at work, by its register `state`.

    While one ticket runs, the one before may have its flush read, record and done word to come.
    """
    return state["slot"] == slot or bool(state["ending"] and state["ending_slot"] == slot)


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
    copies : sequence of Copy
    memory : QueueMemory
    """

    slots: list[int]
    generation: int
    page: DoorbellPage | str

    def __init__(self, queues: LaunchQueues, copies: Sequence[Copy], memory: QueueMemory):
        self._queues = queues
        self._engine = queues.xdma.engine
        self._function = queues.function
        self._memory = memory
        flushes = [_flush_address(copy.pieces) for copy in copies]
        largest = max(copy.source.nbytes for copy in copies)
        if largest > MOST_BYTES:
            raise UnsupportedError(
                f"a plan of {largest} bytes is too large for a queue, where one has at most "
                f"{MOST_BYTES}: other transfers wait as long as it takes. Divide it"
            )
        with contextlib.ExitStack() as undo:
            self._number, self.slots, self.generation = queues.take(len(copies))
            undo.callback(queues.give_back, self._number, self.slots)
            self._bank = Bank(
                queues.registers,
                LAUNCH_QUEUE,
                LAUNCH_QUEUE.base + self._number * LAUNCH_QUEUE.stride,
            )
            pinned = queues.mappings.pin(memory.pages)
            undo.callback(queues.mappings.unpin, pinned)
            (base,) = (int(address) for address in pinned.scatter.addresses)
            memory.start(_FIRST_TICKET)
            chains = self._chains(copies, undo)
            undo.callback(self._stop)
            done = base + memory.offset("done")
            for index, (slot, flush) in enumerate(zip(self.slots, flushes, strict=True)):
                self._prepare(slot, chains[2 * index : 2 * index + 2], flush, done + 4 * index)
            undo.callback(self._launches, -1)
            self._launches(1)
            self._arm(base)
            self.page = queues.platform.doorbell(self._number)
            self._undo = undo.pop_all()

    def _chains(self, copies: Sequence[Copy], undo: contextlib.ExitStack) -> list[np.ndarray]:
        """The descriptors of both halves of each copy; those after the first one are in memory."""
        halves: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for copy in copies:
            bus, card, lengths = descriptor_columns(copy.source, STREAM_WINDOW)
            halves.append((bus, card, lengths))
            bus, card, lengths = descriptor_columns(copy.destination, STREAM_WINDOW)
            halves.append((card, bus, lengths))
        # A chain begins where a block of descriptors may. One that is in its slot needs no memory.
        blocks = [-(-len(half[2]) // BLOCK_DESCRIPTORS) * (len(half[2]) > 1) for half in halves]
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
        for half, size in zip(halves, sizes, strict=True):
            at = table[start : start + size] if size else np.zeros(1, DESCRIPTOR)
            write_chain(at, address + start * DESCRIPTOR.itemsize, *half)
            chains.append(at[:1].copy())
            start += size
        return chains

    def _prepare(
        self, slot: int, chains: Sequence[np.ndarray], flush: int | None, done: int
    ) -> None:
        """Fills the slots of a copy and makes it valid."""
        write, queues = self._queues.registers.write32, self._queues
        for half, chain in enumerate(chains):
            base = LAUNCH_SLOT.base + (slot + half) * LAUNCH_SLOT.stride
            for number, dword in enumerate(chain.view("<u4").tolist()):
                write(BAR_DMA[0], base + 4 * number, dword)
        bank = queues.slot(slot)
        _write_address(bank, "flush", flush or 0)
        _write_address(bank, "done", done)
        fields = {"pair": 1, "flush": flush is not None, "done": 1, "queue": self._number}
        bank.write("control", _put(LAUNCH_SLOT, "control", valid=1, **fields))

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
        """The board does not use the memory of a copy any more when this returns."""
        slot = self.slots[index]
        self._queues.slot(slot).write("control", 0)
        self.check()
        if not self._memory.ended:
            # While it reads its shadow tail, it looks busy with the slot of its last ticket.
            self._control(armed=1, generation=self.generation)
            self._settle(lambda state: _works_on(state, slot))
            self._control(armed=1, polls=1, generation=self.generation)

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
        self._settle(lambda state: True)

    def _stop(self) -> None:
        """Disarms, and invalidates all slots, if the board answers."""
        with contextlib.suppress(PeerdmaError):
            for slot in self.slots:
                self._queues.slot(slot).write("control", 0)
            self._disarm()

    def _settle(self, concerned: Callable[[dict[str, int]], bool]) -> None:
        """Waits until no job of concern is at work; takes the board off the bus past a bound."""
        until = time.monotonic() + self._engine.seconds_for(MOST_BYTES)
        while (state := self._bank.fields("state"))["busy"] and concerned(state):
            if time.monotonic() > until:
                self._engine.stuck = _STUCK
                self._function.leave_bus()
                return
            time.sleep(0.001)
