# SPDX-License-Identifier: BSD-2-Clause
"""What seldom happens behind the UltraScale and UltraScale+ adapter, once for each family.

Resets, credits, reads that the block ends and INTx are by models of our own
(`sim.benches.ultrascale`, `sim.benches.ultrascale_own`).
"""

from __future__ import annotations

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from cocotbext.pcie.core.caps import PciCapId
from cocotbext.pcie.core.tlp import TlpAttr
from cocotbext.pcie.xilinx.us.tlp import ErrorCode

from hw.pcie.ultrascale.credits import SHOWN_LATE
from peerdma import regs

from .bench_dma import there_and_back
from .bench_msix import mask, pending
from .bench_ultrascale import interrupted
from .channel import CONTROL_START, CONTROL_STOP, FINISHED
from .host import Fault
from .memory import Transfer
from .tb import TB, bench
from .ultrascale import FLR_CYCLES

PCIE = ("ultrascale_plus-128", "ultrascale-256")

#: Device Control: its offset in the PCI Express capability, and Enable Relaxed Ordering.
_DEVICE_CONTROL, _RELAXED_ORDERING = 8, 1 << 4
#: Two accesses of the models' configuration management interface, in cycles.
_FOLLOWS = 12
#: Blocks of registers that are as after power-up.
_BLOCKS = (regs.CHANNEL, regs.IRQ, regs.CONFIG, regs.SGDMA_COMMON, regs.EXTENSION)
#: Registers there that change by themselves. Tags of reads that were dropped on their way to the
#: block, when Bus Master went off, are quarantined beyond a reset of the function.
_LIVE = ("cycles_lo", "cycles_hi", "quarantined")


@bench(us=200)
async def relaxed_ordering(tb: TB):
    """Reads of data have the attribute while the host allows it, two accesses after it says so."""
    control = await tb.pci.capability_read_word(PciCapId.EXP, _DEVICE_CONTROL)
    source = tb.buffer(3000, offset=7)
    for allowed in (True, False, True, False):
        control = control & ~_RELAXED_ORDERING | _RELAXED_ORDERING * allowed
        await tb.pci.capability_write_word(PciCapId.EXP, _DEVICE_CONTROL, control)
        await ClockCycles(tb.dut.clk, _FOLLOWS)
        tb.host.requests.clear()
        await tb.h2c.run(tb.chain([Transfer(source.address, 0, 3000)]))
        data = range(source.address & ~3, source.address + source.size)
        found = [tlp.attr & TlpAttr.RO for tlp in tb.host.requests if tlp.address in data]
        assert len(found) > 5
        assert set(map(bool, found)) == {allowed}


@bench(us=1000)
async def credits(tb: TB):
    """Reads wait for room of the link partner, which falls to none and comes back: none is lost."""
    room, lag = tb.device.non_posted, SHOWN_LATE
    room.restrict(0)
    source = tb.buffer(5000, offset=3)
    tb.host.requests.clear()
    await tb.h2c.start(tb.chain([Transfer(source.address, 0, 5000)]))
    await Timer(3, "us")
    assert not tb.host.requests, "a read without room"
    room.restrict(3, lag)
    assert await tb.h2c.idle(100) == FINISHED
    await tb.h2c.read("status_rc")
    await tb.h2c.write("control", CONTROL_STOP)
    # Of many none comes back before all are taken.
    for limit, tb.device.stall, back in (
        (1, 0.0, (0, 400)),
        (2, 0.8, (0, 400)),
        (7, 0.3, (300, 700)),
    ):
        room.back = back
        room.restrict(limit, lag)
        await there_and_back(tb, [(4000, 1, 64, 0), (300, 5, 7000, 3)])
        assert room.least == 0


@bench(us=600, stall=0.1)
async def intx(tb: TB):
    """INTA follows the status, however late the block says that it has sent a change."""
    await tb.h2c.write("interrupt_enable", CONTROL_STOP)
    await tb.write(regs.IRQ, "channel_enable_w1s", tb.h2c.irq_bit)
    source = tb.buffer(300, offset=3)
    for turn, late in enumerate(((0, 0), (0, 20), (300, 600))):
        tb.device.inta.late = late
        await tb.h2c.start(tb.chain([Transfer(source.address, 0, 300)]))
        await tb.wait_intx(True)
        await tb.h2c.expect_end(FINISHED, 1)
        assert tb.device.function.interrupt_status
        await tb.h2c.read("status_rc")
        await tb.wait_intx(False)
        assert tb.host.intx.asserts == turn + 1
        await tb.h2c.write("control", CONTROL_STOP)


