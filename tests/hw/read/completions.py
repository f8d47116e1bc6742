# SPDX-License-Identifier: BSD-2-Clause
"""Read requests and the completions that answer them, as a root complex makes them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hw.seam import CompletionStatus

__all__ = ["Packet", "Request", "enabled_bytes", "host_byte", "packet_of", "split"]


@dataclass(eq=False)
class Request:
    """A read request as the root complex sees it, in bytes."""

    tag: int
    address: int
    length: int
    cycle: int


@dataclass(eq=False)
class Packet:
    """A completion."""

    tag: int
    lower_address: int
    byte_count: int
    #: whole dwords, from the dword-aligned address on
    data: bytes
    status: CompletionStatus = CompletionStatus.SC
    poisoned: int = 0
    locked: int = 0
    #: cycle from which on it may be sent
    due: int = 0


def host_byte(address: int) -> int:
    """Content of the host's memory: differs between neighbours and between pages."""
    return ((address * 0x9E3779B1) >> 13) & 0xFF


def enabled_bytes(first_be: int, last_be: int, dwords: int) -> tuple[int, int]:
    """Offset of the first enabled byte of a read, and the number of bytes; checks legality."""
    masks = first_be if dwords == 1 else first_be | last_be << 4 * (dwords - 1)
    if dwords > 2:
        masks |= ((1 << 4 * (dwords - 2)) - 1) << 4
    assert dwords > 1 or last_be == 0
    offset = (masks & -masks).bit_length() - 1
    length = masks.bit_length() - offset
    assert masks == ((1 << length) - 1) << offset, "byte enables are not contiguous"
    assert offset < 4 and masks.bit_length() > 4 * (dwords - 1)
    return offset, length


def split(request: Request, rng: random.Random, rcb: int, largest: int) -> list[Packet]:
    """A legal answer to `request`: cut at random multiples of `rcb`, at most `largest` bytes."""
    packets = []
    address, left = request.address, request.length
    while left:
        boundary = address - address % rcb + rcb * rng.randint(1, largest // rcb)
        count = min(left, boundary - address)
        packets.append(packet_of(request.tag, address, count, left))
        address, left = address + count, left - count
    return packets


def packet_of(tag: int, address: int, count: int, byte_count: int) -> Packet:
    """A good completion with `count` bytes of host memory, padded to dwords."""
    start, end = address & ~3, (address + count + 3) & ~3
    return Packet(tag, address & 0x7F, byte_count, bytes(map(host_byte, range(start, end))))


def smallest(request: Request) -> list[Packet]:
    """The answer in the smallest packets that are legal."""
    return split(request, random.Random(0), 64, 64)
