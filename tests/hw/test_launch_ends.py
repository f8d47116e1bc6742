# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues at the core's seam that come to an end: errors, disarming, resets."""

from __future__ import annotations

import pytest

from hw.core import Core, CoreConfig
from hw.pcie.series7.block import SERIES7
from peerdma import regs
from peerdma.regs import ErrorKind, LaunchEnd, LaunchStatus
from tests.hw.helpers import seeded, simulate
from tests.hw.launch_queue import (
    BASE,
    DONE,
    JOBS_DESTINATION,
    JOBS_RAM,
    JOBS_SOURCE,
    LISTS,
    QUEUES,
    SMALL,
    SOURCE,
    LaunchQueue,
    launching,
    prepare,
    word,
)
from tests.hw.seam_model import transfer


def test_errors_drain_until_software_resumes():
    """Later tickets are completed without being started, with their done words; status stays."""
    model = launching()
    queue, other = (LaunchQueue(model, n, QUEUES[n]) for n in range(2))

    async def bench(ctx):
        await model.link_up(ctx)
        good = (BASE + JOBS_SOURCE, JOBS_RAM, 64)
        prepare(model, 1, [good], LISTS, done=BASE + DONE)
        prepare(model, 2, [(BASE, 0x10_0000, 64)], LISTS + 64, done=BASE + DONE + 4)
        prepare(model, 3, [good], LISTS + 128, done=BASE + DONE + 8)
        prepare(model, 4, [good], LISTS + 192, queue=1, done=BASE + DONE + 12)
        prepare(model, 5, [good], LISTS + 192, valid=0, done=BASE + DONE + 16)
        prepare(model, 6, [good], LISTS + 192, channel=1)
        prepare(model, 8, [good], LISTS + 192, pair=1)
        prepare(model, 9, [(JOBS_RAM, BASE, 64)], LISTS + 192, c2h=1, receive=1)
        queue.arm()
        other.arm()
        tickets = queue.submit(1, 2, 3, 5)
        flushed = [LaunchStatus.FLUSHED] * 2
        expected = [LaunchStatus.OK, ErrorKind.DECODE, *flushed]
        assert await queue.wait(ctx, *tickets) == expected
        await ctx.tick().repeat(60)
        assert [word(model, DONE + 4 * n) for n in range(5)] == [1, 1, 1, 0, 0]
        state = await queue.state(ctx)
        assert (state["failed"], state["status"], state["end"]) == (1, ErrorKind.DECODE, 0)
        # The other queue is none the worse for it.
        assert await other.wait(ctx, *other.submit(4)) == [LaunchStatus.OK]
        await ctx.tick().repeat(60)
        assert word(model, DONE + 12) == 1
        model.memory[DONE : DONE + 32] = bytes(32)
        assert await queue.wait(ctx, *queue.submit(1)) == [LaunchStatus.FLUSHED]
        # Not valid, another queue's, and what this core does not have
        for slot in (5, 4, 6, 8, 9):
            queue.resume()
            assert await queue.wait(ctx, *queue.submit(slot)) == [LaunchStatus.SLOT]
        await ctx.tick().repeat(60)
        assert word(model, DONE + 12) == 0, "the done word of another queue's slot was written"
        assert word(model, DONE + 16) == 0, "the done word of a slot that is not valid"
        queue.resume()
        assert await queue.wait(ctx, *queue.submit(3)) == [LaunchStatus.OK]
        assert await model.read(ctx, regs.EXTENSION.address("error_info")) == 0

    simulate(model.core, bench, background=model.benches, cycles=60_000)


