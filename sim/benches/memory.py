# SPDX-License-Identifier: BSD-2-Clause
"""Memory that a bench hands to the card: guarded buffers and descriptor chains in them."""

from __future__ import annotations

import random
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass

import numpy as np

from peerdma import regs

__all__ = ["GUARD", "Buffer", "Chain", "Transfer", "lay_out"]

#: Bytes on each side of a buffer that must stay as they are.
GUARD = 64


class Buffer:
    """`size` bytes at bus address `address`, between guard bytes that nobody may change.

    Buffer and guards start with random bytes, so nothing that belongs elsewhere matches.

    Parameters
    ----------
    name : str
        For messages.
    memory : mutable sequence of bytes
        Where the bytes live, from index `start`.
    address : int
        Bus address of the first byte.
    """

    def __init__(
        self,
        name: str,
        memory: MutableSequence[int],
        start: int,
        size: int,
        address: int,
        rng: random.Random,
    ):
        self.name, self.size, self.address = name, size, address
        self._memory = memory
        self._inner = slice(start, start + size)
        self._guards = {
            -GUARD: slice(start - GUARD, start),
            size: slice(start + size, start + size + GUARD),
        }
        memory[self._inner] = rng.randbytes(size)
        for guard in self._guards.values():
            memory[guard] = rng.randbytes(GUARD)
        self._before = {offset: bytes(memory[guard]) for offset, guard in self._guards.items()}

    @property
    def data(self) -> bytes:
        """What the buffer holds now."""
        return bytes(self._memory[self._inner])

    @data.setter
    def data(self, value: bytes) -> None:
        """Replace what the buffer holds; ValueError unless `value` is as long."""
        if len(value) != self.size:
            raise ValueError(f"{self.name} holds {self.size} bytes, not {len(value)}")
        self._memory[self._inner] = value

    def expect(self, data: bytes) -> None:
        """Fail unless the buffer holds `data`, naming the first byte that differs."""
        _expect(self.name, self.data, data, 0)

    def expect_guards(self) -> None:
        """Fail if a guard byte has changed."""
        for offset, guard in self._guards.items():
            _expect(
                f"guard of {self.name}", bytes(self._memory[guard]), self._before[offset], offset
            )


def _expect(name: str, found: bytes, expected: bytes, offset: int) -> None:
    if found == expected:
        return
    at = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
    raise AssertionError(
        f"{name}: byte {offset + at} is {found[at]:#04x}, expected {expected[at]:#04x};"
        f" found {found[at : at + 8].hex()}, expected {expected[at : at + 8].hex()}"
    )


@dataclass(frozen=True)
class Transfer:
    """What one descriptor moves; `flags` are those of its control word besides the last's Stop."""

    source: int
    destination: int
    length: int
    flags: int = 0
    magic: int = regs.DESC_MAGIC


@dataclass(frozen=True)
class Chain:
    """A list of descriptors in host memory, as the SGDMA registers want it."""

    #: bus address of the first descriptor
    address: int
    #: descriptors that follow the first one contiguously
    adjacent: int
    #: descriptors in all
    count: int
    #: bus address and number of descriptors of each contiguous block
    blocks: tuple[tuple[int, int], ...] = ()
    #: the first block, as it is in memory
    head: bytes = b""


def lay_out(
    transfers: Sequence[Transfer], pages: Sequence[Buffer], blocks: Sequence[int], rng
) -> Chain:
    """Write descriptors for `transfers` into `pages`, one contiguous block to a page.

    Only what the programming interface promises is filled in: descriptors inside a block carry a
    random next address, as Linux' dmaengine driver leaves them, and so does the last one, which
    stops. `blocks` are the numbers of descriptors in each block, `pages` 4 KiB each.
    """
    if sum(blocks) != len(transfers) or len(pages) < len(blocks):
        raise ValueError(f"{len(transfers)} descriptors do not fit blocks of {list(blocks)}")
    size = regs.DESCRIPTOR.itemsize
    offsets = [rng.randrange(0, 4096 - count * size + 1, size) for count in blocks]
    addresses = [page.address + at for page, at in zip(pages, offsets, strict=False)]
    remaining, tables = iter(transfers), []
    for index, count in enumerate(blocks):
        table = np.zeros(count, regs.DESCRIPTOR)
        for entry in table:
            transfer = next(remaining)
            entry["control"] = transfer.magic << 16 | transfer.flags
            entry["length"] = transfer.length
            entry["source"] = transfer.source
            entry["destination"] = transfer.destination
            entry["next"] = rng.getrandbits(64)
        if index + 1 < len(blocks):
            table[-1]["control"] |= (blocks[index + 1] - 1) << 8
            table[-1]["next"] = addresses[index + 1]
        else:
            table[-1]["control"] |= regs.DESC_STOP | regs.DESC_COMPLETED | regs.DESC_EOP
        page, at = pages[index], offsets[index]
        page.data = page.data[:at] + table.tobytes() + page.data[at + table.nbytes :]
        tables.append(table.tobytes())
    places = tuple(zip(addresses, blocks, strict=False))
    return Chain(addresses[0], blocks[0] - 1, len(transfers), places, tables[0])
