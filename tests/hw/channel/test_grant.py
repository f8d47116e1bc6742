# SPDX-License-Identifier: BSD-2-Clause
"""Software's runs and those of another owner on one channel."""

from itertools import groupby

import pytest

from hw.channel.grant import TURN
from hw.channel.signatures import RUNS
from hw.records import Outcome
from peerdma import regs
from peerdma.regs import Status
from tests.hw.channel.control_bench import GOOD, LAST, LOG_ALL, RUN, descriptor
from tests.hw.channel.shared_bench import SharedBench, finished, prepare

#: Registers of a channel that a run of software's changes.
SHOWN = (
    "status",
    "completed_count",
    "perf_cycles_lo",
    "perf_cycles_hi",
    "perf_data_lo",
    "perf_data_hi",
)


@pytest.fixture(params=[False, True], ids=["h2c", "c2h"])
def bench(request):
    return SharedBench(request.param)


async def shown(bench, ctx):
    return [await bench.read(ctx, name) for name in SHOWN]


def spans_at(bench, *addresses):
    assert [span[0] for span in bench.spans] == list(addresses)


@pytest.mark.parametrize("before", [False, True])
def test_a_run_of_the_owner_shows_in_no_register(bench, before):
    """Neither when software has had no run, nor what its last run left."""

    async def testbench(ctx):
        await prepare(bench, ctx)
        if before:
            await bench.write(ctx, "control", LOG_ALL | RUN)
            assert await finished(bench, ctx) == GOOD
            await bench.write(ctx, "control", LOG_ALL)
        was, spans = await shown(bench, ctx), len(bench.spans)
        rises = bench.interrupt_rises
        await bench.owner.grant(ctx)
        await bench.owner.begin(ctx, 0x12_3456_7000, 5)
        bench.stuck = True
        await ctx.tick().repeat(20)
        assert await shown(bench, ctx) == was
        bench.stuck = False
        end = await bench.owner.end(ctx)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 2)
        await ctx.tick().repeat(20)
        assert await shown(bench, ctx) == was
        assert not ctx.get(bench.dut.owner.granted)
        assert bench.interrupt_rises == rises
        assert len(bench.spans) == spans + 2
        assert not bench.errors

    bench.run(testbench)


def test_the_list_is_the_owners_and_then_softwares_again(bench):
    fetch = bench.dut.fetch

    async def testbench(ctx):
        await bench.write(ctx, "descriptor_lo", 0xABCD_EFE0, regs.SGDMA)
        await bench.write(ctx, "descriptor_adjacent", 3, regs.SGDMA)
        await bench.owner.grant(ctx)
        ctx.set(bench.dut.owner.address, 0x12_3456_7000)
        ctx.set(bench.dut.owner.adjacent, 5)
        await ctx.delay(1e-9)
        assert (ctx.get(fetch.address), ctx.get(fetch.adjacent)) == (0x12_3456_7000, 5)
        await bench.owner.begin(ctx, 0x12_3456_7000, 5)
        await bench.owner.end(ctx)
        assert (ctx.get(fetch.address), ctx.get(fetch.adjacent)) == (0xABCD_EFE0, 3)

    bench.run(testbench)


def test_run_written_meanwhile_is_busy_and_waits(bench):
    async def testbench(ctx):
        await prepare(bench, ctx)
        bench.stuck = True
        await bench.owner.grant(ctx)
        await bench.owner.begin(ctx)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        for _ in range(30):
            assert await bench.read(ctx, "status") == Status.BUSY
        assert ctx.get(bench.dut.blocked)
        assert bench.starts == 1
        ctx.set(bench.dut.beats, 3)  # what the owner's run moves is not counted
        await ctx.tick().repeat(5)
        ctx.set(bench.dut.beats, 0)
        assert await bench.read(ctx, "perf_data_lo") == 0
        bench.stuck = False
        assert (await bench.owner.end(ctx)).count == 2
        assert await finished(bench, ctx) == GOOD
        assert await bench.read(ctx, "completed_count") == 2
        assert bench.owners == [1, 0]
        assert bench.interrupt_rises == 1
        spans_at(bench, 0x8000, 0x9000, 0x1000, 0x2000)

    bench.run(testbench)


