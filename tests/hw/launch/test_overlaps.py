# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues whose tickets' runs overlap, on one channel or on a pair."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hw.channel.signatures import RUNS
from hw.records import Outcome
from peerdma import regs
from peerdma.regs import LaunchStatus
from tests.hw.helpers import seeded
from tests.hw.launch_world import DONE, RINGS, World, steps

OK, FLUSHED = LaunchStatus.OK, LaunchStatus.FLUSHED


async def overlapping(world, ctx):
    """Slots 0 to 3 as `slots` has them, but all may overlap; both queues are armed."""
    for slot in range(4):
        await world.slot(
            ctx, slot, c2h=slot & 1, flush=slot >> 1, done=slot & 1, marker=slot, overlap=1
        )
    for queue in range(2):
        await world.arm(ctx, queue)


@pytest.mark.parametrize("first", [2**16 - 60, 2**32 - 60])
def test_runs_that_may_overlap_do_so_on_one_channel_and_end_in_order(first):
    rng = seeded()
    world = World(rng, first=first, entries=32)
    wanted = []

    def begun():
        return [kind for kind, *_ in world.log].count("run")

    def finished():
        """Tickets with all of their writes, of which one may be under way."""
        last = [at for kind, at, _ in world.log if kind == "write"][-1:]
        owes = last and last[0] < DONE and wanted[len(world.records[0]) - 1][0] & 1
        return len(world.records[0]) - bool(owes)

    async def at_work_is_shown(ctx):
        """Each ticket that is at work before and after software has looked is in its place."""
        from_to = finished() - world.writing, begun()
        state, slots = await world.at_work(ctx, 0)
        oldest = (state["place"] - state["recorded"] - first - from_to[0]) % 8 + from_to[0]
        assert oldest <= finished()
        shown = range(finished(), from_to[1])
        assert slots[shown.start - oldest :][: len(shown)] == [wanted[n][0] for n in shown]
        return len(shown)

    async def bench(ctx):
        await overlapping(world, ctx)
        seen = set()
        # As many as there can be at once; then any.
        world.lasts.extend([300] * RUNS)
        while len(wanted) < 150:
            channel, count = rng.randrange(2), rng.randrange(1 if wanted else RUNS + 2, 25)
            chosen = [2 * rng.randrange(2) + channel for _ in range(count)]
            tickets = world.submit(0, *chosen)
            wanted.extend(zip(chosen, tickets, strict=True))
            await world.ring(ctx, 0)
            left = rng.choice((0, 7))
            while len(wanted) - len(world.records[0]) > left:
                seen.add(await at_work_is_shown(ctx))
        assert max(seen) > 5
        await world.served(ctx, 0, tickets, cycles=9000)
        await ctx.tick().repeat(60)
        state, at_work = await world.at_work(ctx, 0)
        assert (state["busy"], at_work) == (0, [])

    world.run(bench, cycles=200_000)
    assert world.most == RUNS
    assert world.records[0] == [(ticket, OK) for _, ticket in wanted]
    # Runs begin and end in order; the rest of a ticket's steps follows its end, and is in order.
    steps_of = [steps(slot, ticket, world) for slot, ticket in wanted]
    log = [each for each in world.log if not (each[0] == "read" and each[1] & ~0xFFF == RINGS[0])]
    for kinds in (("run",), ("ended",), ("read", "write")):
        expected = [step for each in steps_of for step in each if step[0] in kinds]
        assert [step for step in log if step[0] in kinds] == expected
    begins, ends, writes = (
        [n for n, (kind, at, _) in enumerate(log) if kind == which and at >> 16 in places]
        for which, places in (("run", (0,)), ("ended", (0,)), ("write", (0x20, 0x21)))
    )
    assert all(map(int.__lt__, begins, ends)) and all(map(int.__lt__, ends, writes))
    # Those of another channel begin when all before have ended.
    for n, (before, after) in enumerate(pairwise(wanted)):
        assert (before[0] - after[0]) % 2 == 0 or ends[n] < begins[n + 1]


def test_a_run_that_stands_still_keeps_no_other_slot_at_work():
    """Software that has invalidated a slot waits for its tickets alone."""
    world = World(seeded())

    async def bench(ctx):
        await overlapping(world, ctx)
        world.ends[0].extend([Outcome.OK, None, None])
        tickets = world.submit(0, 0, 2, 2)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: world.log.count(("run", 0, 2)) == 2)
        await world.served(ctx, 0, tickets[:1])
        await world.slot(ctx, 0, valid=0)
        await ctx.tick().repeat(20)
        assert (await world.at_work(ctx, 0))[1] == [2, 2]
        await world.disarm(ctx, 0)

    world.run(bench)


