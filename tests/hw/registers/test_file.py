# SPDX-License-Identifier: BSD-2-Clause
"""The register file: what it stores for a bank, and that no two words share a row."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw.interrupts.msix import entry_word
from hw.registers.bank import RegisterBank, plain
from hw.registers.file import row
from peerdma import regs
from peerdma.regs import Access, Block, Register
from tests.hw.helpers import seeded, simulate
from tests.hw.registers.bus import BehindFile, bus_read, bus_write

BLOCK = Block(
    "sample",
    0x2000,
    (
        Register("low", 0x00, Access.RW, "in the file", writable=0x00FF_00FE),
        Register("high", 0x04, Access.RW, "in the file"),
        Register("number", 0x08, Access.RW, "has a reset value", reset=8, writable=0x1F),
        Register("ident", 0x0C, Access.RO, "beside it", 0x1234),
        Register("enable", 0x10, Access.RW, "has an alias"),
        Register("beside", 0x14, Access.RW, "in the file"),
        Register("enable_w1s", 0x18, Access.W1S, "sets bits", alias="enable"),
    ),
    "for the test",
)


def test_registers_read_back_until_the_bank_is_reset():
    rng = seeded()
    bank = RegisterBank(BLOCK, bar=1, in_file=True)
    dut = BehindFile(bank)
    banked = {register.name: register for register in BLOCK.registers}
    writable = [banked[name] for name in ("low", "high", "number", "enable", "beside")]

    async def testbench(ctx):
        for _ in range(10):
            values = {register: register.reset for register in writable}
            for _ in range(30):
                register = rng.choice(writable)
                value, whole = rng.getrandbits(32), rng.random() < 0.8
                enable = 0xF if whole else rng.randrange(0xF)
                await bus_write(ctx, dut.bus, 0x2000 + register.offset, value, enable=enable)
                if whole:
                    values[register] = value & register.writable
                assert ctx.get(getattr(bank, register.name)) == values[register]
                register = rng.choice(writable)
                found = await bus_read(ctx, dut.bus, 0x2000 + register.offset, latency=2)
                assert found == values[register], register.name
                assert await bus_read(ctx, dut.bus, 0x200C, latency=2) == 0x1234
                assert await bus_read(ctx, dut.bus, 0x2018, latency=2) == 0
            ctx.set(dut.reset, 1)
            await ctx.tick()
            ctx.set(dut.reset, 0)
            for register in writable:
                found = await bus_read(ctx, dut.bus, 0x2000 + register.offset, latency=2)
                assert found == register.reset, register.name

    simulate(dut, testbench)


def test_both_registers_of_a_word_in_one_write():
    dut = BehindFile(RegisterBank(BLOCK, bar=1, in_file=True))

    async def testbench(ctx):
        write = dut.bus.write
        ctx.set(write.bar, 1)
        ctx.set(write.address, 0x2000 >> 3)
        for data, enable in ((0x1111_1111_2222_2222, 0xFF), (0x3333_3333_4444_4444, 0xF7)):
            ctx.set(write.valid, 1)
            ctx.set(write.data, data)
            ctx.set(write.enable, enable)
            await ctx.tick()
        ctx.set(write.valid, 0)
        assert await bus_read(ctx, dut.bus, 0x2000, latency=2) == 0x0022_0022
        assert await bus_read(ctx, dut.bus, 0x2004, latency=2) == 0x3333_3333

    simulate(dut, testbench)


def test_no_two_words_share_a_row():
    """Those of all banks that are behind the file, for four channels each way, and of MSI-X."""
    banks = [(regs.IRQ, regs.IRQ.base), (regs.USER, 0), (regs.MAILBOX, regs.MAILBOX.base)]
    for block, bases in (
        (regs.CHANNEL, (regs.CHANNEL.base, regs.C2H_CHANNEL_BASE)),
        (regs.SGDMA, (regs.SGDMA.base, regs.C2H_SGDMA_BASE)),
    ):
        banks += [(block, base + 0x100 * channel) for base in bases for channel in range(4)]
    stored = [
        (block.name, (base + register.offset) // 8)
        for block, base in banks
        for register in plain(block)
    ]
    m = Module()
    vector, address, chosen = Signal(5), Signal(13), Signal(9)
    entries = [Signal(9, name=f"entry{word}") for word in range(2)]
    m.d.comb += chosen.eq(row(address))
    m.d.comb += [entry.eq(row(entry_word(vector, word))) for word, entry in enumerate(entries)]

    async def testbench(ctx):
        taken = {}
        for name, word in stored:
            ctx.set(address, word)
            assert taken.setdefault(ctx.get(chosen), (name, word)) == (name, word)
        for number in range(regs.MSIX_ENTRIES):
            ctx.set(vector, number)
            for word, entry in enumerate(entries):
                found = ("entry", number, word)
                assert taken.setdefault(ctx.get(entry), found) == found
        assert len(taken) > 100

    simulator = Simulator(m)
    simulator.add_testbench(testbench)
    simulator.run()
