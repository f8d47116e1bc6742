# SPDX-License-Identifier: BSD-2-Clause
"""Where the output goes: a pipe that nobody reads, and a device that is full."""

import os
import subprocess
import sys

import pytest

from tests.host.programs import DEMO, HOST

PEERDMA = (sys.executable, "-W", "error", "-m", "peerdma")
#: Commands, and whether their output is buffered; argparse itself ignores what it cannot write.
COMMANDS = {
    "info": ((*PEERDMA, "info", "--board", "sim"), ("", "1")),
    "help": ((*PEERDMA, "perf", "--help"), ("",)),
    "demo-help": ((sys.executable, "-W", "error", str(DEMO), "--help"), ("",)),
}


@pytest.fixture(params=[(name, way) for name, (_, ways) in COMMANDS.items() for way in ways])
def command(request, monkeypatch):
    name, unbuffered = request.param
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    return COMMANDS[name][0]


def run(command, output) -> tuple[int, list[str]]:
    """The exit status, and what is said on stderr."""
    done = subprocess.run(
        command,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HOST)},
        timeout=600,
    )
    return done.returncode, done.stderr.splitlines()


def test_a_pipe_that_nobody_reads(command):
    reads, writes = os.pipe()
    os.close(reads)
    try:
        status, said = run(command, writes)
    finally:
        os.close(writes)
    assert (status, said) == (141, [])


def test_a_device_that_is_full(command):
    with open("/dev/full", "w") as full:
        status, said = run(command, full)
    assert status == 1
    (line,) = said
    assert "No space left on device" in line
