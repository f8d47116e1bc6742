# SPDX-License-Identifier: BSD-2-Clause
"""Measure the engine's speed in exact cycles: tables, plots and JSON.

    .venv/bin/python -m sim.perf [--out DIR]
    .venv/bin/python -m sim.perf --width BITS --link LINK [--headers N ...]
    .venv/bin/python -m sim.perf --block NAME --link LINK

Ends with status 1 if a target is missed in another way than `sim.perf.accepted` says. With --width
it measures a core without an adapter of a PCIe block, with --block one behind the adapter of
UltraScale or UltraScale+; there are no targets for either.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from sim.board.session import Conditions
from sim.compile.model import compiled
from sim.compile.native import compile_ideal
from sim.compile.tools import BuildError

from .accepted import deviations
from .figure import Figure, Job
from .figures import jobs, times
from .report import summary
from .report import table as table_of
from .wide import ROOMS, Row, measure, rows, seams, streams, table, usual


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(work: list[Job]) -> list[Figure]:
    figures: list[Figure] = []
    # Built once, before two processes would do it side by side.
    compile_ideal()
    for tags, clock, queues, user, channels, overcommit in dict.fromkeys(
        (
            job.conditions.tags,
            job.conditions.clock_khz,
            job.launch_queues,
            job.user,
            job.channels,
            job.overcommit,
        )
        for job in work
    ):
        compiled(
            user,
            tags=tags,
            clock_khz=clock,
            launch_queues=queues,
            h2c=channels,
            c2h=channels,
            overcommit=overcommit,
        )
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done, found in enumerate(pool.map(Job.__call__, work), 1):
            figures += found
            _say(f"perf: {done} of {len(work)} boards measured")
    return figures


def _measure_wide(work: list[Conditions]) -> str:
    compile_ideal()
    for tags, clock, seam, block in dict.fromkeys(
        (one.tags, one.clock_khz, one.seam, one.streams and one.streams.name) for one in work
    ):
        compiled(tags=tags, clock_khz=clock, seam=seam, block=block)
    found: list[Row] = []
    took: list[Figure] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done, measured in enumerate(pool.map(measure, work), 1):
            found += measured
            _say(f"perf: {done} of {len(work)} boards measured")
        for figures in pool.map(times, filter(usual, work)):
            took += (replace(figure, target=None) for figure in figures)
    return f"{table(found)}\n{table_of(took)}"


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.perf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/perf"), metavar="DIR",
                        help="where the files go (build/perf)")  # fmt: skip
    parser.add_argument("--width", type=int, choices=(64, 128, 256), metavar="BITS",
                        help="a core without an adapter: 64, 128 or 256 bits")  # fmt: skip
    parser.add_argument("--block", metavar="NAME",
                        help="a core behind this one's adapter: ultrascale_plus-256")  # fmt: skip
    parser.add_argument("--link", metavar="LINK", help="of that core: gen1x1 to gen3x8")
    parser.add_argument("--headers", type=int, nargs="+", choices=ROOMS, default=[128], metavar="N",
                        help="completions its block holds: 36, 64, 128, 256 (128)")  # fmt: skip
    arguments = parser.parse_args()
    out = arguments.out
    kinds = [name for name in ("width", "block") if getattr(arguments, name) is not None]
    if len(kinds) != (arguments.link is not None):
        parser.error("--link belongs to one of --width and --block")
    try:
        if arguments.link:
            if arguments.block:
                blocks = streams(arguments.block)
            else:
                blocks = seams(arguments.width, arguments.headers)
            print(_measure_wide(list(rows(arguments.link, blocks))), end="")
            return 0
    except ValueError as error:
        parser.error(str(error))
    except BuildError as error:
        _say(f"perf: {error}")
        return 2
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
    text = table_of(figures)
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
