# SPDX-License-Identifier: BSD-2-Clause
"""A machine whose DMA goes through bounce buffers: only syncs make bytes of pages arrive.

Each byte has to be what it would be without bounce buffers: the board's, or the program's last.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

import pytest

from peerdma.regs import WaitsFor
from peerdma.uapi import Access, CreateQueue, Ioctl, Op, PinDmabuf, Reason
from tests.system.dma_calls import check_syncs, recorded
from tests.system.marks import IN_GUEST
from tests.system.picoevb import BOTH, GPU_PAGE, PAGE, Buffer, Gpu, Node, results, shell, until
from tests.system.rings import SENSOR, Ring, set_register, source
from tests.system.rings import SIZE as FRAME

#: The second board has a source of frames. The third one's read request 60 fails: in the middle of
#: its first copy.
GUEST = {
    "configuration": "bounce",
    "board_options": ["--launch-queues", "2"],
    "further_boards": [["--user", "pattern"], ["--no-msix", "--fault", "ur@60"]],
}
pytestmark = IN_GUEST

SIZE = 16 * PAGE
HUGE = 2 << 20
CANCELLED = (errno.ECANCELED, Reason.CANCELLED)


def test_copies_of_any_place_and_length():
    source, destination = Buffer(400000), Buffer(400000, b"")
    with Node() as node:
        for start, end, length in ((0, 0, 16384), (3, 5, 399990), (1, 0, 8191), (7, 3, 1)):
            destination[:] = bytes(400000)
            node.h2c2h(source.address + start, destination.address + end, length)
            assert destination[: end + length] == bytes(end) + source[start : start + length]
            assert not any(destination[end + length :])
        node.h2c(source.address + 5, 100, 10000)
        node.c2h(100, destination.address + 9, 10000)
        assert destination[9:10009] == source[5:10005]


@pytest.mark.parametrize("access", [2, 3])  # to be written only, and both
def test_what_is_cancelled_leaves_the_programs_bytes(access: int):
    """Not those of the time when it was pinned."""
    buffer = Buffer(SIZE, b"A" * SIZE)
    with Node() as node:
        handle = node.pages(buffer, access=access)
        buffer[:] = b"B" * SIZE
        running = node.endless(handle)
        waiting = node.submit(Op.C2H, SIZE, dst_handle=handle)
        for job in (waiting, running):
            node.cancel(job)
        assert results(node.events(2)) == [CANCELLED] * 2
        assert buffer[:] == b"B" * SIZE


def test_what_fails_in_the_middle_leaves_the_rest():
    read, buffer = Buffer(SIZE), Buffer(SIZE, b"A" * SIZE)
    with Node("/dev/picoevb2") as node:
        s, d = node.pages(read, access=Access.READ), node.pages(buffer, access=Access.WRITE)
        buffer[:] = b"B" * SIZE
        node.submit(Op.COPY, SIZE, src_handle=s, dst_handle=d)
        assert results(node.events(1)) == [(errno.EIO, Reason.ENGINE)]
    pairs = enumerate(zip(read[:], buffer[:], strict=True))
    written = next(n for n, (ours, found) in pairs if ours != found)
    assert written
    assert buffer[written:] == b"B" * (SIZE - written)


def test_bytes_beside_a_transfer_stay():
    """Of the same memory, and while the transfer runs."""
    source, buffer = Buffer(PAGE), Buffer(SIZE, b"A" * SIZE)
    with Node() as node:
        handle = node.pages(buffer)
        buffer[:] = b"B" * SIZE
        node.h2c(source.address, 0, PAGE)
        running = node.endless(handle)  # of the first page
        buffer[PAGE:] = b"C" * (SIZE - PAGE)
        node.cancel(running)
        node.submit(Op.C2H, 1000, dst_handle=handle, dst_offset=PAGE + 7)
        assert results(node.events(2)) == [CANCELLED, (0, Reason.NONE)]
    expected = b"B" * PAGE + b"C" * 7 + source[:1000]
    assert buffer[: len(expected)] == expected
    assert buffer[len(expected) :] == b"C" * (SIZE - len(expected))


def test_a_copy_of_what_the_copy_before_it_writes():
    """Both are queued before the first one has begun; the bytes are those of its end."""
    source, middle, end = Buffer(SIZE), Buffer(SIZE, b"A"), Buffer(SIZE, b"A")
    with Node() as node:
        s, m, e = (node.pages(buffer) for buffer in (source, middle, end))
        for _ in range(3):
            source[:] = os.urandom(SIZE)
            node.submit(Op.COPY, SIZE, src_handle=s, dst_handle=m)
            node.submit(Op.COPY, SIZE, src_handle=m, dst_handle=e)
            assert results(node.events(2)) == [(0, Reason.NONE)] * 2
            assert middle[:] == source[:]
            assert end[:] == source[:]


def test_memory_that_is_contiguous_over_more_than_a_bounce_buffer():
    """Which is at most 256 KiB."""
    shell("echo 2 >/proc/sys/vm/nr_hugepages")
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000  # MAP_HUGETLB
        buffers = [mmap.mmap(-1, HUGE, flags) for _ in range(2)]
        source, destination = (
            ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in buffers
        )
        buffers[0][:] = os.urandom(HUGE)
        buffers[1][:] = bytes(HUGE)
        with Node() as node:
            node.h2c2h(source + 5, destination + 9, HUGE - 9)
        assert buffers[1][:] == bytes(9) + buffers[0][5 : HUGE - 4]
    finally:
        shell("echo 0 >/proc/sys/vm/nr_hugepages")


def test_frames_and_what_is_beside_them():
    with source(FRAME, 9), Node(SENSOR) as node:
        ring = Ring(node, 3, size=FRAME, seed=9)
        ring.memory[FRAME : FRAME + 3] = b"new"
        ring.run(8)
        ring.stop()
        assert ring.memory[FRAME : FRAME + 3] == b"new"
        # Nothing comes: what is there is what the program had there at the start.
        set_register(node, "frame_words", 0)
        ring.memory[:] = b"B" * len(ring.memory)
        ring.job, ring.filled = node.request(Ioctl.START_RING, ring.request()).job, 0
        until(lambda: node.info().c2h_waits_for == WaitsFor.USER_OUTPUT)
        ring.stop()
        assert ring.memory[:] == b"B" * len(ring.memory)


def test_what_is_synchronized():
    check_syncs()


def test_memory_is_mapped_for_what_the_board_may_do():
    """That of dma-bufs; pages that are written have to be read into bounce buffers first."""
    found = []
    with Gpu() as gpu, Node() as node:
        fd = gpu.export(gpu.alloc(GPU_PAGE))
        for access in (Access.READ, Access.WRITE, BOTH):
            with recorded() as calls:
                pin = PinDmabuf(fd=fd, access=access)
                node.unpin(node.request(Ioctl.PIN_DMABUF, pin).handle)
                found.append([(call.name, call.direction) for call in calls()])
        os.close(fd)
    assert found == [
        [("dma_map_resource", direction), ("dma_unmap_resource", direction)]
        for direction in ("TO_DEVICE", "FROM_DEVICE", "BIDIRECTIONAL")
    ]


def test_there_are_no_launch_queues():
    """Nobody would be there to synchronize."""
    with Node() as node:
        handle = node.pages(Buffer(2 * PAGE))
        request = CreateQueue(depth=8, handle=handle, records=64, shadow=128, word=132)
        words = "do not see each other's writes to host memory at once"
        node.refuses(errno.EOPNOTSUPP, words, Ioctl.CREATE_QUEUE, request)
