# SPDX-License-Identifier: BSD-2-Clause
"""Byte rotation of read data: from the lanes of a packet to the lanes of a client's memory."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import OFFSET_BITS, Placement, moved
from .records import RotatorBeat

__all__ = ["ByteRotator"]

LANES = 8


class ByteRotator(wiring.Component):
    """Rotates the bytes of each packet so that they can be written in place.

    Bytes of a beat that belong to the next word are written with the next beat or, after the last
    beat, in a cycle of their own. Beats of a packet may have gaps between them; after its last
    beat there must be at least one cycle without a beat.

    Latency: the word of a beat appears two cycles after it, the rest of the last beat three.

    Parameters
    ----------
    offset_bits : int
        As for `hw.read.engine.ReadEngine`.

    Members
    -------
    beats : In(stream of RotatorBeat, always ready)
    discard : In(1)
        From the next cycle on nothing of the beats so far is written.
    placement : Out(stream of Placement, always ready)
        Only words with at least one byte to write.
    """

    def __init__(self, offset_bits: int = OFFSET_BITS):
        self._offset_bits = offset_bits
        super().__init__(
            {
                "beats": In(stream.Signature(RotatorBeat, always_ready=True)),
                "discard": In(1),
                "placement": Out(stream.Signature(Placement, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat = self.beats.p
        place = self.placement.p

        # A byte and its enable travel together, as nine bits. A rotation by 0 to 7 lanes is one
        # by 0 to 3, a register, then one by 0 or 4: each step is one multiplexer of four inputs,
        # as the second also chooses between this beat and the one before.
        source = [Cat(beat.data.word_select(i, 8), beat.enable[i]) for i in range(LANES)]
        now = [Signal(9, name=f"now{i}") for i in range(LANES)]
        before = [Signal(9, name=f"before{i}") for i in range(LANES)]
        valid = Signal()
        first = Signal()
        last = Signal()
        rest = Signal()
        shift = Signal(range(LANES))
        word = Signal.like(place.address)
        client = Signal.like(place.client)

        m.d.sync += [
            valid.eq(self.beats.valid & ~self.discard),
            rest.eq(valid & last & ~self.discard),
        ]
        with m.If(valid):
            m.d.sync += [before[i].eq(now[i]) for i in range(LANES)]
            m.d.sync += word.eq(moved(word, 1, self._offset_bits - 3))
        with m.If(self.beats.valid):
            m.d.sync += [first.eq(beat.first), last.eq(beat.last)]
            for i in range(LANES):
                turned = Array(source[(i - turn) % LANES] for turn in range(4))
                m.d.sync += now[i].eq(turned[beat.start[:2]])
            with m.If(beat.first):
                m.d.sync += [
                    shift.eq(beat.start[:3]),
                    word.eq(beat.start[3:]),
                    client.eq(beat.client),
                ]

        for i in range(LANES):
            late = shift > i
            half = shift[2]
            byte_now = Mux(half, now[i ^ 4], now[i])
            byte_before = Mux(half, before[i ^ 4], before[i])
            byte = Mux(late, byte_before, byte_now)
            m.d.sync += [
                place.data.word_select(i, 8).eq(byte[:8]),
                # A packet's first word has no bytes of an earlier beat, the cycle after its last
                # beat has no new ones.
                place.enable[i].eq(byte[8] & Mux(late, ~(valid & first), valid)),
            ]
        written = Signal()
        m.d.sync += [
            written.eq((valid | rest) & ~self.discard),
            place.address.eq(word),
            place.client.eq(client),
        ]
        m.d.comb += self.placement.valid.eq(written & place.enable.any())
        return m
