# SPDX-License-Identifier: BSD-2-Clause
"""What each channel waits for, at the output and in the register.

Here the PCIe block takes and gives nothing from some TLP on, or reads are not answered, which does
not happen on the simulated board; `tests/sim/board/test_stall.py` has what happens there.
"""

from __future__ import annotations

from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp, TlpType

from peerdma import regs
from peerdma.regs import WaitsFor

from .bench_writeback import POLL, RUN, Word
from .channel import Channel
from .completer import Fault
from .memory import Transfer
from .tb import TB, bench

CHANNELS = (1, 2)
PCIE = ("ultrascale-128",)

_SIZE = 4096


def waits(tb: TB, channel: Channel) -> WaitsFor:
    """What the core says that a channel waits for; all others must be at rest."""
    value = int(tb.dut.waits_for.value)
    place = (16 if channel.c2h else 0) + 4 * channel.number
    assert value & ~(0xF << place) == 0, f"{value:#010x} while only {channel!r} runs"
    return WaitsFor(value >> place & 0xF)


def stall_after(tb: TB, kind: tuple[TlpType, TlpType], address: int) -> None:
    """The block stalls when the core has sent a TLP of this kind to this address."""

    def listen(direction: str, tlp: Tlp) -> None:
        if direction == "up" and tlp.fmt_type in kind and tlp.address == address:
            tb.device.stall = 1.0

    tb.device.on_tlp.append(listen)


READS = (TlpType.MEM_READ, TlpType.MEM_READ_64)
WRITES = (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64)


async def _stalls(tb: TB, channel: Channel, expected: WaitsFor) -> None:
    """Wait for the stall that was prepared; the channel says `expected`, and then nothing."""
    for _ in range(50):
        await Timer(1, "us")
        if tb.device.stall:
            break
    await Timer(2, "us")
    assert waits(tb, channel) == expected
    tb.device.stall = 0.0
    await channel.idle(100)
    assert waits(tb, channel) == WaitsFor.NOTHING


@bench(us=400)
async def data(tb: TB):
    """Reads wait for their completions, writes to be sent."""
    memory = tb.buffer(_SIZE)
    for channel, kind, expected in (
        (tb.h2c, READS, WaitsFor.COMPLETION),
        (tb.c2h, WRITES, WaitsFor.TRANSMIT),
    ):
        transfer = (memory.address, 0) if channel is tb.h2c else (0, memory.address)
        stall_after(tb, kind, memory.address)
        await channel.start(tb.chain([Transfer(*transfer, _SIZE)]))
        await _stalls(tb, channel, expected)


@bench(us=400)
async def the_word_behind_the_data(tb: TB):
    """All data has been written, and the writeback waits to be sent."""
    memory = tb.buffer(64)
    word = await Word.set_up(tb, tb.c2h)
    stall_after(tb, WRITES, memory.address)
    await tb.c2h.start(tb.chain([Transfer(0, memory.address, 64)]), POLL | RUN)
    await _stalls(tb, tb.c2h, WaitsFor.TRANSMIT)
    assert word.value == 1


@bench(us=400, series7=True)
async def room_for_completions(tb: TB):
    """Four reads of 512 bytes that are not answered leave too little for a descriptor."""
    source, target = tb.buffer(4 * 512), tb.buffer(64)
    tb.host.inject(range(source.address, source.address + 4 * 512), Fault.WITHHELD)
    await tb.h2c.start(tb.chain([Transfer(source.address, 0, 4 * 512)]))
    await Timer(5, "us")
    await tb.c2h.start(tb.chain([Transfer(0, target.address, 64)]))
    await Timer(5, "us")
    register = regs.EXTENSION["waits_for"]
    value = await tb.read(regs.EXTENSION, "waits_for")
    assert value == int(tb.dut.waits_for.value)
    number = tb.h2c.number
    assert register.field(f"h2c{number}").get(value) == WaitsFor.COMPLETION
    assert register.field(f"c2h{number}").get(value) == WaitsFor.SPACE
    await tb.host.release_withheld()
    for channel in (tb.h2c, tb.c2h):
        await channel.idle(20)
    assert await tb.read(regs.EXTENSION, "waits_for") == 0
    target.expect(source.data[:64])
