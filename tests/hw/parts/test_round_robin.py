# SPDX-License-Identifier: BSD-2-Clause
"""`hw.parts.round_robin`: the next one in the circle, and nobody is left out."""

import pytest

from hw.parts.round_robin import RoundRobin
from tests.hw.helpers import seeded, simulate


def following(requests, last, otherwise):
    """The first request behind `last`, which itself comes last."""
    count = len(requests)
    circle = [(last + step) % count for step in range(1, count + 1)]
    return next((index for index in circle if requests[index]), otherwise)


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_next_in_the_circle(count, registered):
    rng = seeded()
    dut = RoundRobin(count, registered=registered)

    async def bench(ctx):
        last = 0
        for _ in range(500):
            requests = [rng.randrange(3) == 0 for _ in range(count)]
            advance = rng.randrange(2)
            ctx.set(dut.requests, sum(bit << index for index, bit in enumerate(requests)))
            ctx.set(dut.advance, advance)
            chosen = following(requests, last, last if registered else 0)
            assert ctx.get(dut.grant) == (last if registered else chosen)
            if advance:
                last = chosen
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("registered", [False, True])
def test_all_are_served_in_turn(registered):
    dut = RoundRobin(4, registered=registered)

    async def bench(ctx):
        ctx.set(dut.requests, 0b1111)
        ctx.set(dut.advance, 1)
        served = []
        for _ in range(12):
            served.append(ctx.get(dut.grant))
            await ctx.tick()
        first = 0 if registered else 1
        assert served == [(first + index) % 4 for index in range(12)]

    simulate(dut, bench)
