# SPDX-License-Identifier: BSD-2-Clause
"""What goes through the user stream from memory to memory: copies in one pass, and conversions."""

import itertools

import numpy as np
import pytest

import peerdma
from tests.hw.stream.bfloat16 import bfloat16


def surfaces(gpu, *sizes):
    """A surface of pattern, then others of guard bytes, pinned nowhere."""
    made = [gpu.surface(size) for size in sizes]
    made[0].fill(3)
    for surface in made[1:]:
        surface.set(np.uint8(0xA5))
    return made


# Copies --------------------------------------------------------------------------------------


def test_both_ways_copy_alike_and_say_which_they_were(board, without, gpu, seed):
    """Any bytes and any division, on a board with a stream and on one without."""
    random = np.random.default_rng(seed)
    for each, through in ((board, "user stream"), (without, "card RAM")):
        here, there = surfaces(gpu, 200_000, 200_000)
        with each.pin(here) as s, each.pin(there) as d:
            for nbytes in (1, 129, 5000, 140_001):
                start, to = random.integers(0, 50_000, 2).tolist()
                cuts = [0, *np.sort(random.integers(0, nbytes + 1, 9)).tolist(), nbytes]
                pieces = [d[to + a : to + b] for a, b in itertools.pairwise(cuts)]
                transfer = each.copy(s[start : start + nbytes], pieces)
                assert transfer.through == through
                assert f"through the board's {through}, " in str(transfer)
                expected = np.full(200_000, 0xA5, np.uint8)
                expected[to : to + nbytes] = here.get()[start : start + nbytes]
                assert (there.get() == expected).all()
                there.set(np.uint8(0xA5))
        extension = each.info().extension
        assert extension.user_block == ("PASS" if each is board else "")
        assert extension.user_ratio == ((1, 1) if each is board else (0, 0))


def test_a_copy_in_one_pass_is_nearly_twice_as_fast(board, without):
    """On the same link, beside going in and out of card RAM in turn, 64 KiB at a time.

    Asserted is the time of the engine, which is exact: reads and writes that do not overlap. What
    software does between one chunk and the next comes on top, and makes it twice as fast and more.
    """
    nbytes = 1 << 20
    transfers = []
    with peerdma.gpu("emulated", memory="device") as gpu:
        here, there = surfaces(gpu, nbytes, nbytes)
        for each in (board, without):
            with each.pin(here) as s, each.pin(there) as d:
                transfers.append(each.copy(s, d))
            gpu.verify(there, seed=3)
            there.fill(4)
    once, in_turn = transfers
    # The chains in turn are short enough to be pushed: none of the 32 waits for a descriptor first,
    # which would take 161 cycles each, and the factor to 1.885.
    assert 1.865 * once.cycles < in_turn.cycles
    for each in transfers:
        assert each.seconds >= each.cycles / 125e6
    # The first read, and the last write behind it, are all that does not overlap.
    assert once.limit * once.cycles / (125e6 * nbytes) < 1.01


def test_more_descriptors_than_the_ring_has_on_either_side(board, gpu):
    """Each side begins its next list when it needs to; the bytes in the stream wait."""
    here, there = surfaces(gpu, 9000, 9000)
    with board.pin(here) as s, board.pin(there) as d:
        board.copy(s[:5000], [d[i : i + 2] for i in range(0, 5000, 2)])
        assert (there.get()[:5000] == here.get()[:5000]).all()
        board.copy([s[i : i + 2] for i in range(0, 9000, 2)], d)
        assert (there.get() == here.get()).all()


# Conversions ---------------------------------------------------------------------------------


def test_a_user_block_halves_a_surface(converter, gpu, seed):
    random = np.random.default_rng(seed)
    count = 300_001
    with gpu.surface(count, "u4") as floats, gpu.surface(count, "u2") as halves:
        floats.set(random.integers(0, 1 << 32, count, dtype=np.uint32))
        steps = []
        with converter.pin(floats) as s, converter.pin(halves) as d:
            transfer = converter.process(s, d, progress=lambda *step: steps.append(step))
        some = random.choice(count, 2000)
        assert (halves.get()[some] == bfloat16(floats.get()[some])).all()
        assert steps == [(1 << 20, 4 * count), (4 * count, 4 * count)]
    assert (transfer.bytes, transfer.through, transfer.limit) == (4 * count, "user stream", None)
    assert converter.info().extension.user_block == "BF16"


def test_a_copy_never_changes_a_byte(converter, gpu):
    """It goes another way if the user block would."""
    here, there = surfaces(gpu, 5000, 5000)
    with converter.pin(here) as s, converter.pin(there) as d:
        assert converter.copy(s, d).through == "card RAM"
        converter.process(s[:4000], d[:2000])
        converter.copy(s, d)
    assert (there.get() == here.get()).all()


def test_lengths_that_the_user_block_cannot_make(converter, gpu):
    here, there = surfaces(gpu, 4096, 4096)
    with converter.pin(here) as s, converter.pin(there) as d:
        for taken, made in ((4096, 4096), (6, 3), (4096, 2047)):
            with pytest.raises(
                peerdma.TransferError,
                match=rf"process {taken} bytes into {made}: the user block BF16 makes 2 .* each 4",
            ):
                converter.process(s[:taken], d[:made])
        with pytest.raises(peerdma.TransferError, match="overlap"):
            converter.process(s[:8], s[4:8])
        assert converter.process([], []).bytes == 0
    assert (there.get() == 0xA5).all()


def test_after_a_failure_the_next_conversion_is_clean(converter):
    """The source is gone from the board in the middle: half a word may wait in the user block."""
    words = np.arange(2000, dtype="f4")
    result = np.zeros(2000, "u2")
    with (
        peerdma.gpu("emulated") as gpu,
        gpu.surface(8000) as gone,
        converter.pin(gone) as s,
        converter.pin(result) as d,
    ):
        pieces = [s[:1001], s[4000:8000], s[1001:4000]]
        pins = converter._backend._mappings._mapped[id(gone)]
        window = pins.windows[0]
        converter._backend._platform.client.dma_unmap(
            window.base, window.size, skip=window.address - window.base
        )
        with pytest.raises(peerdma.TransferError, match="READ_UNSUPPORTED"):
            converter.process(pieces, d)
        pins.windows.clear()
    with converter.pin(words) as s, converter.pin(result) as d:
        converter.process(s, d)
    assert (result == bfloat16(words.view("u4"))).all()
