# SPDX-License-Identifier: BSD-2-Clause
"""Rates of a core of any width and on any link, beside what bounds them.

The core has no adapter, or that of UltraScale or UltraScale+. Each rate is held against the least
of three: what the link carries, what crosses the seam or the block's streams, and the room for
completions that one round trip uses. It is that of the middle of a transfer: two of different
lengths are compared, so that the start counts in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from hw.pcie.adapters import ADAPTERS
from hw.pcie.ultrascale.straddle import STRADDLE_WIDTH
from hw.records import JOB_BYTES
from hw.seam import Block
from peerdma.board.link import Link
from peerdma.userspace.engine import Direction
from sim.board.link import parse, raw_mbps
from sim.board.session import Conditions, Seam, Streams
from sim.compile.attached import block_of

from .ideal import ideal
from .rig import KINDS, Rig

__all__ = [
    "ROOMS",
    "Row",
    "bound",
    "measure",
    "on_link",
    "rows",
    "seams",
    "streams",
    "table",
    "usual",
]

#: Completions that blocks hold, and their units of 16 bytes: of the 7 series, UltraScale and
#: UltraScale+; the last has more headers than its data has room for.
ROOMS = {36: 461, 64: 992, 128: 2048, 256: 2048}
#: kHz of the clocks that such blocks have.
_CLOCKS = (62_500, 125_000, 250_000)
_TAGS = 32
_PAYLOADS, _ROUND_TRIPS = (128, 256, 512), (500.0, 1000.0, 2000.0)
_SMALLEST = 64
#: Dwords of descriptors, of requests and of completions; of half a beat that can straddle.
_REQUEST, _COMPLETION, _HALF = 4, 3, 4
#: From a read sent to its data on the card, besides the round trip: ns.
_AROUND = 300.0
_SHORT, _LONG = 1 << 17, 1 << 19


class Row(NamedTuple):
    """One kind of transfer under one set of conditions; MB/s."""

    conditions: Conditions
    kind: str
    value: float
    #: None: there is no ideal engine for this block
    ideal: float | None
    bound: float
    #: "link", "port" or "room"
    bounded_by: str


def seams(width: int, rooms: Sequence[int]) -> list[Seam]:
    """Blocks with room for so many completions, for a core without an adapter."""
    return [Seam(width, room, ROOMS[room]) for room in rooms]


def streams(name: str) -> list[Streams]:
    """A block of `hw.pcie.adapters.ADAPTERS`; both ways in which it can be configured, if so.

    Raises
    ------
    ValueError
        If it has no streams.
    """
    kind = ADAPTERS.get(name)
    if kind is None or kind.interface != "pcie":
        raise ValueError(f"{name} is no block of UltraScale or UltraScale+")
    room = kind.block.completion_headers, kind.block.completion_credits
    ways = (True, False) if kind.block.width == STRADDLE_WIDTH else (False,)
    return [Streams(name, *room, straddle=straddle) for straddle in ways]


def on_link(link: str, wide: Seam | Streams) -> Conditions:
    """A core at the slowest clock with which it carries the link, as "gen3x8".

    Raises
    ------
    ValueError
        If there is no such link, or it is too fast.
    """
    speed, lanes = parse(link)
    rate = raw_mbps(speed, lanes)
    clocks = [clock for clock in _CLOCKS if wide.width // 8 * clock / 1000 >= rate]
    if not clocks:
        raise ValueError(f"{wide.width} bits do not carry {link} at {_CLOCKS[-1] // 1000} MHz")
    which = {"seam" if isinstance(wide, Seam) else "streams": wide}
    return Conditions(
        clock_khz=clocks[0], link_mbps=rate, speed=speed, lanes=lanes, tags=_TAGS, **which
    )


def rows(link: str, blocks: Sequence[Seam | Streams]) -> Iterator[Conditions]:
    """All conditions of a table."""
    for wide in blocks:
        now = on_link(link, wide)
        for trip, payload in product(_ROUND_TRIPS, _PAYLOADS):
            for size in (_SMALLEST, payload):
                yield replace(now, rtt_ns=trip, max_payload=payload, completion_bytes=size)


def usual(conditions: Conditions) -> bool:
    """Whether these are conditions under which times are measured, too."""
    return conditions.rtt_ns == 1000 and conditions.completion_bytes == conditions.max_payload


def bound(kind: str, conditions: Conditions) -> tuple[float, str]:
    """MB/s that are possible, and by what."""
    found = conditions
    link = Link(found.speed, found.lanes, found.max_payload, found.max_read_request, 64)
    size = min(found.completion_bytes, found.max_payload)
    limits = {
        "h2c": link.read_limit(False, size),
        "c2h": link.write_limit(False),
        "copy": link.copy_limit(False, size),
    }
    limits["dual"] = limits["copy"]
    bounds = {"link": limits[kind] / 1e6, "port": _port(kind, found)}
    if Direction.H2C in KINDS[kind]:
        room = min(64 * _block(found).completions(JOB_BYTES), JOB_BYTES * _TAGS)
        bounds["room"] = room / (found.rtt_ns + _AROUND) * 1000
    return min((value, name) for name, value in bounds.items())


def _block(conditions: Conditions) -> Block:
    if conditions.streams:
        return ADAPTERS[conditions.streams.name].block
    assert conditions.seam
    return block_of(conditions.seam)


def _port(kind: str, conditions: Conditions) -> float:
    """MB/s that cross the seam, or the streams.

    At the seam, out, each packet takes a cycle before its first beat; in, first beats are two
    cycles apart. In the streams, each packet is a descriptor and its payload.
    """
    read, reads, writes = conditions.max_read_request, kind != "c2h", kind != "h2c"
    payload, size = (
        least // 4
        for least in (
            conditions.max_payload,
            min(conditions.completion_bytes, conditions.max_payload),
        )
    )
    lanes = _block(conditions).width // 32
    if conditions.streams:
        asks, write = -(-_REQUEST // lanes), -(-(_REQUEST + payload) // lanes)
        straddles = conditions.streams.straddle
        unit = _HALF if straddles else lanes
        completion = -(-(_COMPLETION + size) // unit) * unit / lanes
    else:
        asks, write, completion = 2, payload // lanes + 1, max(size // lanes, 2)
    dwords = read // 4
    out = asks * reads + writes * dwords / payload * write
    into = reads * dwords / size * completion
    return read / max(out, into) * conditions.clock_khz / 1000


def measure(conditions: Conditions) -> list[Row]:
    """All kinds of transfers; RuntimeError if data arrives wrong, or the core broke a rule."""
    found = []
    with Rig(conditions, _LONG) as rig:
        for kind in KINDS:
            # In the first run the engine learns how much it has to ask for.
            _, short, long = (n / rig.bytes_per_cycle(kind, n) for n in (_SHORT, _SHORT, _LONG))
            rate = (_LONG - _SHORT) / (long - short)
            mhz = conditions.clock_khz / 1000
            of_ideal = _ideal(kind, conditions) * mhz if conditions.seam else None
            found.append(Row(conditions, kind, rate * mhz, of_ideal, *bound(kind, conditions)))
    return found


def _ideal(kind: str, conditions: Conditions) -> float:
    """Bytes per cycle of the engine without bubbles."""
    best = ideal(kind, _LONG, conditions)
    if best.errors:
        raise RuntimeError(f"the ideal engine broke a rule under {conditions}")
    rates = {"h2c": best.read_rate, "dual": min(best.read_rate, best.write_rate)}
    return rates.get(kind, best.write_rate)


def table(found: Sequence[Row]) -> str:
    """A line for all kinds under each set of conditions: MB/s, ideal, share of the bound.

    Behind an adapter, `headers` has an s if completions straddle.
    """
    names = {"h2c": "to the board", "c2h": "from the board", "copy": "copy", "dual": "both"}
    lines = [
        f"{'headers':>7} {'RTT':>4} {'MPS':>4} {'size':>4}"
        + "".join(f"  {names[kind]:>22}" for kind in KINDS)
    ]
    for conditions in dict.fromkeys(row.conditions for row in found):
        wide = conditions.wide
        assert wide
        straddles = "s" if isinstance(wide, Streams) and wide.straddle else ""
        line = (
            f"{f'{wide.completion_headers}{straddles}':>7} {conditions.rtt_ns / 1000:4.1f} "
            f"{conditions.max_payload:4} {conditions.completion_bytes:4}"
        )
        for row in found:
            if row.conditions == conditions:
                share = f"{row.value / row.bound:.1%}"
                best = f"{row.ideal:6.0f}" if row.ideal else f"{'':6}"
                line += f"  {row.value:6.0f} {best} {share:>6} {row.bounded_by[0]}"
        lines.append(line)
    return "\n".join(lines) + "\n"