@bench(us=600)
async def failing_messages(tb: TB):
    """A message that the block could not send is asked for again, and none comes twice."""
    await tb.enable_msi()
    await tb.write(regs.IRQ, "channel_enable_w1s", tb.h2c.irq_bit)
    tb.device.messages.share = 0.7
    for count in range(1, 7):
        await interrupted(tb, count)
    await Timer(2, "us")
    assert len(tb.messages) == 6 and tb.device.messages.failed


@bench(us=400)
async def reads_that_the_block_ends(tb: TB):
    """A timeout of the block ends its reads, whose tags are free at once."""
    for error, kind in (
        (ErrorCode.TIMEOUT, regs.ErrorKind.COMPLETION_TIMEOUT),
        (ErrorCode.FLR, regs.ErrorKind.UNSUPPORTED_REQUEST),
    ):
        source = tb.buffer(3000, offset=7)
        tb.host.inject(range(source.address, source.address + 3000), Fault.WITHHELD)
        await tb.write(regs.EXTENSION, "error_clear", 1)
        await tb.h2c.start(tb.chain([Transfer(source.address, 0, 3000)]))
        await Timer(3, "us")
        assert tb.device.end_reads(error) > 1
        assert await tb.h2c.idle(10) & regs.Status.READ_UNSUPPORTED
        info = regs.EXTENSION["error_info"].field("kind")
        assert info.get(await tb.read(regs.EXTENSION, "error_info")) == kind
        for tag in tb.device.checker.outstanding_tags:
            tb.device.checker.abandon(tag)
        assert await tb.read(regs.EXTENSION, "quarantined") == 0
        await tb.h2c.read("status_rc")
        await tb.h2c.write("control", CONTROL_STOP)
        tb.host.clear_faults()
        await there_and_back(tb, [(900, 7, 3, 1)])


async def registers(tb: TB) -> list[bytes]:
    """All registers of `_BLOCKS`, as they are, but for those in `_LIVE`."""
    found = []
    for block in _BLOCKS:
        values = bytearray()
        for at in range(0, block.size, 128):
            values += await tb.bar_read(regs.BAR_DMA[0], block.base + at, 128)
        for register in block.registers:
            if register.name in _LIVE:
                values[register.offset : register.offset + 4] = bytes(4)
        found.append(bytes(values))
    return found


async def begin_much(tb: TB) -> None:
    """Change registers of each block, and start transfers that take some microseconds."""
    await tb.write(regs.CONFIG, "user_max_payload", 0)
    await tb.write(regs.EXTENSION, "reads", 1)
    await tb.write(regs.IRQ, "channel_enable", 3)
    await tb.write(regs.IRQ, "channel_vector0", 0x0102)
    source, target = tb.buffer(30_000), tb.buffer(30_000)
    for channel, transfer in (
        (tb.h2c, Transfer(source.address, 0, 30_000)),
        (tb.c2h, Transfer(0, target.address, 30_000)),
    ):
        await channel.write("interrupt_enable", CONTROL_STOP)
        await channel.start(tb.chain([transfer]))
    await Timer(tb.rng.randint(1, 6000), "ns")


@bench(us=2000)
async def function_reset(tb: TB):
    """In the middle of transfers, within a bound; what was read before comes, and is dropped.

    A write that the block has taken may go out long after the reset has begun, and others never.
    """
    tb.host.latency_ns = (500, 1500)
    before = await registers(tb)
    for late in (False, True, False, True):
        await begin_much(tb)
        tb.device.late_ns = (4000, 4000)
        await tb.function_reset(FLR_CYCLES, late=late)
        tb.device.late_ns = (0, 0)
        while tb.device.checker.outstanding_tags:
            await Timer(1, "us")
        assert await registers(tb) == before
        assert not tb.host.intx.level
        await there_and_back(tb, [(3000, 5, 64, 3)])


