# SPDX-License-Identifier: BSD-2-Clause
"""Mappings into processes: pinned GPU memory and the mailbox page; who sees what, and how long."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal

import pytest

from peerdma import uapi
from peerdma.uapi import Cache, Ioctl
from tests.system.marks import IN_GUEST
from tests.system.picoevb import GPU_PAGE, PAGE, Gpu, Node, child, ended, spawn

pytestmark = IN_GUEST

SIZE = 3 * GPU_PAGE


def test_what_is_mapped_is_the_gpus_memory():
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        view = gpu.view(va, SIZE)
        view[:] = content = os.urandom(SIZE)
        handle = node.cuda(va + 100, SIZE - 200)
        place = node.place(handle)
        assert (place.start, place.length, place.cache) == (100, SIZE, Cache.WRITE_COMBINED)
        mapped = node.map(handle)
        assert mapped[:] == content
        mapped[100:104] = b"abcd"
        assert view[100:104] == b"abcd"
        # What the board writes is seen, too.
        node.h2c(handle, 0, 1000, 1)
        node.c2h(0, handle, 1000, 1)
        assert mapped[100:1100] == b"abcd" + content[104:1100]
        mapped.close()


def test_only_the_pages_of_the_memory_are_mapped():
    """A GPU's page is larger than the memory: what else is in it stays out of view."""
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        view = gpu.view(va, SIZE)
        view[:] = content = os.urandom(SIZE)
        place = node.place(handle := node.cuda(va + 5 * PAGE + 7, PAGE))
        assert (place.start, place.length) == (7, 2 * PAGE)
        assert node.map(handle)[:] == content[5 * PAGE : 7 * PAGE]


def test_parts_and_what_processes_do_with_them():
    def process():
        with Gpu() as gpu, Node() as node:
            va = gpu.alloc(SIZE)
            gpu.view(va, SIZE)[:] = content = os.urandom(SIZE)
            place = node.place(node.cuda(va, SIZE))
            # From the middle on; across GPU pages that do not lie one after the other.
            begin = GPU_PAGE // 2
            part = mmap.mmap(node.fd, 2 * GPU_PAGE, offset=place.offset + begin)
            assert part[:] == content[begin : begin + 2 * GPU_PAGE]
            address = ctypes.addressof(ctypes.c_char.from_buffer(part))
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mremap.restype = ctypes.c_long

            # A page out of the middle: the rest is as it was.
            assert libc.munmap(ctypes.c_void_p(address + GPU_PAGE), PAGE) == 0
            assert ctypes.string_at(address, GPU_PAGE) == content[begin : begin + GPU_PAGE]
            rest = begin + GPU_PAGE + PAGE
            found = ctypes.string_at(address + GPU_PAGE + PAGE, GPU_PAGE - PAGE)
            assert found == content[rest : rest + GPU_PAGE - PAGE]

            # To another place.
            room = mmap.mmap(-1, GPU_PAGE)
            there = ctypes.addressof(ctypes.c_char.from_buffer(room))
            here = ctypes.c_void_p(address)
            moved = libc.mremap(here, GPU_PAGE, GPU_PAGE, 3, ctypes.c_void_p(there))
            assert moved == there
            assert ctypes.string_at(moved, PAGE) == content[begin : begin + PAGE]
            # It does not become larger.
            assert libc.mremap(ctypes.c_void_p(moved), GPU_PAGE, 2 * GPU_PAGE, 1) == -1
            assert ctypes.get_errno() == errno.EFAULT
            # Unpinned, both parts are gone.
            node.unpin(1)
            ctypes.string_at(moved, 1)

    assert child(process) == -signal.SIGBUS


