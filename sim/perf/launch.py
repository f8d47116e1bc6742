# SPDX-License-Identifier: BSD-2-Clause
"""A board with a launch queue under measurement: jobs that a GPU starts itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from peerdma import regs
from peerdma.regs import (
    CHANNEL,
    DESCRIPTOR,
    EXTENSION,
    FRAME_RECORD,
    LAUNCH_ENTRY,
    LAUNCH_QUEUE,
    LAUNCH_RECORD,
    LAUNCH_SLOT,
    PATTERN_SOURCE,
    STREAM_WINDOW,
    LaunchStatus,
)
from peerdma.userspace.chain import write_chain
from sim.board.session import BASE, Conditions

from .rig import BAR_STEP, KINDS, RING_BYTES, Rig, answered

__all__ = ["LaunchRig", "LaunchTimes"]

#: Where the queue's memory is: behind the chains, which are short where jobs are launched.
_ENTRIES, _RECORDS, _SHADOW = (BASE + RING_BYTES - 0x4000 + 0x1000 * n for n in range(3))
_PLACES, _GENERATION = 256, 1
_RECORD_BYTES = FRAME_RECORD.itemsize
#: Of a rate: tickets at its begin and its end that are not measured; cycles between two looks at
#: the records; and looks without one until a job has not ended.
_MARGIN, _LOOK, _MOST_LOOKS = 16, 8, 20_000
_DONE = _SHADOW + 64
#: Cycles until an armed board does nothing but poll; and bound of one launch, in steps.
_REST, _MOST, _STEP = 1000, 200_000, 100


class LaunchTimes(NamedTuple):
    """Of one launched job, in cycles from when its doorbell reached the core, or was in memory."""

    #: the first beat of the read for its entry is sent; 0 if that came with the doorbell
    asked: int
    #: the first beat of the answer is in the core; 0 if the entry came with the doorbell
    entry: int
    #: the first beat of the first request for its data is sent: a read, or a write
    first: int
    #: the last byte is where it belongs
    data: int
    #: its record is at the host
    record: int


class LaunchRig(Rig):
    """A rig whose core has launch queues, of which it uses the first; `user` as in `Rig`."""

    def __init__(
        self,
        conditions: Conditions,
        nbytes: int,
        launch_queues: int = 1,
        user: str | None = None,
    ):
        super().__init__(conditions, nbytes, launch_queues=launch_queues, user=user)

    def launch(
        self, kind: str, nbytes: int, *, way: str = "page", after: int = 0, card: int = 0
    ) -> LaunchTimes:
        """Of a job of one descriptor, to the board ("h2c"), or from it ("c2h") with a flush read.

        Parameters
        ----------
        way : str
            Its doorbell is a write to the board's "page", a "wide" one with the entry, or the
            "shadow" tail.
        after : int
            Cycles that the queue has rested before.
        card : int
            Card address.

        Raises
        ------
        RuntimeError
            If the job does not end well within a bound, or the core broke a rule.
        """
        self._prepare(kind, nbytes, card, flush=kind == "c2h")
        self._arm(way == "shadow")
        self.session.run(_REST + after)
        self.session.events()
        begin = self.session.cycle
        self._rows(_ENTRIES, LAUNCH_ENTRY)[0] = (0, 0)
        if way == "shadow":
            self.memory(_SHADOW, 4).view("<u4")[0] = 1 | _GENERATION << 16
        else:
            self._announce(1, way)
        record = self._rows(_RECORDS, LAUNCH_RECORD)[0]
        for _ in range(_MOST // _STEP):
            if not record["ticket"]:
                break
            self.session.run(_STEP)
        self._write(LAUNCH_QUEUE, control=0)
        self.session.run(_REST)
        if record["ticket"] or record["status"] != LaunchStatus.OK:
            raise RuntimeError(f"a job of {nbytes} bytes did not end well; its record: {record}")
        return self._launched(kind, nbytes, begin, way)

    def rate(
        self,
        kind: str,
        nbytes: int,
        tickets: int,
        *,
        count: int,
        way: str = "page",
        flush: bool = False,
        done: bool = False,
    ) -> float:
        """Bytes per cycle of jobs like `launch`'s, or "copy", one after the other.

        Parameters
        ----------
        tickets : int
            How many are submitted and have no record, at most.
        count : int
            How many there are in all.
        way : str
            One write to the board's "page" is the doorbell of all that are submitted at once, or
            each has a "wide" one of its own, with its entry.
        flush, done : bool
            Each has a flush read; a done word.

        Raises
        ------
        RuntimeError
            If a job does not end well within a bound, or the core broke a rule.
        """
        self._prepare(kind, nbytes, 0, flush=flush, done=done)
        return nbytes * self._tickets_per_cycle(tickets, count, way)

    def packets(self, nbytes: int, tickets: int, *, count: int) -> float:
        """Packets per cycle, with their records, of a pattern source that has always one more.

        Parameters
        ----------
        nbytes : int
            Of a packet, a multiple of 4.
        tickets, count : int
            As for `rate`, with a doorbell for all that are submitted at once.

        Raises
        ------
        RuntimeError
            As `rate`; or if the last packet's record is not that of one of `nbytes`.
        """
        record = self.target + nbytes
        self._fill(0, (STREAM_WINDOW, self.target, nbytes), (STREAM_WINDOW, record, _RECORD_BYTES))
        control = _value(LAUNCH_SLOT, valid=1, c2h=1, receive=1)
        self._write(LAUNCH_SLOT, control=control)
        self._write(EXTENSION, frame_records=1)
        for name, value in (("interval", 0), ("frame_words", nbytes // 4)):
            self.session.write32(regs.BAR_USER[0], PATTERN_SOURCE.address(name), value)
        self._write(EXTENSION, stream_flush=1)
        rate = self._tickets_per_cycle(tickets, count, "page")
        self.session.write32(regs.BAR_USER[0], PATTERN_SOURCE.address("frame_words"), 0)
        (found,) = self.memory(record, _RECORD_BYTES).view(FRAME_RECORD)
        if (found["bytes"], found["number"]) != (nbytes, regs.FRAME_NUMBER_VALID | count - 1):
            raise RuntimeError(f"the last of {count} packets of {nbytes} bytes is {found}")
        return rate

    def beside_runs(
        self, kind: str, nbytes: int, tickets: int, run: int, piece: int, *, count: int
    ) -> tuple[float, float]:
        """Bytes per cycle of jobs like `rate`'s, and of software's runs on the same channel.

        Each of these is of `run` bytes, in descriptors of `piece` bytes, and is started when a read
        of the status has shown that the one before has ended.

        Raises
        ------
        RuntimeError
            As `rate`.
        """
        side, begin, ended = KINDS[kind][0], self.session.cycle, 0
        status = CHANNEL.address("status", base=side.value[0])
        self._prepare(kind, nbytes, 0, flush=False)
        self._start(kind, side, run, piece)

        def restart() -> None:
            nonlocal ended
            if not self.session.read32(regs.BAR_DMA[0], status) & regs.Status.BUSY:
                ended += 1
                self._driver.engine.stop((side,))
                self._start(kind, side, run, piece)

        launched = nbytes * self._tickets_per_cycle(tickets, count, "page", restart)
        moved = run * ended + piece * self._driver.engine.channels[side].completed()
        cycles = self.session.cycle - begin
        self._rest((side,))
        return launched, moved / cycles

    def memory(self, at: int, nbytes: int) -> np.ndarray:
        """The host's memory at a bus address, as bytes."""
        return self.session.memory[at - BASE : at - BASE + nbytes]

    # Parts -----------------------------------------------------------------------------------

    def _rows(self, at: int, dtype: np.dtype) -> np.ndarray:
        return self.memory(at, _PLACES * dtype.itemsize).view(dtype)

    def _tickets_per_cycle(
        self,
        tickets: int,
        count: int,
        way: str,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> float:
        """Of `count` tickets of slot 0; calls `meanwhile` at each look at their records."""
        self._arm(polls=False)
        self.session.run(_REST)
        self.session.events()
        entries, records = (
            self._rows(at, dtype)
            for at, dtype in ((_ENTRIES, LAUNCH_ENTRY), (_RECORDS, LAUNCH_RECORD))
        )
        submitted = completed = looks = 0
        while completed < count and looks < _MOST_LOOKS:
            looks += 1
            while completed < submitted and records[completed % _PLACES]["ticket"] == completed:
                completed, looks = completed + 1, 0
            if (more := min(count, completed + tickets)) > submitted:
                for ticket in range(submitted, more):
                    entries[ticket % _PLACES] = (ticket, 0)
                    if way == "wide":
                        self._announce(ticket + 1, way)
                submitted = more
                if way == "page":
                    self._announce(submitted, way)
            meanwhile()
            self.session.run(_LOOK)
        self._write(LAUNCH_QUEUE, control=0)
        self.session.run(_REST)
        self._require_legal()
        if completed < count or records["status"].any():
            raise RuntimeError(f"of {count} jobs {completed} ended, not all well")
        events = self.session.events()
        inside = (events["address"] >= _RECORDS) & (events["address"] < _SHADOW)
        ends = events["cycle"][inside].astype(np.int64)
        first, last = _MARGIN, count - _MARGIN
        return (last - first) / float(ends[last] - ends[first])

    def _announce(self, tail: int, way: str) -> None:
        """Ring for tickets of slot 0, of which there are less than 2^16."""
        write = self.session.write64 if way == "wide" else self.session.write32
        write(regs.BAR_USER[0], regs.DOORBELL_BASE, tail | _GENERATION << 16)

    def _write(self, block: regs.Block, **values: int) -> None:
        for name, value in values.items():
            self.session.write32(regs.BAR_DMA[0], block.address(name), value)

    def _prepare(
        self, kind: str, nbytes: int, card: int, *, flush: bool, done: bool = False
    ) -> None:
        """Fill slot 0, and slot 1 for a copy."""
        pair = kind == "copy"
        card = STREAM_WINDOW if pair else card
        halves = {"h2c": (self.source, card), "c2h": (card, self.target)}
        for slot, (source, to) in enumerate(halves.values() if pair else [halves[kind]]):
            self._fill(slot, (source, to, nbytes))
        kinds = {"c2h": int(kind == "c2h"), "pair": int(pair), "overlap": int(kind != "c2h")}
        control = _value(LAUNCH_SLOT, valid=1, flush=int(flush), done=int(done), **kinds)
        self._write(
            LAUNCH_SLOT,
            flush_lo=self.target,
            flush_hi=0,
            done_lo=_DONE,
            done_hi=0,
            control=control,
        )

    def _fill(self, first: int, *spans: tuple[int, int, int]) -> None:
        """Put a list, (source, destination, length) each, into a slot and those behind it."""
        table = np.zeros(len(spans), DESCRIPTOR)
        write_chain(table, 0, *np.array(spans, np.uint64).T)
        for slot, dwords in enumerate(table.view("<u4").reshape(len(spans), -1), first):
            for number, dword in enumerate(dwords):
                at = LAUNCH_SLOT.address("descriptor", slot) + 4 * number
                self.session.write32(regs.BAR_DMA[0], at, int(dword))

    def _arm(self, polls: bool) -> None:
        """Arm the queue, whose next ticket is 0."""
        for at, dtype in ((_ENTRIES, LAUNCH_ENTRY), (_RECORDS, LAUNCH_RECORD)):
            self._rows(at, dtype)["ticket"] = np.arange(_PLACES) - _PLACES & 0xFFFF_FFFF
        self.memory(_SHADOW, 4)[:] = 0
        self._write(LAUNCH_QUEUE, ring_lo=_ENTRIES, records_lo=_RECORDS, shadow_lo=_SHADOW, first=0)
        control = {"armed": 1, "polls": polls, "mask": _PLACES - 1, "generation": _GENERATION}
        self._write(LAUNCH_QUEUE, control=_value(LAUNCH_QUEUE, **control))

    def _launched(self, kind: str, nbytes: int, begin: int, way: str) -> LaunchTimes:
        tlps = self.tlps(begin)
        rung = begin
        if way != "shadow":
            bell = range(regs.DOORBELL_BASE, regs.DOORBELL_BASE + 4)
            rung = next(
                tlp.end for tlp in tlps if tlp.kind == "down MWr" and tlp.address % BAR_STEP in bell
            )
        reads = [tlp for tlp in tlps if tlp.kind == "up MRd"]
        entries = [tlp for tlp in reads if tlp.address == _ENTRIES]
        if bool(entries) == (way == "wide"):
            raise RuntimeError(f"the entry was read {len(entries)} times, by {way}")
        events = self.session.events()
        record = int(events["cycle"][events["address"] == _RECORDS].max())
        if kind == "h2c":
            inside = range(self.source, self.source + nbytes)
            asked = [read for read in reads if read.address in inside]
            data = max(answered(tlps, read) for read in asked)
        else:
            inside = range(self.target, self.target + nbytes)
            asked = [tlp for tlp in tlps if tlp.kind == "up MWr" and tlp.address in inside]
            data = int(events["cycle"][events["address"] >= self.target].max())
        fetched = rung, rung
        for read in entries:
            answers = (tlp for tlp in tlps if tlp.kind == "down CplD" and tlp.tag == read.tag)
            fetched = read.begin, next(tlp.begin for tlp in answers if tlp.end > read.end)
        times = (*fetched, asked[0].begin, data, record)
        return LaunchTimes(*(time - rung for time in times))


def _value(block: regs.Block, **fields: int) -> int:
    """The control register of a block, with these fields."""
    return sum(block["control"].field(name).put(value) for name, value in fields.items())
