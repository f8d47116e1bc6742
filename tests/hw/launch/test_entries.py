# SPDX-License-Identifier: BSD-2-Clause
"""Doorbells of 64 bits, which bring the entry of their ticket along."""

from __future__ import annotations

import pytest

from hw.launch.entries import BURST, GROUP, EntryStore
from hw.seam import WIDTHS
from peerdma import regs
from peerdma.regs import LaunchEnd, LaunchStatus
from tests.hw.helpers import seeded, simulate, write_of
from tests.hw.launch_world import DONE, RINGS, World
from tests.hw.registers.bus import bus_read

#: Slots of one direction each, so that a run's marker says whose entry was taken.
RINGS_SLOT, DOORBELLS_SLOT = 1, 2


async def arm(world: World, ctx, queue: int = 0, **control):
    for slot in range(4):
        await world.slot(ctx, slot + 4 * queue, marker=slot + 4 * queue, c2h=slot & 1, queue=queue)
    await world.arm(ctx, queue, **control)


def runs(world: World) -> list[int]:
    return [marker for kind, _, marker in world.log if kind == "run"]


def fetches(world: World, queue: int = 0) -> int:
    """How often a queue's ring was read."""
    return sum(kind == "read" and at & ~0xFFF == RINGS[queue] for kind, at, _ in world.log)


@pytest.mark.parametrize("first", [2**16 - 20, 2**32 - 20])
def test_an_entry_that_comes_with_the_doorbell_is_not_read(first):
    """Beyond each wrap, with the whole number in the record."""
    rng = seeded()
    world = World(rng, first=first)
    wanted = []

    async def bench(ctx):
        await arm(world, ctx)
        for _ in range(40):
            slot = rng.randrange(4)
            (ticket,) = world.submit(0, slot)
            await world.ring(ctx, 0, entry=slot)
            await world.served(ctx, 0, [ticket])
            wanted.append((ticket, slot))
            await ctx.tick().repeat(rng.randrange(1, 40))

    world.run(bench)
    assert runs(world) == [slot for _, slot in wanted]
    assert world.records[0] == [(ticket, LaunchStatus.OK) for ticket, _ in wanted]
    assert not fetches(world)


#: The entry of the doorbell is taken; or else the ring's, in which there is another slot.
TAKEN = ["next", "at work", "during a read", "during another queue's read"]
NOT_TAKEN = ["two", "before a read", "repeated", "in two", "half", "ended", "stale"]


@pytest.mark.parametrize("case", TAKEN + NOT_TAKEN)
def test_a_doorbell_brings_the_first_entry_that_is_missing(case):
    """And nothing else."""
    world = World(seeded())

    async def bench(ctx):
        await arm(world, ctx)
        if case == "at work":
            world.lasts.append(400)
            world.submit(0, 0)
            await world.ring(ctx, 0)
            await world.until(ctx, lambda: fetches(world) and ctx.get(world.dut.owners[0].started))
        if case == "during a read":  # which has brought all before, and brings this one, too
            world.pause = 100
            world.submit(0, 0)
            await world.ring(ctx, 0)
            await world.until(ctx, lambda: runs(world))
        if case == "during another queue's read":
            await arm(world, ctx, 1)
            world.delays[RINGS[1]] = 500
            world.submit(1, 4)
            await world.ring(ctx, 1)
            await ctx.tick().repeat(20)
        tickets = world.submit(0, RINGS_SLOT)
        if case == "two":
            tickets += world.submit(0, RINGS_SLOT)
        if case == "before a read":
            world.delays[RINGS[0]] = 200
            await world.ring(ctx, 0)
            tickets += world.submit(0, RINGS_SLOT)
            await ctx.tick().repeat(20)
        if case == "repeated":
            await world.ring(ctx, 0)
        if case == "in two":  # as bridges may break them up
            await world.ring(ctx, 0, DOORBELLS_SLOT, 0, at=4)
            await world.ring(ctx, 0)
        if case == "half":  # of the upper dword
            await world.ring(ctx, 0, entry=DOORBELLS_SLOT, enable=0x3F)
        if case == "ended":
            await world.ring(ctx, 0, world.next[0] + 20)
        if case == "stale":
            await world.ring(ctx, 0, generation=2, entry=DOORBELLS_SLOT)
            await world.ring(ctx, 0)
        if case != "half":
            await world.ring(ctx, 0, entry=DOORBELLS_SLOT)
        if case == "ended":
            await ctx.tick().repeat(300)
            assert (await world.state(ctx, 0))["end"] == LaunchEnd.TAIL
            assert not world.log
            # What came for an ended queue is not the next one's.
            await world.control(ctx, 0, 0)
            world.next[0] = 0
            await world.arm(ctx, 0)
            tickets = world.submit(0, RINGS_SLOT)
            await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets)
        ignored = regs.LAUNCH_QUEUE.address("ignored", 0)
        assert await bus_read(ctx, world.dut.bus, ignored) == (case == "stale")

    world.run(bench)
    before = {"at work": 0, "during a read": 0, "two": RINGS_SLOT, "before a read": RINGS_SLOT}
    wanted = [before[case]] if case in before else []
    wanted += [DOORBELLS_SLOT if case in TAKEN else RINGS_SLOT]
    assert [marker for marker in runs(world) if marker < 4] == wanted
    if case != "during a read":
        assert bool(fetches(world)) == (case in [*NOT_TAKEN, "at work"])


