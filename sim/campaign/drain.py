# SPDX-License-Identifier: BSD-2-Clause
"""Tickets that fail, and what becomes of those behind them."""

from __future__ import annotations

from peerdma.regs import ErrorKind, LaunchStatus

from .faults import READS
from .plan import TicketFault
from .slots import LaunchSlot

__all__ = ["Drain"]

#: Runs of a queue that may be under way at once.
_RUNS = 7


class Drain:
    """Judge of the records of a batch in which each ticket of one slot fails.

    The first one that does has the error. Behind it tickets are `FLUSHED`. But one whose run has
    ended well before its flush read failed may have had others started; and runs that overlap with
    one that fails are aborted.

    Attributes
    ----------
    status : LaunchStatus or ErrorKind
        Of the ticket that fails.
    moves : list of (LaunchSlot, str)
        For each ticket whether it has moved "all" of its bytes, perhaps "some", or "none".
    """

    def __init__(self, fault: TicketFault, victim: LaunchSlot):
        self._fault, self._victim = fault, victim
        statuses = {"slot": LaunchStatus.SLOT, "head": ErrorKind.MAGIC}
        self.status = statuses.get(fault.place) or READS[fault.kind][1]
        self.moves: list[tuple[LaunchSlot, str]] = []
        self._failed = False
        #: so many more tickets may have been started, or aborted
        self._more = self._aborts = 0

    def again(self) -> None:
        """Another batch comes before software resumes."""
        self.moves = []
        self._more = self._aborts = 0

    def record(self, slot: LaunchSlot, status: int) -> str:
        """The next ticket in order has this record: "good", "failed", "aborted" or "flushed"."""
        fails = slot is self._victim
        good, place = self.status if fails else slot.good, self._fault.place
        if status == LaunchStatus.FLUSHED and self._failed:
            self._more = self._aborts = 0
            self.moves.append((slot, "none"))
            return "flushed"
        if status == LaunchStatus.ABORTED and self._aborts and self._overlaps(slot):
            self._aborts -= 1
            self.moves.append((slot, "some"))
            return "aborted"
        # Of those behind a failed flush read the first one needs no leave.
        starts = self._more == _RUNS or (self._more and self._overlaps(slot))
        assert status == good and (starts or not self._failed), (
            f"{slot!r} has status {status}: {good} is its own; {self.moves}"
        )
        self._more -= self._failed
        if fails and not self._failed:
            self._failed = True
            self._more = _RUNS if place == "flush" else 0
            self._aborts = _RUNS - 1 if place in ("data", "list", "head") else 0
        moved = not fails or place == "flush"
        # What has begun may also have a flush read.
        self.moves.append((slot, "all" if moved else "none" if place == "slot" else "some"))
        return "failed" if fails else "good"

    def _overlaps(self, slot: LaunchSlot) -> bool:
        """Whether a slot's run may be under way beside that of the ticket before."""
        before, _ = self.moves[-1]
        return before.overlaps and slot.overlaps and before.channels == slot.channels
