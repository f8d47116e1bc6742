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

    A span is offered in the cycle after its entry: this pipeline stage keeps the wide comparison of
    addresses off the splitter's path. The descriptor is taken in that cycle, too, but for one with
    an error: that stays until the next `start`, and nothing behind it is looked at.

    Parameters
    ----------
    ram_size : int
        Bytes of card RAM: the card addresses that decode.
    has_stream : bool
        The stream window decodes, too.

    Members
    -------
    descriptor : In(stream of Descriptor)
        Taken the cycle after its entry at the earliest.
    start : In(1)
        A run starts.
    flush : In(1)
        Drop the span that is offered, enter no descriptor.
    entry : Out(stream of InFlight)
        One per descriptor, in order.
    span : Out(stream of Span)
        Once valid it stays, unless `flush` withdraws it.
    error_address : Out(64)
        Of the entry with an error, until `flush`: the address of the descriptor, or the card
        address that does not decode.
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

        # A descriptor with an error is kept by who offers it, for its address: neither a register
        # nor a multiplexer is needed here.
        entered, faulty = Signal(), Signal()
        span_free = ~self.span.valid | self.span.ready
        taking = Signal()
        m.d.comb += [
            self.entry.valid.eq(
                self.descriptor.valid & span_free & ~entered & ~faulty & ~self.flush
            ),
            taking.eq(self.entry.valid & self.entry.ready),
            self.descriptor.ready.eq(entered & ~faulty),
            self.error_address.eq(descriptor.card_address),
        ]
        m.d.sync += entered.eq(taking)
        with m.If(self.span.ready):
            m.d.sync += self.span.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [self.streamed.eq(0), faulty.eq(0)]
        with m.If(taking):
            m.d.sync += [
                self.streamed.eq(self.streamed | (to_stream & ~entry.immediate)),
                span.pci_address.eq(descriptor.pci_address),
                span.card_address.eq(descriptor.card_address),
                span.length.eq(descriptor.length),
                self.span.valid.eq(~entry.immediate),
                faulty.eq(entry.outcome != Outcome.OK),
            ]
        with m.If(self.flush):
            m.d.sync += self.span.valid.eq(0)
        return m
