# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors that the host pushes, in TLPs of any size, in front of a list in memory or alone."""

from __future__ import annotations

from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import ErrorKind, Status

from .bench_errors import Failure, expect_capture, expect_working, prepare
from .channel import CONTROL_START, CONTROL_STOP, FINISHED, PUSHES, Channel
from .memory import Chain, Transfer, lay_out
from .tb import TB, bench

CHANNELS = (1,)
PCIE = ()


async def push(tb: TB, channel: Channel, transfers, blocks, write: int) -> Chain:
    """Lay a list out and push its first block, which is not in memory then."""
    pages = [tb.buffer(4096, high=True, name="descriptors") for _ in blocks]
    chain = lay_out(transfers, pages, blocks, tb.rng)
    pages[0].data = bytes(4096)
    await channel.push(chain.head, write)
    return chain


@bench(us=3000, lanes=4, long=True)
async def pushed_and_fetched(tb: TB):
    """Lists whose first 1 to 4 descriptors are pushed, to the card and back."""
    for turn in range(12):
        first = 1 + turn % regs.PUSH_DESCRIPTORS
        blocks = [first, *(tb.rng.randint(1, 20) for _ in range(tb.rng.randrange(3)))]
        count = sum(blocks)
        sources = [tb.buffer(size) for size in (tb.rng.randint(1, 300) for _ in range(count))]
        targets = [tb.buffer(source.size, offset=turn) for source in sources]
        cards = [400 * n + tb.rng.randrange(8) for n in range(count)]
        ends = list(zip(sources, cards, targets, strict=True))
        for channel, transfers in (
            (tb.h2c, [Transfer(source.address, card, source.size) for source, card, _ in ends]),
            (tb.c2h, [Transfer(card, target.address, target.size) for _, card, target in ends]),
        ):
            write = tb.rng.choice(PUSHES)
            await push(tb, channel, transfers, blocks, write)
            await channel.write("control", CONTROL_START)
            await channel.expect_end(FINISHED, count, 200)
            assert await channel.read("status_rc") == FINISHED
            await channel.write("control", CONTROL_STOP)
        for source, target in zip(sources, targets, strict=True):
            target.expect(source.data)


@bench(us=1500, lanes=4)
async def spoilt_pushes(tb: TB):
    """Incomplete, out of order, or with a wrong magic: nothing moves, and the error says which."""
    await prepare(tb)
    size = regs.DESCRIPTOR.itemsize
    good = bytes.fromhex("13004bad") + bytes(size - 4)
    bad = bytes.fromhex("13004aad") + bytes(size - 4)
    for channel in (tb.h2c, tb.c2h):
        for parts, number in (
            ([(0, good + good[:-4])], 1),
            ([(0, good), (2 * size, good)], 7),
            ([(0, good), (4, good[4:])], 7),
            ([(4, good[4:])], 7),
            ([(0, bad)], 0),
        ):
            await tb.write(regs.EXTENSION, "error_clear", 0)
            for at, content in parts:
                await channel.push(content, at=at)
            await channel.write("control", CONTROL_START)
            await channel.expect_failed(Status.MAGIC_STOPPED, 0)
            failure = Failure(Status.MAGIC_STOPPED, ErrorKind.MAGIC, 0, True, number * size | 1)
            await expect_capture(tb, channel, failure)
            assert await channel.read("status_rc") & Status.MAGIC_STOPPED
            await channel.write("control", CONTROL_STOP)
            tb.messages.clear()
            await expect_working(tb)


