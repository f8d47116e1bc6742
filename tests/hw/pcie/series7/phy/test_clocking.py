# SPDX-License-Identifier: BSD-2-Clause
"""The reset of the MMCM: on the clock that stops with its input, until there is a lock."""

from __future__ import annotations

import pytest

from hw.pcie.series7.phy.clocking import MmcmReset
from tests.hw.helpers import simulate

#: Cycles of the device under test; of the real one 16384.
RETRY = 64


class Mmcm:
    """An MMCM that locks `time` cycles after a reset, and only after one.

    Parameters
    ----------
    attempts : int
        Resets until it locks: before the last its input is not yet stable.
    """

    def __init__(self, dut, time: int = 40, attempts: int = 1):
        self.dut, self.time, self.attempts = dut, time, attempts
        self.pulses: list[int] = []

    async def run(self, ctx):
        lock_in = None
        while True:
            await ctx.tick()
            if ctx.get(self.dut.reset):
                if lock_in != self.time:
                    self.pulses.append(0)
                self.pulses[-1] += 1
                ctx.set(self.dut.locked, 0)
                lock_in = self.time
            elif lock_in is not None:
                lock_in -= 1
                if lock_in == 0 and len(self.pulses) >= self.attempts:
                    ctx.set(self.dut.locked, 1)
                    lock_in = None


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_reset_until_locked(attempts):
    dut = MmcmReset(RETRY)
    mmcm = Mmcm(dut, attempts=attempts)

    async def bench(ctx):
        await ctx.tick().repeat((attempts + 2) * RETRY)
        assert ctx.get(dut.locked)
        assert mmcm.pulses == [16] * attempts

    simulate(dut, bench, background=[mmcm.run])


def test_a_lost_lock_is_regained_each_time():
    dut = MmcmReset(RETRY)
    mmcm = Mmcm(dut)

    async def bench(ctx):
        for losses in range(1, 5):
            await ctx.tick().repeat(3 * RETRY + losses)
            assert ctx.get(dut.locked)
            assert mmcm.pulses == [16] * losses
            ctx.set(dut.locked, 0)

    simulate(dut, bench, background=[mmcm.run])


def test_a_locked_mmcm_is_left_alone():
    dut = MmcmReset(RETRY)
    mmcm = Mmcm(dut)

    async def bench(ctx):
        while not ctx.get(dut.locked):
            await ctx.tick()
        await ctx.tick().repeat(3)  # through the synchroniser
        for _ in range(4 * RETRY):
            await ctx.tick()
            assert not ctx.get(dut.reset)

    simulate(dut, bench, background=[mmcm.run])
