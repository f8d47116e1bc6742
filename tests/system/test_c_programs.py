# SPDX-License-Identifier: BSD-2-Clause
"""Programs in C and C++ by peerdma.h, in a guest, on the kernel driver."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import peerdma
from peerdma.testing.pattern import fill_bytes
from sim.system import Guest
from tests.host.programs import ROOT
from tests.system.picoevb import PAGE
from tests.system.rings import SENSOR, source

#: The second board has a source of frames.
GUEST = {"configuration": "identity", "further_boards": [["--user", "pattern"]]}
pytestmark = pytest.mark.system

EXAMPLES = ROOT / "host" / "examples" / "c"
_OPTIONS = ("-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", peerdma.include_dir())


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The programs, where the guest sees them."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        here = Path(name)
        for compiler, source in (
            ("gcc", Path(__file__).parent / "programs" / "header.c"),
            ("gcc", EXAMPLES / "copy.c"),
            ("gcc", EXAMPLES / "acquire.c"),
            ("g++", EXAMPLES / "copy.cpp"),
        ):
            target = here / source.name.replace(".", "_")
            subprocess.run([compiler, *_OPTIONS, source, "-o", target], check=True)
        yield here


@pytest.mark.parametrize("example", ["copy_c", "copy_cpp"])
def test_an_example(guest: Guest, folder: Path, example: str):
    assert guest.check_run([str(folder / example)]).endswith("verified\n")


@pytest.mark.parametrize("what", ["threads", "loop", "ends", "cost"])
def test_what_programs_do(guest: Guest, folder: Path, what: str):
    seed = int(os.environ.get("SEED") or secrets.randbits(16))
    print(f"repeat with SEED={seed}")
    status, said = guest.run([str(folder / "header_c"), what, str(seed)])
    print(said)
    assert status == 0, said
    assert said.endswith("as it should be\n")


def acquires(folder: str) -> None:
    """In the guest: frames arrive whole, and in order; without a source the program ends."""
    with source(PAGE, 5):
        done = subprocess.run([f"{folder}/header_c", "frames"], capture_output=True, text=True)
    assert done.stdout == "as it should be\n", done.stdout
    program, file, frame = f"{folder}/acquire_c", Path(tempfile.gettempdir(), "frames"), 65536
    with source(frame, 5):
        done = subprocess.run([program, file, "20", SENSOR], capture_output=True, text=True)
    said = done.stderr
    assert (done.returncode, said) == (0, "acquire_c: 20 of 20 frames were written\n"), said
    found = file.read_bytes()
    for number in range(20):
        got = found[number * frame : (number + 1) * frame]
        assert got == fill_bytes(5 + number, 0, frame).tobytes(), number
    assert len(found) == 20 * frame
    done = subprocess.run([program, "/dev/full", "20", SENSOR], capture_output=True, text=True)
    assert done.returncode == 3
    assert "no frame came for 10 s" in done.stderr
    with source(frame, 5):
        done = subprocess.run([program, "/dev/full", "20", SENSOR], capture_output=True, text=True)
    assert done.returncode == 5
    assert "0 of 65536 bytes of frame 0 were written: No space left" in done.stderr


def test_frames_into_a_file(guest: Guest, folder: Path):
    guest.python(f"from tests.system.test_c_programs import acquires\nacquires({str(folder)!r})")
