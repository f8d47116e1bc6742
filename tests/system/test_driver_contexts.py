# SPDX-License-Identifier: BSD-2-Clause
"""What an open file can have beside others: registers of user blocks, eventfds, batches of jobs."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import time

from peerdma import uapi
from peerdma.regs import PATTERN_SOURCE, PATTERN_SOURCE_NAME, user_block_text
from peerdma.testing.pattern import fill_bytes
from peerdma.uapi import Ioctl, Op, Reason, RegisterFlag, Submit, SubmitBatch, SubmitFlag
from peerdma.waiting import Waiter
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    PAGE,
    STREAM,
    Buffer,
    Node,
    rebound,
    results,
    setting,
    until,
    user,
)

pytestmark = IN_GUEST

#: The second board has a user block with registers.
SENSOR = "/dev/picoevb1"
GUEST = {"configuration": "identity", "further_boards": [["--no-msix", "--user", "pattern"]]}
SOMEBODY = 1000
RAM = 65536
CANCELLED = (errno.ECANCELED, Reason.CANCELLED)


# Registers of user blocks --------------------------------------------------------------------


def register(node: Node, offset: int, value: int | None = None, **more: int) -> int:
    """Writes a register, or reads it."""
    request = uapi.UserRegister(offset=offset, **more)
    if value is not None:
        request.flags, request.value = RegisterFlag.WRITE, value
    return node.request(Ioctl.USER_REGISTER, request).value


def test_registers_are_those_of_the_user_block():
    size = 3 * PAGE
    target = Buffer(size, b"")
    offset = {name: PATTERN_SOURCE[name].offset for name in ("seed", "frame_words", "frames")}
    with Node(SENSOR) as node:
        info = node.info()
        assert user_block_text(info.user_block) == PATTERN_SOURCE_NAME
        assert info.user_ratio == 1 << 8
        register(node, offset["seed"], 5)
        assert register(node, offset["seed"]) == 5
        register(node, offset["frame_words"], size // 4)
        node.c2h(STREAM, target.address, size)
        assert register(node, offset["frames"]) >= 1
        register(node, offset["frame_words"], 0)
        node.request(Ioctl.RESET, uapi.Reset())
    assert target[:] == fill_bytes(5, 0, size).tobytes()


def test_registers_that_are_refused():
    with Node(SENSOR) as node:
        for flags in (0, RegisterFlag.WRITE):
            for wrong in ({"offset": 2}, {"offset": 0x100}, {"offset": 2**32 - 4}):
                request = uapi.UserRegister(flags=flags, **wrong)
                node.refuses(errno.EINVAL, "multiples of 4 below", Ioctl.USER_REGISTER, request)
            for block in (1, 63, 2**32 - 1):
                request = uapi.UserRegister(flags=flags, block=block)
                words = f"no user block {block}: the board has 1"
                node.refuses(errno.EINVAL, words, Ioctl.USER_REGISTER, request)
        with rebound("picoevb1"):
            request = uapi.UserRegister()
            node.refuses(errno.ENODEV, "the board is gone", Ioctl.USER_REGISTER, request)
    with Node(SENSOR) as node:
        assert register(node, 0) == 0


def test_the_cycle_counter_and_when_it_was_read():
    with Node(SENSOR) as node:
        assert node.info().features & uapi.Feature.CLOCK
        before = time.monotonic_ns()
        found = [node.request(Ioctl.READ_CLOCK, uapi.Clock()) for _ in range(20)]
        times = [when for each in found for when in (each.before_ns, each.after_ns)]
        assert before <= times[0] and times[-1] <= time.monotonic_ns()
        assert times == sorted(times)
        cycles = [each.cycles for each in found]
        assert cycles == sorted(set(cycles))
        with rebound("picoevb1"):
            node.refuses(errno.ENODEV, "the board is gone", Ioctl.READ_CLOCK, uapi.Clock())


# Eventfds ------------------------------------------------------------------------------------


class Bell:
    """An eventfd that counts."""

    def __init__(self, start: int = 0):
        self.fd = os.eventfd(start, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __enter__(self) -> Bell:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def names(self) -> dict[str, int]:
        """Members of a request that names it."""
        return {"flags": SubmitFlag.EVENTFD, "eventfd": self.fd}

    def rung(self, count: int) -> None:
        """That it has been signalled that often, in some time, and no more often."""
        found = 0
        while found < count:
            assert select.select([self.fd], [], [], 60)[0], f"{found} of {count} times"
            found += os.eventfd_read(self.fd)
        assert found == count
        assert not select.select([self.fd], [], [], 0)[0]


def test_an_eventfd_is_signalled_when_the_event_can_be_read():
    with Node(flags=os.O_NONBLOCK) as node, Bell() as bell, Bell() as other:
        handle = node.pages(Buffer(PAGE))
        for length in (PAGE, 0):
            job = node.submit(Op.H2C, length, src_handle=handle, **bell.names())
            waiter = Waiter(bell.fd)
            waiter.wait(None)
            waiter.close()
            event = uapi.Event.from_buffer_copy(os.read(node.fd, 64))
            assert (event.job, event.result) == (job, 0)
            bell.rung(1)
        # A job has its own, or none.
        for names in (bell.names(), other.names(), bell.names(), {}):
            node.submit(Op.H2C, 64, src_handle=handle, **names)
        assert results(node.events(4)) == [(0, 0)] * 4
        bell.rung(2)
        other.rung(1)


def test_an_eventfd_is_signalled_however_the_job_ends():
    with Node() as node, Bell() as bell:
        handle, other = node.pages(Buffer(PAGE)), node.pages(Buffer(PAGE))
        node.cancel(node.endless(handle, **bell.names()))
        assert results(node.events(1)) == [CANCELLED]
        bell.rung(1)
        now = node.info().generation
        node.endless(handle, **bell.names())
        node.endless(other, generation=now, **bell.names())
        node.request(Ioctl.RESET, uapi.Reset())
        assert {number for number, _ in results(node.events(2))} == {errno.EIO, errno.ESTALE}
        bell.rung(2)
        first = node.endless(handle, **bell.names())
        node.endless(other, **bell.names())
        node.unpin(other)
        assert results(node.events(1)) == [(errno.ECANCELED, Reason.UNPINNED)]
        bell.rung(1)
        node.cancel(first)
        assert results(node.events(1)) == [CANCELLED]
        bell.rung(1)
        node.endless(handle, **bell.names())
        node.endless(handle, **bell.names())
        with rebound():
            bell.rung(2)
            assert {number for number, _ in results(node.events(2))} == {errno.ENODEV}


def test_an_eventfd_outlives_the_file_and_a_job_its_eventfd():
    with Bell() as bell:
        with Node() as node:
            handle = node.pages(Buffer(PAGE))
            for _ in range(3):
                node.endless(handle, **bell.names())
        # Nobody reads their events, but whoever waits for them is told.
        bell.rung(3)
    with Node() as node, Bell() as kept:
        handle = node.pages(Buffer(PAGE))
        with Bell() as bell:
            again = os.dup(bell.fd)
            for names in (bell.names(), kept.names()):
                job = node.endless(handle, **names)
        os.close(again)
        files = len(os.listdir("/proc/self/fd"))
        node.cancel(job - 1)
        node.cancel(job)
        assert results(node.events(2)) == [CANCELLED] * 2
        kept.rung(1)
        assert len(os.listdir("/proc/self/fd")) == files


def test_an_eventfd_that_counts_no_further():
    with Node() as node, Bell() as bell:
        os.eventfd_write(bell.fd, 2**64 - 2)
        for _ in range(3):
            node.submit(Op.H2C, 64, src_handle=node.pages(Buffer(PAGE)), **bell.names())
        assert results(node.events(3)) == [(0, 0)] * 3
        assert os.eventfd_read(bell.fd) >= 2**64 - 2


def test_eventfds_that_are_none():
    with Node() as node:
        handle, jobs = node.pages(Buffer(PAGE)), node.info().jobs
        with open(__file__, "rb") as file:
            for fd, number, words in (
                (-1, errno.EBADF, "descriptor -1 is no eventfd"),
                (999, errno.EBADF, "descriptor 999 is no eventfd"),
                (file.fileno(), errno.EINVAL, "is no eventfd"),
                (node.fd, errno.EINVAL, "is no eventfd"),
            ):
                wrong = Submit(src_handle=handle, flags=SubmitFlag.EVENTFD, eventfd=fd)
                node.refuses(number, words, Ioctl.SUBMIT, wrong)
        for wrong in (Submit(src_handle=handle, eventfd=5), Submit(src_handle=handle, queue=1)):
            node.refuses(errno.EINVAL, "no queue can be named", Ioctl.SUBMIT, wrong)
        assert (node.info().jobs, node.query(handle).jobs) == (jobs, 0)


# Batches -------------------------------------------------------------------------------------


def batch(node: Node, submits: ctypes.Array | int, count: int = 0) -> SubmitBatch:
    """Submits an array of requests, or what is at an address."""
    wanted = SubmitBatch(count=count)
    if isinstance(submits, ctypes.Array):
        wanted.submits, wanted.count = ctypes.addressof(submits), len(submits)
    else:
        wanted.submits = submits
    return node.request(Ioctl.SUBMIT_BATCH, wanted)


def array(*submits: Submit) -> ctypes.Array:
    """An array of requests."""
    return (Submit * len(submits))(*submits)


def came_to(done: SubmitBatch) -> tuple[int, int]:
    """How many were taken, and why the next one was not."""
    return done.taken, -done.error


def test_a_batch_is_as_many_jobs():
    source = Buffer(RAM)
    with Node() as node, Bell() as bell:
        handle = node.pages(source)
        wanted = [
            Submit(length=256, src_handle=handle, src_offset=at, dst_offset=at, user_data=at)
            for at in range(0, RAM, 256)
        ]
        wanted[-1].flags, wanted[-1].eventfd = SubmitFlag.EVENTFD, bell.fd
        submits = array(*wanted)
        assert came_to(batch(node, submits)) == (256, 0)
        bell.rung(1)
        events = node.events(256)
        assert results(events) == [(0, 0)] * 256
        told = [(each.job, each.user_data) for each in submits]
        assert [(event.job, event.user_data) for event in events] == told
        assert len(set(told)) == 256 and all(job for job, _ in told)
        back = Buffer(RAM, b"")
        node.c2h(0, back.address, RAM)
        assert back[:] == source[:]
        assert came_to(batch(node, 0, 0)) == (0, 0)


def test_a_batch_ends_at_its_first_error():
    with Node() as node:
        handle = node.pages(Buffer(PAGE))
        good, jobs = Submit(length=64, src_handle=handle), node.info().jobs
        for number, words, bad in (
            (errno.EINVAL, "unknown operation 9", Submit(op=9)),
            (errno.EINVAL, "no memory is pinned as handle 77", Submit(src_handle=77)),
            (errno.ESTALE, "generation 99", Submit(src_handle=handle, generation=99)),
            (errno.EBADF, "is no eventfd", Submit(src_handle=handle, flags=1, eventfd=-1)),
            (errno.EINVAL, "unknown flags", Submit(src_handle=handle, flags=2)),
        ):
            for before in (2, 0):
                done = batch(node, array(*[good] * before, bad, good))
                assert came_to(done) == (before, number), words
                assert words in node.info().last_error.decode()
                assert results(node.events(before)) == [(0, 0)] * before
                jobs += before
        small = array(good)
        small[0].size = 63
        assert came_to(batch(node, small)) == (0, errno.EINVAL)
        until(lambda: not node.query(handle).jobs)
        assert node.info().jobs == jobs


def test_limits_are_those_of_each_job():
    with Node() as node:
        handle = node.pages(Buffer(PAGE))
        first = node.submit(Op.C2H, PAGE, dst_handle=handle, src_offset=STREAM)
        wanted = Submit(op=Op.C2H, length=64, dst_handle=handle)
        assert came_to(batch(node, array(*[wanted] * 256))) == (255, errno.EAGAIN)
        assert "256 jobs are outstanding" in node.info().last_error.decode()
        assert came_to(batch(node, array(wanted))) == (0, errno.EAGAIN)
        node.cancel(first)
        assert len(node.events(256)) == 256
    with setting("peerdma", "jobs_per_user", 4), user(SOMEBODY), Node() as node:
        wanted = Submit(src_handle=node.pages(Buffer(PAGE)))
        assert came_to(batch(node, array(*[wanted] * 9))) == (4, errno.EAGAIN)
        assert "this user has 4 jobs" in node.info().last_error.decode()
        assert len(node.events(4)) == 4


def test_batches_where_there_is_no_memory():
    """A job is not taken whose request cannot be read, or whose number cannot be told."""
    memory, size = Buffer(2 * PAGE), ctypes.sizeof(Submit)
    libc = ctypes.CDLL(None, use_errno=True)

    def protect(page: int, protection: int) -> None:
        at = ctypes.c_void_p(memory.address + page * PAGE)
        assert libc.mprotect(at, PAGE, protection) == 0

    with Node() as node:
        jobs = node.info().jobs
        wanted = bytes(Submit(src_handle=node.pages(Buffer(PAGE)), length=64))
        protect(1, 0)
        # Ends with the page, in it, and at each member's edge of the last one.
        for cut in (0, 4, 8, size - 4):
            memory[PAGE - 3 * size + cut : PAGE] = (wanted * 3)[: 3 * size - cut]
            begin = memory.address + PAGE - 3 * size + cut
            taken = 3 if cut == 0 else 2
            assert came_to(batch(node, begin, 4)) == (taken, errno.EFAULT)
            assert results(node.events(taken)) == [(0, 0)] * taken
            jobs += taken
        memory[:size] = wanted
        protect(0, mmap.PROT_READ)
        assert came_to(batch(node, memory.address, 1)) == (0, errno.EFAULT)
        protect(0, mmap.PROT_READ | mmap.PROT_WRITE)
        assert came_to(batch(node, 2**64 - 8, 2)) == (0, errno.EFAULT)
        assert node.info().jobs == jobs
        protect(1, mmap.PROT_READ | mmap.PROT_WRITE)


def test_batches_of_other_releases():
    """What an older program does not know is 0; a newer one's requests are further apart."""
    least, known = Submit.eventfd.offset, ctypes.sizeof(Submit)
    with Node() as node:
        handle = node.pages(Buffer(PAGE))
        for size in (least, known, known + 8):
            entry = Submit(src_handle=handle, length=64, user_data=size)
            entry.size = size
            data = (bytes(entry) + bytes(8))[:size] * 3
            memory = Buffer(PAGE, data)
            assert came_to(batch(node, memory.address, 3)) == (3, 0)
            assert [event.user_data for event in node.events(3)] == [size] * 3
        memory[known + 8 + known : known + 8 + known + 1] = b"x"
        assert came_to(batch(node, memory.address, 3)) == (1, errno.E2BIG)
        assert len(node.events(1)) == 1


def test_batches_that_are_refused():
    with Node() as node:
        for words, wrong in (
            ("at most 256 jobs, not 257", SubmitBatch(count=257)),
            ("unknown flags 0x1", SubmitBatch(flags=1)),
            ("reserved member 1", SubmitBatch(reserved=1)),
        ):
            node.refuses(errno.EINVAL, words, Ioctl.SUBMIT_BATCH, wrong)
