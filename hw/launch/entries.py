# SPDX-License-Identifier: BSD-2-Clause
"""Entries: up to 32 of each queue that were fetched, and one that came with its doorbell."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import Placement
from .records import DOORBELL_ENTRY, LEAST_BITS, SLOT_BITS, Entry
from .tails import TAIL_BITS

__all__ = ["BURST", "GROUP", "EntryStore"]

#: Entries of a read at most, as many as the smallest ring has; and it ends where the number of a
#: ticket is a multiple of the other, or at the end of the smallest ring.
BURST, GROUP = 1 << LEAST_BITS, 2 << LEAST_BITS


class EntryStore(wiring.Component):
    """Finds the entry of a queue's oldest ticket in what was fetched, or came with its doorbell.

    Entries are fetched in the order of tickets, each once: what a read brings counts up to the
    first place that has another number than it should. That one is fetched again. There is room for
    the group of the oldest ticket, and for the next one.

    Parameters
    ----------
    queues : int

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
        Its first ticket of which no entry was fetched.
    lacks : Out(1)
        That was rung, and there is room.
    begins : In(1)
        A read begins, from that ticket's entry on.
    placement : In(stream of Placement, always ready), reader : In(range(queues))
        What a read of entries brings, and for which queue. An entry is in one beat, as a read
        begins at a multiple of its size.
    brings : In(queues), brought : In(DOORBELL_ENTRY)
        What a doorbell brings for the oldest ticket of this queue.
    done : In(1)
        Its entry is not needed any more.
    head : In(16), one for each queue
        The oldest ticket that has no record.
    load : In(queues), first : In(16)
        Nothing is there for these queues, whose next ticket is this one.
    """

    def __init__(self, queues: int):
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
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "reader": In(range(queues)),
                "brings": In(queues),
                "brought": In(DOORBELL_ENTRY),
                "done": In(1),
                "head": In(16).array(queues),
                "load": In(queues),
                "first": In(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        now, placed = self.queue, self.placement.payload
        m.submodules.entries = entries = memory.Memory(
            shape=Entry, depth=2 * GROUP * self._queues, init=[]
        )
        write, read = entries.write_port(), entries.read_port(domain="comb")

        def each(name, shape=1):
            queues = range(self._queues)
            return Array(Signal(shape, name=f"{name}{queue}") for queue in queues)

        #: the first ticket of which no entry was fetched
        fetched = each("fetched", 16)
        #: the oldest ticket's entry came with its doorbell
        came, came_entry = each("came"), each("came_entry", DOORBELL_ENTRY)
        #: the group that is read is an odd one
        odd_group = Signal()

        bits, expected = exact_log2(GROUP), fetched[self.reader]
        odd, place, comes = placed.enable[1].any(), Signal(bits), Signal()
        none = self.next[: bits + 2] == self.ticket[: bits + 2]
        rung = Signal(TAIL_BITS)
        # Its group is that of the oldest ticket, or the one behind that.
        groups = [number[bits : bits + 2] for number in (self.next, self.ticket)]
        room = (groups[0] == groups[1]) | (groups[0][0] != groups[1][0])
        m.d.comb += [
            place.eq(Cat(odd, Mux(odd, placed.rows[1], placed.rows[0]))),
            # Whatever else a GPU has there is not looked at.
            comes.eq(
                self.placement.valid
                & (Cat(place, odd_group) == expected[: bits + 1])
                & (placed.data[:16] == expected)
            ),
            write.addr.eq(Cat(expected[: bits + 1], self.reader)),
            write.data.as_value().eq(placed.data),
            write.en.eq(comes),
            read.addr.eq(Cat(self.ticket[: bits + 1], now)),
            self.next.eq(fetched[now]),
            self.found.eq(came[now] | ~none | (comes & (self.reader == now))),
            # What was fetched may be up to two groups ahead of the tail.
            rung.eq(self.tail - self.next),
            self.lacks.eq(rung.any() & ~rung[bits + 1 :].all() & room),
            self.slot.eq(Mux(none, placed.data[32:], read.data.slot)),
            self.upper.eq(read.data.ticket[16:]),
        ]
        with m.If(came[now]):
            m.d.comb += [self.slot.eq(came_entry[now].slot), self.upper.eq(came_entry[now].ticket)]

        with m.If(self.begins):
            m.d.sync += odd_group.eq(self.next[bits])
        with m.If(self.done):
            m.d.sync += came[now].eq(0)
        for queue, head in enumerate(self.head):
            # One that came with its doorbell is not fetched, if it was not before.
            late = fetched[queue][: bits + 2] == head[: bits + 2]
            with m.If((self.brings[queue] & late) | (comes & (self.reader == queue))):
                m.d.sync += fetched[queue].eq(fetched[queue] + 1)
            with m.If(self.brings[queue]):
                m.d.sync += [came[queue].eq(1), came_entry[queue].eq(self.brought)]
            with m.If(self.load[queue]):
                m.d.sync += [fetched[queue].eq(self.first), came[queue].eq(0)]
        return m
