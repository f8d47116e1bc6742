# SPDX-License-Identifier: BSD-2-Clause
"""The entries of launch queues where a beat brings several of them."""

from __future__ import annotations

from functools import reduce
from operator import add, and_

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.utils import exact_log2

from hw.launch.entries import BURST, GROUP, EntryStore
from hw.launch.records import ENTRY_BYTES, PLACES

from .property import Property

__all__ = ["Entries"]


class Entries(Property):
    """The entry that is found is the first one that came with its ticket's number, in order.

    Of 256 bits, whose beats have four entries, in up to four columns of two rows: those count that
    follow each other from the first one that is missing, wherever that is in a beat. None is
    overwritten before its ticket is done. Followed are any queue and any ticket. Assumed: one read
    at a time, which begins when an entry is lacking, brings its entries in order, each once, and
    none across the end of a group; a doorbell that brings an entry moves the tail to behind it, and
    forward; tickets are started in order, and the oldest without a record is the next one to be
    started, or one of the eight before; a queue is set when none of its entries are read.
    """

    WIDTH = 256
    COLUMNS = WIDTH // (8 * ENTRY_BYTES)
    depth = 2
    reach = 16

    def __init__(self):
        super().__init__(EntryStore(2, self.WIDTH))

    def _state(self, m):
        block, inside = self.block, self.inside
        within, bits = exact_log2(self.COLUMNS), exact_log2(GROUP)
        queue, one = self.any(m, 1, "queue"), self.any(m, 16, "ticket")
        placed, brought = block.placement, block.brought
        oldest, tail, fetched = Signal(16), Signal(16), Signal(16)
        kept = Signal(22)  # of that ticket: upper half of its number, and slot
        load = block.load.bit_select(queue, 1)

        # The tickets: their tail moves by doorbells, and they are done one after the other.
        done, moves, more = self.free(1, "done"), self.free(1, "moves"), self.free(8, "more")
        head = Mux(queue, block.head[1], block.head[0])
        #: how many were started since the queue was set, if not more
        popped, there = Signal(range(PLACES + 1)), (fetched - oldest)[:16]
        rings = block.brings & (block.rung == queue)
        to = Mux(rings | moves, tail + more, tail)[:16]
        m.d.comb += [
            Assume(~(block.queue == queue) | (block.ticket == oldest)),
            Assume(~(block.queue == queue) | (block.tail == tail[: len(block.tail)])),
            Assume((oldest - head)[:16] <= popped),
            Assume(~done | ((there != 0) & (oldest != tail))),
            Assume((to - head)[:16] <= 256),
            Assume(~rings | ((more != 0) & (block.last == to[: len(block.last)]))),
        ]

        # The read: which queue, the place of its next entry, and how many there were.
        asked, first, places = Signal(), Signal(bits), Signal(range(BURST + 1))
        ends, count = self.free(1, "ends"), self.free(range(self.COLUMNS + 1), "count")
        reader = Signal()
        reached = first + places
        at = reached[:bits]
        ours = asked & (reader == queue)
        with m.If(ends):
            m.d.sync += asked.eq(0)
        with m.If(block.begins):
            m.d.sync += [
                asked.eq(1),
                reader.eq(block.queue),
                first.eq(block.next),
                places.eq(0),
            ]
        with m.If(placed.valid):
            m.d.sync += places.eq(places + count)
        m.d.comb += [
            Assume(~block.begins | (block.lacks & ~asked)),
            Assume(~placed.valid | (asked & (count != 0) & (places + count <= BURST))),
            Assume(~placed.valid | ((count <= self.COLUMNS) & (reached + count <= GROUP))),
            Assume(block.reader == reader),
            Assume(~load | ~(ours | (block.begins & (block.queue == queue)))),
        ]
        for column in range(self.COLUMNS):
            # The entry of this column: so far from the first one of the beat.
            behind = (column - at)[:within]
            entry = (at + behind)[:bits]
            bank, row = entry[within], entry[within + 1 :]
            comes = behind < count
            for number in range(2):
                enable = placed.payload.enable[number][ENTRY_BYTES * column]
                m.d.comb += Assume(enable == (comes & (bank == number)))
            rows = Mux(bank, placed.payload.rows[1], placed.payload.rows[0])
            m.d.comb += Assume(~comes | (rows[: len(row)] == row))

        # What counts, one after the other.
        fits, values = [], []
        for number in range(self.COLUMNS):
            ticket = (fetched + number)[:16]
            word = placed.payload.data.word_select(ticket[:within], 8 * ENTRY_BYTES)
            behind = (ticket[:bits] - at)[:bits]
            same_group = ticket[bits] == inside("odd_group")
            fits.append((behind < count) & same_group & (word[:16] == ticket))
            values.append(word[16:38])
        was_read = placed.valid & ours
        counts = [was_read & reduce(and_, fits[: number + 1]) for number in range(self.COLUMNS)]
        groups = (fetched >> bits) - (head >> bits)
        has_room = ~groups[1]
        with_bell = rings & ~placed.valid & (to == (fetched + 1)[:16]) & has_room
        comes = [with_bell | counts[0], *counts[1:]]
        values[0] = Mux(with_bell, Cat(brought.ticket, brought.slot), values[0])
        with m.If(load):
            first_ticket = block.first
            m.d.sync += [
                oldest.eq(first_ticket),
                tail.eq(first_ticket),
                fetched.eq(first_ticket),
                popped.eq(0),
            ]
        with m.Else():
            m.d.sync += [
                oldest.eq(oldest + done),
                popped.eq(Mux(popped == PLACES, PLACES, popped + done)),
                tail.eq(to),
                fetched.eq(fetched + reduce(add, comes)),
            ]
        for number, (value, each) in enumerate(zip(values, comes, strict=True)):
            with m.If(each & ((fetched + number)[:16] == one)):
                m.d.sync += kept.eq(value)

        place = Cat(one[within : bits + 1], queue)
        stored = Array(inside.word(f"column{n}", place) for n in range(self.COLUMNS))[one[:within]]
        is_there = (one - oldest)[:16] < there
        here = block.queue == queue
        found = here & block.found & (oldest == one)
        most = 2 * GROUP - oldest % GROUP
        m.d.comb += [
            Assert(~here | (block.next == fetched)),
            Assert(~here | (block.found == ((there != 0) | counts[0]))),
            Assert(~found | (block.slot == Mux(is_there, kept[16:], values[0][16:]))),
            Assert(~(found & is_there) | (block.upper == kept[:16])),
            Assert(~(here & block.lacks) | (there < 2 * GROUP) & (fetched != tail)),
            # What is inside.
            Assert(~is_there | (stored == kept)),
            Assert(there <= most),
            Assert(Mux(queue, inside("fetched1"), inside("fetched0")) == fetched),
            Assert((tail - oldest)[:16] <= 256),
            Assert(~asked | (reached <= GROUP)),
            # Up to a read's first entry no doorbell brings one: what is read was rung before.
            Assert(~ours | (places != 0) | (fetched[:bits] == first)),
            Assert(~ours | (places != 0) | (fetched[bits] == inside("odd_group"))),
            Assert(~ours | (places != 0) | ((there < most) & ((tail - fetched - 1)[:16] < 256))),
        ]
        self.cover(
            m,
            counts[-1] & (fetched[:within] == 3),
            counts[1] & ~counts[2] & (count == self.COLUMNS),
            found & is_there & (one[:within] == 2) & (popped == 2),
            with_bell & (there > 1),
        )
