# SPDX-License-Identifier: BSD-2-Clause
"""`hw.memory.read_switch`: the memory that is addressed answers, and no other is read."""

import pytest

from hw.memory.read_switch import ReadSwitch
from tests.hw.helpers import PAIR_PLACE, RING_PLACE, seeded, simulate


@pytest.mark.parametrize("rings", [0, 1, 3])
def test_random_reads(rings):
    rng = seeded()
    dut = ReadSwitch(rings)
    ports = [dut.ram, *dut.rings]
    bases = [0, *(RING_PLACE + pair * PAIR_PLACE for pair in range(rings))]

    async def bench(ctx):
        chosen = None
        for _ in range(500):
            words = [rng.getrandbits(64) for _ in ports]
            for port, word in zip(ports, words, strict=True):
                ctx.set(port.data, word)
            if chosen is not None:
                assert ctx.get(dut.port.data) == words[chosen]
            enable = rng.random() < 0.7
            target = rng.randrange(len(ports))
            size = PAIR_PLACE if target else RING_PLACE
            address = (bases[target] + rng.randrange(size)) >> 3
            ctx.set(dut.port.address, address)
            ctx.set(dut.port.enable, enable)
            for index, port in enumerate(ports):
                assert ctx.get(port.enable) == (enable and index == target)
                assert ctx.get(port.address) == address
            await ctx.tick()
            chosen = target if enable else chosen

    simulate(dut, bench)
