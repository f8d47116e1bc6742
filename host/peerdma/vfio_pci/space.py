# SPDX-License-Identifier: BSD-2-Clause
"""The address space that a board's DMA sees: opens its nodes, and maps memory in it.

By iommufd where the kernel has a node for each function, else by a container of the group (type 1).
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import errno
import os
import resource
from bisect import bisect_left, insort
from collections.abc import Sequence
from pathlib import Path

from ..errors import BoardNotFound, PinError
from ..vfio.structures import DmaMap, DmaUnmap, MapFlag, unpack
from .ioctls import (
    TYPE1V2,
    AttachIommufd,
    BindIommufd,
    CapabilityHeader,
    GroupFlag,
    GroupStatus,
    IoasAlloc,
    IoasMap,
    IoasMapFlag,
    IoasRange,
    IoasRanges,
    IoasUnmap,
    Iommufd,
    IommuFlag,
    IommuInfo,
    RangesCapability,
    Vfio,
    control,
)
from .place import Place, memlock_command, own_command

__all__ = ["AddressSpace", "Addresses", "attach"]

#: Bytes that capabilities of an address space may take.
_ROOM = 4096
#: Bus addresses that are chosen here begin here, and keep a distance, so that an overrun faults.
_LOWEST, _DISTANCE = 0x1000_0000, 0x1_0000
_FAULT = (
    "it is not plain memory of this process. Use a numpy array; memory that a GPU's driver has "
    "allocated, and shared mappings of files on disks, cannot be mapped"
)


class Addresses:
    """Bus addresses that are allowed, and those in use."""

    def __init__(self, ranges: Sequence[IoasRange]):
        self._ranges = sorted(ranges)
        #: (start, end) of those in use
        self._used: list[tuple[int, int]] = []

    def take(self, size: int, preferred: int) -> int:
        """The start of `size` free addresses, `preferred` if they are; PinError without any."""
        start = preferred if self._free(preferred, size) else self._first(size)
        insort(self._used, (start, start + size))
        return start

    def release(self, start: int) -> None:
        """Undoes `take`."""
        del self._used[bisect_left(self._used, (start, 0))]

    def _free(self, start: int, size: int) -> bool:
        index = bisect_left(self._used, (start, 0))
        below = index == 0 or self._used[index - 1][1] <= start
        above = index == len(self._used) or start + size <= self._used[index][0]
        inside = any(each.start <= start <= each.last - size + 1 for each in self._ranges)
        return below and above and inside

    def _first(self, size: int) -> int:
        for each in self._ranges:
            start = max(each.start, _LOWEST)
            for low, high in self._used:
                if start + size + _DISTANCE > low and high + _DISTANCE > start:
                    start = high + _DISTANCE
            if start + size <= each.last + 1:
                return start
        raise PinError(
            f"the IOMMU has no {size} bus addresses left that are free; unpin memory that is not "
            "in use",
            errno=errno.ENOSPC,
        )


class AddressSpace(abc.ABC):
    """Memory that the board reaches.

    Parameters
    ----------
    device : int
        The function's file descriptor.
    ranges : sequence of IoasRange
        Bus addresses that the IOMMU takes; reserved ones are not among them.

    Attributes
    ----------
    device : int
    """

    def __init__(self, device: int, ranges: Sequence[IoasRange]):
        self.device = device
        self._addresses = Addresses(ranges)
        self._mapped: dict[int, int] = {}

    def map(self, place: int, size: int, flags: MapFlag, preferred: int) -> int:
        """Maps memory of this process, whole pages from `place` on; returns the bus address.

        That is `preferred` if it can be. PinError if the memory cannot be mapped.
        """
        start = self._addresses.take(size, preferred)
        try:
            self._map(place, start, size, flags)
        except OSError as error:
            self._addresses.release(start)
            raise _refused(error, size) from None
        self._mapped[start] = size
        return start

    def unmap(self, start: int) -> None:
        """Undoes `map`; once it returns the board does not reach the memory."""
        size = self._mapped.pop(start, None)
        if size is not None:  # it may be called again after an interrupt
            self._unmap(start, size)
            self._addresses.release(start)

    def unmap_all(self) -> None:
        """Undoes every `map`."""
        for start in list(self._mapped):
            with contextlib.suppress(OSError):  # closing the descriptors unmaps the rest
                self.unmap(start)

    @abc.abstractmethod
    def _map(self, place: int, start: int, size: int, flags: MapFlag) -> None: ...

    @abc.abstractmethod
    def _unmap(self, start: int, size: int) -> None: ...


class _Container(AddressSpace):
    """VFIO's type 1."""

    def __init__(self, place: Place, undo: contextlib.ExitStack):
        self._fd = _open(place.container_node, undo)
        if control(self._fd, Vfio.GET_API_VERSION) != 0 or not control(
            self._fd, Vfio.CHECK_EXTENSION, TYPE1V2
        ):
            raise BoardNotFound(
                f"{place.container_node} has no IOMMU of type 1. Run `sudo modprobe "
                "vfio_iommu_type1`"
            )
        group = _open(place.group_node, undo)
        status = unpack(GroupStatus, control(group, Vfio.GROUP_GET_STATUS, GroupStatus(8)))
        if not status.flags & GroupFlag.VIABLE:
            place.require_viable()
            raise OSError(errno.EPERM, f"its group {place.group} is not viable")
        control(group, Vfio.GROUP_SET_CONTAINER, self._fd.to_bytes(4, "little"))
        try:
            control(self._fd, Vfio.SET_IOMMU, TYPE1V2)
        except PermissionError as error:
            raise BoardNotFound(
                f"VFIO refuses {place.address}: the machine does not remap interrupts, which the "
                "firmware's setup may offer. To do without: `echo 1 | sudo tee "
                "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts`",
                errno=error.errno,
            ) from None
        device = control(group, Vfio.GROUP_GET_DEVICE_FD, place.address.encode() + b"\0")
        undo.callback(os.close, device)
        super().__init__(device, self._ranges())

    def _ranges(self) -> list[IoasRange]:
        query = IommuInfo(IommuInfo.FORMAT.size + _ROOM)
        answer = control(self._fd, Vfio.IOMMU_GET_INFO, query, bytes(_ROOM))
        info = unpack(IommuInfo, answer)
        at = info.cap_offset if info.flags & IommuFlag.CAPS else 0
        while at:
            header = unpack(CapabilityHeader, answer, at)
            if header.id == RangesCapability.ID:
                count = unpack(RangesCapability, answer, at).nr_iovas
                first, step = at + RangesCapability.FORMAT.size, IoasRange.FORMAT.size
                return [unpack(IoasRange, answer, first + n * step) for n in range(count)]
            at = header.next if header.next > at else 0
        # Before Linux 5.4: what every IOMMU has, without the addresses of interrupts.
        return [IoasRange(_LOWEST, 0xFEDF_FFFF), IoasRange(1 << 32, (1 << 39) - 1)]

    def _map(self, place: int, start: int, size: int, flags: MapFlag) -> None:
        argument = DmaMap(DmaMap.FORMAT.size, flags, place, start, size)
        control(self._fd, Vfio.IOMMU_MAP_DMA, argument)

    def _unmap(self, start: int, size: int) -> None:
        control(self._fd, Vfio.IOMMU_UNMAP_DMA, DmaUnmap(DmaUnmap.FORMAT.size, 0, start, size))


