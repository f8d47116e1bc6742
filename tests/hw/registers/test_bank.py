# SPDX-License-Identifier: BSD-2-Clause
"""Register banks: what reads, writes and aliases do, with byte enables."""

import pytest
from amaranth.sim import Simulator

from hw.registers.bank import RegisterBank
from peerdma.regs import Access, Block, Register

BLOCK = Block(
    "sample",
    0x2000,
    (
        Register("ident", 0x00, Access.RO, "ident", 0x1234),
        Register("setup", 0x04, Access.RW, "setup", 0x8000_0011, writable=0xF000_00FF),
        Register("setup_w1s", 0x08, Access.W1S, "set", alias="setup"),
        Register("setup_w1c", 0x0C, Access.W1C, "clear", alias="setup"),
        Register("status", 0x40, Access.RW1C, "status", writable=0xFE),
        Register("status_rc", 0x44, Access.RC, "status", alias="status"),
        Register("low", 0x20, Access.RW, "shares its word", writable=0x5),
        Register("high", 0x24, Access.RO, "shares its word", 0x8000_0001),
        Register("command", 0x48, Access.WO, "command", writable=0x3),
    ),
    "for the test",
)


def run(testbench):
    dut = RegisterBank(BLOCK, bar=1)
    simulator = Simulator(dut)
    simulator.add_clock(8e-9)

    async def body(ctx):
        await testbench(ctx, dut)

    simulator.add_testbench(body)
    simulator.run()


async def write(ctx, dut, offset, value, enable=None, bar=1):
    lane = offset >> 2 & 1
    ctx.set(dut.bus.write.valid, 1)
    ctx.set(dut.bus.write.bar, bar)
    ctx.set(dut.bus.write.address, offset >> 3)
    ctx.set(dut.bus.write.data, value << 32 * lane)
    ctx.set(dut.bus.write.enable, 0xF << 4 * lane if enable is None else enable)
    await ctx.tick()
    ctx.set(dut.bus.write.valid, 0)


async def read(ctx, dut, offset, enable=None, bar=1):
    lane = offset >> 2 & 1
    ctx.set(dut.bus.read.valid, 1)
    ctx.set(dut.bus.read.bar, bar)
    ctx.set(dut.bus.read.address, offset >> 3)
    ctx.set(dut.bus.read.enable, 0xF << 4 * lane if enable is None else enable)
    await ctx.tick()
    ctx.set(dut.bus.read.valid, 0)
    return ctx.get(dut.bus.read.data) >> 32 * lane & 0xFFFF_FFFF


def test_reset_value_and_writable_bits():
    async def testbench(ctx, dut):
        assert await read(ctx, dut, 0x2004) == 0x8000_0011
        await write(ctx, dut, 0x2004, 0xFFFF_FFFF)
        assert await read(ctx, dut, 0x2004) == 0xF000_00FF
        await write(ctx, dut, 0x200C, 0x8000_000F)
        assert await read(ctx, dut, 0x2004) == 0x7000_00F0
        await write(ctx, dut, 0x2008, 0x0FFF_FF01)
        assert await read(ctx, dut, 0x2004) == 0x7000_00F1

    run(testbench)


def test_write_only_registers_read_zero():
    async def testbench(ctx, dut):
        for offset in (0x2008, 0x200C, 0x2048, 0x2050):
            assert await read(ctx, dut, offset) == 0

    run(testbench)


def test_neighbours_in_a_word_do_not_touch():
    async def testbench(ctx, dut):
        ctx.set(dut.low_live, 0xFFFF_FFFF)
        await write(ctx, dut, 0x2020, 0x1)
        assert await read(ctx, dut, 0x2020) == 0xFFFF_FFFB
        assert await read(ctx, dut, 0x2024) == 0x8000_0001

    run(testbench)


@pytest.mark.parametrize("enable", [0x10, 0x70, 0xE0, 0x00, 0x0F])
def test_partial_write_is_ignored(enable):
    async def testbench(ctx, dut):
        await write(ctx, dut, 0x2004, 0, enable)
        assert await read(ctx, dut, 0x2004) == 0x8000_0011

    run(testbench)


def test_other_bar_and_other_block_are_not_ours():
    async def testbench(ctx, dut):
        await write(ctx, dut, 0x2004, 0, bar=0)
        await write(ctx, dut, 0x2104, 0)
        await write(ctx, dut, 0x3004, 0)
        assert await read(ctx, dut, 0x2004) == 0x8000_0011
        assert await read(ctx, dut, 0x2004, bar=0) == 0
        assert await read(ctx, dut, 0x2104) == 0

    run(testbench)


def test_64_bit_write_reaches_both_registers():
    async def testbench(ctx, dut):
        ctx.set(dut.bus.write.valid, 1)
        ctx.set(dut.bus.write.bar, 1)
        ctx.set(dut.bus.write.address, 0x2008 >> 3)
        ctx.set(dut.bus.write.data, 0x8000_0000_0000_000E)
        ctx.set(dut.bus.write.enable, 0xFF)
        await ctx.tick()
        ctx.set(dut.bus.write.valid, 0)
        assert await read(ctx, dut, 0x2004) == 0x0000_001F

    run(testbench)


@pytest.mark.parametrize(
    ("offset", "enable", "cleared"),
    [(0x2044, 0xF0, 0xFE), (0x2044, 0x20, 0xFE), (0x2044, 0x0F, 0), (0x2040, 0x0F, 0)],
)
def test_read_clears_only_through_its_alias(offset, enable, cleared):
    async def testbench(ctx, dut):
        ctx.set(dut.status, 0xA5)
        ctx.set(dut.bus.read.valid, 1)
        ctx.set(dut.bus.read.bar, 1)
        ctx.set(dut.bus.read.address, offset >> 3)
        ctx.set(dut.bus.read.enable, enable)
        assert ctx.get(dut.status_clear) == cleared
        await ctx.tick()
        ctx.set(dut.bus.read.valid, 0)
        assert ctx.get(dut.bus.read.data) == 0xA5_0000_00A5
        assert ctx.get(dut.status_clear) == 0

    run(testbench)


def test_write_one_to_clear():
    async def testbench(ctx, dut):
        ctx.set(dut.bus.write.valid, 1)
        ctx.set(dut.bus.write.bar, 1)
        ctx.set(dut.bus.write.address, 0x2040 >> 3)
        ctx.set(dut.bus.write.data, 0x1FF)
        ctx.set(dut.bus.write.enable, 0x0F)
        assert ctx.get(dut.status_clear) == 0xFE

    run(testbench)


def test_strobe_carries_the_data():
    async def testbench(ctx, dut):
        lane = 0
        ctx.set(dut.bus.write.valid, 1)
        ctx.set(dut.bus.write.bar, 1)
        ctx.set(dut.bus.write.address, 0x2048 >> 3)
        ctx.set(dut.bus.write.data, 0xFFFF_FFFF << 32 * lane)
        ctx.set(dut.bus.write.enable, 0x0F)
        assert ctx.get(dut.command_strobe) == 1
        assert ctx.get(dut.command_data) == 0x3
        ctx.set(dut.bus.write.enable, 0x07)
        assert ctx.get(dut.command_strobe) == 0

    run(testbench)


def test_misaligned_base_is_refused():
    with pytest.raises(ValueError, match="not aligned"):
        RegisterBank(BLOCK, bar=1, base=0x2080)
