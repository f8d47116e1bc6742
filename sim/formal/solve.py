# SPDX-License-Identifier: BSD-2-Clause
"""SymbiYosys with the solver Bitwuzla, both from wheels, on one property."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil

from . import solver
from .property import Property

__all__ = ["Answer", "design", "solve"]

_SBY = """[options]
mode {mode}
depth {depth}
timeout {timeout}
[engines]
smtbmc bitwuzla
[script]
read_rtlil top.il
prep -flatten -top top
[files]
top.il
"""
#: Seconds for one task.
_TIMEOUT = 600


@dataclass(frozen=True)
class Answer:
    """What became of one task.

    Attributes
    ----------
    status : str
        SymbiYosys' word for it: PASS, FAIL, UNKNOWN (no induction), TIMEOUT, ERROR.
    said : str
        What it said last; names traces, which are in its folder.
    """

    status: str
    said: str


def design(prop: Property) -> str:
    """The property as RTLIL."""
    return rtlil.convert(prop, ports=prop.inputs)


def solve(text: str, mode: str, depth: int, folder: Path) -> Answer:
    """Runs a task in `folder`, which is made anew.

    Parameters
    ----------
    text : str
        RTLIL.
    mode : {"prove", "bmc", "cover"}
    depth : int
        Cycles.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "top.il").write_text(text)
    (folder / "task.sby").write_text(_SBY.format(mode=mode, depth=depth, timeout=_TIMEOUT))
    program = folder / "bitwuzla"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{solver.__file__}" "$@"\n')
    program.chmod(0o755)
    # The tools are programs of the environment that this Python is of.
    tools = Path(sys.executable).parent
    command = ["yowasp-sby", "-f", "-d", "run"]
    for name in ("yosys", "yosys-smtbmc", "yosys-witness"):
        command += [f"--{name.removeprefix('yosys-')}", f"yowasp-{name}"]
    path = os.pathsep.join((str(folder.resolve()), str(tools), os.environ["PATH"]))
    done = subprocess.run(
        [str(tools / command[0]), *command[1:], "task.sby"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    match = re.search(r"DONE \((\w+), rc=", done.stdout)
    return Answer(match[1] if match else "ERROR", "\n".join(done.stdout.splitlines()[-25:]))
