# SPDX-License-Identifier: BSD-2-Clause
"""What programs without rights do to memory that is pinned, and to mapped pages of boards."""

from __future__ import annotations

import array
import ctypes
import errno
import mmap
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from peerdma import uapi
from peerdma.uapi import Access, Ioctl, Op
from tests.system.hostile import libc, nodes_of_all, start
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    BOTH,
    GPU_PAGE,
    PAGE,
    Buffer,
    Gpu,
    Node,
    child,
    ended,
    results,
)

#: A part of the memory is kept for what can be moved.
GUEST = {"configuration": "identity", "append": "movablecore=256M"}
pytestmark = IN_GUEST

SIZE = 8 * PAGE
HUGE = 2 << 20
FIXED = 0x10
DONTNEED, FREE, REMOVE, DOFORK, MERGEABLE, HUGEPAGE = 4, 8, 9, 11, 12, 14
DODUMP, COLD, PAGEOUT, POPULATE, COLLAPSE = 17, 20, 21, 23, 25
MAYMOVE, MOVE_TO, LEAVE = 1, 2, 4

libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def replaced(address: int, size: int) -> None:
    """Other pages take the place of some."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED
    assert libc.mmap(address, size, 3, flags, -1, 0) == address


def moved(address: int, size: int) -> None:
    """To the place of other pages, and their place is taken by others."""
    room = mmap.mmap(-1, size)
    there = ctypes.addressof(ctypes.c_char.from_buffer(room))
    assert libc.mremap(address, size, size, MAYMOVE | MOVE_TO, there) == there
    replaced(address, size)


def advised(*advice: int) -> Callable[[int, int], None]:
    """The kernel is told something of them, or asked for something; it may refuse."""

    def advise(address: int, size: int) -> None:
        for each in advice:
            libc.madvise(address, size, each)

    return advise


def protected(address: int, size: int) -> None:
    """They cannot be accessed any more."""
    assert libc.mprotect(address, size, 0) == 0


CHANGES: dict[str, Callable[[int, int], None]] = {
    "replaced": replaced,
    "moved": moved,
    "protected": protected,
    "emptied": advised(DONTNEED),
    "freed": advised(FREE, PAGEOUT),
    "removed": advised(REMOVE),
    "paged out": advised(COLD, PAGEOUT),
    "merged": advised(MERGEABLE),
    "made huge": advised(HUGEPAGE, COLLAPSE),
}


@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE, mmap.MAP_SHARED])
def test_pinned_pages_stay_what_they_were(flags: int):
    """Whatever happens to the process's mapping of them, in the middle of transfers."""
    kept = []  # where Python would unmap is something else by then

    def program():
        with Node() as node:
            result = Buffer(SIZE, b"")
            r = node.pages(result)
            for name, change in CHANGES.items():
                source, destination = (Buffer(SIZE, None, flags) for _ in range(2))
                kept.extend((source, destination))
                content = source[:]
                s, d = node.pages(source, access=Access.READ), node.pages(destination)
                for _ in range(2):
                    node.submit(Op.COPY, SIZE, src_handle=s, dst_handle=d)
                for buffer in (source, destination):
                    change(buffer.address, SIZE)
                for _ in range(2):
                    node.submit(Op.COPY, SIZE, src_handle=s, dst_handle=d)
                result[:] = bytes(SIZE)
                node.submit(Op.COPY, SIZE, src_handle=d, dst_handle=r)
                assert results(node.events(5)) == [(0, 0)] * 5, name
                assert result[:] == content, name
                if change in (replaced, moved):
                    at = destination.address
                    assert ctypes.string_at(at, SIZE) == bytes(SIZE), name
                for handle in (s, d):
                    node.unpin(handle)

    with nodes_of_all():
        assert ended(start(program)) == 0


