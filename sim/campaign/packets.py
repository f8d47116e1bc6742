# SPDX-License-Identifier: BSD-2-Clause
"""Packets of a source that tickets take: who must get which, and what is in memory then."""

from __future__ import annotations

from functools import partial

import numpy as np
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp

from peerdma import regs
from peerdma.regs import LaunchStatus

from .plan import Slot, Source
from .rig import Rig
from .scoreboard import FramePair, Span, check_either
from .slots import LaunchSlot

__all__ = ["PacketSlot", "Packets"]

_RECORD = regs.FRAME_RECORD.itemsize


class Packets:
    """The source of a pair in an episode, and the judge of its packets.

    Each packet is one ticket's, in order. What ends a run in the middle of one flushes the pair:
    the next packet is number 0.

    Attributes
    ----------
    pair : FramePair
    next : int
        Number of the packet that is taken now, or next.
    may_restart : bool
        A queue that uses the channel was ended.
    stopped : bool
        The source is not switched any more.
    """

    def __init__(self, rig: Rig, plan: Source):
        pair = rig.pairs[plan.number]
        assert isinstance(pair, FramePair), "packets are those of a source"
        self.plan, self.pair = plan, pair
        self._rig = rig
        self.next = self._restarts = 0
        #: runs that were ended, which has flushed the pair; and of which that may have
        self._flushes = self._doubtful = 0
        #: a queue was ended when no packet had been taken: of a flush then nothing shows
        self._early = False
        self.may_restart = self.stopped = False
        self._seed = rig.rng.getrandbits(31)
        self._rests = bool(plan.lulls) and not plan.lulls[0][0]

    async def begin(self) -> None:
        """Make the source begin with packet 0; both channels rest."""
        plan, rests = self.plan, self._rests
        await self._rig.start_source(
            plan.number, self._seed, plan.words, True, interval=plan.interval, rests=rests
        )

    async def play(self) -> None:
        """Have the source rest as planned."""
        for after, pause in self.plan.lulls:
            for ns, words in ((after, 0), (pause, self.plan.words)):
                await Timer(max(ns, 1), "ns")
                if self.stopped:
                    return
                await self._switch(words)

    async def _switch(self, words: int) -> None:
        number = self.plan.number
        await self._rig.write(regs.PATTERN_SOURCE, "frame_words", words, channel=number)

    def expect_end(self) -> None:
        """A queue that uses the channel is about to be ended."""
        self.may_restart = True
        self._early |= not self.next

    def end(self, known: bool | None) -> None:
        """A run of such a queue was ended, which has flushed the pair unless all of its list was
        `known` to be for card RAM; None where that does not show."""
        self._flushes += known is False
        self._doubtful += known is None

    async def finish(self) -> None:
        """All queues are at rest: what the pair holds is known, or what it may hold. The source
        goes on for good."""
        await self._switch(self.plan.words)
        await self._rig.write(regs.PATTERN_SOURCE, "interval", 0, channel=self.plan.number)
        ends = self._flushes + self._doubtful
        assert self._restarts <= ends, (
            f"{self._restarts} times a packet was number 0 again, for {ends} ends"
        )
        if self._restarts == ends:
            self.pair.skip(self.next)
        elif self._doubtful or self._early:
            self.pair.skip_or_empty(self.next)
        else:
            self.pair.empty()

    def candidates(self) -> set[int]:
        """Numbers that the packet may have whose first bytes are written."""
        return {self.next, 0} if self.may_restart else {self.next}

    def take(self, found: bytes) -> int:
        """The record of a packet is written; returns the packet's number."""
        (row,) = np.frombuffer(found, regs.FRAME_RECORD)
        number = int(row["number"]) & ~regs.FRAME_NUMBER_VALID
        if number != self.next:
            assert number == 0 and self.may_restart, (
                f"packet {number} of pair {self.plan.number} comes, not {self.next}: {row}"
            )
            self._restarts += 1
        record, free = self.pair.record(number)
        good = all(
            (ours ^ theirs) & ~free_ & 0xFF == 0
            for ours, theirs, free_ in zip(record, found, free, strict=True)
        )
        assert good, f"the record of packet {number} is {row}"
        self.next = number + 1
        return number


