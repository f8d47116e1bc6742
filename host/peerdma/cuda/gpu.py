# SPDX-License-Identifier: BSD-2-Clause
"""CUDA GPUs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import PeerdmaError, UnsupportedError
from ..memory import pattern
from ..memory.external import describe
from ..memory.mailbox import Mailbox
from ..memory.memory import Path
from ..memory.surface import Gpu, Surface, layout, wrong_word
from .device import POINTER, SIZE, WORD, CudaDevice
from .driver import Driver, load
from .memory import DeviceMemory, allocate_host, register
from .surface import CudaSurface
from .watch import CudaWatch

__all__ = ["CudaGpu"]

#: Bytes of a kernel's result: two 64-bit numbers.
_RESULT_BYTES = 16


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
        self.device = CudaDevice(driver or load(), index)
        self.index = index
        self.closed = False
        #: The result's, which threads share.
        self._lock = threading.Lock()
        try:
            self._path, why = _choose(self.device, memory)
            self.memory = f"{'GPU' if self._path is Path.PEER_TO_PEER else 'host'} memory: {why}"
            major, minor = self.device.driver.version
            self.name = f"{self.device.name}, CUDA {major}.{minor}"
            self._result = DeviceMemory(self.device, _RESULT_BYTES)
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
        allocate = DeviceMemory if self._path is Path.PEER_TO_PEER else allocate_host
        memory = allocate(self.device, nbytes) if nbytes else None
        return CudaSurface(self, self.device, memory, shape, dtype, self._path)

    def register(self, array: Any) -> CudaSurface:
        """See `Gpu.register`. Waits for the work in CUDA streams that the array's library names."""
        self._require_open()
        external = describe(array)
        if not external.nbytes:
            path = Path.PEER_TO_PEER if external.on_gpu else Path.HOST_MEMORY
            return CudaSurface(self, self.device, None, external.shape, external.dtype, path)
        memory = register(self.device, external)
        if external.stream is not None:
            with self.device.current():
                self.device.driver.call(
                    "cuStreamSynchronize", external.stream, action="wait for work on an array"
                )
        return CudaSurface(self, self.device, memory, external.shape, external.dtype, memory.path)

    def synchronize(self) -> None:
        """Waits until everything that this process queued on the GPU is done, by any library."""
        with self.device.current():
            self.device.driver.call("cuCtxSynchronize", action="wait for all work on the GPU")

    # Kernels ---------------------------------------------------------------------------------

    def fill(self, surface: Surface, seed: int) -> None:
        """Writes the pattern of `seed` (see `peerdma.memory.pattern`), from its word 0 on."""
        pattern.require_seed(seed)
        at = self._address(surface)
        if surface.nbytes:
            with self.device.current():
                self.device.launch("fill", at, (surface.nbytes, SIZE), (seed, WORD))
                self.device.synchronize()

    def verify(self, surface: Surface, *, seed: int) -> None:
        """Checks the pattern of `seed` on the GPU; VerifyError names the first wrong word."""
        pattern.require_seed(seed)
        arguments = self._address(surface), (surface.nbytes, SIZE), (seed, WORD)
        first, wrong = self._run("verify", surface.nbytes, ~0, *arguments)
        if wrong:
            raise self._not_the_pattern(surface, seed, first, wrong)

    def compare(self, surface: Surface, other: Surface) -> None:
        """Checks on the GPU that `surface` equals `other`; VerifyError as `verify`."""
        self.require_comparable(surface, other)
        arguments = self._address(surface), self._address(other), (surface.nbytes, SIZE)
        first, wrong = self._run("compare", surface.nbytes, ~0, *arguments)
        if wrong:
            expected = self._word(other, first)
            raise self._wrong(surface, "The content of another surface", first, expected, wrong)

    def checksum(self, surface: Surface) -> int:
        """The surface's checksum (see `peerdma.memory.pattern`), computed on the GPU."""
        arguments = self._address(surface), (surface.nbytes, SIZE)
        return self._run("checksum", surface.nbytes, 0, *arguments)[0]

    def watch(
        self,
        surface: Surface,
        mailbox: Mailbox,
        *,
        seed: int,
        token: int = 1,
        timeout: float = 60.0,
    ) -> CudaWatch:
        """See `Gpu.watch`."""
        self.require_watchable(surface, seed, token)
        self._address(surface)
        assert isinstance(surface, CudaSurface)

        def wrong(first: int, count: int) -> Exception:
            return self._not_the_pattern(surface, seed, first, count)

        return CudaWatch(self.device, surface, mailbox, seed, token, timeout, wrong)

    def close(self) -> None:
        """Ends the allocation of surfaces; those in use stay. Closing again does nothing."""
        if not self.closed:
            self.closed = True
            del self._result
            self.device.release()

    def _run(self, kernel: str, nbytes: int, initial: int, *arguments: Any) -> tuple[int, int]:
        """Runs a kernel whose last argument is its result; returns that, two numbers."""
        result = np.array([initial & (1 << 64) - 1, 0], np.uint64)
        if nbytes:
            device, where = self.device, self._result.device_address
            with self._lock:
                device.write(where, result.ctypes.data, result.nbytes)
                with device.current():
                    device.launch(kernel, *arguments, (where, POINTER))
                device.read(where, result.ctypes.data, result.nbytes)
        return int(result[0]), int(result[1])

    def _not_the_pattern(self, surface: Surface, seed: int, first: int, wrong: int) -> Exception:
        left = surface.nbytes - first * pattern.WORD_BYTES
        expected = pattern.fill_bytes(seed, first, min(left, pattern.WORD_BYTES))
        return self._wrong(surface, f"The pattern of seed {seed}", first, expected, wrong)

    def _wrong(
        self, surface: Surface, wanted: str, first: int, expected: np.ndarray, wrong: int
    ) -> Exception:
        want, found = (
            int(pattern.as_words(word)[0]) for word in (expected, self._word(surface, first))
        )
        return wrong_word(surface, wanted, first * pattern.WORD_BYTES, want, found, wrong)

    def _word(self, surface: Surface, number: int) -> np.ndarray:
        """The bytes of a word of a surface."""
        start = number * pattern.WORD_BYTES
        data = np.empty(min(pattern.WORD_BYTES, surface.nbytes - start), np.uint8)
        surface.copy_out(start, data)
        return data

    def _address(self, surface: Surface) -> tuple[int, Any]:
        """A surface of this GPU as a kernel's argument."""
        self.require_own(surface)
        self._require_open()
        assert isinstance(surface, CudaSurface)
        surface.require_open()
        return surface.device_address, POINTER

    def _require_open(self) -> None:
        if self.closed:
            raise PeerdmaError("the GPU is closed; open another")


def _choose(device: CudaDevice, memory: str) -> tuple[Path, str]:
    """Where surfaces live, and why."""
    integrated = device.attribute("INTEGRATED")
    if memory == "device":
        if integrated:
            raise UnsupportedError(
                f"cannot use GPU memory of {device.name}: it is integrated and uses the host's "
                'memory. Give memory="host" or "auto"'
            )
        return Path.PEER_TO_PEER, "as requested"
    if memory == "host":
        return Path.HOST_MEMORY, "as requested"
    if integrated:
        return Path.HOST_MEMORY, "an integrated GPU has no other"
    reachable = device.attribute("GPU_DIRECT_RDMA_SUPPORTED") or device.attribute(
        "DMA_BUF_SUPPORTED"
    )
    if not reachable:
        return Path.HOST_MEMORY, "other devices cannot reach this GPU's own (no GPUDirect RDMA)"
    return Path.PEER_TO_PEER, "other devices can reach it (GPUDirect RDMA)"
