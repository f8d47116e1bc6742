# SPDX-License-Identifier: BSD-2-Clause
"""Kernels of the stand-in for CUDA that are the library's own, compiled as C++."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import peerdma

__all__ = ["stream_queue"]

_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")


@functools.cache
def _lane():
    from peerdma.cuda.stream_queue import source

    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "stream_queue.so")
        command = ["g++", *_FLAGS, "-o", str(library), "-x", "c++", "-"]
        subprocess.run(command, input=source(), text=True, check=True)
        kernel = ctypes.CDLL(str(library)).peerdma_stream_queue
    word = ctypes.c_uint
    kernel.argtypes = [peerdma.DeviceQueue, word, word, ctypes.c_ulonglong, ctypes.c_void_p]
    kernel.restype = None
    return kernel


def stream_queue(*arguments) -> None:
    """The kernel of host/peerdma/cuda/stream_queue.cu, by this thread."""
    _lane()(*arguments)
