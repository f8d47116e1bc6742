# SPDX-License-Identifier: BSD-2-Clause
"""Boards by VFIO on a stand-in for the kernel: what a guest cannot show, above all failures."""

from __future__ import annotations

import errno
import functools
import gc
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

import peerdma
from peerdma.memory.memory import HostArray
from peerdma.regs import BAR_DMA, CHANNEL, EXTENSION, IRQ, Status
from peerdma.vfio.structures import Irq
from peerdma.vfio_pci import device, ioctls, place, platform, space
from peerdma.vfio_pci.ioctls import IoasRange
from peerdma.vfio_pci.place import Place
from peerdma.vfio_pci.platform import VfioPlatform
from peerdma.vfio_pci.space import Addresses
from tests.host.conftest import open_files
from tests.host.vfio_pci.fake_vfio import ADDRESS, FakeVfio

PAGE = 4096


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """The kernel; a board that is gone leaves nothing in it, and no descriptors here."""
    fake = FakeVfio(tmp_path)
    monkeypatch.setattr(ioctls.fcntl, "ioctl", fake.ioctl)
    monkeypatch.setattr(platform, "Place", functools.partial(Place, root=tmp_path))
    real = os.open

    def opens(path, flags, *rest, **options):
        # The function's own node is the device, too.
        is_device = str(path).endswith("vfio3") and not flags & os.O_CREAT
        path = f"/proc/self/fd/{fake.file}" if is_device else path
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(space.os, "open", opens)
    before = open_files()
    yield fake
    assert not fake.mapped and not fake.master
    deadline = time.monotonic() + 10
    while open_files() != before:  # a thread of each board closes some
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(fake.file)


@pytest.fixture(params=["container", "iommufd"])
def way(request, kernel):
    """The kernel with each way to an address space."""
    if request.param == "iommufd":
        kernel.iommufd()
    return kernel


def array(nbytes: int = 10_000, offset: int = 100) -> HostArray:
    return HostArray(np.zeros(nbytes + PAGE, np.uint8)[offset : offset + nbytes])


def test_a_board_is_opened_used_and_closed(way):
    with_iommufd = (way.root / "dev/iommu").exists()
    board = VfioPlatform(ADDRESS)
    assert way.master and ("IOAS_ALLOC" in way.calls) == with_iommufd
    assert board.function.identity == (0x10EE, 0x7021, 0x10EE, 0x5045)
    assert board.function.interrupt is Irq.MSIX
    memory = array()
    (window,), path, _ = board.map(memory)
    # The virtual address is the bus address, and whole pages are mapped.
    assert (window.address, window.nbytes) == (memory.address, 10_000)
    assert way.mapped == {window.base: (window.base, window.size, 3)}
    assert path is peerdma.memory.memory.DataPath.HOST_MEMORY
    ring, address = board.ring(128 << 10)
    assert (len(ring), address) == (128 << 10, 0x1000_0000)
    board.unmap([window])
    assert list(way.mapped) == [address]
    board.function.close()
    board.function.close()
    assert way.calls.count("DEVICE_RESET") == 2
    assert not way.eventfds.keys() - {Irq.ERROR, Irq.REQUEST}


def test_read_only_memory_is_mapped_for_reading(way):
    board = VfioPlatform(ADDRESS)
    memory = np.zeros(100, np.uint8)
    memory.flags.writeable = False
    (window,), *_ = board.map(HostArray(memory))
    assert way.mapped[window.base][2] == 1
    board.function.close()


def test_arrays_that_share_a_page(way):
    board = VfioPlatform(ADDRESS)
    memory = np.zeros(8192, np.uint8)
    windows = [board.map(HostArray(memory[at : at + 10]))[0][0] for at in (0, 16, 32)]
    assert len({window.base for window in windows}) == 3
    assert len({window.address % PAGE for window in windows}) == 3
    board.unmap(windows)
    board.function.close()


def test_nothing_is_left_of_a_board_that_nobody_closed(way):
    board = VfioPlatform(ADDRESS)
    board.map(array())
    del board
    gc.collect()
    assert not way.mapped and not way.master


