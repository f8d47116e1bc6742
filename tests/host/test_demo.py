# SPDX-License-Identifier: BSD-2-Clause
"""host/demo.py and the peerdma command, run as people run them."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from peerdma import DataPath
from peerdma.errors import exit_codes
from tests.host.conftest import CUDA, GPUS
from tests.host.programs import DEMO, HOST, ROOT, command, expect_error, run


def test_the_demo_with_nothing_but_a_checkout(tmp_path):
    """Default size, from a directory of no importance; starts its own board."""
    result = run(cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    report = dict(
        re.match(r"(\S+(?: \S+)*)\s{2,}(.*)", line).groups() for line in result.stdout.splitlines()
    )
    assert report["board"].startswith("simulated board, PCIe Gen2 x1")
    if CUDA:
        assert report["surfaces"].startswith(("GPU memory: ", "host memory: "))
        assert report["to board"] == report["from board"]
        ways = "staged: copied by the CPU", "host memory", DataPath.GPU_BAR.value
        assert report["to board"].startswith(ways)
    else:
        assert report["GPU"] == "emulated discrete GPU"
        assert "emulated peer-to-peer memory; no CUDA: " in report["surfaces"]
        assert report["to board"] == report["from board"] == "peer-to-peer"
    assert report["copied"] == "4194304 bytes through the FPGA's user stream"
    numbers = r"ms simulated link time: ([\d.]+) MB/s, (\d+)% of the ([\d.]+) MB/s"
    rate, share, limit = map(float, re.search(numbers, report["took"]).groups())
    assert 0 < rate < limit
    # Rate and limit are rounded themselves, to a tenth.
    least, most = 100 * (rate - 0.05) / (limit + 0.05), 100 * (rate + 0.05) / (limit - 0.05)
    assert round(least) <= share <= round(most)
    assert report["verified"] == "every word, on the GPU"
    assert list(tmp_path.iterdir()) == []
    if not CUDA:
        # The README shows it as it is, but for what depends on the machine and the moment.
        shown = re.search(r"```text\n(board  .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        assert timeless(shown[1]) == timeless(result.stdout)


def test_the_demo_behind_another_block():
    result = run("--block", "ultrascale-plus", "--size", "256x256")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("board       simulated board, PCIe Gen3 x8")
    assert result.stdout.splitlines()[-1] == "verified    every word, on the GPU"


def timeless(text: str) -> str:
    """The demo's output without times, and without the reason why there is no CUDA."""
    text = re.sub(r"no CUDA: .*", "no CUDA", text)
    return re.sub(r"(?m)^(took|wall time) .*", lambda line: re.sub(r"[\d.]+", "N", line[0]), text)


@pytest.mark.parametrize("name", GPUS)
def test_json_says_the_same(socket, name):
    gpu, memory = GPUS[name]
    where = ["--gpu", gpu, "--memory", memory]
    result = run("--board", socket, "--size", "37x5", *where, "--seed", 9, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    types = {
        "verified": bool,
        "bytes": int,
        "path": dict,
        "provider": dict,
        "through": str,
        "board": str,
        "simulated": bool,
        "link": str,
        "gpu": str,
        "emulated": bool,
        "memory": str,
        "cycles": int,
        "seconds": float,
        "bytes_per_second": float,
        "link_limit": float,
        "copy_wall_seconds": float,
        "wall_seconds": float,
        "output": type(None),
        "output_way": type(None),
        "trace": type(None),
    }
    assert {name: type(value) for name, value in report.items()} == types
    assert report["verified"] and report["simulated"]
    assert report["emulated"] == (gpu == "emulated")
    assert report["bytes"] == 37 * 5 * 4
    path = "peer-to-peer" if memory == "device" else "host memory"
    if gpu != "emulated" and memory == "device":
        path = "staged" if report["provider"]["to_board"] else DataPath.GPU_BAR
    assert report["path"] == {"to_board": path, "from_board": path}
    assert report["bytes_per_second"] == pytest.approx(report["bytes"] / report["seconds"])
    assert report["seconds"] < report["copy_wall_seconds"] < report["wall_seconds"]


@pytest.mark.parametrize("gpu", ["auto", "emulated"])
@pytest.mark.parametrize("size", ["1x1", "0x0", "1x1000"])
def test_sizes(socket, gpu, size):
    result = run("--board", socket, "--gpu", gpu, "--size", size)
    assert result.returncode == 0, result.stderr
    width, height = map(int, size.split("x"))
    assert f"{width * height * 4} bytes" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("verified")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "5"], "'5' is not WxH, as in 1024x1024"),
        (["--size", "-1x5"], "argument --size"),
        (["--seed", "x"], "'x' is not a number from 0 to 4294967295"),
        (["--seed", str(1 << 32)], "not a number from 0"),
        (["--input", "x"], "--input and --output go together"),
        (["--output", "x"], "--input and --output go together"),
        (["--input", "x", "--output", "y", "--size", "1x1"], "leave --size out"),
        (["--gpu", "amd"], "'amd' is none of auto, emulated, cuda, cuda:N"),
        (["--gpu", "cuda:"], "'cuda:' is none of"),
        (["--memory", "shared"], "invalid choice: 'shared'"),
        (["--board", "s", "--block", "ultrascale"], "--block needs the simulated board"),
    ],
)
def test_wrong_arguments(arguments, message):
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr


