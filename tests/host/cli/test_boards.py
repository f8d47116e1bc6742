# SPDX-License-Identifier: BSD-2-Clause
"""``peerdma list``: boards with a node, boards without, and a machine without boards."""

import json

import pytest

from peerdma.cli import boards
from peerdma.cli.main import main
from peerdma.doctor.system import System
from tests.host.doctor.machine import BOARD, Pc


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """``machine(nodes)`` is a PC with one board on its bus, and these nodes."""
    pc = Pc(tmp_path / "pc")
    monkeypatch.setattr(boards, "System", lambda: pc.system)

    def with_nodes(*nodes: str) -> Pc:
        monkeypatch.setattr(System, "nodes", list(nodes))
        return pc

    return with_nodes


def lines(capsys, *options: str) -> list[str]:
    """What the command prints."""
    assert main(["list", *options]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_board_behind_the_driver_is_listed_by_its_node(machine, node_driver, capsys):
    pc = machine(node_driver.path)
    (address,) = (each.address for each in boards.boards(pc.system))
    node_driver.info.bus_id = address.encode()
    (line,) = lines(capsys)
    assert line.split() == [node_driver.path, address, "peerdma"]
    said = json.loads("\n".join(lines(capsys, "--json")))
    assert said == [{"node": node_driver.path, "address": address, "name": "peerdma"}]


def test_a_board_that_another_driver_has(machine, capsys):
    pc = machine()
    (board,) = boards.boards(pc.system)
    assert board.identity == BOARD
    (line,) = lines(capsys)
    assert line.split() == ["-", board.address, *f"peerdma, bound to {board.driver}".split()]


def test_a_board_that_vfio_has(machine, capsys):
    pc = machine()
    pc.bind(pc.board, "vfio-pci")
    (line,) = lines(capsys)
    assert line.split() == [f"vfio:{pc.address}", pc.address, "peerdma"]


def test_a_node_that_cannot_be_opened_says_why(machine, capsys):
    machine("/dev/peerdma-that-is-not-there")
    line, other = lines(capsys)
    assert line.startswith("/dev/peerdma-that-is-not-there")
    assert "No such file" in line and "(lsmod)" in line
    assert other.startswith("- ")


def test_a_machine_without_boards(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(boards, "System", lambda: System(tmp_path))
    assert main(["list"]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "peerdma: no boards; `peerdma doctor` says what it looked at\n"
    assert lines(capsys, "--json") == ["[]"]


def test_an_unknown_design_behind_the_driver(machine, node_driver, capsys):
    machine(node_driver.path)
    node_driver.info.device = 0x9999
    assert lines(capsys)[0].endswith("of unknown design")


def test_no_board_is_changed(machine, node_driver, capsys):
    machine(node_driver.path)
    node_driver.calls.clear()
    lines(capsys)
    assert node_driver.calls == []
