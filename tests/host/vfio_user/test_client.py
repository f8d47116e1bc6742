# SPDX-License-Identifier: BSD-2-Clause
"""The vfio-user client against a scripted device: serving DMA, and devices that misbehave."""

import contextlib
import errno
import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import peerdma
from peerdma.vfio_user.client import VfioUserClient
from peerdma.vfio_user.wire import (
    Command,
    DmaAccess,
    DmaMap,
    Header,
    HeaderFlag,
    Irq,
    RegionAccess,
    Version,
    pack,
    unpack,
)
from tests.host.conftest import open_files

BASE = 0x20_0000_0000


@pytest.fixture
def client(device):
    """Connects to a script: ``client(script, timeout)``."""
    clients = []

    def connect(script, timeout=10.0):
        def whole(end):
            end.greet()
            script(end)

        clients.append(VfioUserClient(device(whole), timeout=timeout))
        return clients[-1]

    yield connect
    for each in clients:
        each.close()


def answer_read(end, value=0x1234):
    header, payload = end.expect(Command.REGION_READ)
    access = unpack(RegionAccess, payload)
    end.reply(header, payload + value.to_bytes(access.nbytes, "little"))


def test_the_first_words(device):
    def script(end):
        header, payload = end.expect(Command.VERSION)
        assert unpack(Version, payload) == (0, 0)
        assert payload.endswith(b"}\0")
        assert b'"max_data_xfer_size": 1048576' in payload
        end.reply(header, pack(Version(0, 0)))

    VfioUserClient(device(script), timeout=10).close()


def test_another_version_is_refused_by_naming_both(device):
    with pytest.raises(peerdma.VersionMismatch, match=r"speaks vfio-user 0\.0, the board 1\.0"):
        VfioUserClient(device(lambda end: end.greet(major=1)), timeout=10)


def test_register_writes_are_posted_and_config_writes_are_not(client):
    def script(end):
        header, payload = end.expect(Command.REGION_WRITE)
        assert header.flags == HeaderFlag.NO_REPLY
        assert (unpack(RegionAccess, payload), payload[16:]) == ((8, 1, 4), b"\x78\x56\x34\x12")
        header, payload = end.expect(Command.REGION_WRITE)
        assert header.flags == 0
        assert (unpack(RegionAccess, payload), payload[16:]) == ((4, 7, 2), b"\x06\x00")
        end.reply(header, payload[:16])
        answer_read(end)

    board = client(script)
    board.region_write(1, 8, 4, 0x12345678)
    board.region_write(7, 4, 2, 6)
    assert board.region_read(1, 0, 4) == 0x1234


def test_memory_travels_as_file_descriptor_and_flags(client):
    def script(end):
        header, payload = end.expect(Command.DMA_MAP)
        assert unpack(DmaMap, payload) == (32, 3, 4096, BASE, 8192)
        end.reply(header)
        header, payload = end.expect(Command.DMA_MAP)
        assert unpack(DmaMap, payload) == (32, 1, 0, BASE + 8192, 4096)
        end.reply(header)

    board = client(script)
    fd = os.memfd_create("test")
    board.dma_map(BASE, 8192, memoryview(bytearray(8192)), fd=fd, fd_offset=4096)
    os.close(fd)
    board.dma_map(BASE + 8192, 4096, memoryview(bytes(4096)))


