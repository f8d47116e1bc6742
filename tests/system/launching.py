# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues that tests use in a guest, with a process in place of the GPU."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import threading
import time
from collections.abc import Iterator

from peerdma import uapi
from peerdma.regs import LAUNCH_ENTRY, LAUNCH_RECORD, LAUNCH_SLOTS, LaunchStatus
from peerdma.uapi import Event, Ioctl, Op, PrepareFlag, QueueWord, Reason
from tests.system.picoevb import PAGE, Buffer, Node, results, until

__all__ = [
    "CONVERTER",
    "DONE",
    "ENTRIES",
    "RECORDS",
    "SHADOW",
    "WITH_QUEUES",
    "WORD",
    "Held",
    "Queue",
    "polled",
    "there",
]

#: The second board has no launch queues; the third one halves what is sent to its user stream. Time
#: limits of the first one are a fifth of the usual ones for simulations, and those of the third one
#: a twentieth: tests wait for them.
WITH_QUEUES = {
    "configuration": "identity",
    "board_options": ["--launch-queues", "2", "--time-scale", "200"],
    "further_boards": [
        ["--no-msix"],
        ["--user", "bfloat16", "--launch-queues", "2", "--time-scale", "50"],
    ],
}
CONVERTER = "/dev/picoevb2"

#: Bytes in a queue's memory; done words follow.
ENTRIES, RECORDS, SHADOW, WORD, DONE = 0, PAGE // 2, PAGE, PAGE + 4, PAGE + 64
_ENTRY, _RECORD = LAUNCH_ENTRY.itemsize, LAUNCH_RECORD.itemsize


class Queue:
    """A launch queue of a node, and what a GPU would do with it: a store is one of ctypes."""

    def __init__(self, node: Node, depth: int = 8, memory: Buffer | None = None, **members: int):
        self.node, self.depth = node, depth
        self.memory = memory or Buffer(2 * PAGE, b"\xff" * 2 * PAGE)
        self.handle = node.pages(self.memory)
        self.created = node.request(Ioctl.CREATE_QUEUE, self.request(**members))
        self.queue, self.next = self.created.queue, self.created.first
        assert self.created.generation

    def request(self, **members: int) -> uapi.CreateQueue:
        """The request that creates it, with other members."""
        places = {"entries": ENTRIES, "records": RECORDS, "shadow": SHADOW, "word": WORD}
        settings = {"depth": self.depth, "handle": self.handle, "user_data": 9, **places, **members}
        return uapi.CreateQueue(**settings)

    # What the driver does

    def prepare(self, op: Op, length: int, done: int | None = None, **members: int) -> int:
        """Prepares a job, with a done word of this number: its slot."""
        request = uapi.Prepare(queue=self.queue, op=op, length=length)
        for name, value in members.items():
            setattr(request, name, value)
        if done is not None:
            request.flags |= PrepareFlag.DONE
            request.done = DONE + 4 * done
        slot = self.node.request(Ioctl.PREPARE, request).slot
        assert slot < LAUNCH_SLOTS
        return slot

    def unprepare(self, slot: int) -> None:
        """Takes a job from its slot."""
        self.node.request(Ioctl.UNPREPARE, uapi.Unprepare(queue=self.queue, slot=slot))

    def resume(self) -> None:
        """Starts tickets again."""
        self.node.request(Ioctl.RESUME_QUEUE, uapi.ResumeQueue(queue=self.queue))

    def destroy(self) -> None:
        """Ends it."""
        self.node.request(Ioctl.DESTROY_QUEUE, uapi.DestroyQueue(queue=self.queue))

    def query(self) -> uapi.QueryQueue:
        """What the driver knows of it."""
        return self.node.request(Ioctl.QUERY_QUEUE, uapi.QueryQueue(queue=self.queue))

    def event(self) -> Event:
        """The event of its end."""
        (event,) = self.node.events(1)
        assert (event.job, event.user_data) == (self.queue, 9)
        return event

    # What a GPU does

    def word(self, offset: int) -> ctypes.c_uint32:
        """A word of its memory, as a variable."""
        return ctypes.c_uint32.from_address(self.memory.address + offset)

    def entry(self, ticket: int, slot: int) -> None:
        """Writes an entry, slot first."""
        at = ENTRIES + ticket % self.depth * _ENTRY
        self.word(at + 4).value = slot
        self.word(at).value = ticket

    def submit(self, *slots: int, doorbell: ctypes.c_uint32 | None = None) -> list[int]:
        """Writes entries, and then a doorbell, or the shadow tail: their tickets."""
        tickets = []
        for slot in slots:
            self.entry(self.next, slot)
            tickets.append(self.next)
            self.next = (self.next + 1) % (1 << 32)
        tail = self.word(SHADOW) if doorbell is None else doorbell
        tail.value = self.created.generation << 16 | self.next & 0xFFFF
        return tickets

    def doorbell(self) -> ctypes.c_uint32:
        """Its doorbell, mapped into this process for as long as this variable is there."""
        page = mmap.mmap(self.node.fd, PAGE, offset=self.created.doorbell)
        return ctypes.c_uint32.from_buffer(page)

    def done(self, number: int) -> ctypes.c_uint32:
        """A done word."""
        return self.word(DONE + 4 * number)

    def status(self, ticket: int) -> int | None:
        """Of the record of a ticket; None if it has not completed."""
        at = RECORDS + ticket % self.depth * _RECORD
        found = self.word(at).value
        if (found - ticket) % (1 << 32) >= 1 << 31:
            return None
        assert found == ticket, (found, ticket)
        return self.word(at + 4).value

    def wait(self, *tickets: int) -> list[int]:
        """Waits for tickets: the status of each."""
        until(lambda: None not in [self.status(ticket) for ticket in tickets])
        return [status for ticket in tickets if (status := self.status(ticket)) is not None]

    def run(self, *slots: int) -> list[int]:
        """Submits jobs and waits for them."""
        return self.wait(*self.submit(*slots))

    def state(self, field: QueueWord) -> int:
        """A field of the state word."""
        return field.get(self.word(WORD).value)

    def told(self, field: QueueWord) -> int:
        """The same as the driver tells it."""
        return field.get(self.query().state)


