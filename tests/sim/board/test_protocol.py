# SPDX-License-Identifier: BSD-2-Clause
"""vfio-user commands and register accesses against the running board."""

from __future__ import annotations

import errno
import json
import os
import struct

import pytest

from peerdma import regs
from peerdma.vfio_user.wire import (
    CONFIG_REGION,
    Command,
    DeviceInfo,
    Header,
    HeaderFlag,
    Irq,
    IrqInfo,
    IrqSetFlag,
    RegionAccess,
    RegionInfo,
    pack,
    unpack,
)
from tests.sim.board.client import BAR_DMA, BAR_USER, Board, Client, Memory, Refused

WRITE_MULTI = 15
SCRATCH = regs.USER.address("scratch")
EVENTFD = IrqSetFlag.DATA_EVENTFD | IrqSetFlag.ACTION_TRIGGER
DATA_BOOL, ACTION_MASK = 2, 8
MIB = 1 << 20


def version(client: Client, text: bytes, major: int = 0, minor: int = 0) -> bytes:
    return client.request(Command.VERSION, struct.pack("<HH", major, minor) + text)


# Version -------------------------------------------------------------------------------------


def test_version_reply(board: Board):
    with Client(board, greet=False) as client:
        answer = version(client, b'{"capabilities":{"max_msg_fds":8}}\0', minor=1)
        assert answer[:4] == b"\0\0\0\0"
        assert answer[-1] == 0
        capabilities = json.loads(answer[4:-1])["capabilities"]
        assert capabilities["max_msg_fds"] == 16
        assert capabilities["max_data_xfer_size"] == MIB
        assert capabilities["write_multiple"] is True


def test_version_data_is_optional(board: Board):
    with Client(board, greet=False) as client:
        assert version(client, b"")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"{", errno.EINVAL),
        (b"not json\0", errno.EINVAL),
        (b'{"capabilities":3}\0', errno.EINVAL),
        (b'{"capabilities":{"max_data_xfer_size":"big"}}\0', errno.EINVAL),
        (b'{"capabilities":{"max_data_xfer_size":0}}\0', errno.EINVAL),
        (b"[1]\0", errno.EINVAL),
        (b"\xff\xfe\0", errno.EINVAL),
        (b"[" * 4000 + b"\0", errno.EINVAL),
        (b'{"a":"' + b"x" * 5000 + b'"}\0', errno.E2BIG),
    ],
)
def test_bad_version_data_is_refused(board: Board, text, number):
    with Client(board, greet=False) as client:
        with pytest.raises(Refused) as refused:
            version(client, text)
        assert refused.value.errno == number
        # It may be tried again.
        assert version(client, b'{"capabilities":{}}\0')


def test_another_major_version_is_refused(board: Board):
    with Client(board, greet=False) as client:
        with pytest.raises(Refused) as refused:
            version(client, b"{}\0", major=1)
        assert refused.value.errno == errno.EPROTONOSUPPORT
    board.wait_log("the client speaks vfio-user 1.0, this board 0.0")


def test_version_comes_first_and_once(board: Board):
    with Client(board, greet=False) as client:
        with pytest.raises(Refused) as refused:
            client.config(0)
        assert refused.value.errno == errno.EPROTO
        version(client, b"")
        with pytest.raises(Refused):
            version(client, b"")


# Description ---------------------------------------------------------------------------------


def test_device_info(client: Client):
    body = client.request(Command.DEVICE_GET_INFO, pack(DeviceInfo(16)))
    assert unpack(DeviceInfo, body) == DeviceInfo(16, 3, 9, 5)


def test_regions(client: Client):
    sizes = {regs.BAR_USER[0]: regs.BAR_USER[1], regs.BAR_DMA[0]: regs.BAR_DMA[1], 7: 4096}
    for index in range(9):
        body = client.request(Command.DEVICE_GET_REGION_INFO, pack(RegionInfo(32, 0, index)))
        size = sizes.get(index, 0)
        assert unpack(RegionInfo, body) == RegionInfo(32, 3 if size else 0, index, 0, size, 0)
    with pytest.raises(Refused):
        client.request(Command.DEVICE_GET_REGION_INFO, pack(RegionInfo(32, 0, 9)))


