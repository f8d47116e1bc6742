# SPDX-License-Identifier: BSD-2-Clause
"""Kinds of memory: pages, a discrete GPU's both ways, dma-bufs, Tegra's; their errors in words."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile

import numpy as np
import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl, Op, PinFlag, Placement, Reason, SurfaceFeature, SurfaceState
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    BOTH,
    GPU_PAGE,
    PAGE,
    Buffer,
    Gpu,
    Later,
    Node,
    callbacks,
    child,
    remove,
    results,
    setting,
    shell,
    tegra,
    tegra_counts,
)

pytestmark = IN_GUEST

SIZE = 2 * GPU_PAGE


# Pages ---------------------------------------------------------------------------------------


def test_read_only_pages_are_read():
    """A mapping that only allows reading, of a file."""
    content = os.urandom(PAGE)
    with tempfile.TemporaryFile(dir="/dev/shm") as file, Node() as node:
        file.write(content)
        file.flush()
        source = mmap.mmap(file.fileno(), PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
        address = np.frombuffer(source, np.uint8).ctypes.data
        destination = Buffer(PAGE, b"")
        node.h2c(address, 0, PAGE)
        node.c2h(0, destination.address, PAGE)
        assert destination[:] == content
        pin = uapi.PinPages(address=address, length=PAGE, access=1)
        assert node.request(Ioctl.PIN_PAGES, pin).handle
        pin.access = BOTH
        node.refuses(errno.EFAULT, "not all writable memory", Ioctl.PIN_PAGES, pin)


def test_pinned_pages_are_the_parents_after_fork():
    destination = Buffer(PAGE, b"", mmap.MAP_PRIVATE)
    with Node() as node:
        source = Buffer(PAGE)
        node.h2c(source.address, 0, PAGE)
        handle = node.pages(destination)

        def write():
            destination[:] = b"c" * PAGE

        assert child(write) == 0
        node.c2h(0, handle, PAGE, 1)
    assert destination[:] == source[:]


def test_unmapped_pages_stay_pinned():
    source = Buffer(SIZE)
    with Node() as node:
        handle = node.pages(source)
        query = node.query(handle)
        assert (query.length, query.provider, query.peer) == (SIZE, b"pages", b"")
        assert query.features == SurfaceFeature.SURVIVES_FREE
        libc = ctypes.CDLL(None)
        content = source[:]
        assert libc.munmap(ctypes.c_void_p(source.address), ctypes.c_size_t(SIZE)) == 0
        libc.mmap.restype = ctypes.c_void_p
        # Something has to be there when Python unmaps it once more.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
        libc.mmap(ctypes.c_void_p(source.address), ctypes.c_size_t(SIZE), 3, flags, -1, 0)
        destination = Buffer(SIZE, b"")
        node.h2c2h(handle, destination.address, SIZE, 1)
        assert destination[:] == content


# A discrete GPU ------------------------------------------------------------------------------


def both_ways(function):
    """The test is run with persistent pins, and with those that are called back."""

    def run(persistent: bool):
        if persistent:
            function(persistent)
            return
        with callbacks():
            function(persistent)

    run.__name__ = function.__name__
    return pytest.mark.parametrize("persistent", [True, False])(run)


@both_ways
def test_gpu_memory_at_any_place(persistent):
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(4 * GPU_PAGE)
        view = gpu.view(va, 4 * GPU_PAGE)
        for start, length in ((0, 1), (1, GPU_PAGE), (65535, 2), (100, 3 * GPU_PAGE), (4096, 8192)):
            view[:] = content = os.urandom(4 * GPU_PAGE)
            handle = node.cuda(va + start, length)
            query = node.query(handle)
            assert query.length == length
            assert query.aperture_size == 64 << 20
            assert os.path.exists(f"/sys/bus/pci/devices/{query.peer.decode()}")
            assert bool(query.features & SurfaceFeature.SURVIVES_FREE) == persistent
            destination = Buffer(4 * GPU_PAGE, b"")
            node.h2c2h(handle, destination.address + 3, length, 1)
            assert destination[3 : length + 3] == content[start : start + length]
            assert not any(destination[length + 3 :])
            destination[:] = written = os.urandom(4 * GPU_PAGE)
            node.h2c2h(destination.address + 1, handle, length, 2)
            assert view[:start] == content[:start]
            assert view[start : start + length] == written[1 : length + 1]
            assert view[start + length :] == content[start + length :]
            node.unpin(handle)
        assert gpu.counts()[1:3] == (0, 0)


def test_what_persistent_pins_outlive():
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        view = gpu.view(va, SIZE)
        handle = node.cuda(va, SIZE)
        gpu.free(va)
        assert node.query(handle).state == SurfaceState.LIVE
        source = Buffer(SIZE)
        node.h2c2h(source.address, handle, SIZE, 2)
        assert view[:] == source[:]


@pytest.mark.parametrize(
    ("name", "value", "number", "words"),
    [
        ("no_persistent", "1", errno.EOPNOTSUPP, "no persistent pins .*callback=1"),
        ("get_error", "-12", errno.ENOMEM, "BAR1 has no room .*Resizable BAR"),
        ("get_error", "-22", errno.EINVAL, "not GPU memory .*GeForce"),
        ("get_error", "-5", errno.EIO, "does not pin"),
        ("map_error", "-524", errno.EOPNOTSUPP, "peer-to-peer between their slots .*IOMMU"),
        ("map_error", "-5", errno.EIO, "an IOMMU is in the way"),
        ("page_kb", "4", errno.EOPNOTSUPP, "pages of type 0, only 64 and 128 KiB"),
        ("table_version", str(0x00030000), errno.EOPNOTSUPP, "version 3.0, .*build it again"),
        ("mapping_version", str(0x00010000), errno.EOPNOTSUPP, "version 1.0, .*build it again"),
    ],
)
def test_gpu_memory_that_is_refused(name, value, number, words):
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        with setting("simgpu", name, value):
            node.refuses(number, words, Ioctl.PIN_CUDA, uapi.PinCuda(va=va, size=SIZE))
        assert gpu.counts()[1:3] == (0, 0)
        node.unpin(node.cuda(va, SIZE))


def test_larger_gpu_pages():
    with Gpu() as gpu, Node() as node, setting("simgpu", "page_kb", 128):
        # Pages of 128 KiB have to be contiguous in the aperture, which those of 64 KiB are not:
        # it is enough to see how they are counted.
        va = gpu.alloc(4 * GPU_PAGE)
        query = node.query(node.cuda(va + 5, 3 * GPU_PAGE))
        assert (query.length, query.segments) == (3 * GPU_PAGE, 2)


def test_without_a_provider_it_is_said_which_module_is_missing():
    remove("peerdma_nvp2p")
    try:
        with Gpu() as gpu, Node() as node:
            assert node.info().providers == b"pages dmabuf"
            pin = uapi.PinCuda(va=gpu.alloc(SIZE), size=SIZE)
            node.refuses(errno.EFAULT, "load peerdma_nvp2p .*open kernel", Ioctl.PIN_CUDA, pin)
            # By pointer it is host memory then, as on a Jetson.
            source = Buffer(SIZE)
            handle = node.cuda(source.address + 5, PAGE)
            assert node.query(handle).provider == b"pages"
            node.h2c(handle, 0, PAGE, 1)
    finally:
        shell("insmod /run/guest/peerdma_nvp2p.ko")


def test_memory_of_the_other_kind_of_gpu_names_the_other_module():
    """A Jetson's is host memory; a discrete GPU's has an address, but no pages of the process."""
    source = Buffer(SIZE)
    # Below all that is mapped, as above it may be no address of a process.
    nowhere = uapi.PinCuda(va=source.address - (1 << 40), size=SIZE)
    with Node() as node:
        pin = uapi.PinCuda(va=source.address, size=SIZE)
        words = "on a Jetson, load peerdma_nvp2p_tegra instead of peerdma_nvp2p$"
        node.refuses(errno.EINVAL, words, Ioctl.PIN_CUDA, pin)
    with tegra(), Node() as node:
        words = "discrete GPU's, load peerdma_nvp2p instead of peerdma_nvp2p_tegra$"
        node.refuses(errno.EFAULT, words, Ioctl.PIN_CUDA, nowhere)
        assert tegra_counts() == (0, 0)


def test_only_its_process_pins_it():
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)

        def other():
            with node.refused(errno.EINVAL, "that this process allocated"):
                node.cuda(va, SIZE)

        assert child(other) == 0


# dma-bufs ------------------------------------------------------------------------------------


def test_dma_bufs_that_are_refused():
    with Gpu() as gpu, Node() as node:
        peer, host = gpu.export(gpu.alloc(SIZE)), gpu.export_host(SIZE)
        pin = lambda **k: (Ioctl.PIN_DMABUF, uapi.PinDmabuf(**{"access": BOTH, **k}))  # noqa: E731
        for number, words, request in (
            (errno.EINVAL, "0 bytes from 131072 on are beyond", pin(fd=host, offset=SIZE)),
            (errno.EINVAL, "wrap around", pin(fd=host, offset=1, length=2**64 - 1)),
            (errno.EINVAL, "beyond", pin(fd=host, offset=1, length=SIZE)),
            (errno.EINVAL, "not read, write or both", pin(fd=host, access=0)),
            (
                errno.EOPNOTSUPP,
                "put the dma-buf into host memory",
                pin(fd=host, flags=PinFlag.REQUIRE_PEER),
            ),
        ):
            node.refuses(number, words, *request)
        handle = node.dmabuf(peer, flags=PinFlag.REQUIRE_PEER)
        assert node.query(handle).placement == Placement.PEER
        node.refuses(errno.EOPNOTSUPP, r"mmap\(\) the", Ioctl.MAP_INFO, uapi.MapInfo(handle=handle))
        gpu.revoke(peer)
        node.refuses(errno.EOPNOTSUPP, "cannot be pinned and mapped", *pin(fd=peer))
        os.close(peer)
        os.close(host)


def test_a_part_of_a_dma_buf():
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        view = gpu.view(va, SIZE)
        view[:] = content = os.urandom(SIZE)
        fd = gpu.export(va)
        handle = node.dmabuf(fd, offset=65000, length=1000)
        os.close(fd)
        gpu.free(va)
        source = Buffer(PAGE)
        node.h2c2h(source.address, handle, 1000, 2)
        assert view[65000:66000] == source[:1000]
        assert view[:65000] + view[66000:] == content[:65000] + content[66000:]


def test_a_dma_buf_that_moves_is_pinned_again():
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        gpu.view(va, SIZE)[:] = content = os.urandom(SIZE)
        fd = gpu.export(va)
        handle = node.dmabuf(fd)
        assert gpu.revoke(fd, move=True) == 0
        assert node.query(handle).state == SurfaceState.REVOKED
        with node.refused(errno.ESTALE, "freed or moved by its owner: unpin it"):
            node.load(handle, 1)
        node.unpin(handle)
        again, destination = node.dmabuf(fd), Buffer(SIZE, b"")
        node.h2c2h(again, destination.address, SIZE, 1)
        assert destination[:] == content
        os.close(fd)


def test_a_transfer_waits_for_who_writes_to_a_dma_buf():
    with Gpu() as gpu, Node() as node:
        fd = gpu.export(gpu.alloc(SIZE))
        handle = node.dmabuf(fd)
        gpu.busy(fd, True)
        later = Later(gpu.busy, fd, False)
        jobs = node.info().jobs
        node.load(handle, 1)
        assert later.begun
        assert results(node.events(1)) == [(0, Reason.NONE)]
        assert node.info().jobs == jobs + 1
        gpu.busy(fd, True)
        with node.refused(errno.ETIMEDOUT, "others are still using the dma-buf"):
            node.submit(Op.C2H, PAGE, dst_handle=handle)
        os.close(fd)


# Tegra ---------------------------------------------------------------------------------------


def test_tegra_memory():
    with tegra(), Node() as node:
        assert node.info().providers == b"pages dmabuf nvp2p-tegra"
        source, destination = Buffer(SIZE), Buffer(SIZE, b"")
        # Not from the first page on: that is called back for whatever is unmapped before it.
        s = node.cuda(source.address + 10, 70000)
        d = node.cuda(destination.address + PAGE, 70000)
        assert tegra_counts() == (2, 2)
        node.h2c2h(s, d, 70000, 3)
        assert destination[PAGE : PAGE + 70000] == source[10:70010]
        place = node.place(s)
        assert (place.start, place.cache) == (10, uapi.Cache.CACHED)
        assert node.map(s)[10:70010] == source[10:70010]
        node.unpin(s)
        assert tegra_counts() == (1, 1), (tegra_counts(), node.query(d).state)


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("fail_get", errno.EOPNOTSUPP, r"memory from cudaHostAlloc\(\), not from cudaMalloc\(\)"),
        ("fail_map", errno.EIO, "cannot be mapped for this board"),
    ],
)
def test_tegra_memory_that_is_refused(name, number, words):
    memory = Buffer(SIZE)
    with tegra(), Node() as node, setting("simtegra", name, 1):
        pin = uapi.PinCuda(va=memory.address, size=SIZE)
        node.refuses(number, words, Ioctl.PIN_CUDA, pin)
        assert tegra_counts() == (0, 0)
