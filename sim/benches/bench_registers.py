# SPDX-License-Identifier: BSD-2-Clause
"""Enumeration and registers: every register of the map, judged by its access type."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType

from hw.pcie.adapters import ADAPTERS
from hw.stream.user_blocks import FrameBlock, UserBlock
from peerdma import regs
from peerdma.regs import Access, Register

from .channel import FINISHED
from .memory import Transfer
from .model import CONFIG
from .tb import TB, bench

CHANNELS = (1,)
PCIE = ()

_BUILD = regs.EXTENSION["channels"]


def build_values(
    user: type[UserBlock], *, clock_khz: int = CONFIG.clock_khz, overcommit: bool = False
) -> dict[str, int]:
    """Values of registers that depend on the build, not on the map."""
    more = regs.Capability.FRAME_RECORDS if issubclass(user, FrameBlock) else 0
    more |= regs.Capability.OVERCOMMIT if overcommit else 0
    ratio = regs.EXTENSION["user_ratio"].fields
    return {
        "channels": _BUILD.field("h2c").put(CONFIG.h2c)
        | _BUILD.field("c2h").put(CONFIG.c2h)
        | _BUILD.field("tags").put(CONFIG.tags),
        "card_ram_size": CONFIG.ram_size,
        "clock_khz": clock_khz,
        "capabilities": regs.Capability.MAILBOX
        | regs.Capability.STREAM
        | regs.Capability.WRITEBACK
        | regs.Capability.PUSH
        | regs.Capability.CAPTURE
        | more,
        "user_block": regs.four_characters(user.NAME),
        "user_ratio": sum(field.put(value) for value, field in zip(user.RATIO, ratio, strict=True)),
        "stream_window_lo": regs.STREAM_WINDOW & 0xFFFF_FFFF,
        "stream_window_hi": regs.STREAM_WINDOW >> 32,
    }


BUILD_VALUES = build_values(CONFIG.user)
#: Registers that follow the configuration or the time.
LIVE = {"busdev", "max_payload", "max_read_request", "link", "cycles_lo", "cycles_hi"}
#: Registers that other builds have: they read 0, and drop what is written.
MISSING = {"frame_records"}
#: Bits that have an effect beyond being stored.
ACTIVE = {"control": regs.CHANNEL["control"].field("run").mask}
#: Where the interrupt vectors' table is, which is no part of the register map.
MSIX = range(regs.MSIX_TABLE_OFFSET, regs.MSIX_TABLE_OFFSET + 16 * regs.MSIX_ENTRIES)


@dataclass(frozen=True)
class Place:
    """One register of one instance of a block."""

    bar: int
    base: int
    register: Register
    reset: int

    @property
    def offset(self) -> int:
        """Byte offset within the BAR."""
        return self.base + self.register.offset

    @property
    def readable(self) -> bool:
        """Whether there is more to read than 0."""
        return self.register.access not in (Access.W1S, Access.W1C, Access.WO)


def _places() -> list[Place]:
    instances = [
        (0, regs.USER, regs.USER.base, None),
        (0, regs.MAILBOX, regs.MAILBOX.base, None),
        (1, regs.CHANNEL, regs.CHANNEL.base, regs.identifier(0)),
        (1, regs.CHANNEL, regs.C2H_CHANNEL_BASE, regs.identifier(1)),
        (1, regs.SGDMA, regs.SGDMA.base, regs.identifier(4)),
        (1, regs.SGDMA, regs.C2H_SGDMA_BASE, regs.identifier(5)),
        (1, regs.CAPTURE, regs.CAPTURE.base, None),
        (1, regs.CAPTURE, regs.C2H_CAPTURE_BASE, None),
        *((1, block, block.base, None) for block in (regs.IRQ, regs.CONFIG)),
        *((1, block, block.base, None) for block in (regs.SGDMA_COMMON, regs.EXTENSION)),
    ]
    return [
        Place(
            bar,
            base,
            replace(register, access=Access.RO) if register.name in MISSING else register,
            identifier
            if identifier and register.name == "identifier"
            else BUILD_VALUES.get(register.name, register.reset),
        )
        for bar, block, base, identifier in instances
        for register in block.registers
    ]


PLACES = _places()


async def _read(tb: TB, place: Place) -> int:
    return int.from_bytes(await tb.bar_read(place.bar, place.offset, 4), "little")


async def _write(tb: TB, place: Place, value: int) -> None:
    await tb.bar_write(place.bar, place.offset, value.to_bytes(4, "little"))


def _hex(place: Place, found: int, expected: int, when: str) -> str:
    where = f"{place.register.name} at BAR{place.bar} {place.offset:#06x}"
    return f"{where} reads {found:#010x} {when}, expected {expected:#010x}"


@bench(us=100, series7=True)
async def enumeration(tb: TB):
    """Identity, BAR sizes and capabilities; the core sees what the host configures."""
    assert await tb.pci.config_read_dword(0x00) == 0x7021_10EE
    assert await tb.pci.config_read_dword(0x2C) == 0x5045_10EE
    assert await tb.pci.config_read_dword(0x08) >> 8 == 0x058000
    assert await tb.pci.config_read_byte(0x3D) == 1
    for bar, size in (regs.BAR_USER, regs.BAR_DMA):
        assert tb.pci.bar_size[bar] == size
    link = regs.EXTENSION["link"]
    for mps, mrrs, rcb in ((128, 512, 64), (256, 128, 128), (512, 4096, 64)):
        await tb.configure(mps=mps, mrrs=mrrs, rcb=rcb)
        expected = {
            "speed": 2,
            "width": 1,
            "max_payload": (mps // 128).bit_length() - 1,
            "max_read_request": (mrrs // 128).bit_length() - 1,
            "rcb": int(rcb == 128),
            "bus_master": 1,
        }
        value = await tb.read(regs.EXTENSION, "link")
        assert {name: link.field(name).get(value) for name in expected} == expected
        assert await tb.read(regs.CONFIG, "max_payload") == expected["max_payload"]
        assert await tb.read(regs.CONFIG, "max_read_request") == expected["max_read_request"]
    assert await tb.read(regs.CONFIG, "busdev") == int(tb.device.function.pcie_id)


@bench(us=400)
async def reset_values(tb: TB):
    """Every register reads its reset value; write-only ones read 0."""
    await expect_reset_values(tb)


async def expect_reset_values(tb: TB) -> None:
    """Fail for a register that is not as after reset."""
    for place in PLACES:
        if place.register.name not in LIVE:
            value = _of_the_block(tb).get(place.register.name, place.reset)
            expected = value if place.readable else 0
            found = await _read(tb, place)
            assert found == expected, _hex(place, found, expected, "after reset")


def _of_the_block(tb: TB) -> dict[str, int]:
    """Values of registers that depend on the PCIe block."""
    block = ADAPTERS[tb.pcie].block
    return {
        "clock_khz": 1_000_000 // tb.device.clock_ns,
        "data_width": (block.width // 64).bit_length() - 1,
    }


@bench(us=100)
async def pins(tb: TB):
    """LEDs follow their register; inputs and the time scale are read as they are."""
    for led in (5, 2):
        await tb.write(regs.USER, "led", led)
        assert await tb.read(regs.USER, "led") == led == int(tb.dut.led.value)
    for value in (0x9, 0x6):
        tb.dut.gpio.value = value
        tb.dut.time_scale.value = value << 28 | 0x123
        assert await tb.read(regs.USER, "gpio") == value
        assert await tb.read(regs.EXTENSION, "time_scale") == value << 28 | 0x123


@bench(us=2000)
async def access_types(tb: TB):
    """What a write changes, and that it changes nothing else."""
    for place in PLACES:
        register = place.register
        if register.access is Access.RW:
            await _check_read_write(tb, place)
        elif register.access in (Access.W1S, Access.W1C):
            await _check_alias(tb, place)
        elif place.readable and register.name not in LIVE:
            before = await _read(tb, place)
            await _write(tb, place, ~before & 0xFFFF_FFFF)
            found = await _read(tb, place)
            assert found == before, _hex(place, found, before, "after a write of its inverse")


def _usable(register: Register) -> int:
    return register.writable & ~ACTIVE.get(register.name, 0)


async def _check_read_write(tb: TB, place: Place) -> None:
    usable = _usable(place.register)
    before = await _read(tb, place)
    for value in (usable, 0, tb.rng.getrandbits(32) & usable, usable):
        await _write(tb, place, value | 0xFFFF_FFFF & ~place.register.writable)
        found = await _read(tb, place) & place.register.writable
        assert found == value, _hex(place, found, value, f"after a write of {value:#010x}")
    await _write(tb, place, before)


async def _check_alias(tb: TB, place: Place) -> None:
    target = next(
        other
        for other in PLACES
        if (other.bar, other.base, other.register.name)
        == (place.bar, place.base, place.register.alias)
    )
    usable = _usable(target.register)
    before, bits = tb.rng.getrandbits(32) & usable, tb.rng.getrandbits(32) & usable
    await _write(tb, target, before)
    await _write(tb, place, bits)
    sets = place.register.access is Access.W1S
    expected = before | bits if sets else before & ~bits
    found = await _read(tb, target) & target.register.writable
    assert found == expected, _hex(target, found, expected, f"after {place.register.name}")
    await _write(tb, target, place.register.reset)


@bench(us=3000, lanes=4, long=True)
async def unimplemented(tb: TB):
    """Where nothing is, reads give 0 and writes change nothing; no block shows up twice."""
    taken = {(place.bar, place.offset) for place in PLACES if place.readable}
    for bar, size in (regs.BAR_USER, regs.BAR_DMA):
        before = await _snapshot(tb, bar, size)
        for offset, value in before.items():
            if (bar, offset) not in taken and not (bar == regs.BAR_DMA[0] and offset in MSIX):
                assert value == 0, f"BAR{bar} {offset:#06x} reads {value:#010x}, nothing is there"
        used = {offset // 128 for at, offset in taken if at == bar}
        for start in range(0, size, 128):
            if start // 128 not in used and not (bar == regs.BAR_DMA[0] and start in MSIX):
                await tb.bar_write(bar, start, tb.rng.randbytes(128))
        assert await _snapshot(tb, bar, size) == before


async def _snapshot(tb: TB, bar: int, size: int) -> dict[int, int]:
    """All dwords of a BAR that do not follow the time, in reads of many dwords."""
    words: dict[int, int] = {}
    for start in range(0, size, 512):
        data = struct.unpack("<128I", await tb.bar_read(bar, start, 512))
        words |= {start + 4 * index: value for index, value in enumerate(data)}
    if bar == regs.BAR_DMA[0]:
        for name in ("cycles_lo", "cycles_hi"):
            del words[regs.EXTENSION.address(name)]
    return words


@bench(us=400)
async def byte_enables(tb: TB):
    """Reads and writes of every size and every pattern of byte enables."""
    scratch = regs.USER.address("scratch")
    value = tb.rng.getrandbits(32)
    await tb.write(regs.USER, "scratch", value)
    stored = value.to_bytes(4, "little")
    for enables in range(16):
        data = await _read_tlp(tb, scratch, 1, enables, 0)
        for lane in range(4):
            assert not enables >> lane & 1 or data[lane] == stored[lane]
    for enables in range(15):
        await _write_tlp(tb, scratch, tb.rng.randbytes(4), enables, 0)
        assert await tb.read(regs.USER, "scratch") == value, f"byte enables {enables:04b}"

    # Two registers in one TLP: each takes all four bytes or none.
    first, last = regs.MAILBOX.address("first"), regs.MAILBOX.address("last")
    assert (first % 8, last) == (0, first + 4)
    held = [0, 0]
    for low in range(1, 16):
        for high in (1, 7, 8, 15):
            data = tb.rng.randbytes(8)
            await _write_tlp(tb, first, data, low, high)
            for index, enables in enumerate((low, high)):
                if enables == 15:
                    held[index] = int.from_bytes(data[4 * index : 4 * index + 4], "little")
        found = [await tb.read(regs.MAILBOX, name) for name in ("first", "last")]
        assert found == held, f"after byte enables {low:04b}"


@bench(us=400)
async def long_accesses(tb: TB):
    """Bursts from any byte and of odd lengths, and one write over several registers."""
    await tb.write(regs.USER, "scratch", 0x5AC3_0FF1)
    expected = {place.offset: await _read(tb, place) for place in PLACES if place.bar == 0}
    for start, length in ((0, 128), (4, 60), (12, 9), (0x0D, 7), (0x12, 1), (0x0E, 501)):
        data = await tb.bar_read(0, start, length)
        for offset, value in expected.items():
            for lane, byte in enumerate(value.to_bytes(4, "little")):
                if start <= offset + lane < start + length:
                    assert data[offset + lane - start] == byte
    # One write over several registers reaches each of them.
    words = [tb.rng.getrandbits(32) for _ in range(3)]
    await tb.bar_write(0, regs.MAILBOX.address("first"), struct.pack("<3I", *words))
    assert [await tb.read(regs.MAILBOX, name) for name in ("first", "last", "done")] == words


@bench(us=400, series7=True)
async def blocked_reads(tb: TB):
    """While no completion can leave, reads are held back and writes pass them; none is lost."""
    await tb.write(regs.USER, "scratch", 0x5AC3_0FF1)
    tb.device.hold_transmit = True
    reads = [cocotb.start_soon(tb.read(regs.USER, "scratch")) for _ in range(24)]
    await Timer(10, "us")
    assert not tb.dut.trnrnpok.value, "24 reads arrived, and there is still room for more"
    for led in (5, 2):
        await tb.write(regs.USER, "led", led)
        await Timer(2, "us")
        assert tb.dut.led.value == led, "the write is stuck behind reads"
    tb.device.hold_transmit = False
    assert [await read for read in reads] == [0x5AC3_0FF1] * 24


@bench(us=200)
async def read_to_clear(tb: TB):
    """Only a read of a byte of the clearing alias clears status, whatever else is read."""
    status, alias = (regs.CHANNEL.address(name) for name in ("status", "status_rc"))
    assert alias == status + 4
    await tb.h2c.start(tb.chain([Transfer(0, 0, 0)]))
    await tb.h2c.expect_end(FINISHED, 1)
    await _read_tlp(tb, alias, 1, 0, 0, bar=regs.BAR_DMA[0])
    await tb.bar_read(1, alias + 4, 8)
    words = struct.pack("<2I", FINISHED, FINISHED)
    assert await tb.bar_read(1, status, 4) == words[:4]
    assert await tb.bar_read(1, status, 8) == words
    assert await tb.bar_read(1, status, 8) == bytes(8)


@bench(us=100, series7=True)
async def unsupported_requests(tb: TB):
    """Non-posted requests that are no memory reads are answered Unsupported Request."""
    for kind in (TlpType.MEM_READ_LOCKED, TlpType.FETCH_ADD, TlpType.SWAP, TlpType.CAS):
        request = _request(tb, kind, regs.USER.address("scratch"))
        request.length, request.first_be = 1, 0xF
        if request.has_data():
            request.set_data(tb.rng.randbytes(8 if kind is TlpType.CAS else 4))
        # The library's bridges do not route these, so they go to the block itself.
        request.tag = await tb.host.alloc_tag()
        await tb.device.upstream_recv(request)
        completion = await tb.host.recv_cpl(request.tag, 20, "us")
        assert completion is not None and completion.status == CplStatus.UR, f"to {kind.name}"
        tb.host.release_tag(request.tag)
    assert await tb.read(regs.USER, "scratch") == 0


def _request(tb: TB, kind: TlpType, offset: int, bar: int = 0) -> Tlp:
    tlp = Tlp()
    tlp.fmt_type = kind
    tlp.requester_id = tb.host.pcie_id
    tlp.address = tb.bar_address(bar, offset)
    return tlp


async def _read_tlp(
    tb: TB, offset: int, dwords: int, first_be: int, last_be: int, bar: int = 0
) -> bytes:
    """Read whole dwords of a BAR with these byte enables."""
    request = _request(tb, TlpType.MEM_READ, offset, bar)
    request.length, request.first_be, request.last_be = dwords, first_be, last_be
    (completion,) = await tb.host.perform_nonposted_operation(request, 20, "us")
    assert completion.status == CplStatus.SC
    return bytes(completion.data)


async def _write_tlp(tb: TB, offset: int, data: bytes, first_be: int, last_be: int) -> None:
    """Write whole dwords of BAR 0 with these byte enables."""
    request = _request(tb, TlpType.MEM_WRITE, offset)
    request.set_data(data)
    request.first_be, request.last_be = first_be, last_be
    await tb.host.perform_posted_operation(request)
