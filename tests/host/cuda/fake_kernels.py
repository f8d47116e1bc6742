# SPDX-License-Identifier: BSD-2-Clause
"""Kernels of the stand-in for CUDA that are the library's own, compiled as C++."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import peerdma

__all__ = ["lane"]

_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")


@functools.cache
def _lane():
    from peerdma.cuda.lane import source

    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "lane.so")
        command = ["g++", *_FLAGS, "-o", str(library), "-x", "c++", "-"]
        subprocess.run(command, input=source(), text=True, check=True)
        kernel = ctypes.CDLL(str(library)).peerdma_lane
    word = ctypes.c_uint
    kernel.argtypes = [peerdma.DeviceQueue, word, word, ctypes.c_ulonglong, ctypes.c_void_p]
    kernel.restype = None
    return kernel


def lane(*arguments) -> None:
    """The kernel of host/peerdma/cuda/lane.cu, by this thread."""
    _lane()(*arguments)
