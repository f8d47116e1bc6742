# SPDX-License-Identifier: BSD-2-Clause
"""A user block that makes frames of test data: a stand-in for a sensor."""

from itertools import pairwise

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .base import FrameBlock

__all__ = ["Mix", "PatternSource"]


def _product(m, word, factor, enable):
    """`word` times a constant, modulo 2**32: two cycles, no multiplier above 16 x 32 bits."""
    low, high, product = Signal(32), Signal(16), Signal(32)
    with m.If(enable):
        m.d.sync += [low.eq(word[:16] * factor), high.eq(word[16:] * (factor & 0xFFFF))]
    m.d.comb += product.eq(low + (high << 16))
    return product


class Mix(wiring.Component):
    """`mix` of `peerdma.testing.pattern`, of so many words in each cycle.

    Parameters
    ----------
    words : int
    tag : ShapeCastable
        Of what travels along with the words.

    Members
    -------
    enable : In(1)
        Low: all stands still.
    i : array of In(32), i_tag : In
    o : array of Out(32), o_tag : Out
        What was put in `LATENCY` enabled cycles before.
    """

    LATENCY = 5

    def __init__(self, words: int, tag):
        super().__init__(
            {
                "enable": In(1),
                "i": In(32).array(words),
                "i_tag": In(tag),
                "o": Out(32).array(words),
                "o_tag": Out(tag),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for word, mixed in zip(self.i, self.o, strict=True):
            first, second = Signal(32), Signal(32)
            middle = _product(m, first, 0x7FEB352D, self.enable)
            final = _product(m, second, 0x846CA68B, self.enable)
            with m.If(self.enable):
                m.d.sync += [
                    first.eq(word ^ (word >> 16)),
                    second.eq(middle ^ (middle >> 15)),
                    mixed.eq(final ^ (final >> 16)),
                ]
        tags = [self.i_tag, *(Signal.like(self.i_tag, name=f"tag{n}") for n in range(4))]
        with m.If(self.enable):
            m.d.sync += [
                *(after.eq(before) for before, after in pairwise(tags)),
                self.o_tag.eq(tags[-1]),
            ]
        return m


def _tag(words: int) -> data.StructLayout:
    """What the `words` words are that go through the pipeline together.

    Members: `valid`; `key`, the first one is for the frame's key, not for the frame, and `second`,
    in the second of two rounds for it; `further`, how many there are beside the first one; `last`,
    of a frame.
    """
    return data.StructLayout(
        {"valid": 1, "key": 1, "second": 1, "further": range(words), "last": 1}
    )


class PatternSource(FrameBlock):
    """Frames of `frame_words` words: frame n holds the pattern of seed ``seed + n``.

    Words are those of `peerdma.testing.pattern`, so that a GPU can verify a frame. Beats are half
    full: one in each cycle, with a word for each 64 bits, and in a frame's last beat what is
    left of it; between frames 12 cycles pass without one. With `interval`, a frame begins in every
    so many cycles whether there is room for it or not, as a sensor's would: one that finds the
    frame before it unfinished is dropped and counted, and its content comes with the next. The last
    beat of a frame has `last`.

    Members
    -------
    frame_words, interval, seed : In(32)
    frames, dropped : Out(32)
        See `peerdma.regs.PATTERN_SOURCE`.
    """

    NAME = regs.PATTERN_SOURCE_NAME
    RATIO = (0, 1)
    REGISTERS = regs.PATTERN_SOURCE

    @property
    def frame_lanes(self) -> int:
        """Half of what a beat has room for."""
        return self.lanes // 2

    def elaborate(self, platform):
        m = Module()
        words = self.frame_lanes // 4
        m.submodules.inner = inner = Mix(words, _tag(words))
        m.submodules.outer = outer = Mix(words, _tag(words))
        sink = self.o.payload
        enable = Signal()
        m.d.comb += [
            self.i.ready.eq(1),
            enable.eq(~self.o.valid | self.o.ready),
            inner.enable.eq(enable),
            outer.enable.eq(enable),
            self.o.valid.eq(outer.o_tag.valid),
            sink.data.eq(Cat(outer.o)),
            sink.count.eq((outer.o_tag.further + 1) << 2),
            sink.last.eq(outer.o_tag.last),
        ]

        # A frame is due at once, then every `interval` cycles.
        timer = Signal(32)
        due = Signal()
        on = self.frame_words != 0
        m.d.comb += due.eq(on & (timer == 0))
        with m.If(~on | (self.interval == 0)):
            m.d.sync += timer.eq(0)
        with m.Else():
            m.d.sync += timer.eq(Mux(timer == 0, self.interval - 1, timer - 1))

        #: of the frame that begins; as its key is there, its predecessor's words have passed
        coming = Signal(32)
        key, seed = Signal(32), Signal(32)
        index, left = Signal(32), Signal(32)
        begin = Signal()
        m.d.comb += [
            *(word.eq(mixed + seed) for word, mixed in zip(outer.i, inner.o, strict=True)),
            outer.i_tag.eq(inner.o_tag),
            outer.i_tag.valid.eq(inner.o_tag.valid & ~inner.o_tag.key),
        ]
        with m.FSM() as fsm:
            with m.State("Wait"):
                m.d.comb += begin.eq(due)
                with m.If(begin):
                    m.d.sync += [
                        coming.eq(self.seed + self.frames),
                        left.eq(self.frame_words - 1),
                        index.eq(0),
                        self.frames.eq(self.frames + 1),
                    ]
                    m.next = "Seed"
            with m.State("Seed"):
                m.d.comb += [
                    inner.i[0].eq(coming + 0x9E3779B9),
                    inner.i_tag.valid.eq(1),
                    inner.i_tag.key.eq(1),
                ]
                with m.If(enable):
                    m.next = "Key"
            with m.State("Key"):
                arrived = inner.o_tag.valid & inner.o_tag.key
                m.d.comb += [
                    inner.i[0].eq(inner.o[0]),
                    inner.i_tag.valid.eq(arrived & ~inner.o_tag.second),
                    inner.i_tag.key.eq(1),
                    inner.i_tag.second.eq(1),
                ]
                with m.If(enable & arrived & inner.o_tag.second):
                    m.d.sync += [key.eq(inner.o[0]), seed.eq(coming)]
                    m.next = "Words"
            with m.State("Words"):
                last = left < words
                m.d.comb += [
                    # `index` is a multiple of `words`.
                    *(word.eq((index | n) ^ key) for n, word in enumerate(inner.i)),
                    inner.i_tag.valid.eq(1),
                    inner.i_tag.further.eq(Mux(last, left, words - 1)),
                    inner.i_tag.last.eq(last),
                ]
                with m.If(enable):
                    m.d.sync += [index.eq(index + words), left.eq(left - words)]
                    with m.If(last):
                        m.next = "Wait"
        with m.If(due & (self.interval != 0) & ~fsm.ongoing("Wait")):
            m.d.sync += self.dropped.eq(self.dropped + 1)
        return m
