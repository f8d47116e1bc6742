# SPDX-License-Identifier: BSD-2-Clause
"""Streaming: a source on the board fills a ring of arrays, which a loop in Python consumes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments import wrong_type
from ..errors import PeerdmaError, Timeout, UnsupportedError
from ..memory.memory import is_memory
from ..process import OneProcess
from ..regs import Capability
from ..uapi import Access
from ..waiting import OwnLock
from .arrays import Arrays, Lease
from .backend import Backend, Extension, Filling, FrameRecord
from .clock import ClockEstimator, FrameClock, FrameTime
from .job_runner import JobRunner
from .pin import Pin, Span
from .plan import pieces
from .records import Records

__all__ = ["Frame", "Frames", "Place", "fill_frames", "require_ring"]


class Place:
    """Where frames go: an array of the ring, pinned.

    Parameters
    ----------
    array : object
        What was given to `Board.frames`.
    frame_bytes : int or None
        See there.
    find : callable
        Makes the span of a pin or span of the board's, see `Planner.span`.
    pin : callable
        Pins memory for the board to write.
    arrays : Arrays

    Attributes
    ----------
    array : object
    span : Span
    """

    def __init__(
        self,
        array: Any,
        frame_bytes: int | None,
        find: Callable[[Any, Access, list[Lease]], Span],
        pin: Callable[[Any], Pin],
        arrays: Arrays,
    ):
        self.array: Any = array
        memory, start, stop = array, 0, None
        if isinstance(array, Pin | Span):
            given = find(array, Access.WRITE, [])
            memory, start, stop = given.pin.memory, given.start, given.stop
        pinned = pin(memory)
        self.span: Span = _frame_in(pinned[start:stop], frame_bytes)
        self._pin = pinned
        self._queued = not is_memory(memory)
        self._arrays = arrays

    def order(self) -> None:
        """Waits for the work that the array's library has queued on it."""
        origin = self._pin.origin
        if self._queued and origin is not None and origin.produced:
            self._arrays.wait_for_producer(self.array, origin.produced)

    def require_unmoved(self) -> None:
        """PinError if the array is not where it was when it was pinned."""
        self._pin.require_unmoved()


class Frame(OneProcess):
    """A frame from the board, in an array that the board does not write until it is released.

    Attributes
    ----------
    array : object
        The array with the frame: one of those that were given to `Board.frames`.
    number : int
        Number of the frame, counted from 0.
    record : FrameRecord or None
        What the board says of it: its time, length and CRC, and what the board dropped before. None
        if the board makes no records, or, with `overwrite`, if the record was written over before
        it was read.
    time : FrameTime or None
        When it began, by the host's clock. None without a record; if the board's driver does not
        report its cycle counter; and if the counter was reset since, or the host suspended.
    """

    __slots__ = ("_frames", "_given_back", "array", "number", "record", "time")

    def __init__(
        self,
        frames: Frames,
        array: Any,
        number: int,
        record: FrameRecord | None,
        time: FrameTime | None,
    ):
        self._frames = frames
        self._given_back = False
        self.array: Any = array
        self.number: int = number
        self.record: FrameRecord | None = record
        self.time: FrameTime | None = time

    def __repr__(self) -> str:
        return f"<Frame {self.number} in {self.array!r}>"

    def intact(self) -> bool:
        """Whether the array still holds the frame, and the board does not write it.

        Call it after using the array, to know that all that was read is of one frame, with
        `overwrite`. Where the frame has a record, and the CPU can read its bytes, their CRC is
        compared, too: that takes time.
        """
        return self._frames._holds(self)

    def release(self) -> None:
        """Lets the board write the array again, before the next frame is asked for.

        With a stream: as soon as that has done its work so far. Releasing again does nothing.
        """
        if not self._given_back:
            self._frames._give_back(self)
            self._given_back = True


