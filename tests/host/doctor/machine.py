# SPDX-License-Identifier: BSD-2-Clause
"""Trees of files like those in which a kernel describes a machine, for the doctor."""

from __future__ import annotations

import os
from pathlib import Path

from peerdma.doctor.system import System

KERNEL = "6.12.41-amd64"
BOARD = (0x10EE, 0x7021, 0x10EE, 0x5045)
RTX = (0x10DE, 0x26B1, 0x10DE, 0x16A1)
BRIDGE = (0x8086, 0x460D, 0x8086, 0x7270)
GT = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe"}
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"


def config_space(
    supported: int = 256, payload: int = 256, request: int = 512, acs: int | None = None
) -> bytes:
    """4 KiB with a PCI Express capability; `acs`: with that in the ACS control register."""
    data = bytearray(4096)
    data[0:4] = b"\xee\x10\x21\x70"
    data[0x34], data[0x40], data[0x41], data[0x60] = 0x40, 0x05, 0x60, 0x10
    codes = [size.bit_length() - 8 for size in (supported, payload, request)]
    data[0x64] = codes[0]
    data[0x68:0x6A] = (codes[1] << 5 | codes[2] << 12).to_bytes(2, "little")
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")
    if acs is not None:
        data[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
        data[0x146:0x148] = acs.to_bytes(2, "little")
    return bytes(data)


class Machine:
    """A tree that is built piece by piece below a folder."""

    def __init__(self, root: Path):
        self.root = root
        self.write("proc/sys/kernel/osrelease", KERNEL + "\n")

    @property
    def system(self) -> System:
        """What the doctor is given."""
        return System(self.root)

    def write(self, name: str, content: str | bytes) -> None:
        """Makes a file, and the folders that it is in."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def module(self, name: str) -> None:
        """Loads a kernel module."""
        (self.root / "sys/module" / name).mkdir(parents=True)

    def installed(self, *names: str, kernel: str = KERNEL) -> None:
        """Installs kernel modules."""
        lines = "".join(f"updates/dkms/{name}.ko.xz:\n" for name in names)
        self.write(f"lib/modules/{kernel}/modules.dep", lines)

    def function(
        self,
        place: str,
        identity: tuple[int, int, int, int],
        driver: str = "",
        *,
        device_class: int = 0x058000,
        link: tuple[int, int] = (2, 1),
        most: tuple[int, int] = (2, 1),
        bars: tuple[int, ...] = (16 << 10, 64 << 10),
        config: bytes | None = None,
    ) -> str:
        """A PCI function; `place` is ``pci0000:00/0000:00:01.0/...``. Returns its folder."""
        folder = f"sys/devices/{place}"
        address = place.rpartition("/")[2]
        names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
        for name, value in zip(names, identity, strict=True):
            self.write(f"{folder}/{name}", f"{value:#06x}\n")
        self.write(f"{folder}/class", f"{device_class:#08x}\n")
        self.speed(folder, link, most)
        starts = range(0xA000_0000, 0xB000_0000, 1 << 24)
        self.write(
            f"{folder}/resource",
            "".join(
                f"{start:#018x} {start + size - 1:#018x} 0x0\n" if size else "0x0 0x0 0x0\n"
                for start, size in zip(starts, bars, strict=False)
            ),
        )
        self.write(f"{folder}/config", config or config_space())
        if driver:
            self.bind(folder, driver)
        link_path = self.root / "sys/bus/pci/devices" / address
        link_path.parent.mkdir(parents=True, exist_ok=True)
        link_path.symlink_to(os.path.relpath(self.root / folder, link_path.parent))
        return folder

    def speed(self, folder: str, link: tuple[int, int], most: tuple[int, int]) -> None:
        """What a function's link runs at, and what it could."""
        for which, (generation, width) in (("current", link), ("max", most)):
            self.write(f"{folder}/{which}_link_speed", GT[generation] + "\n")
            self.write(f"{folder}/{which}_link_width", f"{width}\n")

    def bind(self, folder: str, driver: str) -> None:
        """Gives a function to a driver, or takes it away."""
        path = self.root / folder / "driver"
        path.unlink(missing_ok=True)
        if driver:
            target = self.root / "sys/bus/pci/drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            path.symlink_to(os.path.relpath(target, path.parent))

    def messages(self, folder: str, kind: str, count: int) -> None:
        """Interrupt messages of a function."""
        for number in range(40, 40 + count):
            self.write(f"{folder}/msi_irqs/{number}", kind + "\n")

    def node(self, mode: int = 0o666) -> None:
        """The device node; a file stands in for it."""
        self.write("dev/picoevb", "")
        (self.root / "dev/picoevb").chmod(mode)

    def nvidia(self, address: str, model: str, version: str = OPEN) -> None:
        """NVIDIA's driver, with a GPU."""
        self.write("proc/driver/nvidia/version", version + "\nGCC version:  gcc version 14\n")
        text = f"Model: \t\t NVIDIA {model}\nIRQ:   \t\t 42\nBus Location: \t {address}\n"
        self.write(f"proc/driver/nvidia/gpus/{address}/information", text)


class Pc(Machine):
    """A PC where all is well: board and GPU below one switch, everything installed and loaded."""

    switch = "pci0000:00/0000:00:01.0/0000:01:00.0"
    address, gpu_address = "0000:03:00.0", "0000:04:00.0"

    def __init__(self, root: Path):
        super().__init__(root)
        bridge = {"device_class": 0x060400, "link": (4, 16), "most": (4, 16)}
        place = ""
        for part in self.switch.split("/"):
            place = f"{place}/{part}".lstrip("/")
            if not part.startswith("pci"):
                self.function(place, BRIDGE, "pcieport", **bridge)
        self.port = self.function(
            f"{self.switch}/0000:02:00.0", BRIDGE, "pcieport", config=config_space(acs=0), **bridge
        )
        self.gpu_port = self.function(f"{self.switch}/0000:02:01.0", BRIDGE, "pcieport", **bridge)
        self.board = self.function(f"{self.switch}/0000:02:00.0/{self.address}", BOARD, "peerdma")
        self.messages(self.board, "msix", 2)
        self.module("peerdma")
        self.installed("peerdma", "peerdma_nvp2p")
        self.node()
        self.gpu = self.add_gpu(f"{self.switch}/0000:02:01.0/{self.gpu_address}")
        self.nvidia(self.gpu_address, "RTX 6000 Ada Generation")
        self.module("nvidia")
        self.module("peerdma_nvp2p")

    def add_gpu(self, place: str, bar: int = 64 << 30) -> str:
        """Another GPU; returns its folder."""
        return self.function(
            place,
            RTX,
            "nvidia",
            device_class=0x030000,
            link=(4, 16),
            most=(4, 16),
            bars=(16 << 20, bar, 0, 32 << 20),
        )


class Jetson(Machine):
    """A Jetson with a board in its M.2 slot."""

    def __init__(self, root: Path, model: str, tegra: str, release: str):
        super().__init__(root)
        self.write("proc/device-tree/model", f"NVIDIA {model}\0")
        self.write("proc/device-tree/compatible", f"nvidia,p3737\0nvidia,{tegra}\0".encode())
        self.write("etc/nv_tegra_release", release)
        place = "platform/bus@0/141a0000.pcie/pci0005:00/0005:00:00.0"
        self.function(place, (0x10DE, 0x229A, 0, 0), "pcieport", link=(2, 1), most=(4, 8))
        self.board = self.function(f"{place}/0005:01:00.0", BOARD, "peerdma")
        self.messages(self.board, "msi", 1)
        self.write(f"{self.board}/iommu_group/type", "DMA\n")
        self.module("peerdma")
        self.node()