@pytest.mark.parametrize("first", [0, 5, 15, 2**16 - 20])
def test_entries_come_with_doorbells_as_far_as_there_is_room(first):
    """While a ticket runs; those behind are read."""
    world = World(seeded(), entries=64, first=first)
    wanted = [world.rng.randrange(4) for _ in range(40)]
    room = 32 - first % 16

    async def bench(ctx):
        await arm(world, ctx)
        world.lasts.append(1200)
        tickets = []
        for number, slot in enumerate(wanted):
            # What the ring has is not looked at.
            tickets += world.submit(0, slot if number >= room else slot ^ 1)
            await world.ring(ctx, 0, entry=slot)
            await ctx.tick().repeat(world.rng.randrange(1, 20))
        await ctx.tick().repeat(200)
        # When the last ticket of a group has begun, there is room for what is read.
        assert bool(fetches(world)) == (first % 16 == 15)
        await world.served(ctx, 0, tickets, cycles=40_000)
        assert fetches(world)

    world.run(bench)
    assert runs(world) == wanted


def test_an_older_read_that_is_still_under_way_changes_nothing():
    """It brings what the ring had at the place before the entry was written."""
    world = World(seeded())
    world.pause = 200

    async def bench(ctx):
        await arm(world, ctx)
        (ticket,) = world.submit(0, 0)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, [ticket])
        for slot in (2, 3, 1):
            assert not fetches(world)
            (ticket,) = world.submit(0, slot)
            await world.ring(ctx, 0, entry=slot)
            await world.served(ctx, 0, [ticket])
        await world.until(ctx, lambda: fetches(world))
        # What it brought of these places is old by now, and the next ones are read again.
        tickets = world.submit(0, 3, 2)
        await world.ring(ctx, 0)
        await world.served(ctx, 0, tickets)

    world.run(bench)
    assert runs(world) == [0, 2, 3, 1, 3, 2]


def test_a_ticket_is_flushed_and_its_slot_is_checked_as_any_other():
    world = World(seeded())

    async def bench(ctx):
        await arm(world, ctx)
        await world.slot(ctx, 5, marker=5, queue=1, done=1)
        await world.slot(ctx, 6, marker=6, done=1)
        for slot, status in ((5, LaunchStatus.SLOT), (6, LaunchStatus.FLUSHED)):
            (ticket,) = world.submit(0, slot)
            await world.ring(ctx, 0, entry=slot)
            await world.served(ctx, 0, [ticket], status)
        await ctx.tick().repeat(60)
        writes = [at for kind, at, _ in world.log if kind == "write" and at >= DONE]
        assert writes == [DONE + 8 * 6], "the done word of another queue's slot, or none"

    world.run(bench)
    assert runs(world) == []
    assert not fetches(world)