def test_exit_codes_are_in_the_help():
    for result in (run("--help"), command("--help"), command("info", "--help")):
        assert result.returncode == 0
        for code, cause in exit_codes().items():
            assert f"{code:>3}  {cause}" in result.stdout


def test_a_gpu_that_is_not_there(socket):
    result = run("--board", socket, "--gpu", "cuda:99", "--json")
    expect_error(result, "GpuNotFound")
    error = json.loads(result.stdout)
    reasons = ("cannot use a CUDA GPU: ", "cannot use CUDA device 99: this process sees ")
    assert any(reason in error["error"]["message"] for reason in reasons)
    assert error["verified"] is False
    assert error["error"]["kind"] == "GpuNotFound"
    assert error["error"]["message"] in result.stderr


def test_no_board(tmp_path):
    result = run("--board", tmp_path / "none.sock")
    expect_error(result, "BoardNotFound", "`make setup && .venv/bin/python -m sim.board")
    expect_error(run("--board", "/dev/picoevb77"), "BoardNotFound", "/dev/picoevb77", "lsmod")


CORRUPTING = """
import numpy, runpy, sys
sys.path.insert(0, {host!r})
from peerdma.board.board import Board
copy = Board.copy
def corrupt(self, source, destination, **options):
    transfer = copy(self, source, destination, **options)
    wrong = numpy.empty(1, numpy.uint8)
    destination.memory.copy_out({at}, wrong)
    wrong ^= 0x10
    destination.memory.copy_in({at}, wrong)
    return transfer
Board.copy = corrupt
sys.argv = sys.argv[:1] + sys.argv[2:]
runpy.run_path({demo!r}, run_name="__main__")
"""


@pytest.mark.parametrize("files", [False, True], ids=["pattern", "file"])
def test_a_wrong_word_is_named_and_nothing_is_written(socket, tmp_path, files):
    code = CORRUPTING.format(host=str(HOST), demo=str(DEMO), at=4097)
    arguments = ["--size", "100x20"]
    if files:
        (tmp_path / "in").write_bytes(b"x" * 5000)
        arguments = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    result = run("demo.py", "--board", socket, *arguments, program=("-c", code))
    expect_error(
        result, "VerifyError", "number 1024, byte offset 0x1000", "expected 0x", "found 0x"
    )
    assert not (tmp_path / "out").exists()


def kill_the_board_when(text: str, process: subprocess.Popen) -> None:
    """Waits for this on the program's stderr, then kills its board."""
    for line in process.stderr:
        if text in line:
            break
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        children = file.read().split()
    tasks = os.listdir(f"/proc/{process.pid}/task")
    for task in tasks:
        with open(f"/proc/{process.pid}/task/{task}/children") as file:
            children += file.read().split()
    for child in set(children):
        os.kill(int(child), signal.SIGKILL)


def test_a_board_killed_in_the_copy_is_a_named_error():
    """32 MiB take much longer than the first word of progress."""
    process = subprocess.Popen(
        [sys.executable, str(DEMO), "--size", "2048x4096"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    kill_the_board_when("left", process)
    began = time.monotonic()
    output, errors = process.communicate(timeout=120)
    assert time.monotonic() - began < 30
    assert process.returncode == 4
    assert "demo.py: BoardLost: " in errors
    assert "SIGKILL" in errors
    assert output == ""


def test_ctrl_c_ends_the_demo():
    process = subprocess.Popen(
        [sys.executable, str(DEMO), "--size", "2048x4096"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "left" in line:
            break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, "")
    assert errors.endswith("demo.py: interrupted\n")


def test_progress_is_in_place_on_a_terminal(socket):
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, str(DEMO), "--board", str(socket), "--size", "1024x1536"],
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            seen += part
        output = process.communicate(timeout=60)[0]
    os.close(master)
    assert process.returncode == 0
    assert "verified" in output
    assert re.match(rb"\rcopied +\d+% of 6291456 bytes, about \d+ s left\x1b\[K", seen)
    assert b"\n" not in seen
    assert seen.endswith(b"\r\x1b[K")


def test_info(socket):
    result = command("info", "--board", socket)
    assert result.returncode == 0, result.stderr
    for text in ("simulated", "10ee:7021", "MSI", "65536 bytes", "PCIe Gen2 x1", "125 MHz"):
        assert text in result.stdout
    report = json.loads(command("info", "--board", socket, "--json").stdout)
    assert report["simulated"] is True
    assert report["extension"]["link"]["width"] == 1


def test_info_starts_a_board():
    result = command("info")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("board        simulated board\n")


def test_leds(socket):
    result = command("leds", "0b101", "--board", socket)
    assert (result.returncode, result.stdout) == (0, "LEDs 0b101 on a simulated board\n")
    report = json.loads(command("leds", "--board", socket, "--json").stdout)
    assert report["simulated"] is True
    for value, message in (("8", "bits of a number 0 to 7"), ("red", "'red' is not a number")):
        result = command("leds", value, "--board", socket)
        assert result.returncode == 2
        assert message in result.stderr


def test_commands_end_with_the_errors_exit_code(tmp_path):
    result = command("info", "--board", tmp_path / "none.sock")
    expect_error(result, "BoardNotFound", "peerdma: BoardNotFound")
