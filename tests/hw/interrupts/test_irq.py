# SPDX-License-Identifier: BSD-2-Clause
"""The IRQ block: levels become INTx or MSI messages, none lost, none twice."""

import os
import random

import pytest
from amaranth.sim import Simulator

from hw.interrupts.irq import InterruptBlock
from peerdma import regs
from tests.hw.helpers import simulate

#: By source: two channels, and the first and last user source.
VECTORS = {0: 5, 1: 6, 2: 7, 17: 8}


async def write(ctx, dut, name, value):
    offset = regs.IRQ.address(name)
    lane = offset >> 2 & 1
    ctx.set(dut.bus.write.valid, 1)
    ctx.set(dut.bus.write.bar, 1)
    ctx.set(dut.bus.write.address, offset >> 3)
    ctx.set(dut.bus.write.data, value << 32 * lane)
    ctx.set(dut.bus.write.enable, 0xF << 4 * lane)
    await ctx.tick()
    ctx.set(dut.bus.write.valid, 0)


def run(testbench, channels=2):
    dut = InterruptBlock(channels)
    simulator = Simulator(dut)
    simulator.add_clock(8e-9)
    messages = []

    async def body(ctx):
        ctx.set(dut.link.bus_master, 1)
        await testbench(ctx, dut, messages)

    async def sink(ctx):
        ready = random.Random(1)
        while True:
            ctx.set(dut.interrupt.ready, ready.random() < 0.5)
            _, _, valid, taken, payload = await ctx.tick().sample(
                dut.interrupt.valid, dut.interrupt.ready, dut.interrupt.payload
            )
            if valid and taken:
                messages.append(
                    ("msi", payload.vector) if payload.msi else ("intx", payload.asserted)
                )

    simulator.add_testbench(body)
    simulator.add_testbench(sink, background=True)
    simulator.run()


def test_intx_follows_the_level():
    async def testbench(ctx, dut, messages):
        ctx.set(dut.channel, 1)
        await ctx.tick().repeat(20)
        assert messages == []
        await write(ctx, dut, "channel_enable", 3)
        await ctx.tick().repeat(20)
        assert messages == [("intx", 1)]
        ctx.set(dut.channel, 3)
        await ctx.tick().repeat(20)
        ctx.set(dut.channel, 2)
        await ctx.tick().repeat(20)
        assert messages == [("intx", 1)]
        await write(ctx, dut, "channel_enable_w1c", 2)
        await ctx.tick().repeat(20)
        assert messages == [("intx", 1), ("intx", 0)]

    run(testbench)


def test_intx_disable_and_msi_silence_intx():
    async def testbench(ctx, dut, messages):
        ctx.set(dut.link.intx_disable, 1)
        ctx.set(dut.channel, 1)
        await write(ctx, dut, "channel_enable", 3)
        await ctx.tick().repeat(20)
        assert messages == []
        ctx.set(dut.link.intx_disable, 0)
        await ctx.tick().repeat(20)
        assert messages == [("intx", 1)]
        ctx.set(dut.link.msix_enable, 1)
        await ctx.tick().repeat(20)
        ctx.set(dut.channel, 0)
        await ctx.tick().repeat(20)
        assert messages == [("intx", 1)]

    run(testbench)


@pytest.mark.parametrize(("granted", "expected"), [(0, 0), (1, 1), (2, 1), (3, 5), (5, 5)])
def test_msi_vector_is_reduced_to_what_was_granted(granted, expected):
    async def testbench(ctx, dut, messages):
        ctx.set(dut.link.msi_enable, 1)
        ctx.set(dut.link.msi_granted, granted)
        await write(ctx, dut, "channel_vector0", 0x0500)
        await write(ctx, dut, "channel_enable", 3)
        ctx.set(dut.channel, 2)
        await ctx.tick().repeat(20)
        assert messages == [("msi", expected)]

    run(testbench)


def test_msi_on_each_edge_of_request():
    async def testbench(ctx, dut, messages):
        ctx.set(dut.link.msi_enable, 1)
        ctx.set(dut.channel, 1)
        await write(ctx, dut, "channel_enable_w1s", 1)
        await ctx.tick().repeat(20)
        assert messages == [("msi", 0)]
        await write(ctx, dut, "channel_enable_w1c", 1)
        await ctx.tick().repeat(20)
        await write(ctx, dut, "channel_enable_w1s", 1)
        await ctx.tick().repeat(20)
        assert messages == [("msi", 0)] * 2
        ctx.set(dut.channel, 0)
        await ctx.tick()
        ctx.set(dut.channel, 1)
        await ctx.tick().repeat(20)
        assert messages == [("msi", 0)] * 3

    run(testbench)