def test_interrupt_indices(client: Client):
    expected = [(1, 7), (1, 9), (regs.MSIX_ENTRIES, 1), (1, 1), (1, 1)]
    for index, (count, flags) in enumerate(expected):
        body = client.request(Command.DEVICE_GET_IRQ_INFO, pack(IrqInfo(16, 0, index)))
        assert unpack(IrqInfo, body) == IrqInfo(16, flags, index, count)
    with pytest.raises(Refused):
        client.request(Command.DEVICE_GET_IRQ_INFO, pack(IrqInfo(16, 0, 5)))


# Register accesses ---------------------------------------------------------------------------


def test_register_access_sizes(client: Client):
    client.write(BAR_USER, SCRATCH, 0x44332211)
    assert client.read(BAR_USER, SCRATCH, 1) == 0x11
    assert client.read(BAR_USER, SCRATCH + 1, 2) == 0x3322
    assert client.read(BAR_USER, SCRATCH + 3, 1) == 0x44
    # Eight bytes and more are one request of several dwords, or several requests.
    assert client.read(BAR_USER, SCRATCH, 8) == 0x44332211
    assert client.read(BAR_USER, SCRATCH - 3, 11) == 0x44332211 << 24
    assert client.read(BAR_USER, 0, 256) >> (8 * SCRATCH) & 0xFFFFFFFF == 0x44332211
    client.write(BAR_USER, SCRATCH - 8, 0x8877665544332211 << 64, 16)
    assert client.read(BAR_USER, SCRATCH) == 0x44332211


def test_whole_bar_in_one_read(client: Client):
    body = client.request(Command.REGION_READ, pack(RegionAccess(0, BAR_DMA, regs.BAR_DMA[1])))
    data = body[RegionAccess.FORMAT.size :]
    at = regs.EXTENSION.address("magic")
    assert struct.unpack_from("<I", data, at)[0] == regs.EXTENSION_MAGIC


def test_posted_writes_get_no_reply_and_stay_in_order(client: Client):
    for value in range(3000):
        client.write(BAR_USER, SCRATCH, value, posted=True)
    assert client.read(BAR_USER, SCRATCH) == 2999
    assert client.silent()


def test_pipelined_commands_are_answered_in_order(client: Client):
    """Reads wait for simulated time; what was sent after them must not overtake them."""
    sent = []
    for value in range(50):
        client.write(BAR_USER, SCRATCH, value, posted=True)
        read = pack(RegionAccess(SCRATCH, BAR_USER, 4))
        sent.append((client.send(Command.REGION_READ, read), value))
        config = pack(RegionAccess(0, CONFIG_REGION, 4))
        sent.append((client.send(Command.REGION_READ, config), 0x702110EE))
    for message_id, value in sent:
        data = client.answer(message_id)[RegionAccess.FORMAT.size :]
        assert int.from_bytes(data, "little") == value


def test_write_multi(client: Client):
    writes = b"".join(
        pack(RegionAccess(SCRATCH, BAR_USER, 4)) + struct.pack("<Q", value) for value in range(200)
    )
    body = struct.pack("<Q", 200) + writes
    assert client.request(WRITE_MULTI, body) == body[:8]
    client.send(WRITE_MULTI, struct.pack("<Q", 1) + writes[-24:], flags=HeaderFlag.NO_REPLY)
    assert client.read(BAR_USER, SCRATCH) == 199
    for wrong in (body[:-1], struct.pack("<Q", 201) + writes, struct.pack("<Q", 2**60), b""):
        with pytest.raises(Refused):
            client.request(WRITE_MULTI, wrong)
    too_wide = struct.pack("<Q", 1) + pack(RegionAccess(SCRATCH, BAR_USER, 9)) + bytes(8)
    with pytest.raises(Refused):
        client.request(WRITE_MULTI, too_wide)


