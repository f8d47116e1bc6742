# SPDX-License-Identifier: BSD-2-Clause
"""The rotators between beats and banks: where any one byte goes, and where it comes from."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.utils import exact_log2

from hw.memory import rotators

from .property import Property

__all__ = ["Get", "Put", "WideGet", "WidePut"]

#: of an address: a few rows are as good as many
BITS = 7


def _place(address, width):
    """Bank, row and lane of a byte."""
    lane_bits = exact_log2(width // 8)
    return address[lane_bits], address[lane_bits + 1 :], address[:lane_bits]


class Put(Property):
    """Each byte of a beat is written to its place, and nothing else is.

    Followed is any one address of the memory.
    """

    WIDTH = 64
    depth = 3

    def __init__(self):
        super().__init__(rotators.Put(self.WIDTH, BITS))

    def _state(self, m):
        block, lanes = self.block, self.WIDTH // 8
        byte = self.any(m, BITS, "byte")
        bank, row, lane = _place(byte, self.WIDTH)
        beat, placed = block.i.payload, block.o.payload
        at = Signal(BITS)
        m.d.comb += at.eq(byte - beat.address)
        n = at[: len(lane)]
        came = block.i.valid & (at < lanes) & beat.enable.bit_select(n, 1)
        value = beat.data.word_select(n, 8)
        last, wraps = at == lanes - 1, at > byte
        for _ in range(block.latency):
            came = self.past(m, came & ~block.discard)
            value, last, wraps = (self.past(m, one) for one in (value, last, wraps))
        goes = block.o.valid & (placed.rows[bank] == row) & placed.enable[bank].bit_select(lane, 1)
        m.d.comb += [
            Assert(goes == came),
            Assert(~goes | (placed.data.word_select(lane, 8) == value)),
        ]
        # Across the end of a word, and across the end of the memory.
        self.cover(m, goes & (lane == 0) & last, goes & wraps)


class WidePut(Put):
    """The same at 256 bits, where a beat takes two cycles, and may be discarded in both."""

    WIDTH = 256


class Get(Property):
    """Each byte of a beat is the one at its address, in its memory.

    Followed is any one address of any memory, whose byte stays.
    """

    WIDTH = 64
    depth = 3

    def __init__(self):
        super().__init__(rotators.Get(self.WIDTH, BITS, 2))

    def _state(self, m):
        block, lanes = self.block, self.WIDTH // 8
        byte, value = self.any(m, BITS, "byte"), self.any(m, 8, "value")
        bank, row, lane = _place(byte, self.WIDTH)
        chosen = self.any(m, 1, "memory")
        at, asked_for, read = (byte - block.address)[:BITS], block.memory == chosen, block.read
        for _ in range(block.latency):
            at, asked_for, read = (self.past(m, one) for one in (at, asked_for, read))
        ours = block.valid & asked_for & (at < lanes)
        for number, memory in enumerate(block.memories):
            asked = self.past(m, memory.enable & (memory.rows[bank] == row))
            answer = memory.data[bank].word_select(lane, 8)
            m.d.comb += Assume(~(asked & (chosen == number)) | (answer == value))
        m.d.comb += [
            Assert(block.valid == read),
            Assert(~ours | (block.data.word_select(at[: len(lane)], 8) == value)),
            Assert(block.following == (block.address + lanes)[:BITS]),
        ]
        # Across the end of a word, and across the end of the memory.
        self.cover(m, ours & (at == lanes - 1) & (lane == 0), ours & (at > byte))


class WideGet(Get):
    """The same at 256 bits, where a beat comes a cycle after the memory has answered."""

    WIDTH = 256
