# SPDX-License-Identifier: BSD-2-Clause
"""Clients that break the rules: the board refuses or drops them, says so, and serves the next."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from peerdma import regs
from peerdma.vfio_user.wire import (
    Command,
    DmaAccess,
    DmaMap,
    Header,
    HeaderFlag,
    Irq,
    IrqSetFlag,
    RegionAccess,
    pack,
)
from tests.sim.board.client import BAR_DMA, BAR_USER, Board, Client, Memory, Refused, descriptor

MIB = 1 << 20
WRITE_MULTI = 15
EVENTFD = IrqSetFlag.DATA_EVENTFD | IrqSetFlag.ACTION_TRIGGER


@pytest.fixture(autouse=True)
def _still_well(board: Board) -> Iterator[None]:
    """After each test the board serves a well-behaved client and has lost no file descriptor."""
    with Client(board) as client:
        client.enable()
        before = board.fds()
    yield
    with Client(board) as client:
        client.enable()
        assert client.read(BAR_DMA, regs.EXTENSION.address("magic")) == regs.EXTENSION_MAGIC
        assert board.fds() == before
    assert board.process.poll() is None


def closed(client: Client) -> bool:
    """True if the board closes the connection, whatever it sends before."""
    try:
        while True:
            client.receive()
    except (EOFError, ConnectionResetError):
        return True


@pytest.mark.parametrize("size", [0, 15, 2**31, 2**32 - 1, MIB + 33])
def test_wrong_message_size_ends_the_connection(board, size):
    since = board.log()
    with Client(board) as client:
        client.socket.sendall(pack(Header(1, Command.REGION_READ, size)))
        assert closed(client)
    board.wait_log(f"the client left: it sent a message of {size} bytes", since)


def test_garbage(board):
    since = board.log()
    with Client(board, greet=False) as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: board\r\n\r\n" * 4)
        assert closed(client)
    board.wait_log("the client left: it sent a message of", since)


@pytest.mark.parametrize("cut", [1, 15, 16, 20, 31])
def test_death_within_a_message(board, cut):
    since = board.log()
    message = pack(Header(1, Command.REGION_READ, 32)) + pack(RegionAccess(0, BAR_DMA, 4))
    with Client(board) as client:
        client.socket.sendall(message[:cut])
        client.socket.close()
    board.wait_log("closed the connection within a message", since)


def test_slow_message(board):
    """A byte at a time is slow, not wrong."""
    message = pack(Header(7, Command.REGION_READ, 32)) + pack(RegionAccess(0, BAR_DMA, 4))
    with Client(board) as client:
        client.enable()
        for index in range(len(message)):
            client.socket.sendall(message[index : index + 1])
            time.sleep(0.002)
        assert client.answer(7)[16:] == struct.pack("<I", regs.identifier(0))


@pytest.mark.parametrize(
    "command",
    [
        Command.VERSION,
        Command.DMA_MAP,
        Command.DMA_UNMAP,
        Command.DEVICE_GET_INFO,
        Command.DEVICE_GET_REGION_INFO,
        Command.DEVICE_GET_IRQ_INFO,
        Command.DEVICE_SET_IRQS,
        Command.REGION_READ,
        Command.REGION_WRITE,
        WRITE_MULTI,
    ],
)
def test_every_command_of_every_wrong_length(board, command):
    """Lengths that do not fit are refused; the connection goes on."""
    with Client(board) as client:
        client.enable()
        for length in (0, 1, 3, 7, 8, 11, 12, 15, 17, 19, 23, 25, 31, 33, 4095):
            if (command, length) == (WRITE_MULTI, 8):
                continue  # an empty list of writes
            with pytest.raises(Refused):
                client.request(command, bytes(length))
        assert client.read(BAR_DMA, 0) == regs.identifier(0)


def test_write_length_that_does_not_match(board):
    with Client(board) as client:
        client.enable()
        body = pack(RegionAccess(0, BAR_USER, 8)) + bytes(4)
        with pytest.raises(Refused):
            client.request(Command.REGION_WRITE, body)
        with pytest.raises(Refused):
            client.request(Command.REGION_WRITE, body + bytes(5))


def test_too_many_file_descriptors(board):
    eventfds = [os.eventfd(0) for _ in range(20)]
    try:
        with Client(board) as client:
            with pytest.raises(Refused):
                client.irqs(Irq.MSI, EVENTFD, 0, 1, fds=eventfds)
            with pytest.raises(Refused):
                client.request(Command.DEVICE_GET_INFO, bytes(16), fds=tuple(eventfds))
        since = board.log()
        with Client(board) as client:
            client.send(Command.DEVICE_GET_INFO, bytes(16), fds=tuple(eventfds * 10))
            assert closed(client)
        board.wait_log("far too many file descriptors", since)
    finally:
        for eventfd in eventfds:
            os.close(eventfd)


def test_file_descriptors_where_none_belong(board):
    with Client(board) as client, Memory(4096) as memory:
        client.enable()
        body = pack(RegionAccess(0, BAR_DMA, 4))
        for _ in range(100):
            client.request(Command.REGION_READ, body, fds=(memory.fd,))
        with pytest.raises(Refused):
            client.request(Command.DMA_MAP, pack(DmaMap(32, 3, 0, 0, 4096)), fds=(memory.fd,) * 2)


def test_file_descriptors_that_cannot_be_mapped(board):
    read_end, write_end = os.pipe()
    ours, theirs = socket.socketpair()
    directory = os.open("/", os.O_RDONLY)
    read_only = os.open("/proc/self/exe", os.O_RDONLY)
    fds = [read_end, write_end, theirs.fileno(), directory, read_only, os.eventfd(0)]
    try:
        with Client(board) as client:
            for fd in fds:
                with pytest.raises(Refused):
                    client.request(Command.DMA_MAP, pack(DmaMap(32, 3, 0, 0, 4096)), fds=(fd,))
            client.request(Command.DMA_MAP, pack(DmaMap(32, 1, 0, 0, 4096)), fds=(read_only,))
    finally:
        ours.close()
        theirs.detach()
        for fd in fds:
            os.close(fd)


def test_a_reply_nobody_waits_for(board):
    since = board.log()
    with Client(board) as client:
        client.socket.sendall(pack(Header(9, Command.DMA_READ, 16, HeaderFlag.REPLY)))
        assert closed(client)
    board.wait_log("it replied to a message that was not sent", since)


@pytest.mark.parametrize(
    "reply",
    [b"", pack(DmaAccess(0x20_0000, 64)), pack(DmaAccess(0, 64)) + bytes(64), bytes(16 + 65)],
)
def test_a_wrong_reply_to_a_dma_read(board, reply):
    since = board.log()
    with Client(board) as client, Memory(4096) as memory:
        client.enable()
        client.map(0x10_0000, memory)
        client.map(0x20_0000, None, 4096)
        memory.bytes[:32] = descriptor(0x20_0000, 0, 64)
        client.start(False, 0x10_0000)
        client.reply_to(client.message()[0], reply)
        assert closed(client)
    board.wait_log("its reply to DMA_READ does not fit the request", since)


@pytest.mark.parametrize("by_message", [False, True])
def test_death_during_dma(board, by_message):
    since = board.log()
    with Client(board) as client, Memory(MIB) as memory:
        client.enable()
        client.map(0x10_0000, memory)
        if by_message:
            client.map(0x20_0000, None, MIB)
        else:
            client.map(0x20_0000, memory)
        memory.bytes[:32] = descriptor(0, 0x20_0000, 65536)
        client.start(True, 0x10_0000)
        memory.bytes[32:64] = descriptor(0x20_0000, 0, 65536)
        client.start(False, 0x10_0020)
        client.send(Command.REGION_READ, pack(RegionAccess(0, BAR_DMA, 65536)))
        client.socket.close()
    board.wait_log("the client left", since)


def test_death_with_interrupts_connected(board):
    with Client(board) as client:
        for _ in range(20):
            os.close(client.connect(Irq.MSI))
        os.close(client.connect(Irq.INTX))


def test_a_client_that_reads_nothing(board):
    """Its replies pile up to a limit; then it is dropped."""
    since = board.log()
    with Client(board) as client:
        message = pack(Header(1, Command.REGION_READ, 32)) + pack(RegionAccess(0, 7, 4096))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.socket.sendall(message * 40000)
    board.wait_log("the client left: it reads nothing", since)


def test_connections_that_come_and_go(board):
    for _ in range(50):
        Client(board, greet=False).socket.close()


def test_flood_of_complaints_is_cut_short(board):
    since = board.log()
    with Client(board) as client:
        for _ in range(2000):
            client.send(999, flags=HeaderFlag.NO_REPLY)
        client.config(0)
    new = board.wait_log("further lines were suppressed", since)
    assert new.count("refused") < 1000


@pytest.mark.parametrize("rounds", [60])
def test_random_messages(board, seed, rounds):
    """Well-framed and badly framed nonsense of a known seed."""
    rng = random.Random(seed)
    numbers = (0, 1, 2, 3, 4, 7, 8, 24, 4096, 0xFFFF, 2**31, 2**32 - 1)

    def nonsense() -> bytes:
        words = (rng.choice(numbers) & 0xFFFFFFFF for _ in range(rng.randrange(0, 12)))
        return struct.pack("<I", 0).join(struct.pack("<I", word) for word in words)

    for _ in range(rounds):
        with Client(board, greet=rng.random() < 0.8) as client:
            for _ in range(rng.randrange(1, 30)):
                fds = [os.eventfd(0) for _ in range(rng.choice((0, 0, 0, 1, 2, 17)))]
                body = nonsense()
                size = 16 + len(body) if rng.random() < 0.95 else rng.choice(numbers)
                command = rng.choice((*Command, WRITE_MULTI, 0, 77))
                flags = rng.choice((0, 0, 0, HeaderFlag.NO_REPLY, HeaderFlag.REPLY, 0x25))
                message = pack(Header(rng.randrange(65536), command, size, flags)) + body
                try:
                    socket.send_fds(client.socket, [message], fds)
                except (BrokenPipeError, ConnectionResetError):
                    break
                finally:
                    for fd in fds:
                        os.close(fd)
