# SPDX-License-Identifier: BSD-2-Clause
"""CUDA GPUs."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from ..errors import PeerdmaError, UnsupportedError
from ..memory.external import Origin
from ..memory.mailbox import Mailbox, MailboxMap
from ..memory.memory import DataPath
from ..memory.surface import Gpu, SelfTest, layout
from .arrays import described
from .device import CudaDevice
from .driver import Driver, load
from .mailbox import map_mailbox
from .memory import DeviceMemory, allocate_host, register
from .surface import CudaSurface

__all__ = ["CudaGpu"]


class CudaGpu(Gpu):
    """A CUDA GPU.

    Parameters
    ----------
    index : int
        Of the device, counting those that this process sees.
    memory : "auto", "device" or "host"
        Where surfaces live. "auto" is the GPU's own memory if other devices can reach it, else
        pinned memory of the host; `memory` says which and why.
    driver : Driver, optional
        By default this machine's.

    Raises
    ------
    GpuNotFound
        If there is no such GPU, or something is not installed.
    UnsupportedError
        For "device" on an integrated GPU.
    """

    emulated = False

    def __init__(self, index: int = 0, memory: str = "auto", *, driver: Driver | None = None):
        self.device: CudaDevice = CudaDevice(driver or load(), index)
        self.index = index
        self.closed: bool = False
        #: Of the kernels for tests, None until they are used.
        self._kernels: SelfTest | None = None
        self._lock = threading.Lock()
        try:
            self._path, why = _choose(self.device, memory)
            self.memory: str = (
                f"{'GPU' if self._path is DataPath.PEER_TO_PEER else 'host'} memory: {why}"
            )
            major, minor = self.device.driver.version
            self.name: str = f"{self.device.name}, CUDA {major}.{minor}"
        except BaseException:
            self.device.release()
            raise

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.memory.partition(":")[0]
        return f"<CudaGpu {self.index}, {self.device.name}, {state}>"

    def surface(self, shape: int | Sequence[int], dtype: DTypeLike = "u1") -> CudaSurface:
        """A new surface, zeroed; CudaError if there is no memory for it."""
        self._require_open()
        _, _, nbytes = layout(shape, dtype)
        allocate = DeviceMemory if self._path is DataPath.PEER_TO_PEER else allocate_host
        memory = allocate(self.device, nbytes) if nbytes else None
        return CudaSurface(self, self.device, memory, shape, dtype, self._path)

    def cupy_allocator(self, nbytes: int) -> Any:
        """Memory for CuPy that boards reach as they reach surfaces, a ``cupy.cuda.MemoryPointer``.

        For all that CuPy allocates from then on, by a pool, as each takes 2 MiB or more:
        ``cupy.cuda.set_allocator(cupy.cuda.MemoryPool(gpu.cupy_allocator).malloc)``.
        """
        cuda = importlib.import_module("cupy").cuda
        surface = self.surface(nbytes)
        memory = cuda.UnownedMemory(surface.device_address, nbytes, surface, self.index)
        return cuda.MemoryPointer(memory, 0)

    def register(self, array: Any) -> CudaSurface:
        """See `Gpu.register`. Waits for the work in CUDA streams that the array's library names."""
        self._require_open()
        external = described(self.device, array, "register")
        if not external.nbytes:
            path = DataPath.PEER_TO_PEER if external.on_gpu else DataPath.HOST_MEMORY
            return CudaSurface(self, self.device, None, external.shape, external.dtype, path)
        memory = register(self.device, external)
        if external.stream is not None:
            self.device.wait_for(external.stream)
        origin = Origin(array, external, memory.parts, self.device.driver.identity)
        return CudaSurface(
            self, self.device, memory, external.shape, external.dtype, memory.path, origin
        )

    def synchronize(self) -> None:
        """Waits until everything that this process queued on the GPU is done, by any library."""
        with self.device.current():
            self.device.wait_for_all("wait for all work on the GPU")

    def map_mailbox(self, mailbox: Mailbox) -> MailboxMap:
        """See `Gpu.map_mailbox`."""
        self._require_open()
        return map_mailbox(self.device, mailbox)

    def _self_test(self) -> SelfTest:
        # Not imported before: no transfer needs it, nor the compiler.
        from ..testing.cuda import CudaKernels

        with self._lock:
            self._require_open()
            if self._kernels is None:
                self._kernels = CudaKernels(self.device)
            return self._kernels

    def close(self) -> None:
        """Ends the allocation of surfaces; those in use stay. Closing again does nothing."""
        if not self.closed:
            self.closed = True
            self._kernels = None
            self.device.release()

    def _require_open(self) -> None:
        if self.closed:
            raise PeerdmaError("the GPU is closed; open another")


def _choose(device: CudaDevice, memory: str) -> tuple[DataPath, str]:
    """Where surfaces live, and why."""
    integrated = device.attribute("INTEGRATED")
    if memory == "device":
        if integrated:
            raise UnsupportedError(
                f"cannot use GPU memory of {device.name}: it is integrated and uses the host's "
                'memory. Give memory="host" or "auto"'
            )
        return DataPath.PEER_TO_PEER, "as requested"
    if memory == "host":
        return DataPath.HOST_MEMORY, "as requested"
    if integrated:
        return DataPath.HOST_MEMORY, "an integrated GPU has no other"
    reachable = device.attribute("GPU_DIRECT_RDMA_SUPPORTED") or device.attribute(
        "DMA_BUF_SUPPORTED"
    )
    if not reachable:
        return DataPath.HOST_MEMORY, "other devices cannot reach this GPU's own (no GPUDirect RDMA)"
    return DataPath.PEER_TO_PEER, "other devices can reach it (GPUDirect RDMA)"
