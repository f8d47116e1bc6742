# SPDX-License-Identifier: BSD-2-Clause
"""Contexts of open files: channels beside the first, and card RAM that nobody else may use."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

import peerdma
from peerdma import uapi
from peerdma.uapi import Context, Event, Ioctl, Op, Reason
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    PAGE,
    Buffer,
    Node,
    ended,
    rebound,
    results,
    spawn,
    until,
)

pytestmark = IN_GUEST

_CHANNELS = ["--h2c", "2", "--c2h", "2"]
#: The first and the third board have two channels each way. Copies of the second and the third go
#: through card RAM, STAGING bytes at its end.
STREAMED, PLAIN, STAGED = "/dev/picoevb", "/dev/picoevb1", "/dev/picoevb2"
GUEST = {
    "configuration": "identity",
    "board_options": _CHANNELS,
    "further_boards": [["--plain", "--no-msix"], ["--user", "none", "--no-msix", *_CHANNELS]],
}
RAM, HALF, STAGING = 65536, 32768, 16384
OTHERS = "card RAM that another open file has for itself"
TAKEN = (errno.EACCES, Reason.PARTITION)


def context(node: Node, channel: int = 0, ram: int = 0) -> int:
    """Gives an open file a context; the card address of its card RAM."""
    wanted = Context(channel=channel, ram_length=ram)
    return node.request(Ioctl.SET_CONTEXT, wanted).ram_address


@contextlib.contextmanager
def having(ram: int, path: str = STREAMED) -> Iterator[tuple[Node, int]]:
    """An open file with card RAM of its own, and where that is."""
    with Node(path) as node:
        yield node, context(node, ram=ram)


def shared(node: Node) -> int:
    """Bytes of card RAM that are everybody's."""
    return node.request(Ioctl.CARD_INFO, uapi.CardInfo()).fpga_ram_size


def keeps(node: Node, address: int) -> bytes:
    """Fills a page of card RAM, and returns what is in it."""
    memory = Buffer(PAGE)
    node.h2c(memory.address, address, PAGE)
    return memory[:]


def found(node: Node, address: int) -> bytes:
    """What is in a page of card RAM."""
    memory = Buffer(PAGE, b"")
    node.c2h(address, memory.address, PAGE)
    return memory[:]


# Channels ------------------------------------------------------------------------------------


def test_each_channel_makes_every_transfer():
    with Node() as node:
        before = node.info()
        assert (before.h2c_channels, before.c2h_channels, before.vectors) == (2, 2, 4)
    for channel in (1, 0):
        source, destination = Buffer(200_000), Buffer(200_000, b"")
        with Node() as node:
            context(node, channel)
            node.h2c(source.address, 5, 1000)
            node.c2h(5, destination.address + 3, 1000)
            assert destination[3:1003] == source[:1000]
            node.h2c2h(source.address + 1, destination.address + 2, 150_001)
            assert destination[2:150_003] == source[1:150_002]
            after = node.info()
            assert after.failures == before.failures
            assert after.lost_interrupts == before.lost_interrupts


@pytest.mark.parametrize("path", [STREAMED, STAGED], ids=["streamed", "staged"])
def test_copies_of_two_channels_at_once(path: str):
    size, jobs = 60_000, 6
    with Node(path) as one, Node(path) as two:
        context(two, 1)
        sides = []
        for node in (one, two):
            source, destination = Buffer(size), Buffer(size, b"")
            sides.append((node, source, destination, node.pages(source), node.pages(destination)))

        def submit(node: Node, s: int, d: int) -> None:
            node.submit(Op.COPY, size, src_handle=s, dst_handle=d)

        for _ in range(jobs):
            for node, _, _, s, d in sides:
                submit(node, s, d)
        for node, source, destination, _, _ in sides:
            assert results(node.events(jobs)) == [(0, 0)] * jobs
            assert destination[:] == source[:]
        # Those of one channel do not wait for one of the other.
        for (node, *_), (other, _, _, s, d) in (sides, sides[::-1]):
            lasting = node.lasting()
            for _ in range(jobs):
                submit(other, s, d)
            assert results(other.events(jobs)) == [(0, 0)] * jobs
            node.cancel(lasting)
            assert results(node.events(1)) == [(errno.ECANCELED, Reason.CANCELLED)]


def test_a_channel_does_not_wait_for_the_other():
    with Node() as holder, Node() as first, Node() as second:
        context(second, 1)
        job = holder.endless(holder.pages(Buffer(PAGE)))
        memory = Buffer(PAGE)
        first.submit(Op.C2H, 64, dst_handle=first.pages(memory))
        handle = second.pages(memory)
        for _ in range(20):
            second.submit(Op.C2H, 64, dst_handle=handle)
        assert results(second.events(20)) == [(0, 0)] * 20
        assert first.query(1).jobs == 1
        holder.cancel(job)
        assert results(first.events(1)) == [(0, 0)]


def test_what_the_channel_of_an_open_file_waits_for():
    with Node() as one, Node() as two:
        context(two, 1)
        two.endless(two.pages(Buffer(PAGE)))
        until(lambda: two.info().c2h_waits_for)
        assert not one.info().c2h_waits_for


