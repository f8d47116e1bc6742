# SPDX-License-Identifier: BSD-2-Clause
"""Memory whose pages are scattered in bus address space but contiguous to the program.

An `Aperture` is a window of bus addresses backed by a memfd: bus address minus `base` is the
offset in the file. Allocations get their pages in a shuffled order, as a GPU's or an operating
system's allocator would hand them out, and are mapped side by side.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import PeerdmaError
from ..memory.memory import Extent
from ..memory.scatter import ScatterList
from ..process import own
from ..waiting import OwnLock

__all__ = ["Aperture", "Mapping"]

_PROT_NONE = 0
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MADV_REMOVE = 9
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Mapping:
    """Pieces of a file, mapped side by side; unmapped when the last array over it is gone.

    Use ``numpy.asarray(mapping)``: a writable uint8 array that keeps the mapping alive.

    Parameters
    ----------
    fd : int
        The file; it may be closed once the mapping is made.
    pieces : ScatterList
        Offsets and lengths in the file, multiples of the page size; at least one.
    released : callable
        Called once, without arguments, after the memory has been unmapped.
    """

    def __init__(self, fd: int, pieces: ScatterList, released: Callable[[], object]):
        size = pieces.nbytes
        self._base = _mmap(
            None, size, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1
        )
        place = self._base
        try:
            for offset, length in zip(
                pieces.addresses.tolist(), pieces.lengths.tolist(), strict=True
            ):
                rights = mmap.PROT_READ | mmap.PROT_WRITE
                _mmap(place, length, rights, mmap.MAP_SHARED | _MAP_FIXED, fd, offset)
                place += length
        except BaseException:
            _libc.munmap(self._base, size)
            raise
        self.__array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self._base, False),
            "version": 3,
        }
        # Not at exit: arrays may still be in use by then, and the kernel cleans up anyway.
        # Not in a child: the pages are the parent's, and the child's own end unmaps them there.
        weakref.finalize(self, own(_unmap), self._base, size, released).atexit = False


def _mmap(address: int | None, length: int, rights: int, flags: int, fd: int, offset: int = 0):
    result = _libc.mmap(address, length, rights, flags, fd, offset)
    if result == _MAP_FAILED:
        number = ctypes.get_errno()
        raise PeerdmaError(
            f"cannot map {length} bytes of emulated GPU memory: {os.strerror(number)}. Use "
            "smaller surfaces, or raise the limit on mappings (sysctl vm.max_map_count)",
            errno=number,
        )
    return result


def _unmap(base: int, size: int, released: Callable[[], object]) -> None:
    _libc.madvise(base, size, _MADV_REMOVE)
    _libc.munmap(base, size)
    released()


class Aperture:
    """A window of bus addresses with memory behind it.

    Parameters
    ----------
    base : int
        Bus address of the window.
    size : int
        Bytes; the system allocates pages only when they are written.
    page_bytes : int
        Granularity of allocation.
    longest_run : int
        Pages are shuffled in runs of 1 to this many.
    seed : int
        Of the shuffle.
    """

    def __init__(self, base: int, size: int, page_bytes: int, longest_run: int, seed: int):
        self.base = base
        self.size = size
        self.page_bytes = page_bytes
        pages = size // page_bytes
        self._order = _shuffled_runs(pages, longest_run, np.random.default_rng(seed))
        self._free = [(0, pages)]
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = OwnLock("GPU")
        self._fd: int | None = os.memfd_create("peerdma-aperture", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, size)
        self._closer = weakref.finalize(self, os.close, self._fd)
        self._closer.atexit = False

    @property
    def closed(self) -> bool:
        """Whether it was closed: nothing can be allocated or pinned any more."""
        return self._fd is None

    def allocate(self, nbytes: int) -> tuple[ScatterList, Mapping]:
        """Memory of at least `nbytes`, zeroed: (its bus addresses, its mapping).

        Raises
        ------
        PeerdmaError
            If there is not enough left, or the system refuses the mapping.
        """
        count = -(-nbytes // self.page_bytes)
        start = self._take(count)

        def released():
            self._returned.append((start, count))

        try:
            offsets = self._order[start : start + count] * np.uint64(self.page_bytes)
            pieces = ScatterList(offsets, np.full(count, self.page_bytes, np.uint64))
            mapping = Mapping(self._require_fd(), pieces, released)
        except BaseException:
            released()
            raise
        return ScatterList(pieces.addresses + np.uint64(self.base), pieces.lengths), mapping

    def extents(self, place: ScatterList, data: np.ndarray) -> list[Extent]:
        """The pieces at `place`, whose bytes are the uint8 array `data`, for a platform to map."""
        fd = self._require_fd()
        whole = data.data
        extents, start = [], 0
        for address, length in zip(place.addresses.tolist(), place.lengths.tolist(), strict=True):
            piece = whole[start : start + length]
            extents.append(Extent(piece, address, fd, address - self.base))
            start += length
        return extents

    def close(self) -> None:
        """Closes the file; memory in use stays until it is released."""
        self._fd = None
        self._closer()

    def _require_fd(self) -> int:
        if self._fd is None:
            raise PeerdmaError("the emulated GPU is closed; open another")
        return self._fd

    def _take(self, count: int) -> int:
        with self._lock:
            while self._returned:
                self._free.append(self._returned.popleft())
            self._free = _merged(self._free)
            for index, (start, length) in enumerate(self._free):
                if length >= count:
                    self._free[index] = (start + count, length - count)
                    return start
            largest = max((length for _, length in self._free), default=0) * self.page_bytes
        raise PeerdmaError(
            f"cannot allocate {count * self.page_bytes} bytes of emulated GPU memory: the largest "
            f"free piece has {largest} of {self.size}; close surfaces or use smaller ones"
        )


def _shuffled_runs(pages: int, longest: int, random: np.random.Generator) -> np.ndarray:
    """The page numbers 0 to pages - 1 in runs of 1 to `longest`, the runs shuffled."""
    lengths = random.integers(1, longest + 1, size=pages)
    starts = np.cumsum(lengths) - lengths
    used = starts < pages
    starts, lengths = starts[used], lengths[used]
    lengths[-1] = pages - starts[-1]
    shuffle = random.permutation(len(starts))
    starts, lengths = starts[shuffle], lengths[shuffle]
    within = np.arange(pages) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (np.repeat(starts, lengths) + within).astype(np.uint64)


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if result and sum(result[-1]) == start:
            result[-1] = (result[-1][0], result[-1][1] + length)
        elif length:
            result.append((start, length))
    return result
