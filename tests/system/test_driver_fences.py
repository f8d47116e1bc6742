# SPDX-License-Identifier: BSD-2-Clause
"""Fences: others who use a dma-buf can wait for the board, and the board waits for them.

The kernel tells them by poll() of a dma-buf, and as sync_files.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peerdma.uapi import Frame, Ioctl, Op, Reason, StartRing, request_code
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    HUNG,
    PAGE,
    WITH_HUNG_BOARD,
    Buffer,
    Gpu,
    Later,
    Node,
    results,
    setting,
    until,
)

GUEST = WITH_HUNG_BOARD
pytestmark = IN_GUEST

CANCELLED = (errno.ECANCELED, Reason.CANCELLED)
#: Who asks: somebody who is going to read, or to write.
READ, WRITE = select.POLLIN, select.POLLOUT


class SyncFile(ctypes.Structure):
    """struct dma_buf_export_sync_file, dma_buf_import_sync_file"""

    _fields_ = (("flags", ctypes.c_uint32), ("fd", ctypes.c_int32))


EXPORT, IMPORT = request_code("b", 2, 3, SyncFile), request_code("b", 3, 1, SyncFile)
#: SYNC_IOC_FILE_INFO; the status is the 9th word of its structure
_FILE_INFO, _STATUS = 0xC0383E04, 8


def sync_file(fd: int) -> int:
    """What somebody who is going to write to a dma-buf has to wait for: a file descriptor."""
    wanted = SyncFile(flags=2, fd=-1)
    fcntl.ioctl(fd, EXPORT, wanted)
    return wanted.fd


def status(fd: int) -> int:
    """Of a sync_file: 0 while it is to be waited for, 1, or a negative errno."""
    words = array.array("i", bytes(56))
    fcntl.ioctl(fd, _FILE_INFO, words)
    return words[_STATUS]


def free_for(fd: int) -> int:
    """What may be done with a dma-buf without waiting: READ, WRITE or both."""
    poll = select.poll()
    poll.register(fd, READ | WRITE)
    return dict(poll.poll(0)).get(fd, 0)


@contextlib.contextmanager
def exported(count: int = 1) -> Iterator[list[int]]:
    """dma-bufs of GPU memory."""
    with Gpu() as gpu:
        fds = [gpu.export(gpu.alloc(GPU_PAGE)) for _ in range(count)]
        yield fds
        for fd in fds:
            os.close(fd)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Jobs that write memory wait within, until what it gives is called."""
    with Node() as holder:
        job = holder.endless(holder.pages(Buffer(PAGE)))
        yield lambda: holder.cancel(job)


def write(node: Node, fd: int) -> int:
    """Queues a job that writes to a dma-buf; its number."""
    return node.submit(Op.C2H, PAGE, dst_handle=node.dmabuf(fd))


def read(node: Node, fd: int) -> int:
    """Queues a job that reads a dma-buf, and writes to memory; its number."""
    memory = node.pages(Buffer(PAGE))
    return node.submit(Op.COPY, PAGE, src_handle=node.dmabuf(fd), dst_handle=memory)


@pytest.mark.parametrize(("job", "free"), [("read", READ), ("write", 0)])
def test_others_wait_for_a_job(job: str, free: int):
    """Until it ends, however it does."""
    submit = {"read": read, "write": write}[job]
    with exported() as (fd,), held() as let_go, Node() as node:
        assert free_for(fd) == READ | WRITE
        jobs = [submit(node, fd) for _ in range(3)]
        assert free_for(fd) == free
        file = sync_file(fd)
        assert status(file) == 0
        # A job that ends before those before it.
        node.cancel(jobs[1])
        assert results(node.events(1)) == [CANCELLED]
        assert free_for(fd) == free
        assert status(file) == 0
        let_go()
        assert results(node.events(2)) == [(0, Reason.NONE)] * 2
        until(lambda: free_for(fd) == READ | WRITE)
        assert select.select([file], [], [], 60)[0]
        assert status(file) == -errno.ECANCELED
        os.close(file)


def test_a_hung_job_ends_while_memory_is_being_mapped():
    """Who has a dma-buf locked may be waiting for the job, and who maps it for the dma-buf."""
    with (
        exported(2) as (fd, slow),
        Node() as node,
        Node(HUNG) as hung,
        Node(HUNG) as other,
        setting("simgpu", "unmap_ms", 10000),
        setting("peerdma", "timeout_ms", 1),
    ):
        mapped, handle = node.dmabuf(slow), hung.dmabuf(fd)
        unpins = threading.Thread(target=node.unpin, args=(mapped,))
        pins = threading.Thread(target=other.dmabuf, args=(slow,))
        for thread in (unpins, pins):
            thread.start()
            time.sleep(0.5)
        hung.hang(handle)
        assert hung.events(1)[0].result < 0
        until(lambda: free_for(fd) == READ | WRITE)
        assert unpins.is_alive()
        assert pins.is_alive()
        for thread in (unpins, pins):
            thread.join()


