# SPDX-License-Identifier: BSD-2-Clause
"""Frames of the pattern source, each with its record behind its data."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from cocotb.triggers import ClockCycles, Timer
from cocotbext.pcie.core.tlp import Tlp, TlpAttr

from peerdma import regs
from peerdma.regs import Status
from peerdma.testing import pattern

from .channel import CONTROL_STOP, FINISHED
from .memory import Buffer, Transfer
from .tb import TB, bench

CHANNELS = (2,)
#: Of the core that these benches are for.
USER = "pattern"
STREAM, RECORD = regs.STREAM_WINDOW, regs.FRAME_RECORD.itemsize


@dataclass
class Place:
    """Where a frame goes: its parts, in order, and its record."""

    parts: list[Buffer]
    record: Buffer

    @property
    def transfers(self) -> list[Transfer]:
        """What brings it there."""
        return [Transfer(STREAM, each.address, each.size) for each in (*self.parts, self.record)]

    @property
    def data(self) -> bytes:
        """The bytes of the frame."""
        return b"".join(part.data for part in self.parts)


def place(tb: TB, size: int, pieces: int = 1, *, gpu: bool = False) -> Place:
    """Memory for a frame of `size` bytes in so many pieces, of the host or of a GPU."""
    marks = sorted(tb.rng.sample(range(1, size), pieces - 1))
    make = tb.gpu_buffer if gpu else tb.buffer
    parts = [
        make(stop - start, offset=tb.rng.randrange(4096))
        for start, stop in zip([0, *marks], [*marks, size], strict=True)
    ]
    record = make(RECORD, offset=RECORD * tb.rng.randrange(4096 // RECORD))
    record.data = bytes(RECORD)
    return Place(parts, record)


class Source:
    """The pattern source of the pair of `tb.c2h`, with records on; it begins with a new frame."""

    def __init__(self, tb: TB):
        self.tb, self.number = tb, tb.c2h.number
        self.seed = 0

    async def write(self, name: str, value: int) -> None:
        """Write a register of the source."""
        await self.tb.write(regs.PATTERN_SOURCE, name, value, channel=self.number)

    async def start(self, size: int, interval: int = 0) -> None:
        """Make frames of `size` bytes, from number 0 on."""
        self.seed = self.tb.rng.getrandbits(31)
        await self.write("seed", self.seed)
        await self.write("interval", interval)
        await self.write("frame_words", size // pattern.WORD_BYTES)
        for name in ("frame_records", "stream_flush"):
            await self.tb.write(regs.EXTENSION, name, 1 << self.number)

    def expect(self, places: Sequence[Place], first: int = 0) -> list[np.void]:
        """Fail unless these are whole frames, numbered from `first` on; returns their records."""
        records = []
        for number, each in enumerate(places, first):
            data = pattern.fill_bytes(self.seed + number, 0, len(each.data)).tobytes()
            assert each.data == data, f"frame {number}"
            record = np.frombuffer(each.record.data, regs.FRAME_RECORD)[0]
            assert record["number"] == regs.FRAME_NUMBER_VALID | number
            assert record["bytes"] == len(data)
            assert record["crc"] == zlib.crc32(data)
            records.append(record)
        return records


class Writes:
    """The memory writes of the board, in the order in which they leave it."""

    def __init__(self, tb: TB):
        self._tlps: list[Tlp] = []
        tb.device.on_tlp.append(self._note)

    def _note(self, direction: str, tlp: Tlp) -> None:
        if direction == "up" and tlp.has_data() and not tlp.is_completion():
            self._tlps.append(tlp)

    def expect_records_behind(self, places: Sequence[Place]) -> None:
        """Fail unless each record is one write, behind those of its frame's data and of all before.

        No write may be allowed to pass another: one traffic class, no relaxed ordering, no IDs to
        go by.
        """
        at = 0
        for number, each in enumerate(places):
            spans = [range(part.address & ~3, part.address + part.size) for part in each.parts]
            behind = next(
                n for n, tlp in enumerate(self._tlps) if tlp.address == each.record.address
            )
            record = self._tlps[behind]
            assert (record.length, record.first_be, record.last_be) == (RECORD // 4, 0xF, 0xF)
            data = [n for n, tlp in enumerate(self._tlps) if any(tlp.address in s for s in spans)]
            assert at <= data[0] and data[-1] < behind, f"frame {number}: {at} {data} {behind}"
            at = behind + 1
        assert {(tlp.tc, tlp.attr) for tlp in self._tlps} == {(0, TlpAttr(0))}


@bench(us=3000, lanes=4, stall=0.2)
async def records_follow_their_frames(tb: TB):
    """Frames in any number of pieces, at any address and payload size, host memory or not."""
    source, writes = Source(tb), Writes(tb)
    for mps in (128, 256, 512):
        await tb.configure(mps=mps)
        size = 4 * tb.rng.choice([1, 16, tb.rng.randint(2, 700)])
        await source.start(size)
        places = [place(tb, size, tb.rng.randint(1, min(4, size))) for _ in range(12)]
        # What a run leaves is for the next one, records included.
        cut = tb.rng.randrange(1, 12)
        for some in (places[:cut], places[cut:]):
            chain = tb.chain([one for each in some for one in each.transfers], high=True)
            await tb.c2h.run(chain, 500)
        source.expect(places)
        writes.expect_records_behind(places)


@bench(us=1000, gpu=True)
async def records_in_gpu_memory(tb: TB):
    """Behind the data, in the same memory, where a GPU waits for it."""
    source, writes = Source(tb), Writes(tb)
    await source.start(1500)
    places = [place(tb, 1500, 2, gpu=True) for _ in range(8)]
    chain = tb.chain([one for each in places for one in each.transfers])
    await tb.c2h.start(chain)
    for number, each in enumerate(places):
        # The host may hear of the end before all of it has come to the GPU.
        while not each.record.data[-1]:
            await Timer(100, "ns")
        source.expect([each], number)
    await tb.c2h.expect_end(FINISHED, chain.count)
    writes.expect_records_behind(places)


@bench(us=2000, lanes=4)
async def small_frames_one_behind_the_other(tb: TB):
    """64 bytes each: the source waits, and no frame and no record is lost."""
    source = Source(tb)
    await source.start(64)
    places = [place(tb, 64) for _ in range(150)]
    await tb.c2h.run(tb.chain([one for each in places for one in each.transfers]), 500)
    records = source.expect(places)
    times = [int(record["cycles"]) for record in records]
    assert times == sorted(set(times))
    assert not any(record["dropped"] for record in records)


@bench(us=2000)
async def dropped_frames_are_counted(tb: TB):
    """Of a source that does not wait: frames that come are whole, and time goes by its clock."""
    source, interval = Source(tb), 300
    await source.start(800, interval)
    places = [place(tb, 800) for _ in range(20)]
    transfers = [one for each in places for one in each.transfers]
    await tb.c2h.run(tb.chain(transfers[:4]), 500)
    # Nobody takes its frames for a while.
    await Timer(30 * interval * tb.device.clock_ns, "ns")
    await tb.c2h.run(tb.chain(transfers[4:]), 500)
    records = source.expect(places)
    dropped = [int(record["dropped"]) for record in records]
    assert dropped == sorted(dropped) and dropped[0] == 0 < dropped[-1]
    now = await tb.read(regs.PATTERN_SOURCE, "dropped", channel=tb.c2h.number)
    assert dropped[-1] <= now
    # A frame begins when it is due; only the first byte behind a pause is late.
    starts = [int(record["cycles"]) for record in records]
    assert min(b - a for a, b in pairwise(starts)) <= interval


@bench(us=2000)
async def a_frame_that_is_cut_off_has_no_record(tb: TB):
    """By an abort, Bus Master off or a soft reset: the next run begins with a new frame."""
    source = Source(tb)
    await source.start(20000)
    for ending in ("abort", "bus master", "soft reset"):
        (one, cut) = (place(tb, 20000), place(tb, 20000))
        await tb.c2h.start(tb.chain([*one.transfers, *cut.transfers]))
        while one.record.data[-1] != regs.FRAME_NUMBER_VALID >> 24:
            await Timer(1, "us")
        await ClockCycles(tb.dut.clk, tb.rng.randint(100, 2000))
        if ending == "abort":
            await tb.c2h.write("control", CONTROL_STOP)
            await tb.c2h.idle(100)
        elif ending == "bus master":
            await tb.pci.clear_master()
            status = await tb.c2h.idle(100)
            assert status & Status.errors()
            await tb.pci.set_master()
            await tb.c2h.write("control", CONTROL_STOP)
            assert await tb.c2h.read("status_rc") & Status.errors()
        else:
            await tb.write(regs.EXTENSION, "soft_reset", 1)
            await tb.c2h.idle(100)
        source.expect([one])
        assert cut.record.data == bytes(RECORD), ending
        if ending == "soft reset":  # which switches the source off
            await source.start(20000)
        again = place(tb, 20000)
        await tb.c2h.run(tb.chain(again.transfers), 300)
        source.expect([again])
        # To begin anew, as the run before ended well.
        await source.start(20000)
