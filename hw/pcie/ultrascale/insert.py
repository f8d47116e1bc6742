# SPDX-License-Identifier: BSD-2-Clause
"""Puts a descriptor in front of the payload of each packet, at every width."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

__all__ = ["HeaderInsert", "transmit_beat"]


def transmit_beat(width: int, user: int) -> data.StructLayout:
    """One beat of a stream to the block: dword n of `data` counts if bit n of `keep` is set."""
    return data.StructLayout({"data": width, "keep": width // 32, "last": 1, "user": user})


class HeaderInsert(wiring.Component):
    """Sends the descriptor and then the payload, shifted behind it.

    No latency. A packet takes as many cycles as it has beats here, but with payload at least one
    more than on the seam: its first beat is offered for a cycle before it is taken, as the seam
    asks. With payload of whole beats that is the descriptor's share, so no cycle is lost, and
    packets follow each other without a gap. One without payload is taken while the rest of the
    packet before it leaves, if there is some and its descriptor finds room where that was; so the
    next one's cycle is not lost either.

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
    i : In(stream)
        Payload from lane 0, with `first` and `last`; one beat, whose data is ignored, without any.
        `header`, `user` and `payload` belong to it, and are constant over the packet.
    header : In(32 * dwords), user : In(user)
    payload : In(11)
        Dwords of payload, 0 to 1024.
    o : Out(stream of transmit_beat)
        `user` counts in the first beat of a packet.
    """

    def __init__(self, width: int, dwords: int, user: int):
        self._lanes = width // 32
        self._dwords = dwords
        beat = data.StructLayout({"data": width, "first": 1, "last": 1})
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "header": In(32 * dwords),
                "user": In(user),
                "payload": In(11),
                "o": Out(stream.Signature(transmit_beat(width, user))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._lanes
        # Beats that are all descriptor; dwords of it in the beat that has payload, too.
        whole, rest = divmod(self._dwords, lanes)
        width, room = 32 * lanes, lanes - rest
        beat, out = self.i.payload, self.o.payload

        #: beats of the descriptor that have gone
        gone = Signal(range(whole + 1))
        #: the packet's first beat was offered in the cycle before
        settled = Signal()
        #: dwords that there was no room for, and in the end how many, if only these are left
        held = Signal(32 * rest)
        left = Signal(range(lanes + 1))
        held_user = Signal(len(self.user))
        last_dwords, empty = Signal(range(lanes + 1)), Signal()
        m.d.comb += [
            last_dwords.eq((self.payload - 1)[: exact_log2(lanes)] + 1),
            empty.eq(self.payload == 0),
            out.user.eq(Mux(left != 0, held_user, self.user)),
        ]
        m.d.sync += settled.eq(self.i.valid & ~(self.i.ready & beat.last))

        def keep(count):
            return (1 << count) - 1

        def consume():
            m.d.comb += [
                self.o.valid.eq(self.i.valid & (settled | empty)),
                self.i.ready.eq((settled | empty) & self.o.ready),
            ]

        with m.If(left != 0):
            m.d.comb += [
                self.o.valid.eq(1),
                out.data.eq(held),
                out.keep.eq(keep(left)),
                out.last.eq(1),
            ]
            with m.If(self.o.ready):
                m.d.sync += left.eq(0)
            if whole == 0:
                m.d.comb += self.i.ready.eq(empty & self.o.ready)
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += [held.eq(self.header), left.eq(rest), held_user.eq(self.user)]
        with m.Elif(gone != whole):
            m.d.comb += [
                out.data.eq(self.header.word_select(gone, width)),
                out.keep.eq(-1),
            ]
            with m.If(empty & (gone == whole - 1) & (rest == 0)):
                consume()
                m.d.comb += out.last.eq(1)
            with m.Else():
                m.d.comb += self.o.valid.eq(self.i.valid)
            with m.If(self.o.valid & self.o.ready):
                m.d.sync += gone.eq(Mux(out.last, 0, gone + 1))
        with m.Else():
            consume()
            front = Mux(beat.first, self.header[whole * width :], held)
            taken = self.o.valid & self.o.ready
            fits = empty | (last_dwords <= room)
            m.d.comb += [
                out.data.eq(Cat(front, beat.data[: 32 * room])),
                out.last.eq(beat.last & fits),
                out.keep.eq(Mux(out.last, keep(rest + Mux(empty, 0, last_dwords)), -1)),
            ]
            with m.If(taken):
                m.d.sync += held.eq(beat.data[32 * room :])
                with m.If(beat.last):
                    m.d.sync += gone.eq(0)
                    with m.If(~fits):
                        m.d.sync += left.eq(last_dwords - room)
        return m
