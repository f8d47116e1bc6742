# SPDX-License-Identifier: BSD-2-Clause
"""One script of a driver's accesses, for both models of what surrounds the core.

The cocotb model plays it as a bench, the native one through its socket; the core must send the
same TLPs in both.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from peerdma import regs

from .channel import CONTROL_START, CONTROL_STOP

__all__ = ["PAGES", "PAGE_BYTES", "Access", "final_target", "initial_memory", "script"]

#: Bus addresses of the pages that the script uses, below and above 4 GiB.
PAGES = {"descriptors": 0x2000_0000, "source": 0x3000_0000, "target": 0x9_0000_0000}
PAGE_BYTES = 16384

#: (bytes, source offset, card address, target offset) of each descriptor
_PIECES = ((4096, 0, 0, 3), (1, 5001, 4097, 4100), (700, 5101, 5003, 8190), (64, 6400, 8192, 9472))


@dataclass(frozen=True)
class Access:
    """Read or write `size` bytes at `offset` of a BAR; `idle`: read until bit 0 is 0."""

    bar: int
    offset: int
    size: int = 4
    value: int | None = None
    idle: bool = False


def initial_memory() -> dict[str, bytearray]:
    """What the pages hold before the script: random data, and the descriptors."""
    rng = random.Random(2026)
    memory = {name: bytearray(rng.randbytes(PAGE_BYTES)) for name in PAGES}
    # H2C descriptors from 0 in one block; C2H ones from 4096 in a block of one and one of three.
    table = np.zeros((2, len(_PIECES)), regs.DESCRIPTOR)
    for index, (size, source, card, target) in enumerate(_PIECES):
        table[:, index]["control"] = regs.DESC_MAGIC << 16
        table[:, index]["length"] = size
        table[0, index]["source"] = PAGES["source"] + source
        table[0, index]["destination"] = card
        table[1, index]["source"] = card
        table[1, index]["destination"] = PAGES["target"] + target
    table[:, -1]["control"] |= regs.DESC_STOP | regs.DESC_COMPLETED
    one = regs.DESCRIPTOR.itemsize
    table[1, 0]["control"] |= (len(_PIECES) - 2) << 8
    table[1, 0]["next"] = PAGES["descriptors"] + 8192
    page = memory["descriptors"]
    page[: table[0].nbytes] = table[0].tobytes()
    page[4096 : 4096 + one] = table[1, :1].tobytes()
    page[8192 : 8192 + 3 * one] = table[1, 1:].tobytes()
    return memory


def final_target(memory: dict[str, bytearray]) -> bytes:
    """What the target page holds after the script."""
    target = bytearray(memory["target"])
    for size, source, _, at in _PIECES:
        target[at : at + size] = memory["source"][source : source + size]
    return bytes(target)


def script() -> list[Access]:
    """Register accesses of several sizes, then a list of descriptors in each direction."""
    dma, user = regs.BAR_DMA[0], regs.BAR_USER[0]
    accesses = [
        Access(dma, regs.IRQ.address("identifier")),
        Access(user, regs.USER.address("scratch"), value=0x1234_5678),
        Access(user, regs.USER.address("scratch")),
        Access(user, regs.USER.address("scratch") + 2, 2),
        Access(user, regs.USER.address("scratch") + 3, 1),
        Access(user, regs.MAILBOX.address("first"), 8, value=0x0123_4567_89AB_CDEF),
        Access(user, regs.MAILBOX.address("first"), 8),
        Access(dma, 0xFFFC),
    ]
    runs = (
        (regs.CHANNEL.base, regs.SGDMA.base, PAGES["descriptors"], len(_PIECES) - 1),
        (regs.C2H_CHANNEL_BASE, regs.C2H_SGDMA_BASE, PAGES["descriptors"] + 4096, 0),
    )
    for base, sgdma, first, adjacent in runs:

        def channel(name, value=None, idle=False, base=base):
            return Access(dma, regs.CHANNEL.address(name, base=base), value=value, idle=idle)

        accesses += [
            Access(dma, regs.SGDMA.address("descriptor_lo", base=sgdma), value=first),
            Access(dma, regs.SGDMA.address("descriptor_hi", base=sgdma), value=0),
            Access(dma, regs.SGDMA.address("descriptor_adjacent", base=sgdma), value=adjacent),
            channel("control", CONTROL_START),
            channel("status", idle=True),
            channel("completed_count"),
            channel("status_rc"),
            channel("status_rc"),
            channel("control", CONTROL_STOP),
        ]
    return accesses
