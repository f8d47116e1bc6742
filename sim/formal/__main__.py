# SPDX-License-Identifier: BSD-2-Clause
"""``.venv/bin/python -m sim.formal``: what holds for whatever comes, proven by SymbiYosys.

Inputs are free within what is assumed of a block's neighbours. For each property it is shown that

* its assertions hold: for ever, by induction, or for so many cycles after reset;
* what it covers can happen, so that its assumptions do not rule out all that is of interest;
* bugs that are put into a copy of the gateware break it.

Traces are in build/formal/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from ..compile.tools import ROOT
from ..copies import Edit, environment, private_copy
from . import PROPERTIES
from .bugs import BUGS
from .solve import Answer, design, solve

__all__ = ["main"]

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


def _finds(name: str, bug: Edit) -> tuple[bool, str, Answer]:
    with tempfile.TemporaryDirectory() as folder:
        copy = private_copy(Path(folder))
        bug.apply(copy)
        program = (
            f"from sim.formal import PROPERTIES, design; prop = PROPERTIES[{name!r}]();"
            "prop.finding = True; print(prop.reach); print(design(prop))"
        )
        reach, _, text = subprocess.run(
            [sys.executable, "-c", program],
            cwd=copy,
            env=environment(copy),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.partition("\n")
    traces = FOLDER / f"{name}-{bug.name.replace(' ', '-')}"
    answer = solve(text, "bmc", int(reach), traces)
    found = answer.status == "FAIL"
    return found, f"{name}: a bug is {'found' if found else 'NOT FOUND'}: {bug.name}", answer


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status: 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.formal",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", choices=[*PROPERTIES, []], help="properties (all)")
    names = parser.parse_args(argv).name or list(PROPERTIES)
    tasks: list[Callable[[], tuple[bool, str, Answer]]] = [partial(_holds, name) for name in names]
    tasks += [partial(_covers, name) for name in names]
    tasks += [partial(_finds, name, bug) for name in names for bug in BUGS[name]]
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
