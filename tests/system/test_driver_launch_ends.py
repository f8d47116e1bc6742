# SPDX-License-Identifier: BSD-2-Clause
"""How launch queues and the jobs in their slots end: each waiter learns it."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable

import pytest

from peerdma import uapi
from peerdma.regs import LaunchStatus
from peerdma.uapi import BoardState, Ioctl, Op, QueueWord, Reason
from tests.system.launching import CONVERTER, DONE, RECORDS, WITH_QUEUES, WORD, Held, Queue
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    PAGE,
    STREAM,
    Buffer,
    Gpu,
    Node,
    callbacks,
    ended,
    rebound,
    reset_function,
    results,
    setting,
    spawn,
    until,
)

GUEST = WITH_QUEUES
pytestmark = IN_GUEST

OK, SLOT, FLUSHED = LaunchStatus.OK, LaunchStatus.SLOT, LaunchStatus.FLUSHED
ABORTED = LaunchStatus.ABORTED


def test_destroy_with_tickets_outstanding():
    with Node() as node, Node() as other:
        held = Held(node, other, node.pages(Buffer(PAGE)))
        held.queue.destroy()
        held.ended(Reason.CANCELLED, FLUSHED)
        with node.refused(errno.ENOENT, "no launch queue"):
            held.queue.resume()
        held.let_go()


def test_cancel_with_tickets_outstanding():
    """A queue is a job; what can be asked of it then."""
    with Node() as node, Node() as other:
        held = Held(node, other, handle := node.pages(Buffer(PAGE)))
        node.cancel(held.queue.queue)
        held.ended(Reason.CANCELLED, FLUSHED)
        assert held.queue.told(QueueWord.REASON) == Reason.CANCELLED
        assert held.queue.query().slots == 0
        with node.refused(errno.ENOENT, "the launch queue has ended"):
            held.queue.resume()
        with node.refused(errno.ENOENT, "the launch queue has ended"):
            held.queue.prepare(Op.C2H, PAGE, dst_handle=handle)
        with node.refused(errno.ENOENT, "the launch queue has ended"):
            held.queue.prepare(Op.C2H, PAGE, 0, dst_handle=handle)
        held.event(errno.ECANCELED, Reason.CANCELLED)
        with node.refused(errno.ENOENT, "no launch queue"):
            held.queue.query()
        held.let_go()


def test_unpin_of_data_takes_slots():
    """Of one that is not at work at once; the queue goes on."""
    memory = Buffer(PAGE)
    with Node() as node:
        queue = Queue(node)
        handle = node.pages(memory)
        slots = [queue.prepare(Op.H2C, 64, n, src_handle=handle) for n in range(2)]
        kept = queue.prepare(Op.H2C, 64, src_handle=node.pages(Buffer(PAGE)))
        assert queue.run(*slots, kept) == [OK] * 3
        queue.done(0).value = queue.done(1).value = 0
        node.unpin(handle)
        assert queue.query().slots == 1 << kept
        assert queue.done(0).value == queue.done(1).value == 1
        assert queue.run(kept, slots[0]) == [OK, SLOT]
        queue.resume()
        assert queue.run(kept) == [OK]


def test_unpin_waits_for_a_ticket_at_work():
    with Node() as node, Node() as other:
        handle = node.pages(Buffer(PAGE))
        held = Held(node, other, handle)
        pid = spawn(lambda: node.unpin(handle))
        until(lambda: held.queue.query().slots == 1 << held.slot | 1 << held.other)
        time.sleep(0.2)
        assert held.queue.status(held.tickets[0]) is None
        held.let_go()
        assert ended(pid) == 0
        assert held.queue.wait(*held.tickets)[:2] == [OK, OK]
        assert held.queue.query().slots == 1 << held.other
        held.queue.destroy()


def test_unpin_of_the_rings():
    with Node() as node, Node() as other:
        held = Held(node, other, node.pages(Buffer(PAGE)))
        node.unpin(held.queue.handle)
        held.ended(Reason.UNPINNED, FLUSHED)
        held.event(errno.ECANCELED, Reason.UNPINNED)
        held.let_go()


@pytest.mark.parametrize("way", ["callback", "invalidate"])
def test_memory_that_is_taken_away(way: str):
    """In bounded time, whatever waits."""

    def taken(pin: Callable[[Node], int], take: Callable[[], object]) -> None:
        with Node() as node, Node() as other:
            held = Held(node, other, handle := pin(node))
            begin = time.monotonic()
            take()
            assert time.monotonic() - begin < 20
            held.ended(Reason.REVOKED, FLUSHED)
            held.event(errno.ESTALE, Reason.REVOKED)
            node.unpin(handle)
            assert node.info().state == BoardState.LIVE
            held.let_go()

    with Gpu() as gpu:
        va = gpu.alloc(GPU_PAGE)
        if way == "callback":
            with callbacks():
                taken(lambda node: node.cuda(va, GPU_PAGE), lambda: gpu.free(va))
        else:
            fd = gpu.export(va)
            taken(lambda node: node.dmabuf(fd), lambda: gpu.revoke(fd))
            os.close(fd)


@pytest.mark.parametrize("way", ["close", "exit", "kill"])
def test_the_last_user_goes(way: str):
    """Whoever shares the memory learns it; memory is let go."""
    memory, flag = Buffer(2 * PAGE, b"\xff" * 2 * PAGE), Buffer(PAGE, b"")
    with Node() as other:

        def use() -> None:
            node = Node()
            held = Held(node, other, node.pages(Buffer(PAGE)), memory=memory)
            flag[:8] = held.queue.created.first.to_bytes(8, "little")
            flag[8:9] = b"\1"
            if way == "close":
                node.close()
            elif way == "exit":
                os._exit(0)
            signal.pause()

        pid = spawn(use)
        until(lambda: any(flag[8:9]))
        if way == "close":
            until(lambda: memory[WORD : WORD + 4] != bytes(4))
        if way != "exit":
            os.kill(pid, signal.SIGKILL)
        ended(pid)
        view = memoryview(memory.memory).cast("I")
        until(lambda: view[WORD // 4])
        assert view[WORD // 4] & QueueWord.REASON == Reason.CANCELLED
        first = int.from_bytes(flag[:8], "little")
        for ticket in range(first, first + 3):
            at = RECORDS // 4 + 2 * (ticket % 8)
            assert view[at] == ticket % (1 << 32)
            assert view[at + 1] in (ABORTED, FLUSHED)
        assert [view[DONE // 4 + n] for n in range(2)] == [1, 1]
        until(lambda: other.info().pinned_bytes == PAGE)
        view.release()


@pytest.mark.parametrize("way", ["unprepare", "destroy", "close", "kill", "late"])
def test_data_that_does_not_come(way: str):
    """The ticket ends in bounded time, and the board keeps the bus: its channel goes on."""
    memory = Buffer(2 * PAGE, b"\xff" * 2 * PAGE)
    with Node(CONVERTER) as other:

        def begin(node: Node) -> tuple[Queue, int]:
            queue = Queue(node, memory=memory)
            handle = node.pages(Buffer(PAGE))
            slot = queue.prepare(Op.C2H, PAGE, 0, dst_handle=handle, src_offset=STREAM)
            queue.done(0).value = 0
            (ticket,) = queue.submit(slot)
            time.sleep(0.2)
            assert queue.status(ticket) is None
            return queue, ticket

        generation = other.info().generation
        if way == "kill":

            def wait() -> None:
                begin(Node(CONVERTER))
                signal.pause()

            pid = spawn(wait)
            until(lambda: other.info().pinned_bytes)
            time.sleep(0.5)
            os.kill(pid, signal.SIGKILL)
            ended(pid)
        else:
            node = Node(CONVERTER)
            queue, ticket = begin(node)
            if way == "unprepare":
                queue.unprepare(queue.query().slots.bit_length() - 1)
                assert results([queue.event()]) == [(errno.ECANCELED, Reason.CANCELLED)]
            elif way == "destroy":
                queue.destroy()
            elif way == "late":
                # What goes on then has as much time to move.
                with setting("peerdma", "timeout_ms", 60):
                    other.submit(Op.C2H, PAGE, dst_handle=other.pages(Buffer(PAGE)))
                    assert results(other.events(1)) == [(0, 0)]
                assert results([queue.event()]) == [(errno.ETIMEDOUT, Reason.TIMEOUT)]
            node.close()
            assert queue.wait(ticket) == [ABORTED]
            until(lambda: queue.done(0).value)
        handle = other.pages(Buffer(PAGE))
        other.submit(Op.C2H, PAGE, dst_handle=handle)
        assert results(other.events(1)) == [(0, 0)]
        again = Queue(other)
        assert again.run(again.prepare(Op.C2H, PAGE, dst_handle=handle)) == [OK]
        assert other.info().generation == generation


@pytest.mark.each_block
@pytest.mark.parametrize("way", ["request", "function"])
def test_reset_with_tickets_outstanding(way: str):
    """The queue does not come back; another one works, and finds no slot of the former."""
    with Node() as node, Node() as other:
        held = Held(node, other, handle := node.pages(Buffer(PAGE)))
        if way == "request":
            node.request(Ioctl.RESET, uapi.Reset())
        else:
            reset_function()
        held.ended(Reason.RESET, FLUSHED)
        held.event(errno.EIO, Reason.RESET)
        assert results(other.events(1)) == [(errno.EIO, Reason.RESET)]
        queue = Queue(node)
        assert queue.run(held.slot) == [SLOT]
        queue.resume()
        assert queue.run(queue.prepare(Op.C2H, PAGE, dst_handle=handle)) == [OK]


def test_unbind_with_tickets_outstanding():
    with Node() as node, Node() as other:
        held = Held(node, other, handle := node.pages(Buffer(PAGE)))
        with rebound():
            held.ended(Reason.LOST, FLUSHED)
            held.event(errno.ENODEV, Reason.LOST)
            request = held.queue.request()
            with pytest.raises(OSError, match="No such device"):
                node.request(Ioctl.CREATE_QUEUE, request)
            node.unpin(handle)
    with Node() as node:
        queue = Queue(node)
        slot = queue.prepare(Op.H2C, PAGE, src_handle=node.pages(Buffer(PAGE)))
        assert queue.run(slot) == [OK]


def test_a_ticket_that_others_keep_waiting():
    """As other jobs that need the channel, from the moment when the one that keeps it is late."""
    # The holder is late seconds after `Held` has seen that all wait.
    with setting("peerdma", "timeout_ms", 25), Node() as node, Node() as other:
        held = Held(node, other, node.pages(Buffer(PAGE)))
        held.ended(Reason.BUSY, FLUSHED)
        held.event(errno.EBUSY, Reason.BUSY)
        held.let_go()


def test_a_job_that_waits_for_a_ticket_is_not_late():
    """The queue whose ticket has the channel ends instead."""
    memory = Buffer(16 << 20, b"")
    with Node() as node, Node() as other:
        queue = Queue(node)
        handles = {
            "src_handle": node.pages(memory),
            "dst_handle": node.pages(Buffer(16 << 20, b"")),
        }
        slot = queue.prepare(Op.COPY, 8 << 20, 0, **handles)
        with setting("peerdma", "timeout_ms", 5):
            (ticket,) = queue.submit(slot)
            time.sleep(0.2)
            timeouts = node.info().timeouts
            handle = other.pages(Buffer(PAGE))
            jobs = other.load(handle, 1, PAGE)
            (event,) = other.events(1)
            assert (event.job, results([event])) == (jobs[0], [(0, 0)])
            assert queue.wait(ticket) == [ABORTED]
            assert results([queue.event()]) == [(errno.ETIMEDOUT, Reason.TIMEOUT)]
            assert node.info().timeouts == timeouts
