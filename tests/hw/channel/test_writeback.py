# SPDX-License-Identifier: BSD-2-Clause
"""Poll-mode writeback of a channel: what it asks to be written, and when."""

import pytest

from hw.records import Outcome
from peerdma import regs
from peerdma.regs import Status
from tests.hw.channel.control_bench import GOOD, LAST, LOG_ALL, RUN, Bench, descriptor

POLL = regs.CHANNEL["control"].field("pollmode_wb_enable").mask
#: What xdma.ko sets in poll mode: neither stopped nor completed is logged.
XDMA_KO = 0x04F8_3E19


async def written(ctx, bench, said=0, wait=60, hold=3):
    """Take the next writeback, within `wait` cycles, and say `hold` cycles later that it is done.

    Until then status may say only that the channel is busy, and `said`. Returns (completed count,
    error bit), or None if there was none.
    """
    dut = bench.dut
    for _ in range(wait):
        if ctx.get(dut.host.records.record.valid):
            break
        await ctx.tick()
    else:
        return None
    record = ctx.get(dut.host.records.record.payload)
    base = bench.base + regs.CHANNEL.base
    assert record.message == 0
    assert record.where << 3 == regs.CHANNEL.address("writeback_lo", base=base)
    assert record.what << 3 == regs.CHANNEL.address("completed_count", base=base)
    # Nothing is said yet of what is being written.
    assert await bench.read(ctx, "status") == Status.BUSY | said
    count = await bench.read(ctx, "completed_count")
    ctx.set(dut.host.records.record.ready, 1)
    await ctx.tick()
    ctx.set(dut.host.records.record.ready, 0)
    for _ in range(hold):
        assert not ctx.get(dut.host.records.record.valid)
        assert await bench.read(ctx, "status") == Status.BUSY | said
    ctx.set(dut.host.records.done, 1)
    await ctx.tick()
    ctx.set(dut.host.records.done, 0)
    return count, record.error


@pytest.mark.parametrize("c2h", [False, True])
def test_one_writeback_per_run_and_status_after_it(c2h):
    bench = Bench(c2h)
    bench.descriptors = [descriptor(), descriptor(), descriptor(**LAST)]

    async def testbench(ctx):
        for _ in range(2):
            await bench.write(ctx, "control", RUN | LOG_ALL | POLL)
            assert await written(ctx, bench) == (3, 0)
            await ctx.tick()
            assert await bench.read(ctx, "status") == GOOD
            assert await written(ctx, bench) is None
            await bench.write(ctx, "control", LOG_ALL | POLL)
            assert await written(ctx, bench) is None

    bench.run(testbench)


def test_needs_no_logging():
    bench = Bench()
    bench.descriptors = [descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "control", XDMA_KO)
        assert await written(ctx, bench) == (1, 0)
        await ctx.tick()
        assert await bench.read(ctx, "status") == 0

    bench.run(testbench)


def test_one_for_each_completed_descriptor_and_no_other():
    bench = Bench()
    flags = [1, 0, 1, 1, 0, 0, 1]
    bench.descriptors = [descriptor(completed=flag) for flag in flags]
    bench.descriptors.append(descriptor(length=0, completed=1))
    bench.descriptors.append(descriptor(stop=1))

    async def testbench(ctx):
        await bench.write(ctx, "control", XDMA_KO)
        for count, flag in enumerate([*flags, 1], start=1):
            if flag:
                assert await written(ctx, bench) == (count, 0)
        assert await written(ctx, bench) is None
        assert await bench.read(ctx, "completed_count") == len(bench.descriptors)
        assert await bench.read(ctx, "status") == 0

    bench.run(testbench)


