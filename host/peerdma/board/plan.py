# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that have been checked and are ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .backend import BoardInfo, Moved
from .pin import Pin, Span
from .spans import longest_path, total_bytes
from .transfer import Paths, Transfer

__all__ = ["Plan", "PlanCache"]

#: Most plans to keep.
_PLANS = 64
_NOTHING = Moved(0, None)


class Plan(NamedTuple):
    """A transfer that has been checked."""

    #: runs the transfer; not called if there are no bytes
    move: Callable[[], Moved]
    nbytes: int
    #: `Memory.flush_writes` of each destination's memory, to be called after the transfer
    flushes: list[Callable[[], None]]
    paths: Paths

    @classmethod
    def of(
        cls, move: Callable[[], Moved], sources: Sequence[Span], destinations: Sequence[Span]
    ) -> Plan:
        """The plan for a transfer of these spans; card RAM as a side has none."""
        memories = {id(span.pin.memory): span.pin.memory for span in destinations}
        return cls(
            move,
            total_bytes(sources or destinations),
            [memory.flush_writes for memory in memories.values()],
            Paths(longest_path(sources), longest_path(destinations)),
        )

    def run(self, info: BoardInfo) -> Transfer:
        """Runs the transfer; `info` is that of its board."""
        began = time.perf_counter()
        moved = self.move() if self.nbytes else _NOTHING
        for flush_writes in self.flushes:
            flush_writes()
        wall = time.perf_counter() - began
        cycles, limit, through, elapsed = moved
        if elapsed is None:
            elapsed = cycles
        clock = info.extension.clock_khz if info.extension else 0
        seconds = elapsed / (clock * 1e3) if clock else wall
        return Transfer(
            self.nbytes, cycles, seconds, wall, limit, self.paths, through, info.simulated
        )


class PlanCache:
    """Plans of earlier copies, so that a copy that is made again is not checked again.

    Cleared whenever a pin is closed, so that no plan has a closed pin.
    """

    def __init__(self):
        self._plans: dict[tuple[Pin | Span, Pin | Span], Plan] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, sides: tuple[Pin | Span, Pin | Span]) -> Plan | None:
        """The plan of a copy between these (source, destination), if there is one."""
        return self._plans.get(sides)

    def keep(self, sides: tuple[Pin | Span, Pin | Span], plan: Plan) -> None:
        """Keeps a plan, unless a pin has been closed since it was made."""
        if len(self._plans) == _PLANS:
            self._plans.clear()
        if not any((side.pin if isinstance(side, Span) else side).closed for side in sides):
            self._plans[sides] = plan

    def clear(self) -> None:
        """Forgets all plans."""
        self._plans.clear()
