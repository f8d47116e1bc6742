# SPDX-License-Identifier: BSD-2-Clause
"""MSI-X: a message per edge of a request, none lost and none twice, whatever is masked when."""

import pytest

from peerdma import regs
from tests.hw.helpers import seeded
from tests.hw.interrupts.msix_bench import CHANNELS, SOURCES, Bench

#: Cycles from a request of a user source to its message at the transmitter, with nobody in the way.
#: That of a channel is there two cycles earlier.
LATENCY = 9


def test_a_message_per_edge_from_each_source():
    bench = Bench()

    async def testbench(ctx):
        expected = []
        for source in range(SOURCES):
            for _ in range(2):
                bench.level(ctx, source, 1)
                await ctx.tick().repeat(LATENCY - 1 - 2 * (source < CHANNELS))
                assert not ctx.get(bench.dut.request.valid)
                await ctx.tick()
                assert ctx.get(bench.dut.request.valid)
                expected.append(source)
                await ctx.tick().repeat(20)
                bench.level(ctx, source, 0)
                await ctx.tick()
        assert bench.sent == expected
        assert await bench.pending(ctx) == 0

    bench.run(testbench)


def test_all_sources_at_once():
    bench = Bench()

    async def testbench(ctx):
        ctx.set(bench.irq.user, 0xFFFF)
        ctx.set(bench.irq.channel, 3)
        await bench.settle(ctx)
        assert bench.sent == list(range(SOURCES))

    bench.run(testbench)


def test_vectors_are_what_the_registers_say():
    bench = Bench()

    async def testbench(ctx):
        await bench.set(ctx, "channel_vector0", 0x1F00)
        await bench.set(ctx, "user_vector3", 0x0500_0000)
        for source in (0, 1, 17):
            bench.level(ctx, source, 1)
            await bench.settle(ctx)
        assert bench.sent == [0, 31, 5]

    bench.run(testbench)


@pytest.mark.parametrize("by", ["vector", "function"])
def test_a_masked_message_waits_in_the_pending_bits(by):
    bench = Bench()

    async def mask(ctx, value):
        if by == "function":
            ctx.set(bench.irq.link.msix_mask, value)
        else:
            for vector in (1, 4, 17):
                await bench.mask(ctx, vector, value)

    async def testbench(ctx):
        await mask(ctx, 1)
        for source in (17, 4, 1):
            bench.level(ctx, source, 1)
        await bench.settle(ctx)
        assert bench.sent == []
        assert await bench.pending(ctx) == 1 << 1 | 1 << 4 | 1 << 17
        await mask(ctx, 0)
        await bench.settle(ctx)
        assert bench.sent == [1, 4, 17]
        assert await bench.pending(ctx) == 0

    bench.run(testbench)


def test_masked_vectors_do_not_hold_up_others():
    bench = Bench()

    async def testbench(ctx):
        for vector in (0, 2, 3):
            await bench.mask(ctx, vector)
            bench.level(ctx, vector, 1)
        await ctx.tick().repeat(40)
        bench.level(ctx, 5, 1)
        await ctx.tick().repeat(LATENCY)
        assert ctx.get(bench.dut.request.valid)
        await ctx.tick().repeat(10)
        await bench.mask(ctx, 2, 0)
        await bench.settle(ctx)
        assert bench.sent == [5, 2]
        assert await bench.pending(ctx) == 1 << 0 | 1 << 3

    bench.run(testbench)


def test_a_request_that_falls_takes_its_message_back():
    bench = Bench()

    async def testbench(ctx):
        for source in (1, 2):
            await bench.mask(ctx, source)
            bench.level(ctx, source, 1)
        await bench.settle(ctx)
        bench.level(ctx, 1, 0)
        await bench.settle(ctx)
        assert await bench.pending(ctx) == 1 << 2
        await bench.set(ctx, "user_enable_w1c", 1)
        await bench.settle(ctx)
        assert await bench.pending(ctx) == 0
        for source in (1, 2):
            await bench.mask(ctx, source, 0)
        await bench.settle(ctx)
        assert bench.sent == []
        await bench.set(ctx, "user_enable_w1s", 1)
        await bench.settle(ctx)
        assert bench.sent == [2]

    bench.run(testbench)


def test_two_sources_of_one_vector_are_pending_until_both_are_satisfied():
    bench = Bench()

    async def testbench(ctx):
        await bench.set(ctx, "channel_vector0", 0x0707)
        await bench.mask(ctx, 7)
        for source in (0, 1):
            bench.level(ctx, source, 1)
        await bench.settle(ctx)
        bench.level(ctx, 0, 0)
        await bench.settle(ctx)
        assert await bench.pending(ctx) == 1 << 7
        await bench.mask(ctx, 7, 0)
        await bench.settle(ctx)
        assert bench.sent == [7]

    bench.run(testbench)


