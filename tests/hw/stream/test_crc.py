# SPDX-License-Identifier: BSD-2-Clause
"""The CRC of a stream against zlib's."""

import zlib

import pytest

from hw.stream.crc import Crc32
from tests.hw.helpers import fields, seeded, send, simulate, toggle, watch
from tests.hw.stream.beats import beats_of, joined

#: Bytes of a full beat, and bits of a beat.
BEATS = [(4, 64), (8, 64), (16, 128), (32, 256)]
beats = pytest.mark.parametrize(("lanes", "width"), BEATS)


def bench(lanes, width, frames, sizes, rng, *, ready, pause):
    """The CRC behind each of `frames`, and the `watch` log of what passed."""
    dut = Crc32(lanes, width=width)
    found, log = [], []

    async def feed(ctx):
        ctx.set(dut.enable, 1)
        for data in frames:
            beats = beats_of(data, rng, sizes, width // 8)
            await send(ctx, dut.i, beats, lambda: rng.random() < pause)
            found.append(ctx.get(dut.value))
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)

    stall = toggle(dut.o.ready, lambda: rng.random() < ready)
    simulate(dut, feed, background=(watch(dut.o, log), stall))
    return found, log


@beats
@pytest.mark.parametrize("short", [False, True], ids=["full", "short"])
def test_it_is_that_of_zlib(lanes, width, short):
    """Frames of any length: full beats but for the last, or beats of any size throughout."""
    rng = seeded()
    sizes = range(1, lanes + 1) if short else [lanes]
    frames = [rng.randbytes(rng.choice([1, lanes, rng.randint(1, 100)])) for _ in range(10)]
    # Of the widest beats, only how many bytes the last one has: it takes as long as four others.
    begin, end = (1, 3 * lanes) if lanes <= 8 else (lanes, 2 * lanes)
    frames += [rng.randbytes(count) for count in range(begin, end)]
    found, log = bench(lanes, width, frames, sizes, rng, ready=0.6, pause=0.3)
    assert found == [zlib.crc32(data) for data in frames]
    assert joined(log) == b"".join(frames)


@beats
def test_full_beats_pass_in_every_cycle_and_short_ones_take_time_by_the_byte(lanes, width):
    rng, each = seeded(), {4: 8, 8: 8, 16: 4, 32: 2}[lanes]
    rests = (1, 3, lanes - 1)
    frames = [rng.randbytes(20 * lanes + rest) for rest in rests]
    _, log = bench(lanes, width, frames, [lanes], rng, ready=1, pause=0)
    for number, rest in enumerate(rests):
        cycles = [cycle for cycle, _ in log[21 * number :][:21]]
        assert [cycle - cycles[0] for cycle in cycles] == [*range(20), 20 + rest * each]


def test_short_beats_pass_at_once_while_it_is_off():
    """Then it begins anew."""
    rng, dut, log = seeded(), Crc32(8, width=64), []
    data = rng.randbytes(40)

    async def feed(ctx):
        await send(ctx, dut.i, beats_of(data, rng, range(1, 9)))
        ctx.set(dut.enable, 1)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        await send(ctx, dut.i, beats_of(data, rng, range(1, 9)))
        assert ctx.get(dut.value) == zlib.crc32(data)

    simulate(dut, feed, background=(watch(dut.o, log), toggle(dut.o.ready, lambda: 1)))
    assert joined(log) == 2 * data
    off = next(n for n in range(len(log)) if joined(log[:n]) == data)
    cycles = [cycle for cycle, _ in log[:off]]
    assert cycles == list(range(cycles[0], cycles[0] + off))


def test_nothing_has_no_crc():
    dut = Crc32(8, width=64)

    async def run(ctx):
        assert ctx.get(dut.value) == zlib.crc32(b"")
        ctx.set(dut.i.payload, {"data": 7, "count": 8})
        await ctx.tick().repeat(3)
        assert ctx.get(dut.value) == zlib.crc32(b"")

    simulate(dut, run)


def test_beats_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="4, 8, 16 or 32 bytes, not 12"):
        Crc32(12, width=128)


def test_what_comes_beside_the_bytes_passes():
    """`last`, and the lanes that do not count."""
    dut, log = Crc32(8, width=64), []
    beats = [{"data": 0x1122_3344_5566_7788, "count": 3, "last": 1}]

    async def feed(ctx):
        await send(ctx, dut.i, beats)

    simulate(dut, feed, background=(watch(dut.o, log), toggle(dut.o.ready, lambda: 1)))
    assert [fields(beat) for _, beat in log] == beats
