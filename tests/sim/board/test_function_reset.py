# SPDX-License-Identifier: BSD-2-Clause
"""Function-level reset, by Device Control and by the client, of a board whose block has it.

What the core does in it, cycle by cycle, is in `tests/hw/test_function_reset.py`.
"""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from peerdma import regs
from peerdma.vfio_user.wire import CONFIG_REGION, Command, Irq
from sim.board.config_space import EXPRESS, MSI, MSIX
from tests.boards import options
from tests.sim.board.client import BAR_DMA, BAR_USER, Board, Client, Memory
from tests.sim.board.dma import DATA, DONE, LIST, MIB, list_of
from tests.sim.board.test_own_writes import counted, quiet

SCRATCH = regs.USER.address("scratch")
INITIATE = 1 << 15
#: Of Device Control and Link Control: max payload of 256 bytes and max read request of 1024; common
#: clock and read completion boundary.
KEPT, LOST, LINK = 1 << 5, 3 << 12, 1 << 6 | 1 << 3
RESET = 0x2810
#: Reads that a core has under way at most after a reset, by its register `reads`.
UNDER_WAY = 8


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory):
    with Board(tmp_path_factory.mktemp("board"), *options("ultrascale-plus")) as board:
        yield board


def by_device_control(client: Client) -> None:
    at = client.capability(EXPRESS) + 8
    client.write(CONFIG_REGION, at, client.config(at, 2) | INITIATE, 2)


def by_the_client(client: Client) -> None:
    client.request(Command.DEVICE_RESET)


WAYS = pytest.mark.parametrize("reset", [by_device_control, by_the_client])


@WAYS
def test_what_a_reset_leaves(client, reset):
    """It does not touch the link, nor what both of its ends have to agree on."""
    express = client.capability(EXPRESS)
    client.write(CONFIG_REGION, 0x10, 0xFE80_4000)
    client.write(CONFIG_REGION, express + 8, KEPT | LOST, 2)
    client.write(CONFIG_REGION, express + 0x10, LINK, 2)
    client.write(CONFIG_REGION, client.capability(MSI) + 2, 1, 2)
    client.write(CONFIG_REGION, client.capability(MSIX) + 2, 0xC000, 2)
    client.write(BAR_USER, SCRATCH, 7)
    link = client.config(express + 0x12, 2)
    reset(client)
    assert client.config(4, 2) == client.config(0x10) == 0
    assert client.config(express + 8, 2) == RESET | KEPT, "and Initiate reads as 0"
    assert client.config(express + 0x10, 2) == LINK
    assert client.config(express + 0x12, 2) == link
    assert not client.config(client.capability(MSI) + 2, 2) & 1
    assert not client.config(client.capability(MSIX) + 2, 2) & 0xC000
    client.enable()
    assert client.read(BAR_USER, SCRATCH) == 0


def test_all_else_in_device_control_resets_nothing(client):
    client.write(BAR_USER, SCRATCH, 7)
    client.write(CONFIG_REGION, client.capability(EXPRESS) + 8, 0xFFFF & ~INITIATE, 2)
    assert client.read(BAR_USER, SCRATCH) == 7


@WAYS
@pytest.mark.parametrize("reads", [0, 1, 2, 4, 8, 16])
def test_under_load(board, client, lists, data, seed, reset, reads):
    """Both directions are in the middle of 64 KiB, and the next bytes are right."""
    since = board.log()
    client.start(False, list_of(lists, 0, DATA, 0, 65536), interrupt=True)
    client.start(True, list_of(lists, 32, 0, DATA + MIB // 2, 65536), interrupt=True)
    for _ in range(reads):
        client.read(BAR_DMA, 0)
    reset(client)
    client.enable()
    assert client.status(False) == client.status(True) == 0
    assert client.read(BAR_DMA, regs.IRQ.address("channel_enable")) == 0
    data.bytes[MIB // 2 :] = 0
    rng = np.random.default_rng(seed)
    for length in (64, 5000, 65536):
        data.bytes[:length] = rng.integers(0, 256, length, dtype="u1")
        assert client.run(False, list_of(lists, 0, DATA, 0, length)) == DONE
        assert client.run(True, list_of(lists, 32, 0, DATA + MIB // 2, length)) == DONE
        assert (data.bytes[MIB // 2 :][:length] == data.bytes[:length]).all()
    assert "error" not in board.log()[len(since) :]


@WAYS
def test_reads_that_are_never_answered_end(tmp_path, reset):
    """Of each tag: what comes next has all of them, and does not wait for a completion timeout."""
    log = tmp_path / "tlps"
    lost = [f"--fault=drop@{number}" for number in range(2, 2 + UNDER_WAY)]
    board = Board(tmp_path, *options("ultrascale-plus"), "--log-tlps", str(log), *lost)
    with board, Client(board) as client, Memory(MIB) as memory:
        client.enable()
        client.map(LIST, memory)
        memory.bytes[4096:69632] = np.arange(65536) % 251
        client.start(False, list_of(memory, 0, LIST + 4096, 0, 65536))
        board.wait_log(f"fault: read {1 + UNDER_WAY} gets no answer")
        reset(client)
        client.enable()
        for c2h, ends in enumerate([(LIST + 4096, 0), (0, LIST + 131072)]):
            assert client.run(bool(c2h), list_of(memory, 0, *ends, 65536)) == DONE
        assert (memory.bytes[131072:196608] == memory.bytes[4096:69632]).all()
        client.socket.close()
        board.wait_log("the client left")
        assert "error:" not in board.log()
    made_up = re.findall(r"down Cpl .* tag=(\d+) .*made up by the block", log.read_text())
    assert len(set(made_up)) == UNDER_WAY


@WAYS
def test_reads_that_the_client_answers_late_count_no_more(board, client, lists, reset):
    """The reset is there before its answers are."""
    client.map(DATA, None, 4096)
    client.start(False, list_of(lists, 0, DATA, 0, 256))
    header, access, _ = client.message()
    reset(client)
    client.enable()
    client.reply_to(header, access.FORMAT.pack(*access) + bytes(access[1]))
    with Memory(4096) as memory:
        memory.bytes[:] = 5
        client.map(DATA + MIB, memory)
        assert client.run(False, list_of(lists, 0, DATA + MIB, 0, 256)) == DONE
        assert client.run(True, list_of(lists, 0, 0, DATA + MIB + 512, 256)) == DONE
        assert (memory.bytes == 5).all()


@WAYS
def test_an_interrupt_that_is_asserted_goes(client, lists, data, reset):
    eventfd = client.connect(Irq.INTX)
    for _ in range(2):
        client.start(False, list_of(lists, 0, DATA, 0, 64), interrupt=True)
        assert counted(eventfd) == 1
        assert client.config(6, 2) & 8, "Interrupt Status"
        reset(client)
        client.enable()
        client.read(BAR_DMA, 0)
        assert not client.config(6, 2) & 8
        assert quiet(eventfd)
        client.irqs(Irq.INTX, 1 | 16)
    os.close(eventfd)
