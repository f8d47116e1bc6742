# SPDX-License-Identifier: BSD-2-Clause
"""A channel's registers and run state, with a descriptor source and a data path made of Python."""

import pytest
from amaranth.sim import Simulator

from hw.channel import Channel
from hw.transfer import Outcome
from peerdma import regs
from peerdma.regs import Status

RUN = 1
LOG_ALL = 0x00FF_FE7E
GOOD = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED


class Bench:
    """Feeds `descriptors` when the channel starts and finishes each span after `delay` cycles."""

    def __init__(self, c2h=False):
        self.dut = Channel(index=0, c2h=c2h, ram_size=65536)
        self.base = regs.C2H_CHANNEL_BASE if c2h else 0
        self.descriptors = []
        self.outcomes = {}
        self.delay = 5
        self.spans = []
        self.errors = []
        self.starts = 0
        self.interrupt_rises = 0
        self.stuck = False

    def run(self, testbench):
        simulator = Simulator(self.dut)
        simulator.add_clock(8e-9)
        simulator.add_testbench(testbench)
        simulator.add_process(self._environment)
        simulator.run()

    async def _environment(self, ctx):
        """Descriptor source and data path, one step a clock cycle."""
        dut = self.dut
        queue, moving, cycle, before = [], [], 0, 0
        async for (
            _,
            _reset,
            start,
            flush,
            offered,
            taken,
            valid,
            span,
            irq,
            failed,
            error,
        ) in ctx.tick().sample(
            dut.start,
            dut.flush,
            dut.descriptor.valid,
            dut.descriptor.ready,
            dut.span.valid,
            dut.span.payload,
            dut.interrupt,
            dut.error_valid,
            dut.error,
        ):
            cycle += 1
            self.interrupt_rises += irq and not before
            before = irq
            if failed:
                self.errors.append((error.outcome, error.address, error.descriptor))
            if start:
                self.starts += 1
                queue = list(self.descriptors)
            if offered and taken:
                queue.pop(0)
            if valid:
                self.spans.append((span.pci_address, span.card_address, span.length))
                moving.append((cycle + self.delay, self.outcomes.get(len(self.spans) - 1, 0)))
            if flush:
                queue = []
            done = bool(moving) and moving[0][0] <= cycle and not self.stuck
            ctx.set(dut.done, done)
            if done:
                ctx.set(dut.done_outcome, moving.pop(0)[1])
            if flush and not self.stuck:
                moving = [entry for entry in moving if entry[0] <= cycle + self.delay]
            ctx.set(dut.quiet, not moving and not done)
            ctx.set(dut.span.ready, 1)
            ctx.set(dut.descriptor.valid, bool(queue))
            if queue:
                ctx.set(dut.descriptor.payload, queue[0])

    async def write(self, ctx, name, value, block=regs.CHANNEL):
        base = self.base + block.base
        offset = block.address(name, base=base)
        bus, lane = self.dut.bus, offset >> 2 & 1
        ctx.set(bus.write_valid, 1)
        ctx.set(bus.write_bar, 1)
        ctx.set(bus.write_address, offset >> 3)
        ctx.set(bus.write_data, value << 32 * lane)
        ctx.set(bus.write_enable, 0xF << 4 * lane)
        await ctx.tick()
        ctx.set(bus.write_valid, 0)

    async def read(self, ctx, name):
        offset = regs.CHANNEL.address(name, base=self.base)
        bus, lane = self.dut.bus, offset >> 2 & 1
        ctx.set(bus.read_valid, 1)
        ctx.set(bus.read_bar, 1)
        ctx.set(bus.read_address, offset >> 3)
        ctx.set(bus.read_enable, 0xF << 4 * lane)
        await ctx.tick()
        ctx.set(bus.read_valid, 0)
        return ctx.get(bus.read_data) >> 32 * lane & 0xFFFF_FFFF

    async def wait_interrupt(self, ctx, cycles=200):
        for _ in range(cycles):
            if ctx.get(self.dut.interrupt):
                return
            await ctx.tick()
        raise AssertionError(f"no interrupt within {cycles} cycles")


def descriptor(length=64, card=0, stop=0, completed=0, outcome=Outcome.OK, pci=0x1000):
    return {
        "pci_address": pci,
        "card_address": card,
        "length": length,
        "stop": stop,
        "completed": completed,
        "outcome": outcome,
    }


LAST = {"stop": 1, "completed": 1}


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
        assert ctx.get(bench.dut.first_address) == 0x12_ABCD_EFE0
        assert ctx.get(bench.dut.first_adjacent) == 5
        assert await bench.read(ctx, "status") == Status.BUSY
        await bench.wait_interrupt(ctx)
        assert await bench.read(ctx, "status_rc") == GOOD
        assert not ctx.get(bench.dut.interrupt)
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


