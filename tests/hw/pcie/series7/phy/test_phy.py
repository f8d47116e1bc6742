# SPDX-License-Identifier: BSD-2-Clause
"""The whole of hw/pcie/series7/phy, its primitives replaced by models.

Power-on, link, Gen2, resets, hangs.
"""

from __future__ import annotations

import pytest
from amaranth import ClockDomain, Const, Module
from amaranth.sim import Simulator

from hw.pcie.series7.phy import Pads, Phy, phy
from hw.pcie.series7.phy.clocking import ClockTree
from hw.pcie.series7.phy.gtp import GtpChannel, GtpCommon
from hw.pcie.series7.phy.pcie_block import PcieBlock
from hw.pcie.series7.phy.reset import Watchdog
from hw.pcie.series7.phy.rx_width import WIDTH_BIT

#: Seconds of one step of the models: a quarter of the fastest period.
STEP = 1e-9
#: In steps.
PIPE_SLOW, PIPE_FAST, DRP, SYNC = 8, 4, 8, 16
WATCHDOG_CYCLES = 1500


class Models:
    """All primitives at once, a step at a time. `broken` names an answer that does not come."""

    def __init__(self, monkeypatch, broken=""):
        self.broken, self.now, self.seen = broken, 0, []
        self.due: list[tuple[int, object, int]] = []
        self.register = 1 << WIDTH_BIT
        self.before: dict[str, int] = {}
        for original in (ClockTree, GtpChannel, GtpCommon, PcieBlock):
            monkeypatch.setattr(phy, original.__name__, self.model(original))
        monkeypatch.setattr(phy, "Watchdog", lambda: Watchdog(WATCHDOG_CYCLES))
        zero = Const(0)
        self.dut = Phy(Pads(zero, zero, zero, zero, zero, zero), 62_500)
        self.sync = ClockDomain("sync")
        top = Module()
        top.domains += self.sync
        top.submodules.dut = self.dut
        self.simulator = Simulator(top)

    def model(self, original):
        """The class without what is in it; remembered by its name."""

        def made(*arguments):
            class Empty(original):
                def elaborate(self, platform):
                    return Module()

            made_one = Empty(*arguments)
            setattr(self, original.__name__, made_one)
            return made_one

        return made

    def later(self, steps, signal, value):
        """Set a signal after some steps."""
        self.due.append((self.now + steps, signal, value))

    def changed(self, ctx, name, signal):
        """The signal's value if it is another than last time, else None."""
        value = ctx.get(signal)
        if self.before.get(name) == value:
            return None
        self.before[name] = value
        return value

    async def run(self, ctx):
        """The background bench: clocks, transceiver, PLL."""
        tree, channel, common = self.ClockTree, self.GtpChannel, self.GtpCommon
        ctx.set(tree.locked, 1)
        ctx.set(channel.pipe.phystatus, 1)
        while True:
            pipe = PIPE_FAST if ctx.get(tree.fast) else PIPE_SLOW
            if self.now % DRP == 0:
                self.reconfigure(ctx, channel)
            for signal, period in (
                (tree.pipe_clock, pipe),
                (tree.drp_clock, DRP),
                (tree.sync_clock, SYNC),
            ):
                ctx.set(signal, self.now % period < period // 2)
            await ctx.delay(STEP)
            self.now += 1
            for due in [each for each in self.due if each[0] <= self.now]:
                self.due.remove(due)
                ctx.set(due[1], due[2])
            self.lock(ctx, channel, common)
            self.align(ctx, channel)
            self.change_rate(ctx, channel, pipe)

    def reconfigure(self, ctx, channel):
        """The DRP, at the edge of its clock."""
        if not ctx.get(channel.drp.en) or self.broken == "drp":
            return
        if ctx.get(channel.drp.we):
            self.register = ctx.get(channel.drp.di)
            self.seen.append("wide" if self.register >> WIDTH_BIT & 1 else "narrow")
        ctx.set(channel.drp.do, self.register)
        self.later(DRP - 2, channel.drp.rdy, 1)
        self.later(DRP + 2, channel.drp.rdy, 0)

    def lock(self, ctx, channel, common):
        reset = self.changed(ctx, "pll", common.pll_reset)
        if reset:
            self.seen.append("PLL reset")
            ctx.set(common.pll_lock, 0)
        elif reset == 0 and self.broken != "lock":
            self.later(300, common.pll_lock, 1)
        reset = self.changed(ctx, "gt", channel.reset)
        if reset:
            for signal in (channel.tx_reset_done, channel.rx_reset_done, channel.rx_pma_reset_done):
                ctx.set(signal, 0)
            ctx.set(channel.pipe.phystatus, 1)
        elif reset == 0 and "PLL reset" in self.seen and not ctx.get(common.pll_reset):
            if self.broken in ("lock", "drp"):
                return  # given up
            assert ctx.get(common.pll_lock), "the channel left its reset without a clock"
            assert not self.register >> WIDTH_BIT & 1, "the receiver was reset at 20 bits"
            self.later(100, channel.rx_pma_reset_done, 1)
            self.later(200, channel.rx_pma_reset_done, 0)
        if self.changed(ctx, "ready", channel.user_ready):
            assert self.register >> WIDTH_BIT & 1
            self.later(100, channel.tx_reset_done, 1)
            self.later(150, channel.rx_reset_done, 1)
            self.later(150, channel.rx_pma_reset_done, 1)
            self.later(160, channel.pipe.phystatus, 0)

    def align(self, ctx, channel):
        for name in ("dlysreset", "phinit", "phalign", "dlyen"):
            if self.changed(ctx, name, getattr(channel.phase, name)):
                done = {"dlyen": "phalign"}.get(name, name)
                self.later(100, getattr(channel.phase, f"{done}_done"), 1)
                self.later(200, getattr(channel.phase, f"{done}_done"), 0)
                self.seen.append(name)

    def change_rate(self, ctx, channel, pipe):
        rate = self.changed(ctx, "rate", channel.rate)
        if rate is None or not self.seen:
            return
        self.seen.append(f"rate {rate}")
        self.later(50, channel.rx_pma_reset_done, 0)
        if self.broken == "rate":
            return
        self.later(400, channel.rx_pma_reset_done, 1)
        for at, signal in (
            (300, channel.tx_rate_done),
            (340, channel.rx_rate_done),
            (400, channel.pipe.phystatus),
        ):
            self.later(at, signal, 1)
            self.later(at + pipe, signal, 0)

    async def until(self, ctx, condition, steps=20_000):
        for _ in range(steps):
            await ctx.delay(STEP)
            if ctx.get(condition):
                return
        raise TimeoutError(f"after {self.seen}")

    def simulate(self, bench):
        """Runs `bench` beside the models."""
        self.simulator.add_testbench(self.run, background=True)
        self.simulator.add_testbench(bench)
        self.simulator.run()


UP = ["PLL reset", "narrow", "wide", "dlysreset", "phinit", "phalign", "dlyen"]
GEN2 = ["narrow", "rate 1", "wide", "dlysreset", "phinit", "phalign", "dlyen"]


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
        await ctx.delay(2000 * STEP)
        assert models.seen == [] and not ctx.get(dut.transceiver_good), "PERST# is low"
        ctx.set(dut.perst_n, 1)
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

    async def bench(ctx):
        ctx.set(models.dut.perst_n, 1)
        if broken == "rate":
            await link_up(models, ctx)
            ctx.set(models.PcieBlock.rate, 1)
        for _ in range(3 * WATCHDOG_CYCLES * DRP):
            await ctx.delay(STEP)
            if models.seen.count("PLL reset") == 2:
                break
        assert models.seen.count("PLL reset") == 2, models.seen
        models.broken = ""
        ctx.set(models.PcieBlock.rate, 0)
        models.before.pop("rate", None)
        await models.until(ctx, models.PcieBlock.sys_reset_n, 3 * WATCHDOG_CYCLES * DRP)

    models.simulate(bench)


def test_a_lost_lock_resets_the_pipe(monkeypatch):
    models = Models(monkeypatch)

    async def bench(ctx):
        ctx.set(models.dut.perst_n, 1)
        await link_up(models, ctx)
        ctx.set(models.ClockTree.locked, 0)
        await models.until(ctx, ~models.PcieBlock.sys_reset_n, 100)
        assert not ctx.get(models.dut.clock_good)
        ctx.set(models.ClockTree.locked, 1)
        await models.until(ctx, models.PcieBlock.sys_reset_n)

    models.simulate(bench)