async def enable_all(ctx, dut):
    """MSI for all sources, with vectors of their own for those of `VECTORS`."""
    ctx.set(dut.link.msi_enable, 1)
    ctx.set(dut.link.msi_granted, 5)
    await write(ctx, dut, "channel_vector0", VECTORS[1] << 8 | VECTORS[0])
    await write(ctx, dut, "user_vector0", VECTORS[2])
    await write(ctx, dut, "user_vector3", VECTORS[17] << 24)
    await write(ctx, dut, "channel_enable", 3)
    await write(ctx, dut, "user_enable", 0xFFFF)
    await ctx.tick().repeat(3)


@pytest.mark.parametrize(("source", "cycles"), [(0, 1), (1, 1), (2, 4), (17, 4)])
def test_cycles_from_an_edge_to_its_msi(source, cycles):
    """With nobody in the way, and only one."""
    dut = InterruptBlock(2)
    signal, bit = (dut.channel, source) if source < 2 else (dut.user, source - 2)

    async def bench(ctx):
        ctx.set(dut.link.bus_master, 1)
        await enable_all(ctx, dut)
        ctx.set(signal, 1 << bit)
        for _ in range(cycles - 1):
            await ctx.tick()
            assert not ctx.get(dut.interrupt.valid)
        await ctx.tick()
        assert ctx.get(dut.interrupt.valid)
        assert ctx.get(dut.interrupt.payload.vector) == VECTORS[source]
        ctx.set(dut.interrupt.ready, 1)
        ctx.set(signal, 0)
        await ctx.tick().repeat(20)
        assert not ctx.get(dut.interrupt.valid)

    simulate(dut, bench)


@pytest.mark.parametrize("other", [0, 2, 17])
def test_an_edge_of_a_channel_waits_for_what_is_owed_already(other):
    """Each message has its own vector, whoever was first."""

    async def testbench(ctx, dut, messages):
        await enable_all(ctx, dut)
        signal, bit = (dut.channel, other) if other < 2 else (dut.user, other - 2)
        for gap in range(8):
            del messages[:]
            ctx.set(signal, 1 << bit)
            for _ in range(gap):
                await ctx.tick()
            ctx.set(dut.channel, ctx.get(dut.channel) | 2)
            await ctx.tick().repeat(30)
            assert sorted(messages) == sorted([("msi", VECTORS[other]), ("msi", VECTORS[1])])
            ctx.set(dut.channel, 0)
            ctx.set(dut.user, 0)
            await ctx.tick().repeat(2)

    run(testbench)


def test_a_channel_whose_request_lasts_a_cycle():
    """It makes one message; none if it has fallen before that could go."""

    async def testbench(ctx, dut, messages):
        ctx.set(dut.link.msi_enable, 1)
        await write(ctx, dut, "channel_enable", 3)
        await ctx.tick().repeat(3)
        ctx.set(dut.channel, 1)
        await ctx.tick()
        ctx.set(dut.channel, 0)
        await ctx.tick().repeat(20)
        assert messages == [("msi", 0)]
        # Held back by Bus Master: it falls before it can go.
        ctx.set(dut.link.bus_master, 0)
        ctx.set(dut.channel, 1)
        await ctx.tick().repeat(5)
        ctx.set(dut.channel, 0)
        await ctx.tick()
        ctx.set(dut.link.bus_master, 1)
        await ctx.tick().repeat(20)
        assert messages == [("msi", 0)]

    run(testbench)


def test_no_msi_while_bus_master_is_off_and_none_lost():
    async def testbench(ctx, dut, messages):
        ctx.set(dut.link.bus_master, 0)
        ctx.set(dut.link.msi_enable, 1)
        ctx.set(dut.channel, 1)
        await write(ctx, dut, "channel_enable", 3)
        await ctx.tick().repeat(20)
        assert messages == []
        ctx.set(dut.link.bus_master, 1)
        await ctx.tick().repeat(20)
        assert messages == [("msi", 0)]

    run(testbench)


def test_every_edge_gives_a_message_for_its_own_vector():
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"SEED={seed}")
    rng = random.Random(seed)

    async def testbench(ctx, dut, messages):
        ctx.set(dut.link.msi_enable, 1)
        ctx.set(dut.link.msi_granted, 5)
        await write(ctx, dut, "channel_vector0", 0x0100)
        for index in range(4):
            base = 2 + 4 * index
            await write(ctx, dut, f"user_vector{index}", sum((base + n) << 8 * n for n in range(4)))
        await write(ctx, dut, "channel_enable", 3)
        await write(ctx, dut, "user_enable", 0xFFFF)
        expected = []
        for _ in range(60):
            source = rng.randrange(18)
            signal, bit = (dut.channel, source) if source < 2 else (dut.user, source - 2)
            ctx.set(signal, 1 << bit)
            expected.append(("msi", source))
            await ctx.tick().repeat(rng.randrange(12, 20))
            ctx.set(signal, 0)
            await ctx.tick().repeat(rng.randrange(1, 3))
        assert messages == expected

    run(testbench)