def test_pending_bits_stand_while_their_messages_wait():
    """In every cycle: what is done to one vector or source does not show in the others' bits."""
    rng = seeded()
    bench = Bench()
    every = (1 << SOURCES) - 1

    async def testbench(ctx):
        async def expect(steady, after):
            seen = await bench.watch_pending(ctx, 25 * SOURCES, lambda: rng.random() < 0.7)
            assert len(seen) > 10 * SOURCES
            assert {bits & steady for bits in seen} == {after & steady}
            assert seen[-1] == after

        for source in range(SOURCES):
            await bench.mask(ctx, source)
            bench.level(ctx, source, 1)
        await bench.settle(ctx)
        # Vectors that have no source, or no message.
        for vector, masked in ((30, 1), (30, 0), (31, 1)):
            await bench.mask(ctx, vector, masked)
            await expect(every, every)
        await bench.mask(ctx, 5, 1)
        await expect(every, every)
        for masked in (1, 0):
            ctx.set(bench.irq.link.msix_mask, masked)
            await expect(every, every)
        left = every
        for source in rng.sample(range(SOURCES), 4):
            await bench.mask(ctx, source, 0)
            left &= ~(1 << source)
            await expect(every & ~(1 << source), left)
            assert bench.sent[-1] == source
        for source in rng.sample([n for n in range(SOURCES) if left >> n & 1], 4):
            bench.level(ctx, source, 0)
            left &= ~(1 << source)
            await expect(every & ~(1 << source), left)
        assert len(bench.sent) == 4
        # Software takes many back at once, some of which come again.
        ctx.set(bench.irq.user, 0)
        ctx.set(bench.irq.channel, 0)
        await ctx.tick()
        bench.level(ctx, 9, 1)
        await bench.settle(ctx)
        assert await bench.pending(ctx) & ~(1 << 9) == 0

    bench.run(testbench)


def test_a_source_that_gets_another_vector_leaves_no_pending_bit_behind():
    bench = Bench()

    async def testbench(ctx):
        for vector in (0, 7):
            await bench.mask(ctx, vector)
        bench.level(ctx, 0, 1)
        await bench.settle(ctx)
        assert await bench.pending(ctx) == 1 << 0
        await bench.set(ctx, "channel_vector0", 0x0107)
        await bench.settle(ctx)
        assert await bench.pending(ctx) == 1 << 7
        await bench.mask(ctx, 7, 0)
        await bench.settle(ctx)
        assert bench.sent == [7]
        assert await bench.pending(ctx) == 0

    bench.run(testbench)


def test_a_request_that_falls_while_it_is_looked_at_again():
    """Masks change when it falls, by every few cycles: no bit stays, and no message is lost."""
    rng = seeded()
    bench = Bench()

    async def testbench(ctx):
        for distance in range(-12, 13):
            for vector in (1, 2):
                await bench.mask(ctx, vector)
                bench.level(ctx, vector, 1)
            await bench.settle(ctx)
            sent = len(bench.sent)
            for step in range(-12, 13):
                if step == 0:
                    await bench.mask(ctx, rng.choice((2, 30)), 0)
                else:
                    await ctx.tick()
                if step == distance:
                    bench.level(ctx, 1, 0)
            await bench.settle(ctx)
            assert await bench.pending(ctx) & 1 << 1 == 0, distance
            bench.level(ctx, 1, 1)
            await bench.mask(ctx, 1, 0)
            await bench.mask(ctx, 2, 0)
            await bench.settle(ctx)
            assert sorted(bench.sent[sent:]) == [1, 2], distance
            assert await bench.pending(ctx) == 0, distance
            for vector in (1, 2):
                bench.level(ctx, vector, 0)
            await bench.settle(ctx)

    bench.run(testbench, cycles=200_000)


def test_bus_master_off_sends_nothing_and_loses_nothing():
    bench = Bench()

    async def testbench(ctx):
        ctx.set(bench.irq.link.bus_master, 0)
        for source in (0, 9):
            bench.level(ctx, source, 1)
        await bench.settle(ctx)
        assert bench.sent == []
        ctx.set(bench.irq.link.bus_master, 1)
        await bench.settle(ctx)
        assert bench.sent == [0, 9]

    bench.run(testbench)


@pytest.mark.parametrize("satisfied", [False, True])
def test_a_dropped_message_is_sent_again(satisfied):
    drops = [True, True, False]
    bench = Bench(sink=lambda: (3, drops.pop(0)))

    async def testbench(ctx):
        bench.level(ctx, 3, 1)
        await ctx.tick().repeat(LATENCY)
        if satisfied:
            bench.level(ctx, 3, 0)
        await bench.settle(ctx)
        assert bench.sent == ([] if satisfied else [3])
        assert len(drops) == (2 if satisfied else 0)

    bench.run(testbench)


