# SPDX-License-Identifier: BSD-2-Clause
"""``make campaign``: run a campaign, replay a seed, merge what several came to."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import sys
import time
from pathlib import Path

from sim.benches import layout
from sim.benches.model import build
from sim.compile.tools import ROOT, BuildError

from . import bundle, execute, one
from .draw import draw
from .plan import EVERY_CORE, Core
from .report import Record
from .worker import name_of

__all__ = ["main", "replay_folder"]

_BUILD = ROOT / "build" / "campaign"
_PROGRAM = f"{shlex.quote(sys.executable)} -m sim.campaign"


def _run(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    record = Record()
    packed = bundle.make(_cores(arguments))
    place = arguments.scheduler
    site = execute.cluster(packed, place) if place else execute.local(packed, arguments.cores)

    def done(result: dict) -> None:
        record.add(result)
        verdict = "passed" if result["passed"] else "FAILED"
        print(
            f"{time.monotonic() - begin:5.0f} s  seed {result['seed']} {verdict},"
            f" {result['cpu_seconds']:.0f} CPU s; {len(record.seeds)} seeds,"
            f" {len(record.failed)} failed, {100 * record.share():.1f} % covered",
            flush=True,
        )
        if not result["passed"]:
            print(result["log"])
            print(f"again with waveforms: {_again(result['seed'], arguments)}", flush=True)

    with site as there:
        print(f"campaign {arguments.seed} on {there.slots()} cores, bundle {name_of(packed)}")
        # The models may have taken a part of the time, the first time all of it: even then a seed
        # on each core runs.
        seconds = max(arguments.seconds + begin - time.monotonic(), 1.0)
        what = execute.Campaign(arguments.seed, seconds, arguments.episodes, arguments.seeds)
        # What has been seen is not lost with what has not.
        with contextlib.suppress(KeyboardInterrupt):
            execute.run(there, what, done)
    path = arguments.output or _BUILD / f"campaign-{arguments.seed}.json"
    record.save(path)
    print(f"\n{record.text()}\nrecord: {path}")
    for seed in record.failed:
        print(f"FAILED seed {seed}; again with waveforms: {_again(seed, arguments)}")
    return int(bool(record.failed) or not record.seeds)


def _cores(arguments: argparse.Namespace) -> list[Core]:
    """Those that the campaign's seeds need: any, if they are not counted."""
    if arguments.seeds is None:
        return list(EVERY_CORE)
    first = arguments.seed * execute.SEEDS
    plans = (draw(seed, arguments.episodes) for seed in range(first, first + arguments.seeds))
    return sorted({plan.machine.core for plan in plans})


def _again(seed: int, arguments: argparse.Namespace) -> str:
    """The command that does exactly the same."""
    usual = arguments.episodes == execute.EPISODES
    return f"{_PROGRAM} replay {seed}" + ("" if usual else f" --episodes {arguments.episodes}")


def replay_folder(seed: int) -> Path:
    """Where the replay of a seed leaves all it writes."""
    return _BUILD / f"replay-{seed}"


def _replay(arguments: argparse.Namespace) -> int:
    seed = arguments.number
    core = draw(seed, arguments.episodes).machine.core
    folder = replay_folder(seed)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "models").mkdir(parents=True)
    waves = not arguments.no_waves
    model = build(waves, **core._asdict())
    if waves:
        layout.copy(model, folder)
    (folder / "models" / core.name).symlink_to(model)
    result = one.run(seed, arguments.episodes, folder / "models", folder, waves)
    verdict = "passed" if result["passed"] else "FAILED"
    print(f"seed {seed} {verdict}; TLPs {result['digest'][:20]}; all of it is in {folder}")
    return int(not result["passed"])


def _report(arguments: argparse.Namespace) -> int:
    try:
        record = Record.load(arguments.files)
    except (OSError, ValueError, KeyError) as error:
        print(f"no record of a campaign: {error}", file=sys.stderr)
        return 2
    print(record.text())
    return int(not record.complete)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns 0 if all is well, 1 if a seed failed (`report`: or a bin is a hole)."""
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m sim.campaign", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run seeds for a while")
    replay = commands.add_parser("replay", help="run one seed again, with waveforms")
    run.add_argument("--seconds", type=float, default=60, help="start no seed later (60)")
    run.add_argument("--seed", type=int, default=1, help="which seeds: another number, others (1)")
    run.add_argument("--seeds", type=int, help="how many seeds at most")
    run.add_argument("--cores", type=int, help="seeds at once (all cores)")
    run.add_argument("--scheduler", help="address of a Dask scheduler, as tcp://HOST:8786")
    run.add_argument("--output", type=Path, help="where the record goes, as JSON")
    for command in (run, replay):
        command.add_argument(
            "--episodes", type=int, default=execute.EPISODES, help="how much a seed does (20)"
        )
    run.set_defaults(command=_run)
    replay.add_argument("number", type=int, metavar="SEED")
    replay.add_argument("--no-waves", action="store_true", help="faster")
    replay.set_defaults(command=_replay)
    report = commands.add_parser("report", help="merge records")
    report.add_argument("files", type=Path, nargs="+")
    report.set_defaults(command=_report)
    arguments = parser.parse_args(argv)
    try:
        return arguments.command(arguments)
    except (BuildError, execute.NoWorkers) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
