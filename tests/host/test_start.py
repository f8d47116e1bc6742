# SPDX-License-Identifier: BSD-2-Clause
"""The programs as they start: Ctrl-C while they import what they need, and their version."""

import os
import re
import signal
import subprocess
import sys

import pytest

import peerdma
from tests.host.programs import DEMO, HOST, ROOT, command, run

#: Takes its time, and turns what interrupts it into another error, as extension modules may.
SLOW = """
import time
print("importing", flush=True)
try:
    time.sleep(60)
except BaseException:
    raise ImportError("numpy could not be imported")
"""


def entry_point() -> str:
    """What pip makes of the command in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    module, function = re.search(r'^peerdma = "(\w+):(\w+)"$', text, re.MULTILINE).groups()
    return f"import sys; from {module} import {function}; sys.exit({function}())"


@pytest.mark.parametrize("name", ["demo.py", "peerdma"])
def test_ctrl_c_while_it_imports_is_one_line(tmp_path, name):
    (tmp_path / "numpy.py").write_text(SLOW)
    program = [DEMO] if name == "demo.py" else ["-c", entry_point(), "info"]
    process = subprocess.Popen(
        [sys.executable, *program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{HOST}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, f"{name}: interrupted\n")


def test_programs_say_their_version():
    version = f"peerdma {peerdma.__version__}\n"
    assert re.fullmatch(r"peerdma \d+\.\d+\.\d+\n", version)
    for result in (run("--version"), command("--version")):
        assert (result.returncode, result.stdout) == (0, version)


def test_the_entry_point_is_the_command():
    result = run("--help", program=("-c", entry_point()), PYTHONPATH=str(HOST))
    assert result.returncode == 0, result.stderr
    assert result.stdout == command("--help").stdout
