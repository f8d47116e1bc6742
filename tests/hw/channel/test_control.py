# SPDX-License-Identifier: BSD-2-Clause
"""A channel's registers and run state."""

import pytest

from hw.records import Outcome
from peerdma import regs
from peerdma.regs import Status
from tests.hw.channel.control_bench import GOOD, LAST, LOG_ALL, RUN, Bench, descriptor


@pytest.mark.parametrize("c2h", [False, True])
def test_one_descriptor_as_picoevb_runs_it(c2h):
    bench = Bench(c2h)
    bench.descriptors = [descriptor(4100, 0x100, **LAST, pci=0x12_3456_789A)]

    async def testbench(ctx):
        await bench.write(ctx, "descriptor_lo", 0xABCD_EFFF, regs.SGDMA)
        await bench.write(ctx, "descriptor_hi", 0x12, regs.SGDMA)
        await bench.write(ctx, "descriptor_adjacent", 0xFFFF_FFC5, regs.SGDMA)
        assert await bench.read(ctx, "status_rc") == 0
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", 0x00FF_FE7F)
        assert ctx.get(bench.dut.fetch.address) == 0x12_ABCD_EFE0
        assert ctx.get(bench.dut.fetch.adjacent) == 5
        assert await bench.read(ctx, "status") == Status.BUSY
        await bench.wait_interrupt(ctx)
        assert await bench.read(ctx, "status_rc") == GOOD
        assert not ctx.get(bench.dut.host.interrupt)
        assert await bench.read(ctx, "status_rc") == 0
        assert await bench.read(ctx, "completed_count") == 1
        await bench.write(ctx, "interrupt_enable", 0)
        await bench.write(ctx, "control", 0)
        await ctx.tick().repeat(20)
        assert await bench.read(ctx, "status") == 0
        assert await bench.read(ctx, "completed_count") == 1
        assert bench.spans == [(0x12_3456_789A, 0x100, 4100)]
        assert bench.interrupt_rises == bench.starts == 1

    bench.run(testbench)


@pytest.mark.parametrize("control", [RUN, RUN | LOG_ALL])
def test_nothing_is_logged_or_raised_without_its_enable(control):
    bench = Bench()
    bench.descriptors = [descriptor(**LAST)]

    async def testbench(ctx):
        if control == RUN:
            await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", control)
        await ctx.tick().repeat(40)
        assert await bench.read(ctx, "status") == (GOOD if control != RUN else 0)
        assert await bench.read(ctx, "completed_count") == 1
        assert bench.interrupt_rises == 0

    bench.run(testbench)


@pytest.mark.parametrize("register", ["control", "control_w1s"])
def test_fixed_card_addresses_are_refused(register):
    """The bit that asks for them is not kept, so that software can tell; the others are."""
    bench = Bench()
    bench.descriptors = [descriptor(64, 0x100, **LAST), descriptor(64, 0x100, **LAST)]
    non_inc = regs.CHANNEL["control"].field("non_inc_mode").mask

    async def testbench(ctx):
        await bench.write(ctx, register, non_inc | LOG_ALL)
        assert await bench.read(ctx, "control") == LOG_ALL
        await bench.write(ctx, register, non_inc | LOG_ALL | RUN)
        await ctx.tick().repeat(40)
        assert await bench.read(ctx, "control") == LOG_ALL | RUN
        assert await bench.read(ctx, "status") == GOOD

    bench.run(testbench)


