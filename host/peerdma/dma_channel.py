# SPDX-License-Identifier: BSD-2-Clause
"""One DMA channel of an XDMA-compatible engine (PG195), register by register."""

from __future__ import annotations

import enum
import time

from .registers import Bank, Registers
from .regs import C2H_CHANNEL_BASE, C2H_SGDMA_BASE, CHANNEL, IRQ, SGDMA, Status

__all__ = ["Direction", "DmaChannel"]

_ALL_BITS = 0xFFFF_FFFF
#: Run with every event logged; errors stop the engine.
_START = sum(
    field.mask
    for field in CHANNEL["control"].fields
    if field.name == "run" or field.name.startswith("ie_")
)
_PERF = CHANNEL["perf_control"]
_PERF_CLEAR = _PERF.field("clear").mask
_PERF_COUNT = _PERF.field("run").mask | _PERF.field("auto").mask


class Direction(enum.Enum):
    """Which way a channel moves data; the values are its register bases."""

    H2C = (CHANNEL.base, SGDMA.base)
    C2H = (C2H_CHANNEL_BASE, C2H_SGDMA_BASE)


class DmaChannel:
    """The first channel of a direction.

    Parameters
    ----------
    registers : Registers
    direction : Direction
    irq_bit : int
        Its bit in the interrupt block.
    """

    def __init__(self, registers: Registers, direction: Direction, irq_bit: int):
        base, sgdma = direction.value
        self._channel = Bank(registers, CHANNEL, base)
        self._sgdma = Bank(registers, SGDMA, sgdma)
        self._irq = Bank(registers, IRQ)
        self._irq_bit = irq_bit
        self.direction = direction

    def start(self, address: int, adjacent: int) -> None:
        """Runs the descriptors at bus address `address`, with `adjacent` more behind the first."""
        self._sgdma.write("descriptor_lo", address & _ALL_BITS)
        self._sgdma.write("descriptor_hi", address >> 32)
        self._sgdma.write("descriptor_adjacent", adjacent)
        self.take_status()
        self._channel.write("interrupt_enable", _ALL_BITS)
        self._irq.write("channel_enable_w1s", self._irq_bit)
        self._channel.write("perf_control", _PERF_CLEAR)
        self._channel.write("perf_control", _PERF_COUNT)
        self._channel.write("control", _START)

    def status(self) -> Status:
        """What has happened."""
        return Status(self._channel.read("status"))

    def take_status(self) -> Status:
        """The same, and clears it."""
        return Status(self._channel.read("status_rc"))

    def completed(self) -> int:
        """Descriptors finished since the start, modulo 2**32."""
        return self._channel.read("completed_count")

    def busy_cycles(self) -> int:
        """Clock cycles that the last run took up to now."""
        low = self._channel.read("perf_cycles_lo")
        return self._channel.fields("perf_cycles_hi")["high"] << 32 | low

    def disarm(self) -> None:
        """Clears Run, which aborts what runs, and turns interrupts off."""
        self._irq.write("channel_enable_w1c", self._irq_bit)
        self._channel.write("interrupt_enable", 0)
        self._channel.write("control", 0)

    def goes_idle(self, seconds: float) -> bool:
        """Waits until nothing moves any more; False if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while self.status() & Status.BUSY:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True
