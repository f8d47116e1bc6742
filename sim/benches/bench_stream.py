# SPDX-License-Identifier: BSD-2-Clause
"""The user stream: H2C through the pass-through block to C2H, both directions at once."""

from __future__ import annotations

import cocotb

from peerdma import regs

from .host import Split
from .memory import Buffer, Chain, Transfer
from .tb import TB, bench

#: These run on a core with two channels each way, too, on the second pair.
CHANNELS = (1, 2)
PCIE = ("ultrascale_plus-64",)
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


@bench(us=3000, lanes=4, stall=0.3, long=True)
async def disorder(tb: TB):
    """More than the ring holds, with late, split and reordered completions, and stalls."""
    tb.host.split = Split.RANDOM
    tb.host.latency_ns, tb.host.gap_ns = (0, 3000), (0, 100)
    for mps, mrrs, rcb in ((128, 512, 64), (512, 256, 128)):
        await tb.configure(mps=mps, mrrs=mrrs, rcb=rcb)
        await expect_copy(tb, cut(tb, 30000, 5), cut(tb, 30000, 4), 1000)


@bench(us=2000, lanes=4)
async def alignments(tb: TB):
    """Pieces at every alignment of source and target, of one byte to more than a word."""
    for size in (1, 3, 8, 13):
        sources = [tb.buffer(size, offset=place % 8) for place in range(64)]
        targets = [tb.buffer(size, offset=place // 8) for place in range(64)]
        into = tb.chain([Transfer(buffer.address, STREAM, size) for buffer in sources])
        out = tb.chain([Transfer(STREAM, buffer.address, size) for buffer in targets])
        run = cocotb.start_soon(tb.c2h.run(out, 300))
        await tb.h2c.run(into, 300)
        await run
        for source, target in zip(sources, targets, strict=True):
            target.expect(source.data)


@bench(us=500)
async def cut_through(tb: TB):
    """The first bytes are at their target while most are not even read."""
    size = 32768
    source, target, into, out = copy(tb, [size], [size])
    run = cocotb.start_soon(tb.c2h.run(out, 300))
    await tb.h2c.run(into, 300)
    await run
    target.expect(source.data)
    reads = range(source.address - 3, source.address + size)
    kinds = ["read" if tlp.address in reads else "write" for tlp in tb.host.requests]
    first = kinds.index("write", kinds.index("read"))
    # No more is read before than the ring holds: 16 reads, and one that is in two parts.
    assert kinds[:first].count("read") <= 17 < 64 <= kinds.count("read")


@bench(us=1000, lanes=4)
async def bytes_that_stay(tb: TB):
    """Runs that end by Stop leave what they did not take to the next run, in order."""
    source = tb.buffer(3000, offset=5)
    for start, stop in ((0, 1001), (1001, 1002), (1002, 3000)):
        piece = Transfer(source.address + start, STREAM, stop - start)
        await tb.h2c.run(tb.chain([piece]))
    at = 0
    for size in (1, 999, 1500, 500):
        target = tb.buffer(size, offset=tb.rng.randrange(8))
        await tb.c2h.run(tb.chain([Transfer(STREAM, target.address, size)]))
        target.expect(source.data[at : at + size])
        at += size


@bench(us=3000, lanes=4, stall=0.1)
async def beside_card_ram(tb: TB):
    """Lists that use stream and card RAM in turn, all of card RAM included, mix nothing up."""
    whole = regs.CARD_RAM_SIZE
    await expect_copy(tb, [77], [77])
    filler = tb.buffer(whole, offset=3)
    await tb.h2c.run(tb.chain([Transfer(filler.address, 0, whole)]), 400)
    await expect_copy(tb, cut(tb, 3000, 3), cut(tb, 3000, 3))
    streamed = [tb.buffer(tb.rng.randint(1, 700), offset=tb.rng.randrange(8)) for _ in range(6)]
    # These end where the places of card RAM end.
    stored = [tb.buffer(tb.rng.randint(1, 700), offset=tb.rng.randrange(8)) for _ in range(6)]
    into, out = [], []
    for to_stream, to_ram in zip(streamed, stored, strict=True):
        into.append(Transfer(to_stream.address, STREAM, to_stream.size))
        into.append(Transfer(to_ram.address, whole - to_ram.size, to_ram.size))
    targets = [tb.buffer(buffer.size) for buffer in streamed]
    out = [Transfer(STREAM, target.address, target.size) for target in targets]
    head = tb.buffer(500)
    out.insert(3, Transfer(100, head.address, 500))
    run = cocotb.start_soon(tb.c2h.run(tb.chain(out), 300))
    await tb.h2c.run(tb.chain(into), 300)
    await run
    for source, target in zip(streamed, targets, strict=True):
        target.expect(source.data)
    head.expect(filler.data[100:600])
    check = tb.buffer(stored[-1].size)
    await tb.c2h.run(tb.chain([Transfer(whole - check.size, check.address, check.size)]))
    check.expect(stored[-1].data)
