# SPDX-License-Identifier: BSD-2-Clause
"""The properties of `make formal` fit the gateware; solving them is left to that."""

import re
import subprocess
import sys

import pytest
from amaranth import Module, Signal
from amaranth.lib import fifo, memory, wiring

from sim import formal
from sim.formal import __main__ as command
from sim.formal import solve, solver
from sim.formal.bugs import BUGS
from sim.formal.property import Opened


@pytest.mark.parametrize("name", formal.PROPERTIES)
def test_what_is_asked_reaches_the_solver(name):
    prop = formal.PROPERTIES[name]()
    text = formal.design(prop)
    flavors = re.findall(r'parameter \\FLAVOR "(\w+)"', text)
    assert flavors.count("assert") >= 2
    assert "cover" in flavors
    # Nothing would ever happen without a clock, and nothing be checked without cycles.
    assert re.search(r"wire width 1 input \d+ +\\clk", text)
    assert prop.depth >= 1 and prop.reach > 1
    assert prop.__doc__


def test_each_property_has_a_bug_to_find():
    assert BUGS.keys() == formal.PROPERTIES.keys()
    assert all(BUGS.values())


class Block(wiring.Component):
    """Something with an inside."""

    def __init__(self):
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = fifo.SyncFIFO(width=4, depth=8)
        m.submodules.ram = ram = memory.Memory(shape=4, depth=8, init=[])
        ram.write_port()
        inner = Signal(3, name="inner")
        m.d.sync += inner.eq(inner + 1)
        with m.FSM():
            with m.State("One"):
                m.next = "Two"
            with m.State("Two"):
                m.next = "One"
        return m


class TestOpened:
    """What a property sees of a block."""

    def test_signals_and_parts_have_paths(self):
        opened = Opened(Block())
        assert opened("inner").name == "inner"
        assert len(opened("queue.produce")) == 3
        assert isinstance(opened.part("queue"), fifo.SyncFIFO)
        assert len(opened.state("", "One", "Two")) == 1
        assert len(opened.word("ram", opened("inner"))) == 4
        opened.elaborate(None)

    def test_a_name_that_is_not_there_is_told(self):
        opened = Opened(Block())
        opened.elaborate(None)
        with pytest.raises(KeyError, match=r"0 signals are called queue\.nothing"):
            opened("queue.nothing")


class TestCommand:
    """What is said of what a solver answers."""

    @pytest.fixture(autouse=True)
    def answers(self, monkeypatch):
        answers = {"prove": "PASS", "bmc": "PASS", "cover": "PASS"}
        self.answers = answers

        def answer(text, mode, depth, folder):
            return solve.Answer(answers[mode], "a counterexample")

        monkeypatch.setattr(command, "solve", answer)

    def test_all_is_as_it_should_be(self, capsys):
        self.answers["bmc"] = "FAIL"
        assert command.main(["queue"]) == 0
        out = capsys.readouterr().out
        assert "queue: holds for ever: What goes into a queue" in out
        assert "queue: what it covers is possible" in out
        assert "queue: a bug is found: what comes out" in out
        assert "3 of 3" in out

    @pytest.mark.parametrize(
        ("mode", "status", "said"),
        [
            ("prove", "FAIL", "queue: does NOT hold"),
            ("prove", "UNKNOWN", "queue: does NOT hold"),
            ("cover", "FAIL", "queue: what it covers is NOT all possible"),
            ("bmc", "PASS", "queue: a bug is NOT FOUND"),
            ("bmc", "ERROR", "queue: a bug is NOT FOUND"),
        ],
    )
    def test_one_thing_is_not(self, capsys, mode, status, said):
        self.answers["bmc"] = "FAIL"
        self.answers[mode] = status
        assert command.main(["queue"]) == 1
        out = capsys.readouterr().out
        assert said in out and "a counterexample" in out and "2 of 3" in out


def test_the_solver_says_that_it_is_of_today():
    done = subprocess.run(
        [sys.executable, solver.__file__, "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "--lang\n"
