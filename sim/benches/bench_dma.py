# SPDX-License-Identifier: BSD-2-Clause
"""Data movement: host memory to card RAM and back, over sizes, alignments, limits and chains.

Each bench fills host memory with random bytes, moves them to the card (H2C), back to other
addresses (C2H), and compares; guard bytes around every buffer must not change.
"""

from __future__ import annotations

import cocotb
from cocotb.triggers import Timer

from .channel import CONTROL_STOP
from .host import Split
from .memory import Transfer
from .pauses import PAUSES
from .tb import TB, bench

#: These run on a core with two channels each way, too, on the second pair.
CHANNELS = (1, 2)
PCIE = ()
#: (max payload, max read request, read completion boundary) in bytes
LIMITS = [
    (mps, mrrs, rcb) for mps in (128, 256, 512) for mrrs in (128, 512, 4096) for rcb in (64, 128)
]


async def there_and_back(
    tb: TB, pieces: list[tuple[int, int, int, int]], *, high: bool = False, blocks=None, us=200
) -> None:
    """Copy pieces to the card and back: (bytes, source offset, card address, target offset)."""
    sources = [tb.buffer(size, offset=offset, high=high) for size, offset, _, _ in pieces]
    targets = [tb.buffer(size, offset=offset, high=high) for size, _, _, offset in pieces]
    to_card = [
        Transfer(source.address, card, size)
        for source, (size, _, card, _) in zip(sources, pieces, strict=True)
    ]
    to_host = [
        Transfer(card, target.address, size)
        for target, (size, _, card, _) in zip(targets, pieces, strict=True)
    ]
    await tb.h2c.run(tb.chain(to_card, blocks=blocks, high=high), us)
    await tb.c2h.run(tb.chain(to_host, blocks=blocks, high=high), us)
    for source, target in zip(sources, targets, strict=True):
        target.expect(source.data)


def random_pieces(tb: TB, count: int, most: int) -> list[tuple[int, int, int, int]]:
    """Pieces of 1 to `most` bytes at random offsets, side by side in card RAM."""
    pieces, card = [], tb.rng.randrange(64)
    for _ in range(count):
        size = tb.rng.randint(1, most)
        pieces.append((size, tb.rng.randrange(4096), card, tb.rng.randrange(4096)))
        card += size + tb.rng.randrange(9)
    return pieces


@bench(us=400)
async def one_descriptor(tb: TB):
    """The simplest transfers: one aligned descriptor each way, small and large."""
    for size in (4, 64, 4096):
        await there_and_back(tb, [(size, 0, 0, 0)])


@bench(us=2000, lanes=4, long=True)
async def alignments(tb: TB):
    """Every host and card address modulo 8, lengths around the word and the request size."""
    for source in range(8):
        pieces, card = [], 0
        for phase in range(8):
            for size in (1, 2, 3, 4, 5, 7, 8, 9, 11, 64 + phase):
                card += -(card - phase) % 8
                pieces.append((size, source, card, (source + 3 * phase) % 8))
                card += size
        await there_and_back(tb, pieces)


@bench(us=3000, lanes=4, long=True)
async def limits(tb: TB):
    """Every combination of MPS, MRRS and RCB, with each way to split completions."""
    for number, (mps, mrrs, rcb) in enumerate(LIMITS):
        await tb.configure(mps=mps, mrrs=mrrs, rcb=rcb)
        tb.host.split = list(Split)[number % len(Split)]
        await there_and_back(tb, random_pieces(tb, 4, 2500), high=bool(number % 2))


@bench(us=1500, lanes=4, long=True)
async def page_crossings(tb: TB):
    """Around 4 KiB boundaries, below and above 4 GiB, and all of card RAM at once."""
    await tb.configure(mps=512, mrrs=4096)
    for high in (False, True):
        await there_and_back(
            tb,
            [
                (2, 4095, 1, 4095),
                (600, 4096 - 300, 1000, 4096 - 7),
                (4096, 4093, 2001, 1),
                (9000, 4088, 8000, 4092),
            ],
            high=high,
        )
    await there_and_back(tb, [(65536, 8, 0, 16)], us=500)


@bench(us=2000, lanes=4)
async def chains(tb: TB):
    """Adjacent blocks, linked blocks and single descriptors; descriptors that move nothing."""
    for blocks in ([1] * 12, [2, 1, 3], [64], [17, 1, 32, 5], [64, 64, 9]):
        pieces = random_pieces(tb, sum(blocks), 100)
        pieces[0] = (0, *pieces[0][1:])
        await there_and_back(tb, pieces, blocks=blocks, high=len(blocks) % 2 == 0)


