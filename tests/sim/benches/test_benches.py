# SPDX-License-Identifier: BSD-2-Clause
"""Runs each cocotb bench as a test of its own, through the command that a developer uses."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from sim.benches import __main__ as command
from sim.benches.runner import WALL_SECONDS, discover

ROOT = Path(__file__).resolve().parents[3]
#: Room for the build, which the first bench pays for.
BUILD_SECONDS = 600


def benches(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m sim.benches``; both of its streams are in `stdout`."""
    paths = [str(ROOT), str(ROOT / "host"), os.environ.get("PYTHONPATH", "")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.run(
        [sys.executable, "-m", "sim.benches", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS + WALL_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("bench", discover())
def test_bench(bench):
    seed = os.environ.get("SEED", str(secrets.randbits(32)))
    done = benches(bench, "--seed", seed)
    print(done.stdout)
    assert done.returncode == 0, f"{bench} failed with seed {seed}"


def test_unknown_bench_lists_all():
    done = benches("bench_nonsense")
    assert done.returncode == 2
    assert "There is no bench 'bench_nonsense'" in done.stdout
    listed = re.findall(r"^  (bench_\S+) +\S", done.stdout, re.MULTILINE)
    assert listed == list(discover())


def test_failure_tells_how_to_repeat_it(monkeypatch, capsys):
    monkeypatch.setattr(
        command, "run", lambda name, seed, waves, netlist: name != "bench_dma.chains"
    )
    assert command.main(["bench_dma", "--seed", "5"]) == 1
    *_, summary, failure = capsys.readouterr().out.splitlines()
    passed, count = re.match(r"(\d+) of (\d+) benches passed, seed 5", summary).groups()
    assert int(passed) == int(count) - 1
    assert failure.startswith("FAILED bench_dma.chains;")
    assert failure.endswith("-m sim.benches bench_dma.chains --seed 5 --waves")
