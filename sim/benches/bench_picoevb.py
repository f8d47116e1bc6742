# SPDX-License-Identifier: BSD-2-Clause
"""NVIDIA's PicoEVB driver (picoevb-rdma), replayed register access by register access.

The offsets and values are those that the driver has in its source, on purpose not taken from
the register map: this bench is the check of the map against the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import cocotb
from cocotb.triggers import Event, Timer, with_timeout

from .memory import Chain, Transfer
from .tb import TB, bench

#: BAR of the DMA registers in the driver.
BAR = 1
STATUS_RC, CONTROL, INTERRUPT_ENABLE, PERF_CONTROL = 0x44, 0x04, 0x90, 0xC0
PERF_COUNTERS = (0xC8, 0xC4, 0xD0, 0xCC)
DESCRIPTOR_LO, DESCRIPTOR_HI, DESCRIPTOR_ADJACENT = 0x4080, 0x4084, 0x4088
ENABLE_W1S, ENABLE_W1C, HALT_W1S, HALT_W1C = 0x2014, 0x2018, 0x6014, 0x6018
START, ERRORS, BUSY = 0x00FF_FE7F, 0x00FF_FE78, 1


@dataclass(frozen=True)
class Direction:
    """What differs between the driver's two directions."""

    base: int
    irq_bit: int
    halt_bit: int


H2C = Direction(0x0000, 0x1, 0x1)
C2H = Direction(0x1000, 0x2, 0x1_0000)


@dataclass
class Driver:
    """The driver: a shared interrupt handler and one transfer at a time."""

    tb: TB
    #: status words with an event that the handler found, since the last transfer began
    found: list[tuple[Direction, int]] = field(default_factory=list)

    def __post_init__(self):
        self._woken = Event()
        self._run = 0
        cocotb.start_soon(self._interrupts())

    async def read(self, offset: int) -> int:
        """Read a register of the DMA BAR."""
        return int.from_bytes(await self.tb.bar_read(BAR, offset, 4), "little")

    async def write(self, offset: int, value: int) -> None:
        """Write a register of the DMA BAR."""
        await self.tb.bar_write(BAR, offset, value.to_bytes(4, "little"))

    async def _interrupts(self) -> None:
        """The level-triggered handler: it always reads both status registers, and clears them."""
        line = self.tb.host.intx
        while True:
            line.changed.clear()
            if not line.level:
                await line.changed.wait()
                continue
            run = self._run
            for direction in (H2C, C2H):
                status = await self.read(direction.base + STATUS_RC)
                # A read that was on its way when the next run began tells of the one before.
                if status & ~BUSY and run == self._run:
                    self.found.append((direction, status & ~BUSY))
                    self._woken.set()
            # The deassertion was sent before or right behind the completion of the read.
            await Timer(500, "ns")

    async def begin(self, direction: Direction, chain: Chain) -> None:
        """Everything up to the start of a transfer."""
        await self.write(direction.base + DESCRIPTOR_LO, chain.address & 0xFFFF_FFFF)
        await self.write(direction.base + DESCRIPTOR_HI, chain.address >> 32)
        await self.write(direction.base + DESCRIPTOR_ADJACENT, 0)
        await self.read(direction.base + STATUS_RC)
        await self.write(direction.base + INTERRUPT_ENABLE, 0xFFFF_FFFF)
        await self.write(ENABLE_W1S, direction.irq_bit)
        await self.write(direction.base + PERF_CONTROL, 0x5)
        await self.write(direction.base + CONTROL, START)
        self._run += 1
        self.found.clear()
        self._woken.clear()

    async def tear_down(self, direction: Direction) -> None:
        """What the driver does after a transfer and after a signal alike."""
        await self.write(ENABLE_W1C, direction.irq_bit)
        await self.write(direction.base + INTERRUPT_ENABLE, 0)
        await self.write(HALT_W1S, direction.halt_bit)
        await self.write(HALT_W1C, direction.halt_bit)
        await self.write(direction.base + CONTROL, 0)
        for counter in PERF_COUNTERS:
            await self.read(direction.base + counter)

    async def transfer(self, direction: Direction, transfer: Transfer, us: float = 200) -> None:
        """One transfer with the one descriptor that the driver reuses."""
        await self.begin(direction, self.tb.chain([transfer]))
        await with_timeout(self._woken.wait(), us, "us")
        await self.tear_down(direction)
        assert self.found == [(direction, 0x6)], f"handler found {self.found}"


@bench(us=2500)
async def host_to_host_copies(tb: TB):
    """The copy ioctl: H2C then C2H through card address 0, over and over, any size and offset."""
    driver = Driver(tb)
    for size in (1, 64, 4096, 4100, *(tb.rng.randint(1, 3000) for _ in range(6))):
        source = tb.buffer(size, offset=tb.rng.randrange(4096))
        target = tb.buffer(size, offset=tb.rng.randrange(4096), high=True)
        await driver.transfer(H2C, Transfer(source.address, 0, size))
        await driver.transfer(C2H, Transfer(0, target.address, size))
        target.expect(source.data)
    assert tb.host.intx.asserts == 20
    await Timer(2, "us")
    assert not tb.host.intx.level


@bench(us=2500, lanes=4)
async def signals(tb: TB):
    """A sleeper is killed at any time of a transfer; the next transfer is whole all the same."""
    driver = Driver(tb)
    tb.host.latency_ns = (0, 500)
    for _ in range(12):
        victim = tb.buffer(8192, offset=1)
        direction = tb.rng.choice((H2C, C2H))
        addresses = (victim.address, 0) if direction is H2C else (0, victim.address)
        await driver.begin(direction, tb.chain([Transfer(*addresses, 8192)]))
        await Timer(tb.rng.randint(1, 4000), "ns")
        await driver.tear_down(direction)
        size = tb.rng.randint(1, 1000)
        source, target = tb.buffer(size), tb.buffer(size)
        await driver.transfer(H2C, Transfer(source.address, 3, size))
        await driver.transfer(C2H, Transfer(3, target.address, size))
        target.expect(source.data)


@bench(us=300)
async def remove_and_probe(tb: TB):
    """Removing the driver clears Bus Master Enable; after the next probe all works."""
    driver = Driver(tb)
    source, target = tb.buffer(100), tb.buffer(100)
    await driver.transfer(H2C, Transfer(source.address, 0, 100))
    await tb.pci.clear_master()
    await tb.pci.set_master()
    # The handler may run at any time, before any transfer.
    assert [await driver.read(d.base + STATUS_RC) for d in (H2C, C2H)] == [0, 0]
    await driver.transfer(C2H, Transfer(0, target.address, 100))
    target.expect(source.data)
