# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor chains, as PG195 lays them out in host memory."""

from __future__ import annotations

import numpy as np

from ..regs import DESC_COMPLETED, DESC_MAGIC, DESC_STOP, DESCRIPTOR

__all__ = ["BLOCK_DESCRIPTORS", "MAGIC_SHIFT", "write_chain"]

#: Most contiguous descriptors that the adjacency fields can announce.
BLOCK_DESCRIPTORS = 64
_ADJACENT_SHIFT = 8
MAGIC_SHIFT = 16


def write_chain(
    ring: np.ndarray,
    address: int,
    sources: np.ndarray,
    destinations: np.ndarray,
    lengths: np.ndarray,
    completed: np.ndarray | None = None,
    cyclic: bool = False,
) -> int:
    """Writes one chain to the start of a ring and returns the first-adjacent register's value.

    The descriptors lie one after the other, in blocks of 64 that do not cross 2 KiB.

    Parameters
    ----------
    ring : numpy.ndarray of DESCRIPTOR
        The memory; at least as long as the chain.
    address : int
        Its bus address, a multiple of 2 KiB.
    sources, destinations, lengths : numpy.ndarray of uint64
        One entry per descriptor, at least one; lengths in bytes.
    completed : numpy.ndarray of bool, optional
        Which descriptors interrupt when they are finished; by default only the last one.
    cyclic : bool
        Whether the last descriptor points to the first; else it stops the channel.
    """
    count = len(lengths)
    index = np.arange(count, dtype=np.int64)
    chain = ring[:count]
    # Descriptors adjacent to the next one: what is left of its block, or of the chain.
    in_block = BLOCK_DESCRIPTORS - 1 - (index + 1) % BLOCK_DESCRIPTORS
    adjacent = np.clip(np.minimum(in_block, count - 2 - index), 0, None)
    first_adjacent = min(BLOCK_DESCRIPTORS, count) - 1
    if cyclic:
        adjacent[-1] = first_adjacent
    chain["control"] = DESC_MAGIC << MAGIC_SHIFT | adjacent << _ADJACENT_SHIFT
    interrupts = index == count - 1 if completed is None else completed
    chain["control"] |= np.where(interrupts, DESC_COMPLETED, 0).astype(np.uint32)
    chain["length"] = lengths
    chain["source"] = sources
    chain["destination"] = destinations
    chain["next"] = address + (index + 1) * DESCRIPTOR.itemsize
    chain["next"][-1] = address if cyclic else 0
    if not cyclic:
        chain["control"][-1] |= DESC_STOP
    return first_adjacent
