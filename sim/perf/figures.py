# SPDX-License-Identifier: BSD-2-Clause
"""What is measured, and what it is held against.

Rates are held against the engine without bubbles and without descriptors on the same model of
link and root complex (`sim.perf.ideal`), with the traffic of the descriptors included here and not
there; where small descriptors are most of the traffic, against the bytes that the link carries.
Times are counted from when the descriptor is in the core, and held against that engine's from
when its doorbell is; fetching the descriptor is shown beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from statistics import fmean

from hw.core import CoreConfig
from peerdma.board.link import Link
from peerdma.userspace.engine import Direction
from sim.board.session import Conditions
from sim.perf.ideal import USUAL, Result, ideal

from .channels import CHANNELS, ChannelsRig
from .figure import Figure, Job
from .launch import LaunchRig
from .rig import Rig

__all__ = ["jobs", "rates_by_size", "times"]

_BULK = 2 << 20
_SMALL = 64
_SIZES = (64, 4096, 65536)
#: Chains of small descriptors: bytes of each, and the share of what the link carries.
_SMALL_DESCRIPTORS = (
    ("h2c", 64, 0.98),
    ("c2h", 64, 0.95),
    ("c2h", 16, 0.8),
    ("copy", 64, 0.97),
    ("copy", 256, 0.97),
)
_CURVE = tuple(64 << step for step in range(11))
#: A 64-byte read while writes fill the link: microseconds of an engine that keeps a few writes
#: queued, by max payload, on Gen2 x1 with a round trip of 1 µs.
_BEHIND_WRITES = {128: 2.5, 256: 4.1}
#: Cycles more than the ideal engine: to the data, for a copy of 4 KiB by max payload; and from the
#: data to the interrupt.
_ABOVE = {"c2h": 11, "h2c": 10}
_COPY_ABOVE, _TOLD = {128: 22, 256: 23}, 8
#: Microseconds from the doorbell of a C2H run of 64 bytes, whose descriptor is pushed, to its data.
_PUSHED = 0.5
#: Microseconds until a C2H run that starts while reads fill the link has its first descriptor, at
#: most, and cycles that the reads are alone before; and what share of its rate descriptors of 256
#: bytes keep beside them.
_BEHIND_READS, _ALONE, _SHARE_BESIDE_READS = 3.8, 60_000, 0.9
#: Microseconds from Run to the data of a small H2C transfer, whose descriptor is fetched, while all
#: other channels read; and how often it is tried.
_BEHIND_CHANNELS, _TRIES = 8, 8
_MEDIUM = 256
#: A channel of small descriptors beside others of large ones: bytes of each, for how many cycles it
#: is measured, and which part each keeps of a channel's share among as many of its own kind.
_UNEVEN, _SHARED, _KEPT = (_SMALL, 4096), 50_000, (0.95, 0.97)
#: Cycles from a launched job's doorbell to its first request of data, besides the round trip of its
#: entry, if that is read; and by how many cycles doorbells come later and later.
_LAUNCHED, _PHASE = 20, 97
#: Rates of launched jobs: how many by their bytes; direction, whether they have a flush read and a
#: done word; and tickets in flight. With a doorbell for some of them, and with one of 64 bits each.
_LAUNCH_SIZES = {64: 160, 4096: 80}
_LAUNCH_KINDS = (
    ("h2c", False, False),
    ("c2h", False, False),
    ("c2h", False, True),
    ("c2h", True, False),
    ("copy", True, True),
)
_IN_FLIGHT = (1, 4, 16)
#: Packets that are taken one after the other: bytes, and how many.
_PACKETS, _PACKET_COUNT = (64, 256, 4096), 80
#: Software's runs beside launched jobs of 64 bytes, of descriptors of so many bytes, and so many
#: tickets in flight.
_RUNS, _MANY = {4096: 4096, 16_384: 16_384, 262_144: 4096}, 16
_WAYS = {"page": "doorbell", "wide": "doorbell of 64 bits", "shadow": "shadow tail"}
#: From a TLP received to its transmit buffer free again, in ns; and buffers of public designs with
#: this block, and some between.
_ACKS = (400.0, 1000.0, 2000.0)
_BUFFERS = (14, 15, 24, 28, 29, 32)
#: Acknowledgements that change in the middle of a run: from and to, in ns; the cycle in which they
#: do; and the writes after which it counts how fast the rest is.
_CHANGES, _CHANGED, _LEARNED = ((400.0, 2000.0), (1000.0, 2000.0), (2000.0, 400.0)), 5000, 64


def jobs() -> Iterator[Job]:
    """Everything that is measured."""
    for clock in (125_000, 62_500):
        for payload in (128, 256, 512):
            for rtt in (500.0, 1000.0, 2000.0, 4000.0):
                yield Job(_rates, replace(USUAL, clock_khz=clock, max_payload=payload, rtt_ns=rtt))
            now = replace(USUAL, clock_khz=clock, max_payload=payload)
            yield Job(_small_completions, replace(now, completion_bytes=64))
            yield Job(_beside_reads, now)
            yield Job(_beside_reads, replace(now, boundary=128))
            yield Job(_small_descriptors, now)
        for payload in (128, 256):
            now = replace(USUAL, clock_khz=clock, max_payload=payload)
            yield Job(times, now)
            yield Job(_launched, now, launch_queues=1)
            for ack in _ACKS:
                yield Job(_behind_writes, replace(now, ack_ns=ack))
        yield Job(_channels, replace(USUAL, clock_khz=clock), channels=CHANNELS)
        yield Job(_launch_rates, replace(USUAL, clock_khz=clock), launch_queues=1)
        yield Job(_packets, replace(USUAL, clock_khz=clock), launch_queues=1, user="pattern")
    for payload in (128, 256, 512):
        yield Job(
            _overcommitted, replace(USUAL, max_payload=payload, rtt_ns=4000.0), overcommit=True
        )
    yield Job(_overcommitted, replace(USUAL, max_payload=512), overcommit=True)
    for rtt in (500.0, 2000.0, 4000.0):
        yield Job(_small_descriptors, replace(USUAL, rtt_ns=rtt))
    idle = replace(USUAL, clock_khz=62_500, completion_bytes=64, tlp_gap=1)
    yield Job(_idle_cycles, idle)
    yield Job(rates_by_size, USUAL)
    yield Job(rates_by_size, replace(USUAL, max_payload=256))
    for ack in _ACKS:
        for buffers in _BUFFERS:
            yield Job(_written, replace(USUAL, ack_ns=ack, transmit_buffers=buffers))
    for clock in (125_000, 62_500):
        for payload in (128, 512):
            yield Job(_changed, replace(USUAL, clock_khz=clock, max_payload=payload))
    for tags in (8, 32):
        for rtt in (1000.0, 4000.0, 16_000.0):
            yield Job(_reads_by_tags, replace(USUAL, tags=tags, rtt_ns=rtt))
    yield Job(_reads_by_tags, replace(USUAL, tags=CoreConfig.tags, rtt_ns=16_000.0))


# Kinds of jobs -------------------------------------------------------------------------------


def _rates(conditions: Conditions) -> list[Figure]:
    # The longest round trips are bound by the room for completions.
    reads = 0.99 if conditions.rtt_ns <= 2000 else 0.98
    least = {"h2c": reads, "c2h": 0.99, "copy": 0.98, "dual": 0.98}
    with Rig(conditions, _BULK) as rig:
        return [
            _rate("bulk", rig, kind, conditions, _limit(kind, conditions), least[kind])
            for kind in least
        ]


def _small_completions(conditions: Conditions) -> list[Figure]:
    with Rig(conditions, _BULK) as rig:
        return [
            _rate("64-byte completions", rig, "h2c", conditions, None, 0.99),
            _rate("64-byte completions", rig, "copy", conditions, None, 0.98),
        ]


def _overcommitted(conditions: Conditions) -> list[Figure]:
    """With more under way than the PCIe block holds, beside an engine that has room for all."""
    with Rig(conditions, _BULK, overcommit=True) as rig:
        return [
            _rate(
                "overcommit", rig, kind, conditions, _limit(kind, conditions), 0.97, accounts=False
            )
            for kind in ("h2c", "copy", "dual")
        ]


def _idle_cycles(conditions: Conditions) -> list[Figure]:
    """The PCIe block pauses between TLPs, so that the port carries less than the link."""
    found = []
    with Rig(conditions, _BULK) as rig:
        for kind in ("h2c", "copy"):
            value = _mbps(rig.bytes_per_cycle(kind, _BULK), conditions)
            bound = _port_bound(_SMALL, conditions) / 1e6
            what = f"{kind}, one idle cycle between TLPs"
            found.append(
                Figure("64-byte completions", what, conditions, value, "MB/s", None, bound, 0.98)
            )
    return found


def _beside_reads(conditions: Conditions) -> list[Figure]:
    """What a C2H run has of the link while H2C reads all that it carries."""
    boundary = f"boundary {conditions.boundary}"
    with Rig(conditions, 2 * _BULK) as rig:
        for _ in range(2):
            rig.bytes_per_cycle("h2c", _BULK)
        runs = [rig.write_under_reads(4096, 2 * _BULK, _ALONE + 97 * turn) for turn in range(8)]
        alone = rig.bytes_per_cycle("c2h", 2000 * _MEDIUM, _MEDIUM)
        beside = rig.writes_under_reads(2000 * _MEDIUM, _MEDIUM, 2 * _BULK, 5000)
    fetched = max(took.fetched for took in runs)
    most = _BEHIND_READS * conditions.clock_khz / 1000
    return [
        Figure(
            "times",
            f"c2h beside reads: descriptor, {boundary}",
            conditions,
            fetched,
            "cycles",
            bound=most,
            target=0,
        ),
        Figure(
            "256-byte descriptors",
            f"c2h beside reads, {boundary}",
            conditions,
            _mbps(beside, conditions),
            "MB/s",
            bound=_mbps(alone, conditions),
            target=_SHARE_BESIDE_READS,
        ),
    ]


def _channels(conditions: Conditions) -> list[Figure]:
    """One channel of small descriptors beside others of large ones: the least that each has."""
    found = []
    small, large = _UNEVEN
    for side in Direction:
        alike = []
        for piece in _UNEVEN:
            with ChannelsRig(conditions) as rig:
                alike.append(min(rig.shares(side, (piece,) * CHANNELS, _SHARED)))
        with ChannelsRig(conditions) as rig:
            rates = rig.shares(side, (small, *(large,) * (CHANNELS - 1)), _SHARED)
        kinds = zip(_UNEVEN, (rates[0], min(rates[1:])), alike, _KEPT, strict=True)
        for piece, rate, share, kept in kinds:
            what = f"{side.name.lower()}, {small} B beside {CHANNELS - 1} of {large}: {piece} B"
            values = _mbps(rate, conditions), "MB/s", None, _mbps(share, conditions)
            found.append(Figure("channels", what, conditions, *values, kept))
    with ChannelsRig(conditions) as rig:
        cycles = max(rig.beside(small, large, _TRIES))
    what = f"h2c {small} B while {CHANNELS - 1} channels read: from Run to the data"
    most = _BEHIND_CHANNELS * conditions.clock_khz / 1000
    found.append(Figure("times", what, conditions, cycles, "cycles", bound=most, target=0))
    return found


def _reads_by_tags(conditions: Conditions) -> list[Figure]:
    with Rig(conditions, _BULK) as rig:
        return [_rate("tags", rig, "h2c", conditions, _limit("h2c", conditions), None)]


def _small_descriptors(conditions: Conditions) -> list[Figure]:
    """Chains of small descriptors, whose fetches are a large part of the traffic."""
    found = []
    with Rig(conditions, _BULK) as rig:
        for kind, piece, target in _SMALL_DESCRIPTORS:
            rate = rig.bytes_per_cycle(kind, 4000 * piece, piece)
            bound = _chain_bound(kind, piece, conditions) / 1e6
            value = _mbps(rate, conditions)
            group = f"{piece}-byte descriptors"
            found.append(Figure(group, kind, conditions, value, "MB/s", None, bound, target))
    return found


def _written(conditions: Conditions) -> list[Figure]:
    """With other numbers of transmit buffers, and acknowledgements that take longer."""
    what = f"c2h, {conditions.transmit_buffers} buffers, ack {_us(conditions)}"
    with Rig(conditions, _BULK) as rig:
        figure = _rate("acknowledgements", rig, "c2h", conditions, None, 0.99)
    return [replace(figure, what=what)]


def _changed(conditions: Conditions) -> list[Figure]:
    """Acknowledgements that change in a run, beside a run in which all are as they are then."""

    def rate(kind: str, before: float, after: float) -> float:
        with Rig(replace(conditions, ack_ns=before), _BULK) as rig:
            return _mbps(rig.rate_from(kind, _BULK, _CHANGED, _LEARNED, after), conditions)

    found = []
    for kind in ("c2h", "copy"):
        steady = {after: rate(kind, after, after) for after in {each[1] for each in _CHANGES}}
        for before, after in _CHANGES:
            value = rate(kind, before, after), "MB/s", None, steady[after], 0.98
            what = f"{kind}, ack {before / 1000:g} to {after / 1000:g} µs in a run"
            found.append(Figure("acknowledgements", what, conditions, *value))
    return found


def times(conditions: Conditions) -> list[Figure]:
    """From a doorbell to data and interrupt, beside the ideal engine if the block has one."""
    found = []
    with Rig(conditions, max(_SIZES)) as rig:
        for kind in ("c2h", "h2c", "copy"):
            for nbytes in _SIZES:
                took = rig.times(kind, nbytes)
                best = None if conditions.streams else _ideal(f"lat_{kind}", nbytes, conditions)
                what = f"{kind} {nbytes} B"
                target = _ABOVE.get(kind)
                if kind == "copy" and nbytes == 4096:
                    target = _COPY_ABOVE.get(conditions.max_payload)
                parts = (
                    ("descriptor fetched", took.fetched, None, None),
                    ("data", took.data - took.fetched, best and best.data - best.doorbell, target),
                    ("interrupt after data", took.interrupt - took.data,
                     best and best.interrupt - best.data, _TOLD),
                )  # fmt: skip
                found += [
                    Figure("times", f"{what}: {part}", conditions, value, "cycles", reference,
                           target=most)
                    for part, value, reference, most in parts
                ]  # fmt: skip
        for kind in ("c2h", "h2c", "copy"):
            most = _PUSHED * conditions.clock_khz / 1000 if kind == "c2h" else None
            for way, bound in (("pushed", most), ("fetched", None)):
                value = rig.times(kind, _SMALL, pushed=way == "pushed").data
                what = f"{kind} {_SMALL} B from the doorbell, descriptor {way}: data"
                found.append(
                    Figure(
                        "times",
                        what,
                        conditions,
                        value,
                        "cycles",
                        bound=bound,
                        target=None if bound is None or conditions.clock_khz < 125_000 else 0,
                    )
                )
    return found


def _launched(conditions: Conditions) -> list[Figure]:
    """Jobs that a GPU launches, beside the same ones of software's on that core."""
    found: list[Figure] = []

    def add(what: str, value: float, **beside: float) -> None:
        found.append(Figure("launched", what, conditions, value, "cycles", **beside))

    with LaunchRig(conditions, max(_SIZES)) as rig:
        for kind in ("h2c", "c2h"):
            for nbytes in _SIZES[:2]:
                what, best = f"{kind} {nbytes} B", _ideal(f"lat_{kind}", nbytes, conditions)
                least = best.data - best.doorbell
                for way in ("fetched", "pushed"):
                    value = rig.times(kind, nbytes, pushed=way == "pushed").data
                    add(f"{what} by software, {way}: data", value, ideal=least)
                for way, name in _WAYS.items():
                    # At any point of the poll, and of what the link sends itself.
                    runs = [
                        rig.launch(kind, nbytes, way=way, after=_PHASE * turn) for turn in range(16)
                    ]
                    how = f"{what} by {name}"
                    add(f"{how}: data", fmean(run.data for run in runs), ideal=least)
                    if way == "page":
                        behind = fmean(run.record - run.data for run in runs)
                        add(f"{how}: record after data", behind)
                    if way != "shadow":
                        first = max(run.first - (run.entry - run.asked) for run in runs)
                        add(f"{how}: first request", first, bound=_LAUNCHED, target=0)
    return found


