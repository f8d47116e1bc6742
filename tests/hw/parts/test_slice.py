# SPDX-License-Identifier: BSD-2-Clause
"""hw/parts/slice.py: order, throughput, and that no path leads through."""

from __future__ import annotations

import pytest

from hw.parts.slice import Slice
from tests.hw.helpers import seeded, send, simulate, toggle, watch


@pytest.mark.parametrize("stall", [0, 0.3, 0.8])
def test_payloads_pass_in_order(stall):
    rng = seeded()
    dut, log = Slice(8), []
    sent = [rng.randrange(256) for _ in range(200)]

    async def source(ctx):
        await send(ctx, dut.i, sent, lambda: rng.choice((0, 0, 2)) if stall else 0)
        while len(log) < len(sent):
            await ctx.tick()

    ready = toggle(dut.o.ready, lambda: rng.random() >= stall)
    simulate(dut, source, background=[ready, watch(dut.o, log)])
    assert [payload for _, payload in log] == sent
    if not stall:
        assert [cycle for cycle, _ in log] == list(range(1, 201))


def test_outputs_depend_on_registers_only():
    dut = Slice(8)

    async def bench(ctx):
        for _ in range(4):
            for valid in (0, 1):
                for ready in (0, 1):
                    ctx.set(dut.i.valid, valid)
                    ctx.set(dut.o.ready, ready)
                    ctx.set(dut.i.payload, 7 * valid + ready)
                    seen = [ctx.get(dut.i.ready), ctx.get(dut.o.valid), ctx.get(dut.o.payload)]
                    if (valid, ready) == (0, 0):
                        before = seen
                    assert seen == before
            await ctx.tick()

    simulate(dut, bench)