def test_huge_pages_that_are_split():
    """A transfer over the place where one is: each half is the program's or the board's."""

    def program():
        buffer = Buffer(2 * HUGE, b"", mmap.MAP_PRIVATE)
        first = -(-buffer.address // HUGE) * HUGE
        middle = first - buffer.address + HUGE // 2
        assert libc.madvise(first, HUGE, HUGEPAGE) == 0
        assert libc.madvise(first, HUGE, COLLAPSE) == 0
        around = slice(middle - PAGE, middle + PAGE)
        buffer[around] = content = os.urandom(2 * PAGE)
        result = Buffer(2 * PAGE, b"")
        with Node() as node:
            handle = node.pages(buffer, first - buffer.address, HUGE)
            assert node.query(handle).segments == 1
            for change in (protected, advised(DONTNEED), moved, replaced):
                change(first + HUGE // 2, HUGE // 2)
                result[:] = bytes(2 * PAGE)
                node.submit(
                    Op.COPY,
                    2 * PAGE,
                    src_handle=handle,
                    src_offset=HUGE // 2 - PAGE,
                    dst_handle=node.pages(result),
                )
                assert results(node.events(1)) == [(0, 0)]
                assert result[:] == content
            assert ctypes.string_at(first + HUGE // 2 - PAGE, 2 * PAGE) == (
                content[:PAGE] + bytes(PAGE)
            )
        os._exit(0)  # Python would unmap them

    with nodes_of_all():
        assert ended(start(program)) == 0


def movable(buffer: Buffer) -> int:
    """How many of its pages are where all has to stay movable."""
    pattern = r"zone +Movable\n.*?spanned +(\d+)\n.*?start_pfn: +(\d+)\n"
    found = re.search(pattern, Path("/proc/zoneinfo").read_text(), re.DOTALL)
    assert found
    spanned, start = map(int, found.groups())
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(buffer.address // PAGE * 8)
        pages = array.array("Q", file.read(len(buffer) // PAGE * 8))
    return sum(start <= page & (1 << 55) - 1 < start + spanned for page in pages)


@pytest.mark.parametrize("access", [1, 3])
def test_pinned_pages_leave_memory_that_has_to_stay_movable(access: int):
    """As that which may be unplugged: a pin for long would keep it from that."""
    buffer, result = Buffer(SIZE, None, mmap.MAP_PRIVATE), Buffer(SIZE, b"")
    content = buffer[:]
    assert movable(buffer)
    with Node() as node:
        handle = node.pages(buffer, access=access)
        assert not movable(buffer)
        node.h2c2h(handle, result.address, SIZE, 1)
    assert content == buffer[:] == result[:]


def test_pages_of_a_board_are_no_memory():
    """They are not pinned, emptied, inherited, dumped, mapped twice, or read by other processes."""

    def program():
        with Gpu() as gpu, Node() as node:
            handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
            for mapped in (node.map(handle), node.mailbox()):
                at = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
                mapped[:4] = b"here"
                pin = uapi.PinPages(address=at, length=PAGE, access=BOTH)
                node.refuses(errno.EFAULT, "not all", Ioctl.PIN_PAGES, pin)
                with node.refused(errno.EFAULT, "not all"):
                    node.h2c(at, 0, 4)
                for advice in (DONTNEED, FREE, REMOVE, DOFORK, DODUMP, COLD, PAGEOUT, POPULATE):
                    assert libc.madvise(at, PAGE, advice) == -1, advice
                advised(MERGEABLE, HUGEPAGE, COLLAPSE)(at, PAGE)
                # Once more, and leaving the old place mapped.
                assert libc.mremap(at, 0, PAGE, MAYMOVE, None) == -1
                assert libc.mremap(at, PAGE, PAGE, MAYMOVE | LEAVE, None) == -1
                assert mapped[:4] == b"here"
                assert child(lambda at=at: ctypes.string_at(at, 1)) == -signal.SIGSEGV
                with open("/proc/self/mem", "rb", buffering=0) as memory:
                    memory.seek(at)
                    with pytest.raises(OSError, match="Input/output error"):
                        memory.read(4)

    with nodes_of_all():
        assert ended(start(program)) == 0


def test_pages_of_a_board_that_is_gone_are_gone_wherever_they_were_moved():
    def program():
        with Gpu() as gpu, Node() as node:
            mapped = node.map(node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE))
            at = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
            places, rooms = [at], [mmap.mmap(-1, PAGE) for _ in range(2)]
            for part, room in zip((PAGE, 5 * PAGE), rooms, strict=True):
                there = ctypes.addressof(ctypes.c_char.from_buffer(room))
                assert libc.mremap(at + part, PAGE, PAGE, MAYMOVE | MOVE_TO, there) == there
                places.append(there)
            assert libc.munmap(at + 9 * PAGE, PAGE) == 0
            assert libc.mprotect(at, PAGE, mmap.PROT_READ) == 0
            for place in places:
                assert ctypes.string_at(place, 1)
            node.unpin(1)
            zero, page = os.open("/dev/zero", os.O_RDONLY), os.pipe()[1]
            for place in places:
                # By the kernel's hand, which says EFAULT instead of a signal.
                assert libc.read(zero, place, 1) == -1
                assert libc.write(page, ctypes.c_void_p(place), ctypes.c_size_t(1)) == -1
                assert ctypes.get_errno() == errno.EFAULT
            ctypes.string_at(places[1], 1)

    with nodes_of_all():
        assert ended(start(program)) == -signal.SIGBUS