def test_dma_is_served_in_order_while_a_reply_is_awaited(client):
    memory = bytearray(range(256)) * 32

    def script(end):
        header, _ = end.expect(Command.DMA_MAP)
        end.reply(header)
        read, payload = end.expect(Command.REGION_READ)
        end.command(Command.DMA_READ, pack(DmaAccess(BASE + 3, 300)), 11)
        end.command(Command.DMA_WRITE, pack(DmaAccess(BASE + 5, 4)) + b"abcd", 12)
        end.command(Command.DMA_READ, pack(DmaAccess(BASE + 4, 6)), 13)
        end.command(Command.DMA_WRITE, pack(DmaAccess(BASE, 1)) + b"x", 14, HeaderFlag.NO_REPLY)
        end.reply(read, payload + b"\1\0\0\0")
        header, payload = end.receive()
        assert (header.message_id, header.command, header.flags) == (11, Command.DMA_READ, 1)
        assert payload == pack(DmaAccess(BASE + 3, 300)) + (bytes(range(256)) * 32)[3:303]
        header, payload = end.receive()
        assert (header.message_id, payload) == (12, pack(DmaAccess(BASE + 5, 4)))
        header, payload = end.receive()
        assert (header.message_id, payload[16:]) == (13, b"\x04abcd\x09")
        answer_read(end)

    board = client(script)
    board.dma_map(BASE, 8192, memoryview(memory))
    assert board.region_read(1, 0, 4) == 1
    assert board.region_read(1, 0, 4) == 0x1234
    assert memory[:1] == b"x"


def test_dma_across_windows_and_outside_them(client):
    one, other = bytearray(b"1" * 4096), bytearray(b"2" * 100)
    fixed = np.full(16, ord("3"), np.uint8)
    fixed.flags.writeable = False

    def refused(end, command, address, data=b"", nbytes=None):
        count = len(data) if nbytes is None else nbytes
        end.command(command, pack(DmaAccess(address, count)) + data, 5)
        header, payload = end.receive()
        assert payload == b""
        return header.flags == HeaderFlag.REPLY | HeaderFlag.ERROR and header.error

    def script(end):
        for _ in range(3):
            header, _ = end.expect(Command.DMA_MAP)
            end.reply(header)
        read, payload = end.expect(Command.REGION_READ)
        end.command(Command.DMA_READ, pack(DmaAccess(BASE + 4090, 6 + 100)), 5)
        assert end.receive()[1][16:] == b"1" * 6 + b"2" * 100
        end.command(Command.DMA_WRITE, pack(DmaAccess(BASE + 4094, 4)) + b"wxyz", 6)
        assert end.receive()[0].flags == HeaderFlag.REPLY
        assert refused(end, Command.DMA_READ, BASE - 1, nbytes=2) == errno.EFAULT
        assert refused(end, Command.DMA_READ, BASE + 4096, nbytes=101) == errno.EFAULT
        assert refused(end, Command.DMA_WRITE, BASE + 8192 + 40, b"no") == errno.EFAULT
        end.command(Command.DMA_READ, pack(DmaAccess(BASE + 8192 + 55, 1)), 7)
        assert end.receive()[1][16:] == b"3"
        assert refused(end, 99, 0) == errno.EOPNOTSUPP
        end.reply(read, payload + bytes(4))
        header, _ = end.expect(Command.DMA_UNMAP)
        end.reply(header, bytes(24))
        read, payload = end.expect(Command.REGION_READ)
        assert refused(end, Command.DMA_READ, BASE, nbytes=1) == errno.EFAULT
        end.reply(read, payload + bytes(4))

    board = client(script)
    board.dma_map(BASE, 4096, memoryview(one))
    board.dma_map(BASE + 4096, 4096, memoryview(other))
    board.dma_map(BASE + 8192, 4096, fixed.data, skip=40)
    board.region_read(1, 0, 4)
    assert (one[-2:], other[:2]) == (b"wx", b"yz")
    board.dma_unmap(BASE, 4096)
    board.region_read(1, 0, 4)


