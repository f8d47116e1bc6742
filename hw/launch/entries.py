# SPDX-License-Identifier: BSD-2-Clause
"""Entries: up to eight of each queue that were fetched, and one that came with its doorbell."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import Placement
from .records import DOORBELL_ENTRY, ENTRY_BYTES, SLOT_BITS, Entry

__all__ = ["BURST", "EntryStore"]

#: Entries of a read at most: it ends where the number of a ticket is a multiple of this.
BURST = 8


class EntryStore(wiring.Component):
    """Finds the entry of a queue's oldest ticket in what was fetched, or came with its doorbell.

    What is fetched is kept in the place of its ticket's lowest bits.

    Parameters
    ----------
    queues : int

    Members
    -------
    queue, ticket : In
        The queue that is served, and its oldest ticket.
    found : Out(1), slot : Out(SLOT_BITS)
        Its entry is there, and names this slot; in the same cycle.
    upper : Out(16)
        Upper half of its number, in all cycles after it was found.
    begins : In(1), ends : In(1)
        A read for it begins; the read for `reader` has ended, and was good.
    placement : In(stream of Placement, always ready), reader : In(range(queues))
        What a read of entries brings, and for which queue. An entry is in one beat, as a read
        begins at a multiple of its size.
    brings : In(queues), brought : In(DOORBELL_ENTRY)
        What a doorbell brings for the oldest ticket of this queue.
    done : In(1)
        Its entry is not needed any more.
    forget : In(queues)
        Nothing is there for these queues.
    """

    def __init__(self, queues: int):
        self._queues = queues
        super().__init__(
            {
                "queue": In(range(queues)),
                "ticket": In(16),
                "found": Out(1),
                "slot": Out(SLOT_BITS),
                "upper": Out(16),
                "begins": In(1),
                "ends": In(1),
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "reader": In(range(queues)),
                "brings": In(queues),
                "brought": In(DOORBELL_ENTRY),
                "done": In(1),
                "forget": In(queues),
            }
        )

    def elaborate(self, platform):
        m = Module()
        now, placed = self.queue, self.placement.payload
        m.submodules.entries = entries = memory.Memory(
            shape=Entry, depth=BURST * self._queues, init=[]
        )
        write, read = entries.write_port(), entries.read_port(domain="comb")

        def each(name, shape=1):
            queues = range(self._queues)
            return Array(Signal(shape, name=f"{name}{queue}") for queue in queues)

        #: entries were read since the queue was armed, of which burst (odd or even)
        fresh, burst = each("fresh"), each("burst")
        #: the oldest ticket's entry came with its doorbell
        came, came_entry = each("came"), each("came_entry", DOORBELL_ENTRY)

        within, number = self.ticket[: exact_log2(BURST)], self.ticket[exact_log2(BURST)]
        odd, place, seen = placed.enable[1].any(), Signal.like(within), Signal()
        m.d.comb += [
            place.eq(Cat(odd, Mux(odd, placed.rows[1], placed.rows[0]))),
            write.addr.eq(Cat(place, self.reader)),
            write.data.as_value().eq(placed.data),
            write.en.eq(self.placement.valid),
            read.addr.eq(Cat(within, now)),
            # The first entry of a read is the one that is waited for. Others may claim its ticket.
            seen.eq(
                self.placement.valid
                & (place == within)
                & (self.reader == now)
                & (placed.data[:16] == self.ticket)
            ),
            # What is left of a former burst, or of no read at all, might have the ticket, too.
            self.found.eq(
                seen
                | came[now]
                | (fresh[now] & (burst[now] == number) & (read.data.ticket[:16] == self.ticket))
            ),
            self.slot.eq(Mux(seen, placed.data[32:], read.data.slot)),
            self.upper.eq(read.data.ticket[16:]),
        ]
        with m.If(came[now]):
            m.d.comb += [self.slot.eq(came_entry[now].slot), self.upper.eq(came_entry[now].ticket)]

        with m.If(self.ends):
            m.d.sync += fresh[self.reader].eq(1)
        with m.If(self.begins):
            m.d.sync += [fresh[now].eq(0), burst[now].eq(number)]
        with m.If(self.done):
            m.d.sync += came[now].eq(0)
        for queue in range(self._queues):
            with m.If(self.brings[queue]):
                # Entries that were read are not looked at until those of the next read, by when
                # the lower half of a ticket's number may have come again.
                m.d.sync += [came[queue].eq(1), came_entry[queue].eq(self.brought)]
                m.d.sync += fresh[queue].eq(0)
            with m.If(self.forget[queue]):
                m.d.sync += [fresh[queue].eq(0), came[queue].eq(0)]
        return m


assert BURST * ENTRY_BYTES == 64, "rings are aligned to what a read brings"
