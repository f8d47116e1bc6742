# SPDX-License-Identifier: BSD-2-Clause
"""Scatter lists against lists of single bytes, and descriptor chains against a reference fetch."""

import numpy as np
import pytest

from peerdma.memory.scatter import ScatterList
from peerdma.regs import DESC_COMPLETED, DESC_MAGIC, DESC_STOP, DESCRIPTOR
from peerdma.userspace.chain import write_chain


def addresses(scatter: ScatterList) -> list[int]:
    """The address of each byte."""
    pieces = zip(scatter.addresses.tolist(), scatter.lengths.tolist(), strict=True)
    return [start + i for start, length in pieces for i in range(length)]


def random_list(random: np.random.Generator) -> ScatterList:
    count = int(random.integers(0, 12))
    starts = random.integers(0, 40, count) * 8 + (1 << 40)
    return ScatterList(starts, random.integers(0, 20, count))


def test_neighbours_merge_and_empty_pieces_go():
    scatter = ScatterList([0x1000, 0x1010, 0x5000, 0x1020], [0x10, 0x10, 0, 0x10])
    assert (scatter.addresses.tolist(), scatter.lengths.tolist()) == ([0x1000], [0x30])
    assert (len(scatter), scatter.nbytes) == (1, 0x30)
    assert repr(scatter) == "<ScatterList 48 bytes in 1 pieces>"


def test_parts_joins_and_divisions_keep_every_byte(seed):
    random = np.random.default_rng(seed)
    for _ in range(300):
        scatter = random_list(random)
        whole = addresses(scatter)
        start, stop = sorted(random.integers(0, scatter.nbytes + 1, 2).tolist())
        part = scatter.part(start, stop)
        assert addresses(part) == whole[start:stop]
        assert part.nbytes == stop - start
        rest = ScatterList.join([scatter.part(0, start), part, scatter.part(stop, len(whole))])
        assert addresses(rest) == whole
        limit = int(random.integers(1, 9))
        pieces, lengths = (np.asarray(each) for each in scatter.pieces_up_to(limit))
        assert max(lengths.tolist(), default=0) <= limit
        bytes_of = zip(pieces.tolist(), lengths.tolist(), strict=True)
        assert [a + i for a, n in bytes_of for i in range(n)] == whole


def test_the_whole_address_space_can_be_used():
    scatter = ScatterList([0, (1 << 64) - 4096], [(1 << 32), 4095])
    assert scatter.part((1 << 32) + 4094, (1 << 32) + 4095).addresses.tolist() == [(1 << 64) - 2]
    assert scatter.wide
    assert not ScatterList([0xFFFF_F000], [4096]).wide
    assert ScatterList([0xFFFF_F001], [4096]).wide


@pytest.mark.parametrize(("start", "stop"), [(-1, 0), (0, 17), (9, 8)])
def test_a_part_must_be_inside(start, stop):
    with pytest.raises(ValueError, match=f"bytes {start} to {stop} of a scatter list of 16 bytes"):
        ScatterList([0], [16]).part(start, stop)


def fetched(ring: np.ndarray, base: int, adjacent: int) -> list[int]:
    """Indices of the descriptors that an engine uses, in order (PG195, descriptor fetch)."""
    address, left, used = base, adjacent + 1, []
    while True:
        first, last = address // 4096, (address + 32 * left - 1) // 4096
        assert first == last, "a block crosses 4 KiB"
        assert 1 <= left <= 64
        for _ in range(left):
            index = (address - base) // 32
            used.append(index)
            descriptor = ring[index]
            assert descriptor["control"] >> 16 == DESC_MAGIC
            if descriptor["control"] & DESC_STOP:
                return used
            address += 32
        address = int(descriptor["next"])
        left = (int(descriptor["control"]) >> 8 & 0x3F) + 1


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 127, 128, 129, 300, 4096])
def test_an_engine_finds_every_descriptor_of_a_chain_once(count):
    ring = np.full(4096 * 32, 0xFF, np.uint8).view(DESCRIPTOR)
    index = np.arange(count, dtype=np.uint64)
    adjacent = write_chain(ring, 0x1000_0000, index + 10, index + 20, index + 30)
    assert fetched(ring, 0x1000_0000, adjacent) == list(range(count))
    chain = ring[:count]
    assert (chain["source"] == index + 10).all()
    assert (chain["destination"] == index + 20).all()
    assert (chain["length"] == index + 30).all()
    flags = chain["control"] & 0xFF
    assert (flags[:-1] == 0).all()
    assert flags[-1] == DESC_STOP | DESC_COMPLETED


def test_adjacency_counts_down_within_a_block():
    """As the vendor's guide wants it, also where an engine need not look."""
    ring = np.zeros(200, DESCRIPTOR)
    index = np.arange(130, dtype=np.uint64)
    write_chain(ring, 0, index, index, index)
    adjacent = (ring["control"][:130] >> 8 & 0x3F).tolist()
    assert adjacent[:64] == [*range(62, -1, -1), 63]
    assert adjacent[64:128] == [*range(62, -1, -1), 1]
    assert adjacent[128:] == [0, 0]


def test_a_cyclic_chain_begins_again_and_tells_what_it_is_asked_to():
    """Its last descriptor announces the first block, as the registers do; none stops."""
    for count in (1, 3, 64, 65, 130):
        ring = np.zeros(count, DESCRIPTOR)
        index = np.arange(count, dtype=np.uint64)
        told = index % 3 == 2
        adjacent = write_chain(ring, 0x4000, index, index, index + 1, told, cyclic=True)
        control = ring["control"]
        assert ((control & DESC_COMPLETED != 0) == told).all()
        assert not (control & DESC_STOP).any()
        assert ring["next"][-1] == 0x4000
        assert control[-1] >> 8 & 0x3F == adjacent == min(count, 64) - 1
