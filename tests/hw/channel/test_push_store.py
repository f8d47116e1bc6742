# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors that software pushes, on a channel that another owner has runs on, too."""

import pytest

from tests.hw.channel.control_bench import GOOD, LOG_ALL, RUN
from tests.hw.channel.shared_bench import SharedBench, finished
from tests.hw.helpers import bytes_of, seeded


@pytest.fixture(params=[False, True], ids=["h2c", "c2h"])
def bench(request):
    return SharedBench(request.param)


class Slots:
    """What the words that were pushed make, as the descriptor fetch keeps it."""

    def __init__(self, bench):
        self.push, self.bytes = bench.dut.push, {}

    async def watch(self, ctx):
        async for _, _, valid, word in ctx.tick().sample(self.push.valid, self.push.payload):
            if valid:
                self.bytes.update(bytes_of(word))

    def words(self, count):
        raw = bytes(self.bytes[at] for at in range(4 * count))
        return [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]


@pytest.mark.parametrize("when", ["before", "during", "both"])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_descriptors_that_software_pushes_outlive_a_run_of_the_owner(bench, when, count):
    """Pushed before it, or while it goes on: they are in their slots when software's run starts."""
    slots, dwords = Slots(bench), 8 * count
    starts = []

    async def note(ctx):
        async for _, _, start in ctx.tick().sample(bench.dut.fetch.start):
            if start:
                starts.append(slots.words(dwords))

    async def testbench(ctx):
        if when != "during":
            await bench.push(ctx, dwords)
        bench.stuck = True
        await bench.owner.grant(ctx)
        noise = [(seeded().randrange(1 << 32), 2, 3, 4, 5)] * 4
        await bench.owner.begin(ctx, pushed=noise)
        if when != "before":
            await bench.push(ctx, dwords)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        await ctx.tick().repeat(20)
        bench.stuck = False
        await bench.owner.end(ctx)
        assert await finished(bench, ctx) == GOOD
        # And once more, with nothing to repeat.
        await bench.write(ctx, "control", LOG_ALL)
        await bench.push(ctx, 8)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) == GOOD

    bench.run(testbench, slots.watch, note)
    assert starts[1] == list(range(dwords))
    assert bench.pushed == [(1, 1, 4), (1, 1, count), (1, 1, 1)]


def test_the_last_pushed_descriptor_is_the_one_that_is_written_last(bench):
    """The fetch follows its `next`: words of older descriptors do not come behind it."""
    slots, rows = Slots(bench), []

    async def note(ctx):
        push, granted = bench.dut.push, bench.dut.owner.granted
        async for _, _, valid, word, owned in ctx.tick().sample(push.valid, push.payload, granted):
            if valid and not owned:
                rows.append(max(bytes_of(word))[0] // 32)

    async def testbench(ctx):
        await bench.push(ctx, 32)
        await bench.push(ctx, 16)
        await bench.owner.run(ctx)
        rows.clear()
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) == GOOD

    bench.run(testbench, slots.watch, note)
    assert rows == [0] * 4 + [1] * 4


def test_spoilt_pushes_still_spoil_the_run(bench):
    """Also if the channel was the owner's: software's run does not wait for what is not whole."""

    async def testbench(ctx):
        await bench.push(ctx, 9)
        await bench.owner.run(ctx)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        await finished(bench, ctx)

    bench.run(testbench)
    assert bench.pushed[1] == (1, 0, 1)