def test_run_cleared_while_it_waits_was_no_run(bench):
    """Idle at once, without an event; nothing begins when the channel is free."""

    async def testbench(ctx):
        await prepare(bench, ctx)
        bench.stuck = True
        await bench.owner.grant(ctx)
        await bench.owner.begin(ctx)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await bench.read(ctx, "status") == Status.BUSY
        await bench.write(ctx, "control", LOG_ALL)
        assert await bench.read(ctx, "status") == 0
        bench.stuck = False
        end = await bench.owner.end(ctx)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 2)
        await ctx.tick().repeat(20)
        assert await bench.read(ctx, "status") == 0
        assert bench.starts == 1
        assert not bench.interrupt_rises
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) == GOOD

    bench.run(testbench)


def test_owners_take_turns(bench):
    """When both always want the channel, the owner has all runs that begin in its turn, and then
    software has one; without the other, each has every run."""
    port, rounds = bench.dut.owner, 2

    async def restart(ctx):
        await bench.write(ctx, "control", LOG_ALL)
        await bench.write(ctx, "control", LOG_ALL | RUN)

    async def testbench(ctx):
        await bench.write(ctx, "control", LOG_ALL | RUN)
        for _ in range(rounds):
            ctx.set(port.request, 1)
            cycles, runs = 0, bench.starts
            await restart(ctx)
            while bench.starts < runs + 2:  # the second one is being waited for
                ctx.set(port.start, ctx.get(port.granted) and not ctx.get(port.started))
                await ctx.tick()
            while bench.owners[-1]:
                ctx.set(port.start, ctx.get(port.granted) and not ctx.get(port.started))
                cycles += 1
                await ctx.tick()
            assert TURN - 100 < cycles < TURN + 100
        ctx.set(port.request, 0)
        await finished(bench, ctx)
        await bench.write(ctx, "control", LOG_ALL)
        for _ in range(2):
            await bench.owner.run(ctx)
        for _ in range(2):
            await bench.write(ctx, "control", LOG_ALL | RUN)
            await finished(bench, ctx)
            await bench.write(ctx, "control", LOG_ALL)

    bench.run(testbench)
    runs = [(owner, len(list(each))) for owner, each in groupby(bench.owners)]
    assert [owner for owner, _ in runs] == [0, 1] * (rounds + 1) + [0]
    assert [count for owner, count in runs if not owner] == [1] * (rounds + 1) + [2]
    assert all(count > 50 for owner, count in runs[: 2 * rounds] if owner)


@pytest.mark.parametrize("more", [False, True])
def test_software_does_not_wait_for_an_owner_that_has_no_more(bench, more):
    """One that has is waited for until its turn is over, if it has had a run in it."""
    waits = []

    async def testbench(ctx):
        ctx.set(bench.dut.owner.more, more)
        for turns in (0, 1):
            await bench.write(ctx, "control", LOG_ALL | RUN)
            await finished(bench, ctx)
            await bench.write(ctx, "control", LOG_ALL)
            for _ in range(turns):
                await bench.owner.run(ctx)
            starts, cycles = bench.starts, 0
            await bench.write(ctx, "control", LOG_ALL | RUN)
            while bench.starts == starts:
                cycles += 1
                await ctx.tick()
            waits.append(cycles)
            await finished(bench, ctx)
            await bench.write(ctx, "control", LOG_ALL)

    bench.run(testbench)
    assert waits[0] < 10
    assert waits[1] < 10 if not more else TURN - 200 < waits[1] < TURN


def test_a_run_that_software_restarts_before_it_has_ended_waits_for_its_turn(bench):
    async def testbench(ctx):
        bench.stuck = True
        await bench.write(ctx, "control", LOG_ALL | RUN)
        await ctx.tick().repeat(10)
        ctx.set(bench.dut.owner.request, 1)
        await bench.write(ctx, "control", LOG_ALL)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        await ctx.tick().repeat(10)
        bench.stuck = False
        await bench.owner.run(ctx)
        assert await finished(bench, ctx) == GOOD

    bench.run(testbench)
    assert bench.owners == [0, 1, 0]


