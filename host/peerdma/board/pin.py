# SPDX-License-Identifier: BSD-2-Clause
"""Pinned memory, which a board can access, and ranges of its bytes."""

from __future__ import annotations

import weakref
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import PinError
from ..memory.memory import DataPath, Memory, Staged
from ..memory.origin import Origin
from ..process import OneProcess
from ..uapi import Access
from .backend import Pinned

__all__ = ["READ_WRITE", "Pin", "Side", "Span", "Table"]


#: What a board may do with memory that is not read-only.
READ_WRITE = Access.READ | Access.WRITE


class Table(Protocol):
    """What a pin needs of the board's table of pins."""

    def unpin(self, pin: Pin) -> None:
        """See `Pin.close`."""
        ...


class Pin(OneProcess):
    """Memory pinned for one board. Use it as a context manager, or `close` it.

    Not to be built directly: use `Board.pin`. ``pin[start:stop]`` is the `Span` of those bytes. A
    pin that nobody has any more, nor a span, plan or job of it, closes by itself at the next call.

    Attributes
    ----------
    memory : Memory
        What was pinned.
    nbytes : int
    path : DataPath
        The path of the bytes between the memory and the board.
    access : Access
        What the board may do with the memory.
    provider : str
        Behind the kernel driver, which of its providers pinned it: ``"dmabuf"``, ``"nvp2p"``,
        ``"pages"``; with the reason if GPU memory was not pinned as a dma-buf.
    """

    def __init__(
        self,
        memory: Memory,
        handle: Pinned,
        access: Access,
        table: Table,
    ):
        self.memory = memory
        #: tells whether the array that was pinned has moved; None if it cannot move
        self.origin: Origin | None = getattr(memory, "origin", None)
        self.access = access
        self.nbytes: int = memory.nbytes
        self.path: DataPath = handle.path
        self.provider: str = handle.provider
        #: The backend's handle, from the first to the last; and None once closed.
        self.held: Pinned = handle
        self.handle: Pinned | None = handle
        #: what it is a pin of, and the table's own note of it
        self.table: Table = table
        self.entry: weakref.ref[Pin] | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else str(self.path)
        return f"<Pin {self.nbytes} bytes of {self.memory!r}, {state}>"

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, key: slice) -> Span:
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise TypeError(f"a pin is indexed with a range of bytes, pin[start:stop], not {key!r}")
        start, stop, _ = key.indices(self.nbytes)
        return Span(self, start, max(start, stop))

    @property
    def closed(self) -> bool:
        """True once the board cannot access the memory through this pin any more."""
        return self.handle is None

    def close(self) -> None:
        """Unpins; the board does not access the memory after this. Closing again does nothing.

        Waits for the jobs that use the pin. To end them early, cancel them before.
        """
        if not self.closed:
            self.table.unpin(self)

    def require_open(self) -> None:
        """PinError if the pin is closed."""
        if self.handle is None:
            raise PinError(
                f"cannot transfer {self.nbytes} bytes at {self.memory.address:#x}: their pin is "
                "closed; pin the memory on this board with board.pin(...)"
            )

    def require_unmoved(self) -> None:
        """PinError if the array that was pinned is not where it was."""
        if self.origin is not None:
            self.origin.require_unmoved()


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `stop` of a pin."""

    pin: Pin
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.stop - self.start

    @property
    def address(self) -> int:
        """Virtual address of the first byte."""
        return self.pin.memory.address + self.start

    def crc(self) -> int | None:
        """CRC-32 of the bytes, that of `zlib.crc32`; None where the CPU cannot read them itself."""
        found, at = 0, 0
        for extent in self.pin.memory.extents():
            piece, first = extent.memory, at
            if isinstance(piece, Staged):
                return None
            at += len(piece)
            found = zlib.crc32(piece[max(0, self.start - first) : max(0, self.stop - first)], found)
        return found


#: What a transfer takes as its source or destination: pins, spans, and arrays of any library. A
#: sequence of these is one memory, piece after piece.
Side = Any
