# SPDX-License-Identifier: BSD-2-Clause
"""Pages of registers of the simulated board: memory whose stores become register writes."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from peerdma import regs
from peerdma.vfio_user.wire import (
    Area,
    Command,
    Header,
    RegionFlag,
    RegionInfo,
    SparseMmap,
    pack,
    unpack,
)
from tests.sim.board.client import BAR_DMA, BAR_USER, Board, Client

NAMES = ("first", "last", "done")
OFFSETS = {name: regs.MAILBOX[name].offset for name in NAMES}
WHOLE = RegionInfo.FORMAT.size + SparseMmap.FORMAT.size + Area.FORMAT.size


@pytest.fixture(scope="module")
def offering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board that offers the page, and writes its TLPs to a file beside the socket."""
    folder = tmp_path_factory.mktemp("mailbox")
    with Board(folder, "--mailbox-page", "--log-tlps", str(folder / "tlps")) as board:
        yield board


@pytest.fixture
def client(offering: Board) -> Iterator[Client]:
    """A client of it, memory space and bus master on."""
    with Client(offering) as client:
        client.enable()
        yield client


def ask(client: Client, region: int, room: int) -> tuple[RegionInfo, bytes, list[int]]:
    """DEVICE_GET_REGION_INFO with so much room, by hand: the fds matter."""
    query = pack(RegionInfo(room, region=region))
    size = Header.FORMAT.size + len(query)
    client.socket.sendall(pack(Header(7, Command.DEVICE_GET_REGION_INFO, size)) + query)
    data, fds, _, _ = socket.recv_fds(client.socket, 4096, 16)
    while len(data) < unpack(Header, data).size:
        data += client.socket.recv(4096)
    answer = data[Header.FORMAT.size :]
    return unpack(RegionInfo, answer), answer, list(fds)


def page_of(client: Client, pages: int = 1) -> mmap.mmap:
    """The page, mapped as the board says; and those behind it."""
    info, answer, fds = ask(client, BAR_USER, 4096)
    (fd,) = fds
    try:
        assert info.flags & RegionFlag.MMAP and info.flags & RegionFlag.CAPABILITIES
        sparse = unpack(SparseMmap, answer, info.cap_offset)
        area = unpack(Area, answer, info.cap_offset + SparseMmap.FORMAT.size)
        assert sparse == SparseMmap(SparseMmap.KIND, 1, 0, 1)
        assert area == Area(regs.MAILBOX.base, 4096 * pages)
        return mmap.mmap(fd, area.size, offset=info.offset + area.offset)
    finally:
        os.close(fd)


def store(page: mmap.mmap, name: str, value: int) -> None:
    struct.pack_into("<I", page, OFFSETS[name], value)


def stamp(client: Client, name: str) -> tuple[int, int]:
    """(value, cycle) of a register."""
    value, low, high = (
        client.read(BAR_USER, regs.MAILBOX.address(part))
        for part in (name, f"{name}_time_lo", f"{name}_time_hi")
    )
    return value, high << 32 | low


def test_a_store_is_a_register_write_with_its_time(client):
    page = page_of(client)
    for value in (0x1234, 0xFFFFFFFF):
        before = stamp(client, "done")[1]
        store(page, "last", value)
        found, cycle = stamp(client, "last")
        assert found == value
        assert cycle > before
        # Taken: the word is empty again.
        assert page[: regs.MAILBOX.size] == bytes(regs.MAILBOX.size)


def test_stores_arrive_while_the_client_says_nothing(client):
    page = page_of(client)
    store(page, "first", 1)
    deadline = time.monotonic() + 30
    while page[:4] != bytes(4):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert stamp(client, "first")[0] == 1


def test_stores_become_writes_in_the_registers_order(client, offering):
    """Whatever the order in which the board finds them."""
    page = page_of(client)
    for round_number in range(1, 30):
        for name in NAMES:
            store(page, name, round_number)
        stamps = [stamp(client, name) for name in NAMES]
        assert [value for value, _ in stamps] == [round_number] * 3
        cycles = [cycle for _, cycle in stamps]
        assert cycles == sorted(set(cycles))


def test_the_same_value_twice_is_two_writes(client):
    page = page_of(client)
    store(page, "done", 5)
    first = stamp(client, "done")[1]
    store(page, "done", 5)
    assert stamp(client, "done")[1] > first


def test_other_words_of_the_page_are_just_memory(client):
    page = page_of(client)
    page[64:68] = b"abcd"
    time.sleep(0.01)
    assert client.read(BAR_USER, regs.MAILBOX.base + 64) == 0
    assert page[64:68] == b"abcd"


def test_register_writes_by_message_still_work(client):
    page = page_of(client)
    store(page, "first", 8)
    client.write(BAR_USER, regs.MAILBOX.address("first"), 9)
    # The store was there before the message was.
    assert stamp(client, "first")[0] == 9


def test_a_client_with_little_room_is_told_how_much_is_needed(client):
    info, answer, fds = ask(client, BAR_USER, RegionInfo.FORMAT.size)
    assert (info.argsz, info.cap_offset, fds) == (WHOLE, 0, [])
    assert len(answer) == RegionInfo.FORMAT.size
    info, answer, fds = ask(client, BAR_USER, info.argsz)
    assert (info.cap_offset, len(answer), len(fds)) == (RegionInfo.FORMAT.size, WHOLE, 1)
    os.close(fds[0])


def test_other_regions_are_not_mapped(client):
    for region in (1, 7):
        info, answer, fds = ask(client, region, 4096)
        assert not info.flags & (RegionFlag.MMAP | RegionFlag.CAPABILITIES)
        assert (len(answer), fds) == (RegionInfo.FORMAT.size, [])


def test_each_client_gets_a_page_of_its_own(offering):
    with Client(offering) as one:
        one.enable()
        page = page_of(one)
    store(page, "first", 77)
    with Client(offering) as other:
        other.enable()
        page_of(other)
        assert stamp(other, "first") == (0, 0)


def test_doorbells_are_offered_behind_it(tmp_path):
    """A store of 8 bytes is one write; no queue is armed, so that all are ignored and counted."""
    options = ("--mailbox-page", "--launch-queues", "2", "--doorbell-pages")
    ignored = regs.LAUNCH_QUEUE.address("ignored")
    with Board(tmp_path, *options) as board, Client(board) as client:
        client.enable()
        pages = page_of(client, 3)
        place = regs.DOORBELL_BASE - regs.MAILBOX.base
        assert client.read(BAR_DMA, ignored) == 0
        for number, value in enumerate((1, 1 << 16, 1 << 32 | 1, 1 << 63 | 1), 1):
            queue = number % 2
            struct.pack_into("<Q", pages, place + queue * regs.DOORBELL_STRIDE, value)
            assert client.read(BAR_DMA, ignored) == number
            store(pages, "last", number)
            assert stamp(client, "last")[0] == number
        assert not any(pages[place:])


def test_nothing_is_offered_unasked(board):
    with Client(board) as client:
        info, _, fds = ask(client, BAR_USER, 4096)
        assert not info.flags & RegionFlag.MMAP
        assert not fds
