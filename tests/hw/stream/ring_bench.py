# SPDX-License-Identifier: BSD-2-Clause
"""What is around the rings of a pair, in Python: a reading channel, and a writing one."""

from __future__ import annotations

from types import SimpleNamespace

from hw.records import JOB_BYTES
from hw.stream.ring import CopyRing, InboundRing, OutboundRing
from tests.hw.helpers import RING_PLACE, placement, write_of

__all__ = ["CLAIMS", "SIZE", "Copies", "Inbound", "Outbound", "Writes"]

#: the smallest ring: it wraps, and fills up, most often
SIZE = 1024
#: payloads that an outbound ring lets be taken and not released
CLAIMS = 16


class Inbound:
    """Reserves, places and drains an `InboundRing`, as channel and read engine would.

    `sent` are the bytes in the order of their reads, `found` those that left the ring.
    """

    def __init__(
        self,
        rng,
        ring=None,
        *,
        reads=0,
        longest=JOB_BYTES,
        window=6,
        ready=0.7,
        place=0.7,
        width=64,
    ):
        self.rng = rng
        self.width, self.lanes = width, width // 8
        self.dut = ring or InboundRing(SIZE, width=width)
        self.reads, self.longest, self.window = reads, longest, window
        self.ready_rate, self.place_rate = ready, place
        self.sent, self.found = bytearray(), bytearray()
        #: (cycle, count) of each beat
        self.beats = []
        #: of each read under way: its place, and its beats that are still to be written
        self.pending = []
        self.reserved = self.arrived = 0
        #: bytes of the oldest read that the mark has passed
        self.told = 0
        self.cycle = 0
        self.drain = False

    def words(self, place, data):
        """(place, bytes) of beats that bring `data` to `place`: only the ends are not full."""
        while data:
            size = self.rng.randint(self.lanes - 3, self.lanes)
            yield place, data[:size]
            place, data = place + size, data[size:]

    async def step(self, ctx, *, take=0, mark=None):
        """One cycle of the ring alone: the channel's part, and perhaps a beat leaves."""
        dut = self.dut
        taken = self.drive(ctx, take=take, mark=mark)
        ctx.set(dut.drain, self.drain)
        ready = self.rng.random() < self.ready_rate
        ctx.set(dut.beats.ready, ready)
        if ready and ctx.get(dut.beats.valid):
            beat = ctx.get(dut.beats.payload)
            assert 1 <= beat.count <= self.lanes
            self.found += beat.data.to_bytes(self.lanes, "little")[: beat.count]
            self.beats.append((self.cycle, beat.count))
            assert len(self.found) <= self.arrived, "bytes left before they had arrived"
        await ctx.tick()
        self.cycle += 1
        return taken

    def drive(self, ctx, *, take=0, mark=None):
        """A cycle of the channel: reserve a read of `take` bytes if there is room, place a word."""
        dut, rng = self.dut, self.rng
        ctx.set(dut.reservation.length, take)
        # The mark may be of the word that is placed in this cycle.
        self.place(ctx)
        told = mark if mark is not None else self.mark()
        ctx.set(dut.mark.valid, told is not None)
        if told is not None:
            ctx.set(dut.mark.payload.place, placement(told))
        taken = bool(take and ctx.get(dut.reservation.ready))
        ctx.set(dut.reservation.take, taken)
        if taken:
            place, data = ctx.get(dut.reservation.place.as_value()), rng.randbytes(take)
            assert place == RING_PLACE + self.reserved % (2 * SIZE)
            self.pending.append([place, list(self.words(place, data)), take])
            self.sent += data
            self.reserved += take
        return taken

    def place(self, ctx):
        """Write a beat of any read but the one that is reserved in this cycle."""
        dut, rng = self.dut, self.rng
        busy = [read for read in self.pending if read[1]]
        valid = bool(busy) and rng.random() < self.place_rate
        ctx.set(dut.placement.valid, valid)
        if valid:
            place, beat = rng.choice(busy)[1].pop(0)
            for name, value in write_of(rng, place % RING_PLACE, beat, self.width).items():
                ctx.set(getattr(dut.placement.payload, name), value)

    def mark(self):
        """What the read engine would tell: most often nothing, or how far the oldest read is."""
        choice = self.rng.random()
        if choice < 0.1:
            # A read into card RAM is the oldest.
            return self.rng.choice([0, 8, RING_PLACE - 1])
        if choice < 0.5 or not self.pending:
            return None
        place, words, length = self.pending[0]
        if not words:
            self.pending.pop(0)
            self.arrived += length - self.told
            self.told = 0
            return place + length
        reached = words[0][0] - place
        self.arrived += reached - self.told
        self.told = reached
        return place + reached

    async def run(self, ctx, sizes=None):
        """Reads of these sizes, by default `reads` of random ones, then a drain."""
        if sizes is None:
            drawn = [1, 7, 8, self.longest]
            sizes = [
                self.rng.choice([*drawn, self.rng.randint(1, self.longest)])
                for _ in range(self.reads)
            ]
        for size in sizes:
            taken = False
            while not taken:
                wants = len(self.pending) < self.window and self.rng.random() < 0.8
                taken = await self.step(ctx, take=size if wants else 0)
        while self.pending:
            await self.step(ctx)
        for _ in range(200 + int(SIZE / 4 / self.ready_rate)):
            await self.step(ctx)
        assert 0 <= len(self.sent) - len(self.found) < self.lanes, "only a part may wait"
        self.drain = True
        for _ in range(100):
            await self.step(ctx)
        assert self.found == self.sent


