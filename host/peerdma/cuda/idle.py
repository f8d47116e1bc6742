# SPDX-License-Identifier: BSD-2-Clause
"""Postpones freeing GPU memory while a kernel or stream waits for a board: CUDA would wait."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["Idle"]

_lock = threading.RLock()
#: One per driver and device, which all objects for that GPU share.
_known: weakref.WeakKeyDictionary[Any, dict[int, Idle]] = weakref.WeakKeyDictionary()


class Idle:
    """Frees that wait until nothing of this process on a GPU waits for others. Use `Idle.of`."""

    def __init__(self):
        self._watches = 0
        self._postponed: list[Callable[[], Any]] = []

    @staticmethod
    def of(api: Any, index: int) -> Idle:
        """The instance for device `index` of a driver."""
        with _lock:
            return _known.setdefault(api, {}).setdefault(index, Idle())

    @property
    def busy(self) -> bool:
        """Whether a kernel or stream waits for a board, so that a free would wait for that."""
        with _lock:
            return self._watches > 0

    def call(self, free: Callable[[], Any]) -> None:
        """Calls `free` now, or when no watch runs any more."""
        with _lock:
            if self._watches:
                self._postponed.append(free)
                return
        free()

    def watch_begins(self) -> None:
        """Call before queueing what waits for something other than the GPU."""
        with _lock:
            self._watches += 1

    def watch_ended(self) -> None:
        """Call when it waits no more; runs what was postponed."""
        postponed: list[Callable[[], Any]] = []
        with _lock:
            self._watches -= 1
            if not self._watches:
                postponed, self._postponed = self._postponed, postponed
        for free in postponed:
            free()
