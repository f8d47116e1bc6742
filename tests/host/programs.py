# SPDX-License-Identifier: BSD-2-Clause
"""Running host/demo.py and the peerdma command as people run them."""

import os
import subprocess
import sys

import peerdma
from peerdma.vfio_user.simboard import checkout_root

__all__ = ["DEMO", "HOST", "ROOT", "command", "expect_error", "run"]

ROOT = checkout_root()
HOST = ROOT / "host"
DEMO = HOST / "demo.py"


def run(*arguments, cwd=None, program=(str(DEMO),), **environment) -> subprocess.CompletedProcess:
    """Runs the demo, or another program, without peerdma on the path."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *map(str, arguments)],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def command(*arguments) -> subprocess.CompletedProcess:
    """Runs the peerdma command."""
    return run(*arguments, program=("-m", "peerdma"), PYTHONPATH=str(HOST))


def expect_error(result: subprocess.CompletedProcess, kind: str, *words: str):
    """It ended with the error's exit code and one line that has these words."""
    assert result.returncode == getattr(peerdma, kind).exit_code
    last = result.stderr.splitlines()[-1]
    assert f": {kind}: " in last
    for word in words:
        assert word in last
    assert "Traceback" not in result.stderr
    assert "verified" not in result.stdout.replace('"verified": false', "")
