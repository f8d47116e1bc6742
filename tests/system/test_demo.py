# SPDX-License-Identifier: BSD-2-Clause
"""The demo and the shell, as `make system-demo` and `make system-shell` start them."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim.system.board import ROOT

pytestmark = pytest.mark.system
_PATIENCE = 300.0


def system(*arguments: str | Path, script: str = "") -> subprocess.CompletedProcess[str]:
    """Runs ``python -m sim.system``."""
    return subprocess.run(
        [sys.executable, "-m", "sim.system", *arguments],
        cwd=ROOT,
        input=script,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("configuration", "ways"),
    [
        ("strict", ["host memory", "host memory", "peer-to-peer", "peer-to-peer"]),
        ("identity", ["peer-to-peer", "peer-to-peer"]),
        ("bounce", ["host memory", "host memory"]),
        ("arm64", ["host memory", "host memory"]),
        ("not-coherent", ["host memory", "host memory"]),
    ],
)
def test_the_demo_in_a_configuration(configuration: str, ways: list[str]):
    done = system("demo", "--configuration", configuration)
    assert done.returncode == 0, done.stdout + done.stderr
    for direction in ("to board  ", "from board"):
        assert re.findall(f"^{direction}  (.*)$", done.stdout, re.M) == ways
    assert done.stdout.count("verified    every word, on the GPU") == len(ways)
    # Each on the board with its extension, and on one that is a plain XDMA core.
    through = re.findall("through the FPGA's (.*)$", done.stdout, re.M)
    assert through == ["user stream", "card RAM"] * (len(ways) // 2)
    # The latter tells no clock.
    clocks = re.findall(r"^took +[\d.]+ ms (.*):", done.stdout, re.M)
    assert clocks == ["simulated link time", "wall time"] * (len(ways) // 2)


def test_a_script_runs_in_the_shell_with_a_program(tmp_path: Path):
    program = tmp_path / "own-program"
    program.write_text("#!/bin/sh\necho program says $1\n")
    done = system("shell", program, script="ls /dev/picoevb; /run/guest/own-program hello; exit 5")
    assert (done.returncode, done.stdout) == (5, "/dev/picoevb\nprogram says hello\n"), done.stderr


def test_what_goes_wrong_is_said(tmp_path: Path):
    done = system("shell", tmp_path / "missing")
    assert done.returncode == 2
    assert "is not a file" in done.stderr
    done = system("shell", script="echo c >/proc/sysrq-trigger")
    assert done.returncode == 1
    assert "kernel panicked" in done.stderr
    assert "All logs are in" in done.stderr


def test_a_prompt_at_a_terminal():
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sim.system", "shell", "--configuration", "strict"],
        cwd=ROOT,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + _PATIENCE
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([person], [], [], 1)[0]:
                seen += os.read(person, 4096).decode(errors="replace")

    try:
        until("Leave with: exit")
        os.write(person, b"echo $((6 * 7)) is it; exit 9\r")
        until("42 is it")
        assert process.wait(_PATIENCE) == 9
    finally:
        process.kill()
        process.wait()
        os.close(person)
