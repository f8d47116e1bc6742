# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor credits: the count, and a fetch that keeps to it."""

import pytest

from hw.channel.credits import CreditPool
from hw.records import FETCH_DESCRIPTORS
from tests.hw.channel.fetch_bench import Bench
from tests.hw.channel.fetch_lists import SIZE, chain, reference, upstream
from tests.hw.helpers import seeded, simulate

MOST = 1023


class Pool:
    """Steps a `CreditPool` by a cycle; what is not named is 0."""

    def __init__(self, ctx, dut):
        self._ctx, self._dut = ctx, dut

    async def step(self, mode=1, give=None, spent=0, clear=0):
        ctx, dut = self._ctx, self._dut
        ctx.set(dut.mode, mode)
        ctx.set(dut.give, give is not None)
        ctx.set(dut.given, 0x2AA if give is None else give)
        ctx.set(dut.spent, spent)
        ctx.set(dut.clear, clear)
        await ctx.tick()
        return ctx.get(dut.credits), ctx.get(dut.allowed)


def pool(scenario):
    dut = CreditPool()

    async def bench(ctx):
        await scenario(Pool(ctx, dut))

    simulate(dut, bench)


def test_without_credit_mode_everything_is_allowed_and_nothing_counted():
    async def scenario(pool):
        for give in (None, 5, MOST):
            assert await pool.step(mode=0, give=give, spent=3) == (0, FETCH_DESCRIPTORS)
        assert await pool.step(mode=1) == (0, 0)

    pool(scenario)


def test_credits_add_up_are_spent_and_cleared():
    async def scenario(pool):
        assert await pool.step() == (0, 0)
        assert await pool.step(give=3) == (3, 3)
        assert await pool.step(give=20) == (23, FETCH_DESCRIPTORS)
        assert await pool.step(give=0, spent=16) == (7, 7)
        assert await pool.step(give=1000, spent=2) == (1005, FETCH_DESCRIPTORS)
        assert await pool.step(clear=1, give=4) == (0, 0)
        assert await pool.step(give=MOST) == (MOST, FETCH_DESCRIPTORS)
        assert await pool.step(mode=0) == (0, FETCH_DESCRIPTORS)

    pool(scenario)


def test_more_spent_than_there_is_leaves_none():
    async def scenario(pool):
        await pool.step(give=4)
        assert await pool.step(spent=5) == (0, 0)
        assert await pool.step(give=9) == (9, 9)
        assert await pool.step(spent=16, give=2) == (0, 0)

    pool(scenario)


def test_any_sequence():
    rng = seeded()

    async def scenario(pool):
        credits = 0
        for _ in range(2000):
            mode, clear = rng.random() < 0.98, rng.random() < 0.01
            give = rng.choice((None, None, rng.randrange(20)))
            spent = rng.randrange(min(credits, FETCH_DESCRIPTORS) + 1)
            expected = min(credits - spent + (give or 0), MOST)
            if credits - spent + (give or 0) > MOST:
                continue
            credits = 0 if clear or not mode else expected
            allowed = min(credits, FETCH_DESCRIPTORS) if mode else FETCH_DESCRIPTORS
            assert await pool.step(mode, give, spent, clear) == (credits, allowed)

    pool(scenario)


@pytest.mark.parametrize("portion", [1, 5, 16, 40])
def test_no_descriptor_is_read_without_credit(portion):
    rng = seeded()

    async def scenario(side):
        todo, given, side.credits = upstream(rng, 75), 0, 0
        await side.start(todo)
        while side.active:
            for _ in range(rng.randrange(60)):
                await side.step()
            if side.credits == 0:  # all that was given is fetched
                side.credits += portion
                given += portion
        await side.step()
        assert side.items == reference(todo, 2)[1]
        assert given - side.credits == 75
        assert max(length for _, length in side.reads) == min(portion, 16) * SIZE

    Bench(rng, ready=lambda: rng.random() < 0.5).run(scenario, scenario)


def test_a_fetch_without_credit_waits_and_can_be_flushed():
    rng = seeded()

    async def scenario(side):
        side.credits = 0
        await side.start(chain(rng, [40]))
        for _ in range(100):
            await side.step()
        assert side.reads == [] and side.active
        await side.step(flush=1)
        await side.step(flush=1)
        assert not side.active
        side.credits = 3
        await side.step()
        await side.finish(chain(rng, [3]))
        assert side.credits == 0

    Bench(rng).run(scenario)