@pytest.mark.parametrize(
    ("region", "offset", "count"),
    [
        (BAR_USER, regs.BAR_USER[1], 4),
        (BAR_USER, regs.BAR_USER[1] - 3, 4),
        (BAR_USER, 2**64 - 1, 4),
        (BAR_USER, 0, 0),
        (BAR_USER, 0, 2**32 - 1),
        (BAR_USER, 0, regs.BAR_USER[1] + 1),
        (2, 0, 4),
        (8, 0, 1),
        (9, 0, 4),
        (2**32 - 1, 0, 4),
        (CONFIG_REGION, 4093, 4),
    ],
)
def test_access_outside_a_region_is_refused(client: Client, region, offset, count):
    with pytest.raises(Refused) as refused:
        client.request(Command.REGION_READ, pack(RegionAccess(offset, region, count)))
    assert refused.value.errno == errno.EINVAL
    body = pack(RegionAccess(offset, region, count)) + bytes(min(count, 64))
    with pytest.raises(Refused):
        client.request(Command.REGION_WRITE, body)


# DMA windows ---------------------------------------------------------------------------------


def test_overlapping_windows_are_refused(client: Client):
    with Memory(MIB) as memory:
        client.map(MIB, memory)
        for address in (MIB, MIB - 4096, 2 * MIB - 4096):
            with pytest.raises(Refused) as refused:
                client.map(address, memory, 8192)
            assert refused.value.errno == errno.EEXIST
        client.map(2 * MIB, memory)
        client.map(0, None, MIB)


@pytest.mark.parametrize(
    ("address", "size", "flags", "offset"),
    [
        (0, 2 * MIB, 3, 0),
        (0, MIB, 3, 4096),
        (0, MIB, 3, 2**64 - 4096),
        (2**64 - 4096, 8192, 3, 0),
        (0, MIB, 0, 0),
        (0, MIB, 4, 0),
    ],
)
def test_impossible_windows_are_refused(client: Client, address, size, flags, offset):
    with Memory(MIB) as memory:
        with pytest.raises(Refused) as refused:
            client.map(address, memory, size, flags, offset)
        assert refused.value.errno == errno.EINVAL


def test_unmap_always_succeeds(client: Client):
    with Memory(MIB) as memory:
        client.unmap(0, 4096)
        client.map(0, memory, MIB)
        client.unmap(8192, 4096)
        client.map(8192, memory, 4096)
        client.unmap(0, 2**64 - 1)
        client.map(0, memory)
        client.unmap(4096, 2**64 - 4096)
        client.map(4096, memory, 4096)
        client.unmap(0, 0, flags=2)
        client.map(0, memory)


def test_many_windows_of_one_file_need_one_mapping(board: Board, client: Client):
    """Behind an IOMMU a client maps page by page."""
    before = board.fds()
    with Memory(4 * MIB) as memory:
        for page in range(0, 4 * MIB, 4096):
            client.map(2 * page, memory, 4096, offset=page)
        maps = (f"/proc/{board.process.pid}/maps", "memfd:test")
        with open(maps[0]) as lines:
            assert sum(maps[1] in line for line in lines) == 1
    assert board.fds() == before
    client.unmap(0, 0, flags=2)
    with open(maps[0]) as lines:
        assert not any(maps[1] in line for line in lines)


# Interrupt set-up ----------------------------------------------------------------------------