@pytest.mark.parametrize("width", WIDTHS)
def test_doorbells_of_both_widths_in_any_order(width):
    """Two queues, merged, repeated, early and late: each ticket runs once, with its own slot."""
    rng = seeded()
    firsts = rng.sample((0, 1000, 2**16 - 60, 2**32 - 60), 2)
    world = World(rng, entries=rng.choice((8, 16)), width=width)
    world.next = list(firsts)
    wanted, alone = [[], []], [0, 0]

    def producer(queue):
        async def bench(ctx):
            while not armed:
                await ctx.tick()
            # Up to ten times as many, until one came with its doorbell
            while len(wanted[queue]) < (600 if not alone[queue] else 60):
                some = rng.choice((1, 1, 1, rng.randrange(1, world.entries + 1)))
                chosen = [4 * queue + rng.randrange(4) for _ in range(some)]
                begin = world.next[queue]
                if rng.random() < 0.2:
                    await world.ring(ctx, queue, begin + some)
                    await ctx.tick().repeat(rng.randrange(1, 100))
                tickets, before = world.submit(queue, *chosen), fetches(world, queue)
                for _ in range(rng.randrange(3)):
                    back = rng.randrange(some + 1)
                    entry = chosen[back - 1] if back and rng.random() < 0.5 else None
                    await world.ring(ctx, queue, begin + back, entry=entry)
                    await ctx.tick().repeat(rng.randrange(1, rng.choice((3, 60))))
                entry = rng.choice((None, chosen[-1]))
                await world.ring(ctx, queue, entry=entry)
                await world.served(ctx, queue, tickets, cycles=20_000)
                alone[queue] += some == 1 and fetches(world, queue) == before
                wanted[queue] += zip(tickets, chosen, strict=True)

        return bench

    armed = []

    async def setup(ctx):
        for queue in range(2):
            await arm(world, ctx, queue)
        armed.append(True)

    world.run(setup, producer(0), producer(1), cycles=400_000)
    for queue in range(2):
        assert world.records[queue] == [(t, LaunchStatus.OK) for t, _ in wanted[queue]]
        ours = [marker for marker in runs(world) if marker >> 2 == queue]
        assert ours == [slot for _, slot in wanted[queue]]
    assert all(alone), "no entry came with a doorbell"


def test_an_entry_that_was_read_long_ago_is_not_taken():
    """The lower half of its ticket's number comes again when all between came with doorbells."""
    dut, rng = EntryStore(2, 64), seeded()
    ticket, slot = 0x1_0003, 9

    async def pulse(ctx, *ports):
        for port in ports:
            ctx.set(port, 1)
        await ctx.tick()
        for port in ports:
            ctx.set(port, 0)

    async def bench(ctx):
        ctx.set(dut.ticket, ticket & 0xFFFF)
        ctx.set(dut.head[0], ticket & 0xFFFF)
        ctx.set(dut.first, ticket & 0xFFFF)
        await pulse(ctx, dut.load)
        await pulse(ctx, dut.begins)
        entry = (ticket | slot << 32).to_bytes(8, "little")
        ctx.set(dut.placement.payload, write_of(rng, 8 * (ticket % 16), entry))
        await pulse(ctx, dut.placement.valid)
        assert ctx.get(dut.found) and ctx.get(dut.slot) == slot
        before = ticket - 1 & 0xFFFF
        ctx.set(dut.ticket, before)
        ctx.set(dut.head[0], before)
        ctx.set(dut.first, before)
        await pulse(ctx, dut.load)
        ctx.set(dut.last, ticket % 512)
        await pulse(ctx, dut.brings)
        assert ctx.get(dut.found)
        ctx.set(dut.ticket, ticket & 0xFFFF)
        assert not ctx.get(dut.found)

    simulate(dut, bench)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("wrong", [1, 2, 16, -1, -16, 2**15])
