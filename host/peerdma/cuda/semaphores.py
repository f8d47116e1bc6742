# SPDX-License-Identifier: BSD-2-Clause
"""Semaphores of the C library, which CUDA's own threads post: no Python runs in these."""

from __future__ import annotations

import ctypes
import functools
import time
from typing import Any

__all__ = ["Semaphores", "post_function"]

_BYTES = 64  # sizeof(sem_t) is 32 in glibc


class _Time(ctypes.Structure):
    """struct timespec"""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@functools.cache
def _c() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    for name in ("sem_post", "sem_trywait"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.sem_timedwait.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Time)]
    library.sem_getvalue.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    library.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    return library


def post_function() -> int | None:
    """Address of the C function that posts a semaphore: its argument is that one's address."""
    return ctypes.cast(_c().sem_post, ctypes.c_void_p).value


class Semaphores:
    """So many semaphores, all 0. They are named by their addresses, ``semaphores[number]``."""

    def __init__(self, count: int):
        self._memory = (ctypes.c_uint64 * (count * _BYTES // 8))()
        self._base = ctypes.addressof(self._memory)
        for number in range(count):
            _c().sem_init(self[number], 0, 0)

    def __getitem__(self, number: int) -> int:
        return self._base + number * _BYTES

    @staticmethod
    def post(semaphore: int) -> None:
        """Adds 1."""
        _c().sem_post(semaphore)

    @staticmethod
    def take(semaphore: int) -> bool:
        """Takes 1 off; False if it is 0."""
        return not _c().sem_trywait(semaphore)

    @staticmethod
    def wait(semaphore: int, seconds: float) -> None:
        """As `take`, but waits for so long at most."""
        until = time.time() + seconds
        limit = _Time(int(until), int(until % 1 * 1e9))
        _c().sem_timedwait(semaphore, ctypes.byref(limit))

    @staticmethod
    def value(semaphore: int) -> int:
        """What it is at."""
        count = ctypes.c_int()
        _c().sem_getvalue(semaphore, ctypes.byref(count))
        return count.value
