# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch: lists of the host's that are dropped for another owner's, and go on later."""

import pytest

from peerdma import regs
from tests.hw.channel.fetch_bench import busy_bench
from tests.hw.channel.fetch_lists import SIZE, Error, Pushed, chain, pack, reference, xdma_ko
from tests.hw.helpers import seeded


async def interrupted(side, todo, most, owners):
    """Runs a list of the host's, at most so many descriptors at a time; `owners` are in between.

    It is as if nobody had interrupted it, and what was read in vain is told exactly.
    """
    rng, items, over = side.bench.rng, [], False
    whole = todo.todo if isinstance(todo, Pushed) else todo
    pushed = whole.adjacent + 1 if isinstance(todo, Pushed) else 0
    side.credits = rng.choice((None, 0))
    await side.begin(todo)
    while not over:
        count, cycles = rng.choice((0, 1, 1, rng.randint(1, most))), rng.randrange(10)
        while side.active and (cycles or len(side.items) < count):
            cycles -= len(side.items) >= count
            if side.credits is not None and rng.random() < 0.05:
                side.credits += rng.randrange(1, 40)
            await side.step()
        await side.interrupt()
        read = sum(length for _, length in side.reads) // SIZE
        used = max(len(side.items) - pushed, 0)
        pushed = max(pushed - len(side.items), 0)
        items += side.items
        over = bool(items) and (isinstance(items[-1], Error) or items[-1].stop)
        if not over:
            await _go_on(side, todo.memory, read - used, owners)
    assert items == reference(whole, side.bench.limit, first=1 if todo is not whole else None)[1]
    side.credits = None


async def _go_on(side, memory, unused, owners):
    """Lists of another owner, or none; then the host's again."""
    rng, credits, found = side.bench.rng, side.credits, []
    side.credits = None
    for _ in range(rng.randrange(3)):
        other = await side.push(chain(rng, owners()), owned=True)
        found.append(await side.begin(other))
        await side.end()
    side.credits = credits
    found.append(await side.resume(memory))
    assert found[0] == unused, f"{found}, not {unused}, were read in vain"
    if credits is not None:
        side.credits += unused


@pytest.mark.parametrize(("most", "longest"), [(2, 6), (40, 64)])
@pytest.mark.parametrize("width", [64, 256])
def test_a_list_that_is_interrupted_goes_on(width, most, longest):
    """Anywhere: in pushed blocks, in blocks of any size, across pages, before wrong magics."""
    rng = seeded()

    def sizes(most_blocks=3):
        drawn = (1, 2, rng.randrange(1, longest + 1))
        return [rng.choice(drawn) for _ in range(rng.randint(1, most_blocks))]

    async def scenario(side):
        for kind in rng.sample(("chain", "pushed", "pages", "magic", "xdma"), 3):
            first = [rng.randrange(1, 5)] if kind == "pushed" else []
            todo = chain(rng, first + sizes(), in_page=kind != "pages")
            if kind == "xdma":
                todo = xdma_ko(rng, rng.randint(1, 2 * longest), rng.randrange(64))
            if kind == "magic":
                bad = rng.choice(tuple(todo.memory))
                todo.memory[bad] = pack(rng, magic=regs.DESC_MAGIC ^ 1)
            if kind == "pushed":
                todo = await side.push(todo)
            await interrupted(side, todo, most, lambda: [rng.randrange(1, 5), *sizes(2)])

    bench = busy_bench(rng, limit=rng.randrange(3))
    bench.run(scenario, scenario, shared=True, width=width)
