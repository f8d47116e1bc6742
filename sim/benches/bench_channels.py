# SPDX-License-Identifier: BSD-2-Clause
"""A core with two channels each way: they share the link fairly, and nothing else."""

from __future__ import annotations

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp, TlpType

from peerdma import regs

from .channel import CONTROL_START, CONTROL_STOP, FINISHED
from .host import Fault
from .memory import Transfer
from .tb import TB, bench

CHANNELS = (2,)

_WRITES = (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64)
_READS = (TlpType.MEM_READ, TlpType.MEM_READ_64)
_QUARTER = regs.CARD_RAM_SIZE // 4


@bench(us=300)
async def numbers(tb: TB):
    """Every channel says who it is, has its own registers, and its bit in the interrupt block."""
    field = regs.EXTENSION["channels"].field
    channels = await tb.read(regs.EXTENSION, "channels")
    assert (field("h2c").get(channels), field("c2h").get(channels)) == (2, 2)
    for index, channel in enumerate(tb.channels):
        assert await channel.read("identifier") == regs.identifier(channel.c2h, channel.number)
        target = 4 + channel.c2h
        sgdma = await channel.read("identifier", regs.SGDMA)
        assert sgdma == regs.identifier(target, channel.number)
        await channel.write("writeback_lo", 0x1000 * index)
        await channel.write("interrupt_enable", 1 << (index + 1))
        await channel.write("descriptor_hi", index, regs.SGDMA)
    for index, channel in enumerate(tb.channels):
        assert await channel.read("writeback_lo") == 0x1000 * index
        assert await channel.read("interrupt_enable") == 1 << (index + 1)
        assert await channel.read("descriptor_hi", regs.SGDMA) == index
    # No channel shows up twice.
    for base in (regs.CHANNEL.base, regs.C2H_CHANNEL_BASE):
        for number in (2, 3):
            assert await tb.read(regs.CHANNEL, "identifier", channel=number, base=base) == 0

    for index, channel in enumerate(tb.channels):
        await channel.write("interrupt_enable", int(FINISHED))
        await channel.start(tb.chain([Transfer(0, 0, 0)]))
        assert await channel.idle(20) == FINISHED
        assert await tb.read(regs.IRQ, "channel_pending") == 1 << index
        await channel.read("status_rc")
        await channel.write("control", CONTROL_STOP)


@bench(us=2000, lanes=4, stall=0.1)
async def all_at_once(tb: TB):
    """All four channels move lists of their own, over and over, and no byte gets lost."""
    data = {}
    for number in (0, 1):
        source = tb.buffer(_QUARTER, offset=number)
        await tb.channels[number].run(
            tb.chain([Transfer(source.address, (2 + number) * _QUARTER, _QUARTER)]), 200
        )
        data[number] = source.data

    async def into(number: int) -> None:
        for _ in range(4):
            size = tb.rng.randint(1, _QUARTER // 8)
            pieces = [tb.buffer(size, offset=tb.rng.randrange(64)) for _ in range(8)]
            at = [number * _QUARTER + n * size for n in range(8)]
            await tb.channels[number].run(
                tb.chain([Transfer(p.address, a, size) for p, a in zip(pieces, at, strict=True)]),
                400,
            )
            back = tb.buffer(8 * size)
            card[number] = (at[0], back, b"".join(piece.data for piece in pieces))

    async def out(number: int) -> None:
        for _ in range(4):
            size, at = tb.rng.randint(1, _QUARTER), 0
            target = tb.buffer(size, offset=tb.rng.randrange(64))
            transfers = []
            while at < size:
                step = min(tb.rng.randint(1, 3000), size - at)
                card_address = (2 + number) * _QUARTER + at
                transfers.append(Transfer(card_address, target.address + at, step))
                at += step
            await tb.channels[2 + number].run(tb.chain(transfers), 400)
            target.expect(data[number][:size])

    card: dict[int, tuple] = {}
    tasks = [cocotb.start_soon(job(number)) for job in (into, out) for number in (0, 1)]
    for task in tasks:
        await task
    for address, back, expected in card.values():
        await tb.c2h.run(tb.chain([Transfer(address, back.address, back.size)]), 200)
        back.expect(expected)


@bench(us=2000, lanes=4)
async def fair_shares(tb: TB):
    """Two channels of one direction get the same part of the link, whatever their descriptors."""
    size = regs.CARD_RAM_SIZE
    for first in (0, 2):
        c2h = bool(first)
        buffers = [tb.buffer(size), tb.buffer(size)]
        kinds = _WRITES if c2h else _READS
        moved = [0, 0]
        shares: list[tuple[int, int]] = []

        def listen(
            direction: str, tlp: Tlp, buffers=buffers, kinds=kinds, moved=moved, shares=shares
        ):
            if direction == "up" and tlp.fmt_type in kinds:
                for number, buffer in enumerate(buffers):
                    if buffer.address <= tlp.address < buffer.address + size:
                        moved[number] += 4 * tlp.length
                        shares.append(tuple(moved))

        tb.device.on_tlp.append(listen)
        # One long descriptor beside many short ones.
        steps = (size, 512)
        for number, (buffer, step) in enumerate(zip(buffers, steps, strict=True)):
            places = [(buffer.address + at, at) for at in range(0, size, step)]
            transfers = [
                Transfer(card, host, step) if c2h else Transfer(host, card, step)
                for host, card in places
            ]
            await tb.channels[first + number].point_at(tb.chain(transfers))
        for number in (0, 1):
            await tb.channels[first + number].write("control", CONTROL_START)
        for number in (0, 1):
            await tb.channels[first + number].idle(300)
            await tb.channels[first + number].write("control", CONTROL_STOP)
        # Between the start of the second and the end of the first.
        begin = next(n for n, (_, second) in enumerate(shares) if second)
        end = next(n for n, share in enumerate(shares) if max(share) >= size)
        parts = [after - before for before, after in zip(shares[begin], shares[end], strict=True)]
        assert sum(parts) > size, "they hardly ran at the same time"
        assert abs(parts[0] - parts[1]) < 0.1 * sum(parts), f"shares {parts}"


@bench(us=900, lanes=4)
async def faults_and_aborts_stay_where_they_are(tb: TB):
    """A channel that fails, is halted or aborted leaves the others alone."""
    first, second = tb.channels[0], tb.channels[1]
    bad, good = tb.buffer(4096), tb.buffer(8192)
    tb.host.inject(range(bad.address + 2000, bad.address + 2001), Fault.UNSUPPORTED_REQUEST)
    for _ in range(3):
        await tb.write(regs.SGDMA_COMMON, "halt_w1s", tb.channels[3].halt_bit)
        held = tb.buffer(64)
        await tb.channels[3].start(tb.chain([Transfer(0, held.address, 64)]))
        before = held.data
        await first.start(tb.chain([Transfer(bad.address, 0, 4096)]))
        run = cocotb.start_soon(second.run(tb.chain([Transfer(good.address, 8192, 8192)]), 300))
        await first.expect_failed(regs.Status.READ_UNSUPPORTED, 0)
        await run
        target = tb.buffer(8192)
        run = cocotb.start_soon(
            tb.channels[2].run(tb.chain([Transfer(8192, target.address, 8192)]), 300)
        )
        await Timer(tb.rng.randint(1, 2000), "ns")
        await tb.channels[3].write("control", CONTROL_STOP)
        await run
        target.expect(good.data)
        held.expect(before)
        await tb.write(regs.SGDMA_COMMON, "halt_w1c", tb.channels[3].halt_bit)
        await first.write("control", CONTROL_STOP)
