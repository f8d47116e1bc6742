# SPDX-License-Identifier: BSD-2-Clause
"""Interrupts: after the data and the status, exactly one per event, and the enable rules."""

from __future__ import annotations

from cocotb.triggers import Timer

from peerdma import regs

from .channel import CONTROL_STOP, FINISHED, Channel
from .memory import Buffer, Chain, Transfer
from .tb import TB, bench

CHANNELS = (1,)
PCIE = ("ultrascale-256",)

ALL = regs.CHANNEL["interrupt_enable"].writable
#: How long a message that must not come is waited for.
SILENCE_US = 3


async def _enable(tb: TB, *channels: Channel) -> None:
    for channel in channels:
        await channel.write("interrupt_enable", ALL)
        await tb.write(regs.IRQ, "channel_enable_w1s", channel.irq_bit)


def _copy_out(tb: TB, size: int) -> tuple[Buffer, Chain]:
    """A transfer from card address 0 to fresh host memory."""
    target = tb.buffer(size, offset=5)
    return target, tb.chain([Transfer(0, target.address, size)])


async def _fill_card(tb: TB, size: int) -> bytes:
    source = tb.buffer(size)
    await tb.h2c.run(tb.chain([Transfer(source.address, 0, size)]))
    return source.data


@bench(us=600)
async def intx_follows_data(tb: TB):
    """INTA comes when data, status and count are there; reading status takes it away."""
    data = await _fill_card(tb, 2000)
    await _enable(tb, tb.h2c, tb.c2h)
    for turn in range(3):
        target, chain = _copy_out(tb, 2000)
        await tb.c2h.start(chain)
        await tb.wait_intx(True)
        target.expect(data)
        assert await tb.c2h.read("completed_count") == 1
        # A shared handler looks at both channels, always.
        assert await tb.h2c.read("status_rc") == 0
        assert await tb.c2h.read("status_rc") == FINISHED
        await tb.wait_intx(False)
        assert tb.host.intx.asserts == turn + 1
        await tb.c2h.write("control", CONTROL_STOP)


@bench(us=600)
async def msi_follows_data(tb: TB):
    """One message per run, behind the data; none of them as INTx."""
    await tb.enable_msi()
    data = await _fill_card(tb, 2000)
    await _enable(tb, tb.h2c, tb.c2h)
    for turn in range(3):
        target, chain = _copy_out(tb, 2000)
        await tb.c2h.start(chain)
        await tb.wait_messages(turn + 1)
        target.expect(data)
        assert await tb.c2h.read("status_rc") == FINISHED
        await Timer(SILENCE_US, "us")
        assert len(tb.messages) == turn + 1
        await tb.c2h.write("control", CONTROL_STOP)
    assert tb.host.intx.asserts == 0


@bench(us=600)
async def masks(tb: TB):
    """Nothing is sent while a mask is closed; opening it on a pending event sends one message."""
    await tb.enable_msi()
    await _fill_card(tb, 64)
    _, chain = _copy_out(tb, 64)
    await tb.c2h.start(chain)
    assert await tb.c2h.idle(50) == FINISHED
    bit = tb.c2h.irq_bit

    async def expect(pending: int, request: int, messages: int) -> None:
        assert await tb.read(regs.IRQ, "channel_pending") == pending
        assert await tb.read(regs.IRQ, "channel_request") == request
        await Timer(SILENCE_US, "us")
        assert len(tb.messages) == messages

    await expect(0, 0, 0)
    await tb.c2h.write("interrupt_enable", ALL)
    await expect(bit, 0, 0)
    await tb.write(regs.IRQ, "channel_enable_w1s", bit)
    await expect(bit, bit, 1)
    await tb.write(regs.IRQ, "channel_enable_w1c", bit)
    await expect(bit, 0, 1)
    await tb.write(regs.IRQ, "channel_enable", bit)
    await expect(bit, bit, 2)
    await tb.c2h.write("interrupt_enable_w1c", ALL)
    await expect(0, 0, 2)
    await tb.c2h.write("interrupt_enable_w1s", ALL)
    await expect(bit, bit, 3)
    await tb.c2h.write("status", FINISHED)
    await expect(0, 0, 3)


