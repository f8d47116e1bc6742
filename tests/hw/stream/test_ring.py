# SPDX-License-Identifier: BSD-2-Clause
"""The rings of a pair against byte models: any sizes, any order, any stalls, and exact timing."""

import pytest

from hw.records import JOB_BYTES
from hw.seam import WIDTHS
from hw.stream.ring import CopyRing, InboundRing, OutboundRing
from tests.hw.helpers import RING_PLACE, seeded, simulate
from tests.hw.stream.ring_bench import CLAIMS, SIZE, Copies, Inbound, Outbound


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ready", [1.0, 0.2])
@pytest.mark.parametrize("longest", [1, 9, JOB_BYTES])
def test_inbound_bytes_in_order(ready, longest, width):
    """Reads of random sizes placed in random order; wraps at odd places many times."""
    reads = 60 if width == 64 else 20
    knobs = {"longest": longest, "ready": ready, "place": 1.0, "width": width}
    bench = Inbound(seeded(), reads=reads, **knobs)
    simulate(bench.dut, bench.run)
    assert all(count == bench.lanes for _, count in bench.beats[:-1]), (
        "a partial beat without a pause"
    )


def test_inbound_pauses_at_any_byte():
    """`drain` between reads lets parts of words go, and what follows begins anywhere in a word."""
    rng = seeded()
    bench = Inbound(rng, ready=0.5)

    async def run(ctx):
        # Each rest that a drain may let go, before and after others.
        for rest in rng.sample(range(8), 8) + rng.sample(range(8), 8):
            sizes = [rng.randint(1, JOB_BYTES) for _ in range(rng.randint(0, 2))]
            size = rng.randint(1, JOB_BYTES - 8)
            bench.drain = False
            await bench.run(ctx, [*sizes, size + (rest - sum(sizes) - size) % 8])

    simulate(bench.dut, run)
    assert {count for _, count in bench.beats} == set(range(1, 9))


@pytest.mark.parametrize(("width", "latency"), [(64, 3), (128, 3), (256, 4)])
def test_inbound_timing(width, latency):
    """So long after the mark has passed it a beat leaves, then one in each cycle."""
    bench = Inbound(seeded(), ready=1.0, place=1.0, width=width)

    async def run(ctx):
        await bench.step(ctx, mark=0)
        assert await bench.step(ctx, take=100, mark=0)
        while bench.pending[0][1]:
            await bench.step(ctx, mark=0)
        for reached in (64, 96, 100):
            told = bench.cycle
            bench.arrived = reached
            bench.beats.clear()
            await bench.step(ctx, mark=RING_PLACE + reached)
            for _ in range(20):
                await bench.step(ctx, mark=0)
            cycles = [cycle for cycle, _ in bench.beats]
            beats = {64: 64, 96: 32, 100: 0}[reached] // bench.lanes
            assert cycles == list(range(told + latency, told + latency + beats))
        bench.drain = True
        drained = bench.cycle
        for _ in range(10):
            await bench.step(ctx, mark=0)
        assert bench.beats == [(drained + latency - 1, 4)]
        assert bench.found == bench.sent

    simulate(bench.dut, run)


@pytest.mark.parametrize("width", WIDTHS)
def test_inbound_room_is_exact(width):
    """`ready` says that the read fits: up to the last byte, and again as beats leave."""
    bench = Inbound(seeded(), ready=0.0, place=1.0, width=width)

    async def run(ctx):
        for length in (500, 500, 24):
            # The cycle before took one, or was the reset.
            assert not await bench.step(ctx, take=1, mark=0)
            assert await bench.step(ctx, take=length, mark=0)
        for _ in range(2):
            assert not await bench.step(ctx, take=1, mark=0)
        while any(words for _, words, _ in bench.pending):
            await bench.step(ctx, mark=0)
        bench.arrived = 1000
        await bench.step(ctx, mark=RING_PLACE + 1000)
        for _ in range(10):
            await bench.step(ctx, mark=0)
        # Four beats wait behind the memory.
        assert not await bench.step(ctx, take=4 * bench.lanes + 1, mark=0)
        assert await bench.step(ctx, take=4 * bench.lanes, mark=0)

    simulate(bench.dut, run)


def test_inbound_flush_forgets():
    """Nothing of before a flush leaves, wherever the positions were; then all is as new."""
    bench = Inbound(seeded(), ready=0.3)

    async def run(ctx):
        for _ in range(10):
            bench.reads = 8
            while bench.reads:
                bench.reads -= await bench.step(ctx, take=bench.rng.randint(1, JOB_BYTES))
            while bench.pending:
                await bench.step(ctx)
            for _ in range(bench.rng.randrange(8)):
                await bench.step(ctx)
            ctx.set(bench.dut.flush, 1)
            bench.ready_rate, rate = 0.0, bench.ready_rate
            await bench.step(ctx, mark=0)
            ctx.set(bench.dut.flush, 0)
            bench.ready_rate = rate
            bench.sent.clear(), bench.found.clear()
            bench.arrived = bench.reserved = 0
            bench.reads, bench.drain = 3, False
            await bench.run(ctx)
            bench.drain = False

    simulate(bench.dut, run)


def test_inbound_takes_no_note_of_what_is_behind_a_gap():
    bench = Inbound(seeded(), ready=1.0, place=1.0)

    async def run(ctx):
        for _ in range(2):
            await bench.step(ctx, take=64, mark=0)
        for _ in range(20):
            await bench.step(ctx, mark=0)
        bench.arrived = 40
        await bench.step(ctx, mark=RING_PLACE + 40)
        ctx.set(bench.dut.gap, 1)
        await bench.step(ctx, mark=RING_PLACE + 128)
        bench.drain = True
        for _ in range(20):
            await bench.step(ctx, mark=0)
        assert bench.found == bench.sent[:40]

    simulate(bench.dut, run)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("release", [1.0, 0.1])
