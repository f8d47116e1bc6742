# SPDX-License-Identifier: BSD-2-Clause
"""Entries of a submission ring, fetched from a memory that is written at the same time."""

import pytest

from hw.launch.entries import BURST, EntryFetch
from hw.launch.records import QueueEnd
from hw.records import Outcome
from tests.hw.helpers import seeded, simulate, write_of

#: First tickets: in the middle, and in front of the wrap of either half.
FIRSTS = (0, 12345, 2**16 - 30, 2**32 - 30)
RETRIES, PAUSE = 5, 10


class Bench:
    """A queue of ``1 << depth`` entries in a memory that answers after some cycles."""

    def __init__(self, first: int, depth: int, rng):
        self.dut = EntryFetch(retries=RETRIES, pause=PAUSE)
        self.first, self.entries, self.rng = first, 1 << depth, rng
        self.depth, self.ring = depth, 0x12_3456_0000 + rng.randrange(8) * (8 << depth)
        self.memory = [rng.randrange(2**64) for _ in range(self.entries)]
        #: number of entries of each read
        self.reads, self.outcome, self.got = [], Outcome.OK, []

    def run(self, *scenarios):
        async def bench(ctx):
            dut = self.dut
            for name in ("first", "depth", "ring"):
                ctx.set(getattr(dut, name), getattr(self, name))
            ctx.set(dut.tail, self.first % 2**16)
            await ctx.tick()
            ctx.set(dut.armed, 1)
            for scenario in scenarios:
                await scenario(ctx)

        simulate(self.dut, bench, background=(self._memory, self._take))

    def write(self, ahead: int, slot: int):
        ticket = (self.first + ahead) % 2**32
        self.memory[ticket % self.entries] = ticket | slot << 32

    def ring_bell(self, ctx, ahead: int):
        ctx.set(self.dut.tail, (self.first + ahead) % 2**16)

    async def _memory(self, ctx):
        dut = self.dut
        ctx.set(dut.job.ready, 1)
        while True:
            (job,) = await ctx.tick().sample(dut.job.payload).until(dut.job.valid)
            at, count = divmod(job.address - self.ring, 8)[0], job.length // 8
            assert 0 <= at < at + count <= self.entries, "a read outside of the ring"
            assert job.address % 4096 + job.length <= 4096
            self.reads.append(count)
            await ctx.tick().repeat(self.rng.randrange(1, 20))
            for number in range(count):
                word = self.memory[at + number].to_bytes(8, "little")
                ctx.set(dut.placement.payload, write_of(self.rng, 8 * number, word))
                ctx.set(dut.placement.valid, 1)
                await ctx.tick()
            ctx.set(dut.placement.valid, 0)
            ctx.set(dut.retired.payload, {"outcome": self.outcome})
            ctx.set(dut.retired.valid, 1)
            assert ctx.get(dut.reading)
            await ctx.tick()
            ctx.set(dut.retired.valid, 0)

    async def _take(self, ctx):
        entry = self.dut.entry
        while True:
            ctx.set(entry.ready, self.rng.random() < 0.5)
            _, _, moved, got = await ctx.tick().sample(entry.valid & entry.ready, entry.payload)
            if moved:
                self.got.append(((got.ticket - self.first) % 2**32, got.slot))


@pytest.fixture(params=[(first, depth) for first in FIRSTS for depth in (0, 2, 5, 8)])
def bench(request):
    return Bench(*request.param, seeded())


async def until(ctx, condition, cycles=3000):
    for _ in range(cycles):
        if condition():
            return
        await ctx.tick()
    raise AssertionError(f"not within {cycles} cycles")


def test_entries_come_once_and_in_order(bench):
    """In bursts that end with the ring; some are written only after their doorbell."""
    slots = [bench.rng.randrange(64) for _ in range(80)]

    async def scenario(ctx):
        done = 0
        while done < len(slots):
            count = min(bench.rng.randint(1, bench.entries), len(slots) - done)
            late = bench.rng.random() < 0.3
            if late:
                bench.ring_bell(ctx, done + count)
                await ctx.tick().repeat(bench.rng.randrange(1, 30))
            for ahead in range(done, done + count):
                bench.write(ahead, slots[ahead])
            bench.ring_bell(ctx, done + count)
            done += count
            await until(ctx, lambda wanted=done: len(bench.got) == wanted)
        assert ctx.get(bench.dut.ended) == QueueEnd.NONE

    bench.run(scenario)
    assert bench.got == list(enumerate(slots))
    assert max(bench.reads) <= BURST


def test_a_full_ring_is_read_in_bursts_that_end_with_it(bench):
    async def scenario(ctx):
        for ahead in range(bench.entries):
            bench.write(ahead, ahead % 64)
        bench.ring_bell(ctx, bench.entries)
        await until(ctx, lambda: len(bench.got) == bench.entries, 4000)

    bench.run(scenario)
    left, place, wanted = bench.entries, bench.first % bench.entries, []
    while left:
        wanted.append(min(BURST, left, bench.entries - place))
        left, place = left - wanted[-1], (place + wanted[-1]) % bench.entries
    assert bench.reads == wanted


def test_an_entry_that_never_comes_ends_the_queue(bench):
    """After a number of reads; the entries before it have come, and arming it again helps."""

    async def scenario(ctx):
        bench.write(0, 9)
        bench.ring_bell(ctx, min(2, bench.entries))
        if bench.entries == 1:
            await until(ctx, lambda: bench.got)
            bench.ring_bell(ctx, 2)
        await until(ctx, lambda: ctx.get(bench.dut.ended) == QueueEnd.ENTRY)
        assert bench.got == [(0, 9)]
        reads = len(bench.reads)
        assert RETRIES + 1 <= reads <= RETRIES + 2
        bench.write(1, 3)
        await ctx.tick().repeat(100)
        assert len(bench.reads) == reads
        ctx.set(bench.dut.armed, 0)
        bench.write(0, 8)
        bench.ring_bell(ctx, 1)
        await ctx.tick().repeat(2)
        assert ctx.get(bench.dut.ended) == QueueEnd.NONE
        ctx.set(bench.dut.armed, 1)
        await until(ctx, lambda: bench.got == [(0, 9), (0, 8)])

    bench.run(scenario)


def test_a_failed_read_ends_the_queue(bench):
    bench.outcome = Outcome.UNSUPPORTED_REQUEST

    async def scenario(ctx):
        bench.write(0, 1)
        bench.ring_bell(ctx, 1)
        await until(ctx, lambda: ctx.get(bench.dut.ended) == QueueEnd.READ)
        await ctx.tick().repeat(100)
        assert (bench.got, bench.reads) == ([], [1])

    bench.run(scenario)
