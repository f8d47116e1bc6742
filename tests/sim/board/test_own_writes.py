# SPDX-License-Identifier: BSD-2-Clause
"""What the core writes by itself, through the simulated board: MSI-X messages and writebacks."""

from __future__ import annotations

import os
import re
import time

import numpy as np
import pytest

from peerdma import regs
from peerdma.vfio_user.wire import Irq
from sim.board.config_space import MSIX
from tests.sim.board.client import ANSWER, BAR_DMA, Board, Client, Memory
from tests.sim.board.dma import DATA, DONE, LIST, list_of

POLL = regs.CHANNEL["control"].field("pollmode_wb_enable").mask


@pytest.fixture(scope="module")
def board(board_of_each_block: Board) -> Board:
    return board_of_each_block


@pytest.fixture
def vectors(client: Client):
    """Eventfds of vectors 0 and 1: H2C and C2H, as drivers number them."""
    eventfds = [client.connect(Irq.MSIX, vector) for vector in range(2)]
    client.write(BAR_DMA, regs.IRQ.address("channel_vector0"), 0x0100)
    yield eventfds
    for eventfd in eventfds:
        os.close(eventfd)


def counted(eventfd: int) -> int:
    """Waits until the eventfd counts."""
    end = time.monotonic() + ANSWER
    while time.monotonic() < end:
        try:
            return os.eventfd_read(eventfd)
        except BlockingIOError:
            time.sleep(0.005)
    raise AssertionError("no interrupt")


def quiet(*eventfds: int) -> bool:
    time.sleep(0.2)
    for eventfd in eventfds:
        try:
            os.eventfd_read(eventfd)
        except BlockingIOError:
            continue
        return False
    return True


def test_each_channel_has_its_message(board, client, lists, data, vectors):
    assert client.config(client.capability(MSIX) + 2, 2) & 0x8000, "MSI-X Enable"
    since = board.log()
    for turn in range(3):
        for c2h, eventfd in enumerate(vectors):
            at = list_of(lists, 0, *((0, DATA) if c2h else (DATA, 0)), 100 + turn)
            client.start(bool(c2h), at, interrupt=True)
            assert counted(eventfd) == 1
            assert client.finish(bool(c2h)) & DONE == DONE
    assert quiet(*vectors)
    assert "error" not in board.log()[len(since) :]


def test_a_vector_without_eventfd_is_masked_and_pending(client, lists, data, vectors):
    h2c, _ = vectors
    client.write(BAR_DMA, regs.IRQ.address("channel_vector0"), 0x0107)
    client.start(False, list_of(lists, 0, DATA, 0, 64), interrupt=True)
    assert client.finish(False) & DONE == DONE
    assert quiet(*vectors)
    assert client.read(BAR_DMA, regs.MSIX_PBA_OFFSET) == 1 << 7
    late = client.connect(Irq.MSIX, 7)
    assert counted(late) == 1
    assert client.read(BAR_DMA, regs.MSIX_PBA_OFFSET) == 0
    assert quiet(h2c, late)
    os.close(late)


def test_no_msix_is_an_option(tmp_path):
    with (
        Board(tmp_path, "--no-msix") as board,
        Client(board) as client,
        pytest.raises(LookupError),
    ):
        client.capability(MSIX)


@pytest.mark.parametrize("c2h", [False, True])
def test_writeback_wakes_a_poller(client, lists, data, c2h):
    base = regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base
    word = lists.bytes[0x8004:0x8008].view("<u4")
    client.write(BAR_DMA, regs.CHANNEL.address("writeback_lo", base=base), LIST + 0x8004)
    client.write(BAR_DMA, regs.CHANNEL.address("writeback_hi", base=base), 0)
    client.write(BAR_DMA, regs.CHANNEL.address("control", base=base), POLL)
    source, target = (0x40, DATA + 0x8_0000) if c2h else (DATA, 0x40)
    for _ in range(3):
        word[0] = 0
        list_of(lists, 0, source, target, 5000)
        sgdma = regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base
        client.write(BAR_DMA, regs.SGDMA.address("descriptor_lo", base=sgdma), LIST)
        client.write(BAR_DMA, regs.CHANNEL.address("control", base=base), POLL | 1)
        end = time.monotonic() + ANSWER
        while not word[0]:
            assert time.monotonic() < end, "nothing was written back"
        assert word[0] == 1
        client.write(BAR_DMA, regs.CHANNEL.address("control", base=base), POLL)
        assert client.status(c2h) == 0


def test_a_cyclic_list_runs_on_beyond_sixteen_bits(tmp_path):
    """The count says which period is next, however often the list has gone round."""
    periods, rounds = 32, 1 << 16
    log = tmp_path / "tlps"
    board = Board(tmp_path, "--link", "unlimited", "--rtt-ns", "0", "--log-tlps", str(log))
    with board, Client(board) as client, Memory(1 << 16) as memory:
        client.enable()
        client.map(LIST, memory)
        table = memory.bytes[: periods * regs.DESCRIPTOR.itemsize].view(regs.DESCRIPTOR)
        table["control"] = regs.DESC_MAGIC << 16 | regs.DESC_COMPLETED
        table["control"][-1] |= (periods - 1) << 8
        table["length"] = 8
        table["destination"] = LIST + 0x8000 + 8 * np.arange(periods)
        table["next"][-1] = LIST
        client.write(
            BAR_DMA,
            regs.SGDMA.address("descriptor_adjacent", base=regs.C2H_SGDMA_BASE),
            periods - 1,
        )
        client.start(True, LIST)
        end = time.monotonic() + ANSWER
        count = regs.CHANNEL.address("completed_count", base=regs.C2H_CHANNEL_BASE)
        while client.read(BAR_DMA, count) < rounds + 1000:
            assert time.monotonic() < end
            time.sleep(0.05)
        client.write(BAR_DMA, regs.CHANNEL.address("control", base=regs.C2H_CHANNEL_BASE), 0)
        assert not client.finish(True) & regs.Status.errors()
        completed = client.read(BAR_DMA, count)
    writes = [int(at, 16) for at in re.findall(r" up MWr addr=(0x\w+)", log.read_text())]
    assert writes == [LIST + 0x8000 + 8 * (n % periods) for n in range(len(writes))]
    # Those of aborted descriptors are not counted.
    assert rounds < completed <= len(writes) <= completed + 64
