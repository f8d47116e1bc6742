# SPDX-License-Identifier: BSD-2-Clause
"""The core behind the UltraScale and UltraScale+ adapter, on cocotbext-pcie's models of the blocks.

What the core does is the subject of the other benches. Here it is what differs between the two
blocks, at each width: their ports, sequence numbers, and how many writes may be under way.
"""

from __future__ import annotations

import cocotb
from cocotb.triggers import RisingEdge, Timer

from peerdma import regs

from .bench_dma import there_and_back
from .channel import CONTROL_START, CONTROL_STOP, FINISHED
from .host import Split
from .memory import Transfer
from .tb import TB, bench
from .ultrascale import MODELLED

PCIE = MODELLED
_ALIGNED = [(4, 0, 0, 0), (64, 0, 64, 0), (4096, 0, 128, 0), (5000, 0, 8192, 64)]


@bench(us=200)
async def registers(tb: TB):
    """Reads and writes of registers, single and in long requests, and what they say of the link."""
    ident = await tb.read(regs.CONFIG, "identifier")
    assert ident == regs.CONFIG["identifier"].reset
    width = await tb.read(regs.CONFIG, "data_width")
    assert 64 << width == len(tb.dut.s_axis_rq_tdata)
    state, port = await tb.read(regs.EXTENSION, "link"), tb.device.upstream_port
    link = {name: regs.EXTENSION["link"].field(name).get(state) for name in ("speed", "width")}
    assert link == {"speed": port.cur_link_speed, "width": port.cur_link_width}
    table = tb.rng.randbytes(16 * 4)
    await tb.bar_write(regs.BAR_DMA[0], regs.MSIX_TABLE_OFFSET, table)
    found = await tb.bar_read(regs.BAR_DMA[0], regs.MSIX_TABLE_OFFSET, len(table))
    for entry in range(4):
        at = slice(16 * entry, 16 * entry + 12)
        assert found[at] == table[at]
    for length in (1, 2, 3, 7, 12, 33):
        at = tb.rng.randrange(12)
        assert (
            await tb.bar_read(regs.BAR_DMA[0], regs.MSIX_TABLE_OFFSET + at, length)
            == (found[at : at + length])
        )


@bench(us=100)
async def one_descriptor(tb: TB):
    """The simplest transfers."""
    await there_and_back(tb, _ALIGNED)


async def copy(tb: TB, size: int) -> None:
    """From host memory through the user stream and back, at any offsets."""
    source, target = tb.buffer(size, offset=tb.rng.randrange(64)), tb.buffer(size, offset=5)
    into = tb.chain([Transfer(source.address, regs.STREAM_WINDOW, size)])
    back = tb.chain([Transfer(regs.STREAM_WINDOW, target.address, size)])
    runs = [cocotb.start_soon(each) for each in (tb.c2h.run(back, 300), tb.h2c.run(into, 300))]
    for run in runs:
        await run
    target.expect(source.data)


@bench(us=1500, stall=0.2)
async def registers_meanwhile(tb: TB):
    """Reads of registers by several threads of the host, and writes, beside a copy."""
    stop = False

    async def reader():
        while not stop:
            assert await tb.read(regs.CONFIG, "identifier") == regs.CONFIG["identifier"].reset

    async def writer():
        while not stop:
            await tb.bar_write(regs.BAR_DMA[0], regs.MSIX_TABLE_OFFSET, tb.rng.randbytes(12))
            # Less than the narrowest stream carries: the model's queue has no end.
            await Timer(60, "ns")

    tasks = [cocotb.start_soon(each()) for each in (*[reader] * 8, writer)]
    for _ in range(3):
        await copy(tb, 6000)
    stop = True
    for task in tasks:
        await task


async def fill_card(tb: TB, size: int) -> bytes:
    """Random bytes at card address 0."""
    source = tb.buffer(size)
    await tb.h2c.run(tb.chain([Transfer(source.address, 0, size)]))
    return source.data


@bench(us=600)
async def status_follows_data(tb: TB):
    """Data is there when status says so, though completions pass the writes in the block."""
    data = await fill_card(tb, 1000)
    tb.device.late_ns = (200, 1000)
    for _ in range(8):
        target = tb.buffer(1000, offset=tb.rng.randrange(64))
        await tb.c2h.start(tb.chain([Transfer(0, target.address, 1000)]))
        while await tb.c2h.read("status") & regs.Status.BUSY:
            pass
        target.expect(data)
        assert await tb.c2h.read("status_rc") == FINISHED
        await tb.c2h.write("control", CONTROL_STOP)


