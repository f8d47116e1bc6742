# SPDX-License-Identifier: BSD-2-Clause
"""The core at the seam, with copies that launch queues start beside those of software."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hw.stream.user_blocks import PassThrough
from peerdma import regs
from peerdma.regs import ErrorKind, LaunchStatus
from tests.hw.helpers import seeded, simulate
from tests.hw.launch_queue import (
    BASE,
    DESTINATION,
    DONE,
    HOSTS_RAM,
    JOBS_DESTINATION,
    JOBS_SOURCE,
    LISTS,
    QUEUES,
    SOURCE,
    LaunchQueue,
    launching,
    prepare,
    word,
)
from tests.hw.seam_model import finish, start, transfer

WINDOW = regs.STREAM_WINDOW


def test_copies_through_the_stream_beside_those_of_software():
    """Neither waits for ever, and bytes that software has left in the pair are not in a copy."""
    rng, model = seeded(), launching(user=PassThrough)
    size = 400
    taken = [(WINDOW, BASE + DESTINATION, size)]
    queue = LaunchQueue(model, 0, QUEUES[0])
    launched = []

    async def run(ctx, c2h, source, destination):
        found = await transfer(ctx, model, c2h=c2h, descriptors=[(source, destination, size)])
        assert found == regs.Status.DESCRIPTOR_STOPPED

    async def host(ctx):
        await model.link_up(ctx)
        at = BASE + JOBS_SOURCE
        to = BASE + JOBS_DESTINATION
        prepare(model, 8, [(at, WINDOW, size)], LISTS, pair=1, flush=to, done=BASE + DONE)
        prepare(model, 9, [(WINDOW, to, size)], LISTS + 128, valid=0)
        queue.arm()
        await run(ctx, False, BASE + SOURCE, WINDOW)  # what it leaves there is dropped
        for turn in range(4):
            data, jobs = rng.randbytes(size), rng.randbytes(size)
            model.memory[SOURCE : SOURCE + size] = data
            model.memory[JOBS_SOURCE : JOBS_SOURCE + size] = jobs
            model.memory[DONE : DONE + 4] = bytes(4)
            channel = start(model, c2h=True, descriptors=taken) if turn else None
            (ticket,) = queue.submit(8)
            await ctx.tick().repeat(rng.randrange(1, 200))
            if turn:
                # Software's C2H run has the channel already, and waits for the bytes of this one.
                await run(ctx, False, BASE + SOURCE, WINDOW)
                await finish(ctx, model, channel)
                assert model.memory[DESTINATION : DESTINATION + size] == data
            assert await queue.wait(ctx, ticket) == [LaunchStatus.OK]
            assert model.memory[JOBS_DESTINATION : JOBS_DESTINATION + size] == jobs
            await ctx.tick().repeat(60)
            assert word(model, DONE) == 1
            launched.append(ticket)

    simulate(model.core, host, background=model.benches, cycles=60_000)
    assert launched == list(range(4))


def test_a_copy_of_softwares_keeps_its_bytes_while_its_c2h_run_waits():
    """They come in as soon as a launched copy has sent its own, and the next one could flush."""
    rng, model = seeded(), launching(user=PassThrough)
    size, tickets = 8, 4
    taken = [(WINDOW, BASE + DESTINATION, size)]
    data = rng.randbytes(size)
    queue = LaunchQueue(model, 0, QUEUES[0])

    async def bench(ctx):
        await model.link_up(ctx)
        to = BASE + JOBS_DESTINATION
        prepare(model, 8, [(BASE + JOBS_SOURCE, WINDOW, 900)], LISTS, pair=1)
        prepare(model, 9, [(WINDOW, to, 900)], LISTS + 128, valid=0)
        model.memory[SOURCE : SOURCE + size] = data
        queue.arm()
        await queue.state(ctx)
        # The queue's turn begins on the channel to the host, and not on the other one.
        await transfer(ctx, model, c2h=True, descriptors=[(HOSTS_RAM, BASE + DESTINATION, size)])
        launched = queue.submit(*[8] * tickets)
        await ctx.tick().repeat(rng.randrange(1, 100))
        channel = start(model, c2h=True, descriptors=taken)
        await transfer(ctx, model, c2h=False, descriptors=[(BASE + SOURCE, WINDOW, size)], pushed=1)
        assert queue.status(launched[-1]) is None, "it came behind all copies"
        await finish(ctx, model, channel)
        assert model.memory[DESTINATION : DESTINATION + size] == data
        assert await queue.wait(ctx, *launched) == [LaunchStatus.OK] * tickets

    simulate(model.core, bench, background=model.benches, cycles=20_000)


def overlapping_copies(model, rng, *, count: int = 4, **control) -> list[tuple[int, int]]:
    """Copies of any length in slots 0, 2, ..., that may overlap; where each begins, and its bytes.

    Each half is a list of its own form.
    """
    places, at = [], 0
    for slot in range(0, 2 * count, 2):
        size = rng.randrange(2, 1000)
        for half in range(2):
            cuts = sorted({0, size, *(rng.randrange(1, size) for _ in range(rng.randrange(4)))})
            spans = []
            for begin, end in pairwise(cuts):
                source, to = BASE + JOBS_SOURCE + at + begin, BASE + JOBS_DESTINATION + at + begin
                spans.append((WINDOW, to) if half else (source, WINDOW))
                spans[-1] += (end - begin,)
            lists, control = LISTS + 256 * (slot + half), control | {"valid": not half}
            prepare(model, slot + half, spans, lists, pair=1, overlap=1, **control)
        places.append((at, size))
        at += size
    model.memory[JOBS_SOURCE : JOBS_SOURCE + at] = rng.randbytes(at)
    return places


def arrived(model, places) -> list[bool]:
    """Of each copy: whether its bytes are where they belong. They are forgotten there."""
    found = []
    for at, size in places:
        here, there = JOBS_SOURCE + at, JOBS_DESTINATION + at
        found.append(model.memory[here : here + size] == model.memory[there : there + size])
        model.memory[there : there + size] = bytes(size)
    return found


@pytest.mark.parametrize("flush", [None, BASE + JOBS_DESTINATION])
def test_copies_that_may_overlap_do_so(flush):
    rng, model = seeded(), launching(user=PassThrough)
    queue = LaunchQueue(model, 0, QUEUES[0], entries=32)

    async def bench(ctx):
        await model.link_up(ctx)
        places = overlapping_copies(model, rng, flush=flush)
        queue.arm()
        await queue.state(ctx)
        most = 0
        for count in (16, 4, 9):
            drawn = queue.submit(*[2 * (n % 4) for n in range(count)])
            while queue.status(drawn[-1]) is None:
                most = max(most, (await queue.state(ctx))["running"])
            assert [queue.status(ticket) for ticket in drawn] == [LaunchStatus.OK] * count
            assert all(arrived(model, places))
        assert most > 1

    simulate(model.core, bench, background=model.benches, cycles=40_000)


def test_copies_that_overlap_beside_those_of_software():
    """Each has its own bytes, in whichever of the cycles software begins; and both move on."""
    rng, model = seeded(), launching(user=PassThrough)
    queue = LaunchQueue(model, 0, QUEUES[0], entries=32)
    size, rounds, copied = 300, 8, []
    taken = [(WINDOW, BASE + DESTINATION, size)]

    async def host(ctx):
        await model.link_up(ctx)
        places = overlapping_copies(model, rng)
        queue.arm()
        await queue.state(ctx)
        drawn = queue.submit(*[2 * (n % 4) for n in range(8)])
        while len(copied) < rounds:
            data = rng.randbytes(size)
            model.memory[SOURCE : SOURCE + size] = data
            # C2H's turn may come at any point of the copies; H2C's bytes are for it all the same.
            channel = start(model, c2h=True, descriptors=taken)
            await ctx.tick().repeat(rng.randrange(1, 60))
            into = [(BASE + SOURCE, WINDOW, size)]
            await transfer(ctx, model, c2h=False, descriptors=into, pushed=1)
            await finish(ctx, model, channel)
            assert model.memory[DESTINATION : DESTINATION + size] == data
            more = sum(queue.status(ticket) is not None for ticket in drawn)
            assert {queue.status(ticket) for ticket in drawn[:more]} <= {LaunchStatus.OK}
            copied.append(more)
            del drawn[:more]
            drawn += queue.submit(*[2 * ((queue.next + n) % 4) for n in range(more)])
        assert await queue.wait(ctx, *drawn) == [LaunchStatus.OK] * len(drawn)
        assert all(arrived(model, places))

    simulate(model.core, host, background=model.benches, cycles=100_000)
    assert sum(copied) > rounds // 2


@pytest.mark.parametrize("half", [0, 1], ids=["to the board", "from the board"])
def test_a_copy_that_fails_takes_none_with_it_that_began_before(half):
    rng, model = seeded(), launching(user=PassThrough)
    queue = LaunchQueue(model, 0, QUEUES[0], entries=32)

    async def bench(ctx):
        await model.link_up(ctx)
        places = overlapping_copies(model, rng)
        bad = 6 + half
        spans = [(BASE + JOBS_SOURCE, 0x10_0000, 40), (0x10_0000, BASE + JOBS_DESTINATION, 40)]
        prepare(model, bad, spans[half : half + 1], 0x5C00, pair=1, overlap=1, valid=not half)
        queue.arm()
        for _ in range(6):
            before, behind = rng.randrange(5), rng.randrange(4)
            slots = [2 * rng.randrange(3) for _ in range(before + behind)]
            drawn = queue.submit(*slots[:before], 6, *slots[before:])
            found = await queue.wait(ctx, *drawn)
            assert found[: before + 1] == [LaunchStatus.OK] * before + [ErrorKind.DECODE]
            kinds = [LaunchStatus.ABORTED, LaunchStatus.FLUSHED]
            assert found[before + 1 :] == sorted(found[before + 1 :], key=kinds.index)
            come = arrived(model, places)
            assert all(come[slot // 2] for slot in slots[:before])
            queue.resume()
            await queue.state(ctx)
            # Nothing of those that were aborted is in the next one.
            assert await queue.wait(ctx, *queue.submit(2)) == [LaunchStatus.OK]
            assert arrived(model, places)[1]

    simulate(model.core, bench, background=model.benches, cycles=60_000)
