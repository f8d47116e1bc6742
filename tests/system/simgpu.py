# SPDX-License-Identifier: BSD-2-Clause
"""The simulated GPU, as tests inside of a guest use it."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

from peerdma import uapi
from peerdma.emulated.simulated_gpu import NODE, Allocation, Export, Request

#: Seconds; far beyond what anything takes that works. Slow guests say how slow they are.
PATIENCE = 60.0 * float(os.environ.get("PEERDMA_SLOWNESS", "1"))


class Revoke(ctypes.Structure):
    """struct simgpu_revoke"""

    _fields_ = (
        ("fd", ctypes.c_int32),
        ("timeout_ms", ctypes.c_uint32),
        ("mappings", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    )


class Counts(ctypes.Structure):
    """struct simgpu_counts"""

    _fields_ = tuple((name, ctypes.c_uint32) for name in ("pages", "pins", "mappings", "callbacks"))


class Busy(ctypes.Structure):
    """struct simgpu_busy"""

    _fields_ = (("fd", ctypes.c_int32), ("busy", ctypes.c_uint32))


class GpuRequest(Request):
    """With those that only tests make of it, see driver/testing/simgpu_uapi.h."""

    REVOKE = uapi.request_code("G", 3, 3, Revoke)
    COUNTS = uapi.request_code("G", 4, 2, Counts)
    BUSY = uapi.request_code("G", 5, 1, Busy)


class Gpu:
    """The simulated GPU, opened by this process; a context manager."""

    def __init__(self):
        self.fd = os.open(NODE, os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees all that was allocated, as the end of the process would."""
        os.close(self.fd)

    def alloc(self, size: int, *, free_at_munmap: bool = False) -> int:
        """Allocates memory: its address."""
        memory = Allocation(size=size, flags=int(free_at_munmap))
        return self._request(GpuRequest.ALLOC, memory).va

    def view(self, va: int, size: int) -> mmap.mmap:
        """The memory as this process sees it."""
        return mmap.mmap(self.fd, size, offset=va)

    def free(self, va: int) -> None:
        """Frees memory."""
        self._request(GpuRequest.FREE, Allocation(va=va))

    def export(self, va: int) -> int:
        """The memory as a dma-buf that importers have to be peers for."""
        return self._request(GpuRequest.EXPORT, Export(va=va)).fd

    def export_host(self, size: int) -> int:
        """Host pages as a dma-buf of an exporter that does not move them."""
        return self._request(GpuRequest.EXPORT, Export(size=size, kind=1)).fd

    def revoke(self, fd: int, *, move: bool = False, patience: float = PATIENCE) -> int:
        """Takes a dma-buf back from importers, or moves it: how many mappings are left."""
        revoke = Revoke(fd=fd, timeout_ms=int(patience * 1000), flags=int(move))
        return self._request(GpuRequest.REVOKE, revoke).mappings

    def busy(self, fd: int, busy: bool) -> None:
        """Lets a dma-buf look as if it were being written to."""
        self._request(GpuRequest.BUSY, Busy(fd=fd, busy=busy))

    def counts(self) -> tuple[int, int, int, int]:
        """Pages, pins and mappings in use, and callbacks made since the module was loaded."""
        found = self._request(GpuRequest.COUNTS, Counts())
        return found.pages, found.pins, found.mappings, found.callbacks

    def _request(self, code: int, argument):
        fcntl.ioctl(self.fd, code, argument)
        return argument
