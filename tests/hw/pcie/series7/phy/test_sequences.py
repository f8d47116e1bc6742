# SPDX-License-Identifier: BSD-2-Clause
"""The phy: reset, change of rate, alignment and width, each against a model of the transceiver."""

from __future__ import annotations

import pytest
from amaranth import Module, ResetInserter, Signal
from amaranth.sim import Simulator

from hw.pcie.series7.phy.rate import DRAIN_CYCLES, RateChange
from hw.pcie.series7.phy.reset import ResetSequence, Watchdog
from hw.pcie.series7.phy.rx_width import ADDRESS, WIDTH_BIT, RxWidth
from hw.pcie.series7.phy.tx_align import TxAlign
from tests.hw.helpers import seeded, simulate


async def wait(ctx, condition):
    """Ticks until `condition`; unlike a tick's own `until`, a bench that waits can be dropped."""
    while True:
        await ctx.tick()
        if ctx.get(condition):
            return


def drp_port(dut, log, random, value):
    """The reconfiguration port with one register, which answers after a while."""

    async def run(ctx):
        register = value
        while True:
            while not ctx.get(dut.drp.en):
                await ctx.tick()
            address, write, data = ctx.get(dut.drp.addr), ctx.get(dut.drp.we), ctx.get(dut.drp.di)
            assert address == ADDRESS
            for _ in range(random.randrange(1, 9)):
                await ctx.tick()
                assert not ctx.get(dut.drp.en), "a second access before the first was answered"
            if write:
                register = data
                log.append(register)
            ctx.set(dut.drp.do, register)
            ctx.set(dut.drp.rdy, 1)
            await ctx.tick()
            ctx.set(dut.drp.rdy, 0)
            ctx.set(dut.drp.do, 0)

    return run


def test_width_changes_one_bit_of_the_register():
    random = seeded()
    value = random.getrandbits(16) | 1 << WIDTH_BIT
    written = []
    dut = RxWidth()

    async def bench(ctx):
        for narrow in (1, 0, 1):
            ctx.set(dut.narrow, narrow)
            ctx.set(dut.request, 1)
            await wait(ctx, dut.done)
            for _ in range(random.randrange(4)):
                await ctx.tick()
                assert ctx.get(dut.done)
            ctx.set(dut.request, 0)
            await wait(ctx, ~dut.done)

    simulate(dut, bench, background=[drp_port(dut, written, random, value)])
    narrow = value & ~(1 << WIDTH_BIT)
    assert written == [narrow, value, narrow]


class Transceiver:
    """What GTPE2_CHANNEL and its PLL do when their resets change (UG482), in the order seen.

    `broken` names a step that never comes.
    """

    def __init__(self, dut, random, broken=""):
        self.dut, self.random, self.broken = dut, random, broken
        self.events = []

    async def pause(self, ctx):
        for _ in range(self.random.randrange(1, 12)):
            await ctx.tick()

    async def run(self, ctx):
        dut = self.dut
        ctx.set(dut.pll_lock, 1)  # from before
        ctx.set(dut.reset_done, 1)
        ctx.set(dut.mmcm_locked, 1)
        while True:
            await wait(ctx, dut.pll_reset & dut.gt_reset)
            self.events.append("reset")
            await self.pause(ctx)
            for signal in (dut.pll_lock, dut.reset_done, dut.rx_pma_reset_done):
                ctx.set(signal, 0)
            ctx.set(dut.phystatus, 1)
            await wait(ctx, ~dut.pll_reset)
            await self.pause(ctx)
            if self.broken == "lock":
                continue
            assert ctx.get(dut.gt_reset), "the channel left its reset before the PLL's lock"
            self.events.append("lock")
            ctx.set(dut.pll_lock, 1)
            await wait(ctx, ~dut.gt_reset)
            await self.pause(ctx)
            self.events.append("pma up")
            ctx.set(dut.rx_pma_reset_done, 1)
            await self.pause(ctx)
            self.events.append("pma down")
            ctx.set(dut.rx_pma_reset_done, 0)
            await wait(ctx, dut.user_ready)
            await self.pause(ctx)
            if self.broken == "channel":
                continue
            self.events.append("channel")
            ctx.set(dut.rx_pma_reset_done, 1)
            ctx.set(dut.reset_done, 1)
            ctx.set(dut.phystatus, 0)

    async def width(self, ctx):
        while True:
            await wait(ctx, self.dut.width_request)
            await self.pause(ctx)
            self.events.append("narrow" if ctx.get(self.dut.width_narrow) else "wide")
            ctx.set(self.dut.width_done, 1)
            await wait(ctx, ~self.dut.width_request)
            await self.pause(ctx)
            ctx.set(self.dut.width_done, 0)

    async def align(self, ctx):
        while True:
            await wait(ctx, self.dut.align_request)
            await self.pause(ctx)
            self.events.append("align")
            ctx.set(self.dut.align_done, 1)
            await wait(ctx, ~self.dut.align_request)
            ctx.set(self.dut.align_done, 0)