def _launch_rates(conditions: Conditions) -> list[Figure]:
    """Launched jobs one after the other, with so many tickets in flight."""
    found = []
    with LaunchRig(conditions, max(*_SIZES, *_RUNS)) as rig:
        for nbytes, count in _LAUNCH_SIZES.items():
            for kind, flush, done in _LAUNCH_KINDS:
                ways = " with flush read" * flush + " with done word" * done
                how = {"count": count, "flush": flush, "done": done}
                for way, tickets in product(("page", "wide"), _IN_FLIGHT):
                    rate = rig.rate(kind, nbytes, tickets, way=way, **how)
                    what = f"{kind} {nbytes} B{ways} by {_WAYS[way]}, {tickets} in flight"
                    value = _mbps(rate, conditions)
                    found.append(Figure("launched", what, conditions, value, "MB/s"))
        for kind in ("h2c", "c2h"):
            for run, piece in _RUNS.items():
                rates = rig.beside_runs(
                    kind, _SMALL, _MANY, run, piece, count=4 * _LAUNCH_SIZES[_SMALL]
                )
                for whose, rate in zip(("jobs", "runs"), rates, strict=True):
                    what = f"{kind} {_SMALL} B beside runs of {run} B, {_MANY} in flight: {whose}"
                    value = _mbps(rate, conditions)
                    found.append(Figure("launched", what, conditions, value, "MB/s"))
    return found