def test_lost_writes_are_recorded_until_they_are_taken(client, seed):
    """All that found no memory, and nothing else; posted or not."""
    random = np.random.default_rng(seed)
    memory, fixed = bytearray(4096), memoryview(bytes(4096))
    lost, sent = [(BASE + 4096, 1)], [(BASE + 4096, 1, False, False)]
    for _ in range(30):
        address = BASE + int(random.integers(0, 3 * 4096))
        nbytes = int(random.integers(1, 300))
        reads, posted = random.integers(0, 2, 2).tolist()
        sent.append((address, nbytes, reads, posted))
        if not reads and address + nbytes > BASE + 4096:
            lost.append((address, nbytes))

    def script(end):
        for _ in range(2):
            header, _ = end.expect(Command.DMA_MAP)
            end.reply(header)
        read, payload = end.expect(Command.REGION_READ)
        for address, nbytes, reads, posted in sent:
            command = Command.DMA_READ if reads else Command.DMA_WRITE
            flags = HeaderFlag.NO_REPLY if posted and not reads else 0
            data = b"" if reads else bytes(nbytes)
            end.command(command, pack(DmaAccess(address, nbytes)) + data, 5, flags)
            if not flags:
                header, _ = end.receive()
                refused = address + nbytes > BASE + (8192 if reads else 4096)
                assert bool(header.flags & HeaderFlag.ERROR) == refused
        end.reply(read, payload + bytes(4))

    board = client(script)
    board.dma_map(BASE, 4096, memoryview(memory))
    board.dma_map(BASE + 4096, 4096, fixed)
    assert board.take_lost_writes() is None
    board.region_read(1, 0, 4)
    taken = board.take_lost_writes()
    assert taken == (lost[0][0], sum(nbytes for _, nbytes in lost), len(lost))
    assert board.take_lost_writes() is None


def test_dma_is_served_while_an_interrupt_is_awaited(client):
    memory = bytearray(4096)

    def script(end):
        header, _ = end.expect(Command.DMA_MAP)
        end.reply(header)
        header, _ = end.expect(Command.DEVICE_SET_IRQS)
        end.reply(header)
        end.command(Command.DMA_WRITE, pack(DmaAccess(BASE, 2)) + b"ok", 1)
        end.receive()
        os.eventfd_write(event, 1)

    event = os.eventfd(0, os.EFD_NONBLOCK)
    board = client(script)
    board.dma_map(BASE, 4096, memoryview(memory))
    board.irq_connect(Irq.MSI, event)
    assert board.wait_event(event, 10)
    assert memory[:2] == b"ok"
    os.close(event)


def test_what_comes_behind_a_reply_is_served_before_the_call_returns(client):
    """Else nobody would know of it, as the socket has nothing more to read."""
    memory = bytearray(b"data" * 1024)
    answered = threading.Event()

    def script(end):
        header, _ = end.expect(Command.DMA_MAP)
        end.reply(header)
        header, payload = end.expect(Command.REGION_READ)
        body = payload + bytes(4)
        size = Header.FORMAT.size
        reply = header._replace(flags=HeaderFlag.REPLY, size=size + len(body))
        access = pack(DmaAccess(BASE, 4))
        question = Header(7, Command.DMA_READ, size + len(access), 0)
        end.connection.sendall(pack(reply) + body + pack(question) + access)
        header, payload = end.receive()
        assert (header.message_id, payload[-4:]) == (7, b"data")
        answered.set()

    board = client(script)
    board.dma_map(BASE, 4096, memoryview(memory))
    assert board.region_read(1, 0, 4) == 0
    assert answered.wait(10)


def test_an_interrupt_that_does_not_come(client):
    hold = threading.Event()
    event = os.eventfd(0, os.EFD_NONBLOCK)
    board = client(lambda end: hold.wait(10))
    assert not board.wait_event(event, 0.05)
    hold.set()
    os.close(event)