def test_jobs_of_a_second_channel_end_with_a_reset_and_with_the_board():
    with Node() as node:
        context(node, 1)
        handle = node.pages(Buffer(PAGE))
        node.endless(handle)
        node.load(handle, 1, 64)
        until(lambda: node.info().jobs)
        node.request(Ioctl.RESET, uapi.Reset())
        assert (errno.EIO, Reason.RESET) in results(node.events(2))
        node.endless(handle)
        with rebound():
            assert results(node.events(1)) == [(errno.ENODEV, Reason.LOST)]


def test_contexts_that_are_refused():
    with Node() as node:
        for number, words, wrong in (
            (errno.EINVAL, "no channel 2: the board has 2", Context(channel=2)),
            (errno.EINVAL, "no channel 4294967295", Context(channel=2**32 - 1)),
            (errno.EINVAL, "unknown flags 0x1", Context(flags=1)),
            (errno.EINVAL, "reserved member 1", Context(reserved=1)),
            (errno.EINVAL, "multiples of 4096", Context(ram_length=100)),
            (errno.ENOSPC, "upper half", Context(ram_length=HALF + PAGE)),
            (errno.ENOSPC, "upper half", Context(ram_length=2**64 - PAGE)),
        ):
            node.refuses(number, words, Ioctl.SET_CONTEXT, wrong)
        context(node, 1)
        node.refuses(errno.EBUSY, "has its context", Ioctl.SET_CONTEXT, Context())
    memory = Buffer(PAGE)
    with Node() as node:
        node.h2c(memory.address, 0, 4)
        node.refuses(errno.EBUSY, "has made transfers", Ioctl.SET_CONTEXT, Context())
    with Node(mode=os.O_RDONLY) as node:
        node.refuses(errno.EACCES, "reading only", Ioctl.SET_CONTEXT, Context())
    with Node() as node, rebound():
        wrong = Context(ram_length=PAGE)
        node.refuses(errno.ENODEV, "the board is gone", Ioctl.SET_CONTEXT, wrong)


# Card RAM ------------------------------------------------------------------------------------


def test_card_ram_of_ones_own():
    memory = Buffer(RAM)
    at = memory.address
    with Node() as other, having(2 * PAGE) as (node, begin), having(PAGE) as (third, lower):
        assert (begin, lower) == (RAM - 2 * PAGE, RAM - 3 * PAGE)
        assert {shared(each) for each in (other, node)} == {lower}
        assert node.info().card_ram_size == RAM
        content = keeps(node, begin + PAGE)
        keeps(third, lower)
        keeps(node, 0)
        handle = other.pages(memory)
        for start, length in (
            (begin, 1),
            (lower - 1, 2),
            (RAM - 1, 1),
            (0, RAM),
            (begin + PAGE - 8, 16),
        ):
            with other.refused(errno.EACCES, OTHERS):
                other.h2c(at, start, length)
            with other.refused(errno.EACCES, OTHERS):
                other.c2h(start, at, length)
            wanted = uapi.Submit(length=length, src_handle=handle, dst_offset=start)
            other.refuses(errno.EACCES, OTHERS, Ioctl.SUBMIT, wanted)
        with third.refused(errno.EACCES, OTHERS):
            third.h2c(at, begin, 1)
        # Copies go through the stream, and what is below is everybody's.
        other.h2c2h(at, at + HALF, PAGE)
        other.h2c(at, 0, lower)
        assert found(node, begin + PAGE) == content
    with Node() as node:
        assert shared(node) == RAM
        assert found(node, RAM - PAGE) == content
        node.h2c(at, 0, RAM)


