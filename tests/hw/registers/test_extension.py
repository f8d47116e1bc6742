# SPDX-License-Identifier: BSD-2-Clause
"""Extension and config block: error capture, limits, cycle counter, what software can ask for."""

import pytest

from hw.registers.extension import ExtensionBlock
from hw.stream.user_blocks import PassThrough, find
from peerdma import regs
from tests.hw.helpers import simulate
from tests.hw.registers.bus import bus_read, bus_write


def run(scenario, user=PassThrough, capabilities=regs.Capability.STREAM, beside=None, tags=32):
    dut = ExtensionBlock(
        width=64,
        h2c=1,
        c2h=3,
        tags=tags,
        ram_size=1 << 16,
        clock_khz=125_000,
        capabilities=capabilities,
        user=user,
    )

    async def bench(ctx):
        await scenario(ctx, dut)

    async def answers(ctx):
        await beside(ctx, dut.capture)

    simulate(dut, bench, background=[answers] if beside else [])


async def read(ctx, dut, name, block=regs.EXTENSION):
    return await bus_read(ctx, dut.bus, block.base + block[name].offset)


async def write(ctx, dut, name, value, block=regs.EXTENSION):
    await bus_write(ctx, dut.bus, block.base + block[name].offset, value)


async def captured(ctx, dut, index=None):
    """(kind, channel, c2h, descriptor, count, address) as software reads them.

    In the extension block, or of the channel with this index in `CAPTURE`.
    """
    block, at = (regs.EXTENSION, 0x9000) if index is None else (regs.CAPTURE, 0x9100 + 32 * index)
    info, low, high = [
        await bus_read(ctx, dut.bus, at + block[f"error_{name}"].offset)
        for name in ("info", "address_lo", "address_hi")
    ]
    names = ("kind", "channel", "c2h", "descriptor", "count")
    fields = [block["error_info"].field(name).get(info) for name in names]
    return *fields, high << 32 | low


def error(index, of_channel):
    """An error that differs by which one is asked for."""
    place = {"channel": index & 3, "c2h": index >> 2}
    address = 0xFEDC_BA98_7654_3200 + 8 * index + of_channel
    return {"outcome": 10 - index, "descriptor": 1, "place": place, "address": address}


def test_the_capture_of_each_channel_and_the_first_one_have_their_places():
    async def answer(ctx, port):
        while True:
            asked = ctx.get(port.index.channel) | ctx.get(port.index.c2h) << 2
            of_channel = ctx.get(port.of_channel)
            ctx.set(port.error, error(asked if of_channel else 1, of_channel))
            await ctx.changed(port.index, port.of_channel)

    async def scenario(ctx, dut):
        for index in (None, *range(8)):
            expected = error(1, 0) if index is None else error(index, 1)
            place = expected["place"]["channel"], expected["place"]["c2h"]
            found = await captured(ctx, dut, index)
            assert found == (expected["outcome"], *place, 1, 0, expected["address"])

    run(scenario, beside=answer)


def test_runs_that_fail_are_counted():
    async def scenario(ctx, dut):
        for count, times in ((1, 1), (2, 1), (0xFFFF, 0x1_0000)):
            ctx.set(dut.capture.failed, 1)
            await ctx.tick().repeat(times)
            ctx.set(dut.capture.failed, 0)
            assert (await captured(ctx, dut))[4] == count
        await write(ctx, dut, "error_clear", 0)
        assert (await captured(ctx, dut))[4] == 0

    run(scenario)


def test_the_rest_of_the_captures_reads_0_and_nothing_there_is_written():
    async def scenario(ctx, dut):
        ctx.set(dut.capture.error, error(1, 0))
        ctx.set(dut.bus.write.bar, regs.BAR_DMA[0])
        ctx.set(dut.bus.write.enable, 0xFF)
        ctx.set(dut.bus.write.data, -1)
        ctx.set(dut.bus.write.valid, 1)
        for offset in range(0, 0x100, 4):
            at = regs.CAPTURE.base + offset
            ctx.set(dut.bus.write.address, at >> 3)
            assert not ctx.get(dut.soft_reset | dut.capture.clear | dut.stream_flush.any())
            there = offset % 32 in (register.offset for register in regs.CAPTURE.registers)
            assert bool(await bus_read(ctx, dut.bus, at)) == there
        ctx.set(dut.bus.write.address, regs.EXTENSION.address("error_clear") >> 3)
        assert ctx.get(dut.capture.clear)

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


@pytest.mark.parametrize("tags", [8, 32, 64])
def test_software_reads_which_tags_are_quarantined(tags):
    async def scenario(ctx, dut):
        for tag in range(tags):
            ctx.set(dut.quarantined, 1 << tag)
            assert await read(ctx, dut, "quarantined") == 1 << tag % 32

    run(scenario, tags=tags)


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
