# SPDX-License-Identifier: BSD-2-Clause
"""The board is reset or unbound, in every state; what programs see, then and later."""

from __future__ import annotations

import errno
import mmap
import os
import select
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from peerdma import uapi
from peerdma.regs import WaitsFor
from peerdma.uapi import BoardState, Ioctl, Op, Reason, SurfaceState
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    BOTH,
    DRIVER,
    GPU_PAGE,
    HUNG,
    LATER,
    PAGE,
    STREAM,
    WITH_HUNG_BOARD,
    Buffer,
    Gpu,
    Later,
    Node,
    address_of_board,
    child,
    ended,
    hangs,
    of_board,
    rebound,
    reset_function,
    results,
    setting,
    spawn,
    until,
)

GUEST = WITH_HUNG_BOARD
pytestmark = IN_GUEST

RESET = (errno.EIO, Reason.RESET)
LOST = (errno.ENODEV, Reason.LOST)
TIMEOUT = (errno.ETIMEDOUT, Reason.TIMEOUT)
#: How the kernel resets a function, by the block: that of the 7 series has no function-level reset.
METHODS = {"series7": "bus", "ultrascale-plus": "flr"}


@contextmanager
def mailbox(node: Node) -> Iterator[memoryview]:
    """The mailbox's words."""
    mapped = node.mailbox()
    words = memoryview(mapped).cast("I")
    try:
        yield words
    finally:
        words.release()
        mapped.close()


# Reset ---------------------------------------------------------------------------------------


@pytest.mark.each_block
def test_function_reset_nothing(block: str):
    assert of_board("reset_method").read_text().split()[0] == METHODS[block]
    source, destination = Buffer(PAGE), Buffer(PAGE, b"")
    with Gpu() as gpu, Node() as node, mailbox(node) as words:
        words[0] = 5
        assert words[0] == 5
        before = node.info()
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        reset_function()
        after = node.info()
        assert (after.state, after.generation) == (BoardState.LIVE, before.generation + 1)
        assert (after.interrupts, after.max_payload) == (before.interrupts, before.max_payload)
        # Pins stay; mappings come back by themselves, of a page that was reset.
        assert node.query(handle).state == SurfaceState.LIVE
        assert words[0] == 0
        node.h2c2h(source.address, handle, PAGE, 2)
        node.h2c2h(handle, destination.address, PAGE, 1)
        assert destination[:] == source[:]


@pytest.mark.each_block
def test_function_reset_waits_and_runs():
    with Node() as node:
        handle = node.pages(Buffer(GPU_PAGE))
        running = node.endless(handle)
        waiting = node.submit(Op.C2H, PAGE, dst_handle=handle)
        before = node.info().generation
        bound = node.submit(Op.C2H, PAGE, dst_handle=handle, generation=before)
        # Its end and theirs wake one who polls.
        Later(reset_function)
        found = {event.job: results([event])[0] for event in node.events(3)}
        assert found == {
            running: RESET,
            waiting: (0, 0),
            bound: (errno.ESTALE, Reason.RESET),  # what was in card RAM is lost
        }
        assert node.info().generation == before + 1


@pytest.mark.each_block
def test_function_reset_hangs():
    with Gpu() as gpu, Node(HUNG) as node, setting("peerdma", "timeout_ms", LATER):
        before = node.info()
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        node.hang(handle)
        reset_function("picoevb1")
        assert results(node.events(1)) == [RESET]
        after = node.info()
        assert (after.state, after.generation) == (BoardState.LIVE, before.generation + 1)
        assert node.query(handle).state == SurfaceState.LIVE


@pytest.mark.each_block
def test_registers_are_not_touched_during_a_reset():
    """The function answers nothing then, and on some machines an access stops the processor."""
    refused = []

    def met() -> bool:
        """Whether something was refused in the course of a reset."""
        reset = threading.Thread(target=reset_function)
        reset.start()
        while reset.is_alive():
            try:
                node.request(Ioctl.LED, 5)
            except OSError as error:
                refused.append(error.errno)
                assert b"being reset: try again" in node.info().last_error
        reset.join()
        return bool(refused)

    with Node() as node:
        until(met)
        assert set(refused) == {errno.EBUSY}
        node.request(Ioctl.LED, 0)


