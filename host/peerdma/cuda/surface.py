# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces of CUDA GPUs."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import UnsupportedError
from ..memory import dlpack
from ..memory.dmabuf import DmaBuf
from ..memory.memory import DataPath, Extent
from ..memory.surface import Gpu, Surface
from .device import CudaDevice
from .memory import Allocation

__all__ = ["CudaSurface"]

#: Values of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING from which on the GPU sees what
#: other devices wrote without a flush.
_ORDERED_FOR_OWNER = 100
#: Bit of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS.
_FLUSH_BY_HOST = 1


class CudaSurface(Surface):
    """A surface of a `CudaGpu`. CuPy, PyTorch and others can use it as an array of their own.

    Attributes
    ----------
    device_address : int
        Address that kernels use.
    """

    def __init__(
        self,
        gpu: Gpu,
        device: CudaDevice,
        memory: Allocation | None,
        shape: int | Sequence[int],
        dtype: DTypeLike,
        path: DataPath,
    ):
        super().__init__(gpu, shape, dtype)
        self._device = device
        self.path = path
        self.on_gpu: bool = path is DataPath.PEER_TO_PEER
        #: None if there are no bytes, or closed
        self._memory = memory
        self.address: int = memory.address if memory else 0
        self.device_address: int = memory.device_address if memory else 0

    @property
    def array(self) -> np.ndarray:
        """The surface as a numpy array that shares its memory, and keeps it after `close`.

        Raises
        ------
        UnsupportedError
            For memory of the GPU, which the CPU cannot reach: see `get` and `set`.
        """
        if self.on_gpu:
            raise UnsupportedError(
                f"cannot make a numpy array of {self!r}: it is in the GPU's memory, which the CPU "
                "cannot access. Copy with get() and set(), or make surfaces in host memory: "
                'gpu("cuda", memory="host")'
            )
        self.require_open()
        memory = self._memory
        data = np.empty(0, np.uint8) if memory is None else memory.array()[: self.nbytes]
        return data.view(self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For CuPy, PyTorch, Numba, which may use the memory until the surface is closed."""
        self.require_open()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.device_address, False),
            "strides": None,
            "version": 3,
            "stream": None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device, as DLPack numbers them."""
        if self.on_gpu:
            return dlpack.CUDA, self._device.index
        return dlpack.CPU, 0

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The surface as a tensor that shares its memory, and keeps it after `close`.

        Surfaces in host memory are tensors of the CPU, or of the GPU if `dl_device` says so.
        The rest is as for `Surface`; there is no copy on the GPU.
        """
        self.require_open()
        gpu = dlpack.CUDA, self._device.index
        wanted = dl_device or self.__dlpack_device__()
        if wanted == gpu and not copy:
            owner = self._memory
            return dlpack.export(
                self.device_address, gpu, self.shape, self.dtype, owner, max_version=max_version
            )
        if wanted == gpu or self.on_gpu:
            raise BufferError(f"{self!r} is shared where it is; copy it with get()")
        return super().__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def copy_out(self, start: int, data: np.ndarray) -> None:
        """Copies the surface's bytes from `start` on to an array of uint8."""
        self.require_open()
        if data.size:
            self._device.read(self.device_address + start, data.ctypes.data, data.size)

    def copy_in(self, start: int, data: np.ndarray) -> None:
        """Copies an array of uint8 to the surface's bytes from `start` on."""
        self.require_open()
        if data.size:
            self._device.write(self.device_address + start, data.ctypes.data, data.size)

    # For boards ------------------------------------------------------------------------------

    def extents(self) -> list[Extent]:
        """See `peerdma.memory.memory.Memory`."""
        self.require_open()
        return self._memory.extents() if self._memory else []

    def acquire(self) -> None:
        """See `Surface.acquire`; also orders CUDA's own copies with DMA (SYNC_MEMOPS)."""
        if self._memory and not self.closed:
            device = self._device
            with device.current():
                device.driver.call(
                    "cuPointerSetAttribute",
                    True,
                    device.driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                    self.device_address,
                    action=f"pin {self!r}",
                )
        super().acquire()

    def flush_writes(self) -> None:
        """Flushes a board's writes, on GPUs that do not order them before their own reads."""
        device = self._device
        if (
            not self.on_gpu
            or device.attribute("GPU_DIRECT_RDMA_WRITES_ORDERING") >= _ORDERED_FOR_OWNER
            or not device.attribute("GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS") & _FLUSH_BY_HOST
        ):
            return
        api = device.driver.api
        target = api.CUflushGPUDirectRDMAWritesTarget
        scope = api.CUflushGPUDirectRDMAWritesScope
        with device.current():
            device.driver.call(
                "cuFlushGPUDirectRDMAWrites",
                target.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                scope.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
                action="flush a board's writes to the GPU",
            )

    def dmabuf(self) -> DmaBuf:
        """The memory as a dma-buf, for drivers of other devices; counts as a pin until closed.

        Raises
        ------
        UnsupportedError
            If this GPU and driver cannot export such memory.
        """
        self.require_open()
        device = self._device
        name = "DMA_BUF_SUPPORTED" if self.on_gpu else "HOST_ALLOC_DMA_BUF_SUPPORTED"
        if self._memory is None or not device.attribute(name):
            raise UnsupportedError(
                f"cannot export {self!r} as a dma-buf: this GPU and driver export no {self.path} "
                "memory, or the surface is empty. It needs NVIDIA's open kernel modules and a GPU "
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
        return DmaBuf(self, int(fd), skip)

    def _free(self) -> None:
        self._memory = None
