# SPDX-License-Identifier: BSD-2-Clause
"""Transfers as jobs of the kernel driver: divides, submits, awaits and cancels them."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterable, Iterator, Sequence

from ..board.backend import Piece, Progress
from ..errors import BoardLost, PeerdmaError, PinError, Timeout, TransferError
from ..uapi import Cancel, Event, Ioctl, Op, Reason, Submit
from .node import KernelNode

__all__ = ["JOB_BYTES", "Jobs", "copy_jobs"]

#: Bytes of one job: progress is reported, and Ctrl-C acted on, between jobs.
JOB_BYTES = 64 << 20
#: Time limit of a transfer: so many seconds, plus the time of its bytes at this rate (bytes per
#: second), times the board's time scale. The driver's own watchdog ends jobs long before that.
_BASE_SECONDS, _SLOWEST = 60.0, 100e6
#: Seconds to wait for the end of cancelled jobs.
_CANCEL_SECONDS = 60.0


class Jobs:
    """Runs jobs on a board.

    Parameters
    ----------
    node : KernelNode
    time_scale : int
        How much slower than real time the board runs.
    timeout : float or None
        Seconds to wait for one transfer; None: by its size and the board's time scale.
    """

    def __init__(self, node: KernelNode, time_scale: int, timeout: float | None):
        self._node = node
        self._time_scale = time_scale
        self._timeout = timeout

    def run(self, jobs: Iterable[Submit], total: int, progress: Progress | None = None) -> int:
        """Runs the jobs of a transfer of `total` bytes; returns their busy clock cycles.

        When it raises, none of them is in progress any more.
        """
        seconds = self._timeout or _BASE_SECONDS + total * self._time_scale / _SLOWEST
        deadline = time.monotonic() + seconds
        under_way: set[int] = set()
        cycles = done = 0
        left = iter(jobs)
        try:
            job = next(left, None)
            while job or under_way:
                if job and self._submit(job, under_way):
                    job = next(left, None)
                    continue
                for event in self._events(under_way, deadline):
                    if event.result:
                        raise _failure(event)
                    cycles += event.cycles
                    done += event.bytes
                    if progress:
                        progress(done, total)
        except BaseException:
            self._abort(under_way)
            raise
        return cycles

    def _submit(self, submit: Submit, under_way: set[int]) -> bool:
        """Starts a job; False if the driver's queue is full until another one ends."""
        submit.job = 0  # the driver returns the job's number here; the request may be a repeat
        try:
            self._node.request(Ioctl.SUBMIT, submit, "transfer {0.length} bytes")
        except PeerdmaError as error:
            if error.errno == errno.EAGAIN and under_way:
                return False
            raise
        under_way.add(submit.job)
        return True

    def _events(self, under_way: set[int], deadline: float) -> list[Event]:
        events = self._node.wait(deadline - time.monotonic())
        if not events:
            raise Timeout(
                f"{len(under_way)} jobs of the board at {self._node.path} did not end in time; "
                "they were cancelled. The kernel's log may say why (dmesg)"
            )
        ours = [event for event in events if event.job in under_way]
        for event in ours:
            under_way.discard(event.job)
        return ours

    def _abort(self, under_way: set[int]) -> None:
        """Cancels the jobs in progress and waits for their end, whose time the driver limits."""
        for job in under_way:
            # Fails if the job ended meanwhile.
            with contextlib.suppress(PeerdmaError):
                self._node.request(Ioctl.CANCEL, Cancel(job=job), "cancel a job")
        deadline = time.monotonic() + _CANCEL_SECONDS
        with contextlib.suppress(PeerdmaError):
            while under_way:
                self._events(under_way, deadline)


def copy_jobs(source: Sequence[Piece], destination: Sequence[Piece]) -> Iterator[Submit]:
    """The jobs of a copy: a new one begins where a piece of either side does."""
    targets = iter(destination)
    handle, at, stop = 0, 0, 0
    for piece in source:
        start = piece.start
        while start < piece.stop:
            while at == stop:
                target = next(targets)
                handle, at, stop = target.handle.handle, target.start, target.stop
            length = min(piece.stop - start, stop - at, JOB_BYTES)
            yield Submit(
                op=Op.COPY,
                src_handle=piece.handle.handle,
                src_offset=start,
                dst_handle=handle,
                dst_offset=at,
                length=length,
            )
            start += length
            at += length


def _failure(event: Event) -> PeerdmaError:
    """The error for a job that did not succeed."""
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
    }.get(reason, f"it was cancelled ({reason.name})")
    return TransferError(
        f"a transfer failed after {event.bytes} bytes: {what}. The content of the destination is "
        "undefined; `peerdma doctor` tests the path to the memory",
        status=event.status,
        address=event.address or None,
        errno=number,
    )
