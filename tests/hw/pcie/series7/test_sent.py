# SPDX-License-Identifier: BSD-2-Clause
"""Which writes were sent: none before the block could still have dropped it."""

import pytest

from hw.pcie.series7.sent import SentWrites
from tests.hw.helpers import seeded, simulate


@pytest.mark.parametrize("lag", [0, 3])
def test_writes_are_reported_in_order_with_what_was_dropped(lag):
    """TLPs of any length, with pauses; what a drop may concern is not called sent."""
    rng = seeded()
    dut = SentWrites(lag)
    told, packets, drops, cycle = [], [], [], 0

    async def tick(ctx):
        nonlocal cycle
        await ctx.tick()
        cycle += 1
        if ctx.get(dut.sent.valid):
            sent = dut.sent.payload
            told.append((cycle, ctx.get(sent.token), ctx.get(sent.dropped)))

    async def bench(ctx):
        for number in range(60):
            write = rng.random() < 0.7
            ctx.set(dut.write, write)
            ctx.set(dut.token, number)
            first, beats = None, rng.randrange(1, 6)
            while beats:
                takes, drop = rng.random() < 0.7, rng.random() < 0.05
                ctx.set(dut.takes, takes)
                ctx.set(dut.eof, beats == 1)
                ctx.set(dut.drop, drop)
                first = cycle if takes and first is None else first
                drops.extend([cycle] * drop)
                beats -= takes
                await tick(ctx)
            if write:
                packets.append((number, first, cycle))
        ctx.set(dut.takes, 0)
        ctx.set(dut.drop, 0)
        for _ in range(lag + 4):
            await tick(ctx)

    simulate(dut, bench)
    assert [token for _, token, _ in told] == [number for number, *_ in packets]
    for (when, _, dropped), (_, first, end) in zip(told, packets, strict=True):
        assert when == end + lag + 1
        # A drop counts a cycle after the port has it: with the beats, and for the lag behind them.
        last = end - 1
        inside = any(min(first, last - 1) <= drop <= last + lag for drop in drops)
        assert dropped == inside
