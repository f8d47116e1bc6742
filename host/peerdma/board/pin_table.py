# SPDX-License-Identifier: BSD-2-Clause
"""Pins memory for a board, and unpins it when nothing uses the pin any more."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TypeVar

from ..errors import CudaError, PeerdmaError, PinError, ProtocolError
from ..memory.memory import Memory
from ..process import OwnLock, keep
from ..uapi import Access
from .backend import Backend, Pinned
from .pin import Pin
from .spans import READ_WRITE

__all__ = ["PinTable", "allowed"]

_T = TypeVar("_T")
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


class PinTable:
    """Makes the pins of a board.

    Parameters
    ----------
    backend : Backend
    lock : OwnLock
        The board's.
    pins : set of Pin
        Those that are open.
    require_open : callable
        Raises if the board is closed.
    settle : callable
        Waits until the board does not use a pin any more; called with the lock held.

    Attributes
    ----------
    make_room : callable
        Unpins memory that nobody uses, so many bytes if there are so many; whether there was any.
    """

    def __init__(
        self,
        backend: Backend,
        lock: OwnLock,
        pins: set[Pin],
        require_open: Callable[[], None],
        settle: Callable[[Pin], None],
    ):
        self._backend = backend
        self._lock = lock
        self._pins = pins
        self._require_open = require_open
        self._settle = settle
        self.make_room: Callable[[int], bool] = lambda nbytes: False

    def pin(self, memory: Memory, access: Access | None = None) -> Pin:
        """Pins memory, by default for all that it allows; the lock is held."""
        self._require_open()
        access = access or allowed(memory)
        acquired: list[None] = []
        handles: list[Pinned] = []
        try:
            keep(acquired, memory.acquire)
            self.with_room(lambda: keep(handles, self._backend.pin, memory, access), memory.nbytes)
            (handle,) = handles
            pin = Pin(memory, handle, access, self._unpin)
        except BaseException:
            for handle in handles:
                self._backend.unpin(handle)
            if acquired:
                memory.release()
            raise
        self._pins.add(pin)
        return pin

    def with_room(self, call: Callable[[], _T], nbytes: int) -> _T:
        """Calls what pins so many bytes; again as long as a limit refuses them and there is room.

        The lock is held.
        """
        while True:
            try:
                return call()
            except PeerdmaError as error:
                if not _wants_room(error) or not self.make_room(nbytes):
                    raise

    def _unpin(self, pin: Pin) -> None:
        if self._lock.foreign:
            return
        with self._lock:
            if pin not in self._pins:
                return
            pin.handle = None  # no job can start with it from here on
            try:
                self._settle(pin)
            except BaseException:
                pin.handle = pin.held
                raise
            self.unpin_now(pin)

    def unpin_now(self, pin: Pin) -> None:
        """Undoes `pin`, if the board is open; no job uses the pin, and the lock is held."""
        if pin not in self._pins:
            return
        try:
            self._undo(pin)
        except PeerdmaError:
            raise
        except BaseException:
            # An interrupt. What is done is not done again.
            with contextlib.suppress(PeerdmaError):
                self._undo(pin)
            raise

    def _undo(self, pin: Pin) -> None:
        pin.handle, failure = None, None
        if not pin.undone:
            try:
                keep(pin.undone, self._backend.unpin, pin.held)
            except PeerdmaError as error:
                pin.undone.append(None)
                failure = error
        if len(pin.undone) == 1:
            keep(pin.undone, pin.memory.release)
        self._pins.discard(pin)
        if failure is not None:
            raise failure
