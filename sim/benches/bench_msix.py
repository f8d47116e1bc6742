# SPDX-License-Identifier: BSD-2-Clause
"""MSI-X: table, masks and pending bits in front of a root complex, and races with all of them."""

from __future__ import annotations

from cocotb.triggers import Timer
from cocotbext.pcie.core.caps import PciCapId

from peerdma import regs

from .channel import CONTROL_STOP, FINISHED, Channel
from .memory import Transfer
from .tb import TB, bench

ALL = regs.CHANNEL["interrupt_enable"].writable
TABLE, PBA = regs.MSIX_TABLE_OFFSET, regs.MSIX_PBA_OFFSET
BAR = regs.BAR_DMA[0]
#: How long a message that must not come is waited for.
SILENCE_US = 3
USERS = 16
#: Bits of Message Control.
ENABLE, FUNCTION_MASK = 1 << 15, 1 << 14

CHANNELS = (1, 2)
PCIE = ()


async def _set_up(tb: TB, *, first: int = 0) -> None:
    """Vectors in ascending order from `first`, channels before users, and everything enabled."""
    sources = len(tb.channels) + USERS
    await tb.enable_msix(first + sources)
    numbers = [first + n for n in range(sources)]
    for name, count in (("channel", len(tb.channels)), ("user", USERS)):
        mine, numbers = numbers[:count], numbers[count:]
        for index in range(0, count, 4):
            packed = sum(number << 8 * n for n, number in enumerate(mine[index : index + 4]))
            await tb.write(regs.IRQ, f"{name}_vector{index // 4}", packed)
    await tb.write(regs.IRQ, "channel_enable_w1s", 0xFFFF_FFFF)
    await tb.write(regs.IRQ, "user_enable_w1s", 0xFFFF_FFFF)
    for channel in tb.channels:
        await channel.write("interrupt_enable", ALL)


async def mask(tb: TB, vector: int, masked: int) -> None:
    """Set or clear the mask bit of a vector."""
    await tb.bar_write(BAR, TABLE + 16 * vector + 12, masked.to_bytes(4, "little"))


async def pending(tb: TB) -> int:
    """The pending bits of the first 64 vectors."""
    return int.from_bytes(await tb.bar_read(BAR, PBA, 8), "little")


def _vector(tb: TB, channel: Channel) -> int:
    return channel.irq_bit.bit_length() - 1


async def _quiet(tb: TB, messages: list[int]) -> None:
    """Fail unless exactly these messages have come, and none comes for a while."""
    await Timer(SILENCE_US, "us")
    assert sorted(tb.messages) == sorted(messages), f"messages {tb.messages}, expected {messages}"


@bench(us=600)
async def message_follows_data(tb: TB):
    """One message per run, to the channel's vector, behind data, status and count."""
    await _set_up(tb)
    source = tb.buffer(2000)
    expected = []
    for _ in range(3):
        target = tb.buffer(2000, offset=5)
        for channel, transfer in (
            (tb.h2c, Transfer(source.address, 0, 2000)),
            (tb.c2h, Transfer(0, target.address, 2000)),
        ):
            await channel.start(tb.chain([transfer]))
            expected.append(_vector(tb, channel))
            await tb.wait_messages(len(expected))
            assert tb.messages == expected
            if channel is tb.c2h:
                target.expect(source.data)
            assert await channel.read("status_rc") == FINISHED
            assert await channel.read("completed_count") == 1
            await channel.write("control", CONTROL_STOP)
    await _quiet(tb, expected)
    assert tb.host.intx.asserts == 0


@bench(us=900)
async def a_vector_for_every_source(tb: TB):
    """Each channel and user interrupt has its vector, from 0 on or at the end of the table."""
    first = tb.rng.choice((0, regs.MSIX_ENTRIES - len(tb.channels) - USERS))
    await _set_up(tb, first=first)
    expected = []
    for channel in tb.channels:
        await channel.start(tb.chain([Transfer(0, 0, 0)]))
        expected.append(first + _vector(tb, channel))
        await tb.wait_messages(len(expected))
        await channel.read("status_rc")
    for user in range(USERS):
        tb.dut.user_irq.value = 1 << user
        expected.append(first + len(tb.channels) + user)
        await tb.wait_messages(len(expected))
    tb.dut.user_irq.value = 0
    await _quiet(tb, expected)
    assert tb.messages == expected
    # All at once: each exactly once more.
    tb.dut.user_irq.value = 0xFFFF
    await tb.wait_messages(len(expected) + USERS)
    await _quiet(tb, expected + expected[-USERS:])


