# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces as dma-bufs, the kernel's handles of memory that devices share."""

from __future__ import annotations

import os

from .surface import Surface

__all__ = ["DmaBuf"]


class DmaBuf:
    """A surface as a dma-buf. Use it as a context manager, or `close` it.

    Whoever imported it keeps the memory itself alive; the surface stays open until `close`, so
    that the bytes are its.

    Attributes
    ----------
    fd : int
        The file descriptor; `close` closes it, importers have their own by then.
    offset : int
        Byte of the dma-buf at which the surface starts.
    nbytes : int
        The surface's length.
    """

    def __init__(self, surface: Surface, fd: int, offset: int):
        self._surface: Surface | None = surface
        self.fd = fd
        self.offset = offset
        self.nbytes: int = surface.nbytes

    def __enter__(self) -> DmaBuf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the descriptor and releases the surface. Closing again does nothing."""
        if self._surface is not None:
            os.close(self.fd)
            self._surface.release()
            self._surface = None
