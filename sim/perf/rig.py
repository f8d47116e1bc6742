# SPDX-License-Identifier: BSD-2-Clause
"""A board under measurement: runs chains, and finds in the log when what happened."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from peerdma.regs import CHANNEL, DESCRIPTOR, EXTENSION, STREAM_WINDOW
from peerdma.userspace.chain import write_chain
from peerdma.userspace.engine import Direction
from peerdma.userspace.registers import Bank
from peerdma.userspace.xdma import Xdma
from sim.board.session import BASE, Conditions, Session
from sim.compile.model import compiled

__all__ = ["BAR_STEP", "DESCRIPTOR_BYTES", "KINDS", "RING_BYTES", "Rig", "Times", "Tlp", "answered"]

H2C, C2H = Direction.H2C, Direction.C2H
#: The sides that each kind of transfer has: the one that waits for the other is started first.
KINDS = {"h2c": (H2C,), "c2h": (C2H,), "copy": (C2H, H2C), "dual": (C2H, H2C)}
DESCRIPTOR_BYTES = 64 * 1024
RING_BYTES = 1 << 18
_CARD_RAM_BYTES = 64 * 1024
#: BARs are multiples of this.
BAR_STEP = 1 << 20
_TLP = re.compile(
    r"^(?P<cycle>\d+) (?P<way>up|down) (?P<kind>MRd|MWr|CplD) (?:addr=(?P<addr>0x[0-9a-f]+) )?"
    r"(?:status=\d+ )?len=(?P<len>\d+) tag=(?P<tag>\d+)(?: count=(?P<count>\d+))?",
    re.MULTILINE,
)


class Tlp(NamedTuple):
    """A line of the log; `end` is the cycle in which the core took its last beat."""

    end: int
    kind: str
    address: int
    nbytes: int
    tag: int
    left: int
    #: cycles that it takes at the core's ports
    beats: int

    @property
    def begin(self) -> int:
        """The cycle of its first beat, if the core and the PCIe block made no pause in it."""
        return self.end - self.beats + 1


def answered(tlps: list[Tlp], read: Tlp) -> int:
    """The end of the completion that is a read's last."""
    return next(
        tlp.end
        for tlp in tlps
        if tlp.kind == "down CplD"
        and tlp.tag == read.tag
        and tlp.end > read.end
        and tlp.nbytes == tlp.left
    )


class Times(NamedTuple):
    """Of one transfer, in cycles from when the last side's Run reached the core."""

    #: the first request for a descriptor is sent; 0 if they were pushed
    asked: int
    #: the last side's descriptor is in the core; 0 if it was pushed
    fetched: int
    #: the last byte is where it belongs
    data: int
    #: the interrupt is at the host
    interrupt: int


