# SPDX-License-Identifier: BSD-2-Clause
"""Fixtures of the simulated board's tests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import numpy as np
import pytest

from tests.boards import options
from tests.sim.board.client import Board, Client, Memory
from tests.sim.board.dma import DATA, HIGH, LIST, MIB


@pytest.fixture
def seed() -> int:
    """The seed of a randomised test: the environment's SEED, else a new one; shown on failure."""
    value = int(os.environ.get("SEED") or secrets.randbits(32))
    print(f"repeat with SEED={value}")
    return value


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board with default options, shared by the tests of a module."""
    with Board(tmp_path_factory.mktemp("board")) as board:
        yield board


@pytest.fixture(scope="module", params=["default", "ultrascale", "ultrascale-plus"])
def board_of_each_block(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """The same, behind each adapter in turn: for modules that have `board` be this one."""
    with Board(tmp_path_factory.mktemp("board"), *options(request.param)) as board:
        yield board


@pytest.fixture
def client(board: Board) -> Iterator[Client]:
    """A client of `board`, memory space and bus master on."""
    with Client(board) as client:
        client.enable()
        yield client


@pytest.fixture
def lists(client: Client) -> Iterator[Memory]:
    """Memory at bus address `LIST`."""
    with Memory(MIB) as memory:
        client.map(LIST, memory)
        yield memory


@pytest.fixture
def data(client: Client, seed: int) -> Iterator[Memory]:
    """Memory at bus addresses `DATA` and `HIGH`, its first half random."""
    with Memory(MIB) as memory:
        rng = np.random.default_rng(seed)
        memory.bytes[: MIB // 2] = rng.integers(0, 256, MIB // 2, dtype="u1")
        client.map(DATA, memory)
        client.map(HIGH, memory)
        yield memory