class Writes:
    """Takes payloads from an `OutboundRing`, reads them as the writer does, and releases them."""

    def __init__(self, rng, ring, *, release=0.3, width=64):
        self.rng, self.dut, self.release = rng, ring, release
        self.width, self.lanes = width, width // 8
        self.found = bytearray()
        self.claimed = self.freed = 0
        #: lengths that are claimed and not released; (place, length) that are to be read
        self.claims, self.reading = [], []
        self._word = self._taken = None

    def drive(self, ctx, length):
        """A cycle in which a payload of `length` is asked for, unless 0; `settle` after it."""
        dut = self.dut
        ctx.set(dut.reservation.length, length)
        taken = bool(length and ctx.get(dut.reservation.ready))
        ctx.set(dut.reservation.take, taken)
        self._taken = (ctx.get(dut.reservation.place.as_value()), length) if taken else None
        unread = len(self.reading) == len(self.claims)
        released = bool(self.claims and not unread and self.rng.random() < self.release)
        ctx.set(dut.released, released)
        self.freed += self.claims.pop(0) if released else 0
        self._word = self.reading[0][0] % RING_PLACE // self.lanes if self.reading else None
        ctx.set(dut.read.enable, self._word is not None)
        word = self._word or 0
        ctx.set(dut.read.rows, [(word + 1) // 2, word // 2])

    def settle(self, ctx):
        """After the clock edge: the words that were asked for, the payload that was taken."""
        if self._word is not None:
            place, length = self.reading.pop(0)
            count = min(length, self.lanes)
            words = [word.to_bytes(self.lanes, "little") for word in ctx.get(self.dut.read.data)]
            if self._word % 2:
                words.reverse()
            self.found += b"".join(words)[place % self.lanes :][:count]
            if length > count:
                self.reading.insert(0, (place + count, length - count))
        if self._taken:
            place, length = self._taken
            assert place % (2 * SIZE) == self.claimed % (2 * SIZE)
            self.claims.append(length)
            self.reading.append(self._taken)
            self.claimed += length
        return self._taken is not None


class Outbound(Writes):
    """Feeds an `OutboundRing` as well, and knows exactly when it must be ready for what."""

    def __init__(
        self,
        rng,
        *,
        counts=(),
        offer=0.8,
        take=0.8,
        release=0.3,
        longest=JOB_BYTES,
        width=64,
    ):
        ring = OutboundRing(SIZE, width=width)
        super().__init__(rng, ring, release=release, width=width)
        self.counts = list(counts)
        self.offer, self.take, self.longest = offer, take, longest
        self.sent = bytearray()
        self.written = 0
        self.beat = None
        self.cycle = 0
        self.taken = []

    async def step(self, ctx, length):
        """One cycle, in which a payload of `length` is asked for, unless 0."""
        dut, rng = self.dut, self.rng
        if self.beat is None and self.counts and rng.random() < self.offer:
            self.beat = rng.randbytes(self.lanes), self.counts.pop(0)
        ctx.set(dut.beats.valid, self.beat is not None)
        if self.beat is not None:
            ctx.set(dut.beats.payload.data, int.from_bytes(self.beat[0], "little"))
            ctx.set(dut.beats.payload.count, self.beat[1])

        room = len(self.sent) - self.freed <= SIZE - self.lanes
        assert ctx.get(dut.beats.ready) == room, f"{len(self.sent) - self.freed} bytes in use"
        ready = length <= self.written - self.claimed and len(self.claims) < CLAIMS
        self.drive(ctx, length)
        assert ctx.get(dut.reservation.ready) == ready, f"ready is {not ready} for {length} bytes"

        before = len(self.sent)
        if self.beat is not None and room:
            data, count = self.beat
            self.sent += data[:count]
            self.beat = None
            self.taken.append(self.cycle)
        # The widest beats are rotated in a cycle more.
        self.written = before if self.width == 256 else len(self.sent)
        await ctx.tick()
        self.cycle += 1
        return self.settle(ctx)

    async def run(self, ctx):
        """All the beats, then what is left of them in payloads of its size."""
        length = 1
        while self.counts or self.beat or len(self.sent) > self.claimed:
            if await self.step(ctx, length if self.rng.random() < self.take else 0):
                length = self.rng.choice([1, 8, 128, self.rng.randint(1, self.longest)])
            left = len(self.sent) - self.claimed
            if not self.counts and not self.beat and left:
                length = min(length, left)
        while self.claims:
            await self.step(ctx, 0)
        assert self.found == self.sent

    def counts_of(self, choices, number):
        """Chooses the sizes of that many beats."""
        self.counts = [self.rng.choice(choices) for _ in range(number)]
        return self

    def forget(self):
        """The ring was flushed."""
        self.sent.clear(), self.found.clear()
        self.written = self.claimed = self.freed = 0
        self.beat = None


class Copies:
    """The reading channel and the writing one, around a `CopyRing`."""

    def __init__(self, rng, *, reads=0, longest=JOB_BYTES, release=0.3, width=64):
        self.rng, self.left, self.longest = rng, reads, longest
        self.dut = dut = CopyRing(SIZE, width=width)
        filling = SimpleNamespace(reservation=dut.reads, placement=dut.placement, mark=dut.mark)
        emptying = SimpleNamespace(reservation=dut.writes, released=dut.released, read=dut.read)
        self.reads = Inbound(rng, filling, place=1.0, width=width)
        self.writes = Writes(rng, emptying, release=release, width=width)

    async def step(self, ctx, *, read=0, write=0):
        """A cycle in which so many bytes are to be read, and written; whether they were."""
        did_read = self.reads.drive(ctx, take=read)
        known = self.reads.arrived - self.writes.claimed
        ready = write <= known and len(self.writes.claims) < CLAIMS
        self.writes.drive(ctx, write)
        assert ctx.get(self.dut.writes.ready) == ready, f"ready is {not ready} for {write} bytes"
        await ctx.tick()
        return did_read, self.writes.settle(ctx)

    async def run(self, ctx):
        """All the reads, and writes until nothing is left of their bytes."""
        rng, length = self.rng, 1
        while self.left or self.reads.pending or self.writes.claimed < len(self.reads.sent):
            take = rng.choice([1, 8, self.longest, rng.randint(1, self.longest)])
            did_read, wrote = await self.step(
                ctx, read=take if self.left else 0, write=length if rng.random() < 0.8 else 0
            )
            self.left -= did_read
            if wrote:
                length = rng.choice([1, 8, 128, rng.randint(1, JOB_BYTES)])
            rest = len(self.reads.sent) - self.writes.claimed
            if not self.left and rest:
                length = min(length, rest)
        while self.writes.claims:
            await self.step(ctx)
        assert self.writes.found == self.reads.sent

    def forget(self):
        """The ring was flushed."""
        self.reads.sent.clear(), self.writes.found.clear()
        self.reads.arrived = self.reads.reserved = self.writes.claimed = 0