@pytest.mark.parametrize("turn", [False, True])
def test_a_request_withdrawn_before_the_run_lets_software_go_on(bench, turn):
    """Also in the owner's turn, whatever it has more."""

    async def testbench(ctx):
        ctx.set(bench.dut.owner.more, 1)
        if turn:
            await bench.write(ctx, "control", LOG_ALL | RUN)
            await finished(bench, ctx)
            await bench.write(ctx, "control", LOG_ALL)
            await bench.owner.run(ctx)
        await bench.owner.grant(ctx)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await bench.read(ctx, "status") == Status.BUSY
        ctx.set(bench.dut.owner.request, 0)
        assert await finished(bench, ctx) == GOOD
        assert bench.owners == [0, 1] * turn + [0]

    bench.run(testbench)


def test_a_request_withdrawn_during_the_run_aborts_it(bench):
    """The run ends when all that is under way has come; what follows is not disturbed."""
    bench.delay = 50

    async def testbench(ctx):
        await bench.owner.grant(ctx)
        await bench.owner.begin(ctx)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        while not bench.spans:
            await ctx.tick()
        ctx.set(bench.dut.owner.request, 0)
        for _ in range(30):
            await ctx.tick()
            assert ctx.get(bench.dut.fetch.flush)
            assert not ctx.get(bench.dut.owner.ended.valid)
        end = await bench.owner.end(ctx)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 1, 0)
        assert await finished(bench, ctx) == GOOD
        assert await bench.read(ctx, "completed_count") == 2
        assert bench.owners == [1, 0]

    bench.run(testbench)


@pytest.mark.parametrize(
    ("bad", "outcomes", "outcome", "of_descriptor", "count"),
    [
        ({"outcome": Outcome.MAGIC}, {}, Outcome.MAGIC, 1, 1),
        ({"card": 0x10_0000}, {}, Outcome.DECODE, 0, 1),
        ({}, {0: Outcome.COMPLETER_ABORT}, Outcome.COMPLETER_ABORT, 0, 0),
    ],
)
def test_a_failing_run_of_either_leaves_nothing_to_the_other(
    bench, bad, outcomes, outcome, of_descriptor, count
):
    failing = [descriptor(pci=0x3000), descriptor(**bad, **LAST)]
    good = list(bench.descriptors)

    async def testbench(ctx):
        bench.owned_descriptors, bench.outcomes = failing, outcomes
        await prepare(bench, ctx)
        was = await shown(bench, ctx)
        end = await bench.owner.run(ctx)
        found = (end.outcome, end.descriptor, end.aborted, end.count)
        assert found == (outcome, of_descriptor, 0, count)
        assert await shown(bench, ctx) == was
        assert not bench.errors
        assert not bench.interrupt_rises
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) == GOOD
        assert await bench.read(ctx, "completed_count") == 2
        await bench.write(ctx, "control", LOG_ALL)

        bench.descriptors, bench.owned_descriptors = failing, good
        bench.outcomes = {len(bench.spans): each for each in outcomes.values()}
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) & Status.errors()
        end = await bench.owner.run(ctx)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 2)
        assert len(bench.errors) == 1

    bench.run(testbench)


def test_a_soft_reset_aborts_the_owners_run_and_none_starts(bench):
    settings = bench.dut.host.settings

    async def testbench(ctx):
        bench.stuck = True
        await bench.owner.grant(ctx)
        await bench.owner.begin(ctx)
        await ctx.tick().repeat(10)
        ctx.set(settings.stop, 1)
        await ctx.tick().repeat(10)
        assert ctx.get(bench.dut.fetch.flush)
        bench.stuck = False
        assert (await bench.owner.end(ctx, request=1)).aborted
        ctx.set(bench.dut.owner.start, 1)
        await ctx.tick().repeat(20)
        assert bench.starts == 1
        ctx.set(settings.stop, 0)
        assert (await bench.owner.end(ctx)).count == 2

    bench.run(testbench)


def test_credits_and_the_halt_bit_are_softwares(bench):
    """The owner's run needs and takes no credits, and is not held."""
    settings, fetch = bench.dut.host.settings, bench.dut.fetch

    async def testbench(ctx):
        ctx.set(settings, {"credit_mode": 1, "halt": 1})
        await bench.write(ctx, "descriptor_credits", 7, regs.SGDMA)
        await bench.owner.grant(ctx)
        await bench.owner.begin(ctx)
        assert ctx.get(fetch.credit) == 16
        assert not ctx.get(fetch.halt)
        ctx.set(fetch.spent, 5)
        await ctx.tick().repeat(3)
        ctx.set(fetch.spent, 0)
        await bench.owner.end(ctx)
        await ctx.tick()
        assert ctx.get(fetch.credit) == 7
        assert ctx.get(fetch.halt)

    bench.run(testbench)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("end", ["good", "failed", "aborted", "aborted early", "not fetched"])
