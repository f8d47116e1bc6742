# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: a GPU's kernels start prepared copies themselves, see docs/launch.md."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arguments import integer, wrong_type
from ..errors import BoardLost, Cancelled, PeerdmaError, PinError, Timeout, TransferError
from ..regs import ErrorKind, LaunchStatus
from ..uapi import Reason
from .backend import Backend
from .doorbell import Doorbell
from .jobs import Jobs
from .pin import Pin
from .plan import Plan
from .queue_memory import DEPTHS, DeviceQueue, QueueMemory, ahead
from .spans import pieces

__all__ = ["Queue", "QueueStats", "Queues", "include_dir"]

#: Seconds between looks at the board's register, and between looks at a record.
_LOOK, _POLL = 0.05, 0.0002
_JOIN_SECONDS = 10.0
#: What is raised when a queue has ended, if it is no TransferError.
_KINDS: dict[Reason, type[PeerdmaError]] = {
    Reason.CANCELLED: PeerdmaError,
    Reason.UNPINNED: PinError,
    Reason.REVOKED: PinError,
    Reason.LOST: BoardLost,
}


def include_dir() -> str:
    """The folder for a compiler's -I, for ``#include <peerdma/device.cuh>``: see docs/launch.md."""
    return str(Path(__file__).resolve().parents[1] / "include")


@dataclass(frozen=True)
class QueueStats:
    """How far a launch queue is."""

    #: tickets that were drawn, and those that are done, since it was opened
    submitted: int
    completed: int
    #: status of the first ticket that failed since then, or since `Queue.resume`; 0 if none has
    first_error: int
    #: why it has ended; empty while it has not
    ended: str
    #: doorbells that the board ignored, of all its queues together; stays at 255
    ignored: int
    #: the board's free-running clock when this was asked, in cycles; None if it has none, or the
    #: driver does not report it
    cycles: int | None


