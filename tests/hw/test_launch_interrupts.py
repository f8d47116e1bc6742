# SPDX-License-Identifier: BSD-2-Clause
"""Runs of software's that jobs of launch queues interrupt, in the core at the seam."""

from __future__ import annotations

from hw.channel.grant import SHARE
from hw.stream.user_blocks import PassThrough
from peerdma import regs
from peerdma.regs import LaunchStatus
from tests.hw.helpers import seeded, simulate
from tests.hw.launch_queue import (
    BASE,
    DESTINATION,
    HOSTS_RAM,
    JOBS_DESTINATION,
    JOBS_SOURCE,
    LISTS,
    QUEUES,
    SOURCE,
    LaunchQueue,
    launching,
    prepare,
)
from tests.hw.seam_model import finish, start, transfer

WINDOW = regs.STREAM_WINDOW
#: Descriptors from card RAM, and bytes of each: enough for several interruptions.
PARTS, PART = 3 * SHARE // 512, 512


def test_bytes_for_a_c2h_run_that_is_interrupted_are_not_flushed():
    """It moves card RAM's bytes first, and then takes what software's H2C run sent meanwhile.

    That has begun while the C2H run rests, which goes on and rests again.
    """
    rng, model = seeded(), launching(user=PassThrough)
    size, length, tickets = 8, 300, 3
    data, jobs = rng.randbytes(size), rng.randbytes(length)
    queue = LaunchQueue(model, 0, QUEUES[0])

    async def bench(ctx):
        await model.link_up(ctx)
        prepare(model, 8, [(BASE + JOBS_SOURCE, WINDOW, length)], LISTS, pair=1)
        prepare(model, 9, [(WINDOW, BASE + JOBS_DESTINATION, length)], LISTS + 128, valid=0)
        queue.arm()
        await queue.state(ctx)
        model.memory[SOURCE : SOURCE + size] = data
        model.memory[JOBS_SOURCE : JOBS_SOURCE + length] = jobs
        parts = [(HOSTS_RAM, BASE + DESTINATION + size, PART)] * PARTS
        channel = start(model, c2h=True, descriptors=[*parts, (WINDOW, BASE + DESTINATION, size)])
        launched = queue.submit(*[8] * tickets)
        while not resting(ctx, model):
            await ctx.tick()
        await transfer(ctx, model, c2h=False, descriptors=[(BASE + SOURCE, WINDOW, size)], pushed=1)
        assert await finish(ctx, model, channel) == regs.Status.DESCRIPTOR_STOPPED
        assert model.memory[DESTINATION : DESTINATION + size] == data
        assert await queue.wait(ctx, *launched) == [LaunchStatus.OK] * tickets
        assert model.memory[JOBS_DESTINATION : JOBS_DESTINATION + length] == jobs

    # A run whose bytes were flushed waits for ever.
    simulate(model.core, bench, background=model.benches, cycles=5_000)


def resting(ctx, model) -> bool:
    """Software's C2H run waits for the grant of its channel."""
    field = regs.EXTENSION["waits_for"].field("c2h0")
    return field.get(ctx.get(model.core.waits_for)) == regs.WaitsFor.GRANT
