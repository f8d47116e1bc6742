# SPDX-License-Identifier: BSD-2-Clause
"""A pair between two channels made of Python: copies, and what is left after they break."""

import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from hw.stream.pair import StreamPair
from hw.stream.user_blocks import Axis, PassThrough, PatternSource, UserBlock
from peerdma import regs
from peerdma.testing import pattern
from tests.hw.helpers import PAIR_PLACE, RING_PLACE, seeded, simulate
from tests.hw.stream.ring_bench import SIZE, Inbound, Writes


class Wire(PassThrough):
    """The same bytes, through a user block."""


class Outside(UserBlock):
    """The same bytes, out by AXI4-Stream and in again."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.axis = axis = Axis(8 * self.lanes)
        wiring.connect(m, wiring.flipped(self.i), axis.i)
        wiring.connect(m, axis.o, wiring.flipped(self.o))
        wiring.connect(m, axis.m_axis_h2c, axis.s_axis_c2h)
        return m


#: With how many rings bytes pass through.
RINGS = {PassThrough: 1, Wire: 2, Outside: 2}
each_way = pytest.mark.parametrize("user", RINGS)


class Bench:
    """Both channels of a pair, cycle by cycle.

    A read that was issued is always answered, a payload that was taken is always sent: also after
    a channel was told to end.
    """

    def __init__(self, rng, user, number=0, width=64, **options):
        self.rng = rng
        self.dut = StreamPair(
            user, number=number, inbound=SIZE, outbound=SIZE, width=width, **options
        )
        dut = self.dut
        self.h2c = Inbound(
            rng,
            SimpleNamespace(
                reservation=dut.h2c.reservation, placement=dut.placement, mark=dut.mark
            ),
            width=width,
        )
        self.c2h = Writes(
            rng,
            SimpleNamespace(reservation=dut.c2h.reservation, released=dut.released, read=dut.read),
            width=width,
        )
        self.running = {"h2c": False, "c2h": False}
        self.breaks = {"h2c": False, "c2h": False}
        #: start_ok of the last cycle
        self.ok = True

    async def step(self, ctx, read=0, write=0, mark=None):
        """A cycle in which H2C wants to read, and C2H to write, so many bytes; who did."""
        dut = self.dut
        for side in ("h2c", "c2h"):
            ctx.set(getattr(dut, side).run.running, self.running[side])
            ctx.set(getattr(dut, side).run.breaks, self.breaks[side])
        ctx.set(dut.h2c.drained, not self.h2c.pending)
        # No more than there are tags.
        did_read = self.h2c.drive(ctx, take=read * (len(self.h2c.pending) < 16), mark=mark)
        self.c2h.drive(ctx, write)
        self.ok = ctx.get(dut.h2c.run.start_ok)
        await ctx.tick()
        return did_read, self.c2h.settle(ctx)

    async def copy(self, ctx, reads, writes):
        """Runs both channels: the lengths they move, in order; then both have stopped normally."""
        reads, writes = list(reads), list(writes)
        self.running.update(h2c=bool(reads), c2h=bool(writes))
        for _ in range(20_000):
            want = (reads[0] if reads else 0, writes[0] if writes else 0)
            if self.rng.random() < 0.2:
                want = (0, want[1])
            did = await self.step(ctx, *want)
            for moved, lengths in zip(did, (reads, writes), strict=True):
                if moved:
                    lengths.pop(0)
            self.running["h2c"] = bool(reads or self.h2c.pending)
            self.running["c2h"] = bool(writes or self.c2h.claims)
            if not any(self.running.values()):
                break
        else:
            raise AssertionError(f"{reads} left to read and {writes} to write")
        await self.step(ctx)

    def lengths(self, total):
        """Random lengths of that sum."""
        lengths = []
        while total:
            lengths.append(min(total, self.rng.choice([1, 128, self.rng.randint(1, 512)])))
            total -= lengths[-1]
        return lengths

    async def end(self, ctx, side, breaks):
        """Lets a channel end when nothing of it is under way any more."""
        self.breaks[side] = breaks
        busy = self.h2c.pending if side == "h2c" else self.c2h.claims
        for _ in range(5_000):
            if not busy:
                break
            await self.step(ctx)
        assert not busy, f"{side} cannot end"
        await self.step(ctx)
        self.breaks[side] = self.running[side] = False
        await self.step(ctx)

    def forget(self):
        """Begins the comparison anew."""
        self.h2c.sent.clear()
        self.c2h.found.clear()

    def flushed(self, ctx):
        """The pair was flushed: the rings are empty, wherever they go on."""
        self.forget()
        self.h2c.reserved = ctx.get(self.dut.h2c.reservation.place.as_value()) - RING_PLACE
        self.c2h.claimed = 0


@each_way
@pytest.mark.parametrize(("number", "width"), [(0, 64), (3, 64), (3, 128), (3, 256)])
def test_copies(number, width, user):
    """Lists that are divided differently, one copy after the other, all through the same rings."""
    bench = Bench(seeded(), user, number, width)
    base = RING_PLACE + number * PAIR_PLACE

    async def run(ctx):
        assert ctx.get(bench.dut.c2h.reservation.place.as_value()) == base
        for _ in range(6):
            total = bench.rng.choice([1, 5, 8, 127, 128, bench.rng.randint(1, 4000)])
            await bench.copy(ctx, bench.lengths(total), bench.lengths(total))
            assert bench.ok
            assert bench.c2h.found == bench.h2c.sent
        assert base <= ctx.get(bench.dut.c2h.reservation.place.as_value()) < base + 2 * SIZE

    simulate(bench.dut, run)


@each_way
def test_bytes_left_over_stay_for_the_next_run(user):
    """Stop is no break: what one side had too much of is the first of what comes next."""
    bench = Bench(seeded(), user)

    async def run(ctx):
        for _ in range(6):
            left = len(bench.h2c.sent) - len(bench.c2h.found)
            # What stays has room in the rings; H2C would wait for it.
            total = bench.rng.randint(1, (RINGS[user] * SIZE - left) // 2)
            await bench.copy(ctx, bench.lengths(total), bench.lengths(bench.rng.randint(1, total)))
            await bench.copy(ctx, bench.lengths(200), bench.lengths(left + 100))
            assert bench.c2h.found == bench.h2c.sent[: len(bench.c2h.found)]
        await bench.copy(ctx, [], bench.lengths(len(bench.h2c.sent) - len(bench.c2h.found)))
        assert bench.c2h.found == bench.h2c.sent

    simulate(bench.dut, run)


@each_way
@pytest.mark.parametrize("first", ["h2c", "c2h", "both"])
def test_after_a_break_the_next_copy_is_clean(first, user):
    """Either side breaks anywhere in a copy, and the other stops or breaks later, or never ran."""
    bench = Bench(seeded(), user)
    rng = bench.rng

    async def run(ctx):
        for _ in range(5):
            bench.forget()
            bench.running.update(h2c=True, c2h=True)
            for _ in range(rng.randint(1, 400)):
                await bench.step(ctx, rng.choice([0, 0, 8, 300]), rng.choice([0, 128, 77]))
            sides = ["h2c", "c2h"]
            if first == "both":
                bench.breaks.update(h2c=True, c2h=True)
                await bench.step(ctx)
                assert not bench.ok, "a run could start as the channels end"
            elif first == "c2h":
                sides.reverse()
            await bench.end(ctx, sides[0], True)
            assert not bench.ok
            # The other one does not know yet: it reads on, or takes what is left.
            for _ in range(rng.randint(0, 200)):
                await bench.step(ctx, 300 * (sides[1] == "h2c"), 50 * (sides[1] == "c2h"))
                assert not bench.ok
            await bench.end(ctx, sides[1], rng.random() < 0.5 or first == "both")
            await bench.step(ctx)
            assert bench.ok
            bench.flushed(ctx)
            total = rng.randint(1, 2000)
            await bench.copy(ctx, bench.lengths(total), bench.lengths(total))
            assert bench.c2h.found == bench.h2c.sent

    simulate(bench.dut, run, cycles=200_000)


@each_way
def test_what_c2h_still_gets_of_a_broken_copy_is_its_beginning(user):
    """H2C has filled all there is when it breaks, and then C2H begins to take."""
    bench = Bench(seeded(), user)

    async def run(ctx):
        bench.running.update(h2c=True, c2h=True)
        for _ in range(1500):
            await bench.step(ctx, 100, 0)
        assert len(bench.h2c.sent) > RINGS[user] * SIZE - 200
        await bench.end(ctx, "h2c", True)
        for _ in range(1500):
            await bench.step(ctx, 0, 40)
        assert len(bench.c2h.found) > len(bench.h2c.sent) - 40
        assert bench.c2h.found == bench.h2c.sent[: len(bench.c2h.found)]

    simulate(bench.dut, run)


@each_way
def test_reads_of_a_broken_pair_find_room(user):
    """H2C goes on as if nothing had happened, though nobody takes its bytes any more."""
    bench = Bench(seeded(), user)

    async def run(ctx):
        bench.running.update(h2c=True, c2h=True)
        for _ in range(1500):
            await bench.step(ctx, 100, 0)
        full = len(bench.h2c.sent)
        await bench.end(ctx, "c2h", True)
        for _ in range(3000):
            await bench.step(ctx, 100, 0)
            if len(bench.h2c.sent) > full + 2 * SIZE:
                break
        else:
            raise AssertionError(f"{len(bench.h2c.sent) - full} bytes are read in 3000 cycles")

    simulate(bench.dut, run)


@each_way
def test_the_flush_takes_a_cycle(user):
    """From the first cycle of `breaks` no run starts; one can in the cycle of the flush."""
    bench = Bench(seeded(), user)

    async def run(ctx):
        seen = []
        bench.running["c2h"] = True
        for breaks, running in [(0, 1), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0)]:
            bench.breaks["c2h"], bench.running["c2h"] = bool(breaks), bool(running)
            await bench.step(ctx)
            seen.append(bench.ok)
        assert seen == [1, 0, 0, 1, 1, 1]

    simulate(bench.dut, run)


@each_way
@pytest.mark.parametrize("failed", ["h2c", "c2h"])
def test_the_other_half_of_a_copy_that_has_failed_is_dropped(failed, user):
    """Until software has seen the failure it may start it: it runs, in vain, and holds nothing up.

    If it is still at work then, the side that failed waits for its end.
    """
    bench = Bench(seeded(), user)
    other = "c2h" if failed == "h2c" else "h2c"

    async def run(ctx):
        for late in (False, True):
            bench.forget()
            bench.running.update(h2c=True, c2h=True)
            for _ in range(100):
                await bench.step(ctx, 100, 0)
            for side in (other, failed):
                await bench.end(ctx, side, side == failed)
            # Over, but software has not seen it.
            bench.breaks[failed] = True
            for _ in range(3):
                await bench.step(ctx)
                assert bench.ok
            bench.flushed(ctx)
            bench.running[other] = True
            for _ in range(200):
                did = await bench.step(ctx, 100 * (other == "h2c"), 100 * (other == "c2h"))
                assert not did[1], "bytes of a copy that has failed"
                assert not bench.ok
            if late:
                bench.breaks[failed] = False
                for _ in range(20):
                    await bench.step(ctx)
                    assert not bench.ok
            await bench.end(ctx, other, False)
            bench.breaks[failed] = False
            await bench.step(ctx)
            assert bench.ok
            bench.flushed(ctx)
            await bench.copy(ctx, bench.lengths(700), bench.lengths(700))
            assert bench.c2h.found == bench.h2c.sent

    simulate(bench.dut, run, cycles=200_000)


@each_way
def test_nothing_behind_a_failed_read_is_delivered(user):
    """Of a copy with a hole only the bytes before it come out, whatever is told of later reads."""
    bench = Bench(seeded(), user)

    async def run(ctx):
        for _ in range(5):
            bench.running.update(h2c=True, c2h=True)
            start = bench.rng.randrange(8)
            await bench.copy(ctx, [start] * bool(start), [start] * bool(start))
            bench.forget()
            bench.running.update(h2c=True, c2h=True)
            base = RING_PLACE + bench.h2c.reserved
            for length in (100, 200, 300):
                assert (await bench.step(ctx, length, 1, mark=0))[0]
                await bench.step(ctx, 0, 1, mark=0)
            while any(words for _, words, _ in bench.h2c.pending):
                await bench.step(ctx, 0, 1, mark=0)
            # The first read is fine, the second fails half way, the others are fine again.
            for reached in (100, 180):
                await bench.step(ctx, 0, 1, mark=base + reached)
            ctx.set(bench.dut.h2c.failed, 1)
            await bench.step(ctx, 0, 1, mark=base + 180)
            ctx.set(bench.dut.h2c.failed, 0)
            for reached in (300, 500, 600):
                await bench.step(ctx, 0, 1, mark=base + reached)
            bench.h2c.pending.clear()
            for _ in range(1000):
                await bench.step(ctx, 0, 1)
            assert bench.c2h.found == bench.h2c.sent[:180]
            await bench.end(ctx, "h2c", True)
            await bench.end(ctx, "c2h", True)
            bench.flushed(ctx)
            # A read of card RAM that failed is nothing to the stream.
            bench.running["h2c"] = True
            ctx.set(bench.dut.h2c.failed, 1)
            await bench.step(ctx)
            ctx.set(bench.dut.h2c.failed, 0)
            await bench.end(ctx, "h2c", False)
            await bench.copy(ctx, [64], [64])
            assert bench.c2h.found == bench.h2c.sent

    simulate(bench.dut, run)


class OneBehind(UserBlock):
    """Holds a beat back until the next one comes."""

    def elaborate(self, platform):
        m = Module()
        holding = Signal()
        m.d.comb += [self.o.valid.eq(self.i.valid & holding), self.i.ready.eq(self.o.ready)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [holding.eq(1), self.o.payload.eq(self.i.payload)]
        return m


def test_the_flush_resets_the_user_block():
    """What a block holds of a broken copy is not in the next one."""
    bench = Bench(seeded(), OneBehind)

    async def run(ctx):
        for _ in range(3):
            bench.forget()
            await bench.copy(ctx, [64, 8], [64])
            assert bench.c2h.found == bench.h2c.sent[:64]
            bench.running["c2h"] = True
            await bench.end(ctx, "c2h", True)
            bench.flushed(ctx)

    simulate(bench.dut, run)


@each_way
def test_software_can_ask_for_a_flush(user):
    """Bytes left over after Stop go; with a channel running, the flush waits for its end.

    A run can start in the cycle of the flush.
    """
    bench = Bench(seeded(), user)

    async def run(ctx):
        for busy in (False, True):
            await bench.copy(ctx, [100], [77])
            bench.running["c2h"] = busy
            ctx.set(bench.dut.flush, 1)
            await bench.step(ctx)
            ctx.set(bench.dut.flush, 0)
            if busy:
                for _ in range(5):
                    assert not bench.ok
                    await bench.step(ctx)
                bench.running["c2h"] = False
                await bench.step(ctx)
            assert bench.ok
            bench.flushed(ctx)
            await bench.copy(ctx, [50], [50])
            assert bench.c2h.found == bench.h2c.sent
            bench.forget()

    simulate(bench.dut, run)


async def access(ctx, bus, name, value=None):
    """Writes a register of pair 1's pattern source, or reads it."""
    offset = regs.PATTERN_SOURCE.address(name, 1)
    lane = offset >> 2 & 1
    half = bus.read if value is None else bus.write
    ctx.set(half.valid, 1)
    ctx.set(half.bar, regs.BAR_USER[0])
    ctx.set(half.address, offset >> 3)
    ctx.set(half.enable, 0xF << 4 * lane)
    if value is not None:
        ctx.set(bus.write.data, value << 32 * lane)
    await ctx.tick()
    ctx.set(half.valid, 0)
    return ctx.get(bus.read.data) >> 32 * lane & 0xFFFF_FFFF


