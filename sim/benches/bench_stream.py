# SPDX-License-Identifier: BSD-2-Clause
"""The user stream: H2C through the pass-through block to C2H, both directions at once."""

from __future__ import annotations

import cocotb
from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import ErrorKind, Status

from .channel import CONTROL_START, CONTROL_STOP, FINISHED
from .host import Fault, Split
from .memory import Buffer, Chain, Transfer
from .tb import TB, bench

#: These run on a core with two channels each way, too, on the second pair.
CHANNELS = (1, 2)
STREAM = regs.STREAM_WINDOW


def cut(tb: TB, total: int, pieces: int) -> list[int]:
    """`total` bytes in `pieces` parts of random size, none empty."""
    marks = sorted(tb.rng.sample(range(1, total), pieces - 1))
    return [stop - start for start, stop in zip([0, *marks], [*marks, total], strict=True)]


def copy(tb: TB, sizes_in: list[int], sizes_out: list[int]) -> tuple[Buffer, Buffer, Chain, Chain]:
    """Source, target, and the two lists that copy one to the other through the stream."""
    total = sum(sizes_in)
    assert total == sum(sizes_out)
    source = tb.buffer(total, offset=tb.rng.randrange(4096), name="source")
    target = tb.buffer(total, offset=tb.rng.randrange(4096), high=True, name="target")
    lists = []
    for buffer, sizes, inward in ((source, sizes_in, True), (target, sizes_out, False)):
        at, transfers = buffer.address, []
        for size in sizes:
            # Any address of the window is the stream; what is below bit 63 does not matter.
            card = STREAM | tb.rng.getrandbits(63)
            transfers.append(Transfer(at, card, size) if inward else Transfer(card, at, size))
            at += size
        lists.append(tb.chain(transfers))
    return source, target, *lists


async def expect_copy(tb: TB, sizes_in: list[int], sizes_out: list[int], us: float = 300) -> None:
    """Copy through the stream, with either channel started first, and compare."""
    source, target, into, out = copy(tb, sizes_in, sizes_out)
    runs = [tb.h2c.run(into, us), tb.c2h.run(out, us)]
    tb.rng.shuffle(runs)
    for run in [cocotb.start_soon(run) for run in runs]:
        await run
    target.expect(source.data)


@bench(us=1500, lanes=4)
async def boundaries(tb: TB):
    """Descriptors of one side need not match those of the other, down to single bytes."""
    for total, pieces_in, pieces_out in ((1, 1, 1), (64, 1, 64), (64, 64, 1), (20000, 3, 7)):
        await expect_copy(tb, cut(tb, total, pieces_in), cut(tb, total, pieces_out))


@bench(us=3000, lanes=4, stall=0.3)
async def disorder(tb: TB):
    """More than the rings hold, with late, split and reordered completions, and stalls."""
    tb.host.split = Split.RANDOM
    tb.host.latency_ns, tb.host.gap_ns = (0, 3000), (0, 100)
    for mps, mrrs, rcb in ((128, 512, 64), (512, 256, 128)):
        await tb.configure(mps=mps, mrrs=mrrs, rcb=rcb)
        await expect_copy(tb, cut(tb, 30000, 5), cut(tb, 30000, 4), 1000)


@bench(us=2000, lanes=4)
async def aborts(tb: TB):
    """Stopping a copy at any time, either channel first, leaves nothing for the next one."""
    for _ in range(6):
        _, _, into, out = copy(tb, [20000], [20000])
        channels = [(tb.h2c, into), (tb.c2h, out)]
        tb.rng.shuffle(channels)
        for channel, chain in channels:
            await channel.start(chain)
        await Timer(tb.rng.randrange(6000), "ns")
        tb.rng.shuffle(channels)
        for channel, _ in channels:
            await channel.write("control", CONTROL_STOP)
        for channel, _ in channels:
            await channel.idle(100)
        await expect_copy(tb, [900], [900])


@bench(us=1000, lanes=4)
async def failing_source(tb: TB):
    """A read error within a copy: H2C reports it, C2H is stopped, the next copy is clean."""
    for fault in (Fault.UNSUPPORTED_REQUEST, Fault.POISONED):
        source, _, into, out = copy(tb, [9000], [9000])
        tb.host.inject(range(source.address + 5000, source.address + 5001), fault)
        await tb.c2h.start(out)
        await tb.h2c.start(into, CONTROL_START)
        status = await tb.h2c.idle(100)
        assert status & Status.READ_UNSUPPORTED and not status & FINISHED
        assert Status(await tb.c2h.read("status")) == Status.BUSY
        for channel in (tb.h2c, tb.c2h):
            await channel.write("control", CONTROL_STOP)
            await channel.idle(100)
        tb.host.clear_faults()
        kind = regs.EXTENSION["error_info"].field("kind")
        assert kind.get(await tb.read(regs.EXTENSION, "error_info")) != ErrorKind.NONE
        await tb.write(regs.EXTENSION, "error_clear", 0)
        await expect_copy(tb, [3000], [1000, 2000])