def test_neither_side_blocks_when_both_send_a_lot(client):
    """The device sends before it reads; the client must take that in while its own waits."""
    memory = bytearray(1 << 20)
    writes = 40_000

    def script(end):
        header, _ = end.expect(Command.DMA_MAP)
        end.reply(header)
        end.expect(Command.REGION_WRITE)
        for _ in range(8):
            end.command(
                Command.DMA_WRITE,
                pack(DmaAccess(BASE, 1 << 20)) + bytes([7]) * (1 << 20),
                flags=HeaderFlag.NO_REPLY,
            )
        for _ in range(writes - 1):
            end.expect(Command.REGION_WRITE)
        answer_read(end)

    board = client(script)
    board.dma_map(BASE, 1 << 20, memoryview(memory))
    for _ in range(writes):
        board.region_write(1, 0, 4, 0)
    board.region_read(1, 0, 4)
    assert set(memory) == {7}


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.EEXIST, "File exists"), (0, "no reason given")]
)
def test_refusals_keep_their_errno(client, number, reason):
    def script(end):
        header, _ = end.expect(Command.DMA_MAP)
        end.reply(header, error=number, error_flag=True)
        answer_read(end)

    board = client(script)
    with pytest.raises(peerdma.ProtocolError, match=f"refused DMA_MAP: {reason}") as caught:
        board.dma_map(BASE, 4096, memoryview(bytearray(4096)))
    assert caught.value.errno == number
    assert board.region_read(1, 0, 4) == 0x1234


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda end, header, _: end.reply(header, b"short"), "answered a read of 4 bytes with 0"),
        (lambda end, header, _: end.reply(header._replace(message_id=77)), "to message"),
        (
            lambda end, header, _: end.connection.sendall(pack(Header(1, 9, 5, 1))),
            "sent a message of 5 bytes",
        ),
        (
            lambda end, header, _: end.command(Command.DMA_WRITE, pack(DmaAccess(0, 9)) + b"x"),
            "sent 1 bytes of DMA data, saying 9",
        ),
        (
            lambda end, header, _: end.command(Command.DMA_READ, pack(DmaAccess(0, 1 << 21))),
            "saying 2097152",
        ),
        (
            lambda end, header, _: end.command(Command.DMA_READ, b"?"),
            "sent 1 bytes where a DmaAccess belongs",
        ),
    ],
)
def test_nonsense_ends_the_connection(client, answer, message):
    board = client(lambda end: answer(end, *end.expect(Command.REGION_READ)))
    with pytest.raises(peerdma.ProtocolError, match=message):
        board.region_read(1, 0, 4)
    assert board.lost
    with pytest.raises(peerdma.BoardLost, match="is gone"):
        board.region_read(1, 0, 4)


def test_a_device_that_leaves_is_lost_with_what_is_known(device):
    def script(end):
        end.greet()
        end.expect(Command.REGION_READ)

    process = SimpleNamespace(why_lost=lambda: "it tripped")
    board = VfioUserClient(device(script), timeout=10, process=process)
    with pytest.raises(peerdma.BoardLost, match="went away: it closed the connection; it tripped"):
        board.region_read(1, 0, 4)
    assert board.lost
    board.close()


def test_leaving_while_an_interrupt_is_awaited(client):
    event = os.eventfd(0, os.EFD_NONBLOCK)
    board = client(lambda end: None)
    with pytest.raises(peerdma.BoardLost, match="closed the connection"):
        board.wait_event(event, 10)
    os.close(event)


def test_silence_is_a_timeout_and_final(client):
    hold = threading.Event()
    board = client(lambda end: hold.wait(10), timeout=0.1)
    with pytest.raises(peerdma.Timeout, match=r"did not answer REGION_READ within 0\.1 s"):
        board.region_read(1, 0, 4)
    with pytest.raises(peerdma.BoardLost, match="it stopped answering"):
        board.region_write(1, 0, 4, 0)
    hold.set()


def test_a_device_that_does_not_read_is_a_timeout(client):
    hold = threading.Event()
    board = client(lambda end: hold.wait(10), timeout=0.1)

    def write_on():
        for _ in range(100_000):
            board.region_write(1, 0, 4, 0)

    with pytest.raises(peerdma.Timeout, match="read no message"):
        write_on()
    hold.set()