def test_a_source_has_registers_and_survives_a_flush():
    """After a flush it begins with its first frame again, as its settings are kept."""
    bench = Bench(seeded(), PatternSource, 1)
    expected = np.concatenate([pattern.words(seed, 0, 10) for seed in (7, 8)]).tobytes()

    async def run(ctx):
        bus = bench.dut.bus
        await access(ctx, bus, "seed", 7)
        await access(ctx, bus, "frame_words", 10)
        assert await access(ctx, bus, "seed") == 7
        for _ in range(2):
            await bench.copy(ctx, [], [33, 1, 46])
            assert bench.c2h.found == expected
            # It goes on until the ring is full.
            await ctx.tick().repeat(800)
            assert await access(ctx, bus, "frames") > 20
            assert await access(ctx, bus, "dropped") == 0
            bench.running["c2h"] = True
            await bench.step(ctx)
            assert ctx.get(bench.dut.active)
            await bench.end(ctx, "c2h", True)
            assert not ctx.get(bench.dut.active)
            bench.flushed(ctx)
        assert await access(ctx, bus, "frame_words") == 10

    simulate(bench.dut, run)


@pytest.mark.parametrize(("recorded", "width"), [(True, 64), (True, 128), (True, 256), (False, 64)])
def test_frames_of_a_source_have_records_if_software_and_the_build_want_them(recorded, width):
    """One behind each frame, and none of the frame that a break cuts off. Then they begin anew."""
    bench = Bench(seeded(), PatternSource, 1, width, recorded=recorded)
    frames = [pattern.words(seed, 0, 10).tobytes() for seed in (7, 8)]
    size = regs.FRAME_RECORD.itemsize * recorded

    async def run(ctx):
        if recorded:
            ctx.set(bench.dut.records, 1)
            ctx.set(bench.dut.cycles, 0x1234_5678_9ABC)
        for name, value in (("seed", 7), ("frame_words", 10)):
            await access(ctx, bench.dut.bus, name, value)
        for _ in range(2):
            # The second frame is cut off before its end.
            await bench.copy(ctx, [], [40] + [size] * recorded + [33])
            found = bytes(bench.c2h.found)
            assert (found[:40], found[40 + size :]) == (frames[0], frames[1][:33])
            for record in np.frombuffer(found[40 : 40 + size], regs.FRAME_RECORD):
                crc = zlib.crc32(frames[0])
                now = 0x1234_5678_9ABC
                assert record.item() == (now, now, 40, 0, crc, regs.FRAME_NUMBER_VALID)
            bench.running["c2h"] = True
            await bench.end(ctx, "c2h", True)
            bench.flushed(ctx)

    simulate(bench.dut, run)


@pytest.mark.parametrize(("user", "ring"), [(Wire, "outbound"), (PassThrough, "inbound")])
def test_positions_of_writes_must_fit_their_addresses(user, ring):
    with pytest.raises(ValueError, match="1 KiB to 32 KiB, not 65536"):
        StreamPair(user, width=64, **{ring: 65536})
