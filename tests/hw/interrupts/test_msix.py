# SPDX-License-Identifier: BSD-2-Clause
"""The MSI-X table as software sees it."""

from hw.interrupts.msix import MsixTable
from hw.registers.bus import READ_LATENCY
from peerdma import regs
from tests.hw.helpers import seeded, simulate
from tests.hw.registers.bus import BehindFile, bus_read, bus_write

TABLE, PBA = regs.MSIX_TABLE_OFFSET, regs.MSIX_PBA_OFFSET
END = TABLE + 16 * regs.MSIX_ENTRIES


def run(testbench):
    dut = MsixTable()
    behind = BehindFile(dut)

    async def bench(ctx):
        await testbench(ctx, dut, behind.bus)

    simulate(behind, bench)


async def read(ctx, bus, offset, **where):
    return await bus_read(ctx, bus, offset, latency=2, **where)


async def dump(ctx, bus, start=TABLE, end=END):
    return [await read(ctx, bus, offset) for offset in range(start, end, 4)]


def test_all_vectors_are_masked_after_reset():
    async def testbench(ctx, dut, bus):
        assert (await dump(ctx, bus))[3::4] == [1] * regs.MSIX_ENTRIES
        assert await read(ctx, bus, PBA) == 0
        assert await read(ctx, bus, PBA + 4) == 0

    run(testbench)


def test_every_dword_is_stored_but_of_vector_control_the_mask_only():
    rng = seeded()

    async def testbench(ctx, dut, bus):
        offsets = [*range(TABLE, END, 4)] * 2
        rng.shuffle(offsets)
        expected = {}
        for offset in offsets:
            value = rng.getrandbits(32)
            await bus_write(ctx, bus, offset, value)
            expected[offset] = value & 1 if offset % 16 == 12 else value
        assert await dump(ctx, bus) == [expected[offset] for offset in range(TABLE, END, 4)]

    run(testbench)


def test_one_write_of_the_bus_can_carry_two_dwords_or_parts():
    async def testbench(ctx, dut, bus):
        for address, value, enable in (
            (TABLE, 0x1111_1111_2222_2222, 0xFF),
            (TABLE, 0x3333_3333_4444_4444, 0x7F),
            (TABLE + 8, 0x5555_5554_6666_6666, 0xFF),
            (TABLE + 8, 0x0000_0001_7777_7777, 0xEF),
        ):
            ctx.set(bus.write.valid, 1)
            ctx.set(bus.write.bar, regs.BAR_DMA[0])
            ctx.set(bus.write.address, address >> 3)
            ctx.set(bus.write.data, value)
            ctx.set(bus.write.enable, enable)
            await ctx.tick()
        ctx.set(bus.write.valid, 0)
        assert await dump(ctx, bus, TABLE, TABLE + 16) == [0x4444_4444, 0x1111_1111, 0x7777_7777, 0]

    run(testbench)


def test_nothing_else_is_there():
    async def testbench(ctx, dut, bus):
        for offset in range(TABLE, END, 4):
            await bus_write(ctx, bus, offset, 0xFFFF_FFFF)
        for offset in (0, TABLE - 4, END, PBA - 8, PBA, PBA + 4, 0xFFFC):
            await bus_write(ctx, bus, offset, 0)
            assert await read(ctx, bus, offset) == 0, hex(offset)
        await bus_write(ctx, bus, TABLE, 0, bar=regs.BAR_USER[0])
        assert await read(ctx, bus, TABLE, bar=regs.BAR_USER[0]) == 0
        assert set((await dump(ctx, bus))[0::4]) == {0xFFFF_FFFF}

    run(testbench)


def test_pending_bits():
    rng = seeded()

    async def testbench(ctx, dut, bus):
        for _ in range(5):
            expected = 0
            for vector in rng.sample(range(32), 8):
                ctx.set(dut.vector, vector)
                ctx.set(dut.pend, 1)
                await ctx.tick()
                expected |= 1 << vector
                ctx.set(dut.pend, 0)
                assert await read(ctx, bus, PBA) == expected
            for vector in rng.sample(range(32), 8):
                ctx.set(dut.vector, vector)
                ctx.set(dut.settle, 1)
                await ctx.tick()
                expected &= ~(1 << vector)
                ctx.set(dut.settle, 0)
                assert await read(ctx, bus, PBA) == expected
            ctx.set(dut.clear, 1)
            ctx.set(dut.pend, rng.randrange(2))
            await ctx.tick()
            ctx.set(dut.clear, 0)
            ctx.set(dut.pend, 0)
            assert await read(ctx, bus, PBA) == 0

    run(testbench)


def test_changed_covers_all_reads_that_do_not_show_a_new_mask():
    async def testbench(ctx, dut, bus):
        ctx.set(bus.write.bar, regs.BAR_DMA[0])
        for offset, lane, expected in ((8, 1, 1), (8, 0, 0), (0, 1, 0), (0, 0, 0)):
            ctx.set(bus.write.valid, 1)
            ctx.set(bus.write.address, TABLE + 0x50 + offset >> 3)
            ctx.set(bus.write.enable, 0xF << 4 * lane)
            seen = []
            for _ in range(READ_LATENCY + 3):
                seen.append(ctx.get(dut.changed))
                await ctx.tick()
                ctx.set(bus.write.valid, 0)
            assert seen == [expected] * (READ_LATENCY + 1) + [0, 0], (offset, lane)

    run(testbench)
