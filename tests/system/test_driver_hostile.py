# SPDX-License-Identifier: BSD-2-Clause
"""Programs of users without rights that mean harm: page faults, forks, files that are passed on."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peerdma import uapi
from peerdma.uapi import Access, Ioctl, Op
from tests.system.hostile import OTHER, HeldMemory, held_by_all, libc, nodes_of_all, start
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    BOTH,
    PAGE,
    Buffer,
    Node,
    ended,
    rebound,
    results,
    setting,
    spawn,
    until,
)

pytestmark = IN_GUEST

RAM = 65536
PR_SET_CHILD_SUBREAPER = 36


class Told:
    """A pipe by which one process tells another to go on."""

    def __init__(self):
        self.read, self.write = os.pipe()

    def tell(self) -> None:
        """Lets one `wait` return."""
        os.write(self.write, b"x")

    def wait(self) -> None:
        """Returns when it was told, by a process that still lives."""
        assert select.select([self.read], [], [], 120)[0]
        os.read(self.read, 1)


def board_serves_others() -> None:
    """Transfers of others, a reset, and that the driver is unbound: nothing of it has to wait."""
    memory = Buffer(2 * PAGE)
    for _ in range(2):
        with Node() as node:
            node.h2c2h(memory.address, memory.address + PAGE, PAGE)
            assert memory[:PAGE] == memory[PAGE:]
            node.request(Ioctl.RESET, uapi.Reset())
        with rebound():
            pass


def locked() -> int:
    """Bytes that count as locked by this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmLck:"))) << 10


# Page faults ---------------------------------------------------------------------------------


@contextlib.contextmanager
def holding(attempts: list[Callable[[Node, int], object]], end: str) -> Iterator[None]:
    """A process has page faults that it does not handle within, one by each attempt.

    Each has a page of its own. In the end the process is killed, or handles them.
    """
    stalled, go = Told(), Told()

    def hold() -> None:
        held, node = HeldMemory(len(attempts) * PAGE), Node()
        threads = [
            threading.Thread(target=attempt, args=(node, held.address + number * PAGE))
            for number, attempt in enumerate(attempts)
        ]
        for thread in threads:
            thread.start()
        held.wait_for(len(attempts))
        node.close()
        stalled.tell()
        go.wait()
        held.let_go()
        for thread in threads:
            thread.join()

    with nodes_of_all(), held_by_all():
        pid = start(hold)
        stalled.wait()
        yield
        if end == "killed":
            os.kill(pid, signal.SIGKILL)
            assert ended(pid) == -signal.SIGKILL
        else:
            go.tell()
            assert ended(pid) == 0


@pytest.mark.parametrize("end", ["killed", "let go"])
def test_pins_that_wait_for_a_program_keep_nobody_waiting(end: str):
    def pin(node: Node, address: int) -> None:
        request = uapi.PinPages(address=address, length=PAGE, access=BOTH)
        # The board that it was opened for is gone when the fault is handled.
        with pytest.raises(OSError, match="No such device"):
            node.request(Ioctl.PIN_PAGES, request)

    def read(node: Node, address: int) -> None:
        with pytest.raises(OSError, match="No such device"):
            node.h2c(address, 0, PAGE)

    with holding([pin, read] * 4, end):
        board_serves_others()


@pytest.mark.parametrize("end", ["killed", "let go"])
def test_requests_whose_arguments_wait_for_a_program_keep_nobody_waiting(end: str):
    def ask(code: int) -> Callable[[Node, int], None]:
        return lambda node, address: libc.ioctl(node.fd, code, address)

    def batch(node: Node, address: int) -> None:
        node.request(Ioctl.SUBMIT_BATCH, uapi.SubmitBatch(submits=address, count=3))

    def read(node: Node, address: int) -> None:
        """With an event to be read, which is not lost."""
        node.submit(Op.H2C, 0, src_handle=node.pages(Buffer(PAGE)))
        assert libc.read(node.fd, address, 64) == 64

    requests = [code for code in Ioctl if code is not Ioctl.LED]
    with holding([*map(ask, requests), batch, read], end):
        board_serves_others()


