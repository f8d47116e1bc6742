# SPDX-License-Identifier: BSD-2-Clause
"""The window for pushed descriptors: in which order, and when, what is written counts."""

import pytest
from amaranth.sim import Simulator

from hw.channel.push import PushWindow
from peerdma import regs
from tests.hw.helpers import bytes_of, seeded

DWORDS = regs.DESCRIPTOR.itemsize // 4
ALL = regs.PUSH_DESCRIPTORS * DWORDS
NOTHING = (0, 1, 0)
#: What says that dwords came out of order, or while the channel was busy.
SPOILT = (1, 0, 7)


class Bench:
    """Writes to the window of a channel, and notes which bytes of the ring it writes."""

    def __init__(self, index=0, c2h=False):
        self.dut = PushWindow(index=index, c2h=c2h)
        self.base = (regs.C2H_PUSH_BASE if c2h else regs.H2C_PUSH_BASE) + index * regs.PUSH_STRIDE

    def run(self, scenario):
        async def testbench(ctx):
            self.ctx = ctx
            ctx.set(self.dut.open, 1)
            await scenario(self)

        simulator = Simulator(self.dut)
        simulator.add_clock(8e-9)
        simulator.add_testbench(testbench)
        simulator.run()

    async def write(self, dword, values, *, bar=regs.BAR_DMA[0], base=None, enable=None):
        """Writes one dword, or two at once; returns what goes to the ring: {byte: value}."""
        ctx, write = self.ctx, self.dut.bus.write
        lane, full = dword % 2, (1 << 4 * len(values)) - 1
        ctx.set(write.valid, 1)
        ctx.set(write.bar, bar)
        ctx.set(write.address, ((self.base if base is None else base) >> 3) + dword // 2)
        ctx.set(write.data, sum(value << 32 * n for n, value in enumerate(values, lane)))
        ctx.set(write.enable, (full if enable is None else enable) << 4 * lane)
        word = self.dut.word
        placed = dict(bytes_of(ctx.get(word.payload))) if ctx.get(word.valid) else {}
        await ctx.tick()
        ctx.set(write.valid, 0)
        return placed

    async def push(self, dwords, step=2):
        for dword in range(0, dwords, step):
            await self.write(dword, [0] * min(step, dwords - dword))

    @property
    def pushed(self):
        """Whether there are any, the last one is whole, and how many are."""
        pushed = self.ctx.get(self.dut.pushed)
        return pushed.any, pushed.whole, pushed.count


@pytest.mark.parametrize(("index", "c2h"), [(0, False), (3, False), (0, True), (3, True)])
def test_words_and_halves_go_to_their_places(index, c2h):
    rng = seeded()

    async def scenario(bench):
        for _ in range(20):
            dword, found, wanted = 0, {}, {}
            while dword < ALL:
                size = 1 if dword % 2 or rng.random() < 0.3 else 2
                values = [rng.randrange(1 << 32) for _ in range(size)]
                found |= await bench.write(dword, values)
                raw = b"".join(value.to_bytes(4, "little") for value in values)
                wanted |= dict(enumerate(raw, 4 * dword))
                dword += size
                assert bench.pushed == (1, dword % DWORDS == 0, dword // DWORDS)
            assert found == wanted
            if rng.random() < 0.5:
                bench.ctx.set(bench.dut.clear, 1)
                await bench.ctx.tick()
                bench.ctx.set(bench.dut.clear, 0)
                assert bench.pushed == NOTHING

    Bench(index, c2h).run(scenario)


def test_what_is_not_the_next_dword_spoils_what_was_pushed():
    """And none of it goes to the ring, until the first dword begins anew."""

    async def scenario(bench):
        for have in (0, 1, 2, 7, 8, 24, ALL - 1, ALL):
            for dword in {0, 1, 2, have - 1, have, have + 1, ALL - 2, ALL - 1} & set(range(ALL)):
                for size in (1, 2) if dword % 2 == 0 else (1,):
                    await bench.push(have)
                    placed = await bench.write(dword, [5] * size)
                    if dword in (0, have):
                        assert len(placed) == 4 * size
                        assert bench.pushed[0]
                        assert bench.pushed != SPOILT
                    else:
                        assert not placed
                        assert bench.pushed == SPOILT
                        assert not await bench.write(have % ALL or 1, [6])
                        assert bench.pushed == SPOILT

    Bench().run(scenario)


def test_a_busy_channel_takes_nothing():
    async def scenario(bench):
        for have in (0, 5, 8):
            await bench.push(have)
            bench.ctx.set(bench.dut.open, 0)
            assert not await bench.write(have, [5])
            assert bench.pushed == SPOILT
            bench.ctx.set(bench.dut.open, 1)
            await bench.push(8)
            assert bench.pushed == (1, 1, 1)
            # the one that comes in the cycle of a clear is not forgotten
            bench.ctx.set(bench.dut.clear, 1)
            bench.ctx.set(bench.dut.open, 0)
            await bench.write(8, [5])
            bench.ctx.set(bench.dut.clear, 0)
            bench.ctx.set(bench.dut.open, 1)
            assert bench.pushed == SPOILT

    Bench().run(scenario)


def test_part_of_a_dword_is_not_written():
    async def scenario(bench):
        await bench.push(2)
        assert not await bench.write(2, [5], enable=0x7)
        assert not await bench.write(2, [5, 5], enable=0x7E)
        assert bench.pushed == (1, 0, 0)
        assert list(await bench.write(2, [5, 5], enable=0x7F)) == [8, 9, 10, 11]
        assert list(await bench.write(3, [5])) == [12, 13, 14, 15]

    Bench().run(scenario)


def test_other_addresses_are_not_ours():
    async def scenario(bench):
        for base in (bench.base - regs.PUSH_STRIDE, bench.base + regs.PUSH_STRIDE, 0x1400):
            assert not await bench.write(0, [5, 5], base=base)
        assert not await bench.write(0, [5, 5], bar=regs.BAR_USER[0])
        assert bench.pushed == NOTHING

    Bench(1, c2h=True).run(scenario)
