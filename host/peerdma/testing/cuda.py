# SPDX-License-Identifier: BSD-2-Clause
"""The tests of transfers for CUDA GPUs: `kernels.cu`, compiled on first use."""

from __future__ import annotations

import threading
from importlib import resources
from typing import Any, cast

import numpy as np

from ..cuda.device import CudaDevice
from ..cuda.memory import DeviceMemory
from ..cuda.program import POINTER, SIZE, WORD, Program
from ..cuda.surface import CudaSurface
from ..memory.mailbox import Mailbox
from ..memory.surface import Surface
from .cuda_watch import CudaWatch
from .kernels import Kernels, not_the_pattern

__all__ = ["SOURCE", "CudaKernels", "source"]

#: Name of the file with the kernels.
SOURCE = "kernels.cu"
#: Bytes of a kernel's result: two 64-bit numbers.
_RESULT_BYTES = 16


def source() -> str:
    """The kernels as CUDA C++."""
    return resources.files("peerdma.testing").joinpath(SOURCE).read_text()


class CudaKernels(Kernels):
    """See `Kernels`.

    Raises
    ------
    GpuNotFound, CudaError
        If the kernels cannot be compiled or loaded, see `Program`.
    """

    def __init__(self, device: CudaDevice):
        self._device = device
        self._program = Program(device, SOURCE, source())
        self._result = DeviceMemory(device, _RESULT_BYTES)
        #: The result's, which threads share.
        self._lock = threading.Lock()

    def _fill(self, surface: Surface, seed: int) -> None:
        with self._device.current():
            self._program.launch("fill", *_whole(surface), (seed, WORD))
            self._device.synchronize()

    def _verify(self, surface: Surface, seed: int) -> tuple[int, int]:
        return self._run("verify", ~0, *_whole(surface), (seed, WORD))

    def _compare(self, surface: Surface, other: Surface) -> tuple[int, int]:
        at, size = _whole(surface)
        return self._run("compare", ~0, at, _whole(other)[0], size)

    def _checksum(self, surface: Surface) -> int:
        return self._run("checksum", 0, *_whole(surface))[0]

    def _watch(
        self, surface: Surface, mailbox: Mailbox, seed: int, token: int, timeout: float
    ) -> CudaWatch:
        def wrong(first: int, count: int) -> Exception:
            return not_the_pattern(surface, seed, first, count)

        own = cast(CudaSurface, surface)
        return CudaWatch(self._device, self._program, own, mailbox, seed, token, timeout, wrong)

    def _run(self, kernel: str, initial: int, *arguments: tuple[Any, Any]) -> tuple[int, int]:
        """Runs a kernel whose last argument is its result; returns that, two numbers."""
        result = np.array([initial & (1 << 64) - 1, 0], np.uint64)
        device, where = self._device, self._result.device_address
        with self._lock:
            device.write(where, result.ctypes.data, result.nbytes)
            with device.current():
                self._program.launch(kernel, *arguments, (where, POINTER))
            device.read(where, result.ctypes.data, result.nbytes)
        return int(result[0]), int(result[1])


def _whole(surface: Surface) -> tuple[tuple[int, Any], tuple[int, Any]]:
    """A surface as two arguments of a kernel."""
    return (cast(CudaSurface, surface).device_address, POINTER), (surface.nbytes, SIZE)
