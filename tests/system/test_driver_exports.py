# SPDX-License-Identifier: BSD-2-Clause
"""Pages of a board as dma-bufs: the second board is the device that imports them.

What it writes goes from its gateware through QEMU's root ports to the first one's registers.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
from collections.abc import Iterator

import pytest

from peerdma.regs import MAILBOX
from peerdma.uapi import ExportDmabuf, ExportFlag, Ioctl, Op, Placement, Reset, SurfaceState
from tests.system.launching import WITH_QUEUES, Queue
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    PAGE,
    Buffer,
    Node,
    address_of_board,
    rebound,
    results,
    setting,
    until,
    user,
)
from tests.system.test_driver_doorbells import Copy

GUEST = WITH_QUEUES
pytestmark = IN_GUEST

SECOND = "/dev/picoevb1"
_FIRST, _DONE = (MAILBOX.address(name) - MAILBOX.base for name in ("first", "done"))


def exported(node: Node, queue: Queue | None = None) -> int:
    """A file descriptor of the mailbox page, or of a queue's doorbell."""
    request = ExportDmabuf()
    if queue is not None:
        request.flags, request.queue = ExportFlag.DOORBELL, queue.queue
    return node.request(Ioctl.EXPORT_DMABUF, request).fd


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


class Importer:
    """The second board, with a page of the first one pinned: words that it writes there."""

    def __init__(self, node: Node, fd: int):
        self.node, self.source = node, Buffer(PAGE)
        self.page, self.handle = node.dmabuf(fd), node.pages(self.source)

    def store(self, offset: int, value: int) -> tuple[int, int]:
        """Writes a word: how that ended."""
        self.source[:4] = struct.pack("<I", value)
        self.node.submit(Op.H2C, 4, src_handle=self.handle)
        assert results(self.node.events(1)) == [(0, 0)]
        self.node.submit(Op.C2H, 4, dst_handle=self.page, dst_offset=offset)
        ((error, reason),) = results(self.node.events(1))
        return error, reason

    def gone(self) -> bool:
        """Whether the page was taken away, with all that the driver had mapped for it."""
        return self.node.query(self.page).state != SurfaceState.LIVE


class Bell:
    """A doorbell that the second board rings: what `Queue.submit` takes."""

    def __init__(self, importer: Importer):
        self.importer = importer

    @property
    def value(self) -> int:
        """Nothing to read."""
        return 0

    @value.setter
    def value(self, value: int) -> None:
        assert self.importer.store(0, value) == (0, 0)


@contextlib.contextmanager
def trusted() -> Iterator[None]:
    """The administrator says that the host bridge forwards peer-to-peer, as QEMU's does."""
    with setting("peerdma", "trust_host_bridge", 1):
        yield