def test_without_the_mode_nothing_is_written():
    bench = Bench()
    bench.descriptors = [descriptor(completed=1), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        assert await written(ctx, bench) is None
        assert await bench.read(ctx, "status") == GOOD

    bench.run(testbench)


@pytest.mark.parametrize("log", [0, LOG_ALL])
def test_an_error_is_written_once_with_the_failed_descriptor_counted(log):
    bench = Bench()
    bench.descriptors = [descriptor(), descriptor(completed=1), descriptor(**LAST)]
    bench.outcomes = {2: Outcome.POISONED}

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | POLL | log)
        assert await written(ctx, bench) == (2, 0)
        await ctx.tick()
        logged = Status.DESCRIPTOR_COMPLETED if log else Status(0)
        assert await bench.read(ctx, "status_rc") == Status.BUSY | logged
        assert await written(ctx, bench) == (3, 1)
        await ctx.tick()
        status = Status(await bench.read(ctx, "status"))
        assert bool(status & Status.errors()) == bool(log)
        assert await written(ctx, bench) is None
        # The next run is clean.
        bench.outcomes = {}
        bench.spans.clear()
        await bench.write(ctx, "control", 0)
        await bench.write(ctx, "control", RUN | POLL | log)
        assert await written(ctx, bench) == (2, 0)
        assert await written(ctx, bench, logged) == (3, 0)

    bench.run(testbench)


def test_a_descriptor_error_is_written_too():
    bench = Bench()
    bench.descriptors = [descriptor(), descriptor(outcome=Outcome.MAGIC)]

    async def testbench(ctx):
        await bench.write(ctx, "control", XDMA_KO)
        assert await written(ctx, bench) == (2, 1)
        await ctx.tick()
        assert await bench.read(ctx, "status") == Status.MAGIC_STOPPED

    bench.run(testbench)


def test_waits_until_nothing_of_the_run_is_left():
    bench = Bench()
    bench.descriptors = [descriptor(**LAST), descriptor()]
    bench.delay = 40

    async def testbench(ctx):
        # The environment takes both descriptors; the second one's data is still to come when
        # the first one stops the run.
        await bench.write(ctx, "control", XDMA_KO)
        while not ctx.get(bench.dut.fetch.flush):
            await ctx.tick()
        while not ctx.get(bench.dut.drained):
            assert not ctx.get(bench.dut.host.records.record.valid)
            await ctx.tick()
        assert await written(ctx, bench) == (1, 0)

    bench.run(testbench)


@pytest.mark.parametrize("at", range(1, 36))
@pytest.mark.parametrize("restart", [False, True])
def test_nothing_is_written_after_run_was_cleared(at, restart):
    """Run is cleared at every cycle; the next run has its own writebacks and no other."""
    bench = Bench()
    bench.descriptors = [descriptor(completed=1), descriptor(completed=1), descriptor(**LAST)]

    async def testbench(ctx):
        dut = bench.dut
        outstanding = 0

        async def sink(cycles):
            nonlocal outstanding
            for cycle in range(cycles):
                ctx.set(dut.host.records.record.ready, cycle % 3 == 0)
                ctx.set(dut.host.records.done, outstanding == 1)
                taken = ctx.get(dut.host.records.record.valid) and ctx.get(
                    dut.host.records.record.ready
                )
                outstanding = 4 if taken else max(0, outstanding - 1)
                await ctx.tick()
            ctx.set(dut.host.records.record.ready, 0)
            ctx.set(dut.host.records.done, 0)

        await bench.write(ctx, "control", XDMA_KO)
        await sink(at)
        await bench.write(ctx, "control", XDMA_KO & ~RUN)
        assert not ctx.get(dut.host.records.record.valid)
        if restart:
            await bench.write(ctx, "control", XDMA_KO)
        for _ in range(outstanding):
            assert not ctx.get(dut.host.records.record.valid)
            ctx.set(dut.host.records.done, outstanding == 1)
            outstanding -= 1
            await ctx.tick()
        ctx.set(dut.host.records.done, 0)
        if not restart:
            for _ in range(40):
                assert not ctx.get(dut.host.records.record.valid)
                await ctx.tick()
            await bench.write(ctx, "control", XDMA_KO)
        assert [await written(ctx, bench) for _ in range(4)] == [(1, 0), (2, 0), (3, 0), None]

    bench.run(testbench)