@pytest.mark.parametrize(
    ("more", "length", "flags", "protection", "words"),
    [
        (0, SIZE, mmap.MAP_PRIVATE, 3, "must be shared"),
        (0, SIZE, mmap.MAP_SHARED, 7, "not executable"),
        (0, SIZE + PAGE, mmap.MAP_SHARED, 3, "beyond the memory pinned"),
        (PAGE, SIZE, mmap.MAP_SHARED, 3, "beyond the memory pinned"),
        (SIZE, PAGE, mmap.MAP_SHARED, 3, "nothing is mapped at offset"),
        (1 << 40, PAGE, mmap.MAP_SHARED, 3, "nothing is mapped at offset"),
    ],
)
def test_mappings_that_are_refused(more, length, flags, protection, words):
    with Gpu() as gpu, Node() as node:
        place = node.place(node.cuda(gpu.alloc(SIZE), SIZE))
        with node.refused(errno.EINVAL, words):
            mmap.mmap(node.fd, length, flags, protection, offset=place.offset + more)


def test_a_mapping_is_the_files_that_pinned():
    with Gpu() as gpu, Node() as node, Node() as other:
        place = node.place(node.cuda(gpu.alloc(SIZE), SIZE))
        with other.refused(errno.EINVAL, "nothing is mapped at offset"):
            mmap.mmap(other.fd, SIZE, offset=place.offset)


def test_a_mapping_does_not_become_executable():
    with Gpu() as gpu, Node() as node:
        mapped = node.map(node.cuda(gpu.alloc(SIZE), SIZE))
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(address), SIZE, 5) == -1
        assert ctypes.get_errno() == errno.EACCES


def test_a_child_does_not_inherit_it():
    with Gpu() as gpu, Node() as node:
        mapped = node.map(node.cuda(gpu.alloc(SIZE), SIZE))
        assert mapped[:4] is not None
        assert child(lambda: mapped[0]) == -signal.SIGSEGV
        # It may map by itself: the file is its own as well.
        place = node.place(1)
        assert child(lambda: mmap.mmap(node.fd, SIZE, offset=place.offset)[0]) == 0


def test_it_ends_with_the_pin():
    """In all processes, and for those pages that were never looked at, too."""
    with Gpu() as gpu, Node() as node:
        handle = node.cuda(gpu.alloc(SIZE), SIZE)
        place = node.place(handle)
        told, tell = os.pipe()
        ready, waits = os.pipe()

        def other():
            mapped = mmap.mmap(node.fd, SIZE, offset=place.offset)
            assert mapped[0] is not None
            os.write(waits, b"x")
            os.read(told, 1)
            mapped[0]

        pid = spawn(other)
        os.read(ready, 1)
        mapped = node.map(handle)
        assert mapped[0] is not None
        node.unpin(handle)
        os.write(tell, b"x")
        assert ended(pid) == -signal.SIGBUS
        assert child(lambda: mapped[GPU_PAGE]) == -signal.SIGSEGV  # not inherited at all

        def itself():
            again = node.cuda(gpu_of_the_child.alloc(SIZE), SIZE)
            mapped = node.map(again)
            node.unpin(again)
            mapped[GPU_PAGE]

        with Gpu() as gpu_of_the_child:
            assert child(itself) == -signal.SIGBUS


def test_a_dma_buf_and_pages_are_mapped_elsewhere():
    with Gpu() as gpu, Node() as node:
        fd = gpu.export(gpu.alloc(SIZE))
        place = uapi.MapInfo(handle=node.dmabuf(fd))
        node.refuses(errno.EOPNOTSUPP, r"provider dmabuf .*mmap\(\) the", Ioctl.MAP_INFO, place)
        os.close(fd)


def test_the_mailbox():
    with Node() as node:
        place = node.request(Ioctl.MAP_INFO, uapi.MapInfo(flags=uapi.MapFlag.MAILBOX))
        assert (place.offset, place.length, place.cache) == (0, PAGE, Cache.UNCACHED)
        words = memoryview(node.mailbox()).cast("I")
        words[0] = 0x1234
        assert words[0] == 0x1234
        node.request(Ioctl.RESET, uapi.Reset())
        # It was out of view for a moment, and is there again.
        assert words[0] in (0, 0x1234)
        for length, flags, words_of_error in (
            (2 * PAGE, mmap.MAP_SHARED, "the mailbox, or a doorbell, is one page"),
            (PAGE, mmap.MAP_PRIVATE, "must be shared"),
        ):
            with node.refused(errno.EINVAL, words_of_error):
                mmap.mmap(node.fd, length, flags)
