# SPDX-License-Identifier: BSD-2-Clause
"""The launch queue of a stand-in for the kernel driver: requests, and how it ends."""

from __future__ import annotations

import ctypes
import errno
from types import SimpleNamespace

from peerdma.regs import LAUNCH_ENTRY, LAUNCH_QUEUE, LAUNCH_RECORD, LAUNCH_SLOTS, LaunchStatus
from peerdma.uapi import Op, QueueWord, Reason

FIRST, GENERATION = (1 << 32) - 3, 7


class FakeLaunches:
    """Its requests; a mix-in of `FakeKernel`.

    Attributes
    ----------
    launch_count : int
        How many the board has, 0 or 1.
    doorbell : int
        Where the page of a queue can be mapped; 0: nowhere.
    queue : SimpleNamespace or None
        The queue, until the event of its end is read: its number, request, jobs by slot, and state.
    """

    launch_count = 0
    doorbell = 0
    queue: SimpleNamespace | None = None

    def word(self, offset: int) -> ctypes.c_uint32:
        """A word in the memory of the queue."""
        address, size = self.pins[self.queue.request.handle]
        assert offset + 4 <= size
        return ctypes.c_uint32.from_address(address + offset)

    def _create_queue(self, request):
        if not self.launch_count:
            self._fail(errno.EOPNOTSUPP, "this board has no launch queues")
        if self.queue:
            self._fail(errno.EBUSY, "all 1 launch queues of the board are in use")
        request.queue, request.first, request.generation = next(self._jobs), FIRST, GENERATION
        request.doorbell = self.doorbell
        self.queue = SimpleNamespace(number=request.queue, request=request, jobs={}, state=0)
        self._outstanding[request.queue] = False
        for ticket in range(FIRST - request.depth, FIRST):
            place = ticket % request.depth
            self.word(request.entries + place * LAUNCH_ENTRY.itemsize).value = ticket
            self.word(request.records + place * LAUNCH_RECORD.itemsize).value = ticket
        self.word(request.shadow).value = self.word(request.word).value = 0

    def _find(self, number: int) -> SimpleNamespace:
        if self.queue is None or self.queue.number != number:
            self._fail(errno.ENOENT, f"there is no launch queue {number}")
        return self.queue

    def _prepare(self, request):
        queue = self._find(request.queue)
        for absent, handle, offset in (
            (Op.C2H, request.src_handle, request.src_offset),
            (Op.H2C, request.dst_handle, request.dst_offset),
        ):
            assert bool(handle) == (request.op != absent)
            assert not handle or self.pins[handle][1] >= offset + request.length
        request.slot = next(n for n in range(4, LAUNCH_SLOTS, 2) if n not in queue.jobs)
        members = {name: getattr(request, name) for name, _ in request._fields_}
        queue.jobs[request.slot] = SimpleNamespace(**members)

    def _unprepare(self, request):
        if self._find(request.queue).jobs.pop(request.slot, None) is None:
            self._fail(errno.ENOENT, f"slot {request.slot} of this queue has no job")

    def _query_queue(self, request):
        request.state, request.ignored = self._find(request.queue).state, 2

    def _resume_queue(self, request):
        queue = self._find(request.queue)
        if QueueWord.REASON.get(queue.state):
            self._fail(errno.ENOENT, "the launch queue has ended")
        queue.state = 0

    def _destroy_queue(self, request):
        queue = self._find(request.queue)
        self._told(Reason.CANCELLED)
        del self._outstanding[queue.number]
        self.queue = None

    def _told(self, reason: Reason) -> None:
        """The state word, and records of tickets that have none."""
        queue = self.queue
        queue.state |= QueueWord.REASON.put(reason)
        self.word(queue.request.word).value = queue.state
        for place in range(queue.request.depth):
            ticket = self.word(queue.request.entries + place * LAUNCH_ENTRY.itemsize).value
            record = queue.request.records + place * LAUNCH_RECORD.itemsize
            if self.word(record).value != ticket:
                self.word(record + 4).value = LaunchStatus.FLUSHED
                self.word(record).value = ticket

    def end_queue(self, reason: Reason, status: int = 0, **members: int) -> None:
        """The driver ends it, and its event can be read."""
        if reason is Reason.ENGINE:
            self.queue.state |= QueueWord.END.put(LAUNCH_QUEUE["state"].field("end").get(status))
        self._told(reason)
        self._end(self.queue.number, reason=reason, status=status, **members)