@bench(us=600)
async def bus_master_off(tb: TB):
    """The model drops what it has and gives no sequence number back: the run still ends."""
    # Some 8 µs of writes, at any width.
    size = 7500 * len(tb.dut.s_axis_rq_tkeep)
    data = await fill_card(tb, size)
    for _ in range(3):
        target = tb.buffer(size)
        await tb.c2h.start(tb.chain([Transfer(0, target.address, size)]))
        await Timer(tb.rng.randint(2500, 5000), "ns")
        await tb.pci.clear_master()
        status = await tb.c2h.idle(40)
        assert status & regs.Status.READ_UNSUPPORTED, f"status {status!r}"
        await tb.c2h.write("control", CONTROL_STOP)
        await tb.pci.set_master()
        again = tb.buffer(3000, offset=3)
        await tb.c2h.run(tb.chain([Transfer(0, again.address, 3000)]))
        again.expect(data[:3000])


async def watch_stream(tb: TB, name: str, log: list[tuple[int, int, int]]) -> None:
    """Append `tvalid`, `tready` and `tlast` of a stream in each cycle."""
    ports = [getattr(tb.dut, f"{name}_{port}") for port in ("tvalid", "tready", "tlast")]
    while True:
        await RisingEdge(tb.dut.clk)
        log.append(tuple(int(port.value) for port in ports))


@bench(us=400)
async def full_rate(tb: TB):
    """Writes leave without a cycle between them, completions of 64 bytes and more never wait."""
    lanes = len(tb.dut.s_axis_rq_tkeep)
    size = 4096 * lanes
    requests, completions = [], []
    cocotb.start_soon(watch_stream(tb, "s_axis_rq", requests))
    cocotb.start_soon(watch_stream(tb, "m_axis_rc", completions))
    tb.host.split = Split.EVERY_RCB
    data = await fill_card(tb, size)
    waits = [row for row in completions if row[0] and not row[1]]
    assert not waits, f"{len(waits)} cycles in which completions wait"
    for mps in (128, 256):
        await tb.configure(mps=mps)
        requests.clear()
        target = tb.buffer(size)
        await tb.c2h.run(tb.chain([Transfer(0, target.address, size)]))
        target.expect(data)
        # In front of the writes is the read of the descriptor.
        ends = [cycle for cycle, row in enumerate(requests) if row == (1, 1, 1)]
        first = next(c for c in range(ends[0] + 1, ends[1] + 1) if requests[c][0])
        writes = requests[first : ends[-1] + 1]
        beats = [row for row in writes if row[0] and row[1]]
        assert len(ends) == 1 + size // mps
        assert len(beats) == size // mps * -(-(4 + mps // 4) // lanes)
        idle = [row for row in writes if not row[0]]
        assert not idle, f"{len(idle)} cycles without a beat, of {len(writes)}"


async def interrupted(tb: TB, count: int) -> None:
    """A transfer that ends with a message, the `count`th."""
    await tb.h2c.write("interrupt_enable", CONTROL_STOP)
    source = tb.buffer(300, offset=3)
    chain = tb.chain([Transfer(source.address, 0, 300)])
    await tb.h2c.start(chain, CONTROL_START)
    await tb.wait_messages(count)
    await tb.h2c.expect_end(FINISHED, 1)
    await tb.h2c.read("status_rc")
    await tb.h2c.write("control", CONTROL_STOP)


@bench(us=300, stall=0.1)
async def msi(tb: TB):
    """Messages that the block sends."""
    await tb.enable_msi()
    await tb.write(regs.IRQ, "channel_enable_w1s", tb.h2c.irq_bit)
    for count in range(1, 5):
        await interrupted(tb, count)


@bench(us=300, stall=0.1)
async def msix(tb: TB):
    """Messages that the core writes itself."""
    await tb.enable_msix(8)
    await tb.write(regs.IRQ, "channel_enable_w1s", tb.h2c.irq_bit)
    for count in range(1, 5):
        await interrupted(tb, count)
