# SPDX-License-Identifier: BSD-2-Clause
"""hw/pcie/series7/port_lag.py: it says when the port may be, or was, half of the lag behind.

A link without a gap brings TLPs, and the port hands each on once it is whole.
"""

from __future__ import annotations

from collections import deque

import pytest

from hw.pcie.series7.block import SERIES7
from hw.pcie.series7.port_lag import PortLag
from tests.hw.helpers import simulate
from tests.hw.pcie.tlps import COMPLETION, MEMORY, MESSAGE

CLOCK_KHZ = 125_000
LAG = SERIES7.port_lag(CLOCK_KHZ)
#: Dwords of a TLP on the link beside its data, and in front of that at the port.
AROUND, HEADER = 5, 3
WITH_DATA = 1 << 30


@pytest.mark.parametrize("clock_khz", [100_000, 125_000, 250_000])
def test_what_comes_in_the_lag_fits(clock_khz):
    """Of whatever size: with one that had begun before, and one that has not ended."""
    lag, rate = SERIES7.port_lag(clock_khz), SERIES7.port.link_bytes(clock_khz)
    for dwords in range(512 // 4 + 1):
        most = 2 + lag * rate // (4 * (dwords + AROUND))
        assert most <= SERIES7.completion_headers
        assert most * (-(-dwords // 4) + 1) <= SERIES7.completion_credits
    assert 2 + (lag + 1) * rate // (4 * AROUND) >= SERIES7.completion_headers


async def pass_tlps(ctx, dut, cycles, *, dwords=128, kind=COMPLETION, gap=0, pauses=(), rate=1):
    """`cycles` of a port behind the link; the first cycle with `behind`, or None.

    Each TLP has so many `dwords` of data. The port has no beat in `gap` cycles behind each TLP, and
    in those of `pauses`: cycle, number of cycles, and whether within a TLP or between two. The
    link brings `rate` dwords a cycle.
    """
    come, waiting, beats, rest = 0, 0, deque(), 0
    due = deque(pauses)
    paused = 0
    for cycle in range(cycles):
        come += rate
        while come >= dwords + AROUND:
            come -= dwords + AROUND
            waiting += 1
        fits = due and cycle >= due[0][0] and bool(beats) == (due[0][2] == "within")
        if fits and (not beats or len(beats) < (dwords + HEADER + 1) // 2):
            paused += due.popleft()[1]
        if not beats and waiting and not rest and not paused:
            waiting -= 1
            count = (dwords + HEADER + 1) // 2
            beats.extend((n == 0, n == count - 1) for n in range(count))
        valid = bool(beats) and not paused
        rest, paused = max(rest - 1, 0), max(paused - 1, 0)
        first, last = beats[0] if valid else (0, 0)
        ctx.set(dut.valid, valid)
        ctx.set(dut.first, first)
        ctx.set(dut.last, last)
        ctx.set(dut.whole, not last or (dwords + HEADER) % 2 == 0)
        ctx.set(dut.dword0, kind << 24 | (WITH_DATA if dwords else 0))
        if valid:
            beats.popleft()
            if last:
                rest = gap
        await ctx.tick()
        if ctx.get(dut.behind):
            return cycle
    return None


@pytest.mark.parametrize(
    ("conditions", "behind"),
    [
        ({}, False),
        ({"gap": 3}, False),
        ({"dwords": 16, "gap": 3}, False),
        ({"dwords": 1, "gap": 3}, False),
        ({"dwords": 0, "gap": 3}, False),
        # A port that carries less than the link falls behind without end.
        ({"dwords": 1, "gap": 3, "rate": 2}, True),
        ({"kind": MESSAGE, "dwords": 1}, False),
        ({"kind": MEMORY, "dwords": 16}, False),
        ({"pauses": [(500, LAG // 2 - 8, "within")]}, False),
        ({"pauses": [(500, LAG // 2 + 80, "within")]}, True),
        ({"dwords": 16, "pauses": [(500, LAG // 2 - 8, "within")]}, False),
        ({"dwords": 16, "pauses": [(500, LAG // 2 + 8, "within")]}, True),
        # Between TLPs it is seen when more has passed than can have come.
        ({"dwords": 16, "pauses": [(500, LAG // 2, "between")]}, False),
        ({"dwords": 16, "pauses": [(500, 2 * LAG, "between")]}, True),
        ({"dwords": 0, "pauses": [(500, 2 * LAG, "between")]}, True),
    ],
    ids=str,
)
def test_pauses(conditions, behind):
    found = []

    async def bench(ctx):
        found.append(await pass_tlps(ctx, dut, 1300, **conditions))
        stays = ctx.get(dut.behind)
        await ctx.tick().repeat(50)
        assert ctx.get(dut.behind) == stays

    dut = PortLag(SERIES7, CLOCK_KHZ)
    simulate(dut, bench)
    assert (found[0] is not None) is behind
    if behind:
        assert found[0] > 2 if "rate" in conditions else found[0] > 500


def test_requests_that_the_core_held_back_are_not_what_has_come():
    """Many pass at once, of before the pause: no sign that completions waited, or passed."""

    async def bench(ctx):
        assert await pass_tlps(ctx, dut, 60, kind=MEMORY, dwords=0, rate=40) is None
        assert await pass_tlps(ctx, dut, 200, kind=MEMORY, dwords=0, rate=40) is not None

    dut = PortLag(SERIES7, CLOCK_KHZ)
    simulate(dut, bench)


def test_a_tlp_that_is_cut_off_ends():
    async def bench(ctx):
        for name, value in (("valid", 1), ("first", 1), ("dword0", COMPLETION << 24)):
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        ctx.set(dut.valid, 0)
        ctx.set(dut.discontinued, 1)
        await ctx.tick()
        ctx.set(dut.discontinued, 0)
        await ctx.tick().repeat(2 * LAG)
        assert not ctx.get(dut.behind)

    dut = PortLag(SERIES7, CLOCK_KHZ)
    simulate(dut, bench)
