# SPDX-License-Identifier: BSD-2-Clause
"""Error captures: whose error is kept where, with which address, and for how long."""

from __future__ import annotations

import pytest

from hw.channel.capture import ErrorCapture
from hw.records import Outcome
from tests.hw.helpers import simulate

#: Channels of the capture: H2C 0, H2C 1, C2H 0; where each is read.
CHANNELS = (0, 1, 2)
PLACES = {0: {"c2h": 0, "channel": 0}, 1: {"c2h": 0, "channel": 1}, 2: {"c2h": 1, "channel": 0}}
#: Clients of the read engine: the data of both H2C channels.
DATA = 3
NOTHING = (Outcome.OK, 0, 0, 0, 0)


class Bench:
    """Errors for a capture, and what software reads of them.

    Addresses are 0xA000 and the client of reads, 0xB000 and the channel of reports.
    """

    def __init__(self, shared: bool = False):
        self.dut = ErrorCapture(h2c=2, c2h=1, first=DATA, shared=shared)

    async def read_fails(self, ctx, *clients):
        """Reads of these clients fail, one after the other."""
        for client in clients:
            failed = {"outcome": Outcome.POISONED, "address": 0xA000 + client, "client": client}
            ctx.set(self.dut.read.payload, failed)
            ctx.set(self.dut.read.valid, 1)
            await ctx.tick()
            ctx.set(self.dut.read.valid, 0)
            ctx.set(self.dut.read.payload.address, 0xDEAD)

    async def fail(self, ctx, reports):
        """Runs end by errors in one cycle: (outcome, located, descriptor), by channel."""
        for number, (outcome, located, descriptor) in reports.items():
            port = self.dut.channels[number]
            report = {"outcome": outcome, "located": located, "descriptor": descriptor}
            ctx.set(port.payload, {**report, "address": 0xB000 + number})
            ctx.set(port.valid, 1)
        await ctx.tick()
        for port in self.dut.channels:
            ctx.set(port.valid, 0)

    async def begin(self, ctx, number):
        """A run of this channel begins."""
        ctx.set(self.dut.begins, 1 << number)
        await ctx.tick()
        ctx.set(self.dut.begins, 0)

    async def clear(self, ctx):
        ctx.set(self.dut.reader.clear, 1)
        await ctx.tick()
        ctx.set(self.dut.reader.clear, 0)

    def seen(self, ctx, number=None):
        """Outcome, address, direction, channel and descriptor of a channel's, or of the first."""
        reader = self.dut.reader
        ctx.set(reader.of_channel, number is not None)
        ctx.set(reader.index, PLACES[number or 0])
        error = ctx.get(reader.error)
        place = error.place
        return error.outcome, error.address, place.c2h, place.channel, error.descriptor


def run(scenario, shared=False):
    bench = Bench(shared)

    async def body(ctx):
        await scenario(ctx, bench)

    simulate(bench.dut, body)


def test_errors_of_all_channels_are_held_until_their_next_runs_begin():
    """Also those of one cycle; what begins on a channel, or a clear, takes no other's."""

    async def scenario(ctx, bench):
        assert [bench.seen(ctx, n) for n in (*CHANNELS, None)] == [NOTHING] * 4
        await bench.read_fails(ctx, DATA + 1)
        await bench.fail(ctx, {2: (Outcome.MAGIC, 1, 1), 0: (Outcome.DECODE, 1, 0)})
        await bench.fail(ctx, {1: (Outcome.POISONED, 0, 0)})
        held = {
            0: (Outcome.DECODE, 0xB000, 0, 0, 0),
            1: (Outcome.POISONED, 0xA000 + DATA + 1, 0, 1, 0),
            2: (Outcome.MAGIC, 0xB002, 1, 0, 1),
        }
        assert {n: bench.seen(ctx, n) for n in CHANNELS} == held
        assert bench.seen(ctx) == held[0]
        await bench.clear(ctx)
        assert bench.seen(ctx) == NOTHING
        for number in (1, 2, 0):
            assert {n: bench.seen(ctx, n) for n in CHANNELS} == held
            await bench.begin(ctx, number)
            held[number] = NOTHING
        assert [bench.seen(ctx, n) for n in CHANNELS] == [NOTHING] * 3

    run(scenario)


def test_the_first_error_of_any_channel_is_kept_until_it_is_cleared():
    async def scenario(ctx, bench):
        for first in (1, 2, 0):
            for number in (first, 2, 1):
                await bench.begin(ctx, number)
                await bench.fail(ctx, {number: (Outcome.DECODE, 1, 0)})
                place = PLACES[first]
                expected = (Outcome.DECODE, 0xB000 + first, place["c2h"], place["channel"], 0)
                assert bench.seen(ctx) == expected
            await bench.clear(ctx)
            assert bench.seen(ctx) == NOTHING

    run(scenario)


def test_the_address_is_that_of_the_error_that_ended_the_run():
    """Of several reads of data the first one's; not that of a fetch, nor of another channel."""

    async def scenario(ctx, bench):
        await bench.read_fails(ctx, 0, DATA + 1, DATA, DATA)
        await bench.fail(ctx, {1: (Outcome.POISONED, 0, 0)})
        assert bench.seen(ctx, 1) == (Outcome.POISONED, 0xA000 + DATA + 1, 0, 1, 0)
        # A descriptor before that data has failed, too.
        await bench.fail(ctx, {0: (Outcome.POISONED, 1, 1)})
        assert bench.seen(ctx, 0) == (Outcome.POISONED, 0xB000, 0, 0, 1)
        # The next run's own.
        await bench.begin(ctx, 0)
        ctx.set(bench.dut.read.payload, {"address": 0xC000, "client": DATA})
        ctx.set(bench.dut.read.valid, 1)
        await ctx.tick()
        await bench.read_fails(ctx, DATA)
        await bench.fail(ctx, {0: (Outcome.POISONED, 0, 0)})
        assert bench.seen(ctx, 0) == (Outcome.POISONED, 0xC000, 0, 0, 0)
        assert bench.seen(ctx, 1) == (Outcome.POISONED, 0xA000 + DATA + 1, 0, 1, 0)

    run(scenario)


@pytest.mark.parametrize("located", [0, 1])
def test_a_write_that_was_dropped_has_no_address(located):
    """The report's is that of anything, unless it says that it is located."""

    async def scenario(ctx, bench):
        await bench.read_fails(ctx, DATA)
        await bench.fail(ctx, {2: (Outcome.WRITE_DROPPED, located, 0)})
        expected = 0xB002 if located else 0
        assert bench.seen(ctx, 2) == (Outcome.WRITE_DROPPED, expected, 1, 0, 0)

    run(scenario)


def test_reads_of_another_owner_are_not_those_of_software():
    async def scenario(ctx, bench):
        ctx.set(bench.dut.owned, 0b001)
        await bench.read_fails(ctx, DATA)
        ctx.set(bench.dut.owned, 0)
        ctx.set(bench.dut.read.payload, {"address": 0xC000, "client": DATA})
        ctx.set(bench.dut.read.valid, 1)
        await ctx.tick()
        ctx.set(bench.dut.read.valid, 0)
        await bench.fail(ctx, {0: (Outcome.POISONED, 0, 0)})
        # What the other owner does later does not change it.
        ctx.set(bench.dut.owned, 0b001)
        await bench.read_fails(ctx, DATA)
        assert bench.seen(ctx, 0) == (Outcome.POISONED, 0xC000, 0, 0, 0)

    run(scenario, shared=True)
