# SPDX-License-Identifier: BSD-2-Clause
"""Models of the primitives below hw/pcie/series7/phy: clock tree, transceiver, PLL, PCIe block.

They do nothing by themselves that the devices do not: an MMCM or PLL that lost its input stays
unlocked until it is reset, and a receiver makes noise whenever its input or its clock is not good.
"""

from __future__ import annotations

from amaranth import ClockDomain, Const, Module
from amaranth.sim import Simulator

from hw.pcie.series7.phy import Pads, Phy, phy
from hw.pcie.series7.phy.clocking import ClockTree, MmcmReset
from hw.pcie.series7.phy.gtp import GtpChannel, GtpCommon
from hw.pcie.series7.phy.pcie_block import PcieBlock
from hw.pcie.series7.phy.reset import Watchdog
from hw.pcie.series7.phy.rx_width import WIDTH_BIT
from tests.hw.helpers import seeded

__all__ = [
    "PIPE_FAST",
    "PIPE_SLOW",
    "REFERENCE",
    "RETRY_CYCLES",
    "STEP",
    "WATCHDOG_CYCLES",
    "Models",
]

#: Seconds of one step of the models: a quarter of the fastest period.
STEP = 1e-9
#: In steps.
REFERENCE, PIPE_SLOW, PIPE_FAST, DRP, SYNC = 10, 8, 4, 8, 16
#: Of the reference clock.
WATCHDOG_CYCLES, RETRY_CYCLES = 1000, 256
#: Steps from the MMCM's reset to its lock.
LOCK = 800


class Models:
    """All primitives at once, a step at a time. `broken` names an answer that does not come.

    `reference` says whether the host drives the reference clock, and `noise` whether the receiver
    makes noise of its input.
    """

    def __init__(self, monkeypatch, broken=""):
        self.broken, self.now, self.seen = broken, 0, []
        self.random = seeded()
        self.reference, self.noise = False, True
        #: when the MMCM will lock; never, unless its reset ends while its input runs
        self.lock_at: int | None = None
        self.due: list[tuple[int, object, int]] = []
        self.register = 1 << WIDTH_BIT
        self.before: dict[str, int] = {}
        for original in (ClockTree, GtpChannel, GtpCommon, PcieBlock):
            monkeypatch.setattr(phy, original.__name__, self.model(original))
        monkeypatch.setattr(phy, "Watchdog", lambda: Watchdog(WATCHDOG_CYCLES))
        monkeypatch.setattr(phy, "MmcmReset", lambda: MmcmReset(RETRY_CYCLES))
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
        ctx.set(channel.pipe.phystatus, 1)
        while True:
            pipe = PIPE_FAST if ctx.get(tree.fast) else PIPE_SLOW
            if ctx.get(tree.locked) and self.now % DRP == 0:
                self.reconfigure(ctx, channel)
            self.clock(ctx, tree, pipe)
            if self.noise and self.now % pipe == 0:
                self.receive(ctx, channel.pipe)
            await ctx.delay(STEP)
            self.now += 1
            for due in [each for each in self.due if each[0] <= self.now]:
                self.due.remove(due)
                ctx.set(due[1], due[2])
            self.lock(ctx, channel, common)
            self.align(ctx, channel)
            self.change_rate(ctx, channel, pipe)

    def clock(self, ctx, tree, pipe):
        """The reference clock, the MMCM, and its outputs, which stop without its lock."""
        reset = self.changed(ctx, "mmcm", tree.reset)
        if reset or not self.reference:
            self.lock_at = None
            ctx.set(tree.locked, 0)
        elif reset == 0 and self.now:
            self.lock_at = self.now + LOCK
        if self.lock_at == self.now:
            ctx.set(tree.locked, 1)
        locked = ctx.get(tree.locked)
        for signal, period, running in (
            (tree.reference_clock, REFERENCE, self.reference),
            (tree.pipe_clock, pipe, locked),
            (tree.drp_clock, DRP, locked),
            (tree.sync_clock, SYNC, locked),
        ):
            if running and self.now % (period // 2) == 0:
                ctx.set(signal, self.now % period == 0)

    def receive(self, ctx, pipe, data=None, char_is_k=0):
        """One word: of the partner's, or noise, in which RXVALID seldom falls."""
        noise = data is None
        ctx.set(pipe.rx_valid, not noise or self.random.random() < 0.98)
        ctx.set(pipe.rx_data, self.random.getrandbits(16) if noise else data)
        ctx.set(pipe.rx_char_is_k, self.random.getrandbits(2) if noise else char_is_k)

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
        """The PLL, and the channel's reset."""
        if not self.reference:
            ctx.set(common.pll_lock, 0)
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
        """The transmitter's phase."""
        for name in ("dlysreset", "phinit", "phalign", "dlyen"):
            if self.changed(ctx, name, getattr(channel.phase, name)):
                done = {"dlyen": "phalign"}.get(name, name)
                self.later(100, getattr(channel.phase, f"{done}_done"), 1)
                self.later(200, getattr(channel.phase, f"{done}_done"), 0)
                self.seen.append(name)

    def change_rate(self, ctx, channel, pipe):
        """The answers to a new rate."""
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
        """Steps until `condition`."""
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