def test_run_rise_clears_status_and_count_and_drops_the_request():
    bench = Bench()
    bench.descriptors = [descriptor(), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        for _ in range(3):
            await bench.write(ctx, "control", RUN | LOG_ALL)
            await ctx.tick()
            assert not ctx.get(bench.dut.interrupt)
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
        final = (int(GOOD), 1)
        # The count may lead by a cycle; status never shows one bit without the other or busy.
        assert values <= {(Status.BUSY, 0), (Status.BUSY, 1), (GOOD, 1)}
        assert final in values

    bench.run(testbench)


@pytest.mark.parametrize("enabled", [True, False])
def test_idle_stopped_only_when_run_is_cleared_under_way(enabled):
    bench = Bench()
    bench.delay = 50
    bench.descriptors = [descriptor(), descriptor(**LAST)]
    ie_idle = int(Status.IDLE_STOPPED)

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(10)
        await bench.write(ctx, "control", ie_idle if enabled else 0)
        await ctx.tick().repeat(100)
        assert await bench.read(ctx, "status_rc") == (ie_idle if enabled else 0)
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
        assert status == GOOD
        assert await bench.read(ctx, "completed_count") == 1
        assert bench.starts == 2
        assert bench.spans[-1] == (0x8000, 0, 128)

    bench.run(testbench)


FETCH = {
    Outcome.MAGIC: Status.MAGIC_STOPPED,
    Outcome.UNSUPPORTED_REQUEST: Status.DESC_UNSUPPORTED,
    Outcome.COMPLETER_ABORT: Status.DESC_ABORT | Status.DESC_UNSUPPORTED,
    Outcome.POISONED: Status.DESC_POISONED | Status.DESC_UNSUPPORTED,
    Outcome.UNEXPECTED_COMPLETION: Status.DESC_UNEXPECTED | Status.DESC_UNSUPPORTED,
    Outcome.COMPLETION_TIMEOUT: Status.DESC_UNSUPPORTED,
    Outcome.BUS_MASTER_OFF: Status.DESC_UNSUPPORTED,
}
DATA = {
    Outcome.UNSUPPORTED_REQUEST: Status.READ_UNSUPPORTED,
    Outcome.COMPLETER_ABORT: Status.READ_ABORT | Status.READ_UNSUPPORTED,
    Outcome.POISONED: Status.READ_POISONED | Status.READ_UNSUPPORTED,
    Outcome.UNEXPECTED_COMPLETION: Status.READ_UNEXPECTED | Status.READ_UNSUPPORTED,
    Outcome.COMPLETION_TIMEOUT: Status.READ_UNSUPPORTED,
    Outcome.BUS_MASTER_OFF: Status.READ_UNSUPPORTED,
}


@pytest.mark.parametrize("outcome", FETCH, ids=lambda outcome: outcome.name)
def test_failed_descriptor_ends_the_run_behind_the_good_ones(outcome):
    bench = Bench()
    bench.delay = 15
    bench.descriptors = [
        descriptor(completed=1),
        descriptor(0, outcome=outcome, pci=0xDEAD_0000_0020),
    ]

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(60)
        expected = FETCH[outcome] | Status.DESCRIPTOR_COMPLETED
        assert await bench.read(ctx, "status_rc") == expected
        assert await bench.read(ctx, "completed_count") == 1
        assert bench.errors == [(outcome, 0xDEAD_0000_0020, 1)]
        # The channel holds until Run goes low and high, and is then as new.
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(20)
        assert bench.starts == 1
        await bench.write(ctx, "control", 0)
        bench.descriptors = [descriptor(**LAST)]
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(40)
        assert await bench.read(ctx, "status_rc") == GOOD

    bench.run(testbench)


@pytest.mark.parametrize("outcome", DATA, ids=lambda outcome: outcome.name)
@pytest.mark.parametrize("position", [0, 2])
def test_failed_data_read_ends_the_run(outcome, position):
    bench = Bench()
    bench.descriptors = [descriptor(), descriptor(), descriptor(), descriptor(**LAST)]
    bench.outcomes = {position: outcome}

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(60)
        assert await bench.read(ctx, "status_rc") == DATA[outcome]
        assert await bench.read(ctx, "completed_count") == position
        assert bench.errors == [(outcome, 0, 0)]

    bench.run(testbench)


@pytest.mark.parametrize("c2h", [False, True])
@pytest.mark.parametrize(
    ("card", "length", "inside"),
    [
        (0, 65536, True),
        (65535, 1, True),
        (65536, 1, False),
        (1, 65536, False),
        (0, (1 << 28) - 1, False),
        (1 << 63, 64, False),
        (65536, 0, True),
    ],
)
def test_card_address_decode(c2h, card, length, inside):
    bench = Bench(c2h)
    bench.descriptors = [descriptor(length, card, **LAST)]
    bit = Status.READ_UNSUPPORTED if c2h else Status.WRITE_DECODE

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(40)
        assert await bench.read(ctx, "status_rc") == (GOOD if inside else bit)
        assert len(bench.spans) == (inside and length != 0)
        assert bench.errors == ([] if inside else [(Outcome.DECODE, card, 0)])

    bench.run(testbench)


def test_decode_error_that_nobody_wants_to_hear_of_completes():
    """xdma.ko leaves write error logging off: the descriptor must end all the same."""
    bench = Bench()
    bench.descriptors = [descriptor(64, 1 << 40), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "control", 0x00F8_3E1F)
        await ctx.tick().repeat(40)
        assert await bench.read(ctx, "status_rc") == GOOD
        assert await bench.read(ctx, "completed_count") == 2
        assert len(bench.spans) == 1

    bench.run(testbench)


def test_soft_reset_request_stops_like_an_abort():
    bench = Bench()
    bench.delay = 30
    bench.descriptors = [descriptor(), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(10)
        ctx.set(bench.dut.stop_request, 1)
        await ctx.tick().repeat(60)
        assert await bench.read(ctx, "status") & Status.BUSY == 0

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
