# SPDX-License-Identifier: BSD-2-Clause
"""One DMA channel of an XDMA-compatible engine (PG195), register by register."""

from __future__ import annotations

import enum
import struct
import time
from collections.abc import Iterable

from ..regs import (
    BAR_DMA,
    C2H_CHANNEL_BASE,
    C2H_PUSH_BASE,
    C2H_SGDMA_BASE,
    CHANNEL,
    H2C_PUSH_BASE,
    IRQ,
    SGDMA,
    SGDMA_COMMON,
    Status,
)
from .registers import Bank, Registers

__all__ = ["MOST_CREDITS", "Access", "Direction", "DmaChannel"]

#: Descriptors that a channel can be allowed to fetch and has not fetched.
MOST_CREDITS = SGDMA["descriptor_credits"].writable

_BAR = BAR_DMA[0]
_ALL_BITS = 0xFFFF_FFFF
#: Run with every event logged; errors stop the engine.
_START = sum(
    field.mask
    for field in CHANNEL["control"].fields
    if field.name == "run" or field.name.startswith("ie_")
)
#: A write: BAR, byte offset and value.
Access = tuple[int, int, int]
_BUSY = int(Status.BUSY)
_HIGH_CYCLES = CHANNEL["perf_cycles_hi"].field("high").mask
_PERF = CHANNEL["perf_control"]
_PERF_CLEAR = _PERF.field("clear").mask
_PERF_COUNT = _PERF.field("run").mask | _PERF.field("auto").mask


class Direction(enum.Enum):
    """Which way a channel moves data; the values are its register bases."""

    H2C = (CHANNEL.base, SGDMA.base)
    C2H = (C2H_CHANNEL_BASE, C2H_SGDMA_BASE)


#: The channels' bits in `SGDMA_COMMON`.
_COMMON_BITS = {Direction.H2C: 1, Direction.C2H: 1 << 16}
_PUSH_BASES = {Direction.H2C: H2C_PUSH_BASE, Direction.C2H: C2H_PUSH_BASE}


class DmaChannel:
    """The first channel of a direction.

    Parameters
    ----------
    registers : Registers
    direction : Direction
    irq_bit : int
        The channel's bit in the interrupt block.

    Attributes
    ----------
    direction : Direction
    status_rc : int
        Byte offset of the status register whose reading clears it.
    """

    def __init__(self, registers: Registers, direction: Direction, irq_bit: int):
        base, sgdma = direction.value
        channel = Bank(registers, CHANNEL, base).place
        address = Bank(registers, SGDMA, sgdma).place
        irq = Bank(registers, IRQ).place
        common = Bank(registers, SGDMA_COMMON).place
        self.direction = direction
        self._registers = registers
        # Looked up once: a transfer of a few bytes is little more than these accesses.
        self._address = [address(f"descriptor_{part}") for part in ("lo", "hi", "adjacent")]
        #: what `load` returned: a ring starts at few addresses
        self._loads: dict[tuple[int, int], list[Access]] = {}
        self._credits = address("descriptor_credits")
        self._credit_mode = [common(f"credit_enable_{bits}") for bits in ("w1c", "w1s")]
        self._status, self._completed = channel("status")[1], channel("completed_count")[1]
        self.status_rc: int = channel("status_rc")[1]
        self._cycles = [channel(f"perf_cycles_{half}")[1] for half in ("lo", "hi")]
        #: writes that start the loaded chain; its status has been cleared before
        self._arm: list[Access] = [
            (*channel("interrupt_enable"), _ALL_BITS),
            (*irq("channel_enable_w1s"), irq_bit),
            (*channel("perf_control"), _PERF_CLEAR),
            (*channel("perf_control"), _PERF_COUNT),
            (*channel("control"), _START),
        ]
        #: writes that clear Run, which aborts the chain that runs, and disable interrupts
        self._end: list[Access] = [
            (*irq("channel_enable_w1c"), irq_bit),
            (*channel("interrupt_enable"), 0),
            (*channel("control"), 0),
        ]

    def load(self, address: int, adjacent: int) -> list[Access]:
        """Writes that load the first descriptor's bus address and how many are adjacent to it."""
        known = self._loads.get((address, adjacent))
        if known is None:
            values = (address & _ALL_BITS, address >> 32, adjacent)
            places = zip(self._address, values, strict=True)
            known = self._loads[address, adjacent] = [(*place, value) for place, value in places]
        return known

    def push(self, descriptors: bytes) -> list[Access]:
        """Writes that put a chain's first descriptors into the board, so that it fetches none.

        They are `peerdma.regs.PUSH_DESCRIPTORS` at most, and the board has `Capability.PUSH`.
        """
        base = _PUSH_BASES[self.direction]
        dwords = struct.iter_unpack("<I", descriptors)
        return [(_BAR, base + 4 * n, dword) for n, (dword,) in enumerate(dwords)]

    def start(self, load: Iterable[Access]) -> None:
        """Starts a chain. `load`: the writes, as of `load` or `push`, that say where it begins."""
        registers = self._registers
        write = registers.write32
        for bar, offset, value in load:
            write(bar, offset, value)
        registers.read32(_BAR, self.status_rc)
        for bar, offset, value in self._arm:
            write(bar, offset, value)

    def use_credits(self, on: bool) -> None:
        """Has the channel fetch descriptors only against credits, see `give`, or freely."""
        self._registers.write32(*self._credit_mode[on], _COMMON_BITS[self.direction])

    def give(self, credits: int) -> None:
        """Lets the channel fetch so many more descriptors; it counts `MOST_CREDITS` at most."""
        self._registers.write32(*self._credits, credits)

    def status(self) -> int:
        """The status register: bits of `peerdma.regs.Status`."""
        return self._registers.read32(_BAR, self._status)

    def take_status(self) -> int:
        """Reads the status and clears it."""
        return self._registers.read32(_BAR, self.status_rc)

    def completed(self) -> int:
        """Descriptors finished since the start, modulo 2**32."""
        return self._registers.read32(_BAR, self._completed)

    def busy_cycles(self) -> int:
        """Clock cycles of the current or last run so far."""
        read, (low, high) = self._registers.read32, self._cycles
        lower = read(_BAR, low)
        return (read(_BAR, high) & _HIGH_CYCLES) << 32 | lower

    def disarm(self) -> None:
        """Aborts the chain that runs, and disables interrupts."""
        write = self._registers.write32
        for bar, offset, value in self._end:
            write(bar, offset, value)

    def goes_idle(self, seconds: float) -> bool:
        """Waits until the channel is idle; False if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while self.status() & _BUSY:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True
