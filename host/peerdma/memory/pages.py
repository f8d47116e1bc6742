# SPDX-License-Identifier: BSD-2-Clause
"""Whole pages of host memory that a board and other processes can map."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import numpy as np

from .memory import DataPath, Extent

__all__ = ["SharedPages"]


class SharedPages:
    """Pages of a memfd, zeroed, as memory to pin: a simulated board maps the file itself.

    Unmapped when neither this nor an array over it is left.

    Parameters
    ----------
    name : str
        What it is for, as /proc shows it.
    nbytes : int
        At least 1; rounded up to whole pages.
    """

    path = DataPath.HOST_MEMORY
    on_gpu = False
    readonly = False

    def __init__(self, name: str, nbytes: int):
        self.nbytes: int = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._fd = os.memfd_create(f"peerdma-{name}", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        os.ftruncate(self._fd, self.nbytes)
        self._memory = mmap.mmap(self._fd, self.nbytes)
        self.address: int = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def array(self) -> np.ndarray:
        """All of it as uint8; the array keeps the memory."""
        return np.frombuffer(self._memory, np.uint8)

    def extents(self) -> list[Extent]:
        """One piece."""
        return [Extent(memoryview(self._memory), fd=self._fd)]

    def acquire(self) -> None:
        """Nothing to do: whoever pinned it refers to it."""

    def release(self) -> None:
        """Nothing to do."""

    def flush_writes(self) -> None:
        """Nothing to do: the host's memory is coherent."""
