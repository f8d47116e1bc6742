# SPDX-License-Identifier: BSD-2-Clause
"""The user stream when something goes wrong: a copy may fail anywhere, the next one is clean."""

from __future__ import annotations

from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import ErrorKind, Status

from .bench_stream import STREAM, copy, expect_copy
from .channel import CONTROL_START, CONTROL_STOP, FINISHED
from .host import Fault
from .memory import Transfer
from .tb import TB, bench

CHANNELS = (1,)
PCIE = ()


async def stop(tb: TB, *, wait: bool = True) -> None:
    """Abort both channels, in any order; `wait` until they are idle."""
    channels = [tb.h2c, tb.c2h]
    tb.rng.shuffle(channels)
    for channel in channels:
        await channel.write("control", CONTROL_STOP)
    for channel in channels if wait else ():
        await channel.idle(100)


@bench(us=2000, lanes=4, long=True)
async def aborts(tb: TB):
    """Stopping a copy at any time, either channel first, leaves nothing for the next one."""
    for _ in range(8):
        _, _, into, out = copy(tb, [20000], [20000])
        channels = [(tb.h2c, into), (tb.c2h, out)]
        tb.rng.shuffle(channels)
        for channel, chain in channels:
            await channel.start(chain)
        await Timer(tb.rng.randint(1, 6000), "ns")
        await stop(tb)
        await expect_copy(tb, [900], [900])


@bench(us=2000, lanes=4)
async def aborts_of_one_side(tb: TB):
    """With only one channel stopped the other goes on, or waits; and a new run of the stopped one
    waits, busy, until the other has ended too."""
    for channel, other in ((tb.h2c, tb.c2h), (tb.c2h, tb.h2c)):
        _, _, into, out = copy(tb, [30000], [30000])
        chains = {tb.h2c: into, tb.c2h: out}
        await tb.c2h.start(out)
        await tb.h2c.start(into)
        await Timer(2, "us")
        await channel.write("control", CONTROL_STOP)
        await channel.idle(100)
        await Timer(5, "us")
        if other is tb.c2h:
            assert await other.read("status") == Status.BUSY
        else:
            # What it reads is dropped: it ends as if nothing had happened.
            await other.expect_end(FINISHED, 1)
            await other.write("control", CONTROL_STOP)
            await other.start(chains[other])
        tb.host.requests.clear()
        await channel.start(chains[channel])
        await Timer(3, "us")
        if other is tb.c2h:
            assert not tb.host.requests, "a run began beside one of a broken copy"
        assert await channel.read("status") == Status.BUSY
        await stop(tb)
        await expect_copy(tb, [700], [300, 400])


@bench(us=2000, lanes=4, long=True)
async def aborts_nobody_waits_for(tb: TB):
    """A copy that is started again right after its abort, with reads under way, is clean."""
    tb.host.latency_ns = (1000, 2000)
    for _ in range(6):
        _, _, into, out = copy(tb, [20000], [20000])
        await tb.c2h.start(out)
        await tb.h2c.start(into)
        await Timer(tb.rng.randint(1, 9000), "ns")
        await stop(tb, wait=False)
        source, target, into, out = copy(tb, [5000], [5000])
        channels = [(tb.h2c, into), (tb.c2h, out)]
        tb.rng.shuffle(channels)
        for channel, chain in channels:
            await channel.start(chain)
        for channel, _ in channels:
            await channel.expect_end(FINISHED, 1, 200)
            await channel.write("control", CONTROL_STOP)
        target.expect(source.data)


@bench(us=1000, lanes=4)
async def failing_source(tb: TB):
    """A read error within a copy: H2C reports it, nothing behind it is written, C2H is stopped."""
    bad = 5000
    for fault in (Fault.UNSUPPORTED_REQUEST, Fault.POISONED, Fault.COMPLETER_ABORT):
        source, target, into, out = copy(tb, [9000], [9000])
        before = target.data
        tb.host.inject(range(source.address + bad, source.address + bad + 1), fault)
        await tb.c2h.start(out)
        await tb.h2c.start(into, CONTROL_START)
        status = await tb.h2c.idle(100)
        assert status & Status.READ_UNSUPPORTED and not status & Status.DESCRIPTOR_COMPLETED
        assert Status(await tb.c2h.read("status")) == Status.BUSY
        await stop(tb)
        tb.host.clear_faults()
        changed = [
            n for n, (old, new) in enumerate(zip(before, target.data, strict=True)) if old != new
        ]
        written = changed[-1] + 1
        assert 0 < written <= bad, f"{written} bytes were written, byte {bad} was bad"
        assert target.data[:written] == source.data[:written]
        kind = regs.EXTENSION["error_info"].field("kind")
        assert kind.get(await tb.read(regs.EXTENSION, "error_info")) != ErrorKind.NONE
        await tb.write(regs.EXTENSION, "error_clear", 0)
        await expect_copy(tb, [3000], [1000, 2000])


