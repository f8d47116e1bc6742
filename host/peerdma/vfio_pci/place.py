# SPDX-License-Identifier: BSD-2-Clause
"""Where a board is that VFIO offers: its function in sysfs, its nodes, how to make it usable."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import BoardNotFound
from ..identity import VFIO

__all__ = ["DRIVER", "Place", "bind_command", "memlock_command", "own_command"]

#: The kernel's driver that offers a function to programs.
DRIVER = "vfio-pci"
#: Drivers beside which other functions of a group can still be used.
_HARMLESS = ("", DRIVER, "pci-stub", "pcieport")
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


class Place:
    """A PCI function.

    Parameters
    ----------
    address : str
        As `lspci -D` shows it, ``"0000:01:00.0"``; the domain 0000 can be left out.
    root : Path
        Where ``sys`` and ``dev`` are.

    Attributes
    ----------
    address : str
    group_node, container_node, iommu_node : Path
        The group's node; those of VFIO's containers and of iommufd.

    Raises
    ------
    ValueError
        If the address is none.
    """

    def __init__(self, address: str, root: Path = Path("/")):
        found = _ADDRESS.fullmatch(address.lower())
        if not found:
            raise ValueError(
                f"{VFIO} takes the address of a PCI function, such as {VFIO}0000:01:00.0 "
                f"(`lspci -D` lists them), not {address!r}"
            )
        self.address: str = f"{found[1] or '0000'}:{found[2]}"
        self._root = root
        self._folder = root / "sys/bus/pci/devices" / self.address
        self.group_node: Path = root / "dev/vfio" / self.group
        self.container_node: Path = root / "dev/vfio/vfio"
        self.iommu_node: Path = root / "dev/iommu"

    @property
    def driver(self) -> str:
        """The driver that the function is bound to; "" if none."""
        return _driver(self._folder)

    @property
    def group(self) -> str:
        """Number of its IOMMU group; "" if no IOMMU is in use."""
        link = self._folder / "iommu_group"
        return link.resolve().name if link.exists() else ""

    @property
    def blockers(self) -> dict[str, str]:
        """Other functions of its group whose drivers keep it from being used, by address."""
        folder = self._folder / "iommu_group/devices"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        found = {name: _driver(folder / name) for name in names if name != self.address}
        return {name: driver for name, driver in found.items() if driver not in _HARMLESS}

    @property
    def device_node(self) -> Path | None:
        """The function's own node, for iommufd; None if the kernel has none."""
        folder = self._folder / "vfio-dev"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        return self._root / "dev/vfio/devices" / names[0] if names else None

    @property
    def by_iommufd(self) -> bool:
        """Whether to open it by iommufd: the kernel has the nodes, and this user may open them."""
        node = self.device_node
        return node is not None and _may_open(node) and _may_open(self.iommu_node)

    @property
    def closed_nodes(self) -> list[Path]:
        """The nodes that would have to be opened, and that this user may not open."""
        nodes = [] if self.by_iommufd else [self.container_node, self.group_node]
        return [node for node in nodes if not _may_open(node)]

    @property
    def resets(self) -> bool:
        """Whether the kernel can reset the function."""
        methods = self._folder / "reset_method"  # since Linux 5.15
        if methods.exists():
            return bool(methods.read_text().strip())
        return (self._folder / "reset").exists()

    def require_bound(self) -> None:
        """BoardNotFound, with what to do, unless VFIO can offer the function."""
        if not self._folder.exists():
            raise BoardNotFound(
                f"there is no PCI function {self.address}. `peerdma list` names the boards, and "
                "`lspci -D` all functions; echo 1 | sudo tee /sys/bus/pci/rescan looks again"
            )
        if self.driver != DRIVER:
            state = f"is bound to {self.driver}" if self.driver else "has no driver"
            raise BoardNotFound(
                f"{self.address} {state}; VFIO needs it bound to {DRIVER}. "
                f"{bind_command(self.address, self.driver)}"
            )
        if not self.group:
            raise BoardNotFound(
                f"{self.address} is in no IOMMU group: VFIO needs an IOMMU. Switch it on in the "
                "firmware's setup (VT-d, AMD-Vi) and start the kernel with intel_iommu=on (Intel)"
            )

    def require_viable(self) -> None:
        """BoardNotFound, with what to do, if drivers have other functions of its group."""
        if blockers := self.blockers:
            others = ", ".join(f"{name} ({driver})" for name, driver in blockers.items())
            name, driver = next(iter(blockers.items()))
            raise BoardNotFound(
                f"the IOMMU does not separate {self.address} from other functions of its group "
                f"{self.group} that drivers have: {others}. Move the board to another slot, or "
                f"give up each of these. {bind_command(name, driver)}"
            )


def bind_command(address: str, driver: str) -> str:
    """What to type to bind a function to vfio-pci, and off the driver that it is bound to."""
    device = f"/sys/bus/pci/devices/{address}"
    unbind = f"echo {address} | sudo tee {device}/driver/unbind; " if driver else ""
    return (
        f"Run `sudo driverctl set-override {address} {DRIVER}`, or `sudo modprobe {DRIVER}; "
        f"echo {DRIVER} | sudo tee {device}/driver_override; {unbind}"
        f"echo {address} | sudo tee /sys/bus/pci/drivers_probe`"
    )


def own_command(node: Path) -> str:
    """What to type to be let open a node, now and after the next start."""
    return (
        f"Run `sudo chown $USER {node}`; for good, a udev rule in /etc/udev/rules.d: "
        'SUBSYSTEM=="vfio", GROUP="video", MODE="0660"'
    )


def memlock_command() -> str:
    """What to type to let this process, and others later, lock more memory."""
    return (
        f"Run `sudo prlimit --pid {os.getpid()} --memlock=unlimited` while it runs; for good, a "
        "line `USER - memlock unlimited` in /etc/security/limits.d/peerdma.conf, and log in again"
    )


def _may_open(node: Path) -> bool:
    return os.access(node, os.R_OK | os.W_OK)


def _driver(folder: Path) -> str:
    link = folder / "driver"
    return link.resolve().name if link.exists() else ""
