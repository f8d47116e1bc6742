# SPDX-License-Identifier: BSD-2-Clause
"""As `HeaderStrip`, of completions at 256 bits, which may begin in the middle of a beat."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .strip import receive_beat

__all__ = ["STRADDLE_WIDTH", "StraddleFlags", "StraddleStrip"]

#: Bits of a beat for which the block can do so.
STRADDLE_WIDTH = 256
#: Dwords of the descriptor; lane of the second half of a beat.
_DWORDS, _HALF = 3, 4
#: Lanes of a beat that complete one of payload, for a packet that began in lane 0, and in `_HALF`.
_EVEN, _ODD = _DWORDS, _DWORDS + _HALF


class StraddleFlags(data.Struct):
    """Bits 41:32 of `tuser`: beginnings and ends of packets in the beat, in their order."""

    begins: 2
    ends0: 1
    last0: 3
    ends1: 1
    last1: 3


class StraddleStrip(wiring.Component):
    """Keeps the descriptor while it sends the payload, from lane 0 on.

    A packet may begin in lane 4 of the beat in which another ends. That beat is taken in one cycle:
    the end of the first packet leaves while the second one's descriptor is kept. It takes two if
    the first one needs another beat to leave, as it began in the same beat, or ends in lane 3. So
    completions of 64 bytes take two and a half cycles each. All else is as at `HeaderStrip`; if the
    block cuts off a beat with two packets, both are.

    Members
    -------
    i : In(stream of receive_beat)
        `user` is `StraddleFlags`; `keep` and `last` do not count.
    header : Out(96), o : Out(stream)
        As at `HeaderStrip`.
    """

    def __init__(self):
        beat = data.StructLayout({"data": STRADDLE_WIDTH, "first": 1, "last": 1})
        user = Shape.cast(StraddleFlags).width
        super().__init__(
            {
                "i": In(stream.Signature(receive_beat(STRADDLE_WIDTH, user))),
                "header": Out(32 * _DWORDS),
                "o": Out(stream.Signature(beat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        out, bits = self.o.payload, self.i.payload.data
        flags = StraddleFlags(self.i.payload.user)

        #: a packet is under way, which began in lane 4; its end waits; a beat of it has left; it is
        #: cut off; a packet of one beat has just left; a beat's first half is done
        busy = Signal()
        odd = Signal()
        flush = Signal()
        started = Signal()
        cut = Signal()
        single = Signal()
        second = Signal()
        held = Signal(STRADDLE_WIDTH - 32 * _EVEN)

        rest = Mux(odd, _ODD, _EVEN)
        passes, spills, follows, hard = Signal(), Signal(), Signal(), Signal()
        drops, moves, halves = Signal(), Signal(), Signal()
        steps = Signal()
        m.d.comb += [
            drops.eq(self.i.payload.discontinued | cut),
            passes.eq(self.i.valid & busy & ~drops),
            # The packet under way, or the one in lane 0, has a dword that does not leave yet.
            spills.eq(flags.ends0 & (~busy | (flags.last0 >= rest))),
            follows.eq(Mux(busy, flags.begins[0], flags.begins[1])),
            hard.eq(follows & spills & ~second),
            out.data.eq(Mux(odd, Cat(held[:32], bits), Cat(held, bits))),
            out.first.eq(~started),
            out.last.eq(flush | (flags.ends0 & ~spills)),
            self.o.valid.eq((flush | passes) & ~(single & out.first)),
            moves.eq(self.o.valid & self.o.ready),
            steps.eq(self.i.valid & (moves | ~(flush | passes))),
            self.i.ready.eq(steps & ~hard),
            # A packet begins in lane 4 in this step.
            halves.eq(second | (follows & ~hard)),
        ]
        m.d.sync += single.eq(moves & out.first & out.last)
        with m.If(moves):
            m.d.sync += [started.eq(1), flush.eq(0)]
        with m.If(steps):
            m.d.sync += second.eq(hard)
            with m.If(~second):
                m.d.sync += [
                    held.eq(Mux(busy & odd, bits[32 * _ODD :], bits[32 * _EVEN :])),
                    busy.eq((busy | flags.begins[0]) & ~flags.ends0),
                    flush.eq((busy | flags.begins[0]) & spills & ~drops),
                    cut.eq(drops & ~flags.ends0),
                ]
                with m.If(~busy):
                    m.d.sync += [self.header.eq(bits), odd.eq(0), started.eq(0)]
            with m.If(halves):
                discontinued = self.i.payload.discontinued
                m.d.sync += [
                    self.header.eq(bits[32 * _HALF :]),
                    held.eq(bits[32 * _ODD :]),
                    busy.eq(~flags.ends1),
                    odd.eq(1),
                    started.eq(0),
                    flush.eq(flags.ends1 & ~discontinued),
                    cut.eq(discontinued & ~flags.ends1),
                ]
        return m
