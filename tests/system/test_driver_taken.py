# SPDX-License-Identifier: BSD-2-Clause
"""Memory that its owner takes away, in every state: by callback, by notifier, by invalidation."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
from collections.abc import Callable

from peerdma.regs import WaitsFor
from peerdma.uapi import Op, Reason, SurfaceState
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    HUNG,
    LATER,
    PAGE,
    WITH_HUNG_BOARD,
    Buffer,
    Gpu,
    Node,
    callbacks,
    child,
    ended,
    parameter,
    rebound,
    results,
    setting,
    spawn,
    tegra,
    tegra_counts,
    until,
)

GUEST = WITH_HUNG_BOARD
pytestmark = IN_GUEST

SIZE = 2 * GPU_PAGE
REVOKED = (errno.ESTALE, Reason.REVOKED)
CANCELLED = (errno.ECANCELED, Reason.CANCELLED)


def unusable(node: Node, handle: int) -> None:
    """That revoked memory is refused, and can be unpinned."""
    assert node.query(handle).state == SurfaceState.REVOKED
    with node.refused(errno.ESTALE, "freed or moved by its owner: unpin it"):
        node.load(handle, 1, PAGE)
    node.unpin(handle)


def taken_while_it_waits(node: Node, handle: int, take: Callable[[], object]) -> None:
    """A job that waits ends; the one of other memory that it waits for goes on."""
    busy, page = node.pages(Buffer(PAGE)), node.pages(Buffer(PAGE))
    running = node.endless(busy)
    node.submit(Op.COPY, PAGE, src_handle=handle, dst_handle=page)
    take()
    assert results(node.events(1)) == [REVOKED]
    assert node.query(busy).jobs == 1
    node.cancel(running)
    assert results(node.events(1)) == [CANCELLED]


def taken_while_it_runs(node: Node, handle: int, take: Callable[[], object]) -> None:
    """The job is stopped, others of the engine go on."""
    node.endless(handle)
    node.submit(Op.C2H, PAGE, dst_handle=node.pages(Buffer(PAGE)))
    take()
    assert results(node.events(2)) == [REVOKED, (0, 0)]


def taken_while_it_hangs(node: Node, handle: int, take: Callable[[], object]) -> None:
    """The board loses the bus if it has to, and is reset later."""
    generation = node.info().generation
    with setting("peerdma", "timeout_ms", LATER):
        node.hang(handle)
        until(lambda: node.info().h2c_waits_for == WaitsFor.COMPLETION)
        take()
        assert results(node.events(1)) == [REVOKED]
    until(lambda: node.info().generation == generation + 1)


# A GPU's, by callback ------------------------------------------------------------------------


def test_callback_nothing():
    with callbacks(), Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        handle = node.cuda(va, SIZE)
        made = gpu.counts()[3]
        gpu.free(va)
        assert gpu.counts() == (0, 0, 0, made + 1)
        # What is not there any more is not counted any more.
        assert node.info().pinned_bytes == 0
        unusable(node, handle)


def test_callback_takes_the_mapping():
    def process():
        with Gpu() as gpu, Node() as node:
            va = gpu.alloc(SIZE)
            handle = node.cuda(va, SIZE)
            mapped = node.map(handle)
            assert mapped[0] is not None
            gpu.free(va)
            mapped[0]

    with callbacks():
        assert child(process) == -signal.SIGBUS


def test_callback_waits():
    with callbacks(), Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        handle = node.cuda(va, SIZE)
        taken_while_it_waits(node, handle, lambda: gpu.free(va))
        unusable(node, handle)


def test_callback_runs():
    with callbacks(), Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        handle = node.cuda(va, SIZE)
        taken_while_it_runs(node, handle, lambda: gpu.free(va))
        unusable(node, handle)


def test_callback_hangs():
    """It returns although the board does not stop: all users of the GPU wait for it."""
    with callbacks(), Gpu() as gpu, Node(HUNG) as node:
        va = gpu.alloc(SIZE)
        handle = node.cuda(va, SIZE)
        taken_while_it_hangs(node, handle, lambda: gpu.free(va))
        assert gpu.counts()[:3] == (0, 0, 0)
        unusable(node, handle)


def test_callback_twice():
    """Two pins of one allocation, and one that was given back before."""
    with callbacks(), Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        first, second, third = (node.cuda(va, SIZE) for _ in range(3))
        node.unpin(second)
        made = gpu.counts()[3]
        gpu.free(va)
        assert gpu.counts()[3] == made + 2
        for handle in (first, third):
            unusable(node, handle)


def test_callback_then_close():
    with callbacks(), Gpu() as gpu:
        node = Node()
        va = gpu.alloc(SIZE)
        node.endless(node.cuda(va, SIZE))
        gpu.free(va)
        node.close()


def test_callback_at_exit():
    """The process is killed: its files are closed in the order of their numbers."""

    def process(gpu_first: bool):
        gpu = Gpu() if gpu_first else None
        node = Node()
        gpu = gpu or Gpu()
        va = gpu.alloc(SIZE)
        handle = node.cuda(va, SIZE)
        node.map(handle)
        node.endless(handle)
        node.load(handle, 2)
        os.kill(os.getpid(), signal.SIGKILL)

    with callbacks(), Gpu() as gpu:
        for gpu_first in (True, False):
            pid = spawn(lambda first=gpu_first: process(first))
            assert ended(pid) == -signal.SIGKILL
            until(lambda: gpu.counts()[:3] == (0, 0, 0))


def test_callback_at_munmap():
    """The lock of the process's memory is held meanwhile, and it looks at its mapping."""
    with callbacks(), Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE, free_at_munmap=True)
        view = gpu.view(va, SIZE)
        handle = node.cuda(va, SIZE)
        mapped = node.map(handle)
        assert mapped[0] is not None
        job = node.endless(handle)
        view.close()
        assert gpu.counts()[:3] == (0, 0, 0)
        (event,) = node.events(1)
        assert (event.job, *results([event])) == (job, REVOKED)
        mapped.close()
        unusable(node, handle)


