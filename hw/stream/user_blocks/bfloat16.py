# SPDX-License-Identifier: BSD-2-Clause
"""A user block that halves floating-point surfaces on their way."""

from amaranth import *
from amaranth.lib import data

from .base import UserBlock

__all__ = ["ToBfloat16"]


def _round(word):
    """The 16 upper bits of a float32, rounded to nearest, ties to even.

    What is too large becomes infinite; a NaN keeps its sign and upper payload, and is quiet.
    """
    rounded = (word + 0x7FFF + word[16])[16:32]
    is_nan = word[23:31].all() & word[:23].any()
    return Mux(is_nan, word[16:] | 0x40, rounded)


class ToBfloat16(UserBlock):
    """float32 to bfloat16, little-endian, rounded to nearest even.

    A beat in each cycle, latency 2 cycles. Words may be divided among beats in any way; what is
    left of a word at the end of a packet is dropped.
    """

    NAME = "BF16"
    RATIO = (4, 2)

    def elaborate(self, platform):
        m = Module()
        source, sink = self.i.payload, self.o.payload
        most = self.lanes // 4
        #: what a beat completes: `count` words, one at least
        completed = data.StructLayout(
            {"words": data.ArrayLayout(32, most), "count": range(most + 1), "last": 1}
        )

        # Align: bytes of an incomplete word wait below those of the next beat.
        rest = Signal(24)
        waiting = Signal(2)
        total = Signal(range(self.lanes + 4))
        joined = Signal(8 * self.lanes + 24)
        complete = Signal(range(most + 1))
        m.d.comb += [
            total.eq(waiting + source.count),
            joined.eq((source.data << (waiting << 3)) | (rest & ((1 << (waiting << 3)) - 1))),
            complete.eq(total[2:]),
        ]
        words, valid = Signal(completed), Signal()
        ready = Signal()
        m.d.comb += self.i.ready.eq(~valid | ready)
        with m.If(self.i.ready):
            m.d.sync += [
                valid.eq(self.i.valid & (complete != 0)),
                words.words.eq(joined[: 8 * self.lanes]),
                words.count.eq(complete),
                words.last.eq(source.last),
            ]
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += [
                waiting.eq(Mux(source.last, 0, total[:2])),
                rest.eq(joined >> (complete << 5)),
            ]

        m.d.comb += ready.eq(~self.o.valid | self.o.ready)
        with m.If(ready):
            m.d.sync += [
                self.o.valid.eq(valid),
                sink.data.eq(Cat(_round(word) for word in words.words)),
                sink.count.eq(words.count << 1),
                sink.last.eq(words.last),
            ]
        return m