def _packets(conditions: Conditions) -> list[Figure]:
    """Packets of the user stream that tickets take with their records, one after the other."""
    found = []
    with LaunchRig(conditions, 2 * max(_PACKETS), user="pattern") as rig:
        for nbytes, tickets in product(_PACKETS, _IN_FLIGHT):
            value = 1 / rig.packets(nbytes, tickets, count=_PACKET_COUNT)
            what = f"packets of {nbytes} B, {tickets} in flight: from one to the next"
            found.append(Figure("launched", what, conditions, value, "cycles"))
    return found


def _behind_writes(conditions: Conditions) -> list[Figure]:
    with Rig(conditions, _BULK) as rig:
        # The write that is just being sent has some way to go, or hardly any: the mean of several.
        runs = [rig.read_under_writes(_SMALL, _BULK, 5000 + 97 * turn) for turn in range(16)]
    best = _BEHIND_WRITES[conditions.max_payload] * conditions.clock_khz / 1000
    value = sum(took.data - took.fetched for took in runs) / len(runs)
    what = f"h2c 64 B behind writes, ack {_us(conditions)}: data"
    return [Figure("times", what, conditions, value, "cycles", best, target=12)]


def rates_by_size(conditions: Conditions) -> list[Figure]:
    """Rates of single descriptors of every size, their fetches and the doorbell included."""
    found = []
    with Rig(conditions, max(_CURVE)) as rig:
        for kind in ("c2h", "h2c", "copy"):
            for nbytes in _CURVE:
                value = _mbps(nbytes / rig.times(kind, nbytes).data, conditions)
                best = _ideal(f"lat_{kind}", nbytes, conditions)
                reference = _mbps(nbytes / (best.data - best.doorbell), conditions)
                what = f"{kind} {nbytes}"
                found.append(Figure("sizes", what, conditions, value, "MB/s", reference))
    return found


