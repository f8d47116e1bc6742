# SPDX-License-Identifier: BSD-2-Clause
"""The cocotb model's receive buffer: gaps, finite room for completions, what may pass what.

And the contract of its port, of which no model is made here: what passes is measured.
"""

from __future__ import annotations

import os
import random
import secrets
from itertools import pairwise

import pytest
from cocotbext.pcie.core.tlp import Tlp, TlpType

from hw.pcie.series7.block import SERIES7
from hw.seam import FRAMING_BYTES
from sim.benches.checker import TlpError
from sim.benches.receive_buffer import NP_OVERRUN, ReceiveBuffer
from sim.benches.series7 import PORT_LAG, RX_CREDITS


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
    assert len(buffer.clear()) == count
    for _ in range(count):
        buffer.put(completion(nbytes))
    # Those that it has are not affected by one that it loses.
    buffer.loses = True
    lost = completion(nbytes)
    assert not buffer.put(lost)
    assert buffer.lost == [lost]
    assert buffer.put(request(TlpType.MEM_WRITE))
    assert len(buffer.clear()) == count + 1


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


@pytest.mark.parametrize("wanted", [0.0, 0.35, 1.0], ids="pauses {}".format)
@pytest.mark.parametrize("gap", [0, 9])
def test_a_port_within_the_contract(wanted, gap):
    """Whatever pauses it is asked for: the link brings all that it can, or rests at times."""
    seed = int(os.environ.get("SEED", secrets.randbits(32)))
    print(f"SEED={seed}")
    rng = random.Random(seed)
    buffer = ReceiveBuffer(rng, (0, gap))
    buffer.lag = PORT_LAG
    rate = SERIES7.port.link_bytes(125_000)
    came: dict[int, int] = {}
    arrives, coming, quiet, latest, held_back = 0, None, 0, 0, 0
    for cycle in range(20_000):
        if cycle >= arrives:
            if coming:
                assert buffer.put(coming)
                # It has come whole since the cycle before.
                came[id(coming)] = cycle - 1
                held_back += coming.is_nonposted()
            sizes = rng.choice((4, 64, 512)), rng.choice((4, 64, 64))
            kinds = [request(TlpType.MEM_WRITE), *map(completion, sizes)]
            kinds += [request(TlpType.MEM_READ)] * (held_back < RX_CREDITS["nph"])
            coming = rng.choice(kinds)
            arrives = cycle + rng.choice((0, 0, 0, 0, 300))
            arrives -= -(coming.get_size() + FRAMING_BYTES) // rate
        beat = buffer.beat(cycle // 1000 % 2 == 1)
        if beat is None or (rng.random() < wanted and buffer.may_pause()):
            quiet += not buffer.inside
            # Then it holds nothing but what the core holds back.
            assert quiet < SERIES7.port.idle or len(came) <= held_back
            continue
        quiet = 0
        if tlp := buffer.taken():
            held_back -= tlp.is_nonposted()
            waited = cycle - came.pop(id(tlp))
            latest = latest if tlp.is_nonposted() else max(latest, waited)
    assert latest <= PORT_LAG
    assert (latest == PORT_LAG) is (wanted == 1)