def test_the_pair_is_flushed_where_a_run_that_used_it_failed(bench, streamed, end):
    """And where its list was not known to the end: the rest may have been for the stream."""
    pair = bench.dut.stream
    card = regs.STREAM_WINDOW if streamed else 0
    bench.owned_descriptors = [descriptor(card=card), descriptor(card=card, **LAST)]
    bench.outcomes = {1: Outcome.POISONED} if end == "failed" else {}
    if end == "not fetched":
        bench.owned_descriptors = [descriptor(outcome=Outcome.UNSUPPORTED_REQUEST)]
    bench.delay = 40 if end == "aborted" else 5
    doubtful, broken = end in ("aborted early", "not fetched"), []

    async def watch(ctx):
        async for _, _, running, breaks, granted in ctx.tick().sample(
            pair.running, pair.breaks, bench.dut.owner.granted
        ):
            if granted and breaks:
                assert running
                broken.append(breaks)

    async def testbench(ctx):
        ctx.set(pair.start_ok, 0)
        await bench.owner.grant(ctx)
        ctx.set(bench.dut.owner.start, 1)
        await ctx.tick().repeat(10)
        assert not ctx.get(bench.dut.owner.started)
        ctx.set(pair.start_ok, 1)
        await bench.owner.begin(ctx)
        assert ctx.get(pair.running)
        if end.startswith("aborted"):
            await ctx.tick().repeat(20 if end == "aborted" else 4)
            ctx.set(bench.dut.owner.request, 0)
        await bench.owner.end(ctx)
        await ctx.tick()
        assert not ctx.get(pair.running)

    bench.run(testbench, watch)
    assert bool(broken) == ((streamed and end != "good") or doubtful)


async def overlap(bench, ctx, runs):
    """So many runs of the owner are under way."""
    await bench.owner.grant(ctx)
    await bench.owner.begin(ctx)
    for _ in range(runs - 1):
        await bench.owner.follow(ctx)


def found(end):
    return end.outcome, end.aborted, end.count, end.last


def test_runs_of_the_owner_overlap_and_end_in_order(bench):
    """As many as there can be: each with its count; the channel is given back behind the last."""
    bench.delay = 120

    async def testbench(ctx):
        await overlap(bench, ctx, RUNS)
        assert len(bench.spans) >= 2 * RUNS - 2
        ctx.set(bench.dut.owner.start, 1)
        await ctx.tick().repeat(10)
        assert bench.starts == RUNS
        ctx.set(bench.dut.owner.start, 0)
        for run in range(RUNS):
            assert ctx.get(bench.dut.owner.runs) == RUNS - run
            end = await bench.owner.end(ctx, request=run < RUNS - 1)
            assert found(end) == (Outcome.OK, 0, 2, run == RUNS - 1)
        await ctx.tick()
        assert ctx.get(bench.dut.owner.runs) == 0
        assert not ctx.get(bench.dut.owner.granted)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        assert await finished(bench, ctx) == GOOD
        assert len(bench.spans) == 2 * RUNS + 2

    bench.run(testbench)


@pytest.mark.parametrize("of_descriptor", [False, True])
def test_a_run_that_fails_aborts_those_behind_it(bench, of_descriptor):
    """Those before it end well; and what has begun behind is over when it is reported."""
    bench.delay = 100
    bench.outcomes = {3: Outcome.POISONED}

    async def testbench(ctx):
        await overlap(bench, ctx, 2)
        if of_descriptor:
            bench.outcomes.clear()
            bench.owned_descriptors = [descriptor(outcome=Outcome.MAGIC)]
        await bench.owner.follow(ctx)
        await ctx.tick().repeat(5)
        bench.owned_descriptors = [descriptor(pci=0xA000, **LAST)]
        await bench.owner.follow(ctx)
        spans = len(bench.spans)
        good = 1 + of_descriptor
        for _ in range(good):
            assert found(await bench.owner.end(ctx, request=1)) == (Outcome.OK, 0, 2, 0)
        outcome, count = (Outcome.MAGIC, 0) if of_descriptor else (Outcome.POISONED, 1)
        assert found(await bench.owner.end(ctx)) == (outcome, 0, count, 1)
        assert (0xA000 in [span[0] for span in bench.spans]) != of_descriptor
        assert len(bench.spans) <= spans + 1
        # Those that did not end well stay to be seen.
        assert ctx.get(bench.dut.owner.runs) == 4 - good
        await bench.owner.run(ctx)

    bench.run(testbench)


