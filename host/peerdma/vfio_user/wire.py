# SPDX-License-Identifier: BSD-2-Clause
"""The vfio-user protocol's messages as data: commands, flags and layouts, protocol version 0.0.

Facts from the "vfio-user Protocol Specification" as it ships with QEMU and libvfio-user. All
fields are little-endian. Every message starts with a `Header`; what follows is named by command.
For a device's information, DMA mappings and interrupts that is VFIO's structure, both ways.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from ..vfio.structures import (
    CONFIG_REGION,
    Area,
    DeviceFlag,
    DeviceInfo,
    DmaMap,
    DmaUnmap,
    Irq,
    IrqInfo,
    IrqSet,
    IrqSetFlag,
    MapFlag,
    RegionFlag,
    RegionInfo,
    SparseMmap,
    mappable,
    pack,
    unpack,
)

__all__ = [
    "CONFIG_REGION",
    "GPU_MAPPABLE",
    "GPU_MEMORY",
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
    "GpuMap",
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
    "mappable",
    "pack",
    "unpack",
]

#: (major, minor) of the protocol version implemented here.
PROTOCOL_VERSION = (0, 0)
#: Most payload bytes of one read or write message; the protocol's default.
MAX_DATA_BYTES = 1 << 20
#: What a board's capabilities have, as true, if it takes GPU_MAP.
GPU_MEMORY = "peerdma_gpu_memory"
#: Bit of `GpuMap.flags`, beside those of `MapFlag`.
GPU_MAPPABLE = 4
#: Most file descriptors that one message to this side carries.
MAX_FDS = 16


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
    #: of this project alone, see `GPU_MEMORY`
    GPU_MAP = 0x8000


class HeaderFlag(enum.IntFlag):
    """Bits of `Header.flags`. Bits 3:0 are the type: 0 command, 1 reply."""

    REPLY = 0x1
    TYPE = 0xF
    NO_REPLY = 0x10
    ERROR = 0x20


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


class GpuMap(NamedTuple):
    """GPU_MAP: as `DmaMap`, with a `GpuFile`, whose file descriptor comes with the message.

    `flags` may have `GPU_MAPPABLE`. The reply is empty, or as text why the file is not mapped.
    """

    argsz: int
    flags: int
    #: of the window in the file
    offset: int
    address: int
    size: int
    #: of the whole file
    nbytes: int
    identity: int
    device: bytes

    FORMAT = struct.Struct("<IIQQQQQ16s")


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