def test_ctrl_c_while_an_answer_is_awaited_leaves_the_connection_whole(client):
    def script(end):
        header, payload = end.expect(Command.REGION_READ)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        end.reply(header, payload + b"\1\0\0\0")
        answer_read(end)

    board = client(script)
    with pytest.raises(KeyboardInterrupt):
        board.region_read(1, 0, 4)
    assert board.region_read(1, 0, 4) == 0x1234


def test_ctrl_c_while_memory_is_mapped_takes_it_back(client):
    def script(end):
        header, _ = end.expect(Command.DMA_MAP)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        end.reply(header)
        header, payload = end.expect(Command.DMA_UNMAP)
        end.reply(header, payload)
        read, payload = end.expect(Command.REGION_READ)
        end.command(Command.DMA_READ, pack(DmaAccess(BASE, 1)))
        assert end.receive()[0].error == errno.EFAULT
        end.reply(read, payload + bytes(4))

    board = client(script)
    with pytest.raises(KeyboardInterrupt):
        board.dma_map(BASE, 4096, memoryview(bytearray(4096)))
    board.region_read(1, 0, 4)


def test_a_device_that_only_asks_is_a_timeout(client):
    def script(end):
        with contextlib.suppress(OSError, EOFError):
            while True:
                end.command(Command.DMA_READ, pack(DmaAccess(BASE, 1)))
                end.receive()

    event = os.eventfd(0, os.EFD_NONBLOCK)
    board = client(script, timeout=0.2)
    assert not board.wait_event(event, 0.2)
    with pytest.raises(peerdma.Timeout, match="did not answer REGION_READ"):
        board.region_read(1, 0, 4)
    board.close()
    os.close(event)


def test_nobody_there(tmp_path):
    path = str(tmp_path / "none.sock")
    command = f"`make setup && .venv/bin/python -m sim.board --socket {path}`"
    message = f"No such file or directory. Start one in a checkout: {command}"
    with pytest.raises(peerdma.BoardNotFound, match=message) as caught:
        peerdma.open(path)
    assert caught.value.errno == errno.ENOENT


def test_connections_leave_no_descriptor_behind(device, tmp_path):
    before = open_files()
    with pytest.raises(peerdma.BoardNotFound):
        VfioUserClient(str(tmp_path / "none.sock"), timeout=1)
    assert open_files() == before


@pytest.mark.parametrize("cut", [1, 40, 100_000])
def test_what_arrives_at_once_is_copied_once(client, cut):
    """Each message is taken out of what was received without copying what is behind it."""
    memory, count = np.zeros(1, np.uint8), 2000
    body = pack(DmaAccess(BASE, 1)) + b"\x07"
    header = Header(0, Command.DMA_WRITE, Header.FORMAT.size + len(body), HeaderFlag.NO_REPLY)
    arrived = [(pack(header) + body) * count]
    size = len(arrived[0])
    arrived = [arrived[0][at : at + size // cut + 1] for at in range(0, size, size // cut + 1)]

    def script(end):
        end.reply(end.expect(Command.DMA_MAP)[0])
        end.expect(Command.DEVICE_RESET)

    board = client(script)
    board.dma_map(BASE, 4096, memory.data)
    copied = 0

    class Counted(bytes):
        def __getitem__(self, key):
            nonlocal copied
            part = super().__getitem__(key)
            copied += len(part) if isinstance(key, slice) else 0
            return part

    class Socket:
        def recvmsg(self, *_):
            return Counted(arrived.pop(0)), [], 0, None

        def __getattr__(self, name):
            return getattr(real, name)

    real, board._socket = board._socket, Socket()
    try:
        while arrived:
            board.serve()
    finally:
        board._socket = real
    assert memory[0] == 7 and board.take_lost_writes() is None and not board._state[0]
    # What was joined before is not counted.
    assert copied < 2 * size and (cut > 1 or copied > size // 3)
    with contextlib.suppress(peerdma.PeerdmaError):
        board.reset()
