# SPDX-License-Identifier: BSD-2-Clause
"""Numbers of pages: one is added to any, in four cycles, beside those of other channels."""

import pytest

from hw.channel.pages import BlockPages
from hw.channel.plan import PAGE_BITS
from tests.hw.helpers import seeded, simulate

MOST = (1 << PAGE_BITS) - 1
QUARTER = PAGE_BITS // 4
#: With carries into no quarter, into each, and out of the last.
PAGES = [0, *((1 << QUARTER * n) - 1 for n in range(1, 4)), MOST - 1, MOST]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("channel", [0, 2])
def test_one_is_added(channel, page):
    rng = seeded()
    dut = BlockPages(3)
    values = [rng.randrange(MOST + 1) for _ in range(3)]
    values[channel] = page

    async def bench(ctx):
        ctx.set(dut.first, 1)
        ctx.set(dut.set, 1)
        ctx.set(dut.write, 1)
        for number, value in enumerate(values):
            ctx.set(dut.channel, number)
            ctx.set(dut.value, value)
            await ctx.tick()
        ctx.set(dut.set, 0)
        ctx.set(dut.channel, channel)
        lasts = []
        for _ in range(4):
            lasts.append(ctx.get(dut.last))
            await ctx.tick()
            ctx.set(dut.first, 0)
        assert lasts == [0, 0, 0, 1]
        ctx.set(dut.write, 0)
        values[channel] = (page + 1) & MOST
        for number, value in enumerate(values):
            ctx.set(dut.channel, number)
            assert ctx.get(dut.page) == value

    simulate(dut, bench)
