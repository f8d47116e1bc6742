# SPDX-License-Identifier: BSD-2-Clause
"""Receiving frames: a run of the C2H channel that writes the user stream to memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import PeerdmaError, Timeout, TransferError
from ..memory.scatter import ScatterList
from ..regs import STREAM_WINDOW, Status
from .engine import MOST_CREDITS
from .prepared import descriptor_columns
from .xdma import Direction, Xdma

__all__ = ["FrameRun"]

_COUNT_MASK = 0xFFFF_FFFF
#: A run reports that often, in descriptors, also within a frame: to be given credits again.
_REPORT_EVERY = MOST_CREDITS // 2


class FrameRun:
    """Fills frames in order, round and round, from its creation on.

    The chain is a ring of descriptors. Unless `overwrite`, it runs in credit mode, with credits for
    frames that may be written. See `peerdma.board.backend.Filling`. When a method raises, the run
    has been stopped.

    Parameters
    ----------
    xdma : Xdma
    frames : sequence of ScatterList
        Where they are written; at least one, none empty.
    overwrite : bool
    timeout : float or None
        Seconds to wait for a report; None: by a frame's size and the board's time scale.
    """

    def __init__(
        self,
        xdma: Xdma,
        frames: Sequence[ScatterList],
        *,
        overwrite: bool,
        timeout: float | None,
    ):
        self._xdma = xdma
        self._engine = xdma.engine
        self._channel = xdma.engine.channels[Direction.C2H]
        self._timeout = timeout
        self._overwrite = overwrite
        self._nbytes = max(frame.nbytes for frame in frames)
        columns = [descriptor_columns(frame, STREAM_WINDOW) for frame in frames]
        #: For each frame, the number of descriptors up to its end.
        self._ends = np.cumsum([each.shape[1] for each in columns])
        needed = int(self._ends[-1])
        if needed > xdma.ring_size:
            raise TransferError(
                f"cannot stream to {len(frames)} frames: they are in {needed} pieces of memory, "
                f"records included, and the descriptor ring holds {xdma.ring_size}. Use fewer, "
                "smaller or less scattered surfaces"
            )
        #: descriptors that were finished at the last look
        self._done = 0
        #: descriptors that the board may write in all, and for which it has been given credits
        self._allowed = self._given = 0
        #: the run's status: what was cleared in the register so far
        self._status = 0
        self.reports: int = 0
        self._failure: PeerdmaError | None = None
        self.ended: bool = False
        index = np.arange(1, needed + 1)
        xdma.begin_frames()
        self._channel.use_credits(not overwrite)
        xdma.start(
            Direction.C2H,
            0,
            *np.concatenate(columns, axis=1),
            completed=np.isin(index, self._ends) | (index % _REPORT_EVERY == 0),
            cyclic=True,
        )
        self.release(0)

    def filled(self) -> int:
        """Frames filled since the start; TransferError if the board wrote to unmapped addresses."""
        done = self._look()
        # Checked after the count is read: lost writes of the frames that it covers are known then.
        self._require_arrived()
        self._done = done
        rounds, rest = divmod(self._done, int(self._ends[-1]))
        return rounds * len(self._ends) + int(np.searchsorted(self._ends, rest, side="right"))

    def release(self, count: int) -> None:
        """Lets the board write over the first frames; see `Filling`."""
        rounds, rest = divmod(count, len(self._ends))
        before = int(self._ends[rest - 1]) if rest else 0
        self._allowed = max(self._allowed, (rounds + 1) * int(self._ends[-1]) + before)
        self._give()

    def _look(self) -> int:
        """Descriptors finished in all."""
        if self.ended:
            # The count may be another run's, or that of an engine that was reset.
            return self._done
        count = self._channel.completed()
        new = (count - self._done) & _COUNT_MASK
        # A descriptor that failed is counted. The status is read after the count: it covers it.
        if new and (self._status | self._channel.status()) & Status.errors():
            new -= 1
        return self._done + new

    def _give(self) -> None:
        """Gives the channel credits, as many as are due and as it can count."""
        if self._overwrite or self.ended or self._given == self._allowed:
            return
        credits = min(self._allowed, self._look() + MOST_CREDITS) - self._given
        if credits > 0:
            self._given += credits
            self._channel.give(credits)

    def seconds(self) -> float:
        """How long to wait for a report, at most."""
        return self._engine.seconds_for(self._nbytes) if self._timeout is None else self._timeout

    def report(self, status: int) -> None:
        """Notes the channel's status after an interrupt; `check` says what follows."""
        if status & ~Status.BUSY:
            self._status |= status
            self.reports += 1
            self._give()

    def fail(self, error: PeerdmaError) -> None:
        """Notes that the board does not answer any more."""
        self._failure = error
        self.reports += 1

    def check(self) -> None:
        """Raises an error if that is what was reported; the run has ended then."""
        if self._failure is not None:
            self.ended = True
            raise self._failure
        if self._status & Status.errors() and not self.ended:
            try:
                raise self._engine.failure(Direction.C2H, self._status, f"{self.filled()} frames")
            finally:
                self.stop()

    def late(self) -> Timeout:
        """Stops the run; returns the error for one that has not reported in its time."""
        filled, waits_for = self.filled(), self._xdma.engine.waits_for(Direction.C2H)
        self.stop()
        return Timeout(
            f"no frame came within {self.seconds():g} s, after {filled} frames. The board waits "
            f"for: {waits_for}. Is the source switched on? If it is slow, give a longer timeout"
        )

    def stop(self) -> None:
        """Ends the run; nothing moves any more."""
        self.ended = True
        try:
            self._engine.stop([Direction.C2H])
        finally:
            # Not before: the channel would go on without credits.
            self._channel.use_credits(False)
        # Discarded, so that the next transfer does not report this run's lost writes.
        self._engine.lost_writes()

    def _require_arrived(self) -> None:
        if error := self._engine.lost_writes():
            self.stop()
            raise error
