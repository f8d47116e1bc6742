# SPDX-License-Identifier: BSD-2-Clause
"""Runs each cocotb bench as a test of its own, as the command that a developer uses does."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from sim.benches import __main__ as command
from sim.benches.limits import WALL_SECONDS
from sim.benches.runner import discover

ROOT = Path(__file__).resolve().parents[3]
#: Room for the build, which the first bench pays for.
BUILD_SECONDS = 600


def benches(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m sim.benches``; both of its streams are in `stdout`."""
    return python("-m", "sim.benches", *arguments)


def environment() -> dict[str, str]:
    """A copy of the environment, without what has cocotb write its results for pytest."""
    return {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the checkout; both of its streams are in `stdout`."""
    paths = [str(ROOT), str(ROOT / "host"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment() | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS + WALL_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("bench", discover())
def test_bench(bench, monkeypatch):
    """In this process, which has imported already what the command takes a second to import."""
    seed = os.environ.get("SEED", str(secrets.randbits(32)))
    # What it leaves in the environment for the simulator is not for other tests.
    monkeypatch.setattr(os, "environ", environment())
    assert command.main([bench, "--seed", seed]) == 0, f"{bench} failed with seed {seed}"


def test_unknown_bench_lists_all():
    done = benches("bench_nonsense")
    assert done.returncode == 2
    assert "There is no bench 'bench_nonsense'" in done.stdout
    listed = re.findall(r"^  (bench_\S+) +\S", done.stdout, re.MULTILINE)
    assert listed == list(discover())


@pytest.mark.parametrize(
    ("bound", "said"), [("CPU_SECONDS", "1 s of processor time"), ("WALL_SECONDS", "1 s")]
)
def test_a_bench_at_its_limit_says_which(bound, said):
    """One that takes some seconds of a processor, with bounds of one."""
    bench = "bench_upstream.long_list"
    done = python(
        "-c",
        "import sys; from sim.benches import __main__ as command, limits; "
        f"limits.{bound} = 1; sys.exit(command.main([{bench!r}, '--seed', '1']))",
    )
    assert done.returncode == 1
    assert f"{bench}: the simulator was stopped after {said}\n" in done.stdout
    assert "0 of 1 benches passed" in done.stdout


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
