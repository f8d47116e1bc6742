# SPDX-License-Identifier: BSD-2-Clause
"""How far doorbells say that a queue's ring is filled, in whatever order they come."""

import pytest

from hw.launch.doorbell import TailTracker
from tests.hw.helpers import seeded, simulate

GENERATION = 7
#: First tickets, as 16 bits: in the middle, and in front of the wrap.
FIRSTS = (0, 1000, 2**16 - 300, 2**16 - 1)
DEPTHS = (0, 3, 8)


class Bench:
    """Rings a tracker, and keeps what it said."""

    def __init__(self, first: int, depth: int):
        self.dut, self.first, self.depth = TailTracker(), first, depth

    def run(self, scenario):
        async def bench(ctx):
            self.ctx = ctx
            ctx.set(self.dut.depth, self.depth)
            ctx.set(self.dut.generation, GENERATION)
            ctx.set(self.dut.first, self.first)
            ctx.set(self.dut.head, self.first)
            await ctx.tick()
            ctx.set(self.dut.armed, 1)
            await scenario(self)

        simulate(self.dut, bench)

    async def ring(self, ahead: int, generation: int = GENERATION) -> bool:
        """A doorbell so far ahead of the first ticket; whether it ended the queue."""
        ctx, doorbell = self.ctx, self.dut.doorbell
        tail = (self.first + ahead) % 2**16
        ctx.set(doorbell.payload, {"tail": tail, "generation": generation})
        ctx.set(doorbell.valid, 1)
        over = ctx.get(self.dut.over)
        await ctx.tick()
        ctx.set(doorbell.valid, 0)
        return bool(over)

    def done(self, ahead: int):
        """The tickets up to so many from the first one have completed."""
        self.ctx.set(self.dut.head, (self.first + ahead) % 2**16)

    @property
    def tail(self) -> int:
        """How far ahead of the first ticket."""
        return (self.ctx.get(self.dut.tail) - self.first) % 2**16

    @property
    def ignored(self) -> int:
        return self.ctx.get(self.dut.ignored)


@pytest.fixture(params=[(first, depth) for first in FIRSTS for depth in DEPTHS])
def bench(request):
    return Bench(*request.param)


def test_merged_repeated_reordered_and_early_doorbells(bench):
    """The tail is the furthest that was rung, as long as it is at most the depth ahead."""
    random, most = seeded(), 1 << bench.depth

    async def scenario(bench):
        assert bench.tail == 0
        head = furthest = 0
        for _ in range(400):
            ahead = random.randrange(max(0, head - 3 * most), head + most + 1)
            assert not await bench.ring(ahead)
            furthest = max(furthest, ahead)
            assert bench.tail == furthest
            head = random.randint(head, furthest)
            bench.done(head)
        assert head > most
        assert bench.ignored == 0

    bench.run(scenario)


def test_a_tail_more_than_the_depth_ahead_ends_the_queue(bench):
    most = 1 << bench.depth

    async def scenario(bench):
        assert not await bench.ring(most)
        for ahead in (most + 1, most + 2, 2**15 - 1):
            assert await bench.ring(ahead)
            assert bench.tail == most
        # From half of all numbers on it is behind.
        assert not await bench.ring(2**15)
        assert bench.tail == most

    bench.run(scenario)


@pytest.mark.parametrize("wrong", [0, GENERATION - 1, GENERATION + 2**15, 2**16 - 1])
def test_another_generation_is_ignored_and_counted(bench, wrong):
    async def scenario(bench):
        for number in range(3):
            assert not await bench.ring(1 + number * 2**14, wrong)
            assert (bench.tail, bench.ignored) == (0, number + 1)
        assert not await bench.ring(1)
        assert (bench.tail, bench.ignored) == (1, 3)

    bench.run(scenario)


def test_a_queue_that_is_not_armed_has_no_doorbell(bench):
    async def scenario(bench):
        bench.ctx.set(bench.dut.armed, 0)
        assert not await bench.ring(1)
        await bench.ctx.tick()
        assert (bench.tail, bench.ignored) == (0, 1)

    bench.run(scenario)