class Frames(OneProcess):
    """An iterator over frames, each in the next array of a ring.

    Use it as a context manager, or `close` it: the board writes frames until then. Any thread may
    close it, also while another one waits for a frame: the loop there ends. Not to be built
    directly: use `Board.frames`.

    Parameters
    ----------
    run : Filling
        It fills the places in turn.
    places : sequence of Place
    records : Records or None
    clock : FrameClock or None
    overwrite : bool
        See `Board.frames`.
    after : callable or None
        ``after(call)`` has a function called when the stream has done its work so far, with the
        board's lock held; None: frames are not in the order of a stream.
    closed : callable
        Called once, when it is closed.
    jobs : JobRunner
        Its lock is held while the board is used, but not while a thread waits.

    Attributes
    ----------
    records : Records or None
        Where the board writes the frames' records, that of frame k to place k modulo the length of
        the ring, before it is yielded. None if the board makes none.
    dropped : int
        Frames that were not yielded, or were overwritten while they were in use. Always 0 unless
        `overwrite`.
    closed : bool
    """

    def __init__(
        self,
        run: Filling,
        places: Sequence[Place],
        records: Records | None,
        clock: FrameClock | None,
        *,
        overwrite: bool,
        after: Callable[[Callable[[], None]], None] | None,
        closed: Callable[[], None],
        jobs: JobRunner,
    ):
        self._run = run
        self._places = places
        self.records: Records | None = records
        self._clock = clock
        self._overwrite = overwrite
        self._after = after
        self._when_closed = closed
        self._jobs = jobs
        self._lock = jobs.lock
        #: held by the thread that waits for the next frame
        self._turn = OwnLock()
        self._last: Frame | None = None
        self.dropped: int = 0
        self.closed: bool = False
        #: all frames before this one are released; and those after it that are
        self._released = 0
        self._released_early: set[int] = set()

    def __iter__(self) -> Frames:
        return self

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Frame:
        if self.closed:
            raise PeerdmaError("the stream is closed; start another one")
        with self._turn:
            try:
                if self._last is not None:
                    self._last.release()
                with self._lock:
                    if self.closed:
                        raise StopIteration
                    number = self._newest() if self._overwrite else self._next()
                    place, record, when = self._place(number), None, None
                    if self.records is not None:
                        record = self.records.read(number, place.span.nbytes, self._overwrite)
                    if record is not None and self._clock is not None:
                        when = self._clock.time(number, record.cycles)
                    self._last = Frame(self, place.array, number, record, when)
                place.span.pin.memory.flush_writes()
            except BaseException:
                self.close()
                raise
            return self._last

    def close(self) -> None:
        """Stops the board, which writes nothing any more. Closing again does nothing."""
        if self._lock.foreign:
            return
        with self._lock:
            if self.closed:
                return
            self.closed = True
            try:
                if not self._run.ended:
                    self._run.stop()
            finally:
                self._when_closed()
                self._jobs.wake()

    def _place(self, number: int) -> Place:
        return self._places[number % len(self._places)]

    def _next(self) -> int:
        """The number of the next frame, when it is there."""
        number = 0 if self._last is None else self._last.number + 1
        while self._run.filled() <= number:
            self._wait()
        return number

    def _newest(self) -> int:
        """The number of the newest frame that was not yielded, when it is there."""
        last = -1 if self._last is None else self._last.number
        while (filled := self._run.filled()) <= last + 1:
            self._wait()
        used_until_overwritten = 0 <= last <= filled - len(self._places)
        self.dropped += filled - last - 2 + used_until_overwritten
        return filled - 1

    def _wait(self) -> None:
        """Waits until the run has reported something; StopIteration if this was closed."""
        run = self._run
        run.check()
        reports, until = run.reports, time.monotonic() + run.seconds()
        while run.reports == reports:
            if time.monotonic() >= until:
                raise self._late()
            self._jobs.wait(until)
            if self.closed:
                raise StopIteration
        run.check()

    def _late(self) -> Timeout:
        """The error if no frame came in time."""
        if self._overwrite or self._run.filled() < self._released + len(self._places):
            return self._run.late()
        return Timeout(
            f"all {len(self._places)} frames of the ring have been in use for "
            f"{self._run.seconds():g} s: the stream has not done its work on them. Give the ring "
            "more arrays, or a longer timeout if the work takes so long"
        )

    # Frames that were yielded ----------------------------------------------------------------

    def _holds(self, frame: Frame) -> bool:
        """See `Frame.intact`."""
        with self._lock:
            try:
                if self._overwrite:
                    ends = frame.number + len(self._places)
                    holds = not self.closed and self._run.filled() < ends
                else:
                    holds = frame.number >= self._released
            except BaseException:
                self.close()
                raise
            if self.closed or frame.record is None or not holds:
                return holds
        return self._place(frame.number).span.crc() in (None, frame.record.crc)

    def _give_back(self, frame: Frame) -> None:
        """See `Frame.release`."""
        if self.closed:
            return
        if self._overwrite:
            # The board writes any of them, at any time.
            for place in self._places:
                place.require_unmoved()
            return

        def release() -> None:
            self._release(frame.number)

        place = self._place(frame.number)
        place.require_unmoved()
        if self._after is not None:
            self._after(release)
            return
        place.order()
        with self._lock:
            release()

    def _release(self, number: int) -> None:
        """The lock is held."""
        if number >= self._released:
            self._released_early.add(number)
        while self._released in self._released_early:
            self._released_early.remove(self._released)
            self._released += 1
        if not self.closed:
            # If the board is gone, whoever waits for the next frame gets the error.
            with contextlib.suppress(PeerdmaError):
                self._run.release(self._released)


