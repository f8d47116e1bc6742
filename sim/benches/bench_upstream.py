# SPDX-License-Identifier: BSD-2-Clause
"""Linux' dmaengine driver (drivers/dma/xilinx/xdma.c), replayed register access by access.

Offsets and values are those of the driver, on purpose not taken from the register map. Its parent
device gives it MSI-X vectors: one per channel, H2C first, and sixteen for the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cocotb.triggers import Timer

from peerdma import regs

from .memory import Buffer, Transfer
from .replay import play
from .tb import TB, bench

CHANNELS = (1, 2)
PCIE = ()

BLOCK, PIECE = 32, 4096
LINK, LAST, CYCLIC, PLAIN = 0xAD4B_0000, 0xAD4B_0003, 0xAD4B_0002, 0xAD4B_0000
ERRORS, GOOD = 0x00FF_FE18, 0x6
USERS = 16
#: How long an interrupt that must not come is waited for.
SILENCE_US = 3
#: How long the driver waits for one after terminating; it is a second there.
LAST_US = 10

CHANNEL = """
    W +000c 02000000
    W +0090 00080256
"""
ENABLE = "W 2014 ffffffff"
START = """
    W +000c 00000001
    W +4080 {lo}
    W +4084 {hi}
    W +4088 {adjacent}
    W +0004 00fffe1f
"""
TERMINATE = "W +000c 00000001"
REMOVE = "W 2018 ffffffff"


@dataclass
class DmaChannel:
    """A dmaengine channel; `vector` is its place among all channels."""

    tb: TB
    vector: int
    offset: int
    handled: int = 0

    @property
    def c2h(self) -> bool:
        """Whether the channel moves data from the card to the host."""
        return bool(self.offset & 0x1000)

    async def play(self, script: str, **values: int) -> list[int]:
        """Play a script for this channel."""
        return await play(self.tb, script, channel=self.offset, **values)

    async def interrupts(self, us: float) -> bool:
        """Wait for the channel's next message; whether it comes in time."""
        for _ in range(int(us * 20)):
            if self.tb.messages.count(self.vector) > self.handled:
                self.handled += 1
                return True
            await Timer(50, "ns")
        return False

    async def interrupted(self, us: float = 300) -> None:
        """Wait for the channel's next message, which has to come."""
        assert await self.interrupts(us), f"no message for channel {self.vector} within {us} us"

    async def start(self, address: int, adjacent: int) -> None:
        """Start at a block."""
        lo, hi = address & 0xFFFF_FFFF, address >> 32
        await self.play(START, lo=lo, hi=hi, adjacent=adjacent)

    async def handle(self) -> int:
        """The interrupt handler, with something queued; returns the completed count."""
        await self.interrupted()
        status, count = await self.play("R +0044\nR +0048")
        assert status & GOOD and not status & ERRORS, f"status {status:#010x} at an interrupt"
        return count

    async def terminate(self) -> None:
        """Clear Run; messages that have come before have been handled."""
        await self.play(TERMINATE)
        self.handled = self.tb.messages.count(self.vector)

    async def synchronize(self) -> None:
        """After terminating: unless idle, wait for an interrupt, any, or a while; no longer.

        The memory is the client's then, whatever the channel says.
        """
        (status,) = await self.play("R +0040")
        if status & 1:
            await self.interrupts(LAST_US)


async def probe(tb: TB) -> list[DmaChannel]:
    """Set up all channels; nothing interrupts yet."""
    found = [
        0x1000 * c2h + 0x100 * number
        for c2h in range(2)
        for number in range(4)
        if (await play(tb, "R +0000\nR +0000", channel=0x1000 * c2h + 0x100 * number))[1] >> 16
        == 0x1FC0 + c2h
    ]
    channels = [DmaChannel(tb, vector, offset) for vector, offset in enumerate(found)]
    for channel in channels:
        await channel.play(CHANNEL)
    await tb.enable_msix(len(channels) + USERS)
    numbers = list(range(len(channels) + USERS))
    for offset, mine in ((0x20A0, numbers[: len(channels)]), (0x2080, numbers[len(channels) :])):
        for n in range(0, len(mine), 4):
            packed = sum(number << 8 * i for i, number in enumerate(mine[n : n + 4]))
            await play(tb, f"W {offset + n:x} {packed:08x}")
    await play(tb, ENABLE)
    assert len(channels) == 2 * tb.channels_each_way
    return channels


