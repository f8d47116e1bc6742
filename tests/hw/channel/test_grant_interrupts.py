# SPDX-License-Identifier: BSD-2-Clause
"""Runs of software's that are interrupted for another owner, and go on."""

import pytest

from hw.channel.grant import SHARE
from hw.records import Outcome
from peerdma import regs
from peerdma.regs import Status
from tests.hw.channel.control_bench import GOOD, LAST, LOG_ALL, RUN, descriptor
from tests.hw.channel.shared_bench import SharedBench, finished, prepare
from tests.hw.channel.test_writeback import POLL, XDMA_KO, written

#: Bytes of each descriptor of software's, and how many move before its run is interrupted.
LENGTH = 1024
ENOUGH = SHARE // LENGTH
#: How a run ends that software has cleared Run of.
ABORTED = Status.IDLE_STOPPED | Status.DESCRIPTOR_STOPPED


def table(count, *, first=0x10_0000, **members):
    """A list of descriptors, each of a page."""
    found = [descriptor(LENGTH, pci=first + 0x1000 * n, **members) for n in range(count)]
    found[-1] |= LAST
    return found


def addresses(descriptors):
    return [each["pci_address"] for each in descriptors]


def bench_of(c2h, descriptors, *, delay=5, outcomes=None):
    bench = SharedBench(c2h)
    bench.descriptors, bench.delay, bench.outcomes = descriptors, delay, outcomes or {}
    bench.moves = True
    return bench


@pytest.fixture(params=[False, True], ids=["h2c", "c2h"])
def c2h(request):
    return request.param


@pytest.fixture
def bench(c2h):
    return bench_of(c2h, table(16))


async def start(bench, ctx):
    await prepare(bench, ctx)
    await bench.write(ctx, "control", LOG_ALL | RUN)


async def interrupt(bench, ctx):
    """Start a run of software's; the owner has the channel while it rests."""
    await start(bench, ctx)
    await bench.owner.grant(ctx, 2000)
    assert bench.starts == 1
    assert ctx.get(bench.dut.blocked)


async def moved(bench, ctx):
    """Bytes, as the counter of 64-bit beats has them."""
    return 8 * await bench.read(ctx, "perf_data_lo")


async def shown(bench, ctx):
    """What software sees of a run that is over, but the time that it took."""
    status = await finished(bench, ctx, 2000)
    count = await bench.read(ctx, "completed_count")
    return status, count, await moved(bench, ctx)


def alone(c2h, descriptors, **members):
    """What software sees of this run where there is no other, the errors included."""
    bench, found = bench_of(c2h, descriptors, **members), []

    async def testbench(ctx):
        await start(bench, ctx)
        found.extend([await shown(bench, ctx), bench.interrupt_rises, bench.errors])

    bench.run(testbench)
    return found


def watch_holds(bench, holds):
    """Notes each cycle in which a list is put aside."""

    async def watch(ctx):
        async for _, _, hold in ctx.tick().sample(bench.dut.fetch.hold):
            if hold:
                holds.append(len(bench.handed))

    return watch


@pytest.mark.parametrize(("delay", "reading"), [(1, 0), (5, 30), (6, 0), (7, 5), (8, 0), (60, 0)])
@pytest.mark.parametrize(
    ("count", "runs", "rests"),
    [
        # Where it is short, the owner waits.
        (ENOUGH - 1, 1, False),
        (32, 1, True),
        # Once more behind as many bytes again.
        (48, 2, True),
    ],
)
def test_a_run_goes_on_where_it_was_when_the_owner_has_had_its_turn(
    c2h, count, runs, rests, delay, reading
):
    descriptors, grants = table(count), []
    bench = bench_of(c2h, descriptors, delay=delay)
    bench.reading = reading

    async def testbench(ctx):
        await start(bench, ctx)
        for turn in range(runs):
            await bench.owner.grant(ctx, 2000)
            if rests:
                assert await bench.read(ctx, "status") == Status.BUSY
                assert ctx.get(bench.dut.blocked)
                assert ctx.get(bench.dut.busy)
            # All that was handed on has moved, and none is lost or moves twice.
            grants.append(await moved(bench, ctx))
            assert grants[-1] == LENGTH * len(bench.handed)
            assert await bench.read(ctx, "completed_count") == len(bench.handed)
            spans = len(bench.spans)
            await bench.owner.begin(ctx)
            end = await bench.owner.end(ctx)
            assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 2)
            assert len(bench.spans) == spans + 2
            await ctx.tick().repeat(20)
            # It goes on, as the owner has no more for now.
            assert bench.resumed == [0] + [0, 1] * rests * (turn + 1) + [0] * (not rests)
        seen = [await shown(bench, ctx), bench.interrupt_rises, bench.errors]
        assert seen == alone(c2h, descriptors, delay=delay)
        assert seen[0] == (GOOD, count, LENGTH * count)

    bench.run(testbench)
    assert bench.handed == addresses(descriptors)
    ours = addresses(bench.owned_descriptors)
    assert [span[0] for span in bench.spans if span[0] not in ours] == bench.handed
    assert bench.owners == ([0] + [1, 0] * runs if rests else [0, 1])
    if rests:
        before = 0
        for at in grants:
            assert SHARE <= at - before < LENGTH * count
            before = at


