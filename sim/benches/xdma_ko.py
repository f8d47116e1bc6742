# SPDX-License-Identifier: BSD-2-Clause
"""Xilinx' driver (xdma.ko), access by access: what it does in each phase, and its bookkeeping.

Offsets and values are those of the driver, on purpose not taken from the register map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cocotb.triggers import Timer

from peerdma import regs

from .memory import Buffer, Transfer
from .replay import play
from .tb import TB

__all__ = ["FLUSH", "PERF_MASK", "RING", "Engine", "XdmaKo", "buffers"]

#: Descriptors in an engine's ring.
RING = 2048
#: Descriptors in a block: adjacency ends at multiples of 2 KiB.
BLOCK = 64
IRQ_MASK, POLL_MASK, PERF_MASK = 0x00F8_3E1E, 0x00F8_3E18, 0x00F8_3E5E
IRQ_STOP, POLL_STOP = 0x00F8_3E1E, 0x04F8_3E18
RUN = 1
LAST, OTHER, FLUSH = 0xAD4B_0013, 0xAD4B_0000, 0xAD4B_0002
ERRORS = {False: 0x00F8_FE38, True: 0x00F8_0638}
USERS = 16

IDENTIFY = """
    R 2000 1fc2xxxx
    R 3000 1fc3xxxx
    R 2004
    R 2010
    R 2040 00000000
    R 2044 00000000
    R 2048
    R 204c
    W 2018 ffffffff
    W 200c ffffffff
    R 2040 00000000
    R 2044 00000000
"""
ENGINE = """
    W +000c 02000000        # incrementing addresses
    R +004c 00010140        # any byte, any length
"""
POLL_ENGINE = """
    W +0088 {lo}
    W +008c {hi}
"""
ENGINE_MASK = "W +0090 {mask}"
ENABLE = "W 2014 ffffffff"
USERS_ON = """
    R 2040 00000000
    R 2044 00000000
    W 2008 0001ffff         # a bit too many
    R 2040 00000000
    R 2044 00000000
"""
START = """
    W +4080 {lo}
    W +4084 {hi}
    W +4088 {adjacent}
    W +0004 {control}
    R +0040
    R +0040
"""
DUMP = """
    R +0000 1fcxxxxx
    R +0040
    R +0004
    R +4080
    R +4084
    R +4088
    R +0048
    R +0090
    R +0040
"""
CLOSE = """
    W 2018 ffffffff
    W 200c ffffffff
    R 2040 00000000
    R 2044 00000000
"""
CLOSE_ENGINE = """
    W +0090 00000000
    W 6028 {credit}
"""


class Engine:
    """A channel as the driver sees it.

    Attributes
    ----------
    index : int
        Number among the engines: its bit in the interrupt block and its MSI-X vector.
    expected : int
        Descriptors of the run that was started last.
    """

    def __init__(self, driver: XdmaKo, index: int, offset: int):
        self.driver, self.index, self.offset = driver, index, offset
        self.c2h = bool(offset & 0x1000)
        self.expected = 0
        tb = driver.tb
        self.ring = tb.buffer(RING * regs.DESCRIPTOR.itemsize, high=True, name="ring")
        self.word = tb.buffer(32, high=True, name="writeback")

    async def play(self, script: str, **values: int) -> list[int]:
        """Play a script for this engine's channel."""
        return await play(self.driver.tb, script, channel=self.offset, **values)

    async def set_up(self) -> None:
        """What probing and coming online do for each engine."""
        await self.play(ENGINE)
        if self.driver.poll:
            await self.play(POLL_ENGINE, **_halves(self.word.address))
        await self.play(ENGINE_MASK, mask=POLL_MASK if self.driver.poll else IRQ_MASK)

    def lay_out(self, transfers: Sequence[Transfer], first: int = 0, flags: int = OTHER) -> dict:
        """Descriptors from index `first` of the ring on; returns what START wants."""
        count, ring = len(transfers), self.ring.address
        table = np.zeros(count, regs.DESCRIPTOR)
        for n, transfer in enumerate(transfers):
            index, left = first + n, count - 1 - n
            table[n]["control"] = LAST
            if left:
                adjacent = min(BLOCK - 1 - (index + 1) % BLOCK, left - 1)
                table[n]["control"] = flags | adjacent << 8
                table[n]["next"] = ring + (index + 1) * table.itemsize
            table[n]["length"] = transfer.length
            table[n]["source"] = transfer.source
            table[n]["destination"] = transfer.destination
        at = first * table.itemsize
        self.ring.data = self.ring.data[:at] + table.tobytes() + self.ring.data[at + table.nbytes :]
        adjacent = min(BLOCK - 1 - first % BLOCK, count - 1)
        return {**_halves(ring + at), "adjacent": adjacent}

    async def start(
        self, transfers: Sequence[Transfer], first: int = 0, flags: int = OTHER
    ) -> None:
        """Start a run; its status is clean from the start."""
        self.expected = len(transfers)
        where = self.lay_out(transfers, first, flags)
        stop = POLL_STOP if self.driver.poll else IRQ_STOP
        _, cached = await self.play(START, **where, control=stop | RUN)
        assert not cached & ERRORS[self.c2h], f"status {cached:#010x} right after the start"
        if self.driver.poll:
            assert cached in (0, 1), f"status {cached:#010x} in poll mode"

    async def bottom_half(self, following: Sequence[Transfer] = (), first: int = 0) -> None:
        """After an interrupt: the run is over and whole. Start `following` while still masked."""
        await self.play("R +0044 00000006\nW +0004 {stop}", stop=IRQ_STOP)
        await self.play("R +0048 {count}", count=self.expected)
        if following:
            await self.start(following, first)

    async def finish_poll(self, us: float = 300) -> None:
        """Spin on the writeback word; no register is read."""
        for _ in range(int(us * 20)):
            if value := int.from_bytes(self.word.data[:4], "little"):
                self.word.data = bytes(4) + self.word.data[4:]
                assert value == self.expected, f"{value:#x} written back, not {self.expected}"
                await self.play("W +0004 {stop}", stop=POLL_STOP)
                return
            await Timer(50, "ns")
        raise AssertionError(f"nothing was written back within {us} us")

    async def time_out(self) -> None:
        """Look at everything, stop the engine, and let go of its buffers at once."""
        found = await self.play(DUMP)
        stop = POLL_STOP if self.driver.poll else IRQ_STOP
        assert found[2] == stop | RUN, "control register in the dump"
        await self.play("W +0004 {stop}", stop=stop)


