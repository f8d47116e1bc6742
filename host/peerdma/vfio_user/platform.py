# SPDX-License-Identifier: BSD-2-Clause
"""A simulated board's platform: this process is its firmware, its IOMMU and its memory."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Sequence

from ..errors import PeerdmaError, ProtocolError, UnsupportedError
from ..memory.mailbox import DoorbellPage, MailboxPage
from ..memory.memory import DataPath, Extent, GpuFile, Memory, Staged
from ..process import keep
from ..regs import BAR_USER, DOORBELL_BASE, DOORBELL_STRIDE, MAILBOX
from ..vfio.platform import Mapping, Window
from .client import VfioUserClient
from .pci import SocketFunction
from .simboard import SimulatedBoard
from .wire import DeviceFlag

__all__ = ["SocketPlatform"]

_PAGE = 4096
#: Bus address of the descriptor ring, below 4 GiB, so that requests to it have short headers.
_RING_ADDRESS = 0x1000_0000
#: First bus address for arrays in host memory, above any emulated GPU.
_HOST_ADDRESS = 0x100_0000_0000
#: Seconds to wait for any one answer on the socket.
_ANSWER_TIMEOUT = 60.0


class SocketPlatform:
    """See `peerdma.vfio.platform.Platform`.

    Parameters
    ----------
    path : str
        The socket.
    timeout : float or None
        Seconds to wait for one answer; None: one minute.
    interrupts, max_payload, max_read_request
        See `SocketFunction`.
    process : SimulatedBoard or None
        The board's, if this process has started it.

    Raises
    ------
    BoardNotFound
        If no process listens at the socket.
    """

    simulated = True

    def __init__(
        self,
        path: str,
        *,
        timeout: float | None = None,
        interrupts: str = "auto",
        max_payload: int = 128,
        max_read_request: int = 512,
        process: SimulatedBoard | None = None,
    ):
        self._next_host_address = _HOST_ADDRESS
        self._process = process
        with contextlib.ExitStack() as undo:
            self.client: VfioUserClient = VfioUserClient(
                path, timeout=timeout or _ANSWER_TIMEOUT, process=process
            )
            undo.callback(self.client.close)
            self._reset()
            self.function: SocketFunction = SocketFunction(
                self.client,
                interrupts=interrupts,
                max_payload=max_payload,
                max_read_request=max_read_request,
            )
            undo.pop_all()

    def _reset(self) -> None:
        """Resets the board, which its last user may have left in any state."""
        flags = self.client.device_info().flags
        if not flags & DeviceFlag.PCI:
            raise ProtocolError("the device on this socket is not a PCI device; is it a board?")
        if flags & DeviceFlag.RESET:
            self.client.reset()

    def notes(self, since: float) -> str:
        """What its process wrote, if this one started it."""
        return self._process.notes(since) if self._process else ""

    def map(self, memory: Memory) -> Mapping:
        """Maps memory for the board's DMA; `STAGED` if this process has to copy for it."""
        windows: list[Window] = []
        why_staged: list[str] = []
        path = memory.path
        try:
            address = memory.address
            for extent in memory.extents():
                keep(windows, self._map, extent, address % _PAGE, why_staged)
                address += len(extent.memory)
                path = DataPath.GPU_BAR if extent.gpu_file else path
        except BaseException:
            self.unmap(windows)
            raise
        if why_staged:
            return Mapping(windows, DataPath.STAGED, why_staged[0])
        return Mapping(windows, path)

    def _map(self, extent: Extent, in_page: int, why_staged: list[str]) -> Window:
        nbytes = len(extent.memory)
        address = extent.bus_address
        if address is None:
            # Same offset in the page as the virtual address, as an operating system would map it.
            address = self._next_host_address + in_page
        skip = address % _PAGE
        window = Window(address, nbytes, address - skip, -(-(skip + nbytes) // _PAGE) * _PAGE)
        if extent.bus_address is None:
            # One page stays unmapped between arrays, so that an overrun never reaches the next.
            self._next_host_address = window.base + window.size + _PAGE
        try:
            if isinstance(extent.memory, Staged):
                why = self._map_gpu(window, skip, extent.memory, extent.gpu_file)
                if not why:
                    return window
                why_staged.append(why)
            self.client.dma_map(
                window.base,
                window.size,
                extent.memory,
                skip=skip,
                fd=extent.fd,
                fd_offset=extent.fd_offset,
            )
        except PeerdmaError:
            raise
        except BaseException:
            # An interrupt, when it was mapped.
            self._unmap(window)
            raise
        return window

    def _map_gpu(
        self,
        window: Window,
        skip: int,
        memory: Staged,
        gpu_file: Callable[[], contextlib.AbstractContextManager[GpuFile]] | None,
    ) -> str:
        """Has the board map memory by its file; returns why it cannot, empty if it has."""
        if gpu_file is None:
            return "its memory cannot be exported"
        if not self.client.maps_gpus:
            return "this simulated board is of an older version, which maps no GPU's memory"
        try:
            with gpu_file() as file:
                return self.client.gpu_map(window.base, window.size, memory, file, skip=skip)
        except UnsupportedError as error:
            return str(error)

    def unmap(self, windows: Sequence[Window]) -> None:
        """Undoes `map`. What is not mapped any more stays so."""
        try:
            for window in windows:
                self._unmap(window)
        except BaseException:
            for window in windows:
                with contextlib.suppress(PeerdmaError):
                    self._unmap(window)
            raise

    def _unmap(self, window: Window) -> None:
        if not self.client.lost:
            self.client.dma_unmap(window.base, window.size, skip=window.address - window.base)

    def ring(self, nbytes: int) -> tuple[mmap.mmap, int]:
        """Memory for descriptors and records of frames, and its bus address."""
        fd = os.memfd_create("peerdma-ring", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, nbytes)
            memory = mmap.mmap(fd, nbytes)
            self.client.dma_map(_RING_ADDRESS, nbytes, memoryview(memory), fd=fd)
        finally:
            os.close(fd)
        return memory, _RING_ADDRESS

    def mailbox(self) -> MailboxPage:
        """Maps the page, which the simulated board offers with --mailbox-page."""
        memory = self.client.map_page(BAR_USER[0], MAILBOX.base, _PAGE)
        if memory is None:
            raise UnsupportedError(
                "this simulated board does not offer the mailbox page. Start it with "
                '--mailbox-page, or open("sim", arguments=["--mailbox-page"]), on a kernel whose '
                "pages have 4 KiB"
            )
        client = self.client
        return MailboxPage(
            memory, False, lambda register: client.read32(BAR_USER[0], MAILBOX.base + register)
        )

    def doorbell(self, queue: int) -> DoorbellPage | str:
        """Maps the page, which the simulated board offers with --doorbell-pages."""
        place = DOORBELL_BASE + queue * DOORBELL_STRIDE
        memory = self.client.map_page(BAR_USER[0], place, DOORBELL_STRIDE)
        if memory is None:
            return (
                "this simulated board offers no page; start it with --doorbell-pages, on a kernel "
                "whose pages have 4 KiB"
            )
        return DoorbellPage(memory, False)
