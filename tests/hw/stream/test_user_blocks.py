# SPDX-License-Identifier: BSD-2-Clause
"""The user blocks against numpy, for any division of the stream into beats, and their rates."""

import numpy as np
import pytest
from amaranth.lib import wiring

from hw.seam import WIDTHS
from hw.stream.user_blocks import (
    BLOCKS,
    Axis,
    PassThrough,
    PatternSource,
    ToBfloat16,
    UserBlock,
    find,
)
from peerdma import regs
from peerdma.testing import pattern
from tests.hw.helpers import fields, seeded, send, simulate, toggle, watch
from tests.hw.stream.beats import beats_of, joined
from tests.hw.stream.bfloat16 import bfloat16


def through(block, beats, rng, *, ready=1.0, pause=0.0, enough):
    """What comes out of `block`: a `watch` log of at least `enough` bytes."""
    log = []

    async def feed(ctx):
        await send(ctx, block.i, beats, lambda: rng.random() < pause)

    async def finish(ctx):
        while sum(fields(beat)["count"] for _, beat in log) < enough:
            await ctx.tick()
        await ctx.tick().repeat(20)

    stall = toggle(block.o.ready, lambda: rng.random() < ready)
    simulate(block, feed, finish, background=(watch(block.o, log), stall))
    return log


# float32 to bfloat16 -------------------------------------------------------------------------

#: Ties and their neighbours, the largest, infinities, NaNs, subnormal numbers, zeros.
SPECIAL = [
    *(0x3F80_8000 + step for step in (-1, 0, 1)),
    *(0x3F81_8000 + step for step in (-1, 0, 1)),
    *(0x7F7F_7FFF, 0x7F7F_8000, 0x7F7F_FFFF, 0xFF7F_FFFF, 0x7F80_0000, 0xFF80_0000),
    *(0x7F80_0001, 0x7FFF_FFFF, 0xFF80_8000, 0x7FC0_0000, 0xFFA5_5A5A),
    *(0x0000_0001, 0x0000_8000, 0x0000_8001, 0x0001_8000, 0x007F_FFFF, 0x8000_0000, 0),
]


