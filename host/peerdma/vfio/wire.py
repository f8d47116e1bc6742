# SPDX-License-Identifier: BSD-2-Clause
"""The vfio-user protocol's messages as data: commands, flags and layouts, protocol version 0.0.

Facts from the "vfio-user Protocol Specification" as it ships with QEMU and libvfio-user. All
fields are little-endian. Every message starts with a `Header`; what follows is named by command.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "CONFIG_REGION",
    "MAX_DATA_BYTES",
    "MAX_FDS",
    "PROTOCOL_VERSION",
    "Area",
    "Command",
    "DeviceFlag",
    "DeviceInfo",
    "DmaAccess",
    "DmaMap",
    "DmaUnmap",
    "Header",
    "HeaderFlag",
    "Irq",
    "IrqInfo",
    "IrqSet",
    "IrqSetFlag",
    "MapFlag",
    "RegionAccess",
    "RegionFlag",
    "RegionInfo",
    "SparseMmap",
    "Version",
    "pack",
    "unpack",
]

#: (major, minor) of the protocol version implemented here.
PROTOCOL_VERSION = (0, 0)
#: Most payload bytes of one read or write message; the protocol's default.
MAX_DATA_BYTES = 1 << 20
#: Most file descriptors that one message to this side carries.
MAX_FDS = 16
#: Number of the region that is the PCI configuration space.
CONFIG_REGION = 7


class Command(enum.IntEnum):
    """Message commands. The board sends DMA_READ and DMA_WRITE, the client all others."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_GET_INFO = 4
    DEVICE_GET_REGION_INFO = 5
    DEVICE_GET_IRQ_INFO = 7
    DEVICE_SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    DEVICE_RESET = 13


class HeaderFlag(enum.IntFlag):
    """Bits of `Header.flags`. Bits 3:0 are the type: 0 command, 1 reply."""

    REPLY = 0x1
    TYPE = 0xF
    NO_REPLY = 0x10
    ERROR = 0x20


class DeviceFlag(enum.IntFlag):
    """Bits of `DeviceInfo.flags`."""

    RESET = 1
    PCI = 2


class RegionFlag(enum.IntFlag):
    """Bits of `RegionInfo.flags`."""

    READ = 1
    WRITE = 2
    MMAP = 4
    CAPABILITIES = 8


class MapFlag(enum.IntFlag):
    """Bits of `DmaMap.flags`."""

    READ = 1
    WRITE = 2


class Irq(enum.IntEnum):
    """Interrupt indices of a PCI device."""

    INTX = 0
    MSI = 1
    MSIX = 2


class IrqSetFlag(enum.IntFlag):
    """Bits of `IrqSet.flags`: one of the DATA bits with one of the ACTION bits."""

    DATA_NONE = 1 << 0
    DATA_EVENTFD = 1 << 2
    ACTION_UNMASK = 1 << 4
    ACTION_TRIGGER = 1 << 5


class Header(NamedTuple):
    """Starts every message. `size` counts the header too; `error` is an errno."""

    message_id: int
    command: int
    size: int
    flags: int = 0
    error: int = 0

    FORMAT = struct.Struct("<HHIII")


class Version(NamedTuple):
    """VERSION, both ways; then capabilities as NUL-terminated JSON."""

    major: int
    minor: int

    FORMAT = struct.Struct("<HH")


class DmaMap(NamedTuple):
    """DMA_MAP; the file descriptor, if any, comes as ancillary data. The reply is empty."""

    argsz: int
    flags: int
    #: of the memory in the file
    offset: int
    address: int
    size: int

    FORMAT = struct.Struct("<IIQQQ")


class DmaUnmap(NamedTuple):
    """DMA_UNMAP; the reply repeats it."""

    argsz: int
    flags: int
    address: int
    size: int

    FORMAT = struct.Struct("<IIQQ")


class DeviceInfo(NamedTuple):
    """DEVICE_GET_INFO, both ways."""

    argsz: int
    flags: int = 0
    regions: int = 0
    irqs: int = 0

    FORMAT = struct.Struct("<IIII")


class RegionInfo(NamedTuple):
    """DEVICE_GET_REGION_INFO, both ways."""

    argsz: int
    flags: int = 0
    region: int = 0
    cap_offset: int = 0
    size: int = 0
    offset: int = 0

    FORMAT = struct.Struct("<IIIIQQ")


class SparseMmap(NamedTuple):
    """A capability that follows `RegionInfo`: the areas of the region that can be mapped.

    `areas` times `Area` follow. The next capability is at byte `next` of the reply, if not 0.
    """

    kind: int
    version: int
    next: int
    areas: int
    reserved: int = 0

    #: the `kind` of this capability
    KIND = 1
    FORMAT = struct.Struct("<HHIII")


class Area(NamedTuple):
    """Part of a region; in the region's file it is at `RegionInfo.offset` plus this offset."""

    offset: int
    size: int

    FORMAT = struct.Struct("<QQ")


class IrqInfo(NamedTuple):
    """DEVICE_GET_IRQ_INFO, both ways."""

    argsz: int
    flags: int = 0
    irq: int = 0
    interrupts: int = 0

    FORMAT = struct.Struct("<IIII")


class IrqSet(NamedTuple):
    """DEVICE_SET_IRQS; eventfds come as ancillary data. The reply is empty."""

    argsz: int
    flags: int
    irq: int
    start: int
    interrupts: int

    FORMAT = struct.Struct("<IIIII")


class RegionAccess(NamedTuple):
    """REGION_READ and REGION_WRITE, both ways; data follows read replies and write commands."""

    offset: int
    region: int
    nbytes: int

    FORMAT = struct.Struct("<QII")


class DmaAccess(NamedTuple):
    """DMA_READ and DMA_WRITE, both ways; data follows read replies and write commands."""

    address: int
    nbytes: int

    FORMAT = struct.Struct("<QQ")


Record = TypeVar("Record")


def pack(record: Any) -> bytes:
    """The bytes of one of the layouts above."""
    return record.FORMAT.pack(*record)


def unpack(kind: type[Record], data: bytes | bytearray | memoryview, offset: int = 0) -> Record:
    """The layout `kind` read from `data` at `offset`; struct.error if `data` is too short."""
    return kind(*kind.FORMAT.unpack_from(data, offset))  # type: ignore[attr-defined]
