# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces of CUDA GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import UnsupportedError
from ..memory import dlpack
from ..memory.dmabuf import DmaBufExport
from ..memory.external import Origin, Part
from ..memory.memory import DataPath, Extent
from ..memory.surface import Gpu, Surface
from .device import CudaDevice
from .memory import Allocation
from .reachable import Reachable

__all__ = ["CudaSurface"]


class CudaSurface(Reachable, Surface):
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
        origin: Origin | None = None,
    ):
        super().__init__(gpu, shape, dtype, origin)
        self._device = device
        self.path = path
        self.on_gpu: bool = path is DataPath.PEER_TO_PEER
        #: None if there are no bytes, or closed
        self._memory = memory
        self.address: int = memory.address if memory else 0
        self.device_address: int = memory.device_address if memory else 0
        self.parts: Sequence[Part] = memory.parts if memory else ()

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
            self.order_copies()
        super().acquire()

    def dmabuf(self) -> DmaBufExport:
        """The memory as a dma-buf, for drivers of other devices; counts as a pin until closed.

        Raises
        ------
        UnsupportedError
            If this GPU and driver cannot export such memory.
        """
        self.require_open()
        return self.export()

    def _free(self) -> None:
        self._memory = None