@pytest.mark.parametrize(
    ("width", "sizes"),
    [
        *((64, sizes) for sizes in ([8], [1], [4], [3, 8], range(1, 9))),
        *((width, range(1, width // 8 + 1)) for width in (128, 256)),
        *((width, [width // 8]) for width in (128, 256)),
    ],
    ids=str,
)
def test_bfloat16_rounds_to_nearest_even(width, sizes):
    rng = seeded()
    words = np.array(SPECIAL + [rng.getrandbits(32) for _ in range(200)], "u4")
    rng.shuffle(words)
    data = words.tobytes()
    expected = bfloat16(words).tobytes()
    beats = beats_of(data, rng, sizes, width // 8)
    log = through(ToBfloat16(width), beats, rng, ready=0.7, pause=0.2, enough=len(expected))
    assert joined(log) == expected


def test_bfloat16_reference_agrees_with_known_values():
    known = {0x3F80_8000: 0x3F80, 0x3F81_8000: 0x3F82, 0x7F7F_8000: 0x7F80, 0x7F80_0001: 0x7FC0}
    words = np.array(list(known), "u4")
    assert bfloat16(words).tolist() == list(known.values())


@pytest.mark.parametrize("width", WIDTHS)
def test_bfloat16_takes_a_beat_in_every_cycle(width):
    rng, lanes = seeded(), width // 8
    block = ToBfloat16(width)
    taken = []
    beats = beats_of(rng.randbytes(100 * lanes), rng, [lanes], lanes)
    log = []

    async def feed(ctx):
        await send(ctx, block.i, beats)
        await ctx.tick().repeat(5)

    benches = (watch(block.i, taken), watch(block.o, log), toggle(block.o.ready, lambda: 1))
    simulate(block, feed, background=benches)
    first = taken[0][0]
    assert [cycle for cycle, _ in taken] == list(range(first, first + 100))
    assert [cycle for cycle, _ in log] == list(range(first + 2, first + 102))


def test_bfloat16_begins_a_packet_with_a_whole_word():
    rng = seeded()
    words = np.array([0x3F80_0000, 0x4000_0000], "u4").tobytes()
    beats = [
        {"data": int.from_bytes(words[:4] + b"\xaa\xbb\xcc", "little"), "count": 7, "last": 1},
        {"data": int.from_bytes(words[4:], "little"), "count": 4, "last": 1},
    ]
    log = through(ToBfloat16(64), beats, rng, enough=4)
    assert joined(log) == bytes.fromhex("803f0040")
    assert [fields(beat)["last"] for _, beat in log] == [1, 1]


# Pattern source ------------------------------------------------------------------------------


def frames_of(block, count, *, ready=1.0, rng=None, cycles=None, **settings):
    """Lets a source run: the log of `count` beats, or of `cycles`; and (frames, dropped)."""
    log, counts = [], []

    async def run(ctx):
        for name, value in settings.items():
            ctx.set(getattr(block, name), value)
        if cycles is not None:
            await ctx.tick().repeat(cycles)
        while cycles is None and len(log) < count:
            await ctx.tick()
        counts.extend((ctx.get(block.frames), ctx.get(block.dropped)))

    stall = toggle(block.o.ready, lambda: ready == 1.0 or rng.random() < ready)
    simulate(block, run, background=(watch(block.o, log), stall))
    return log, counts


@pytest.mark.parametrize("ready", [1.0, 0.3])
@pytest.mark.parametrize("words", [1, 2, 7, 100])
@pytest.mark.parametrize("width", WIDTHS)
def test_frames_are_what_a_gpu_verifies(width, words, ready):
    rng = seeded()
    seed = rng.choice([0, 1, rng.getrandbits(32), (1 << 32) - 2])
    # Words of a beat, beats of a frame.
    full = width // 64
    beats = -(-words // full)
    log, _ = frames_of(
        PatternSource(width), 4 * beats, ready=ready, rng=rng, frame_words=words, seed=seed
    )
    data = joined(log[: 4 * beats])
    for number in range(4):
        frame = np.frombuffer(data[4 * words * number : 4 * words * (number + 1)], "u4")
        expected = pattern.words((seed + number) % (1 << 32), 0, words)
        assert (frame == expected).all(), f"frame {number}"
    ends = [index for index, (_, beat) in enumerate(log) if beat.last]
    assert ends == list(range(beats - 1, len(log), beats))
    counts = [4 * full] * (beats - 1) + [4 * (words - full * (beats - 1))]
    assert [beat.count for _, beat in log[: 4 * beats]] == 4 * counts


@pytest.mark.parametrize("width", WIDTHS)
def test_a_beat_in_every_cycle(width):
    # Of the last beat one word at least.
    log, _ = frames_of(PatternSource(width), 150, frame_words=49 * width // 64 + 1)
    cycles = [cycle for cycle, _ in log]
    for frame in range(3):
        start = cycles[50 * frame]
        assert cycles[50 * frame : 50 * frame + 50] == list(range(start, start + 50))
    assert cycles[50] - cycles[49] == cycles[100] - cycles[99] == 13


def test_a_sensor_does_not_wait():
    """A frame every 100 cycles, whether the one before has left or not."""
    log, counts = frames_of(PatternSource(64), 0, cycles=1001, frame_words=20, interval=100)
    starts = [cycle for (cycle, _) in log[::20]]
    assert starts == list(range(starts[0], starts[0] + 1000, 100))
    assert counts == [11, 0]
    # Frames that take 162 cycles: every other one is dropped.
    log, counts = frames_of(PatternSource(64), 0, cycles=1001, frame_words=150, interval=100)
    starts = [cycle for (cycle, _) in log[::150]]
    assert starts == list(range(starts[0], starts[0] + 1000, 200))
    assert counts == [6, 5]
    # Without room it is only the first one that begins.
    rng = seeded()
    log, counts = frames_of(
        PatternSource(64), 0, ready=0.0, rng=rng, cycles=1001, frame_words=20, interval=100
    )
    assert (log, counts) == ([], [1, 10])


def test_off_means_no_frames():
    log, counts = frames_of(PatternSource(64), 0, cycles=300, frame_words=0, interval=10)
    assert (log, counts) == ([], [0, 0])


def test_a_source_drops_what_it_gets():
    block = PatternSource(64)

    async def run(ctx):
        assert ctx.get(block.i.ready)

    simulate(block, run)


# The contract --------------------------------------------------------------------------------


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_blocks_say_what_they_are(block):
    assert regs.four_characters(block.NAME) > 0
    assert all(0 <= number <= 255 for number in block.RATIO)
    for register in block.REGISTERS.registers if block.REGISTERS else ():
        flow = {regs.Access.RW: wiring.In(32), regs.Access.RO: wiring.Out(32)}[register.access]
        assert block(64).signature.members[register.name] == flow


def test_names_of_blocks_are_their_own():
    assert len({block.NAME for block in BLOCKS.values()}) == len(BLOCKS)


def test_find(tmp_path, monkeypatch):
    assert find("none") is None
    assert find("bfloat16") is ToBfloat16
    (tmp_path / "my_block.py").write_text(
        "from hw.stream.user_blocks import PassThrough\n"
        "class Mine(PassThrough):\n    NAME = 'MINE'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = find("my_block:Mine")
    assert issubclass(mine, UserBlock) and mine.NAME == "MINE" and mine is not PassThrough


def test_find_takes_a_file_of_verilog(tmp_path):
    """Its module has the file's name, whatever else is in it."""
    path = tmp_path / "mine.v"
    path.write_text("// module mine\nmodule other(); endmodule\n")
    with pytest.raises(
        ValueError, match=r"mine\.v has no module mine: name the module as its file"
    ):
        find(str(path))
    path.write_text("module other(); endmodule\nmodule mine (input clk);\nendmodule\n")
    mine = find(str(path))
    assert issubclass(mine, Axis)
    assert (mine.__name__, mine.MODULE, mine.VERILOG) == ("mine", "mine", path)
    assert (mine.NAME, mine.RATIO) == ("AXIS", (1, 1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nonsense", "no user block 'nonsense'; there are pass, bfloat16, pattern, axis, none"),
        ("no_such_module:X", "No module named 'no_such_module'. Is its folder in PYTHONPATH"),
        ("hw.stream.user_blocks:Nope", "no attribute 'Nope'"),
        ("gone.v", r"cannot read the user block /.*/gone\.v: .*No such file"),
        ("hw.core:Core", "derive it from hw.stream.user_blocks.UserBlock"),
    ],
)
def test_find_says_what_is_wrong(name, message):
    with pytest.raises(ValueError, match=message):
        find(name)
