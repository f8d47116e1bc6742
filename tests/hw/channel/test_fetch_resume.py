# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch: lists of the host's that are put aside for another owner's, and go on later."""

import pytest

from hw.records import Outcome
from peerdma import regs
from tests.hw.channel.fetch_bench import Bench, busy_bench
from tests.hw.channel.fetch_lists import PAGE, SIZE, chain, pack, reference, xdma_ko
from tests.hw.helpers import seeded


async def interrupted(side, todo, most, owners, failures=None):
    """Runs a list of the host's, at most so many descriptors at a time; `owners` are in between.

    It is as if nobody had interrupted it. Returns how often it was put aside.
    """
    rng, times = side.bench.rng, 0
    # Which read fails, the reference knows only of such as credits do not cut.
    side.credits = None if failures else rng.choice((None, 0))
    await side.start(todo, failures)
    await side.ctx.tick().until(side.control.begun)
    while True:
        begin, count, cycles = len(side.items), rng.randint(0, most), rng.randrange(10)
        while side.active and (cycles or len(side.items) < begin + count):
            cycles -= len(side.items) >= begin + count
            if side.credits is not None and rng.random() < 0.05:
                side.credits += rng.randrange(1, 40)
            await side.step()
        kept = await side.put_aside()
        # It is over if it has ended meanwhile: by Stop, or by an error.
        if side.ended:
            break
        times, credits = times + 1, side.credits
        side.credits = None
        for _ in range(rng.randrange(3)):
            failing = {0: Outcome.COMPLETION_TIMEOUT} if rng.random() < 0.3 else None
            await side.start(await side.push(chain(rng, owners()), owned=True), failing)
            aborted = rng.random() < 0.3
            # Often before it has begun
            for _ in range(rng.choice((0, rng.randrange(100))) if aborted else 0):
                await side.step()
            while aborted and side.active:
                await side.step(flush=1)
            await side.step()
            if not aborted:
                await side.end()
        side.credits = credits
        await side.resume(kept)
    side.credits = None
    await side.ctx.tick().repeat(5)
    # Credits cut reads, of which the reference knows nothing.
    assert side.items == reference(side.todo, side.bench.limit, side.failed, first=side.first)[1]
    assert not side.under_way
    return times


@pytest.mark.parametrize(("most", "longest"), [(2, 6), (40, 64)])
@pytest.mark.parametrize("width", [64, 256])
def test_a_list_that_is_put_aside_goes_on(width, most, longest):
    """Anywhere: in pushed blocks, in blocks of any size, across pages, before errors."""
    rng, times = seeded(), []

    def sizes(most_blocks=3):
        drawn = (1, 2, rng.randrange(1, longest + 1))
        return [rng.choice(drawn) for _ in range(rng.randint(1, most_blocks))]

    async def scenario(side):
        others = rng.sample(("chain", "pushed", "magic", "xdma"), 2)
        for kind in (*others, "pages", "failing", "failing"):
            # One block is longer than all that is handed on before the list is put aside.
            first = {"pushed": [rng.randrange(1, 5)], "pages": [longest]}.get(kind, [])
            todo, failures = chain(rng, first + sizes(), in_page=kind != "pages"), None
            if kind == "xdma":
                todo = xdma_ko(rng, rng.randint(1, 2 * longest), rng.randrange(64))
            if kind == "magic":
                bad = rng.choice(tuple(todo.memory))
                todo.memory[bad] = pack(rng, magic=regs.DESC_MAGIC ^ 1)
            if kind == "pushed":
                todo = await side.push(todo)
            if kind == "failing":
                failures = {rng.randrange(3): Outcome.POISONED}
            drawn = interrupted(
                side, todo, most, lambda: [rng.randrange(1, 5), *sizes(2)], failures
            )
            times.append(await drawn)

    bench = busy_bench(rng, limit=rng.randrange(3))
    bench.run(scenario, scenario, shared=True, width=width, h2c=rng.choice((1, 2)))
    assert sum(times) > 0


@pytest.mark.parametrize("first", [1, 2])
def test_a_list_is_put_aside_in_any_cycle(first):
    """With a block across a page's end, `first` descriptors before that, the page counted up."""
    rng, times = seeded(), []
    todo = chain(rng, [3, 2], in_page=False)
    while -todo.address % PAGE != first * SIZE:
        todo = chain(rng, [3, 2], in_page=False)

    async def scenario(side):
        for cycle in range(1, 100):
            await side.start(todo)
            await side.ctx.tick().until(side.control.begun)
            await side.ctx.tick().repeat(cycle)
            kept = await side.put_aside()
            times.append(not side.ended)
            if not side.ended:
                await side.resume(kept)
            await side.end()

    # Each time as the time before, but for the cycle.
    Bench(rng, latency=lambda: 3, shuffle=False).run(scenario, shared=True)
    assert times[0]
    assert not times[-1]
