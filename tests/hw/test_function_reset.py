# SPDX-License-Identifier: BSD-2-Clause
"""A reset of the function in the middle of anything: the whole core, attached at the seam."""

from __future__ import annotations

from hw.core import Core
from hw.pcie.series7.block import SERIES7
from hw.registers.soft_reset import SoftReset
from peerdma import regs
from tests.hw.helpers import seeded, simulate
from tests.hw.seam_model import SeamModel, start, transfer
from tests.hw.test_core import BASE, DESTINATION, SMALL, SOURCE

#: Registers that software can change, one of each block, and what it writes.
CHANGED = {
    regs.CONFIG.address("user_max_payload"): 0,
    regs.IRQ.address("channel_enable"): 3,
    regs.IRQ.address("channel_vector0"): 0x0102,
    regs.CHANNEL.address("interrupt_enable"): 0x10,
    regs.SGDMA_COMMON.address("halt"): 1,
    regs.EXTENSION.address("reads"): 1,
    #: mask bit of the first vector
    regs.MSIX_TABLE_OFFSET + 12: 0,
}
SIZE = 600
#: Cycles of a reset when the block gives back a write's token at once.
BOUND = 40


class Forgetful(SeamModel):
    """Keeps what answers reads, and takes no requests, while it is told to."""

    def __init__(self, core):
        super().__init__(core, BASE, 0x6000)
        self.keeps, self.kept = False, []

    def _load(self, header):
        before = len(self._completions)
        super()._load(header)
        if self.keeps:
            while len(self._completions) > before:
                self.kept.append(self._completions.pop())

    def give_back(self):
        """Send what was kept."""
        self._completions.extend(reversed(self.kept))
        self.kept.clear()


async def reset(ctx, model) -> int:
    """Reset the function; returns how many cycles that took."""
    seam, cycles = model.seam, 0
    ctx.set(seam.link.bus_master, 0)
    ctx.set(seam.function_reset, 1)
    while not ctx.get(seam.function_reset_done):
        await ctx.tick()
        cycles += 1
    ctx.set(seam.function_reset, 0)
    await ctx.tick()
    assert not ctx.get(seam.function_reset_done)
    ctx.set(seam.link.bus_master, 1)
    await ctx.tick()
    return cycles


def test_nothing_of_before_is_left():
    """Registers, runs, and completions of reads, which come when their tags could be used again."""
    rng = seeded()
    model = Forgetful(Core(SERIES7, SMALL))
    spans = {False: [(BASE + SOURCE, 0, SIZE)], True: [(0, BASE + DESTINATION, SIZE)]}

    async def values(ctx, channel):
        offsets = [channel + regs.CHANNEL[name].offset for name in ("control", "status")]
        return [await model.read(ctx, at) for at in (*CHANGED, *offsets)]

    async def bench(ctx):
        await model.link_up(ctx)
        before = await values(ctx, regs.CHANNEL.base)
        for _ in range(2):
            for at, value in CHANGED.items():
                model.write(at, value)
            found = await values(ctx, regs.CHANNEL.base)
            assert all(
                one != other for one, other in zip(found[: len(CHANGED)], before, strict=False)
            )
            model.write(regs.SGDMA_COMMON.address("halt"), 0)
            model.memory[SOURCE : SOURCE + SIZE] = rng.randbytes(SIZE)
            for c2h in (True, False):
                start(model, c2h=c2h, descriptors=spans[c2h])
            await ctx.tick().repeat(rng.randrange(10, 150))
            model.keeps = True
            await ctx.tick().repeat(rng.randrange(1, 20))
            assert await reset(ctx, model) <= BOUND
            model.keeps = False
            assert await values(ctx, regs.CHANNEL.base) == before
            model.memory[SOURCE : SOURCE + SIZE] = data = rng.randbytes(SIZE)
            model.give_back()
            for c2h in (False, True):
                status = await transfer(ctx, model, c2h=c2h, descriptors=spans[c2h])
                assert status == regs.Status.DESCRIPTOR_STOPPED
            assert model.memory[DESTINATION : DESTINATION + SIZE] == data

    simulate(model.core, bench, background=model.benches)


def test_the_sequence():
    """A reset of the function waits for writes, happens once, and shows until it is over."""
    dut = SoftReset()

    async def bench(ctx):
        ctx.set(dut.writing, 1)
        ctx.set(dut.function, 1)
        for _ in range(5):
            await ctx.tick()
            assert (ctx.get(dut.stop), ctx.get(dut.reset), ctx.get(dut.done)) == (1, 0, 0)
        ctx.set(dut.writing, 0)
        assert (ctx.get(dut.reset), ctx.get(dut.registers)) == (1, 1)
        for _ in range(5):
            await ctx.tick()
            assert (ctx.get(dut.stop), ctx.get(dut.reset), ctx.get(dut.done)) == (0, 0, 1)
        # That of software beside it, and after it, is none of the registers.
        ctx.set(dut.function, 0)
        await ctx.tick()
        assert not ctx.get(dut.done)
        ctx.set(dut.request, 1)
        await ctx.tick()
        ctx.set(dut.request, 0)
        assert (ctx.get(dut.reset), ctx.get(dut.registers)) == (1, 0)

    simulate(dut, bench)
