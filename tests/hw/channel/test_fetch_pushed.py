# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch: lists that begin with pushed descriptors."""

import pytest

from hw.records import Outcome
from peerdma import regs
from tests.hw.channel.fetch_bench import Bench, busy_bench
from tests.hw.channel.fetch_lists import SIZE, STOP, Error, chain, pack, word64
from tests.hw.helpers import seeded


@pytest.mark.parametrize(("shared", "width"), [(False, 64), (True, 64), (True, 128), (True, 256)])
def test_pushed_and_fetched(shared, width):
    """Lists that begin with pushed descriptors, and go on in memory or not, between others."""
    rng = seeded()

    async def scenario(side):
        for _ in range(4):
            sizes = [rng.randrange(1, 5), *(rng.randrange(1, 65) for _ in range(rng.randrange(3)))]
            todo = chain(rng, sizes)
            failures = {rng.randrange(2): Outcome.POISONED} if rng.random() < 0.2 else {}
            if rng.random() < 0.3:
                bad, rest = rng.choice(tuple(todo.memory)), (rng.randrange(64), word64(rng))
                flags, magic = rng.choice(((STOP, regs.DESC_MAGIC), (0, regs.DESC_MAGIC ^ 1)))
                todo.memory[bad] = pack(rng, flags, *rest, magic)
            await side.finish_pushed(todo, failures, shared and rng.random() < 0.5)
            await side.finish(chain(rng, [rng.randrange(1, 65)]))

    bench = busy_bench(rng, limit=rng.randrange(3))
    bench.run(scenario, scenario, shared=shared, width=width)


def test_pushed_descriptors_outlive_the_run_of_another_owner():
    """Which pushes some, too, and fetches more; software pushes before it or while it goes on."""
    rng = seeded()

    async def scenario(side):
        for before in (True, False, False, True):
            mine, other = chain(rng, [rng.randrange(1, 5)]), chain(rng, [4, 40, 30])
            if before:
                mine = await side.push(mine)
            await side.start(await side.push(other, owned=True))
            if not before:
                mine = await side.push(mine)
            await side.end()
            await side.finish(mine)

    busy_bench(rng).run(scenario, scenario, shared=True)


def test_an_owner_starts_with_its_first_word():
    """Its words are waited for, however long those of another channel hold them up."""
    rng, begun = seeded(), [0, 0]

    async def scenario(side):
        for number in range(1, 41):
            begun[side.number] = number
            while min(begun) < number:
                await side.step()
            for _ in range(rng.randrange(4)):
                await side.step()
            await side.start_with_first_word(
                chain(rng, [1, *[rng.randrange(1, 5)] * rng.randrange(2)])
            )
            await side.end()

    async def hosts(side):
        for _ in range(200):
            await side.push(chain(rng, [1]))
            for _ in range(rng.randrange(6)):
                await side.step()

    busy_bench(rng).run(scenario, scenario, hosts, h2c=2, shared=True)


def test_incomplete_push():
    """None of them is used: a magic error, for the first descriptor that is not complete."""
    rng = seeded()

    async def scenario(side):
        for whole in range(8):
            pushed = await side.push(chain(rng, [4]))
            await side.start(pushed._replace(state={"any": 1, "whole": 0, "count": whole}))
            while side.active:
                await side.step()
            await side.step()
            assert side.items == [Error(whole * SIZE | 1, Outcome.MAGIC)]
            assert not side.reads
            await side.finish_pushed(chain(rng, [2, 3]))

    Bench(rng).run(scenario)


def test_flush_of_pushed_descriptors():
    """An abort at any time drops them, and what is pushed next is what counts."""
    rng = seeded()

    async def scenario(side):
        for cycles in range(16):
            await side.start(await side.push(chain(rng, [4, 20])))
            for _ in range(cycles):
                await side.step()
            await side.step(flush=1)
            while side.active:
                await side.step(flush=1)
            await side.step()
            await side.finish_pushed(chain(rng, [rng.randrange(1, 5), 3]))

    Bench(rng, latency=lambda: 3).run(scenario)


def test_pushed_descriptors_need_no_credits_and_ignore_halt():
    rng = seeded()

    async def scenario(side):
        side.halt = 1
        side.credits = 0
        await side.finish_pushed(chain(rng, [4]))
        await side.start(await side.push(chain(rng, [2, 1])))
        for _ in range(50):
            await side.step()
        assert len(side.items) == 2
        assert not side.reads

    Bench(rng).run(scenario)


def test_latency_of_pushed_descriptors():
    rng = seeded()

    async def scenario(side):
        for pushed in range(1, 5):
            await side.finish_pushed(chain(rng, [pushed]))
            assert side.item_times[0] == side.started + 5
            assert side.item_times[-1] - side.item_times[0] <= 6 * (pushed - 1)

    Bench(rng, shuffle=False).run(scenario)
