# SPDX-License-Identifier: BSD-2-Clause
"""Each rule of the gateware, broken on purpose: the demo must fail, and so must a quick test.

Every case edits one line of a copy of the checkout, so the copy's board is built from it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Break:
    """One edit, and what has to notice it."""

    file: str
    old: str
    new: str
    #: a quick test that turns red
    red: tuple[str, ...]


BREAKS = {
    "stuck data bit": Break(
        "hw/series7.py",
        "self.trntd.eq(beat.data)",
        "self.trntd.eq(beat.data & ~(1 << 37))",
        ("tests/hw/test_series7.py",),
    ),
    "no carry over a 4 KiB boundary": Break(
        "hw/splitter.py",
        "piece.address.eq((piece.address | (size - 1)) + 1)",
        "piece.address[:12].eq((piece.address | (size - 1)) + 1)",
        ("tests/hw/test_splitter.py",),
    ),
    "a byte enable missing": Break(
        "hw/writer.py",
        "offered.header.first_be.eq(ahead.first_be)",
        "offered.header.first_be.eq(ahead.first_be & 0x7)",
        ("tests/hw/test_writer.py",),
    ),
    "completions matched to the wrong tag": Break(
        "hw/checker.py",
        "self.lookup.eq(comes.tag)",
        "self.lookup.eq(comes.tag ^ 1)",
        ("tests/hw/test_requester.py",),
    ),
    "interrupt before the data": Break(
        "hw/pipeline.py",
        "self.piece_done & (self.piece_last | (self.piece_outcome != Outcome.OK))",
        "self.piece_done",
        ("tests/sim/test_benches.py", "-k", "msi_follows_data"),
    ),
}


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the board is made of; finished builds are shared."""
    for part in ("hw", "host", "sim", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (ROOT / "build").mkdir(exist_ok=True)
    (tmp_path / "build").symlink_to(ROOT / "build")
    return tmp_path


def run(checkout, *command):
    return subprocess.run(
        [sys.executable, *command],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def demo(checkout):
    return run(checkout, "host/demo.py", "--size", "128x64")


@pytest.mark.parametrize("name", BREAKS)
def test_demo_and_a_quick_test_notice(checkout, name):
    case = BREAKS[name]
    source = checkout / case.file
    text = source.read_text()
    assert text.count(case.old) == 1, f"{case.file} no longer has the line to break: {case.old}"
    source.write_text(text.replace(case.old, case.new))

    broken = demo(checkout)
    assert broken.returncode, f"the demo did not notice:\n{broken.stdout}"
    assert "verified    every word" not in broken.stdout
    assert "Traceback" not in broken.stderr
    tests = run(checkout, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *case.red)
    assert tests.returncode == 1, f"no test turned red:\n{tests.stdout}"


def test_demo_passes_unbroken(checkout):
    sound = demo(checkout)
    assert sound.returncode == 0, sound.stderr
    assert "verified    every word" in sound.stdout
