# SPDX-License-Identifier: BSD-2-Clause
"""The campaign on a Dask cluster: workers in empty folders, one of which is killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.campaign import execute
from sim.campaign.draw import draw
from sim.campaign.plan import Core

ROOT = Path(__file__).resolve().parents[3]
#: Bound of everything here, in seconds; the models may have to be built first.
LIMIT = 300
SEEDS, EPISODES = 3, 2
CORES = Core("pass", 1, "series7"), Core("pass", 2, "series7")


def wait_for(what: str, condition) -> object:
    """Wait until `condition` is true, and return it; fail after `LIMIT` seconds."""
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {LIMIT} s in vain for {what}"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def process(folder: Path, *arguments: str) -> Iterator[subprocess.Popen]:
    """A program of Dask's in a folder of its own, without this checkout."""
    folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def worker(folder: Path, address: str) -> contextlib.AbstractContextManager[subprocess.Popen]:
    """A worker with one thread, which runs a seed at a time."""
    arguments = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", "dask")
    return process(folder, "distributed.cli.dask_worker", address, *arguments)


def campaign(seed: int, output: Path, *arguments: str) -> subprocess.Popen:
    """``python -m sim.campaign run`` under way."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "host")))
    command = [sys.executable, "-m", "sim.campaign", "run", "--seed", str(seed)]
    command += ["--seeds", str(SEEDS), "--episodes", str(EPISODES), "--seconds", str(LIMIT)]
    return subprocess.Popen(
        [*command, "--output", str(output), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def record(path: Path) -> dict:
    """What a campaign left, but for the time that it took."""
    content = json.loads(path.read_text())
    for result in content["seeds"].values():
        del result["cpu_seconds"]
    return content


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A scheduler."""
    file = tmp_path / "scheduler.json"
    arguments = (
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        str(file),
    )
    with process(tmp_path / "scheduler", "distributed.cli.dask_scheduler", *arguments):
        wait_for("the scheduler", lambda: file.exists() and file.stat().st_size)
        yield json.loads(file.read_text())["address"]


def test_a_killed_worker_changes_nothing(address: str, tmp_path: Path):
    first = int(os.environ.get("SEED") or secrets.randbits(20))
    print(f"repeat with SEED={first}")
    # One whose cores benches have, too.
    seed = next(
        number
        for number in itertools.count(first)
        if all(
            draw(execute.SEEDS * number + n, EPISODES).machine.core in CORES for n in range(SEEDS)
        )
    )
    with worker(tmp_path / "first", address) as victim, worker(tmp_path / "second", address):
        far = campaign(seed, tmp_path / "far.json", "--scheduler", address)
        # In the middle of a simulation.
        seeds = (tmp_path / "first").glob
        wait_for("a seed", lambda: far.poll() is not None or [*seeds("*/*/runs/*/tlps.txt")])
        os.killpg(victim.pid, signal.SIGKILL)
        said, _ = far.communicate(timeout=LIMIT)
    assert far.returncode == 0, said
    near = campaign(seed, tmp_path / "near.json", "--cores", "1")
    told, _ = near.communicate(timeout=LIMIT)
    assert near.returncode == 0, told
    assert len(record(tmp_path / "far.json")["seeds"]) == SEEDS
    assert record(tmp_path / "far.json") == record(tmp_path / "near.json")