def fill_frames(
    jobs: JobRunner,
    backend: Backend,
    capabilities: Capability,
    places: Sequence[Place],
    pin: Callable[[np.ndarray], Pin],
    *,
    after: Callable[[Callable[[], None]], None] | None,
    overwrite: bool,
    timeout: float | None,
    closed: Callable[[], None],
) -> Frames:
    """Starts to fill places with frames, and pins memory for records; the rest as for `Frames`."""
    _require_frames([place.span for place in places])
    ring, records = [[place.span] for place in places], None
    if Capability.FRAME_RECORDS in capabilities:
        records = Records(len(places), [place.span.pin.memory for place in places])
        pinned, size = pin(records.array), records.array.itemsize
        for index, frame in enumerate(ring):
            frame.append(pinned[index * size : (index + 1) * size])
    clock, extension = None, backend.info.extension
    if records and extension and extension.clock_khz:
        # Before the first frame: what began before the first reading has no time.
        estimator = ClockEstimator(extension.clock_khz, backend.info.simulated)
        clock = FrameClock(backend.read_clock, estimator, len(places))
    run = backend.fill([pieces(frame) for frame in ring], overwrite=overwrite, timeout=timeout)
    return Frames(
        *(run, places, records, clock), overwrite=overwrite, after=after, closed=closed, jobs=jobs
    )


def require_ring(surfaces: Any, overwrite: bool, stream: Any, extension: Extension) -> None:
    """Raises unless the board has a source that can fill these surfaces in turn."""
    if extension.user_ratio[0]:
        raise UnsupportedError(
            f"cannot stream: the board's user block {extension.user_block} is not a source of "
            "frames. Build its gateware with one, such as --user pattern"
        )
    if not isinstance(surfaces, (Sequence, np.ndarray)):
        raise wrong_type("a stream fills a sequence of surfaces", surfaces, "write [a, b]")
    if len(surfaces) < 1 + overwrite:
        raise ValueError(f"a ring of {len(surfaces)} surfaces is too small")
    if overwrite and stream is not None:
        raise ValueError("with overwrite the board waits for no stream; leave out one of the two")


def _frame_in(span: Span, frame_bytes: int | None) -> Span:
    """The start of a span that a frame takes; None: all of it. ValueError if it does not fit."""
    if frame_bytes is None:
        return span
    if frame_bytes > span.nbytes:
        raise ValueError(
            f"frames of {frame_bytes} bytes do not fit a surface of {span.nbytes} bytes"
        )
    return span.pin[span.start : span.start + frame_bytes]


def _require_frames(spans: Sequence[Span]) -> None:
    """ValueError unless all spans have the same length, and are not empty."""
    sizes = {span.nbytes for span in spans}
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(
            f"frames have one size above 0; these surfaces have {sorted(sizes)} bytes. Give a "
            "frame_bytes that fits all of them"
        )
