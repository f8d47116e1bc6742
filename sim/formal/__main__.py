# SPDX-License-Identifier: BSD-2-Clause
"""``python -m sim.formal``: what holds for whatever comes, proven by SymbiYosys.

Inputs are free within what is assumed of a block's neighbours. For each property it is shown that

* its assertions hold: for ever, by induction, or for so many cycles after reset;
* what it covers can happen, so that its assumptions do not rule out all that is of interest;
* bugs that are put into a copy of the gateware break it.

Traces are in build/formal/.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from . import PROPERTIES
from .bugs import BUGS, Bug
from .solve import Answer, design, solve

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "formal"
#: Tasks at a time.
WORKERS = 2


def _holds(name: str) -> tuple[bool, str, Answer]:
    prop = PROPERTIES[name]()
    mode = "prove" if prop.forever else "bmc"
    answer = solve(design(prop), mode, prop.depth, FOLDER / name)
    how = "for ever" if prop.forever else f"for {prop.depth} cycles after reset"
    what = (prop.__doc__ or "").partition("\n")[0]
    passed = answer.status == "PASS"
    return passed, f"{name}: {f'holds {how}' if passed else 'does NOT hold'}: {what}", answer


def _covers(name: str) -> tuple[bool, str, Answer]:
    prop = PROPERTIES[name]()
    answer = solve(design(prop), "cover", prop.reach, FOLDER / f"{name}-cover")
    passed = answer.status == "PASS"
    word = "is possible" if passed else "is NOT all possible"
    return passed, f"{name}: what it covers {word}", answer


def _finds(bug: Bug) -> tuple[bool, str, Answer]:
    with tempfile.TemporaryDirectory() as copy:
        for part in ("hw", "sim", "host/peerdma"):
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, Path(copy, part), ignore=skip)
        bug.plant(Path(copy))
        program = (
            f"from sim.formal import PROPERTIES, design; print(design(PROPERTIES[{bug.prop!r}]()))"
        )
        text = subprocess.run(
            [sys.executable, "-c", program, bug.prop],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((copy, str(Path(copy, "host"))))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    folder = FOLDER / f"{bug.prop}-{bug.name.replace(' ', '-')}"
    answer = solve(text, "bmc", PROPERTIES[bug.prop].reach, folder)
    found = answer.status == "FAIL"
    return found, f"{bug.prop}: a bug is {'found' if found else 'NOT FOUND'}: {bug.name}", answer


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status: 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m sim.formal",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", choices=[*PROPERTIES, []], help="properties (all)")
    names = parser.parse_args(argv).name or list(PROPERTIES)
    tasks: list[Callable[[], tuple[bool, str, Answer]]] = [partial(_holds, name) for name in names]
    tasks += [partial(_covers, name) for name in names]
    tasks += [partial(_finds, bug) for bug in BUGS if bug.prop in names]
    began, wrong = time.monotonic(), 0
    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(task) for task in tasks]
        for number, each in enumerate(as_completed(running), 1):
            passed, line, answer = each.result()
            seconds = time.monotonic() - began
            print(f"{number:3}/{len(tasks)} {seconds:4.0f} s  {line}", flush=True)
            if not passed:
                wrong += 1
                print(f"{answer.status}\n{answer.said}", flush=True)
    print(f"{len(tasks) - wrong} of {len(tasks)} as they should be; traces are in {FOLDER}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
