# SPDX-License-Identifier: BSD-2-Clause
"""Figures as text."""

from __future__ import annotations

from itertools import groupby

from .figure import Figure

__all__ = ["summary", "table"]

_HEADER = (
    f"{'clock':>7} {'MPS':>4} {'RTT':>6} {'tags':>4}  {'':44} {'':>9} {'ideal':>9} {'bound':>9}  "
)


def _conditions(figure: Figure) -> str:
    found = figure.conditions
    clock, trip = found.clock_khz / 1000, found.rtt_ns / 1000
    return f"{clock:7.1f} {found.max_payload:4} {trip:6.1f} {figure.tags:4}"


def _number(value: float | None) -> str:
    return f"{'-':>9}" if value is None else f"{value:9.1f}"


def _judgement(figure: Figure) -> str:
    if figure.reached is None:
        return ""
    reached = f"{figure.reached:+.0f}" if figure.unit == "cycles" else f"{figure.reached:.2%}"
    if figure.met is None:
        return reached
    limit = f"{figure.target:+.0f}" if figure.unit == "cycles" else f"{figure.target:.0%}"
    return f"{reached}, target {limit}" + ("" if figure.met else ": MISSED")


def _line(figure: Figure) -> str:
    numbers = " ".join(map(_number, (figure.value, figure.ideal, figure.bound)))
    return f"{_conditions(figure)}  {figure.what:44} {numbers}  {_judgement(figure)}".rstrip()


def table(figures: list[Figure]) -> str:
    """A line per figure, in groups; clock in MHz, round trip in µs."""
    lines = []
    key = lambda figure: (figure.group, figure.unit)  # noqa: E731
    for (group, unit), members in groupby(sorted(figures, key=key), key):
        lines += [f"{group}, {unit}", _HEADER.rstrip(), *map(_line, members), ""]
    return "\n".join(lines)


def summary(figures: list[Figure]) -> str:
    """How many targets are met, and which are not."""
    judged = [figure for figure in figures if figure.met is not None]
    missed = [figure for figure in judged if not figure.met]
    lines = [f"{len(judged) - len(missed)} of {len(judged)} targets met"]
    return "\n".join([*lines, *(f"missed: {_line(figure)}" for figure in missed)])
