# SPDX-License-Identifier: BSD-2-Clause
"""Card RAM: where host-to-card transfers end and card-to-host transfers begin."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In

from ..records import RAM_ADDRESS_BITS, placement
from .banks import Banks, ReadPortSignature

__all__ = ["CardRam", "leaves"]


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


class CardRam(wiring.Component):
    """`size` bytes, in two banks of words; as `Banks`.

    Parameters
    ----------
    size : int
        Bytes; a power of two from 4 KiB to 1 MiB.
    width : int
        Bits of a word.

    Members
    -------
    write : In(stream of placement, always ready)
        Those for card RAM.
    read : In(ReadPortSignature)
    """

    def __init__(self, size: int, width: int):
        if size & (size - 1) or not 4096 <= size <= 1 << RAM_ADDRESS_BITS:
            raise ValueError(f"card RAM size must be a power of two, 4 KiB to 1 MiB, not {size}")
        self._banks = Banks(size, width)
        super().__init__(
            {
                "write": In(stream.Signature(placement(width), always_ready=True)),
                "read": In(ReadPortSignature(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.banks = banks = self._banks
        wiring.connect(m, wiring.flipped(self.write), banks.write)
        wiring.connect(m, wiring.flipped(self.read), banks.read)
        return m
