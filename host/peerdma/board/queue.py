# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: a GPU's kernels start prepared plans themselves, see docs/launch.md."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import integer
from ..errors import PeerdmaError, Timeout, UnsupportedError
from ..memory.memory import DataPath
from ..process import OneProcess
from ..regs import LaunchStatus
from ..waiting import OwnLock
from .backend import Backend, LaunchPlan
from .doorbell import Doorbell
from .job_runner import JobRunner
from .pin import Pin
from .plan import Plan, independent, pieces
from .queue_errors import failure, require_good, require_running
from .queue_memory import DeviceQueue, QueueMemory, ahead

if TYPE_CHECKING:
    from ..cuda.stream_queue import StreamQueue

__all__ = ["Queue", "QueueStats", "include_dir"]

#: Seconds between looks at the board's register, and between looks at a record.
_LOOK, _POLL = 0.05, 0.0002
_JOIN_SECONDS = 10.0


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
    #: copies of streams that did not come about, see `Queue.enqueue`
    missed: int


class Queue(OneProcess):
    """A launch queue. Use it as a context manager, or `close` it.

    Not to be built directly: use `Board.queue`. Tickets count by one modulo 2**32, from any number;
    a queue's tickets are done in their order.

    Attributes
    ----------
    plans : tuple of Plan
        Empty once it is closed.
    depth : int
        Tickets that can be on their way.
    closed : bool
    """

    def __init__(
        self, jobs: JobRunner, backend: Backend, plans: Sequence[Plan], depth: int, device: Any
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
        self._stream_queue: StreamQueue | None = None
        #: plans that are not started any more: the board does not set their done words
        self._dropped: list[int] = []
        self._submitting = OwnLock()
        written = [span.pin.memory for plan in plans for span in plan.written]
        self._flushes = {id(memory): memory.flush_writes for memory in written}
        launched = list(map(_launched, plans, independent(plans)))
        self._run = backend.queue(launched, self._memory)
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
            require_running(self._memory)
            for plan in self.plans:
                plan.require_unmoved()
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
            If a pin of the plan was closed, or an array of it has moved.
        Timeout
            If there was no room within `timeout` seconds; nothing was started.
        """
        self._require_plan(index)
        until = time.monotonic() + timeout
        memory, run = self._memory, self._run
        require_running(memory)
        plan = self.plans[index]
        plan.order()
        while True:
            with self._submitting:
                require_running(memory)
                if self._device is not None:
                    raise PeerdmaError(
                        "kernels may draw tickets of this queue, as they were given its device "
                        "struct: the host submits nothing to it. Open another queue for that"
                    )
                for pin in plan.pins:
                    pin.require_open()
                plan.require_unmoved()
                if memory.room():
                    return memory.submit(index, run.slots[index], run.generation)
            if time.monotonic() > until:
                raise Timeout(
                    f"{self.depth} tickets of the queue were on their way for {timeout:g} s: there "
                    "is no room for another one. Is the board slow, or not on?"
                )
            time.sleep(_POLL)

    def enqueue(self, index: int, stream: Any, *, timeout: float = 10.0) -> None:
        """Has plan number `index` started when a CUDA stream comes to it, and the stream wait.

        While the stream is captured, this becomes part of the graph: the copy is made at each
        launch, of what the source has then. As with `device`, the host submits nothing from here
        on. It is called for the first time before a stream waits for anything of the host.

        What goes wrong then is told by `check`; the stream goes on in any case.

        Parameters
        ----------
        index : int
        stream : object
            As for `Board.copy`, of the GPU that the queue is for. A plan is used in one stream.
        timeout : float
            Seconds that the stream waits for room for a ticket.

        Raises
        ------
        UnsupportedError
            If the queue is for no CUDA GPU, or that one does not see in time what a board wrote.
        ValueError
            If the stream is another GPU's.
        PinError
            If an array of the plan has moved. The board does not see it if one moves later.
        PeerdmaError
            What `check` raises, as far as it is known.
        """
        self._require_plan(index)
        if not timeout > 0:
            raise ValueError(f"a timeout is more than 0 s, not {timeout}")
        require_good(self._memory)
        with self._lock:
            require_running(self._memory)
            self.plans[index].require_unmoved()
            stream_queue = self._stream_queue or self._begin_stream_queue()
        stream_queue.put(index, stream, timeout)

    def check(self, *, timeout: float = 60.0) -> None:
        """Raises what went wrong with copies of streams and graphs, since `resume`, if anything.

        Call it when the streams have ended: their copies have no ticket to wait for. It waits for
        all tickets that are drawn.

        Raises
        ------
        TransferError
            If one failed; later ones were not started.
        Timeout
            If there was no room for one in time, none was done for 30 s, or those that are drawn
            are not done within `timeout` seconds.
        """
        self._record((self._memory.drawn() - 1) % (1 << 32), timeout)
        self._look()
        require_good(self._memory)

    def wait(self, ticket: int, *, timeout: float = 60.0) -> None:
        """Waits until a ticket is done, which a kernel or `submit` has drawn.

        Its record is kept until the ticket `depth` later is done. Then this tells by that one's
        whether all was well. That is so, too, if a frame was longer than the array of its plan: see
        `Board.prepare_receive`.

        Raises
        ------
        TransferError
            If it failed, or, as an earlier one had failed, was not started or was aborted.
        Timeout
            If it is not done within `timeout` seconds; it goes on.
        """
        memory = self._memory
        found, status = self._record(ticket, timeout)
        if status == LaunchStatus.LONG:
            status = 0
        if status or found != ticket:
            self._look()  # what failed first
        if status or (found != ticket and memory.first_error):
            raise failure(memory, ticket, found, status)
        for flush_writes in self._flushes.values():
            flush_writes()

    def export_doorbell(self) -> int:
        """The page of its doorbell as a dma-buf, as `Board.export_mailbox`; ends with the queue.

        What is stored to its first four bytes is the doorbell: docs/queue.md.

        Raises
        ------
        UnsupportedError
            If this program gets no doorbell, or the board's driver is not the kernel's.
        TransferError
            If the queue has ended.
        """
        with self._lock:
            require_running(self._memory)
            return self._run.export()

    def resume(self) -> None:
        """Has tickets started again after one that failed: those that the board has not come to."""
        with self._lock:
            require_running(self._memory)
            self._run.resume()
            self._memory.forgive()
            require_running(self._memory)

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
        return QueueStats(
            submitted, completed, memory.first_error, why, ignored, cycles, memory.missed_at_all()
        )

    def close(self) -> None:
        """Ends the queue; the board does not use its memory any more. Closing again does nothing.

        A ticket at work is aborted. Whoever waits for one that is not done learns of it.
        """
        if self._lock.foreign:
            return
        with self._lock:
            self.end()
        self.join()

    # For the board ---------------------------------------------------------------------------

    def end(self) -> None:
        """As `close`, with the lock held; the thread may still run."""
        if not self.closed:
            self._close()
            self._jobs.wake()
            if self._stream_queue is not None:
                self._stream_queue.ended()
            # Last: what was interrupted is done again.
            self.closed, self.plans, self._device = True, (), None

    def join(self) -> None:
        """Waits for the end of the thread, for seconds; without the lock."""
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        if self._stream_queue is not None:
            self._stream_queue.join()

    def drop(self, pin: Pin) -> None:
        """The board does not use a pin for this queue any more. The lock is held."""
        if not self._memory.ended:
            for index, plan in enumerate(self.plans):
                if pin in plan.pins:
                    self._run.invalidate(index)
                    self._dropped.append(index)
            self._memory.let_go(self._dropped)
            self._jobs.wake()

    # Inside ----------------------------------------------------------------------------------

    def _close(self) -> None:
        """Ends it, and then takes its doorbell from kernels, which may still wait for the end."""
        try:
            self._run.close()
        finally:
            self._doorbell.close()

    def _record(self, ticket: int, timeout: float) -> tuple[int, int]:
        """Waits for a ticket; ticket and status of the record in its place."""
        self._lock.require_own()
        until, memory = time.monotonic() + timeout, self._memory
        while (record := memory.record(ticket)) is None:
            if memory.ended and memory.record(ticket) is None:
                require_running(memory)
            if time.monotonic() > until:
                raise Timeout(
                    f"ticket {ticket} was not done within {timeout:g} s. It goes on; wait again, "
                    "or close the queue"
                )
            time.sleep(_POLL)
        return record

    def _attend(self) -> None:
        """Serves what memory the board cannot reach by itself, and looks whether it has ended.

        Where its end is reported, it only looks for streams that wait for plans that were dropped.
        """
        due = 0.0
        with self._lock:
            while not self.closed and not self._memory.ended:
                looks = self._dropped or not self._run.reports
                self._jobs.wait(time.monotonic() + _LOOK if looks else None)
                if looks and not self.closed and time.monotonic() >= due:
                    self._look()
                    due = time.monotonic() + _LOOK

    def _look(self) -> None:
        """Sees what the board says of the queue, if it has not ended."""
        with self._lock, contextlib.suppress(PeerdmaError):
            if not self._memory.ended:
                self._run.check()
                self._memory.let_go(self._dropped)

    def _begin_stream_queue(self) -> StreamQueue:
        """What streams submit by. The lock is held."""
        device = self._cuda_device
        if device is None:
            raise UnsupportedError(
                "the queue is for no CUDA GPU, whose streams could use it: name the GPU, "
                'board.queue(plans, gpu=peerdma.gpu("cuda"))'
            )
        from ..cuda.stream_queue import StreamQueue

        staged = any(DataPath.STAGED in plan.path for plan in self.plans)
        beyond = {DataPath.PEER_TO_PEER, DataPath.GPU_BAR}
        peer = any(plan.path.from_board in beyond for plan in self.plans)
        memory, queue = self._memory, DeviceQueue.from_buffer_copy(self.device)
        # Streams may come to it when the queue is closed, and the page of its doorbell is gone.
        queue.doorbell, queue.keeps = 0, self.device.keeps
        missed = queue.entries + memory.offset("missed")
        self._stream_queue = StreamQueue(
            device, queue, missed, memory.pending, self._give_up, staged, peer
        )
        return self._stream_queue

    def _give_up(self) -> None:
        """Ends the queue, as the board makes no progress; without the lock, which may be stuck."""
        self._memory.give_up()
        if self._lock.acquire(timeout=_JOIN_SECONDS):
            try:
                with contextlib.suppress(PeerdmaError):
                    self.end()
            finally:
                self._lock.release()

    def _require_plan(self, index: int) -> None:
        count = len(self._run.slots)
        if not 0 <= integer(index, "the number of a plan") < count:
            raise ValueError(f"the queue's plans are 0 to {count - 1}, not {index}")

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


def _launched(plan: Plan, alone: bool) -> LaunchPlan:
    """A plan as backends take it; `alone` is what `independent` says of it."""
    record = pieces([plan.record])[0] if plan.record else None
    sides = pieces(plan.sources), pieces(plan.destinations)
    return LaunchPlan(*sides, plan.card_address, record, alone)
