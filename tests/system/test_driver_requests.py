# SPDX-License-Identifier: BSD-2-Clause
"""Every request of the driver, what it does and each way in which it fails."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import struct
from pathlib import Path

import pytest

from peerdma import uapi
from peerdma.uapi import BoardState, Info, Interrupts, Ioctl, LegacyFlag, Op
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    BOTH,
    PAGE,
    Buffer,
    Node,
    address_of_board,
    child,
)

pytestmark = IN_GUEST

#: So that a test may look at the board's registers while the driver has them.
GUEST = {"configuration": "identity", "append": "iomem=relaxed"}
RAM = 65536
NOWHERE = 0x1000


def pci_file(name: str) -> str:
    return (Path("/sys/bus/pci/devices") / address_of_board() / name).read_text().strip()


def test_info_is_what_the_machine_says():
    with Node() as node:
        info = node.info()
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        assert getattr(info, name) == int(pci_file(name), 16)
    assert info.bus_id.decode() == address_of_board()
    assert (info.uapi_version, info.board_version >> 16) == (1 << 16, 1)
    assert (info.index, info.state, info.generation) == (0, BoardState.LIVE, 1)
    assert (info.interrupts, info.vectors) == (Interrupts.MSIX, 2)
    assert (info.h2c_channels, info.c2h_channels) == (1, 1)
    assert f"{info.link_speed * 2.5} GT/s" in pci_file("current_link_speed")
    assert info.link_width == int(pci_file("current_link_width"))
    assert (info.max_payload, info.max_read_request) == (128, 512)
    assert (info.card_ram_size, info.staging_size, info.stream_window) == (RAM, 0, 1 << 63)
    assert (info.clock_khz, info.time_scale) == (125000, 1000)
    assert info.aperture_size == 0  # the simulated GPU is no display controller
    assert info.providers == b"pages dmabuf nvp2p"
    assert (info.last_errno, info.last_error) == (0, b"")


def test_counters_count():
    source = Buffer(PAGE)
    with Node() as node:
        before = node.info()
        node.h2c(source.address, 0, PAGE)
        job = node.submit(Op.H2C, PAGE, src_handle=node.pages(source))
        assert job > 0
        node.events(1)
        after = node.info()
    assert after.jobs - before.jobs == 2
    assert after.failures == before.failures
    assert after.pinned_bytes == PAGE


def test_errors_are_a_files_own():
    with Node() as node, Node() as other:
        node.refuses(errno.EINVAL, "handle 9", Ioctl.UNPIN_CUDA, uapi.UnpinCuda(handle=9))
        assert node.info().last_errno == errno.EINVAL
        assert other.info().last_errno == 0


def test_structures_grow():
    with Node() as node:
        larger = bytearray(600)
        struct.pack_into("I", larger, 0, 600)
        fcntl.ioctl(node.fd, Ioctl.GET_INFO, larger)
        assert struct.unpack_from("I", larger)[0] == 600
        assert bytes(larger[8:12]) == b"\0\0\1\0"
        larger[599] = 1
        node.refuses(errno.E2BIG, "older than the program", Ioctl.GET_INFO, larger)
        # The first version ended where the channels' states were appended.
        first = Info.h2c_waits_for.offset
        older = bytearray(first)
        struct.pack_into("I", older, 0, first)
        fcntl.ioctl(node.fd, Ioctl.GET_INFO, older)
        assert struct.unpack_from("I", older)[0] == first
        assert Info.from_buffer(older + bytes(ctypes.sizeof(Info) - first)).h2c_channels
        struct.pack_into("I", larger, 0, first - 1)
        node.refuses(errno.EINVAL, "but at least", Ioctl.GET_INFO, larger)
        struct.pack_into("I", larger, 0, 1 << 31)
        node.refuses(errno.E2BIG, "which none has", Ioctl.GET_INFO, larger)


@pytest.mark.parametrize(
    "code",
    [
        0x5007,
        # What it claims to carry is larger than anything that the driver has.
        0xFFFF5007,
        0xFFFF5001,
        0x7FFF501F,
        0x502F,
        0x5036,
        0x503F,
        0x50FF,
        0xC0085020,  # ours are without a size
        0x4120,
    ],
)
def test_unknown_requests(code):
    with Node() as node, pytest.raises(OSError, match="Inappropriate ioctl") as caught:
        fcntl.ioctl(node.fd, code, bytearray(16384) if code < 1 << 31 else b"\0" * 1000)
    assert caught.value.errno == errno.ENOTTY


def test_unknown_flags():
    with Node() as node:
        for code, structure in (
            (Ioctl.GET_INFO, uapi.Info(flags=1)),
            (Ioctl.PIN_DMABUF, uapi.PinDmabuf(flags=2)),
            (Ioctl.PIN_PAGES, uapi.PinPages(flags=1, length=1)),
            (Ioctl.SUBMIT, uapi.Submit(flags=2)),
            (Ioctl.CANCEL, uapi.Cancel(flags=1)),
            (Ioctl.QUERY, uapi.Query(flags=1)),
            (Ioctl.MAP_INFO, uapi.MapInfo(flags=2)),
            (Ioctl.RESET, uapi.Reset(flags=1)),
            (Ioctl.USER_REGISTER, uapi.UserRegister(flags=2)),
            (Ioctl.READ_CLOCK, uapi.Clock(flags=1)),
            (Ioctl.SUBMIT_BATCH, uapi.SubmitBatch(flags=1)),
            (Ioctl.SET_CONTEXT, uapi.Context(flags=1)),
            (Ioctl.H2C_DMA, uapi.H2cDma(flags=2)),
            (Ioctl.C2H_DMA, uapi.C2hDma(flags=2)),
            (Ioctl.H2C2H_DMA, uapi.H2c2hDma(flags=4)),
        ):
            node.refuses(errno.EINVAL, "unknown flags", code, structure)


def test_pointers_that_are_none():
    with Node() as node:
        for code in Ioctl:
            if code != Ioctl.LED:
                with pytest.raises(OSError, match="Bad address") as caught:
                    fcntl.ioctl(node.fd, code, NOWHERE)
                assert caught.value.errno == errno.EFAULT


def test_a_handle_that_cannot_be_told_is_taken_back():
    """The structure is readable, so that the pin is made, but not writable."""
    source = Buffer(PAGE)
    pin = uapi.PinPages(address=source.address, length=PAGE, access=BOTH)
    with Node() as node:
        structure = Buffer(PAGE, bytes(pin))
        libc, address = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p(structure.address)
        assert libc.mprotect(address, PAGE, mmap.PROT_READ) == 0
        assert libc.ioctl(node.fd, ctypes.c_ulong(Ioctl.PIN_PAGES), address) == -1
        assert ctypes.get_errno() == errno.EFAULT
        assert node.info().pinned_bytes == 0
        assert node.pages(source) > 0


def test_leds():
    with Node() as node:
        for value in (5, 0):
            node.request(Ioctl.LED, value)
            path = f"/sys/bus/pci/devices/{address_of_board()}/resource0"
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), PAGE) as registers:
                assert struct.unpack_from("I", registers)[0] & 7 == value


def test_card_info():
    with Node() as node:
        assert node.request(Ioctl.CARD_INFO, uapi.CardInfo()).fpga_ram_size == RAM


@pytest.mark.parametrize("size", [1, 3, 4, 63, 127, 129, 511, 4095, 4097, 20001])
def test_sizes_and_alignments(size):
    source, destination = Buffer(6 * PAGE), Buffer(6 * PAGE, b"")
    with Node() as node:
        for start, end in ((0, 0), (1, 2), (4094, 7), (61, 4095)):
            destination[:] = bytes(6 * PAGE)
            node.h2c2h(source.address + start, destination.address + end, size)
            expected = bytearray(6 * PAGE)
            expected[end : end + size] = source[start : start + size]
            assert destination[:] == expected, (start, end)


def test_more_than_a_window():
    """Pointers are pinned in parts; here they lie differently in their pages."""
    size = (8 << 20) + 5000
    source, destination = Buffer(size + PAGE), Buffer(size + PAGE, b"")
    with Node() as node:
        assert node.h2c2h(source.address + 1, destination.address + 2, size) > 0
    assert destination[2 : size + 2] == source[1 : size + 1]
    assert not any(destination[size + 2 :])


def test_nothing_is_moved_for_length_0():
    with Node() as node:
        assert node.h2c(NOWHERE, 0, 0) == 0
        assert node.c2h(RAM, NOWHERE, 0) == 0
        assert node.h2c2h(NOWHERE, NOWHERE, 0) == 0
        job = node.submit(Op.H2C, 0, src_handle=node.pages(Buffer(PAGE)), user_data=7)
        (event,) = node.events(1)
    assert (event.result, event.job, event.user_data, event.bytes) == (0, job, 7, 0)


def test_transfers_that_are_refused():
    memory = Buffer(8 * PAGE)
    at, both = memory.address, 3
    with Node() as node:
        handle = node.pages(memory)
        h2c, c2h, h2c2h = (
            lambda **k: (Ioctl.H2C_DMA, uapi.H2cDma(**k)),
            lambda **k: (Ioctl.C2H_DMA, uapi.C2hDma(**k)),
            lambda **k: (Ioctl.H2C2H_DMA, uapi.H2c2hDma(**k)),
        )
        for number, words, request in (
            (
                errno.EINVAL,
                "beyond the card RAM, which has 65536",
                h2c(src=at, dst=RAM - 9, len=10),
            ),
            (errno.EINVAL, "beyond the card RAM", h2c(src=at, dst=2**64 - 1, len=10)),
            (errno.EINVAL, "beyond the card RAM", c2h(src=RAM, dst=at, len=1)),
            (errno.EINVAL, "beyond the card RAM", h2c(src=at, dst=1 << 63, len=8)),
            (errno.EINVAL, "wrap around", h2c2h(src=2**64 - 5, dst=at, len=10)),
            (errno.EINVAL, "wrap around", c2h(src=0, dst=2**64 - 5, len=10)),
            (errno.EINVAL, "wrap around", h2c2h(src=0, dst=at, len=2**64 - 1)),
            (errno.EFAULT, "no memory of a process", h2c(src=2**63, dst=0, len=10)),
            (errno.EFAULT, "no memory of a process", h2c2h(src=at, dst=2**56 - 2, len=10)),
            # All of it is checked before any of it is moved.
            (errno.EFAULT, "no memory of a process", h2c2h(src=at, dst=0, len=2**63)),
            (errno.EFAULT, "not all readable memory", h2c(src=NOWHERE, dst=0, len=10)),
            (errno.EFAULT, "not all writable memory", c2h(src=0, dst=NOWHERE, len=10)),
            (errno.EINVAL, "no memory is pinned as handle 77", h2c(src=77, dst=0, len=1, flags=1)),
            (
                errno.EINVAL,
                f"no memory is pinned as handle {2**32 + handle}",
                c2h(src=0, dst=2**32 + handle, len=1, flags=1),
            ),
            (errno.EINVAL, "beyond the memory pinned", c2h(dst=handle, len=40000, flags=1)),
            (errno.EINVAL, "overlap", h2c2h(src=at, dst=at + 10, len=11)),
            (errno.EINVAL, "overlap", h2c2h(src=handle, dst=handle, len=10, flags=both)),
            (errno.EINVAL, "beyond", h2c2h(src=handle, dst=handle, len=2**63, flags=both)),
        ):
            node.refuses(number, words, *request)


def test_pins_that_are_refused():
    memory = Buffer(PAGE)
    pages, cuda = (
        lambda **k: (Ioctl.PIN_PAGES, uapi.PinPages(**k)),
        lambda **k: (Ioctl.PIN_CUDA, uapi.PinCuda(**k)),
    )
    with Node() as node:
        for number, words, request in (
            (errno.EINVAL, "the length is 0", pages(address=memory.address, access=3)),
            (errno.EINVAL, "not read, write or both", pages(length=1, access=0)),
            (errno.EINVAL, "not read, write or both", pages(length=1, access=4)),
            (errno.EINVAL, "wrap around", pages(address=PAGE, length=2**64 - 1, access=3)),
            (errno.EINVAL, "wrap around", pages(length=2**64 - 1, access=3)),
            (errno.EINVAL, "wrap around", pages(length=2**64 - PAGE + 1, access=3)),
            (errno.EINVAL, "wrap around", pages(address=2**64 - 1, length=1, access=3)),
            (errno.EINVAL, "wrap around", pages(address=2**64 - PAGE, length=1, access=3)),
            (errno.EINVAL, "wrap around", pages(address=2**63, length=2**63 - 1, access=3)),
            (errno.EFAULT, "no memory of a process", pages(length=2**63, access=3)),
            (errno.EFAULT, "no memory of a process", pages(address=2**63, length=1, access=3)),
            (errno.EINVAL, "too many at once", pages(address=PAGE, length=1 << 45, access=3)),
            (errno.EFAULT, "not all writable memory", pages(address=PAGE, length=1, access=3)),
            (errno.EINVAL, "the size is 0", cuda(va=memory.address)),
            (errno.EINVAL, "wrap around", cuda(va=PAGE, size=2**64 - 1)),
            (errno.EINVAL, "wrap around", cuda(size=2**64 - 1)),
            (errno.EINVAL, "wrap around", cuda(va=2**64 - 1, size=1)),
            (errno.EINVAL, "cudaMalloc", cuda(size=2**63)),
            (errno.EINVAL, "are too many", cuda(va=PAGE + 1, size=2**64 - PAGE - 2)),
            (errno.EINVAL, "cudaMalloc", cuda(va=memory.address, size=PAGE)),
        ):
            node.refuses(number, words, *request)
        with open(__file__, "rb") as file, pytest.raises(OSError, match="Invalid argument"):
            node.dmabuf(file.fileno())
        node.refuses(
            errno.EBADF, "descriptor 99 is not", Ioctl.PIN_DMABUF, uapi.PinDmabuf(fd=99, access=3)
        )


def test_locked_memory_has_a_limit():
    memory = Buffer(32 * PAGE)

    def pin():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (16 * PAGE, 16 * PAGE))
        os.setuid(1000)  # root may lock what it likes
        handle = node.pages(memory, length=16 * PAGE)
        with node.refused(errno.ENOMEM, r"raise the limit \(ulimit -l\)"):
            node.pages(memory, length=PAGE)
        with node.refused(errno.ENOMEM, r"raise the limit \(ulimit -l\)"):
            node.h2c(memory.address, 0, 1)
        node.unpin(handle)
        # Of a transfer that is waited for, only a part is locked at a time.
        node.h2c2h(memory.address, memory.address + 16 * PAGE, 16 * PAGE)
        node.h2c(memory.address, 0, RAM)
        node.pages(memory, length=16 * PAGE)

    with Node() as node:
        assert child(pin) == 0


def test_who_may_open_it():
    def other():
        os.setuid(1000)
        with pytest.raises(PermissionError):
            Node()

    assert child(other) == 0


def test_a_node_opened_for_reading_only_is_for_looking():
    memory = Buffer(PAGE)
    at = memory.address
    with Node(mode=os.O_RDONLY) as node:
        for code, structure in (
            (Ioctl.LED, 5),
            (Ioctl.PIN_CUDA, uapi.PinCuda(va=at, size=PAGE)),
            (Ioctl.UNPIN_CUDA, uapi.UnpinCuda(handle=1)),
            (Ioctl.H2C_DMA, uapi.H2cDma(src=at, len=PAGE)),
            (Ioctl.C2H_DMA, uapi.C2hDma(dst=at, len=PAGE)),
            (Ioctl.H2C2H_DMA, uapi.H2c2hDma(src=at, dst=at + 64, len=64)),
            (Ioctl.PIN_DMABUF, uapi.PinDmabuf(fd=node.fd, access=BOTH)),
            (Ioctl.PIN_PAGES, uapi.PinPages(address=at, length=PAGE, access=BOTH)),
            (Ioctl.SUBMIT, uapi.Submit(op=Op.H2C)),
            (Ioctl.CANCEL, uapi.Cancel(job=1)),
            (Ioctl.RESET, uapi.Reset()),
            (Ioctl.USER_REGISTER, uapi.UserRegister()),
            (Ioctl.READ_CLOCK, uapi.Clock()),
            (Ioctl.SUBMIT_BATCH, uapi.SubmitBatch()),
            (Ioctl.SET_CONTEXT, uapi.Context()),
        ):
            node.refuses(errno.EACCES, "opened for reading only", code, structure)
        with node.refused(errno.EINVAL, "opened for reading and writing"):
            mmap.mmap(node.fd, PAGE, prot=mmap.PROT_READ, offset=node.mailbox_place().offset)
        assert node.request(Ioctl.CARD_INFO, uapi.CardInfo()).fpga_ram_size == RAM
        node.refuses(errno.EINVAL, "handle 1", Ioctl.QUERY, uapi.Query(handle=1))
        assert node.info().pinned_bytes == 0


def test_handles_are_not_used_again_soon():
    memory = Buffer(PAGE)
    with Node() as node:
        first = node.pages(memory)
        node.unpin(first)
        assert node.pages(memory) == first + 1
        node.refuses(
            errno.EINVAL, "no memory", Ioctl.H2C_DMA, uapi.H2cDma(src=first, len=1, flags=1)
        )


def test_both_flags_mean_what_they_do_in_nvidias_driver():
    """A handle on either side, a pointer on the other."""
    source, destination = Buffer(PAGE), Buffer(PAGE, b"")
    with Node() as node:
        s, d = node.pages(source), node.pages(destination)
        node.h2c2h(s, destination.address, 100, LegacyFlag.H2C2H_SRC_IS_HANDLE)
        node.h2c2h(source.address + 100, d, 50, LegacyFlag.H2C2H_DST_IS_HANDLE)
        assert destination[:100] == source[100:150] + source[50:100]
        node.h2c(s, 0, 10, LegacyFlag.H2C_SRC_IS_HANDLE)
        node.c2h(0, d, 10, LegacyFlag.C2H_DST_IS_HANDLE)
        assert destination[:10] == source[:10]
