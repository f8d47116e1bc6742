# SPDX-License-Identifier: BSD-2-Clause
"""Error capture: which error is seen, with which address."""

from __future__ import annotations

from amaranth.sim import Simulator

from hw.channel.capture import ErrorCapture
from hw.records import Outcome

#: Channels of the capture: H2C 0, H2C 1, C2H 0.
H2C, C2H = (0, 1), 2


async def told(ctx, dut, *, read=None, channels=None):
    """What is seen of a failed read, (outcome, client), and of reports, by channel.

    As (outcome, address, direction, channel, descriptor), or None. Addresses are 0xA000 of the
    read, and 0xB000 and the channel's number of a report. A report is (outcome, located).
    """
    ctx.set(dut.read.valid, read is not None)
    if read:
        outcome, client = read
        ctx.set(dut.read.payload, {"outcome": outcome, "address": 0xA000, "client": client})
    for number, port in enumerate(dut.channels):
        report = (channels or {}).get(number)
        ctx.set(port.valid, report is not None)
        if report:
            outcome, located = report
            fields = {"outcome": outcome, "address": 0xB000 + number, "located": located}
            ctx.set(port.payload, fields)
    error = ctx.get(dut.error.payload)
    seen = error.outcome, error.address, error.c2h, error.channel, error.descriptor
    return seen if ctx.get(dut.error.valid) else None


def run(scenario):
    dut = ErrorCapture(h2c=len(H2C), c2h=1)

    async def bench(ctx):
        await scenario(ctx, dut)

    simulator = Simulator(dut)  # without a clock: nothing is registered
    simulator.add_testbench(bench)
    simulator.run()


def test_an_error_without_a_place_has_address_0():
    """A dropped write: the report's address is that of anything."""

    async def scenario(ctx, dut):
        for located, address in ((0, 0), (1, 0xB002)):
            seen = await told(ctx, dut, channels={C2H: (Outcome.WRITE_DROPPED, located)})
            assert seen == (Outcome.WRITE_DROPPED, address, 1, 0, 0)

    run(scenario)


def test_what_the_read_engine_has_reported_is_not_seen_again():
    async def scenario(ctx, dut):
        seen = await told(ctx, dut, read=(Outcome.POISONED, 4))
        assert seen == (Outcome.POISONED, 0xA000, 0, 1, 0)
        seen = await told(ctx, dut, read=(Outcome.POISONED, 2))
        assert seen == (Outcome.POISONED, 0xA000, 1, 0, 1)
        assert await told(ctx, dut, channels={H2C[1]: (Outcome.POISONED, 0)}) is None

    run(scenario)


def test_of_two_errors_in_one_cycle_the_first_is_seen():
    async def scenario(ctx, dut):
        errors = {H2C[1]: (Outcome.DECODE, 1), C2H: (Outcome.MAGIC, 1)}
        seen = await told(ctx, dut, channels=errors)
        assert seen == (Outcome.DECODE, 0xB001, 0, 1, 0)
        seen = await told(ctx, dut, read=(Outcome.POISONED, 0), channels=errors)
        assert seen == (Outcome.POISONED, 0xA000, 0, 0, 1)

    run(scenario)
