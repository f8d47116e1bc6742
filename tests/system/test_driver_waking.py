# SPDX-License-Identifier: BSD-2-Clause
"""Programs are told of what has ended: how long that takes is theirs to bear, whatever they do."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import threading
import time

import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl, Op
from tests.system.hostile import SOMEBODY, nodes_of_all, start
from tests.system.marks import IN_GUEST
from tests.system.picoevb import PAGE, Buffer, Node, ended, rebound, results, until
from tests.system.watchers import ratios, watch

pytestmark = IN_GUEST

EVENTFD = uapi.SubmitFlag.EVENTFD


@pytest.mark.parametrize("kind", ["file", "eventfd"])
def test_requests_take_as_long_beside_jobs_that_thousands_watch(kind: str):
    """The kernel calls watchers of an eventfd with interrupts off, which may be those of copies."""
    # On a busy machine other programs have a part in it; a driver that is at fault fails each time.
    for _ in range(4):
        found = ratios(kind, 30000)
        if kind == "eventfd":
            del found["copy"]
        if max(found.values()) <= 2:
            return
    pytest.fail(str(found))


def test_each_way_to_wait_is_told():
    """At once: read, poll, epoll and an eventfd, of jobs and of a board that is gone."""
    memory = Buffer(PAGE)
    with Node() as node, select.epoll() as epoll:
        eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        handle = node.pages(memory)
        epoll.register(node.fd, select.EPOLLIN | select.EPOLLET)
        for count in range(1, 20):
            node.submit(Op.H2C, 64, src_handle=handle, flags=EVENTFD, eventfd=eventfd)
            assert epoll.poll(20) == [(node.fd, select.EPOLLIN)]
            assert len(os.read(node.fd, 4096)) == 64
            assert select.select([eventfd], [], [], 20)[0]
            assert os.eventfd_read(eventfd) == 1, count
        epoll.unregister(node.fd)
        gone = []
        waiter = threading.Thread(target=lambda: gone.append(epoll.poll(60)))
        epoll.register(node.fd, select.EPOLLIN)
        waiter.start()
        with rebound():
            waiter.join()
        ((_, events),) = gone[0]
        assert events & select.EPOLLHUP


def test_jobs_that_ended_wait_for_their_watchers_no_more_than_a_thousand():
    """A program that has more jobs end than it can be told of is slowed down, and can be killed."""

    def submit():
        eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        with Node() as node:
            handle = node.pages(Buffer(PAGE))
            watchers = watch(eventfd, 20000)
            for _ in range(1500):
                node.submit(Op.H2C, 0, src_handle=handle, flags=EVENTFD, eventfd=eventfd)
                os.read(node.fd, 64)
            assert watchers
            signal.pause()

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with nodes_of_all(), Node() as node:
        pid = start(submit)
        time.sleep(3)
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        memory = Buffer(PAGE)
        node.h2c(memory.address, 0, 64)


@pytest.mark.parametrize("end", ["closed", "killed", "unbound"])
def test_watchers_come_and_go_while_they_are_told(end: str):
    """With jobs that end at once, that are cancelled, and whose eventfd is closed meanwhile."""

    def program():
        memory, stop = Buffer(PAGE), time.monotonic() + 4
        while time.monotonic() < stop:
            try:
                node = Node()
            except OSError:  # it is gone, or another one's that is there again
                time.sleep(0.01)
                continue
            eventfd = os.eventfd(0, os.EFD_NONBLOCK)
            watchers = [*watch(node.fd, 200, 20), *watch(eventfd, 200, 20)]
            with contextlib.suppress(OSError):
                handle = node.pages(memory)
                for length in (0, 64, PAGE) * 4:
                    job = node.submit(
                        Op.H2C, length, src_handle=handle, flags=EVENTFD, eventfd=eventfd
                    )
                    with contextlib.suppress(OSError):
                        node.cancel(job)
                os.close(eventfd)
                node.submit(Op.COPY, 0, src_handle=handle, dst_handle=handle)
                os.read(node.fd, 256)
            node.close()
            for watcher in watchers:
                watcher.close()
        signal.pause()

    with nodes_of_all():
        pids = [start(program, SOMEBODY + n % 2) for n in range(4)]
        time.sleep(1)
        if end == "unbound":
            for _ in range(3):
                with rebound():
                    pass
                time.sleep(0.5)
        elif end == "closed":
            time.sleep(4)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            assert ended(pid) == -signal.SIGKILL
        with Node() as node:
            memory = Buffer(PAGE)
            node.h2c(memory.address, 0, PAGE)
            until(lambda: not node.info().pinned_bytes)
            handle = node.pages(memory)
            node.submit(Op.H2C, 64, src_handle=handle)
            assert results(node.events(1)) == [(0, 0)]
            node.request(Ioctl.RESET, uapi.Reset())
