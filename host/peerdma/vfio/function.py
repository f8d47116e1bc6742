# SPDX-License-Identifier: BSD-2-Clause
"""A PCI function of which this process is the driver, by VFIO or vfio-user.

Configuration space as in the PCI Express Base Specification, chapter 7.
"""

from __future__ import annotations

import enum
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from ..errors import ProtocolError, UnsupportedError
from ..process import watched
from ..waiting import Waiter
from .structures import CONFIG_REGION, Irq

__all__ = ["COMMAND", "Capability", "Command", "Device", "LostWrites", "PciFunction"]

#: Offset of the command register.
COMMAND = 0x04
_VENDOR, _DEVICE = 0x00, 0x02
_SUBSYSTEM_VENDOR, _SUBSYSTEM, _CAPABILITIES, _PIN = 0x2C, 0x2E, 0x34, 0x3D


class Command(enum.IntFlag):
    """Bits of the command register."""

    MEMORY = 1 << 1
    BUS_MASTER = 1 << 2
    INTX_DISABLE = 1 << 10


class Capability(enum.IntEnum):
    """Capability IDs in configuration space."""

    MSI = 0x05
    EXPRESS = 0x10
    MSIX = 0x11


class LostWrites(NamedTuple):
    """Writes of the device to unmapped addresses, as an IOMMU would record them.

    Posted writes have no completion, so the device does not know.
    """

    #: bus address of the first
    address: int
    #: bytes of all of them
    nbytes: int
    #: how many there were
    writes: int


class Device(Protocol):
    """The connection to a function: VFIO's requests, whichever way they go."""

    @property
    def lost(self) -> bool:
        """True once the device is gone."""
        ...

    def read32(self, bar: int, offset: int) -> int:
        """The 32-bit register at byte `offset` of a BAR; BoardLost if the device is gone."""
        ...

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Writes the 32-bit register at byte `offset` of a BAR; posted."""
        ...

    def region_read(self, region: int, offset: int, count: int) -> int:
        """The little-endian number in `count` bytes at `offset`."""
        ...

    def region_write(self, region: int, offset: int, count: int, value: int) -> None:
        """Writes `value` in `count` bytes at `offset`; may be posted."""
        ...

    def take_lost_writes(self) -> LostWrites | None:
        """The writes that were lost since the last call; None if none, or if nobody knows."""
        ...

    def map_page(self, region: int, offset: int, size: int) -> mmap.mmap | None:
        """Maps a page of registers for the program; None if that cannot be."""
        ...

    def irq_count(self, index: Irq) -> int:
        """Number of interrupts of kind `index` that the device has."""
        ...

    def irq_connect(self, index: Irq, eventfd: int) -> None:
        """Makes the device signal the eventfd when interrupt 0 of `index` fires."""
        ...

    def irq_disconnect(self, index: Irq) -> None:
        """Disconnects all interrupts of `index`."""
        ...

    def irq_unmask(self, index: Irq) -> None:
        """Unmasks INTx, which is masked each time it fires."""
        ...

    def wait_event(self, eventfd: int, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the eventfd; False if it never came."""
        ...

    def fileno(self) -> int:
        """Readable when there is something that `serve` has to see."""
        ...

    def serve(self) -> object:
        """Takes note of what has come from the device; does not wait. Raises if it is gone."""
        ...

    def close(self) -> None:
        """Ends the connection; the device's DMA mappings and interrupts end with it."""
        ...


