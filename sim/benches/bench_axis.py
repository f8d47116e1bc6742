# SPDX-License-Identifier: BSD-2-Clause
"""User logic outside of the core: cocotbext-axi on its AXI4-Stream ports, registers beside them.

The core has two pairs, each with ports and registers of its own: most benches use the last one.
The logic inverts bits, by a register at offset 0, and counts its bytes in one at offset 4.
"""

from __future__ import annotations

import logging
import random

import cocotb
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, Timer
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from peerdma import regs

from .bench_stream import STREAM, copy, cut
from .bench_stream_faults import stop
from .memory import Transfer
from .tb import TB, bench

CHANNELS = (2,)
#: The user block of the core.
USER = "axis"
#: Bytes of the rings on either side of the logic.
INBOUND, OUTBOUND = 8192, 4096
_SIGNALS = ("tdata", "tkeep", "tlast")


class Beats(AxiStreamBus):
    """H2C has no packets: each beat is a frame of its own."""

    _optional_signals = ("tvalid", "tready", "tkeep")


class Logic:
    """What a user would connect to the ports of a pair.

    Parameters
    ----------
    tb : TB
    pause : float
        Probability of a pause in each cycle of either stream.
    number : int, optional
        Of the pair, if it is not that of `TB.h2c` and `TB.c2h`.
    sparse : bool
        Leave lanes without bytes, and end packets anywhere.

    Attributes
    ----------
    resets : int
        How often the streams were reset; the register's resets are in `register_resets`.
    taken, given : list of int
        Cycles in which beats were transferred: to the logic, and from it.
    """

    def __init__(
        self, tb: TB, *, number: int | None = None, pause: float = 0.0, sparse: bool = False
    ):
        dut = tb.dut
        number = tb.c2h.number if number is None else number
        # It logs every frame.
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.ERROR)
        self._dut, self._rng, self._sparse = dut, random.Random(tb.rng.random()), sparse
        self._into, self._out = f"m_axis_h2c{number}", f"s_axis_c2h{number}"
        self._reg, self._aresetn = f"reg{number}", dut[f"axis{number}_aresetn"]
        reset = {"reset": self._aresetn, "reset_active_level": False}
        self.sink = AxiStreamSink(Beats(dut, self._into), dut.clk, **reset)
        bus = AxiStreamBus.from_prefix(dut, self._out)
        self.source = AxiStreamSource(bus, dut.clk, **reset)
        if pause:
            for side in (self.sink, self.source):
                side.set_pause_generator(iter(lambda: self._rng.random() < pause, None))
        dut[f"{self._reg}_rdata"].value = 0
        self.mask = self.bytes = self.resets = self.register_resets = 0
        self.taken: list[int] = []
        self.given: list[int] = []
        self._work = cocotb.start_soon(self._process())
        for task in (self._judge(), self._follow_reset(), self._registers()):
            cocotb.start_soon(task)

    async def _process(self) -> None:
        while True:
            got = bytes((await self.sink.recv()).tdata)
            self.bytes += len(got)
            data = bytes(byte ^ self.mask for byte in got)
            await self.source.send(self._scattered(data) if self._sparse else data)

    def _scattered(self, data: bytes) -> AxiStreamFrame:
        """The bytes in lanes at random, in their order; there may be beats without any."""
        lanes, keep = bytearray(), []
        for byte in data:
            while self._rng.random() < 0.3:
                lanes.append(self._rng.randrange(256))
                keep.append(0)
            lanes.append(byte)
            keep.append(1)
        gap = self._rng.choice([0, 0, 20])
        return AxiStreamFrame(bytes(lanes) + bytes(gap), keep + [0] * gap)

    async def _follow_reset(self) -> None:
        """Nothing of what came before a reset may be left behind it."""
        aresetn = self._aresetn
        while True:
            await FallingEdge(aresetn)
            self.resets += 1
            self._work.cancel()
            for side in (self.sink, self.source):
                side.clear()
            await RisingEdge(aresetn)
            self._work = cocotb.start_soon(self._process())

    async def _judge(self) -> None:
        """The rules of AXI4-Stream for the core, and when beats were transferred."""
        dut, value, offered, low, cycle = self._dut, self._value, None, 0, 0
        while True:
            await RisingEdge(dut.clk)
            cycle += 1
            if not int(self._aresetn.value):
                assert not value(self._into, "tvalid"), "tvalid in reset"
                low, offered = low + 1, None
                continue
            assert low == 0 or low >= 16, f"a reset of {low} cycles"
            low = 0
            valid, ready = (value(self._into, name) for name in ("tvalid", "tready"))
            beat = [value(self._into, name) for name in _SIGNALS]
            assert offered is None or (valid and beat == offered), "a beat did not wait"
            if valid:
                keep = beat[1]
                assert keep and not keep & keep + 1, f"tkeep {keep:#x}"
                assert not beat[2], "tlast on H2C"
            offered = beat if valid and not ready else None
            if valid and ready:
                self.taken.append(cycle)
            if value(self._out, "tvalid") and value(self._out, "tready"):
                self.given.append(cycle)

    async def _registers(self) -> None:
        dut, value, reg, was_reset = self._dut, self._value, self._reg, False
        while True:
            await RisingEdge(dut.clk)
            if not value(reg, "aresetn"):
                self.register_resets += not was_reset
                self.mask, was_reset = 0, True
                continue
            was_reset = False
            if value(reg, "wstrb") & 1 and value(reg, "waddr") == 0:
                self.mask = value(reg, "wdata") & 0xFF
            if value(reg, "rstrb"):
                word = self.bytes % (1 << 32) << 32 | self.mask
                dut[f"{reg}_rdata"].value = word if value(reg, "raddr") == 0 else 0

    def _value(self, interface: str, name: str) -> int:
        return int(self._dut[f"{interface}_{name}"].value)


