# SPDX-License-Identifier: BSD-2-Clause
"""A core with overcommit, whose PCIe block keeps to the contract of its receive port or does not.

`sim.benches.receive_buffer.ReceiveBuffer` fails a bench in which a completion finds no room, but
where the port is meant to break the contract.
"""

from __future__ import annotations

from cocotb.triggers import ClockCycles, Timer
from cocotbext.pcie.core.tlp import Tlp

from hw.pcie.series7.block import SERIES7
from peerdma import regs
from peerdma.regs import Capability, Status

from .channel import FINISHED
from .checker import MEMORY_READS
from .completer import Split
from .memory import Transfer
from .series7 import PORT_LAG
from .tb import TB, TIMEOUT_US, bench

OVERCOMMIT = True

_SIZE = 16 * 1024
#: Bytes of the smallest completions that reads are split into.
_BOUNDARY = 64
#: Bytes of such completions that the block has room for.
_ROOM = SERIES7.completion_headers * _BOUNDARY
#: When the port is held up, behind the beginning of a run: it has come half of the way.
_MIDDLE_US = 18
#: Cycles in which more than the buffer has room for come over the link.
_OVERFLOWS = 1500
#: By when nothing is in quarantine.
_QUARANTINE_US = 700


async def _is_off(tb: TB) -> bool:
    found = Capability(await tb.read(regs.EXTENSION, "capabilities"))
    assert Capability.OVERCOMMIT in found
    return Capability.OVERCOMMIT_OFF in found


async def _manner(tb: TB) -> None:
    """As many completions as may be are under way: they are small, and late."""
    await tb.configure(rcb=_BOUNDARY)
    await tb.write(regs.EXTENSION, "reads", 0)
    tb.host.set_manner(Split.EVERY_RCB, (2000, 4000), (0, 0))


async def _copy(tb: TB, *, hold: int = 0) -> int:
    """There and back, to other memory, with the port held up for so many cycles on the way.

    Returns the most bytes that were under way.
    """
    most = left = 0

    def listen(direction: str, tlp: Tlp) -> None:
        nonlocal most, left
        if direction == "up" and tlp.fmt_type in MEMORY_READS:
            left += 4 * tlp.length
            most = max(most, left)
        elif direction == "down" and tlp.is_completion():
            left -= 4 * tlp.length

    source, target = tb.buffer(_SIZE), tb.buffer(_SIZE, offset=8)
    tb.device.on_tlp.append(listen)
    await tb.h2c.start(tb.chain([Transfer(source.address, 0, _SIZE)]))
    if hold:
        await _hold(tb, hold)
    await tb.h2c.expect_end(FINISHED, 1)
    tb.device.on_tlp.remove(listen)
    assert await tb.h2c.read("status_rc") == FINISHED
    await tb.h2c.write("control", 0)
    await tb.c2h.run(tb.chain([Transfer(0, target.address, _SIZE)]))
    target.expect(source.data)
    return most


async def _hold(tb: TB, cycles: int) -> None:
    await Timer(_MIDDLE_US, "us")
    tb.device.hold_receive = True
    await ClockCycles(tb.dut.clk, cycles)
    tb.device.hold_receive = False


@bench(us=1500)
async def a_port_within_the_contract(tb: TB):
    """Pauses between TLPs, in TLPs, and for as long as is allowed: nothing is lost."""
    tb.device.received.lag = PORT_LAG
    await _manner(tb)
    for gap, stall in (((0, 0), 0.0), ((3, 3), 0.0), ((0, 3), 0.2)):
        tb.device.received.gap, tb.device.stall = gap, stall
        assert 1.7 * _ROOM < await _copy(tb) <= 2 * _ROOM
        assert not await _is_off(tb)
    tb.device.received.gap, tb.device.stall = (0, 0), 0.0
    # Now all that it hands on is as late as can be.
    assert 1.7 * _ROOM < await _copy(tb, hold=_OVERFLOWS) <= 2 * _ROOM
    assert await _is_off(tb)
    assert await _copy(tb) <= _ROOM
    await tb.hot_reset()
    await _manner(tb)
    assert not await _is_off(tb)
    assert 1.7 * _ROOM < await _copy(tb) <= 2 * _ROOM


@bench(us=1500)
async def one_pause_beyond_the_contract(tb: TB):
    """Too long for the contract, not for the room: nothing is lost, and less is asked for then."""
    await _manner(tb)
    await _copy(tb, hold=2 * PORT_LAG)
    assert await _is_off(tb)
    # Without overcommit it may be as long as it likes.
    assert await _copy(tb, hold=2 * _OVERFLOWS) <= _ROOM
    await tb.hot_reset()
    await _manner(tb)
    assert not await _is_off(tb)
    await _copy(tb)


@bench(us=4000)
async def one_pause_that_loses_completions(tb: TB):
    """The run ends with an error of its reads; what is asked for later has room."""
    received = tb.device.received
    for wait in (True, False):
        await _manner(tb)
        source = tb.buffer(_SIZE)
        received.loses = True
        await tb.h2c.start(tb.chain([Transfer(source.address, 0, _SIZE)]))
        await _hold(tb, _OVERFLOWS)
        found = await tb.h2c.idle(3 * TIMEOUT_US)
        received.loses = False
        tags = {tlp.tag for tlp in received.lost}
        received.lost.clear()
        assert tags
        assert found & (Status.READ_UNSUPPORTED | Status.READ_UNEXPECTED), f"{found!r}"
        reported = tb.device.take_timeouts() + tb.device.unexpected
        assert reported >= len(tags), f"{reported} errors of the reads with tags {tags}"
        tb.device.unexpected = 0
        assert await _is_off(tb)
        await tb.h2c.read("status_rc")
        await tb.h2c.write("control", 0)
        if wait:
            for _ in range(_QUARANTINE_US):
                if not await tb.read(regs.EXTENSION, "quarantined"):
                    break
                await Timer(1, "us")
            assert await _is_off(tb)
            await _copy(tb, hold=2 * _OVERFLOWS)
        await tb.hot_reset()
        await _manner(tb)
        assert not await _is_off(tb)
        await _copy(tb)
