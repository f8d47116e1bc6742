# SPDX-License-Identifier: BSD-2-Clause
"""The memory of a launch queue, which the board, a GPU and the driver share."""

from __future__ import annotations

import ctypes
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
from ..uapi import QueueWord, Reason

__all__ = ["DEPTHS", "GENERATION", "TAIL", "DeviceQueue", "QueueMemory", "ahead"]

#: How many tickets a queue can hold, see docs/queue.md.
DEPTHS = (8, 16, 32, 64, 128, 256)
_TICKETS = 1 << 32
TAIL, GENERATION = DOORBELL_FIELDS
#: Why a queue has ended, and what to do.
_ENDED = {
    Reason.TIMEOUT: "a ticket at work kept others waiting for a channel of the board for too long. "
    "Open another queue, with smaller plans",
    Reason.CANCELLED: "it was closed",
    Reason.UNPINNED: "a pin was closed, and the ticket at work that used it did not end in time. "
    "Open another queue",
    Reason.REVOKED: "memory of a plan was freed or moved by its owner. Pin it again, and open "
    "another queue",
    Reason.RESET: "the board was reset or suspended. Open another queue",
    Reason.LOST: "the board went away. Open the board again",
    Reason.BUSY: "a ticket needed a channel that a ring of frames, or a job that waits for data of "
    "the user stream, keeps. Open another queue when that has ended",
}
_FAULTS = {
    LaunchEnd.TAIL: "a tail was announced that is further ahead than the queue is deep. Look for "
    "kernels that write into its memory otherwise than by device.cuh",
    LaunchEnd.ENTRY: "an entry that was announced never came. Look for kernels that write into its "
    "memory otherwise than by device.cuh",
    LaunchEnd.READ: "the board could not read its ring; is its memory still there?",
    LaunchEnd.RECORD: "the board could not write a record, as it may not use the bus",
}


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
        # written by the driver: QueueWord
        "state": (np.uint32, 1, 4096 + 64),
        # of who submits alone: the next ticket, the tail as it should be, which entries are there
        "next": (np.uint32, 1, 4096 + 128),
        "published": (np.uint32, 1, 4096 + 132),
        # one for each plan
        "done": (np.uint32, LAUNCH_SLOTS, 4096 + 256),
        "written": (np.uint32, most, 4096 + 1024),
        # of streams, which tell what did not come about: no room or time, and the queue had ended
        "missed": (np.uint32, 2, 4096 + 2048),
    }
    formats = [(kind, (count,)) for kind, count, _ in members.values()]
    offsets = [offset for *_, offset in members.values()]
    return np.dtype(
        {"names": list(members), "formats": formats, "offsets": offsets, "itemsize": 8192}
    )


_LAYOUT = _layout()
#: What kernels that draw tickets do not use.
_OF_STREAMS = "missed"


def _offset(member: str) -> int:
    assert _LAYOUT.fields
    return _LAYOUT.fields[member][1]