def test_a_run_is_not_interrupted_where_no_owner_requests_the_channel(bench):
    holds = []

    async def testbench(ctx):
        await start(bench, ctx)
        assert (await shown(bench, ctx))[0] == GOOD

    bench.run(testbench, watch_holds(bench, holds))
    assert not holds
    assert bench.resumed == [0]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("restart", ["at once", "later"])
def test_clearing_run_of_one_that_rests_ends_it_alone(bench, begun, restart):
    """At once, and the owner's is not disturbed; the next one of software's has its own list.

    The pair may hold what was for the run: it breaks behind the owner's.
    """
    flushes, broken = [], []

    async def watch(ctx):
        dut = bench.dut
        async for _, _, owned, flush, breaks in ctx.tick().sample(
            dut.host.owned, dut.fetch.flush, dut.stream.breaks
        ):
            if owned and flush and bench.stuck:
                flushes.append(flush)
            if breaks:
                broken.append(bench.starts)

    async def testbench(ctx):
        await interrupt(bench, ctx)
        bench.stuck = True
        if begun:
            await bench.owner.begin(ctx)
        await bench.write(ctx, "control", LOG_ALL)
        assert await finished(bench, ctx, 10) == ABORTED
        assert await bench.read(ctx, "completed_count") == len(bench.handed)
        assert bench.interrupt_rises == 1
        assert not ctx.get(bench.dut.blocked)
        if not begun:
            await bench.owner.begin(ctx)
        given = len(bench.handed)
        bench.descriptors = table(3, first=0x20_0000)
        if restart == "at once":
            await bench.write(ctx, "control", LOG_ALL | RUN)
            assert await bench.read(ctx, "status") == Status.BUSY
        await ctx.tick().repeat(20)
        assert bench.starts == 2
        assert not flushes
        bench.stuck = False
        end = await bench.owner.end(ctx)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 2)
        if restart == "later":
            await ctx.tick().repeat(20)
            assert bench.starts == 2, "it goes on though it is over"
            await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) == GOOD
        assert await bench.read(ctx, "completed_count") == 3
        assert bench.handed[given:] == addresses(bench.descriptors)
        assert bench.resumed == [0, 0, 0]
        assert set(broken) == {2}

    bench.run(testbench, watch)


def test_a_run_that_has_used_the_stream_is_not_interrupted(c2h):
    """However much it moves."""
    holds = []
    descriptors = table(4 * ENOUGH)
    descriptors[0]["card_address"] = regs.STREAM_WINDOW
    bench = bench_of(c2h, descriptors)

    async def testbench(ctx):
        await start(bench, ctx)
        await bench.owner.grant(ctx, 2000)
        assert bench.handed == addresses(descriptors)
        assert await shown(bench, ctx) == (GOOD, len(descriptors), LENGTH * len(descriptors))

    bench.run(testbench, watch_holds(bench, holds))
    assert not holds


