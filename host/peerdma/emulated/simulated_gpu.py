# SPDX-License-Identifier: BSD-2-Clause
"""The simulated GPU of the full system in QEMU: emulated, but its memory is a PCI device's.

The stand-in for NVIDIA's driver (driver/testing) allocates that memory. The kernel driver therefore
pins surfaces as it would a real GPU's, and a board's transfers go from device to device.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from ..errors import GpuNotFound, PeerdmaError, UnsupportedError
from ..memory.dmabuf import DmaBufExport
from ..memory.memory import Extent
from ..memory.surface import layout
from ..process import own
from ..uapi import request_code
from .gpu import DISCRETE, EmulatedGpu, EmulatedSurface

__all__ = ["NODE", "Allocation", "Export", "Request", "SimulatedGpu", "SimulatedSurface"]

#: Device node of the stand-in, in guests that have one.
NODE = "/dev/simgpu"


class Allocation(ctypes.Structure):
    """struct simgpu_memory"""

    _fields_ = (
        ("va", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class Export(ctypes.Structure):
    """struct simgpu_export; its `kind` 0 is the GPU's memory"""

    _fields_ = (
        ("va", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("fd", ctypes.c_int32),
    )


class Request:
    """Codes of the requests that the library makes, see driver/testing/simgpu_uapi.h."""

    ALLOC = request_code("G", 0, 3, Allocation)
    FREE = request_code("G", 1, 1, Allocation)
    EXPORT = request_code("G", 2, 3, Export)


class _Device:
    """The open node; closed when neither the GPU nor a surface needs it."""

    def __init__(self):
        try:
            self.fd: int = os.open(NODE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise GpuNotFound(
                f"use the simulated GPU at {NODE}",
                str(error.strerror),
                "Load the module simgpu, and allow this user to open it",
            ) from None
        weakref.finalize(self, os.close, self.fd).atexit = False

    def allocate(self, nbytes: int) -> int:
        """Memory of at least `nbytes`: its address."""
        memory = Allocation(size=nbytes)
        try:
            fcntl.ioctl(self.fd, Request.ALLOC, memory)
        except OSError as error:
            raise PeerdmaError(
                f"cannot allocate {nbytes} bytes of the simulated GPU's memory: {error.strerror}. "
                "Close surfaces, use smaller ones, or give the guest a larger GPU",
                errno=error.errno,
            ) from None
        return memory.va

    def free(self, va: int) -> None:
        """Frees memory; the driver that has it pinned is notified."""
        fcntl.ioctl(self.fd, Request.FREE, Allocation(va=va))


class SimulatedGpu(EmulatedGpu):
    """The simulated GPU of a guest; its kernels are numpy, as an emulated GPU's.

    Raises
    ------
    GpuNotFound
        If there is none here.
    """

    def __init__(self):
        super().__init__(DISCRETE)
        self._device: _Device | None = _Device()
        self.name: str = "simulated GPU"
        self.memory: str = f"simulated {DISCRETE.path} memory, of a PCI device"

    def __repr__(self) -> str:
        return f"<SimulatedGpu at {NODE}{'' if self._device else ', closed'}>"

    def surface(self, shape: int | Sequence[int], dtype: DTypeLike = "u1") -> EmulatedSurface:
        """A new surface, zeroed; PeerdmaError if there is no memory for it."""
        if self._device is None:
            raise PeerdmaError("the simulated GPU is closed; open another")
        if not layout(shape, dtype)[2]:
            return super().surface(shape, dtype)
        return SimulatedSurface(self, self._device, shape, dtype)

    def close(self) -> None:
        """Ends the allocation of surfaces; those in use stay. Closing again does nothing."""
        super().close()
        self._device = None


class SimulatedSurface(EmulatedSurface):
    """A surface of a `SimulatedGpu`: boards reach it by its address or as a dma-buf."""

    on_gpu = True

    def __init__(
        self, gpu: SimulatedGpu, device: _Device, shape: int | Sequence[int], dtype: DTypeLike
    ):
        _, _, nbytes = layout(shape, dtype)
        address = device.allocate(nbytes)
        free = weakref.finalize(self, own(device.free), address)
        # Not at exit: closing the process's files frees its memory.
        free.atexit = False
        try:
            pages = np.frombuffer(mmap.mmap(device.fd, nbytes, offset=address), np.uint8)
            pages[:] = 0
        except BaseException:
            free()
            raise
        super().__init__(gpu, shape, dtype, DISCRETE.path, pages, _one_piece)
        self.address: int = address
        self._device = device
        self._free_memory = free

    def dmabuf(self) -> DmaBufExport:
        """The memory as a dma-buf, for drivers of other devices; counts as a pin until closed.

        Raises
        ------
        UnsupportedError
            If the stand-in was loaded with no_dmabuf=1.
        """
        export = Export(va=self.address)
        self.acquire()
        try:
            fcntl.ioctl(self._device.fd, Request.EXPORT, export)
        except OSError as error:
            self.release()
            kind = UnsupportedError if error.errno == errno.EOPNOTSUPP else PeerdmaError
            raise kind(
                f"cannot export {self!r} as a dma-buf: {error.strerror}. The module simgpu may "
                "have been loaded with no_dmabuf=1",
                errno=error.errno,
            ) from None
        return DmaBufExport(self, export.fd, 0)

    def _free(self) -> None:
        super()._free()
        self._free_memory()


def _one_piece(pages: np.ndarray) -> list[Extent]:
    """For a board that this process maps memory for; this process knows no bus address."""
    return [Extent(pages.data)]