def test_a_device_writes_to_the_mailbox():
    """The same dma-buf for all who ask; with the address of the board, as a peer."""
    with trusted(), Node() as node, Node() as another, Node(SECOND) as second:
        with closing(exported(node)) as fd, closing(exported(another)) as again:
            assert os.fstat(fd).st_ino == os.fstat(again).st_ino
            assert not os.get_inheritable(fd)
            assert os.lseek(fd, 0, os.SEEK_END) == PAGE
            importer = Importer(second, fd)
        found = second.query(importer.page)
        assert (found.placement, found.peer.decode()) == (Placement.PEER, address_of_board())
        with memoryview(node.mailbox()).cast("I") as words:
            for offset, value in ((_FIRST, 0x1234), (_DONE, 0x5678)):
                assert importer.store(offset, value) == (0, 0)
                assert words[offset // 4] == value


def test_a_device_rings_a_doorbell():
    with trusted(), Node() as node, Node(SECOND) as second:
        queue = Queue(node)
        with closing(exported(node, queue)) as fd:
            bell = Bell(Importer(second, fd))
        copy = Copy(queue)
        for _ in range(10):
            assert copy.runs(bell)


@pytest.mark.parametrize("by", ["destroy", "unpin", "reset", "unbind"])
def test_a_doorbell_ends_with_its_queue(by: str):
    """The importer is told before anybody is told of the end; the next queue has another one."""
    with trusted(), Node() as node, Node(SECOND) as second, contextlib.ExitStack() as last:
        queue = Queue(node)
        fd = last.enter_context(closing(exported(node, queue)))
        importer = Importer(second, fd)
        assert Copy(queue).runs(Bell(importer))
        if by == "destroy":
            queue.destroy()
        elif by == "unpin":
            node.unpin(queue.handle)
            queue.event()
        elif by == "reset":
            node.request(Ioctl.RESET, Reset())
        else:
            last.enter_context(rebound())
        until(importer.gone)
        with second.refused(errno.ESTALE, "freed or moved by its owner: unpin it"):
            importer.store(0, 1)
        with second.refused(errno.EOPNOTSUPP, "the dma-buf of peerdma cannot be"):
            second.dmabuf(fd)
        if by == "unbind":
            return
        with node.refused(errno.ENOENT, "launch queue"):
            exported(node, queue)
        other = Queue(node)
        with closing(exported(node, other)) as new:
            assert os.fstat(new).st_ino != os.fstat(fd).st_ino
            assert Copy(other).runs(Bell(Importer(second, new)))


def test_the_mailbox_is_there_again_after_a_reset():
    with trusted(), Node() as node, Node(SECOND) as second, closing(exported(node)) as fd:
        importer = Importer(second, fd)
        node.request(Ioctl.RESET, Reset())
        until(importer.gone)
        with memoryview(node.mailbox()).cast("I") as words:
            assert Importer(second, fd).store(_FIRST, 99) == (0, 0)
            assert words[_FIRST // 4] == 99


def test_a_descriptor_outlives_its_board():
    """It keeps nothing of the hardware, and a board that is bound again has a page of its own."""
    with trusted(), Node(SECOND) as second:
        with Node() as node:
            fd = exported(node)
        with closing(fd):
            with rebound(), second.refused(errno.EOPNOTSUPP, "the dma-buf of peerdma cannot be"):
                second.dmabuf(fd)
            with Node() as node, closing(exported(node)) as new:
                assert os.fstat(new).st_ino != os.fstat(fd).st_ino
                assert Importer(second, new).store(_FIRST, 1) == (0, 0)


def test_what_is_refused():
    with Node() as node, Node() as other, Node(SECOND) as plain:
        queue = Queue(node)
        for words, members in (
            ("unknown flags 0x2", {"flags": 2}),
            ("reserved member 1", {"reserved": 1}),
            ("mailbox belongs to no launch queue", {"queue": queue.queue}),
        ):
            node.refuses(errno.EINVAL, words, Ioctl.EXPORT_DMABUF, ExportDmabuf(**members))
        with other.refused(errno.ENOENT, "there is no launch queue"):
            exported(other, queue)
        with closing(exported(node)) as fd:
            # No program maps it, and the kernel does not let any device have it.
            with pytest.raises(OSError, match="Invalid argument"):
                mmap.mmap(fd, PAGE)
            for each in (plain, node):
                with each.refused(errno.EOPNOTSUPP, "cannot be attached to this board"):
                    each.dmabuf(fd)
            with trusted(), node.refused(errno.EOPNOTSUPP, "cannot be attached to this board"):
                node.dmabuf(fd)


def test_who_gets_a_doorbell():
    """Whoever may map it: see `test_driver_doorbells`."""
    with user(1000), Node() as node:
        queue = Queue(node)
        with node.refused(errno.EPERM, "CAP_SYS_RAWIO, or the module's parameter"):
            exported(node, queue)
        os.close(exported(node))
    with setting("peerdma", "doorbell_pages", 1), user(1000), Node() as node:
        os.close(exported(node, Queue(node)))


def test_nothing_is_left_of_many():
    with trusted(), Node() as node, Node(SECOND) as second:
        for _ in range(50):
            queue = Queue(node, memory=Buffer(2 * PAGE, b"\xff" * 2 * PAGE))
            with closing(exported(node, queue)) as fd:
                importer = Importer(second, fd)
            queue.destroy()
            until(importer.gone)
            second.unpin(importer.page)
            second.unpin(importer.handle)
            node.unpin(queue.handle)
        assert second.info().pinned_bytes == 0
