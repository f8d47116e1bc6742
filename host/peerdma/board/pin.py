# SPDX-License-Identifier: BSD-2-Clause
"""Pinned memory, which a board can access, ranges of its bytes, and a board's table of pins.

The table pins memory, and unpins it when nothing uses the pin any more.
"""

from __future__ import annotations

import contextlib
import errno
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..errors import CudaError, PeerdmaError, PinError, ProtocolError
from ..memory.external import Origin
from ..memory.memory import DataPath, Memory, Staged
from ..process import OneProcess, keep
from ..uapi import Access
from ..waiting import OwnLock
from .backend import Backend, Pinned

__all__ = [
    "CLOSED",
    "READ_WRITE",
    "Pin",
    "PinTable",
    "Side",
    "Span",
    "Spare",
    "User",
    "allowed",
    "read_only",
]

_T = TypeVar("_T")
CLOSED = "the board is closed; open it again"
#: What the system says where a limit is reached: of locked memory, of the driver's for one user, of
#: a GPU's BAR1 (which drivers report by one or another), of what an IOMMU maps.
_FULL = {
    errno.ENOMEM,
    errno.EDQUOT,
    errno.ENOSPC,
    errno.ENOBUFS,
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
}
#: What CUDA says where a GPU's BAR1 has no more room.
_FULL_IN_CUDA = {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_MAP_FAILED"}
#: What a board may do with memory that is not read-only.
READ_WRITE = Access.READ | Access.WRITE
#: What a transfer takes as its source or destination: pins, spans, and arrays of any library. A
#: sequence of these is one memory, piece after piece.
Side = Any


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
        ``"pages"``; with the reason if GPU memory was not pinned as a dma-buf. On a simulated
        board, why that does not reach a GPU's memory by itself; empty if it does.
    """

    def __init__(
        self,
        memory: Memory,
        handle: Pinned,
        access: Access,
        table: PinTable,
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
        self.table: PinTable = table
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


def read_only(action: str, nbytes: int, address: int) -> PinError:
    """The error for a destination that is read-only."""
    return PinError(
        f"cannot {action} {nbytes} bytes at {address:#x} as a destination: that memory is "
        "read-only; nothing was transferred. Use a writable array as the destination, for example "
        "target = numpy.empty_like(array), and use target afterwards: the read-only one never "
        "changes"
    )


def allowed(memory: Memory) -> Access:
    """What a board may do with memory, at most."""
    return Access.READ if memory.readonly else READ_WRITE


def _wants_room(error: PeerdmaError) -> bool:
    """Whether memory was refused for lack of room, and not for what it is."""
    if isinstance(error, CudaError):
        return error.name in _FULL_IN_CUDA
    return isinstance(error, (PinError, ProtocolError)) and error.errno in _FULL


class User(Protocol):
    """What may have the board use pins."""

    def settle(self, pin: Pin) -> None:
        """Waits until the board does not use a pin any more; the lock is held."""
        ...


class Spare(Protocol):
    """What has pins that nobody uses."""

    def make_room(self, nbytes: int) -> bool:
        """Unpins such memory, so many bytes if there are so many; whether there was any."""
        ...


class _Entry(weakref.ref[Pin]):
    """What is pinned, until that is undone; a weak reference to its pin.

    Whoever pins memory may be interrupted before he has the pin. So a pin that nobody has is undone
    at the next entry.
    """

    __slots__ = ("handle", "memory", "undone")

    memory: Memory
    handle: Pinned
    #: what was done of undoing it
    undone: list[None]


class PinTable:
    """The pins of a board that are open. All is called with the board's lock held.

    Parameters
    ----------
    backend : Backend
    lock : OwnLock
        The board's.

    Attributes
    ----------
    users : sequence of User
    spare : Spare or None
    closed : bool
        Whether the board is.
    dropped : deque
        Not empty if there is something to `reap`.
    """

    def __init__(self, backend: Backend, lock: OwnLock):
        self._backend = backend
        self._lock = lock
        self._entries: dict[int, _Entry] = {}
        self.users: Sequence[User] = ()
        self.spare: Spare | None = None
        self.closed: bool = False
        #: Of pins that nobody has any more. Garbage collection appends to it, at any time.
        self.dropped: deque[weakref.ref[Pin]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Pin]:
        pins = [entry() for entry in self._entries.values()]
        return iter([pin for pin in pins if pin is not None])

    def require_open(self) -> None:
        """PeerdmaError if the board is closed."""
        if self.closed:
            raise PeerdmaError(CLOSED)

    def pin(self, memory: Memory, access: Access | None = None) -> Pin:
        """Pins memory, by default for all that it allows."""
        self.require_open()
        self.reap()
        access = access or allowed(memory)
        acquired: list[None] = []
        handles: list[Pinned] = []
        try:
            keep(acquired, memory.acquire)
            self.with_room(lambda: keep(handles, self._backend.pin, memory, access), memory.nbytes)
            (handle,) = handles
            pin = Pin(memory, handle, access, self)
            pin.entry = entry = _Entry(pin, self.dropped.append)
            entry.memory, entry.handle, entry.undone = memory, handle, []
            # From here on it is undone as soon as nobody has the pin.
            key = id(entry)
            self._entries[key] = entry
        except BaseException:
            for handle in handles:
                self._backend.unpin(handle)
            if acquired:
                memory.release()
            raise
        return pin

    def with_room(self, call: Callable[[], _T], nbytes: int) -> _T:
        """Calls what pins so many bytes, again while a limit refuses them and there is room."""
        while True:
            try:
                return call()
            except PeerdmaError as error:
                spare = self.spare
                if not _wants_room(error) or spare is None or not spare.make_room(nbytes):
                    raise

    def reap(self) -> None:
        """Undoes the pins that nobody has any more."""
        while self.dropped:
            entry = self._entries.get(id(self.dropped[0]))
            # Nobody waits for an error.
            with contextlib.suppress(PeerdmaError):
                if entry is not None:
                    self._undo(entry)
            self.dropped.popleft()

    def unpin(self, pin: Pin) -> None:
        """See `Pin.close`; called without the lock."""
        if self._lock.foreign:
            return
        with self._lock:
            if pin.closed:
                return
            pin.handle = None  # no job can start with it from here on
            try:
                for user in self.users:
                    user.settle(pin)
            except BaseException:
                pin.handle = pin.held
                raise
            self.unpin_now(pin)

    def unpin_now(self, pin: Pin) -> None:
        """Undoes `pin`, if the board is open; no job uses the pin."""
        pin.handle = None
        entry = self._entries.get(id(pin.entry))
        if entry is None:
            return
        try:
            self._undo(entry)
        except PeerdmaError:
            raise
        except BaseException:
            # An interrupt. What is done is not done again.
            with contextlib.suppress(PeerdmaError):
                self._undo(entry)
            raise

    def _undo(self, entry: _Entry) -> None:
        failure = None
        if not entry.undone:
            try:
                keep(entry.undone, self._backend.unpin, entry.handle)
            except PeerdmaError as error:
                entry.undone.append(None)
                failure = error
        if len(entry.undone) == 1:
            keep(entry.undone, entry.memory.release)
        self._entries.pop(id(entry), None)
        pin = entry()
        if pin is not None:
            # Without that, it would be among those of `dropped` later, and hold the memory.
            pin.entry = None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Releases all memory: the board is closed, and has unpinned it."""
        for entry in self._entries.values():
            pin = entry()
            if pin is not None:
                pin.handle = None
            if len(entry.undone) < 2:
                keep(entry.undone, entry.memory.release)
        self._entries.clear()
        self.dropped.clear()
