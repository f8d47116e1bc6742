# SPDX-License-Identifier: BSD-2-Clause
"""Boards with other numbers of channels and another size of card RAM, and raised interrupts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import peerdma
from peerdma import regs
from peerdma.vfio_user.wire import CONFIG_REGION, Irq
from tests.boards import options
from tests.sim.board.client import BAR_DMA, BAR_USER, Board, Client, Memory
from tests.sim.board.dma import DATA, DONE, LIST, MIB, list_of
from tests.sim.board.test_own_writes import counted, quiet

#: Number of channels each way, and bytes of card RAM, of boards.
SIZES = {"small": (2, 16384), "plain": (4, regs.CARD_RAM_SIZE)}


@pytest.fixture(scope="module")
def board(board_of_each_block: Board) -> Board:
    return board_of_each_block


@pytest.fixture(scope="module", params=SIZES)
def sized(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Board, int, int]]:
    """A board, its channels each way, and the bytes of its card RAM."""
    with Board(tmp_path_factory.mktemp("board"), *options(request.param)) as board:
        yield board, *SIZES[request.param]


def test_every_channel_moves_data(sized, seed):
    """All of a direction at once: each fills its own part of card RAM, up to the last byte."""
    board, channels, ram_size = sized
    part = ram_size // channels
    rng = np.random.default_rng(seed)
    with Client(board) as client, Memory(MIB) as lists, Memory(MIB) as data:
        client.enable()
        client.map(LIST, lists)
        client.map(DATA, data)
        data.bytes[:ram_size] = rng.integers(0, 256, ram_size, dtype="u1")
        for c2h in (False, True):
            for number in range(channels):
                # What H2C channel n wrote another C2H channel reads.
                card = (number + c2h) % channels * part
                memory = DATA + c2h * ram_size + card
                ends = (card, memory) if c2h else (memory, card)
                client.start(c2h, list_of(lists, 32 * number, *ends, part), number=number)
            for number in range(channels):
                assert client.finish(c2h, number) == DONE, (c2h, number)
        assert (data.bytes[ram_size : 2 * ram_size] == data.bytes[:ram_size]).all()


def test_there_are_no_more_channels(sized):
    board, channels, _ = sized
    with Client(board) as client:
        client.enable()
        for target, base in enumerate((regs.CHANNEL.base, regs.C2H_CHANNEL_BASE)):
            at = [regs.CHANNEL.address("identifier", base=base, channel=n) for n in range(4)]
            expected = [regs.identifier(target, n) if n < channels else 0 for n in range(4)]
            assert [client.read(BAR_DMA, offset) for offset in at] == expected


def test_xdma_ko_finds_what_it_looks_for(sized):
    """Its probe, with its own numbers: a BAR of 32 KiB that says what it is, and channels."""
    board, channels, _ = sized
    with Client(board) as client:
        client.enable()
        sizes = {}
        for bar in range(6):
            at = 0x10 + 4 * bar
            before = client.config(at)
            client.write(CONFIG_REGION, at, 0xFFFF_FFFF)
            mask = client.config(at) & ~0xF
            client.write(CONFIG_REGION, at, before)
            sizes[bar] = (1 << 32) - mask if mask else 0
        config = [
            bar
            for bar, size in sizes.items()
            if size >= 0x8000
            and client.read(bar, 0x2000) & 0xFFFF_0000 == 0x1FC2_0000
            and client.read(bar, 0x3000) & 0xFFFF_0000 == 0x1FC3_0000
        ]
        assert config == [BAR_DMA]
        found = []
        for start, upper in ((0x0000, 0x1FC0), (0x1000, 0x1FC1)):
            for number in range(4):
                value = client.read(BAR_DMA, start + 0x100 * number)
                if value >> 16 != upper or value >> 8 & 0xF != number:
                    break
                assert not value & 1 << 15, "a channel of the memory mapped kind"
                assert client.read(BAR_DMA, start + 0x100 * number + 0x4C) == 0x0001_0140
                found.append(start >> 12)
        assert found == [0] * channels + [1] * channels


def test_the_library_uses_all_of_card_ram(sized, seed):
    board, channels, ram_size = sized
    data = np.random.default_rng(seed).integers(0, 256, ram_size, dtype="u1")
    with peerdma.open(board.path) as opened:
        info = opened.info()
        assert (info.channels, info.card_ram_size) == ((channels, channels), ram_size)
        opened.write(data, 0)
        back = np.zeros_like(data)
        opened.read(back, 0)
        assert (back == data).all()
        opened.write(data[:1], ram_size - 1)
        opened.read(back[:1], ram_size - 1)
        assert back[0] == data[0]
        with pytest.raises(peerdma.TransferError, match=f"card RAM, which has {ram_size} bytes"):
            opened.write(data[:2], ram_size - 1)


# User interrupts -----------------------------------------------------------------------------

ENABLE, REQUEST, PENDING = (
    regs.IRQ.address(f"user_{name}") for name in ("enable", "request", "pending")
)
RAISE = regs.USER.address("raise_interrupts")


@pytest.mark.parametrize("kind", [Irq.MSI, Irq.MSIX])
def test_user_interrupts_that_software_raises(client, kind):
    vector = 0 if kind == Irq.MSI else 9
    eventfd = client.connect(kind, vector)
    try:
        if kind == Irq.MSIX:
            # A byte for each source, four to a register.
            client.write(BAR_DMA, regs.IRQ.address("user_vector1"), vector << 8)
        client.write(BAR_USER, RAISE, 1 << 5)
        assert client.read(BAR_DMA, PENDING) == 1 << 5
        assert client.read(BAR_DMA, REQUEST) == 0
        assert quiet(eventfd)
        client.write(BAR_DMA, ENABLE, 1 << 5 | 1 << 6)
        assert client.read(BAR_DMA, REQUEST) == 1 << 5
        assert counted(eventfd) == 1
        for _ in range(2):
            client.write(BAR_USER, RAISE, 0)
            assert client.read(BAR_DMA, PENDING) == client.read(BAR_DMA, REQUEST) == 0
            assert quiet(eventfd)
            client.write(BAR_USER, RAISE, 1 << 5)
            assert counted(eventfd) == 1
    finally:
        client.write(BAR_USER, RAISE, 0)
        client.write(BAR_DMA, ENABLE, 0)
        os.close(eventfd)
