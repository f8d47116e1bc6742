# SPDX-License-Identifier: BSD-2-Clause
"""The whole of hw/pcie/series7/phy, its primitives replaced by models.

Power-on, link, Gen2, electrical idle, resets, hangs, a reference clock that stops.
"""

from __future__ import annotations

import pytest

from hw.pcie.series7.phy.eios import LTSSM_L0
from tests.hw.pcie.series7.phy.models import (
    LOCK,
    PIPE_FAST,
    PIPE_SLOW,
    REFERENCE,
    RETRY_CYCLES,
    STEP,
    WATCHDOG_CYCLES,
    Models,
)

#: Two cycles with an electrical idle ordered set: data and RXCHARISK.
EIOS = ((0x7CBC, 3), (0x7C7C, 3))

UP = ["PLL reset", "narrow", "wide", "dlysreset", "phinit", "phalign", "dlyen"]
GEN2 = ["narrow", "rate 1", "wide", "dlysreset", "phinit", "phalign", "dlyen"]


async def power(models, ctx):
    """The FPGA is loaded, then the host drives the reference clock, then it releases PERST#."""
    await ctx.delay(500 * STEP)
    assert not ctx.get(models.dut.clock_good), "locked without a clock"
    models.reference = True
    await models.until(ctx, models.dut.clock_good)
    await ctx.delay(1000 * STEP)
    assert models.seen == [] and not ctx.get(models.dut.transceiver_good), "PERST# is low"
    ctx.set(models.dut.perst_n, 1)


async def link_up(models, ctx):
    """What the PCIe block does once it is out of reset."""
    block = models.PcieBlock
    await models.until(ctx, block.sys_reset_n)
    ctx.set(block.user_reset_n, 1)
    assert ctx.get(models.sync.rst), "the core is in reset while the link is down"
    await ctx.delay(100 * STEP)
    ctx.set(block.trn.trnlnkup, 1)
    await models.until(ctx, ~models.sync.rst, 100)


def test_from_power_to_gen2_and_through_resets(monkeypatch):
    models = Models(monkeypatch)

    async def bench(ctx):
        dut = models.dut
        await power(models, ctx)
        await link_up(models, ctx)
        assert models.seen == UP
        assert ctx.get(dut.clock_good) and ctx.get(dut.transceiver_good)
        block, tree = models.PcieBlock, models.ClockTree

        ctx.set(block.rate, 1)
        await models.until(ctx, tree.fast)
        await models.until(ctx, block.pipe.phystatus)
        assert models.seen == UP + GEN2
        await models.until(ctx, ~block.pipe.phystatus, 2 * PIPE_FAST)

        # Hot reset and a lost link reset the core, and nothing else.
        for signal, bad in ((block.hot_reset, 1), (block.trn.trnlnkup, 0), (block.user_reset_n, 0)):
            ctx.set(signal, bad)
            await models.until(ctx, models.sync.rst, 100)
            ctx.set(signal, 1 - bad)
            await models.until(ctx, ~models.sync.rst, 100)
        assert ctx.get(block.sys_reset_n) and models.seen == UP + GEN2

        # PERST# resets everything, back to Gen1's clock.
        models.seen.clear()
        ctx.set(dut.perst_n, 0)
        ctx.set(block.rate, 0)
        await models.until(ctx, ~block.sys_reset_n, 100)
        await models.until(ctx, ~tree.fast, 100)
        assert not ctx.get(dut.transceiver_good)
        ctx.set(block.trn.trnlnkup, 0)
        await ctx.delay(1000 * STEP)
        ctx.set(dut.perst_n, 1)
        models.before.pop("rate", None)
        await models.until(ctx, block.sys_reset_n)
        assert [event for event in models.seen if event != "rate 0"] == UP

    models.simulate(bench)


@pytest.mark.parametrize("broken", ["lock", "drp", "rate"])
def test_what_hangs_starts_anew(monkeypatch, broken):
    models = Models(monkeypatch, broken)
    models.noise = False

    async def bench(ctx):
        await power(models, ctx)
        if broken == "rate":
            await link_up(models, ctx)
            ctx.set(models.PcieBlock.rate, 1)
        for _ in range(3 * WATCHDOG_CYCLES * REFERENCE):
            await ctx.delay(STEP)
            if models.seen.count("PLL reset") == 2:
                break
        assert models.seen.count("PLL reset") == 2, models.seen
        models.broken = ""
        ctx.set(models.PcieBlock.rate, 0)
        models.before.pop("rate", None)
        await models.until(ctx, models.PcieBlock.sys_reset_n, 3 * WATCHDOG_CYCLES * REFERENCE)

    models.simulate(bench)


