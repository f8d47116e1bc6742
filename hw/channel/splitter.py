# SPDX-License-Identifier: BSD-2-Clause
"""Splitter: cuts a span of a transfer into pieces that fit one memory request each."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import JOB_BYTES, OFFSET_BITS, STREAM_WINDOW_BIT, Piece, Span, moved

__all__ = ["Splitter", "request_bytes"]


def request_bytes(limit) -> Value:
    """Bytes that one request of ours may carry under a PCIe size limit.

    Parameters
    ----------
    limit : Value, 3 bits
        Max payload or max read request size, PCIe encoding: ``128 << limit`` bytes.

    Returns
    -------
    Value
        The limit or `JOB_BYTES`, whichever is smaller.
    """
    return Mux(limit < 2, Mux(limit == 0, 128, 256), JOB_BYTES)


class Splitter(wiring.Component):
    """Cuts spans into pieces that end at multiples of a limit of the PCIe address.

    Every limit divides 4 KiB, so no piece crosses a 4 KiB boundary, and all pieces of a span but
    its first and its last are as long as a request may be.

    The first piece is offered in the cycle after its span was taken, the others one per cycle. The
    next span is taken no earlier than the cycle after the last piece was.

    Parameters
    ----------
    offset_bits : int
        How many bits of the card address count.
    cuttable : bool
        A span may end before its length.

    Members
    -------
    span : In(stream of Span)
        Taken only between spans.
    limit : In(3)
        Max payload or max read request size, PCIe encoding; above 512 bytes it counts as 512.
        Sampled when a span is taken.
    abort : In(1)
        While high, no span is taken. A piece offered while it is high may still be taken; what is
        left of the span after that cycle is dropped, an offered piece included.
    piece : Out(stream of Piece)
        Once valid it stays, unless `abort` withdraws it.
    cut : In(1), rest : In(10)
        The piece that is offered, and not taken in this cycle, has only so many bytes, and is the
        last one of its span; 0 withdraws it. Only if `cuttable`.
    """

    def __init__(self, offset_bits: int = OFFSET_BITS, *, cuttable: bool = False):
        self._offset_bits, self._cuttable = offset_bits, cuttable
        super().__init__(
            {
                "span": In(stream.Signature(Span)),
                "limit": In(3),
                "abort": In(1),
                "piece": Out(stream.Signature(Piece)),
                **({"cut": In(1), "rest": In(10)} if cuttable else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        piece = self.piece.payload
        #: bytes of the span behind the piece, unless it is the last one
        behind = Signal(28)
        #: bytes per piece
        size = Signal(range(JOB_BYTES + 1))

        span = self.span.payload
        begin = self.span.valid & self.span.ready
        step = self.piece.valid & self.piece.ready
        m.d.comb += self.span.ready.eq(~self.piece.valid & ~self.abort)

        # A piece is computed in the cycle before it is offered, so that its fields are registers.
        # The next piece is computed as if this one was not the last; else the result is not used.
        limit = request_bytes(self.limit)
        most, bytes_left = Signal.like(size), Signal(28)
        m.d.comb += [most.eq(size), bytes_left.eq(behind)]
        with m.If(~self.piece.valid):
            m.d.comb += [
                most.eq(limit - (span.pci_address & (limit - 1))),
                bytes_left.eq(span.length),
            ]
        # One LUT per bit of the adder, with the multiplexer in front of it.
        origin = Mux(self.piece.valid, piece.address | (size - 1), span.pci_address)
        with m.If(begin | step):
            m.d.sync += [
                piece.address.eq(origin + self.piece.valid),
                piece.last.eq(bytes_left <= most),
                piece.length.eq(Mux(bytes_left <= most, bytes_left, most)),
                behind.eq(bytes_left - most),
            ]
        with m.If(begin):
            m.d.sync += [
                self.piece.valid.eq(1),
                piece.first.eq(1),
                piece.place.as_value().eq(span.card_address[: self._offset_bits]),
                piece.stream.eq(span.card_address[STREAM_WINDOW_BIT]),
                size.eq(limit),
            ]
        with m.If(step):
            m.d.sync += [
                self.piece.valid.eq(~piece.last),
                piece.first.eq(0),
                piece.place.as_value().eq(
                    moved(piece.place.as_value(), piece.length, self._offset_bits)
                ),
            ]
        if self._cuttable:
            with m.If(self.cut):
                m.d.sync += [
                    self.piece.valid.eq(self.rest.any()),
                    piece.length.eq(self.rest),
                    piece.last.eq(1),
                ]
        with m.If(self.abort):
            m.d.sync += self.piece.valid.eq(0)

        return m
