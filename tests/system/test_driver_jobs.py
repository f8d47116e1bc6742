# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that are not waited for: submitting, events, cancelling; a reset of the board."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import threading

import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl, MapFlag, Op, Reason
from tests.system.marks import IN_GUEST
from tests.system.picoevb import PAGE, Buffer, Node, child, results, until

pytestmark = IN_GUEST

RAM = 65536
NOWHERE = 0x1000


def test_jobs_that_are_refused():
    memory = Buffer(4 * PAGE)
    with Node() as node:
        handle, readable = node.pages(memory), node.pages(memory, access=1)
        submit = lambda **k: (Ioctl.SUBMIT, uapi.Submit(**k))  # noqa: E731
        for number, words, request in (
            (errno.EINVAL, "unknown operation 4", submit(op=4)),
            (
                errno.EINVAL,
                "the card has no handle, but 2",
                submit(op=0, src_handle=1, dst_handle=2),
            ),
            (errno.EINVAL, "the card has no handle", submit(op=1, src_handle=1, dst_handle=2)),
            (errno.EINVAL, "no memory is pinned as handle 0", submit(op=0, length=4)),
            (
                errno.EINVAL,
                "beyond",
                submit(op=0, src_handle=handle, length=4, src_offset=4 * PAGE),
            ),
            (
                errno.EINVAL,
                "beyond",
                submit(op=0, src_handle=handle, length=1, src_offset=2**64 - 1),
            ),
            (errno.EINVAL, "card RAM", submit(op=0, src_handle=handle, length=1, dst_offset=RAM)),
            (errno.EINVAL, "not pinned for the board to write", submit(op=1, dst_handle=readable)),
            (
                errno.EINVAL,
                "overlap: 8 bytes from 0 and 8 from 4 on",
                submit(op=2, src_handle=handle, dst_handle=handle, dst_offset=4, length=8),
            ),
            (errno.ESTALE, "generation 9 was asked for", submit(op=0, src_handle=1, generation=9)),
        ):
            node.refuses(number, words, *request)
        node.refuses(errno.ENOENT, "job 5 has ended, or", Ioctl.CANCEL, uapi.Cancel(job=5))
        node.refuses(errno.EINVAL, "handle 50", Ioctl.QUERY, uapi.Query(handle=50))
        node.refuses(errno.EINVAL, "handle 50", Ioctl.MAP_INFO, uapi.MapInfo(handle=50))
        place = uapi.MapInfo(handle=1, flags=MapFlag.MAILBOX)
        node.refuses(errno.EINVAL, "mailbox has no handle", Ioctl.MAP_INFO, place)
        place = uapi.MapInfo(handle=handle)
        node.refuses(errno.EOPNOTSUPP, "the process has it already", Ioctl.MAP_INFO, place)


def test_as_many_jobs_as_may_be():
    with Node() as node:
        handle = node.pages(Buffer(PAGE))
        jobs = node.load(handle, 256, 4)
        with node.refused(errno.EAGAIN, "256 jobs are outstanding"):
            node.load(handle, 1, 4)
        assert [event.job for event in node.events(1)] == jobs[:1]
        node.load(handle, 1, 4)
        assert results(node.events(256)) == [(0, 0)] * 256


def test_reading_events():
    with Node(flags=os.O_NONBLOCK) as node:
        with pytest.raises(BlockingIOError):
            os.read(node.fd, 64)
        with node.refused(errno.EINVAL, "an event has 64 bytes, there is room for 63"):
            os.read(node.fd, 63)
        job, later = node.load(node.pages(Buffer(PAGE)), 2, PAGE)
        until(lambda: node.info().jobs >= 2 and select.select([node.fd], [], [], 0)[0])
        # One that cannot be told is not lost.
        read = ctypes.CDLL(None, use_errno=True).read
        assert read(node.fd, ctypes.c_void_p(NOWHERE), 64) == -1
        assert ctypes.get_errno() == errno.EFAULT
        assert [event.job for event in node.events(2)] == [job, later]


def test_reading_waits():
    with Node() as node:
        handle = node.pages(Buffer(PAGE))
        timer = threading.Timer(0.3, node.load, (handle, 1, PAGE))
        timer.start()
        assert len(os.read(node.fd, 640)) == 64
        timer.join()


def test_cancelling():
    with Node() as node:
        jobs = [node.lasting(), *node.load(node.pages(Buffer(RAM)), 5, RAM)]
        for job in (jobs[0], jobs[3]):
            node.request(Ioctl.CANCEL, uapi.Cancel(job=job))
        events = {event.job: event for event in node.events(6)}
        cancelled = (errno.ECANCELED, Reason.CANCELLED)
        found = [results([events[job]])[0] for job in jobs]
        assert found == [cancelled, (0, 0), (0, 0), cancelled, (0, 0), (0, 0)]
        assert events[jobs[0]].bytes == events[jobs[3]].bytes == 0
        node.refuses(errno.ENOENT, "has ended", Ioctl.CANCEL, uapi.Cancel(job=jobs[1]))


def test_jobs_of_two_files_take_turns():
    """The last one of the first file ends by nothing but being cancelled."""
    memory = Buffer(RAM)
    with Node() as holder, Node() as node, Node() as other:
        holds = holder.endless(holder.pages(memory))
        for each, count in ((node, 29), (other, 2)):
            handle = each.pages(memory)
            for _ in range(count):
                each.submit(Op.C2H, RAM, dst_handle=handle)
        last = node.endless(node.pages(memory))
        holder.cancel(holds)
        assert results(other.events(2)) == [(0, 0)] * 2, "it had to wait for all of the first file"
        node.cancel(last)
        ends = sorted(results(node.events(30)))
        assert ends == [(0, 0)] * 29 + [(errno.ECANCELED, Reason.CANCELLED)]


def test_reset():
    with Node() as node:
        before = node.info().generation
        handle = node.pages(Buffer(RAM))
        jobs = [node.lasting(), *node.load(handle, 1, RAM)]
        old = node.submit(Op.H2C, 4, src_handle=handle, generation=before)
        node.request(Ioctl.RESET, uapi.Reset())
        assert node.info().generation == before + 1
        events = {event.job: results([event])[0] for event in node.events(3)}
        assert events[jobs[0]] == (errno.EIO, Reason.RESET)
        assert events[jobs[1]] == (0, 0)  # had not started
        assert events[old] == (errno.ESTALE, Reason.RESET)
        with node.refused(errno.ESTALE, "what was in card RAM is lost"):
            node.submit(Op.H2C, 4, src_handle=handle, generation=before)
        node.submit(Op.H2C, 4, src_handle=handle, generation=before + 1)
        assert results(node.events(1)) == [(0, 0)]

        def unprivileged():
            os.setuid(1000)
            node.refuses(errno.EPERM, "CAP_SYS_ADMIN", Ioctl.RESET, uapi.Reset())

        assert child(unprivileged) == 0
        assert node.info().generation == before + 1