def test_run_rise_clears_status_and_count_and_drops_the_request():
    bench = Bench()
    bench.descriptors = [descriptor(), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        for _ in range(3):
            await bench.write(ctx, "control", RUN | LOG_ALL)
            await ctx.tick()
            assert not ctx.get(bench.dut.host.interrupt)
            await bench.wait_interrupt(ctx)
            assert await bench.read(ctx, "completed_count") == 2
            await bench.write(ctx, "control_w1c", RUN)
        assert bench.interrupt_rises == 3
        assert len(bench.spans) == 6

    bench.run(testbench)


@pytest.mark.parametrize("offset", range(1, 30))
def test_read_to_clear_never_loses_an_event(offset):
    """A clear at any cycle around the events: each event shows in some read, with an edge."""
    bench = Bench()
    bench.delay = 3
    bench.descriptors = [descriptor(completed=1), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(offset)
        seen = await bench.read(ctx, "status_rc")
        rises = bench.interrupt_rises
        await ctx.tick().repeat(60)
        left = await bench.read(ctx, "status_rc")
        assert (seen | left) & ~Status.BUSY == GOOD
        if left:
            assert bench.interrupt_rises > (rises if seen & ~Status.BUSY else 0)
        assert await bench.read(ctx, "completed_count") == 2

    bench.run(testbench)


def test_busy_count_and_both_bits_change_in_one_cycle():
    bench = Bench()
    bench.descriptors = [descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        values = set()
        for _ in range(40):
            values.add((await bench.read(ctx, "status"), await bench.read(ctx, "completed_count")))
            await ctx.tick()
        final = (int(GOOD), 1)
        # The count may lead by a cycle; status never shows one bit without the other or busy.
        assert values <= {(Status.BUSY, 0), (Status.BUSY, 1), (GOOD, 1)}
        assert final in values

    bench.run(testbench)


@pytest.mark.parametrize("enabled", [Status.IDLE_STOPPED, GOOD | Status.IDLE_STOPPED, GOOD, 0])
def test_idle_stopped_only_when_run_is_cleared_under_way(enabled):
    bench = Bench()
    bench.delay = 50
    bench.descriptors = [descriptor(), descriptor(**LAST)]
    stopped = int(enabled & (Status.IDLE_STOPPED | Status.DESCRIPTOR_STOPPED))

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(10)
        await bench.write(ctx, "control", int(enabled))
        await ctx.tick().repeat(100)
        assert bench.interrupt_rises == bool(stopped)
        assert await bench.read(ctx, "status_rc") == stopped
        assert await bench.read(ctx, "completed_count") == 0

    bench.run(testbench)


@pytest.mark.parametrize("abort", range(1, 40, 3))
def test_restart_while_draining_is_a_clean_run(abort):
    """Hazard of drivers that time out: a new run written before the old one has drained."""
    bench = Bench()
    bench.delay = 20
    bench.descriptors = [descriptor(completed=1), descriptor(completed=1), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(abort)
        await bench.write(ctx, "control", 0)
        bench.descriptors = [descriptor(128, pci=0x8000, **LAST)]
        await bench.write(ctx, "control", RUN | LOG_ALL)
        assert await bench.read(ctx, "status") == Status.BUSY
        for _ in range(200):
            status = await bench.read(ctx, "status")
            if not status & Status.BUSY:
                break
            await ctx.tick()
        assert status == GOOD
        assert await bench.read(ctx, "completed_count") == 1
        assert bench.starts == 2
        assert bench.spans[-1] == (0x8000, 0, 128)

    bench.run(testbench)


@pytest.mark.parametrize("ending", ["stop", "error", "abort"])
def test_busy_and_silent_as_long_as_anything_of_the_run_is_under_way(ending):
    bench = Bench()
    bench.delay = 20
    bench.descriptors = [descriptor(**LAST), descriptor()]
    if ending == "error":
        bench.outcomes = {0: Outcome.POISONED}

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        while not bench.spans:
            await ctx.tick()
        bench.delay = 40
        if ending == "abort":
            await ctx.tick().repeat(10)
            await bench.write(ctx, "control", LOG_ALL)
        while not ctx.get(bench.dut.fetch.flush):
            assert await bench.read(ctx, "status") == Status.BUSY
        waited = 0
        while not ctx.get(bench.dut.drained):
            assert await bench.read(ctx, "status") == Status.BUSY
            assert not ctx.get(bench.dut.host.interrupt)
            # A run does not end in a cycle with an access.
            await ctx.tick()
            waited += 1
        assert waited
        await ctx.tick().repeat(3)
        assert not await bench.read(ctx, "status") & Status.BUSY
        assert ctx.get(bench.dut.host.interrupt)

    bench.run(testbench)


def test_soft_reset_request_stops_like_an_abort():
    bench = Bench()
    bench.delay = 30
    bench.descriptors = [descriptor(), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(10)
        ctx.set(bench.dut.host.settings.stop, 1)
        await ctx.tick().repeat(60)
        aborted = Status.IDLE_STOPPED | Status.DESCRIPTOR_STOPPED
        assert await bench.read(ctx, "status") == aborted | Status.BUSY, "busy up to the reset"
        await bench.write(ctx, "control", LOG_ALL)
        ctx.set(bench.dut.host.settings.stop, 0)
        assert not await bench.read(ctx, "status") & Status.BUSY

    bench.run(testbench)


def test_performance_counters():
    bench = Bench()
    bench.descriptors = [descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "perf_control", 0x2)
        await bench.write(ctx, "perf_control", 0x5)
        ctx.set(bench.dut.beats, 3)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(60)
        cycles = await bench.read(ctx, "perf_cycles_lo")
        assert 5 < cycles < 40
        assert await bench.read(ctx, "perf_data_lo") == 3 * cycles
        await bench.write(ctx, "perf_control", 0x7)
        assert await bench.read(ctx, "perf_cycles_lo") == 0

    bench.run(testbench)


@pytest.mark.parametrize("c2h", [False, True])
def test_pushed_descriptors_serve_one_run_unless_an_address_follows(c2h):
    """Of both places where a run can begin, the one that software wrote last counts."""
    bench = Bench(c2h)
    bench.descriptors = [descriptor(**LAST)]

    async def testbench(ctx):
        async def run():
            await bench.write(ctx, "control", LOG_ALL | RUN)
            await ctx.tick().repeat(60)
            assert await bench.read(ctx, "status") == GOOD
            await bench.write(ctx, "control", LOG_ALL)

        await bench.push(ctx, 16)
        await run()
        await run()
        await bench.push(ctx, 8)
        await bench.write(ctx, "descriptor_lo", 0x1000, regs.SGDMA)
        await run()
        await bench.write(ctx, "descriptor_lo", 0x1000, regs.SGDMA)
        await bench.push(ctx, 11)
        await run()
        # while a run is on, nothing can be pushed, and what comes all the same is not forgotten
        await bench.write(ctx, "control", LOG_ALL | RUN)
        await bench.push(ctx, 8)
        await ctx.tick().repeat(60)
        await bench.write(ctx, "control", LOG_ALL)
        await run()

    bench.run(testbench)
    nothing = (0, 1, 0)
    assert bench.pushed == [(1, 1, 2), nothing, nothing, (1, 0, 1), nothing, (1, 0, 7)]
