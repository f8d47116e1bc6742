# SPDX-License-Identifier: BSD-2-Clause
"""What a user may take of a machine that others use as well: jobs, pinned memory, and time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import threading
from pathlib import Path

from peerdma import uapi
from peerdma.uapi import Ioctl, Op
from tests.system.crowd import ratios
from tests.system.hostile import (
    OTHER,
    SOMEBODY,
    charged,
    ended_in_namespace,
    memory_group,
    nodes_of_all,
)
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    BOTH,
    PAGE,
    Buffer,
    Gpu,
    Node,
    child,
    parameter,
    setting,
    until,
    user,
)

pytestmark = IN_GUEST

MIB = 1 << 20


def submit_many(node: Node, handle: int, count: int) -> int:
    """Submits jobs of length 0 until one is refused: how many were not."""
    wanted = uapi.Submit(op=Op.H2C, src_handle=handle)
    for done in range(count):
        try:
            fcntl.ioctl(node.fd, Ioctl.SUBMIT, wanted)
        except BlockingIOError:
            return done
    return count


# Jobs ----------------------------------------------------------------------------------------


def test_jobs_in_2000_files_are_bounded_and_charged():
    files, jobs = 2000, 256
    most = int(parameter("peerdma", "jobs_per_user").read_text())
    assert most < files * jobs
    memory = Buffer(PAGE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files + 64, files + 64))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (files * PAGE, files * PAGE))

    def hoard():
        (group / "cgroup.procs").write_text(str(os.getpid()))
        with user(SOMEBODY), contextlib.ExitStack() as opened:
            nodes = [opened.enter_context(Node()) for _ in range(files)]
            handles = [node.pages(memory) for node in nodes]
            before = charged(group)
            taken = sum(submit_many(n, h, jobs) for n, h in zip(nodes, handles, strict=True))
            assert taken == most
            each = (charged(group) - before) / most
            # A job has some hundred bytes; in a kernel that checks itself, a multiple of that.
            assert 256 < each < 4096, each
            with nodes[-1].refused(errno.EAGAIN, f"{most} jobs .*jobs_per_user of the module"):
                nodes[-1].submit(Op.H2C, 0, src_handle=handles[-1])
            nodes[0].events(1)
            assert submit_many(nodes[-1], handles[-1], 2) == 1
        with user(SOMEBODY), Node() as node:
            assert submit_many(node, node.pages(memory), jobs) == jobs

    with memory_group() as group:
        assert child(hoard) == 0


def test_jobs_count_for_who_opened_the_node():
    memory = Buffer(PAGE)
    with setting("peerdma", "jobs_per_user", 4), contextlib.ExitStack() as opened:
        with user(SOMEBODY):
            nodes = [opened.enter_context(Node()) for _ in range(2)]
        with user(OTHER):
            nodes.append(opened.enter_context(Node()))
        one, two, other = ((node, node.pages(memory)) for node in nodes)
        with user(OTHER):
            assert submit_many(*one, 3) == 3
            assert submit_many(*two, 3) == 1
            with two[0].refused(errno.EAGAIN, "this user has 4 jobs outstanding"):
                two[0].h2c(memory.address, 0, PAGE)
            assert submit_many(*other, 5) == 4
        # Who administers the machine is not kept from doing so.
        assert submit_many(*one, 1) == 1
        with user(OTHER):
            one[0].events(2)
            assert submit_many(*two, 3) == 1


def test_a_job_whose_end_is_known_counts_no_more():
    """Whatever the driver still has to tidy up after it."""
    memory = Buffer(PAGE)
    with setting("peerdma", "jobs_per_user", 1), user(SOMEBODY), Node() as node:
        handle = node.pages(memory)
        for _ in range(500):
            assert submit_many(node, handle, 2) == 1
            node.events(1)
            node.h2c(memory.address, 0, PAGE)


def test_a_user_namespace_counts_for_who_made_it():
    """There is room for many users in it."""
    memory = Buffer(PAGE)

    def inside() -> None:
        with Node("/host/dev/picoevb") as node:
            assert submit_many(node, node.pages(memory), 4) == 1

    with setting("peerdma", "jobs_per_user", 4):
        with user(SOMEBODY):
            node = Node()
        with node, nodes_of_all():
            assert submit_many(node, node.pages(memory), 3) == 3
            assert ended_in_namespace(inside) == 0


def test_requests_take_as_long_beside_the_jobs_of_others():
    """Nothing is done for each of them, least of all with interrupts off."""
    found = ratios(files=512, jobs=16)
    assert max(found.values()) <= 2, found


# Pinned memory -------------------------------------------------------------------------------


def test_pinned_memory_counts_for_who_opened_the_node():
    memory = Buffer(MIB + PAGE)
    words = "more than 1 MiB of host memory: .*pinned_mb_per_user of the module"
    with (
        setting("peerdma", "pinned_mb_per_user", 1),
        Gpu() as gpu,
        contextlib.ExitStack() as opened,
    ):
        peer, small, large = gpu.export(gpu.alloc(2 * MIB)), *map(gpu.export_host, (PAGE, 2 * MIB))
        with user(SOMEBODY):
            one, two = (opened.enter_context(Node()) for _ in range(2))
            # Whole pages count, of which there are two here.
            one.pages(memory, PAGE - 1, 2)
            handle = two.pages(memory, 0, MIB - 3 * PAGE)
            two.dmabuf(small)
            with one.refused(errno.ENOMEM, words):
                one.pages(memory, 0, 1)
            with one.refused(errno.ENOMEM, words):
                one.h2c(memory.address, 0, 1)
            with one.refused(errno.ENOMEM, words):
                one.dmabuf(small)
            # What is in the device is not the machine's.
            one.dmabuf(peer)
            two.unpin(handle)
            handle = one.pages(memory, 0, MIB - 3 * PAGE)
            one.unpin(handle)
            # A dma-buf is pinned as a whole.
            with one.refused(errno.ENOMEM, words):
                one.dmabuf(large, length=1)
        with user(OTHER), Node() as node:
            node.pages(memory, 0, MIB)
        # Who administers the machine may.
        one.pages(memory)
        for fd in (peer, small, large):
            os.close(fd)


def test_by_default_half_of_the_machines_memory_may_be_pinned():
    (total,) = (x for x in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in x)
    half = int(total.split()[1]) // 2 // 1024

    def pin():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
        with user(SOMEBODY), Node() as node:
            request = uapi.PinPages(address=PAGE, length=(half + 1) * MIB, access=BOTH)
            words = f"more than {half} MiB of host memory"
            node.refuses(errno.ENOMEM, words, Ioctl.PIN_PAGES, request)
            request.length = half * MIB
            node.refuses(errno.EFAULT, "not all writable memory", Ioctl.PIN_PAGES, request)

    assert child(pin) == 0


def test_transfers_that_wait_count_as_locked_memory():
    """Many threads of a process, all of them behind a job that never ends."""
    limit, threads = 16 * PAGE, 24
    memory = Buffer(PAGE)

    def locked() -> int:
        status = Path("/proc/self/status").read_text().splitlines()
        return int(next(x.split()[1] for x in status if x.startswith("VmLck:"))) << 10

    def transfer():
        source, destination = Buffer(MIB, b""), Buffer(MIB, b"")
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        os.setuid(SOMEBODY)
        refused = []

        def copy():
            try:
                node.h2c2h(source.address + 1, destination.address + 2, MIB - PAGE)
            except OSError as error:
                refused.append(error.errno)

        def start(count: int) -> None:
            for _ in range(count):
                threading.Thread(target=copy, daemon=True).start()

        # The first one waits with both ends of its first part pinned, an eighth of the limit each.
        start(1)
        until(lambda: node.info().pinned_bytes == PAGE + 2 * limit // 8)
        start(threads - 1)
        until(lambda: len(refused) >= threads - 4)
        assert set(refused) == {errno.ENOMEM}
        assert 2 * limit // 8 <= node.info().pinned_bytes - PAGE <= limit
        assert 2 * limit // 8 <= locked() <= limit
        node.refuses(
            errno.ENOMEM,
            r"raise the limit \(ulimit -l\)",
            Ioctl.PIN_PAGES,
            uapi.PinPages(address=source.address, length=limit, access=BOTH),
        )

    with Node() as holder, Node() as node:
        holder.endless(holder.pages(memory))
        assert child(transfer) == 0
