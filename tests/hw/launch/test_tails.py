# SPDX-License-Identifier: BSD-2-Clause
"""How far doorbells say that the rings of queues are filled, in whatever order they come."""

import pytest

from hw.launch.tails import TAIL_BITS, Tails
from tests.hw.helpers import seeded, simulate

GENERATION = 7
#: First tickets, as 16 bits: in the middle, and in front of the wrap.
FIRSTS = (0, 1000, 2**16 - 300, 2**16 - 1)
ENTRIES = (8, 256)


class Bench:
    """Rings one of two queues, and keeps what it said. The other one must not notice."""

    def __init__(self, queue: int, first: int, entries: int):
        self.dut, self.queue, self.first, self.entries = Tails(2), queue, first, entries

    def run(self, scenario):
        async def bench(ctx):
            self.ctx, dut = ctx, self.dut
            ctx.set(dut.load, 1 << self.queue)
            ctx.set(dut.queue, self.queue)
            self.done(0)
            await ctx.tick()
            ctx.set(dut.load, 0)
            self.arm(1)
            await scenario(self)
            ctx.set(dut.queue, 1 - self.queue)
            ctx.set(dut.ticket, 0)
            assert (ctx.get(dut.tail[1 - self.queue]), ctx.get(dut.waits)) == (0, 0)

        simulate(self.dut, bench)

    def arm(self, armed: int):
        settings = {"armed": armed, "mask": self.entries - 1, "generation": GENERATION}
        self.ctx.set(self.dut.settings[self.queue], settings)

    async def ring(self, ahead: int, generation: int = GENERATION, counts: int = 1) -> bool:
        """A doorbell so far ahead of the first ticket; whether it ended the queue."""
        ctx, dut, before = self.ctx, self.dut, self.tail
        tail = (self.first + ahead) % 2**16
        word = {"tail": tail, "generation": generation}
        ctx.set(dut.doorbell.payload, {"word": word, "queue": self.queue, "counts": counts})
        ctx.set(dut.doorbell.valid, 1)
        over, moved = ctx.get(dut.over), ctx.get(dut.moved)
        assert (over | moved) & ~(1 << self.queue) == 0
        await ctx.tick()
        ctx.set(dut.doorbell.valid, 0)
        assert bool(moved) == (self.tail != before)
        return bool(over)

    def done(self, ahead: int):
        """The tickets up to so many from the first one have completed."""
        self.ctx.set(self.dut.head[self.queue], (self.first + ahead) % 2**16)
        self.starts(ahead)

    def starts(self, ahead: int):
        """The next ticket to be started is so far behind the first one."""
        self.ctx.set(self.dut.ticket, (self.first + ahead) % 2**TAIL_BITS)

    @property
    def tail(self) -> int:
        """How far ahead of the first ticket."""
        ctx, dut, head = self.ctx, self.dut, self.ctx.get(self.dut.head[self.queue])
        ahead = ctx.get(dut.waits) * ((ctx.get(dut.tail[self.queue]) - head) % 2**TAIL_BITS)
        return (head + ahead - self.first) % 2**16

    @property
    def ignored(self) -> int:
        return self.ctx.get(self.dut.ignored)


@pytest.fixture(
    params=[(n % 2, f, e) for n, (f, e) in enumerate((f, e) for f in FIRSTS for e in ENTRIES)]
)
def bench(request):
    return Bench(*request.param)


def test_merged_repeated_reordered_and_early_doorbells(bench):
    """The tail is the furthest that was rung, as long as it is at most the depth ahead."""
    random, most = seeded(), bench.entries

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
    most = bench.entries

    async def scenario(bench):
        assert not await bench.ring(most)
        for ahead in (most + 1, most + 2, 2**15 - 1, 2**15):
            assert await bench.ring(ahead)
            assert bench.tail == most
        # More than half of all numbers ahead is behind.
        assert not await bench.ring(2**15 + 1)
        assert bench.tail == most

    bench.run(scenario)


@pytest.mark.parametrize("wrong", [0, GENERATION - 1, GENERATION + 2**15, 2**16 - 1])
def test_another_generation_is_ignored_and_counted(bench, wrong):
    async def scenario(bench):
        for number in range(3):
            assert not await bench.ring(1 + number * 2**14, wrong)
            assert (bench.tail, bench.ignored) == (0, number + 1)
        # A shadow tail is read again and again: it does not count.
        assert not await bench.ring(1, wrong, counts=0)
        assert not await bench.ring(1)
        assert (bench.tail, bench.ignored) == (1, 3)

    bench.run(scenario)


def test_a_queue_that_is_not_armed_has_no_doorbell(bench):
    async def scenario(bench):
        bench.arm(0)
        for number in range(300):
            assert not await bench.ring(1)
            assert (bench.tail, bench.ignored) == (0, min(number + 1, 255))

    bench.run(scenario)


def test_a_ticket_that_ends_is_not_the_next_one(bench):
    """Nor is one that runs: the queue waits for what was rung behind them, if there is any."""

    async def scenario(bench):
        def waits():
            return bench.ctx.get(bench.dut.waits)

        for ahead in (1, 2, 3):
            assert not await bench.ring(ahead)
            for started in reversed(range(ahead + 1)):
                bench.starts(started)
                assert waits() == (ahead > started)
        bench.done(3)
        assert not waits()

    bench.run(scenario)