@pytest.mark.each_block
def test_function_resets_while_copies_run():
    """Each copy ends, right or with an error in words; a reset meets one of either process."""
    size, told = 64 * PAGE, Buffer(PAGE, b"")

    def copies(number: int) -> None:
        with Node() as node:
            while not any(told[:1]):
                source, destination = Buffer(size), Buffer(size, b"")
                try:
                    node.h2c2h(source.address, destination.address, size)
                except OSError:
                    info = node.info()
                    words = {errno.EIO: b"was reset", errno.EBUSY: b"being reset"}
                    assert words[info.last_errno] in info.last_error
                    told[number : number + 1] = b"x"
                else:
                    assert source[:] == destination[:]

    pids = [spawn(lambda number=number: copies(number)) for number in (1, 2)]
    until(lambda: reset_function() or all(told[1:3]))
    told[:1] = b"x"
    assert [ended(pid) for pid in pids] == [0, 0]


@pytest.mark.each_block
def test_who_waits_is_told_of_a_reset():
    memory = Buffer(PAGE)

    def transfer():
        with Node() as node, node.refused(errno.EIO, "was reset or suspended: try again"):
            node.c2h(STREAM, memory.address, PAGE)

    with Node() as node:
        pid = spawn(transfer)
        until(lambda: node.info().c2h_waits_for == WaitsFor.USER_OUTPUT)
        reset_function()
        assert ended(pid) == 0


@pytest.mark.each_block
def test_reset_request_hangs():
    with Gpu() as gpu, hangs(gpu) as (node, _, job):
        generation = node.info().generation
        node.request(Ioctl.RESET, uapi.Reset())
        (event,) = node.events(1)
        assert (event.job, results([event])[0]) in ((job, RESET), (job, TIMEOUT))
        until(lambda: node.info().generation > generation)


def test_reset_requests_at_the_same_time():
    """Each has its own reset, and no other's is its error."""
    threads, count = 4, 50
    with Node() as node, ThreadPoolExecutor(threads) as pool:
        generation = node.info().generation

        def resets() -> None:
            for _ in range(count):
                node.request(Ioctl.RESET, uapi.Reset())

        for each in [pool.submit(resets) for _ in range(threads)]:
            each.result()
        assert node.info().generation == generation + threads * count


def test_reset_request_of_a_dead_board():
    with Node() as node, rebound():
        node.refuses(errno.ENODEV, "board is gone", Ioctl.RESET, uapi.Reset())


# Unbind --------------------------------------------------------------------------------------


def test_unbind_nothing():
    with Gpu() as gpu, Node() as node:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        place = node.place(handle)

        def looks(at: int) -> None:
            with Node() as own:
                mine = own.cuda(own_gpu.alloc(GPU_PAGE), GPU_PAGE)
                mapped = own.map(mine) if at else own.mailbox()
                assert mapped[0] is not None
                os.write(ready, b"x")
                os.read(told, 1)
                mapped[0]

        with Gpu() as own_gpu:
            waits, ready = os.pipe()
            told, tell = os.pipe()
            processes = [spawn(lambda at=at: looks(at)) for at in (0, 1)]
            for _ in processes:
                os.read(waits, 1)
            with rebound():
                os.write(tell, b"xx")
                assert [ended(pid) for pid in processes] == [-signal.SIGBUS] * 2
                after_removal(gpu, node, handle, place)
        with Node() as again:
            assert again.info().index == 0


def after_removal(gpu: Gpu, node: Node, handle: int, place: uapi.MapInfo) -> None:
    """What an open file of a board that is gone is good for."""
    assert not os.path.exists("/dev/picoevb")
    info = node.info()
    assert (info.state, info.pinned_bytes, info.link_width) == (BoardState.DEAD, 0, 0)
    assert node.query(handle).state == SurfaceState.LOST
    assert gpu.counts()[2] == 0
    memory = Buffer(PAGE)
    pages = uapi.PinPages(address=memory.address, length=PAGE, access=BOTH)
    for code, argument in (
        (Ioctl.LED, 1),
        (Ioctl.PIN_CUDA, uapi.PinCuda(va=gpu.alloc(GPU_PAGE), size=GPU_PAGE)),
        (Ioctl.PIN_PAGES, pages),
        (Ioctl.H2C_DMA, uapi.H2cDma(src=memory.address, len=8)),
        (Ioctl.H2C_DMA, uapi.H2cDma(src=handle, len=8, flags=1)),
        (Ioctl.SUBMIT, uapi.Submit(op=Op.H2C, src_handle=handle, length=8)),
        (Ioctl.RESET, uapi.Reset()),
    ):
        node.refuses(errno.ENODEV, "the board is gone", code, argument)
    assert node.request(Ioctl.CARD_INFO, uapi.CardInfo()).fpga_ram_size == 65536
    with pytest.raises(OSError, match="No such device"):
        os.read(node.fd, 64)
    poll = select.poll()
    poll.register(node.fd, select.POLLIN)
    assert poll.poll(0)[0][1] & select.POLLHUP
    for offset in (0, place.offset):

        def look(offset: int = offset) -> None:
            mmap.mmap(node.fd, PAGE, offset=offset)[0]

        assert child(look) == -signal.SIGBUS
    node.unpin(handle)


