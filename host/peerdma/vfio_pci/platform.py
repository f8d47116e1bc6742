# SPDX-License-Identifier: BSD-2-Clause
"""A real board's platform: firmware has set the function up, and the kernel's VFIO maps memory."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import time
from collections.abc import Sequence
from typing import ClassVar

from ..errors import PinError, UnsupportedError
from ..memory.mailbox import DoorbellPage, MailboxPage
from ..memory.memory import DataPath, Memory, Staged
from ..regs import (
    BAR_DMA,
    BAR_USER,
    CHANNEL,
    DOORBELL_BASE,
    DOORBELL_STRIDE,
    EXTENSION,
    EXTENSION_MAGIC,
    IRQ,
    MAILBOX,
    Status,
)
from ..vfio.function import COMMAND, Command, PciFunction
from ..vfio.platform import Mapping, Window
from ..vfio.structures import Irq, MapFlag
from .device import VfioDevice
from .place import Place

__all__ = ["VfioFunction", "VfioPlatform"]

_log = logging.getLogger(__name__)
_PAGE = mmap.PAGESIZE
_MAILBOX_BYTES = 4096
#: Bus address of the descriptor ring if it is free: below 4 GiB, where requests have short headers.
_RING_ADDRESS = 0x1000_0000
#: Far more than it takes until writes that the link does not take are dropped: 4096 cycles without
#: Bus Master.
_RESET_SECONDS = 1.0


class VfioFunction(PciFunction):
    """A function that firmware and kernel have set up; it is reset here, at the start and the end.

    Parameters
    ----------
    device : VfioDevice
        The connection; closed with the function.
    interrupts : "auto", "msi" or "intx"
        "auto" takes the first that the function has of MSI-X, MSI and INTx.

    Raises
    ------
    UnsupportedError, ProtocolError
        As `PciFunction`.
    """

    KINDS: ClassVar = {
        "auto": (Irq.MSIX, Irq.MSI, Irq.INTX),
        "msi": (Irq.MSI,),
        "intx": (Irq.INTX,),
    }

    def __init__(self, device: VfioDevice, *, interrupts: str):
        self._vfio = device
        super().__init__(device, interrupts=interrupts)

    def _set_up(self) -> None:
        self._config_write(COMMAND, Command.MEMORY)
        if not self._vfio.reset():
            self._without_reset()
        # All interrupts are one message, whatever a former user of a board without reset has set.
        for register in IRQ.registers:
            if register.name.startswith("channel_vector"):
                self._vfio.write32(BAR_DMA[0], IRQ.address(register.name), 0)

    def _bus_is_off(self) -> None:
        if not self._vfio.reset():
            self._soft_reset()

    def _without_reset(self) -> None:
        address = self._vfio.address
        if self._soft_reset():
            _log.warning(
                "the kernel has no way to reset %s: used the soft reset of its engine, which keeps "
                "configuration space and user registers",
                address,
            )
        else:
            _log.warning(
                "the kernel has no way to reset %s, and its gateware has no soft reset: what a "
                "former user has left in its registers stays",
                address,
            )

    def _soft_reset(self) -> bool:
        """Resets the engine, not the function; False if the gateware cannot.

        An engine that is not reset in time has a busy channel, which is found when it is used.
        """
        bar, status = BAR_DMA[0], CHANNEL.address("status")
        if self._vfio.read32(bar, EXTENSION.address("magic")) != EXTENSION_MAGIC:
            return False
        self._vfio.write32(bar, EXTENSION.address("soft_reset"), 1)
        deadline = time.monotonic() + _RESET_SECONDS
        # Writes under way delay it; what registers are given before it, they lose.
        while self._vfio.read32(bar, status) & Status.BUSY and time.monotonic() < deadline:
            time.sleep(0.001)
        return True


class VfioPlatform:
    """See `peerdma.vfio.platform.Platform`.

    Parameters
    ----------
    address : str
        The function's, as `Place` takes it.
    interrupts : str
        See `VfioFunction`.

    Raises
    ------
    BoardNotFound
        If the function cannot be opened, with the command to run.
    """

    simulated = False

    def __init__(self, address: str, *, interrupts: str = "auto"):
        with contextlib.ExitStack() as undo:
            self.device: VfioDevice = VfioDevice(Place(address))
            undo.callback(self.device.close)
            self.function: VfioFunction = VfioFunction(self.device, interrupts=interrupts)
            undo.pop_all()

    def map(self, memory: Memory) -> Mapping:
        """Maps the pages that memory is in, at their virtual address if that is free on the bus."""
        elsewhere = memory.on_gpu or memory.path is DataPath.PEER_TO_PEER
        if elsewhere or any(isinstance(extent.memory, Staged) for extent in memory.extents()):
            raise PinError(
                "a board that is opened by VFIO reaches host memory only, and this is GPU memory. "
                "Load the driver (docs/driver.md) and open /dev/picoevb, or use a surface in host "
                'memory, gpu(memory="host")'
            )
        if not memory.nbytes:
            return Mapping([], memory.path)
        first = memory.address - memory.address % _PAGE
        size = -(-(memory.address + memory.nbytes - first) // _PAGE) * _PAGE
        flags = MapFlag.READ if memory.readonly else MapFlag.READ | MapFlag.WRITE
        base = self.device.dma_map(first, size, flags, first)
        window = Window(base + memory.address - first, memory.nbytes, base, size)
        return Mapping([window], memory.path)

    def unmap(self, windows: Sequence[Window]) -> None:
        """Undoes `map`."""
        for window in windows:
            self.device.dma_unmap(window.base)

    def ring(self, nbytes: int) -> tuple[mmap.mmap, int]:
        """Memory for descriptors and records of frames, and its bus address."""
        memory = mmap.mmap(-1, -(-nbytes // _PAGE) * _PAGE)
        place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        flags = MapFlag.READ | MapFlag.WRITE
        return memory, self.device.dma_map(place, len(memory), flags, _RING_ADDRESS)

    def mailbox(self) -> MailboxPage:
        """Maps the page of the user BAR."""
        memory = self.device.map_page(BAR_USER[0], MAILBOX.base, _MAILBOX_BYTES)
        if memory is None:
            raise UnsupportedError(
                f"the kernel does not let programs map the registers of {self.device.address}, "
                "where the mailbox is: its pages are larger than theirs. Use the driver"
            )
        device = self.device
        return MailboxPage(
            memory, True, lambda register: device.read32(BAR_USER[0], MAILBOX.base + register)
        )

    def notes(self, since: float) -> str:
        """None: a card keeps none."""
        return ""

    def doorbell(self, queue: int) -> DoorbellPage | str:
        """Maps the page of the user BAR."""
        place = DOORBELL_BASE + queue * DOORBELL_STRIDE
        memory = self.device.map_page(BAR_USER[0], place, DOORBELL_STRIDE)
        if memory is None:
            return "the kernel does not let programs map it: its pages are larger"
        return DoorbellPage(memory, True)
