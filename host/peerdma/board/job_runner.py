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
from collections.abc import Callable
from typing import Any

from ..errors import CANCELLED, Cancelled, PeerdmaError
from ..process import AtExit, OwnLock
from .backend import Backend, Moved, Progress
from .job import Call, Job, Task, log_callback
from .pin import Pin
from .transfer import Transfer

__all__ = ["JobRunner"]

#: Seconds that `JobRunner.close` waits for the end of jobs that it cancelled, and for the thread.
_CLOSE_SECONDS = 10.0
_ENDING = "cannot transfer any more: the interpreter is ending"
_CLOSED = (
    "the board was closed before the end of the transfer; the content of the destination is "
    "undefined"
)


class JobRunner:
    """The jobs of a board.

    Parameters
    ----------
    backend : Backend
    lock : OwnLock
        The board's: held while the backend is called, but not while its `waiter` is.
    ended : callable
        Called, with the lock held, after a job has ended and nothing of it is used any more.
    """

    def __init__(self, backend: Backend, lock: OwnLock, ended: Callable[[], None]):
        self._backend = backend
        self._tell = ended
        self.lock: OwnLock = lock
        #: why no job can start now
        self._refusal: str | None = None
        self._pending: set[Job] = set()
        #: whether a thread waits for the board, and how many wait for that one
        self._led = False
        self._followers = 0
        #: when that thread began to see to what has happened; None while it waits
        self._busy_since: float | None = None
        self._changed = lock.condition()
        #: the thread: jobs that it is to see to the end, and callbacks that it is to call
        self._thread: threading.Thread | None = None
        self._watched: set[Job] = set()
        self._calls: deque[tuple[Call, Job]] = deque()
        #: nobody waits for the board any more; and no job is left
        self._stopped = self._over = False
        self._news = lock.condition()

    def submit(self, *tasks: Task) -> list[Job]:
        """Starts jobs, which the thread sees to their end."""
        jobs = [Job(self, task) for task in tasks]
        with self.lock:
            self.require_startable(*tasks)
            self._watch(*jobs)
        return jobs

    def start_thread(self) -> None:
        """Starts the thread, unless it runs. The lock is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="peerdma", daemon=True)
            self._thread.start()
            _used.add(self)

    def launch(self, job: Job) -> None:
        """Starts a job that was made before, or ends it with the error. The lock is held."""
        try:
            self.require_startable(job._task)
        except PeerdmaError as error:
            self.end(job, error)
        else:
            job._began = time.perf_counter()
            self._watch(job)

    def end(self, job: Job, outcome: Transfer | BaseException) -> None:
        """Ends a job that is not in progress on the board. The lock is held."""
        self._end(job, outcome)
        self._changed.notify_all()
        if self._led:
            self._backend.waiter.wake()

    def run(self, task: Task, progress: Progress | None = None) -> Transfer:
        """Makes a transfer; what interrupts it cancels it. `progress` is called in this thread."""
        job = Job(self, task)
        steps: deque[tuple[int, int]] = deque()
        note = None if progress is None else lambda *step: steps.append(step)
        with self.lock:
            self.require_startable(task)
            try:
                self._start(job, note)
                if self._led:
                    self._backend.waiter.wake()
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

    def cancel(self, job: Job) -> bool:
        """See `Job.cancel`."""
        with self.lock:
            if job not in self._pending:
                return False
            self._backend.cancel(job)
            self._backend.waiter.wake()
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
            backend = self._backend
            limit = backend.deadline(until)
            # As `_without_lock`, without a layer in between.
            lock, held = self.lock, (1, threading.get_ident())
            try:
                lock.release()
                backend.waiter.wait(limit)
            finally:
                lock._acquire_restore(held)
            self._busy_since = time.monotonic()
            ended = backend.collect()
            while ended:
                job, outcome = ended[0]
                assert isinstance(job, Job), "no other tag was given"
                # It has its outcome if an interrupt came before it was taken off.
                if job._outcome is None:
                    self._finish(job, outcome)
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

    def _without_lock(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls something with the lock, which is held once, released.

        The lock is taken back whatever comes: `Condition` does it so, too, and no signal handler
        can keep it from that.
        """
        lock, held = self.lock, (1, threading.get_ident())
        try:
            lock.release()
            return call(*arguments)
        finally:
            lock._acquire_restore(held)

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
        self._backend.waiter.wake()
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
        self._refusal = self._refusal or _ENDING
        while self._led:
            self._backend.waiter.wake()
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

    def _watch(self, *jobs: Job) -> None:
        """Starts jobs, which the thread sees to their end. The lock is held."""
        self.start_thread()
        try:
            for job in jobs:
                self._watched.add(job)
                self._start(job, None)
        except BaseException:
            # An interrupt: nobody will have these jobs.
            for job in jobs:
                if job._outcome is None and not self._backend.cancel(job):
                    self._end(job, Cancelled(CANCELLED))
            raise
        self._news.notify()
        if self._led:
            # Whoever waits may have to wait for less long now.
            self._backend.waiter.wake()

    def _start(self, job: Job, progress: Progress | None) -> None:
        task = job._task
        if task.prepared is not None:
            self._pending.add(job)
            self._backend.start(task.prepared, job, progress)
        else:
            self._end(job, task.finish(None, job._began))

    def _finish(self, job: Job, outcome: Moved | PeerdmaError) -> None:
        """Flushes what a job wrote, with the lock released, and ends it."""
        ended: Transfer | BaseException
        if isinstance(outcome, Moved):
            lock, held = self.lock, (1, threading.get_ident())
            try:
                lock.release()
                ended = job._task.finish(outcome, job._began)
            except Exception as error:
                ended = error
            finally:
                lock._acquire_restore(held)
        else:
            ended = outcome
        self._end(job, ended)

    def _end(self, job: Job, outcome: Transfer | BaseException) -> None:
        self._pending.discard(job)
        self._watched.discard(job)
        calls = job._end(outcome)
        self._tell()
        if calls:
            self._calls.extend((call, job) for call in calls)
            self._news.notify()

    def _report(self, steps: deque[tuple[int, int]], progress: Progress) -> None:
        """Calls `progress`, with the lock released."""
        while steps:
            self._without_lock(progress, *steps.popleft())

    def _abandon(self, job: Job) -> None:
        """Cancels a job and waits for its end, whose time the backend limits."""
        if job._outcome is None and not self._backend.cancel(job):
            # The interrupt came before the backend knew of it.
            self._end(job, Cancelled(CANCELLED))
        self.wake()
        while job._outcome is None:
            self.wait()

    # The thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        with self.lock:
            while self._calls or not self._over:
                if self._calls:
                    call, job = self._calls.popleft()
                    try:
                        self._without_lock(call, job)
                    except BaseException:
                        log_callback(call, job)
                    del call, job
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