class XdmaKo:
    """The driver, in mode "msix", "msi", "intx", or "poll" with MSI-X that it never needs."""

    def __init__(self, tb: TB, mode: str):
        self.tb, self.mode, self.poll = tb, mode, mode == "poll"
        self.engines: list[Engine] = []
        #: messages that have been taken in hand
        self.handled = 0

    async def probe(self) -> None:
        """Find the engines and enable interrupts; nothing may interrupt yet."""
        await play(self.tb, IDENTIFY)
        for direction, upper in ((0x0000, 0x1FC0), (0x1000, 0x1FC1)):
            for number in range(4):
                offset = direction + 0x100 * number
                identity = (await play(self.tb, "R +0000\nR +0000", channel=offset))[-1]
                if identity >> 16 != upper or identity >> 8 & 0xF != number or identity & 1 << 15:
                    break
                engine = Engine(self, len(self.engines), offset)
                self.engines.append(engine)
                await engine.set_up()
        await self._interrupts_on()
        assert self.tb.messages == [] and not self.tb.host.intx.asserts

    async def _interrupts_on(self) -> None:
        count = len(self.engines)
        command = await self.tb.pci.config_read_word(4)
        if self.mode in ("msix", "poll"):
            await self.tb.enable_msix(count + USERS)
        elif self.mode == "msi":
            await self.tb.enable_msi()
        await self.tb.pci.config_write_word(4, command & ~(1 << 10))
        if self.mode in ("msix", "poll"):
            await self._write_vectors(0x20A0, range(count))
            await self._write_vectors(0x2080, range(count, count + USERS))
        if not self.poll:
            await play(self.tb, ENABLE)
        await play(self.tb, USERS_ON)

    async def _write_vectors(self, offset: int, numbers: range) -> None:
        for n in range(0, len(numbers), 4):
            packed = sum(number << 8 * i for i, number in enumerate(numbers[n : n + 4]))
            await play(self.tb, f"W {offset + n:x} {packed:08x}")

    async def top_half(self) -> list[Engine]:
        """The next interrupt: masks the engines that asked for it and returns them."""
        tb = self.tb
        if self.mode == "intx":
            await tb.wait_intx(True)
        else:
            self.handled += 1
            await tb.wait_messages(self.handled)
        if self.mode == "msix":
            engine = self.engines[tb.messages[self.handled - 1]]
            await engine.play("W +0098 {mask}\nR 204c", mask=IRQ_MASK)
            return [engine]
        (requests,) = await play(tb, "R 2044")
        if requests:
            await play(tb, "W 2018 {requests}", requests=requests)
        await play(tb, "R 2040 00000000")
        if self.mode == "intx":
            # The deassertion was sent before or right behind the answer.
            await Timer(500, "ns")
        return [engine for engine in self.engines if requests >> engine.index & 1]

    async def unmask(self, engine: Engine) -> None:
        """The end of the bottom half."""
        if self.mode == "msix":
            await engine.play("W +0094 {mask}", mask=IRQ_MASK)
        else:
            await play(self.tb, "W 2014 {bit}", bit=1 << engine.index)

    async def serve(self) -> list[Engine]:
        """One interrupt from top to end."""
        engines = await self.top_half()
        for engine in engines:
            await engine.bottom_half()
            await self.unmask(engine)
        return engines

    async def close(self) -> None:
        """Remove the driver."""
        await play(self.tb, CLOSE)
        if self.mode in ("msix", "poll"):
            await self._write_vectors(0x20A0, range(0))
            for offset in (0x20A0, 0x2080, 0x2084, 0x2088, 0x208C):
                await play(self.tb, f"W {offset:x} 00000000")
        for engine in self.engines:
            await engine.play(CLOSE_ENGINE, credit=1 << (16 if engine.c2h else 0))
        await self.tb.pci.free_irq_vectors()
        await self.tb.pci.clear_master()

    async def offline(self) -> None:
        """Before a reset, or when the error handlers of PCI ask for it."""
        for engine in self.engines:
            await engine.play("W +0004 {stop}", stop=POLL_STOP if self.poll else IRQ_STOP)
        await play(self.tb, CLOSE)

    async def online(self) -> None:
        """After `offline`, on the same engines."""
        for engine in self.engines:
            await engine.set_up()
        if not self.poll:
            await play(self.tb, ENABLE)
        await play(self.tb, USERS_ON)


def _halves(address: int) -> dict[str, int]:
    return {"lo": address & 0xFFFF_FFFF, "hi": address >> 32}


def buffers(tb: TB, pages: int) -> list[Buffer]:
    """Pages as a user's buffer gives them: the first and the last in part."""
    sizes = [tb.rng.randint(1, 300) for _ in range(pages)]
    return [tb.buffer(size, offset=tb.rng.randrange(4096 - size)) for size in sizes]