async def expect_processed(tb: TB, logic: Logic, total: int) -> None:
    """A copy of `total` bytes through the logic, in descriptors of any size on either side."""
    pieces = min(4, total)
    source, target, into, out = copy(tb, cut(tb, total, pieces), cut(tb, total, pieces))
    runs = [tb.h2c.run(into, 400), tb.c2h.run(out, 400)]
    tb.rng.shuffle(runs)
    for run in [cocotb.start_soon(run) for run in runs]:
        await run
    target.expect(bytes(byte ^ logic.mask for byte in source.data))


async def expect_all_processed(tb: TB, logic: Logic) -> None:
    """Copies of several lengths, with another mask each."""
    for total in (1, 7, 8, 9, tb.rng.randint(1000, 6000)):
        mask = tb.rng.randrange(256)
        await write(tb, 0, mask.to_bytes(4, "little"))
        await expect_processed(tb, logic, total)
        assert logic.mask == mask


async def write(tb: TB, offset: int, data: bytes) -> None:
    """Write registers of the logic of the last pair."""
    await tb.bar_write(regs.BAR_USER[0], _base(tb.c2h.number) + offset, data)


async def read(tb: TB, offset: int, size: int) -> int:
    """Read registers of the logic of the last pair; fails if the answer takes too long."""
    data = await tb.bar_read(regs.BAR_USER[0], _base(tb.c2h.number) + offset, size)
    return int.from_bytes(data, "little")


def _base(number: int) -> int:
    """Offset of a pair's registers in the BAR."""
    return regs.USER_BLOCK_BASE + number * regs.USER_BLOCK_SIZE


@bench(us=2000, lanes=4)
async def processed(tb: TB):
    """Bytes of any number go out and come back changed."""
    await expect_all_processed(tb, Logic(tb))


@bench(us=3000, lanes=4, stall=0.2)
async def pauses(tb: TB):
    """The same with pauses of both streams, and of the PCIe block."""
    await expect_all_processed(tb, Logic(tb, pause=0.4))


@bench(us=3000, lanes=4)
async def scattered(tb: TB):
    """Lanes are left out, packets end anywhere, even behind their last byte."""
    await expect_all_processed(tb, Logic(tb, pause=0.1, sparse=True))


