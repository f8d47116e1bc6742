# SPDX-License-Identifier: BSD-2-Clause
"""The words behind the first one of a TLP: the address of a request, and payload."""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import CompletionHeader, RequestHeader, beat
from ..tlp import swapped
from .block import SERIES7

__all__ = ["Words"]


class _From(enum.Enum, shape=2):
    """Where a word comes from."""

    REQUESTER = 0
    COMPLETION = 1
    #: the address of a request, of 64 bits
    ADDRESS = 2
    #: what was consumed while the output stalled
    SKID = 3


def _dwords(payload):
    """A beat of payload as the block takes it: its first dword in bits 63:32."""
    return Cat(swapped(payload[32:]), swapped(payload[:32]))


class Words(wiring.Component):
    """Gives the words of a packet, and consumes its beats.

    Payload is consumed whether there is room or not, so that `ready` does not depend on that: the
    skid keeps what there was no room for.

    Members
    -------
    requester, completion : In(stream)
        As at `hw.pcie.series7.transmit.Transmitter`.
    completing : In(1), addressing : In(1)
        The packet is a completion. Its address is wanted, and not its payload.
    consuming : In(1)
        The beat is consumed in this cycle, if it is there.
    room : In(1)
        The word can be taken.
    word : Out(64), there : Out(1), last : Out(1)
        The word; its beat is there, and is the packet's last one.
    """

    requester: In(stream.Signature(beat(RequestHeader, SERIES7.width)))
    completion: In(stream.Signature(beat(CompletionHeader, SERIES7.width)))
    completing: In(1)
    addressing: In(1)
    consuming: In(1)
    room: In(1)
    word: Out(64)
    there: Out(1)
    last: Out(1)

    def elaborate(self, platform):
        m = Module()
        skid, skid_last, skid_valid = Signal(64), Signal(), Signal()
        m.d.sync += [
            skid_valid.eq(self.consuming & self.there & ~self.room),
            skid.eq(self.word),
            skid_last.eq(self.last),
        ]
        with m.If(skid_valid):
            m.d.comb += [self.there.eq(1), self.last.eq(skid_last)]
        with m.Elif(self.completing):
            m.d.comb += [
                self.there.eq(self.completion.valid),
                self.last.eq(self.completion.payload.last),
                self.completion.ready.eq(self.consuming),
            ]
        with m.Else():
            m.d.comb += [
                self.there.eq(self.requester.valid),
                self.last.eq(self.requester.payload.last),
                self.requester.ready.eq(self.consuming),
            ]

        # Four sources, chosen by two bits: a LUT for each bit.
        origin = Signal(_From)
        with m.If(skid_valid):
            m.d.comb += origin.eq(_From.SKID)
        with m.Elif(self.addressing):
            m.d.comb += origin.eq(_From.ADDRESS)
        with m.Elif(self.completing):
            m.d.comb += origin.eq(_From.COMPLETION)
        with m.Switch(origin):
            with m.Case(_From.REQUESTER):
                m.d.comb += self.word.eq(_dwords(self.requester.payload.data))
            with m.Case(_From.COMPLETION):
                m.d.comb += self.word.eq(_dwords(self.completion.payload.data))
            with m.Case(_From.ADDRESS):
                m.d.comb += self.word.eq(self.requester.payload.header.address)
            with m.Case(_From.SKID):
                m.d.comb += self.word.eq(skid)
        return m