RESET_ORDER = ["reset", "narrow", "lock", "pma up", "pma down", "wide", "channel", "align"]


def test_reset_does_every_step_in_order():
    dut = ResetSequence(settle=5)
    model = Transceiver(dut, seeded())

    async def bench(ctx):
        await wait(ctx, dut.ready)
        for _ in range(50):
            await ctx.tick()
            assert ctx.get(dut.ready)

    simulate(dut, bench, background=[model.run, model.width, model.align])
    assert model.events == RESET_ORDER


@pytest.mark.parametrize("step", ["lock", "channel"])
def test_reset_waits_for_a_step_that_does_not_come(step):
    dut = ResetSequence(settle=5)
    model = Transceiver(dut, seeded(), broken=step)

    async def bench(ctx):
        for _ in range(2000):
            await ctx.tick()
            assert not ctx.get(dut.ready)

    simulate(dut, bench, background=[model.run, model.width, model.align])
    assert model.events == RESET_ORDER[: RESET_ORDER.index(step)]


@pytest.mark.parametrize("late", [0, 1, 100])
def test_the_watchdog_expires_exactly_then(late):
    dut = Watchdog(limit=20)
    seen = []

    async def bench(ctx):
        ctx.set(dut.done, 1)
        for _ in range(30 + late):
            await ctx.tick()
            assert not ctx.get(dut.expired)
        ctx.set(dut.done, 0)
        for cycle in range(60):
            await ctx.tick()
            if ctx.get(dut.expired):
                seen.append(cycle)

    simulate(dut, bench)
    # Counted anew after it ended: a sequence gets the whole time each time.
    assert seen == [18, 38, 58]


class Rates:
    """The transceiver's side of a change of rate, answers in random order."""

    def __init__(self, dut, random):
        self.dut, self.random, self.events = dut, random, []

    async def answer(self, ctx, signal):
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)

    async def run(self, ctx):
        dut = self.dut
        ctx.set(dut.rx_pma_reset_done, 1)
        rate = 0
        while True:
            await wait(ctx, dut.gt_rate != rate)
            rate = ctx.get(dut.gt_rate)
            self.events.append(f"rate {rate}")
            assert ctx.get(dut.clock_select) == rate, "the rate changed before the clock"
            for _ in range(self.random.randrange(1, 9)):
                await ctx.tick()
            ctx.set(dut.rx_pma_reset_done, 0)
            answers = [dut.tx_rate_done, dut.rx_rate_done, dut.phystatus]
            self.random.shuffle(answers)
            for signal in answers:
                for _ in range(self.random.randrange(9)):
                    await ctx.tick()
                await self.answer(ctx, signal)
            # A receiver's PMA reset takes far longer than the sequence needs to see it.
            await ctx.tick().repeat(16)
            ctx.set(dut.rx_pma_reset_done, 1)


