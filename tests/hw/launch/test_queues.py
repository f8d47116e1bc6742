# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues by themselves, between models that take their time, and may fail."""

from __future__ import annotations

import pytest

from hw.launch.sequencer import HOLD
from hw.launch.start import START_TIMEOUT
from hw.launch.work import READS
from hw.records import Outcome
from hw.seam import WIDTHS
from peerdma import regs
from peerdma.regs import LaunchEnd, LaunchStatus
from tests.hw.helpers import seeded
from tests.hw.launch_world import DONE, FLUSH, RINGS, SHADOWS, World, steps
from tests.hw.registers.bus import bus_read, bus_write

OK, FLUSHED = LaunchStatus.OK, LaunchStatus.FLUSHED


async def slots(world, ctx, *, queue=0):
    """Slots 0 to 3: both channels, with and without a flush read, with and without a done word."""
    for slot in range(4):
        await world.slot(
            ctx, slot, c2h=slot & 1, flush=slot >> 1, done=slot & 1, queue=queue, marker=slot
        )


def in_order(world, wanted) -> int:
    """Checks the steps of these (slot, ticket), and how two tickets at work overlap; how many do.

    Runs are in order, and so is what ends a ticket; a ticket ends behind its run, and a run begins
    when the ticket before the one before it has ended.
    """
    log = [each for each in world.log if not (each[0] == "read" and each[1] & ~0xFFF == RINGS[0])]
    kinds = ("run", "ended"), ("read", "write")
    runs, ends = ([(n, each) for n, each in enumerate(log) if each[0] in kind] for kind in kinds)
    overlapping, last = 0, [-1, -1]
    for slot, ticket in wanted:
        expected = steps(slot, ticket, world)
        (begun, first), (ended, second) = runs[:2]
        tail, runs, ends = ends[: len(expected) - 2], runs[2:], ends[len(expected) - 2 :]
        assert [first, second, *(step for _, step in tail)] == expected
        assert last[-2] < begun < ended < tail[0][0]
        overlapping += begun < last[-1]
        last.append(tail[-1][0])
    assert not runs and not ends
    return overlapping


@pytest.mark.parametrize("first", [2**16 - 40, 2**32 - 40])
def test_tickets_go_through_all_steps_in_order_beyond_each_wrap(first):
    """Merged, repeated and reordered doorbells; entries that come after their doorbell."""
    rng = seeded()
    world = World(rng, first=first, entries=16)
    wanted, count = [], 80

    async def bench(ctx):
        await slots(world, ctx)
        await world.arm(ctx, 0)
        while len(wanted) < count:
            some = rng.randrange(1, world.entries + 1)
            chosen = [rng.randrange(4) for _ in range(some)]
            early = rng.random() < 0.3
            if early:
                await world.ring(ctx, 0, world.next[0] + some)
                await ctx.tick().repeat(rng.randrange(1, 100))
            begin = world.next[0]
            tickets = world.submit(0, *chosen)
            for _ in range(rng.randrange(0 if early else 1, 4)):
                await world.ring(ctx, 0, begin + rng.randrange(some + 1) - rng.randrange(20))
            await world.ring(ctx, 0)
            await world.ring(ctx, 0, begin - 3)
            await world.served(ctx, 0, tickets, cycles=9000)
            wanted.extend(zip(chosen, tickets, strict=True))
        await ctx.tick().repeat(50)
        state = await world.state(ctx, 0)
        assert (state["end"], state["failed"], state["busy"]) == (LaunchEnd.NONE, 0, 0)

    world.run(bench, cycles=200_000)
    assert in_order(world, wanted) > count // 10
    assert world.flushed == 0


def test_a_queue_is_busy_until_the_last_of_its_writes():
    """Software that sees it idle may let go of the memory."""
    rng = seeded()
    world = World(rng)
    between = set()
    # Before the record, before the done word, and after each.
    wanted = {(3, 2, False), (3, 3, False), (3, 4, True), (3, 5, True)}

    def tickets():
        """Slots of all kinds; the one with all steps until software came between all of them."""
        yield from (*range(4), *(rng.randrange(4) for _ in range(20)))
        for _ in range(200):
            if wanted <= between:
                return
            yield 3

    def reached():
        """Of the ticket's steps: how many, and whether the last one is still going on."""
        ours = [each for each in world.log if each[1] & ~0xFFF != RINGS[0]]
        return len(ours), world.writing

    async def bench(ctx):
        await slots(world, ctx)
        await world.arm(ctx, 0)
        for slot in tickets():
            (ticket,) = world.submit(0, slot)
            ends = (0, False), (len(steps(slot, ticket, world)), False)
            world.log.clear()
            await world.ring(ctx, 0)
            busy = True
            while busy or reached() != ends[1]:
                before = reached()
                state, at_work = await world.at_work(ctx, 0)
                busy = state["busy"]
                if reached() == before and before not in ends:
                    between.add((slot, *before))
                    assert busy and at_work == [slot]

    world.run(bench)
    assert wanted <= between


