# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that have been checked and are ready to run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import PeerdmaError
from ..process import OneProcess
from .arrays import Lease
from .backend import BoardInfo, Moved, Prepared, Progress
from .job import Job
from .job_runner import JobRunner
from .pin import Pin, Span
from .spans import longest_path, total_bytes
from .transfer import Paths, Transfer

__all__ = ["Plan", "Streams"]

_NOTHING = Moved(0, None)


class Streams(Protocol):
    """What starts plans in the order of streams; `peerdma.board.ordered.Ordered` is that."""

    def submit(self, plan: Plan, stream: Any) -> Job:
        """See `Plan.submit`."""
        ...


class Plan(OneProcess):
    """A transfer that was checked and prepared once, to be made any number of times.

    Not to be built directly: use `Board.prepare`. It can be run while its pins are open, and does
    not keep them open. Arrays it keeps, and keeps pinned. Several jobs of it can be in progress.

    Attributes
    ----------
    nbytes : int
        Payload; a copy counts each byte once.
    path : Paths
    pins : tuple of Pin
        Those of both sides.
    """

    def __init__(
        self,
        jobs: JobRunner,
        ordered: Streams,
        prepared: Prepared | None,
        sources: Sequence[Span],
        destinations: Sequence[Span],
        info: BoardInfo,
        leases: Sequence[Lease],
    ):
        self._jobs = jobs
        self._ordered = ordered
        self.leases = leases
        self._produced = [lease for lease in leases if lease.produced] if leases else ()
        self.prepared = prepared
        self.sources: Sequence[Span] = sources
        self.destinations: Sequence[Span] = destinations
        self.nbytes: int = total_bytes(sources or destinations)
        self.path: Paths = Paths(longest_path(sources), longest_path(destinations))
        self.pins: tuple[Pin, ...] = tuple(
            dict.fromkeys([span.pin for span in (*sources, *destinations)])
        )
        origins = [each.origin for each in (*leases, *self.pins)]
        self._origins = tuple(dict.fromkeys(filter(None, origins)))
        self._written = {id(span.pin.memory): span.pin.memory for span in destinations}.values()
        self._clock = info.extension.clock_khz * 1e3 if info.extension else 0.0
        self._simulated = info.simulated

    def __repr__(self) -> str:
        return f"<Plan of {self.nbytes} bytes, {self.path}>"

    def submit(self, *, stream: Any = None) -> Job:
        """Starts the transfer and returns at once; see `Board.submit`.

        With a CUDA `stream`, it starts when the stream has come to it, see `Board.copy`.

        Raises
        ------
        PinError
            If one of its pins was closed, or one of its arrays has moved.
        """
        if stream is not None:
            return self._ordered.submit(self, stream)
        self.order()
        job = Job(self._jobs, self)
        self._jobs.submit(job)
        return job

    def run(self, *, progress: Progress | None = None) -> Transfer:
        """Makes the transfer and waits for its end; see `Board.copy`."""
        if self._produced:
            self.order()
        return self._jobs.run(self, progress)

    def order(self) -> None:
        """Waits for the work that other libraries have queued on the plan's arrays."""
        self._jobs.lock.require_own()
        try:
            for lease in self._produced:
                lease.order()
        except PeerdmaError:
            # Of an array whose memory is gone, its library may say what makes no sense.
            self.require_unmoved()
            raise

    def require_unmoved(self) -> None:
        """PinError if one of its arrays is not where it was when it was pinned."""
        for origin in self._origins:
            origin.require_unmoved()

    def finish(self, moved: Moved | None, began: float) -> Transfer:
        """Flushes what was written; returns the report on a transfer that began at that time."""
        if moved is not None:
            for memory in self._written:
                memory.flush_writes()
        wall = time.perf_counter() - began
        cycles, limit, through, elapsed = moved or _NOTHING
        if elapsed is None:
            elapsed = cycles
        seconds = elapsed / self._clock if self._clock else wall
        return Transfer(
            self.nbytes, cycles, seconds, wall, limit, self.path, through, self._simulated
        )
