# SPDX-License-Identifier: BSD-2-Clause
"""Opening boards: which one, with what, and that nothing is left behind however it ends."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import peerdma
from peerdma.vfio_user.simboard import checkout_root
from tests.host.conftest import open_files

ROOT = checkout_root()
HOST = ROOT / "host"


def processes(text: str) -> list[int]:
    """Ids of the processes with `text` in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in command and int(name) != os.getpid():
            found.append(int(name))
    return found


def eventually(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A directory of our own for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def script(code: str, scratch: Path, **options) -> subprocess.Popen:
    """Starts a Python program that uses the library."""
    environment = {**os.environ, "PYTHONPATH": str(HOST), "TMPDIR": str(scratch)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_board_that_runs_is_opened_by_its_socket(scratch):
    path = scratch / "board.sock"
    environment = {**os.environ, "PYTHONPATH": str(HOST)}
    command = [sys.executable, "-m", "sim.board", "--socket", str(path)]
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == f"ready: {path}\n"
        for _ in range(2):
            with peerdma.open(path) as board:
                # The board was reset in between.
                assert board.leds() == 0
                assert board.leds(3) == 3
                assert board.info().name == f"board at {path}"
        server.kill()
        server.wait(30)
        with pytest.raises(peerdma.BoardNotFound, match="Start one in a checkout"):
            peerdma.open(path)
    finally:
        server.kill()
        server.wait(30)
        server.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "interrupts", "found"),
    [([], "auto", "MSI"), ([], "intx", "INTX"), (["--msi", "0"], "auto", "INTX")],
)
def test_interrupts_by_message_or_wire(scratch, arguments, interrupts, found):
    with peerdma.open("sim", arguments=arguments, interrupts=interrupts) as board:
        assert board.info().interrupts == found
        for step in range(3):
            data, result = np.arange(1000) + step, np.zeros(1000, int)
            board.write(data)
            board.read(result)
            assert (result == data).all()


def test_an_interrupt_that_the_board_does_not_have(scratch):
    with pytest.raises(peerdma.UnsupportedError, match="cannot use MSI interrupts"):
        peerdma.open("sim", arguments=["--msi", "0"], interrupts="msi")
    assert list(scratch.iterdir()) == []


def test_packet_sizes_are_the_platforms(scratch):
    with peerdma.open("sim", max_payload=4096, max_read_request=256) as board:
        link = board.info().extension.link
        assert link.max_payload >= 256
        assert link.max_read_request == 256
        data, result = np.arange(5000), np.zeros(5000, int)
        board.write(data)
        board.read(result)
        assert (result == data).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_payload": 100}, "max_payload is 128, 256"),
        ({"max_read_request": 8192}, "max_read_request is 128, 256"),
        ({"interrupts": "polling"}, "interrupts is one of auto, msi, intx, not 'polling'"),
    ],
)
def test_options_are_checked_and_leave_nothing(scratch, options, message):
    with pytest.raises(ValueError, match=message):
        peerdma.open("sim", **options)
    assert list(scratch.iterdir()) == []


def test_arguments_are_for_started_boards_only(tmp_path):
    with pytest.raises(ValueError, match="arguments are for a board that is started"):
        peerdma.open(tmp_path / "board.sock", arguments=["--msix"])


@pytest.mark.parametrize("wanted", [{"channel": 1}, {"card_ram": 4096}])
@pytest.mark.parametrize("board", ["sim", "vfio:0000:01:00.0", "/nowhere/board.sock"])
def test_boards_without_the_kernel_driver_are_not_shared(board, wanted):
    with pytest.raises(ValueError, match=f"kernel driver. The board {board} is this program's"):
        peerdma.open(board, **wanted)


def test_what_is_a_number(tmp_path):
    with pytest.raises(TypeError, match="a channel is a whole number, not '1'"):
        peerdma.open(tmp_path / "board.sock", channel="1")


def test_a_board_that_does_not_start_says_why(scratch, capfd):
    with pytest.raises(
        peerdma.BoardNotFound, match=r"exit status 2, last output: .*--no-such-option"
    ):
        peerdma.open("sim", arguments=["--no-such-option"])
    assert "unrecognized arguments: --no-such-option" in capfd.readouterr().err
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("board", "message"),
    [
        ("auto", r"there is no /dev/picoevb, .*`peerdma doctor` says what keeps a board from"),
        ("sim", "install the wheel peerdma-sim .* start a board in a checkout: `make setup"),
    ],
)
def test_an_installed_package_has_no_simulated_board(tmp_path, board, message):
    shutil.copytree(HOST / "peerdma", tmp_path / "site" / "peerdma")
    code = f"import peerdma; peerdma.open({board!r})"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert re.search(f"BoardNotFound: .*{message}", result.stderr)


