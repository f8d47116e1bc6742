# SPDX-License-Identifier: BSD-2-Clause
"""Transmit side of the 7-series transaction ports: packets of the seam become TLPs."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import CompletionBeat, RequestBeat, SentToken
from ..tlp import CompletionDword1, CompletionDword2, Dword0, RequestDword1, TlpType, swapped

__all__ = ["TransmitBeat", "Transmitter"]


class TransmitBeat(data.Struct):
    """One beat towards the block; `write` and `token` make the sent token of the last beat."""

    data: 64
    rem: 1
    sof: 1
    eof: 1
    write: 1
    token: 8


class _Word(enum.Enum, shape=2):
    """Where the word comes from that a beat is made of behind the header's first one."""

    REQUESTER = 0
    COMPLETION = 1
    #: the address of a request, of 64 bits
    ADDRESS = 2
    #: what was consumed while the output stalled
    SKID = 3


class _Source(enum.Enum, shape=2):
    """What a beat of a TLP is made of."""

    #: the first two dwords of the header
    REQUEST = 0
    COMPLETION = 1
    #: a word, behind a header of four dwords or as the end of it
    ALIGNED = 2
    #: the dword that is held, and the first one of a word
    SHIFTED = 3


def _dwords(payload):
    """A beat of payload as the block takes it: its first dword in bits 63:32."""
    return Cat(swapped(payload[32:]), swapped(payload[:32]))


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
        request = self.requester.payload.header
        completion = self.completion.payload.header

        # The next beat; the register at the output takes it if there is room.
        beat = Signal(TransmitBeat)
        offered, room, moves = Signal(), Signal(), Signal()
        m.d.comb += [
            room.eq(~self.tlp.valid | self.tlp.ready),
            moves.eq(offered & room),
        ]
        with m.If(room):
            m.d.sync += [self.tlp.payload.eq(beat), self.tlp.valid.eq(offered)]

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

        completion0, request0 = Signal(Dword0), Signal(Dword0)
        completion1 = Signal(CompletionDword1)
        completion2 = Signal(CompletionDword2)
        request1 = Signal(RequestDword1)
        m.d.comb += [
            completion0.type.eq(
                Mux(completion.locked, TlpType.COMPLETION_LOCKED, TlpType.COMPLETION)
            ),
            completion0.with_data.eq(completion.dwords != 0),
            completion0.length.eq(completion.dwords),
            completion0.traffic_class.eq(completion.traffic_class),
            Cat(completion0.attributes, completion0.id_ordering).eq(completion.attributes),
            completion0.poisoned.eq(completion.poisoned),
            completion1.byte_count.eq(completion.byte_count),
            completion1.status.eq(completion.status),
            completion1.completer_id.eq(self.requester_id),
            completion2.lower_address.eq(completion.lower_address),
            completion2.tag.eq(completion.tag),
            completion2.requester_id.eq(completion.requester_id),
            request0.type.eq(TlpType.MEMORY),
            request0.four_dwords.eq(request.address[32:] != 0),
            request0.with_data.eq(request.write),
            request0.length.eq(request.dwords),
            request0.attributes.eq(Cat(C(0, 1), request.relaxed)),
            request1.first_be.eq(request.first_be),
            request1.last_be.eq(request.last_be),
            request1.tag.eq(request.tag),
            request1.requester_id.eq(self.requester_id),
        ]

        # Payload is consumed whether there is room or not, so that `ready` does not depend on that:
        # the skid keeps what there was no room for.
        consuming, there, last = Signal(), Signal(), Signal()
        skid, skid_last, skid_valid = Signal(64), Signal(), Signal()
        m.d.sync += skid_valid.eq(consuming & there & ~room)
        with m.If(skid_valid):
            m.d.comb += [there.eq(1), last.eq(skid_last)]
        with m.Elif(completing):
            m.d.comb += [
                there.eq(self.completion.valid),
                last.eq(self.completion.payload.last),
                self.completion.ready.eq(consuming),
            ]
        with m.Else():
            m.d.comb += [
                there.eq(self.requester.valid),
                last.eq(self.requester.payload.last),
                self.requester.ready.eq(consuming),
            ]

        # Twice four sources, chosen by two bits: a LUT for each bit.
        addressing = Signal()
        word, word_from, source = Signal(64), Signal(_Word), Signal(_Source)
        with m.If(skid_valid):
            m.d.comb += word_from.eq(_Word.SKID)
        with m.Elif(addressing):
            m.d.comb += word_from.eq(_Word.ADDRESS)
        with m.Elif(completing):
            m.d.comb += word_from.eq(_Word.COMPLETION)
        with m.Switch(word_from):
            with m.Case(_Word.REQUESTER):
                m.d.comb += word.eq(_dwords(self.requester.payload.data))
            with m.Case(_Word.COMPLETION):
                m.d.comb += word.eq(_dwords(self.completion.payload.data))
            with m.Case(_Word.ADDRESS):
                m.d.comb += word.eq(request.address)
            with m.Case(_Word.SKID):
                m.d.comb += word.eq(skid)
        with m.Switch(source):
            with m.Case(_Source.REQUEST):
                m.d.comb += beat.data.eq(Cat(request1, request0))
            with m.Case(_Source.COMPLETION):
                m.d.comb += beat.data.eq(Cat(completion1, completion0))
            with m.Case(_Source.ALIGNED):
                m.d.comb += beat.data.eq(word)
            with m.Case(_Source.SHIFTED):
                m.d.comb += beat.data.eq(Cat(word[32:], held))
        m.d.comb += [beat.write.eq(write), beat.token.eq(token)]
        m.d.sync += [skid.eq(word), skid_last.eq(last)]
        with m.If(moves):
            m.d.sync += held.eq(word[:32])
            with m.If(source == _Source.COMPLETION):
                m.d.sync += held.eq(completion2)

        with m.FSM():
            with m.State("Header"):
                m.d.comb += [
                    offered.eq(self.completion.valid | self.requester.valid),
                    source.eq(Mux(self.completion.valid, _Source.COMPLETION, _Source.REQUEST)),
                    addressing.eq(1),
                    beat.rem.eq(1),
                    beat.sof.eq(1),
                ]
                with m.If(moves):
                    m.d.sync += [
                        completing.eq(self.completion.valid),
                        four_dwords.eq(~self.completion.valid & request0.four_dwords),
                        with_data.eq(
                            Mux(self.completion.valid, completion0.with_data, request.write)
                        ),
                        odd.eq(Mux(self.completion.valid, completion.dwords[0], request.dwords[0])),
                        write.eq(~self.completion.valid & request.write),
                        token.eq(request.token),
                    ]
                    m.next = "Address"

            with m.State("Address"):
                m.d.comb += [
                    offered.eq(there),
                    consuming.eq(~(four_dwords & with_data)),
                    addressing.eq(four_dwords),
                    source.eq(Mux(four_dwords, _Source.ALIGNED, _Source.SHIFTED)),
                    beat.rem.eq(four_dwords | with_data),
                    beat.eof.eq(~with_data | (~four_dwords & last & odd)),
                ]
                with m.If(moves):
                    with m.If(beat.eof):
                        m.next = "Header"
                    with m.Elif(~four_dwords & last):
                        m.next = "Tail"
                    with m.Else():
                        m.next = "Payload"

            with m.State("Payload"):
                m.d.comb += [
                    offered.eq(there),
                    consuming.eq(1),
                    source.eq(Mux(four_dwords, _Source.ALIGNED, _Source.SHIFTED)),
                    beat.rem.eq(~(four_dwords & last & odd)),
                    beat.eof.eq(last & (four_dwords | odd)),
                ]
                with m.If(moves & last):
                    m.next = "Tail"
                    with m.If(beat.eof):
                        m.next = "Header"

            # The second dword of the last beat is still held.
            with m.State("Tail"):
                m.d.comb += [
                    offered.eq(1),
                    source.eq(_Source.SHIFTED),
                    beat.eof.eq(1),
                ]
                with m.If(moves):
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