def test_all_forms_of_trigger(client: Client):
    eventfd = client.connect(Irq.MSI)
    try:
        client.irqs(Irq.MSI, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER)
        assert os.eventfd_read(eventfd) == 1
        client.irqs(Irq.MSI, DATA_BOOL | IrqSetFlag.ACTION_TRIGGER, data=b"\1")
        assert os.eventfd_read(eventfd) == 1
        client.irqs(Irq.MSI, DATA_BOOL | IrqSetFlag.ACTION_TRIGGER, data=b"\0")
        client.irqs(Irq.MSI, EVENTFD)
        client.irqs(Irq.MSI, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER)
        client.irqs(Irq.MSI, EVENTFD, fds=(eventfd,))
        client.irqs(Irq.MSI, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER, count=0)
        client.irqs(Irq.MSI, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(eventfd)
    finally:
        os.close(eventfd)


def test_setting_up_msi_enables_it(client: Client):
    os.close(client.connect(Irq.MSI))
    assert client.config(0x4A, 2) & 1
    client.irqs(Irq.MSI, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER, count=0)
    assert not client.config(0x4A, 2) & 1


@pytest.mark.parametrize(
    ("index", "flags", "start", "count", "data", "fds"),
    [
        (5, 0x21, 0, 0, b"", 0),
        (Irq.MSI, 0x24, 0, 2, b"", 2),
        (Irq.MSI, 0x24, 1, 1, b"", 1),
        (Irq.MSI, 0x24, 2**32 - 1, 2, b"", 0),
        (Irq.MSI, 0x24, 0, 1, b"", 2),
        (Irq.MSI, 0x24, 0, 0, b"", 0),
        (Irq.MSIX, 0x24, regs.MSIX_ENTRIES, 1, b"", 1),
        (Irq.MSI, 0x22, 0, 1, b"", 0),
        (Irq.MSI, 0x22, 0, 1, b"\1\1", 0),
        (Irq.MSI, 0x21, 0, 1, b"", 1),
        (Irq.MSI, 0x25, 0, 1, b"", 0),
        (Irq.MSI, 0x20, 0, 1, b"", 0),
        (Irq.MSI, 0x01, 0, 1, b"", 0),
        (Irq.MSI, 0x31, 0, 1, b"", 0),
        (Irq.MSI, 0x09, 0, 1, b"", 0),
        (Irq.INTX, 0x14, 0, 1, b"", 1),
    ],
)
def test_wrong_interrupt_set_up_is_refused(board, client, index, flags, start, count, data, fds):
    before = board.fds()
    eventfds = [os.eventfd(0) for _ in range(fds)]
    try:
        with pytest.raises(Refused):
            client.irqs(index, flags, start, count, data, eventfds)
    finally:
        for eventfd in eventfds:
            os.close(eventfd)
    assert board.fds() == before


def test_only_eventfds_are_taken(client: Client):
    read_end, write_end = os.pipe()
    try:
        with pytest.raises(Refused):
            client.irqs(Irq.MSI, EVENTFD, fds=(write_end,))
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_full_eventfd_does_not_block_the_board(client: Client):
    eventfd = client.connect(Irq.MSI)
    try:
        os.eventfd_write(eventfd, 2**64 - 2)
        client.irqs(Irq.MSI, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER)
        assert client.read(BAR_DMA, 0) == regs.identifier(0)
    finally:
        os.close(eventfd)


def test_unknown_commands_are_refused(client: Client):
    for command in (0, 6, 14, 16, 999, 0xFFFF):
        with pytest.raises(Refused) as refused:
            client.request(command, b"12345678")
        assert refused.value.errno == errno.EOPNOTSUPP
    client.send(999, flags=HeaderFlag.NO_REPLY)
    assert client.config(0) == 0x702110EE


def test_a_client_may_come_after_another(board: Board):
    with Client(board) as first:
        first.enable()
        first.write(BAR_USER, SCRATCH, 1)
    with Client(board) as second:
        assert second.config(4, 2) == 0
        second.enable()
        assert second.read(BAR_USER, SCRATCH) == 0


def test_a_second_client_waits_for_the_first(board: Board):
    with Client(board) as first, Client(board, greet=False) as second:
        second.send(Command.VERSION, b"\0\0\0\0")
        assert second.silent()
        assert first.config(0) == 0x702110EE
        first.socket.close()
        header, _ = second.receive()
        assert header == Header(1, Command.VERSION, header.size, HeaderFlag.REPLY)