def test_nobody_waits_for_ever_for_a_board_that_hangs():
    with exported() as (fd,), Node(HUNG) as node:
        node.hang(node.dmabuf(fd))
        assert node.events(1)[0].result < 0
        until(lambda: free_for(fd) == READ | WRITE)


def test_a_job_that_is_done_says_so():
    memory = Buffer(PAGE)
    with exported() as (fd,), Node() as node:
        node.h2c(memory.address, 0, PAGE)
        node.submit(Op.C2H, PAGE, dst_handle=node.dmabuf(fd))
        file = sync_file(fd)
        assert select.select([file], [], [], 60)[0]
        assert status(file) == 1
        assert results(node.events(1)) == [(0, Reason.NONE)]
        os.close(file)


def test_jobs_of_other_files_wait_for_each_other():
    with exported() as (fd,), held() as let_go, Node() as node, Node() as other:
        write(node, fd)
        later = Later(let_go)
        read(other, fd)
        assert later.begun
        for each in (node, other):
            assert results(each.events(1)) == [(0, Reason.NONE)]


def test_jobs_of_a_file_do_not_wait_for_each_other():
    with exported() as (fd,), held(), Node() as node:
        handle = node.dmabuf(fd)
        jobs = [node.submit(Op.C2H, PAGE, dst_handle=handle) for _ in range(100)]
        assert free_for(fd) == 0
        for job in jobs:
            node.cancel(job)
        assert results(node.events(100)) == [CANCELLED] * 100


def test_a_job_waits_for_a_sync_file():
    """Of another dma-buf."""
    with Gpu() as gpu, exported(2) as (fd, busy), Node() as node:
        handle = node.dmabuf(fd)
        gpu.busy(busy, True)
        file = sync_file(busy)
        fcntl.ioctl(fd, IMPORT, SyncFile(flags=2, fd=file))
        later = Later(gpu.busy, busy, False)
        node.load(handle, 1, PAGE)
        assert later.begun
        assert results(node.events(1)) == [(0, Reason.NONE)]
        os.close(file)


def test_a_ring_waits_for_all_its_dma_bufs_and_nobody_waits_for_it():
    with Gpu() as gpu, exported(2) as (fd, busy), Node() as node:
        places = [Frame(handle=node.dmabuf(each), length=PAGE) for each in (fd, busy, fd)]
        ring = StartRing(count=3)
        ring.set_frames((Frame * 3)(*places))
        gpu.busy(busy, True)
        later = Later(gpu.busy, busy, False)
        job = node.request(Ioctl.START_RING, ring).job
        assert later.begun
        assert (free_for(fd), free_for(busy)) == (READ | WRITE, READ | WRITE)
        assert [node.query(place.handle).jobs for place in places] == [1, 1, 1]
        node.cancel(job)
        assert results(node.events(1)) == [CANCELLED]


def test_copies_in_both_directions():
    """Each waits for the other's two dma-bufs: both are looked at, and announced in, at once."""
    ended = []

    def copies(source: int, destination: int) -> None:
        with Node() as node:
            s, d = node.dmabuf(source), node.dmabuf(destination)
            for _ in range(20):
                node.submit(Op.COPY, PAGE, src_handle=s, dst_handle=d)
                ended.extend(results(node.events(1)))

    with exported(2) as (one, two):
        threads = [threading.Thread(target=copies, args=x) for x in ((one, two), (two, one))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ended == [(0, Reason.NONE)] * 40


def test_a_copy_within_a_dma_buf():
    with exported() as (fd,), Node() as node:
        handle = node.dmabuf(fd)
        both = {"src_handle": handle, "dst_handle": handle}
        node.submit(Op.COPY, PAGE, dst_offset=PAGE, **both)
        assert results(node.events(1)) == [(0, Reason.NONE)]
        until(lambda: free_for(fd) == READ | WRITE)


def test_nobody_waits_for_what_may_never_come():
    """A job that receives announces nothing, and no job that announces itself waits behind it."""
    words = "must not wait behind jobs of the same open file that receive from the user stream"
    with exported() as (fd,), Node() as node:
        handle = node.dmabuf(fd)
        running = [node.endless(handle), node.endless(handle)]
        assert free_for(fd) == READ | WRITE
        with node.refused(errno.EBUSY, words):
            node.submit(Op.C2H, PAGE, dst_handle=handle)
        assert free_for(fd) == READ | WRITE
        node.cancel(running[1])
        waiting = node.submit(Op.C2H, PAGE, dst_handle=handle)
        assert free_for(fd) == 0
        node.cancel(running[0])
        assert [event.job for event in node.events(3)] == [*reversed(running), waiting]
        until(lambda: free_for(fd) == READ | WRITE)


def test_the_module_stays_as_long_as_its_fences():
    """Which stay with a dma-buf that has been used."""
    count = Path("/sys/module/peerdma/refcnt")
    with exported() as (fd,):
        before = int(count.read_text())
        with Node() as node:
            node.load(node.dmabuf(fd), 1, PAGE)
            node.events(1)
        until(lambda: int(count.read_text()) == before + 1)
    until(lambda: int(count.read_text()) == before)
