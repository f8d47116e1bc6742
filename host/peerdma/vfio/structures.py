# SPDX-License-Identifier: BSD-2-Clause
"""VFIO's structures, as in <linux/vfio.h>: for the kernel's ioctls, and in vfio-user messages.

Fields are in the byte order of the machine, which is little-endian, as vfio-user's are. Most begin
with `argsz`, the bytes of the structure with what follows it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "CONFIG_REGION",
    "Area",
    "DeviceFlag",
    "DeviceInfo",
    "DmaMap",
    "DmaUnmap",
    "Irq",
    "IrqInfo",
    "IrqSet",
    "IrqSetFlag",
    "MapFlag",
    "RegionFlag",
    "RegionInfo",
    "SparseMmap",
    "mappable",
    "pack",
    "unpack",
]

#: Number of the region that is the PCI configuration space.
CONFIG_REGION = 7


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
    """Interrupt indices of a PCI device; the last two are the kernel's messages about it."""

    INTX = 0
    MSI = 1
    MSIX = 2
    ERROR = 3
    REQUEST = 4


class IrqSetFlag(enum.IntFlag):
    """Bits of `IrqSet.flags`: one of the DATA bits with one of the ACTION bits."""

    DATA_NONE = 1 << 0
    DATA_EVENTFD = 1 << 2
    ACTION_UNMASK = 1 << 4
    ACTION_TRIGGER = 1 << 5


class DmaMap(NamedTuple):
    """Memory for the device's DMA, in whole pages."""

    argsz: int
    flags: int
    #: the memory: its virtual address; in vfio-user, its offset in the file that comes with it
    place: int
    address: int
    size: int

    FORMAT = struct.Struct("<IIQQQ")


class DmaUnmap(NamedTuple):
    """What `DmaMap` mapped at an address."""

    argsz: int
    flags: int
    address: int
    size: int

    FORMAT = struct.Struct("<IIQQ")


class DeviceInfo(NamedTuple):
    """A device: its flags, and how many regions and kinds of interrupts it has."""

    argsz: int
    flags: int = 0
    regions: int = 0
    irqs: int = 0

    FORMAT = struct.Struct("<IIII")


class RegionInfo(NamedTuple):
    """A region; in the device's file it is at `offset`."""

    argsz: int
    flags: int = 0
    region: int = 0
    cap_offset: int = 0
    size: int = 0
    offset: int = 0

    FORMAT = struct.Struct("<IIIIQQ")


class SparseMmap(NamedTuple):
    """A capability that follows `RegionInfo`: the areas of the region that can be mapped.

    `areas` times `Area` follow. The next capability is at byte `next` of the structure, if not 0.
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

    def has(self, offset: int, size: int) -> bool:
        """Whether so many bytes of the region are in it."""
        return self.offset <= offset <= self.offset + self.size - size


class IrqInfo(NamedTuple):
    """How many interrupts of a kind there are."""

    argsz: int
    flags: int = 0
    irq: int = 0
    interrupts: int = 0

    FORMAT = struct.Struct("<IIII")


class IrqSet(NamedTuple):
    """Connects interrupts to eventfds, which follow it; in vfio-user as ancillary data."""

    argsz: int
    flags: int
    irq: int
    start: int
    interrupts: int

    FORMAT = struct.Struct("<IIIII")


Record = TypeVar("Record")


def pack(record: Any) -> bytes:
    """The bytes of one of the layouts above."""
    return record.FORMAT.pack(*record)


def unpack(kind: type[Record], data: bytes | bytearray | memoryview, offset: int = 0) -> Record:
    """The layout `kind` read from `data` at `offset`; struct.error if `data` is too short."""
    return kind(*kind.FORMAT.unpack_from(data, offset))  # type: ignore[attr-defined]


def mappable(info: RegionInfo, answer: bytes | bytearray) -> Iterator[Area]:
    """The areas of a region that can be mapped; all of it if no capability lists areas.

    `answer` is the structure with the capabilities that follow it. Raises struct.error if they do
    not fit into it.
    """
    if not info.flags & RegionFlag.MMAP:
        return
    place = info.cap_offset if info.flags & RegionFlag.CAPABILITIES else 0
    while place:
        sparse = unpack(SparseMmap, answer, place)
        if sparse.kind == SparseMmap.KIND and sparse.areas:
            first = place + SparseMmap.FORMAT.size
            for number in range(sparse.areas):
                yield unpack(Area, answer, first + number * Area.FORMAT.size)
            return
        place = sparse.next if sparse.next > place else 0
    yield Area(0, info.size)
