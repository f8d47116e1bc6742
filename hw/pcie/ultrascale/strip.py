# SPDX-License-Identifier: BSD-2-Clause
"""Takes the descriptor off each packet, and shifts its payload to lane 0, at every width."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["HeaderStrip", "receive_beat"]


def receive_beat(width: int, user: int) -> data.StructLayout:
    """One beat of a stream from the block; `user` counts in a packet's first one."""
    return data.StructLayout(
        {"data": width, "keep": width // 32, "last": 1, "discontinued": 1, "user": user}
    )


class HeaderStrip(wiring.Component):
    """Keeps the descriptor while it sends the payload, from lane 0 on.

    A beat leaves in the cycle in which what completes it arrives, or, if that is the packet's end,
    in the next one, in which the next packet may begin to arrive. So nothing is held up, except
    that the first beats of two packets leave at least two cycles apart, as the seam asks: a cycle
    without a beat follows a packet of one beat, if need be.

    Of a packet that the block cuts off, the beat in which it says so and the rest are missing; so
    its last beat never leaves.

    Parameters
    ----------
    width : int
        Bits of a beat.
    dwords : int
        Of the descriptor.
    user : int
        Bits of `user`.

    Members
    -------
    i : In(stream of receive_beat)
    header : Out(32 * dwords), user : Out(user)
        Of the packet whose beat is offered.
    o : Out(stream)
        Payload with `first` and `last`; a beat of nonsense without any.
    """

    def __init__(self, width: int, dwords: int, user: int):
        self._lanes = width // 32
        self._dwords = dwords
        beat = data.StructLayout({"data": width, "first": 1, "last": 1})
        super().__init__(
            {
                "i": In(stream.Signature(receive_beat(width, user))),
                "header": Out(32 * dwords),
                "user": Out(user),
                "o": Out(stream.Signature(beat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = 32 * self._lanes
        # Beats with a part of the descriptor; dwords of it in the last one of them, unless all.
        opening, rest = -(-self._dwords // self._lanes), self._dwords % self._lanes
        beat, out = self.i.payload, self.o.payload

        #: beats of the descriptor that have come
        come = Signal(range(opening + 1))
        #: payload that waits for the beat to be whole; the packet's end is there
        held = Signal(32 * (self._lanes - rest) if rest else 0)
        flush = Signal()
        #: a beat of the packet has left; the packet is cut off; a packet of one beat has just left
        started = Signal()
        cut = Signal()
        single = Signal()

        opens, drops, moves = Signal(), Signal(), Signal()
        m.d.comb += [
            opens.eq(come != opening),
            drops.eq(beat.discontinued | cut),
            out.first.eq(~started),
            out.last.eq(flush | (beat.last & ~beat.keep[rest])),
            out.data.eq(Cat(held, beat.data)),
            self.o.valid.eq((flush | (self.i.valid & ~opens & ~drops)) & ~(single & out.first)),
            moves.eq(self.o.valid & self.o.ready),
            self.i.ready.eq(Mux(flush | ~(opens | drops), moves, 1)),
        ]
        if not rest:
            m.d.comb += out.last.eq(flush | beat.last)
        m.d.sync += single.eq(moves & out.first & out.last)
        with m.If(moves):
            m.d.sync += [started.eq(1), flush.eq(0)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [held.eq(beat.data[32 * rest :]), cut.eq(drops & ~beat.last)]
            with m.If(opens):
                m.d.sync += come.eq(come + 1)
                with m.Switch(come):
                    for number in range(opening):
                        with m.Case(number):
                            part = self.header[number * width : (number + 1) * width]
                            m.d.sync += part.eq(beat.data)
                with m.If(come == 0):
                    m.d.sync += [self.user.eq(beat.user), started.eq(0)]
            with m.If(beat.last):
                m.d.sync += [come.eq(0), flush.eq(~drops & (opens | ~out.last))]
        return m
