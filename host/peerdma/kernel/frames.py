# SPDX-License-Identifier: BSD-2-Clause
"""Receiving frames: a ring of the kernel driver's, which goes on until it is cancelled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from ..board.backend import Piece
from ..errors import PeerdmaError, Timeout, TransferError
from ..regs import FRAME_RECORD, waits_for_text
from ..uapi import Cancel, Event, Frame, Ioctl, Reason, ReleaseFrames, RingFlag, StartRing
from .jobs import CANCEL_SECONDS, Jobs, failure
from .node import KernelNode

__all__ = ["RingRun"]


class RingRun:
    """Fills frames in order, round and round, from its creation on.

    See `peerdma.board.backend.Filling`. The driver gates the ring: it never lets the board write a
    frame that was not released.

    Parameters
    ----------
    node : KernelNode
    jobs : Jobs
        Reads the driver's events, and passes on those of the ring.
    frames : sequence of sequences of Piece
        Where each goes; the last piece of each is the place of its record if `records`.
    records : bool
        Whether the board makes records.
    timeout : float or None
        Seconds to wait for a report; None: by a frame's size and the board's time scale.
    """

    def __init__(
        self,
        node: KernelNode,
        jobs: Jobs,
        frames: Sequence[Sequence[Piece]],
        *,
        records: bool,
        timeout: float | None,
    ):
        self._node = node
        self._jobs = jobs
        nbytes = max(frame[0].stop - frame[0].start for frame in frames)
        self._seconds = jobs.seconds_for(nbytes) if timeout is None else timeout
        self._filled = 0
        #: frames that may be written over, and how many of these the driver was told of
        self._released = self._told = 0
        self._failure: PeerdmaError | None = None
        self._stopped = False
        self.reports: int = 0
        self.ended: bool = False
        request = _request(frames, records)
        action = f"fill {len(frames)} frames of {nbytes} bytes"
        node.request(Ioctl.START_RING, request, action)
        self._job: int = request.job
        jobs.listeners[self._job] = self

    def filled(self) -> int:
        """Frames filled since the start."""
        return self._filled

    def release(self, count: int) -> None:
        """Lets the board write over the first frames; see `Filling`."""
        self._released = max(self._released, count)
        self._tell()

    def _tell(self) -> None:
        """Gives back what is filled and released; the driver takes nothing else."""
        count = min(self._released, self._filled)
        if count > self._told and not self.ended:
            self._told = count
            request = ReleaseFrames(job=self._job, count=count)
            self._node.request(Ioctl.RELEASE_FRAMES, request, "give frames back")

    def check(self) -> None:
        """Raises the error if the ring has failed."""
        if self._failure is not None:
            raise self._failure

    def seconds(self) -> float:
        """How long to wait for a report, at most."""
        return self._seconds

    def late(self) -> Timeout:
        """Stops the ring; returns the error for one that has not reported in its time."""
        waits_for = waits_for_text(self._node.info().c2h_waits_for)
        self.stop()
        return Timeout(
            f"no frame came within {self._seconds:g} s, after {self._filled} frames. The board "
            f"waits for: {waits_for}. Is the source switched on? If it is slow, give a longer "
            "timeout"
        )

    def stop(self) -> None:
        """Ends the ring, and waits until the board writes nothing any more.

        Raises
        ------
        Timeout
            If the driver does not end it.
        """
        self._stopped = True
        # Fails if it has ended meanwhile.
        with contextlib.suppress(PeerdmaError):
            self._node.request(Ioctl.CANCEL, Cancel(job=self._job), "stop a ring of frames")
        until = time.monotonic() + CANCEL_SECONDS
        while not self.ended:
            if time.monotonic() >= until:
                raise Timeout(f"the driver of the board at {self._node.path} does not end a ring")
            self._node.wait_for_event(until)
            self._jobs.collect()

    def note(self, event: Event) -> None:
        """Notes an event of the ring: frames, or its end."""
        self._filled = event.bytes
        self.reports += 1
        if event.reason == Reason.FRAMES:
            try:
                self._tell()
            except PeerdmaError as error:
                # If it is its end, the event of that says more.
                self._failure = error
        else:
            self.ended = True
            self._failure = None if self._stopped else failure(event, f"{event.bytes} frames")

    def lose(self, error: PeerdmaError) -> None:
        """Notes that the board is gone."""
        self.ended = True
        self._failure = error
        self.reports += 1


def _request(frames: Sequence[Sequence[Piece]], records: bool) -> StartRing:
    """The request for a ring; TransferError if the driver has none of this kind."""
    wanted = (Frame * len(frames))()
    request = StartRing(flags=RingFlag.FRESH, count=len(frames))
    for index, (frame, (data, *rest)) in enumerate(zip(wanted, frames, strict=True)):
        if len(rest) != records:
            raise TransferError(
                f"cannot fill frames in {1 + len(rest) - records} pieces: the kernel driver takes "
                "frames of one. Use an array for each"
            )
        frame.handle, frame.offset = data.handle.number, data.start
        frame.length = data.stop - data.start
        if not records:
            continue
        if not index:
            request.records_handle = rest[0].handle.number
            request.records_offset = rest[0].start
        at = request.records_offset + index * FRAME_RECORD.itemsize
        if (rest[0].handle.number, rest[0].start) != (request.records_handle, at):
            raise TransferError(
                "cannot fill frames: the kernel driver takes the records one behind the other"
            )
    request.set_frames(wanted)
    return request
