# SPDX-License-Identifier: BSD-2-Clause
"""DMA of the real core through the simulated board: shared memory, faults, completions, log."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from peerdma import regs
from peerdma.vfio_user.wire import (
    CONFIG_REGION,
    Command,
    DmaAccess,
    RegionAccess,
    pack,
)
from tests.sim.board.client import BAR_DMA, IMPATIENT, Board, Client, Memory
from tests.sim.board.dma import DATA, DONE, HIGH, LIST, MIB, list_of

Status = regs.Status


@pytest.fixture(scope="module")
def board(board_of_each_block: Board) -> Board:
    return board_of_each_block


def round_trip(client: Client, lists: Memory, source: int, destination: int, length: int) -> None:
    """Host to card RAM to host."""
    assert client.run(False, list_of(lists, 0, source, 0, length)) == DONE
    assert client.run(True, list_of(lists, 32, 0, destination, length)) == DONE


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
    board.wait_log("read of 64 bytes at 0x99990000: the client refused it", since)
    assert client.refused == [(Command.DMA_READ, DmaAccess(0x9999_0000, 64))]
    assert client.config(6, 2) & 1 << 13, "Received Master Abort"


def test_unmapped_descriptor_is_an_unsupported_request(client):
    assert client.run(False, 0x9999_0000) & Status.DESC_UNSUPPORTED


def test_the_client_learns_of_unmapped_writes(board, client, lists):
    """The core cannot: its writes are posted, and end well."""
    since = board.log()
    assert client.run(True, list_of(lists, 0, 0, 0x9999_0000, 300)) == DONE
    board.wait_log("write of 128 bytes at 0x99990000: the client refused it", since)
    assert client.refused == [
        (Command.DMA_WRITE, DmaAccess(0x9999_0000 + at, min(128, 300 - at)))
        for at in range(0, 300, 128)
    ]


def test_writes_across_the_edge_of_a_window(client, lists, data, seed):
    """What lies in the window arrives; the client is told of the rest."""
    window, edge = 0x3000_0000, 0x3000_1000
    rng = np.random.default_rng(seed)
    with Memory(4096) as memory:
        client.map(window, memory)
        for _ in range(10):
            before, after = (int(n) for n in rng.integers(1, 300, 2))
            memory.bytes[:] = 0
            client.refused.clear()
            round_trip(client, lists, DATA, edge - before, before + after)
            assert not memory.bytes[:-before].any()
            assert (memory.bytes[-before:] == data.bytes[:before]).all()
            assert {command for command, _ in client.refused} == {Command.DMA_WRITE}
            assert client.refused[0][1].address == edge
            assert sum(access.nbytes for _, access in client.refused) == after


def test_after_unmap_nothing_is_touched(client, lists, data):
    data.bytes[:4096] = 1
    client.unmap(DATA, MIB)
    assert client.run(True, list_of(lists, 0, 0, DATA, 4096)) == DONE
    assert (data.bytes[:4096] == 1).all()
    assert sum(access.nbytes for _, access in client.refused) == 4096
    assert client.run(False, list_of(lists, 0, DATA, 0, 64)) & Status.READ_UNSUPPORTED


def test_read_only_window(board, client, lists):
    with Memory(4096) as memory:
        memory.bytes[:] = 3
        client.map(DATA, memory, flags=1)
        assert client.run(False, list_of(lists, 0, DATA, 0, 4096)) == DONE
        since = board.log()
        assert client.run(True, list_of(lists, 32, 4096, DATA, 64)) == DONE
        board.wait_log("write of 64 bytes at 0x200000: the client refused it", since)
        assert client.refused == [(Command.DMA_WRITE, DmaAccess(DATA, 64))]
        assert (memory.bytes == 3).all()


def test_write_only_window(client, lists):
    with Memory(4096) as memory:
        client.map(DATA, memory, flags=2)
        assert client.run(True, list_of(lists, 0, 0, DATA, 64)) == DONE
        assert not client.refused
        assert client.run(False, list_of(lists, 0, DATA, 0, 64)) & Status.READ_UNSUPPORTED
        assert client.refused == [(Command.DMA_READ, DmaAccess(DATA, 64))]


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
        assert client.refused == [(Command.DMA_WRITE, DmaAccess(DATA + 4096, 64))]
        assert client.run(False, list_of(lists, 0, DATA, 0, 64)) == DONE


def test_reset_in_the_middle(client, lists, data):
    client.start(False, list_of(lists, 0, DATA, 0, 65536))
    client.request(Command.DEVICE_RESET)
    client.enable()
    assert client.status(False) == 0
    round_trip(client, lists, DATA, DATA + MIB // 2, 4096)


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
        Board(tmp_path, "--fault", f"{fault}@3", *IMPATIENT) as board,
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
    with Board(tmp_path, "--fault", "hang@2", *IMPATIENT) as board, Client(board) as client:
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
