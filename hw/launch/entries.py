# SPDX-License-Identifier: BSD-2-Clause
"""Entries: up to 32 of each queue that were fetched, or that came with their doorbells."""

from itertools import accumulate
from operator import and_

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import placement
from .records import DOORBELL_ENTRY, ENTRY_BYTES, LEAST_BITS, SLOT_BITS, Entry
from .tails import TAIL_BITS

__all__ = ["BURST", "GROUP", "EntryStore"]

#: Entries of a read at most, as many as the smallest ring has; and it ends where the number of a
#: ticket is a multiple of the other, or at the end of the smallest ring.
BURST, GROUP = 1 << LEAST_BITS, 2 << LEAST_BITS


class EntryStore(wiring.Component):
    """Finds the entry of a queue's oldest ticket in what was fetched, or came with its doorbell.

    Entries come in the order of tickets, each once: what a read brings counts up to the first place
    that has another number than it should, and that one is fetched again; what a doorbell brings
    counts if it is of the first ticket that is missing, and no read brings anything in that cycle.
    There is room for the group of the oldest ticket, and for the next one.

    A beat has as many entries as fit, and they may be in two rows of what is kept. So each place in
    a row is a column: a memory of its own.

    Parameters
    ----------
    queues : int
    width : int
        Bits of a beat of a read, and of a row.

    Members
    -------
    queue, ticket : In
        The queue that is served, and its next ticket to be started.
    tail : In(TAIL_BITS)
        Its tail, if the oldest ticket was rung.
    found : Out(1), slot : Out(SLOT_BITS)
        Its entry is there, and names this slot; in the same cycle.
    upper : Out(16)
        Upper half of its number, in all cycles after it was found.
    next : Out(16)
        Its first ticket of which there is no entry.
    lacks : Out(1)
        That was rung, and there is room.
    begins : In(1)
        A read begins, from that ticket's entry on.
    placement : In(stream of placement, always ready), reader : In(range(queues))
        What a read of entries brings, and for which queue. An entry is in one beat, as a read
        begins at a multiple of its size; it is enabled whole or not at all.
    brings : In(1), rung : In(range(queues)), last : In(TAIL_BITS), brought : In(DOORBELL_ENTRY)
        A doorbell moves the tail of this queue to this one, and brings the entry before it.
    head : In(16), one for each queue
        The oldest ticket that has no record.
    load : In(queues), first : In(16)
        Nothing is there for these queues, whose next ticket is this one.
    """

    def __init__(self, queues: int, width: int):
        self._queues, self._width = queues, width
        super().__init__(
            {
                "queue": In(range(queues)),
                "ticket": In(16),
                "tail": In(TAIL_BITS),
                "found": Out(1),
                "slot": Out(SLOT_BITS),
                "upper": Out(16),
                "next": Out(16),
                "lacks": Out(1),
                "begins": In(1),
                "placement": In(stream.Signature(placement(width), always_ready=True)),
                "reader": In(range(queues)),
                "brings": In(1),
                "rung": In(range(queues)),
                "last": In(TAIL_BITS),
                "brought": In(DOORBELL_ENTRY),
                "head": In(16).array(queues),
                "load": In(queues),
                "first": In(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        now, placed = self.queue, self.placement
        columns = self._width // (8 * ENTRY_BYTES)
        #: bits of a ticket's number that say in which column its entry is, and where in its group
        within, bits = exact_log2(columns), exact_log2(GROUP)
        #: the first ticket of which there is no entry
        fetched = Array(Signal(16, name=f"fetched{queue}") for queue in range(self._queues))
        #: the group that is read is an odd one
        odd_group = Signal()

        def has_room(missing, oldest):
            """Its group is that of the oldest ticket, or the one behind that."""
            group, first = (number[bits : bits + 2] for number in (missing, oldest))
            return ~(group - first)[1]

        #: an entry comes, by a read or with a doorbell; for which queue
        comes = Signal()
        was_read, brought = Signal(), Signal()
        whose = Signal(range(self._queues))
        #: the ticket that it has to be of, and the one behind that
        expected, following = Signal(16), Signal(16)
        first, row = expected[:within], expected[within:]
        m.d.comb += [
            whose.eq(Mux(placed.valid, self.reader, self.rung)),
            expected.eq(fetched[whose]),
            following.eq(expected + 1),
        ]
        #: for each column: what a read brings there; and whether it is the entry that is missing
        entries, fits = [], []
        #: the columns before that of `expected`, of which the next row is missing
        wraps = [first > column for column in range(columns)]
        for column, in_next in enumerate(wraps):
            lane, number = ENTRY_BYTES * column, Const(column, within)
            even, odd = (placed.payload.enable[bank][lane] for bank in range(2))
            place = Cat(number, odd, Mux(odd, placed.payload.rows[1], placed.payload.rows[0]))
            ticket = Cat(number, Mux(in_next, (row + 1)[: len(row)], row))
            word = placed.payload.data.word_select(column, 8 * ENTRY_BYTES)
            entries.append(Entry(word[16 : 16 + Shape.cast(Entry).width]))
            # Whatever else a GPU has there is not looked at.
            fits.append(
                placed.valid
                & (even | odd)
                & (Cat(place[:bits], odd_group) == ticket[: bits + 1])
                & (word[:16] == ticket)
            )
        # What a read brings counts as far as all fit, from the entry of `expected` on.
        in_order = [wrap | fit for wrap, fit in zip(wraps, fits, strict=True)] + fits
        runs = list(accumulate(in_order, and_))
        m.d.comb += [
            was_read.eq(Array(fits)[first]),
            # A read begins at an entry that was rung, and a doorbell that moves the tail brings a
            # later one: so none moves the place where a read begins.
            brought.eq(
                ~placed.valid
                & self.brings
                & (self.last == following[:TAIL_BITS])
                & has_room(expected, Array(self.head)[whose])
            ),
            comes.eq(was_read | brought),
        ]
        kept, more = [], []
        for column, in_next in enumerate(wraps):
            m.submodules[f"column{column}"] = rows = memory.Memory(
                shape=Entry, depth=2 * GROUP * self._queues // columns, init=[]
            )
            write, read = rows.write_port(), rows.read_port(domain="comb")
            is_first = first == column
            reads = Mux(in_next, runs[columns + column], runs[column])
            more.append(reads & ~is_first)
            kept.append(read.data)
            m.d.comb += [
                write.addr.eq(Cat((row + in_next)[: bits + 1 - within], whose)),
                write.data.eq(entries[column]),
                write.en.eq(reads | (brought & is_first)),
                read.addr.eq(Cat(self.ticket[within : bits + 1], now)),
            ]
            with m.If(~placed.valid):
                m.d.comb += [
                    write.data.upper.eq(self.brought.ticket),
                    write.data.slot.eq(self.brought.slot),
                ]
        none = self.next[: bits + 2] == self.ticket[: bits + 2]
        rung = Signal(TAIL_BITS)
        oldest = Array(kept)[self.ticket[:within]]
        m.d.comb += [
            self.next.eq(fetched[now]),
            self.found.eq(~none | (was_read & (self.reader == now))),
            # What is there may be up to two groups ahead of the tail.
            rung.eq(self.tail - self.next),
            self.lacks.eq(rung.any() & ~rung[bits + 1 :].all() & has_room(self.next, self.ticket)),
            self.slot.eq(Mux(none, Array(entries)[first].slot, oldest.slot)),
            self.upper.eq(oldest.upper),
        ]
        with m.If(self.begins):
            m.d.sync += odd_group.eq(self.next[bits])
        for queue, each in enumerate(fetched):
            with m.If(self.load[queue]):
                m.d.sync += each.eq(self.first)
            with m.Elif(comes & (whose == queue)):
                m.d.sync += each.eq(following + sum(more))
        return m
