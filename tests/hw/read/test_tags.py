# SPDX-License-Identifier: BSD-2-Clause
"""`hw.read.tags` against sets and queues in Python."""

from __future__ import annotations

from collections import deque

import pytest

from hw.read.tags import OrderQueues, TagStates
from hw.seam import FIVE_BIT_TAGS
from tests.hw.helpers import seeded, simulate


def members(bits: int) -> set[int]:
    """Numbers of the set bits."""
    return {number for number in range(bits.bit_length()) if bits >> number & 1}


@pytest.mark.parametrize("tags", [2, 4, 32, 64])
def test_states(tags):
    rng = seeded()
    dut = TagStates(tags)

    async def bench(ctx):
        busy, waiting, quarantined = set(), set(), set()
        searched, extended, usable = 0, 0, min(tags, FIVE_BIT_TAGS)
        for _ in range(1500):
            if tags > FIVE_BIT_TAGS:
                extended ^= rng.random() < 0.02
                ctx.set(dut.extended, extended)
            assert members(ctx.get(dut.waiting)) == waiting
            assert members(ctx.get(dut.quarantined)) == quarantined
            flush = rng.random() < 0.01
            lookup = rng.randrange(tags)
            ended = lookup in waiting and rng.random() < 0.3
            closed = lookup in waiting | quarantined and rng.random() < 0.3
            take = not (flush or ended or closed) and rng.random() < 0.7
            wait = rng.random() < 0.8
            done = sorted(busy - waiting)
            released = rng.choice(done) if done and rng.random() < 0.5 else None
            ctx.set(dut.flush, flush)
            ctx.set(dut.free.ready, take)
            ctx.set(dut.wait, wait)
            ctx.set(dut.lookup_tag, lookup)
            ctx.set(dut.ended, ended)
            ctx.set(dut.closed, closed)
            ctx.set(dut.released.valid, released is not None)
            ctx.set(dut.released.payload, released or 0)
            assert ctx.get(dut.lookup_waiting) == (lookup in waiting)
            assert ctx.get(dut.lookup_quarantined) == (lookup in quarantined)

            free = set(range(usable)) - busy - quarantined
            found = ctx.get(dut.free.valid)
            tag = ctx.get(dut.free.payload)
            assert not found or tag in free
            # Each group of eight is searched once, and one cycle loads what was found.
            changes = usable != (tags if extended else min(tags, FIVE_BIT_TAGS))
            searched = 0 if found or not free or changes else searched + 1
            assert searched <= (usable + 7) // 8 + 1
            usable = tags if extended else min(tags, FIVE_BIT_TAGS)

            busy.discard(released)
            if ended or closed:
                waiting.discard(lookup)
            if ended:
                quarantined.add(lookup)
            if flush:
                quarantined |= waiting
                busy, waiting = set(), set()
            if closed:
                quarantined.discard(lookup)
            if take and found:
                busy.add(tag)
                waiting |= {tag} if wait else set()
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("clients", [1, 3, 6])
def test_order(clients):
    rng = seeded()
    tags = 8
    dut = OrderQueues(clients, tags)

    async def bench(ctx):
        queues = [deque() for _ in range(clients)]
        #: for how many cycles the oldest job of each client has ended
        ready = [0] * clients
        waiting = set()
        retired = 0
        predict = False
        for _ in range(3000):
            flush = rng.random() < 0.005
            waiting -= {tag for tag in sorted(waiting) if rng.random() < 0.1}
            free = set(range(tags)) - {tag for queue in queues for tag in queue}
            # A completion ends at most every other cycle, and may be anybody's.
            predict = not predict and rng.random() < 0.3
            predicted = rng.randrange(clients)
            push = bool(free) and not flush and rng.random() < 0.3
            client, tag = rng.randrange(clients), rng.choice(sorted(free or {0}))
            ctx.set(dut.flush, flush)
            ctx.set(dut.waiting, sum(1 << tag for tag in waiting))
            ctx.set(dut.predicted.valid, predict)
            ctx.set(dut.predicted.p, predicted)
            ctx.set(dut.taken.valid, push)
            ctx.set(dut.taken.payload, {"client": client, "tag": tag})

            assert members(ctx.get(dut.idle)) == {n for n in range(clients) if not queues[n]}
            if ctx.get(dut.retire.valid):
                owner = ctx.get(dut.retire.payload)
                assert queues[owner.client].popleft() == owner.tag
                assert ready[owner.client] >= 1
                ready[owner.client] = 0
                retired += 1
            for number, queue in enumerate(queues):
                ready[number] = ready[number] + 1 if queue and queue[0] not in waiting else 0
                # A look-up that came just too early, and all of the next; predictions in between
                assert ready[number] <= 2 * clients + 3
            if push:
                queues[client].append(tag)
                if rng.random() < 0.8:
                    waiting.add(tag)
            if flush:
                waiting.clear()
                for queue in queues:
                    queue.clear()
            await ctx.tick()
        assert retired > 200

    simulate(dut, bench)


@pytest.mark.parametrize("clients", [1, 4, 7])
def test_a_predicted_client_waits_for_no_slot(clients):
    """Whoever's round-robin slot it is: retired two cycles later, once."""
    dut = OrderQueues(clients, 4)

    async def bench(ctx):
        await ctx.tick().repeat(2)
        for client in range(clients):
            for phase in range(clients):
                ctx.set(dut.waiting, 0b1000)
                ctx.set(dut.taken.payload, {"client": client, "tag": 3})
                ctx.set(dut.taken.valid, 1)
                await ctx.tick()
                ctx.set(dut.taken.valid, 0)
                await ctx.tick().repeat(clients + phase)
                assert not ctx.get(dut.retire.valid)
                ctx.set(dut.predicted.p, client)
                ctx.set(dut.predicted.valid, 1)
                await ctx.tick()
                ctx.set(dut.predicted.valid, 0)
                ctx.set(dut.waiting, 0)
                seen = []
                for cycle in range(1, 12):
                    if ctx.get(dut.retire.valid):
                        seen.append((cycle, ctx.get(dut.retire.p.client)))
                    await ctx.tick()
                assert seen == [(2, client)]

    simulate(dut, bench)
