# SPDX-License-Identifier: BSD-2-Clause
"""dma-bufs, the kernel's handles of memory that devices share: exported, and of other drivers."""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from typing import Any

import numpy as np

from ..arguments import integer
from ..errors import PinError, UnsupportedError
from ..process import OneProcess, here
from .memory import DataPath, Extent, Holder, Memory

__all__ = ["DmaBuf", "DmaBufExport"]


class DmaBuf(OneProcess):
    """Memory of any driver, given by the descriptor of a dma-buf: a GPU's of any maker, a camera's.

    Boards take it wherever they take an array. It has a descriptor of its own and can be used after
    the given one is closed. Use it as a context manager, or `close` it.

    Parameters
    ----------
    fd : int, or an object with fileno()
    nbytes : int, optional
        By default all of it from `offset` on.
    offset : int
        Its first byte in the dma-buf.
    readonly : bool
        Whether it is a source of transfers only.

    Raises
    ------
    PinError
        If the descriptor has no such bytes.
    """

    path = DataPath.HOST_MEMORY
    on_gpu = False

    def __init__(
        self, fd: Any, nbytes: int | None = None, offset: int = 0, *, readonly: bool = False
    ):
        number = fd.fileno() if hasattr(fd, "fileno") else integer(fd, "a dma-buf's descriptor")
        self.closed: bool = False
        self._process = here()
        try:
            size = os.lseek(number, 0, os.SEEK_END)
        except OSError as error:
            raise PinError(
                f"cannot use descriptor {number} as a dma-buf: {error.strerror}. Give the one that "
                "its driver exported, still open",
                errno=error.errno,
            ) from None
        offset = integer(offset, "an offset in a dma-buf")
        nbytes = size - offset if nbytes is None else integer(nbytes, "the length of a dma-buf")
        if not 0 <= offset <= offset + nbytes <= size:
            raise PinError(
                f"cannot use {nbytes} bytes from byte {offset} of a dma-buf of {size} bytes; give "
                "a range inside it"
            )
        self.fd: int = os.dup(number)
        self.offset: int = offset
        self.nbytes: int = nbytes
        self.readonly = readonly
        #: Above all virtual addresses: the dma-buf's number, and the byte in it. Ranges of one
        #: dma-buf overlap by these numbers exactly where their bytes do.
        self.address: int = os.fstat(self.fd).st_ino + 1 << 64 | offset
        self._users = 0
        #: see `Surface`
        self.holders: weakref.WeakSet[Holder] = weakref.WeakSet()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"from byte {self.offset}"
        return f"<DmaBuf {self.nbytes} bytes, {state}>"

    def __enter__(self) -> DmaBuf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its descriptor; PinError while it is pinned. Closing again does nothing."""
        if self._process != here():
            self._users = 0  # of the parent's boards
        if self._users:
            for holder in list(self.holders):
                holder.reap()
        if self._users:
            raise PinError(
                f"cannot close a dma-buf that is pinned {self._users} times; close the pins first"
            )
        if not self.closed:
            self.closed = True
            os.close(self.fd)

    def __del__(self) -> None:
        if not getattr(self, "closed", True) and hasattr(self, "_users"):
            self.closed = True
            os.close(self.fd)

    def dmabuf(self) -> contextlib.AbstractContextManager[DmaBuf]:
        """See `peerdma.memory.memory.DmaBufMemory`."""
        return contextlib.nullcontext(self)

    def extents(self) -> list[Extent]:
        """The memory as the CPU sees it, for boards without a kernel driver.

        Raises
        ------
        UnsupportedError
            If the CPU cannot map it.
        """
        skip = self.offset % mmap.PAGESIZE
        rights = mmap.PROT_READ if self.readonly else mmap.PROT_READ | mmap.PROT_WRITE
        if not self.nbytes:
            return []
        try:
            pages = mmap.mmap(self.fd, skip + self.nbytes, prot=rights, offset=self.offset - skip)
        except OSError as error:
            raise UnsupportedError(
                f"cannot map {self!r} for the CPU: {error.strerror}. This board has no kernel "
                "driver, and so reaches no other memory of devices",
                errno=error.errno,
            ) from None
        return [Extent(np.frombuffer(pages, np.uint8, self.nbytes, skip).data)]

    def acquire(self) -> None:
        """Adds a user; PinError if it is closed."""
        if self.closed:
            raise PinError("the dma-buf is closed; make another from its driver's descriptor")
        self._users += 1

    def release(self) -> None:
        """Undoes one `acquire`."""
        self._users -= 1

    def flush_writes(self) -> None:
        """Nothing to do: the exporter's driver orders devices' writes."""


class DmaBufExport:
    """Memory of this process as a dma-buf. Use it as a context manager, or `close` it.

    Whoever imported it keeps the memory itself alive; its owner stays open until `close`, so
    that the bytes are its.

    Attributes
    ----------
    fd : int
        The file descriptor; `close` closes it, importers have their own by then.
    offset : int
        Byte of the dma-buf at which the memory starts.
    nbytes : int
        The memory's length.
    """

    def __init__(self, memory: Memory, fd: int, offset: int):
        self._memory: Memory | None = memory
        self.fd = fd
        self.offset = offset
        self.nbytes: int = memory.nbytes

    def __enter__(self) -> DmaBufExport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the descriptor and releases the memory. Closing again does nothing."""
        if self._memory is not None:
            os.close(self.fd)
            self._memory.release()
            self._memory = None