OPENING = {
    "container": (
        "GET_API_VERSION GROUP_GET_STATUS GROUP_SET_CONTAINER SET_IOMMU GROUP_GET_DEVICE_FD "
        "IOMMU_GET_INFO DEVICE_GET_INFO DEVICE_GET_REGION_INFO DEVICE_SET_IRQS"
    ),
    "iommufd": (
        "DEVICE_BIND_IOMMUFD IOAS_ALLOC DEVICE_ATTACH_IOMMUFD_PT IOAS_IOVA_RANGES DEVICE_GET_INFO "
        "DEVICE_GET_REGION_INFO DEVICE_SET_IRQS"
    ),
}


@pytest.mark.parametrize(
    ("name", "request_name"), [(way, name) for way in OPENING for name in OPENING[way].split()]
)
def test_each_request_of_opening_may_fail(kernel, name, request_name):
    if name == "iommufd":
        kernel.iommufd()
    kernel.failures[request_name] = errno.EIO
    with pytest.raises((peerdma.BoardNotFound, peerdma.BoardLost), match=ADDRESS):
        VfioPlatform(ADDRESS)
    assert request_name in kernel.calls


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOMEM, r"ulimit -l.*sudo prlimit --pid \d+ --memlock"),
        (errno.EFAULT, "not plain memory"),
        (errno.ENOSPC, "too many pieces"),
    ],
)
def test_memory_that_the_kernel_refuses(way, number, words):
    board = VfioPlatform(ADDRESS)
    way.failures |= {"IOMMU_MAP_DMA": number, "IOAS_MAP": number}
    memory = array()
    with pytest.raises(peerdma.PinError, match=words) as caught:
        board.map(memory)
    assert caught.value.errno == number
    way.failures.clear()
    (window,), *_ = board.map(memory)  # at the address that was free again
    assert window.address == memory.address
    board.function.close()


def test_bus_addresses_that_are_reserved_are_not_used(way):
    """An IOMMU of 32 bits, which has none of this process's addresses."""
    way.ranges = (IoasRange(0, 0x1001_FFFF), IoasRange(0x1010_0000, 0x1040_FFFF))
    board = VfioPlatform(ADDRESS)
    memories = [array(offset=at) for at in (5, 6, 7)]
    windows = [board.map(memory)[0][0] for memory in memories]
    for memory, window in zip(memories, windows, strict=True):
        assert window.address % PAGE == memory.address % PAGE
        ends = window.base, window.base + window.size - 1
        assert any(r.start <= ends[0] and ends[1] <= r.last for r in way.ranges)
    with pytest.raises(peerdma.PinError, match="no 67112960 bus addresses left"):
        board.map(HostArray(np.zeros((64 << 20) + 1, np.uint8)[1:]))
    board.function.close()


def test_kernels_that_tell_no_ranges(kernel):
    kernel.ranges = None
    board = VfioPlatform(ADDRESS)
    (window,), *_ = board.map(array())
    assert 0x1000_0000 <= window.base < 1 << 39
    board.function.close()


def test_addresses_are_taken_and_released():
    addresses = Addresses([IoasRange(0, (1 << 32) - 1)])
    first = addresses.take(PAGE, 0x2000_0000)
    assert first == 0x2000_0000
    other = addresses.take(PAGE, first)
    assert other == 0x1000_0000
    third = addresses.take(PAGE, first - PAGE)  # just before
    assert third == first - PAGE
    overlapping = addresses.take(3 * PAGE, third - PAGE)
    assert overlapping > other + PAGE
    for start in (first, third):
        addresses.release(start)
    assert addresses.take(2 * PAGE, third) == third
    assert addresses.take(PAGE, (1 << 32) - PAGE) == (1 << 32) - PAGE
    assert addresses.take(2 * PAGE, (1 << 32) - PAGE) != (1 << 32) - PAGE


