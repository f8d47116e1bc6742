# SPDX-License-Identifier: BSD-2-Clause
"""The memory of a launch queue, which the board, a GPU and the driver share."""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..memory.pages import SharedPages
from ..regs import (
    DOORBELL_FIELDS,
    LAUNCH_ENTRY,
    LAUNCH_RECORD,
    LAUNCH_SLOTS,
    LaunchEnd,
    LaunchStatus,
)

__all__ = ["DEPTHS", "FIRST_TICKET", "DeviceQueue", "QueueMemory", "State", "ahead"]

#: How many tickets a queue can hold, see docs/queue.md.
DEPTHS = (8, 16, 32, 64, 128, 256)
#: Close before the counters wrap, so that every program goes through that.
FIRST_TICKET = (1 << 32) - 300
_TICKETS = 1 << 32
_TAIL, _GENERATION = DOORBELL_FIELDS
#: Of the state word: why the queue has ended; above it the status of the first ticket that failed.
_END_BITS = 8


class State(enum.IntEnum):
    """Why a queue has ended, in the lowest byte of its state word. The first ones are `LaunchEnd`.

    After such a value there is a record for each ticket that was drawn before.
    """

    RUNNING = LaunchEnd.NONE
    TAIL = LaunchEnd.TAIL
    ENTRY = LaunchEnd.ENTRY
    READ = LaunchEnd.READ
    RECORD = LaunchEnd.RECORD
    #: the program closed the queue or the board
    CLOSED = 16
    #: the board was reset
    RESET = 17
    #: the board went away
    LOST = 18


