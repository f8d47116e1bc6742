# SPDX-License-Identifier: BSD-2-Clause
"""The rotators between beats and banks: where any one byte goes, and where it comes from."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.memory import rotators
from hw.seam import WIDTHS

from .property import Property

__all__ = ["Get", "Put"]

WIDTH = WIDTHS[0]
LANES = WIDTH // 8
#: of an address: a few rows are as good as many
BITS = 7


def _place(address):
    """Bank, row and lane of a byte."""
    lane_bits = LANES.bit_length() - 1
    return address[lane_bits], address[lane_bits + 1 :], address[:lane_bits]


class Put(Property):
    """Each byte of a beat is written to its place, and nothing else is.

    Followed is any one address of the memory.
    """

    depth = 3

    def __init__(self):
        super().__init__(rotators.Put(WIDTH, BITS))

    def _state(self, m):
        block = self.block
        byte = self.any(m, BITS, "byte")
        bank, row, lane = _place(byte)
        beat, placed = block.i.payload, block.o.payload
        at = Signal(BITS)
        m.d.comb += at.eq(byte - beat.address)
        comes = block.i.valid & ~block.discard & (at < LANES) & beat.enable.bit_select(at[:3], 1)
        goes = block.o.valid & (placed.rows[bank] == row) & placed.enable[bank].bit_select(lane, 1)
        came, value = self.past(m, comes), self.past(m, beat.data.word_select(at[:3], 8))
        m.d.comb += [
            Assert(goes == came),
            Assert(~goes | (placed.data.word_select(lane, 8) == value)),
        ]
        # Across the end of a word, and across the end of the memory.
        self.cover(m, goes & (lane == 0) & self.past(m, at == 7), goes & self.past(m, at > byte))


class Get(Property):
    """Each byte of a beat is the one at its address, in its memory.

    Followed is any one address of any memory, whose byte stays.
    """

    depth = 3

    def __init__(self):
        super().__init__(rotators.Get(WIDTH, BITS, 2))

    def _state(self, m):
        block = self.block
        byte, value = self.any(m, BITS, "byte"), self.any(m, 8, "value")
        bank, row, lane = _place(byte)
        chosen = self.any(m, 1, "memory")
        at = self.past(m, (byte - block.address)[:BITS])
        ours = block.valid & self.past(m, block.memory == chosen) & (at < LANES)
        for number, memory in enumerate(block.memories):
            asked = self.past(m, memory.enable & (memory.rows[bank] == row))
            answer = memory.data[bank].word_select(lane, 8)
            m.d.comb += Assume(~(asked & (chosen == number)) | (answer == value))
        m.d.comb += [
            Assert(block.valid == self.past(m, block.read)),
            Assert(~ours | (block.data.word_select(at[:3], 8) == value)),
            Assert(block.following == (block.address + LANES)[:BITS]),
        ]
        # Across the end of a word, and across the end of the memory.
        self.cover(m, ours & (at == 7) & (lane == 0), ours & (at > byte))
