# SPDX-License-Identifier: BSD-2-Clause
"""Packets of the block's streams as beats, and back; cocotbext-pcie packs and unpacks them."""

from __future__ import annotations

import random

from cocotbext.pcie.core.tlp import CplStatus, TlpAttr, TlpTc, TlpType
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us.interface import UsPcieFrame
from cocotbext.pcie.xilinx.us.tlp import Tlp_us

__all__ = ["beats_of", "completion", "frames_of", "header_of", "of_size", "request", "straddled"]

_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 20, 21, 31, 32, 33, 64)


def request(rng: random.Random, kind: TlpType, *, address_bits: int = 64) -> Tlp_us:
    """A memory request, with random payload if it is a write."""
    tlp = Tlp_us()
    tlp.fmt_type = kind
    tlp.address = rng.getrandbits(address_bits) & ~3
    tlp.tag, tlp.tc = rng.randrange(32), TlpTc(rng.randrange(8))
    tlp.attr = TlpAttr(rng.randrange(8))
    tlp.requester_id = PcieId.from_int(rng.randrange(1 << 16))
    dwords = rng.choice(_LENGTHS)
    if tlp.has_data():
        tlp.set_data(rng.randbytes(4 * dwords))
    else:
        tlp.length = rng.choice((dwords, 1024))
    tlp.first_be = rng.choice((0b1111, 0b1110, 0b1000, 0b0100) if tlp.length == 1 else (15, 12, 8))
    if tlp.length == 1 and not tlp.has_data() and rng.random() < 0.5:
        tlp.first_be = 0  # a zero-length read
    tlp.last_be = rng.choice((15, 7, 1)) if tlp.length > 1 else 0
    return tlp


def completion(rng: random.Random, *, most: int = 64) -> Tlp_us:
    """A completion, with random payload if it is successful."""
    tlp = Tlp_us()
    good = rng.random() < 0.8
    tlp.fmt_type = rng.choice(
        (TlpType.CPL_DATA, TlpType.CPL_LOCKED_DATA) if good else (TlpType.CPL, TlpType.CPL_LOCKED)
    )
    tlp.status = CplStatus.SC if good else rng.choice((CplStatus.UR, CplStatus.CRS, CplStatus.CA))
    tlp.tag, tlp.tc = rng.randrange(32), TlpTc(rng.randrange(8))
    tlp.attr = TlpAttr(rng.randrange(8))
    tlp.requester_id = PcieId.from_int(rng.randrange(1 << 16))
    tlp.ep = rng.random() < 0.1
    tlp.byte_count, tlp.lower_address = rng.randint(1, 4096), rng.randrange(128)
    if good:
        tlp.set_data(rng.randbytes(4 * rng.choice([n for n in _LENGTHS if n <= most])))
    return tlp


def of_size(rng: random.Random, count: int, size: int) -> list[Tlp_us]:
    """Successful completions with so many bytes each."""
    tlps: list[Tlp_us] = []
    while len(tlps) < count:
        tlp = completion(rng)
        if tlp.has_data():
            tlp.set_data(rng.randbytes(size))
            tlps.append(tlp)
    return tlps


def header_of(tlp: Tlp_us) -> dict[str, int]:
    """A completion's header at the seam."""
    return {
        "status": int(tlp.status),
        "byte_count": tlp.byte_count,
        "lower_address": tlp.lower_address,
        "dwords": tlp.length,
        "tag": tlp.tag,
        "requester_id": int(tlp.requester_id),
        "traffic_class": int(tlp.tc),
        "attributes": int(tlp.attr),
        "poisoned": tlp.ep,
        "locked": tlp.fmt_type in (TlpType.CPL_LOCKED, TlpType.CPL_LOCKED_DATA),
    }


def beats_of(frame: UsPcieFrame, width: int, user: int, rng: random.Random) -> list[dict]:
    """A packet as `receive_beat`s with that `user`; lanes behind its end are noise."""
    lanes, beats = width // 32, []
    for at in range(0, len(frame.data), lanes):
        dwords = frame.data[at : at + lanes]
        noise = [rng.getrandbits(32) for _ in range(lanes - len(dwords))]
        value = sum(dword << 32 * lane for lane, dword in enumerate([*dwords, *noise]))
        beats.append(
            {
                "data": value,
                "keep": (1 << len(dwords)) - 1,
                "last": at + lanes >= len(frame.data),
                "discontinued": frame.discontinue,
                "user": user if at == 0 else 0,
            }
        )
    return beats


def straddled(
    frames: list[UsPcieFrame], rng: random.Random, *, straddle: bool = True, gap: float = 0.0
) -> list[dict]:
    """Packets as `receive_beat`s of 256 bits with `StraddleFlags`.

    With `straddle`, a packet begins in lane 4 where the one before ends in front of it, but for a
    share `gap` of them, which are not there yet.
    """
    beats: list[dict] = []
    lane = 8
    for frame in frames:
        lane = 8 if lane > 4 or not straddle or rng.random() < gap else 4
        for n, dword in enumerate(frame.data):
            if lane == 8:
                noise = rng.getrandbits(256)
                beats.append({"data": noise, "keep": 0xFF, "last": 0, "discontinued": 0})
                flags = {"begins": 0, "ends": []}
                lane = 0
            beat = beats[-1]
            if n == 0:
                flags["begins"] += 1
            beat["data"] = beat["data"] & ~(0xFFFF_FFFF << 32 * lane) | dword << 32 * lane
            if n == len(frame.data) - 1:
                flags["ends"].append(lane)
            beat["discontinued"] |= frame.discontinue
            user = (1 << flags["begins"]) - 1
            for number, last in enumerate(flags["ends"]):
                user |= (1 | last << 1) << 2 + 4 * number
            beat["user"] = user
            lane += 1
    return beats


def frames_of(log, width: int) -> list[tuple[list[int], UsPcieFrame, int]]:
    """The packets in a `watch` log of `transmit_beat`s: cycles, packet, `user` of the first beat.

    Fails if lanes are missing before the end.
    """
    done, lanes = [], width // 32
    frame = None
    for cycle, beat in log:
        if frame is None:
            frame, cycles, user = UsPcieFrame(), [], beat.user
        count = beat.keep.bit_count()
        assert beat.keep == (1 << count) - 1 and (count == lanes or beat.last), "lanes are missing"
        assert count, "a beat without a dword"
        frame.data += [beat.data >> 32 * lane & 0xFFFF_FFFF for lane in range(count)]
        cycles.append(cycle)
        if beat.last:
            frame.update_parity()
            done.append((cycles, frame, user))
            frame = None
    assert frame is None, "the last packet has no end"
    return done