@pytest.mark.parametrize("slot", [0, 2])
@pytest.mark.parametrize("failing", [False, True])
def test_the_next_ticket_runs_while_one_waits_for_its_flush_read(failing, slot):
    """Also of the same slot. If the read fails, a ticket that has begun has its own status."""
    world = World(seeded())
    flush, error = FLUSH + 16, Outcome.COMPLETION_TIMEOUT
    world.delays[flush] = 200
    world.outcome = lambda at: error if failing and at == flush else Outcome.OK

    async def bench(ctx):
        await slots(world, ctx)
        await world.arm(ctx, 0)
        tickets = world.submit(0, 2, slot, 0)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: ("ended", 0, slot) in world.log[-2:], cycles=400)
        await world.until(ctx, lambda: [kind for kind, *_ in world.log].count("ended") == 2)
        assert not world.records[0], "the flush read has come back too early for this test"
        state, at_work = await world.at_work(ctx, 0)
        assert (state["busy"], state["failed"], at_work) == (1, 0, [2, slot])
        await world.until(ctx, lambda: len(world.records[0]) == 3)
        await ctx.tick().repeat(50)
        # The same slot has the same read, which fails again.
        own = error.value if failing and slot == 2 else OK
        expected = [error.value, own, FLUSHED] if failing else [OK] * 3
        assert world.records[0] == list(zip(tickets, expected, strict=True))
        runs = [marker for kind, _, marker in world.log if kind == "run"]
        assert runs == [2, slot] + [0] * (not failing)
        state, at_work = await world.at_work(ctx, 0)
        assert (state["busy"], state["failed"], at_work) == (0, failing, [])
        assert state["status"] == (error.value if failing else OK)

    world.run(bench)


@pytest.mark.parametrize(
    ("disarms", "second", "end"),
    [(False, OK, LaunchEnd.RECORD), (True, LaunchStatus.ABORTED, LaunchEnd.NONE)],
    ids=["a lost record", "disarming"],
)
def test_a_queue_that_ends_has_records_of_both_tickets_at_work(disarms, second, end):
    """The one that ends keeps its status, and the one that runs has its own; no other is started.

    Disarming aborts the run. When the queue is not busy, nothing is written any more.
    """
    world = World(seeded())
    world.delays[FLUSH + 24] = 200

    async def bench(ctx):
        await slots(world, ctx)
        await world.arm(ctx, 0)
        if disarms:
            world.ends[0].append(None)
        tickets = world.submit(0, 3, 0, 1)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: ("run", 0, 0) in world.log)
        assert not world.records[0]
        if disarms:
            await world.control(ctx, 0, 0)
        else:
            world.dropped.append(True)
        await world.until(ctx, lambda: len(world.records[0]) == 2)
        while (await world.state(ctx, 0))["busy"]:
            pass
        log = len(world.log)
        await ctx.tick().repeat(300)
        assert len(world.log) == log, "something is written though the queue is not busy"
        assert world.records[0] == list(zip(tickets[:2], (OK, second), strict=True))
        assert in_order_of_kinds(world) == ["run", "ended", "run", "ended", "read"]
        state = await world.state(ctx, 0)
        assert (state["end"], state["busy"]) == (end, 0)
        # A run that was aborted has failed.
        assert state["failed"] == disarms

    world.run(bench)


def in_order_of_kinds(world) -> list[str]:
    """Kinds of the steps but writes and reads of rings."""
    return [
        kind
        for kind, at, _ in world.log
        if kind != "write" and not (kind == "read" and at & ~0xFFF == RINGS[0])
    ]


