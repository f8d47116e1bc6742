# SPDX-License-Identifier: BSD-2-Clause
"""Pages of a board's registers, the mailbox and doorbells, mapped for CUDA kernels."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable

from ..errors import CudaError
from ..memory.mailbox import DoorbellPage, Mailbox, MailboxMap
from .device import CudaDevice
from .memory import map_host

__all__ = ["map_doorbell", "map_mailbox"]

_IO_MEMORY = 4
_ACTION = "map the board's mailbox"
_WHY = "NVIDIA's driver cannot map another device's registers on this kernel"
_INSTEAD = (
    f"{_WHY}. Let the kernel write a word of a surface in host memory, and the program pass it on "
    "by mailbox.write(...): docs/cuda.md, Mailbox"
)


def map_mailbox(device: CudaDevice, mailbox: Mailbox) -> MailboxMap:
    """See `Gpu.map_mailbox`."""
    page = mailbox.page
    with contextlib.ExitStack() as undo:
        mailbox.acquire()
        undo.callback(mailbox.release)
        device.acquire()
        undo.callback(device.release)
        length, flags = len(page.memory), _IO_MEMORY if page.io else 0
        if page.io:
            # CUDA looks the page up in the process's page table, which gets it on first access.
            page.read32(0)
        try:
            address = map_host(device, mailbox.address, length, undo, _ACTION, flags)
        except CudaError as error:
            if not page.io:
                raise
            raise CudaError(_ACTION, error.found, _INSTEAD, name=error.name) from None
        return MailboxMap(address, undo.pop_all().close)


def map_doorbell(device: CudaDevice, page: DoorbellPage) -> tuple[int, Callable[[], None]]:
    """The address of a doorbell's page in kernels, and what unmaps it; CudaError if it cannot be.

    The page belongs to a queue that has not ended.
    """
    word, flags = ctypes.c_uint32.from_buffer(page.memory), _IO_MEMORY if page.io else 0
    with contextlib.ExitStack() as undo:
        device.acquire()
        undo.callback(device.release)
        # As above: what this reads does not matter.
        word.value  # noqa: B018
        action = "map the page of a doorbell"
        try:
            at = map_host(device, ctypes.addressof(word), len(page.memory), undo, action, flags)
        except CudaError as error:
            if not page.io:
                raise
            raise CudaError(action, error.found, _WHY, name=error.name) from None
        return at, undo.pop_all().close
