# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that take turns on the engine's two channels, one way and the other at once.

Nothing here waits: `start` starts what can start, and each interrupt leads to what comes next.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..board.backend import Moved, Progress
from ..board.transfer import Through
from ..errors import CANCELLED, Cancelled, PeerdmaError, Timeout, TransferError
from ..regs import ErrorKind
from .frames import FrameRun
from .prepared import Run
from .xdma import Direction, Xdma

__all__ = ["Scheduler", "Work", "once"]

_C2H = Direction.C2H
_INTERRUPTED = "the transfer was interrupted; the content of the destination is undefined"
_RESET = (
    "the engine was reset, as the channel of the other direction did not stop. The content of the "
    "destination is undefined; try again"
)
#: How often room for completions is looked for, in the longest time for which a read keeps it.
_LOOKS = 50
#: A transfer waits for so many of these, since more reads may be lost meanwhile.
_PATIENCE = 2
#: Makes the parts of a transfer, one after the other, each with how far it gets, in bytes.
Steps = Callable[[], Iterator[tuple[Run, int]]]


def once(run: Run, nbytes: int) -> Steps:
    """The steps of a transfer of so many bytes that is made at once."""
    return ((run, nbytes),).__iter__


class Work(NamedTuple):
    """A transfer that can be run, any number of times."""

    steps: Steps
    nbytes: int
    #: the channels that it needs, from its first step to its last
    directions: frozenset[Direction]
    limit: float | None
    through: Through


class _Job:
    """A transfer from its start on: it waits for its channels, then runs step by step."""

    __slots__ = (
        "began",
        "cycles",
        "outcome",
        "patience",
        "progress",
        "reached",
        "run",
        "since",
        "steps",
        "tag",
        "told",
        "waits",
        "work",
    )

    #: the step that runs; None before the first has started
    run: Run | None
    #: when it started, by `time.monotonic`, and by the board's clock
    since: float
    began: int | None

    def __init__(self, work: Work, tag: Any, progress: Progress | None):
        self.work = work
        self.tag = tag
        self.progress = progress
        self.steps = work.steps()
        #: bytes that have been transferred when the step that runs has ended, and were last told
        self.reached = self.told = 0
        self.cycles = 0
        self.run = self.began = None
        self.since = 0.0
        #: its run is to be started when there is room for completions, or has been long enough
        self.waits = False
        self.patience: float | None = None
        #: how it ended; it may still be among those that run if an interrupt came
        self.outcome: Moved | PeerdmaError | None = None

    def next(self) -> bool:
        """Goes to the next step; False if there is none."""
        step = next(self.steps, None)
        if step is None:
            return False
        self.run, self.reached = step
        return True