@pytest.mark.parametrize(
    ("irq", "words"), [(Irq.ERROR, "not correctable"), (Irq.REQUEST, "the system asked for it")]
)
def test_a_board_that_the_system_takes_is_given_back_at_once(way, irq, words):
    board = VfioPlatform(ADDRESS)
    (window,), *_ = board.map(array())
    board.ring(4096)
    assert way.master
    os.eventfd_write(way.eventfds[irq], 1)
    began = time.monotonic()
    with pytest.raises(peerdma.BoardLost, match=words):
        board.function.wait_interrupt(60)
    board.function.wait(began + 60)
    assert time.monotonic() - began < 30
    assert not way.mapped and not way.master
    calls = [
        lambda: board.device.read32(BAR_DMA[0], 0),
        lambda: board.device.write32(BAR_DMA[0], 0, 0),
        board.function.take_interrupt,
        lambda: board.map(array()),
        lambda: board.ring(4096),
        board.mailbox,
    ]
    for call in calls:
        with pytest.raises(peerdma.BoardLost, match=words):
            call()
    board.unmap([window])
    assert board.function.lost
    board.function.close()


def test_memory_that_the_kernel_does_not_unmap(way):
    """The board is given up, which unmaps all."""
    board = VfioPlatform(ADDRESS)
    (window,), *_ = board.map(array())
    failures = {"IOMMU_UNMAP_DMA": errno.EIO, "IOAS_UNMAP": errno.EIO}
    way.failures |= failures
    board.unmap([window])
    way.mapped.clear()  # the kernel's part, with the descriptors
    assert board.function.lost and not way.master
    board.function.close()


def test_a_program_that_ends_gives_the_board_back_first(way):
    board = VfioPlatform(ADDRESS)
    board.map(array())
    device._open._end_all()
    assert not way.mapped and not way.master
    with pytest.raises(peerdma.BoardLost, match="the program ends"):
        board.function.take_interrupt()
    board.function.close()


def test_registers_that_read_all_ones(kernel):
    board = VfioPlatform(ADDRESS)
    read = functools.partial(board.device.read32, BAR_DMA[0])
    kernel.register(0x40, 0xFFFF_FFFF)
    assert read(0x40) == 0xFFFF_FFFF  # others do not
    kernel.register(CHANNEL.base, 0xFFFF_FFFF)
    with pytest.raises(peerdma.BoardLost, match="lost its link or its power"):
        read(0x40)
    assert not kernel.mapped and not kernel.master
    board.function.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_registers_that_cannot_be_mapped_are_accessed_by_the_kernel(kernel, monkeypatch, ordered):
    """Behind an MSI-X table, and on processors without the order of stores."""
    monkeypatch.setattr(device, "_ORDERED", ordered)
    kernel.sparse = 0x8000
    board = VfioPlatform(ADDRESS)
    for offset in (0x7FFC, 0x9100):
        board.device.write32(BAR_DMA[0], offset, 0x12345678 + offset)
        assert kernel.register(offset) == 0x12345678 + offset
        assert board.device.read32(BAR_DMA[0], offset) == 0x12345678 + offset
    assert len(board.mailbox().memory) == PAGE
    board.function.close()


@pytest.mark.parametrize("magic", [True, False])
def test_a_function_that_cannot_be_reset(kernel, caplog, magic):
    kernel.resets = False
    kernel.register(EXTENSION.address("magic"), None if magic else 0)
    VfioPlatform(ADDRESS).function.close()
    assert "DEVICE_RESET" not in kernel.calls
    assert kernel.register(EXTENSION.address("soft_reset")) == magic
    (record,) = caplog.records
    assert ("used the soft reset" if magic else "has no soft reset") in record.getMessage()


@pytest.mark.parametrize("idle", [True, False])
def test_nothing_is_written_before_the_soft_reset_has_been(kernel, monkeypatch, idle):
    """But not for ever: a channel that stays busy is found when the engine is set up."""
    status, vector = CHANNEL.address("status"), IRQ.address("channel_vector0")
    kernel.resets, slept = False, []

    def sleep(seconds):
        assert kernel.register(vector) == 5
        slept.append(seconds)
        kernel.register(status, len(slept) < 3 if idle else 1)

    # The module alone: the board's other threads sleep as ever.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(platform, "time", clock)
    monkeypatch.setattr(platform, "_RESET_SECONDS", 60.0 if idle else 0.01)
    kernel.register(status, Status.BUSY)
    kernel.register(vector, 5)
    board = VfioPlatform(ADDRESS)
    assert slept and kernel.register(vector) == 0
    kernel.register(status, 0)
    board.function.close()