class DeviceQueue(ctypes.Structure):
    """A launch queue as kernels take it, by value: ``struct peerdma_queue`` of device.cuh.

    For cuda-python it is an argument of type None; for others, `bytes` of it has the bytes.
    """

    _fields_ = (
        *((name, ctypes.c_uint64) for name in _LAYOUT.names or () if name != _OF_STREAMS),
        ("doorbell", ctypes.c_uint64),
        ("depth", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("plans", ctypes.c_uint32),
        ("slots", ctypes.c_uint8 * LAUNCH_SLOTS),
    )


class QueueMemory:
    """Both rings and all words of a launch queue.

    A backend calls `start`, and then `note` and `end`, which write the state word and last records;
    or `learn`, if its driver does that.

    Parameters
    ----------
    depth : int
        One of `DEPTHS`.

    Attributes
    ----------
    pages : SharedPages
    first : int
        First ticket, from `start` on.
    ended : Reason
        Why the queue has ended; NONE if it has not. Each ticket that the board has done has its
        record by then. A GPU can write the word in memory, but not this.
    fault : LaunchEnd
        What the board ended it for; NONE if it did not.
    first_error : int
        Status of the first ticket that failed, a `LaunchStatus`; 0 if none has.
    given_up : bool
        Whether streams went on as the board did not, see `give_up`.
    """

    first: int

    def __init__(self, depth: int):
        self.depth: int = depth
        self.ended: Reason = Reason.NONE
        self.fault: LaunchEnd = LaunchEnd.NONE
        self.first_error: int = 0
        self.given_up: bool = False
        self.pages: SharedPages = SharedPages("queue", _LAYOUT.itemsize)
        whole = self.pages.array()
        (row,) = whole.view(_LAYOUT)
        self._row: Any = row
        # An entry and a record are one store each.
        self._entries = row["entries"].view(np.uint64)
        self._records = row["records"].view(np.uint64)
        #: what streams missed before the queue was resumed
        self._missed_before = 0

    def start(self, first: int) -> None:
        """Presets all for this first ticket, as docs/queue.md has it, before one is submitted.

        A driver that chose the ticket may have armed the queue: it has filled the rings with the
        same.
        """
        self.first = first
        row, depth = self._row, self.depth
        # In each place, the last ticket before the first one
        tickets = [(first - 1 - (first - 1 - place) % depth) % _TICKETS for place in range(depth)]
        for name in ("entries", "records"):
            row[name]["ticket"][:depth] = tickets
        row["written"][:depth] = tickets
        row["next"] = row["published"] = first

    def offset(self, member: str) -> int:
        """Bytes from the start to a member."""
        return _offset(member)

    def device(
        self, address: int, generation: int, slots: Sequence[int], doorbell: int = 0
    ) -> DeviceQueue:
        """The queue for kernels that see its memory, and its doorbell if not 0, at an address."""
        members = set(_LAYOUT.names or ()) - {_OF_STREAMS}
        places = {name: address + _offset(name) for name in members}
        numbers = (ctypes.c_uint8 * LAUNCH_SLOTS)(*slots)
        return DeviceQueue(
            **places,
            doorbell=doorbell,
            depth=self.depth,
            generation=generation,
            plans=len(slots),
            slots=numbers,
        )

    # Tickets ---------------------------------------------------------------------------------

    def drawn(self) -> int:
        """The next ticket to be drawn."""
        return int(self._row["next"][0])

    def record(self, ticket: int) -> tuple[int, int] | None:
        """Ticket and status of the record in a ticket's place; None if it is not done."""
        both = int(self._records[ticket % self.depth])
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
        row["tail"] = TAIL.put(after & 0xFFFF) | GENERATION.put(generation)
        return ticket

    def completed(self) -> int:
        """The first ticket that is not done. Tickets are done in their order."""
        found = [int(each) % _TICKETS for each in self._records[: self.depth]]
        return (found[0] + max(ahead(each, found[0]) for each in found) + 1) % _TICKETS

    def pending(self) -> int | None:
        """The first ticket that was drawn and is not done; None if there is none, or it ended."""
        ticket = self.completed()
        return ticket if not self.ended and ahead(self.drawn(), ticket) > 0 else None

    # Streams ---------------------------------------------------------------------------------

    def missed(self) -> int:
        """How many copies of streams did not come about in time, since it was resumed."""
        return (int(self._row["missed"][0]) - self._missed_before) % _TICKETS

    def missed_at_all(self) -> int:
        """How many copies of streams did not come about, for whatever reason, since it was open."""
        return sum(map(int, self._row["missed"]))

    def forgive(self) -> None:
        """Has `missed` count from 0 again."""
        self._missed_before = int(self._row["missed"][0])

    def give_up(self) -> None:
        """Lets streams go on though the board does not; whoever calls this ends the queue then."""
        self.given_up = True
        self.let_go()

    def let_go(self, plans: Sequence[int] | slice = slice(None)) -> None:
        """Lets streams go on that wait for a copy, of certain plans or of all.

        At the end, after the state word: a kernel that has cleared a done word since sees that,
        and sets it.
        """
        os.sched_yield()  # a barrier
        self._row["done"][plans] = 1

    # How it is -------------------------------------------------------------------------------

    def why(self) -> str:
        """Why it has ended, and what to do; empty while it has not."""
        if not self.ended:
            return ""
        if self.given_up:
            return (
                "no ticket was done for long, so that streams were let go on. Is the board there, "
                "and does nothing else keep its channels? Where the board has this process copy "
                "from and to a GPU, launch each kernel once before a stream waits, or set "
                "CUDA_MODULE_LOADING=EAGER before CUDA starts. Open another queue"
            )
        known = _FAULTS.get(self.fault) or _ENDED.get(self.ended)
        return known or f"the driver ended it ({self.ended.name}). Open another queue"

    def word(self) -> int:
        """The state word in memory."""
        return int(self._row["state"][0])

    def learn(self, word: int) -> None:
        """Takes over what a driver says that writes the state word, and records, itself."""
        self.first_error = self.first_error or QueueWord.STATUS.get(word)
        if reason := QueueWord.REASON.get(word):
            self.fault = LaunchEnd(QueueWord.END.get(word))
            self.ended = Reason(reason)
            self.let_go()

    # What the user-space driver writes -------------------------------------------------------

    def note(self, first_error: int) -> None:
        """Keeps the status of a ticket that failed, unless there is one; 0 forgets it."""
        if not (self.first_error and first_error):
            self.first_error = first_error
            self._tell()

    def end(self, why: Reason, fault: LaunchEnd = LaunchEnd.NONE) -> None:
        """Says that the queue has ended, and completes every ticket that has no record.

        The board writes nothing any more. In the order of the kernel driver: a ticket whose entry
        comes after the look is not completed, and who submits it sees the state word.
        """
        self.fault = fault
        self._tell(why)
        os.sched_yield()  # the word first, as in `submit`
        for place in range(self.depth):
            ticket = int(self._entries[place]) % _TICKETS
            if ahead(ticket, int(self._records[place]) % _TICKETS) > 0:
                self._records[place] = ticket | LaunchStatus.ABORTED << 32
        self.let_go()
        self.ended = why

    def _tell(self, why: Reason = Reason.NONE) -> None:
        reason, status, end = QueueWord.REASON, QueueWord.STATUS, QueueWord.END
        word = reason.put(why) | status.put(self.first_error) | end.put(self.fault)
        self._row["state"] = word
