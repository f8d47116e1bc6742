# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board says which channel does not move, and what it waits for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from peerdma import regs
from peerdma.regs import WaitsFor
from tests.boards import options
from tests.sim.board.client import BAR_DMA, BAR_USER, Board, Client, Memory
from tests.sim.board.dma import DATA, DONE, LIST, MIB, list_of
from tests.sim.board.valve import GIVES, TAKES

H2C, C2H = False, True
STREAM = regs.STREAM_WINDOW
NOTE = re.compile(
    r"^board: note: (\w+) channel (\d) has not moved for (\d+) cycles(, and nothing is under way)?:"
    r" it waits for (.*)$",
    re.MULTILINE,
)
TEXTS = {each.text: each for each in WaitsFor}
#: Seconds in which a board that has more to say has said it.
SOON = 3.0


def notes(board: Board, since: str = "") -> list[tuple[bool, WaitsFor]]:
    """(whether it is C2H, what it waits for) of each note after `since`, in order."""
    found = NOTE.findall(board.log()[len(since) :])
    assert len(found) == board.log()[len(since) :].count("note:")
    return [(name == "C2H", TEXTS[text]) for name, _, _, _, text in found]


def wait_notes(board: Board, *expected: tuple[bool, WaitsFor], since: str = "") -> None:
    """These notes come, in any order, each once; and no other."""
    for _, wait in expected:
        board.wait_log(wait.text, since)
    time.sleep(SOON)
    assert sorted(notes(board, since)) == sorted(expected)


def to_stream(memory: Memory, at: int, address: int, length: int) -> int:
    """A descriptor that sends memory to the user block; its bus address."""
    return list_of(memory, at, address, STREAM, length)


def from_stream(memory: Memory, at: int, address: int, length: int) -> int:
    """A descriptor that writes what the user block gives; its bus address."""
    return list_of(memory, at, STREAM, address, length)


