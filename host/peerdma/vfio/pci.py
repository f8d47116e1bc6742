# SPDX-License-Identifier: BSD-2-Clause
"""A PCI function on a vfio-user connection, set up as firmware and operating system would.

Configuration space as in the PCI Express Base Specification, chapter 7: header, MSI capability,
PCI Express capability.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable

from ..board.waiter import Waiter
from ..errors import ProtocolError, UnsupportedError
from .client import VfioUserClient
from .wire import CONFIG_REGION, Irq

__all__ = ["PciFunction"]

# The platform's address map; host memory and apertures lie elsewhere.
_FIRST_BAR_ADDRESS = 0x4000_0000
_MSI_ADDRESS = 0xFEE0_0000

_VENDOR, _DEVICE, _COMMAND = 0x00, 0x02, 0x04
_BAR0, _SUBSYSTEM_VENDOR, _SUBSYSTEM, _CAPABILITIES, _PIN = 0x10, 0x2C, 0x2E, 0x34, 0x3D
_BARS = 6


class _Command(enum.IntFlag):
    MEMORY = 1 << 1
    BUS_MASTER = 1 << 2
    INTX_DISABLE = 1 << 10


class _Capability(enum.IntEnum):
    MSI = 0x05
    EXPRESS = 0x10


_MSI_CONTROL, _MSI_ADDRESS_LO, _MSI_ENABLE, _MSI_64BIT = 2, 4, 1 << 0, 1 << 7
_EXPRESS_DEVICE_CAPS, _EXPRESS_DEVICE_CONTROL = 4, 8
_EXTENDED_TAG = 1 << 8


class PciFunction:
    """A function with its BARs placed, bus mastering on and one interrupt connected.

    Parameters
    ----------
    client : VfioUserClient
        The connection; closed with the function.
    interrupts : "auto", "msi" or "intx"
        "auto" takes MSI if the function has it.
    max_payload, max_read_request : int
        Bytes, 128 to 4096; the max payload is reduced to what the function supports.

    Attributes
    ----------
    wait, wake : callable
        Those of a `Waiter` for messages of the device and interrupts.

    Raises
    ------
    UnsupportedError
        If the function does not have the requested kind of interrupt.
    ProtocolError
        If the device's configuration space is invalid.
    """

    def __init__(
        self, client: VfioUserClient, *, interrupts: str, max_payload: int, max_read_request: int
    ):
        self._client = client
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waiter = Waiter(client.fileno(), self._eventfd)
        self.wait: Callable[[float | None], None] = self._waiter.wait
        self.wake: Callable[[], None] = self._waiter.wake
        self.closed: bool = False
        try:
            self._set_up(interrupts, max_payload, max_read_request)
        except BaseException:
            self._release()
            raise

    def _set_up(self, interrupts: str, max_payload: int, max_read_request: int) -> None:
        self.vendor: int = self._config(_VENDOR)
        self.device: int = self._config(_DEVICE)
        self.subsystem: tuple[int, int] = (
            self._config(_SUBSYSTEM_VENDOR),
            self._config(_SUBSYSTEM),
        )
        self._capabilities = self._find_capabilities()
        self._place_bars()
        self._set_packet_sizes(max_payload, max_read_request)
        self.interrupt: Irq = self._choose_interrupt(interrupts)
        command = _Command.MEMORY | _Command.BUS_MASTER
        if self.interrupt is Irq.MSI:
            command |= _Command.INTX_DISABLE
            self._enable_msi()
        self._client.irq_connect(self.interrupt, self._eventfd)
        self._config_write(_COMMAND, command)

    # What drivers use ------------------------------------------------------------------------

    def read32(self, bar: int, offset: int) -> int:
        """The 32-bit register at byte `offset` of a BAR."""
        return self._client.region_read(bar, offset, 4)

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Writes the 32-bit register at byte `offset` of a BAR; posted."""
        self._client.region_write(bar, offset, 4, value)

    def wait_interrupt(self, timeout: float) -> bool:
        """Waits for an interrupt, up to `timeout` seconds; False if none came."""
        return self._client.wait_event(self._eventfd, timeout)

    def take_interrupt(self) -> bool:
        """Serves what the device has sent; says whether an interrupt came. Does not wait."""
        self._client.serve()
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return False
        return True

    def interrupt_done(self) -> None:
        """Unmasks a level interrupt, once its cause has been removed."""
        if self.interrupt is Irq.INTX:
            self._client.irq_unmask(Irq.INTX)

    @property
    def lost(self) -> bool:
        """True once the device is gone."""
        return self._client.lost

    def close(self) -> None:
        """Stops bus mastering and interrupts, and ends the connection. Can be called again."""
        if self.closed:
            return
        self.closed = True
        try:
            if not self._client.lost:
                self._config_write(_COMMAND, _Command.INTX_DISABLE)
                self._client.irq_disconnect(self.interrupt)
        finally:
            self._client.close()
            self._release()

    def _release(self) -> None:
        self._waiter.close()
        os.close(self._eventfd)

    # Set-up ----------------------------------------------------------------------------------

    def _config(self, offset: int, count: int = 2) -> int:
        return self._client.region_read(CONFIG_REGION, offset, count)

    def _config_write(self, offset: int, value: int, count: int = 2) -> None:
        self._client.region_write(CONFIG_REGION, offset, count, value)

    def _find_capabilities(self) -> dict[int, int]:
        found: dict[int, int] = {}
        offset = self._config(_CAPABILITIES, 1) & 0xFC
        while offset:
            if offset in found.values():
                raise ProtocolError(
                    f"the board's capability list has a loop at {offset:#x}; its configuration "
                    "space is broken"
                )
            found.setdefault(self._config(offset, 1), offset)
            offset = self._config(offset + 1, 1) & 0xFC
        return found

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
        express = self._capabilities.get(_Capability.EXPRESS)
        if not express:
            return
        supported = self._config(express + _EXPRESS_DEVICE_CAPS, 4) & 0x7
        payload = min(_size_code("max_payload", max_payload), supported)
        request = _size_code("max_read_request", max_read_request)
        at = express + _EXPRESS_DEVICE_CONTROL
        kept = self._config(at) & ~(0x7 << 5 | 0x7 << 12)
        self._config_write(at, kept | _EXTENDED_TAG | payload << 5 | request << 12)

    def _choose_interrupt(self, kind: str) -> Irq:
        choices = {"auto": (Irq.MSI, Irq.INTX), "msi": (Irq.MSI,), "intx": (Irq.INTX,)}
        if kind not in choices:
            raise ValueError(f"interrupts is one of {', '.join(choices)}, not {kind!r}")
        present = {
            Irq.MSI: _Capability.MSI in self._capabilities,
            Irq.INTX: self._config(_PIN, 1) == 1,
        }
        for irq in choices[kind]:
            if present[irq] and self._client.irq_count(irq):
                return irq
        names = " or ".join(irq.name for irq in choices[kind])
        has = ", ".join(irq.name for irq, there in present.items() if there) or "none"
        raise UnsupportedError(
            f"cannot use {names} interrupts: the board has {has}. Start the board with "
            "them, or open it with others"
        )

    def _enable_msi(self) -> None:
        msi = self._capabilities[_Capability.MSI]
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
