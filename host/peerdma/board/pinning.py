# SPDX-License-Identifier: BSD-2-Clause
"""Pins memory for a board, and unpins it when nothing uses the pin any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..memory.memory import Memory
from ..uapi import Access
from .backend import Backend
from .pin import Pin
from .spans import READ_WRITE

__all__ = ["Pinning", "allowed"]


def allowed(memory: Memory) -> Access:
    """What a board may do with memory, at most."""
    return Access.READ if memory.readonly else READ_WRITE


class Pinning:
    """Makes the pins of a board.

    Parameters
    ----------
    backend : Backend
    lock : threading.RLock
        The board's.
    pins : set of Pin
        Those that are open.
    require_open : callable
        Raises if the board is closed.
    settle : callable
        Waits until the board does not use a pin any more; called with the lock held.
    """

    def __init__(
        self,
        backend: Backend,
        lock: threading.RLock,
        pins: set[Pin],
        require_open: Callable[[], None],
        settle: Callable[[Pin], None],
    ):
        self._backend = backend
        self._lock = lock
        self._pins = pins
        self._require_open = require_open
        self._settle = settle

    def pin(self, memory: Memory, access: Access | None = None) -> Pin:
        """Pins memory, by default for all that it allows; the lock is held."""
        self._require_open()
        access = access or allowed(memory)
        memory.acquire()
        try:
            handle = self._backend.pin(memory, access)
            path, provider = self._backend.path(handle), self._backend.provider(handle)
            pin = Pin(memory, handle, path, access, self._unpin, provider)
        except BaseException:
            memory.release()
            raise
        self._pins.add(pin)
        return pin

    def _unpin(self, pin: Pin) -> None:
        with self._lock:
            if pin not in self._pins:
                return
            handle, pin.handle = pin.handle, None  # no job can start with it from here on
            try:
                self._settle(pin)
            except BaseException:
                pin.handle = handle
                raise
            self.unpin_now(pin, handle)

    def unpin_now(self, pin: Pin, handle: Any = None) -> None:
        """Undoes `pin`, if the board is open; no job uses the pin, and the lock is held."""
        if pin in self._pins:
            handle, pin.handle = handle or pin.handle, None
            self._pins.remove(pin)
            pin.memory.release()
            self._backend.unpin(handle)