class Scheduler:
    """What runs on the engine, and what waits for its turn.

    A transfer starts when none of its channels is used or wanted by an earlier one. If lost reads
    keep the room for completions, it waits until they do not, and is started again.

    Parameters
    ----------
    xdma : Xdma
    lost : callable
        Returns the error for writes, since its last call, to addresses without memory; or None.
    notes : callable
        Returns the board's notes since a time of `time.monotonic`; empty if there are none.

    Attributes
    ----------
    frames : FrameRun or None
        The run of the C2H channel that fills frames, to be told what the channel reports.
    ended : deque of (object, Moved or PeerdmaError)
        Tags of transfers that ended, with how; whoever takes note removes them.
    """

    def __init__(
        self,
        xdma: Xdma,
        lost: Callable[[], TransferError | None],
        notes: Callable[[float], str],
    ):
        self._xdma = xdma
        self._engine = xdma.engine
        self._lost = lost
        self._notes = notes
        self._resets = self._engine.resets
        self._queue: list[_Job] = []
        self._running: list[_Job] = []
        self.frames: FrameRun | None = None
        self.ended: deque[tuple[Any, Moved | PeerdmaError]] = deque()

    def start(self, work: Work, tag: Any, progress: Progress | None) -> None:
        """Starts a transfer, now or in its turn; errors are in `ended`."""
        job = _Job(work, tag, progress)
        if self._running or self._queue:
            self._queue.append(job)
            self._begin()
        else:
            self._begin_one(job)

    def knows(self, tag: Any) -> bool:
        """Whether a transfer was started, whose end nobody has taken note of."""
        return any(job.tag is tag for job in (*self._queue, *self._running)) or any(
            each is tag for each, _ in self.ended
        )

    def cancel(self, tag: Any) -> None:
        """Ends a transfer, unless it has ended."""
        for job in [*self._queue, *self._running]:
            if job.tag is tag:
                self._fail(job, Cancelled(CANCELLED))
        self._begin()

    def deadline(self, first: float | None = None) -> float | None:
        """When the first of those that run is late, or `first`, as `time.monotonic` counts.

        None if none runs.
        """
        for job in self._running:
            run = job.run
            if run is not None and (first is None or run.until < first):
                first = run.until
        return first

    def interrupted(self) -> None:
        """Goes on after an interrupt."""
        running = [job for job in self._running if not job.waits]
        for job in running:
            if job.run is not None:
                job.run.look()
        engine, frames = self._engine, self.frames
        if frames is None:
            engine.function.interrupt_done()
        elif frames.ended:
            self.frames = None
            engine.function.interrupt_done()
        else:
            status = engine.channels[_C2H].take_status()
            engine.function.interrupt_done()
            frames.report(status)
        for job in running:
            if job in self._running:
                self._advance(job)
        if self._queue:
            self._begin()

    def expire(self) -> None:
        """Ends what is late or was reset, and starts those again that waited for room."""
        if self._engine.resets != self._resets:
            self._end_reset()
        now, late = time.monotonic(), []
        for job in self._running:
            if job.run and now > job.run.until:
                late.append((job, job.run))
        for job, run in late:
            if job.waits:
                self._go_on(job, run, now)
            else:
                self._fail(job, run.late())
        if late:
            self._begin()

    def lose(self, error: PeerdmaError) -> None:
        """Ends all: the board does not answer any more."""
        for job in [*self._running, *self._queue]:
            self._fail(job, error)
        if self.frames is not None:
            self.frames.fail(error)

    def _begin(self) -> None:
        """Starts what can start."""
        taken = {each for job in self._running for each in job.work.directions}
        for job in list(self._queue):
            if taken.isdisjoint(job.work.directions):
                self._begin_one(job)
            taken |= job.work.directions

    def _begin_one(self, job: _Job) -> None:
        try:
            job.since, job.began = time.monotonic(), self._xdma.clock()
            # Before it starts: what is interrupted then has to be stopped.
            self._running.append(job)
            if job in self._queue:
                self._queue.remove(job)
            job.next()
            self._start(job)
        except PeerdmaError as error:
            self._end(job, error)
        except BaseException:
            self._fail(job, Cancelled(_INTERRUPTED))
            raise

    def _advance(self, job: _Job) -> None:
        run = job.run
        try:
            if job.outcome is not None:
                self._end(job, job.outcome)
                return
            if run is None or not run.advance():
                return
            job.cycles += run.cycles
            if job.progress and job.reached > job.told:
                job.told = job.reached
                job.progress(job.reached, job.work.nbytes)
            if job.next():
                self._start(job)
                return
            _, _, directions, limit, through = job.work
            if _C2H in directions and (lost := self._lost()):
                raise lost
            ended = self._xdma.clock()
            elapsed = None if job.began is None or ended is None else ended - job.began
            self._end(job, Moved(job.cycles, limit, through, elapsed))
        except PeerdmaError as error:
            if not self._put_off(job, error):
                self._fail(job, error)
        except BaseException:
            self._fail(job, Cancelled(_INTERRUPTED))
            raise

    def _start(self, job: _Job) -> None:
        """Starts a run, or has it wait if it could not be made again."""
        engine, run = self._engine, job.run
        if run is None:
            return
        if engine.crowded and not run.repeats and engine.has_lost_reads():
            self._wait(job, run)
        else:
            run.start()

    def _wait(self, job: _Job, run: Run) -> None:
        now, quarantine = time.monotonic(), self._engine.quarantine
        if job.patience is None:
            job.patience = now + _PATIENCE * quarantine
        job.waits = True
        run.until = min(job.patience, now + quarantine / _LOOKS)

    def _put_off(self, job: _Job, error: PeerdmaError) -> bool:
        """Stops a run that found no room for completions, and has it wait for that.

        False if it failed for another reason, cannot be made again, or has waited for so long that
        other reads must have been lost.
        """
        run, kind = job.run, error.kind if isinstance(error, TransferError) else None
        late = job.patience is not None and time.monotonic() > job.patience
        if kind != ErrorKind.NO_COMPLETION_SPACE or late or run is None or not run.repeats:
            return False
        with contextlib.suppress(PeerdmaError):
            run.stop()
        self._wait(job, run)
        return True

    def _go_on(self, job: _Job, run: Run, now: float) -> None:
        """Starts a run that waits for room, if there is; otherwise it waits on."""
        try:
            if now < (job.patience or now) and self._engine.has_lost_reads():
                self._wait(job, run)
                return
            job.waits = False
            run.start_again()
        except PeerdmaError as error:
            self._fail(job, error)
        except BaseException:
            self._fail(job, Cancelled(_INTERRUPTED))
            raise

    def _fail(self, job: _Job, error: PeerdmaError) -> None:
        """Stops a transfer, which is over then."""
        if job in self._running:
            with contextlib.suppress(PeerdmaError):
                # A board that is gone accesses no memory.
                if job.run is not None and job.run.started:
                    job.run.stop()
            if isinstance(error, Timeout) and (notes := self._notes(job.since)):
                error = Timeout(f"{error}. The board noted: {notes}")
            if _C2H in job.work.directions:
                # Taken, so that the next transfer does not report them.
                self._lost()
            self._end(job, error)
            if self._engine.resets != self._resets:
                self._end_reset()
        elif job in self._queue:
            self._end(job, error)

    def _end_reset(self) -> None:
        """Ends what a reset of the engine has ended, beside the run that did not stop."""
        self._resets = self._engine.resets
        for other in list(self._running):
            if not other.waits:
                self._fail(other, TransferError(_RESET))
        frames, self.frames = self.frames, None
        if frames is not None and not frames.ended:
            with contextlib.suppress(PeerdmaError):
                frames.stop()
            frames.fail(TransferError(_RESET))

    def _end(self, job: _Job, outcome: Moved | PeerdmaError) -> None:
        # If an interrupt comes in between, it is done again, and the transfer is there twice.
        job.outcome = job.outcome or outcome
        self.ended.append((job.tag, job.outcome))
        if job in self._running:
            self._running.remove(job)
        if job in self._queue:
            self._queue.remove(job)
