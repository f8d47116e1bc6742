# SPDX-License-Identifier: BSD-2-Clause
"""The IRQ block with the writer that looks its messages up, and a driver for them."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interrupts.irq import InterruptBlock
from hw.registers.bus import READ_LATENCY, BusSignature, BusStage
from hw.registers.file import RegisterFile
from hw.seam import RequestHeader, beat
from hw.write.record_writer import RecordWriter
from peerdma import regs
from tests.hw.helpers import simulate
from tests.hw.registers.bus import bus_read, bus_write

ADDRESS = 0x8_FEE0_0000
CHANNELS, SOURCES = 2, 18


class Messages(wiring.Component):
    """`InterruptBlock` and `RecordWriter` as the core connects them."""

    def __init__(self, channels=2):
        self.irq = InterruptBlock(channels)
        super().__init__(
            {
                "bus": In(BusSignature()),
                "request": Out(stream.Signature(beat(RequestHeader, 64))),
                "sent": In(1),
                "dropped": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.irq = irq = self.irq
        m.submodules.records = records = RecordWriter(1, 0, width=64)
        wiring.connect(m, wiring.flipped(self.bus), records.host)
        wiring.connect(m, irq.records, records.sources[0])
        wiring.connect(m, records.request, wiring.flipped(self.request))
        m.submodules.stage = stage = BusStage()
        m.submodules.file = file = RegisterFile()
        wiring.connect(m, records.bus, stage.bus)
        wiring.connect(m, stage.target, file.bus)
        wiring.connect(m, file.target, irq.bus)
        m.d.comb += [
            records.dropped.eq(self.dropped),
            records.sent.eq(self.sent),
        ]
        return m


class Bench:
    """Drives `Messages` with MSI-X on; source n has vector n, data 0x100 + n.

    Attributes
    ----------
    sent : list of int
        Vectors of the messages that were taken, in order.
    sink : () -> (int, bool)
        For each message: cycles until it is taken, and whether it is dropped instead.
    """

    def __init__(self, sink=lambda: (0, False)):
        self.dut = Messages()
        self.irq = self.dut.irq
        self.sent = []
        self._sink = sink

    def run(self, testbench, cycles=100_000):
        async def body(ctx):
            ctx.set(self.irq.link.bus_master, 1)
            ctx.set(self.irq.link.msix_enable, 1)
            for vector in range(regs.MSIX_ENTRIES):
                await self.write(ctx, vector, 0, (ADDRESS + 16 * vector) & 0xFFFF_FFFF)
                await self.write(ctx, vector, 1, ADDRESS >> 32)
                await self.write(ctx, vector, 2, 0x100 + vector)
                await self.write(ctx, vector, 3, 0)
            await self.set(ctx, "channel_vector0", 0x0100)
            for index in range(4):
                numbers = sum((2 + 4 * index + n) << 8 * n for n in range(4))
                await self.set(ctx, f"user_vector{index}", numbers)
            await self.set(ctx, "channel_enable", 3)
            await self.set(ctx, "user_enable", 0xFFFF)
            # Until the last write has reached its register.
            await ctx.tick()
            await testbench(ctx)

        simulate(self.dut, body, background=[self._take], cycles=cycles)

    async def _take(self, ctx):
        dut = self.dut
        while True:
            _, _, valid, beat = await ctx.tick().sample(dut.request.valid, dut.request.payload)
            if not valid:
                continue
            delay, dropped = self._sink()
            for _ in range(delay):
                await ctx.tick()
            assert ctx.get(dut.request.valid), "an offered message was withdrawn"
            vector = (beat.header.address - ADDRESS) // 16
            assert beat.data & 0xFFFF_FFFF == 0x100 + vector
            if not dropped:
                self.sent.append(vector)
            ctx.set(dut.request.ready, 1)
            ctx.set(dut.sent, dropped)
            ctx.set(dut.dropped, dropped)
            await ctx.tick()
            ctx.set(dut.request.ready, 0)
            if not dropped:
                for _ in range(3):
                    await ctx.tick()
                ctx.set(dut.sent, 1)
                await ctx.tick()
            ctx.set(dut.sent, 0)
            ctx.set(dut.dropped, 0)

    async def set(self, ctx, name, value):
        """Write a register of the IRQ block."""
        await bus_write(ctx, self.dut.bus, regs.IRQ.address(name), value)

    async def write(self, ctx, vector, dword, value):
        """Write a dword of a table entry."""
        offset = regs.MSIX_TABLE_OFFSET + 16 * vector + 4 * dword
        await bus_write(ctx, self.dut.bus, offset, value)

    async def mask(self, ctx, vector, masked=1):
        """Write the mask bit of a vector."""
        await self.write(ctx, vector, 3, masked)

    async def pending(self, ctx):
        """The pending bits."""
        await bus_read(ctx, self.dut.bus, regs.MSIX_PBA_OFFSET)
        await ctx.tick().repeat(READ_LATENCY - 1)
        return ctx.get(self.dut.bus.read.data) & 0xFFFF_FFFF

    async def watch_pending(self, ctx, cycles, often):
        """The pending bits of as many cycles, of those in which `often()`."""
        bus, due, seen = self.dut.bus, [False] * READ_LATENCY, []
        for _ in range(cycles):
            due.append(often())
            ctx.set(bus.read.valid, due[-1])
            ctx.set(bus.read.bar, regs.BAR_DMA[0])
            ctx.set(bus.read.address, regs.MSIX_PBA_OFFSET >> 3)
            ctx.set(bus.read.enable, 0xF)
            await ctx.tick()
            due.pop(0)
            if due[0]:
                seen.append(ctx.get(bus.read.data) & 0xFFFF_FFFF)
        ctx.set(bus.read.valid, 0)
        return seen

    def level(self, ctx, source, value):
        """Set or clear a source: 0 and 1 are channels, the others user interrupts."""
        signal, bit = self.irq.channel, source
        if source >= CHANNELS:
            signal, bit = self.irq.user, source - CHANNELS
        ctx.set(signal, ctx.get(signal) & ~(1 << bit) | value << bit)

    async def settle(self, ctx):
        """Wait until everything that can be sent is sent."""
        await ctx.tick().repeat(25 * SOURCES)
