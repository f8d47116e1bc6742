# SPDX-License-Identifier: BSD-2-Clause
"""Errors: the status bits of each, one interrupt, no damage, and a clean restart without reset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import ErrorKind, Status

from .channel import CONTROL_START, CONTROL_STOP, Channel
from .host import Fault
from .memory import Chain, Transfer
from .model import CONFIG
from .tb import TB, TIMEOUT_US, bench

CHANNELS = (1,)
PCIE = ("ultrascale_plus-256",)

SIZE = 1000
#: A bus address at which nothing is mapped.
NOWHERE = 0x0666_0000

#: Status bits and captured kind of each fault, for descriptor fetch and for data. Drivers look at
#: bit 0 of a field only, so every kind of failure sets that too.
FETCH = {
    Fault.UNSUPPORTED_REQUEST: (Status.DESC_UNSUPPORTED, ErrorKind.UNSUPPORTED_REQUEST),
    Fault.COMPLETER_ABORT: (Status.DESC_ABORT, ErrorKind.COMPLETER_ABORT),
    Fault.POISONED: (Status.DESC_POISONED, ErrorKind.POISONED),
    Fault.WITHHELD: (Status.DESC_UNSUPPORTED, ErrorKind.COMPLETION_TIMEOUT),
}
DATA = {
    Fault.UNSUPPORTED_REQUEST: (Status.READ_UNSUPPORTED, ErrorKind.UNSUPPORTED_REQUEST),
    Fault.COMPLETER_ABORT: (Status.READ_ABORT, ErrorKind.COMPLETER_ABORT),
    Fault.POISONED: (Status.READ_POISONED, ErrorKind.POISONED),
    Fault.WITHHELD: (Status.READ_UNSUPPORTED, ErrorKind.COMPLETION_TIMEOUT),
}


@dataclass(frozen=True)
class Failure:
    """How a run is expected to end."""

    status: Status
    kind: ErrorKind
    #: descriptors completed before
    count: int
    descriptor: bool = False
    address: int | None = None


async def prepare(tb: TB) -> None:
    """Interrupts as MSI, enabled for both channels."""
    await tb.enable_msi()
    for channel in (tb.h2c, tb.c2h):
        await channel.write("interrupt_enable", regs.CHANNEL["interrupt_enable"].writable)
        await tb.write(regs.IRQ, "channel_enable_w1s", channel.irq_bit)


async def expect_failure(
    tb: TB, channel: Channel, chain: Chain, failure: Failure, us: float = 100
) -> None:
    """Run a chain that fails; check status, capture and interrupt; then that all works again."""
    await tb.write(regs.EXTENSION, "error_clear", 0)
    messages = len(tb.messages)
    await channel.start(chain)
    await channel.expect_failed(failure.status, failure.count, us)
    await tb.wait_messages(messages + 1)
    await expect_capture(tb, channel, failure)
    await Timer(2, "us")
    assert len(tb.messages) == messages + 1, "more than one interrupt for one error"
    assert await channel.read("status_rc") == failure.status | Status.DESCRIPTOR_STOPPED
    await channel.write("control", CONTROL_STOP)
    await expect_working(tb)


async def expect_capture(tb: TB, channel: Channel, failure: Failure) -> None:
    """The channel has captured this failure, and the extension block has it as the first one."""
    expected = {
        "kind": failure.kind,
        "channel": 0,
        "c2h": int(channel.c2h),
        "descriptor": int(failure.descriptor),
        "count": 1,
    }
    for read in (partial(channel.read, block=regs.CAPTURE), partial(tb.read, regs.EXTENSION)):
        info = await read("error_info")
        register = regs.EXTENSION["error_info"]
        assert {name: register.field(name).get(info) for name in expected} == expected
        if failure.address is not None:
            low, high = await read("error_address_lo"), await read("error_address_hi")
            assert high << 32 | low == failure.address


async def expect_working(tb: TB) -> None:
    """A copy there and back, with nothing left of what went before."""
    size = tb.rng.randint(1, 700)
    source, target = tb.buffer(size, offset=1), tb.buffer(size, offset=2, high=True)
    for channel, transfer in (
        (tb.h2c, Transfer(source.address, 5, size)),
        (tb.c2h, Transfer(5, target.address, size)),
    ):
        messages = len(tb.messages)
        await channel.run(tb.chain([transfer]))
        await tb.wait_messages(messages + 1)
    target.expect(source.data)


def good(tb: TB, count: int) -> list[Transfer]:
    """`count` transfers to the card that work."""
    return [Transfer(tb.buffer(64).address, 64 * index, 64) for index in range(count)]


@bench(us=1500, lanes=4, series7=True)
async def dropped_writes(tb: TB):
    """A write that the PCIe block drops ends the run at its descriptor."""
    await prepare(tb)
    for victim in (0, 1, 2):
        targets = [tb.buffer(300) for _ in range(3)]
        place = targets[victim]
        # The last piece of it.
        end = range(place.address + 256, place.address + 300)
        tb.device.discard = lambda tlp, end=end: tlp.address in end
        chain = tb.chain([Transfer(0, target.address, 300) for target in targets])
        failure = Failure(Status.READ_UNSUPPORTED, ErrorKind.WRITE_DROPPED, victim)
        await expect_failure(tb, tb.c2h, chain, failure)


@bench(us=1500, lanes=4)
async def bad_magic(tb: TB):
    """A wrong magic at any place of a block stops there; nothing is done with that descriptor."""
    await prepare(tb)
    for index in (0, 1, 4, 18):
        transfers = good(tb, 20)
        victim = tb.buffer(64)
        transfers[index] = Transfer(victim.address, 0, 64, magic=tb.rng.randrange(0xAD4B))
        chain = tb.chain(transfers)
        failure = Failure(
            Status.MAGIC_STOPPED,
            ErrorKind.MAGIC,
            index,
            descriptor=True,
            address=chain.address + index * regs.DESCRIPTOR.itemsize,
        )
        tb.host.requests.clear()
        await expect_failure(tb, tb.h2c, chain, failure)
        touched = [r for r in tb.host.requests if victim.address <= r.address < victim.address + 64]
        assert not touched, "the descriptor with the wrong magic was used"


@bench(us=1500, lanes=4, long=True)
async def card_address(tb: TB):
    """Card addresses outside the RAM, or running out of it, are decode errors both ways."""
    await prepare(tb)
    end = CONFIG.ram_size
    for address in (end, end - 10, 1 << 32, 1 << 62, (1 << 63) - 8):
        buffer = tb.buffer(64)
        into = tb.chain([*good(tb, 2), Transfer(buffer.address, address, 64)])
        out = tb.chain([Transfer(address, buffer.address, 64)])
        before = buffer.data
        bits = Status.READ_UNSUPPORTED
        await expect_failure(
            tb,
            tb.h2c,
            into,
            Failure(bits | Status.WRITE_DECODE, ErrorKind.DECODE, 2, address=address),
        )
        await expect_failure(tb, tb.c2h, out, Failure(bits, ErrorKind.DECODE, 0, address=address))
        buffer.expect(before)


@bench(us=2500, lanes=4)
async def failed_fetches(tb: TB):
    """A descriptor read that fails, at once or after good ones, on each channel."""
    await prepare(tb)
    for channel in (tb.h2c, tb.c2h):
        for fault in (Fault.UNSUPPORTED_REQUEST, Fault.COMPLETER_ABORT, Fault.POISONED):
            bits, kind = FETCH[fault]
            chain = tb.chain([Transfer(0, 0, 0)] * 3)
            tb.host.inject(range(chain.address, chain.address + 1), fault)
            status = bits | Status.DESC_UNSUPPORTED
            await expect_failure(tb, channel, chain, Failure(status, kind, 0, True))
            tb.host.clear_faults()
    lost = Chain(NOWHERE, 0, 1)
    failure = Failure(
        Status.DESC_UNSUPPORTED, ErrorKind.UNSUPPORTED_REQUEST, 0, True, address=NOWHERE
    )
    await expect_failure(tb, tb.h2c, lost, failure)


@bench(us=2500, lanes=4)
async def failed_reads(tb: TB):
    """A data read that fails in the middle of a list; descriptors before it are done."""
    await prepare(tb)
    for fault in (Fault.UNSUPPORTED_REQUEST, Fault.COMPLETER_ABORT, Fault.POISONED):
        bits, kind = DATA[fault]
        bad = tb.buffer(3000)
        chain = tb.chain([*good(tb, 2), Transfer(bad.address, 1024, 3000), *good(tb, 2)])
        tb.host.inject(range(bad.address + 1600, bad.address + 1700), fault)
        status = bits | Status.READ_UNSUPPORTED
        await expect_failure(tb, tb.h2c, chain, Failure(status, kind, 2))
        tb.host.clear_faults()


@bench(us=1500, lanes=4, long=True)
async def completion_timeouts(tb: TB):
    """A read that is never answered ends after the timeout; its tag stays out of use until then."""
    await prepare(tb)
    for channel, descriptor, bits in (
        (tb.h2c, True, Status.DESC_UNSUPPORTED),
        (tb.c2h, True, Status.DESC_UNSUPPORTED),
        (tb.h2c, False, Status.READ_UNSUPPORTED),
    ):
        victim = tb.buffer(100)
        chain = tb.chain([Transfer(victim.address, 0, 100)])
        lost = chain.address if descriptor else victim.address
        tb.host.inject(range(lost, lost + 1), Fault.WITHHELD)
        failure = Failure(bits, ErrorKind.COMPLETION_TIMEOUT, 0, descriptor)
        await expect_failure(tb, channel, chain, failure, us=3 * TIMEOUT_US)
        tb.host.clear_faults()
        assert tb.device.take_timeouts() in (1, None)
        tags = await tb.read(regs.EXTENSION, "quarantined")
        assert tags == sum(1 << tag for tag in tb.device.checker.outstanding_tags) != 0
        # The late answer changes nothing but that the tag is usable again.
        await tb.host.release_withheld()
        await Timer(2, "us")
        assert await tb.read(regs.EXTENSION, "quarantined") == 0
        await expect_working(tb)


@bench(us=1500, lanes=4)
async def bus_master_off(tb: TB):
    """Without Bus Master Enable nothing is requested, runs end in an error, and recover."""
    # All of it takes some 8 µs, at 256 bits.
    size = CONFIG.ram_size
    source, target = tb.buffer(size), tb.buffer(size)
    into = tb.chain([Transfer(source.address, 0, size)])
    out = tb.chain([Transfer(0, target.address, size)])
    errors = {tb.h2c: (into, Status.READ_UNSUPPORTED), tb.c2h: (out, Status.READ_UNSUPPORTED)}

    await tb.pci.clear_master()
    for channel, (chain, _) in errors.items():
        tb.host.requests.clear()
        await channel.start(chain)
        await channel.expect_failed(Status.DESC_UNSUPPORTED, 0)
        assert not tb.host.requests
        await channel.write("control", CONTROL_STOP)

    for channel, (chain, status) in errors.items():
        await tb.pci.set_master()
        await channel.start(chain, CONTROL_START)
        await Timer(2, "us")
        await tb.pci.clear_master()
        await channel.expect_failed(status, 0)
        await channel.write("control", CONTROL_STOP)
    await tb.pci.set_master()
    await prepare(tb)
    await expect_working(tb)
