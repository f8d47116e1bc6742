# SPDX-License-Identifier: BSD-2-Clause
"""Test data: each 32-bit word is a hash of (seed, absolute word offset), and checksums of words.

For one seed and one upper half of the offset, offset to word is one-to-one: no two words within
2**32 of each other are equal, so data that lands in the wrong place never looks right, whatever
the distance. A GPU computes the same with 32-bit multiplies, shifts and exclusive ors::

    mix(x):       x ^= x >> 16; x *= 0x7FEB352D; x ^= x >> 15; x *= 0x846CA68B; x ^= x >> 16
    key(seed, hi) = mix(mix(seed + 0x9E3779B9) ^ hi)
    word(seed, i) = mix(mix(i[31:0] ^ key(seed, i[63:32])) + seed)
    checksum      = sum over i of mix(mix(i[31:0] ^ key(0, i[63:32])) ^ word i), modulo 2**64
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arguments import integer

__all__ = ["WORD_BYTES", "as_words", "blocks", "checksum", "fill_bytes", "require_seed", "words"]

WORD_BYTES = 4
#: Words worked on at a time: fits a core's cache.
_BLOCK_WORDS = 1 << 16
_MASK = 0xFFFF_FFFF


def _mix(x: np.ndarray) -> np.ndarray:
    """A one-to-one scrambling of 32-bit words, in place."""
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def _scrambled_offsets(seed: int, start: int, count: int) -> np.ndarray:
    offsets = np.arange(start, start + count, dtype=np.uint64)
    key = np.full(1, (seed + 0x9E3779B9) & _MASK, np.uint32)
    keys = _mix(_mix(key) ^ (offsets >> np.uint64(32)).astype(np.uint32))
    return _mix(offsets.astype(np.uint32) ^ keys)


def require_seed(seed: int) -> None:
    """ValueError if the seed does not fit 32 bits, TypeError if it is no integer."""
    if not 0 <= integer(seed, "a seed") <= _MASK:
        raise ValueError(f"a seed is 0 to {_MASK}, not {seed}")


def words(seed: int, start: int, count: int) -> np.ndarray:
    """`count` uint32 words of the pattern of `seed`, from word offset `start`.

    Raises
    ------
    ValueError
        If the seed does not fit 32 bits.
    """
    require_seed(seed)
    return _mix(_scrambled_offsets(seed, start, count) + np.uint32(seed))


def blocks(data: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """`data`, a uint8 array, in pieces that fit a cache: (first word offset, uint8 view)."""
    step = _BLOCK_WORDS * WORD_BYTES
    for start in range(0, data.size, step):
        yield start // WORD_BYTES, data[start : start + step]


def fill_bytes(seed: int, start: int, count: int) -> np.ndarray:
    """`count` bytes of the pattern from word offset `start`; a last word may be partial."""
    return words(seed, start, -(-count // WORD_BYTES)).view(np.uint8)[:count]


def as_words(data: np.ndarray) -> np.ndarray:
    """A uint8 array as uint32 words; a last partial word as if zeros followed."""
    if data.size % WORD_BYTES:
        data = np.pad(data, (0, -data.size % WORD_BYTES))
    return data.view(np.uint32)


def checksum(data: np.ndarray) -> int:
    """64-bit checksum of a uint8 array; any order of summing gives the same, any move does not.

    A last partial word counts as if zeros followed.
    """
    total = 0
    for start, block in blocks(data):
        found = as_words(block)
        keyed = _mix(_scrambled_offsets(0, start, found.size) ^ found)
        total += int(keyed.sum(dtype=np.uint64))
    return total & 0xFFFF_FFFF_FFFF_FFFF
