# SPDX-License-Identifier: BSD-2-Clause
"""Extension and config block: error capture, limits, cycle counter, what software can ask for."""

import pytest

from hw.records import Outcome
from hw.registers.extension import ExtensionBlock
from hw.stream.user_blocks import PassThrough, find
from peerdma import regs
from tests.hw.helpers import simulate
from tests.hw.registers.bus import bus_read, bus_write


def run(scenario, user=PassThrough, capabilities=regs.Capability.STREAM):
    dut = ExtensionBlock(
        h2c=1,
        c2h=3,
        tags=32,
        ram_size=1 << 16,
        clock_khz=125_000,
        capabilities=capabilities,
        user=user,
    )

    async def bench(ctx):
        await scenario(ctx, dut)

    simulate(dut, bench)


async def read(ctx, dut, name, block=regs.EXTENSION):
    return await bus_read(ctx, dut.bus, block.base + block[name].offset)


async def write(ctx, dut, name, value, block=regs.EXTENSION):
    await bus_write(ctx, dut.bus, block.base + block[name].offset, value)


async def captured(ctx, dut):
    """(kind, channel, c2h, descriptor, count, address) as software reads them."""
    info = await read(ctx, dut, "error_info")
    low, high = [await read(ctx, dut, f"error_address_{half}") for half in ("lo", "hi")]
    names = ("kind", "channel", "c2h", "descriptor", "count")
    register = regs.EXTENSION["error_info"]
    return *(register.field(name).get(info) for name in names), high << 32 | low


async def fail(ctx, dut, outcome, address, *, channel=0, c2h=0, descriptor=0, times=1):
    ctx.set(
        dut.error.payload, {"outcome": outcome, "address": address, "channel": channel, "c2h": c2h}
    )
    ctx.set(dut.error.payload.descriptor, descriptor)
    ctx.set(dut.error.valid, 1)
    await ctx.tick().repeat(times)
    ctx.set(dut.error.valid, 0)


def test_the_first_error_is_kept_and_all_are_counted():
    async def scenario(ctx, dut):
        assert await captured(ctx, dut) == (0, 0, 0, 0, 0, 0)
        first = 0xFEDC_BA98_7654_3210
        await fail(ctx, dut, Outcome.POISONED, first, channel=3, c2h=1, descriptor=1)
        expected = (Outcome.POISONED.value, 3, 1, 1)
        assert await captured(ctx, dut) == (*expected, 1, first)
        await fail(ctx, dut, Outcome.DECODE, 0x1234)
        assert await captured(ctx, dut) == (*expected, 2, first)
        await fail(ctx, dut, Outcome.DECODE, 0x1234, times=0x1_0000)
        assert await captured(ctx, dut) == (*expected, 0xFFFF, first)
        await write(ctx, dut, "error_clear", 0)
        assert await captured(ctx, dut) == (0, 0, 0, 0, 0, 0)
        await fail(ctx, dut, Outcome.MAGIC, 0x20)
        assert await captured(ctx, dut) == (Outcome.MAGIC.value, 0, 0, 0, 1, 0x20)

    run(scenario)


@pytest.mark.parametrize("host", range(6))
@pytest.mark.parametrize("user", range(8))
def test_requests_keep_to_what_host_user_and_engine_allow(host, user):
    async def scenario(ctx, dut):
        for name, limit, other in (
            ("max_payload", dut.payload_limit, dut.read_limit),
            ("max_read_request", dut.read_limit, dut.payload_limit),
        ):
            ctx.set(getattr(dut.link, name), host)
            await write(ctx, dut, f"user_{name}", user, regs.CONFIG)
            await ctx.tick()
            assert ctx.get(limit) == min(host, user, 2)
            shown = await read(ctx, dut, f"user_{name}", regs.CONFIG)
            assert shown == user << 4 | user
            assert await read(ctx, dut, name, regs.CONFIG) == host
            ctx.set(getattr(dut.link, name), 0)
            await ctx.tick()
            assert ctx.get(limit) == ctx.get(other) == 0

    run(scenario)


