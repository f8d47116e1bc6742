# SPDX-License-Identifier: BSD-2-Clause
"""The cocotb model's receive buffer: gaps, finite room for completions, what may pass what."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from cocotbext.pcie.core.tlp import Tlp, TlpType

from hw.pcie.series7.block import SERIES7
from sim.benches.checker import TlpError
from sim.benches.receive_buffer import NP_OVERRUN, ReceiveBuffer


def completion(nbytes: int) -> Tlp:
    tlp = Tlp()
    tlp.fmt_type = TlpType.CPL_DATA
    tlp.set_data(bytes(nbytes))
    tlp.byte_count = nbytes
    return tlp


def request(kind: TlpType) -> Tlp:
    tlp = Tlp()
    tlp.fmt_type = kind
    if kind == TlpType.MEM_READ:
        tlp.set_addr_be(0x1000, 4)
    else:
        tlp.set_addr_be_data(0x1000, bytes(4))
    return tlp


def taken(buffer: ReceiveBuffer, cycles: int, np_ok: bool = True) -> list[tuple[int, Tlp]]:
    """The TLPs that are taken, with the cycles of their last beats."""
    found = []
    for cycle in range(cycles):
        if buffer.beat(np_ok) and (tlp := buffer.taken()):
            found.append((cycle, tlp))
    return found


@pytest.mark.parametrize("gap", [0, 1, 3])
def test_idle_cycles_between_tlps(gap):
    buffer = ReceiveBuffer(random.Random(0), (gap, gap))
    for _ in range(3):
        buffer.put(completion(64))
    # 76 bytes are ten beats.
    assert [cycle for cycle, _ in taken(buffer, 60)] == [9, 19 + gap, 29 + 2 * gap]


def test_random_gaps_are_within_their_bounds():
    buffer = ReceiveBuffer(random.Random(1), (1, 4))
    for _ in range(SERIES7.completion_headers):
        buffer.put(completion(64))
    ends = [cycle for cycle, _ in taken(buffer, 1000)]
    gaps = {after - before - 10 for before, after in pairwise(ends)}
    assert gaps == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("nbytes", "count"),
    [
        (64, SERIES7.completion_headers),
        (256, SERIES7.completion_credits // 16),
        (4, SERIES7.completion_headers),
    ],
)
def test_completions_beyond_the_room_fail(nbytes, count):
    buffer = ReceiveBuffer(random.Random(0))
    for _ in range(count):
        buffer.put(completion(nbytes))
    # What the core has taken makes room again.
    assert len(taken(buffer, (12 + nbytes + 4) // 8)) == 1
    buffer.put(completion(nbytes))
    with pytest.raises(TlpError, match="completion buffer overflow"):
        buffer.put(completion(nbytes))
    assert len(buffer.clear()) == count + 1
    for _ in range(count):
        buffer.put(completion(nbytes))


def test_others_pass_reads_that_are_held_back():
    buffer = ReceiveBuffer(random.Random(0))
    tlps = [request(TlpType.MEM_READ) for _ in range(NP_OVERRUN + 1)]
    tlps += [completion(8), request(TlpType.MEM_WRITE)]
    for tlp in tlps:
        buffer.put(tlp)
    held = tlps[NP_OVERRUN]
    passed = [tlp for _, tlp in taken(buffer, 40, np_ok=False)]
    assert passed == [tlp for tlp in tlps if tlp is not held]
    assert [tlp for _, tlp in taken(buffer, 10)] == [held]