@bench(us=500, lanes=4)
async def full_rate(tb: TB):
    """Either stream carries a beat in each cycle: what the rings hold, without a pause."""
    logic = Logic(tb)
    logic.sink.pause = True
    # More than the ring and what is in front of it hold: reads wait for room.
    size = INBOUND + 4096
    source, target, into, out = copy(tb, [size], [size])
    await tb.h2c.start(into)
    await Timer(30, "us")
    assert not logic.taken
    logic.sink.pause = False
    await ClockCycles(tb.dut.clk, INBOUND // 8)
    for cycles, ring in ((logic.taken, INBOUND), (logic.given, OUTBOUND)):
        # A descriptor of 512 bytes may be in the ring in part; C2H does not run yet.
        count = (ring - 512) // 8
        assert cycles[count - 1] - cycles[0] == count - 1, f"{count} beats took longer"
    await tb.c2h.run(out, 200)
    await tb.h2c.idle(100)
    target.expect(source.data)
    # One descriptor of a multiple of eight bytes: no beat has fewer.
    assert logic.bytes == size == 8 * len(logic.taken)


@bench(us=3000, lanes=4)
async def aborts(tb: TB):
    """Stopping a copy anywhere resets the logic; the next copy is clean, its register kept."""
    logic = Logic(tb, pause=0.2)
    await write(tb, 0, (0x5A).to_bytes(4, "little"))
    for number in range(8):
        _, _, into, out = copy(tb, [20000], [20000])
        channels = [(tb.h2c, into), (tb.c2h, out)]
        tb.rng.shuffle(channels)
        for channel, chain in channels:
            await channel.start(chain)
        await Timer(tb.rng.randint(1000, 6000), "ns")
        assert logic.resets == number
        await stop(tb)
        await expect_processed(tb, logic, 900)
        assert logic.resets == number + 1
    assert await read(tb, 0, 4) == 0x5A
    assert logic.register_resets == 0
    await tb.write(regs.EXTENSION, "soft_reset", 1)
    await Timer(2, "us")
    assert await read(tb, 0, 4) == 0
    assert (logic.resets, logic.register_resets) == (9, 1)


@bench(us=1000, lanes=4)
async def flushes(tb: TB):
    """What a run left in the logic goes when software asks for it; without, it stays."""
    logic = Logic(tb)
    left = tb.buffer(999)
    await tb.h2c.run(tb.chain([Transfer(left.address, STREAM, 999)]))
    await Timer(2, "us")
    assert (logic.bytes, logic.resets) == (999, 0)
    await tb.write(regs.EXTENSION, "stream_flush", 1 << tb.c2h.number)
    await expect_processed(tb, logic, 500)
    assert logic.resets == 1


@bench(us=500)
async def registers(tb: TB):
    """Words of both halves, single bytes, and reads that nobody answers end as all others do."""
    logic = Logic(tb)
    await write(tb, 0, bytes([0x81, 0, 0, 0]))
    assert await read(tb, 0, 4) == 0x81
    await expect_processed(tb, logic, 77)
    assert await read(tb, 0, 8) == 77 << 32 | 0x81
    assert await read(tb, 4, 4) == 77
    # Of other pairs, of no register here, and beyond: no strobe, or nothing that answers.
    for offset in (8, 0xF8, 0x100):
        assert await read(tb, offset, 8) == 0
    await write(tb, 8, bytes(range(1, 9)))
    await write(tb, 0x100, bytes(range(1, 9)))
    assert await read(tb, 0, 4) == 0x81


@bench(us=1000, lanes=4)
async def side_by_side(tb: TB):
    """Copies through both pairs at the same time, each by its own register."""
    logics = [Logic(tb, number=number, pause=0.1) for number in range(2)]
    masks, copies, runs = (0x0F, 0xA0), [], []
    for number, mask in enumerate(masks):
        await tb.bar_write(regs.BAR_USER[0], _base(number), mask.to_bytes(4, "little"))
    for number in range(2):
        source, target, *lists = copy(tb, cut(tb, 3001, 3), cut(tb, 3001, 3))
        copies.append((source, target))
        channels = tb.channels[number], tb.channels[2 + number]
        runs += [channel.run(chain, 400) for channel, chain in zip(channels, lists, strict=True)]
    for run in [cocotb.start_soon(run) for run in runs]:
        await run
    for logic, mask, (source, target) in zip(logics, masks, copies, strict=True):
        assert (logic.mask, logic.bytes) == (mask, 3001)
        target.expect(bytes(byte ^ mask for byte in source.data))
