# SPDX-License-Identifier: BSD-2-Clause
"""The PCIe block's completion buffer: never too full, whatever keeps it from being emptied.

`sim.benches.receive_buffer.ReceiveBuffer` fails a bench in which a completion finds no room.
"""

from __future__ import annotations

from cocotb.triggers import Timer

from hw.pcie.series7.block import SERIES7
from peerdma import regs
from peerdma.regs import ErrorKind, Status

from .completer import Fault, Split
from .memory import Transfer
from .tb import TB, TIMEOUT_US, bench

CHANNELS = (1, 2)

#: Bytes of the largest read, and completions that it may have.
_READ, _COMPLETIONS = 512, 8


async def _copy(tb: TB, size: int) -> None:
    """There and back, to other memory."""
    source, target = tb.buffer(size, offset=8), tb.buffer(size, offset=8)
    await tb.h2c.run(tb.chain([Transfer(source.address, 0, size)]), 200)
    await tb.c2h.run(tb.chain([Transfer(0, target.address, size)]), 200)
    target.expect(source.data)


@bench(us=2500, lanes=4)
async def a_block_with_idle_cycles(tb: TB):
    """Reads over a link that is twice as fast as the port, whose block pauses between TLPs."""
    for rcb, split in ((64, Split.EVERY_RCB), (128, Split.EVERY_RCB), (64, Split.RANDOM)):
        await tb.configure(rcb=rcb)
        for gap, stall in (((1, 1), 0.0), ((0, 9), 0.3)):
            tb.device.received.gap, tb.device.stall = gap, stall
            tb.host.set_manner(split, (300, 900), (0, 0))
            await _copy(tb, 16 * 1024)


@bench(us=3000, lanes=4)
async def lost_reads(tb: TB):
    """Reads that are not answered keep their room; when too little is left, runs fail at once."""
    most = SERIES7.completion_headers // _COMPLETIONS
    for reset in (False, True):
        size = most * _READ
        victim = tb.buffer(size)
        chain = tb.chain([Transfer(victim.address, 0, size)])
        tb.host.inject(range(victim.address, victim.address + size), Fault.WITHHELD)
        await tb.h2c.start(chain)
        await tb.h2c.expect_failed(Status.READ_UNSUPPORTED, 0, 3 * TIMEOUT_US)
        assert tb.device.take_timeouts() == most
        tb.host.clear_faults()
        await tb.h2c.write("control", 0)
        if reset:
            await tb.write(regs.EXTENSION, "soft_reset", 1)
            await Timer(2, "us")
        tags = await tb.read(regs.EXTENSION, "quarantined")
        assert tags.bit_count() == most
        for channel in (tb.c2h, tb.h2c):
            await tb.write(regs.EXTENSION, "error_clear", 0)
            tb.host.requests.clear()
            await channel.start(tb.chain([Transfer(0, 0, 64)]))
            await channel.expect_failed(Status.DESC_UNSUPPORTED, 0, 5)
            info = await tb.read(regs.EXTENSION, "error_info")
            kind = regs.EXTENSION["error_info"].field("kind").get(info)
            assert kind == ErrorKind.NO_COMPLETION_SPACE
            assert not any(request.is_nonposted() for request in tb.host.requests)
            await channel.write("control", 0)
        # What comes late makes room.
        await tb.host.release_withheld()
        await Timer(10, "us")
        assert await tb.read(regs.EXTENSION, "quarantined") == 0
        await _copy(tb, 700)
