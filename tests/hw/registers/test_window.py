# SPDX-License-Identifier: BSD-2-Clause
"""Registers outside of the core: what comes out of the register bus, and what goes back."""

import pytest

from hw.registers.window import RegisterWindow
from tests.hw.helpers import seeded, simulate

BAR, BASE, SIZE = 0, 0x200, 0x100


def test_accesses_come_out_in_their_cycle_and_reads_are_answered_one_later():
    rng = seeded()
    dut = RegisterWindow(bar=BAR, base=BASE, size=SIZE)
    port = dut.port

    async def run(ctx):
        expected = 0
        for _ in range(400):
            answer = rng.getrandbits(64)
            ctx.set(port.rdata, answer)
            assert ctx.get(dut.bus.read.data) == (answer if expected else 0)
            shown = {}
            for half in ("write", "read"):
                access = getattr(dut.bus, half)
                address = 8 * rng.randrange(SIZE // 8)
                bar, base = rng.choice(
                    [(BAR, BASE), (BAR, BASE), (1, BASE), (BAR, 0), (BAR, 0x300)]
                )
                enable, valid = rng.choice([0xFF, 0x0F, 0xF0, 0x10]), rng.random() < 0.7
                ctx.set(access.valid, valid)
                ctx.set(access.bar, bar)
                ctx.set(access.address, (base + address) // 8)
                ctx.set(access.enable, enable)
                here = valid and (bar, base) == (BAR, BASE)
                shown[half] = (enable if here else 0, address)
            data = rng.getrandbits(64)
            ctx.set(dut.bus.write.data, data)
            assert ctx.get(port.wstrb) == shown["write"][0]
            assert ctx.get(port.rstrb) == shown["read"][0]
            assert ctx.get(port.waddr) == shown["write"][1]
            assert ctx.get(port.raddr) == shown["read"][1]
            assert ctx.get(port.wdata) == data
            expected = shown["read"][0]
            await ctx.tick()

    simulate(dut, run)


def test_registers_begin_in_reset():
    dut = RegisterWindow(bar=BAR, base=BASE, size=SIZE)

    async def run(ctx):
        assert not ctx.get(dut.port.aresetn)
        await ctx.tick()
        assert ctx.get(dut.port.aresetn)

    simulate(dut, run)


@pytest.mark.parametrize(("base", "size"), [(0x80, 0x100), (0x180, 0x180)])
def test_a_window_is_where_its_address_bits_can_say_so(base, size):
    with pytest.raises(ValueError, match="a power of two, at a multiple of it"):
        RegisterWindow(bar=BAR, base=base, size=size)
