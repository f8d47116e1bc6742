# SPDX-License-Identifier: BSD-2-Clause
"""The cocotb model's side of the seam: what comes over the link, in beats of each width."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from cocotbext.pcie.core.tlp import Tlp, TlpType

from hw.seam import BUS_WIDTH, WIDTHS
from sim.benches.seam import SeamBeats

#: Bytes of payload: of less than a beat, of whole beats, and of one dword more.
SIZES = (4, 8, 64, 68, 4, 128, 32, 16)


def tlp(nbytes: int, *, write: bool) -> Tlp:
    made = Tlp()
    if write:
        made.fmt_type = TlpType.MEM_WRITE
        made.set_addr_be_data(0x1000, bytes(range(nbytes)))
    else:
        made.fmt_type = TlpType.CPL_DATA
        made.set_data(bytes(range(nbytes)))
        made.byte_count = nbytes
    return made


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_packets_are_as_close_as_the_seam_allows(width, write):
    buffer, lanes = SeamBeats(random.Random(0), width), width // 8
    name = "target" if write else "requester_completion"
    for nbytes in SIZES:
        buffer.put(tlp(nbytes, write=write), 1)
    firsts, ends, payloads = [], [], []
    for cycle in range(200):
        if not (beat := buffer.beat(True)):
            continue
        assert beat[f"{name}_valid"]
        if beat[f"{name}_payload_first"]:
            firsts.append(cycle)
            payloads.append(b"")
        payloads[-1] += beat[f"{name}_payload_data"].to_bytes(lanes, "little")
        if beat[f"{name}_payload_last"]:
            ends.append(cycle)
        assert bool(buffer.taken()) == bool(beat[f"{name}_payload_last"])
    assert [found[:size] for found, size in zip(payloads, SIZES, strict=True)] == [
        bytes(range(size)) for size in SIZES
    ]
    beats = [-(-size // lanes) for size in SIZES]
    assert [end - first + 1 for first, end in zip(firsts, ends, strict=True)] == beats
    narrow = write and width == BUS_WIDTH
    rests = [max(2 - count, int(narrow)) for count in beats]
    found = [after - before for before, after in pairwise(firsts)]
    assert found == [count + rest for count, rest in zip(beats, rests, strict=True)][:-1]
