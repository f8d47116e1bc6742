# SPDX-License-Identifier: BSD-2-Clause
"""In-order marks: how far the oldest read of each client has come."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import CardMemory, InOrderMark, PlacementAddress
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
    reaches : In(1), tag : In(8), reached : In(17)
        All bytes of the tag below `reached`, an address as a number, are on their way. Ignored in a
        cycle in which a job begins: the next beat of the packet reaches further.
    head : In(stream of Owner, always ready)
        The oldest tag of a client.
    flush : In(1)
        No mark in the next cycle.
    mark : Out(stream of InOrderMark, always ready)
        That of `head`, two cycles later: as late as the last word of a completion is written, so
        that it can be read.
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
                "reached": In(17),
                "head": In(owner),
                "flush": In(1),
                "mark": Out(stream.Signature(InOrderMark, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        taken, head = self.taken, self.head

        def table(name, shape):
            m.submodules[name] = ram = memory.Memory(shape=shape, depth=self._tags, init=[])
            write, read = ram.write_port(), ram.read_port(domain="comb")
            m.d.comb += read.addr.eq(head.p.tag)
            return write, read

        # The memory that a job is for is kept apart: behind its last byte the address may be that
        # of another one.
        memory_bits = CardMemory.as_shape().width
        reached_write, reached_read = table("reached", 17 - memory_bits)
        memory_write, memory_read = table("memory", CardMemory)
        m.d.comb += [
            reached_write.addr.eq(Mux(taken.valid, taken.p.tag, self.tag)),
            reached_write.data.eq(Mux(taken.valid, self.place.as_value(), self.reached)),
            reached_write.en.eq(taken.valid | self.reaches),
            memory_write.addr.eq(taken.p.tag),
            memory_write.data.eq(self.place.memory),
            memory_write.en.eq(taken.valid),
        ]
        seen, seen_valid = Signal(InOrderMark), Signal()
        m.d.sync += [
            seen.client.eq(head.p.client),
            seen.place.as_value().eq(Cat(reached_read.data, memory_read.data)),
            seen_valid.eq(head.valid),
            self.mark.p.eq(seen),
            self.mark.valid.eq(seen_valid & ~self.flush),
        ]
        return m
