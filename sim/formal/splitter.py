# SPDX-License-Identifier: BSD-2-Clause
"""Spans and their pieces."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.channel.splitter import Splitter, request_bytes
from hw.records import OFFSET_BITS

from .property import Property

__all__ = ["Pieces"]

PAGE = 4096


class Pieces(Property):
    """Pieces of a span follow each other to its end, within the limit and never across 4 KiB.

    No byte is left out or asked for twice, and there is always a piece to take until the last one.
    """

    def __init__(self):
        super().__init__(Splitter())

    def _state(self, m):
        block = self.block
        span, piece = block.span, block.piece
        at, left, limit = Signal(64), Signal(28), Signal(10)
        place = Signal(OFFSET_BITS)
        busy, first, aborted = Signal(), Signal(), self.past(m, block.abort)
        begins = Signal()
        m.d.comb += [
            Assume(span.payload.length != 0),
            begins.eq(span.valid & span.ready),
            Assert(piece.valid == (busy & ~aborted)),
            Assert(~(begins & busy & ~aborted)),
            Assert(~block.abort | ~span.ready),
        ]
        with m.If(block.abort):
            m.d.sync += busy.eq(0)
        with m.If(begins):
            m.d.sync += [
                busy.eq(1),
                at.eq(span.payload.pci_address),
                left.eq(span.payload.length),
                limit.eq(request_bytes(block.limit)),
                place.eq(span.payload.card_address),
                first.eq(1),
            ]
        with m.If(piece.valid):
            length = piece.payload.length
            m.d.comb += [
                Assert(piece.payload.address == at),
                Assert(piece.payload.place.as_value() == place),
                Assert(piece.payload.first == first),
                Assert((length != 0) & (length <= limit) & (length <= left)),
                Assert(piece.payload.address[:12] + length <= PAGE),
                Assert(piece.payload.last == (length == left)),
                # What is inside.
                Assert(self.inside("size") == limit),
                Assert((limit == 128) | (limit == 256) | (limit == 512)),
                Assert(piece.payload.last | (self.inside("behind") == (left - length)[:28])),
                Assert(piece.payload.last | (((at + length) & (limit - 1)) == 0)),
            ]
            with m.If(piece.ready):
                m.d.sync += [
                    at.eq(at + length),
                    left.eq(left - length),
                    place.eq(place + length),
                    first.eq(0),
                    busy.eq(~piece.payload.last & ~block.abort),
                ]
        self.cover(
            m,
            piece.valid & piece.ready & piece.payload.last & ~piece.payload.first,
            piece.valid & piece.payload.first & piece.payload.last & (limit == 512),
            begins & aborted & ~piece.valid,
            piece.valid & ((at[:12] + piece.payload.length) == PAGE) & ~piece.payload.last,
        )