def test_a_ticket_that_waits_for_a_channel_lets_the_one_before_have_its_record():
    """Its slot is looked up again and again, as another queue has the channel."""
    world = World(seeded())

    async def bench(ctx):
        await slots(world, ctx)
        await world.slot(ctx, 4, queue=1, marker=4, done=1)
        await world.arm(ctx, 0)
        await world.arm(ctx, 1)
        world.ends[0].append(None)
        world.submit(1, 4)
        await world.ring(ctx, 1)
        await world.until(ctx, lambda: ("run", 0, 4) in world.log)
        tickets = world.submit(0, 1, 0)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets[:1])
        await world.until(ctx, lambda: ("write", DONE + 8, 1) in world.log)
        assert [each for each in world.log if each[0] == "run"][1:] == [("run", 1, 1)]

    world.run(bench)


@pytest.mark.parametrize("late", range(START_TIMEOUT - 3, START_TIMEOUT + 4))
def test_a_job_runs_once_however_late_it_starts(late):
    """Where the launch queues gives a start up, none has come; it asks for the channel again."""
    world = World(seeded())

    async def bench(ctx):
        await slots(world, ctx)
        await world.arm(ctx, 0)
        world.late.append(late)
        (ticket,) = world.submit(0, 1)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, [ticket])
        await ctx.tick().repeat(50)
        ours = [each for each in world.log if each[1] & ~0xFFF != RINGS[0]]
        assert ours == steps(1, ticket, world)

    world.run(bench)


def test_queues_go_side_by_side_on_different_channels():
    """And one waits while another one has its channel."""
    rng = seeded()
    world = World(rng)

    async def bench(ctx):
        await world.slot(ctx, 0, marker=100)
        await world.slot(ctx, 1, marker=101, c2h=1, queue=1)
        await world.slot(ctx, 2, marker=102, queue=1)
        await world.arm(ctx, 0)
        await world.arm(ctx, 1)
        world.ends[0].append(None)
        world.submit(0, 0)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: ("run", 0, 100) in world.log)
        tickets = world.submit(1, 1, 1, 2)
        await world.ring(ctx, 1)
        await world.served(ctx, 1, tickets[:2])
        await ctx.tick().repeat(500)
        assert world.records[1][-1][0] == tickets[1] and not world.records[0]
        # The run of the first queue ends, aborted.
        await world.control(ctx, 0, 0)
        await world.served(ctx, 1, tickets)
        assert world.records[0] == [(0, LaunchStatus.ABORTED)]

    world.run(bench)


