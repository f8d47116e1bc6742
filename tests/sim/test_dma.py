# SPDX-License-Identifier: BSD-2-Clause
"""DMA of the real core through the simulated board: memory, messages, interrupts, faults, log."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from peerdma import regs
from peerdma.vfio_wire import (
    CONFIG_REGION,
    Command,
    DmaAccess,
    Irq,
    IrqSetFlag,
    RegionAccess,
    pack,
)
from tests.sim.board import BAR_DMA, Board, Client, Memory, descriptor

Status = regs.Status
DONE = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED
MIB = 1 << 20
#: Bus addresses: descriptors, data, and data above 4 GiB.
LIST, DATA, HIGH = 0x10_0000, 0x20_0000, 0x47_0000_0000
MSI_ADDRESS, MSI_DATA = 0x4C, 0x54


def list_of(memory: Memory, at: int, source: int, destination: int, length: int) -> int:
    """Puts a descriptor at byte `at` of `memory`, which is mapped at `LIST`; its bus address."""
    memory.bytes[at : at + 32] = descriptor(source, destination, length)
    return LIST + at


def round_trip(client: Client, lists: Memory, source: int, destination: int, length: int) -> None:
    """Host to card RAM to host."""
    assert client.run(False, list_of(lists, 0, source, 0, length)) == DONE
    assert client.run(True, list_of(lists, 32, 0, destination, length)) == DONE


@pytest.fixture
def lists(client: Client):
    with Memory(MIB) as memory:
        client.map(LIST, memory)
        yield memory


@pytest.fixture
def data(client: Client, seed: int):
    with Memory(MIB) as memory:
        rng = np.random.default_rng(seed)
        memory.bytes[: MIB // 2] = rng.integers(0, 256, MIB // 2, dtype="u1")
        client.map(DATA, memory)
        client.map(HIGH, memory)
        yield memory


# Shared memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [DATA, HIGH])
@pytest.mark.parametrize(("source", "target", "length"), [(0, 0, 4096), (5, 3, 4099), (4095, 1, 2)])
def test_bytes_arrive(client, lists, data, base, source, target, length):
    before = data.bytes.copy()
    target += MIB // 2
    round_trip(client, lists, base + source, base + target, length)
    before[target : target + length] = before[source : source + length]
    assert np.array_equal(data.bytes, before)


def test_window_offset_and_split_windows(client, lists):
    """Two windows side by side, out of different places of one file."""
    with Memory(8 * 4096) as memory:
        memory.bytes[:] = np.arange(8 * 4096) * 7 % 251
        client.map(DATA, memory, 4096, offset=3 * 4096)
        client.map(DATA + 4096, memory, 4096, offset=0)
        client.map(DATA + 8192, memory, 8192, offset=4 * 4096)
        round_trip(client, lists, DATA + 1000, DATA + 8192, 6000)
        expected = np.concatenate([memory.bytes[3 * 4096 : 4 * 4096], memory.bytes[:4096]])
        assert np.array_equal(memory.bytes[4 * 4096 : 4 * 4096 + 6000], expected[1000:7000])


def test_unmapped_read_is_an_unsupported_request(board, client, lists):
    since = board.log()
    status = client.run(False, list_of(lists, 0, 0x9999_0000, 0, 64))
    assert status & Status.READ_UNSUPPORTED
    board.wait_log("read of 64 bytes from 0x99990000: nobody has mapped it", since)
    assert client.config(6, 2) & 1 << 13, "Received Master Abort"


def test_unmapped_descriptor_is_an_unsupported_request(client):
    assert client.run(False, 0x9999_0000) & Status.DESC_UNSUPPORTED


def test_unmapped_write_is_dropped(board, client, lists):
    since = board.log()
    assert client.run(True, list_of(lists, 0, 0, 0x9999_0000, 64)) == DONE
    board.wait_log("write of 64 bytes to 0x99990000: nobody has mapped it", since)


def test_after_unmap_nothing_is_touched(client, lists, data):
    data.bytes[:4096] = 1
    client.unmap(DATA, MIB)
    assert client.run(True, list_of(lists, 0, 0, DATA, 4096)) == DONE
    assert (data.bytes[:4096] == 1).all()
    assert client.run(False, list_of(lists, 0, DATA, 0, 64)) & Status.READ_UNSUPPORTED


def test_read_only_window(board, client, lists):
    with Memory(4096) as memory:
        memory.bytes[:] = 3
        client.map(DATA, memory, flags=1)
        assert client.run(False, list_of(lists, 0, DATA, 0, 4096)) == DONE
        since = board.log()
        assert client.run(True, list_of(lists, 32, 4096, DATA, 64)) == DONE
        board.wait_log("nobody has mapped it for writing", since)
        assert (memory.bytes == 3).all()


def test_bus_master_off_means_no_dma(board, client, lists, data):
    client.write(CONFIG_REGION, 4, 0x0002, 2)
    data.bytes[:64] = 1
    client.start(True, list_of(lists, 0, 0, DATA, 64))
    status = client.status(True)
    assert status & Status.errors() or status & Status.BUSY
    assert (data.bytes[:64] == 1).all()


@pytest.mark.parametrize("reads", [0, 1, 2, 5, 9])
def test_bus_master_off_in_the_middle(board, client, lists, data, reads):
    """What the core had under way is dropped; that is no fault of the core's."""
    since = board.log()
    client.start(False, list_of(lists, 0, DATA, 0, 65536))
    client.start(True, list_of(lists, 32, 0, DATA + MIB // 2, 65536))
    for _ in range(reads):
        client.read(BAR_DMA, 0)
    client.write(CONFIG_REGION, 4, 0x0002, 2)
    for _ in range(50):
        client.read(BAR_DMA, 0)
    assert "error:" not in board.log()[len(since) :]


def test_truncated_file_is_survived(board, client, lists):
    """The client cuts the file that it mapped: the page is gone, the board is not."""
    with Memory(2 * 4096) as memory:
        client.map(DATA, memory)
        memory.shrink(4096)
        since = board.log()
        status = client.run(False, list_of(lists, 0, DATA + 4096, 0, 64))
        assert status & Status.READ_UNSUPPORTED
        board.wait_log("truncated", since)
        assert client.run(True, list_of(lists, 0, 0, DATA + 4096, 64)) == DONE
        assert client.run(False, list_of(lists, 0, DATA, 0, 64)) == DONE


def test_reset_in_the_middle(client, lists, data):
    client.start(False, list_of(lists, 0, DATA, 0, 65536))
    client.request(Command.DEVICE_RESET)
    client.enable()
    assert client.status(False) == 0
    round_trip(client, lists, DATA, DATA + MIB // 2, 4096)


# Messages ------------------------------------------------------------------------------------


def serve(client: Client, memory: bytearray, base: int, count: int) -> list[Command]:
    """Serves `count` DMA messages out of `memory` at bus address `base`; their commands."""
    served = []
    for _ in range(count):
        header, access, payload = client.message()
        at = access.address - base
        assert at >= 0 and at + access.nbytes <= len(memory)
        served.append(Command(header.command))
        if header.command == Command.DMA_WRITE:
            assert len(payload) == access.nbytes
            memory[at : at + access.nbytes] = payload
            client.reply_to(header, pack(access))
        else:
            assert not payload
            client.reply_to(header, pack(access) + memory[at : at + access.nbytes])
    return served


def test_memory_by_messages(client, lists, seed):
    memory = bytearray(np.random.default_rng(seed).bytes(8192))
    client.map(DATA, None, 8192)
    client.start(False, list_of(lists, 0, DATA + 4, 0, 1024))
    assert serve(client, memory, DATA, 3) == [Command.DMA_READ] * 3
    assert client.finish(False) == DONE
    client.start(True, list_of(lists, 32, 0, DATA + 4096, 1024))
    assert serve(client, memory, DATA, 8) == [Command.DMA_WRITE] * 8
    assert client.finish(True) == DONE
    assert memory[4096 : 4096 + 1024] == memory[4 : 4 + 1024]


def test_write_replies_may_be_short(client, lists):
    """One client repeats address and count in 16 bytes, another in 12, another not at all."""
    client.map(DATA, None, 4096)
    for size in (16, 12, 0):
        client.start(True, list_of(lists, 0, 0, DATA, 64))
        header, access, _ = client.message()
        client.reply_to(header, pack(access)[:size])
        assert client.finish(True) == DONE


def test_writes_are_sent_without_waiting(client, lists):
    client.map(DATA, None, 4096)
    client.start(True, list_of(lists, 0, 0, DATA, 4096))
    messages = [client.message() for _ in range(32)]
    assert client.finish(True) == DONE
    for header, access, _ in messages:
        client.reply_to(header, pack(access))


def test_registers_answer_while_a_dma_read_is_unanswered(client, lists):
    """Time goes on for the register read, and stands still without it."""
    client.map(DATA, None, 4096)
    client.start(False, list_of(lists, 0, DATA, 0, 512))
    header, access, _ = client.message()
    for _ in range(20):
        assert client.status(False) & Status.BUSY
    cycles = regs.EXTENSION.address("cycles_lo")
    first = client.read(BAR_DMA, cycles)
    time.sleep(0.3)
    second = client.read(BAR_DMA, cycles)
    assert second - first < 2000
    client.reply_to(header, pack(access) + bytes(512))
    assert client.finish(False) == DONE


def test_time_stands_still_for_an_unanswered_read(client, lists):
    """The core's completion timeout is 10 ms: far less than the client takes."""
    client.map(DATA, None, 4096)
    client.start(False, list_of(lists, 0, DATA, 0, 64))
    header, access, _ = client.message()
    assert client.silent(3.0)
    client.reply_to(header, pack(access) + bytes(64))
    assert client.finish(False) == DONE


def test_refused_messages(board, client, lists):
    client.map(DATA, None, 4096)
    since = board.log()
    client.start(False, list_of(lists, 0, DATA, 0, 64))
    client.reply_to(client.message()[0], error=errno.ENODEV)
    assert client.finish(False) & Status.READ_UNSUPPORTED
    board.wait_log("the client refused it (errno 19), Unsupported Request", since)
    client.start(True, list_of(lists, 0, 0, DATA, 64))
    client.reply_to(client.message()[0], error=errno.EFAULT)
    assert client.finish(True) == DONE
    board.wait_log("write of 64 bytes at 0x200000: the client refused it", since)


def test_transfer_size_of_the_client_is_kept(board):
    with Client(board, greet=False) as client, Memory(4096) as memory:
        text = b'{"capabilities":{"max_data_xfer_size":100}}\0'
        client.request(Command.VERSION, b"\0\0\0\0" + text)
        client.enable()
        client.map(LIST, memory)
        client.map(DATA, None, 4096)
        client.start(False, list_of(memory, 0, DATA, 0, 256))
        sizes = []
        for _ in range(3):
            header, access, _ = client.message()
            sizes.append(access.nbytes)
            client.reply_to(header, pack(access) + bytes(access.nbytes))
        assert sizes == [100, 100, 56]
        assert client.finish(False) == DONE


def test_unmapped_addresses_as_messages(tmp_path):
    with Board(tmp_path, "--dma-messages") as board, Client(board) as client:
        client.enable()
        client.start(False, LIST)
        header, access, _ = client.message()
        assert access == DmaAccess(LIST, 32)
        client.reply_to(header, error=errno.ENODEV)
        assert client.finish(False) & Status.DESC_UNSUPPORTED


# Interrupts ----------------------------------------------------------------------------------


def counted(eventfd: int, seconds: float = 30.0) -> int:
    """Waits until the eventfd counts."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            return os.eventfd_read(eventfd)
        except BlockingIOError:
            time.sleep(0.005)
    raise AssertionError("no interrupt")


def quiet(eventfd: int) -> bool:
    time.sleep(0.2)
    try:
        os.eventfd_read(eventfd)
    except BlockingIOError:
        return True
    return False


@pytest.fixture
def connect(client: Client):
    """Connects vector 0 of an index to a new eventfd."""
    made = []

    def connect(index: Irq) -> int:
        made.append(client.connect(index))
        return made[-1]

    yield connect
    for eventfd in made:
        os.close(eventfd)


def test_msi(client, lists, data, connect):
    eventfd = connect(Irq.MSI)
    for _ in range(3):
        client.start(False, list_of(lists, 0, DATA, 0, 64), interrupt=True)
        assert counted(eventfd) == 1
        assert client.finish(False) & DONE == DONE
        client.read(BAR_DMA, regs.CHANNEL.address("status_rc"))
    assert quiet(eventfd)


def test_intx_is_a_level_that_masks_itself(client, lists, data, connect):
    unmask = IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_UNMASK
    eventfd = connect(Irq.INTX)
    client.start(False, list_of(lists, 0, DATA, 0, 64), interrupt=True)
    assert counted(eventfd) == 1
    assert client.config(6, 2) & 8, "Interrupt Status"
    assert quiet(eventfd)
    # The level still stands: unmasking fires again.
    client.irqs(Irq.INTX, unmask)
    assert counted(eventfd) == 1
    client.read(BAR_DMA, regs.CHANNEL.address("status_rc"))
    client.finish(False)
    client.irqs(Irq.INTX, unmask)
    assert quiet(eventfd)
    assert not client.config(6, 2) & 8
    client.irqs(Irq.INTX, IrqSetFlag.DATA_NONE | 8)
    client.start(False, list_of(lists, 0, DATA, 0, 64), interrupt=True)
    assert quiet(eventfd)
    client.irqs(Irq.INTX, unmask)
    assert counted(eventfd) == 1


def test_intx_disable(client, lists, data, connect):
    eventfd = connect(Irq.INTX)
    client.write(CONFIG_REGION, 4, 0x0406, 2)
    client.start(False, list_of(lists, 0, DATA, 0, 64), interrupt=True)
    assert quiet(eventfd)
    client.enable()
    assert counted(eventfd) == 1


def test_interrupt_waits_for_written_messages(client, lists, connect):
    """Data that the client has not acknowledged is not there yet."""
    eventfd = connect(Irq.MSI)
    client.map(DATA, None, 4096)
    client.start(True, list_of(lists, 0, 0, DATA, 512), interrupt=True)
    messages = [client.message() for _ in range(4)]
    for header, access, _ in messages[:-1]:
        client.reply_to(header, pack(access))
    assert quiet(eventfd)
    # Meanwhile registers answer.
    assert client.read(BAR_DMA, 0) == regs.identifier(0)
    header, access, _ = messages[-1]
    client.reply_to(header, pack(access))
    assert counted(eventfd) == 1


def test_msix_table_is_filled_in_for_the_client(tmp_path):
    log = tmp_path / "tlps"
    with (
        Board(tmp_path, "--msix", "--msi", "0", "--log-tlps", str(log), "--once") as board,
        Client(board) as client,
    ):
        client.enable()
        os.close(client.connect(Irq.MSIX))
        assert client.config(0x9E, 2) & 0x8000
        client.irqs(Irq.MSIX, IrqSetFlag.DATA_EVENTFD | IrqSetFlag.ACTION_TRIGGER, 0, 1)
        client.config(0)
        client.socket.close()
        assert board.process.wait(30) == 0
    lines = [line for line in log.read_text().splitlines() if " down MWr addr=0x8000 " in line]
    entry, masked = (line.partition("data=")[2] for line in lines)
    assert entry == "0000e0feffffffff0000000000000000"
    assert masked == "0000e0feffffffff0000000001000000"


# Faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        ("ur", Status.READ_UNSUPPORTED),
        ("ca", Status.READ_ABORT),
        ("poison", Status.READ_POISONED),
        ("drop", Status.READ_UNSUPPORTED),
    ],
)
def test_fault_in_data(tmp_path, fault, first):
    """The third read (descriptor, data, data) fails once; the next transfer is fine."""
    with (
        Board(tmp_path, "--fault", f"{fault}@3") as board,
        Client(board) as client,
        Memory(MIB) as memory,
    ):
        client.enable()
        client.map(LIST, memory)
        status = client.run(False, list_of(memory, 0, LIST + 4096, 0, 1024))
        assert status & first, status
        assert "fault: read 3 gets" in board.log()
        assert client.run(False, list_of(memory, 0, LIST + 4096, 0, 1024)) == DONE


def test_hang(tmp_path):
    with Board(tmp_path, "--fault", "hang@2") as board, Client(board) as client:
        client.enable()
        with Memory(MIB) as memory:
            client.map(LIST, memory)
            assert client.run(False, list_of(memory, 0, LIST, 0, 64)) & Status.errors()
            assert client.run(False, LIST) & Status.errors()
        assert board.log().count("no answer from now on") == 1


# Root complex --------------------------------------------------------------------------------


def numbers(log: Path, pattern: str) -> list[int]:
    """What the group of `pattern` matches, line by line."""
    return [int(number) for number in re.findall(pattern, log.read_text())]


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ((), {128}),
        (("--completion-size", "64"), {64}),
        (("--rcb", "128", "--completion-size", "64"), {128}),
        (("--reorder", "1"), {64, 128}),
        (("--link", "gen1x1"), {128}),
        (("--link", "unlimited", "--rtt-ns", "0"), {128}),
    ],
    ids=lambda value: "-".join(value).strip("-") or "default" if isinstance(value, tuple) else "",
)
def test_completions(tmp_path, arguments, sizes, seed):
    log = tmp_path / "tlps"
    with (
        Board(tmp_path, "--log-tlps", str(log), "--once", *arguments) as board,
        Client(board) as client,
        Memory(MIB) as memory,
    ):
        memory.bytes[:] = np.random.default_rng(seed).integers(0, 256, MIB, dtype="u1")
        client.enable()
        client.map(LIST, memory)
        data = LIST + 65536
        round_trip(client, memory, data, data + 65536, 16384)
        assert np.array_equal(memory.bytes[65536:][:16384], memory.bytes[131072:][:16384])
        client.socket.close()
        assert board.process.wait(30) == 0
    lengths = numbers(log, r"down CplD status=0 len=(\d+)")
    assert {length for length in lengths if length > 32} == sizes
    tags = numbers(log, r"down CplD status=0 .*tag=(\d+)")
    requested = numbers(log, r"up MRd .*tag=(\d+)")
    assert set(tags) == set(requested)
    order = [tag for tag, last in zip(tags, [None, *tags], strict=False) if tag != last]
    assert (order == requested) == ("--reorder" not in arguments)


def test_log_lines(tmp_path):
    log = tmp_path / "tlps"
    with (
        Board(tmp_path, "--log-tlps", str(log), "--once") as board,
        Client(board) as client,
        Memory(MIB) as memory,
    ):
        client.enable()
        client.map(LIST, memory)
        memory.bytes[4096:4100] = [1, 2, 3, 4]
        assert client.run(False, list_of(memory, 0, LIST + 4096, 0, 8)) == DONE
        assert client.run(False, list_of(memory, 0, 0x9990_0000, 0, 8)) != DONE
        client.socket.close()
        assert board.process.wait(30) == 0
    text = log.read_text()
    assert re.search(r"^\d+ down MWr addr=0x4080 len=4 tag=0 be=f/0 data=00001000$", text, re.M)
    assert re.search(r"^\d+ up MRd addr=0x101000 len=8 tag=\d+ be=f/f$", text, re.M)
    assert re.search(r"^\d+ down CplD .*len=8 .*count=8 low=0x00 data=01020304", text, re.M)
    assert re.search(r"^\d+ down Cpl status=1 len=0 tag=\d+ count=8", text, re.M)
    cycles = [int(line.split()[0]) for line in text.splitlines()]
    assert cycles == sorted(cycles)


def test_rests_when_idle(board: Board, client: Client):
    client.read(BAR_DMA, 0)
    time.sleep(0.2)
    before = board.cpu_ticks()
    time.sleep(1.0)
    assert board.cpu_ticks() - before <= 3


def test_two_channels_at_once(client, lists, data):
    """Both directions run together; register reads go in between."""
    client.start(False, list_of(lists, 0, DATA, 0, 32768))
    client.start(True, list_of(lists, 32, 32768, DATA + MIB // 2, 32768))
    body = pack(RegionAccess(0, BAR_DMA, 4))
    for message_id in [client.send(Command.REGION_READ, body) for _ in range(10)]:
        client.answer(message_id)
    assert client.finish(False) == DONE
    assert client.finish(True) == DONE