def scatter(tb: TB, transfers: Sequence[Transfer]) -> list[tuple[int, int]]:
    """Blocks of 32 linked descriptors, as many as the driver's pool gives; returns where to start.

    What the driver leaves uninitialised is random. Each start is a block and its adjacent count;
    the next one is due when the one before has completed its 4096 descriptors.
    """
    blocks = [transfers[n : n + BLOCK] for n in range(0, len(transfers), BLOCK)]
    size = BLOCK * regs.DESCRIPTOR.itemsize
    pool = tb.buffer(size * len(blocks), high=True, name="blocks")
    table = np.frombuffer(tb.rng.randbytes(pool.size), regs.DESCRIPTOR).copy()
    starts = []
    for number, block in enumerate(blocks):
        address = pool.address + number * size
        if number % (PIECE // BLOCK) == 0:
            starts.append((address, len(block) - 1))
        for n, transfer in enumerate(block):
            entry = table[number * BLOCK + n]
            entry["control"] = PLAIN
            entry["length"] = transfer.length
            entry["source"], entry["destination"] = transfer.source, transfer.destination
        end = table[number * BLOCK + len(block) - 1]
        if number == len(blocks) - 1 or number % (PIECE // BLOCK) == PIECE // BLOCK - 1:
            end["control"] = LAST
        else:
            end["control"] = LINK | (len(blocks[number + 1]) - 1) << 8
            end["next"] = address + size
    pool.data = table.tobytes()
    return starts


async def run(tb: TB, channel: DmaChannel, transfers: Sequence[Transfer]) -> None:
    """One scatter-gather transaction from issue to completion."""
    done = 0
    for address, adjacent in scatter(tb, transfers):
        await channel.start(address, adjacent)
        done += await channel.handle()
    assert done == len(transfers)


def _split(buffer: Buffer, count: int, *, c2h: bool) -> list[Transfer]:
    size = buffer.size // count
    pieces = [(buffer.address + n * size, n * size, size) for n in range(count)]
    return [
        Transfer(card, host, size) if c2h else Transfer(host, card, size)
        for host, card, size in pieces
    ]


@bench(us=3000, lanes=4)
async def scatter_gather(tb: TB):
    """Lists of one block, of several, and with an odd one at the end, there and back."""
    channels = await probe(tb)
    h2c, c2h = channels[tb.channels_each_way - 1], channels[-1]
    for count in (1, 2, 31, 32, 33, 64, tb.rng.randint(65, 200)):
        source, target = tb.buffer(24 * count, offset=5), tb.buffer(24 * count, offset=11)
        await run(tb, h2c, _split(source, count, c2h=False))
        await run(tb, c2h, _split(target, count, c2h=True))
        target.expect(source.data)
    await Timer(SILENCE_US, "us")
    assert len(tb.messages) == 14


@bench(us=6000, lanes=4, long=True)
async def long_list(tb: TB):
    """More than 4096 descriptors: a stop at each 4096, and the count of each piece is exact."""
    channels = await probe(tb)
    h2c = channels[tb.channels_each_way - 1]
    count = PIECE + 40
    source = tb.buffer(count)
    starts = scatter(tb, _split(source, count, c2h=False))
    assert len(starts) == 2
    counts = []
    for address, adjacent in starts:
        await h2c.start(address, adjacent)
        counts.append(await h2c.handle())
    assert counts == [PIECE, 40]
    target = tb.buffer(count)
    await run(tb, channels[-1], [Transfer(0, target.address, count)])
    target.expect(source.data)


@bench(us=2000, lanes=4)
async def status_is_left_by_an_idle_handler(tb: TB):
    """A handler with nothing queued leaves status alone; the next run interrupts all the same."""
    channels = await probe(tb)
    h2c = channels[tb.channels_each_way - 1]
    source = tb.buffer(64)
    for _ in range(5):
        await h2c.start(*scatter(tb, [Transfer(source.address, 0, 64)])[0])
        await h2c.interrupted()
    assert await h2c.play("R +0044\nR +0048") == [GOOD, 1]


def _ring(tb: TB, transfers: Sequence[Transfer]) -> int:
    """A cyclic list; returns where it starts."""
    count = len(transfers)
    pool = tb.buffer(BLOCK * regs.DESCRIPTOR.itemsize, high=True, name="ring")
    table = np.frombuffer(tb.rng.randbytes(pool.size), regs.DESCRIPTOR).copy()
    for n, transfer in enumerate(transfers):
        entry = table[n]
        entry["control"], entry["length"] = CYCLIC, transfer.length
        entry["source"], entry["destination"] = transfer.source, transfer.destination
        entry["next"] = pool.address + (n + 1) % count * table.itemsize
    pool.data = table.tobytes()
    return pool.address


@bench(us=6000, lanes=4, long=True)
async def cyclic(tb: TB):
    """Rings of 1 to 32 periods: an interrupt per period, or per few; terminated at any time."""
    channels = await probe(tb)
    h2c, c2h = channels[tb.channels_each_way - 1], channels[-1]
    source = tb.buffer(2048)
    await run(tb, h2c, [Transfer(source.address, 0, 2048)])
    for periods in (1, 2, tb.rng.randint(3, 31), 32):
        target = tb.buffer(periods * 64)
        address = _ring(tb, _split(target, periods, c2h=True))
        await c2h.start(address, periods - 1)
        last = 0
        while last < 2 * periods + 6:
            count = await c2h.handle()
            assert count > last, "an interrupt without a period"
            last = count
        target.expect(source.data[: periods * 64])
        await Timer(tb.rng.randint(1, 100) * tb.device.clock_ns, "ns")
        await c2h.terminate()
        await c2h.synchronize()
        # The memory is given away.
        mine = tb.rng.randbytes(target.size)
        target.data = mine
        await Timer(SILENCE_US, "us")
        target.expect(mine)
        c2h.handled = tb.messages.count(c2h.vector)
        await run(tb, c2h, _split(target, 1, c2h=True))
        target.expect(source.data[: target.size])


@bench(us=3000, lanes=4, long=True)
async def terminate_and_remove(tb: TB):
    """Terminated at any time, removed and probed again over what is left: the next run is good."""
    channels = await probe(tb)
    h2c, c2h = channels[tb.channels_each_way - 1], channels[-1]
    tb.host.latency_ns = (0, 1000)
    for turn in range(12):
        channel = tb.rng.choice((h2c, c2h))
        victim = tb.buffer(4096)
        await channel.start(*scatter(tb, _split(victim, 64, c2h=channel.c2h))[0])
        await Timer(tb.rng.randint(1, 4000), "ns")
        await channel.terminate()
        if turn % 3 == 0:
            await play(tb, REMOVE)
            for again in channels:
                await again.play(CHANNEL)
            await play(tb, ENABLE)
        await channel.synchronize()
        # The channel can be idle while the message of its end is still to come.
        await Timer(SILENCE_US, "us")
        kept = victim.data
        for each in channels:
            each.handled = tb.messages.count(each.vector)
        source, target = tb.buffer(100), tb.buffer(100)
        await run(tb, h2c, _split(source, 4, c2h=False))
        await run(tb, c2h, _split(target, 4, c2h=True))
        target.expect(source.data)
        victim.expect(kept)


@bench(us=500)
async def user_interrupts(tb: TB):
    """Enabled one by one through the driver; each comes at its own vector."""
    channels = await probe(tb)
    for user in tb.rng.sample(range(USERS), 5):
        tb.messages.clear()
        tb.dut.user_irq.value = 1 << user
        await Timer(SILENCE_US, "us")
        assert tb.messages == []
        await play(tb, "W 2008 {bit}", bit=1 << user)
        await tb.wait_messages(1)
        assert tb.messages == [len(channels) + user]
        tb.dut.user_irq.value = 0
        await play(tb, "W 200c {bit}", bit=1 << user)