def test_rate_up_and_down():
    random = seeded()
    dut = RateChange()
    model = Rates(dut, random)
    helpers = Transceiver(dut, random)
    helpers.events = model.events
    done = []

    async def bench(ctx):
        ctx.set(dut.rate, 1)
        for _ in range(20):  # not before the transceiver is up
            await ctx.tick()
            assert ctx.get(dut.idle)
        ctx.set(dut.enable, 1)
        for rate in (1, 0):
            ctx.set(dut.rate, rate)
            waited = 0
            while ctx.get(dut.clock_select) != rate:
                await ctx.tick()
                waited += 1
            assert waited == DRAIN_CYCLES + 1
            await wait(ctx, dut.done)
            done.append(ctx.get(dut.gt_rate))
            await ctx.tick()
            assert not ctx.get(dut.done), "done for one cycle only"
            assert ctx.get(dut.idle)

    simulate(dut, bench, background=[model.run, helpers.width, helpers.align])
    assert done == [1, 0]
    once = ["narrow", "rate", "wide", "align"]
    assert [event.split()[0] for event in model.events] == once * 2


@pytest.mark.parametrize("missing", ["tx_rate_done", "rx_rate_done", "phystatus"])
def test_rate_waits_for_every_answer(missing):
    random = seeded()
    dut = RateChange()
    model = Rates(dut, random)
    helpers = Transceiver(dut, random)

    async def answer(ctx, signal, given=model.answer):
        if signal is not getattr(dut, missing):
            await given(ctx, signal)

    model.answer = answer

    async def bench(ctx):
        ctx.set(dut.enable, 1)
        ctx.set(dut.rate, 1)
        for _ in range(1000):
            await ctx.tick()
            assert not ctx.get(dut.done)
            assert not ctx.get(dut.align_request)

    simulate(dut, bench, background=[model.run, helpers.width, helpers.align])
    assert model.events == ["rate 1"]


def test_alignment_holds_each_step_until_its_answer():
    random = seeded()
    dut = TxAlign()
    steps = (
        (dut.phase.dlysreset, dut.phase.dlysreset_done),
        (dut.phase.phinit, dut.phase.phinit_done),
        (dut.phase.phalign, dut.phase.phalign_done),
        (dut.phase.dlyen, dut.phase.phalign_done),
    )
    seen = []

    async def transceiver(ctx):
        while True:
            for number, (step, answer) in enumerate(steps):
                await wait(ctx, step)
                for other, (signal, _) in enumerate(steps):
                    assert ctx.get(signal) == (other == number)
                for _ in range(random.randrange(1, 9)):
                    await ctx.tick()
                    assert ctx.get(step)
                ctx.set(answer, 1)
                for _ in range(random.randrange(4, 9)):
                    await ctx.tick()
                ctx.set(answer, 0)
                seen.append(number)

    async def bench(ctx):
        for _ in range(2):
            ctx.set(dut.request, 1)
            await wait(ctx, dut.done)
            assert ctx.get(dut.phase.dlyen), "the delay follows voltage and temperature"
            ctx.set(dut.request, 0)
            for _ in range(20):
                await ctx.tick()
                assert ctx.get(dut.phase.dlyen)

    simulate(dut, bench, background=[transceiver])
    assert seen == [0, 1, 2, 3] * 2


def test_sequences_start_anew_when_their_clock_is_reset():
    """As PERST# and a lost lock do it: from any state, all outputs back."""
    dut = ResetSequence(settle=5)
    m = Module()
    m.submodules.dut = dut
    model = Transceiver(dut, seeded(), broken="lock")

    again = Signal()
    sim = Simulator(ResetInserter(again)(m))
    sim.add_clock(1e-6)

    async def bench(ctx):
        for _ in range(300):
            await ctx.tick()
        assert model.events == ["reset", "narrow"]
        model.broken = ""
        ctx.set(again, 1)
        await ctx.tick()
        ctx.set(again, 0)
        for signal in (dut.pll_reset, dut.gt_reset, dut.user_ready, dut.width_request):
            assert not ctx.get(signal)
        await wait(ctx, dut.ready)

    sim.add_testbench(bench)
    for each in (model.run, model.width, model.align):
        sim.add_testbench(each, background=True)
    sim.run()
    assert model.events == ["reset", "narrow", *RESET_ORDER]
