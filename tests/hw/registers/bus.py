# SPDX-License-Identifier: BSD-2-Clause
"""Accesses of the register bus for tests of what hangs on it."""

from __future__ import annotations

from peerdma import regs

__all__ = ["bus_read", "bus_write"]


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


async def bus_read(ctx, bus, offset, *, bar=regs.BAR_DMA[0]):
    """Read the dword at byte `offset`; takes one cycle, as banks answer in the next."""
    lane = offset >> 2 & 1
    ctx.set(bus.read.valid, 1)
    ctx.set(bus.read.bar, bar)
    ctx.set(bus.read.address, offset >> 3)
    ctx.set(bus.read.enable, 0xF << 4 * lane)
    await ctx.tick()
    ctx.set(bus.read.valid, 0)
    return ctx.get(bus.read.data) >> 32 * lane & 0xFFFF_FFFF