def test_board_is_unbound_after_a_callback():
    """Memory that is revoked, and still has its handle, does not keep the board."""
    with callbacks(), Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        handle = node.cuda(va, SIZE)
        gpu.free(va)
        with rebound():
            assert node.query(handle).state == SurfaceState.REVOKED
        node.unpin(handle)


def test_free_of_what_stays():
    """Persistent pins, dma-bufs and pages: the job goes on, into memory that is still there."""
    with Gpu() as gpu, Node() as node:
        va, exported = gpu.alloc(SIZE), gpu.alloc(SIZE)
        fd = gpu.export(exported)
        pages = Buffer(SIZE)
        handles = [node.cuda(va, SIZE), node.dmabuf(fd), node.pages(pages)]
        for handle in handles:
            running = node.endless(handle)
            if handle == handles[0]:
                gpu.free(va)
            elif handle == handles[1]:
                os.close(fd)
                gpu.free(exported)
            else:
                libc, address = ctypes.CDLL(None), ctypes.c_void_p(pages.address)
                assert libc.madvise(address, SIZE, mmap.MADV_DONTNEED) == 0
            assert node.query(handle).jobs == 1
            assert node.query(handle).state == SurfaceState.LIVE
            node.cancel(running)
            assert results(node.events(1)) == [CANCELLED]
            node.load(handle, 1)
            assert results(node.events(1)) == [(0, 0)]


# Tegra's, by notifier ------------------------------------------------------------------------


class Region:
    """Memory of this process between pages that are not touched."""

    def __init__(self):
        self._buffer = Buffer(SIZE + 4 * PAGE)
        self.address = self._buffer.address + 2 * PAGE

    def touch(self) -> None:
        """Changes how its first page is mapped."""
        libc, address = ctypes.CDLL(None), ctypes.c_void_p(self.address)
        assert libc.mprotect(address, PAGE, mmap.PROT_READ) == 0


def test_tegra_nothing():
    with tegra(), Node() as node:
        region = Region()
        handle = node.cuda(region.address, SIZE)
        region.touch()
        until(lambda: tegra_counts() == (1, 0))  # a work unmaps
        unusable(node, handle)
        assert tegra_counts() == (0, 0)


