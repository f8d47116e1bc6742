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