class Rig:
    """A board with a driver, and as much memory to read and to write as `nbytes` each.

    A context manager. The core has so many `launch_queues`, and `channels` each way, this `user`
    block, and is built for `overcommit` or not; None is what the default one has. If it is `plain`,
    it has what drivers of an XDMA core know, no more.
    """

    def __init__(
        self,
        conditions: Conditions,
        nbytes: int,
        *,
        launch_queues: int | None = None,
        user: str | None = None,
        channels: int | None = None,
        plain: bool = False,
        overcommit: bool | None = None,
    ):
        self._log_folder = tempfile.TemporaryDirectory(prefix="peerdma-perf-")
        self._log = Path(self._log_folder.name) / "tlps"
        self.session = Session(
            compiled(
                user,
                plain=plain,
                tags=conditions.tags,
                clock_khz=conditions.clock_khz,
                launch_queues=launch_queues,
                h2c=channels,
                c2h=channels,
                overcommit=overcommit,
                seam=conditions.seam,
                block=conditions.streams and conditions.streams.name,
            ),
            conditions,
            RING_BYTES + 2 * nbytes,
            log=self._log,
        )
        self.source = BASE + RING_BYTES
        self.target = self.source + nbytes
        source = self.session.memory[RING_BYTES : RING_BYTES + nbytes]
        source[:] = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
        ring = self.session.memory[:RING_BYTES].view(DESCRIPTOR)
        self._driver = Xdma(self.session, ring, BASE, None)
        self._seam, self._streams = conditions.seam, conditions.streams
        if conditions.wide:
            # What is under way after reset is for a slower link.
            Bank(self.session, EXTENSION).write("reads", 0)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self.session.__exit__(*error)
        finally:
            self._log_folder.cleanup()

    def bytes_per_cycle(self, kind: str, nbytes: int, piece: int = DESCRIPTOR_BYTES) -> float:
        """Of a chain of descriptors of `piece` bytes, from the first one's fetch to the end.

        Of a "dual" run, the slower side's.
        """
        sides = KINDS[kind]
        for side in sides:
            self._start(kind, side, nbytes, piece)
        self._finish(sides, -(-nbytes // piece))
        # A copy is over when its receiving side is; its sending side's counter began later.
        counted = sides if kind == "dual" else sides[:1]
        cycles = max(self._driver.engine.channels[side].busy_cycles() for side in counted)
        self._driver.engine.stop(sides)
        self._check(kind, nbytes)
        return nbytes / cycles

    def rate_from(self, kind: str, nbytes: int, after: int, writes: int, ack_ns: float) -> float:
        """Bytes per cycle that arrive in the rest of a run whose acknowledgements change.

        Of a chain like `bytes_per_cycle`'s, with writes. `after` cycles of it they begin to take
        `ack_ns`; counted is what follows the next so many writes.
        """
        sides = KINDS[kind]
        self.session.events()
        for side in sides:
            self._start(kind, side, nbytes, DESCRIPTOR_BYTES)
        self.session.run(after)
        changed = self.session.cycle
        self.session.acknowledge_after(ack_ns)
        self._finish(sides, -(-nbytes // DESCRIPTOR_BYTES))
        self._driver.engine.stop(sides)
        self._check(kind, nbytes)
        events = self.session.events()
        events = events[(events["cycle"] > changed) & (events["address"] >= self.target)]
        start, *rest = events[writes:]
        cycles = int(rest[-1]["cycle"]) - int(start["cycle"])
        return sum(int(event["nbytes"]) for event in rest) / cycles

    def times(self, kind: str, nbytes: int, *, pushed: bool = False) -> Times:
        """Of a transfer that is one descriptor on each side, which is fetched unless `pushed`."""
        self.session.events()
        begin = self.session.cycle
        sides = KINDS[kind]
        for side in sides:
            self._start(kind, side, nbytes, nbytes, pushed)
        # Without the driver, whose look at one side's status can take back the other's interrupt.
        while self.session.run(1 << 20):
            pass
        self._finish(sides, 1)
        self._driver.engine.stop(sides)
        self._check(kind, nbytes)
        return self._times(kind, begin, nbytes, pushed)

    def read_under_writes(self, nbytes: int, writes: int, after: int) -> Times:
        """Of an H2C transfer that is started `after` cycles of a C2H one that fills the link.

        The latter is of `writes` bytes, and must take longer.
        """
        begin = self._beside(H2C, nbytes, nbytes, C2H, writes, after)
        self._driver.engine.stop((C2H, H2C))
        return self._times("h2c", begin, nbytes)

    def write_under_reads(self, nbytes: int, reads: int, after: int) -> Times:
        """Of a C2H transfer that is started `after` cycles of an H2C one that fills the link.

        The latter is of `reads` bytes, and must take longer.
        """
        begin = self._beside(C2H, nbytes, nbytes, H2C, reads, after)
        self._rest((C2H, H2C))
        return self._times("c2h", begin, nbytes)

    def writes_under_reads(self, nbytes: int, piece: int, reads: int, after: int) -> float:
        """Bytes per cycle of a chain like `bytes_per_cycle`'s, C2H, beside such reads."""
        self._beside(C2H, nbytes, piece, H2C, reads, after)
        cycles = self._driver.engine.channels[C2H].busy_cycles()
        self._rest((C2H, H2C))
        self._require_legal()
        return nbytes / cycles

    # Parts -----------------------------------------------------------------------------------

    def _beside(
        self, side: Direction, nbytes: int, piece: int, other: Direction, most: int, after: int
    ) -> int:
        """Runs a chain `after` cycles of one of `most` bytes the other way; when it was started."""
        self.session.events()
        self._start("dual", other, most, DESCRIPTOR_BYTES)
        self.session.run(after)
        begin = self.session.cycle
        self._start("dual", side, nbytes, piece)
        self._finish((side,), -(-nbytes // piece))
        if self._driver.engine.channels[other].completed() * DESCRIPTOR_BYTES >= most:
            raise RuntimeError(f"{most} bytes of {other.name} ended before {side.name}: move more")
        return begin

    def _rest(self, sides: tuple[Direction, ...]) -> None:
        """Stops what runs, and waits for what is under way."""
        self._driver.engine.stop(sides)
        while self.session.run(1 << 20):
            pass

    def _start(
        self, kind: str, side: Direction, nbytes: int, piece: int, pushed: bool = False
    ) -> None:
        count = -(-nbytes // piece)
        at = np.arange(count, dtype=np.uint64) * np.uint64(piece)
        lengths = np.minimum(np.uint64(piece), np.uint64(nbytes) - at)
        # A stream window, or the one card RAM again and again.
        card = np.full(count, STREAM_WINDOW, np.uint64) if kind == "copy" else at % _CARD_RAM_BYTES
        bus = at + np.uint64(self.source if side is H2C else self.target)
        if pushed:
            table = np.zeros(count, DESCRIPTOR)
            write_chain(table, 0, *((bus, card) if side is H2C else (card, bus)), lengths)
            channel = self._driver.engine.channels[side]
            channel.start(channel.push(table.tobytes()))
            return
        first = (self._ring(side) - BASE) // DESCRIPTOR.itemsize
        self._driver.start(side, first, bus, card, lengths)

    def _finish(self, sides: tuple[Direction, ...], count: int) -> None:
        engine, left = self._driver.engine, list(sides)
        while left:
            told = engine.statuses(left, engine.deadline(0))
            if not told:
                names = ", ".join(sorted(side.name for side in left))
                raise RuntimeError(f"no interrupt came, and {names} did not end")
            for side, status in told.items():
                engine.check(engine.channels[side], status, count)
                left.remove(side)

    def _check(self, kind: str, nbytes: int) -> None:
        source, target = (
            self.session.memory[at - BASE : at - BASE + nbytes] for at in (self.source, self.target)
        )
        if kind == "copy":
            if not (source == target).all():
                raise RuntimeError(f"a copy of {nbytes} bytes arrived wrong")
            target[:] = 0
        self._require_legal()

    def _require_legal(self) -> None:
        """RuntimeError if the core broke a rule; the log is up to date then."""
        if self.session.errors:
            raise RuntimeError(
                "the core broke a rule of PCIe; `.venv/bin/python -m sim.benches` may say which"
            )

    def _times(self, kind: str, begin: int, nbytes: int, pushed: bool = False) -> Times:
        last = KINDS[kind][-1]
        tlps = self.tlps(begin)
        base, _ = last.value
        control = CHANNEL.address("control", base=base)
        run = next(
            tlp.end
            for tlp in tlps
            if tlp.kind == "down MWr" and tlp.address % BAR_STEP == control and tlp.nbytes == 4
        )
        reads = [tlp for tlp in tlps if tlp.kind == "up MRd" and tlp.end > run]
        events = self.session.events()
        events = events[events["cycle"] > begin]
        if kind == "h2c":
            inside = range(self.source, self.source + nbytes)
            data = max(answered(tlps, read) for read in reads if read.address in inside)
        else:
            data = int(events["cycle"][events["address"] >= self.target].max())
        interrupt = int(events["cycle"][events["nbytes"] == 0].max())
        asked = fetched = run
        if not pushed:
            read = next(tlp for tlp in reads if tlp.address == self._ring(last))
            asked, fetched = read.end, answered(tlps, read)
        return Times(asked - run, fetched - run, data - run, interrupt - run)

    def _ring(self, side: Direction) -> int:
        """Bus address of a side's part of the ring."""
        return BASE + (RING_BYTES // 2 if side is H2C else 0)

    def tlps(self, begin: int) -> list[Tlp]:
        """Those since a cycle."""
        self._require_legal()
        found = []
        for match in _TLP.finditer(self._log.read_text()):
            cycle, nbytes = int(match["cycle"]), int(match["len"])
            if cycle < begin:
                continue
            beats = self._beats(match["kind"], 0 if match["kind"] == "MRd" else nbytes)
            tlp = Tlp(
                cycle,
                f"{match['way']} {match['kind']}",
                int(match["addr"] or "0", 16),
                nbytes,
                int(match["tag"]),
                int(match["count"] or 0),
                beats,
            )
            # Of a packet to the core the log has when it had arrived.
            down = match["way"] == "down"
            found.append(tlp._replace(end=cycle + beats) if down else tlp)
        return found

    def _beats(self, kind: str, nbytes: int) -> int:
        """Of so much payload, with what is before it: at the seam that is nothing."""
        if self._seam:
            return max(-(-nbytes // (self._seam.width // 8)), 1)
        if self._streams:
            descriptor = 12 if kind == "CplD" else 16
            return -(-(descriptor + nbytes) // (self._streams.width // 8))
        return -(-(12 + nbytes) // 8)
