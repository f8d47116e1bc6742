# SPDX-License-Identifier: BSD-2-Clause
"""Receiving frames: a run of the C2H channel that writes the user stream to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..board.backend import FrameRecord
from ..errors import PeerdmaError, Timeout, TransferError
from ..memory.scatter import ScatterList
from ..regs import FRAME_NUMBER_VALID, FRAME_RECORD, Status
from .xdma import Direction, Xdma, stream_columns

__all__ = ["FrameRun", "Records"]

_COUNT_MASK = 0xFFFF_FFFF


@dataclass(frozen=True)
class Records:
    """Memory for the records of frames.

    Parameters
    ----------
    entries : numpy.ndarray of FRAME_RECORD
        Memory that the board can write.
    address : int
        Its bus address, a multiple of the size of a record.
    """

    entries: np.ndarray
    address: int

    def place(self, index: int) -> ScatterList:
        """Where entry `index` is."""
        return ScatterList([self.address + index * FRAME_RECORD.itemsize], [FRAME_RECORD.itemsize])


class FrameRun:
    """Fills frames in order, from its creation on: once, or round and round if `cyclic`.

    See `peerdma.board.backend.Filling`. When a method raises, the run has been stopped.

    Parameters
    ----------
    xdma : Xdma
    frames : sequence of ScatterList
        Where they are written; at least one, none empty.
    records : Records or None
        Where their records are written, an entry each; None if the board makes none.
    first : int
        The board's number of the first frame.
    lost : callable
        Returns the error for writes, since its last call, to addresses without memory; or None.
    cyclic : bool
    timeout : float or None
        Seconds to wait for a frame; None: by its size and the board's time scale.
    """

    def __init__(
        self,
        xdma: Xdma,
        frames: Sequence[ScatterList],
        records: Records | None,
        first: int,
        lost: Callable[[], TransferError | None],
        *,
        cyclic: bool,
        timeout: float | None,
    ):
        self._engine = xdma.engine
        self._lost = lost
        self._timeout = timeout
        self._cyclic = cyclic
        self._nbytes = max(frame.nbytes for frame in frames)
        self._records = records
        self._first = first
        if records:
            records.entries["number"][: len(frames)] = 0
            frames = [
                ScatterList.join([frame, records.place(index)])
                for index, frame in enumerate(frames)
            ]
        columns = [stream_columns(frame) for frame in frames]
        #: For each frame, the number of descriptors up to its end.
        self._ends = np.cumsum([len(lengths) for _, _, lengths in columns])
        needed = int(self._ends[-1])
        if needed > xdma.ring_size:
            pieces = needed - (len(frames) if records else 0)
            raise TransferError(
                f"cannot stream to {len(frames)} frames in {pieces} pieces of memory"
                f"{' and their records' if records else ''}: the "
                f"descriptor ring holds {xdma.ring_size}. Use fewer, smaller or less scattered "
                "surfaces"
            )
        #: descriptors finished in all, and the board's 32-bit count at that time
        self._done = self._count = 0
        #: the run's status: what was cleared in the register so far
        self._status = 0
        self.reports: int = 0
        self._failure: PeerdmaError | None = None
        self.ended: bool = False
        xdma.start(
            Direction.C2H,
            0,
            *(np.concatenate(column) for column in zip(*columns, strict=True)),
            completed=np.isin(np.arange(1, needed + 1), self._ends),
            cyclic=cyclic,
        )

    def filled(self) -> int:
        """Frames filled since the start; TransferError if the board wrote to unmapped addresses."""
        channel = self._engine.channels[Direction.C2H]
        # Checked after the count is read: status and lost writes of the frames that it covers are
        # known by then. A descriptor that failed is counted, and its frame is not filled.
        count = channel.completed()
        new = (count - self._count) & _COUNT_MASK
        if new and (self._status | channel.status()) & Status.errors():
            new, count = new - 1, count - 1
        self._require_arrived()
        self._done += new
        self._count = count & _COUNT_MASK
        rounds, rest = divmod(self._done, int(self._ends[-1]))
        return rounds * len(self._ends) + int(np.searchsorted(self._ends, rest, side="right"))

    def record(self, frame: int) -> FrameRecord | None:
        """What the board says of a frame that is filled; see `Filling`."""
        if self._records is None:
            return None
        entry = self._records.entries[frame % len(self._ends)].copy()
        expected = (self._first + frame) % FRAME_NUMBER_VALID
        found = int(entry["number"])
        ahead = (found - expected) % FRAME_NUMBER_VALID
        if found & FRAME_NUMBER_VALID and int(entry["bytes"]) == self._nbytes:
            if not ahead:
                return FrameRecord(
                    expected,
                    int(entry["cycles"]),
                    self._nbytes,
                    int(entry["dropped"]),
                    int(entry["crc"]),
                )
            if self._cyclic and not ahead % len(self._ends):
                return None
        raise TransferError(
            f"frame {expected} is not {self._nbytes} bytes long: no record follows that many. "
            "Make surfaces, or frame_bytes, as large as the source's frames, and start the source "
            "before the frames"
        )

    def seconds(self) -> float:
        """How long to wait for a report, at most."""
        return self._engine.seconds_for(self._nbytes) if self._timeout is None else self._timeout

    def report(self, status: int) -> None:
        """Notes the channel's status after an interrupt; `check` says what follows."""
        if status & ~Status.BUSY:
            self._status |= status
            self.reports += 1

    def fail(self, error: PeerdmaError) -> None:
        """Notes that the board does not answer any more."""
        self._failure = error
        self.reports += 1

    def check(self) -> None:
        """Ends the run if that is what was reported; raises an error if it failed."""
        if self._failure is not None:
            self.ended = True
            raise self._failure
        if self.ended:
            return
        try:
            if self._status & Status.errors():
                raise self._engine.failure(Direction.C2H, self._status, f"{self.filled()} frames")
            if self._status & Status.DESCRIPTOR_STOPPED:
                self._require_arrived()
                self.stop()
        except BaseException:
            self.stop()
            raise

    def late(self) -> Timeout:
        """Stops the run; returns the error for one that has not reported in its time."""
        filled = self.filled()
        self.stop()
        return Timeout(
            f"no frame of {self._nbytes} bytes came within {self.seconds():g} s, after "
            f"{filled} frames. Is the source switched on? If it is slow, give a longer timeout"
        )

    def stop(self) -> None:
        """Ends the run; nothing moves any more."""
        self.ended = True
        self._engine.stop([Direction.C2H])
        # Discarded, so that the next transfer does not report this run's lost writes.
        self._lost()

    def _require_arrived(self) -> None:
        if error := self._lost():
            self.stop()
            raise error