@bench(us=2000, lanes=4, long=True)
async def busy_channel(tb: TB):
    """Pushes to a channel with a run do not disturb it, and the next run does not believe them."""
    size, card = regs.DESCRIPTOR.itemsize, b""
    for channel in (tb.h2c, tb.c2h):
        for _ in range(4):
            host = tb.buffer(8000)
            ends = (host.address, 0) if channel is tb.h2c else (0, host.address)
            transfers = [Transfer(ends[0] + at, ends[1] + at, 500) for at in range(0, 8000, 500)]
            chain = await push(tb, channel, transfers, [3, 13], tb.rng.choice(PUSHES))
            before = host.data
            await channel.write("control", CONTROL_START)
            junk = tb.rng.randbytes(4 * tb.rng.randint(1, regs.PUSH_STRIDE // 4))
            await channel.push(junk, len(junk))
            assert await channel.read("status") & Status.BUSY, "it was over before"
            await channel.expect_end(FINISHED, chain.count, 200)
            if channel is tb.h2c:
                card = before
            else:
                host.expect(card)
            await channel.write("control", CONTROL_STOP)

            await tb.write(regs.EXTENSION, "error_clear", 0)
            await channel.write("control", CONTROL_START)
            await channel.expect_failed(Status.MAGIC_STOPPED, 0)
            failure = Failure(Status.MAGIC_STOPPED, ErrorKind.MAGIC, 0, True, 7 * size | 1)
            await expect_capture(tb, channel, failure)
            await channel.write("control", CONTROL_STOP)
            # An address in memory, or the first dword of the window, takes its place.
            host = tb.buffer(64)
            ends = (host.address, 0) if channel is tb.h2c else (0, host.address)
            await channel.push(junk[:4], at=size)
            if tb.rng.random() < 0.5:
                await channel.run(tb.chain([Transfer(*ends, 64)]))
            else:
                await push(tb, channel, [Transfer(*ends, 64)], [1], 4)
                await channel.write("control", CONTROL_START)
                await channel.expect_end(FINISHED, 1)
                await channel.write("control", CONTROL_STOP)
            if channel is tb.h2c:
                card = host.data + card[64:]
            else:
                host.expect(card[:64])


@bench(us=3000, lanes=4, long=True)
async def ended_early(tb: TB):
    """An abort or a reset at any moment; what was pushed before is not used after it."""
    for turn in range(24):
        channel, other = (tb.h2c, tb.c2h)[:: 1 if turn % 2 else -1]
        ends = [tb.buffer(600, offset=turn) for _ in range(6)]
        cards = range(0, 6000, 1000)
        transfers = [
            Transfer(card, host.address, 600) if channel.c2h else Transfer(host.address, card, 600)
            for host, card in zip(ends, cards, strict=True)
        ]
        await push(tb, channel, transfers, [4, 2], tb.rng.choice(PUSHES))
        if turn % 4 < 2:
            await channel.write("control", CONTROL_START)
            await Timer(tb.rng.randint(1, 6000), "ns")
            await channel.write("control", CONTROL_STOP)
            await channel.idle(200)
            await channel.read("status_rc")
        else:
            started = tb.rng.random() < 0.5
            await channel.write("control", CONTROL_START if started else CONTROL_STOP)
            await Timer(tb.rng.randint(1, 4000), "ns")
            await tb.write(regs.EXTENSION, "soft_reset", 1)
            await channel.idle(200)
            # Neither an address is left nor what was pushed: it fetches from 0, where nothing is.
            await channel.write("control", CONTROL_START)
            await channel.expect_failed(Status.DESC_UNSUPPORTED, 0)
            await channel.write("control", CONTROL_STOP)
        # Now a list in memory, and one that is pushed, without a word about the one before.
        source, target = tb.buffer(300, offset=turn), tb.buffer(300, offset=3)
        await tb.h2c.run(tb.chain([Transfer(source.address, 7, 300)]))
        await push(tb, tb.c2h, [Transfer(7, target.address, 300)], [1], 4)
        await tb.c2h.write("control", CONTROL_START)
        await tb.c2h.expect_end(FINISHED, 1)
        assert await tb.c2h.read("status_rc") == FINISHED
        await tb.c2h.write("control", CONTROL_STOP)
        target.expect(source.data)
        assert not Status(await other.read("status")) & Status.errors()
