# SPDX-License-Identifier: BSD-2-Clause
"""Rates of a core without an adapter, at any width and on any link, beside what bounds them.

Each rate is held against the least of three: what the link carries, what crosses the seam, and the
room for completions that one round trip uses. It is that of the middle of a transfer: two of
different lengths are compared, so that the start counts in neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from hw.records import JOB_BYTES
from peerdma.board.link import Link
from peerdma.userspace.engine import Direction
from sim.board.session import Conditions, Seam
from sim.compile.attached import block_of

from .ideal import ideal
from .rig import KINDS, Rig

__all__ = ["ROOMS", "Row", "bound", "measure", "on_link", "rows", "table", "usual"]

#: Completions that blocks hold, and their units of 16 bytes: of the 7 series, UltraScale and
#: UltraScale+; the last has more headers than its data has room for.
ROOMS = {36: 461, 64: 992, 128: 2048, 256: 2048}
#: Raw 10^6 bytes per second of a lane, less its line code, by generation.
_LANE_MBPS = {1: 250.0, 2: 500.0, 3: 8000 / 8 * 128 / 130}
#: kHz of the clocks that such blocks have.
_CLOCKS = (62_500, 125_000, 250_000)
_TAGS = 32
_PAYLOADS, _ROUND_TRIPS = (128, 256, 512), (500.0, 1000.0, 2000.0)
_SMALLEST = 64
#: From a read sent to its data on the card, besides the round trip: ns.
_AROUND = 300.0
_SHORT, _LONG = 1 << 17, 1 << 19


class Row(NamedTuple):
    """One kind of transfer under one set of conditions; MB/s."""

    conditions: Conditions
    kind: str
    value: float
    ideal: float
    bound: float
    #: "link", "port" or "room"
    bounded_by: str


def on_link(link: str, seam: Seam) -> Conditions:
    """A core at the slowest clock with which it carries the link, as "gen3x8".

    Raises
    ------
    ValueError
        If there is no such link, or it is too fast.
    """
    match = re.fullmatch(r"gen([123])x([1248])", link)
    if not match:
        raise ValueError(f"a link is gen1x1 to gen3x8, not {link!r}")
    speed, lanes = map(int, match.groups())
    rate = _LANE_MBPS[speed] * lanes
    clocks = [clock for clock in _CLOCKS if seam.width // 8 * clock / 1000 >= rate]
    if not clocks:
        raise ValueError(f"{seam.width} bits do not carry {link} at {_CLOCKS[-1] // 1000} MHz")
    return Conditions(
        clock_khz=clocks[0], link_mbps=rate, speed=speed, lanes=lanes, tags=_TAGS, seam=seam
    )


def rows(link: str, width: int, rooms: Sequence[int]) -> Iterator[Conditions]:
    """All conditions of a table."""
    for room in rooms:
        now = on_link(link, Seam(width, room, ROOMS[room]))
        for trip, payload in product(_ROUND_TRIPS, _PAYLOADS):
            for size in (_SMALLEST, payload):
                yield replace(now, rtt_ns=trip, max_payload=payload, completion_bytes=size)


def usual(conditions: Conditions) -> bool:
    """Whether these are conditions under which times are measured, too."""
    return conditions.rtt_ns == 1000 and conditions.completion_bytes == conditions.max_payload


def bound(kind: str, conditions: Conditions) -> tuple[float, str]:
    """MB/s that are possible, and by what."""
    found, seam = conditions, conditions.seam
    assert seam
    link = Link(found.speed, found.lanes, found.max_payload, found.max_read_request, 64)
    size = min(found.completion_bytes, found.max_payload)
    limits = {
        "h2c": link.read_limit(False, size),
        "c2h": link.write_limit(False),
        "copy": link.copy_limit(False, size),
    }
    limits["dual"] = limits["copy"]
    bounds = {"link": limits[kind] / 1e6, "port": _port(kind, found, seam.width // 8)}
    if Direction.H2C in KINDS[kind]:
        room = min(64 * block_of(seam).completions(JOB_BYTES), JOB_BYTES * _TAGS)
        bounds["room"] = room / (found.rtt_ns + _AROUND) * 1000
    return min((value, name) for name, value in bounds.items())


def _port(kind: str, conditions: Conditions, lanes: int) -> float:
    """MB/s that cross the seam.

    Out, each packet takes a cycle before its first beat. In, first beats are two cycles apart.
    """
    read, reads, writes = conditions.max_read_request, kind != "c2h", kind != "h2c"
    out = 2 * reads + writes * read / conditions.max_payload * (conditions.max_payload // lanes + 1)
    size = min(conditions.completion_bytes, conditions.max_payload)
    into = reads * read / size * max(size // lanes, 2)
    return read / max(out, into) * conditions.clock_khz / 1000


def measure(conditions: Conditions) -> list[Row]:
    """All kinds of transfers; RuntimeError if data arrives wrong, or the core broke a rule."""
    found = []
    with Rig(conditions, _LONG) as rig:
        for kind in KINDS:
            # In the first run the engine learns how much it has to ask for.
            _, short, long = (n / rig.bytes_per_cycle(kind, n) for n in (_SHORT, _SHORT, _LONG))
            rate = (_LONG - _SHORT) / (long - short)
            best = ideal(kind, _LONG, conditions)
            if best.errors:
                raise RuntimeError(f"the ideal engine broke a rule under {conditions}")
            rates = {"h2c": best.read_rate, "dual": min(best.read_rate, best.write_rate)}
            of_ideal = rates.get(kind, best.write_rate)
            mbps = [each * conditions.clock_khz / 1000 for each in (rate, of_ideal)]
            found.append(Row(conditions, kind, *mbps, *bound(kind, conditions)))
    return found


def table(found: Sequence[Row]) -> str:
    """A line for all kinds under each set of conditions: MB/s, ideal, share of the bound."""
    names = {"h2c": "to the board", "c2h": "from the board", "copy": "copy", "dual": "both"}
    lines = [
        f"{'headers':>7} {'RTT':>4} {'MPS':>4} {'size':>4}"
        + "".join(f"  {names[kind]:>22}" for kind in KINDS)
    ]
    for conditions in dict.fromkeys(row.conditions for row in found):
        seam = conditions.seam
        assert seam
        line = (
            f"{seam.completion_headers:7} {conditions.rtt_ns / 1000:4.1f} "
            f"{conditions.max_payload:4} {conditions.completion_bytes:4}"
        )
        for row in found:
            if row.conditions == conditions:
                share = f"{row.value / row.bound:.1%}"
                line += f"  {row.value:6.0f} {row.ideal:6.0f} {share:>6} {row.bounded_by[0]}"
        lines.append(line)
    return "\n".join(lines) + "\n"
