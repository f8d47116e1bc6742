# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues of the kernel driver, which fills their rings, ends them, and tells waiters."""

from __future__ import annotations

import contextlib
import errno
import mmap
from collections.abc import Callable, Sequence

from ..board.backend import LaunchCounts, LaunchPlan, Pinned
from ..board.queue_memory import QueueMemory
from ..errors import PeerdmaError, UnsupportedError
from ..memory.mailbox import DoorbellPage
from ..memory.memory import Memory
from ..regs import DOORBELL_STRIDE, LAUNCH_QUEUE
from ..uapi import (
    Access,
    CreateQueue,
    DestroyQueue,
    Event,
    ExportDmabuf,
    ExportFlag,
    Ioctl,
    Op,
    Prepare,
    PrepareFlag,
    QueryQueue,
    QueueWord,
    Reason,
    ResumeQueue,
    Unprepare,
)
from .jobs import Jobs
from .node import KernelNode

__all__ = ["LaunchRun"]

#: Requests within which the board has written a record and looked whether it is to resume.
_LOOKS = 100


class LaunchRun:
    """See `peerdma.board.backend.Launching`. The queue is a job of the driver.

    Parameters
    ----------
    node : KernelNode
    jobs : Jobs
        Reads the driver's events, and passes on that of the queue's end.
    pin, unpin : callable
        Those of the backend.
    plans : sequence of LaunchPlan
    memory : QueueMemory
    overlaps : bool
        Whether the driver knows of copies that may overlap.
    """

    slots: list[int]
    generation: int
    page: DoorbellPage | str
    reports = True

    def __init__(
        self,
        node: KernelNode,
        jobs: Jobs,
        pin: Callable[[Memory, Access], Pinned],
        unpin: Callable[[Pinned], None],
        plans: Sequence[LaunchPlan],
        memory: QueueMemory,
        overlaps: bool,
    ):
        self._node = node
        self._jobs = jobs
        self._memory = memory
        requests = [_request(plan, overlaps) for plan in plans]
        with contextlib.ExitStack() as undo:
            pinned = pin(memory.pages, Access.READ | Access.WRITE)
            undo.callback(unpin, pinned)
            created = CreateQueue(
                depth=memory.depth,
                handle=pinned.number,
                entries=memory.offset("entries"),
                records=memory.offset("records"),
                shadow=memory.offset("tail"),
                word=memory.offset("state"),
            )
            node.request(Ioctl.CREATE_QUEUE, created, "open a launch queue {0.depth} deep")
            self._queue: int = created.queue
            jobs.listeners[self._queue] = self
            undo.callback(self._destroy)
            memory.start(created.first)
            self.generation = created.generation
            self.slots = [self._prepare(*each) for each in enumerate(requests)]
            self.page = self._map(created.doorbell)
            self._undo = undo.pop_all()

    def _map(self, offset: int) -> DoorbellPage | str:
        """See `peerdma.board.backend.Launching.page`."""
        if offset:
            return DoorbellPage(self._node.map(offset, DOORBELL_STRIDE), True)
        if mmap.PAGESIZE > DOORBELL_STRIDE:
            return f"pages of this kernel are {mmap.PAGESIZE} bytes, and a doorbell's is smaller"
        return (
            "the driver gives a page to programs with CAP_SYS_RAWIO only. Load it with "
            "doorbell_pages=1 if all programs may have one"
        )

    def _prepare(self, index: int, request: Prepare) -> int:
        """Puts a plan into a slot, with its done word."""
        request.queue = self._queue
        request.flags |= PrepareFlag.DONE
        request.done = self._memory.offset("done") + 4 * index
        self._node.request(Ioctl.PREPARE, request, "prepare {0.length} bytes for a GPU")
        return request.slot

    # While it is open ------------------------------------------------------------------------

    def check(self) -> None:
        """Asks the driver whether the queue has ended, or a ticket failed."""
        if not self._memory.ended:
            self._memory.learn(self._query().state)

    def counts(self) -> LaunchCounts:
        """What the board counts; the driver does not report its clock."""
        return LaunchCounts(self._query().ignored, None)

    def export(self) -> int:
        """The page of its doorbell as a dma-buf."""
        request = ExportDmabuf(flags=ExportFlag.DOORBELL, queue=self._queue)
        return self._node.export(request, "export a doorbell")

    def resume(self) -> None:
        """Has the board start tickets again."""
        self._ask(Ioctl.RESUME_QUEUE, ResumeQueue(queue=self._queue), "resume a launch queue")
        for _ in range(_LOOKS):
            # The board does that when it is between two tickets.
            if not QueueWord.STATUS.get(self._query().state):
                break
        self._memory.first_error = 0
        self.check()

    def invalidate(self, index: int) -> None:
        """The board does not use the memory of a plan any more when this returns."""
        request = Unprepare(queue=self._queue, slot=self.slots[index])
        self._ask(Ioctl.UNPREPARE, request, "end a slot of a launch queue")
        self.check()
        if self._memory.ended is Reason.CANCELLED:
            # Nobody has closed it: the ticket at work did not end in time.
            self._memory.ended = Reason.UNPINNED

    def close(self) -> None:
        """Ends the queue, which gives back its slots and memory. Closing again does nothing."""
        if self._queue in self._jobs.listeners:
            self.check()
        self._destroy()
        if not self._memory.ended:
            self._memory.learn(QueueWord.REASON.put(Reason.CANCELLED))
        self._undo.close()

    # For the jobs ----------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Notes the end of the queue, of which the driver knows no more once this was read."""
        if self._memory.ended:
            return
        word = QueueWord.REASON.put(event.reason)
        if event.reason == Reason.ENGINE:
            word |= QueueWord.END.put(LAUNCH_QUEUE["state"].field("end").get(event.status))
        # A GPU may have written this part; it is only for messages.
        self._memory.learn(word | self._memory.word() & QueueWord.STATUS)

    def lose(self, error: PeerdmaError) -> None:
        """Notes that the board is gone."""
        if not self._memory.ended:
            self._memory.learn(QueueWord.REASON.put(Reason.LOST))

    # Inside ----------------------------------------------------------------------------------

    def _query(self) -> QueryQueue:
        query = QueryQueue(queue=self._queue)
        self._node.request(Ioctl.QUERY_QUEUE, query, "query a launch queue")
        return query

    def _destroy(self) -> None:
        """Ends the queue and takes the event of that, unless it was read."""
        if self._queue in self._jobs.listeners:
            request = DestroyQueue(queue=self._queue)
            self._ask(Ioctl.DESTROY_QUEUE, request, "end a launch queue")
            del self._jobs.listeners[self._queue]

    def _ask(
        self, code: Ioctl, request: DestroyQueue | ResumeQueue | Unprepare, action: str
    ) -> None:
        """Makes a request, which may come after the end of what it is for."""
        try:
            self._node.request(code, request, action)
        except PeerdmaError as error:
            if error.errno != errno.ENOENT:
                raise


def _request(plan: LaunchPlan, overlaps: bool) -> Prepare:
    """The request for a plan, but for its queue; UnsupportedError if it is in several pieces."""
    sides = plan.source, plan.destination
    here, there = ([each for each in side if each.start < each.stop] for side in sides)
    most = max(len(here), len(there))
    if most > 1:
        raise UnsupportedError(
            f"a plan of {most} pieces of memory cannot be launched: the kernel driver takes one "
            "piece on each side. Make a plan for each piece"
        )
    op = Op.COPY if here and there else Op.H2C if here else Op.C2H
    request = Prepare(op=op, src_offset=plan.card_address, dst_offset=plan.card_address)
    for piece in there:
        request.dst_handle, request.dst_offset = piece.handle.number, piece.start
        request.length = piece.stop - piece.start
    for piece in here:
        request.src_handle, request.src_offset = piece.handle.number, piece.start
        request.length = piece.stop - piece.start
    if overlaps and plan.independent:
        request.flags = PrepareFlag.OVERLAP
    if plan.record:
        request.flags = PrepareFlag.RECEIVE
        request.record_handle = plan.record.handle.number
        request.record_offset = plan.record.start
    return request
