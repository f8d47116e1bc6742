# SPDX-License-Identifier: BSD-2-Clause
"""The splitter against a model that cuts at multiples of the limit, and its exact timing."""

import pytest

from hw.channel.splitter import Splitter
from hw.records import OFFSET_BITS
from tests.hw.helpers import seeded, simulate

#: limit encoding: bytes
LIMITS = {0: 128, 1: 256, **dict.fromkeys(range(2, 8), 512)}


def cut(address, place, length, limit, bits=OFFSET_BITS):
    """The pieces of a span, as (address, place, length, first, last)."""
    pieces = []
    while length:
        size = min(length, LIMITS[limit] - address % LIMITS[limit])
        pieces.append((address, place % (1 << bits), size, not pieces, size == length))
        address, place, length = address + size, place + size, length - size
    return pieces


class Bench:
    """Drives a splitter cycle by cycle and writes down what it takes and gives, and when."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut, self.cycle = ctx, dut, 0
        self.taken, self.pieces, self.times = [], [], []
        self._held = None

    async def step(self, span=None, limit=0, ready=1, abort=0, cut=None):
        """One cycle with these inputs; returns whether the span was taken."""
        ctx, dut = self.ctx, self.dut
        if cut is not None:
            ctx.set(dut.rest, cut)
            ctx.set(dut.cut, 1)
        ctx.set(dut.span.valid, span is not None)
        if span is not None:
            address, place, length = span
            ctx.set(
                dut.span.payload,
                {"pci_address": address, "card_address": place, "length": length},
            )
        ctx.set(dut.limit, limit)
        ctx.set(dut.piece.ready, ready)
        ctx.set(dut.abort, abort)
        taken = bool(span is not None and ctx.get(dut.span.ready))
        if taken:
            self.taken.append(self.cycle)
        offered = None
        if ctx.get(dut.piece.valid):
            piece = ctx.get(dut.piece.payload)
            flags = bool(piece.first), bool(piece.last)
            offered = (piece.address, piece.place.as_bits(), piece.length, *flags)
        assert self._held is None or offered == self._held, "an offered piece changed"
        self._held = None if ready or abort or cut is not None else offered
        if offered and ready:
            self.pieces.append(offered)
            self.times.append(self.cycle)
        await ctx.tick()
        self.cycle += 1
        if cut is not None:
            ctx.set(dut.cut, 0)
        return taken


def bench(scenario, **options):
    """Runs an async function of a `Bench`."""
    dut = Splitter()

    async def testbench(ctx):
        await scenario(Bench(ctx, dut))

    simulate(dut, testbench, **options)


@pytest.mark.parametrize("limit", LIMITS)
def test_boundaries(limit):
    """Every offset and length about a limit, and about the end of a 4 KiB page."""
    size = LIMITS[limit]
    edges = (0, 1, 2, 63, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1)
    spans = [
        (base + offset, 5, length)
        for base in (0, 4096 - size)
        for offset in (0, 1, 127, 128, size - 1)
        for length in edges
        if length
    ]

    async def scenario(b):
        for span in spans:
            b.pieces.clear()
            while not await b.step(span, limit):
                pass
            expected = cut(*span, limit)
            for _ in expected:
                # The limit is sampled with the span: what it is now must not matter.
                await b.step(limit=limit ^ 1)
            assert b.pieces == expected
            for address, _, length, _, _ in expected:
                assert address // 4096 == (address + length - 1) // 4096

    bench(scenario)


def test_random_spans_with_stalls():
    rng = seeded()

    async def scenario(b):
        expected = []
        for _ in range(300):
            address = rng.randrange(1 << rng.choice((13, 33, 64)))
            length = rng.randrange(1, 1 << rng.randrange(1, 13))
            place, limit = rng.randrange(1 << 64), rng.choice(tuple(LIMITS))
            address = min(address, (1 << 64) - length)
            expected += cut(address, place, length, limit)
            busy = rng.random()
            while not await b.step((address, place, length), limit, rng.random() < busy):
                busy = max(busy, 0.1)
            for _ in range(rng.choice((0, 0, 3))):
                await b.step(ready=rng.random() < 0.5)
        while len(b.pieces) < len(expected):
            await b.step()
        assert b.pieces == expected

    bench(scenario)


@pytest.mark.parametrize("bit", range(10, 28))
def test_long_spans(bit):
    """The count of bytes left borrows across every bit; the address carries beyond 32 bits."""
    address, length = (1 << (bit + 20)) - 1000, (1 << bit) + 700
    count = min(12, len(cut(address, 0, min(length, 1 << 14), 0)))

    async def scenario(b):
        await b.step((address, 0, length))
        for _ in range(count):
            await b.step()
        expected = cut(address, 0, 1 << 14 if bit > 13 else length, 0)[:count]
        assert b.pieces == expected

    bench(scenario)


def test_longest_span():
    async def scenario(b):
        await b.step((1, 2, (1 << 28) - 1), 2)
        await b.step()
        await b.step()
        assert b.pieces == [(1, 2, 511, True, False), (512, 513, 512, False, False)]

    bench(scenario)


def test_speed():
    """The first piece a cycle after its span, one per cycle, the next span behind the last."""

    async def scenario(b):
        spans = [(0x1000, 0, 4096), (0x2000, 0, 64), (0x30, 0, 1024)]
        counts = [len(cut(*span, 0)) for span in spans]
        for span in spans:
            while not await b.step(span):
                pass
        while len(b.pieces) < sum(counts):
            await b.step()
        assert counts == [32, 1, 9]
        assert b.taken == [0, 33, 35]
        assert b.times == [*range(1, 33), 34, *range(36, 45)]

    bench(scenario)


@pytest.mark.parametrize("ready", [0, 1])
def test_abort(ready):
    """In every cycle of a span: what was taken stays, the rest is gone, the next span is whole."""

    async def scenario(b):
        first, second = (0x180, 0, 600), (0x5040, 77, 300)
        pieces = cut(*first, 0)
        assert len(pieces) == 5
        for when in range(8):
            b.pieces.clear()
            await b.step(first)
            for _ in range(when):
                await b.step()
            # The piece of this very cycle is taken if the sink is ready.
            assert not await b.step(second, ready=ready, abort=1)
            assert b.pieces == pieces[: when + ready]
            assert not await b.step(second, abort=1)
            assert b.pieces == pieces[: when + ready]
            b.pieces.clear()
            assert await b.step(second)
            for _ in range(4):
                await b.step()
            assert b.pieces == cut(*second, 0)

    bench(scenario)


@pytest.mark.parametrize("rest", [0, 1, 100, 511])
@pytest.mark.parametrize("before", [0, 2])
def test_a_span_that_is_cut_ends_there(before, rest):
    """Behind so many pieces, the next one has less bytes and is the last, or is none."""
    dut = Splitter(cuttable=True)

    async def testbench(ctx):
        bench = Bench(ctx, dut)
        await bench.step((0x1000, 0, 5000), limit=2, ready=0)
        for _ in range(before):
            await bench.step(limit=2)
        await bench.step(limit=2, ready=0, cut=rest)
        taken = False
        while not taken:
            taken = await bench.step((0x8000, 0, 10), limit=2)
        await bench.step(limit=2)
        sizes = [(address, length, last) for address, _, length, _, last in bench.pieces]
        whole = [(0x1000 + 512 * n, 512, False) for n in range(before)]
        cut_off = [(0x1000 + 512 * before, rest, True)] * (rest > 0)
        assert sizes == [*whole, *cut_off, (0x8000, 10, True)]

    simulate(dut, testbench, cycles=100)
