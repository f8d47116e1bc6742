# SPDX-License-Identifier: BSD-2-Clause
"""The program: its socket file, signals, exit statuses and options."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from peerdma import regs
from peerdma.vfio_user.wire import CONFIG_REGION
from sim.board import server
from sim.board.config_space import EXPRESS
from sim.compile.model import compiled
from sim.system.board import Board as GuestBoard
from sim.system.errors import GuestError
from tests.boards import options
from tests.sim.board.client import BAR_DMA, BAR_USER, BROKE_A_RULE, ROOT, Board, Client, Memory
from tests.sim.board.dma import DONE, LIST, list_of
from tests.sim.waveforms import Waveforms

LIMIT = 120


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A run that ends by itself."""
    return python("-m", "sim.board", *arguments)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of Python in the checkout that ends by itself."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "host")])},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("connected", [False, True])
def test_signal_ends_it_and_removes_the_socket(tmp_path, number, connected):
    with Board(tmp_path) as board:
        client = Client(board) if connected else None
        board.process.send_signal(number)
        assert board.process.wait(LIMIT) == 0
        assert not os.path.exists(board.path)
        if client:
            client.socket.close()


#: Ways to end a board that runs; a client is connected.
ENDS = {
    "SIGTERM": lambda board, client: board.process.send_signal(signal.SIGTERM),
    "SIGINT": lambda board, client: board.process.send_signal(signal.SIGINT),
    "SIGHUP": lambda board, client: board.process.send_signal(signal.SIGHUP),
    "the client leaves": lambda board, client: client.socket.close(),
    "twice": lambda board, client: [board.process.terminate() for _ in range(2)],
}


def write_to_host(client: Client, memory: Memory) -> None:
    """A C2H transfer of a few bytes, which is the core's first memory write."""
    client.map(LIST, memory)
    assert client.run(True, list_of(memory, 0, 0, LIST + 64, 16)) == DONE


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("broken", [False, True])
def test_a_broken_rule_of_pcie_is_the_exit_status(tmp_path, how, broken):
    """However the board ends; and what runs a board in a test notices."""
    fault = ("--fault", "illegal@1") if broken else ()
    with (
        pytest.raises(AssertionError, match="broke a rule of PCIe") if broken else nullcontext(),
        Memory(4096) as memory,
        Board(tmp_path, "--once", *fault) as board,
    ):
        client = Client(board)
        client.enable()
        write_to_host(client, memory)
        assert ("error: cycle" in board.log()) == broken
        ENDS[how](board, client)
        assert board.process.wait(LIMIT) == (BROKE_A_RULE if broken else 0)
        client.socket.close()


@pytest.mark.parametrize(("errors", "status"), [(0, 1), (2, BROKE_A_RULE)])
def test_an_error_of_the_program_does_not_hide_a_broken_rule(
    tmp_path, monkeypatch, capfd, errors, status
):
    def fail():
        raise ArithmeticError("in the middle")

    board = SimpleNamespace(errors=errors, serve=fail)
    monkeypatch.setattr(server, "_Board", lambda *_: nullcontext(board))
    monkeypatch.setattr(server.signal, "signal", lambda *_: None)
    model = SimpleNamespace(clock_khz=125_000, space=compiled().space, block={})
    socket_path = str(tmp_path / "s")
    assert server.main(lambda *_, **__: model, "board", ["--socket", socket_path]) == status
    assert "ArithmeticError: in the middle" in capfd.readouterr().err


