# SPDX-License-Identifier: BSD-2-Clause
"""Records behind frames, for any lengths, beats and stalls."""

import zlib

import numpy as np
import pytest

from hw.seam import WIDTHS
from hw.stream.frames import FrameRecorder
from peerdma import regs
from tests.hw.helpers import fields, seeded, send, simulate, toggle, watch
from tests.hw.stream.beats import beats_of, joined

SIZE = regs.FRAME_RECORD.itemsize
#: Bytes of a full beat, and bits of a beat.
BEATS = [(4, 64), (8, 64), (16, 128), (16, 256)]


class Bench:
    """A recorder with the frames that go in, the beats that come out, and what they came with."""

    def __init__(self, lanes, rng, *, width=64, ready=0.7, pause=0.2, sizes=None):
        self.dut = FrameRecorder(lanes, width=width)
        self.width = width
        self.rng, self.ready, self.pause = rng, ready, pause
        self.sizes = sizes or [lanes]
        self.log, self.offered = [], []
        self.start = rng.choice([0, (1 << 32) - 100, rng.getrandbits(63)])

    async def feed(self, ctx, frames, enabled=None):
        """Offers frames, and sets `enable` for each; by default it is on."""
        for number, frame in enumerate(frames):
            ctx.set(self.dut.enable, enabled[number] if enabled else 1)
            beats = beats_of(frame, self.rng, self.sizes, self.width // 8)
            beats[-1]["last"] = 1
            await send(ctx, self.dut.i, beats, lambda: self.rng.random() < self.pause)

    async def clock(self, ctx):
        """Lets time pass, and notes when the first beat of a frame is offered."""
        first, dut, now = True, self.dut, self.start
        while True:
            ctx.set(dut.cycles, now)
            ctx.set(dut.dropped, now & 0xFFFF)
            _, _, valid, taken, last = await ctx.tick().sample(
                dut.i.valid, dut.i.ready, dut.i.payload.last
            )
            if first and valid:
                self.offered.append(now)
                first = False
            if valid and taken and last:
                first = True
            now += 1

    def run(self, frames, enabled=None):
        """The bytes that come out for frames of which some have records."""
        expected = sum(map(len, frames)) + SIZE * (sum(enabled) if enabled else len(frames))

        async def bench(ctx):
            await self.feed(ctx, frames, enabled)
            while sum(fields(beat)["count"] for _, beat in self.log) < expected:
                await ctx.tick()
            await ctx.tick().repeat(20)

        stall = toggle(self.dut.o.ready, lambda: self.rng.random() < self.ready)
        simulate(self.dut, bench, background=(self.clock, watch(self.dut.o, self.log), stall))
        return joined(self.log)


def taken_apart(data, frames, enabled=None):
    """Checks that `data` is the frames, each with its record if enabled: the records, numbered."""
    records = {}
    for number, frame in enumerate(frames):
        assert data[: len(frame)] == frame, f"frame {number}"
        data = data[len(frame) :]
        if enabled is None or enabled[number]:
            records[number] = np.frombuffer(data[:SIZE], regs.FRAME_RECORD)[0]
            data = data[SIZE:]
    assert not data
    return records


@pytest.mark.parametrize(("lanes", "width"), BEATS)
@pytest.mark.parametrize("short", [False, True], ids=["full", "short"])
def test_each_frame_has_its_record(lanes, width, short):
    """Exactly: the time of its first beat, but not before the record ahead of it had left; and what
    was dropped when it was sent."""
    rng = seeded()
    frames = [rng.randbytes(rng.choice([1, 64, rng.randint(1, 100)])) for _ in range(15)]
    sizes = range(1, lanes + 1) if short else [lanes]
    bench = Bench(lanes, rng, width=width, sizes=sizes)
    #: beats of a record, and the one with `dropped`
    words, word = {64: (4, 2), 128: (2, 1), 256: (1, 0)}[width]
    records = taken_apart(bench.run(frames), frames)
    begin, beats = bench.start, 0
    for number, (frame, record) in enumerate(zip(frames, records.values(), strict=True)):
        assert record["number"] == regs.FRAME_NUMBER_VALID | number
        assert record["bytes"] == len(frame)
        assert record["crc"] == zlib.crc32(frame)
        assert record["cycles"] == max(begin, bench.offered[number])
        while not bench.log[beats][1].last:
            beats += 1
        times = [bench.start + cycle for cycle, _ in bench.log[beats + 1 : beats + 1 + words]]
        assert record["dropped"] == times[word] & 0xFFFF
        begin, beats = times[-1] + 1, beats + 1 + words


def test_only_frames_that_end_while_enabled_have_records():
    """Their numbers count all frames."""
    rng = seeded()
    frames = [rng.randbytes(8 * rng.randint(1, 9)) for _ in range(12)]
    enabled = [rng.random() < 0.5 for _ in frames]
    records = taken_apart(Bench(8, rng).run(frames, enabled), frames, enabled)
    for number, record in records.items():
        assert record["number"] == regs.FRAME_NUMBER_VALID | number
        assert record["bytes"] == len(frames[number])
        assert record["crc"] == zlib.crc32(frames[number])


@pytest.mark.parametrize("width", WIDTHS)
def test_frames_of_64_bytes_one_behind_the_other(width):
    """Nothing is lost, and a record takes as many cycles as it has words."""
    rng = seeded()
    frames = [rng.randbytes(64) for _ in range(20)]
    lanes = width // 8
    bench = Bench(lanes, rng, width=width, ready=1.0, pause=0.0)
    taken_apart(bench.run(frames), frames)
    cycles = [cycle for cycle, _ in bench.log]
    assert cycles == list(range(cycles[0], cycles[0] + 20 * (64 + SIZE) // lanes))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_last_beat_of_a_record_is_the_last_of_its_packet(width):
    rng, lanes = seeded(), width // 8
    frames = [rng.randbytes(3 * lanes) for _ in range(4)]
    bench = Bench(lanes, rng, width=width)
    bench.run(frames)
    both = 3 + SIZE // lanes
    assert [index for index, (_, beat) in enumerate(bench.log) if beat.last] == [
        index for n in range(4) for index in (both * n + 2, both * n + both - 1)
    ]
