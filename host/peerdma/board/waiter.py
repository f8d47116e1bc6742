# SPDX-License-Identifier: BSD-2-Clause
"""Waiting for file descriptors in one thread, with an end that any other thread can bring about."""

from __future__ import annotations

import contextlib
import os
import select
import time

__all__ = ["Waiter"]

#: Most seconds of one `poll`, which takes a C int of milliseconds.
_LONGEST = 86_400.0


class Waiter:
    """Waits until one of these file descriptors is readable, the time is over, or `wake`."""

    def __init__(self, *fds: int):
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for fd in (*fds, self._waker):
            self._poll.register(fd, select.POLLIN)

    def wait(self, until: float | None) -> None:
        """Waits up to a time of `time.monotonic`, or a day; None: no limit but that."""
        left = _LONGEST if until is None else until - time.monotonic()
        if not 0.0 <= left <= _LONGEST:
            left = 0.0 if left < 0.0 else _LONGEST
        for fd, _ in self._poll.poll(left * 1000):
            if fd == self._waker:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)

    def wake(self) -> None:
        """Ends the wait in progress, or else the next one, at once."""
        os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        """Gives its own descriptor back, once. Nobody may be waiting."""
        fd, self._waker = self._waker, -1
        if fd >= 0:
            os.close(fd)
