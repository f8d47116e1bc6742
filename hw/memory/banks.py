# SPDX-License-Identifier: BSD-2-Clause
"""Two banks of words: any bytes that follow each other, up to a word, in one cycle."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import placement, row_bits

__all__ = ["Banks", "ReadPortSignature"]


class ReadPortSignature(wiring.Signature):
    """Synchronous read port of a memory in two banks, from the reader's side.

    Parameters
    ----------
    width : int
        Bits of a word.

    Members
    -------
    rows : Out(array of 2)
        Row of the bank of even words, and of the bank of odd ones.
    enable : Out(1)
    data : In(array of 2)
        Both words, of the last cycle in which `enable` was high.
    """

    def __init__(self, width: int):
        super().__init__(
            {
                "rows": Out(data.ArrayLayout(row_bits(width), 2)),
                "enable": Out(1),
                "data": In(data.ArrayLayout(width, 2)),
            }
        )


class Banks(wiring.Component):
    """`size` bytes: word n is in row n // 2 of bank n % 2, which has a byte enable for each lane.

    A word written in one cycle can be read in the next. Rows count modulo the size.

    Parameters
    ----------
    size : int
        Bytes; a power of two.
    width : int
        Bits of a word.

    Members
    -------
    write : In(stream of placement, always ready)
        Whoever it is for.
    read : In(ReadPortSignature)
    """

    def __init__(self, size: int, width: int):
        self._rows = size // (width // 8) // 2
        self._width = width
        super().__init__(
            {
                "write": In(stream.Signature(placement(width), always_ready=True)),
                "read": In(ReadPortSignature(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        placed = self.write.payload
        for bank, name in enumerate(("even", "odd")):
            ram = memory.Memory(shape=unsigned(self._width), depth=self._rows, init=[])
            m.submodules[name] = ram
            write, read = ram.write_port(granularity=8), ram.read_port()
            m.d.comb += [
                write.addr.eq(placed.rows[bank]),
                write.data.eq(placed.data),
                write.en.eq(Mux(self.write.valid, placed.enable[bank], 0)),
                read.addr.eq(self.read.rows[bank]),
                read.en.eq(self.read.enable),
                self.read.data[bank].eq(read.data),
            ]
        return m
