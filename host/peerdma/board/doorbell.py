# SPDX-License-Identifier: BSD-2-Clause
"""The doorbell of a launch queue: a page of the board's registers, or the shadow tail."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

from ..errors import CudaError
from ..memory.mailbox import DoorbellPage
from ..process import watched

__all__ = ["Doorbell"]


class Doorbell:
    """How kernels tell the board of tickets.

    Parameters
    ----------
    page : DoorbellPage or str
        See `peerdma.board.backend.Launching`.
    device : CudaDevice or None
        Whose kernels use it; None: the CPU is the GPU.

    Attributes
    ----------
    text : str
        See `Queue.doorbell`.
    """

    def __init__(self, page: DoorbellPage | str, device: Any):
        self._page = page
        self._device = device
        self._unmap: Callable[[], None] | None = None
        why = page if isinstance(page, str) else "its page is not mapped before `device` is read"
        self.text: str = f"shadow tail: {why}"
        watched(self)

    def map(self) -> int:
        """The address of the page for kernels; 0 if they have none. The queue has not ended."""
        page, address = self._page, 0
        if isinstance(page, str):
            return 0
        if self._device is None:
            address = ctypes.addressof(ctypes.c_char.from_buffer(page.memory))
        else:
            # Not imported before: it needs CUDA.
            from ..cuda.mailbox import map_doorbell

            try:
                address, self._unmap = map_doorbell(self._device, page)
            except CudaError as error:
                self.text = f"shadow tail: {error}"
                return 0
        self.text = "page of registers"
        return address

    def close(self) -> None:
        """Takes the page from GPU and process; kernels do not use it. Again does nothing."""
        unmap, self._unmap = self._unmap, None
        if unmap is not None:
            unmap()
        if not isinstance(self._page, str):
            # A mapping would keep the board's node open, and with it what it has pinned.
            self._page.memory.close()

    def disown(self) -> None:
        """Unmaps a child's copy of the page, and leaves the GPU's."""
        self._unmap = None
        if not isinstance(self._page, str):
            mmap.mmap.close(self._page.memory)
