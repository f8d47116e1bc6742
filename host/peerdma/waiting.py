# SPDX-License-Identifier: BSD-2-Clause
"""How threads wait: for each other, by a lock, and for a board, by file descriptors.

While one waits for the board, it has the lock released. No interrupt may come between the two.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from .errors import PeerdmaError
from .process import forked, watched

__all__ = ["OwnLock", "Waiter"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Most seconds of one `poll`, which takes a C int of milliseconds.
_LONGEST = 86_400.0


if TYPE_CHECKING:

    class _RLock:
        """What is used of the type of ``threading.RLock()``, which has no name of its own."""

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def __enter__(self) -> bool: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...
        def _acquire_restore(self, state: tuple[int, int]) -> None: ...

else:
    _RLock = type(threading.RLock())


class OwnLock(_RLock):
    """A reentrant lock of one process. In a child nobody can take it, with an error that says why.

    Parameters
    ----------
    what : str
        What it belongs to, for that error.

    Attributes
    ----------
    foreign : bool
        Whether this process is such a child.
    """

    foreign: bool = False

    def __init__(self, what: str = "board"):
        self._what = what
        watched(self)

    def require_own(self) -> None:
        """PeerdmaError in a child."""

    def disown(self) -> None:
        """See `Watched`. Whoever held it may be a thread that does not exist here."""
        object.__setattr__(self, "__class__", _ForeignLock)

    def condition(self) -> threading.Condition:
        """A condition whose lock it is."""
        return threading.Condition(cast(Any, self))

    def without(self, call: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Calls something with the lock, which this thread holds once, released.

        The lock is taken back whatever comes. The interpreter runs signal handlers as a function
        begins and after calls: when this one begins the lock is held, and what comes after that
        ends in the taking back, which is one instruction that no handler can end early.
        """
        held = (1, threading.get_ident())
        try:
            self.release()
            return call(*arguments, **named)
        finally:
            self._acquire_restore(held)

    def hold(self) -> None:
        """Takes it, unless this thread has it. No signal handler can keep it from that."""
        if not self._is_owned():
            self._acquire_restore((1, threading.get_ident()))


class _ForeignLock(OwnLock):
    """What becomes of an `OwnLock` in a child."""

    foreign = True

    def require_own(self, *_: Any, **__: Any) -> NoReturn:
        raise PeerdmaError(forked(self._what))

    acquire = __enter__ = _acquire_restore = require_own

    def release(self, *_: object) -> None:
        """Nothing to do."""

    __exit__ = release


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