@bench(us=900)
async def masks_and_pending_bits(tb: TB):
    """A masked message shows in the PBA and goes when unmasked, unless software was there first."""
    await _set_up(tb)
    function = tb.pci

    async def message_control(value: int) -> None:
        await function.capability_write_word(PciCapId.MSIX, 2, value)

    async def run(channel: Channel) -> None:
        await channel.write("control", CONTROL_STOP)
        await channel.start(tb.chain([Transfer(0, 0, 0)]))
        assert await channel.idle(20) == FINISHED

    h2c, c2h = _vector(tb, tb.h2c), _vector(tb, tb.c2h)
    for vector in (h2c, c2h):
        await mask(tb, vector, 1)
    await run(tb.h2c)
    await run(tb.c2h)
    await _quiet(tb, [])
    assert await pending(tb) == 1 << h2c | 1 << c2h
    await mask(tb, c2h, 0)
    await tb.wait_messages(1)
    assert await pending(tb) == 1 << h2c
    # Read by a polling driver: nothing is left to say.
    await tb.h2c.read("status_rc")
    assert await pending(tb) == 0
    await mask(tb, h2c, 0)
    await _quiet(tb, [c2h])

    await message_control(ENABLE | FUNCTION_MASK)
    await run(tb.h2c)
    await run(tb.c2h)
    await _quiet(tb, [c2h])
    assert await pending(tb) == 1 << h2c | 1 << c2h
    await message_control(ENABLE)
    await _quiet(tb, [c2h, h2c, c2h])
    assert await pending(tb) == 0


@bench(us=600)
async def bus_master_and_enable(tb: TB):
    """Nothing is sent while Bus Master or MSI-X Enable is off, and nothing is lost by it."""
    await _set_up(tb)
    control = await tb.pci.config_read_word(4)
    vector = len(tb.channels) + 3
    await tb.pci.config_write_word(4, control & ~4)
    tb.dut.user_irq.value = 1 << 3
    await _quiet(tb, [])
    await tb.pci.config_write_word(4, control)
    await _quiet(tb, [vector])
    # INTx takes over and gives back.
    await tb.pci.capability_write_word(PciCapId.MSIX, 2, 0)
    await tb.wait_intx(True)
    tb.dut.user_irq.value = 0
    await tb.wait_intx(False)
    tb.dut.user_irq.value = 1 << 3
    await tb.wait_intx(True)
    await tb.pci.capability_write_word(PciCapId.MSIX, 2, ENABLE)
    await _quiet(tb, [vector] * 2)


@bench(us=3000, lanes=4, long=True)
async def status_reads_race_events(tb: TB):
    """Status is cleared at every cycle around an event: it is never lost, nor sent twice."""
    await _set_up(tb)
    vector = _vector(tb, tb.h2c)
    found = set()
    for step in range(60):
        transfers = [Transfer(0, 0, 0, regs.DESC_COMPLETED), Transfer(0, 0, 0)]
        chain = tb.chain(transfers)
        tb.messages.clear()
        await tb.h2c.start(chain)
        # The descriptors come a read's round trip later.
        await Timer(100 + step * tb.device.clock_ns, "ns")
        seen = regs.Status(await tb.h2c.read("status_rc"))
        found.add(seen & FINISHED)
        await Timer(SILENCE_US, "us")
        late = regs.Status(await tb.h2c.read("status_rc"))
        assert not (seen | late) & regs.Status.errors()
        assert (seen | late) & FINISHED == FINISHED, f"step {step}: lost an event"
        assert late == 0 or tb.messages, f"step {step}: {late!r} came without a message"
        assert len(tb.messages) <= 2 and set(tb.messages) <= {vector}
        assert await tb.h2c.read("completed_count") == 2
        await tb.h2c.write("control", CONTROL_STOP)
    assert {regs.Status(0), FINISHED} <= found, f"the sweep missed the event: {found}"


@bench(us=6000, lanes=4, long=True)
async def masks_race_events(tb: TB):
    """Every mask there is, closed and opened at every cycle around an event: one message."""
    await _set_up(tb)
    vector = _vector(tb, tb.h2c)
    bit = tb.h2c.irq_bit

    async def entry(masked):
        await mask(tb, vector, masked)

    async def channel_mask(masked):
        await tb.h2c.write("interrupt_enable_w1c" if masked else "interrupt_enable_w1s", ALL)

    async def irq_mask(masked):
        await tb.write(regs.IRQ, f"channel_enable_w1{'c' if masked else 's'}", bit)

    for change in (entry, channel_mask, irq_mask):
        found = set()
        for step in range(50):
            tb.messages.clear()
            await tb.h2c.start(tb.chain([Transfer(0, 0, 0)]))
            await Timer(100 + step * tb.device.clock_ns, "ns")
            await change(1)
            await Timer(tb.rng.randint(1, 12) * tb.device.clock_ns, "ns")
            await change(0)
            assert await tb.h2c.idle(20) == FINISHED
            await Timer(SILENCE_US, "us")
            # An enable that falls with the event pending makes another edge when it rises.
            most = 1 if change is entry else 2
            assert 1 <= len(tb.messages) <= most, f"{change.__name__} {step}: {tb.messages}"
            found.add(len(tb.messages))
            assert await pending(tb) == 0
            await tb.h2c.read("status_rc")
            await tb.h2c.write("control", CONTROL_STOP)
        assert len(found) == most, "the sweep missed the event"