def ahead(one: int, other: int) -> int:
    """By how many one ticket comes after another; negative if before."""
    return (one - other + _TICKETS // 2) % _TICKETS - _TICKETS // 2


def _layout() -> np.dtype:
    """What is where: places of both rings at multiples of their size, words of one writer apart."""
    most = DEPTHS[-1]
    members = {
        # written by who submits, read by the board
        "entries": (LAUNCH_ENTRY, most, 0),
        # written by the board, at last by the driver
        "records": (LAUNCH_RECORD, most, most * LAUNCH_ENTRY.itemsize),
        "tail": (np.uint32, 1, 4096),
        # written by the driver
        "state": (np.uint32, 1, 4096 + 64),
        # of who submits alone: the next ticket, the tail as it should be, which entries are there
        "next": (np.uint32, 1, 4096 + 128),
        "published": (np.uint32, 1, 4096 + 132),
        # one for each plan
        "done": (np.uint32, LAUNCH_SLOTS, 4096 + 256),
        "written": (np.uint32, most, 4096 + 1024),
    }
    formats = [(kind, (count,)) for kind, count, _ in members.values()]
    offsets = [offset for *_, offset in members.values()]
    return np.dtype(
        {"names": list(members), "formats": formats, "offsets": offsets, "itemsize": 8192}
    )


_LAYOUT = _layout()


def _offset(member: str) -> int:
    assert _LAYOUT.fields
    return _LAYOUT.fields[member][1]


class DeviceQueue(ctypes.Structure):
    """A launch queue as kernels take it, by value: ``struct peerdma_queue`` of device.cuh.

    For cuda-python it is an argument of type None; for others, `bytes` of it has the bytes.
    """

    _fields_ = (
        *((name, ctypes.c_uint64) for name in _LAYOUT.names or ()),
        ("depth", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("plans", ctypes.c_uint32),
        ("slots", ctypes.c_uint8 * LAUNCH_SLOTS),
    )


class QueueMemory:
    """Both rings and all words of a launch queue, preset as docs/queue.md has it.

    Parameters
    ----------
    depth : int
        One of `DEPTHS`.
    first : int
        First ticket.

    Attributes
    ----------
    pages : SharedPages
    ended : State
        Why the queue has ended. A GPU can write the word in memory, but not this.
    first_error : int
        Status of the first ticket that failed, a `LaunchStatus`; 0 if none has.
    """

    def __init__(self, depth: int, first: int = FIRST_TICKET):
        self.depth: int = depth
        self.first: int = first
        self.ended: State = State.RUNNING
        self.first_error: int = 0
        self.pages: SharedPages = SharedPages("queue", _LAYOUT.itemsize)
        whole = self.pages.array()
        (row,) = whole.view(_LAYOUT)
        self._row: Any = row
        # An entry and a record are one store each.
        self._entries = row["entries"].view(np.uint64)
        self._records = row["records"].view(np.uint64)
        #: the board's last record of each place, once the queue has ended
        self._last: np.ndarray | None = None
        tickets = [self._before(place) for place in range(depth)]
        for name in ("entries", "records"):
            row[name]["ticket"][:depth] = tickets
        row["written"][:depth] = tickets
        row["next"] = row["published"] = first

    def _before(self, place: int) -> int:
        """The last ticket of a place that comes before the first one."""
        return (self.first - 1 - (self.first - 1 - place) % self.depth) % _TICKETS

    def offset(self, member: str) -> int:
        """Bytes from the start to a member."""
        return _offset(member)

    def device(self, address: int, generation: int, slots: Sequence[int]) -> DeviceQueue:
        """The queue for kernels that see its memory at an address."""
        places = {name: address + _offset(name) for name in _LAYOUT.names or ()}
        numbers = (ctypes.c_uint8 * LAUNCH_SLOTS)(*slots)
        return DeviceQueue(
            **places, depth=self.depth, generation=generation, plans=len(slots), slots=numbers
        )

    # Tickets ---------------------------------------------------------------------------------

    def drawn(self) -> int:
        """The next ticket to be drawn."""
        return int(self._row["next"][0])

    def record(self, ticket: int) -> tuple[int, int] | None:
        """Ticket and status of the record in a ticket's place; None if it is not done."""
        place = ticket % self.depth
        both = int(self._records[place])
        if self._last is not None and int(self._last[place]) % _TICKETS == ticket:
            both = int(self._last[place])
        found, status = both % _TICKETS, both // _TICKETS
        return None if ahead(found, ticket) < 0 else (found, status)

    def room(self) -> bool:
        """Whether the next ticket can be drawn: that of a round before is done."""
        return self.record((self.drawn() - self.depth) % _TICKETS) is not None

    def submit(self, index: int, slot: int, generation: int) -> int:
        """Draws the next ticket, for which there is room, for plan `index`; the only one who does.

        The words of who submits stay such that kernels can go on with them.
        """
        row, ticket = self._row, self.drawn()
        place, after = ticket % self.depth, (ticket + 1) % _TICKETS
        row["next"] = after
        row["done"][index] = 0
        self._entries[place] = ticket | slot << 32
        row["written"][place] = ticket
        row["published"] = after
        # The entry first, then the tail: Python has no barrier, but the scheduler has one.
        os.sched_yield()
        row["tail"] = _TAIL.put(after & 0xFFFF) | _GENERATION.put(generation)
        return ticket

    def completed(self) -> int:
        """The first ticket that is not done. Tickets are done in their order."""
        found = [int(each) % _TICKETS for each in self._records[: self.depth]]
        return (found[0] + max(ahead(each, found[0]) for each in found) + 1) % _TICKETS

    # What the driver writes ------------------------------------------------------------------

    def note(self, first_error: int) -> None:
        """Keeps the status of a ticket that failed, unless there is one; 0 forgets it."""
        if not (self.first_error and first_error):
            self.first_error = first_error
            self._row["state"] = self.ended | first_error << _END_BITS

    def end(self, why: State) -> None:
        """Completes every ticket that has no record, and says that the queue has ended.

        The board writes nothing any more. In each place the next ticket gets a record, drawn or
        not: one that is drawn from here on is not waited for, as the state word says why.
        """
        # Those that are done are told of as they were.
        self._last = self._records[: self.depth].copy()
        for place in range(self.depth):
            ticket = (int(self._records[place]) + self.depth) % _TICKETS
            self._records[place] = ticket | LaunchStatus.ABORTED << 32
        self._row["done"] = 1
        self.ended = why
        self._row["state"] = why | self.first_error << _END_BITS
