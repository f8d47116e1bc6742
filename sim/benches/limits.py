# SPDX-License-Identifier: BSD-2-Clause
"""Bounds of a simulator that hangs, busy or not; simulated time is bounded by what runs in it."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CPU_SECONDS", "ENVIRONMENT", "WALL_SECONDS", "bounded"]

#: Of each simulator. The same seed is the same run: sets, too, have the same order. And pytest
#: explains our assertions only: to prepare those of all that is imported takes 2 s at each start.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "COCOTB_REWRITE_ASSERTION_FILES": "*/sim/*.py"}
#: Other programs may take most of a machine, so what counts is the time of the processor; a
#: simulator that uses none is stopped by the clock on the wall.
CPU_SECONDS, WALL_SECONDS = 120, 900
#: After so many more the simulator is ended by a signal that it cannot handle.
_GRACE = 5


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def bounded(what: str, count: int = 1) -> Iterator[None]:
    """Bounds each simulator that cocotb's runner starts inside, and says which bound stopped it.

    `what` is what it runs, for the message: `count` benches, each of which has the bounds. The
    runner's error, a RuntimeError or a SystemExit, is passed on.
    """
    cpu, wall = CPU_SECONDS * count, WALL_SECONDS * count
    os.environ["SIM_CMD_PREFIX"] = (
        f"prlimit --cpu={cpu}:{cpu + _GRACE} timeout --kill-after={_GRACE} {wall}"
    )
    used, began = _children_cpu(), time.monotonic()
    try:
        yield
    except (RuntimeError, SystemExit) as error:
        # The kernel counts by ticks when it judges, which can be long before it reports as much.
        by_limit = str(error).endswith(f": {-signal.SIGXCPU}")
        if by_limit or _children_cpu() - used >= cpu:
            print(f"{what}: the simulator was stopped after {cpu} s of processor time")
        elif time.monotonic() - began >= wall:
            print(f"{what}: the simulator was stopped after {wall} s")
        else:
            print(f"{what}: the simulator died: see its output above")
        raise
