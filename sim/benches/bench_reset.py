# SPDX-License-Identifier: BSD-2-Clause
"""Hot reset and link loss: whatever the board was at, afterwards it is as after power-up."""

from __future__ import annotations

from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import Status

from .bench_registers import expect_reset_values
from .bench_stream import copy, expect_copy
from .channel import CONTROL_START
from .host import Fault
from .memory import Transfer
from .tb import TB, bench

CHANNELS = (1,)
PCIE = ()


async def expect_new(tb: TB) -> None:
    """Every register is reset, no request comes, INTA is quiet, and transfers of all kinds work."""
    tb.host.requests.clear()
    await expect_reset_values(tb)
    assert not tb.host.requests, "a request of before the reset"
    assert not tb.host.intx.level
    size = tb.rng.randint(1, 3000)
    source, target = tb.buffer(size, offset=3), tb.buffer(size, offset=2, high=True)
    await tb.h2c.run(tb.chain([Transfer(source.address, 1, size)]))
    await tb.c2h.run(tb.chain([Transfer(1, target.address, size)]))
    target.expect(source.data)
    await expect_copy(tb, [900, 1], [1, 900])


@bench(us=2500, lanes=4, long=True)
async def traffic(tb: TB):
    """In the middle of transfers in both directions; reads under way are never answered."""
    tb.host.latency_ns = (500, 1500)
    for _ in range(5):
        source, target = tb.buffer(30_000), tb.buffer(30_000)
        chains = [
            (tb.h2c, tb.chain([Transfer(source.address, 0, 30_000)])),
            (tb.c2h, tb.chain([Transfer(0, target.address, 30_000)])),
        ]
        for channel, chain in chains:
            await channel.start(chain)
        await Timer(tb.rng.randint(1, 8000), "ns")
        await tb.hot_reset()
        await expect_new(tb)


@bench(us=2500, lanes=4, long=True)
async def copies(tb: TB):
    """In the middle of a copy through the user stream; nothing of it stays in the pair."""
    for _ in range(5):
        _, _, into, out = copy(tb, [20_000], [20_000])
        await tb.c2h.start(out)
        await tb.h2c.start(into)
        await Timer(tb.rng.randint(1, 8000), "ns")
        await tb.hot_reset()
        await expect_new(tb)


@bench(us=1000, lanes=4, long=True)
async def quarantine(tb: TB):
    """Tags that wait for lost completions are free again: with the link those were lost, too."""
    source = tb.buffer(4096)
    tb.host.inject(range(source.address, source.address + 4096), Fault.WITHHELD)
    chain = tb.chain([Transfer(source.address, 0, 4096)])
    await tb.h2c.start(chain)
    await tb.h2c.expect_failed(Status.READ_UNSUPPORTED, 0, 300)
    assert await tb.read(regs.EXTENSION, "quarantined") != 0
    assert tb.device.take_timeouts() != 0
    tb.host.clear_faults()
    await tb.hot_reset()
    assert await tb.read(regs.EXTENSION, "quarantined") == 0
    await expect_new(tb)


@bench(us=1000, lanes=4)
async def pending_interrupt(tb: TB):
    """With an interrupt asserted, or one that waits for a masked vector: no message afterwards."""
    for msix in (False, True):
        if msix:
            await tb.enable_msix(regs.MSIX_ENTRIES)
            mask = regs.MSIX_TABLE_OFFSET + 12
            await tb.bar_write(regs.BAR_DMA[0], mask, (1).to_bytes(4, "little"))
        for block, name, value in (
            (regs.CHANNEL, "interrupt_enable", regs.CHANNEL["interrupt_enable"].writable),
            (regs.IRQ, "channel_enable", 0x3),
        ):
            await tb.write(block, name, value)
        source = tb.buffer(64)
        await tb.h2c.start(tb.chain([Transfer(source.address, 0, 64)]), CONTROL_START)
        await tb.h2c.idle(20)
        await Timer(2, "us")
        assert tb.host.intx.level is not msix
        messages = len(tb.messages)
        await tb.hot_reset()
        await expect_new(tb)
        assert len(tb.messages) == messages
