# SPDX-License-Identifier: BSD-2-Clause
"""Entries: up to 32 of each queue that were fetched, or that came with their doorbells."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import placement
from .records import DOORBELL_ENTRY, LEAST_BITS, SLOT_BITS, Entry
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

    Parameters
    ----------
    queues : int
    width : int
        Bits of a beat of a read.

    Members
    -------
    queue, ticket : In
        The queue that is served, and its oldest ticket.
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
        begins at a multiple of its size.
    brings : In(1), rung : In(range(queues)), last : In(TAIL_BITS), brought : In(DOORBELL_ENTRY)
        A doorbell moves the tail of this queue to this one, and brings the entry before it.
    head : In(16), one for each queue
        The oldest ticket that has no record.
    load : In(queues), first : In(16)
        Nothing is there for these queues, whose next ticket is this one.
    """

    def __init__(self, queues: int, width: int):
        self._queues = queues
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
        m.submodules.entries = entries = memory.Memory(
            shape=Entry, depth=2 * GROUP * self._queues, init=[]
        )
        write, read = entries.write_port(), entries.read_port(domain="comb")
        #: the first ticket of which there is no entry
        fetched = Array(Signal(16, name=f"fetched{queue}") for queue in range(self._queues))
        #: the group that is read is an odd one
        odd_group = Signal()

        bits = exact_log2(GROUP)

        def has_room(missing, oldest):
            """Its group is that of the oldest ticket, or the one behind that."""
            group, first = (number[bits : bits + 2] for number in (missing, oldest))
            return ~(group - first)[1]

        #: an entry comes, or comes by a read; for which queue
        comes = Signal()
        was_read = Signal()
        whose = Signal(range(self._queues))
        #: the ticket that it has to be of, and the one behind that
        expected, following = Signal(16), Signal(16)
        odd, place = placed.payload.enable[1].any(), Signal(bits)
        entry = Entry(placed.payload.data[16 : 16 + Shape.cast(Entry).width])
        m.d.comb += [
            whose.eq(Mux(placed.valid, self.reader, self.rung)),
            expected.eq(fetched[whose]),
            following.eq(expected + 1),
            place.eq(Cat(odd, Mux(odd, placed.payload.rows[1], placed.payload.rows[0]))),
            # Whatever else a GPU has there is not looked at.
            was_read.eq(
                placed.valid
                & (Cat(place, odd_group) == expected[: bits + 1])
                & (placed.payload.data[:16] == expected)
            ),
            comes.eq(was_read),
            write.data.eq(entry),
        ]
        # A read begins at an entry that was rung, and a doorbell that moves the tail brings a later
        # one: so none moves the place where a read begins.
        with m.If(~placed.valid):
            m.d.comb += [
                comes.eq(
                    self.brings
                    & (self.last == following[:TAIL_BITS])
                    & has_room(expected, Array(self.head)[whose])
                ),
                write.data.upper.eq(self.brought.ticket),
                write.data.slot.eq(self.brought.slot),
            ]
        none = self.next[: bits + 2] == self.ticket[: bits + 2]
        rung = Signal(TAIL_BITS)
        m.d.comb += [
            write.addr.eq(Cat(expected[: bits + 1], whose)),
            write.en.eq(comes),
            read.addr.eq(Cat(self.ticket[: bits + 1], now)),
            self.next.eq(fetched[now]),
            self.found.eq(~none | (was_read & (self.reader == now))),
            # What is there may be up to two groups ahead of the tail.
            rung.eq(self.tail - self.next),
            self.lacks.eq(rung.any() & ~rung[bits + 1 :].all() & has_room(self.next, self.ticket)),
            self.slot.eq(Mux(none, entry.slot, read.data.slot)),
            self.upper.eq(read.data.upper),
        ]
        with m.If(self.begins):
            m.d.sync += odd_group.eq(self.next[bits])
        with m.If(comes):
            m.d.sync += fetched[whose].eq(following)
        for queue, each in enumerate(fetched):
            with m.If(self.load[queue]):
                m.d.sync += each.eq(self.first)
        return m