def test_transfers_that_wait_for_a_program_are_bounded_and_charged():
    """Many threads, each with a part of its source pinned while its destination is not there."""
    limit, threads = 16 * PAGE, 24
    part = limit // 8
    stalled = Told()

    def transfer():
        source, held = Buffer(part, b""), HeldMemory(threads * part)
        refused = []

        def copy(number: int) -> None:
            try:
                node.h2c2h(source.address, held.address + number * part, part)
            except OSError as error:
                refused.append(error.errno)

        with Node() as node:
            for number in range(threads):
                threading.Thread(target=copy, args=(number,), daemon=True).start()
            held.wait_for(limit // (2 * part))
            until(lambda: len(refused) >= threads - limit // (2 * part) - 1)
            assert set(refused) == {errno.ENOMEM}
            assert 2 * part <= locked() <= limit
            assert part <= node.info().pinned_bytes <= limit
            stalled.tell()
            signal.pause()

    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
    with nodes_of_all(), held_by_all():
        pid = start(transfer)
        stalled.wait()
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL


def test_what_only_the_program_itself_may_wait_for_is_no_memory():
    """As for programs without rights since 5.11: the kernel does not wait for them."""

    def program():
        with pytest.raises(PermissionError):
            HeldMemory(PAGE)
        held = HeldMemory(PAGE, user_mode_only=True)
        with Node() as node:
            pin = uapi.PinPages(address=held.address, length=PAGE, access=Access.READ)
            node.refuses(errno.EFAULT, "not all readable memory", Ioctl.PIN_PAGES, pin)
            with node.refused(errno.EFAULT, "not all writable memory"):
                node.c2h(0, held.address, PAGE)
            assert libc.ioctl(node.fd, Ioctl.GET_INFO, held.address) == -1
            assert ctypes.get_errno() == errno.EFAULT

    with nodes_of_all():
        assert ended(start(program)) == 0


# Fork ----------------------------------------------------------------------------------------


def test_forks_in_the_middle_of_transfers():
    """What children write is their own, and what the board moves is the parent's."""
    size = 16 * PAGE

    def program():
        source = Buffer(size, b"", mmap.MAP_PRIVATE)
        destination = Buffer(size, b"", mmap.MAP_PRIVATE)

        def scribble():
            destination[:] = source[:] = b"c" * size

        with Node() as node:
            s, d = node.pages(source, access=Access.READ), node.pages(destination)
            for _ in range(10):
                source[:] = content = os.urandom(size)
                node.submit(Op.COPY, size, src_handle=s, dst_handle=d)
                children = [spawn(scribble) for _ in range(3)]
                assert results(node.events(1)) == [(0, 0)]
                assert [ended(pid) for pid in children] == [0] * 3
                assert source[:] == content
                assert destination[:] == content

    with nodes_of_all():
        assert ended(start(program)) == 0


def test_children_keep_what_their_parent_pinned():
    """Until the last one is gone, with jobs that run and wait."""
    read, write = os.pipe()

    def parent():
        node, memory = Node(), Buffer(4 * PAGE, None, mmap.MAP_PRIVATE)
        handle = node.pages(memory)
        node.endless(handle)
        for _ in range(20):
            node.submit(Op.C2H, PAGE, dst_handle=handle)
        children = [spawn(signal.pause) for _ in range(8)]
        os.write(write, " ".join(map(str, children)).encode())
        os.kill(os.getpid(), signal.SIGKILL)

    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
    with nodes_of_all(), Node() as node:
        assert ended(start(parent)) == -signal.SIGKILL
        for pid in map(int, os.read(read, 1000).split()):
            assert node.info().pinned_bytes == 4 * PAGE
            os.kill(pid, signal.SIGKILL)
            assert ended(pid) == -signal.SIGKILL
        until(lambda: not node.info().pinned_bytes)


# Files that are passed on --------------------------------------------------------------------


def test_a_file_that_is_passed_on_outlives_who_opened_it():
    """By another user, who has what is pinned by it, and counts for who opened it."""
    here, there = socket.socketpair()
    content = os.urandom(PAGE)

    def first():
        node = Node()
        handles = [node.pages(Buffer(PAGE, content)), node.pages(Buffer(PAGE, b""))]
        socket.send_fds(here, [bytes(handles)], [node.fd])

    def second():
        handles, (fd,), _, _ = socket.recv_fds(there, 2, 1)
        memory = Buffer(PAGE, b"")
        with Node() as passed, Node() as own:
            os.dup2(fd, passed.fd)
            os.close(fd)
            s, d = handles
            passed.submit(Op.COPY, PAGE, src_handle=s, dst_handle=d)
            assert results(passed.events(1)) == [(0, 0)]
            passed.h2c2h(d, memory.address, PAGE, 1)
            assert memory[:] == content
            for node in (passed, own):
                for _ in range(4):
                    node.submit(Op.H2C, 0, src_handle=node.pages(memory))
                with node.refused(errno.EAGAIN, "this user has 4 jobs"):
                    node.submit(Op.H2C, 0, src_handle=1)
            # Memory is locked by the process whose it is.
            assert locked() == 8 * PAGE

    with nodes_of_all(), setting("peerdma", "jobs_per_user", 4), Node() as node:
        assert ended(start(first)) == 0
        assert node.info().pinned_bytes == 2 * PAGE
        assert ended(start(second, OTHER)) == 0
    here.close()
    there.close()


def test_a_file_in_sockets_that_nobody_has():
    """Two that are on their way through each other: the kernel has to find them."""

    def lose():
        here, there = socket.socketpair()
        node = Node()
        handle = node.pages(Buffer(PAGE))
        node.endless(handle)
        node.submit(Op.C2H, PAGE, dst_handle=handle)
        for end in (here, there):
            socket.send_fds(end, [b"x"], [node.fd, here.fileno(), there.fileno()])
        os.kill(os.getpid(), signal.SIGKILL)

    def given_back() -> bool:
        for end in socket.socketpair():
            end.close()  # which has it look
        return not node.info().pinned_bytes

    with nodes_of_all(), Node() as node:
        for _ in range(3):
            assert ended(start(lose)) == -signal.SIGKILL
            until(given_back)


# Many files ----------------------------------------------------------------------------------


def test_thousands_of_files_with_contexts_and_batches():
    """Others are served beside them, and nothing of them is left when the process is killed."""
    files, jobs = 2000, 16
    ready = Told()
    resource.setrlimit(resource.RLIMIT_NOFILE, (files + 64, files + 64))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (files * PAGE, files * PAGE))

    def hoard():
        memory, taken, own = Buffer(PAGE), 0, 0
        nodes = [Node() for _ in range(files - 1)]
        nodes[0].endless(nodes[0].pages(memory))
        for node in nodes[1:]:
            with contextlib.suppress(OSError):
                node.request(Ioctl.SET_CONTEXT, uapi.Context(ram_length=PAGE))
                own += 1
            wanted = uapi.Submit(op=Op.C2H, length=PAGE, dst_handle=node.pages(memory))
            submits = (uapi.Submit * jobs)(*[wanted] * jobs)
            batch = uapi.SubmitBatch(submits=ctypes.addressof(submits), count=jobs)
            with contextlib.suppress(BlockingIOError):
                taken += node.request(Ioctl.SUBMIT_BATCH, batch).taken
        assert own == RAM // 2 // PAGE
        assert taken == 16383
        ready.tell()
        signal.pause()

    with nodes_of_all(), Node() as node:
        pid = start(hoard)
        ready.wait()
        memory = Buffer(RAM)
        node.h2c(memory.address, 0, RAM // 2)
        with node.refused(errno.EACCES, "another open file has for itself"):
            node.h2c(memory.address, RAM // 2, PAGE)
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        assert node.request(Ioctl.CARD_INFO, uapi.CardInfo()).fpga_ram_size == RAM
        node.h2c(memory.address, 0, RAM)
