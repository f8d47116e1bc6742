# SPDX-License-Identifier: BSD-2-Clause
"""Copies in the order of a CUDA stream: a gate in the stream starts each, its end opens the gate.

A thread sees which gates streams have reached. It runs until no stream or graph has a gate any
more, also if the board is closed before that: then copies fail and gates open, so that no stream
waits for ever.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ..errors import CANCELLED, Cancelled
from .arrays import Arrays
from .job import Call, Job
from .jobs import Jobs
from .plan import Plan
from .transfer import Transfer

if TYPE_CHECKING:
    from ..cuda.gates import Gate, Gates

__all__ = ["Ordered", "StreamJob"]

#: Seconds between looks for graphs that are gone, which CUDA tells without a wake-up.
_LOOK_SECONDS = 0.5
#: Seconds that `Ordered.join` waits.
_CLOSE_SECONDS = 10.0
_GONE = "the graph was freed before it was launched; the copy was not made"
_CLOSED = "the board was closed before the stream came to the copy, which was not made"


class StreamJob(Job):
    """The job of a copy in a stream, see `Board.copy`.

    In a graph, the copy is made at each launch: the job has ended when the first of them has, and
    `result` is of the latest. An error stays, and the copy is not made any more.
    """

    __slots__ = ("_gate", "_launch", "_ordered", "_plan", "_reached")

    def __init__(self, ordered: Ordered, jobs: Jobs, plan: Plan, gate: Gate):
        super().__init__(jobs, plan)
        self._ordered = ordered
        self._plan = plan
        self._gate = gate
        #: whether the stream has come to it
        self._reached = False
        #: the copy in progress, of a graph
        self._launch: _Launch | None = None

    def cancel(self) -> bool:
        """See `Job.cancel`. A copy whose turn has not come is not made; its stream goes on then."""
        jobs = self._ordered.jobs
        with jobs.lock:
            if self._gate.captured:
                return self._launch is not None and jobs.cancel(self._launch)
            if self._outcome is None and not self._reached:
                jobs.end(self, Cancelled(CANCELLED))
                return True
            return jobs.cancel(self)

    def reached(self) -> None:
        """The stream has come to the copy. The lock is held."""
        jobs = self._ordered.jobs
        self._reached = True
        if isinstance(self._outcome, BaseException):
            self._ordered.open(self._gate)
        elif self._gate.captured:
            self._launch = _Launch(self, jobs, self._plan)
            jobs.launch(self._launch)
        else:
            jobs.launch(self)

    def orphaned(self) -> None:
        """The graph is gone, and makes no copy any more. The lock is held."""
        if self._outcome is None:
            self._ordered.jobs.end(self, Cancelled(_GONE))
        del self._plan

    def note(self, outcome: Transfer | BaseException) -> None:
        """How the copy of a launch ended. The lock is held."""
        self._launch = None
        if self._outcome is None:
            self._ordered.jobs.end(self, outcome)
        elif not isinstance(self._outcome, BaseException):
            self._outcome = outcome

    def _end(self, outcome: Transfer | BaseException) -> list[Call] | None:
        calls = super()._end(outcome)
        if not self._gate.captured:
            del self._plan
            if self._reached:
                self._ordered.open(self._gate)
        return calls


class _Launch(Job):
    """A copy that a graph makes once."""

    __slots__ = ("_of",)

    def __init__(self, of: StreamJob, jobs: Jobs, plan: Plan):
        super().__init__(jobs, plan)
        self._of = of

    def _end(self, outcome: Transfer | BaseException) -> list[Call] | None:
        calls = super()._end(outcome)
        self._of.note(outcome)
        self._of._ordered.open(self._of._gate)
        return calls


class Ordered:
    """The copies of a board that streams start.

    Attributes
    ----------
    jobs : Jobs
    """

    def __init__(self, jobs: Jobs, arrays: Arrays):
        self.jobs = jobs
        self._arrays = arrays
        self._gates: Gates | None = None
        #: what streams have not come to, and what belongs to graphs
        self._waiting: dict[Gate, StreamJob] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, plan: Plan, stream: Any) -> Job:
        """Queues a copy in a stream, or captures it.

        Raises
        ------
        TypeError
            If `stream` is no stream.
        CudaError
            If CUDA refuses.
        """
        # Not imported before: it needs CUDA.
        from ..cuda.gates import Gates, handle_of

        handle = handle_of(stream)
        with self.jobs.lock:
            self.jobs.require_startable(plan)
            if self._gates is None:
                self._gates = Gates(self._arrays.cuda().current_device())
                _used.add(self)
                self._thread = threading.Thread(
                    target=self._serve, name="peerdma streams", daemon=True
                )
                self._thread.start()
            self._sweep()
            gate = self._gates.take()
            job = self._waiting[gate] = StreamJob(self, self.jobs, plan, gate)
            try:
                self._gates.put(gate, handle)
            except BaseException:
                # Its host functions may be in the stream: the gate is not used again.
                del self._waiting[gate]
                raise
            return job

    def open(self, gate: Gate) -> None:
        """Lets a stream go on. The lock is held."""
        assert self._gates is not None
        self._gates.open(gate)
        if not gate.captured:
            self._gates.give_back(gate)

    def close(self) -> None:
        """Ends the jobs that streams have not come to. The lock is held."""
        self._closed = True
        if self._gates is None:
            return
        self._sweep()
        for gate, job in self._waiting.items():
            if not gate.captured and not job.done():
                self.jobs.end(job, Cancelled(_CLOSED))
        self._gates.wake()

    def join(self) -> None:
        """Waits for the end of the thread after `close`, for seconds, unless streams need it."""
        if self._thread is not None and not self._waiting:
            self._thread.join(_CLOSE_SECONDS)

    def give_up(self) -> None:
        """As `close`, and lets all streams go on: the interpreter ends. The lock is held."""
        self.close()
        if self._gates is not None:
            for gate in self._waiting:
                self._gates.open(gate)

    def _sweep(self) -> None:
        """Takes back the gates of graphs that are gone."""
        gates = self._gates
        assert gates is not None
        for gate in [gate for gate in self._waiting if gates.orphaned(gate)]:
            self._waiting.pop(gate).orphaned()
            gates.give_back(gate)

    def _look(self) -> None:
        """Starts the copies that streams have come to. In a method, so that it keeps no job."""
        gates = self._gates
        assert gates is not None
        for gate, job in list(self._waiting.items()):
            if gates.reached(gate):
                if not gate.captured:
                    del self._waiting[gate]
                job.reached()
        self._sweep()

    def _serve(self) -> None:
        gates = self._gates
        assert gates is not None
        while not (self._closed and not self._waiting):
            gates.wait(_LOOK_SECONDS)
            with self.jobs.lock:
                self._look()
        with self.jobs.lock:
            gates.close()


#: Those with a thread.
_used: weakref.WeakSet[Ordered] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Lets streams go on, which the end of CUDA may wait for."""
    for ordered in list(_used):
        with ordered.jobs.lock:
            ordered.give_up()
