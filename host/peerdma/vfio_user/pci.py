# SPDX-License-Identifier: BSD-2-Clause
"""A PCI function on a vfio-user connection, set up as firmware and operating system would."""

from __future__ import annotations

from typing import ClassVar

from ..vfio.function import Capability, PciFunction
from .client import VfioUserClient
from .wire import Irq

__all__ = ["SocketFunction"]

# The platform's address map; host memory and apertures lie elsewhere.
_FIRST_BAR_ADDRESS = 0x4000_0000
_MSI_ADDRESS = 0xFEE0_0000

_BAR0 = 0x10
_BARS = 6
_MSI_CONTROL, _MSI_ADDRESS_LO, _MSI_ENABLE, _MSI_64BIT = 2, 4, 1 << 0, 1 << 7
_EXPRESS_DEVICE_CAPS, _EXPRESS_DEVICE_CONTROL = 4, 8
_EXTENDED_TAG = 1 << 8


class SocketFunction(PciFunction):
    """A function with its BARs placed, too.

    Parameters
    ----------
    device : VfioUserClient
        The connection; closed with the function.
    interrupts : "auto", "msi" or "intx"
        "auto" takes MSI if the function has it.
    max_payload, max_read_request : int
        Bytes, 128 to 4096; the max payload is reduced to what the function supports.

    Raises
    ------
    UnsupportedError, ProtocolError
        As `PciFunction`.
    """

    KINDS: ClassVar = {"auto": (Irq.MSI, Irq.INTX), "msi": (Irq.MSI,), "intx": (Irq.INTX,)}

    def __init__(
        self, device: VfioUserClient, *, interrupts: str, max_payload: int, max_read_request: int
    ):
        self._client = device
        self._sizes = max_payload, max_read_request
        super().__init__(device, interrupts=interrupts)

    def _set_up(self) -> None:
        self._place_bars()
        self._set_packet_sizes(*self._sizes)
        if self.interrupt is Irq.MSI:
            self._enable_msi()

    def _place_bars(self) -> None:
        address = _FIRST_BAR_ADDRESS
        bar = 0
        while bar < _BARS:
            size = self._client.region_info(bar).size
            wide = self._config(_BAR0 + 4 * bar, 4) & 0x7 == 0x4
            if size:
                address = -(-address // size) * size
                self._config_write(_BAR0 + 4 * bar, address, 4)
                if wide:
                    self._config_write(_BAR0 + 4 * bar + 4, 0, 4)
                address += size
            bar += 2 if wide else 1

    def _set_packet_sizes(self, max_payload: int, max_read_request: int) -> None:
        express = self._capabilities.get(Capability.EXPRESS)
        if not express:
            return
        supported = self._config(express + _EXPRESS_DEVICE_CAPS, 4) & 0x7
        payload = min(_size_code("max_payload", max_payload), supported)
        request = _size_code("max_read_request", max_read_request)
        at = express + _EXPRESS_DEVICE_CONTROL
        kept = self._config(at) & ~(0x7 << 5 | 0x7 << 12)
        self._config_write(at, kept | _EXTENDED_TAG | payload << 5 | request << 12)

    def _enable_msi(self) -> None:
        msi = self._capabilities[Capability.MSI]
        control = self._config(msi + _MSI_CONTROL)
        self._config_write(msi + _MSI_ADDRESS_LO, _MSI_ADDRESS, 4)
        data = msi + _MSI_ADDRESS_LO + 4
        if control & _MSI_64BIT:
            self._config_write(data, 0, 4)
            data += 4
        self._config_write(data, 0)
        self._config_write(msi + _MSI_CONTROL, control & ~(0x7 << 4) | _MSI_ENABLE)


def _size_code(name: str, size: int) -> int:
    """The PCIe encoding of a packet size: 128 << code bytes."""
    code = size.bit_length() - 8
    if not 0 <= code <= 5 or size != 128 << code:
        raise ValueError(f"{name} is 128, 256, 512, 1024, 2048 or 4096 bytes, not {size}")
    return code