@bench(us=2000)
async def function_reset_before_writes(tb: TB):
    """The block hands writes of before over when the reset has begun: they start nothing.

    Nothing is written to the address of a writeback that is gone with the reset, and no register
    is other than after power-up.
    """
    before, poll = await registers(tb), regs.CHANNEL["control"].field("pollmode_wb_enable").mask
    source = tb.buffer(3000)

    async def hand_over(cycles: int) -> None:
        while not tb.dut.cfg_flr_in_process.value:
            await RisingEdge(tb.dut.clk)
        await ClockCycles(tb.dut.clk, cycles)
        tb.device.hold_receive = False

    for turn, cycles in enumerate((1, 2, 3, 5, 9, 20, 100)):
        word = tb.buffer(4)
        await tb.h2c.write("writeback_lo", word.address & 0xFFFF_FFFF)
        await tb.h2c.write("writeback_hi", word.address >> 32)
        chain = tb.chain([Transfer(source.address, 0, 3000)])
        await tb.h2c.point_at(chain)
        await tb.read(regs.EXTENSION, "quarantined")
        tb.device.hold_receive = True
        await tb.write(regs.CONFIG, "user_max_payload", 0)
        await tb.write(regs.IRQ, "channel_enable", 3)
        await mask(tb, 0, 0)
        await tb.h2c.write("control", CONTROL_START | poll)
        await Timer(1, "us")
        tb.host.requests.clear()
        task = cocotb.start_soon(hand_over(cycles))
        await tb.function_reset(FLR_CYCLES, late=turn % 2 == 1)
        await task
        assert await registers(tb) == before
        await Timer(2, "us")
        assert not tb.host.requests, "a request of before the reset"
        entry = await tb.bar_read(regs.BAR_DMA[0], regs.MSIX_TABLE_OFFSET, 16)
        assert entry[12] & 1, "a vector that is not masked"
    await there_and_back(tb, [(3000, 5, 64, 3)])


@bench(us=2000)
async def hot_reset(tb: TB):
    """The link goes down in the middle of transfers: afterwards all is as after power-up."""
    tb.host.latency_ns = (500, 1500)
    before = await registers(tb)
    for _ in range(2):
        await begin_much(tb)
        await tb.hot_reset()
        tb.host.requests.clear()
        assert await registers(tb) == before
        assert await tb.read(regs.EXTENSION, "quarantined") == 0
        assert not tb.host.requests, "a request of before the reset"
        assert not tb.host.intx.level
        await there_and_back(tb, [(3000, 5, 64, 3)])


@bench(us=1500)
async def msix_over_a_function_reset(tb: TB):
    """What waits for its vector is gone with the table; set up anew, each message comes once."""
    for turn, late in enumerate((False, True)):
        await tb.enable_msix(regs.MSIX_ENTRIES)
        await mask(tb, 0, 1)
        await tb.write(regs.IRQ, "channel_enable_w1s", tb.h2c.irq_bit)
        await tb.h2c.write("interrupt_enable", CONTROL_STOP)
        source = tb.buffer(300)
        await tb.h2c.start(tb.chain([Transfer(source.address, 0, 300)]), CONTROL_START)
        await tb.h2c.idle(20)
        assert await pending(tb) == 1
        await tb.function_reset(FLR_CYCLES, late=late)
        assert await pending(tb) == 0
        end = 16 * regs.MSIX_ENTRIES
        table = await tb.bar_read(regs.BAR_DMA[0], regs.MSIX_TABLE_OFFSET, end)
        assert all(table[at] & 1 for at in range(12, end, 16)), "a vector that is not masked"
        await Timer(2, "us")
        assert len(tb.messages) == turn
        await tb.pci.disable_msix()
        await tb.enable_msix(regs.MSIX_ENTRIES)
        await tb.write(regs.IRQ, "channel_enable_w1s", tb.h2c.irq_bit)
        await interrupted(tb, turn + 1)
        await Timer(2, "us")
        assert len(tb.messages) == turn + 1
        await tb.pci.disable_msix()