def test_runs_behind_one_that_fails_are_aborted_and_later_ones_not_started():
    world = World(seeded(), entries=16)

    async def bench(ctx):
        await overlapping(world, ctx)
        world.lasts.extend([400, 500, 500, 500])
        world.ends[0].extend([Outcome.OK, Outcome.POISONED])
        tickets = world.submit(0, 0, 0, 0, 0)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: world.most == 4)
        assert (await world.at_work(ctx, 0))[1] == [0] * 4
        tickets += world.submit(0, *[1] * 3)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: len(world.records[0]) == 7)
        aborted = [LaunchStatus.ABORTED] * 2
        statuses = [OK, Outcome.POISONED.value, *aborted, *[FLUSHED] * 3]
        assert world.records[0] == list(zip(tickets, statuses, strict=True))
        assert [kind for kind, *_ in world.log].count("run") == 4
        state = await world.state(ctx, 0)
        assert (state["failed"], state["status"]) == (1, Outcome.POISONED.value)
        await world.register(ctx, regs.LAUNCH_QUEUE, 0, "resume", 0)
        again = world.submit(0, 0, 0)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, again)

    world.run(bench)


@pytest.mark.parametrize("pair", [0, 1])
def test_disarming_aborts_all_runs_that_overlap(pair):
    world = World(seeded(), entries=16)

    async def bench(ctx):
        await overlapping(world, ctx)
        await world.slot(ctx, 0, pair=pair, overlap=1)
        for ends in world.ends.values():
            ends.extend([None] * RUNS)
        tickets = world.submit(0, *[0] * 10)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: world.most == RUNS)
        await ctx.tick().repeat(300)
        assert world.most == RUNS and not world.records[0]
        await world.disarm(ctx, 0)
        assert world.records[0] == [(ticket, LaunchStatus.ABORTED) for ticket in tickets[:RUNS]]
        log = len(world.log)
        await ctx.tick().repeat(300)
        assert len(world.log) == log, "something is written though the queue is not busy"

    world.run(bench)


def test_a_run_overlaps_only_with_those_that_may():
    world = World(seeded(), entries=16)

    async def bench(ctx):
        await overlapping(world, ctx)
        await world.slot(ctx, 6, marker=6, overlap=0)
        world.lasts.extend([300] * 8)
        tickets = world.submit(0, 0, 0, 6, 6, 0, 0)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets)

    world.run(bench)
    steps = [(kind, at) for kind, channel, at in world.log if kind in ("run", "ended")]
    for n, (kind, at) in enumerate(steps):
        if (kind, at) == ("run", 6):
            begun, ended = (
                [each for each, _ in steps[:n]].count(each) for each in ("run", "ended")
            )
            assert begun == ended
    assert world.most == 2


def test_runs_that_overlap_leave_their_channel_to_a_queue_that_waits_for_it():
    world = World(seeded(), entries=32)

    async def bench(ctx):
        await overlapping(world, ctx)
        await world.slot(ctx, 4, queue=1, marker=4, overlap=1)
        # There would always be some under way.
        world.lasts.extend([200] * 33)
        tickets = world.submit(0, *[0] * 32)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: world.most == RUNS)
        others = world.submit(1, 4)
        await world.ring(ctx, 1)
        await world.served(ctx, 1, others)
        await world.served(ctx, 0, tickets)

    world.run(bench)
    runs = [marker for what, _, marker in world.log if what == "run"]
    assert runs.index(4) <= RUNS + 1


async def copies(world, ctx):
    """Slots 0 and 2 are copies that may overlap, that in 4 is one that may not.

    Slots 6 and 7 are for one channel each, and may. Queue 0 is armed.
    """
    for slot in (0, 2, 4):
        await world.slot(
            ctx, slot, pair=1, overlap=slot != 4, flush=slot == 2, done=slot == 2, marker=slot
        )
        await world.slot(ctx, slot + 1, valid=0, marker=slot + 1)
    for slot in (6, 7):
        await world.slot(ctx, slot, c2h=slot & 1, overlap=1, marker=slot)
    await world.arm(ctx, 0)


def parts(slot: int) -> list[tuple[int, int]]:
    """Channel and marker of each run of a ticket for one of `copies`' slots."""
    return [(slot & 1, slot)] if slot > 5 else [(0, slot), (1, slot + 1)]


