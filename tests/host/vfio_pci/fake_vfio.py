# SPDX-License-Identifier: BSD-2-Clause
"""A stand-in for the kernel's VFIO and iommufd: a tree of sysfs and nodes, and their requests.

The device is a file in memory, a region behind the other, with registers that do nothing.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from peerdma.regs import BAR_DMA, CHANNEL, EXTENSION, EXTENSION_MAGIC, identifier
from peerdma.vfio.structures import (
    CONFIG_REGION,
    Area,
    DeviceFlag,
    DeviceInfo,
    DmaMap,
    DmaUnmap,
    Irq,
    IrqInfo,
    IrqSet,
    RegionFlag,
    RegionInfo,
    SparseMmap,
    pack,
    unpack,
)
from peerdma.vfio_pci.ioctls import (
    TYPE1V2,
    AttachIommufd,
    BindIommufd,
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
)

ADDRESS = "0000:01:00.0"
GROUP = "7"
REGION = 1 << 20
SIZES = {0: 16 << 10, 1: 64 << 10}
COMMAND, MASTER = 4, 1 << 2
#: Bus addresses that an IOMMU of a PC takes: all but those of interrupts.
RANGES = (IoasRange(0, 0xFEDF_FFFF), IoasRange(0xFEF0_0000, (1 << 48) - 1))


class FakeVfio:
    """Acts like `fcntl.ioctl` on the nodes of one board.

    Attributes
    ----------
    calls : list of str
        Requests by name, in order.
    failures : dict of str to int
        The errno that requests of a name fail with.
    mapped : dict of int to (int, int, int)
        By bus address: place, size, and 1 for read with 2 for write.
    eventfds : dict of Irq to int
    ranges : sequence of IoasRange
        None: the kernel tells none.
    resets : bool
        Whether the function can be reset.
    viable : bool
    sparse : int
        Bytes at the start of BAR 1 that can be mapped, if not 0.
    """

    def __init__(self, root: Path):
        self.root = root
        self.calls: list[str] = []
        self.failures: dict[str, int] = {}
        self.mapped: dict[int, tuple[int, int, int]] = {}
        self.eventfds: dict[Irq, int] = {}
        self.ranges: tuple[IoasRange, ...] | None = RANGES
        self.resets = self.viable = True
        self.sparse = 0
        self.folder = root / "sys/bus/pci/devices" / ADDRESS
        self.folder.mkdir(parents=True)
        self.file = os.memfd_create("device")
        os.ftruncate(self.file, (CONFIG_REGION + 1) * REGION)
        self.config(0, b"\xee\x10\x21\x70\2\0")
        self.config(0x2C, b"\xee\x10\x45\x50")
        self.config(0x34, b"\x40")
        self.config(0x40, b"\x11\0\x1f\0")
        self.register(CHANNEL.base, identifier(0))
        self.register(EXTENSION.address("magic"), EXTENSION_MAGIC)
        self.bind(ADDRESS, "vfio-pci")
        group = root / "sys/kernel/iommu_groups" / GROUP
        (group / "devices").mkdir(parents=True)
        (self.folder / "iommu_group").symlink_to(group)
        (self.folder / "reset_method").write_text("flr bus\n")
        self.node("dev/vfio/vfio")
        self.node(f"dev/vfio/{GROUP}")

    # The machine -----------------------------------------------------------------------------

    def node(self, name: str) -> None:
        """A device node; a file stands in for it."""
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).touch()

    def iommufd(self) -> None:
        """Makes this a kernel that has iommufd."""
        (self.folder / "vfio-dev/vfio3").mkdir(parents=True)
        self.node("dev/vfio/devices/vfio3")
        self.node("dev/iommu")

    def bind(self, address: str, driver: str) -> None:
        """Gives a function to a driver, "" for none."""
        folder = self.root / "sys/bus/pci/devices" / address
        (folder / "driver").unlink(missing_ok=True)
        folder.mkdir(exist_ok=True)
        if driver:
            target = self.root / "sys/bus/pci/drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(target)

    def neighbour(self, address: str, driver: str) -> None:
        """Puts another function into the board's group."""
        self.bind(address, driver)
        folder = self.folder / "iommu_group/devices"
        (folder / address).symlink_to(self.root / "sys/bus/pci/devices" / address)

    def config(self, offset: int, data: bytes) -> None:
        """Writes configuration space."""
        os.pwrite(self.file, data, CONFIG_REGION * REGION + offset)

    def register(self, offset: int, value: int | None = None) -> int:
        """Writes a register of the DMA BAR unless `value` is None; returns it."""
        at = BAR_DMA[0] * REGION + offset
        if value is not None:
            os.pwrite(self.file, value.to_bytes(4, "little"), at)
        return int.from_bytes(os.pread(self.file, 4, at), "little")

    @property
    def master(self) -> bool:
        """Whether the function may use the bus."""
        return bool(os.pread(self.file, 1, CONFIG_REGION * REGION + COMMAND)[0] & MASTER)

    # Requests --------------------------------------------------------------------------------

    def ioctl(self, fd: int, code: int, argument=0):
        """As `fcntl.ioctl`."""
        assert not isinstance(argument, bytes)  # which would be returned
        request = Vfio(code) if code in set(Vfio) else Iommufd(code)
        self.calls.append(request.name)
        if request.name in self.failures:
            number = self.failures[request.name]
            raise OSError(number, os.strerror(number))
        method = getattr(self, f"_{request.name.lower()}", None)
        if method is None:
            return 0
        answer = method(argument)
        if isinstance(answer, bytes):
            argument[: len(answer)] = answer
            return 0
        return answer or 0

    def _check_extension(self, argument):
        return argument == TYPE1V2

    def _group_get_status(self, argument):
        return pack(GroupStatus(8, GroupFlag.VIABLE if self.viable else 0))

    def _group_get_device_fd(self, argument):
        assert argument == ADDRESS.encode() + b"\0"
        return os.open(f"/proc/self/fd/{self.file}", os.O_RDWR)

    def _device_bind_iommufd(self, argument):
        fd = unpack(BindIommufd, argument).iommufd
        assert os.readlink(f"/proc/self/fd/{fd}").endswith("/dev/iommu")

    def _device_attach_iommufd_pt(self, argument):
        assert unpack(AttachIommufd, argument).pt_id == 5

    def _ioas_alloc(self, argument):
        return pack(unpack(IoasAlloc, argument)._replace(out_ioas_id=5))

    def _device_get_info(self, argument):
        flags = DeviceFlag.PCI | (DeviceFlag.RESET if self.resets else 0)
        return pack(DeviceInfo(DeviceInfo.FORMAT.size, flags, 9, 5))

    def _device_get_region_info(self, argument):
        query = unpack(RegionInfo, argument)
        index, size = query.region, SIZES.get(query.region, 4096 if query.region == 7 else 0)
        flags = RegionFlag.READ | RegionFlag.WRITE | (RegionFlag.MMAP if index in SIZES else 0)
        if not (self.sparse and index == BAR_DMA[0]):
            return pack(query._replace(flags=flags, size=size, offset=index * REGION))
        flags |= RegionFlag.CAPABILITIES
        at = RegionInfo.FORMAT.size
        head = pack(query._replace(flags=flags, cap_offset=at, size=size, offset=index * REGION))
        tail = pack(SparseMmap(1, 1, 0, 1)) + pack(Area(0, self.sparse))
        return (head + tail)[: len(argument)]

    def _device_get_irq_info(self, argument):
        query = unpack(IrqInfo, argument)
        return pack(query._replace(interrupts=0 if query.irq == Irq.MSI else 1))

    def _device_set_irqs(self, argument):
        request = unpack(IrqSet, argument)
        assert request.argsz == len(argument)
        tail = bytes(argument[IrqSet.FORMAT.size :])
        if tail:
            self.eventfds[Irq(request.irq)] = int.from_bytes(tail, "little")
        elif not request.interrupts:
            del self.eventfds[Irq(request.irq)]

    def _device_reset(self, argument):
        assert not self.master

    def _iommu_get_info(self, argument):
        if self.ranges is None:
            return pack(IommuInfo(len(argument)))
        size, ranges = IommuInfo.FORMAT.size, self.ranges
        head = pack(IommuInfo(len(argument), IommuFlag.CAPS, 4096, size))
        # Another capability comes first.
        other = b"\x02\0\x01\0" + (size + 8).to_bytes(4, "little")
        capability = pack(RangesCapability(RangesCapability.ID, 1, 0, len(ranges)))
        return head + other + capability + b"".join(map(pack, ranges))

    def _ioas_iova_ranges(self, argument):
        query, ranges = unpack(IoasRanges, argument), self.ranges or ()
        data = b"".join(map(pack, ranges))
        ctypes.memmove(query.allowed_iovas, data, len(data))
        return pack(query._replace(num_iovas=len(ranges)))

    def _map(self, start: int, place: int, size: int, access: int) -> None:
        assert not place % 4096 and not size % 4096 and not start % 4096
        assert all(start + size <= s or s + z <= start for s, (_, z, _) in self.mapped.items())
        self.mapped[start] = place, size, access

    def _iommu_map_dma(self, argument):
        query = unpack(DmaMap, argument)
        self._map(query.address, query.place, query.size, query.flags)

    def _iommu_unmap_dma(self, argument):
        query = unpack(DmaUnmap, argument)
        assert self.mapped.pop(query.address)[1] == query.size

    def _ioas_map(self, argument):
        query = unpack(IoasMap, argument)
        assert query.flags & IoasMapFlag.FIXED_IOVA
        access = bool(query.flags & IoasMapFlag.READABLE)
        access |= 2 * bool(query.flags & IoasMapFlag.WRITEABLE)
        self._map(query.iova, query.user_va, query.length, access)

    def _ioas_unmap(self, argument):
        query = unpack(IoasUnmap, argument)
        assert self.mapped.pop(query.iova)[1] == query.length