@pytest.mark.parametrize("busy", [0, 1])
@pytest.mark.parametrize(
    ("kinds", "most"),
    [
        (({}, {}), 2),
        (({"flush": 1}, {"flush": 1}), 2),
        # A copy that waits for one channel gives the other one back for a while.
        (({"pair": 1}, {"pair": 1}), 8),
    ],
)
def test_queues_that_share_a_channel_have_it_in_turn(kinds, most, busy):
    """However many tickets one has, it has at most so many runs before one of the other."""
    world, other, before = World(seeded(), entries=64), 1 - busy, []

    async def bench(ctx):
        for queue, kind in enumerate(kinds):
            for half in range(2):
                slot = 2 * queue + half
                await world.slot(ctx, slot, queue=queue, marker=2 * queue + half, **kind)
            await world.arm(ctx, queue)
        for queue, count in ((busy, 30), (other, 8)):
            await ctx.tick().repeat(200)
            before[:] = world.log
            tickets = world.submit(queue, *[2 * queue] * count)
            await world.ring(ctx, queue)
        await world.served(ctx, other, tickets, cycles=20_000)

    world.run(bench)
    log = world.log[len(before) :]
    order = "".join(str(first // 2) for what, _, first in log if what == "run" and first % 2 == 0)
    assert len(max(order.rstrip(str(busy)).split(str(other)), key=len)) <= most, order


def test_an_entry_that_never_comes_ends_the_queue_and_arming_it_anew_forgets_old_ones():
    world = World(seeded())

    async def bench(ctx):
        await slots(world, ctx)
        await world.arm(ctx, 0)
        # Entries of tickets 0 to 7, of which only the first one is rung.
        await world.ring(ctx, 0, 1)
        await world.served(ctx, 0, world.submit(0, *[3] * 8)[:1])
        assert [each for each in world.log if each[0] == "run"] == [("run", 1, 3)]
        world.next[0] = 1
        await world.disarm(ctx, 0)
        await world.arm(ctx, 0)
        log = len(world.log)
        await world.ring(ctx, 0, 2)
        ended = []

        async def end():
            ended.append((await world.state(ctx, 0))["end"])
            return ended[-1]

        while await end() == LaunchEnd.NONE:
            assert len(ended) < 20_000
        assert ended[-1] == LaunchEnd.ENTRY
        assert {kind for kind, *_ in world.log[log:]} == {"read"}, "an old entry was taken"
        assert len(world.log) - log == READS
        await ctx.tick().repeat(300)
        assert len(world.log) - log == READS
        await world.control(ctx, 0, 0)
        await world.arm(ctx, 0)
        tickets = world.submit(0, 1)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets)

    world.run(bench)


@pytest.mark.parametrize("what", ["ring", "shadow"])
def test_a_failed_read_ends_its_queue_alone(what):
    world = World(seeded())
    failing = RINGS[0] if what == "ring" else SHADOWS[0]

    def outcome(address):
        return Outcome.UNSUPPORTED_REQUEST if address & ~0x3F == failing else Outcome.OK

    world.outcome = outcome

    async def bench(ctx):
        await slots(world, ctx, queue=1)
        await world.arm(ctx, 0, polls=what == "shadow")
        await world.arm(ctx, 1)
        world.submit(0, 0)
        await world.ring(ctx, 0)
        for _ in range(3):
            tickets = world.submit(1, 0, 3)
            await world.ring(ctx, 1)
            await world.served(ctx, 1, tickets)
        await ctx.tick().repeat(200)
        assert (await world.state(ctx, 0))["end"] == LaunchEnd.READ
        assert (await world.state(ctx, 1))["end"] == LaunchEnd.NONE
        reads = [address for kind, address, _ in world.log if kind == "read"]
        assert sum(address & ~0x3F == failing for address in reads) == 1

    world.run(bench)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_shadow_tail_is_polled_while_there_is_nothing_to_do(width):
    """Also where the next ticket's entry is not the first one of a row."""
    rng = seeded()
    world = World(rng, first=1, width=width)

    async def bench(ctx):
        for queue in range(2):
            await world.slot(ctx, queue, queue=queue, marker=queue)
            await world.arm(ctx, queue, polls=1, generation=5 + queue)
        for _ in range(4):
            await ctx.tick().repeat(rng.randrange(1, 200))
            tickets = [world.submit(queue, *[queue] * 2) for queue in range(2)]
            for queue in range(2):
                word = world.next[queue] | 5 + queue << 16
                world.memory[SHADOWS[queue]] = word
            for queue in range(2):
                await world.served(ctx, queue, tickets[queue])
        log = len(world.log)
        await ctx.tick().repeat(1000)
        polls = [address for _, address, _ in world.log[log:]]
        assert set(polls) == set(SHADOWS)
        assert all(polls.count(address) >= 5 for address in SHADOWS)

    world.run(bench)


def test_errors_drain_and_the_first_one_stays():
    world = World(seeded())

    async def bench(ctx):
        await slots(world, ctx)
        await world.arm(ctx, 0)
        world.ends[1].append(Outcome.POISONED)
        tickets = world.submit(0, 0, 1, 2, 3)
        await world.ring(ctx, 0)
        expected = [OK, Outcome.POISONED.value, FLUSHED, FLUSHED]
        wanted = list(zip(tickets, expected, strict=True))
        await world.until(ctx, lambda: world.records[0] == wanted)
        await ctx.tick().repeat(60)
        runs = [each for each in world.log if each[0] == "run"]
        assert runs == [("run", 0, 0), ("run", 1, 1)], "a flushed ticket was started"
        assert world.log[-1] == ("write", DONE + 24, 1)
        state = await world.state(ctx, 0)
        assert (state["failed"], state["status"]) == (1, Outcome.POISONED.value)
        await world.register(ctx, regs.LAUNCH_QUEUE, 0, "resume", 0)
        tickets = world.submit(0, 3)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets)
        state = await world.state(ctx, 0)
        assert (state["failed"], state["status"]) == (0, OK)
        # A flush read that fails: the data may not be there.
        world.outcome = lambda address: (
            Outcome.COMPLETION_TIMEOUT if address == FLUSH + 16 else Outcome.OK
        )
        tickets = world.submit(0, 2)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets, Outcome.COMPLETION_TIMEOUT.value)

    world.run(bench)


