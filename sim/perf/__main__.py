# SPDX-License-Identifier: BSD-2-Clause
"""Measure the engine's speed in exact cycles: tables, plots and JSON.

    .venv/bin/python -m sim.perf [--out DIR]

Ends with status 1 if a target is missed in another way than `sim.perf.accepted` says.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from sim.compile.model import compiled
from sim.compile.native import compile_ideal
from sim.compile.tools import BuildError

from .accepted import deviations
from .figure import Figure, Job
from .figures import jobs
from .report import summary, table


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(work: list[Job]) -> list[Figure]:
    figures: list[Figure] = []
    # Built once, before two processes would do it side by side.
    compile_ideal()
    for tags, clock, queues, channels in dict.fromkeys(
        (job.conditions.tags, job.conditions.clock_khz, job.launch_queues, job.channels)
        for job in work
    ):
        compiled(tags=tags, clock_khz=clock, launch_queues=queues, h2c=channels, c2h=channels)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done, found in enumerate(pool.map(Job.__call__, work), 1):
            figures += found
            _say(f"perf: {done} of {len(work)} boards measured")
    return figures


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.perf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/perf"), metavar="DIR",
                        help="where the files go (build/perf)")  # fmt: skip
    out = parser.parse_args().out
    try:
        from .plots import draw

        figures = _measure(list(jobs()))
    except ImportError as error:
        _say(f"perf: {error.name} is missing, which draws: `make perf` installs it")
        return 2
    except BuildError as error:
        _say(f"perf: {error}")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    text = table(figures)
    (out / "perf.txt").write_text(text)
    (out / "perf.json").write_text(
        json.dumps([figure.as_dict() for figure in figures], indent=1) + "\n"
    )
    plots = draw(figures, out)
    print(text)
    print(summary(figures))
    _say("perf: wrote " + ", ".join(str(path) for path in (out / "perf.txt", *plots)))
    wrong = deviations(figures)
    for line in wrong:
        _say(f"perf: {line}")
    if wrong:
        _say("perf: if that is intended, change sim/perf/accepted.py with it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
