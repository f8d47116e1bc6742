# SPDX-License-Identifier: BSD-2-Clause
"""In-order marks: how far the oldest read of each client has come."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import PLACE_BITS, InOrderMark, PlacementAddress
from .records import Owner

__all__ = ["InOrderMarks"]


class InOrderMarks(wiring.Component):
    """Keeps for each tag the address up to which its bytes are on their way to the memory.

    Parameters
    ----------
    tags : int

    Members
    -------
    taken : In(stream of Owner, always ready), place : In(PlacementAddress)
        A job begins, with its first byte.
    reaches : In(1), tag : In(8), reached : In(PLACE_BITS)
        All bytes of the tag below `reached`, an address as a number, are on their way. Ignored in a
        cycle in which a job begins: the next beat of the packet reaches further.
    head : In(stream of Owner, always ready)
        The oldest tag of a client.
    flush : In(1)
        No mark in the next cycle.
    mark : Out(stream of InOrderMark, always ready)
        That of `head`, one cycle later: the last word of a completion was written in the cycle
        before, so that it can be read.
    """

    def __init__(self, tags: int):
        self._tags = tags
        owner = stream.Signature(Owner, always_ready=True)
        super().__init__(
            {
                "taken": In(owner),
                "place": In(PlacementAddress),
                "reaches": In(1),
                "tag": In(8),
                "reached": In(PLACE_BITS),
                "head": In(owner),
                "flush": In(1),
                "mark": Out(stream.Signature(InOrderMark, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        taken, head = self.taken, self.head

        m.submodules.table = table = memory.Memory(shape=PLACE_BITS, depth=self._tags, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(Mux(taken.valid, taken.p.tag, self.tag)),
            write.data.eq(Mux(taken.valid, self.place.as_value(), self.reached)),
            write.en.eq(taken.valid | self.reaches),
            read.addr.eq(head.p.tag),
        ]
        m.d.sync += [
            self.mark.p.client.eq(head.p.client),
            self.mark.p.place.as_value().eq(read.data),
            self.mark.valid.eq(head.valid & ~self.flush),
        ]
        return m
