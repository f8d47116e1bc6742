# SPDX-License-Identifier: BSD-2-Clause
"""hw/pcie/ultrascale/sent.py: tokens come back with sequence numbers, in order."""

from __future__ import annotations

import pytest

from hw.pcie.ultrascale.family import ULTRASCALE, ULTRASCALE_PLUS
from hw.pcie.ultrascale.sent import PATIENCE, SentWrites
from tests.hw.helpers import seeded, simulate, watch

FAMILIES = [ULTRASCALE, ULTRASCALE_PLUS]


def writes_of(family):
    return SentWrites(family.sequence_bits, len(family.sequence_ports))


async def give_back(ctx, dut, numbers):
    """Numbers at the ports in this cycle, None for none."""
    for index in range(len(dut.valid)):
        number = numbers[index] if index < len(numbers) else None
        ctx.set(dut.valid[index], number is not None)
        ctx.set(dut.number[index], number or 0)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.name)
def test_tokens_come_with_numbers(family):
    """Reads in between have a number of their own and no token; any number of ports at once."""
    rng = seeded()
    dut, log = writes_of(family), []
    ports, upper = len(family.sequence_ports), 1 << family.sequence_bits - 1
    sent, waiting, back = [], [], []

    async def bench(ctx):
        ctx.set(dut.bus_master, 1)
        # With which all numbers are in use.
        ctx.set(dut.speed, 3)
        ctx.set(dut.width, 8)
        while len(log) < 200:
            write = len(sent) < 200 and rng.random() < 0.6
            ctx.set(dut.write, write)
            room = ctx.get(dut.room)
            number = ctx.get(dut.sequence)
            takes = write and room and rng.random() < 0.8
            ctx.set(dut.takes, takes)
            if write:
                assert upper <= number < 2 * upper
            else:
                assert number == 0
            if takes:
                token = rng.randrange(256)
                ctx.set(dut.token, token)
                assert number not in waiting, "two writes with one number"
            elif rng.random() < 0.2:
                waiting.append(0)
            returned = []
            while waiting and len(returned) < ports and rng.random() < 0.4:
                returned.append(waiting.pop(0))
            await give_back(ctx, dut, returned)
            back.extend(each for each in returned if each)
            if takes:
                sent.append(token)
                waiting.append(number)
            await ctx.tick()
            assert len(log) <= len(back)
        await ctx.tick().repeat(5)

    simulate(dut, bench, background=[watch(dut.sent, log)])
    assert [payload.token for _, payload in log] == sent
    assert not any(payload.dropped for _, payload in log)


@pytest.mark.parametrize(
    ("speed", "width", "most_bytes"),
    [
        *((speed, lanes, 3072) for speed, lanes in ((3, 8), (4, 4), (4, 8), (3, 16))),
        *((speed, lanes, 1536) for speed, lanes in ((3, 4), (2, 8))),
        *((speed, lanes, 384) for speed, lanes in ((3, 1), (2, 2), (1, 4))),
        (1, 1, 96),
    ],
)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.name)
def test_there_are_never_more_writes_than_numbers(family, speed, width, most_bytes):
    """Nor more than 3 KiB on Gen3 x8, or fewer on a slower link, but two in any case. One ends in
    the cycle in which `room` falls, and another has started meanwhile."""
    for max_payload in range(4):
        most = min(family.writes, max(most_bytes // (128 << max_payload), 2))
        assert started(family, max_payload, speed, width) == most


def started(family, max_payload, speed, width):
    """Writes that start before a number has come back."""
    dut, taken = writes_of(family), 0

    async def bench(ctx):
        nonlocal taken
        ctx.set(dut.bus_master, 1)
        ctx.set(dut.max_payload, max_payload)
        ctx.set(dut.speed, speed)
        ctx.set(dut.width, width)
        await ctx.tick()
        room_before = ctx.get(dut.room)
        ctx.set(dut.write, 1)
        for _ in range(3 * family.writes):
            # The arbiter goes by the room of the cycle before.
            ctx.set(dut.takes, room_before)
            room_before, taken = ctx.get(dut.room), taken + room_before
            await ctx.tick()

    simulate(dut, bench)
    return taken


def test_writes_that_never_come_back_are_dropped_without_bus_master():
    dut, log = writes_of(ULTRASCALE_PLUS), []

    async def take(ctx, tokens):
        for token in tokens:
            ctx.set(dut.write, 1)
            ctx.set(dut.token, token)
            ctx.set(dut.takes, 1)
            await ctx.tick()
        ctx.set(dut.takes, 0)

    async def bench(ctx):
        ctx.set(dut.bus_master, 1)
        await take(ctx, [1, 2, 3, 4])
        await ctx.tick().repeat(PATIENCE + 10)
        assert not log, "with Bus Master they are waited for"
        ctx.set(dut.bus_master, 0)
        await ctx.tick().repeat(PATIENCE // 2)
        await give_back(ctx, dut, [32])
        await ctx.tick()
        await give_back(ctx, dut, [])
        await ctx.tick().repeat(PATIENCE - 1)
        assert [payload.token for _, payload in log] == [1]
        await ctx.tick().repeat(10)
        # A number that comes after all is that of no write any more.
        await give_back(ctx, dut, [33])
        await ctx.tick()
        await give_back(ctx, dut, [])
        ctx.set(dut.bus_master, 1)
        await take(ctx, [5])
        await ctx.tick().repeat(10)
        await give_back(ctx, dut, [36])
        await ctx.tick()
        await give_back(ctx, dut, [])
        await ctx.tick().repeat(10)

    simulate(dut, bench, background=[watch(dut.sent, log)])
    found = [(payload.token, payload.dropped) for _, payload in log]
    assert found == [(1, 0), (2, 1), (3, 1), (4, 1), (5, 0)]