def test_both_halves_of_the_cycle_count_are_of_one_cycle():
    async def scenario(ctx, dut):
        before = ctx.get(dut.cycles)
        low = await read(ctx, dut, "cycles_lo")
        assert low == before
        await ctx.tick().repeat(10)
        assert await read(ctx, dut, "cycles_hi") == 0
        ctx.set(dut.bus.read.enable, 0xFF)
        ctx.set(dut.bus.read.address, regs.EXTENSION.base + 0x40 >> 3)
        ctx.set(dut.bus.read.valid, 1)
        now = ctx.get(dut.cycles)
        await ctx.tick()
        assert ctx.get(dut.bus.read.data) == now

    run(scenario)


def test_requests_of_software_last_a_cycle():
    async def scenario(ctx, dut):
        for name, value, member, expected in (
            ("soft_reset", 1, dut.soft_reset, 1),
            ("soft_reset", 2, dut.soft_reset, 0),
            ("stream_flush", 0x15, dut.stream_flush, 0x5),
        ):
            ctx.set(dut.bus.write.bar, regs.BAR_DMA[0])
            ctx.set(dut.bus.write.address, regs.EXTENSION.address(name) >> 3)
            lane = regs.EXTENSION[name].offset >> 2 & 1
            ctx.set(dut.bus.write.data, value << 32 * lane)
            ctx.set(dut.bus.write.enable, 0xF << 4 * lane)
            ctx.set(dut.bus.write.valid, 1)
            assert ctx.get(member) == expected
            ctx.set(dut.bus.write.valid, 0)
            assert ctx.get(member) == 0

    run(scenario)


def test_how_memory_is_read_is_for_software_to_say():
    async def scenario(ctx, dut):
        assert (ctx.get(dut.in_flight), ctx.get(dut.tolerant)) == (8, 0)
        await write(ctx, dut, "reads", 0x13)
        assert (ctx.get(dut.in_flight), ctx.get(dut.tolerant)) == (3, 1)

    run(scenario)


def test_relaxed_ordering_is_for_host_and_software_to_allow():
    async def scenario(ctx, dut):
        assert ctx.get(dut.relaxed) == 0
        ctx.set(dut.link.relaxed_ordering, 1)
        assert ctx.get(dut.relaxed) == regs.CONFIG["pcie_control"].reset
        await write(ctx, dut, "pcie_control", 0, regs.CONFIG)
        assert ctx.get(dut.relaxed) == 0

    run(scenario)


def test_software_reads_what_channels_wait_for():
    async def scenario(ctx, dut):
        for number, name in enumerate(("h2c0", "h2c3", "c2h0", "c2h3")):
            field = regs.EXTENSION["waits_for"].field(name)
            ctx.set(dut.waits_for, (number + 5) << field.lsb)
            assert field.get(await read(ctx, dut, "waits_for")) == number + 5

    run(scenario)


@pytest.mark.parametrize(
    ("user", "window", "name", "ratio"),
    [
        ("pass", regs.STREAM_WINDOW, "PASS", (1, 1)),
        ("bfloat16", regs.STREAM_WINDOW, "BF16", (4, 2)),
        ("none", 0, None, (0, 0)),
    ],
)
def test_software_reads_what_this_build_is(user, window, name, ratio):
    async def scenario(ctx, dut):
        assert await read(ctx, dut, "magic") == regs.EXTENSION_MAGIC
        assert await read(ctx, dut, "version") == regs.EXTENSION["version"].reset
        assert await read(ctx, dut, "capabilities") == regs.Capability.STREAM
        assert await read(ctx, dut, "channels") == 0x2031
        assert await read(ctx, dut, "card_ram_size") == 0x10000
        halves = [await read(ctx, dut, f"stream_window_{half}") for half in ("lo", "hi")]
        assert halves == [window & 0xFFFF_FFFF, window >> 32]
        assert await read(ctx, dut, "clock_khz") == 125_000
        assert await read(ctx, dut, "user_block") == (regs.four_characters(name) if name else 0)
        assert await read(ctx, dut, "user_ratio") == ratio[0] | ratio[1] << 8

    run(scenario, find(user))


@pytest.mark.parametrize(
    ("capabilities", "kept"),
    [(regs.Capability.FRAME_RECORDS, 0x5), (regs.Capability.STREAM, 0)],
)
def test_only_cores_with_records_of_frames_have_their_register(capabilities, kept):
    async def scenario(ctx, dut):
        await write(ctx, dut, "frame_records", 0x15)
        assert await read(ctx, dut, "frame_records") == kept
        if kept:
            assert ctx.get(dut.frame_records) == kept

    run(scenario, capabilities=capabilities)