def test_what_is_no_board_is_called_by_its_kind(tmp_path):
    (tmp_path / "file").touch()
    for path, kind in ((tmp_path / "file", "a regular file"), (tmp_path, "a directory")):
        with pytest.raises(peerdma.BoardNotFound, match=f"{path}, which is {kind}; a board is a"):
            peerdma.open(path)


def test_closing_ends_the_process_and_removes_the_socket(scratch):
    board = peerdma.open()
    assert len(processes(str(scratch))) == 1
    # The socket has a name no longer than it takes to connect.
    assert list(scratch.iterdir()) == []
    pin = board.pin(np.zeros(10))
    board.close()
    board.close()
    assert pin.closed
    pin.close()
    assert "closed" in repr(board)
    assert processes(str(scratch)) == []
    for use in (board.leds, lambda: board.pin(np.zeros(10)), lambda: board.copy([], [])):
        with pytest.raises(peerdma.PeerdmaError, match="the board is closed; open it again"):
            use()


def test_nothing_is_left_when_the_program_is_killed(scratch):
    program = script(
        "import peerdma; b = peerdma.open(); print('open', flush=True); input()",
        scratch,
        stdin=subprocess.PIPE,
    )
    assert program.stdout.readline() == "open\n"
    assert len(processes(str(scratch))) == 1
    program.kill()
    program.communicate(timeout=30)
    eventually(lambda: processes(str(scratch)) == [])
    assert list(scratch.iterdir()) == []


def test_nothing_is_left_when_the_program_is_killed_while_the_board_starts(scratch):
    code = "import peerdma; print('go', flush=True); peerdma.open(arguments=['--rtt-ns', '900'])"
    program = script(code, scratch, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert program.stdout.readline() == "go\n"
    eventually(lambda: processes(str(scratch)))
    program.kill()
    program.communicate(timeout=30)
    eventually(lambda: processes(str(scratch)) == [] and list(scratch.iterdir()) == [])


def test_nothing_is_left_when_the_program_just_ends(scratch):
    program = script("import peerdma; board = peerdma.open()", scratch, stderr=subprocess.PIPE)
    errors = program.communicate(timeout=600)[1]
    assert program.returncode == 0
    assert "Error" not in errors
    eventually(lambda: processes(str(scratch)) == [])
    assert list(scratch.iterdir()) == []


def test_the_board_outlives_the_thread_that_opened_it(scratch):
    """The kernel would end it with that thread, were it the thread that started it."""
    code = (
        "import peerdma, threading, time; boards = []; "
        "t = threading.Thread(target=lambda: boards.append(peerdma.open())); t.start(); t.join(); "
        "time.sleep(0.5); print(boards[0].leds(5)); boards[0].close()"
    )
    program = script(code, scratch)
    assert program.communicate(timeout=600)[0] == "5\n"


def test_ctrl_c_goes_to_the_program_only(scratch):
    """As the terminal sends it, to the whole foreground group; the program closes the board."""
    code = (
        "import peerdma\n"
        "with peerdma.open() as board:\n"
        "    try: print('open', flush=True); input()\n"
        "    except KeyboardInterrupt: print(board.leds(6))\n"
    )
    program = script(code, scratch, stdin=subprocess.PIPE, start_new_session=True)
    assert program.stdout.readline() == "open\n"
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate(timeout=60)[0] == "6\n"
    assert program.returncode == 0
    assert processes(str(scratch)) == []


def resources() -> tuple[int, int]:
    """Open file descriptors and mappings of shared memory of this process."""
    with open("/proc/self/maps") as maps:
        return open_files(), sum("memfd:peerdma" in line for line in maps)


def test_opening_pinning_and_failing_leak_nothing(scratch):
    with peerdma.open("sim") as board, peerdma.gpu("emulated", memory="host") as gpu:
        board.write(np.zeros(10))
        before = resources()
        for _ in range(3):
            with gpu.surface(1 << 20) as surface, board.pin(surface) as pin, board.pin(surface):
                board.write(pin[:100])
                with pytest.raises(peerdma.TransferError):
                    board.copy(pin, pin)
            del surface, pin
        assert resources() == before
    del board, gpu
    before = resources()
    for options in ({}, {"interrupts": "intx"}, {"max_payload": 1}):
        with contextlib.suppress(ValueError):
            peerdma.open("sim", **options).close()
        assert resources() == before


def test_a_folder_for_temporary_files_whose_path_is_long(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 60) / ("y" * 60)
    long.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(peerdma.BoardNotFound, match="Set TMPDIR to a folder with a shorter name"):
        peerdma.open("sim")
    assert not list(long.iterdir())
