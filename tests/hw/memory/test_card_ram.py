# SPDX-License-Identifier: BSD-2-Clause
"""`hw.memory.card_ram.leaves` against integers."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.memory.card_ram import leaves
from tests.hw.helpers import seeded, simulate

SIZE = 4096


class _Leaves(wiring.Component):
    address: In(64)
    length: In(28)
    outside: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.outside.eq(leaves(self.address, self.length, SIZE))
        return m


def test_leaves():
    """Around every border, and anywhere."""
    rng = seeded()
    dut = _Leaves()
    near = [0, 1, 2, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE - 1, 2 * SIZE, 2 * SIZE + 1, 3 * SIZE]
    cases = [(address, length) for address in near for length in near]
    cases += [(address, SIZE - address + more) for address in near[:5] for more in (-1, 0, 1)]
    for _ in range(2000):
        cases.append((rng.randrange(SIZE), rng.randrange(2 * SIZE)))
        cases.append((rng.getrandbits(rng.randint(1, 64)), rng.getrandbits(rng.randint(1, 28))))

    async def bench(ctx):
        for address, length in cases:
            if length < 0:
                continue
            ctx.set(dut.address, address)
            ctx.set(dut.length, length)
            await ctx.tick()
            found = bool(ctx.get(dut.outside))
            assert found == (length != 0 and address + length > SIZE), (address, length)

    simulate(dut, bench)
