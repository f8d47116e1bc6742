# SPDX-License-Identifier: BSD-2-Clause
"""Every kernel that the driver is built for, and what checks its style: ``make driver-matrix``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.driver.builds import DRIVER, build, check
from tools.kernel_headers import checkpatch, sparse

CORE, DISCRETE, TEGRA = "peerdma", "peerdma_nvp2p", "peerdma_nvp2p_tegra"
#: Of checkpatch's opinions, those that are not ours.
IGNORED = (
    "LONG_LINE_STRING",  # messages are not split
    "BIT_MACRO",  # is not for programs, whose headers these are
    "UNCOMMENTED_DEFINITION",  # locks are documented in kernel-doc
    "MACRO_ARG_REUSE",  # of names, not of expressions
    "FILE_PATH_CHANGES",
)


@pytest.mark.parametrize(
    ("kernel", "nvidia", "tegra"),
    [
        ("5.10", "535", "r35"),
        ("6.1", "535", "r36"),
        ("6.12", "535", ""),
        ("6.12-arm64", "550", "r36"),
        ("7.2", "550", ""),
        ("7.2", "", ""),
    ],
)
def test_build(tmp_path: Path, kernel: str, nvidia: str, tegra: str):
    built = build(tmp_path, kernel, nvidia, tegra)
    modules = (CORE, *([DISCRETE] if nvidia else []), *([TEGRA] if tegra else []))
    check(built, kernel, modules)


@pytest.mark.parametrize("kernel", ["6.1", "6.12"])  # the headers of 7.2 cannot run it
def test_sparse(tmp_path: Path, kernel: str):
    options = ["C=2", f"CHECK={sparse()}", "CF=-D__CHECK_ENDIAN__"]
    built = build(tmp_path, kernel, "535", "r36", *options)
    assert built.status == 0, built.output
    said = [line for line in built.output.splitlines() if line.startswith(str(built.folder))]
    assert said == []
    assert "  CHECK " in built.output, "sparse was not run"


def test_checkpatch():
    sources = sorted(path for path in DRIVER.glob("*.[ch]") if path.name != "peerdma_regs.h")
    options = ["--no-tree", "--strict", "--terse", "--max-line-length=100"]
    done = subprocess.run(
        ["perl", checkpatch(), *options, f"--ignore={','.join(IGNORED)}", "-f", *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if not line.startswith("total:")]
    assert said == []
    assert done.returncode == 0, done.stderr