def test_a_request_withdrawn_aborts_all_runs(bench):
    bench.delay = 100

    async def testbench(ctx):
        await overlap(bench, ctx, 3)
        ctx.set(bench.dut.owner.request, 0)
        end = await bench.owner.end(ctx)
        assert (end.outcome, end.aborted, end.last) == (Outcome.OK, 1, 1)
        await ctx.tick().repeat(3)
        assert not ctx.get(bench.dut.owner.started)

    bench.run(testbench)


@pytest.mark.parametrize("turn", [False, True])
def test_no_run_begins_behind_another_where_software_waits_and_the_turn_is_over(bench, turn):
    bench.delay = 60

    async def testbench(ctx):
        ctx.set(bench.dut.owner.more, 1)
        if turn:
            await bench.write(ctx, "control", LOG_ALL | RUN)
            await finished(bench, ctx)
            await bench.write(ctx, "control", LOG_ALL)
        await overlap(bench, ctx, 1)
        await bench.write(ctx, "control", LOG_ALL | RUN)
        ctx.set(bench.dut.owner.start, 1)
        for _ in range(20):
            assert turn or not ctx.get(bench.dut.owner.ready)
            await ctx.tick()
        ctx.set(bench.dut.owner.start, 0)
        assert (bench.starts - turn > 1) == turn

    bench.run(testbench)


@pytest.mark.parametrize("then", ["begins", "is aborted", "one before fails"])
def test_a_run_that_was_reserved_keeps_the_channel_whatever_software_waits_for(bench, then):
    """It is one of those under way, and the channel has none else when it begins, or is aborted."""
    bench.delay = 60
    bench.outcomes = {1: Outcome.POISONED} if then == "one before fails" else {}
    begins = then == "begins"

    async def testbench(ctx):
        port = bench.dut.owner
        await overlap(bench, ctx, 1)
        await bench.owner.reserve(ctx)
        assert ctx.get(port.runs) == 2
        await bench.write(ctx, "control", LOG_ALL | RUN)
        if bench.outcomes:
            assert found(await bench.owner.end(ctx)) == (Outcome.POISONED, 0, 1, 1)
            assert ctx.get(port.runs) == 2
        else:
            assert found(await bench.owner.end(ctx, request=1)) == (Outcome.OK, 0, 2, 0)
            await ctx.tick().repeat(30)
            assert ctx.get(port.granted) and ctx.get(port.runs) == bench.starts == 1
            if begins:
                await bench.owner.follow(ctx)
            else:
                ctx.set(port.request, 0)
            count = 2 * begins
            assert found(await bench.owner.end(ctx)) == (Outcome.OK, not begins, count, 1)
        bench.outcomes = {}
        assert await finished(bench, ctx) == GOOD
        assert bench.owners == [1] * (1 + begins) + [0]
        # Nothing is owed any more.
        await overlap(bench, ctx, 2)
        assert ctx.get(port.runs) == 2
        for last in range(2):
            assert found(await bench.owner.end(ctx, request=1)) == (Outcome.OK, 0, 2, last)

    bench.run(testbench)


def test_the_pair_is_flushed_where_an_earlier_run_of_those_that_overlap_used_it(bench):
    """As bytes of it may be left, though it has ended well."""
    pair, broken = bench.dut.stream, []
    bench.owned_descriptors = [descriptor(card=regs.STREAM_WINDOW, **LAST)]
    bench.outcomes, bench.delay = {1: Outcome.POISONED}, 60

    async def watch(ctx):
        async for _, _, breaks in ctx.tick().sample(pair.breaks):
            broken.append(breaks)

    async def testbench(ctx):
        await overlap(bench, ctx, 1)
        bench.owned_descriptors = [descriptor(**LAST)]
        await bench.owner.follow(ctx)
        assert (await bench.owner.end(ctx, request=1)).outcome == Outcome.OK
        assert (await bench.owner.end(ctx)).outcome == Outcome.POISONED

    bench.run(testbench, watch)
    assert any(broken)
