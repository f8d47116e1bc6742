# SPDX-License-Identifier: BSD-2-Clause
"""Copies in the order of a CUDA stream: a gate in the stream starts each, its end opens the gate.

A thread sees which gates streams have reached. It runs until no stream or graph has a gate any
more, also if the board is closed before that: then copies fail and gates open, so that no stream
waits for ever.

A second thread opens gates if the others are stuck. Whoever serves a simulated board, or flushes a
GPU, calls CUDA, which may be waiting for a stream: to load a kernel, say. To open a gate, this one
needs neither CUDA nor the board's lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import CANCELLED, Cancelled, Timeout
from ..memory.memory import DataPath
from ..process import AtExit
from .arrays import Arrays
from .job import Job
from .job_runner import JobRunner
from .plan import Plan
from .transfer import Transfer

if TYPE_CHECKING:
    from ..cuda.gates import Gate, Gates

__all__ = ["Ordered", "StreamJob"]

#: Seconds between looks for graphs that are gone, which CUDA tells without a wake-up.
_LOOK_SECONDS = 0.5
#: Seconds that `Ordered.join` waits.
_CLOSE_SECONDS = 10.0
#: Seconds until a thread that does not come back from a call counts as stuck. Fewer than those that
#: a simulated board has for an answer.
_STUCK_SECONDS = 30.0
_STUCK = (
    "a copy in a stream was given up: a thread that its end needs has not come back from a call "
    "for {:g} s. The stream went on without the copy, and the content of the destination is "
    "undefined. CUDA may have been loading a kernel at its first launch, for which it can wait for "
    "all streams: set CUDA_MODULE_LOADING=EAGER in the environment before CUDA starts, or launch "
    "each kernel once before the copy"
)
_LAZY = (
    "CUDA loads kernels at their first launch (CUDA_MODULE_LOADING=LAZY), and may wait for all "
    "streams then; this simulated board's copies need CUDA themselves, so that both may wait "
    "for each other. Set CUDA_MODULE_LOADING=EAGER before CUDA starts, or launch each kernel "
    "once before the first copy in a stream"
)
_log = logging.getLogger(__name__)
_GONE = "the graph was freed before it was launched; the copy was not made"
_CLOSED = "the board was closed before the stream came to the copy, which was not made"


class StreamJob(Job):
    """The job of a copy in a stream, see `Board.copy`.

    In a graph, the copy is made at each launch: the job has ended when the first of them has, and
    `result` is of the latest. An error stays, and the copy is not made any more.
    """

    __slots__ = ("_gate", "_late", "_launch", "_ordered", "_plan", "_reached")

    def __init__(self, ordered: Ordered, jobs: JobRunner, plan: Plan, gate: Gate):
        super().__init__(jobs, plan)
        self._ordered = ordered
        self._plan: Plan | None = plan
        self._gate = gate
        #: whether the stream has come to it, and the error if it has gone on without the copy
        self._reached = False
        self._late: Timeout | None = None
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
        self._ordered.waits(self._gate, self)
        if self._late is not None:
            self.note(self._late)
        if isinstance(self._outcome, BaseException):
            self._ordered.open(self._gate)
        elif self._gate.captured:
            assert self._plan is not None, "its graph is gone"
            self._launch = _Launch(self, jobs, self._plan)
            jobs.launch(self._launch)
        else:
            jobs.launch(self)

    def give_up(self, error: Timeout) -> None:
        """The stream has gone on without the copy. Can be called without the lock."""
        self._late = self._late or error
        if self._gate.captured and isinstance(self._outcome, Transfer):
            self._outcome = error

    def stop(self) -> None:
        """Has the board end the copy, for whose end the job waits. The lock is held."""
        self._ordered.jobs.cancel(self._launch or self)

    def orphaned(self) -> None:
        """The graph is gone, and makes no copy any more. The lock is held."""
        if self._outcome is None:
            self._ordered.jobs.end(self, Cancelled(_GONE))
        self._plan = None

    def ended(self, outcome: Transfer | BaseException) -> None:
        """How the copy of a launch ended. The lock is held."""
        self._launch = None
        self.note(outcome)
        self._ordered.open(self._gate)

    def note(self, outcome: Transfer | BaseException) -> None:
        """Notes an outcome, unless there was an error before. The lock is held."""
        if self._outcome is None:
            self._ordered.jobs.end(self, outcome)
        elif not isinstance(self._outcome, BaseException):
            self._outcome = self._late or outcome

    def end(self, outcome: Transfer | BaseException) -> bool:
        """See `Running`."""
        try:
            return super().end(self._late or outcome)
        finally:
            # Also if an interrupt came behind it: the stream waits.
            if not self._gate.captured:
                self._plan = None
                if self._reached:
                    self._ordered.open(self._gate)


class _Launch(Job):
    """A copy that a graph makes once."""

    __slots__ = ("_of",)

    def __init__(self, of: StreamJob, jobs: JobRunner, plan: Plan):
        super().__init__(jobs, plan)
        self._of = of

    def end(self, outcome: Transfer | BaseException) -> bool:
        """See `Running`."""
        try:
            return super().end(outcome)
        finally:
            self._of.ended(outcome)


class Ordered:
    """The copies of a board that streams start.

    Attributes
    ----------
    jobs : JobRunner
    """

    def __init__(self, jobs: JobRunner, arrays: Arrays):
        self.jobs = jobs
        self._arrays = arrays
        self._gates: Gates | None = None
        #: what streams have not come to, and what belongs to graphs
        self._waiting: dict[Gate, StreamJob] = {}
        #: those whose streams wait for the board, and what is held while they are opened
        self._due: dict[Gate, StreamJob] = {}
        self._opening = threading.Lock()
        #: what is called when streams have come to a place, and hold nothing up
        self._marks: dict[Gate, Callable[[], None]] = {}
        #: whether a program was told that CUDA and the board may wait for each other
        self._told = False
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
        handle = _handle_of(stream)
        with self.jobs.lock:
            self.jobs.require_startable(plan)
            gates = self._begin()
            if not self._told and DataPath.STAGED in plan.path:
                self._told = True
                if gates.lazy():
                    _log.warning(_LAZY)
            self._sweep()
            gate = gates.take()
            job = self._waiting[gate] = StreamJob(self, self.jobs, plan, gate)
            try:
                gates.put(gate, handle)
            except BaseException:
                # Its host functions may be in the stream: the gate is not used again.
                del self._waiting[gate]
                raise
            return job

    def after(self, stream: Any) -> Callable[[Callable[[], None]], None]:
        """Returns ``call``: it has a function called when a stream has done its work so far.

        The function is called with the lock held, and nothing waits for it: neither the stream nor
        the caller. ``call`` raises PeerdmaError if the stream is captured, CudaError if CUDA
        refuses.

        Raises
        ------
        TypeError
            If `stream` is no stream.
        CudaError
            If CUDA refuses.
        """
        handle = _handle_of(stream)
        with self.jobs.lock:
            gates = self._begin()

        def call(function: Callable[[], None]) -> None:
            with self.jobs.lock:
                gate = gates.take()
                self._marks[gate] = function
                try:
                    gates.mark(gate, handle)
                except BaseException:
                    # Its host functions may be in the stream: the gate is not used again.
                    del self._marks[gate]
                    raise

        return call

    def _begin(self) -> Gates:
        """The gates, and the threads that serve them, from the first call on. The lock is held."""
        if self._gates is None:
            # Not imported before: it needs CUDA.
            from ..cuda.gates import Gates

            self._gates = Gates(self._arrays.cuda().current_device())
            # For the callbacks of jobs that end before their turn.
            self.jobs.start_thread()
            _used.add(self)
            self._thread = threading.Thread(target=self._serve, name="peerdma streams", daemon=True)
            self._thread.start()
            threading.Thread(
                target=self._guard, args=(self._thread,), name="peerdma guard", daemon=True
            ).start()
        return self._gates

    def waits(self, gate: Gate, job: StreamJob) -> None:
        """Takes note that a stream waits for the end of a job. The lock is held."""
        if gate.captured and gate not in self._due:
            gate.idle.watch_begins()
        self._due[gate] = job

    def open(self, gate: Gate) -> None:
        """Lets a stream that waits go on; nothing if it does not wait. The lock is held."""
        gates = self._gates
        assert gates is not None
        with self._opening:
            if gate not in self._due:
                return
            gates.open(gate)
            del self._due[gate]
            if not gate.captured:
                gates.give_back(gate)
        gate.idle.watch_ended()

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
        if self._thread is not None and not self._waiting and not self._marks:
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
        for gate, function in list(self._marks.items()):
            if gates.reached(gate):
                del self._marks[gate]
                gates.give_back(gate)
                function()
        self._sweep()

    def _serve(self) -> None:
        gates = self._gates
        assert gates is not None
        while self._waiting or self._marks or not self._closed:
            gates.wait(_LOOK_SECONDS)
            with self.jobs.lock:
                self._look()
        with self.jobs.lock:
            gates.close()

    def _guard(self, serving: threading.Thread) -> None:
        """Lets streams go on while a thread is stuck; ends with the thread that serves streams."""
        while True:
            serving.join(_LOOK_SECONDS)
            if not serving.is_alive():
                return
            if self.jobs.stuck(_STUCK_SECONDS):
                self._give_up()

    def _give_up(self) -> None:
        """Lets all streams that wait go on, and has the board end their copies."""
        gates = self._gates
        assert gates is not None
        error = Timeout(_STUCK.format(_STUCK_SECONDS))
        with self._opening:
            due = self._due.copy()
            for gate, job in self._waiting.copy().items():
                # The other thread needs the board's lock to see that.
                if gates.waited_for(gate):
                    due[gate] = job
            for gate, job in due.items():
                job.give_up(error)
                gates.open(gate)
        if due and self.jobs.lock.acquire(timeout=_STUCK_SECONDS):
            try:
                for job in due.values():
                    job.stop()
            finally:
                self.jobs.lock.release()


def _handle_of(stream: Any) -> int:
    """See `peerdma.cuda.gates.handle_of`, which is not imported before: it needs CUDA."""
    from ..cuda.gates import handle_of

    return handle_of(stream)


def _stop(ordered: Ordered) -> None:
    """Lets streams go on, which the end of CUDA may wait for."""
    with ordered.jobs.lock:
        ordered.give_up()


#: Those with a thread.
_used = AtExit(_stop)
