# SPDX-License-Identifier: BSD-2-Clause
"""How a channel's run ends when something fails."""

import pytest

from hw.records import Outcome
from peerdma.regs import Status
from tests.hw.channel.control_bench import GOOD, LAST, LOG_ALL, RUN, Bench, descriptor

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
    Outcome.WRITE_DROPPED: Status.READ_UNSUPPORTED,
}


@pytest.mark.parametrize("outcome", FETCH, ids=lambda outcome: outcome.name)
def test_failed_descriptor_ends_the_run_behind_the_good_ones(outcome):
    bench = Bench()
    bench.delay = 15
    bench.descriptors = [
        descriptor(completed=1),
        descriptor(0, 0xDEAD_0000_0020, outcome=outcome),
    ]

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(60)
        assert await bench.read(ctx, "status_rc") == FETCH[outcome] | GOOD
        assert await bench.read(ctx, "completed_count") == 2
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
        assert await bench.read(ctx, "status_rc") == DATA[outcome] | Status.DESCRIPTOR_STOPPED
        assert await bench.read(ctx, "completed_count") == position + 1
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
    failed = Status.DESCRIPTOR_STOPPED | Status.READ_UNSUPPORTED
    if not c2h:
        failed |= Status.WRITE_DECODE

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(40)
        assert await bench.read(ctx, "status_rc") == (GOOD if inside else failed)
        assert len(bench.spans) == (inside and length != 0)
        assert bench.errors == ([] if inside else [(Outcome.DECODE, card, 0)])

    bench.run(testbench)


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.MAGIC])
def test_an_error_has_its_own_address(outcome):
    """Not that of a descriptor behind it, which is there already."""
    bench = Bench()
    bench.descriptors = [
        descriptor(completed=1),
        descriptor(64, 1 << 40, outcome=outcome),
        descriptor(64, 0x40, **LAST),
    ]
    of_fetch = outcome != Outcome.OK

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        await ctx.tick().repeat(40)
        assert bench.errors == [(outcome if of_fetch else Outcome.DECODE, 1 << 40, of_fetch)]
        assert len(bench.spans) == 1

    bench.run(testbench)


@pytest.mark.parametrize("logged", [0x00F8_3E1E, 0x0008_0256], ids=["xdma.ko", "Linux' xdma"])
@pytest.mark.parametrize("fetch", [False, True])
def test_drivers_see_an_error_of_the_first_descriptor(logged, fetch):
    """With what they log, and each looks at one thing more: a count, and "descriptor stopped"."""
    bench = Bench()
    outcome = Outcome.UNSUPPORTED_REQUEST if fetch else Outcome.OK
    bench.descriptors = [descriptor(64, 1 << 40, outcome=outcome), descriptor(**LAST)]

    async def testbench(ctx):
        await bench.write(ctx, "interrupt_enable", logged)
        await bench.write(ctx, "control", RUN | logged)
        await bench.wait_interrupt(ctx)
        error = Status.DESC_UNSUPPORTED if fetch else Status.READ_UNSUPPORTED
        assert await bench.read(ctx, "status_rc") == error | Status.DESCRIPTOR_STOPPED
        assert await bench.read(ctx, "completed_count") == 1
        assert not bench.spans

    bench.run(testbench)


def test_the_count_includes_a_failed_descriptor_no_earlier_than_status_says_so():
    """A driver that reads the count first must not take the failed one for a good one."""
    bench = Bench()
    bench.delay = 15
    bench.descriptors = [descriptor(completed=1), descriptor(), descriptor(**LAST)]
    bench.outcomes = {1: Outcome.POISONED}

    async def testbench(ctx):
        await bench.write(ctx, "control", RUN | LOG_ALL)
        for _ in range(100):
            count = await bench.read(ctx, "completed_count")
            status = await bench.read(ctx, "status")
            assert (count == 2) <= bool(status & Status.READ_POISONED)
            await ctx.tick()  # events wait for a cycle without an access
        assert count == 2

    bench.run(testbench)
