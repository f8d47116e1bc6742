# SPDX-License-Identifier: BSD-2-Clause
"""A slot of a launch queue: its memory, and what its tickets must have done with that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from cocotbext.pcie.core.tlp import Tlp

from peerdma import regs
from peerdma.regs import LaunchStatus
from sim.benches.launch_queue import fill
from sim.benches.memory import Buffer, Chain

from .faults import ARRIVES_US
from .plan import Piece, Slot, TicketFault
from .rig import Rig
from .scoreboard import Span, check_either

__all__ = ["LaunchSlot", "Part"]

#: By when the done word follows the record, in simulated microseconds.
_DONE_US = 100
_DONE, _NOT_DONE = b"\1\0\0\0", bytes(4)


@dataclass
class Part:
    """One descriptor's memory."""

    piece: Piece
    buffer: Buffer
    #: while it may be used
    span: Span | None = None
    before: bytes = b""
    #: bytes of it that a ticket moves
    moves: int = 0

    def __post_init__(self) -> None:
        self.moves = self.piece.size


class LaunchSlot:
    """A slot and its memory; and of the batch under way, how often it is in that and how far the
    board has come with it."""

    def __init__(self, rig: Rig, slot: Slot, number: int):
        self.plan, self.number = slot, number
        self.reads: list[Part] = []
        self.writes: list[Part] = []
        self._rig = rig
        self.count = self.recorded = self.flushed = self.done = 0
        #: done words that are to be written for the batch
        self.words = 0
        #: descriptors of its lists that are in memory, and the dword that is read at the end
        self.descriptors: list[int] = []
        self._flush_at = 0
        #: runs of the batch that have asked for the last one of these
        self._read = 0
        self._word = rig.memory(
            "gpu" if slot.done == "gpu" else "low", 4, 4 * rig.rng.randrange(900)
        )
        #: is called when data of a copy is written
        self.wrote: Callable[[], None] = lambda: None
        #: of the tickets of a batch, what each may have written: by part, arrays of which each byte
        #: is one
        self.outcomes: list[list[list[np.ndarray]]] = []

    @property
    def channels(self) -> set[tuple[bool, int]]:
        """Those it needs."""
        ways = (False, True) if self.plan.kind == "copy" else (self.plan.kind != "h2c",)
        return {(c2h, self.plan.number) for c2h in ways}

    @property
    def overlaps(self) -> bool:
        """Its runs may be under way beside others."""
        return self.plan.overlap and self.plan.kind != "packet"

    @property
    def listed(self) -> str:
        """Where its list is."""
        plan = self.plan
        held = 2 if plan.kind == "packet" else 1
        return "memory" if max(len(plan.pieces), len(plan.out)) > held else "slot"

    @property
    def good(self) -> LaunchStatus:
        """The status of a ticket that ends well."""
        return LaunchStatus.OK

    async def prepare(self, queue: int) -> list[Span]:
        """Fill the slot; what the board may read as long as it is prepared."""
        rig, plan = self._rig, self.plan
        copies, receives = plan.kind == "copy", plan.kind == "packet"
        halves = [self._list(plan.pieces, plan.kind in ("c2h", "packet"), 1 + receives)]
        if copies:
            halves.append(self._list(plan.out, True))
        spans = []
        for chain in halves:
            for start, count in chain.blocks[1:]:
                size = regs.DESCRIPTOR.itemsize
                self.descriptors += range(start, start + size * count, size)
                spans.append(
                    rig.scope.allow(
                        "list of a slot", start, size * count, write=False, heard=self._list_read
                    )
                )
        flush = None
        if plan.flush:
            flush = self._flush_at = self._flush_address()
            spans.append(
                rig.scope.allow("flush read", flush, 4, write=False, heard=self._flush_read)
            )
        size = regs.DESCRIPTOR.itemsize
        heads = b"".join(chain.head for chain in halves)
        self._heads = [heads[at : at + size] for at in range(0, len(heads), size)]
        self._control = partial(
            fill,
            flush=flush,
            done=None if plan.done == "off" else self._word.address,
            c2h=plan.kind in ("c2h", "packet"),
            receive=receives,
            channel=plan.number,
            pair=copies,
            overlap=plan.overlap,
        )
        self._queue = queue
        await self.restore()
        return spans

    async def restore(self) -> None:
        """It can be launched again."""
        await self._fill(self._heads, self._queue)

    async def _fill(self, heads: Sequence[bytes], queue: int) -> None:
        await self._control(self._rig, self.number, *heads, queue=queue)

    async def spoil(self, fault: TicketFault) -> range:
        """Make tickets fail; returns where reads have to, for that."""
        if fault.kind == "not valid":
            await self._rig.write(regs.LAUNCH_SLOT, "control", 0, channel=self.number)
            return range(0)
        if fault.kind == "another queue's":
            await self._fill(self._heads, 1 - self._queue)
            return range(0)
        choice = self._rig.rng.choice
        if fault.place == "head":
            heads, spoilt = list(self._heads), choice(range(len(self._heads)))
            head = np.frombuffer(heads[spoilt], regs.DESCRIPTOR).copy()
            head["control"] ^= 1 << choice(range(16, 32))
            heads[spoilt] = head.tobytes()
            await self._fill(heads, self._queue)
            return range(0)
        if fault.place == "list":
            at = choice(self.descriptors)
        elif fault.place == "flush":
            at = self._flush_at
        else:
            buffer = choice([part.buffer for part in self.reads if part.piece.size])
            at = buffer.address + choice(range(buffer.size))
        return range(at, at + 1)

    def _list(self, pieces: Sequence[Piece], c2h: bool, held: int = 1) -> Chain:
        """One half's list, of which the first `held` descriptors are for slots."""
        rig, transfers = self._rig, []
        for piece in pieces:
            buffer = rig.memory(piece.memory, piece.size, piece.offset)
            (self.writes if c2h else self.reads).append(Part(piece, buffer))
            transfers.append(rig.transfer(piece, buffer, c2h))
        blocks, left = [held], len(pieces) - held
        while left:
            blocks.append(min(left, rig.rng.choice((1, 2, 16, 63))))
            left -= blocks[-1]
        return rig.chain(transfers, blocks=blocks, high=self.plan.high)

    def _flush_address(self) -> int:
        """A dword that is behind all that was written: of the GPU's memory if any of that is."""
        if not self.writes:
            return self._rig.memory("low", 4, 0).address
        parts = [part for part in self.writes if part.piece.memory == "gpu"] or self.writes
        buffer = parts[-1].buffer
        return max(buffer.address + buffer.size - 1, buffer.address) & ~3

    # A batch --------------------------------------------------------------------------------

    def begin(self, count: int) -> list[Span]:
        """So many tickets of a batch are for this slot: new data, and leave to move it."""
        rig, spans = self._rig, []
        self.count = self.words = count
        self.recorded = self.flushed = self.done = self._read = 0
        self.outcomes = []
        self.wrote = lambda: None
        for part in (*self.reads, *self.writes):
            part.buffer.data = part.before = rig.rng.randbytes(part.piece.size)
        for write, parts in ((False, self.reads), (True, self.writes)):
            for part in parts:
                buffer, size = part.buffer, part.piece.size
                part.span = rig.scope.allow(buffer.name, buffer.address, size, write=write)
                part.span.left = part.moves * count
                if write and self.plan.kind == "copy":
                    part.span.heard = lambda _: self.wrote()
                spans.append(part.span)
        if self.plan.done != "off":
            self._word.data = _NOT_DONE
            spans.append(
                rig.scope.allow("done", self._word.address, 4, write=True, heard=self._done)
            )
        return spans

    def _list_read(self, tlp: Tlp) -> None:
        self._read += self.descriptors[-1] in range(tlp.address, tlp.address + 4 * tlp.length)

    @property
    def known(self) -> bool | None:
        """Of a C2H run that was ended and whose ticket has its record now: whether all of its list
        had come, or None where that does not show."""
        if self.overlaps:
            return None
        last = self.writes[-1]
        if last.span.left < last.moves * (self.count - self.recorded + 1):
            return True
        return False if self.descriptors and self._read < self.recorded else None

    def begun(self, number: int) -> bool:
        """Whether data was asked for of the ticket of this slot, a copy, that has this number in
        the batch, from 0 on."""
        moved = sum(part.moves * self.count - part.span.left for part in self.reads)
        return moved > number * sum(part.moves for part in self.reads)

    def written(self, number: int) -> bool:
        """Whether all bytes of that ticket are."""
        moved = sum(part.moves * self.count - part.span.left for part in self.writes)
        return moved >= (number + 1) * sum(part.moves for part in self.writes)

    def _flush_read(self, tlp: Tlp) -> None:
        self.flushed += 1
        assert self.flushed <= self.count, f"{self!r} has a flush read too many"

    def _done(self, tlp: Tlp) -> None:
        self.done += 1
        assert tlp.get_data() == _DONE, f"the done word of {self!r} is {tlp.get_data().hex()}"
        assert self.done <= self.recorded, f"{self!r} writes the done word before the record"
        assert self.done <= self.words, f"{self!r} writes a done word too many"

    def expect_moved(self) -> None:
        """All data of the tickets with records has been written, and read back."""
        for number, part in enumerate(self.writes):
            most = part.moves * (self.count - self.recorded)
            assert part.span.left <= most, (
                f"a record of {self!r}, but part {number} lacks {part.span.left - most} bytes"
            )
        assert not self.plan.flush or self.flushed >= self.recorded, f"no flush read of {self!r}"

    def note_outcome(self) -> None:
        """A ticket has its record; those before it were noted. What it has moved is known now."""
        ram, plan = self._rig.ram, self.plan
        if plan.kind == "c2h":
            parts = [ram.options(part.piece.card, part.piece.size) for part in self.writes]
            self.outcomes.append([[option.copy() for option in options] for options in parts])
        elif plan.kind == "h2c":
            for part in self.reads:
                ram.write(part.piece.card, part.before)
        else:
            data, at, parts = b"".join(part.before for part in self.reads), 0, []
            for part in self.writes:
                sent = data[at : at + part.piece.size]
                parts.append([np.frombuffer(sent, np.uint8).astype(np.int16)])
                at += part.piece.size
            self.outcomes.append(parts)

    def expect_data(self) -> None:
        """What the last ticket has written is there."""
        for part in self.reads:
            part.buffer.expect(part.before)
        for number, part in enumerate(self.writes):
            options = self.outcomes[-1][number]
            found = part.buffer.data
            # What was there before is no good any more.
            known = options[0].astype(np.uint8).tobytes()
            check_either(f"{self!r}, part {number}", found, known, options)

    def expect_perhaps(self) -> None:
        """Tickets were interrupted: what they have written is there, or what was there before."""
        for part in self.reads:
            part.buffer.expect(part.before)
        if self.plan.kind != "h2c":
            self.note_outcome()
        for number, part in enumerate(self.writes):
            assert part.span.left >= 0, f"{self!r}, part {number}, was written once too often"
            options = [option for parts in self.outcomes for option in parts[number]]
            name = f"{self!r}, part {number}"
            check_either(name, part.buffer.data, part.before, options)

    def maybe_written(self) -> None:
        """A ticket may have written some of its data to card RAM."""
        for part in self.reads:
            if part.piece.card is not None:
                self._rig.ram.maybe(part.piece.card, part.before)

    def expect_drained(self, moves: list[str]) -> None:
        """Tickets of a batch have failed, or were flushed: of those with outcomes all bytes were
        moved, of others as `moves` says."""
        moved, some = moves.count("all"), moves.count("some")
        for number, part in enumerate((*self.reads, *self.writes)):
            most = part.moves * (self.count - moved)
            assert most - part.moves * some <= part.span.left <= most, (
                f"{self!r}, part {number}, was moved anyhow: {part.span.left} bytes are left of"
                f" {self.count} tickets, of which moved: {moves}"
            )
        assert moved * self.plan.flush <= self.flushed <= moved + some, (
            f"{self.flushed} flush reads of {self!r}; moved: {moves}"
        )
        if some and not (moved and self.plan.kind == "copy"):
            self.expect_perhaps()
        elif moved:
            # All tickets of a copy write the same.
            self.expect_data()
        else:
            for part in (*self.reads, *self.writes):
                part.buffer.expect(part.before)

    @property
    def to_gpu(self) -> bool:
        """Some of what it writes is in the GPU's memory."""
        return "gpu" in (self.plan.done, *(part.piece.memory for part in self.writes))

    async def expect_done(self, pause: Callable[[int], Awaitable[None]]) -> None:
        """The done words have been written, as often as there were tickets that have one."""
        if self.plan.done == "off":
            return
        for _ in range(_DONE_US * 10):
            if self.done == self.words and self._word.data == (_DONE if self.words else _NOT_DONE):
                if self.words > 1:
                    # Memory has what an earlier one wrote: the last one may be on its way still.
                    await pause(1000 * ARRIVES_US)
                return
            await pause(100)
        raise AssertionError(f"{self.done} done words of {self!r} in {_DONE_US} us")

    def __repr__(self) -> str:
        return f"<slot {self.number}, {self.plan.kind} {self.plan.number}>"
