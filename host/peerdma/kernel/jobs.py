# SPDX-License-Identifier: BSD-2-Clause
"""Transfers as jobs of the kernel driver: divides, submits and cancels them, and reads their ends.

A transfer is one job of the driver, or several if it is long or scattered. Nothing here waits.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from ..board.backend import Moved, Piece, Prepared, Progress
from ..board.transfer import Through
from ..errors import (
    CANCELLED,
    BoardLost,
    Cancelled,
    PeerdmaError,
    PinError,
    Timeout,
    TransferError,
)
from ..uapi import Cancel, Event, Ioctl, Op, Reason, Submit
from ..waiting import Waiter
from .node import KernelNode

__all__ = ["CANCEL_SECONDS", "JOB_BYTES", "Jobs", "Listener", "Requests", "divided", "failure"]

#: Bytes of one job: progress is reported, and a cancelled transfer ends, between jobs.
JOB_BYTES = 64 << 20
#: Time limit of a transfer: so many seconds, plus the time of its bytes at this rate (bytes per
#: second), times the board's time scale. The driver's own watchdog ends jobs long before that.
_BASE_SECONDS, _SLOWEST = 60.0, 100e6
#: Seconds to wait for the end of cancelled jobs.
CANCEL_SECONDS = 60.0


class Requests(Prepared):
    """A transfer that can be run, any number of times, as jobs of the driver. Immutable."""

    __slots__ = ("limit", "moved", "nbytes", "requests", "through")

    def __init__(
        self,
        requests: Sequence[Submit],
        nbytes: int,
        limit: float | None,
        through: Through | None,
        moved: int,
    ):
        self.requests: Sequence[Submit] = requests
        self.nbytes: int = nbytes
        self.limit: float | None = limit
        self.through: Through | None = through
        #: bytes that the driver reports in all: those that reach the destination
        self.moved: int = moved


class Listener(Protocol):
    """What is told of a job that is no transfer: a ring of frames, a launch queue."""

    def note(self, event: Event) -> None:
        """Notes an event of the job."""
        ...

    def lose(self, error: PeerdmaError) -> None:
        """Notes that the board is gone, and the job with it."""
        ...


class _Run:
    """A transfer from its start on.

    It is late at `until`. Its time counts from when all that were started before it have ended, and
    is None before.
    """

    __slots__ = (
        "cycles",
        "done",
        "failure",
        "left",
        "prepared",
        "progress",
        "sent",
        "tag",
        "until",
    )

    def __init__(self, prepared: Requests, tag: object, progress: Progress | None):
        self.prepared = prepared
        self.tag = tag
        self.progress = progress
        #: requests that the driver has taken, and how many of these jobs have not ended
        self.sent = self.left = 0
        self.cycles = self.done = 0
        #: why it is being ended early
        self.failure: PeerdmaError | None = None
        self.until: float | None = None


class Jobs:
    """What is in progress on a board. See `peerdma.board.backend.Transfers`.

    Parameters
    ----------
    node : KernelNode
    time_scale : int
        How much slower than real time the board runs.
    timeout : float or None
        Seconds to wait for one transfer; None: by its size and the board's time scale.

    Attributes
    ----------
    listeners : dict of int to Listener
        By the number of the driver's job, those whose last event was not read; whoever starts such
        a job adds it.
    """

    def __init__(self, node: KernelNode, time_scale: int, timeout: float | None):
        self._node = node
        self.waiter: Waiter = node
        self._time_scale = time_scale
        self._timeout = timeout
        #: in the order of their start
        self._runs: dict[object, _Run] = {}
        #: those with requests that the driver has not taken, in that order
        self._waiting: deque[_Run] = deque()
        #: those that are being ended early
        self._stopping: list[_Run] = []
        #: By the number of the driver's job. Keeps the run, and so its memory, until that has
        #: ended, also if it is late and was given up.
        self._numbers: dict[int, _Run] = {}
        self._ended: deque[tuple[object, Moved | PeerdmaError]] = deque()
        self.listeners: dict[int, Listener] = {}
        #: Whether an interrupt kept the last `collect` from its end: it has something to do then,
        #: also if the driver reports nothing more.
        self._interrupted = False

    def start(self, prepared: Prepared, tag: object, progress: Progress | None) -> None:
        """Starts a transfer."""
        assert isinstance(prepared, Requests), "not this backend's"
        run = _Run(prepared, tag, progress)
        if not self._runs:
            self._begin_time(run)
        self._runs[tag] = run
        try:
            if self._waiting or not self._submit(run):
                self._waiting.append(run)
        except PeerdmaError as error:
            self._stop(run, error)

    def cancel(self, tag: object) -> bool:
        """Has the driver stop a transfer, unless it has ended; False if it never started."""
        if run := self._runs.get(tag):
            self._stop(run, Cancelled(CANCELLED))
            return True
        return any(each is tag for each, _ in self._ended)

    def deadline(self, until: float | None) -> float | None:
        """When the first of them is late; now, if there is something to collect."""
        if self._ended or self._interrupted:
            return 0.0
        for oldest in self._runs.values():
            for run in (oldest, *self._stopping):
                if run.until is not None and (until is None or run.until < until):
                    until = run.until
            break
        return until

    def collect(self) -> deque[tuple[object, Moved | PeerdmaError]]:
        """Reads what has ended, and submits what the driver has room for then."""
        interrupted, self._interrupted = self._interrupted, True
        try:
            events = self._node.events()
            while events:
                self._note(events[0])
                events.popleft()
        except BoardLost as error:
            self._lose(error)
        if interrupted:
            for run in list(self._runs.values()):
                if not run.left and (run.failure or run.sent == len(run.prepared.requests)):
                    self._end(run)
        if self._waiting:
            self._feed()
        if self._runs:
            self._expire()
        self._interrupted = False
        return self._ended

    def _feed(self) -> None:
        """Submits what the driver's queue has room for."""
        while self._waiting:
            run = self._waiting[0]
            try:
                if not self._submit(run):
                    return
            except PeerdmaError as error:
                self._stop(run, error)
            else:
                self._waiting.popleft()

    def _submit(self, run: _Run) -> bool:
        """Submits the requests of a run; False if the queue is full before all are in it."""
        requests = run.prepared.requests
        while run.sent < len(requests):
            request = requests[run.sent]
            request.job = 0  # the driver returns the job's number here; the request may be a repeat
            try:
                self._node.request(Ioctl.SUBMIT, request, "transfer {0.length} bytes")
            except PeerdmaError as error:
                if error.errno == errno.EAGAIN and self._numbers:
                    return False
                raise
            finally:
                # Also if an interrupt came behind it: the driver has the job.
                if request.job:
                    self._numbers[request.job] = run
                    run.left += 1
                    run.sent += 1
        return True

    def _note(self, event: Event) -> None:
        """Notes that a job has ended."""
        if listener := self.listeners.get(event.job):
            listener.note(event)
            if event.reason != Reason.FRAMES:
                del self.listeners[event.job]
            return
        run = self._numbers.get(event.job)
        if run is None:
            return
        del self._numbers[event.job]
        run.left -= 1
        if event.result:
            self._stop(run, failure(event, f"{event.bytes} bytes"))
            return
        run.cycles += event.cycles
        run.done += event.bytes
        if run.progress:
            run.progress(run.done * run.prepared.nbytes // run.prepared.moved, run.prepared.nbytes)
        if not run.left and (run.failure or run.sent == len(run.prepared.requests)):
            self._end(run)

    def _stop(self, run: _Run, error: PeerdmaError) -> None:
        """Ends a run early; it has ended when its jobs have, whose time the driver limits."""
        if run.failure is None:
            run.failure = error
            run.until = time.monotonic() + CANCEL_SECONDS
            self._stopping.append(run)
            if run in self._waiting:
                self._waiting.remove(run)
            for number in [number for number, of in self._numbers.items() if of is run]:
                # Fails if the job ended meanwhile.
                with contextlib.suppress(PeerdmaError):
                    self._node.request(Ioctl.CANCEL, Cancel(job=number), "cancel a job")
        if not run.left:
            self._end(run)

    def _expire(self) -> None:
        """Ends early what is late, and gives up what does not end then."""
        now = time.monotonic()
        for run in [next(iter(self._runs.values())), *self._stopping]:
            if run.until is None or run.until > now or run.tag not in self._runs:
                continue
            if run.failure is None:
                late = f"{run.left} jobs of the board at {self._node.path} did not end in time"
                what = f"{late}; they were cancelled. The kernel's log may say why (dmesg)"
                self._stop(run, Timeout(what))
            else:
                self._end(run)

    def _lose(self, error: BoardLost) -> None:
        """Ends all: the board is gone, and with it its jobs."""
        self._numbers.clear()
        self._waiting.clear()
        for listener in self.listeners.values():
            listener.lose(error)
        self.listeners.clear()
        for run in list(self._runs.values()):
            run.failure = run.failure or error
            self._end(run)

    def _end(self, run: _Run) -> None:
        prepared = run.prepared
        if run.tag not in self._runs:
            return
        # If an interrupt comes in between, it is done again, and the transfer is there twice.
        if run.done == prepared.moved:
            self._ended.append((run.tag, Moved(run.cycles, prepared.limit, prepared.through)))
        else:
            short = f"the driver reported the transfer of {run.done} of {prepared.moved} bytes only"
            self._ended.append((run.tag, run.failure or TransferError(short)))
        self._runs.pop(run.tag, None)
        if run in self._stopping:
            self._stopping.remove(run)
        for oldest in self._runs.values():
            if oldest.until is None:
                self._begin_time(oldest)
            break

    def _begin_time(self, run: _Run) -> None:
        run.until = time.monotonic() + self.seconds_for(run.prepared.nbytes)

    def seconds_for(self, nbytes: int) -> float:
        """How long to wait for so many bytes."""
        return self._timeout or _BASE_SECONDS + nbytes * self._time_scale / _SLOWEST


def divided(
    op: Op, source: Sequence[Piece], destination: Sequence[Piece], ratio: tuple[int, int] = (1, 1)
) -> Iterator[Submit]:
    """The jobs from memory to memory: a new one begins where a piece of either side does.

    `ratio[1]` bytes are made of each `ratio[0]`, and the lengths of the sides match.

    Raises
    ------
    TransferError
        If a piece ends within such bytes.
    """
    taken, made = ratio
    targets = iter(destination)
    handle, at, stop = 0, 0, 0
    for piece in source:
        start = piece.start
        while start < piece.stop:
            while at == stop:
                target = next(targets)
                handle, at, stop = target.handle.number, target.start, target.stop
            times = min((piece.stop - start) // taken, (stop - at) // made, JOB_BYTES // taken)
            if not times:
                raise TransferError(
                    f"cannot process a piece of memory that ends within {taken} bytes of the "
                    f"source, or {made} of the destination: what becomes what has to be in one "
                    "piece on each side"
                )
            yield Submit(
                op=op,
                src_handle=piece.handle.number,
                src_offset=start,
                dst_handle=handle,
                dst_offset=at,
                length=times * taken,
                dst_length=times * made if op is Op.PROCESS else 0,
            )
            start += times * taken
            at += times * made


def failure(event: Event, moved: str) -> PeerdmaError:
    """The error for a job that did not succeed, after it had moved so much."""
    number = -event.result
    reason = Reason(event.reason)
    if reason is Reason.LOST:
        return BoardLost("the board went away during a transfer. Open it again", errno=number)
    if reason is Reason.TIMEOUT:
        return Timeout(
            "the board did not finish a transfer in time, so it was stopped. Try again; `peerdma "
            "doctor` tests the path to the memory",
            errno=number,
        )
    if reason in (Reason.REVOKED, Reason.UNPINNED):
        return PinError(
            "pinned memory was freed, moved or unpinned during a transfer. Keep surfaces open "
            "until transfers end, and pin them again",
            errno=number,
        )
    # Bus addresses are told to the privileged only.
    where = f", at address {event.address:#x}" if event.address else ""
    what = {
        Reason.ENGINE: f"the board reported an error, status {event.status:#x}{where}",
        Reason.RESET: "the board was reset or suspended",
        Reason.PARTITION: "its card RAM, or the user stream, has become another program's own",
        Reason.BUSY: "a job that waits for data of the user stream, or a ring of frames, keeps a "
        "channel that it needs",
    }.get(reason, f"it was cancelled ({reason.name})")
    return TransferError(
        f"a transfer failed after {moved}: {what}. The content of the destination is "
        "undefined; `peerdma doctor` tests the path to the memory",
        status=event.status,
        address=event.address or None,
        errno=number,
    )
