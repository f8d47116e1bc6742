# SPDX-License-Identifier: BSD-2-Clause
"""Transmit side of the 7-series transaction ports: packets of the seam become TLPs."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import CompletionBeat, RequestBeat, SentToken
from ..tlp import CompletionDword1, CompletionDword2, Dword0, RequestDword1, TlpType, swapped

__all__ = ["SkidBuffer", "TransmitBeat", "Transmitter"]


class TransmitBeat(data.Struct):
    """One beat towards the block; `write` and `token` make the sent token of the last beat."""

    data: 64
    rem: 1
    sof: 1
    eof: 1
    write: 1
    token: 8


class _Source(enum.Enum, shape=2):
    """What a beat of a TLP is made of."""

    #: the first two dwords of the header
    HEADER = 0
    #: the address of 64 bits, which ends a header of four dwords
    ADDRESS = 1
    #: a beat of payload, behind a header of four dwords
    ALIGNED = 2
    #: the dword that is held, and the first one of a beat of payload
    SHIFTED = 3


class SkidBuffer(wiring.Component):
    """Registers both directions of a stream's handshake.

    Latency 1 cycle, throughput one beat per cycle. A second register, the skid, takes the beat that
    is accepted in the cycle in which the output stalls.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        skid = Signal.like(self.i.payload)
        skid_valid = Signal()

        m.d.comb += self.i.ready.eq(~skid_valid)
        with m.If(~skid_valid):
            m.d.sync += skid.eq(self.i.payload)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.payload.eq(Mux(skid_valid, skid, self.i.payload)),
                self.o.valid.eq(skid_valid | self.i.valid),
                skid_valid.eq(0),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += skid_valid.eq(1)
        return m


