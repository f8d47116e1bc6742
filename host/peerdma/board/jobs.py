# SPDX-License-Identifier: BSD-2-Clause
"""Transfers in progress on a board, and the one thread at a time that waits for it.

Whoever waits for a job waits for the board, unless another thread does so already: that one then
ends the others' jobs, too, and wakes who waits for them. So a copy costs no switch of threads. For
jobs that nobody waits for there is a thread of their own, from the first `submit` on; it also calls
their callbacks.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from ..errors import CANCELLED, Cancelled, PeerdmaError
from .backend import Backend, Moved, Progress
from .job import Call, Job, Task, log_callback
from .pin import Pin
from .transfer import Transfer

__all__ = ["Jobs"]

#: Seconds that `Jobs.close` waits for the end of jobs that it cancelled, and for the thread.
_CLOSE_SECONDS = 10.0
_CLOSED = (
    "the board was closed before the end of the transfer; the content of the destination is "
    "undefined"
)


class Jobs:
    """The jobs of a board.

    Parameters
    ----------
    backend : Backend
    check : callable
        Called, with the lock held, before a job starts; raises if the board cannot transfer now.

    Attributes
    ----------
    lock : threading.RLock
        Held while the backend is called, its `wait` and `wake` excepted.
    """

    def __init__(self, backend: Backend, check: Callable[[], None]):
        self._backend = backend
        self._check = check
        self.lock: threading.RLock = threading.RLock()
        self._pending: set[Job] = set()
        #: ended on the board, but not yet for their owners
        self._ended: deque[tuple[Job, Moved | PeerdmaError]] = deque()
        #: whether a thread waits for the board, and how many wait for that one
        self._led = False
        self._followers = 0
        self._changed = threading.Condition(self.lock)
        #: the thread: jobs that it is to see to the end, and callbacks that it is to call
        self._thread: threading.Thread | None = None
        self._watched: set[Job] = set()
        self._calls: deque[tuple[Call, Job]] = deque()
        #: nobody waits for the board any more; and no job is left
        self._stopped = self._over = False
        self._news = threading.Condition(self.lock)

    def submit(self, *tasks: Task) -> list[Job]:
        """Starts jobs, which the thread sees to their end."""
        jobs = [Job(self, task) for task in tasks]
        with self.lock:
            self._require_startable(*tasks)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="peerdma", daemon=True)
                self._thread.start()
                _used.add(self)
            for job in jobs:
                self._watched.add(job)
                self._start(job, None)
            self._news.notify()
            if self._led:
                # Whoever waits may have to wait for less long now.
                self._backend.wake()
        return jobs

    def run(self, task: Task, progress: Progress | None = None) -> Transfer:
        """Makes a transfer; what interrupts it cancels it. `progress` is called in this thread."""
        job = Job(self, task)
        steps: deque[tuple[int, int]] = deque()
        with self.lock:
            self._require_startable(task)
            try:
                self._start(job, None if progress is None else lambda *step: steps.append(step))
                if self._led:
                    self._backend.wake()
                while job._outcome is None:
                    self.wait()
                    if steps and progress is not None:
                        self._report(steps, progress)
            except BaseException:
                self._abandon(job)
                raise
        outcome = job._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def cancel(self, job: Job) -> bool:
        """See `Job.cancel`."""
        with self.lock:
            if job not in self._pending:
                return False
            self._backend.cancel(job)
            self._backend.wake()
            return True

    def wait(self, until: float | None = None) -> None:
        """Waits until something has happened on the board, or `until`, a time of `time.monotonic`.

        Called with the lock held once, which is released meanwhile.
        """
        if self._led or self._stopped:
            self._followers += 1
            try:
                self._changed.wait(None if until is None else max(0.0, until - time.monotonic()))
            finally:
                self._followers -= 1
            return
        self._led = True
        try:
            if not self._ended:
                backend = self._backend
                limit = backend.deadline()
                if until is not None and (limit is None or until < limit):
                    limit = until
                self.lock.release()
                try:
                    backend.wait(limit)
                finally:
                    self.lock.acquire()
                self._ended.extend(backend.collect())
            while self._ended:
                job, outcome = self._ended[0]
                self._finish(job, outcome)
                self._ended.popleft()
        finally:
            self._led = False
            if self._followers:
                self._changed.notify_all()

    def wake(self) -> None:
        """Ends the `wait` of all threads. Called with the lock held."""
        self._backend.wake()
        self._changed.notify_all()

    def settle(self, pin: Pin | None = None) -> None:
        """Waits until no job is in progress, or none that uses `pin`; the lock is held once."""
        while any(pin is None or pin in job._task.pins for job in self._pending):
            self.wait()

    def close(self) -> None:
        """Cancels all jobs and waits for their end, for seconds. Called with the lock held once.

        Nobody waits for the board any more afterwards. Jobs that have not ended do so by `forget`.
        """
        for job in self._pending:
            self._backend.cancel(job)
        self.wake()
        until = time.monotonic() + _CLOSE_SECONDS
        while self._pending and time.monotonic() < until:
            self.wait(until)
        self._stopped = True
        while self._led:
            self._backend.wake()
            self.wait(time.monotonic() + _CLOSE_SECONDS)
        _used.discard(self)

    def forget(self) -> None:
        """Ends the jobs that have not ended: the board is closed. Called with the lock held."""
        for job in list(self._pending):
            self._end(job, Cancelled(_CLOSED))
        self._over = True
        self._news.notify_all()
        self._changed.notify_all()

    def join(self) -> None:
        """Waits for the end of the thread, for seconds, after `close`; without the lock."""
        if self._thread not in (None, threading.current_thread()):
            self._thread.join(_CLOSE_SECONDS)

    def _require_startable(self, *tasks: Task) -> None:
        self._check()
        if self._stopped:
            raise PeerdmaError("cannot transfer any more: the interpreter is ending")
        for task in tasks:
            for pin in task.pins:
                if pin.handle is None:
                    pin.require_open()

    def _start(self, job: Job, progress: Progress | None) -> None:
        if job._task.nbytes:
            self._pending.add(job)
            self._backend.start(job._task.work, job, progress)
        else:
            self._end(job, job._task.finish(None, job._began))

    def _finish(self, job: Job, outcome: Moved | PeerdmaError) -> None:
        """Flushes what a job wrote, with the lock released, and ends it."""
        ended: Transfer | BaseException
        self.lock.release()
        try:
            done = isinstance(outcome, Moved)
            ended = job._task.finish(outcome, job._began) if done else outcome
        except Exception as error:
            ended = error
        finally:
            self.lock.acquire()
        self._end(job, ended)

    def _end(self, job: Job, outcome: Transfer | BaseException) -> None:
        self._pending.discard(job)
        self._watched.discard(job)
        calls = job._end(outcome)
        if calls:
            self._calls.extend((call, job) for call in calls)
            self._news.notify()

    def _report(self, steps: deque[tuple[int, int]], progress: Progress) -> None:
        """Calls `progress`, with the lock released."""
        self.lock.release()
        try:
            while steps:
                progress(*steps.popleft())
        finally:
            self.lock.acquire()

    def _abandon(self, job: Job) -> None:
        """Cancels a job and waits for its end, whose time the backend limits."""
        if job._outcome is None:
            self._backend.cancel(job)
            self.wake()
        while job._outcome is None:
            self.wait(time.monotonic() + 1.0)
            if job._outcome is None and not self._led and self._backend.deadline() is None:
                # Ctrl-C came before the backend knew of it.
                self._end(job, Cancelled(CANCELLED))

    # The thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        with self.lock:
            while self._calls or not self._over:
                if self._calls:
                    call, job = self._calls.popleft()
                    self.lock.release()
                    try:
                        call(job)
                    except BaseException:
                        log_callback(call, job)
                    finally:
                        self.lock.acquire()
                    del call, job
                elif self._watched and not self._stopped:
                    self.wait()
                else:
                    self._news.wait()


#: Those with a thread, to be stopped before the interpreter ends.
_used: weakref.WeakSet[Jobs] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Cancels all jobs while there is still an interpreter whose memory the board may write."""
    for jobs in list(_used):
        with jobs.lock:
            jobs.close()
            jobs.forget()
        jobs.join()
