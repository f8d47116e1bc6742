# SPDX-License-Identifier: BSD-2-Clause
"""Mappings of files that are pinned: of those in memory, and of those on a disk."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import tempfile

import numpy as np
import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl
from tests.system.marks import IN_GUEST
from tests.system.picoevb import BOTH, PAGE, Buffer, Node, child

pytestmark = IN_GUEST

PUNCH_HOLE, KEEP_SIZE = 2, 1


def test_what_is_on_a_disk_is_not_written_to_by_the_board():
    """Pinned for long, its pages could change while the file system writes them: the kernel refuses
    that. They can be read, and a private mapping can be written to."""
    with open("/dev/ram0", "r+b") as file, Node() as node:
        shared = mmap.mmap(file.fileno(), PAGE)
        private = mmap.mmap(file.fileno(), PAGE, mmap.MAP_PRIVATE)
        at, own = (np.frombuffer(m, np.uint8).ctypes.data for m in (shared, private))
        shared[:] = content = os.urandom(PAGE)
        node.h2c(at, 0, PAGE)
        with node.refused(
            errno.EFAULT, r"a shared mapping of a file on a disk is none, .*write\(\)"
        ):
            node.c2h(0, at, PAGE)
        node.c2h(0, own + 1, PAGE - 1)
        assert private[1:] == content[:-1]
        assert shared[:] == content


def test_pages_of_a_file_are_written_back():
    """What the board wrote is dirty: it is in the file, whatever the process does."""
    content = Buffer(PAGE)
    with open("/run/tmp/file", "w+b") as file, Node() as node:
        file.truncate(PAGE)
        mapped = mmap.mmap(file.fileno(), PAGE)
        node.h2c(content.address, 0, PAGE)
        node.c2h(0, np.frombuffer(mapped, np.uint8).ctypes.data, PAGE)
        assert os.pread(file.fileno(), PAGE, 0) == content[:]


def truncated(fd: int) -> None:
    """The file ends before its only pages."""
    os.ftruncate(fd, 0)


def punched(fd: int) -> None:
    """The file has a hole in place of its only pages."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    assert libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, 2 * PAGE) == 0


@pytest.mark.parametrize("how", ["truncated", "punched"])
def test_pages_that_their_file_has_no_more(how: str):
    """They are the board's until they are unpinned, and not the file's, which gets others."""
    content, result = Buffer(2 * PAGE), Buffer(2 * PAGE, b"")
    with tempfile.TemporaryFile(dir="/dev/shm") as file, Node() as node:
        file.write(content[:])
        file.flush()
        mapped = mmap.mmap(file.fileno(), 2 * PAGE)
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        pin = uapi.PinPages(address=address, length=2 * PAGE, access=BOTH)
        handle = node.request(Ioctl.PIN_PAGES, pin).handle
        {"truncated": truncated, "punched": punched}[how](file.fileno())
        node.h2c2h(handle, result.address, 2 * PAGE, 1)
        assert result[:] == content[:]
        content[:] = os.urandom(2 * PAGE)
        node.h2c2h(content.address, handle, 2 * PAGE, 2)
        node.h2c2h(handle, result.address, 2 * PAGE, 1)
        assert result[:] == content[:]
        if how == "truncated":
            assert child(lambda: mapped[0]) == -signal.SIGBUS
            os.ftruncate(file.fileno(), 2 * PAGE)
        assert mapped[:] == bytes(2 * PAGE)
        mapped[:4] = b"next"
        node.unpin(handle)
        assert os.pread(file.fileno(), 8, 0) == b"next" + bytes(4)


def test_pinned_pages_of_a_disk_are_written_back_and_read():
    """What the program writes while the board reads them: both get it."""
    result = Buffer(PAGE, b"")
    with open("/dev/ram0", "r+b", buffering=0) as file, Node() as node:
        mapped = mmap.mmap(file.fileno(), PAGE)
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        pin = uapi.PinPages(address=address, length=PAGE, access=1)
        handle = node.request(Ioctl.PIN_PAGES, pin).handle
        # Past the pages in memory.
        disk = os.open("/dev/ram0", os.O_RDONLY | os.O_DIRECT)
        for _ in range(5):
            mapped[:] = content = os.urandom(PAGE)
            node.load(handle, 3, PAGE)
            os.fsync(file.fileno())
            node.events(3)
            node.h2c2h(handle, result.address, PAGE, 1)
            assert result[:] == content
            assert os.preadv(disk, [result.memory], 0) == PAGE
            assert result[:] == content
        os.close(disk)