class PciFunction(Waiter):
    """A function with bus mastering on and one interrupt connected.

    As a `Waiter`, it waits for messages of the device and interrupts.

    Parameters
    ----------
    device : Device
        The connection; closed with the function.
    interrupts : str
        A kind of interrupt of `KINDS`.

    Attributes
    ----------
    KINDS : dict of str to tuple of Irq
        What `interrupts` can be, and which interrupts to take then, the best first.
    identity : (int, int, int, int)
        Vendor, device, subsystem vendor, subsystem.
    interrupt : Irq
        The kind of interrupt in use.

    Raises
    ------
    UnsupportedError
        If the function does not have the requested kind of interrupt.
    ProtocolError
        If the device's configuration space is invalid.
    """

    KINDS: ClassVar[dict[str, tuple[Irq, ...]]]

    def __init__(self, device: Device, *, interrupts: str):
        self.device: Device = device
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        super().__init__(device.fileno(), self._eventfd)
        self._release = weakref.finalize(self, _release, self._waker, self._eventfd)
        self._release.atexit = False
        self.closed: bool = False
        self._ended = False
        watched(self)
        try:
            read = self._config
            ids = read(_VENDOR), read(_DEVICE), read(_SUBSYSTEM_VENDOR), read(_SUBSYSTEM)
            self.identity: tuple[int, int, int, int] = ids
            self._capabilities = self._find_capabilities()
            self.interrupt: Irq = self._choose_interrupt(interrupts)
            self._set_up()
            self.device.irq_connect(self.interrupt, self._eventfd)
            self._config_write(COMMAND, self._command() | Command.BUS_MASTER)
        except BaseException:
            self._release()
            raise

    def _set_up(self) -> None:
        """What has to be done before interrupts and DMA can be."""

    def _command(self) -> int:
        """The command register's value, but for the right to use the bus."""
        message = self.interrupt is not Irq.INTX
        return Command.MEMORY | (Command.INTX_DISABLE if message else 0)

    # What drivers use ------------------------------------------------------------------------

    def wait_interrupt(self, timeout: float) -> bool:
        """Waits for an interrupt, up to `timeout` seconds; False if none came."""
        return self.device.wait_event(self._eventfd, timeout)

    def take_interrupt(self) -> bool:
        """Serves what the device has sent; says whether an interrupt came. Does not wait."""
        self.device.serve()
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return False
        return True

    def interrupt_done(self) -> None:
        """Unmasks a level interrupt, once its cause has been removed."""
        if self.interrupt is Irq.INTX:
            self.device.irq_unmask(Irq.INTX)

    @property
    def lost(self) -> bool:
        """True once the device is gone."""
        return self.device.lost

    def leave_bus(self) -> None:
        """Takes the right to use the bus away: nothing of the board's reaches memory any more."""
        self._config_write(COMMAND, self._command())

    def close(self) -> None:
        """Stops bus mastering and interrupts, and ends the connection. Can be called again."""
        if self._ended:
            return
        try:
            if not (self.closed or self.device.lost):
                self.closed = True
                self.leave_bus()
                self.device.irq_disconnect(self.interrupt)
                self._bus_is_off()
        finally:
            self.closed = True
            # After an interrupt, this is done again.
            self.device.close()
            self._release()
        self._ended = True

    def disown(self) -> None:
        """Closes a child's copies of descriptors; the function goes on."""
        self.closed = self._ended = True
        self._release()

    def _bus_is_off(self) -> None:
        """What is left to do at the end, when the function does not use the bus any more."""

    # Configuration space ---------------------------------------------------------------------

    def _config(self, offset: int, count: int = 2) -> int:
        return self.device.region_read(CONFIG_REGION, offset, count)

    def _config_write(self, offset: int, value: int, count: int = 2) -> None:
        self.device.region_write(CONFIG_REGION, offset, count, value)

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

    def _choose_interrupt(self, kind: str) -> Irq:
        if kind not in self.KINDS:
            raise ValueError(f"interrupts is one of {', '.join(self.KINDS)}, not {kind!r}")
        present = {
            Irq.MSIX: Capability.MSIX in self._capabilities,
            Irq.MSI: Capability.MSI in self._capabilities,
            Irq.INTX: self._config(_PIN, 1) == 1,
        }
        for irq in self.KINDS[kind]:
            if present[irq] and self.device.irq_count(irq):
                return irq
        raise self._without_interrupt(self.KINDS[kind], [irq for irq in present if present[irq]])

    def _without_interrupt(self, wanted: Sequence[Irq], present: Sequence[Irq]) -> UnsupportedError:
        names = " or ".join(irq.name for irq in wanted)
        has = ", ".join(irq.name for irq in present) or "none"
        return UnsupportedError(
            f"cannot use {names} interrupts: the board has {has}. Open it with those, or a "
            "simulated board with these"
        )


def _release(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
