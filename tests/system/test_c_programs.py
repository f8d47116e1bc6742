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
from sim.system import Guest
from tests.host.programs import ROOT

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
            ("g++", EXAMPLES / "copy.cpp"),
        ):
            target = here / source.name.replace(".", "_")
            subprocess.run([compiler, *_OPTIONS, source, "-o", target], check=True)
        yield here


@pytest.mark.parametrize("example", ["copy_c", "copy_cpp"])
def test_an_example(guest: Guest, folder: Path, example: str):
    assert guest.check_run([str(folder / example)]).endswith("verified\n")


@pytest.mark.parametrize("what", ["threads", "loop", "ends", "frames", "cost"])
def test_what_programs_do(guest: Guest, folder: Path, what: str):
    seed = int(os.environ.get("SEED") or secrets.randbits(16))
    print(f"repeat with SEED={seed}")
    status, said = guest.run([str(folder / "header_c"), what, str(seed)])
    print(said)
    assert status == 0, said
    assert said.endswith("as it should be\n")
