# SPDX-License-Identifier: BSD-2-Clause
"""A measured number, and the work that yields some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from hw.core import CoreConfig
from sim.board.session import Conditions

__all__ = ["Figure", "Job"]


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes
    ----------
    group, what : str
    conditions : Conditions
    value : float
        In `unit`.
    unit : str
        "MB/s", of which more is better, or "cycles", of which fewer are.
    ideal : float or None
        What the engine without bubbles reaches.
    bound : float or None
        What the link carries at most.
    target : float or None
        The least share of what it is held against, or the most cycles above that.
    """

    group: str
    what: str
    conditions: Conditions
    value: float
    unit: str
    ideal: float | None = None
    bound: float | None = None
    target: float | None = None

    @property
    def name(self) -> str:
        """What was measured, and under which conditions."""
        found = self.conditions
        tags = f", {found.tags} tags" if found.tags else ""
        return (
            f"{self.group}, {self.what}, {found.clock_khz / 1000:g} MHz, MPS {found.max_payload}, "
            f"RTT {found.rtt_ns / 1000:g} µs{tags}"
        )

    @property
    def tags(self) -> int:
        """Tags of the core that was measured."""
        return self.conditions.tags or CoreConfig.tags

    @property
    def reference(self) -> float | None:
        """What it is held against."""
        return self.bound if self.ideal is None else self.ideal

    @property
    def reached(self) -> float | None:
        """Share of the reference, or cycles above it."""
        if self.reference is None:
            return None
        if self.unit == "cycles":
            return self.value - self.reference
        return self.value / self.reference

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None if there is none."""
        if self.target is None or self.reached is None:
            return None
        return self.reached <= self.target if self.unit == "cycles" else self.reached >= self.target

    def as_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {**asdict(self), "reached": self.reached, "met": self.met}


@dataclass(frozen=True)
class Job:
    """Figures of one board under one set of conditions."""

    run: Callable[[Conditions], list[Figure]]
    conditions: Conditions
    #: of the core
    launch_queues: int | None = None
    user: str | None = None
    #: of the core, each way
    channels: int | None = None
    #: the core is built for it
    overcommit: bool | None = None

    def __call__(self) -> list[Figure]:
        return self.run(self.conditions)