#: A signal comes when Python has begun to end: with the last object of the program.
LATE = """
import os, signal, sys
from sim.board.server import StartError, main
class Late:
    def __del__(self, kill=os.kill, process=os.getpid(), number=int(sys.argv[1])):
        kill(process, number)
def make(*_, **__):
    raise StartError("as a test")
late = Late()
sys.exit(main(make, "board", ["--socket", "/nowhere"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_at_the_very_end_changes_no_exit_status(number):
    done = python("-c", LATE, str(int(number)))
    assert "as a test" in done.stderr
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("broken", [False, True])
def test_a_guests_board_that_broke_a_rule_fails_its_guest(tmp_path, broken):
    fault = ["--fault", "illegal@1"] if broken else []
    for ends in ("the guest", "the test"):
        board = GuestBoard("board", tmp_path, tmp_path, fault)
        try:
            with Memory(4096) as memory, Client(SimpleNamespace(path=str(board.socket))) as client:
                client.enable()
                write_to_host(client, memory)
                if ends == "the test":
                    assert board.end() == (BROKE_A_RULE if broken else 0)
            with pytest.raises(GuestError, match="status 3") if broken else nullcontext():
                board.check_end()
        finally:
            board.end()


def test_once(tmp_path):
    with Board(tmp_path, "--once") as board:
        with Client(board) as client:
            assert client.config(0) == 0x702110EE
        assert board.process.wait(LIMIT) == 0
        assert not os.path.exists(board.path)


def test_once_ignores_who_says_nothing(tmp_path):
    with Board(tmp_path, "--once") as board:
        Client(board, greet=False).socket.close()
        with Client(board) as client:
            assert client.config(0) == 0x702110EE


def test_stale_socket_is_replaced(tmp_path):
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "board.sock"))
    stale.close()
    with Board(tmp_path) as board, Client(board) as client:
        assert client.config(0) == 0x702110EE


def test_live_socket_is_left_alone(tmp_path):
    with Board(tmp_path) as board:
        second = program("--socket", board.path)
        assert second.returncode == 1
        assert "is served by a running board" in second.stderr
        with Client(board) as client:
            assert client.config(0) == 0x702110EE


def test_other_files_are_left_alone(tmp_path):
    path = tmp_path / "precious"
    path.write_text("data")
    run = program("--socket", str(path))
    assert run.returncode == 1
    assert "exists and is not a socket" in run.stderr
    assert path.read_text() == "data"


def test_socket_of_somebody_else_is_not_removed(tmp_path):
    with Board(tmp_path) as board:
        os.unlink(board.path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(board.path)
            assert board.end() == 0
            assert os.path.exists(board.path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--socket", "/nonexistent/folder/socket"], "cannot serve at"),
        (["--socket", "/tmp/" + "x" * 200], "cannot serve at"),
        (["--log-tlps", "/nonexistent/log"], "cannot write /nonexistent/log"),
        (["--ram-size", "12288"], "card RAM must be a power of two, 4 KiB to 1 MiB, not 12288"),
        (["--ram-size", "2097152"], "card RAM must be a power of two, 4 KiB to 1 MiB, not 2097152"),
    ],
)
def test_failure_to_start(tmp_path, arguments, message):
    run = program("--socket", str(tmp_path / "socket"), *arguments)
    assert run.returncode == 1
    assert message in run.stderr
    assert "ready" not in run.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--socket", "s", "--fault", "ur"],
        ["--socket", "s", "--fault", "ur@0"],
        ["--socket", "s", "--fault", "fire@1"],
        ["--socket", "s", "--msi", "3"],
        ["--socket", "s", "--rcb", "32"],
        ["--socket", "s", "--link", "gen9"],
        ["--socket", "s", "--link", "gen4x8"],
        ["--socket", "s", "--block", "virtex2"],
        ["--socket", "s", "--ids", "10ee"],
        ["--socket", "s", "--ids", "10ee:12345"],
        ["--socket", "s", "--class-code", "0x1000000"],
        ["--socket", "s", "--completion-size", "100"],
        ["--socket", "s", "--rtt-ns", "-1"],
        ["--socket", "s", "--time-scale", "0"],
        ["--socket", "s", "--h2c", "5"],
        ["--socket", "s", "--c2h", "0"],
        ["--socket", "s", "--launch-queues", "3"],
        ["--socket", "s", "--ram-size", "0"],
        ["--socket", "s", "--completion-timeout-us", "49"],
        ["--socket", "s", "--completion-timeout-us", "50001"],
    ],
)
def test_wrong_usage(arguments):
    run = program(*arguments)
    assert run.returncode == 2
    assert "usage:" in run.stderr


def test_doorbell_pages_are_of_boards_with_launch_queues(tmp_path):
    run = program("--socket", str(tmp_path / "s"), "--doorbell-pages")
    assert run.returncode == 1
    assert "add --launch-queues 2" in run.stderr


def test_identity_and_link_options(tmp_path):
    arguments = ("--ids", "10de:0001", "--subsystem", "10de:0002", "--class-code", "0x118000")
    with (
        Board(tmp_path, *arguments, "--link", "gen1x1", "--time-scale", "77") as board,
        Client(board) as client,
    ):
        client.enable()
        assert client.config(0) == 0x000110DE
        assert client.config(0x2C) == 0x000210DE
        assert client.config(8) >> 8 == 0x118000
        link = client.read(BAR_DMA, regs.EXTENSION.address("link"))
        assert regs.EXTENSION["link"].field("speed").get(link) == 1
        assert client.read(BAR_DMA, regs.EXTENSION.address("time_scale")) == 77
        assert client.config(0x4A, 2) >> 1 & 7 == 0


@pytest.mark.parametrize("wanted", ["gen3x1", "gen1x2"])
def test_no_link_is_faster_or_wider_than_the_block(tmp_path, wanted):
    run = program("--socket", str(tmp_path / "s"), "--link", wanted)
    assert run.returncode == 1
    assert f"the link of this board's PCIe block is gen2x1, not {wanted}" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "speed", "lanes", "scale"),
    [((), 3, 8, 2000), (("--link", "gen2x4"), 2, 4, 2000), (("--link", "unlimited"), 3, 8, 2000)],
)
def test_links_of_the_second_block(tmp_path, arguments, speed, lanes, scale):
    arguments = (*options("ultrascale-plus"), *arguments)
    with Board(tmp_path, *arguments) as board, Client(board) as client:
        client.enable()
        link = client.read(BAR_DMA, regs.EXTENSION.address("link"))
        fields = [regs.EXTENSION["link"].field(name).get(link) for name in ("speed", "width")]
        assert fields == [speed, lanes]
        assert client.config(client.capability(EXPRESS) + 0x12, 2) & 0x3FF == lanes << 4 | speed
        assert client.read(BAR_DMA, regs.EXTENSION.address("time_scale")) == scale


def test_msi_vectors(tmp_path):
    with Board(tmp_path, "--msi", "8") as board, Client(board) as client:
        assert client.config(0x4A, 2) >> 1 & 7 == 3
        client.write(CONFIG_REGION, 0x4A, 3 << 4 | 1, 2)
        assert client.config(0x4A, 2) == 0x0080 | 3 << 1 | 3 << 4 | 1


def test_waves(tmp_path):
    waves = tmp_path / "waves.fst"
    with Board(tmp_path, "--waves", str(waves), "--once") as board, Client(board) as client:
        client.enable()
        client.write(BAR_USER, regs.USER.address("scratch"), 1)
        client.read(BAR_USER, regs.USER.address("scratch"))
        client.socket.close()
        assert board.process.wait(LIMIT) == 0
    found = Waveforms(waves)
    assert found.steps > 100
    assert "peerdma_core.trntsrcrdy" in found.widths
    # All have names, and states have theirs.
    assert not [name for name in found.names if "$" in name]
    assert found.values["peerdma_core.core.host.completer.reader.fsm_state_name"] == {
        name: number for number, name in enumerate(("Idle", "Send", "Read", "Land"))
    }
    assert found.values["peerdma_core.core.h2c0.control.failure_name"]["MAGIC"] == 1
