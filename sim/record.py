# SPDX-License-Identifier: BSD-2-Clause
"""Shows that a change of the gateware's structure changes no cycle at its ports.

    .venv/bin/python -m sim.record write FILE [TEST]   run all benches and seeds of the campaign
    .venv/bin/python -m sim.record compare OLD NEW     name the runs that differ, and where

A record has a line per run: name, seed, and CYCLE:HASH after each 256 cycles and after the last
one. A hash covers the core's ports towards the hard block in all cycles so far
(`sim/benches/recorder.sv`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from sim.benches import runner
from sim.benches.model import PORT_LOG, build
from sim.campaign.__main__ import replay_folder
from sim.campaign.execute import SEEDS
from sim.compile.tools import ROOT, BuildError

__all__ = ["RecordError", "Run", "compare", "load", "main", "plan"]

_LINE = re.compile(r"(\S+ \d+)((?: \d+:[0-9a-f]{16})+)")
#: Lines of a failed run's output that are shown.
_TAIL = 40


class RecordError(Exception):
    """A run failed, a file is not a record, or there is nothing to run; the message says which."""


@dataclass(frozen=True)
class Run:
    """A bench or a seed of the campaign.

    Attributes
    ----------
    name : str
        The bench as `sim.benches` calls it, or "campaign".
    seed : int
    command : tuple of str
        Python module that runs it, and its arguments.
    folder : Path
        Where it leaves `PORT_LOG`.
    """

    name: str
    seed: int
    command: tuple[str, ...]
    folder: Path

    def record(self) -> str:
        """Run it; returns its line. Raises RecordError if it failed."""
        log = self.folder / PORT_LOG
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", *self.command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        hashes = log.read_text().split() if log.exists() else []
        if done.returncode or not hashes:
            tail = "\n".join(done.stdout.splitlines()[-_TAIL:])
            raise RecordError(f"{tail}\nFAILED .venv/bin/python -m {' '.join(self.command)}")
        return f"{self.name} {self.seed} {' '.join(hashes)}"


def plan(seed: int, seeds: int) -> list[Run]:
    """All benches with a seed, and so many seeds of the campaign of that number."""
    benches = [
        Run(name, seed, ("sim.benches", name, "--seed", str(seed)), runner.folder_of(name, seed))
        for name in runner.discover()
    ]
    first = seed * SEEDS
    return benches + [
        Run("campaign", n, ("sim.campaign", "replay", str(n), "--no-waves"), replay_folder(n))
        for n in range(first, first + seeds)
    ]


def load(file: Path) -> dict[str, list[str]]:
    """CYCLE:HASH items of each run in a file, by "NAME SEED". Raises RecordError, OSError."""
    found = {}
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if not match or match[1] in found:
            raise RecordError(f"{file}:{number} is not a line of a record: {line[:80]!r}")
        found[match[1]] = match[2].split()
    if not found:
        raise RecordError(f"{file} has no runs")
    return found


def compare(old: dict[str, list[str]], new: dict[str, list[str]]) -> Iterator[str]:
    """A line for each run that differs or that only one of two records has."""
    for run in sorted(old.keys() | new.keys()):
        if run not in old or run not in new:
            yield f"{run}: only in the {'old' if run in old else 'new'} record"
            continue
        sides = old[run], new[run]
        pairs = zip(*sides, strict=False)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        ends = [_cycle(side[same]) for side in sides if same < len(side)]
        if ends:
            begin = _cycle(old[run][same - 1]) if same else 0
            before, after = (_cycle(side[-1]) for side in sides)
            yield (
                f"{run}: differs between cycles {begin} and {max(ends)};"
                f" it took {before} cycles and takes {after}"
            )


def _cycle(item: str) -> int:
    return int(item.partition(":")[0])


def _write(arguments: argparse.Namespace) -> int:
    runs = [
        run
        for run in plan(arguments.seed, arguments.campaign)
        if arguments.test in (None, run.name, run.name.split(".")[0])
    ]
    if not runs:
        raise RecordError(f"there is no run {arguments.test!r}: name a bench, its file or campaign")
    # Nearly all runs need this model: an error in the gateware shows here, once.
    build()
    failed = 0
    began = time.monotonic()
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    with arguments.file.open("w") as file:
        try:
            pending = {pool.submit(run.record): run for run in runs}
            for number, future in enumerate(as_completed(pending), 1):
                run = pending[future]
                try:
                    line = future.result()
                    # At once: a recording that is stopped leaves what it has.
                    print(line, file=file, flush=True)
                    result = f"{_cycle(line.split()[-1])} cycles"
                except RecordError as error:
                    failed += 1
                    result = f"FAILED\n{error}"
                seconds = time.monotonic() - began
                about = f"{number}/{len(runs)} {run.name} {run.seed}"
                print(f"{seconds:5.0f} s  {about}: {result}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"{arguments.file}: {len(runs) - failed} runs, {failed} failed")
    return int(failed > 0)


def _compare(arguments: argparse.Namespace) -> int:
    old, new = load(arguments.old), load(arguments.new)
    found = list(compare(old, new))
    for line in found:
        print(line)
    print(f"{len(old.keys() | new.keys())} runs, {len(found)} of them differ")
    return int(bool(found))


def main(argv: list[str] | None = None) -> int:
    """Command line; returns 0, 1 if a run failed or differs, 2 if nothing could be done."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    write = commands.add_parser("write", help="run, and write the record")
    write.add_argument("file", type=Path, metavar="FILE")
    write.add_argument(
        "test", nargs="?", metavar="TEST", help="a bench, a file of benches, or campaign (all)"
    )
    write.add_argument("--seed", type=int, default=1, help="of benches and campaign (1)")
    write.add_argument(
        "--campaign", type=int, default=20, metavar="N", help="seeds of the campaign (20)"
    )
    write.set_defaults(command=_write)
    both = commands.add_parser("compare", help="compare two records")
    both.add_argument("old", type=Path, metavar="OLD")
    both.add_argument("new", type=Path, metavar="NEW")
    both.set_defaults(command=_compare)
    arguments = parser.parse_args(argv)
    try:
        return arguments.command(arguments)
    except (BuildError, OSError, RecordError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
