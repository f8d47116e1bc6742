# SPDX-License-Identifier: BSD-2-Clause
"""`hw.parts.queue` against a deque; what it holds for whatever comes is a formal property."""

from collections import deque

import pytest
from amaranth.lib import data

from hw.parts.queue import Queue
from tests.hw.helpers import seeded, simulate


class Entry(data.Struct):
    """Two fields, to see that they stay apart."""

    number: 7
    flag: 1


@pytest.mark.parametrize("buffered", [False, True])
def test_random_traffic(buffered):
    rng = seeded()
    depth = 5
    dut = Queue(Entry, depth, buffered=buffered)

    async def bench(ctx):
        held, filled = deque(), 0
        for cycle in range(1000):
            busy = (3, 9) if cycle // 50 % 2 else (9, 3)
            valid, ready = (rng.randrange(10) < one for one in busy)
            entry = {"number": rng.randrange(128), "flag": rng.randrange(2)}
            ctx.set(dut.i.payload, entry)
            ctx.set(dut.i.valid, valid)
            ctx.set(dut.o.ready, ready)
            assert ctx.get(dut.level) == len(held)
            assert ctx.get(dut.i.ready) == (len(held) < depth)
            offered = ctx.get(dut.o.valid)
            assert offered == bool(held) or (buffered and len(held) == 1)
            if offered:
                out = ctx.get(dut.o.payload)
                assert {"number": out.number, "flag": out.flag} == held[0]
            if valid and len(held) < depth:
                held.append(entry)
            if offered and ready:
                held.popleft()
            filled += len(held) == depth
            await ctx.tick()
        assert filled

    simulate(dut, bench)


@pytest.mark.parametrize("buffered", [False, True])
def test_latency(buffered):
    dut = Queue(8, 4, buffered=buffered)

    async def bench(ctx):
        ctx.set(dut.i.payload, 0x5A)
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        for _ in range(buffered):
            assert not ctx.get(dut.o.valid)
            await ctx.tick()
        assert ctx.get(dut.o.valid)
        assert ctx.get(dut.o.payload) == 0x5A

    simulate(dut, bench)
