# SPDX-License-Identifier: BSD-2-Clause
"""A wait for a simulated board that does not move says so, long before it ends."""

import threading

import numpy as np
import pytest

import peerdma
from tests.boards import options
from tests.sim.board.valve import GIVES, TAKES

H2C = "H2C channel 0 has not moved"
TAKE = "it waits for the user block to take data"
GIVE = "it waits for the user block to give data"


@pytest.fixture
def valved():
    """A board whose user block takes and gives as software says, and waits of 8 s."""
    with peerdma.open("sim", timeout=8, arguments=options("small")) as board:
        yield board


def test_a_user_block_that_hangs_is_named_while_it_is_waited_for(valved, capsys):
    source = np.random.default_rng(1).integers(0, 256, 300_000, "u1")
    destination = np.zeros_like(source)
    capsys.readouterr()
    said = []
    with valved.pin(source) as s, valved.pin(destination) as d:
        look = threading.Timer(6, lambda: said.append(capsys.readouterr().err))
        look.start()
        with pytest.raises(peerdma.Timeout) as caught:
            valved.process(s, d)
        look.join()
        (notes,) = said
        assert notes.count(H2C) == 1
        assert notes.count(TAKE) == notes.count(GIVE) == 1
        assert all(line.startswith("board: note: ") for line in notes.splitlines())
        message = str(caught.value)
        assert "no interrupt within 8 s" in message
        assert "The board noted: " in message
        assert TAKE in message
        assert GIVE in message
        # The next transfer moves: nothing is said of it.
        valved.user_register(0, TAKES | GIVES)
        valved.process(s[:4096], d[:4096])
        assert (destination[:4096] == source[:4096]).all()
    assert capsys.readouterr().err == ""


def test_an_old_note_is_not_in_a_new_error(valved):
    source, destination = np.zeros((2, 65536), "u1")
    with valved.pin(source) as s, valved.pin(destination) as d:
        with pytest.raises(peerdma.Timeout, match="The board noted: "):
            valved.process(s, d)
        valved.user_register(0, TAKES)
        with pytest.raises(peerdma.Timeout) as caught:
            valved.process(s, d)
    assert TAKE not in str(caught.value)
    assert GIVE in str(caught.value)
