# SPDX-License-Identifier: BSD-2-Clause
"""Pins memory for a board, and unpins it when nothing uses the pin any more."""

from __future__ import annotations

import contextlib
import errno
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from ..errors import CudaError, PeerdmaError, PinError, ProtocolError
from ..memory.memory import Memory
from ..process import OwnLock, keep
from ..uapi import Access
from .backend import Backend, Pinned
from .pin import READ_WRITE, Pin

__all__ = ["CLOSED", "PinTable", "Spare", "User", "allowed"]

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
