# SPDX-License-Identifier: BSD-2-Clause
"""Fixtures of the simulated board's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.board import Board, Client


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