def test_copies_that_may_overlap_do_so_on_both_channels_and_end_in_order():
    rng = seeded()
    world = World(rng, entries=32)
    wanted = []

    def under_way():
        kinds = [kind for kind, *_ in world.log]
        return kinds.count("run") - kinds.count("ended")

    async def flushes(ctx):
        async for _, _, flush in ctx.tick().sample(world.dut.flush):
            assert not flush or not under_way()

    async def bench(ctx):
        await copies(world, ctx)
        # As many as there can be at once; then any.
        world.lasts.extend([500] * 2 * RUNS)
        while len(wanted) < 120:
            count = rng.randrange(1 if wanted else RUNS + 2, 25)
            chosen = rng.choices((0, 2, 4, 6, 7), (6, 4, 1, 1, 1), k=count)
            if not wanted:
                chosen[:RUNS] = [0] * RUNS
            tickets = world.submit(0, *chosen)
            wanted.extend(zip(chosen, tickets, strict=True))
            await world.ring(ctx, 0)
            left = rng.choice((0, 7))
            while len(wanted) - len(world.records[0]) > left:
                await ctx.tick()
        await world.served(ctx, 0, tickets, cycles=9000)
        await ctx.tick().repeat(60)

    world.run(bench, background=[flushes], cycles=200_000)
    assert world.most == RUNS
    assert world.records[0] == [(ticket, OK) for _, ticket in wanted]
    log = list(enumerate(world.log))
    places = {}
    for kind in ("run", "ended"):
        for channel in (0, 1):
            found = [(n, at) for n, (what, where, at) in log if (what, where) == (kind, channel)]
            expected = [part[1] for slot, _ in wanted for part in parts(slot) if part[0] == channel]
            assert [at for _, at in found] == expected
            places[kind, channel] = iter([n for n, _ in found])
    begins, ends = (
        [[next(places[kind, channel]) for channel, _ in parts(slot)] for slot, _ in wanted]
        for kind in ("run", "ended")
    )
    records = [n for n, (kind, at, _) in log if kind == "write" and at < DONE]
    assert all(max(each) < record for each, record in zip(ends, records, strict=True))
    pairs = zip(pairwise(wanted), pairwise(ends), pairwise(begins), strict=True)
    together = 0
    for ((before, _), (after, _)), (ended, _), (_, begun) in pairs:
        together += min(begun) < max(ended)
        may = {before, after} <= {0, 2} or before == after > 5
        assert min(begun) > max(ended) or may
    assert together > 30


@pytest.mark.parametrize("failing", [0, 1])
def test_copies_before_one_that_fails_come_to_their_end(failing):
    """And those behind it that have begun are aborted, on both channels."""
    world = World(seeded(), entries=16)

    async def bench(ctx):
        await copies(world, ctx)
        # The first one's bytes are on their way from the board when the second one fails.
        world.lasts.extend([400, 900] * 4)
        world.ends[failing].extend([Outcome.OK, Outcome.POISONED])
        tickets = world.submit(0, 0, 0, 0, 0)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: world.log.count(("run", 1, 1)) == 4)
        tickets += world.submit(0, 6)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: len(world.records[0]) == 5)
        aborted = [LaunchStatus.ABORTED] * 2
        statuses = [OK, Outcome.POISONED.value, *aborted, FLUSHED]
        assert world.records[0] == list(zip(tickets, statuses, strict=True))
        assert not any(ctx.get(owner.request) for owner in world.dut.owners)
        await world.register(ctx, regs.LAUNCH_QUEUE, 0, "resume", 0)
        again = world.submit(0, 0, 0, 7)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, again)

    world.run(bench)


def test_both_halves_of_a_copy_begin_when_one_has():
    """Though none may begin behind others any more, as software waits for C2H's channel."""
    world = World(seeded(), entries=32)
    followed = []

    async def software(ctx):
        first, second = world.dut.owners
        begins = first.ready & first.start & first.started
        while True:
            while not (await ctx.tick().sample(begins))[2]:
                pass
            world.closed |= {0, 1}
            world.held.add(1)
            followed.append(world.log.count(("run", 1, 1)))
            await ctx.tick().until(~second.started)
            await ctx.tick().repeat(50)  # its run
            world.closed.clear()
            world.held.clear()

    async def bench(ctx):
        await copies(world, ctx)
        world.lasts.extend([300] * 40)
        tickets = world.submit(0, *[0] * 20)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets, cycles=9000)

    world.run(bench, background=[software])
    # One behind another, then the channels are given back.
    assert world.most == 2
    assert len(followed) == 10
    assert [world.log.count(("run", half, half)) for half in (0, 1)] == [20, 20]
