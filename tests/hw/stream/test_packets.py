# SPDX-License-Identifier: BSD-2-Clause
"""Packets of an outbound ring: taken up to their ends, dropped, and as bytes like any others."""

import pytest

from hw.records import JOB_BYTES
from hw.seam import WIDTHS
from hw.stream.packets import PLACES
from hw.stream.ring import OutboundRing
from peerdma import regs
from tests.hw.helpers import seeded, send, simulate
from tests.hw.stream.beats import beats_of
from tests.hw.stream.ring_bench import SIZE, Writes

RECORD = regs.FRAME_RECORD.itemsize


class Packets(Writes):
    """Feeds packets, and takes them with their records as a channel does.

    Parameters
    ----------
    packets : list of (bytes, bool)
        And whether they have a record.
    pause : function
        Cycles before a beat.
    """

    def __init__(self, rng, packets, *, width=64, pause=lambda: 0, **options):
        ring = OutboundRing(SIZE, width=width, packets=True)
        super().__init__(rng, ring, width=width, **options)
        self.packets, self.pause = packets, pause
        self.records = [rng.randbytes(RECORD) if recorded else b"" for _, recorded in packets]
        #: bytes that are in the ring, or were
        self.sent = 0

    async def feed(self, ctx):
        """All packets."""
        for (packet, recorded), record in zip(self.packets, self.records, strict=True):
            ctx.set(self.dut.records, recorded)
            for data in (packet, record) if recorded else (packet,):
                beats = beats_of(data, self.rng, range(1, self.lanes + 1), self.lanes)
                beats = beats or [{"data": 0, "count": 0, "last": 0}]
                beats[-1]["last"] = 1
                for beat in beats:
                    await send(ctx, self.dut.beats, [beat], self.pause)
                    self.sent += beat["count"]

    async def step(self, ctx, length, *, takes=True, drop=False):
        """A cycle that asks for so many bytes: whether they were taken, how far the end is, if it
        is that near, and whether some were dropped."""
        dut, packet = self.dut, self.dut.packet
        ctx.set(dut.reservation.length, length)
        ctx.set(packet.drop, drop)
        ends = ctx.get(packet.rest) if ctx.get(packet.ends) else None
        takes = takes and ctx.get(dut.reservation.ready) and ends in (None, length)
        dropped = ctx.get(packet.dropped)
        self.drive(ctx, length if takes else 0)
        ctx.set(dut.reservation.length, length)
        await ctx.tick()
        self.settle(ctx)
        ctx.set(packet.drop, 0)
        return takes, ends, dropped

    async def data(self, ctx, room):
        """Take the bytes of a packet, at most `room`."""
        while room:
            length = min(room, self.rng.choice([1, 8, 128, self.rng.randint(1, JOB_BYTES)]))
            taken = False
            while not taken:
                takes = self.rng.random() < 0.8
                taken, ends, _ = await self.step(ctx, length, takes=takes)
                if not taken and ends == 0:
                    return
                if not taken and ends is not None:
                    length = ends
            room -= length

    async def record(self, ctx, end):
        """Take the record behind a packet that ends there, dropping what is left of that."""
        taken = long = False
        while not taken:
            # A payload of any length may be asked for meanwhile.
            _, ends, dropped = await self.step(ctx, RECORD, takes=False, drop=not self.claims)
            long |= dropped
            self.claimed = end if long else self.claimed
            while ends == 0 and not taken:
                assert self.claimed == end
                taken = self.rng.random() < 0.8
                self.drive(ctx, RECORD if taken else 0)
                taken = self._taken is not None
                await ctx.tick()
                self.settle(ctx)
        return long


@pytest.mark.parametrize(("width", "pauses"), [(64, False), *((width, True) for width in WIDTHS)])
def test_packets_are_taken_up_to_their_ends(width, pauses):
    """Of no byte, of some, of several rings; with room for all, or less; those without records are
    the beginning of the next one."""
    rng = seeded()
    sizes = [0, 1, 8, 33, 64, JOB_BYTES, SIZE - RECORD, SIZE, 3 * SIZE + 5]
    packets = [(rng.randbytes(size), True) for size in sizes]
    packets += [
        (rng.randbytes(rng.choice([1, 5, rng.randint(1, 300)])), rng.random() < 0.8)
        for _ in range(20)
    ]
    rng.shuffle(packets)
    packets.append((rng.randbytes(7), True))
    pause = (lambda: rng.randrange(3)) if pauses else (lambda: 0)
    bench = Packets(rng, packets, width=width, pause=pause)
    expected = b""

    async def take(ctx):
        nonlocal expected
        data, end = b"", 0
        for (packet, recorded), record in zip(packets, bench.records, strict=True):
            data += packet
            if not recorded:
                continue
            end += len(data)
            room = rng.choice([len(data), len(data) + 9, max(len(data) - 1, 0), len(data) // 3])
            await bench.data(ctx, room)
            assert await bench.record(ctx, end) == (room < len(data))
            expected += data[:room] + record
            data, end = b"", end + RECORD
        while bench.claims:
            await bench.step(ctx, 1, takes=False)
        assert not ctx.get(bench.dut.there)

    simulate(bench.dut, take, background=(bench.feed,))
    assert bench.found == expected


def test_payloads_of_any_length_find_their_bytes_however_short_packets_are():
    """As many ends are kept as that takes, and no more are let in."""
    rng = seeded()
    bench = Packets(rng, [(rng.randbytes(1), True)] * (4 * PLACES))
    total = 4 * PLACES * (1 + RECORD)
    pairs = zip(bench.packets, bench.records, strict=True)
    data = b"".join(packet + record for (packet, _), record in pairs)

    async def take(ctx):
        await ctx.tick().repeat(200)
        assert JOB_BYTES <= bench.sent == PLACES * (1 + RECORD)
        for _ in range(total // JOB_BYTES):
            before = len(bench.found) + sum(bench.claims)
            while bench.claimed == before:
                bench.drive(ctx, JOB_BYTES)
                await ctx.tick()
                bench.settle(ctx)
            while bench.claims:
                bench.drive(ctx, 0)
                await ctx.tick()
                bench.settle(ctx)

    simulate(bench.dut, take, background=(bench.feed,))
    assert bench.found == data[: total // JOB_BYTES * JOB_BYTES]


def test_a_packet_is_there_from_its_first_byte_on():
    """Or its end, if it has none; if it has a record."""
    bench = Packets(seeded(), [])
    dut = bench.dut

    async def run(ctx):
        async def beat(count, last):
            await send(ctx, dut.beats, [{"count": count, "last": last}])
            await ctx.tick().repeat(2)

        async def flush():
            ctx.set(dut.flush, 1)
            await ctx.tick()
            ctx.set(dut.flush, 0)
            await ctx.tick()
            assert not ctx.get(dut.there)

        for records in (1, 0):
            ctx.set(dut.records, records)
            for count, last in ((1, 0), (0, 1)):
                assert not ctx.get(dut.there)
                await beat(count, last)
                assert ctx.get(dut.there) == records
                await flush()
        ctx.set(dut.records, 1)
        # A flush forgets that a record was to come.
        await beat(1, 1)
        await flush()
        await beat(1, 1)
        ctx.set(dut.reservation.length, 1)
        assert ctx.get(dut.packet.ends) and ctx.get(dut.packet.rest) == 1

    simulate(dut, run)
