# SPDX-License-Identifier: BSD-2-Clause
"""Fixtures of the simulated board's tests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest

from tests.sim.board import Board, Client


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


@pytest.fixture
def client(board: Board) -> Iterator[Client]:
    """A client of `board`, memory space and bus master on."""
    with Client(board) as client:
        client.enable()
        yield client
