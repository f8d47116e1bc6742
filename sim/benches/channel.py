# SPDX-License-Identifier: BSD-2-Clause
"""One DMA channel as a driver programs it."""

from __future__ import annotations

from typing import Any, Protocol

from cocotb.triggers import Timer

from peerdma import regs

from .memory import Chain

__all__ = ["CONTROL_START", "CONTROL_STOP", "FINISHED", "PUSHES", "Board", "Channel"]

#: Control: every event is logged, Run is off or on.
CONTROL_STOP = sum(
    field.mask for field in regs.CHANNEL["control"].fields if field.name.startswith("ie_")
)
CONTROL_START = CONTROL_STOP | regs.CHANNEL["control"].field("run").mask
#: Status after a good transfer.
FINISHED = regs.Status.DESCRIPTOR_STOPPED | regs.Status.DESCRIPTOR_COMPLETED

#: Bytes that software pushes at once: dwords, 64-bit words, and write-combined bursts.
PUSHES = (4, 8, 16, 64, 128)


class Board(Protocol):
    """What a channel needs of its bench: access to registers."""

    channels_each_way: int

    async def read(self, block: regs.Block, name: str, **where: Any) -> int:
        """As `sim.benches.tb.TB.read`."""

    async def write(self, block: regs.Block, name: str, value: int, **where: Any) -> None:
        """As `sim.benches.tb.TB.write`."""

    async def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """As `sim.benches.tb.TB.bar_write`."""


class Channel:
    """Registers of one channel and its SGDMA block, and what a driver does with them."""

    def __init__(self, tb: Board, *, c2h: bool, number: int = 0):
        self._tb, self.number = tb, number
        self.c2h = c2h
        #: the channel's bit of the interrupt block
        self.irq_bit = 1 << (tb.channels_each_way * c2h + number)
        #: the channel's bit of the descriptor halt register
        self.halt_bit = (1 << 16 if c2h else 1) << number
        self._base = {
            regs.CHANNEL: regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base,
            regs.SGDMA: regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base,
            regs.CAPTURE: regs.C2H_CAPTURE_BASE if c2h else regs.CAPTURE.base,
        }

    async def read(self, name: str, block: regs.Block = regs.CHANNEL) -> int:
        """Read a register of the channel, or of its SGDMA block or error capture."""
        return await self._tb.read(block, name, channel=self.number, base=self._base[block])

    async def write(self, name: str, value: int, block: regs.Block = regs.CHANNEL) -> None:
        """Write a register of the channel, or of its SGDMA block."""
        await self._tb.write(block, name, value, channel=self.number, base=self._base[block])

    async def point_at(self, chain: Chain) -> None:
        """Write the SGDMA registers."""
        for name, value in (
            ("descriptor_lo", chain.address & 0xFFFF_FFFF),
            ("descriptor_hi", chain.address >> 32),
            ("descriptor_adjacent", chain.adjacent),
        ):
            await self.write(name, value, regs.SGDMA)

    async def push(self, content: bytes, write: int = 4, at: int = 0) -> None:
        """Write to the window for pushed descriptors from byte `at` on, `write` bytes at once."""
        base = regs.C2H_PUSH_BASE if self.c2h else regs.H2C_PUSH_BASE
        base += self.number * regs.PUSH_STRIDE + at
        for offset in range(0, len(content), write):
            data = content[offset : offset + write]
            await self._tb.bar_write(regs.BAR_DMA[0], base + offset, data)

    async def start(self, chain: Chain, control: int = CONTROL_START) -> None:
        """Set the first descriptor and Run."""
        await self.point_at(chain)
        await self.write("control", control)

    async def idle(self, us: float) -> regs.Status:
        """Poll until the channel is not busy, `us` microseconds at most; returns its status."""
        for _ in range(int(us) + 1):
            status = regs.Status(await self.read("status"))
            if not status & regs.Status.BUSY:
                return status
            await Timer(1, "us")
        raise AssertionError(f"{self!r} is still busy after {us} us, status {status!r}")

    async def run(self, chain: Chain, us: float = 100) -> None:
        """Run a chain to its good end within `us` microseconds; clear status and Run."""
        await self.start(chain)
        await self.expect_end(FINISHED, chain.count, us)
        assert await self.read("status_rc") == FINISHED
        await self.write("control", CONTROL_STOP)

    async def expect_end(self, status: regs.Status, count: int, us: float = 100) -> None:
        """Wait until idle, then fail unless status and completed count are these."""
        found = await self.idle(us)
        assert found == status, f"{self!r}: status {found!r}, expected {status!r}"
        completed = await self.read("completed_count")
        assert completed == count, f"{self!r}: {completed} descriptors completed, not {count}"

    async def expect_failed(self, status: regs.Status, before: int, us: float = 100) -> None:
        """The same for a run that ended with these error bits, behind `before` good descriptors."""
        await self.expect_end(status | regs.Status.DESCRIPTOR_STOPPED, before + 1, us)

    def __repr__(self) -> str:
        return f"<{'C2H' if self.c2h else 'H2C'} {self.number}>"
