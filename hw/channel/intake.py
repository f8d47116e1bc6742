# SPDX-License-Identifier: BSD-2-Clause
"""The entrance of a channel: checks descriptors, and hands on what they move."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..memory.card_ram import leaves
from ..records import STREAM_WINDOW_BIT, DescriptorPart, DescriptorWord, InFlight, Outcome, Span

__all__ = ["DescriptorIntake"]


class DescriptorIntake(wiring.Component):
    """Turns each descriptor into an entry of the in-flight queue and, if it moves data, a span.

    Its parts are kept where the span is offered, which they are in the cycle after the last one at
    the earliest. A descriptor with an error stays until the next `start`, and nothing behind it is
    taken.

    Parameters
    ----------
    ram_size : int
        Bytes of card RAM: the card addresses that decode.
    has_stream : bool
        The stream window decodes, too.
    doubtful : bool
        What of a run's list is not known may be for the stream.
    overlaps : bool
        A run may start while others are under way.

    Members
    -------
    word : In(stream of DescriptorWord, always ready), wanted : Out(1)
        As in `FetchSignature`.
    start : In(1)
        A run starts.
    follows : In(1)
        Others are under way before it, of which all descriptors were taken. An error of theirs then
        counts, and so does the stream that they use, up to the end of the last one. Only if
        `overlaps`.
    flush : In(1)
        Drop the descriptor and the span that is offered, enter no descriptor.
    entry : Out(stream of InFlight)
        One per descriptor, in order.
    span : Out(stream of Span)
        Once valid it stays, unless `flush` withdraws it.
    error_address : Out(64)
        Of the entry with an error, until `flush`: the address of the descriptor, or the card
        address that does not decode.
    streamed : Out(1)
        A descriptor of this run uses the stream window, or one that has not come yet may.
    streams : Out(1)
        One that was taken does. Only if `overlaps`.
    """

    def __init__(
        self, *, ram_size: int, has_stream: bool, doubtful: bool = True, overlaps: bool = False
    ):
        self._ram_size = ram_size
        self._overlaps = overlaps
        self._has_stream = has_stream
        self._doubtful = has_stream and doubtful
        super().__init__(
            {
                "word": In(stream.Signature(DescriptorWord, always_ready=True)),
                "wanted": Out(1),
                "start": In(1),
                **({"follows": In(1)} if overlaps else {}),
                "flush": In(1),
                "entry": Out(stream.Signature(InFlight)),
                "span": Out(stream.Signature(Span)),
                "error_address": Out(64),
                "streamed": Out(1),
                **({"streams": Out(1)} if overlaps else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word, entry, span = self.word.payload, self.entry.payload, self.span.payload
        #: all parts are there, and the entry is not taken
        whole = Signal()
        #: an entry with an error was taken
        faulty = Signal()
        failure = Signal(Outcome)
        fetched, last, to_stream = Signal(), Signal(), Signal()
        with m.If(self.word.valid):
            with m.Switch(word.part):
                with m.Case(DescriptorPart.CONTROL):
                    control = word.data[:32]
                    m.d.sync += [
                        entry.stop.eq((control & regs.DESC_STOP).any()),
                        entry.completed.eq((control & regs.DESC_COMPLETED).any()),
                        span.length.eq(word.data[32:]),
                        failure.eq(Outcome.OK),
                    ]
                with m.Case(DescriptorPart.CARD):
                    m.d.sync += span.card_address.eq(word.data)
                with m.Case(DescriptorPart.PCI):
                    # The check needs the other two parts only.
                    m.d.comb += last.eq(1)
                    m.d.sync += span.pci_address.eq(word.data)
                with m.Case(DescriptorPart.ERROR):
                    m.d.sync += [
                        span.card_address.eq(word.data),
                        failure.eq(word.outcome),
                        whole.eq(1),
                    ]

        #: a descriptor uses the stream; the one with Stop was taken, and so was all of the list
        streams, known = Signal(), Signal(init=not self._doubtful)
        outside = Signal()

        def kept(known_of_runs):
            """When another run starts."""
            return known_of_runs & self.follows if self._overlaps else 0

        if self._overlaps:
            m.d.comb += self.streams.eq(streams)
        if self._has_stream:
            m.d.comb += to_stream.eq(span.card_address[STREAM_WINDOW_BIT])
        m.d.comb += [
            outside.eq(~to_stream & leaves(span.card_address, span.length, self._ram_size)),
            fetched.eq(failure == Outcome.OK),
            entry.from_fetch.eq(~fetched),
            entry.immediate.eq(outside | (span.length == 0) | ~fetched),
            entry.outcome.eq(Mux(fetched & outside, Outcome.DECODE, failure)),
            self.entry.valid.eq((last | whole) & ~self.flush),
            self.error_address.eq(span.card_address),
            self.streamed.eq(streams | ~known),
            self.wanted.eq((~self.span.valid | self.span.ready) & ~whole & ~faulty),
        ]
        with m.If(self.span.ready):
            m.d.sync += self.span.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [
                streams.eq(kept(streams)),
                known.eq(not self._doubtful),
                faulty.eq(kept(faulty)),
            ]
        with m.If(last):
            m.d.sync += whole.eq(1)
        with m.If(self.entry.valid & self.entry.ready):
            m.d.sync += [
                whole.eq(0),
                streams.eq(streams | (to_stream & ~entry.immediate)),
                known.eq(known | (entry.stop & fetched)),
                self.span.valid.eq(~entry.immediate),
                faulty.eq(entry.outcome != Outcome.OK),
            ]
        with m.If(self.flush):
            m.d.sync += [whole.eq(0), self.span.valid.eq(0)]
        return m