@pytest.fixture(scope="module")
def valved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board whose user block takes and gives as software says."""
    folder = tmp_path_factory.mktemp("valve")
    with Board(folder, *options("small")) as board:
        yield board


@pytest.fixture
def stream(valved: Board) -> Iterator[Client]:
    """A client of it, with memory at `DATA`."""
    with Client(valved) as client, Memory(MIB) as data:
        client.enable()
        client.map(DATA, data)
        yield client


@pytest.fixture
def chain(stream: Client) -> Iterator[Memory]:
    """Its memory at `LIST`."""
    with Memory(MIB) as memory:
        stream.map(LIST, memory)
        yield memory


def valve(client: Client, bits: int) -> None:
    client.write(BAR_USER, regs.USER_BLOCK_BASE, bits)


def test_a_user_block_that_takes_nothing(valved, stream, chain):
    since = valved.log()
    stream.start(C2H, from_stream(chain, 0, DATA, 65536))
    stream.start(H2C, to_stream(chain, 32, DATA, 65536))
    wait_notes(valved, (H2C, WaitsFor.USER_INPUT), (C2H, WaitsFor.USER_OUTPUT), since=since)


def test_a_user_block_that_gives_nothing_may_be_normal(valved, stream, chain):
    since = valved.log()
    valve(stream, TAKES)
    stream.start(C2H, from_stream(chain, 0, DATA, 65536))
    assert stream.run(H2C, to_stream(chain, 32, DATA, 65536)) == DONE
    wait_notes(valved, (C2H, WaitsFor.USER_OUTPUT), since=since)
    assert "C2H channel 0 has not moved" in valved.log()[len(since) :]
    assert "waits for the user block to give data (normal " in valved.log()[len(since) :]


def test_output_that_nobody_takes(valved, stream, chain):
    """The block itself is fine: without a C2H run its output has nowhere to go."""
    since = valved.log()
    valve(stream, TAKES | GIVES)
    stream.start(H2C, to_stream(chain, 0, DATA, 65536))
    wait_notes(valved, (H2C, WaitsFor.USER_INPUT), since=since)


def test_a_note_is_said_once_for_each_stall(valved, stream, chain):
    """Accesses that move nothing do not repeat it; a stall after progress is another one."""
    stalled = [(H2C, WaitsFor.USER_INPUT), (C2H, WaitsFor.USER_OUTPUT)]
    since = valved.log()
    stream.start(C2H, from_stream(chain, 0, DATA, 32768))
    stream.start(H2C, to_stream(chain, 32, DATA, 65536))
    wait_notes(valved, *stalled, since=since)
    for _ in range(20):
        assert stream.status(H2C) & regs.Status.BUSY
    wait_notes(valved, *stalled, since=since)
    since = valved.log()
    valve(stream, TAKES | GIVES)
    assert stream.finish(C2H) == DONE
    wait_notes(valved, (H2C, WaitsFor.USER_INPUT), since=since)


def test_a_pair_that_is_to_be_flushed(valved, stream, chain):
    """C2H goes on after H2C failed, so no new H2C run can start."""
    since = valved.log()
    stream.start(C2H, from_stream(chain, 0, DATA, 65536))
    assert stream.run(H2C, to_stream(chain, 32, 0x9999_0000, 64)) & regs.Status.errors()
    stream.start(H2C, to_stream(chain, 32, DATA, 64))
    wait_notes(valved, (H2C, WaitsFor.FLUSH), (C2H, WaitsFor.USER_OUTPUT), since=since)


# Descriptors ---------------------------------------------------------------------------------


def common(client: Client, name: str, value: int) -> None:
    client.write(BAR_DMA, regs.SGDMA_COMMON.address(name), value)


def test_no_credits(board, client, lists, data):
    """The note says that it may be normal; with a credit the channel goes on."""
    since = board.log()
    common(client, "credit_enable_w1s", 1)
    client.start(H2C, list_of(lists, 0, DATA, 0, 64))
    wait_notes(board, (H2C, WaitsFor.CREDIT), since=since)
    assert "descriptor credits (normal " in board.log()[len(since) :]
    client.write(BAR_DMA, regs.SGDMA.address("descriptor_credits"), 1)
    assert client.finish(H2C) == DONE
    common(client, "credit_enable_w1c", 1)


def test_a_halted_channel(board, client, lists, data):
    since = board.log()
    common(client, "halt_w1s", 1)
    client.start(H2C, list_of(lists, 0, DATA, 0, 64))
    wait_notes(board, (H2C, WaitsFor.RELEASE), since=since)
    common(client, "halt_w1c", 1)
    assert client.finish(H2C) == DONE


@pytest.mark.parametrize(("read", "expected"), [(1, WaitsFor.DESCRIPTOR), (2, WaitsFor.COMPLETION)])
def test_a_completion_that_is_lost(tmp_path, read, expected):
    """Said before the core gives up on it, and not again."""
    with (
        Board(tmp_path, "--fault", f"drop@{read}") as board,
        Client(board) as client,
        Memory(MIB) as memory,
    ):
        client.enable()
        client.map(LIST, memory)
        client.start(H2C, list_of(memory, 0, LIST + 4096, 0, 64))
        board.wait_log("note:")
        assert client.status(H2C) & regs.Status.BUSY
        assert client.finish(H2C) & regs.Status.errors()
        assert notes(board) == [(H2C, expected)]
        assert client.run(H2C, list_of(memory, 0, LIST + 4096, 0, 64)) == DONE
        assert len(notes(board)) == 1


# Runs that move ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--link", "gen1x1"),
        # A read takes longer than the shortest time that is a stall on other boards.
        ("--rtt-ns", "1000000", "--reorder", "1", "--completion-size", "64"),
    ],
    ids=["default", "gen1x1", "slow"],
)
def test_what_moves_is_not_noted(tmp_path, arguments):
    with Board(tmp_path, *arguments) as board, Client(board) as client, Memory(MIB) as memory:
        client.enable()
        client.map(LIST, memory)
        length = 16384
        assert client.run(H2C, list_of(memory, 0, LIST + 65536, 0, length)) == DONE
        assert client.run(C2H, list_of(memory, 0, 0, LIST + 65536, length)) == DONE
        # What the rings hold, so that neither waits for this client.
        assert client.run(H2C, to_stream(memory, 0, LIST + 65536, 4096)) == DONE
        assert client.run(C2H, from_stream(memory, 0, LIST + 131072, 4096)) == DONE
        time.sleep(SOON)
        assert notes(board) == []