# What keeps a board from being opened -----------------------------------------------------------


def test_addresses_of_functions():
    assert Place("0A:1F.7").address == "0000:0a:1f.7"
    for wrong in ("", "picoevb", "01:00", "0000:01:00.8", "../../0000:01:00.0"):
        with pytest.raises(ValueError, match="takes the address of a PCI function"):
            peerdma.open(f"vfio:{wrong}")


def test_arguments_are_for_boards_that_are_started():
    with pytest.raises(ValueError, match="for a board that is started"):
        peerdma.open("vfio:0000:01:00.0", arguments=["--no-msix"])


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ("xdma", "is bound to xdma.*driverctl set-override.*driver/unbind"),
        ("", "has no driver; VFIO needs it bound to vfio-pci"),
    ],
)
def test_a_board_that_vfio_does_not_have(kernel, driver, words):
    kernel.bind(ADDRESS, driver)
    with pytest.raises(peerdma.BoardNotFound, match=words):
        VfioPlatform(ADDRESS)


def test_no_such_function_and_no_iommu(kernel):
    with pytest.raises(peerdma.BoardNotFound, match="there is no PCI function 0000:02"):
        VfioPlatform("02:00.0")
    (kernel.folder / "iommu_group").unlink()
    with pytest.raises(peerdma.BoardNotFound, match="VFIO needs an IOMMU"):
        VfioPlatform(ADDRESS)


def test_a_group_with_functions_of_other_drivers(way):
    way.viable = False
    way.failures["DEVICE_BIND_IOMMUFD"] = errno.EPERM
    way.neighbour("0000:01:00.1", "snd_hda_intel")
    way.neighbour("0000:00:01.0", "pcieport")
    with pytest.raises(peerdma.BoardNotFound, match=r"0000:01:00.1 \(snd_hda_intel\)\. ") as caught:
        VfioPlatform(ADDRESS)
    assert "set-override 0000:01:00.1 vfio-pci" in str(caught.value)


@pytest.mark.parametrize("node", ["vfio", "7"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "sudo chown .USER"),
        (errno.EBUSY, "another program uses the board.*sudo fuser -v"),
        (errno.ENOENT, "sudo modprobe vfio-pci"),
    ],
)
def test_a_node_that_cannot_be_opened(kernel, monkeypatch, node, number, words):
    real = os.open

    def refuses(path, *rest, **options):
        if str(path).endswith(f"/vfio/{node}"):
            raise OSError(number, os.strerror(number))
        return real(path, *rest, **options)

    monkeypatch.setattr(space.os, "open", refuses)
    with pytest.raises(peerdma.BoardNotFound, match=words):
        VfioPlatform(ADDRESS)


def test_a_board_in_use_by_iommufd(kernel):
    kernel.iommufd()
    kernel.failures["DEVICE_BIND_IOMMUFD"] = errno.EBUSY
    with pytest.raises(peerdma.BoardNotFound, match="another program uses the board"):
        VfioPlatform(ADDRESS)


def test_a_user_who_may_open_only_the_group(kernel, monkeypatch):
    kernel.iommufd()
    monkeypatch.setattr(place, "_may_open", lambda node: "vfio3" not in str(node))
    VfioPlatform(ADDRESS).function.close()
    assert "IOAS_ALLOC" not in kernel.calls


def test_interrupts_that_are_not_remapped(kernel):
    kernel.failures["SET_IOMMU"] = errno.EPERM
    with pytest.raises(peerdma.BoardNotFound, match="allow_unsafe_interrupts"):
        VfioPlatform(ADDRESS)


def test_memory_of_a_gpu_is_refused(kernel):
    board = VfioPlatform(ADDRESS)
    with (
        peerdma.gpu("emulated", memory="device") as gpu,
        gpu.surface(4096) as surface,
        pytest.raises(peerdma.PinError, match="Load the driver"),
    ):
        board.map(surface)
    board.function.close()