def test_a_run_whose_first_stream_descriptor_comes_as_its_list_is_put_aside_goes_on(c2h):
    """Without the owner, which waits for its end. Its other bytes of the stream are behind."""
    found = set()
    for first in range(ENOUGH, ENOUGH + 5):
        for delay in range(5, 9):
            descriptors = table(3 * ENOUGH)
            for each in descriptors[first:]:
                each["card_address"] = regs.STREAM_WINDOW
            bench, holds = bench_of(c2h, descriptors, delay=delay), []

            async def testbench(ctx, bench=bench, descriptors=descriptors):
                await start(bench, ctx)
                await bench.owner.run(ctx)
                seen = await shown(bench, ctx)
                assert seen == (GOOD, len(descriptors), LENGTH * len(descriptors))

            bench.run(testbench, watch_holds(bench, holds))
            assert bench.handed == addresses(descriptors)
            streamed = [bool(card & regs.STREAM_WINDOW) for _, card, _ in bench.spans]
            begin = streamed.index(True)
            # The bytes of the stream follow each other.
            assert all(streamed[begin : begin + len(descriptors) - first])
            found.add((*bench.owners, *bench.resumed, bool(holds)))
    rested, went_on, untouched = (
        (0, 1, 0, 0, 0, 1, True),
        (0, 0, 1, 0, 1, 0, True),
        (0, 1, 0, 0, False),
    )
    assert found == {rested, went_on, untouched}


@pytest.mark.parametrize(
    ("count", "bad", "outcomes"),
    [
        # Stop is among those that were taken,
        (9, {}, {}),
        # an error of the data is,
        (32, {}, {6: Outcome.POISONED}),
        # and one of a descriptor.
        (32, {7: {"card_address": 0x100_0000}}, {}),
        (32, {7: {"outcome": Outcome.MAGIC}}, {}),
    ],
    ids=["stop", "data", "decode", "magic"],
)
@pytest.mark.parametrize("delay", [60, 63])
def test_a_run_that_ends_while_its_list_is_put_aside_ends_as_it_would_have(
    c2h, count, bad, outcomes, delay
):
    descriptors, holds = table(count), []
    for at, members in bad.items():
        descriptors[at] |= members
    bench = bench_of(c2h, descriptors, delay=delay, outcomes=outcomes)

    async def testbench(ctx):
        await start(bench, ctx)
        ctx.set(bench.dut.owner.request, 1)
        seen = [await shown(bench, ctx), bench.interrupt_rises, bench.errors]
        expected = alone(c2h, descriptors, delay=delay, outcomes=outcomes)
        # How much was under way behind an error depends on when the list was put aside.
        assert seen[0][:2] == expected[0][:2]
        assert seen[1:] == expected[1:]
        bench.outcomes = {}
        end = await bench.owner.run(ctx)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 2)
        await bench.write(ctx, "control", LOG_ALL)
        bench.descriptors = table(2)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) == GOOD

    bench.run(testbench, watch_holds(bench, holds))
    assert holds
    assert bench.owners == [0, 1, 0]
    assert bench.resumed == [0, 0, 0]


@pytest.mark.parametrize("begun", [False, True])
def test_a_soft_reset_ends_a_run_that_rests(bench, begun):
    settings = bench.dut.host.settings

    async def testbench(ctx):
        await interrupt(bench, ctx)
        if begun:
            bench.stuck = True
            await bench.owner.begin(ctx)
            await ctx.tick().repeat(20)
        ctx.set(settings.stop, 1)
        await ctx.tick().repeat(10)
        assert await bench.read(ctx, "status") == ABORTED | Status.BUSY
        bench.stuck = False
        if begun:
            assert (await bench.owner.end(ctx)).aborted
        ctx.set(bench.dut.owner.request, 0)
        await bench.write(ctx, "control", LOG_ALL)
        await ctx.tick().repeat(20)
        ctx.set(settings.stop, 0)
        await ctx.tick().repeat(20)
        assert bench.starts == 1 + begun
        given = len(bench.handed)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx, 2000) == GOOD
        assert bench.handed[given:] == addresses(bench.descriptors)
        assert not any(bench.resumed)

    bench.run(testbench)


@pytest.mark.parametrize("hold", [1, 40])
def test_each_descriptor_is_written_back_once_also_where_its_run_rests(c2h, hold):
    """In order, and the last one is, whoever has the channel while it is written."""
    count = 4 * ENOUGH
    bench, rested = bench_of(c2h, table(count, completed=1)), []

    async def owner(ctx):
        while True:
            await bench.owner.run(ctx)
            rested.append(bench.handed != addresses(bench.descriptors))
            await ctx.tick().repeat(50)

    async def testbench(ctx):
        await bench.write(ctx, "control", XDMA_KO | POLL)
        found = [await written(ctx, bench, wait=400, hold=hold) for _ in range(count)]
        assert found == [(n, 0) for n in range(1, count + 1)]
        assert await written(ctx, bench) is None
        assert await bench.read(ctx, "status") == 0

    bench.run(testbench, owner)
    assert any(rested)
