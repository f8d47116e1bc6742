# SPDX-License-Identifier: BSD-2-Clause
"""Compiled programs: one that knows NVIDIA's requests only, and one of 32 bits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sim.system import Guest

pytestmark = pytest.mark.system

#: By pointer it is host memory that is pinned, as on a Jetson: without a provider for a GPU.
GUEST = {"configuration": "strict"}
HERE = Path(__file__).parent
DRIVER = HERE.parents[1] / "driver"


def run(guest: Guest, folder: Path, source: str, *options: str) -> tuple[int, str]:
    """Compiles a program and runs it in the guest."""
    program = folder / source.removesuffix(".c")
    command = [os.environ.get("CC", "gcc"), "-static", "-Wall", "-Werror", f"-I{DRIVER}", *options]
    # A 32-bit compiler does not look for the kernel's headers where a 64-bit one does.
    command += ["-idirafter", "/usr/include/x86_64-linux-gnu", "-o", str(program)]
    subprocess.run([*command, str(HERE / "programs" / source)], check=True)
    return guest.run([str(program)])


def test_a_program_for_nvidias_driver(guest: Guest, tmp_path: Path):
    assert run(guest, tmp_path, "picoevb.c") == (0, "all is well\n")


def test_a_program_of_32_bits(guest: Guest, tmp_path: Path):
    assert run(guest, tmp_path, "compat32.c", "-m32", "-nostdlib", "-fno-pic", "-no-pie") == (
        42,
        "",
    )
