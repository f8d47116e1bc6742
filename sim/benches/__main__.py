# SPDX-License-Identifier: BSD-2-Clause
"""``make cocotb``: run cocotb benches, each in a simulator of its own, or on each PCIe block."""

from __future__ import annotations

import argparse
import secrets
import sys

from sim.compile.tools import BuildError

from .runner import discover, folder_of, groups, run, run_group
from .tb import CAPTURE


def main(argv: list[str] | None = None) -> int:
    """Command line; returns 0 if all passed, 1 if not, 2 for an unknown TEST."""
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m sim.benches", description=__doc__)
    parser.add_argument("test", nargs="?", metavar="TEST", help="a bench, or a file of benches")
    parser.add_argument("--seed", type=int, help="repeat the random choices of an earlier run")
    parser.add_argument("--waves", action="store_true", help="write waveforms (dump.fst)")
    parser.add_argument(
        "--netlist", action="store_true", help="the core after synthesis, by the open tools"
    )
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="also on each other PCIe block that there is a model of; a file in one simulator",
    )
    arguments = parser.parse_args(argv)

    benches = discover(arguments.everywhere)
    wanted = [
        name
        for name in discover(everywhere=True)
        if name == arguments.test
        or (name in benches and arguments.test in (None, name.split(".")[0]))
    ]
    if not wanted:
        print(f"There is no bench {arguments.test!r}. There are:", file=sys.stderr)
        for name, doc in benches.items():
            print(f"  {name:40} {doc}", file=sys.stderr)
        return 2

    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    try:
        if arguments.everywhere:
            failed = _run_groups(wanted, seed)
        else:
            how = (seed, arguments.waves, arguments.netlist)
            failed = [name for name in wanted if not run(name, *how)]
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(wanted) - len(failed)} of {len(wanted)} benches passed, seed {seed}")
    for name in failed:
        replay = f"{sys.executable} -m sim.benches {name} --seed {seed} --waves"
        replay += " --netlist" if arguments.netlist else ""
        print(f"FAILED {name}; again with waveforms: {replay}")
        capture = folder_of(name, seed) / CAPTURE
        if capture.exists():
            look = f"{sys.executable} -m peerdma trace {capture} -o {name}.html"
            print(f"  a page with its TLPs: {look}")
    return 1 if failed else 0


def _run_groups(wanted: list[str], seed: int) -> list[str]:
    """Those that did not pass, of the benches that are wanted."""
    failed = []
    for group, tests in groups(everywhere=True).items():
        if not set(wanted).isdisjoint(tests):
            failed += run_group(group, seed)
    return failed


if __name__ == "__main__":
    sys.exit(main())
