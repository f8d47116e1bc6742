# SPDX-License-Identifier: BSD-2-Clause
"""The test pattern and the checksum: as documented, without periods, different by seed."""

import numpy as np
import pytest

from peerdma.testing import pattern

MASK = 0xFFFF_FFFF


def mix(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ x >> 16


def key(seed: int, high: int) -> int:
    return mix(mix((seed + 0x9E3779B9) & MASK) ^ high)


def word(seed: int, index: int) -> int:
    return mix((mix(index & MASK ^ key(seed, index >> 32)) + seed) & MASK)


@pytest.mark.parametrize("seed", [0, 1, 0xFFFF_FFFF])
@pytest.mark.parametrize("start", [0, 5, (1 << 32) - 3, (1 << 40) + 7])
def test_words_are_what_the_formula_says(seed, start):
    expected = [word(seed, start + i) for i in range(10)]
    assert pattern.words(seed, start, 10).tolist() == expected


def test_no_two_words_are_equal():
    words = pattern.words(1, (1 << 32) - (1 << 20), 1 << 20)
    assert len(np.unique(words)) == 1 << 20


@pytest.mark.parametrize("distance", [1, 64, 1024, 16384, 65536])
def test_moved_data_never_looks_right(distance):
    words = pattern.words(3, 0, 1 << 17)
    assert not (words[distance:] == words[:-distance]).any()


def test_offsets_past_four_gigawords_do_not_alias():
    low, high = pattern.words(1, 0, 1 << 16), pattern.words(1, 1 << 32, 1 << 16)
    assert (low == high).sum() <= 1
    # Not merely in another order within the block.
    assert len(np.intersect1d(low, high)) < 16


def test_seeds_give_unrelated_words():
    words = [pattern.words(seed, 0, 1 << 16) for seed in (0, 1, 2, 1 << 31)]
    for index, one in enumerate(words):
        for other in words[:index]:
            assert (one == other).sum() <= 1
            assert len(np.intersect1d(one, other)) < 16


def test_every_bit_is_set_half_the_time():
    ones = np.unpackbits(pattern.words(7, 0, 1 << 16).view(np.uint8)).mean()
    assert ones == pytest.approx(0.5, abs=0.002)


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_is_32_bits(seed):
    with pytest.raises(ValueError, match="a seed is 0 to 4294967295"):
        pattern.words(seed, 0, 1)


def test_bytes_end_within_a_word():
    whole = pattern.words(1, 100, 3).view(np.uint8)
    for count in range(13):
        assert (pattern.fill_bytes(1, 100, count) == whole[:count]).all()


def test_blocks_cover_everything_once():
    data = np.zeros(3 * (1 << 18) + 5, np.uint8)
    for start, block in pattern.blocks(data):
        block += np.uint8(1 + start % 2)
    assert (data == 1).all()


def test_checksum_is_what_the_formula_says():
    data = np.arange(11, dtype=np.uint8)
    words = np.pad(data, (0, 1)).view("<u4").tolist()
    expected = sum(mix(mix(i ^ key(0, 0)) ^ value) for i, value in enumerate(words))
    assert pattern.checksum(data) == expected % (1 << 64)


def test_checksum_sees_every_change_and_move(seed):
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, 300_001, dtype=np.uint8)
    sums = {pattern.checksum(data)}
    for _ in range(20):
        changed = data.copy()
        changed[random.integers(len(data))] ^= np.uint8(1 << random.integers(8))
        sums.add(pattern.checksum(changed))
    sums.add(pattern.checksum(np.roll(data, 4)))
    assert len(sums) >= 21
    assert pattern.checksum(np.zeros(0, np.uint8)) == 0
