# SPDX-License-Identifier: BSD-2-Clause
"""The driver's telling of programs, of its own source, in threads that do all at the same time."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("-g", "-O1", "-Wall", "-Werror", "-fsanitize=address", "-pthread")
#: Errors that were, or could be made: what is in tell.c, and what it is then.
PLANTED = {
    "a file is queued twice": ("\tif (file->telling || ", "\tif ("),
    "what is left is forgotten": ("\tlist_splice_init(jobs, &file->untold);\n", ""),
    "what is left is put back though it is there": (
        "\tfile->news |= news;\n",
        "\tfile->news |= news;\n\tfile->telling = false;\n",
    ),
}


def built(folder: Path, source: str) -> Path:
    """Compiles telling.c with a source of tell.c."""
    (folder / "linux").mkdir()
    (folder / "driver/engine").mkdir(parents=True)
    for name in ("linux/eventfd.h", "linux/sched.h", "driver/engine/engine.h"):
        (folder / name).touch()  # telling.c has what is used of them
    (folder / "driver/engine/tell.c").write_text(source)
    program = folder / "telling"
    command = ["gcc", *FLAGS, f"-I{folder}", str(ROOT / "tests/driver/telling.c"), "-o", program]
    subprocess.run(command, check=True)
    return program


def told(program: Path) -> subprocess.CompletedProcess[str]:
    """Runs it, with a seed of its own."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print(f"SEED={seed}")
    return subprocess.run(
        [program, str(seed)], capture_output=True, text=True, timeout=120, check=False
    )


def test_each_job_is_told_once(tmp_path: Path):
    done = told(built(tmp_path, (ROOT / "driver/engine/tell.c").read_text()))
    assert done.returncode == 0, done.stderr
    told_jobs, made = map(int, re.findall(r"\d+", done.stdout))
    assert told_jobs == made > 10_000


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found(tmp_path: Path, name: str):
    """By when the threads meet, which they do not in every run."""
    right, wrong = PLANTED[name]
    source = (ROOT / "driver/engine/tell.c").read_text()
    assert source.count(right) == 1
    program = built(tmp_path, source.replace(right, wrong))
    assert any(told(program).returncode for _ in range(10))
