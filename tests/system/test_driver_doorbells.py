# SPDX-License-Identifier: BSD-2-Clause
"""Doorbells of launch queues as pages of a BAR: who gets one, what it does, and when it goes."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

import pytest

from peerdma.regs import LaunchEnd, LaunchStatus
from peerdma.uapi import Ioctl, Op, QueueWord, Reason, Reset
from tests.system.launching import SHADOW, WITH_QUEUES, Queue, there
from tests.system.marks import IN_GUEST
from tests.system.picoevb import PAGE, Buffer, Node, rebound, results, setting, until, user

GUEST = WITH_QUEUES
pytestmark = IN_GUEST

OK = LaunchStatus.OK


class Copy:
    """A slot that copies a page."""

    def __init__(self, queue: Queue):
        self.queue, self.source, self.there = queue, Buffer(PAGE), Buffer(PAGE)
        handles = queue.node.pages(self.source), queue.node.pages(self.there)
        self.slot = queue.prepare(Op.COPY, PAGE, src_handle=handles[0], dst_handle=handles[1])

    def runs(self, doorbell: ctypes.c_uint32 | None) -> bool:
        """Whether one that is rung for by a doorbell, or the shadow tail, moves its bytes."""
        self.source[:], self.there[:] = os.urandom(PAGE), bytes(PAGE)
        tickets = self.queue.submit(self.slot, doorbell=doorbell)
        return self.queue.wait(*tickets) == [OK] and self.source[:] == self.there[:]


def test_a_doorbell_starts_jobs():
    """By itself, and beside the shadow tail; what is behind or repeated changes nothing."""
    with Node() as node:
        queues = [Queue(node), Queue(node)]
        bells = [queue.doorbell() for queue in queues]
        mine = [Copy(queue) for queue in queues]
        for _ in range(12):
            for copy, bell in zip(mine, bells, strict=True):
                assert copy.runs(bell)
        assert [queue.word(SHADOW).value for queue in queues] == [0, 0]
        for copy, bell in zip(mine, bells, strict=True):
            assert copy.runs(None) and copy.runs(bell)
            bell.value = copy.queue.word(SHADOW).value
            assert copy.runs(bell)
        assert bells[0].value == 0
        assert queues[0].query().ignored == queues[1].query().ignored == 0


def test_a_queue_has_its_own_page_and_generation():
    """Offsets and generations are new each time, and the other page is next."""
    with Node() as node:
        first = Queue(node)
        old = first.doorbell()
        first.destroy()
        second, third = Queue(node), Queue(node)
        assert len({queue.created.doorbell for queue in (first, second, third)}) == 3
        assert len({queue.created.generation for queue in (first, second, third)}) == 3
        assert not there(old)
        # As a GPU would that has the page of a queue before mapped.
        before = second.query().ignored
        for queue in (second, third):
            queue.doorbell().value = first.created.generation << 16 | 5
        until(lambda: second.query().ignored == before + 2)
        assert Copy(second).runs(second.doorbell()) and Copy(third).runs(third.doorbell())


@pytest.mark.parametrize("by", ["destroy", "unpin", "board", "reset", "unbind"])
def test_the_page_goes_with_its_queue(by: str):
    """Before anybody is told of the end, and out of each mapping."""
    with Node() as node, Node() as other:
        queue, kept = Queue(node), Queue(other)
        bell, never, others = queue.doorbell(), queue.doorbell(), kept.doorbell()
        assert Copy(queue).runs(bell) and there(others)
        if by == "destroy":
            queue.destroy()
        elif by == "unpin":
            node.unpin(queue.handle)
        elif by == "board":
            bell.value = queue.created.generation << 16 | queue.next + 9 & 0xFFFF
            assert results([queue.event()]) == [(errno.EIO, Reason.ENGINE)]
            assert queue.state(QueueWord.END) == LaunchEnd.TAIL
        elif by == "reset":
            node.request(Ioctl.RESET, Reset())
        else:
            with rebound():
                assert not there(bell) and not there(never) and not there(others)
            return
        assert not there(bell) and not there(never)
        assert there(others) == (by != "reset")
        with node.refused(errno.EINVAL, "nothing is mapped at offset"):
            queue.doorbell()


def test_who_gets_a_page():
    """Whoever may do raw I/O, and all others if the administrator says so."""
    with user(1000), Node() as node:
        queue = Queue(node)
        assert queue.created.doorbell == 0
        assert Copy(queue).runs(None)
    with setting("peerdma", "doorbell_pages", 1), user(1000), Node() as node, Node() as other:
        queue = Queue(node)
        assert Copy(queue).runs(queue.doorbell())
        offset = queue.created.doorbell
        with other.refused(errno.EINVAL, "nothing is mapped at offset"):
            mmap.mmap(other.fd, PAGE, offset=offset)
        with node.refused(errno.EINVAL, "is one page of 4096 bytes"):
            mmap.mmap(node.fd, 2 * PAGE, offset=offset)
        with node.refused(errno.EINVAL, "must be shared"):
            mmap.mmap(node.fd, PAGE, mmap.MAP_PRIVATE, offset=offset)
