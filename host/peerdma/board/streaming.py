# SPDX-License-Identifier: BSD-2-Clause
"""Streaming: a source on the board fills a ring of surfaces, which a loop in Python consumes."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import PeerdmaError
from .backend import Filling, FrameRecord, StreamBackend
from .jobs import Jobs
from .pin import Span
from .spans import pieces

__all__ = ["Frames", "fill_frames"]


class Frames:
    """An iterator over surfaces, each filled by the board with the next frame.

    The board does not reuse a surface before the next one is requested (unless `overwrite`). Use
    the stream as a context manager, or `close` it: the board writes frames until then. Any thread
    may close it, also while another one waits for a frame: the loop there ends. Not to be built
    directly: use `Board.frames`.

    Parameters
    ----------
    items : sequence
        What the iterator yields, in the order of the ring.
    fill : callable
        ``fill(indices)`` starts a run that fills the items of these indices.
    overwrite : bool
        See `Board.frames`.
    crc : callable
        ``crc(index)`` is the CRC-32 of the frame in an item; None where the CPU cannot read it.
    taken : callable
        Called with the index of an item before the iterator yields it.
    closed : callable
        Called once, when the stream is closed.
    jobs : Jobs
        Its lock is held while the board is used, but not while the stream waits.

    Attributes
    ----------
    number : int
        Number of the last yielded frame, counted from 0; -1 before the first.
    record : FrameRecord or None
        What the board says of that frame: its time, its CRC, and what the board dropped. None
        before the first frame, if the board makes no records, or, with `overwrite`, if the record
        was written over before it was read.
    dropped : int
        Frames that were not yielded, or were overwritten while they were in use. Always 0 unless
        `overwrite`.
    closed : bool
    """

    def __init__(
        self,
        items: Sequence[Any],
        fill: Callable[[Sequence[int]], Filling],
        *,
        overwrite: bool,
        crc: Callable[[int], int | None],
        taken: Callable[[int], None],
        closed: Callable[[], None],
        jobs: Jobs,
    ):
        self._items = items
        self._fill = fill
        self._overwrite = overwrite
        self._crc = crc
        self._taken = taken
        self._when_closed = closed
        self._jobs = jobs
        self._lock = jobs.lock
        #: held by the thread that waits for the next frame
        self._turn = threading.Lock()
        self.number: int = -1
        self.record: FrameRecord | None = None
        #: index of the last yielded item
        self._index = 0
        self.dropped: int = 0
        self.closed: bool = False
        self._run: Filling | None = None
        #: indices of items: to be filled, being filled by the run in this order, filled
        self._free = deque(range(len(items)))
        self._filling: deque[int] = deque()
        self._filled: deque[tuple[int, FrameRecord | None]] = deque()
        self._held: int | None = None
        self._begin()

    def __iter__(self) -> Frames:
        return self

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Any:
        if self.closed:
            raise PeerdmaError("the stream is closed; start another one")
        with self._turn:
            try:
                with self._lock:
                    if self.closed:
                        raise StopIteration
                    index = self._newest() if self._overwrite else self._next()
                    self._index = index
                self._taken(index)
            except BaseException:
                self.close()
                raise
        return self._items[index]

    def intact(self) -> bool:
        """Whether the last yielded surface still holds its frame, and was not overwritten.

        Call it after using the surface, to know that all that was read is of one frame. Where the
        frame has a record, and the CPU can read its bytes, their CRC is compared, too: that takes
        time. Otherwise always true unless `overwrite`.
        """
        record, index = self.record, self._index
        if self.closed or self.number < 0:
            return True
        if record is not None and self._crc(index) not in (None, record.crc):
            return False
        with self._lock:
            if not self._overwrite or self.closed:
                return True
            try:
                return self._running().filled() < self.number + len(self._items)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Stops the board, which writes nothing any more. Closing again does nothing."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            try:
                if self._run is not None and not self._run.ended:
                    self._run.stop()
            finally:
                self._when_closed()
                self._jobs.wake()

    def _running(self) -> Filling:
        assert self._run is not None, "waiting for a frame, but no run is in progress"
        return self._run

    def _wait(self) -> None:
        """Waits until the run has reported something; StopIteration if the stream was closed."""
        run = self._running()
        run.check()
        if run.ended:
            return
        reports, until = run.reports, time.monotonic() + run.seconds()
        while run.reports == reports:
            if time.monotonic() >= until:
                raise run.late()
            self._jobs.wait(until)
            if self.closed:
                raise StopIteration
        run.check()

    # Without overwrite: the board waits for surfaces -----------------------------------------

    def _begin(self) -> None:
        """Starts a run that fills all free items, unless one is in progress."""
        if self._run is None and self._free:
            self._filling = self._free
            self._free = deque()
            self._run = self._fill(list(self._filling))
            self._counted = 0

    def _next(self) -> int:
        if self._held is not None:
            self._free.append(self._held)
            self._held = None
        self._collect()
        while not self._filled:
            self._begin()
            self._wait()
            self._collect()
        self._begin()
        self.number += 1
        self._held, self.record = self._filled.popleft()
        return self._held

    def _collect(self) -> None:
        """Notes which items the run has filled, and whether it has ended."""
        if self._run is None:
            return
        filled = self._run.filled()
        while self._counted < filled:
            record = self._run.record(self._counted)
            self._filled.append((self._filling.popleft(), record))
            self._counted += 1
        if not self._filling:
            while not self._run.ended:
                self._wait()
            self._run = None

    # With overwrite: the board never waits ---------------------------------------------------

    def _newest(self) -> int:
        run = self._running()
        while (filled := run.filled()) <= self.number + 1:
            self._wait()
        used_until_overwritten = 0 <= self.number <= filled - len(self._items)
        newest = filled - 1
        self.dropped += newest - self.number - 1 + used_until_overwritten
        self.number, self.record = newest, run.record(newest)
        return newest % len(self._items)


def fill_frames(
    jobs: Jobs,
    backend: StreamBackend,
    items: Sequence[Any],
    spans: Sequence[Span],
    overwrite: bool,
    timeout: float | None,
    closed: Callable[[], None],
) -> Frames:
    """Starts to fill spans with frames; `items` is what the iterator yields for them."""
    fresh = itertools.chain([True], itertools.repeat(False))

    def fill(indices: Sequence[int]) -> Filling:
        return backend.fill(
            pieces([spans[index] for index in indices]),
            cyclic=overwrite,
            fresh=next(fresh),
            timeout=timeout,
        )

    def taken(index: int) -> None:
        spans[index].pin.memory.flush_writes()

    return Frames(
        items,
        fill,
        overwrite=overwrite,
        crc=lambda index: spans[index].crc(),
        taken=taken,
        closed=closed,
        jobs=jobs,
    )
