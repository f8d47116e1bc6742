# SPDX-License-Identifier: BSD-2-Clause
"""What a board needs of memory that CUDA knows, whoever allocated it."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..memory.dmabuf import DmaBufExport
from ..memory.memory import DataPath, Extent
from .device import CudaDevice

__all__ = ["Reachable"]


class Reachable:
    """Memory of a GPU, or of the host and known to CUDA, for boards; see `Memory`."""

    _device: CudaDevice
    nbytes: int
    device_address: int
    path: DataPath
    on_gpu: bool
    readonly: bool

    if TYPE_CHECKING:
        # Of the classes that this one is mixed into.
        @property
        def address(self) -> int:
            """See `Memory`."""
            ...

        def extents(self) -> list[Extent]:
            """See `Memory`."""
            ...

        def acquire(self) -> None:
            """See `Memory`."""
            ...

        def release(self) -> None:
            """See `Memory`."""
            ...

    @property
    def cuda_device(self) -> CudaDevice:
        """The GPU that reaches it."""
        return self._device

    def order_copies(self) -> None:
        """Orders CUDA's own copies with DMA (SYNC_MEMOPS)."""
        device = self._device
        with device.current(), device.relaxed():
            device.driver.call(
                "cuPointerSetAttribute",
                True,
                device.driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                self.device_address,
                action=f"pin {self!r}",
            )

    def flush_writes(self) -> None:
        """Flushes a board's writes, on GPUs that do not order them before their own reads."""
        if self.on_gpu and self._device.needs_flush:
            self._device.flush_writes()

    def export(self) -> DmaBufExport:
        """The memory as a dma-buf; counts as a pin until closed."""
        device = self._device
        name = "DMA_BUF_SUPPORTED" if self.on_gpu else "HOST_ALLOC_DMA_BUF_SUPPORTED"
        if not self.nbytes or not device.attribute(name):
            raise UnsupportedError(
                f"cannot export {self!r} as a dma-buf: this GPU and driver export no {self.path} "
                "memory, or there are no bytes. It needs NVIDIA's open kernel modules and a GPU "
                "with GPUDirect RDMA; docs/cuda.md says more"
            )
        skip = self.device_address % mmap.PAGESIZE
        whole = -(-(skip + self.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        kinds = device.driver.api.CUmemRangeHandleType
        self.acquire()
        try:
            with device.current():
                fd = device.driver.call(
                    "cuMemGetHandleForAddressRange",
                    self.device_address - skip,
                    whole,
                    kinds.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                    0,
                    action=f"export {self!r} as a dma-buf",
                )
        except BaseException:
            self.release()
            raise
        return DmaBufExport(self, int(fd), skip)
