# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that take turns on the engine's two channels, one way and the other at once.

Nothing here waits: `start` starts what can start, and each interrupt leads to what comes next.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque

from ..board import backend
from ..board.backend import Moved, Progress
from ..errors import CANCELLED, Cancelled, PeerdmaError, Timeout, TransferError
from ..regs import ErrorKind
from ..vfio.platform import Platform
from ..waiting import Waiter
from .engine import Direction, Engine
from .frames import FrameRun
from .prepared import Prepared, Run, Step

__all__ = ["Scheduler"]

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


class Scheduler:
    """What runs on the engine, and what waits for its turn. See `peerdma.board.backend.Transfers`.

    A transfer starts when none of its channels is used or wanted by an earlier one. If lost reads
    keep the room for completions, it waits until they do not, and is started again.

    Parameters
    ----------
    engine : Engine
    platform : Platform

    Attributes
    ----------
    frames : FrameRun or None
        The run of the C2H channel that fills frames, to be told what the channel reports.
    """

    def __init__(self, engine: Engine, platform: Platform):
        self._engine = engine
        self._platform = platform
        self._function = platform.function
        self.waiter: Waiter = self._function
        self._resets = self._engine.resets
        self._queue: list[Run] = []
        self._running: list[Run] = []
        self.frames: FrameRun | None = None
        #: whoever takes note of these removes them
        self._ended: deque[tuple[object, Moved | PeerdmaError]] = deque()
        #: whether to look at the channels without an interrupt
        self._look = False

    def start(self, prepared: backend.Prepared, tag: object, progress: Progress | None) -> None:
        """Starts a transfer, now or in its turn."""
        assert isinstance(prepared, Prepared), "not this backend's"
        run = Run(self._engine, prepared, tag, progress)
        if self._running or self._queue:
            self._queue.append(run)
            self._begin()
        else:
            self._begin_one(run)

    def cancel(self, tag: object) -> bool:
        """Ends a transfer, unless it has ended; False if it never started."""
        runs = [run for run in (*self._queue, *self._running) if run.tag is tag]
        known = bool(runs) or any(each is tag for each, _ in self._ended)
        try:
            for run in runs:
                self._fail(run, Cancelled(CANCELLED))
            self._begin()
        except PeerdmaError as error:
            self._lose(error)
        return known

    def deadline(self, until: float | None) -> float | None:
        """When the first of those that run is late; now, if there is something to collect."""
        if self._ended or self._look:
            return 0.0
        for run in self._running:
            if run.step is not None and (until is None or run.until < until):
                until = run.until
        return until

    def collect(self) -> deque[tuple[object, Moved | PeerdmaError]]:
        """What has ended; serves the messages of the device, and ends all if it goes away."""
        # If this is interrupted, the board's interrupt was taken for nothing.
        look, self._look = self._look, True
        try:
            if self._function.take_interrupt() or look:
                self._interrupted()
            if self._engine.resets != self._resets:
                self._end_reset()
            now = time.monotonic()
            for run in [*self._running]:
                if run.step is not None and now > run.until:
                    self._late(run, run.step, now)
        except PeerdmaError as error:
            self._lose(error)
        self._look = False
        return self._ended

    def _interrupted(self) -> None:
        """Goes on after an interrupt."""
        for run in self._running:
            if not run.waits:
                run.look()
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
        for run in [*self._running]:
            # One that fails may end others, by a reset.
            if run in self._running and not run.waits:
                self._advance(run)
        if self._queue:
            self._begin()

    def _late(self, run: Run, step: Step, now: float) -> None:
        """Ends a transfer that is late, or starts it again if it waited for room."""
        if run.waits:
            self._go_on(run, step, now)
        else:
            self._fail(run, run.late())
        self._begin()

    def _lose(self, error: PeerdmaError) -> None:
        """Ends all: the board does not answer any more."""
        for run in [*self._running, *self._queue]:
            self._fail(run, error)
        if self.frames is not None:
            self.frames.fail(error)

    def _begin(self) -> None:
        """Starts what can start."""
        taken = {each for run in self._running for each in run.prepared.directions}
        for run in list(self._queue):
            if taken.isdisjoint(run.prepared.directions):
                self._begin_one(run)
            taken |= run.prepared.directions

    def _begin_one(self, run: Run) -> None:
        try:
            run.since, run.began = time.monotonic(), self._engine.clock()
            # Before it starts: what is interrupted then has to be stopped.
            self._running.append(run)
            if run in self._queue:
                self._queue.remove(run)
            if step := run.next():
                self._start(run, step)
        except PeerdmaError as error:
            self._end(run, error)
        except BaseException:
            self._fail(run, Cancelled(_INTERRUPTED))
            raise

    def _advance(self, run: Run) -> None:
        try:
            if run.outcome is not None:
                self._end(run, run.outcome)
                return
            if not run.advance():
                return
            if step := run.next():
                self._start(run, step)
                return
            prepared = run.prepared
            if _C2H in prepared.directions and (lost := self._engine.lost_writes()):
                raise lost
            ended = self._engine.clock()
            elapsed = None if run.began is None or ended is None else ended - run.began
            self._end(run, Moved(run.cycles, prepared.limit, prepared.through, elapsed))
        except PeerdmaError as error:
            if not self._put_off(run, error):
                self._fail(run, error)
        except BaseException:
            self._fail(run, Cancelled(_INTERRUPTED))
            raise

    def _start(self, run: Run, step: Step) -> None:
        """Starts a step, or has it wait if it could not be made again."""
        engine = self._engine
        if engine.crowded and not step.repeats and engine.has_lost_reads():
            self._wait(run)
        else:
            run.start(step)

    def _wait(self, run: Run) -> None:
        now, quarantine = time.monotonic(), self._engine.quarantine
        if run.patience is None:
            run.patience = now + _PATIENCE * quarantine
        run.waits = True
        run.until = min(run.patience, now + quarantine / _LOOKS)

    def _put_off(self, run: Run, error: PeerdmaError) -> bool:
        """Stops a step that found no room for completions, and has it wait for that.

        False if it failed for another reason, cannot be made again, or has waited for so long that
        other reads must have been lost.
        """
        step, kind = run.step, error.kind if isinstance(error, TransferError) else None
        late = run.patience is not None and time.monotonic() > run.patience
        if kind != ErrorKind.NO_COMPLETION_SPACE or late or step is None or not step.repeats:
            return False
        with contextlib.suppress(PeerdmaError):
            run.stop()
        self._wait(run)
        return True

    def _go_on(self, run: Run, step: Step, now: float) -> None:
        """Starts a step that waits for room, if there is; otherwise it waits on."""
        try:
            if now < (run.patience or now) and self._engine.has_lost_reads():
                self._wait(run)
                return
            run.waits = False
            run.start_again(step)
        except PeerdmaError as error:
            self._fail(run, error)
        except BaseException:
            self._fail(run, Cancelled(_INTERRUPTED))
            raise

    def _fail(self, run: Run, error: PeerdmaError) -> None:
        """Stops a transfer, which is over then."""
        if run in self._running:
            with contextlib.suppress(PeerdmaError):
                # A board that is gone accesses no memory.
                if run.started:
                    run.stop()
            if isinstance(error, Timeout) and (notes := self._platform.notes(run.since)):
                error = Timeout(f"{error}. The board noted: {notes}")
            if _C2H in run.prepared.directions:
                # Taken, so that the next transfer does not report them.
                self._engine.lost_writes()
            self._end(run, error)
            if self._engine.resets != self._resets:
                self._end_reset()
        elif run in self._queue:
            self._end(run, error)

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

    def _end(self, run: Run, outcome: Moved | PeerdmaError) -> None:
        # If an interrupt comes in between, it is done again, and the transfer is there twice.
        run.outcome = run.outcome or outcome
        self._ended.append((run.tag, run.outcome))
        if run in self._running:
            self._running.remove(run)
        if run in self._queue:
            self._queue.remove(run)
