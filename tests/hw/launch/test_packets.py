# SPDX-License-Identifier: BSD-2-Clause
"""Tickets that take packets: when they ask for their channel, and how they end."""

from __future__ import annotations

from hw.records import Outcome
from peerdma.regs import LaunchStatus
from tests.hw.helpers import seeded
from tests.hw.launch_world import FLUSH, World

OK, LONG = LaunchStatus.OK, LaunchStatus.LONG


def test_a_ticket_has_its_channel_only_while_a_packet_is_there():
    """Up to its start. It begins no run without one, and other queues' runs go on and overlap."""
    rng = seeded()
    world = World(rng, packets=True, entries=64)
    owner = world.dut.owners[1]
    begun = [0]

    async def watch(ctx):
        async for _, _, starts, receives, there in ctx.tick().sample(
            owner.start & owner.ready, owner.receives, world.dut.packets
        ):
            if starts and receives:
                assert there, "a run began without a packet"
                begun[0] += 1

    async def comes_and_goes(ctx, cycles):
        """A packet is there for so many cycles, then no channel is asked for any more."""
        before = begun[0]
        ctx.set(world.dut.packets, 1)
        await ctx.tick().repeat(cycles)
        ctx.set(world.dut.packets, 0)
        await ctx.tick().repeat(60)
        assert begun[0] > before or not ctx.get(owner.request)

    async def bench(ctx):
        await world.slot(ctx, 0, c2h=1, receive=1, overlap=1)
        await world.slot(ctx, 1, marker=101, c2h=1, overlap=1, queue=1)
        await world.arm(ctx, 0)
        await world.arm(ctx, 1)
        tickets = world.submit(0, *[0] * 40)
        await world.ring(ctx, 0)
        world.lasts.extend([30] * 40)
        others = world.submit(1, *[1] * 8)
        await world.ring(ctx, 1)
        await world.served(ctx, 1, others)
        assert world.most > 2, "runs of the other queue did not overlap"
        assert not (await world.state(ctx, 0))["running"] and not world.records[0]
        # Somebody else has the channel, and the packet.
        world.held.add(1)
        await ctx.tick().repeat(30)
        await comes_and_goes(ctx, 100)
        assert not begun[0]
        world.held.clear()
        for cycles in (*range(1, 14), *range(3, 14), 20, 25, 80):
            world.late.extend([10] * rng.randrange(2))
            await comes_and_goes(ctx, cycles)
            world.late.clear()
        assert 0 < begun[0] < len(tickets)
        ctx.set(world.dut.packets, 1)
        await world.served(ctx, 0, tickets)

    world.run(bench, background=(watch,))


def test_a_packet_that_is_too_long_is_its_tickets_error_only():
    """Later ones are started; but not behind one whose flush read has failed as well."""
    world = World(seeded(), packets=True)

    async def bench(ctx):
        ctx.set(world.dut.packets, 1)
        for slot in range(2):
            await world.slot(ctx, slot, c2h=1, receive=1, flush=slot, done=1)
        await world.slot(ctx, 2, c2h=0)
        await world.arm(ctx, 0)
        world.long.extend([False, True, True, False, False])
        tickets = world.submit(0, 0, 1, 0, 2, 1)
        await world.ring(ctx, 0)
        wanted = list(zip(tickets, [OK, LONG, LONG, OK, OK], strict=True))
        await world.until(ctx, lambda: world.records[0] == wanted)
        state = await world.state(ctx, 0)
        assert (state["failed"], state["status"], state["end"]) == (0, 0, 0)
        world.long.append(True)
        world.outcome = lambda address: (
            Outcome.COMPLETION_TIMEOUT if address == FLUSH + 8 else Outcome.OK
        )
        tickets = world.submit(0, 1)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets, Outcome.COMPLETION_TIMEOUT.value)
        assert (await world.state(ctx, 0))["failed"]

    world.run(bench)