# References ----------------------------------------------------------------------------------


def _rate(
    group: str,
    rig: Rig,
    kind: str,
    conditions: Conditions,
    bound: float | None,
    target: float | None,
    *,
    accounts: bool = True,
) -> Figure:
    # In the first run the engine learns how much it has to ask for.
    rig.bytes_per_cycle(kind, _BULK)
    value = _mbps(rig.bytes_per_cycle(kind, _BULK), conditions)
    best = _ideal(kind, _BULK, conditions, accounts=accounts)
    rates = {"h2c": best.read_rate, "dual": min(best.read_rate, best.write_rate)}
    reference = _mbps(rates.get(kind, best.write_rate), conditions)
    return Figure(group, kind, conditions, value, "MB/s", reference, bound, target)


def _ideal(what: str, nbytes: int, conditions: Conditions, *, accounts: bool = True) -> Result:
    result = ideal(what, nbytes, conditions, accounts=accounts)
    if result.errors:
        raise RuntimeError(f"the ideal engine broke a rule under {conditions}")
    return result


def _mbps(bytes_per_cycle: float, conditions: Conditions) -> float:
    return bytes_per_cycle * conditions.clock_khz / 1000


def _us(conditions: Conditions) -> str:
    return f"{conditions.ack_ns / 1000:g} µs"


def _link(conditions: Conditions) -> Link:
    return Link(2, 1, conditions.max_payload, conditions.max_read_request, 64)


def _limit(kind: str, conditions: Conditions) -> float | None:
    link = _link(conditions)
    limits = {"h2c": link.read_limit, "c2h": link.write_limit, "copy": link.copy_limit}
    return limits[kind](False) / 1e6 if kind in limits else None


def _port_bound(piece: int, conditions: Conditions) -> float:
    """Bytes per second at the core's port, of writes or completions of `piece` bytes each."""
    beats = (16 + piece) / 8
    return piece / (beats + conditions.tlp_gap) * conditions.clock_khz * 1000


def _chain_bound(kind: str, piece: int, conditions: Conditions) -> float:
    """Payload bytes per second of descriptors of `piece` bytes, of the link and of the port."""
    reads, writes = kind in ("h2c", "copy"), kind in ("c2h", "copy")
    link = _link(conditions).chain_limit(piece, reads=reads, writes=writes)
    return min(link, _port_bound(piece, conditions))