@bench(us=4000, lanes=4, long=True)
async def failing_fetches(tb: TB):
    """A descriptor that cannot be read, the first, one in the middle or the last, on either side.

    The other side begins before or behind it, and is stopped or comes to its good end: nothing of
    it is in the next copy.
    """
    for channel, other in ((tb.h2c, tb.c2h), (tb.c2h, tb.h2c)):
        for bad in (0, 2, 4):
            for behind in (False, True):
                _, _, into, out = copy(tb, [120] * 5, [120] * 5)
                chains = {tb.h2c: into, tb.c2h: out}
                at = chains[channel].blocks[0][0] + 32 * bad
                tb.host.inject(range(at, at + 1), Fault.UNSUPPORTED_REQUEST)
                order = [channel, other] if behind else [other, channel]
                for each in order:
                    await each.start(chains[each])
                    await Timer(tb.rng.choice((1, 4000)), "ns")
                assert await channel.idle(100) & Status.DESC_UNSUPPORTED
                if other is tb.h2c:
                    # Nobody takes its bytes any more: it ends well, before the failure is seen.
                    await other.expect_end(FINISHED, 5)
                await stop(tb)
                tb.host.clear_faults()
                await expect_copy(tb, [300, 200], [500])


@bench(us=1000, lanes=4)
async def failing_read_of_card_ram(tb: TB):
    """An error that has nothing to do with the stream costs none of its bytes."""
    source, target = tb.buffer(300, offset=1), tb.buffer(300, offset=2)
    await tb.h2c.run(tb.chain([Transfer(source.address, STREAM, 300)]))
    await tb.h2c.start(tb.chain([Transfer(0x7000_0000, 0, 4096)]))
    assert await tb.h2c.idle(100) & Status.READ_UNSUPPORTED
    await tb.h2c.write("control", CONTROL_STOP)
    await tb.c2h.run(tb.chain([Transfer(STREAM, target.address, 300)]))
    target.expect(source.data)
    await expect_copy(tb, [800], [800])


@bench(us=3000, lanes=4)
async def without_bus_master(tb: TB):
    """A copy that loses Bus Master Enable ends in errors on both sides, or waits to be stopped."""
    for _ in range(3):
        _, _, into, out = copy(tb, [250_000], [250_000])
        await tb.c2h.start(out)
        await tb.h2c.start(into)
        await Timer(tb.rng.randrange(1500, 6500), "ns")
        await tb.pci.clear_master()
        assert await tb.h2c.idle(150) & Status.errors()
        await stop(tb)
        await tb.pci.set_master()
        await expect_copy(tb, [2000], [2000])
    # A read that was on its way out when the bit fell is dropped: its tag waits for completions.
    while await tb.read(regs.EXTENSION, "quarantined"):
        await Timer(20, "us")
    tb.device.take_timeouts()


@bench(us=1500, lanes=4, long=True)
async def soft_resets(tb: TB):
    """A soft reset in the middle of a copy empties the pair, whatever is still to come."""
    tb.host.latency_ns = (500, 1500)
    for _ in range(5):
        _, _, into, out = copy(tb, [20000], [20000])
        await tb.c2h.start(out)
        await tb.h2c.start(into)
        await Timer(tb.rng.randint(1, 8000), "ns")
        await tb.write(regs.EXTENSION, "soft_reset", 1)
        await tb.h2c.idle(20)
        await tb.c2h.idle(20)
        await expect_copy(tb, [900, 1], [900, 1])


@bench(us=500, lanes=4)
async def flushes_on_request(tb: TB):
    """Software can have the bytes dropped that a run left over."""
    left = tb.buffer(999)
    await tb.h2c.run(tb.chain([Transfer(left.address, STREAM, 999)]))
    await tb.write(regs.EXTENSION, "stream_flush", 1)
    await expect_copy(tb, [500], [500])