def test_what_a_read_brings_counts_up_to_the_first_that_is_wrong(wrong, width):
    """It is read again from there on; what came behind it does not count, whatever it is."""
    dut, rng = EntryStore(2, width), seeded()
    first, bad, columns = 0xFFF8, 3, width // 64

    async def bench(ctx):
        ctx.set(dut.queue, 1)
        ctx.set(dut.reader, 1)
        ctx.set(dut.ticket, first)
        ctx.set(dut.first, first)
        ctx.set(dut.load, 2)
        await ctx.tick()
        ctx.set(dut.load, 0)
        for begin, known in ((0, bad), (bad, 8)):
            ctx.set(dut.begins, 1)
            await ctx.tick()
            ctx.set(dut.begins, 0)
            numbers = {place: first + place for place in range(begin, 8)}
            if known == bad:
                numbers |= {bad: first + bad + wrong, bad + 2: first + bad}
            for at in range(begin, 8, columns):
                beat = b"".join(
                    (numbers[place] & 0xFFFF | (first + place) % 64 << 32).to_bytes(8, "little")
                    for place in range(at, min(at + columns, 8))
                )
                place = 8 * ((first + at) % 16)
                ctx.set(dut.placement.payload, write_of(rng, place, beat, width))
                ctx.set(dut.placement.valid, 1)
                await ctx.tick()
            ctx.set(dut.placement.valid, 0)
            assert ctx.get(dut.next) == (first + known) & 0xFFFF
        for ticket in range(first, first + 8):
            ctx.set(dut.ticket, ticket)
            assert ctx.get(dut.found) and ctx.get(dut.slot) == ticket % 64
        ctx.set(dut.ticket, 0)
        assert not ctx.get(dut.found)

    simulate(dut, bench)


