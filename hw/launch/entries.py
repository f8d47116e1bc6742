# SPDX-License-Identifier: BSD-2-Clause
"""What was fetched of the submission rings: up to eight entries of each queue."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import Placement
from .records import ENTRY_BYTES, Entry

__all__ = ["BURST", "EntryStore"]

#: Entries of a read at most: it ends where the number of a ticket is a multiple of this.
BURST = 8


class EntryStore(wiring.Component):
    """Keeps each entry in the place of its ticket's lowest bits.

    Parameters
    ----------
    queues : int

    Members
    -------
    placement : In(stream of Placement, always ready), writer : In(range(queues))
        What a read brings, and for which queue. An entry is in one beat, as a read begins at a
        multiple of its size.
    queue : In(range(queues)), place : In(range(BURST)), entry : Out(Entry)
        What is looked up, in the same cycle.
    """

    def __init__(self, queues: int):
        self._queues = queues
        super().__init__(
            {
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "writer": In(range(queues)),
                "queue": In(range(queues)),
                "place": In(range(BURST)),
                "entry": Out(Entry),
            }
        )

    def elaborate(self, platform):
        m = Module()
        placed = self.placement.payload
        m.submodules.entries = entries = memory.Memory(
            shape=Entry, depth=BURST * self._queues, init=[]
        )
        write, read = entries.write_port(), entries.read_port(domain="comb")
        odd = placed.enable[1].any()
        m.d.comb += [
            write.addr.eq(Cat(odd, Mux(odd, placed.rows[1], placed.rows[0])[:2], self.writer)),
            write.data.as_value().eq(placed.data),
            write.en.eq(self.placement.valid),
            read.addr.eq(Cat(self.place, self.queue)),
            self.entry.eq(read.data),
        ]
        return m


assert BURST * ENTRY_BYTES == 64, "rings are aligned to what a read brings"
