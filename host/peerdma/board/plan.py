# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that have been checked, ready to be made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .backend import BoardInfo, Moved
from .pin import Span
from .spans import longest_path, total_bytes
from .transfer import Paths, Transfer

__all__ = ["Plan"]

_NOTHING = Moved(0, None)


class Plan(NamedTuple):
    """A transfer that has been checked."""

    #: makes it; not called if there is nothing to move
    move: Callable[[], Moved]
    nbytes: int
    #: of each destination's memory, to be called after the transfer
    written: list[Callable[[], None]]
    paths: Paths

    @classmethod
    def of(
        cls, move: Callable[[], Moved], sources: Sequence[Span], destinations: Sequence[Span]
    ) -> Plan:
        """The plan for moving these; the card has no spans."""
        memories = {id(span.pin.memory): span.pin.memory for span in destinations}
        return cls(
            move,
            total_bytes(sources or destinations),
            [memory.written for memory in memories.values()],
            Paths(longest_path(sources), longest_path(destinations)),
        )

    def run(self, info: BoardInfo) -> Transfer:
        """Makes the transfer, on a board of which this is known."""
        began = time.perf_counter()
        moved = self.move() if self.nbytes else _NOTHING
        for written in self.written:
            written()
        wall = time.perf_counter() - began
        cycles, limit, through, elapsed = moved
        if elapsed is None:
            elapsed = cycles
        clock = info.extension.clock_khz if info.extension else 0
        seconds = elapsed / (clock * 1e3) if clock else wall
        return Transfer(
            self.nbytes, cycles, seconds, wall, limit, self.paths, through, info.simulated
        )