class Queue:
    """A launch queue. Use it as a context manager, or `close` it.

    Not to be built directly: use `Board.queue`. Tickets count by one modulo 2**32, from any number;
    a queue's tickets are done in their order.

    Attributes
    ----------
    plans : tuple of Plan
    depth : int
        Tickets that can be on their way.
    closed : bool
    """

    def __init__(
        self, jobs: Jobs, backend: Backend, plans: Sequence[Plan], depth: int, device: Any
    ):
        self.plans: tuple[Plan, ...] = tuple(plans)
        self.depth: int = depth
        self.closed: bool = False
        self._jobs = jobs
        self._lock = jobs.lock
        self._memory = QueueMemory(depth)
        #: the CudaDevice whose kernels use it; None: the CPU is the GPU
        self._cuda_device = device
        self._device: DeviceQueue | None = None
        self._submitting = threading.Lock()
        written = [span.pin.memory for plan in plans for span in plan.destinations]
        self._flushes = {id(memory): memory.flush_writes for memory in written}
        copies = [(pieces(plan.sources), pieces(plan.destinations)) for plan in plans]
        self._run = backend.queue(copies, self._memory)
        self._doorbell = Doorbell(self._run.page, device)
        self._thread = threading.Thread(target=self._attend, name="peerdma-queue", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._close()
            raise

    def __repr__(self) -> str:
        state = self._memory.why() or f"{len(self.plans)} plans, {self.depth} deep"
        return f"<Queue {state}>"

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def doorbell(self) -> str:
        """How the board learns of kernels' tickets; known once `device` was read.

        "page of registers"; or "shadow tail", a word in memory that the board polls, and why.
        """
        return self._doorbell.text

    @property
    def device(self) -> DeviceQueue:
        """The queue as an argument of kernels, by value: ``struct peerdma_queue`` of device.cuh.

        Kernels of one GPU may use it, or threads of this process: from here on the host submits
        nothing. Close the queue after they have ended.
        """
        with self._lock, self._submitting:
            self._require_running()
            if self._device is None:
                address, keeps = self._mapped()
                run, page = self._run, self._doorbell.map()
                self._device = self._memory.device(address, run.generation, run.slots, page)
                # Whoever has the addresses has the memory.
                self._device.keeps = keeps
            return self._device

    def submit(self, index: int, *, timeout: float = 60.0) -> int:
        """Starts plan number `index` from the host; returns its ticket.

        Waits while as many tickets as the queue is deep are on their way.

        Raises
        ------
        PeerdmaError
            If kernels were given the queue, see `device`, or it has ended.
        PinError
            If a pin of the plan was closed.
        Timeout
            If there was no room within `timeout` seconds; nothing was started.
        """
        count = len(self.plans)
        if not 0 <= integer(index, "the number of a plan") < count:
            raise ValueError(f"the queue's plans are 0 to {count - 1}, not {index}")
        until = time.monotonic() + timeout
        memory, run, plan = self._memory, self._run, self.plans[index]
        plan.order()
        while True:
            with self._submitting:
                self._require_running()
                if self._device is not None:
                    raise PeerdmaError(
                        "kernels may draw tickets of this queue, as they were given its device "
                        "struct: the host submits nothing to it. Open another queue for that"
                    )
                for pin in plan.pins:
                    pin.require_open()
                if memory.room():
                    return memory.submit(index, run.slots[index], run.generation)
            if time.monotonic() > until:
                raise Timeout(
                    f"{self.depth} tickets of the queue were on their way for {timeout:g} s: there "
                    "is no room for another one. Is the board slow, or not on?"
                )
            time.sleep(_POLL)

    def wait(self, ticket: int, *, timeout: float = 60.0) -> None:
        """Waits until a ticket is done, which a kernel or `submit` has drawn.

        Its record is kept until the ticket `depth` later is done. Then this tells by that one's
        whether all was well.

        Raises
        ------
        TransferError
            If it failed, or, as an earlier one had failed, was not started.
        Timeout
            If it is not done within `timeout` seconds; it goes on.
        """
        until = time.monotonic() + timeout
        memory = self._memory
        while (record := memory.record(ticket)) is None:
            if memory.ended and memory.record(ticket) is None:
                self._require_running()
            if time.monotonic() > until:
                raise Timeout(
                    f"ticket {ticket} was not done within {timeout:g} s. It goes on; wait again, "
                    "or close the queue"
                )
            time.sleep(_POLL)
        found, status = record
        if status or found != ticket:
            self._look()  # what failed first
        if status or (found != ticket and memory.first_error):
            raise self._failure(ticket, found, status)
        for flush_writes in self._flushes.values():
            flush_writes()

    def resume(self) -> None:
        """Has tickets started again after one that failed: those that the board has not come to."""
        with self._lock:
            self._require_running()
            self._run.resume()
            self._require_running()

    def stats(self) -> QueueStats:
        """How far the queue is."""
        memory = self._memory
        ignored, cycles = 0, None
        with self._lock:
            self._look()
            if not memory.ended:
                ignored, cycles = self._run.counts()
        submitted = ahead(memory.drawn(), memory.first)
        completed = min(submitted, ahead(memory.completed(), memory.first))
        why = memory.why()
        return QueueStats(submitted, completed, memory.first_error, why, ignored, cycles)

    def close(self) -> None:
        """Ends the queue; the board does not use its memory any more. Closing again does nothing.

        A ticket at work is aborted. Whoever waits for one that is not done learns of it.
        """
        with self._lock:
            self.end()
        self.join()

    # For the board ---------------------------------------------------------------------------

    def end(self) -> None:
        """As `close`, with the lock held; the thread may still run."""
        if not self.closed:
            self._close()
            self.closed = True
            self._jobs.wake()

    def join(self) -> None:
        """Waits for the end of the thread, for seconds; without the lock."""
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def drop(self, pin: Pin) -> None:
        """The board does not use a pin for this queue any more. The lock is held."""
        if not self._memory.ended:
            for index, plan in enumerate(self.plans):
                if pin in plan.pins:
                    self._run.invalidate(index)

    # Inside ----------------------------------------------------------------------------------

    def _close(self) -> None:
        """Ends it, and then takes its doorbell from kernels, which may still wait for the end."""
        try:
            self._run.close()
        finally:
            self._doorbell.close()

    def _attend(self) -> None:
        """Serves what memory the board cannot reach by itself, and looks whether it has ended."""
        due = 0.0
        with self._lock:
            while not self.closed and not self._memory.ended:
                self._jobs.wait(time.monotonic() + _LOOK)
                if not self.closed and time.monotonic() >= due:
                    self._look()
                    due = time.monotonic() + _LOOK

    def _look(self) -> None:
        """Sees what the board says of the queue, if it has not ended."""
        with self._lock, contextlib.suppress(PeerdmaError):
            if not self._memory.ended:
                self._run.check()

    def _mapped(self) -> tuple[int, object]:
        """The address of its memory for kernels, and what keeps it there."""
        pages = self._memory.pages
        if self._cuda_device is None:
            return pages.address, pages
        # Not imported before: it needs CUDA.
        from ..cuda.memory import registered

        action = "map the memory of a launch queue"
        mapped = registered(self._cuda_device, pages.address, pages.nbytes, pages, action)
        return mapped.device_address, mapped

    def _require_running(self) -> None:
        ended = self._memory.ended
        if ended:
            kind = _KINDS.get(ended, TransferError)
            raise kind(f"the queue has ended: {self._memory.why()}")

    def _failure(self, ticket: int, found: int, status: int) -> TransferError:
        name = f"ticket {ticket}"
        if found != ticket:
            return TransferError(
                f"{name} may have failed: its record was written over by that of ticket {found}, "
                "and a ticket has failed. Wait for a ticket before so many others are submitted"
            )
        memory = self._memory
        if status == LaunchStatus.FLUSHED and memory.ended and not memory.first_error:
            # By the kernel driver, at the end
            return Cancelled(f"{name} was not started: the queue has ended: {memory.why()}")
        if status == LaunchStatus.FLUSHED:
            return TransferError(
                f"{name} was not started, as an earlier one failed with "
                f"{_status_name(memory.first_error)}. queue.resume() starts tickets again"
            )
        if status == LaunchStatus.ABORTED:
            return Cancelled(
                f"{name} was aborted, and the content of its destination is undefined: the queue "
                f"has ended: {memory.why()}"
            )
        if status == LaunchStatus.SLOT:
            return TransferError(
                f"{name} was not started: the pins of its plan were closed, or its entry names no "
                "plan of this queue"
            )
        return TransferError(
            f"{name} failed: {_status_name(status)}. Check that both memories are still there, "
            "then queue.resume()",
            kind=status,
        )


def _status_name(status: int) -> str:
    for kind in (LaunchStatus, ErrorKind):
        if status in set(kind):
            return kind(status).name.lower().replace("_", " ")
    return f"status {status}"


class Queues:
    """The launch queues of a board.

    Parameters
    ----------
    jobs : Jobs
    backend : Backend
    """

    def __init__(self, jobs: Jobs, backend: Backend):
        self._jobs = jobs
        self._backend = backend
        self._open: list[Queue] = []

    def open(self, plans: Sequence[Plan], depth: int, gpu: Any) -> Queue:
        """See `Board.queue`; the lock is held."""
        plans = list(plans)
        for plan in plans:
            if not isinstance(plan, Plan):
                raise wrong_type("a queue has plans", plan, "plan = board.prepare(src, dst)")
        if not plans:
            raise ValueError("a queue needs at least one plan: board.prepare(src, dst) makes one")
        if depth not in DEPTHS:
            raise ValueError(f"a queue is {', '.join(map(str, DEPTHS))} deep, not {depth}")
        self._jobs.require_startable(*plans)
        for plan in plans:
            if plan._jobs is not self._jobs:
                raise ValueError("a plan was prepared on another board")
            if plan.work is None:
                raise ValueError("a plan of no bytes cannot be launched")
        device = getattr(gpu, "device", None)
        if gpu is None:
            memories = [pin.memory for plan in plans for pin in plan.pins]
            found = (getattr(memory, "cuda_device", None) for memory in memories)
            device = next(filter(None, found), None)
        self._open = [queue for queue in self._open if not queue.closed]
        queue = Queue(self._jobs, self._backend, plans, depth, device)
        self._open.append(queue)
        return queue

    def drop(self, pin: Pin) -> None:
        """No queue uses a pin any more. The lock is held."""
        for queue in self._open:
            queue.drop(pin)

    def close(self) -> Callable[[], None]:
        """Ends all, with the lock held; returns what waits for their threads without it."""
        ended, self._open = self._open, []
        for queue in ended:
            # A board that is gone uses no memory.
            with contextlib.suppress(PeerdmaError):
                queue.end()

        def join() -> None:
            for queue in ended:
                queue.join()

        return join
