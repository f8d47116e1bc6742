# SPDX-License-Identifier: BSD-2-Clause
"""PCI functions as sysfs shows them: identity, link, BARs, configuration space, place on the bus.

Registers as in the PCI Express Base Specification, chapter 7. Only root can read configuration
space beyond its first 64 bytes.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

from .system import System

__all__ = ["Bar", "PciDevice", "Speed", "common", "functions"]

_EXPRESS, _ACS = 0x10, 0x000D
_CAPABILITIES, _EXTENDED = 0x34, 0x100
_DEVICE_CAPS, _DEVICE_CONTROL = 4, 8
_ACS_CONTROL = 6
#: ACS: redirect peer-to-peer requests, and completions, to the root complex.
_REDIRECT = 1 << 2 | 1 << 3
_DISPLAY = 0x03
_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


class Bar(NamedTuple):
    """A base address register: bus address, and size in bytes; 0 if there is none."""

    start: int
    size: int


class Speed(NamedTuple):
    """A link's PCIe generation and lanes."""

    generation: int
    width: int

    def __str__(self) -> str:
        return f"Gen{self.generation} x{self.width}"

    def limited(self, other: Speed | None) -> Speed:
        """The speed of a link between this and another end."""
        return self if other is None else Speed(*map(min, self, other))


class PciDevice:
    """A PCI function.

    Attributes
    ----------
    address : str
        ``"0000:01:00.0"``
    above : tuple of str
        The host bridge, ``"pci0000:00"``, and the bridges from there down to the function.
    """

    def __init__(self, system: System, address: str):
        self._system = system
        self._folder = f"sys/bus/pci/devices/{address}"
        self.address = address
        target = system.target(self._folder) or Path(self._folder)
        parts = target.parts
        starts = [n for n, part in enumerate(parts) if re.match(r"pci[0-9a-f]{4,}:", part)]
        self.above: tuple[str, ...] = tuple(parts[starts[0] : -1]) if starts else ()

    def __repr__(self) -> str:
        return f"<PciDevice {self.address}>"

    def number(self, name: str) -> int:
        """A number in one of its files; 0 if there is none."""
        return self._system.number(f"{self._folder}/{name}") or 0

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Vendor, device, subsystem vendor, subsystem."""
        vendor, device = self.number("vendor"), self.number("device")
        return vendor, device, self.number("subsystem_vendor"), self.number("subsystem_device")

    @property
    def is_display(self) -> bool:
        """Whether it is a GPU, by its class."""
        return self.number("class") >> 16 == _DISPLAY

    @property
    def driver(self) -> str:
        """The driver that it is bound to; "" if none."""
        target = self._system.target(f"{self._folder}/driver")
        return target.name if target else ""

    @property
    def parent(self) -> PciDevice | None:
        """The bridge above it."""
        return self.beside(self.above[-1]) if len(self.above) > 1 else None

    def beside(self, address: str) -> PciDevice:
        """Another function of the same machine."""
        return PciDevice(self._system, address)

    @property
    def bars(self) -> list[Bar]:
        """BARs 0 to 5; a 64-bit BAR takes two, of which the second has size 0."""
        lines = (self._system.text(f"{self._folder}/resource") or "").splitlines()[:6]
        bounds = (tuple(int(word, 16) for word in line.split()[:2]) for line in lines)
        return [Bar(start, end - start + 1 if end else 0) for start, end in bounds]

    def speed(self, which: str) -> Speed | None:
        """The link's "current" speed, or the "max" of the function; None if it has none."""
        found = self._system.text(f"{self._folder}/{which}_link_speed") or ""
        generation = _GENERATIONS.get(found.split(" ")[0])
        width = self.number(f"{which}_link_width")
        return Speed(generation, width) if generation and width else None

    @property
    def iommu(self) -> str:
        """How an IOMMU treats it, ``"DMA"`` or ``"identity"``; "" if there is none."""
        return self._system.text(f"{self._folder}/iommu_group/type") or ""

    @property
    def messages(self) -> list[str]:
        """The kind of each interrupt message in use, ``"msi"`` or ``"msix"``."""
        folder = f"{self._folder}/msi_irqs"
        return [self._system.text(f"{folder}/{n}") or "" for n in self._system.names(folder)]

    def errors(self, kind: str) -> int:
        """AER's count of errors of a kind: "correctable", "nonfatal", "fatal"."""
        text = self._system.text(f"{self._folder}/aer_dev_{kind}") or ""
        return sum(map(int, re.findall(r"TOTAL_ERR_\w+ (\d+)", text)))

    # Configuration space ---------------------------------------------------------------------

    @property
    def answers(self) -> bool:
        """Whether it still answers; reads of a function that does not return all ones."""
        return self._config[:4] != b"\xff" * 4

    @property
    def packet_sizes(self) -> tuple[int, int, int] | None:
        """Max payload supported and in use, and max read request, bytes; None if not readable."""
        at = self._capability(_EXPRESS)
        if not at or len(self._config) < at + 12:
            return None
        control = self._word(at + _DEVICE_CONTROL)
        supported = self._word(at + _DEVICE_CAPS) & 7
        return 128 << supported, 128 << (control >> 5 & 7), 128 << (control >> 12 & 7)

    @property
    def redirects(self) -> bool | None:
        """Whether ACS redirects requests from below to the root complex; None if not readable."""
        if len(self._config) <= _EXTENDED:
            return None
        at = self._extended(_ACS)
        return bool(at and self._word(at + _ACS_CONTROL) & _REDIRECT)

    @functools.cached_property
    def _config(self) -> bytes:
        return self._system.data(f"{self._folder}/config") or b""

    def _word(self, at: int) -> int:
        return int.from_bytes(self._config[at : at + 2], "little")

    def _capability(self, kind: int) -> int:
        """Offset of a capability; 0 if there is none, or it cannot be read."""
        config, seen = self._config, set()
        at = config[_CAPABILITIES] & 0xFC if len(config) > _CAPABILITIES else 0
        while at and at not in seen and at + 1 < len(config):
            if config[at] == kind:
                return at
            seen.add(at)
            at = config[at + 1] & 0xFC
        return 0

    def _extended(self, kind: int) -> int:
        config, seen, at = self._config, set(), _EXTENDED
        while at and at not in seen and at + 4 <= len(config):
            header = int.from_bytes(config[at : at + 4], "little")
            if header & 0xFFFF == kind:
                return at
            seen.add(at)
            at = header >> 20
        return 0


def functions(system: System) -> list[PciDevice]:
    """All PCI functions of a machine."""
    return [PciDevice(system, name) for name in system.names("sys/bus/pci/devices")]


def common(one: PciDevice, other: PciDevice) -> tuple[str, ...]:
    """The host bridge and bridges that two functions are both below."""
    shared = []
    for mine, theirs in zip(one.above, other.above, strict=False):
        if mine != theirs:
            break
        shared.append(mine)
    return tuple(shared)
