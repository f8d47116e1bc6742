# SPDX-License-Identifier: BSD-2-Clause
"""What a hostile GPU, or a careless one, can write to launch queues."""

from __future__ import annotations

import pytest

from peerdma import regs
from peerdma.regs import LaunchEnd, LaunchStatus
from tests.hw.helpers import seeded
from tests.hw.launch_world import RINGS, World
from tests.hw.registers.bus import bus_read


@pytest.mark.parametrize(
    "beside", [{"at": 4}, {"at": 8}, {"at": 0xFF8}, {"at": 0x2000}, {"at": -0x1000}, {"bar": 1}]
)
def test_writes_beside_a_doorbell_are_none(beside):
    """What would be a tail that is too far ahead neither ends a queue, nor counts as ignored."""
    world = World(seeded())

    async def bench(ctx):
        await world.slot(ctx, 0)
        await world.arm(ctx, 0)
        for generation in (1, 2):
            await world.ring(ctx, 0, 1000, generation, **beside)
        tickets = world.submit(0, 0)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets)
        state = await world.state(ctx, 0)
        assert state["end"] == LaunchEnd.NONE
        place = regs.LAUNCH_QUEUE.address("ignored", 0)
        assert await bus_read(ctx, world.dut.bus, place) == 0

    world.run(bench)


def test_random_words_of_a_gpu_end_its_queue_and_nothing_else():
    """Doorbells and entries at random: only its own slots run; the other queue has its order."""
    rng = seeded()
    world = World(rng)
    served = []

    async def hostile(ctx):
        await world.arm(ctx, 0)
        tickets = world.submit(0, rng.randrange(4))  # one at least is valid
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets, cycles=20_000)
        for _ in range(12):
            await world.disarm(ctx, 0)
            await world.arm(ctx, 0)
            for _ in range(rng.randrange(1, 30)):
                for place in range(world.entries):
                    ticket = rng.choice((place, place, rng.randrange(8), rng.randrange(2**32)))
                    slot = rng.choice((rng.randrange(4), rng.randrange(8), rng.randrange(2**32)))
                    world.memory[RINGS[0] + 8 * place] = ticket | slot << 32
                generation = rng.choice((0, 1, 1, 1, rng.randrange(2**16)))
                await world.ring(ctx, 0, rng.randrange(12), generation)
                await ctx.tick().repeat(rng.randrange(1, 100))

    async def good(ctx):
        for _ in range(10):
            tickets = world.submit(1, *[rng.randrange(4, 6) for _ in range(3)])
            await world.ring(ctx, 1)
            await world.served(ctx, 1, tickets, cycles=20_000)
            served.extend(tickets)

    async def bench(ctx):
        for slot in range(8):
            await world.slot(ctx, slot, queue=slot >> 2, marker=slot, c2h=slot & 1)
        await world.arm(ctx, 1)
        ready.append(True)
        await hostile(ctx)

    async def other(ctx):
        while not ready:
            await ctx.tick()
        await good(ctx)

    ready = []
    world.run(bench, other, cycles=400_000)
    assert world.records[1] == [(ticket, LaunchStatus.OK) for ticket in served]
    runs = [marker for kind, _, marker in world.log if kind == "run"]
    assert sum(marker >= 4 for marker in runs) == len(served)
    assert any(marker < 4 for marker in runs), "none of the random words was a valid entry"