def test_unbind_waits_and_runs():
    """With a reader and a waiter, and events that nobody has read yet."""
    memory = Buffer(PAGE)
    outcome = []

    def wait():
        with Node() as own:
            try:
                own.c2h(0, memory.address, PAGE)
            except OSError as error:
                outcome.append(error.errno)

    with Gpu() as gpu, Node() as node, Node() as reader:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        node.load(handle, 1, PAGE)
        assert results(node.events(1)) == [(0, 0)]
        running = node.endless(handle)
        waiting = node.submit(Op.C2H, PAGE, dst_handle=handle)

        def read():
            try:
                os.read(reader.fd, 64)
            except OSError as error:
                outcome.append(error.errno)

        threads = [threading.Thread(target=wait), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        until(lambda: node.info().pinned_bytes == GPU_PAGE + PAGE)
        with rebound():
            for thread in threads:
                thread.join()
            assert outcome == [errno.ENODEV] * 2
            found = {event.job: results([event])[0] for event in node.events(2)}
            assert found == {running: LOST, waiting: LOST}
            assert gpu.counts()[2] == 0


def test_readers_of_a_board_that_is_gone_miss_no_event():
    """Of one file: each event arrives once, and only then does a reader learn that none will."""
    outcome = []

    def read() -> None:
        try:
            outcome.append(uapi.Event.from_buffer_copy(os.read(node.fd, 64)).job)
        except OSError as error:
            outcome.append(-error.errno)

    with Gpu() as gpu, Node() as node:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        jobs = [node.endless(handle), node.submit(Op.C2H, PAGE, dst_handle=handle)]
        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        with rebound():
            for thread in threads:
                thread.join()
            assert sorted(outcome) == [-errno.ENODEV, *jobs]
            os.set_blocking(node.fd, False)
            read()
            assert outcome[-1] == -errno.ENODEV


def test_poll_says_nothing_of_a_board_that_is_gone_while_read_would_wait():
    """Who polls and reads in turn is woken for events and for the end alone."""
    outcome = []

    def follow() -> None:
        try:
            while poll.poll(60_000):
                outcome.append(uapi.Event.from_buffer_copy(os.read(node.fd, 64)).job)
        except OSError as error:
            outcome.append(-error.errno)

    with Gpu() as gpu, Node() as node:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        jobs = [node.endless(handle) for _ in range(4)]
        os.set_blocking(node.fd, False)
        poll = select.poll()
        poll.register(node.fd, select.POLLIN)
        follower = threading.Thread(target=follow)
        follower.start()
        with rebound():
            follower.join()
        assert sorted(outcome) == [-errno.ENODEV, *jobs]


def test_unbind_hangs():
    with Gpu() as gpu, Node(HUNG) as node, setting("peerdma", "timeout_ms", LATER):
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        node.hang(handle)
        node.hang(handle)
        with rebound("picoevb1"):
            assert results(node.events(2)) == [LOST] * 2
            assert gpu.counts()[2] == 0
            node.unpin(handle)


def test_unbind_of_a_board_that_is_being_reset():
    """The recovery waits for a reset while the removal waits for the recovery."""
    with Gpu() as gpu, hangs(gpu) as (node, handle, _):
        with setting("peerdma", "timeout_ms", 1):
            until(lambda: node.info().timeouts)
            with rebound("picoevb1"):
                assert node.info().state == BoardState.DEAD
        node.unpin(handle)


def test_unbind_again_and_again():
    """With files that outlive their boards: numbers do not run out."""
    nodes = []
    for _ in range(8):
        nodes.append(Node())
        nodes[-1].endless(nodes[-1].pages(Buffer(PAGE)))
        with rebound():
            pass
        assert os.path.exists("/dev/picoevb")
    for node in nodes:
        assert results(node.events(1)) == [LOST]
        node.close()
    assert (DRIVER / address_of_board()).exists()