class _Iommufd(AddressSpace):
    """An address space of /dev/iommu."""

    def __init__(self, place: Place, undo: contextlib.ExitStack):
        node = place.device_node
        assert node is not None, "by_iommufd says that there is one"
        self._fd = _open(place.iommu_node, undo)
        device = _open(node, undo)
        try:
            bind = BindIommufd(BindIommufd.FORMAT.size, 0, self._fd)
            control(device, Vfio.DEVICE_BIND_IOMMUFD, bind)
        except OSError as error:
            place.require_viable()
            if error.errno == errno.EBUSY:
                raise _in_use(node) from None
            raise
        alloc = IoasAlloc(IoasAlloc.FORMAT.size)
        self._id = unpack(IoasAlloc, control(self._fd, Iommufd.IOAS_ALLOC, alloc)).out_ioas_id
        attach = AttachIommufd(AttachIommufd.FORMAT.size, 0, self._id)
        control(device, Vfio.DEVICE_ATTACH_IOMMUFD_PT, attach)
        super().__init__(device, self._ranges())

    def _ranges(self) -> list[IoasRange]:
        room = ctypes.create_string_buffer(_ROOM)
        query = IoasRanges(
            IoasRanges.FORMAT.size,
            self._id,
            _ROOM // IoasRange.FORMAT.size,
            allowed_iovas=ctypes.addressof(room),
        )
        answer = control(self._fd, Iommufd.IOAS_IOVA_RANGES, query)
        count = unpack(IoasRanges, answer).num_iovas
        return [unpack(IoasRange, room.raw, n * IoasRange.FORMAT.size) for n in range(count)]

    def _map(self, place: int, start: int, size: int, flags: MapFlag) -> None:
        kinds = IoasMapFlag.FIXED_IOVA
        kinds |= IoasMapFlag.READABLE if flags & MapFlag.READ else IoasMapFlag(0)
        kinds |= IoasMapFlag.WRITEABLE if flags & MapFlag.WRITE else IoasMapFlag(0)
        argument = IoasMap(IoasMap.FORMAT.size, kinds, self._id, 0, place, size, start)
        control(self._fd, Iommufd.IOAS_MAP, argument)

    def _unmap(self, start: int, size: int) -> None:
        argument = IoasUnmap(IoasUnmap.FORMAT.size, self._id, start, size)
        control(self._fd, Iommufd.IOAS_UNMAP, argument)


