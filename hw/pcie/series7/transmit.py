# SPDX-License-Identifier: BSD-2-Clause
"""Transmit side of the 7-series transaction ports: packets of the seam become TLPs."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import CompletionHeader, RequestHeader, SentToken, beat
from .block import SERIES7
from .headers import Headers
from .sent import SentWrites
from .words import Words

__all__ = ["TransmitBeat", "Transmitter"]


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
    REQUEST = 0
    COMPLETION = 1
    #: a word, behind a header of four dwords or as the end of it
    ALIGNED = 2
    #: the dword that is held, and the first one of a word
    SHIFTED = 3


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

    requester: In(stream.Signature(beat(RequestHeader, SERIES7.width)))
    completion: In(stream.Signature(beat(CompletionHeader, SERIES7.width)))
    requester_id: In(16)
    tlp: Out(stream.Signature(TransmitBeat))
    drop: In(1)
    sent: Out(stream.Signature(SentToken, always_ready=True))

    def __init__(self, drop_lag: int):
        self._drop_lag = drop_lag
        self._headers = Headers()
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        request = self.requester.payload.header
        completion = self.completion.payload.header

        # The next beat; the register at the output takes it if there is room.
        beat = Signal(TransmitBeat)
        offered, room, moves = Signal(), Signal(), Signal()
        m.d.comb += [room.eq(~self.tlp.valid | self.tlp.ready), moves.eq(offered & room)]
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

        m.submodules.headers = headers = self._headers
        m.d.comb += [
            headers.request.eq(request),
            headers.completion.eq(completion),
            headers.requester_id.eq(self.requester_id),
        ]

        m.submodules.words = words = Words()
        wiring.connect(m, wiring.flipped(self.requester), words.requester)
        wiring.connect(m, wiring.flipped(self.completion), words.completion)
        m.d.comb += [words.completing.eq(completing), words.room.eq(room)]
        word, there, last = words.word, words.there, words.last

        source = Signal(_Source)
        m.d.comb += [
            beat.data.eq(self._data(m, source, word, held)),
            beat.write.eq(write),
            beat.token.eq(token),
        ]
        with m.If(moves):
            m.d.sync += held.eq(word[:32])
            with m.If(source == _Source.COMPLETION):
                m.d.sync += held.eq(headers.completion2)

        with m.FSM():
            with m.State("Header"):
                m.d.comb += [
                    offered.eq(self.completion.valid | self.requester.valid),
                    source.eq(Mux(self.completion.valid, _Source.COMPLETION, _Source.REQUEST)),
                    words.addressing.eq(1),
                    beat.rem.eq(1),
                    beat.sof.eq(1),
                ]
                with m.If(moves):
                    m.d.sync += [
                        completing.eq(self.completion.valid),
                        four_dwords.eq(~self.completion.valid & headers.request0.four_dwords),
                        with_data.eq(
                            Mux(self.completion.valid, completion.dwords != 0, request.write)
                        ),
                        odd.eq(Mux(self.completion.valid, completion.dwords[0], request.dwords[0])),
                        write.eq(~self.completion.valid & request.write),
                        token.eq(request.token),
                    ]
                    m.next = "Address"

            with m.State("Address"):
                m.d.comb += [
                    offered.eq(there),
                    words.consuming.eq(~(four_dwords & with_data)),
                    words.addressing.eq(four_dwords),
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
                    words.consuming.eq(1),
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
        m.submodules.sent_writes = sent = SentWrites(self._drop_lag)
        wiring.connect(m, sent.sent, wiring.flipped(self.sent))
        m.d.comb += [sent.takes.eq(self.tlp.valid & self.tlp.ready), sent.drop.eq(self.drop)]
        for name in ("eof", "write", "token"):
            m.d.comb += getattr(sent, name).eq(getattr(self.tlp.payload, name))
        return m

    def _data(self, m, source, word, held):
        """What a beat is made of: four sources, chosen by two bits, a LUT for each bit."""
        headers, found = self._headers, Signal(64)
        with m.Switch(source):
            with m.Case(_Source.REQUEST):
                m.d.comb += found.eq(Cat(headers.request1, headers.request0))
            with m.Case(_Source.COMPLETION):
                m.d.comb += found.eq(Cat(headers.completion1, headers.completion0))
            with m.Case(_Source.ALIGNED):
                m.d.comb += found.eq(word)
            with m.Case(_Source.SHIFTED):
                m.d.comb += found.eq(Cat(word[32:], held))
        return found
