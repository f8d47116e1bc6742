# SPDX-License-Identifier: BSD-2-Clause
"""Copies of a launch queue overlap where none reads what another one writes, and only there."""

import os

import numpy as np
import pytest

import peerdma
from tests.host.board.launch_helpers import LAUNCHING, controls

#: Copies begin before small ones ahead of them have written anything.
SIZES = (1, 64, 300, 1024, 4096)


@pytest.fixture(scope="module")
def board():
    with peerdma.open("sim", arguments=LAUNCHING) as board:
        yield board


def each(source: str, destination: str) -> list[tuple[slice, slice]]:
    """Plans of a table: the bytes of each, as "0-8 8-16"."""
    sides = ([_bytes(part) for part in side.split()] for side in (source, destination))
    return list(zip(*sides, strict=True))


def _bytes(text: str) -> slice:
    start, stop = text.split("-")
    return slice(int(start), int(stop))


@pytest.mark.parametrize(
    ("sources", "destinations", "expected"),
    [
        ("0-8", "8-16", [1]),
        ("0-8 16-24", "8-16 24-32", [1, 1]),
        # They read the same bytes, and write the same ones.
        ("0-8 4-12", "16-24 20-28", [1, 1]),
        # The second one reads what the first one writes, by a byte; the third one does neither.
        ("0-8 15-23 40-48", "8-16 24-32 48-56", [0, 0, 1]),
        ("0-8 16-24 40-48", "8-16 24-32 48-56", [1, 1, 1]),
        # The first one reads what the second one writes.
        ("0-8 40-48", "8-16 7-15", [0, 0]),
        # There and back, which one of three has no share in.
        ("0-8 40-48 8-16", "8-16 48-56 0-8", [0, 1, 0]),
        # One that is in conflict with two, of which each could overlap with the other.
        ("0-8 8-16 8-16", "8-16 16-24 24-32", [0, 0, 0]),
    ],
)
def test_which_copies_may_overlap(board, monkeypatch, sources, destinations, expected):
    """By bytes, of any of its copies; other plans do not matter, as they wait for copies."""
    memory = np.zeros(64, "u1")
    with board.pin(memory) as pin:
        plans = [board.prepare(pin[a], pin[b]) for a, b in each(sources, destinations)]
        assert controls(board, monkeypatch, plans, "overlap") == [(bit,) for bit in expected]
        others = [board.prepare_write(pin, 0), board.prepare_read(pin, 0)]
        found = controls(board, monkeypatch, [*others, *plans], "pair", "overlap")
        assert found == [(0, 0), (0, 1), *((1, bit) for bit in expected)]


def test_plans_of_several_pieces_and_the_same_one_twice(board, monkeypatch):
    memory = np.zeros(64, "u1")
    with board.pin(memory) as pin, board.pin(np.zeros(64, "u1")) as other:
        plan = board.prepare([pin[:4], pin[20:24]], [other[:6], other[30:32], other[9:9]])
        again = board.prepare(other[6:14], pin[4:12])
        back = board.prepare(other[31:32], pin[60:61])
        for plans, expected in (
            ([plan, plan, again], [1, 1, 1]),
            ([plan, again, back], [0, 1, 0]),
        ):
            found = controls(board, monkeypatch, plans, "overlap")
            assert found == [(bit,) for bit in expected]


def test_memory_without_an_address_of_its_own_never_overlaps(board, monkeypatch):
    """Its bytes may have an address besides, by which another plan has them."""
    files = [os.memfd_create("another driver's") for _ in range(2)]
    for fd in files:
        os.ftruncate(fd, 4096)
    with peerdma.DmaBuf(files[0]) as source, peerdma.DmaBuf(files[1]) as destination:
        plans = [
            board.prepare(np.zeros(4096, "u1"), destination),
            board.prepare(source, np.zeros(4096, "u1")),
            board.prepare(np.zeros(64, "u1"), np.zeros(64, "u1")),
        ]
        assert controls(board, monkeypatch, plans, "overlap") == [(0,), (0,), (1,)]
        del plans
    for fd in files:
        os.close(fd)


def filled(count: int, size: int, seed: int) -> list[np.ndarray]:
    """Arrays of random bytes."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, size, "u1") for _ in range(count)]


@pytest.mark.parametrize("size", SIZES)
def test_copies_that_overlap_have_the_right_bytes(board, monkeypatch, size, seed):
    """Many at once, of the same length and of others, to places of their own and to the same."""
    sources = filled(6, size, seed)
    there = [np.zeros(size, "u1") for _ in range(5)]
    # The last two write the same bytes, in order.
    pairs = list(zip(sources, [*there, there[4]], strict=True))
    plans = [board.prepare(*pair) for pair in pairs]
    plans.append(board.prepare(sources[0][: size // 2 + 1], np.zeros(size // 2 + 1, "u1")))
    assert controls(board, monkeypatch, plans, "overlap") == [(1,)] * len(plans)
    order = [0, 1, 2, 3, 6, 4, 5, 3, 2, 6, 1, 0, 4, 5]
    with board.queue(plans) as queue:
        for turn in range(4):
            for array, data in zip(sources, filled(6, size, seed + 1 + turn), strict=True):
                array[:] = data
            for index in order:
                ticket = queue.submit(index)
            queue.wait(ticket)
            assert all((there[n] == sources[n]).all() for n in range(4))
            assert (there[4] == sources[5]).all()


@pytest.mark.parametrize("memory", ["host", "device"])
@pytest.mark.parametrize("size", SIZES)
def test_a_copy_of_what_another_one_writes_is_of_the_new_bytes(
    board, monkeypatch, size, memory, seed
):
    """A chain of copies in one go, between others that may overlap: none begins too early."""
    with peerdma.gpu("emulated", memory=memory) as gpu:
        chain, apart = ([gpu.surface(size) for _ in range(13)] for _ in range(2))
        links = list(map(board.prepare, chain, chain[1:]))
        others = list(map(board.prepare, apart[::2], apart[1::2]))
        plans = [*links, *others]
        found = controls(board, monkeypatch, plans, "overlap")
        assert found == [(0,)] * len(links) + [(1,)] * len(others)
        # Behind each link another link, one of the others, or two.
        order = [0, 1, 2, 12, 3, 13, 14, 4, 5, 15, 16, 6, 17, 7, 8, 12, 9, 10, 11]
        with board.queue(plans) as queue:
            for turn in range(4):
                for surfaces in (chain, apart):
                    for surface, data in zip(surfaces, filled(13, size, seed + turn), strict=True):
                        surface.array[:] = data
                for index in order:
                    ticket = queue.submit(index)
                queue.wait(ticket)
                assert all((each.array == chain[0].array).all() for each in chain)
                assert all((apart[n].array == apart[n + 1].array).all() for n in range(0, 12, 2))
