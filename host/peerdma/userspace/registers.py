# SPDX-License-Identifier: BSD-2-Clause
"""Access to a board's registers, by name."""

from __future__ import annotations

import enum
from typing import Protocol

from ..regs import (
    BAR_DMA,
    BAR_USER,
    BLOCKS_OPTIONAL,
    BLOCKS_USER,
    C2H_CHANNEL_BASE,
    C2H_SGDMA_BASE,
    CHANNEL,
    SGDMA,
    Block,
)
from ..vfio.function import LostWrites

__all__ = ["Bank", "Device", "Direction", "Function", "Registers"]


class Registers(Protocol):
    """Access to a board's registers."""

    def read32(self, bar: int, offset: int) -> int:
        """The register at byte `offset` of a BAR."""
        ...

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Writes the register at byte `offset` of a BAR; may be posted."""
        ...


class Device(Registers, Protocol):
    """The connection to a board, as the driver needs it."""

    def take_lost_writes(self) -> LostWrites | None:
        """See `peerdma.vfio.function.Device`."""
        ...


class Function(Protocol):
    """A board's function, as the driver needs it: its registers and its interrupt."""

    @property
    def device(self) -> Device:
        """The connection to it."""
        ...

    def wait_interrupt(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds; False if no interrupt came."""
        ...

    def interrupt_done(self) -> None:
        """Call when the cause of the interrupt has been removed; unmasks a level interrupt."""
        ...

    @property
    def lost(self) -> bool:
        """True once the board is gone."""
        ...


class Direction(enum.Enum):
    """Which way a channel moves data; the values are its register bases."""

    H2C = (CHANNEL.base, SGDMA.base)
    C2H = (C2H_CHANNEL_BASE, C2H_SGDMA_BASE)


class Bank:
    """One instance of a block of registers, at its own place or at byte `base` of its BAR."""

    def __init__(self, registers: Registers, block: Block, base: int | None = None):
        self._registers = registers
        self._block = block
        self._base = base
        user = block in BLOCKS_USER or block in BLOCKS_OPTIONAL
        self._bar = (BAR_USER if user else BAR_DMA)[0]

    def place(self, name: str) -> tuple[int, int]:
        """BAR and byte offset of a register; KeyError if the block has none of that name."""
        return self._bar, self._block.address(name, base=self._base)

    def read(self, name: str) -> int:
        """The value of a register."""
        return self._registers.read32(*self.place(name))

    def write(self, name: str, value: int) -> None:
        """Writes a register."""
        self._registers.write32(*self.place(name), value)

    def fields(self, name: str) -> dict[str, int]:
        """The fields of a register, read once."""
        value = self.read(name)
        return {field.name: field.get(value) for field in self._block[name].fields}
