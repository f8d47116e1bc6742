# SPDX-License-Identifier: BSD-2-Clause
"""Between the seam of a block that is wider and the words of the register bus."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..seam import BUS_WIDTH, CompletionHeader, TargetHeader, TargetKind, beat

__all__ = ["CompletionWidener", "TargetNarrower"]


class TargetNarrower(wiring.Component):
    """Divides the host's requests into beats of one word.

    No latency. A beat of a write is consumed with its last word; a cycle without a beat follows
    each packet, which `TargetWriter` needs. What is no write leaves as one beat, as nobody looks at
    its data.

    Parameters
    ----------
    width : int
        Bits of a beat, more than a word has.

    Members
    -------
    i : In(stream of beats of TargetHeader)
    o : Out(stream of beats of TargetHeader, always ready)
        Of one word each.
    """

    def __init__(self, width: int):
        self._words = width // BUS_WIDTH
        word = stream.Signature(beat(TargetHeader, BUS_WIDTH), always_ready=True)
        super().__init__({"i": In(stream.Signature(beat(TargetHeader, width))), "o": Out(word)})

    def elaborate(self, platform):
        m = Module()
        wide, word = self.i.payload, self.o.payload
        bits = exact_log2(self._words)
        index = Signal(bits)
        final, pausing = Signal(), Signal()
        writes = wide.header.kind == TargetKind.WRITE
        ends_at = Mux(wide.last, (wide.header.dwords - 1)[1 : 1 + bits], self._words - 1)
        m.d.comb += [
            final.eq(~writes | (index == ends_at)),
            word.header.eq(wide.header),
            word.data.eq(wide.data.word_select(index, BUS_WIDTH)),
            word.first.eq(wide.first & (index == 0)),
            word.last.eq(~writes | (wide.last & final)),
            self.o.valid.eq(self.i.valid & ~pausing & (writes | wide.first)),
            self.i.ready.eq(final & ~pausing),
        ]
        with m.If(self.i.valid & ~pausing):
            m.d.sync += index.eq(Mux(final, 0, index + 1))
        m.d.sync += pausing.eq(self.i.valid & self.i.ready & wide.last)
        return m


class CompletionWidener(wiring.Component):
    """Collects the words of a completion, and then sends them without gaps.

    The first beat comes in the cycle after the last word.

    Parameters
    ----------
    width : int
        Bits of a beat, more than a word has.
    most : int
        Most bytes of a completion.

    Members
    -------
    i : In(stream of beats of CompletionHeader)
        Of one word each. The last one of a packet is consumed with the last beat.
    o : Out(stream of beats of CompletionHeader)
    """

    def __init__(self, width: int, most: int):
        self._width = width
        self._rows = most // (width // 8)
        super().__init__(
            {
                "i": In(stream.Signature(beat(CompletionHeader, BUS_WIDTH))),
                "o": Out(stream.Signature(beat(CompletionHeader, width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word, wide = self.i.payload, self.o.payload
        bits = exact_log2(self._width // BUS_WIDTH)
        m.submodules.store = store = memory.Memory(shape=self._width, depth=self._rows, init=[])
        write, read = store.write_port(granularity=BUS_WIDTH), store.read_port(domain="comb")
        #: the word that comes next; the row to send, and the last one
        count = Signal(range(self._rows << bits))
        row, last_row = Signal(range(self._rows)), Signal(range(self._rows))
        sending, taken = Signal(), Signal()
        m.d.comb += [
            taken.eq(self.i.valid & ~sending),
            write.addr.eq(count[bits:]),
            write.data.eq(word.data.replicate(1 << bits)),
            write.en.eq(taken << count[:bits]),
            read.addr.eq(row),
            wide.header.eq(word.header),
            wide.data.eq(read.data),
            wide.first.eq(row == 0),
            wide.last.eq(row == last_row),
            self.o.valid.eq(sending),
            # The header is there until the last word is consumed.
            self.i.ready.eq(Mux(sending, wide.last & self.o.ready, ~word.last)),
        ]
        with m.If(taken):
            m.d.sync += count.eq(Mux(word.last, 0, count + 1))
            m.d.sync += [sending.eq(word.last), last_row.eq(count[bits:])]
        with m.If(sending & self.o.ready):
            m.d.sync += [row.eq(Mux(wide.last, 0, row + 1)), sending.eq(~wide.last)]
        return m
