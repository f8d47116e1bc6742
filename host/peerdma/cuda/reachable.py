# SPDX-License-Identifier: BSD-2-Clause
"""What a board needs of memory that CUDA knows, whoever allocated it."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..memory.dmabuf import DmaBufExport
from ..memory.external import Part
from ..memory.memory import DataPath, Extent
from .device import CudaDevice

__all__ = ["Reachable", "export_range", "mapping_flags"]

#: The first driver that can be asked how a dma-buf is to be mapped.
_HAS_MAPPING_TYPE = (12, 8)


def mapping_flags(device: CudaDevice) -> int:
    """How a dma-buf of the GPU's memory has to be exported for other PCIe devices.

    Where the GPU uses the page tables of the host, as on Grace, it is coherent with the processor,
    and CUDA exports addresses that only the processor reaches, unless it is asked for those in the
    GPU's BAR. Elsewhere there are no others, and CUDA refuses to be asked.

    Raises
    ------
    UnsupportedError
        If the driver is older than the flag.
    """
    if not device.attribute("PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES"):
        return 0
    if device.driver.version < _HAS_MAPPING_TYPE:
        raise UnsupportedError(
            f"cannot export memory of {device.name} as a dma-buf: it is coherent with the "
            "processor, and drivers before CUDA 12.8 export addresses that only that reaches. "
            "Update the driver, or load peerdma_nvp2p"
        )
    return int(device.driver.api.CUmemRangeFlags.CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)


def export_range(
    device: CudaDevice, address: int, nbytes: int, action: str, on_gpu: bool = True
) -> tuple[int, int, int]:
    """A dma-buf of the pages that bytes are in: its descriptor, their offset in it, its length."""
    skip = address % mmap.PAGESIZE
    whole = -(-(skip + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    kind = device.driver.api.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    flags = mapping_flags(device) if on_gpu else 0
    arguments = address - skip, whole, kind, flags
    with device.current():
        fd = device.driver.call("cuMemGetHandleForAddressRange", *arguments, action=action)
    return int(fd), skip, whole


class Reachable:
    """Memory of a GPU, or of the host and known to CUDA, for boards; see `Memory`."""

    _device: CudaDevice
    nbytes: int
    device_address: int
    path: DataPath
    on_gpu: bool
    readonly: bool
    #: what it consists of, if it is a GPU's and others allocated it
    parts: Sequence[Part] = ()

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
        addresses = [part.address for part in self.parts] or [self.device_address]
        self._device.order_copies(addresses, f"pin {self!r}")

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
        action = f"export {self!r} as a dma-buf"
        self.acquire()
        try:
            fd, skip, _ = export_range(
                device, self.device_address, self.nbytes, action, self.on_gpu
            )
        except BaseException:
            self.release()
            raise
        return DmaBufExport(self, fd, skip)
