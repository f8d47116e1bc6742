# SPDX-License-Identifier: BSD-2-Clause
"""The board's PCI configuration space, as data.

What it advertises is what the hard block of the real board does: the capabilities and their
places follow the decoded configuration of NVIDIA's PicoEVB image (board IDs, 32-bit BARs, Gen2
x1, MPS 512, MSI; no AER, no function level reset). MSI-X, which that leaves off, is on: table and
messages are the core's.
"""

from __future__ import annotations

from dataclasses import dataclass

from peerdma import regs

__all__ = ["SIZE", "ConfigSpace", "Identity", "build"]

#: Bytes of a PCI Express configuration space.
SIZE = 4096

# Where the capabilities are.
POWER, MSI, EXPRESS, MSIX, SERIAL = 0x40, 0x48, 0x60, 0x9C, 0x100


@dataclass(frozen=True)
class Identity:
    """Who the function says it is, and what it can do.

    Parameters
    ----------
    vendor, device, subsystem_vendor, subsystem : int
        16-bit IDs.
    class_code : int
        24 bits: base class, sub-class, programming interface.
    msi_vectors : int
        MSI messages asked for: a power of two up to 32, or 0 for no MSI.
    msix : bool
        MSI-X with its table where `peerdma.regs` has it.
    link_speed : int
        PCIe generation of the trained link, 1 or 2.
    boundary : int
        Read completion boundary that the root complex uses: 64 or 128 bytes.
    """

    vendor: int = 0x10EE
    device: int = 0x7021
    subsystem_vendor: int = 0x10EE
    subsystem: int = 0x5045
    class_code: int = 0x058000
    msi_vectors: int = 1
    msix: bool = True
    link_speed: int = 2
    boundary: int = 64

    def __post_init__(self):
        for name in ("vendor", "device", "subsystem_vendor", "subsystem"):
            if not 0 <= getattr(self, name) <= 0xFFFF:
                raise ValueError(f"{name} is a 16-bit ID, not {getattr(self, name):#x}")
        if not 0 <= self.class_code <= 0xFFFFFF:
            raise ValueError(f"class code has 24 bits, {self.class_code:#x} has more")
        if self.msi_vectors not in (0, 1, 2, 4, 8, 16, 32):
            raise ValueError(f"MSI has 1, 2, 4, 8, 16 or 32 vectors, not {self.msi_vectors}")
        if self.boundary not in (64, 128):
            raise ValueError(f"read completion boundary is 64 or 128 bytes, not {self.boundary}")


@dataclass(frozen=True)
class ConfigSpace:
    """Three images of `SIZE` bytes: reset values; bits a write sets; bits that writing 1 clears."""

    image: bytes
    writable: bytes
    clearable: bytes


@dataclass(frozen=True)
class _Row:
    """`size` bytes at `offset`: reset value and masks."""

    offset: int
    size: int
    value: int
    writable: int = 0
    clearable: int = 0


def build(identity: Identity = Identity()) -> ConfigSpace:
    """The configuration space of a board that is `identity`."""
    images = bytearray(SIZE), bytearray(SIZE), bytearray(SIZE)
    for row in (*_header(identity), *_capabilities(identity)):
        for image, value in zip(images, (row.value, row.writable, row.clearable), strict=True):
            image[row.offset : row.offset + row.size] = value.to_bytes(row.size, "little")
    return ConfigSpace(*map(bytes, images))


def _header(identity: Identity) -> list[_Row]:
    bars = [
        _Row(0x10 + 4 * number, 4, 0, writable=-size & 0xFFFF_FFFF)
        for number, size in (regs.BAR_USER, regs.BAR_DMA)
    ]
    return [
        _Row(0x00, 2, identity.vendor),
        _Row(0x02, 2, identity.device),
        # Command: memory space, bus master, parity error response, SERR#, interrupt disable.
        _Row(0x04, 2, 0, writable=0x0546),
        # Status: capabilities list; the error bits are cleared by writing 1.
        _Row(0x06, 2, 0x0010, clearable=0xF900),
        _Row(0x09, 3, identity.class_code),
        _Row(0x0C, 1, 0, writable=0xFF),  # cache line size
        *bars,
        _Row(0x2C, 2, identity.subsystem_vendor),
        _Row(0x2E, 2, identity.subsystem),
        _Row(0x34, 1, POWER),
        _Row(0x3C, 1, 0, writable=0xFF),  # interrupt line
        _Row(0x3D, 1, 1),  # INTA
    ]


