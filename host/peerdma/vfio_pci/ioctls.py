# SPDX-License-Identifier: BSD-2-Clause
"""Requests of <linux/vfio.h> and <linux/iommufd.h>, and structures that vfio-user does not have."""

from __future__ import annotations

import enum
import fcntl
import struct
from typing import Any, NamedTuple

from ..vfio.structures import pack

__all__ = [
    "TYPE1V2",
    "AttachIommufd",
    "BindIommufd",
    "CapabilityHeader",
    "GroupFlag",
    "GroupStatus",
    "IoasAlloc",
    "IoasMap",
    "IoasMapFlag",
    "IoasRange",
    "IoasRanges",
    "IoasUnmap",
    "IommuFlag",
    "IommuInfo",
    "Iommufd",
    "RangesCapability",
    "Vfio",
    "control",
]

#: The type of all these requests. They are made by _IO: codes hold neither size nor direction.
_TYPE = ord(";") << 8
#: Argument of SET_IOMMU: type 1, in which mappings are unmapped as they were mapped.
TYPE1V2 = 3


class Vfio(enum.IntEnum):
    """VFIO_*: requests to a container, a group or a device."""

    GET_API_VERSION = _TYPE | 100
    CHECK_EXTENSION = _TYPE | 101
    SET_IOMMU = _TYPE | 102
    GROUP_GET_STATUS = _TYPE | 103
    GROUP_SET_CONTAINER = _TYPE | 104
    GROUP_GET_DEVICE_FD = _TYPE | 106
    DEVICE_GET_INFO = _TYPE | 107
    DEVICE_GET_REGION_INFO = _TYPE | 108
    DEVICE_GET_IRQ_INFO = _TYPE | 109
    DEVICE_SET_IRQS = _TYPE | 110
    DEVICE_RESET = _TYPE | 111
    IOMMU_GET_INFO = _TYPE | 112
    IOMMU_MAP_DMA = _TYPE | 113
    IOMMU_UNMAP_DMA = _TYPE | 114
    DEVICE_BIND_IOMMUFD = _TYPE | 118
    DEVICE_ATTACH_IOMMUFD_PT = _TYPE | 119


class Iommufd(enum.IntEnum):
    """IOMMU_*: requests to /dev/iommu."""

    IOAS_ALLOC = _TYPE | 0x81
    IOAS_IOVA_RANGES = _TYPE | 0x84
    IOAS_MAP = _TYPE | 0x85
    IOAS_UNMAP = _TYPE | 0x86


class GroupFlag(enum.IntFlag):
    """VFIO_GROUP_FLAGS_*"""

    VIABLE = 1 << 0


class IommuFlag(enum.IntFlag):
    """VFIO_IOMMU_INFO_*"""

    CAPS = 1 << 1


class IoasMapFlag(enum.IntFlag):
    """IOMMU_IOAS_MAP_*"""

    FIXED_IOVA = 1 << 0
    WRITEABLE = 1 << 1
    READABLE = 1 << 2


class GroupStatus(NamedTuple):
    """struct vfio_group_status"""

    argsz: int
    flags: int = 0

    FORMAT = struct.Struct("<II")


class CapabilityHeader(NamedTuple):
    """struct vfio_info_cap_header"""

    id: int
    version: int
    next: int

    FORMAT = struct.Struct("<HHI")


class IommuInfo(NamedTuple):
    """struct vfio_iommu_type1_info; capabilities follow."""

    argsz: int
    flags: int = 0
    iova_pgsizes: int = 0
    cap_offset: int = 0
    pad: int = 0

    FORMAT = struct.Struct("<IIQII")


class RangesCapability(NamedTuple):
    """struct vfio_iommu_type1_info_cap_iova_range; as many `IoasRange` follow."""

    id: int
    version: int
    next: int
    nr_iovas: int
    reserved: int = 0

    #: the `id` of this capability
    ID = 1
    FORMAT = struct.Struct("<HHIII")


class BindIommufd(NamedTuple):
    """struct vfio_device_bind_iommufd"""

    argsz: int
    flags: int
    iommufd: int
    out_devid: int = 0

    FORMAT = struct.Struct("<IIiI")


class AttachIommufd(NamedTuple):
    """struct vfio_device_attach_iommufd_pt"""

    argsz: int
    flags: int
    pt_id: int

    FORMAT = struct.Struct("<III")


class IoasAlloc(NamedTuple):
    """struct iommu_ioas_alloc"""

    size: int
    flags: int = 0
    out_ioas_id: int = 0

    FORMAT = struct.Struct("<III")


class IoasRange(NamedTuple):
    """struct iommu_iova_range, and the same as struct vfio_iova_range: `last` is inclusive."""

    start: int
    last: int

    FORMAT = struct.Struct("<QQ")


class IoasRanges(NamedTuple):
    """struct iommu_ioas_iova_ranges; `allowed_iovas` is the address of as many `IoasRange`."""

    size: int
    ioas_id: int
    num_iovas: int
    reserved: int = 0
    allowed_iovas: int = 0
    out_iova_alignment: int = 0

    FORMAT = struct.Struct("<IIIIQQ")


class IoasMap(NamedTuple):
    """struct iommu_ioas_map"""

    size: int
    flags: int
    ioas_id: int
    reserved: int
    user_va: int
    length: int
    iova: int

    FORMAT = struct.Struct("<IIIIQQQ")


class IoasUnmap(NamedTuple):
    """struct iommu_ioas_unmap"""

    size: int
    ioas_id: int
    iova: int
    length: int

    FORMAT = struct.Struct("<IIQQ")


def control(fd: int, request: Vfio | Iommufd, argument: Any = 0, tail: bytes = b"") -> Any:
    """Makes a request; OSError if the kernel refuses.

    A structure is sent with the bytes of `tail` behind it: returns both as the kernel left them. A
    number or bytes are sent as they are: returns what the request does.
    """
    if isinstance(argument, int):
        return fcntl.ioctl(fd, request, argument)
    if isinstance(argument, bytes):
        # Of an argument that cannot be changed, `ioctl` returns the content.
        return fcntl.ioctl(fd, request, bytearray(argument))
    data = bytearray(pack(argument) + tail)
    fcntl.ioctl(fd, request, data)
    return data