def test_a_queue_is_resumed_while_another_one_waits_for_an_entry():
    """However long that takes: software looks whether the queue goes on."""
    world = World(seeded())

    async def bench(ctx):
        await slots(world, ctx)
        for queue in range(2):
            await world.arm(ctx, queue)
        # The slot is another queue's.
        tickets = world.submit(1, 0)
        await world.ring(ctx, 1)
        await world.served(ctx, 1, tickets, LaunchStatus.SLOT)
        world.delays[RINGS[0]] = 1000
        late = world.submit(0, 0)
        await world.ring(ctx, 0)
        await ctx.tick().repeat(100)
        await world.register(ctx, regs.LAUNCH_QUEUE, 1, "resume", 0)
        await ctx.tick().repeat(4)
        state = await world.state(ctx, 1)
        assert (state["failed"], state["status"]) == (0, OK)
        assert not world.records[0], "the entry came too soon"
        await world.served(ctx, 0, late)

    world.run(bench)


@pytest.mark.parametrize("held", [0, 1])
def test_a_copy_gives_back_the_channel_that_somebody_else_needs(held):
    """It has one of the pair for some cycles only, and stays in line for the other one."""
    world = World(seeded())
    counts, waits = [0, 0], []

    async def watch(ctx):
        ports = [world.dut.owners[number] for number in range(2)]
        async for _, _, *granted, wanted in ctx.tick().sample(
            ports[0].granted, ports[1].granted, ports[held].request
        ):
            if held in world.held:
                for number in range(2):
                    counts[number] = counts[number] + 1 if granted[number] else 0
                assert max(counts) <= 2 * HOLD
                waits.append((granted[1 - held], wanted))

    async def bench(ctx):
        await world.slot(ctx, 8, marker=8, pair=1, done=1)
        await world.slot(ctx, 9, marker=9, valid=0)
        await world.arm(ctx, 0)
        world.held.add(held)
        tickets = world.submit(0, 8)
        await world.ring(ctx, 0)
        await ctx.tick().repeat(1000)
        assert [each for each in world.log if each[0] == "run"] == []
        had = [granted for granted, _ in waits]
        assert any(had[200:]) and not all(had[200:])
        assert all(wanted for _, wanted in waits[200:])
        world.held.clear()
        await world.served(ctx, 0, tickets)
        await ctx.tick().repeat(30)
        assert [each for each in world.log if each[0] in ("run", "write")] == [
            ("run", 0, 8),
            ("run", 1, 9),
            ("write", 0x20_0000, 0),
            ("write", DONE + 64, 1),
        ]
        assert world.flushed
        assert not any(ctx.get(owner.request) for owner in world.dut.owners)

    world.run(bench, background=[watch])


@pytest.mark.parametrize("failing", [0, 1])
def test_when_one_half_of_a_copy_fails_the_other_is_aborted(failing):
    world = World(seeded())

    async def bench(ctx):
        await world.slot(ctx, 0, marker=10, pair=1)
        await world.slot(ctx, 1, marker=11, valid=0)
        await world.arm(ctx, 0)
        world.ends[failing].append(Outcome.DECODE)
        world.ends[1 - failing].append(None)
        tickets = world.submit(0, 0)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets, Outcome.DECODE.value)
        await ctx.tick().repeat(50)
        for number in range(2):
            assert not ctx.get(world.dut.owners[number].request)

    world.run(bench)


def test_the_eighth_word_of_a_slot_is_not_the_queues():
    """Software that fills all of a slot does not change a queue, and what is prepared reads 0."""
    world = World(seeded())

    async def bench(ctx):
        await world.slot(ctx, 0)
        await world.arm(ctx, 0)
        for number in range(regs.LAUNCH_SLOTS):
            for half in (0x38, 0x3C):
                place = regs.LAUNCH_SLOT.base + regs.LAUNCH_SLOT.stride * number + half
                await bus_write(ctx, world.dut.bus, place, 0xFFFF_FFFF)
        tickets = world.submit(0, 0)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets)
        for block, name in ((regs.LAUNCH_SLOT, "control"), (regs.LAUNCH_QUEUE, "ring_lo")):
            assert await bus_read(ctx, world.dut.bus, block.address(name)) == 0

    world.run(bench)
