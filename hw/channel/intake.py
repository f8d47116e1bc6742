# SPDX-License-Identifier: BSD-2-Clause
"""The entrance of a channel: checks descriptors, and hands on what they move."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..memory.card_ram import leaves
from ..records import STREAM_WINDOW_BIT, Descriptor, InFlight, Outcome, Span

__all__ = ["DescriptorIntake"]


class DescriptorIntake(wiring.Component):
    """Turns each descriptor into an entry of the in-flight queue and, if it moves data, a span.

    A span is offered in the cycle after its descriptor was taken: this pipeline stage keeps the
    wide comparison of addresses off the splitter's path. Behind an error nothing is taken until
    the next `start`.

    Parameters
    ----------
    ram_size : int
        Bytes of card RAM: the card addresses that decode.
    has_stream : bool
        The stream window decodes, too.

    Members
    -------
    descriptor : In(stream of Descriptor)
    start : In(1)
        A run starts.
    flush : In(1)
        Drop the span that is offered, take no descriptor.
    entry : Out(stream of InFlight)
        One per descriptor, in order.
    span : Out(stream of Span)
        Once valid it stays, unless `flush` withdraws it.
    error_address : Out(64)
        Of the entry with an error, from the second cycle after it was taken: the address of the
        descriptor, or the card address that does not decode.
    streamed : Out(1)
        A descriptor of this run uses the stream window.
    """

    def __init__(self, *, ram_size: int, has_stream: bool):
        self._ram_size = ram_size
        self._has_stream = has_stream
        super().__init__(
            {
                "descriptor": In(stream.Signature(Descriptor)),
                "start": In(1),
                "flush": In(1),
                "entry": Out(stream.Signature(InFlight)),
                "span": Out(stream.Signature(Span)),
                "error_address": Out(64),
                "streamed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        descriptor, entry, span = self.descriptor.payload, self.entry.payload, self.span.payload
        outside, to_stream = Signal(), Signal()
        fetched = descriptor.outcome == Outcome.OK
        if self._has_stream:
            m.d.comb += to_stream.eq(descriptor.card_address[STREAM_WINDOW_BIT])
        m.d.comb += [
            outside.eq(
                ~to_stream & leaves(descriptor.card_address, descriptor.length, self._ram_size)
            ),
            entry.stop.eq(descriptor.stop),
            entry.completed.eq(descriptor.completed),
            entry.from_fetch.eq(~fetched),
            entry.immediate.eq(outside | (descriptor.length == 0) | ~fetched),
            entry.outcome.eq(descriptor.outcome),
        ]
        with m.If(fetched & outside):
            m.d.comb += entry.outcome.eq(Outcome.DECODE)

        # The address of an error waits in the span, which an error does not have. If it is the card
        # address, it moves there a cycle later.
        faulty, at_card = Signal(), Signal()
        span_free = ~self.span.valid | self.span.ready
        accepting, taking = Signal(), Signal()
        m.d.comb += [
            accepting.eq(span_free & ~faulty & ~self.flush),
            self.descriptor.ready.eq(self.entry.ready & accepting),
            self.entry.valid.eq(self.descriptor.valid & accepting),
            taking.eq(self.descriptor.valid & self.descriptor.ready),
            self.error_address.eq(span.pci_address),
        ]
        with m.If(self.span.ready):
            m.d.sync += self.span.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [self.streamed.eq(0), faulty.eq(0)]
        m.d.sync += at_card.eq(0)
        with m.If(at_card):
            m.d.sync += span.pci_address.eq(span.card_address)
        with m.If(taking):
            m.d.sync += [
                self.streamed.eq(self.streamed | (to_stream & ~entry.immediate)),
                span.pci_address.eq(descriptor.pci_address),
                span.card_address.eq(descriptor.card_address),
                span.length.eq(descriptor.length),
                self.span.valid.eq(~entry.immediate),
                faulty.eq(entry.outcome != Outcome.OK),
                at_card.eq(entry.outcome == Outcome.DECODE),
            ]
        with m.If(self.flush):
            m.d.sync += self.span.valid.eq(0)
        return m
