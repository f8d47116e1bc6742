# SPDX-License-Identifier: BSD-2-Clause
"""Receive side of the 7-series transaction ports: TLPs become packets of the seam."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import CompletionHeader, TargetHeader, TargetKind
from ...seam import beat as packet_beat
from ..tlp import (
    CompletionDword1,
    CompletionDword2,
    Dword0,
    RequestDword1,
    TlpType,
    length_of,
    swapped,
)
from .block import SERIES7

__all__ = ["Receiver"]


class _Header(data.Struct):
    """The header of a packet, as far as it has come."""

    dword0: Dword0
    dword1: 32
    #: of four dwords, or the third one
    address: 64
    poisoned: 1
    bar: 3


class Receiver(wiring.Component):
    """Parses received TLPs. Never stalls; the beats of a packet may have gaps between them.

    The end of a packet is derived from its length field, which leaves out a trailing digest. A TLP
    that was cut off ends at the next start of frame; its last beat never appears on the seam.
    Latency: a beat that completes 64 bits of payload is passed on in the next cycle;
    a packet or an odd dword that ends in the address beat or in lane 0, one cycle later.

    Members
    -------
    data, sof, valid, discontinued, error, bar_hit : In
        `trnrd`, `trnrsof`, `trnrsrcrdy`, `trnrsrcdsc`, `trnrerrfwd`, `trnrbarhit`.
    target, completion : Out(stream, always ready)
    """

    data: In(64)
    sof: In(1)
    valid: In(1)
    discontinued: In(1)
    error: In(1)
    bar_hit: In(8)
    target: Out(stream.Signature(packet_beat(TargetHeader, SERIES7.width), always_ready=True))
    completion: Out(
        stream.Signature(packet_beat(CompletionHeader, SERIES7.width), always_ready=True)
    )

    def elaborate(self, platform):
        m = Module()
        # The paths from the PCIe block's ports are long: register them before any logic.
        beat = Signal(64)
        sof = Signal()
        valid = Signal()
        discontinued = Signal()
        error = Signal()
        bar_hit = Signal(8)
        m.d.sync += [
            beat.eq(self.data),
            sof.eq(self.sof),
            valid.eq(self.valid),
            discontinued.eq(self.discontinued),
            error.eq(self.error),
            bar_hit.eq(self.bar_hit),
        ]

        header = Signal(_Header)
        dword0 = header.dword0
        #: the next beat is the address beat, or payload
        in_address = Signal()
        in_payload = Signal()
        #: the packet's last beat is due, with the dword in `held` or without data
        flush = Signal()
        #: no beat of the packet was passed on yet
        first = Signal()
        #: dwords of payload not passed on yet
        left = Signal(11)
        held = Signal(32)
        high, low = beat[32:], beat[:32]

        starting = Dword0(beat[32:])
        m.d.sync += flush.eq(0)
        with m.If(discontinued):
            m.d.sync += [in_address.eq(0), in_payload.eq(0)]
        with m.Elif(valid & sof):
            m.d.sync += [
                Cat(header.dword1, dword0).eq(beat),
                header.poisoned.eq(starting.poisoned | error),
                left.eq(Mux(starting.with_data, length_of(starting), 0)),
                header.bar.eq(7),
                in_address.eq(1),
                in_payload.eq(0),
            ]
            for number in reversed(range(6)):
                with m.If(bar_hit[number]):
                    m.d.sync += header.bar.eq(number)
        with m.Elif(valid & in_address):
            m.d.sync += [
                header.address.eq(Mux(dword0.four_dwords, Cat(low, high), high)),
                held.eq(low),
                first.eq(1),
                in_address.eq(0),
            ]
            with m.If((left == 0) | (~dword0.four_dwords & (left == 1))):
                m.d.sync += flush.eq(1)
            with m.Else():
                m.d.sync += in_payload.eq(1)
        with m.Elif(valid & in_payload):
            m.d.sync += [held.eq(low), left.eq(left - 2)]
            with m.If(left <= 3):
                m.d.sync += in_payload.eq((left == 3) & dword0.four_dwords)
                m.d.sync += flush.eq((left == 3) & ~dword0.four_dwords)

        passing = Signal()
        last = Signal()
        payload = Signal(64)
        m.d.comb += [
            passing.eq(flush | (valid & in_payload & ~sof & ~discontinued)),
            last.eq(flush | (left <= 2)),
            payload.eq(
                Mux(
                    dword0.four_dwords,
                    Cat(swapped(high), swapped(low)),
                    Cat(swapped(held), swapped(high)),
                )
            ),
        ]
        with m.If(passing):
            m.d.sync += first.eq(0)

        completes = (dword0.type == TlpType.COMPLETION) | (dword0.type == TlpType.COMPLETION_LOCKED)
        m.d.comb += [
            self.target.valid.eq(passing & ~completes),
            self.target.payload.data.eq(payload),
            self.completion.valid.eq(passing & completes),
            # There are none with four dwords of header.
            self.completion.payload.data.eq(Cat(swapped(held), swapped(high))),
        ]
        for packet in (self.target, self.completion):
            m.d.comb += [packet.payload.first.eq(first), packet.payload.last.eq(last)]
        self._target_header(m, header)
        self._completion_header(m, header)
        return m

    def _target_header(self, m, header):
        """Of a request of the host's."""
        dword0, request1, target = (
            header.dword0,
            RequestDword1(header.dword1),
            self.target.payload.header,
        )
        m.d.comb += [
            target.address.eq(Cat(C(0, 2), header.address[2:])),
            target.dwords.eq(length_of(dword0)),
            target.first_be.eq(request1.first_be),
            target.last_be.eq(request1.last_be),
            target.bar.eq(header.bar),
            target.tag.eq(request1.tag),
            target.requester_id.eq(request1.requester_id),
            target.traffic_class.eq(dword0.traffic_class),
            target.attributes.eq(Cat(dword0.attributes, dword0.id_ordering)),
            target.poisoned.eq(header.poisoned),
            target.locked.eq(dword0.type == TlpType.MEMORY_LOCKED),
        ]
        with m.If(dword0.type[3:] == 0b10):
            m.d.comb += target.kind.eq(TargetKind.MESSAGE)
        with m.Elif(dword0.type != TlpType.MEMORY):
            m.d.comb += target.kind.eq(TargetKind.OTHER)
        with m.Elif(dword0.with_data):
            m.d.comb += target.kind.eq(TargetKind.WRITE)

    def _completion_header(self, m, header):
        """Of a completion of a read of ours."""
        dword0, completion1 = header.dword0, CompletionDword1(header.dword1)
        completion2, completion = (
            CompletionDword2(header.address[:32]),
            self.completion.payload.header,
        )
        m.d.comb += [
            completion.status.eq(completion1.status),
            completion.byte_count.eq(Cat(completion1.byte_count, completion1.byte_count == 0)),
            completion.lower_address.eq(completion2.lower_address),
            completion.dwords.eq(Mux(dword0.with_data, length_of(dword0), 0)),
            completion.tag.eq(completion2.tag),
            completion.requester_id.eq(completion2.requester_id),
            completion.traffic_class.eq(dword0.traffic_class),
            completion.attributes.eq(Cat(dword0.attributes, dword0.id_ordering)),
            completion.poisoned.eq(header.poisoned),
            completion.locked.eq(dword0.type == TlpType.COMPLETION_LOCKED),
        ]
