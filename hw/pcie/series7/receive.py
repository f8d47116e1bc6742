# SPDX-License-Identifier: BSD-2-Clause
"""Receive side of the 7-series transaction ports: TLPs become packets of the seam."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import CompletionBeat, TargetBeat, TargetKind
from ..tlp import (
    CompletionDword1,
    CompletionDword2,
    Dword0,
    RequestDword1,
    TlpType,
    length_of,
    swapped,
)

__all__ = ["Receiver"]


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
    target: Out(stream.Signature(TargetBeat, always_ready=True))
    completion: Out(stream.Signature(CompletionBeat, always_ready=True))

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

        dword0 = Signal(Dword0)
        dword1 = Signal(32)
        address = Signal(64)
        poisoned = Signal()
        bar = Signal(3)
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
                Cat(dword1, dword0).eq(beat),
                poisoned.eq(starting.poisoned | error),
                left.eq(Mux(starting.with_data, length_of(starting), 0)),
                bar.eq(7),
                in_address.eq(1),
                in_payload.eq(0),
            ]
            for number in reversed(range(6)):
                with m.If(bar_hit[number]):
                    m.d.sync += bar.eq(number)
        with m.Elif(valid & in_address):
            m.d.sync += [
                address.eq(Mux(dword0.four_dwords, Cat(low, high), high)),
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

        locked_completion = dword0.type == TlpType.COMPLETION_LOCKED
        is_completion = (dword0.type == TlpType.COMPLETION) | locked_completion
        attributes = Cat(dword0.attributes, dword0.id_ordering)

        request1 = RequestDword1(dword1)
        target = self.target.payload
        m.d.comb += [
            self.target.valid.eq(passing & ~is_completion),
            target.data.eq(payload),
            target.first.eq(first),
            target.last.eq(last),
            target.header.address.eq(Cat(C(0, 2), address[2:])),
            target.header.dwords.eq(length_of(dword0)),
            target.header.first_be.eq(request1.first_be),
            target.header.last_be.eq(request1.last_be),
            target.header.bar.eq(bar),
            target.header.tag.eq(request1.tag),
            target.header.requester_id.eq(request1.requester_id),
            target.header.traffic_class.eq(dword0.traffic_class),
            target.header.attributes.eq(attributes),
            target.header.poisoned.eq(poisoned),
            target.header.locked.eq(dword0.type == TlpType.MEMORY_LOCKED),
        ]
        with m.If(dword0.type[3:] == 0b10):
            m.d.comb += target.header.kind.eq(TargetKind.MESSAGE)
        with m.Elif(dword0.type != TlpType.MEMORY):
            m.d.comb += target.header.kind.eq(TargetKind.OTHER)
        with m.Elif(dword0.with_data):
            m.d.comb += target.header.kind.eq(TargetKind.WRITE)

        completion1 = CompletionDword1(dword1)
        completion2 = CompletionDword2(address[:32])
        completion = self.completion.payload
        m.d.comb += [
            self.completion.valid.eq(passing & is_completion),
            # There are none with four dwords of header.
            completion.data.eq(Cat(swapped(held), swapped(high))),
            completion.first.eq(first),
            completion.last.eq(last),
            completion.header.status.eq(completion1.status),
            completion.header.byte_count.eq(
                Cat(completion1.byte_count, completion1.byte_count == 0)
            ),
            completion.header.lower_address.eq(completion2.lower_address),
            completion.header.dwords.eq(Mux(dword0.with_data, length_of(dword0), 0)),
            completion.header.tag.eq(completion2.tag),
            completion.header.requester_id.eq(completion2.requester_id),
            completion.header.traffic_class.eq(dword0.traffic_class),
            completion.header.attributes.eq(attributes),
            completion.header.poisoned.eq(poisoned),
            completion.header.locked.eq(locked_completion),
        ]
        return m
