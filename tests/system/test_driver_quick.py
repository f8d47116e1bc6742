# SPDX-License-Identifier: BSD-2-Clause
"""The driver in a guest, in short: every kind of memory, both ways of waiting, an error in words.

More is in the other test_driver_*.py, which `make test-system` runs.
"""

import ctypes
import errno
import mmap
import os
import tempfile

import numpy as np
import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl, LegacyFlag, Op, Placement, Reason, SurfaceState, UnpinCuda
from tests.system.picoevb import GPU_PAGE, PAGE, Buffer, Gpu, Node, results

pytestmark = [pytest.mark.each_block, pytest.mark.in_guest, pytest.mark.usefixtures("guest")]


def test_pages_to_the_card_and_back():
    source, destination = Buffer(16384), Buffer(16384, b"")
    with Node() as node:
        assert node.h2c(source.address + 5, 100, 10000) > 0
        node.c2h(100, destination.address + 9, 10000)
    assert destination[9:10009] == source[5:10005]
    assert not any(destination[:9]) and not any(destination[10009:])


def test_pages_to_pages():
    source, destination = Buffer(300000), Buffer(300000, b"")
    with Node() as node:
        node.h2c2h(source.address + 3, destination.address + 5, 299990)
    assert destination[5:299995] == source[3:299993]


def test_pages_pinned_for_reading_stay_those_of_the_process():
    """Pages that nobody has written to yet, and those of a file that is mapped privately."""
    content, destination = os.urandom(2 * PAGE), Buffer(2 * PAGE, b"")
    with tempfile.TemporaryFile(dir="/dev/shm") as file, Node() as node:
        file.truncate(PAGE)
        for source in (mmap.mmap(-1, PAGE), mmap.mmap(file.fileno(), PAGE, mmap.MAP_PRIVATE)):
            address = np.frombuffer(source, np.uint8).ctypes.data
            pin = uapi.PinPages(address=address, length=PAGE, access=1)
            handle = node.request(Ioctl.PIN_PAGES, pin).handle
            source[:] = content[:PAGE]
            node.h2c(handle, 0, PAGE, 1)
            node.c2h(0, destination.address, PAGE)
            assert destination[:PAGE] == content[:PAGE]
            content = content[PAGE:] + content[:PAGE]


def test_private_and_shared_pages_side_by_side_are_read():
    content = os.urandom(PAGE)
    with tempfile.TemporaryFile(dir="/dev/shm") as file, Node() as node:
        file.write(content * 3)
        file.flush()
        source = mmap.mmap(-1, 3 * PAGE)
        address = np.frombuffer(source, np.uint8).ctypes.data
        libc = ctypes.CDLL(None)
        flags = mmap.MAP_SHARED | 0x10  # MAP_FIXED
        libc.mmap.restype = ctypes.c_void_p
        middle = ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE)
        assert libc.mmap(*middle, mmap.PROT_READ, flags, file.fileno(), 0) == address + PAGE
        pin = uapi.PinPages(address=address, length=3 * PAGE, access=1)
        handle = node.request(Ioctl.PIN_PAGES, pin).handle
        destination = Buffer(3 * PAGE, b"")
        node.h2c2h(handle, destination.address, 3 * PAGE, 1)
        assert destination[:] == bytes(PAGE) + content + bytes(PAGE)


def test_gpu_to_gpu():
    both = LegacyFlag.H2C2H_SRC_IS_HANDLE | LegacyFlag.H2C2H_DST_IS_HANDLE
    size = 3 * GPU_PAGE
    with Gpu() as gpu, Node() as node:
        source, destination = gpu.alloc(size), gpu.alloc(size)
        read, written = gpu.view(source, size), gpu.view(destination, size)
        read[:], written[:] = os.urandom(size), bytes(size)
        # Neither address nor length is a multiple of a GPU's page.
        s, d = node.cuda(source + 100, size - 200), node.cuda(destination + 36, size - 200)
        query = node.query(s)
        assert (query.placement, query.provider) == (Placement.PEER, b"nvp2p")
        node.h2c2h(s, d, size - 200, both)
        assert written[36 : size - 164] == read[100 : size - 100]
        assert not any(written[:36]) and not any(written[size - 164 :])


def test_dma_bufs():
    size = 2 * GPU_PAGE
    with Gpu() as gpu, Node() as node:
        va, host = gpu.alloc(size), gpu.export_host(size)
        gpu.view(va, size)[:] = content = os.urandom(size)
        peer = gpu.export(va)
        s, d = node.dmabuf(peer, offset=8), node.dmabuf(host)
        assert node.query(s).placement == Placement.PEER
        assert node.query(d).placement == Placement.HOST
        node.submit(Op.COPY, size - 8, src_handle=s, dst_handle=d)
        assert results(node.events(1)) == [(0, Reason.NONE)]
        assert mmap.mmap(host, size)[: size - 8] == content[8:]
        assert gpu.revoke(peer) == 0
        assert node.query(s).state == SurfaceState.REVOKED
        os.close(peer)


def test_jobs_end_in_order_of_the_engines():
    source, destination = Buffer(8000), Buffer(8000, b"")
    with Node() as node:
        s, d = node.pages(source), node.pages(destination)
        jobs = [
            node.submit(
                Op.COPY,
                1000,
                src_handle=s,
                dst_handle=d,
                src_offset=at,
                dst_offset=at,
                user_data=at,
            )
            for at in range(0, 8000, 1000)
        ]
        events = node.events(8)
    assert [(event.job, event.user_data, event.bytes) for event in events] == [
        (job, at, 1000) for job, at in zip(jobs, range(0, 8000, 1000), strict=True)
    ]
    assert destination[:8000] == source[:8000]


def test_errors_say_what_to_do():
    with Node() as node:
        node.refuses(
            errno.EINVAL, "no memory is pinned as handle 7", Ioctl.UNPIN_CUDA, UnpinCuda(handle=7)
        )
        with node.refused(errno.EINVAL, "allocated with cudaMalloc"):
            node.cuda(0x7F0000000000, GPU_PAGE)