def test_disarming_aborts_and_nothing_is_written_after_busy():
    rng, model = seeded(), launching()
    queue = LaunchQueue(model, 0, QUEUES[0])
    to = BASE + JOBS_DESTINATION
    aborted = []

    async def bench(ctx):
        await model.link_up(ctx)
        model.memory[SOURCE : SOURCE + 2048] = b"\xff" * 2048
        filled = [(BASE + SOURCE, 0, 2048)]
        await transfer(ctx, model, c2h=False, descriptors=filled)
        spans = [(256 * n, to + 256 * n, 256) for n in range(8)]
        prepare(model, 0, spans, LISTS, c2h=1, done=BASE + DONE)
        for _ in range(6):
            queue.arm()
            (ticket,) = queue.submit(0)
            # In the middle of the run, then at any time.
            await ctx.tick().repeat(rng.randrange(1, 500) if aborted else 150)
            queue.disarm()
            while (await queue.state(ctx))["busy"]:
                pass
            aborted.append(queue.status(ticket))
            model.memory[JOBS_DESTINATION : JOBS_DESTINATION + 2048] = bytes(2048)
            places = slice(QUEUES[0] + 4096, QUEUES[0] + 4096 + 64)
            before = bytes(model.memory[places])
            await ctx.tick().repeat(200)
            assert not any(model.memory[JOBS_DESTINATION : JOBS_DESTINATION + 2048])
            assert bytes(model.memory[places]) == before
            queue.first = queue.next
        queue.arm()
        assert await queue.wait(ctx, *queue.submit(0)) == [LaunchStatus.OK]

    simulate(model.core, bench, background=model.benches, cycles=60_000)
    assert set(aborted) <= {None, LaunchStatus.OK, LaunchStatus.ABORTED}
    assert LaunchStatus.ABORTED in aborted


def test_bus_master_off_and_a_soft_reset_end_queues():
    model = launching()
    queue = LaunchQueue(model, 0, QUEUES[0])

    async def bench(ctx):
        await model.link_up(ctx)
        spans = [(BASE + JOBS_SOURCE, JOBS_RAM, 1024)] * 16
        prepare(model, 0, spans, LISTS)
        queue.arm()
        await ctx.tick().repeat(20)
        ctx.set(model.seam.link.bus_master, 0)
        queue.submit(0)
        await ctx.tick().repeat(60)
        state = await queue.state(ctx)
        assert (state["end"], state["busy"]) == (LaunchEnd.READ, 0)
        ctx.set(model.seam.link.bus_master, 1)
        queue.disarm()
        queue.first = queue.next
        queue.arm()
        (ticket,) = queue.submit(0)
        await ctx.tick().repeat(300)
        assert (await queue.state(ctx))["busy"]
        model.write(regs.EXTENSION.address("soft_reset"), 1)
        await ctx.tick().repeat(100)
        state = await queue.state(ctx)
        assert (state["armed"], state["busy"], state["end"]) == (0, 0, 0)
        assert queue.status(ticket) is None
        ignored = await queue.read(ctx, "ignored")
        queue.submit(0)
        assert await queue.read(ctx, "ignored") == ignored + 1
        # Slots are still there; the queue has to be set up anew.
        queue.first = queue.next
        queue.arm()
        assert await queue.wait(ctx, *queue.submit(0)) == [LaunchStatus.OK]

    simulate(model.core, bench, background=model.benches, cycles=60_000)


def test_no_record_is_taken_in_the_cycle_of_a_soft_reset():
    """In whichever cycle that is: when the queue is not busy any more, nothing is written for it.

    Nothing leaves the core in between, so that a record that was taken is still there.
    """
    model = launching()
    queue = LaunchQueue(model, 0, QUEUES[0])
    records = set()

    async def bench(ctx):
        await model.link_up(ctx)
        room = model.seam.link.write_room
        prepare(model, 0, [(BASE + JOBS_SOURCE, JOBS_RAM, 4)], LISTS, done=BASE + DONE)
        for delay in range(30, 61):
            queue.arm()
            (ticket,) = queue.submit(0)
            await ctx.tick().repeat(delay)
            model.write(regs.EXTENSION.address("soft_reset"), 1)
            await ctx.tick().repeat(4)
            ctx.set(room, 0)
            await ctx.tick().repeat(10)
            busy, before = (await queue.state(ctx))["busy"], len(model.writes)
            ctx.set(room, 1)
            await ctx.tick().repeat(30)
            assert busy or len(model.writes) == before, f"{delay} cycles behind the doorbell"
            assert not (await queue.state(ctx))["busy"]
            records.add(queue.status(ticket))
            queue.first = queue.next

    simulate(model.core, bench, background=model.benches, cycles=60_000)
    assert records == {None, LaunchStatus.OK}, "before the record, and behind it"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"launch_queues": 3}, "launch_queues must be 0 to 2, not 3"),
        ({"launch_queues": 1, "extension": False}, "need the extension block"),
    ],
)
def test_what_a_core_with_launch_queues_needs(config, message):
    with pytest.raises(ValueError, match=message):
        CoreConfig(**config)


def test_a_core_has_one_other_owner_of_its_channels():
    with pytest.raises(ValueError, match="no port for another owner"):
        Core(SERIES7, SMALL, shared=True)
