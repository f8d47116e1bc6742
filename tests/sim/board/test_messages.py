# SPDX-License-Identifier: BSD-2-Clause
"""DMA by messages, and interrupts, of the real core through the simulated board."""

from __future__ import annotations

import errno
import os
import time

import numpy as np
import pytest

from peerdma import regs
from peerdma.vfio_user.wire import (
    CONFIG_REGION,
    Command,
    Irq,
    IrqSetFlag,
    pack,
)
from tests.sim.board.client import BAR_DMA, Board, Client, Memory
from tests.sim.board.dma import DATA, DONE, LIST, list_of

Status = regs.Status


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


def test_interrupt_waits_for_lost_writes(client, lists, connect):
    """By the time of the interrupt the client knows of them all."""
    eventfd = connect(Irq.MSI)
    client.start(True, list_of(lists, 0, 0, DATA, 512), interrupt=True)
    assert quiet(eventfd)
    client.read(BAR_DMA, 0)
    assert counted(eventfd) == 1
    assert sum(access.nbytes for _, access in client.refused) == 512


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
