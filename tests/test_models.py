# SPDX-License-Identifier: BSD-2-Clause
"""The cores that are made before the tests are those that they ask for."""

from __future__ import annotations

import signal

import pytest

from sim.board import server
from sim.compile.tools import BuildError
from tests import models
from tests.boards import BOARDS, options


@pytest.mark.parametrize("name", BOARDS)
def test_options_choose_the_core(name, monkeypatch, capsys):
    asked = {}

    def make(user, **core):
        asked.update(core, user=user)
        raise server.StartError("that is all")

    # It leaves signals ignored, as the program that it is.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert server.main(make, "board", ["--socket", "none", *options(name)]) == 1
    assert "that is all" in capsys.readouterr().err
    assert {key: value for key, value in asked.items() if value} == BOARDS[name]


def test_no_core_is_made_twice():
    cores = [(make.func, sorted(make.keywords.items())) for _, make in models.models()]
    assert all(cores.count(core) == 1 for core in cores)


def cannot():
    """What is made in another process, which has to find it."""
    raise BuildError("there is no compiler")


def test_what_cannot_be_made_is_named(monkeypatch, capsys):
    """And the others are made all the same."""
    monkeypatch.setattr(models, "models", lambda: [("the first", cannot), ("the second", list)])
    assert models.main() == 1
    assert capsys.readouterr().err == "the first: there is no compiler\n"
