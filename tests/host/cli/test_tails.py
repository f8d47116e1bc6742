# SPDX-License-Identifier: BSD-2-Clause
"""Percentiles by nearest rank, and threads that keep a board busy."""

import threading

import pytest

from peerdma.cli.tails import keep_busy, tails


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([5], (5, None, None, 5)),
        ([3, 1, 2], (2, None, None, 3)),
        ([4, 1, 3, 2], (2, None, None, 4)),
        (range(1, 100), (50, None, None, 99)),
        (range(1, 101), (50, 99, None, 100)),
        (range(101, 0, -1), (51, 100, None, 101)),
        (range(1, 1000), (500, 990, None, 999)),
        (range(1, 1001), (500, 990, 999, 1000)),
        (range(1, 100_001), (50_000, 99_000, 99_900, 100_000)),
        # One of a thousand is beyond the last percentile, two are not.
        ([1] * 999 + [9], (1, 1, 1, 9)),
        ([1] * 998 + [9] * 2, (1, 1, 9, 9)),
    ],
)
def test_percentiles_are_samples(samples, expected):
    assert tuple(tails(samples).values()) == expected


def test_a_busy_board_is_busy_from_the_start_to_the_end():
    made = []
    with keep_busy(lambda: made.append(threading.get_ident())):
        assert len(set(made)) == 2
        count = len(made)
        while len(made) < count + 100:
            pass
    count = len(made)
    assert not [each for each in threading.enumerate() if each.ident in made]
    assert len(made) == count


@pytest.mark.parametrize("good", [0, 5])
def test_an_error_of_the_load_is_not_lost(good):
    left = threading.Semaphore(good)

    def transfer():
        if not left.acquire(blocking=False):
            raise OSError("no board")

    with pytest.raises(OSError, match="no board"), keep_busy(transfer):
        pass


def test_an_error_of_the_block_ends_the_load():
    threads = threading.active_count()
    with pytest.raises(KeyError), keep_busy(lambda: None):
        raise KeyError
    assert threading.active_count() == threads
