# SPDX-License-Identifier: BSD-2-Clause
"""The registers of the user BAR that drive something."""

from __future__ import annotations

from hw.registers.user import UserRegisters
from peerdma import regs
from tests.hw.helpers import simulate
from tests.hw.registers.bus import BehindFile, bus_read, bus_write


def test_software_raises_user_interrupts():
    """They stay until software ends them, and there are 16."""
    user = UserRegisters()
    dut = BehindFile(user)
    at, bar = regs.USER.address("raise_interrupts"), regs.BAR_USER[0]

    async def testbench(ctx):
        assert ctx.get(user.user_irq) == 0
        for value in (0x0001, 0x8020, 0xFFFF, 0x0000):
            await bus_write(ctx, dut.bus, at, value | 0xABCD_0000, bar=bar)
            for _ in range(3):
                await ctx.tick()
                assert ctx.get(user.user_irq) == value
            assert await bus_read(ctx, dut.bus, at, bar=bar, latency=2) == value

    simulate(dut, testbench)
