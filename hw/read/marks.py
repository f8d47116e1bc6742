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

    The end of a packet of the oldest tag of a client is told of at once, without a look-up, unless
    another client's tag is looked up in that cycle: it may retire, and this may be its last mark.

    Parameters
    ----------
    tags : int
    abut : bool
        A job may begin in a cycle with the last beat of a packet, but not in one with a first beat,
        nor in two cycles in a row: what the packet has reached is written in a later cycle.

    Members
    -------
    taken : In(stream of Owner, always ready), place : In(PlacementAddress)
        A job begins, with its first byte.
    reaches : In(1), tag : In(8), client : In(4), reached : In(PLACE_BITS)
        All bytes of the tag, which is of this client, below `reached`, an address as a number, are
        on their way. Ignored in a cycle in which something else is written, unless it is the end of
        its packet: the next beat reaches further.
    begins, ends : In(1)
        It is the first, the last beat of its packet. `tag` is that of the packet until the next one
        begins, in cycles without a beat as well.
    head : In(stream of Owner, always ready)
        The oldest tag of a client.
    flush : In(1)
        No mark in the next cycle.
    mark : Out(stream of InOrderMark, always ready)
        That of `head`, one cycle later, or that of a packet's end: the last word of a beat is
        written in this cycle at the latest, so that it can be read from the next one on.
    """

    def __init__(self, tags: int, *, abut: bool = False):
        self._tags = tags
        self._abut = abut
        owner = stream.Signature(Owner, always_ready=True)
        super().__init__(
            {
                "taken": In(owner),
                "place": In(PlacementAddress),
                "reaches": In(1),
                "tag": In(8),
                "client": In(4),
                "begins": In(1),
                "ends": In(1),
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
        tag, reached, reaches, known = self.tag, self.reached, self.reaches, read.data
        if self._abut:
            # The end of a packet that has not been written. First beats are two cycles apart, so it
            # is before another one has to wait.
            waits, waiting_tag, waiting = Signal(), Signal.like(tag), Signal.like(reached)
            with m.If(taken.valid | waits):
                m.d.sync += waits.eq((taken.valid & waits) | (self.reaches & self.ends))
            with m.If(self.reaches & self.ends):
                m.d.sync += [waiting_tag.eq(tag), waiting.eq(reached)]
            known = Mux(waits & (head.p.tag == waiting_tag), waiting, known)
            tag, reached = Mux(waits, waiting_tag, tag), Mux(waits, waiting, reached)
            reaches = reaches | waits
        m.d.comb += [
            write.addr.eq(Mux(taken.valid, taken.p.tag, tag)),
            write.data.eq(Mux(taken.valid, self.place.as_value(), reached)),
            write.en.eq(taken.valid | reaches),
            read.addr.eq(head.p.tag),
        ]
        # Whether the packet's tag was found to be the oldest of its client. It stays that while any
        # of its bytes count, as it does not retire before.
        found, oldest, at_end = Signal(), Signal(), Signal()
        m.d.comb += [
            found.eq(head.valid & (head.p.tag == self.tag)),
            at_end.eq(self.reaches & self.ends & (found | (oldest & ~self.begins))),
        ]
        m.d.sync += [
            oldest.eq(found | (oldest & ~self.begins)),
            self.mark.p.client.eq(head.p.client),
            self.mark.p.place.as_value().eq(known),
            self.mark.valid.eq((head.valid | at_end) & ~self.flush),
        ]
        with m.If(~head.valid | (found & at_end)):
            m.d.sync += [
                self.mark.p.client.eq(self.client),
                self.mark.p.place.as_value().eq(self.reached),
            ]
        return m