def test_tegra_waits():
    with tegra(), Node() as node:
        region = Region()
        handle = node.cuda(region.address, SIZE)
        taken_while_it_waits(node, handle, region.touch)
        unusable(node, handle)


def test_tegra_runs():
    with tegra(), Node() as node:
        region = Region()
        handle = node.cuda(region.address, SIZE)
        taken_while_it_runs(node, handle, region.touch)
        unusable(node, handle)


def test_tegra_hangs():
    with tegra(), Node(HUNG) as node:
        region = Region()
        handle = node.cuda(region.address, SIZE)
        taken_while_it_hangs(node, handle, region.touch)
        unusable(node, handle)


def test_tegra_exit():
    """With jobs that run and wait, and a file that another process closes."""

    def process(node: Node):
        region = Region()
        handle = node.cuda(region.address, SIZE)
        node.map(handle)
        node.endless(handle)
        for _ in range(2):
            node.submit(Op.C2H, PAGE, dst_handle=handle)
        os.kill(os.getpid(), signal.SIGKILL)

    with tegra(), Node() as node:
        assert child(lambda: process(Node())) == -signal.SIGKILL
        until(lambda: tegra_counts() == (0, 0))
        assert child(lambda: process(node)) == -signal.SIGKILL
        assert {REVOKED} == set(results(node.events(3)))
        assert tegra_counts()[0] == 1
        unusable(node, 1)


def test_tegra_twice():
    """Duplicates, and a range that only has the end of the memory: that is no reason to call."""
    with tegra(), Node() as node:
        region = Region()
        handle = node.cuda(region.address, SIZE)
        made = int(parameter("simtegra", "callbacks").read_text())
        libc = ctypes.CDLL(None)
        last = ctypes.c_void_p(region.address + SIZE - PAGE)
        assert libc.mprotect(last, PAGE, mmap.PROT_READ) == 0
        assert node.query(handle).state == SurfaceState.LIVE
        for _ in range(2):
            region.touch()
            first = ctypes.c_void_p(region.address)
            assert libc.mprotect(first, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        assert int(parameter("simtegra", "callbacks").read_text()) == made + 1
        unusable(node, handle)


# dma-bufs, by invalidation -------------------------------------------------------------------


def test_invalidate_nothing_and_twice():
    with Gpu() as gpu, Node() as node, Node() as other:
        fd = gpu.export(gpu.alloc(SIZE))
        handles = [(node, node.dmabuf(fd)), (node, node.dmabuf(fd)), (other, other.dmabuf(fd))]
        assert gpu.revoke(fd) == 0
        assert gpu.revoke(fd) == 0
        for owner, handle in handles:
            unusable(owner, handle)
        os.close(fd)


def test_invalidate_waits():
    with Gpu() as gpu, Node() as node:
        fd = gpu.export(gpu.alloc(SIZE))
        handle = node.dmabuf(fd)
        taken_while_it_waits(node, handle, lambda: gpu.revoke(fd))
        unusable(node, handle)
        os.close(fd)


def test_invalidate_runs():
    with Gpu() as gpu, Node() as node:
        fd = gpu.export(gpu.alloc(SIZE))
        handle = node.dmabuf(fd)
        taken_while_it_runs(node, handle, lambda: gpu.revoke(fd))
        unusable(node, handle)
        os.close(fd)


def test_invalidate_hangs():
    with Gpu() as gpu, Node(HUNG) as node:
        fd = gpu.export(gpu.alloc(SIZE))
        handle = node.dmabuf(fd)
        taken_while_it_hangs(node, handle, lambda: gpu.revoke(fd))
        unusable(node, handle)
        os.close(fd)


def test_invalidated_while_the_last_job_lets_go():
    """The file is closed, and the job that runs has the last reference."""
    with Gpu() as gpu:
        fd = gpu.export(gpu.alloc(SIZE))
        for _ in range(20):
            node = Node()
            node.endless(node.dmabuf(fd))
            pid = spawn(lambda: gpu.revoke(fd, move=True))
            node.close()
            assert ended(pid) == 0
        os.close(fd)
