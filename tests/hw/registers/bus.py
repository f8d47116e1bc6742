# SPDX-License-Identifier: BSD-2-Clause
"""Accesses of the register bus for tests of what hangs on it."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hw.registers.bus import BusSignature
from hw.registers.file import RegisterFile
from peerdma import regs

__all__ = ["BehindFile", "bus_read", "bus_write"]


class BehindFile(wiring.Component):
    """`dut`, a component with a `bus`, behind a register file, as in the core.

    `reset` resets `dut`, as a soft reset does the channels, and not the file.
    """

    def __init__(self, dut):
        self._dut = dut
        self.reset = Signal()
        super().__init__({"bus": In(BusSignature())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.file = file = RegisterFile()
        m.submodules.dut = ResetInserter(self.reset)(self._dut)
        wiring.connect(m, wiring.flipped(self.bus), file.bus)
        wiring.connect(m, file.target, self._dut.bus)
        return m


async def bus_write(ctx, bus, offset, value, *, bar=regs.BAR_DMA[0], enable=0xF):
    """Write the dword at byte `offset`; takes one cycle."""
    lane = offset >> 2 & 1
    ctx.set(bus.write.valid, 1)
    ctx.set(bus.write.bar, bar)
    ctx.set(bus.write.address, offset >> 3)
    ctx.set(bus.write.data, value << 32 * lane)
    ctx.set(bus.write.enable, enable << 4 * lane)
    await ctx.tick()
    ctx.set(bus.write.valid, 0)


async def bus_read(ctx, bus, offset, *, bar=regs.BAR_DMA[0], latency=1):
    """Read the dword at byte `offset`; banks answer in the next cycle, one behind the file in 2."""
    lane = offset >> 2 & 1
    ctx.set(bus.read.valid, 1)
    ctx.set(bus.read.bar, bar)
    ctx.set(bus.read.address, offset >> 3)
    ctx.set(bus.read.enable, 0xF << 4 * lane)
    for _ in range(latency):
        await ctx.tick()
        ctx.set(bus.read.valid, 0)
    return ctx.get(bus.read.data) >> 32 * lane & 0xFFFF_FFFF
