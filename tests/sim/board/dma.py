# SPDX-License-Identifier: BSD-2-Clause
"""Where the DMA tests have things, and how a transfer ends well."""

from __future__ import annotations

from peerdma import regs
from tests.sim.board.client import Memory, descriptor

__all__ = ["DATA", "DONE", "HIGH", "LIST", "MIB", "list_of"]

DONE = regs.Status.DESCRIPTOR_STOPPED | regs.Status.DESCRIPTOR_COMPLETED
MIB = 1 << 20
#: Bus addresses: descriptors, data, and the same data above 4 GiB.
LIST, DATA, HIGH = 0x10_0000, 0x20_0000, 0x47_0000_0000


def list_of(memory: Memory, at: int, source: int, destination: int, length: int) -> int:
    """Puts a descriptor at byte `at` of `memory`, which is mapped at `LIST`; its bus address."""
    memory.bytes[at : at + 32] = descriptor(source, destination, length)
    return LIST + at