@pytest.mark.parametrize("perst", [True, False], ids=["PERST#", "no PERST#"])
@pytest.mark.parametrize("fast", [0, 1], ids=["Gen1", "Gen2"])
def test_the_reference_clock_stops_and_returns(monkeypatch, perst, fast):
    """As in a suspended host: with it the MMCM's lock goes, and does not come by itself."""
    models = Models(monkeypatch)

    async def bench(ctx):
        dut, block = models.dut, models.PcieBlock
        await power(models, ctx)
        await link_up(models, ctx)
        if fast:
            ctx.set(block.rate, 1)
            await models.until(ctx, models.ClockTree.fast)
            await models.until(ctx, block.pipe.phystatus)
        models.reference = False
        await ctx.delay(1000 * STEP)
        assert not ctx.get(dut.clock_good)
        models.seen.clear()
        models.before.pop("rate", None)
        models.reference = True
        ctx.set(dut.perst_n, not perst)
        ctx.set(block.rate, 0)
        ctx.set(block.trn.trnlnkup, 0)
        await models.until(ctx, dut.clock_good, 2 * RETRY_CYCLES * REFERENCE)
        await models.until(ctx, ~block.sys_reset_n, 100)
        ctx.set(dut.perst_n, 1)
        await link_up(models, ctx)
        assert [event for event in models.seen if event != "rate 0"] == UP

    models.simulate(bench)


def test_a_reference_clock_that_is_not_yet_stable(monkeypatch):
    """It stops again before the MMCM is locked: the MMCM is reset again, however long it takes."""
    models = Models(monkeypatch)

    async def bench(ctx):
        ctx.set(models.dut.perst_n, 1)
        for steps in (5, 50, 160, 300, LOCK, LOCK // 2):
            models.reference = True
            await ctx.delay(steps * STEP)
            models.reference = False
            await ctx.delay(100 * STEP)
            assert not ctx.get(models.dut.clock_good)
        models.reference = True
        await link_up(models, ctx)

    models.simulate(bench)


async def receiving(models, ctx):
    """The partner sends, until the block sees that the receiver is valid."""
    models.noise = False
    models.receive(ctx, models.GtpChannel.pipe, 0x4A4A)
    ctx.set(models.GtpChannel.pipe.rx_elec_idle, 0)
    await models.until(ctx, models.PcieBlock.pipe.rx_valid)


def test_a_rate_change_shows_nothing_of_the_receiver(monkeypatch):
    models = Models(monkeypatch)

    async def bench(ctx):
        await power(models, ctx)
        await link_up(models, ctx)
        block = models.PcieBlock
        for rate in (1, 0):
            await receiving(models, ctx)
            models.noise = True
            ctx.set(block.rate, rate)
            await ctx.delay(3 * PIPE_SLOW * STEP)
            words = steps = 0
            while not ctx.get(block.pipe.phystatus):
                await ctx.delay(STEP)
                assert not ctx.get(block.pipe.rx_valid)
                words += ctx.get(models.GtpChannel.pipe.rx_valid)
                steps += 1
            assert words > 0.9 * steps > 900, "the receiver was quiet"
        await receiving(models, ctx)

    models.simulate(bench)


@pytest.mark.parametrize("fast", [0, 1], ids=["Gen1", "Gen2"])
def test_the_link_sleeps_and_wakes(monkeypatch, fast):
    """L1, as a host enters it with D3hot."""
    models = Models(monkeypatch)

    async def bench(ctx):
        await power(models, ctx)
        await link_up(models, ctx)
        block, channel = models.PcieBlock, models.GtpChannel.pipe
        if fast:
            ctx.set(block.rate, 1)
            await models.until(ctx, models.ClockTree.fast)
            await models.until(ctx, block.pipe.phystatus)
        ctx.set(block.ltssm, LTSSM_L0)
        cycle = (PIPE_FAST if fast else PIPE_SLOW) * STEP
        for _ in range(2):
            await receiving(models, ctx)
            for word in EIOS * (1 + fast):
                models.receive(ctx, channel, *word)
                await ctx.delay(cycle)
            models.noise = True
            ctx.set(channel.rx_status, 4)
            await ctx.delay(4 * cycle)
            ctx.set(channel.rx_elec_idle, 1)
            for _ in range(200):
                await ctx.delay(cycle)
                seen = block.pipe
                assert not any(map(ctx.get, (seen.rx_valid, seen.rx_char_is_k, seen.rx_status)))
            ctx.set(channel.rx_status, 0)

    models.simulate(bench)
