# SPDX-License-Identifier: BSD-2-Clause
"""``.venv/bin/python -m sim.perf.speed``: how fast the simulated board itself is.

Copies through the user stream, in this process: cycles of the core per second of processor time,
and bytes of payload. It depends on the machine, and what else that does; nothing fails by it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np

from peerdma.memory.scatter import ScatterList
from peerdma.regs import DESCRIPTOR
from peerdma.userspace.xdma import Xdma
from sim.board.session import BASE, Conditions, Session
from sim.compile.model import SERVED, compiled
from sim.compile.tools import BuildError

from .wide import on_link, streams

__all__ = ["Speed", "main", "measure"]

_RING_BYTES = 1 << 18


class Speed(NamedTuple):
    """One copy."""

    nbytes: int
    #: of the core
    cycles: int
    #: of the processor
    seconds: float


def measure(nbytes: int, rounds: int, block: str = "series7") -> list[Speed]:
    """So many copies of so many bytes; AssertionError if what arrived is not what was sent.

    `block` is one of `sim.compile.model.SERVED`, with the link that it has.
    """
    source, target = _RING_BYTES, _RING_BYTES + nbytes
    conditions = Conditions()
    if name := SERVED[block].get("block"):
        conditions = on_link("gen3x8", streams(name)[0])
    found = []
    with Session(compiled(block=block), conditions, target + nbytes) as board:
        driver = Xdma(board, board.memory[:_RING_BYTES].view(DESCRIPTOR), BASE, None)
        board.memory[source:target] = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
        lists = [ScatterList([BASE + at], [nbytes]) for at in (source, target)]
        for _ in range(rounds):
            board.memory[target:] = 0
            cycle, began = board.cycle, time.process_time()
            driver.stream(*lists)
            found.append(Speed(nbytes, board.cycle - cycle, time.process_time() - began))
            assert (board.memory[source:target] == board.memory[target:]).all()
            board.events()
    return found


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m sim.perf.speed", description=__doc__)
    parser.add_argument("--mib", type=int, default=4, metavar="N", help="of each copy (4)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="copies (5)")
    parser.add_argument("--block", choices=SERVED, default="series7", help="as of sim.board")
    arguments = parser.parse_args(argv)
    try:
        found = measure(arguments.mib << 20, arguments.rounds, arguments.block)
    except BuildError as error:
        print(f"perf: {error}", file=sys.stderr)
        return 2
    for name, unit, rates in (
        ("core", "10^3 cycles", [one.cycles / one.seconds / 1e3 for one in found]),
        ("payload", "MB", [one.nbytes / one.seconds / 1e6 for one in found]),
    ):
        print(f"{name:8} {statistics.median(rates):8.2f} {unit} per second of one processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
