# SPDX-License-Identifier: BSD-2-Clause
"""What driver and commands say of the board: its link and clock, from its registers alone."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path

import pytest

from peerdma.cli.main import main
from tests.system.launching import WITH_QUEUES
from tests.system.marks import IN_GUEST
from tests.system.picoevb import Node

GUEST = WITH_QUEUES
pytestmark = IN_GUEST

#: Generation and lanes of the link, and kHz of the core, by the block.
BOARDS = {"series7": (2, 1, 125_000), "ultrascale-plus": (3, 8, 250_000)}

#: Bytes per second that a lane carries, by its generation.
LANE = {2: 500e6, 3: 8e9 / 8 * 128 / 130}


def said(command: str) -> str:
    """What a command prints; it succeeds."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([*command.split(), "--board", "/dev/picoevb"]) == 0, output.getvalue()
    return output.getvalue()


@pytest.mark.each_block
def test_link_and_clock(block: str):
    speed, width, clock_khz = BOARDS[block]
    with Node() as node:
        info = node.info()
    assert (info.link_speed, info.link_width, info.clock_khz) == (speed, width, clock_khz)
    for command in ("info", "doctor"):
        assert f"Gen{speed} x{width}" in said(command)


@pytest.mark.each_block
def test_perf(block: str):
    """The limit is the link's; what one channel does alone is a good part of it.

    How many cycles a transfer takes depends on where the kernel has put its pages, and those of a
    copy on the machine as well: they begin when the first of two channels is started, and with each
    register that is written for the other one the board's clock goes on for a while.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "perf.json")
        said(f"perf --memory numpy --sizes 64K --repeat 1 --tails 0 --json {file}")
        report = json.loads(file.read_text())
    rows = {row["direction"]: row for row in report["results"]}
    assert list(rows) == ["to board", "from board", "copy"]
    generation, width, clock_khz = BOARDS[block]
    assert report["clock_khz"] == clock_khz
    for row in rows.values():
        assert 0.75 < row["link_limit"] / (width * LANE[generation]) < 1, row
        # A little more than the limit: cycles end while the last 4 KiB are in the PCIe block.
        assert 0 < row["share_of_limit"] < 1.07, row
    for direction in ("to board", "from board"):
        assert rows[direction]["share_of_limit"] > 0.6, rows[direction]
