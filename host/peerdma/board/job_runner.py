# SPDX-License-Identifier: BSD-2-Clause
"""Transfers in progress on a board, and the one thread at a time that waits for it.

Whoever waits for a job waits for the board, unless another thread does so already: that one then
ends the others' jobs, too, and wakes who waits for them. So a copy costs no switch of threads. For
jobs that nobody waits for there is a thread of their own, from the first `submit` on; it also calls
their callbacks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Protocol

from ..errors import CANCELLED, Cancelled, PeerdmaError
from ..process import AtExit
from ..waiting import OwnLock
from .arrays import Arrays
from .backend import Moved, Prepared, Progress, Transfers
from .pin import Pin
from .transfer import Transfer

__all__ = ["JobRunner", "Running", "Task"]

#: Seconds that `JobRunner.close` waits for the end of jobs that it cancelled, and for the thread.
_CLOSE_SECONDS = 10.0
_ENDING = "cannot transfer any more: the interpreter is ending"
_CLOSED = (
    "the board was closed before the end of the transfer; the content of the destination is "
    "undefined"
)


class Task(Protocol):
    """What a job does; a `Plan` is one."""

    #: bytes of the source; the rest does not matter if there are none
    nbytes: int
    #: what `Transfers.start` takes
    prepared: Prepared | None
    #: to be open when it starts, and held until it has ended
    pins: tuple[Pin, ...]

    def require_unmoved(self) -> None:
        """PinError if memory is not where it was when it was pinned."""

    def finish(self, moved: Moved | None, began: float) -> Transfer:
        """Flushes what was written; returns the report on a transfer that began at that time."""
        ...


class Running:
    """A transfer from its start on. `Job` is what a program has of one."""

    __slots__ = ("_began", "_outcome", "_task")

    def __init__(self, task: Task):
        self._task = task
        self._began = time.perf_counter()
        self._outcome: Transfer | BaseException | None = None

    def end(self, outcome: Transfer | BaseException) -> bool:
        """Notes how it ended; returns whether there is somebody to `tell`. The lock is held."""
        self._outcome = outcome
        # It may be kept for its result, and the memory is not needed for that.
        del self._task
        return False

    def tell(self) -> None:
        """Tells whoever wants to know that it has ended; without the lock."""


class JobRunner:
    """The jobs of a board.

    Parameters
    ----------
    transfers : Transfers
        The board's.
    lock : OwnLock
        The board's: held while these are called, but not while their `waiter` is.
    arrays : Arrays
        Gives back what a job held when it has ended.
    """

    def __init__(self, transfers: Transfers, lock: OwnLock, arrays: Arrays):
        self._transfers = transfers
        self._arrays = arrays
        self.lock: OwnLock = lock
        #: why no job can start now
        self._refusal: str | None = None
        self._pending: set[Running] = set()
        #: whether a thread waits for the board, and how many wait for that one
        self._led = False
        self._followers = 0
        #: when that thread began to see to what has happened; None while it waits
        self._busy_since: float | None = None
        self._changed = lock.condition()
        #: the thread: jobs that it is to see to the end, and those of which it is to tell
        self._thread: threading.Thread | None = None
        self._watched: set[Running] = set()
        self._ended: deque[Running] = deque()
        #: nobody waits for the board any more; and no job is left
        self._stopped = self._over = False
        self._news = lock.condition()

    def submit(self, *jobs: Running) -> None:
        """Starts jobs, which the thread sees to their end."""
        with self.lock:
            self.require_startable(*[job._task for job in jobs])
            self._watch(*jobs)

    def start_thread(self) -> None:
        """Starts the thread, unless it runs. The lock is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="peerdma", daemon=True)
            self._thread.start()
            _used.add(self)

    def launch(self, job: Running) -> None:
        """Starts a job that was made before, or ends it with the error. The lock is held."""
        try:
            self.require_startable(job._task)
        except PeerdmaError as error:
            self.end(job, error)
        else:
            job._began = time.perf_counter()
            self._watch(job)

    def end(self, job: Running, outcome: Transfer | BaseException) -> None:
        """Ends a job that is not in progress on the board. The lock is held."""
        self._end(job, outcome)
        self._changed.notify_all()
        if self._led:
            self._transfers.waiter.wake()

    def run(self, task: Task, progress: Progress | None = None) -> Transfer:
        """Makes a transfer; what interrupts it cancels it. `progress` is called in this thread."""
        job = Running(task)
        steps: deque[tuple[int, int]] = deque()
        note = None if progress is None else lambda *step: steps.append(step)
        with self.lock:
            self.require_startable(task)
            try:
                self._start(job, note)
                if self._led:
                    self._transfers.waiter.wake()
                while job._outcome is None:
                    self.wait()
                    if steps and progress is not None:
                        self._report(steps, progress)
            except BaseException:
                self.lock.hold()
                self._abandon(job)
                raise
        outcome = job._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def refuse(self, why: str | None) -> None:
        """Has no more jobs start, with an error that says why; None: they can. The lock is held."""
        self._refusal = _ENDING if self._stopped else why

    def require_startable(self, *tasks: Task) -> None:
        """Raises unless transfers can start: PeerdmaError, PinError. The lock is held."""
        if self._refusal:
            raise PeerdmaError(self._refusal)
        for task in tasks:
            for pin in task.pins:
                if pin.handle is None:
                    pin.require_open()
            task.require_unmoved()

    def cancel(self, job: Running) -> bool:
        """See `Job.cancel`."""
        with self.lock:
            if job not in self._pending:
                return False
            self._transfers.cancel(job)
            self._transfers.waiter.wake()
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
                # An interrupt at the start of `Condition.wait` leaves it without the lock.
                self.lock.hold()
            return
        self._led = True
        try:
            transfers = self._transfers
            limit = transfers.deadline(until)
            self.lock.without(transfers.waiter.wait, limit)
            self._busy_since = time.monotonic()
            ended = transfers.collect()
            while ended:
                job, outcome = ended[0]
                assert isinstance(job, Running), "no other tag was given"
                # It has its outcome if an interrupt came before it was taken off.
                if job._outcome is None:
                    if isinstance(outcome, Moved):
                        try:
                            outcome = self.lock.without(job._task.finish, outcome, job._began)
                        except Exception as error:
                            outcome = error
                    self._end(job, outcome)
                ended.popleft()
        finally:
            self._led = False
            self._busy_since = None
            if self._followers:
                try:
                    self._changed.notify_all()
                except BaseException:
                    self._changed.notify_all()
                    raise

    def stuck(self, seconds: float) -> bool:
        """Whether a thread has not come back from a call for so long; waits that long to find out.

        It holds the lock, or it sees to what has happened on the board. Neither waits for a
        transfer. The lock is not held.
        """
        if not self.lock.acquire(timeout=seconds):
            return True
        since = self._busy_since
        self.lock.release()
        return since is not None and time.monotonic() - since > seconds

    def wake(self) -> None:
        """Ends the `wait` of all threads. Called with the lock held."""
        self._transfers.waiter.wake()
        self._changed.notify_all()

    def settle(self, pin: Pin | None = None) -> None:
        """Waits until no job is in progress, or none that uses `pin`; the lock is held once."""
        while any(pin is None or pin in job._task.pins for job in self._pending):
            self.wait()

    def close(self) -> None:
        """Cancels all jobs and waits for their end, for seconds. Called with the lock held once.

        Nobody waits for the board any more afterwards. Jobs that have not ended do so by `forget`.
        """
        if not self._stopped:
            for job in self._pending:
                self._transfers.cancel(job)
            self.wake()
            until = time.monotonic() + _CLOSE_SECONDS
            while self._pending and time.monotonic() < until:
                self.wait(until)
        self._stopped = True
        self._refusal = self._refusal or _ENDING
        while self._led:
            self._transfers.waiter.wake()
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

    def _watch(self, *jobs: Running) -> None:
        """Starts jobs, which the thread sees to their end. The lock is held."""
        self.start_thread()
        try:
            for job in jobs:
                self._watched.add(job)
                self._start(job, None)
        except BaseException:
            # An interrupt: nobody will have these jobs.
            for job in jobs:
                if job._outcome is None and not self._transfers.cancel(job):
                    self._end(job, Cancelled(CANCELLED))
            raise
        self._news.notify()
        if self._led:
            # Whoever waits may have to wait for less long now.
            self._transfers.waiter.wake()

    def _start(self, job: Running, progress: Progress | None) -> None:
        task = job._task
        if task.prepared is not None:
            self._pending.add(job)
            self._transfers.start(task.prepared, job, progress)
        else:
            self._end(job, task.finish(None, job._began))

    def _end(self, job: Running, outcome: Transfer | BaseException) -> None:
        self._pending.discard(job)
        self._watched.discard(job)
        if job.end(outcome):
            self._ended.append(job)
            self._news.notify()
        if self._arrays.returned:
            self._arrays.reap()

    def _report(self, steps: deque[tuple[int, int]], progress: Progress) -> None:
        """Calls `progress`, with the lock released."""
        while steps:
            self.lock.without(progress, *steps.popleft())

    def _abandon(self, job: Running) -> None:
        """Cancels a job and waits for its end, whose time the backend limits."""
        if job._outcome is None and not self._transfers.cancel(job):
            # The interrupt came before the backend knew of it.
            self._end(job, Cancelled(CANCELLED))
        self.wake()
        while job._outcome is None:
            self.wait()

    # The thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        with self.lock:
            while self._ended or not self._over:
                if self._ended:
                    job = self._ended.popleft()
                    self.lock.without(job.tell)
                    del job
                elif self._watched and not self._stopped:
                    self.wait()
                else:
                    self._news.wait()


def _stop(jobs: JobRunner) -> None:
    """Cancels all jobs while there is still an interpreter whose memory the board may write."""
    with jobs.lock:
        jobs.close()
        jobs.forget()
    jobs.join()


#: Those with a thread.
_used = AtExit(_stop)
