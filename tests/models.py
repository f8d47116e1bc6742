# SPDX-License-Identifier: BSD-2-Clause
"""Compiles the cores that tests share, all at once: none has to wait for another's.

    .venv/bin/python -m tests.models

Boards are those of `tests.boards`, simulators those that the benches name, and one of each writes
waveforms. What is there already is not made again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from sim.benches.model import build
from sim.benches.runner import core_of, groups
from sim.compile.model import compiled
from sim.compile.tools import BuildError
from tests.boards import BOARDS, WIDE

__all__ = ["main", "models"]


def models() -> Iterator[tuple[str, partial[object]]]:
    """Name of each model, and what makes it: no core twice."""
    for name, core in {
        **BOARDS,
        "of 256 bits": WIDE,
        "that writes waveforms": {"waves": True},
    }.items():
        yield f"the board {name}", partial(compiled, **core)
    yield "a simulator that writes waveforms", partial(build, waves=True)
    yield "the campaign's simulator of 256 bits", partial(build, pcie="seam-256")
    made = []
    for group in groups():
        if (core := core_of(group)) not in made:
            made.append(core)
            yield f"the simulator of {group}", partial(build, **core)


def main() -> int:
    """Makes them, as many at a time as there are processors; 1 if one cannot be made."""
    failed = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, job in [(name, pool.submit(make)) for name, make in models()]:
            try:
                job.result()
            except BuildError as problem:
                print(f"{name}: {problem}", file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
