# SPDX-License-Identifier: BSD-2-Clause
"""A job: a transfer in progress, as its owner sees it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable, Generator
from typing import Any

from ..process import OneProcess
from .job_runner import JobRunner, Running, Task
from .transfer import Transfer

__all__ = ["Call", "Job"]

_log = logging.getLogger("peerdma")


class Job(OneProcess, Running):
    """A transfer in progress, or ended: its future. Not to be built directly: use `Board.submit`.

    Jobs of a board are in no order among each other: wait for one before submitting another that
    needs what it writes. A job keeps its pins, and so their memory, until it has ended.

    A selector takes a job, see `fileno`; a coroutine awaits it.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_fd",
        "_jobs",
        "_nbytes",
    )

    def __init__(self, jobs: JobRunner, task: Task):
        super().__init__(task)
        self._jobs = jobs
        self._nbytes = task.nbytes
        self._callbacks: list[Call] | None = None
        self._fd: int | None = None

    def __repr__(self) -> str:
        outcome = self._outcome
        state = "in progress" if outcome is None else "done"
        if isinstance(outcome, BaseException):
            state = type(outcome).__name__
        return f"<Job of {self._nbytes} bytes, {state}>"

    def done(self) -> bool:
        """Whether it has ended: it succeeded, failed or was cancelled."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> Transfer:
        """Waits for the end, up to `timeout` seconds if that is given; returns the report.

        Raises
        ------
        TimeoutError
            If it has not ended by then. It goes on.
        Cancelled
            If it was cancelled, or the board closed before its end.
        TransferError, PinError, BoardLost, Timeout
            If it failed, as `Board.copy` says.
        """
        outcome = self._wait(timeout)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`, but returns the error that it would raise; None if the job succeeded."""
        outcome = self._wait(timeout)
        return outcome if isinstance(outcome, BaseException) else None

    def cancel(self) -> bool:
        """Asks the board to stop; returns whether the job was in progress, and does not wait.

        `result` says how it ended: it may still have succeeded.
        """
        return self._jobs.cancel(self)

    def add_done_callback(self, call: Call) -> None:
        """Calls ``call(job)`` when the job has ended; at once if it has.

        Callbacks are called one after the other in a thread of the library, and may call it. What
        they raise is logged.
        """
        with self._jobs.lock:
            if self._outcome is None:
                self._callbacks = [*(self._callbacks or ()), call]
                return
        try:
            call(self)
        except Exception:
            self._log(call)

    def tell(self) -> None:
        """Calls the callbacks, each of which may raise what it likes; without the lock."""
        for call in self._callbacks or ():
            try:
                call(self)
            except BaseException:
                self._log(call)

    def _log(self, call: Call) -> None:
        """Logs the exception that a callback raised."""
        _log.exception("the callback %r of %r raised", call, self)

    def fileno(self) -> int:
        """A file descriptor that is readable once the job has ended, for select, epoll and asyncio.

        It belongs to the job and is closed with it. Do not read from it.
        """
        with self._jobs.lock:
            if self._fd is None:
                fd = os.eventfd(self.done(), os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                # At the interpreter's end the job may still end, and use it.
                weakref.finalize(self, os.close, fd).atexit = False
                self._fd = fd
            return self._fd

    def __await__(self) -> Generator[Any, None, Transfer]:
        """As `result`. The job is cancelled if the task that awaits it is."""
        import asyncio

        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def note() -> None:
            if not ended.done():
                ended.set_result(None)

        def tell(_: Job) -> None:
            # A loop that is closed has nobody to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(note)

        self.add_done_callback(tell)
        try:
            yield from ended
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result()

    def _wait(self, timeout: float | None) -> Transfer | BaseException:
        if self._outcome is None:
            until = None if timeout is None else time.monotonic() + timeout
            with self._jobs.lock:
                while self._outcome is None:
                    if until is not None and time.monotonic() >= until:
                        raise TimeoutError(
                            f"the job of {self._nbytes} bytes has not ended within "
                            f"{timeout:g} s; it goes on. Wait again, or cancel it"
                        )
                    self._jobs.wait(until)
        assert self._outcome is not None
        return self._outcome

    def end(self, outcome: Transfer | BaseException) -> bool:
        """See `Running`."""
        super().end(outcome)
        if self._fd is not None:
            os.eventfd_write(self._fd, 1)
        return bool(self._callbacks)


#: A callback of a job.
Call = Callable[[Job], object]
