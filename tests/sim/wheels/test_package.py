# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board as an installed package, `peerdma_sim`, where there is no checkout."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sim.compile.tools import ROOT, find_compiler
from sim.wheels.package import write_package


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages, as pip would install them."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "host" / "peerdma", folder / "peerdma")
    write_package(folder / "peerdma_sim", find_compiler())
    return folder


def run(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python with that folder, and so without the checkout's packages."""
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_demo_verifies_its_copy(site, tmp_path):
    done = run(site, "-m", "peerdma", "demo", "--size", "64x64", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verified"] and report["simulated"]
    assert report["bytes"] == 64 * 64 * 4
    assert list(tmp_path.iterdir()) == []


OPEN = "import peerdma, sys; print(peerdma.open(sys.argv[1], arguments=sys.argv[2:]).info())"


@pytest.mark.parametrize(
    ("user", "block", "found", "speed"),
    [
        ("pass", "series7", "PASS", 2),
        ("pattern", "series7", "PATN", 2),
        ("pass", "ultrascale", "PASS", 3),
        ("pass", "ultrascale-plus", "PASS", 3),
    ],
)
def test_options_that_choose_a_core_that_it_has(site, tmp_path, user, block, found, speed):
    options = ["--user", user, "--block", block, "--h2c", "1", "--c2h", "1", "--ram-size", "65536"]
    options += ["--msi", "4", "--completion-timeout-us", "50"]
    done = run(site, "-c", OPEN, "sim", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in ("simulated=True", f"user_block='{found}'", f"link=Link(speed={speed},"):
        assert text in done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["--user bfloat16", "--c2h 2"],
        ["--user pattern", "--h2c 2"],
        ["--plain"],
        ["--user pattern", "--block ultrascale-plus"],
        ["--ram-size 4096"],
        ["--launch-queues 2"],
        ["--waves"],
    ],
    ids=" ".join,
)
def test_options_that_need_another_core_are_named(site, tmp_path, options):
    words = " ".join(options).replace("--waves", "--waves file.fst").split()
    done = run(site, "-c", OPEN, "sim", *words, cwd=tmp_path)
    (line,) = done.stderr.splitlines()[:1]
    assert "with --user pass --block series7 or --user pattern --block series7 or" in line
    assert f"--block ultrascale-plus, none with {' '.join(options)}. A checkout" in line
    assert "there `make setup && .venv/bin/python -m sim.board --socket board.sock` with" in line
    assert "BoardNotFound: the simulated board did not start" in done.stderr


def test_errors_name_the_installed_board(site, tmp_path):
    done = run(site, "-c", OPEN, str(tmp_path / "none.sock"), cwd=tmp_path)
    program = shlex.quote(sys.executable)
    command = f"`{program} -m peerdma_sim --socket {tmp_path}/none.sock`"
    assert f"Start one by {command}" in done.stderr


def test_its_help_says_how_it_is_started(site, tmp_path):
    done = run(site, "-m", "peerdma_sim", "--help", cwd=tmp_path)
    assert done.stdout.startswith("usage: python3 -m peerdma_sim [-h] --socket PATH")