class Transmitter(wiring.Component):
    """Merges our requests and completions into one stream of TLPs.

    A TLP is a header beat, an address beat, which behind a three-dword header also carries the
    first dword of payload, and the rest of the payload. TLPs follow each other without a gap.
    Completions have priority, at packet boundaries. Latency: the header beat is offered to the
    block one cycle after the packet's first beat is offered here.

    Parameters
    ----------
    drop_lag : int
        Of the block, as `hw.seam.Block` has it.

    Members
    -------
    requester, completion : In(stream)
        The first beat is consumed with the address beat or later, which is what the seam asks for.
        `ready` does not depend on `tlp.ready` combinationally.
    requester_id : In(16)
        Our bus, device and function number, for the headers of requests and completions.
    tlp : Out(stream of TransmitBeat)
    drop : In(1)
        The block has dropped a TLP. It does not say which one: all writes count as dropped that it
        was given a beat of in the last `drop_lag` cycles, or of which it has not the last one yet.
    sent : Out(stream of SentToken, always ready)
        Valid `drop_lag` + 2 cycles after the block took the last beat of a memory write.
    """

    requester: In(stream.Signature(RequestBeat))
    completion: In(stream.Signature(CompletionBeat))
    requester_id: In(16)
    tlp: Out(stream.Signature(TransmitBeat))
    drop: In(1)
    sent: Out(stream.Signature(SentToken, always_ready=True))

    def __init__(self, drop_lag: int):
        self._drop_lag = drop_lag
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid_buffer = skid_buffer = SkidBuffer(TransmitBeat)
        wiring.connect(m, skid_buffer.o, wiring.flipped(self.tlp))
        tlp = skid_buffer.i
        beat = tlp.payload
        request = self.requester.payload.header
        completion = self.completion.payload.header

        # Decided with the header beat, and kept for the rest of the packet.
        completing = Signal()
        four_dwords = Signal()
        with_data = Signal()
        #: the payload ends in lane 0
        odd = Signal()
        write = Signal()
        token = Signal(8)
        #: the dword that the next beat begins with, if the header has three: first the third of
        #: these, then the second one of the last beat consumed
        held = Signal(32)

        dword0 = Signal(Dword0)
        dword1 = Signal(32)
        request1 = Signal(RequestDword1)
        completion1 = Signal(CompletionDword1)
        completion2 = Signal(CompletionDword2)
        m.d.comb += [
            request1.first_be.eq(request.first_be),
            request1.last_be.eq(request.last_be),
            request1.tag.eq(request.tag),
            request1.requester_id.eq(self.requester_id),
            completion1.byte_count.eq(completion.byte_count),
            completion1.status.eq(completion.status),
            completion1.completer_id.eq(self.requester_id),
            completion2.lower_address.eq(completion.lower_address),
            completion2.tag.eq(completion.tag),
            completion2.requester_id.eq(completion.requester_id),
        ]
        with m.If(self.completion.valid):
            m.d.comb += [
                dword0.type.eq(
                    Mux(completion.locked, TlpType.COMPLETION_LOCKED, TlpType.COMPLETION)
                ),
                dword0.with_data.eq(completion.dwords != 0),
                dword0.length.eq(completion.dwords),
                dword0.traffic_class.eq(completion.traffic_class),
                Cat(dword0.attributes, dword0.id_ordering).eq(completion.attributes),
                dword0.poisoned.eq(completion.poisoned),
                dword1.eq(completion1),
            ]
        with m.Else():
            m.d.comb += [
                dword0.type.eq(TlpType.MEMORY),
                dword0.four_dwords.eq(request.address[32:] != 0),
                dword0.with_data.eq(request.write),
                dword0.length.eq(request.dwords),
                dword0.attributes.eq(Cat(C(0, 1), request.relaxed)),
                dword1.eq(request1),
            ]

        payload = Signal(64)
        last = Signal()
        valid = Signal()
        ready = Signal()
        with m.If(completing):
            m.d.comb += [
                payload.eq(self.completion.payload.data),
                last.eq(self.completion.payload.last),
                valid.eq(self.completion.valid),
                self.completion.ready.eq(ready),
            ]
        with m.Else():
            m.d.comb += [
                payload.eq(self.requester.payload.data),
                last.eq(self.requester.payload.last),
                valid.eq(self.requester.valid),
                self.requester.ready.eq(ready),
            ]
        low, high = swapped(payload[:32]), swapped(payload[32:])
        with m.If(valid & ready):
            m.d.sync += held.eq(high)

        m.d.comb += [beat.write.eq(write), beat.token.eq(token)]
        # Four sources, chosen by two bits: a LUT for each bit. Only requests have four dwords.
        source, aligned = Signal(_Source), self.requester.payload.data
        with m.Switch(source):
            with m.Case(_Source.HEADER):
                m.d.comb += beat.data.eq(Cat(dword1, dword0))
            with m.Case(_Source.ADDRESS):
                m.d.comb += beat.data.eq(Cat(request.address[:32], request.address[32:]))
            with m.Case(_Source.ALIGNED):
                m.d.comb += beat.data.eq(Cat(swapped(aligned[32:]), swapped(aligned[:32])))
            with m.Case(_Source.SHIFTED):
                m.d.comb += beat.data.eq(Cat(low, held))
        with m.FSM():
            with m.State("Header"):
                m.d.comb += [
                    tlp.valid.eq(self.completion.valid | self.requester.valid),
                    source.eq(_Source.HEADER),
                    beat.rem.eq(1),
                    beat.sof.eq(1),
                ]
                m.d.sync += held.eq(
                    Mux(self.completion.valid, completion2.as_value(), request.address[:32])
                )
                with m.If(tlp.valid & tlp.ready):
                    m.d.sync += [
                        completing.eq(self.completion.valid),
                        four_dwords.eq(dword0.four_dwords),
                        with_data.eq(dword0.with_data),
                        odd.eq(dword0.length[0]),
                        write.eq(~self.completion.valid & request.write),
                        token.eq(request.token),
                    ]
                    m.next = "Address"

            with m.State("Address"):
                m.d.comb += [
                    tlp.valid.eq(valid),
                    source.eq(Mux(four_dwords, _Source.ADDRESS, _Source.SHIFTED)),
                    ready.eq(tlp.ready & ~(four_dwords & with_data)),
                    beat.rem.eq(four_dwords | with_data),
                    beat.eof.eq(~with_data | (~four_dwords & last & odd)),
                ]
                with m.If(valid & tlp.ready):
                    with m.If(beat.eof):
                        m.next = "Header"
                    with m.Elif(~four_dwords & last):
                        m.next = "Tail"
                    with m.Else():
                        m.next = "Payload"

            with m.State("Payload"):
                m.d.comb += [
                    tlp.valid.eq(valid),
                    source.eq(Mux(four_dwords, _Source.ALIGNED, _Source.SHIFTED)),
                    ready.eq(tlp.ready),
                    beat.rem.eq(~(four_dwords & last & odd)),
                    beat.eof.eq(last & (four_dwords | odd)),
                ]
                with m.If(valid & tlp.ready & last):
                    m.next = "Tail"
                    with m.If(beat.eof):
                        m.next = "Header"

            # The second dword of the last beat is still held.
            with m.State("Tail"):
                m.d.comb += [
                    tlp.valid.eq(1),
                    source.eq(_Source.SHIFTED),
                    beat.eof.eq(1),
                ]
                with m.If(tlp.ready):
                    m.next = "Header"

        # What has been sent waits until the block can drop it no more.
        taken = self.tlp.payload
        takes = self.tlp.valid & self.tlp.ready
        drop, inside, hit = Signal(), Signal(), Signal()
        m.d.sync += drop.eq(self.drop)
        with m.If(takes):
            m.d.sync += inside.eq(~taken.eof)
        with m.If(takes & taken.eof):
            m.d.sync += hit.eq(0)
        with m.Elif(drop & inside):
            m.d.sync += hit.eq(1)
        valid, token, dropped = takes & taken.eof & taken.write, taken.token, hit
        for number in range(self._drop_lag + 2):
            before = (valid, token, dropped | drop)
            valid, token, dropped = (
                Signal(name=f"valid{number}"),
                Signal(8, name=f"token{number}"),
                Signal(name=f"dropped{number}"),
            )
            m.d.sync += [valid.eq(before[0]), token.eq(before[1]), dropped.eq(before[2])]
        m.d.comb += [
            self.sent.valid.eq(valid),
            self.sent.payload.token.eq(token),
            self.sent.payload.dropped.eq(dropped),
        ]
        return m