def test_an_edge_during_its_own_message_makes_another():
    bench = Bench(sink=lambda: (10, False))

    async def testbench(ctx):
        bench.level(ctx, 3, 1)
        await ctx.tick().repeat(LATENCY + 4)
        bench.level(ctx, 3, 0)
        await ctx.tick()
        bench.level(ctx, 3, 1)
        await bench.settle(ctx)
        assert bench.sent == [3, 3]

    bench.run(testbench)


def test_enabling_sends_what_is_requested_by_then():
    bench = Bench()

    async def testbench(ctx):
        ctx.set(bench.irq.link.msix_enable, 0)
        bench.level(ctx, 6, 1)
        await bench.settle(ctx)
        assert bench.sent == []
        ctx.set(bench.irq.link.msix_enable, 1)
        await bench.settle(ctx)
        assert bench.sent == [6]
        await bench.mask(ctx, 7)
        bench.level(ctx, 7, 1)
        await bench.settle(ctx)
        ctx.set(bench.irq.link.msix_enable, 0)
        await ctx.tick()
        assert await bench.pending(ctx) == 0

    bench.run(testbench)


@pytest.mark.parametrize("msi_enable", [0, 1])
def test_the_block_is_not_asked_for_anything_while_msix_is_on(msi_enable):
    bench = Bench()

    async def testbench(ctx):
        ctx.set(bench.irq.link.msi_enable, msi_enable)
        bench.level(ctx, 0, 1)
        for _ in range(100):
            assert not ctx.get(bench.irq.interrupt.valid)
            await ctx.tick()
        assert bench.sent == [0]

    bench.run(testbench)


def test_masks_sweep_across_an_event():
    """Mask, unmask, an edge and software's reads of the table at every distance of each other."""
    rng = seeded()
    bench = Bench(sink=lambda: (rng.randrange(3), False))

    async def testbench(ctx):
        for mask_at in range(LATENCY + 4):
            for unmask_after in range(1, LATENCY + 4):
                edge_at = 3
                sent = len(bench.sent)
                how = rng.choice(("vector", "function"))
                for cycle in range(2 * LATENCY + 10):
                    masked = mask_at <= cycle < mask_at + unmask_after
                    if cycle == edge_at:
                        bench.level(ctx, 4, 1)
                    if how == "function":
                        ctx.set(bench.irq.link.msix_mask, masked)
                        await ctx.tick()
                    elif cycle in (mask_at, mask_at + unmask_after):
                        await bench.mask(ctx, 4, masked)
                    else:
                        ctx.set(bench.dut.bus.read.valid, rng.random() < 0.3)
                        ctx.set(bench.dut.bus.read.address, regs.MSIX_TABLE_OFFSET + 0x48 >> 3)
                        await ctx.tick()
                        ctx.set(bench.dut.bus.read.valid, 0)
                await ctx.tick().repeat(30)
                place = f"{how} mask at {mask_at} for {unmask_after} cycles"
                assert len(bench.sent) == sent + 1, place
                assert await bench.pending(ctx) == 0, place
                bench.level(ctx, 4, 0)
                await ctx.tick().repeat(2)

    bench.run(testbench)


def test_random_edges_and_masks():
    """Every request that stands has had a message after its edge, if its vector is not masked."""
    rng = seeded()
    bench = Bench(sink=lambda: (rng.randrange(20), rng.random() < 0.2))

    async def testbench(ctx):
        masked = [0] * regs.MSIX_ENTRIES
        high, edges = [0] * SOURCES, [0] * SOURCES
        for _ in range(600):
            source = rng.randrange(SOURCES)
            match rng.randrange(4):
                case 0:
                    masked[source] ^= 1
                    await bench.mask(ctx, source, masked[source])
                case 1:
                    ctx.set(bench.irq.link.bus_master, rng.randrange(2))
                case _:
                    high[source] ^= 1
                    edges[source] += high[source]
                    bench.level(ctx, source, high[source])
            await ctx.tick().repeat(rng.randrange(1, 15))
        for source in range(SOURCES):
            assert bench.sent.count(source) <= edges[source]
        # Everything goes once more, and only once.
        ctx.set(bench.irq.link.bus_master, 1)
        for source in range(SOURCES):
            bench.level(ctx, source, 0)
            await bench.mask(ctx, source, 1)
        await bench.settle(ctx)
        assert await bench.pending(ctx) == 0
        sent = len(bench.sent)
        for source in range(SOURCES):
            bench.level(ctx, source, 1)
        await bench.settle(ctx)
        assert len(bench.sent) == sent
        assert await bench.pending(ctx) == (1 << SOURCES) - 1
        for source in range(SOURCES):
            await bench.mask(ctx, source, 0)
        await bench.settle(ctx)
        await bench.settle(ctx)
        assert sorted(bench.sent[sent:]) == list(range(SOURCES))

    bench.run(testbench)