_libc = ctypes.CDLL(None, use_errno=True)


def there(doorbell: ctypes.c_uint32) -> bool:
    """Whether a mapped doorbell can be written; by the kernel's hand, which raises no SIGBUS."""
    with open("/dev/zero", "rb", buffering=0) as zero:
        found = _libc.read(zero.fileno(), ctypes.byref(doorbell), 4)
    assert found == 4 or ctypes.get_errno() == errno.EFAULT
    return found == 4


class Held:
    """A queue with a ticket at work that waits for its channel, and one behind it."""

    def __init__(self, node: Node, holder: Node, handle: int, memory: Buffer | None = None):
        """`handle` is memory for the board to write, of a page at least."""
        self.running = holder.endless(holder.pages(Buffer(PAGE)))
        self.holder = holder
        self.queue = Queue(node, memory=memory)
        self.slot = self.queue.prepare(Op.C2H, PAGE, 0, dst_handle=handle)
        self.other = self.queue.prepare(Op.H2C, PAGE, 1, src_handle=node.pages(Buffer(PAGE)))
        self.queue.done(0).value = self.queue.done(1).value = 0
        self.tickets = self.queue.submit(self.slot, self.other, self.slot)
        time.sleep(0.2)
        assert [self.queue.status(ticket) for ticket in self.tickets] == [None] * 3

    def let_go(self) -> None:
        """The channel is free again."""
        self.holder.cancel(self.running)
        self.holder.events(1)

    def ended(self, reason: Reason, *first: LaunchStatus) -> None:
        """That each waiter learns it. The first ticket has not begun, as it had no channel."""
        found = self.queue.wait(*self.tickets)
        assert found[0] in first, found
        assert set(found[1:]) <= {LaunchStatus.FLUSHED, LaunchStatus.ABORTED}, found
        until(lambda: self.queue.done(0).value == self.queue.done(1).value == 1)
        assert self.queue.state(QueueWord.REASON) == reason

    def event(self, error: int, reason: Reason) -> None:
        """What is told of the end."""
        assert results([self.queue.event()]) == [(error, reason)]


@contextlib.contextmanager
def polled(action) -> Iterator[list]:
    """Calls a function again and again within, in a thread; gives what it raised."""
    stop, raised = threading.Event(), []

    def run() -> None:
        while not stop.is_set() and not raised:
            try:
                action()
            except BaseException as error:
                raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        stop.set()
        thread.join()