def _capabilities(identity: Identity) -> list[_Row]:
    chain = [(POWER, _power), (EXPRESS, _express)]
    if identity.msi_vectors:
        chain.insert(1, (MSI, _msi))
    if identity.msix:
        chain.append((MSIX, _msix))
    rows = []
    for (place, make), (following, _) in zip(chain, [*chain[1:], (0, None)], strict=True):
        rows += [_Row(place + 1, 1, following), *make(identity)]
    return rows + _serial()


def _power(identity: Identity) -> list[_Row]:
    return [
        _Row(POWER, 1, 0x01),
        _Row(POWER + 2, 2, 0x7803),  # version 3, PME from D0, D1, D2 and D3hot
        # PMCSR: no soft reset; power state and PME enable; PME status.
        _Row(POWER + 4, 2, 0x0008, writable=0x0103, clearable=0x8000),
    ]


def _msi(identity: Identity) -> list[_Row]:
    messages = identity.msi_vectors.bit_length() - 1
    return [
        _Row(MSI, 1, 0x05),
        # 64-bit address; enable and the number of messages granted.
        _Row(MSI + 2, 2, 0x0080 | messages << 1, writable=0x0071),
        _Row(MSI + 4, 4, 0, writable=0xFFFF_FFFC),
        _Row(MSI + 8, 4, 0, writable=0xFFFF_FFFF),
        _Row(MSI + 12, 2, 0, writable=0xFFFF),
    ]


def _express(identity: Identity) -> list[_Row]:
    completes_at_128 = identity.boundary == 128
    return [
        _Row(EXPRESS, 1, 0x10),
        _Row(EXPRESS + 2, 2, 0x0002),  # version 2, endpoint
        # MPS 512, extended tags, L1 latency without limit, role-based error reporting.
        _Row(EXPRESS + 4, 4, 0x0000_8E22),
        # Device Control: relaxed ordering, no snoop, MPS 128, MRRS 512. Device Status.
        _Row(EXPRESS + 8, 2, 0x2810, writable=0x79FF),
        _Row(EXPRESS + 0xA, 2, 0, clearable=0x000F),
        # Link Capabilities: Gen2 x1, no ASPM, exit latencies without limit.
        _Row(EXPRESS + 0xC, 4, 0x0043_F012),
        _Row(EXPRESS + 0x10, 2, completes_at_128 << 3, writable=0x00CB),
        _Row(EXPRESS + 0x12, 2, 0x1010 | identity.link_speed),  # slot clock, x1
        _Row(EXPRESS + 0x24, 4, 0x0000_0002),  # completion timeout range B
        _Row(EXPRESS + 0x28, 2, 0, writable=0x000F),
        _Row(EXPRESS + 0x30, 2, 0x0002, writable=0x1FBF),  # target speed Gen2
    ]


def _msix(identity: Identity) -> list[_Row]:
    bar = regs.BAR_DMA[0]
    return [
        _Row(MSIX, 1, 0x11),
        _Row(MSIX + 2, 2, regs.MSIX_ENTRIES - 1, writable=0xC000),
        _Row(MSIX + 4, 4, regs.MSIX_TABLE_OFFSET | bar),
        _Row(MSIX + 8, 4, regs.MSIX_PBA_OFFSET | bar),
    ]


def _serial() -> list[_Row]:
    # Device Serial Number: version 1, last in the list.
    return [_Row(SERIAL, 4, 0x0001_0003), _Row(SERIAL + 4, 8, 0x0000_0001_0100_0A35)]
