# SPDX-License-Identifier: BSD-2-Clause
"""What the gateware tests share does what it says."""

import gc

from amaranth.hdl import Module, Signal

from tests.hw.helpers import simulate


def test_a_background_bench_may_be_anywhere_when_the_benches_end():
    m = Module()
    count = Signal(8)
    m.d.sync += count.eq(count + 1)

    async def waits(ctx):
        await ctx.tick().repeat(1000)

    async def looks(ctx):
        await ctx.tick().until(count == 200)

    async def iterates(ctx):
        async for _ in ctx.tick():
            pass

    async def bench(ctx):
        await ctx.tick()

    simulate(m, bench, background=[waits, looks, iterates])
    gc.collect()