class PacketSlot(LaunchSlot):
    """A slot whose tickets take packets."""

    def __init__(self, rig: Rig, slot: Slot, number: int, packets: Packets):
        super().__init__(rig, slot, number)
        self.packets = packets
        #: packets of the batch under way, of which there are records; those that may have begun
        self._numbers: list[int] = []
        self._begun: set[int] = set()
        self._records: list[bytes] = []
        #: of the next record
        self._some = b""

    @property
    def room(self) -> str:
        """How much there is for a packet."""
        room, size = sum(piece.size for piece in self.plan.pieces[:-1]), self.packets.pair.nbytes
        return "less" if room < size else "all of it" if room == size else "more"

    @property
    def good(self) -> LaunchStatus:
        """That of a packet: `LONG` if its array is shorter."""
        return LaunchStatus.LONG if self.room == "less" else LaunchStatus.OK

    def begin(self, count: int) -> list[Span]:
        """So many tickets of a batch are for this slot: leave to write their packets."""
        self._numbers, self._records, self._begun, self._some = [], [], set(), b""
        left = self.packets.pair.nbytes
        *parts, record = self.writes
        for part in parts:
            part.moves = min(part.piece.size, left)
            left -= part.moves
        spans = super().begin(count)
        for part in parts:
            part.span.heard = self._data
        record.span.heard = partial(self._record, record.buffer.address)
        return spans

    def _data(self, tlp: Tlp) -> None:
        self._begun |= self.packets.candidates()

    def _record(self, at: int, tlp: Tlp) -> None:
        """The record of a packet is behind all its bytes."""
        first = tlp.get_first_be_offset()
        assert tlp.address + first == at + len(self._some), f"{self!r} writes a record anyhow"
        self._some += tlp.get_data()[first : first + tlp.get_be_byte_count()]
        if len(self._some) < _RECORD:
            return
        self._numbers.append(self.packets.take(self._some))
        self._records.append(self._some)
        self._some = b""
        for number, part in enumerate(self.writes):
            left = part.moves * (self.count - len(self._numbers))
            assert part.span.left == left, (
                f"packet {self._numbers[-1]} of {self!r} has its record, but {part.span.left} bytes"
                f" of part {number} are to come, not {left}"
            )

    def expect_moved(self) -> None:
        """All of the packets with records has been written, and read back."""
        super().expect_moved()
        assert len(self._numbers) >= self.recorded, f"a record of {self!r} before its packet's"

    def expect_drained(self, moves: list[str]) -> None:
        """As many packets have been taken as `moves` says."""
        super().expect_drained(moves)
        assert len(self._numbers) == moves.count("all"), f"{self!r} has taken {self._numbers}"

    def _packet(self, number: int) -> list[np.ndarray]:
        """What is in each part but the last when it has that packet."""
        data, at, arrays = self.packets.pair.frame(number), 0, []
        for part in self.writes[:-1]:
            here = data[at : at + part.moves] + part.before[part.moves :]
            arrays.append(_array(here))
            at += part.moves
        return arrays

    def note_outcome(self) -> None:
        """A ticket has its record: which packet it has taken is known now."""
        place = len(self.outcomes)
        parts = [*self._packet(self._numbers[place]), _array(self._records[place])]
        self.outcomes.append([[part] for part in parts])

    def expect_perhaps(self) -> None:
        """Each part is as before, or has bytes of a packet that came, up to some place."""
        numbers = sorted({*self._numbers, *self._begun})
        *parts, record = self.writes
        for place, part in enumerate(parts):
            assert part.span.left >= 0, f"{self!r}, part {place}, was written once too often"
            options = [self._packet(number)[place] for number in numbers]
            check_either(f"{self!r}, part {place}", part.buffer.data, part.before, options)
        options = [_array(each) for each in (*self._records, self._some.ljust(_RECORD, b"\0"))]
        check_either(f"record of {self!r}", record.buffer.data, record.before, options)


def _array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8).astype(np.int16)