@pytest.mark.parametrize("width", WIDTHS)
def test_beats_and_doorbells_bring_the_entry_that_is_missing_and_those_behind_it(width):
    """Against a model: any entries, and in lanes that a beat does not have ones that would fit."""
    dut, rng, columns = EntryStore(2, width), seeded(), width // 64
    #: the oldest ticket of each queue, and what is there of it and those behind
    oldest = [rng.randrange(2**16) for _ in range(2)]
    there = [[], []]
    taken = {"beats": set(), "doorbells": 0}

    def missing(queue):
        return oldest[queue] + len(there[queue]) & 0xFFFF

    def room(queue):
        return (missing(queue) // GROUP - oldest[queue] // GROUP) % 4 < 2

    def word(number):
        """An entry, and what is kept of it."""
        slot, upper = rng.randrange(64), rng.randrange(2**16)
        high = slot | rng.getrandbits(26) << 6
        return number & 0xFFFF | upper << 16 | high << 32, (slot, upper)

    async def same(ctx):
        """The store has what the model has."""
        for queue, kept in enumerate(there):
            ctx.set(dut.queue, queue)
            assert ctx.get(dut.next) == missing(queue)
            for place in {0, rng.randrange(len(kept) + 1), len(kept) - 1, len(kept)} - {-1}:
                ctx.set(dut.ticket, oldest[queue] + place & 0xFFFF)
                assert ctx.get(dut.found) == (place < len(kept))
                if place < len(kept):
                    assert (ctx.get(dut.slot), ctx.get(dut.upper)) == kept[place]

    async def doorbell(ctx, queue, but=None):
        """Of the ticket that is missing, or of another one; none where `but` says so."""
        expected = missing(queue)
        ticket = expected + rng.choice((0, 0, 0, 1, -1, rng.randrange(2**16))) & 0xFFFF
        if ticket == but:
            return
        kept = word(ticket)[1]
        ctx.set(dut.rung, queue)
        ctx.set(dut.last, (ticket + 1) % 512)
        ctx.set(dut.brought, {"ticket": kept[1], "slot": kept[0]})
        ctx.set(dut.brings, 1)
        if ticket % 512 == expected % 512 and room(queue):
            there[queue].append(kept)
            taken["doorbells"] += 1
        await ctx.tick()
        ctx.set(dut.brings, 0)

    async def beat(ctx, queue, at, end):
        """Entries of the tickets from `at` up to that before `end`."""
        expected, wanted = missing(queue), len(there[queue])
        lanes = [word(expected + rng.randrange(columns))[0] for _ in range(columns)]
        enable = [0, 0]
        for ticket in range(at, end):
            number = ticket + rng.choice((0,) * 9 + (1, -1, GROUP, -GROUP, rng.randrange(2**16)))
            entry, kept = word(number)
            place = ticket % GROUP
            lanes[place % columns] = entry
            enable[place // columns % 2] |= 0xFF << 8 * (place % columns)
            if ticket & 0xFFFF == missing(queue) and number & 0xFFFF == missing(queue):
                there[queue].append(kept)
        first = at % GROUP // columns
        ctx.set(
            dut.placement.payload,
            {
                "rows": [(first + 1) // 2, first // 2],
                "enable": enable,
                "data": sum(lane << 64 * number for number, lane in enumerate(lanes)),
            },
        )
        ctx.set(dut.placement.valid, 1)
        # One that is missing is there in the cycle in which it comes.
        ctx.set(dut.queue, queue)
        ctx.set(dut.ticket, expected)
        found = len(there[queue]) > wanted
        assert ctx.get(dut.found) == found
        if found:
            assert ctx.get(dut.slot) == there[queue][wanted][0]
        taken["beats"].add(len(there[queue]) - wanted)
        await ctx.tick()
        ctx.set(dut.placement.valid, 0)

    async def bench(ctx):
        for queue in range(2):
            ctx.set(dut.first, oldest[queue])
            ctx.set(dut.load, 1 << queue)
            await ctx.tick()
        ctx.set(dut.load, 0)
        for _ in range(120):
            for queue in range(2):
                done = rng.randrange(len(there[queue]) + 1)
                del there[queue][:done]
                oldest[queue] = oldest[queue] + done & 0xFFFF
                ctx.set(dut.head[queue], oldest[queue])
            queue = rng.randrange(2)
            if not room(queue):
                continue
            ctx.set(dut.queue, queue)
            ctx.set(dut.reader, queue)
            ctx.set(dut.begins, 1)
            await ctx.tick()
            ctx.set(dut.begins, 0)
            begin = at = missing(queue)
            end = begin - begin % GROUP + min(begin % GROUP + BURST, GROUP)
            while at < end:
                if rng.random() < 0.2:
                    # None has the entry with which a read begins.
                    await doorbell(ctx, rng.randrange(2), begin)
                # A completion ends at multiples of 64 bytes.
                count = min(columns, end - at, 8 - at % 8)
                await beat(ctx, queue, at, at + count)
                await same(ctx)
                at += count

    simulate(dut, bench)
    assert taken["beats"] == set(range(columns + 1))
    assert taken["doorbells"]


@pytest.mark.parametrize("first", [0, 5, 2**16 - 20])
def test_entries_are_read_ahead_as_far_as_there_is_room(first):
    """While a ticket runs; up to the group behind that of the next one, and each once."""
    world = World(seeded(), entries=64, first=first)
    wanted = [world.rng.randrange(4) for _ in range(60)]

    async def bench(ctx):
        await arm(world, ctx)
        world.lasts.append(1500)
        tickets = world.submit(0, *wanted)
        await world.ring(ctx, 0)
        await ctx.tick().repeat(1200)
        reads = [length for kind, at, length in world.log if kind == "read" and at >> 16 == 0x10]
        assert sum(reads) == 8 * (33 - (first + 1) % 16)
        await world.served(ctx, 0, tickets, cycles=40_000)
        reads = [length for kind, at, length in world.log if kind == "read" and at >> 16 == 0x10]
        assert sum(reads) <= 8 * (len(wanted) + 8)

    world.run(bench)
    assert runs(world) == wanted


def test_while_a_ticket_with_a_flush_read_runs_entries_are_read_if_none_is_left():
    """Both reads go the same way: of those that are there, the flush read comes first."""
    world = World(seeded(), entries=16)

    async def bench(ctx):
        await world.slot(ctx, 0, flush=1)
        await world.arm(ctx, 0)
        world.lasts.extend([100] * 7 + [600])
        tickets = world.submit(0, *[0] * 12)
        await world.ring(ctx, 0)
        await world.until(ctx, lambda: len(runs(world)) == 8)
        assert fetches(world) == 1
        await ctx.tick().repeat(300)
        assert fetches(world) == 2
        assert len(runs(world)) == 8
        await world.served(ctx, 0, tickets)
        assert fetches(world) == 2

    world.run(bench)
