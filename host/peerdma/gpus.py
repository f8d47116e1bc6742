# SPDX-License-Identifier: BSD-2-Clause
"""Which GPU to use.

Each kind of GPU is imported where it is taken: a program with a CUDA GPU never loads the emulated
one.
"""

from __future__ import annotations

import logging
import operator
import os
import warnings
from pathlib import Path
from typing import SupportsIndex

from .arguments import wrong_type
from .errors import GpuNotFound
from .memory.surface import Gpu

__all__ = ["gpu"]

_log = logging.getLogger(__name__)
_WANTED = "a GPU is a number, or one of auto, emulated, cuda, cuda:N"
_MEMORY = ("auto", "device", "host")
#: Where the kernel shows the PCI devices, and the processor's names on an Arm machine.
_PCI, _COMPATIBLE = Path("/sys/bus/pci/devices"), Path("/proc/device-tree/compatible")
#: Vendor of NVIDIA's devices, and what a display controller's class begins with.
_NVIDIA, _DISPLAY = "0x10de", "0x03"


def gpu(kind: str | SupportsIndex = "auto", *, memory: str = "auto") -> Gpu:
    """A GPU.

    Parameters
    ----------
    kind : "auto", "emulated", "cuda", "cuda:N" or N
        "auto" is the first CUDA GPU, or the emulated GPU if there is none: `Gpu.name`,
        `Gpu.emulated` and `Gpu.memory` say what it is and why. Where there is an NVIDIA GPU that
        CUDA cannot use, a RuntimeWarning says so, too. "cuda:1" or 1 is the second.
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
    gpu = _gpu(kind, memory)
    _log.info("using %s: %s", gpu.name, gpu.memory)
    return gpu


def _gpu(kind: str, memory: str) -> Gpu:
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
        if _nvidia_gpu():
            text = (
                f"the emulated GPU is used, though this machine has an NVIDIA GPU: {error}. "
                'gpu("emulated") uses it without this warning'
            )
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        return gpu


def _nvidia_gpu() -> bool:
    """Whether the kernel shows an NVIDIA GPU, with a driver or without."""
    try:
        if b"nvidia,tegra" in _COMPATIBLE.read_bytes():
            return True
    except OSError:
        pass
    return any(map(_is_nvidia_gpu, _PCI.glob("*")))


def _is_nvidia_gpu(device: Path) -> bool:
    """By class as well: a board may have NVIDIA's vendor number."""
    try:
        vendor, kind = ((device / name).read_text() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)


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