def test_a_transfer_that_reaches_into_it_moves_nothing():
    """Also if its memory is pinned in parts, here of a page."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 * PAGE, 8 * PAGE))
    memory = Buffer(RAM)
    with Node() as other, having(PAGE) as (node, _):
        content = keeps(node, 0)
        with other.refused(errno.EACCES, OTHERS):
            other.h2c(memory.address, 0, RAM)
        assert found(node, 0) == content


def test_it_outlasts_a_reset_and_ends_with_the_board():
    memory = Buffer(PAGE)
    with Node() as other, having(PAGE) as (node, begin):
        node.request(Ioctl.RESET, uapi.Reset())
        with other.refused(errno.EACCES, OTHERS):
            other.h2c(memory.address, begin, 4)
        content = keeps(node, begin)
        assert found(node, begin) == content
        with rebound():
            pass
        with Node() as fresh:
            assert shared(fresh) == RAM
            assert context(fresh, ram=HALF) == HALF


@pytest.mark.parametrize("path", [PLAIN, STAGED], ids=["plain", "staged"])
def test_card_ram_of_ones_own_is_below_the_staging_area(path: str):
    with Node(path) as other:
        assert other.info().staging_size == STAGING
        memory = Buffer(4 * PAGE)
        with having(PAGE, path=path) as (node, begin):
            assert begin == RAM - STAGING - PAGE
            content = keeps(node, begin)
            other.h2c2h(memory.address, memory.address + 2 * PAGE, 2 * PAGE)
            assert found(node, begin) == content


def test_the_library_asks_for_it():
    array = np.arange(1000, dtype=np.uint32)
    other = np.zeros_like(array)
    with peerdma.open(STREAMED, channel=1, card_ram=PAGE) as board, Node() as node:
        own, nbytes = board.info().own_card_ram
        assert (own, nbytes) == (RAM - PAGE, PAGE) and shared(node) == own
        board.write(array, own)
        board.read(other, own)
        assert (other == array).all()
        with pytest.raises(peerdma.TransferError, match=r"upper half.* Ask for less"):
            peerdma.open(STREAMED, card_ram=HALF)
        with peerdma.open(STREAMED) as sharing:
            with pytest.raises(peerdma.TransferError, match=rf"{OTHERS}\. Use lower"):
                sharing.write(array, own)
            sharing.write(array, own - array.nbytes)


def test_the_lower_half_remains_everybodys():
    with contextlib.ExitStack() as opened:
        for number in range(1, 9):
            _, begin = opened.enter_context(having(PAGE))
            assert begin == RAM - number * PAGE
        with Node() as node:
            node.refuses(errno.ENOSPC, "upper half", Ioctl.SET_CONTEXT, Context(ram_length=PAGE))
            # It may try again.
            opened.close()
            assert context(node, ram=HALF) == HALF


def test_gaps_are_filled():
    with having(PAGE) as (_, top), having(PAGE) as (middle, at), having(PAGE) as (_, low):
        assert (top, at, low) == (RAM - PAGE, RAM - 2 * PAGE, RAM - 3 * PAGE)
        middle.close()
        with having(2 * PAGE) as (_, below), having(PAGE) as (_, again):
            assert (below, again) == (low - 2 * PAGE, at)


def test_jobs_that_were_queued_for_it_end():
    """Not those for other card RAM, and whoever has it gets it once running ones have ended."""
    with Node() as other, Node() as holder:
        handle = other.pages(Buffer(RAM))
        job = holder.endless(holder.pages(Buffer(PAGE)))
        for at in (RAM - PAGE, 0, RAM - 2 * PAGE + 1):
            other.submit(Op.C2H, PAGE, dst_handle=handle, src_offset=at)
        with having(PAGE) as (node, begin):
            content = keeps(node, begin)
            holder.cancel(job)
            assert results(other.events(3)) == [TAKEN, (0, 0), TAKEN]
            assert found(node, begin) == content


def test_it_is_given_once_a_job_that_runs_there_has_ended():
    """Also to a file that would not wait for it, since it has another channel."""
    with Node(flags=os.O_NONBLOCK) as other, Node() as node:
        other.load(other.pages(Buffer(RAM)), 3, RAM)
        begin = context(node, 1, PAGE)
        running = Event.from_buffer_copy(os.read(other.fd, ctypes.sizeof(Event)))
        first = keeps(node, begin)
        assert {number for number, _ in results([running, *other.events(2)])} <= {0, errno.EACCES}
        assert found(node, begin) == first


def test_it_is_let_go_with_jobs_pending():
    memory = Buffer(RAM)
    for _ in range(5):
        with having(HALF) as (node, begin):
            assert begin == HALF
            handle = node.pages(memory)
            for _ in range(8):
                node.submit(Op.H2C, HALF, src_handle=handle, dst_offset=HALF)
        with having(HALF) as (node, begin):
            content = keeps(node, begin)
            time.sleep(0.1)
            assert found(node, begin) == content


def test_it_is_let_go_when_a_process_is_killed():
    def hoard():
        node = Node()
        context(node, ram=HALF)
        handle = node.pages(Buffer(RAM))
        node.load(handle, 20, HALF)
        node.endless(handle)
        os.write(ready[1], b"x")
        signal.pause()

    for _ in range(3):
        ready = os.pipe()
        pid = spawn(hoard)
        assert os.read(ready[0], 1)
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        with Node() as node:
            assert shared(node) == RAM
            assert context(node, ram=HALF) == HALF
        for fd in ready:
            os.close(fd)


def test_2000_files():
    """Most of them get none; all can transfer; nothing is left."""
    files = 2000
    resource.setrlimit(resource.RLIMIT_NOFILE, (files + 64, files + 64))
    memory = Buffer(PAGE)
    with contextlib.ExitStack() as opened:
        nodes = [opened.enter_context(Node()) for _ in range(files)]
        have = 0
        for number, node in enumerate(nodes):
            with contextlib.suppress(OSError):
                context(node, number % 2, PAGE)
                have += 1
        assert have == HALF // PAGE
        nodes[-1].refuses(errno.ENOSPC, "upper", Ioctl.SET_CONTEXT, Context(ram_length=PAGE))
        for node in nodes:
            node.submit(Op.H2C, 64, src_handle=node.pages(memory))
        for node in nodes:
            assert results(node.events(1)) == [(0, 0)]
    with Node() as node:
        assert shared(node) == RAM
