# SPDX-License-Identifier: BSD-2-Clause
"""Names in the gateware are known: behind `from amaranth import *` ruff lets any pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import amaranth

ROOT = Path(__file__).resolve().parent.parent


def unknown(*paths: Path) -> set[str]:
    """Names in these files that nothing defines, and all that comes by another such import."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    command += ["--select", "F403,F405", "--output-format", "json", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = {re.match(r"`(.+?)`", row["message"])[1] for row in json.loads(done.stdout)}
    assert "from amaranth import *" in names
    return names - {"from amaranth import *", *amaranth.__all__}


def test_there_is_none_that_nothing_defines():
    assert not unknown(ROOT / "hw", ROOT / "sim")


def test_one_that_nothing_defines_is_found(tmp_path: Path):
    file = tmp_path / "block.py"
    file.write_text("from amaranth import *\n\ninner = Sginal()\nouter = Signal()\n")
    assert unknown(file) == {"Sginal"}
