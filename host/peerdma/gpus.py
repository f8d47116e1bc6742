# SPDX-License-Identifier: BSD-2-Clause
"""Which GPU to use.

Each kind of GPU is imported where it is taken: a program with a CUDA GPU never loads the emulated
one.
"""

from __future__ import annotations

import operator
import os
from typing import SupportsIndex

from .arguments import wrong_type
from .errors import GpuNotFound
from .memory.surface import Gpu

__all__ = ["gpu"]

_WANTED = "a GPU is a number, or one of auto, emulated, cuda, cuda:N"
_MEMORY = ("auto", "device", "host")


def gpu(kind: str | SupportsIndex = "auto", *, memory: str = "auto") -> Gpu:
    """A GPU.

    Parameters
    ----------
    kind : "auto", "emulated", "cuda", "cuda:N" or N
        "auto" is the first CUDA GPU, or the emulated GPU if there is none: `Gpu.name`,
        `Gpu.emulated` and `Gpu.memory` say what it is and why. "cuda:1" or 1 is the second.
    memory : "auto", "device" or "host"
        Where surfaces live: in the GPU's own memory, reached peer-to-peer, or in memory of the
        host, as an integrated GPU has them. "auto" is the GPU's own where boards can reach it.

    Raises
    ------
    GpuNotFound
        If there is no such CUDA GPU, or something is not installed.
    UnsupportedError
        If the GPU has no memory of the kind.
    """
    if memory not in _MEMORY:
        raise ValueError(f"memory is one of {', '.join(_MEMORY)}, not {memory!r}")
    if not isinstance(kind, (str, SupportsIndex)):
        raise wrong_type(_WANTED, kind)
    if not isinstance(kind, str):
        kind = f"cuda:{operator.index(kind)}"
    name, _, index = kind.partition(":")
    if name == "cuda" and (index.isdecimal() or kind == "cuda"):
        return _cuda(int(index or 0), memory)
    if kind == "emulated":
        return _emulated(memory)
    if kind != "auto":
        raise ValueError(f"{_WANTED}, not {kind!r}")
    try:
        return _cuda(0, memory)
    except GpuNotFound as error:
        gpu = _emulated(memory)
        gpu.memory += f"; no CUDA: {error.found}"
        return gpu


def _cuda(index: int, memory: str) -> Gpu:
    from .cuda.gpu import CudaGpu

    return CudaGpu(index, memory)


def _emulated(memory: str) -> Gpu:
    """Of the CPU and shared memory, or with a device's memory where there is such a device."""
    from .emulated.gpu import DISCRETE, INTEGRATED, EmulatedGpu
    from .emulated.simulated_gpu import NODE, SimulatedGpu

    if memory != "host" and os.path.exists(NODE):
        return SimulatedGpu()
    return EmulatedGpu(INTEGRATED if memory == "host" else DISCRETE)