def attach(place: Place, undo: contextlib.ExitStack) -> AddressSpace:
    """Opens a function and gives it an address space; `undo` gets what closes both.

    By iommufd if the kernel has a node for the function and this user may open it, else by the
    group's node.

    Raises
    ------
    BoardNotFound
        If the function cannot be opened, with the command to run.
    OSError
        If the kernel refuses for a reason that only it knows.
    """
    place.require_bound()
    return _Iommufd(place, undo) if place.by_iommufd else _Container(place, undo)


def _open(node: Path, undo: contextlib.ExitStack) -> int:
    try:
        fd = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _in_use(node) from None
        step = "Run `sudo modprobe vfio-pci`"
        if error.errno in (errno.EACCES, errno.EPERM):
            step = own_command(node)
        raise BoardNotFound(
            f"cannot open {node}: {error.strerror}. {step}", errno=error.errno
        ) from None
    undo.callback(os.close, fd)
    return fd


def _in_use(node: Path) -> BoardNotFound:
    return BoardNotFound(
        f"another program uses the board: {node} is open. `sudo fuser -v {node}` names it",
        errno=errno.EBUSY,
    )


def _refused(error: OSError, size: int) -> PinError:
    words, number = os.strerror(error.errno or errno.EIO), error.errno
    if number == errno.ENOMEM:
        limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        text = "no limit" if limit == resource.RLIM_INFINITY else f"{limit} bytes"
        words = (
            f"too much memory would be locked; the limit (ulimit -l) is {text}, for all that this "
            f"process has pinned. {memlock_command()}"
        )
    elif number == errno.EFAULT:
        words = _FAULT
    elif number == errno.ENOSPC:
        words = "too many pieces of memory are pinned. Unpin some, or pin fewer, larger ones"
    return PinError(f"cannot map {size} bytes for the board: {words}", errno=number)