@bench(us=3000, lanes=4, stall=0.3, long=True)
async def disorder(tb: TB):
    """Late, split and reordered completions while both directions of the block stall."""
    await in_disorder(tb)


async def in_disorder(tb: TB) -> None:
    """Pieces there and back, with completions late, split and in any order."""
    tb.host.split = Split.RANDOM
    tb.host.latency_ns, tb.host.gap_ns = (0, 3000), (0, 200)
    for mps, mrrs, rcb in ((128, 128, 64), (256, 512, 128), (512, 256, 64)):
        await tb.configure(mps=mps, mrrs=mrrs, rcb=rcb)
        await there_and_back(tb, random_pieces(tb, 6, 3000), us=400)


@bench(us=3000, lanes=4, series7=True)
async def pauses(tb: TB):
    """All that the PCIe block may do that is hard on a core, one after the other; each happens."""
    device, host = tb.device, tb.host

    async def long_pause(what: str, where: str):
        while not device.pauses[where]:
            await Timer(100, "ns")
        setattr(device, what, True)
        await Timer(20, "us")
        setattr(device, what, False)

    async def check(*expected: str):
        device.pauses.clear()
        await there_and_back(tb, [(6000, 3, 5, 1)], us=300)
        for kind in expected:
            assert device.pauses[kind], f"nothing {kind}: {device.pauses}"
        return {kind for kind in PAUSES if device.pauses[kind]}

    assert await check() == set()
    device.stall = 0.2
    await check("in received", "in sent")
    for what, where, kind in (
        ("hold_receive", "in received", "long receive"),
        ("hold_transmit", "in sent", "long transmit"),
    ):
        task = cocotb.start_soon(long_pause(what, where))
        await check(kind)
        await task
        # Cycles of 8 ns.
        assert device.pauses[kind] > 1000
    device.stall = 0.0
    host.split, host.gap_ns, host.latency_ns = Split.EVERY_RCB, (0, 300), (0, 900)
    assert "interleaved" in await check("interleaved")


@bench(us=2000, lanes=4, stall=0.1, long=True)
async def both_ways_at_once(tb: TB):
    """H2C and C2H at the same time on different parts of card RAM, with register reads between."""
    tb.host.split = Split.RANDOM
    tb.host.latency_ns = (0, 1000)
    first = tb.buffer(16384, offset=3)
    await tb.h2c.run(tb.chain([Transfer(first.address, 32768 + 5, 16384)]))
    for _ in range(2):
        second, back = tb.buffer(16384, offset=9), tb.buffer(16384, offset=1)
        runs = [
            cocotb.start_soon(tb.h2c.run(tb.chain([Transfer(second.address, 1, 16384)]), 300)),
            cocotb.start_soon(
                tb.c2h.run(tb.chain([Transfer(32768 + 5, back.address, 16384)]), 300)
            ),
        ]
        for run in runs:
            await run
        back.expect(first.data)
        check = tb.buffer(16384)
        await tb.c2h.run(tb.chain([Transfer(1, check.address, 16384)]))
        check.expect(second.data)


@bench(us=3000, lanes=4, long=True)
async def restarts(tb: TB):
    """Run cleared at any moment of a list and set again at once: only the new list counts."""
    tb.host.latency_ns = (0, 800)
    for turn in range(20):
        old, there, back = (tb.buffer(size, offset=size % 7) for size in (6000, 300, 300))
        fill = Transfer(there.address, 40000, 300)
        drain = Transfer(40000, back.address, 300)
        if turn % 2:
            channel, new = tb.h2c, fill
            abandoned = [Transfer(old.address, 0, 2000), Transfer(old.address, 2000, 4000)]
        else:
            await tb.h2c.run(tb.chain([fill]))
            channel, new = tb.c2h, drain
            abandoned = [Transfer(0, old.address, 2000), Transfer(2000, old.address, 4000)]
        await channel.start(tb.chain(abandoned * 2))
        await Timer(tb.rng.randint(1, 6000), "ns")
        await channel.write("control", CONTROL_STOP)
        await channel.run(tb.chain([new]))
        if channel is tb.h2c:
            await tb.c2h.run(tb.chain([drain]))
        back.expect(there.data)