@bench(us=1500, lanes=4)
async def no_event_is_lost(tb: TB):
    """A handler that clears status on each message sees the end of every list, however it races."""
    await tb.enable_msi()
    await _enable(tb, tb.h2c)
    for _ in range(12):
        source = tb.buffer(512)
        transfers = [
            Transfer(source.address, 0, tb.rng.randint(1, 512), regs.DESC_COMPLETED)
            for _ in range(tb.rng.randint(1, 12))
        ]
        seen = len(tb.messages)
        await tb.h2c.start(tb.chain(transfers))
        status = regs.Status(0)
        while not status & regs.Status.DESCRIPTOR_STOPPED:
            seen += 1
            await tb.wait_messages(seen)
            status = regs.Status(await tb.h2c.read("status_rc"))
            assert not status & regs.Status.errors()
        assert await tb.h2c.read("completed_count") == len(transfers)
        await tb.h2c.write("control", CONTROL_STOP)
        await Timer(SILENCE_US, "us")
        # What came behind the last read of status found nothing, or it would be lost.
        assert await tb.h2c.read("status") == 0


@bench(us=600)
async def run_makes_a_fresh_edge(tb: TB):
    """Status that nobody read does not hide the next run's event: setting Run clears it."""
    await tb.enable_msi()
    await _fill_card(tb, 64)
    await _enable(tb, tb.c2h)
    for turn in range(3):
        _, chain = _copy_out(tb, 64)
        await tb.c2h.start(chain)
        await tb.wait_messages(turn + 1)
        assert await tb.c2h.idle(10) == FINISHED
        await tb.c2h.write("control", CONTROL_STOP)
        assert await tb.c2h.read("completed_count") == 1


@bench(us=600)
async def intx_level(tb: TB):
    """INTA stands while any enabled source does, and while Interrupt Disable is 0."""
    command = await tb.pci.config_read_word(4)
    await _enable(tb, tb.h2c, tb.c2h)
    await tb.pci.config_write_word(4, command | 1 << 10)
    for channel in (tb.h2c, tb.c2h):
        await channel.start(tb.chain([Transfer(0, 0, 0)]))
        assert await channel.idle(50) == FINISHED
    await Timer(SILENCE_US, "us")
    assert tb.host.intx.asserts == 0
    await tb.pci.config_write_word(4, command)
    await tb.wait_intx(True)
    assert await tb.read(regs.IRQ, "channel_request") == tb.h2c.irq_bit | tb.c2h.irq_bit
    await tb.h2c.read("status_rc")
    await Timer(SILENCE_US, "us")
    assert tb.host.intx.level
    await tb.c2h.read("status_rc")
    await tb.wait_intx(False)
    assert tb.host.intx.asserts == 1


@bench(us=400)
async def user_interrupts(tb: TB):
    """User interrupts: a level per input, enabled one by one, messages on each rising edge."""
    tb.dut.user_irq.value = 0x8001
    assert await tb.read(regs.IRQ, "user_pending") == 0x8001
    assert await tb.read(regs.IRQ, "user_request") == 0
    await tb.write(regs.IRQ, "user_enable_w1s", 0x8000)
    assert await tb.read(regs.IRQ, "user_request") == 0x8000
    await tb.wait_intx(True)
    tb.dut.user_irq.value = 1
    await tb.wait_intx(False)

    await tb.enable_msi()
    for turn in range(1, 3):
        tb.dut.user_irq.value = 0x8000
        await tb.wait_messages(turn)
        tb.dut.user_irq.value = 0
        await Timer(SILENCE_US, "us")
        assert len(tb.messages) == turn

    # By software, beside the inputs.
    await tb.write(regs.USER, "raise_interrupts", 0x8000)
    await tb.wait_messages(3)
    tb.dut.user_irq.value = 1
    assert await tb.read(regs.IRQ, "user_pending") == 0x8001
    tb.dut.user_irq.value = 0
    await tb.write(regs.USER, "raise_interrupts", 0)
    assert await tb.read(regs.IRQ, "user_pending") == 0
    assert len(tb.messages) == 3
