# SPDX-License-Identifier: BSD-2-Clause
"""Card RAM: where host-to-card transfers end and card-to-host transfers begin."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import PLACE_BITS, RAM_ADDRESS_BITS, Placement

__all__ = ["CardRam", "ReadPortSignature", "leaves"]


def leaves(address, length, size: int) -> Value:
    """Whether `length` bytes, unless 0, from byte `address` on do not all lie below `size`.

    `size` is a power of two.
    """
    bits = (size - 1).bit_length()
    # Tests the carry and the bits above it: a shorter critical path than a full sum followed by a
    # comparison.
    end = address[:bits] + length[:bits]
    some, carry = end[:bits].any(), end[bits]
    ends_behind = length[bits + 1 :].any() | (length[bits] & (some | carry)) | (carry & some)
    return (length != 0) & (address[bits:].any() | ends_behind)


class ReadPortSignature(wiring.Signature):
    """Synchronous read port of a memory of 64-bit words, from the reader's side.

    Members
    -------
    address : Out(PLACE_BITS - 3)
        Word address: byte address >> 3.
    enable : Out(1)
    data : In(64)
        The word addressed in the last cycle in which `enable` was high.
    """

    def __init__(self):
        super().__init__({"address": Out(PLACE_BITS - 3), "enable": Out(1), "data": In(64)})


class CardRam(wiring.Component):
    """`size` bytes in 64-bit words: one write port with byte enables, one read port.

    A word written in one cycle can be read in the next.

    Parameters
    ----------
    size : int
        Bytes; a power of two from 4 KiB to 1 MiB.

    Members
    -------
    write : In(stream of Placement, always ready)
        Those for card RAM; its address counts modulo the size.
    read : In(ReadPortSignature)
    """

    def __init__(self, size: int):
        if size & (size - 1) or not 4096 <= size <= 1 << RAM_ADDRESS_BITS:
            raise ValueError(f"card RAM size must be a power of two, 4 KiB to 1 MiB, not {size}")
        self._size = size
        super().__init__(
            {
                "write": In(stream.Signature(Placement, always_ready=True)),
                "read": In(ReadPortSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = ram = memory.Memory(
            shape=unsigned(64), depth=self._size // 8, init=[]
        )
        write, word = ram.write_port(granularity=8), self.write.payload
        read = ram.read_port()
        m.d.comb += [
            write.addr.eq(word.address),
            write.data.eq(word.data),
            write.en.eq(word.enable & self.write.valid.replicate(8)),
            read.addr.eq(self.read.address),
            read.en.eq(self.read.enable),
            self.read.data.eq(read.data),
        ]
        return m