@pytest.mark.parametrize("choices", [[8], [1], [3, 8], range(1, 9)], ids=str)
def test_outbound_bytes_in_order(choices, release, width):
    """Beats and payloads of any sizes; `ready` and the room for a beat are exact in every cycle."""
    scale, number = width // 64, 600 if width == 64 else 150
    counts = [scale * count - (count > 1 and rest) for count in choices for rest in range(scale)]
    bench = Outbound(seeded(), release=release, width=width)
    bench.counts_of(counts, number)
    simulate(bench.dut, bench.run)


@pytest.mark.parametrize("width", WIDTHS)
def test_outbound_takes_a_beat_in_every_cycle(width):
    """Whatever their sizes, as long as payloads leave as fast."""
    lanes = width // 8
    bench = Outbound(
        seeded(), offer=1.0, take=1.0, release=1.0, longest=min(8 * lanes, JOB_BYTES), width=width
    )
    bench.counts_of([5, max(8, lanes // 2)], 300)
    simulate(bench.dut, bench.run)
    first = bench.taken[:100]
    assert first == list(range(first[0], first[0] + 100))


def test_outbound_holds_no_more_claims_than_it_can_count():
    bench = Outbound(seeded(), counts=[8] * 4, offer=1.0, take=1.0, release=0.0)

    async def run(ctx):
        for _ in range(30):
            await bench.step(ctx, 1)
        assert len(bench.claims) == CLAIMS
        bench.release = 1.0
        while bench.claimed < 32:
            await bench.step(ctx, 1)
        while bench.claims:
            await bench.step(ctx, 0)
        assert bench.found == bench.sent

    simulate(bench.dut, run)


def test_outbound_flush_forgets():
    """In any state of the last word, and with a beat at the door."""
    bench = Outbound(seeded())

    async def run(ctx):
        for _ in range(20):
            bench.counts_of(range(1, 9), bench.rng.randint(1, 40))
            for _ in range(bench.rng.randint(0, 50)):
                await bench.step(ctx, bench.rng.randint(0, 20))
            while bench.claims:
                await bench.step(ctx, 0)
            ctx.set(bench.dut.flush, 1)
            await ctx.tick()
            ctx.set(bench.dut.flush, 0)
            bench.forget()
            bench.counts_of(range(1, 9), 40)
            await bench.run(ctx)

    simulate(bench.dut, run)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("release", [1.0, 0.1])
@pytest.mark.parametrize("longest", [1, 9, JOB_BYTES])
def test_copy_bytes_in_order(longest, release, width):
    """Reads and writes of any sizes; `ready` of the writes is exact in every cycle."""
    bench = Copies(seeded(), reads=60, longest=longest, release=release, width=width)
    simulate(bench.dut, bench.run)


def test_copy_room_is_exact():
    """There is room for a read when writes have freed it, and not before they are sent."""
    bench = Copies(seeded(), release=0.0)

    async def run(ctx):
        for length in (500, 500, 24):
            assert not (await bench.step(ctx, read=1))[0], (
                "the cycle before took one, or was the reset"
            )
            assert (await bench.step(ctx, read=length))[0]
        while bench.reads.pending:
            await bench.step(ctx)
        await bench.step(ctx)
        for length in (300, 500, SIZE - 800):
            assert (await bench.step(ctx, write=length))[1]
        while bench.writes.reading:
            await bench.step(ctx)
        assert not (await bench.step(ctx, read=1))[0]
        bench.writes.release = 1.0
        await bench.step(ctx)
        bench.writes.release = 0.0
        # Freed in the cycle behind it, and registered once more.
        assert not (await bench.step(ctx, read=1))[0]
        assert not (await bench.step(ctx, read=301))[0]
        assert (await bench.step(ctx, read=300))[0]

    simulate(bench.dut, run)


def test_copy_discards():
    """Reads find room though nobody writes; after the flush all is as new."""
    bench = Copies(seeded(), release=0.0)

    async def run(ctx):
        for _ in range(4):
            for _ in range(8):
                await bench.step(ctx, read=512)
            assert len(bench.reads.sent) == SIZE
            ctx.set(bench.dut.discard, 1)
            for _ in range(10):
                await bench.step(ctx, read=512)
            assert len(bench.reads.sent) > 3 * SIZE
            while bench.reads.pending:
                await bench.step(ctx)
            ctx.set(bench.dut.flush, 1)
            await ctx.tick()
            ctx.set(bench.dut.flush, 0)
            ctx.set(bench.dut.discard, 0)
            bench.forget()
            bench.left, bench.writes.release = 5, 1.0
            await bench.run(ctx)
            bench.writes.release = 0.0
            ctx.set(bench.dut.flush, 1)
            await ctx.tick()
            ctx.set(bench.dut.flush, 0)
            bench.forget()

    simulate(bench.dut, run)


@pytest.mark.parametrize("ring", [InboundRing, OutboundRing, CopyRing])
@pytest.mark.parametrize("size", [512, 1000, 1 << 16])
def test_sizes_that_cannot_be(ring, size):
    ring(1 << 15, width=64)
    with pytest.raises(ValueError, match=f"1 KiB to 32 KiB, not {size}"):
        ring(size, width=64)
