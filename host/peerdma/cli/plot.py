# SPDX-License-Identifier: BSD-2-Clause
"""Draws what `peerdma perf` has measured: throughput by size, by matplotlib."""

from __future__ import annotations

import importlib
import io
from typing import Any

from ..errors import UnsupportedError, install_command

__all__ = ["SUFFIXES", "figure_class", "over_limit", "plot"]

#: Of the files that can be drawn.
SUFFIXES = (".png", ".svg", ".pdf")
_COLOURS = {"to board": "#cf6a12", "from board": "#2f7fc2", "copy": "#2c9a5b"}


def figure_class() -> Any:
    """matplotlib's `Figure`; UnsupportedError that says how to install it if it is not there."""
    try:
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise UnsupportedError(
            f"--plot needs matplotlib, which cannot be imported ({error}). Install it: "
            f"{install_command('perf')}"
        ) from None


def over_limit(report: dict[str, Any]) -> str:
    """Why transfers from the board are faster than its link; "" if none are."""
    rows = [row for row in report["results"] if row["direction"] == "from board"]
    over = any((row["share_of_limit"] or 0) > 1 for row in rows)
    return "cycles end while the last writes are in the PCIe block" if over else ""


def plot(figure_class: Any, report: dict[str, Any], suffix: str) -> bytes:
    """The content of a file that shows rates by size: of wall time if the board has no clock.

    Parameters
    ----------
    figure_class : type
        What the function of that name returns.
    report : dict
        As `peerdma perf --json` writes it.
    suffix : str
        One of `SUFFIXES`.
    """
    results = report["results"]
    figure = figure_class(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for direction, colour in _COLOURS.items():
        rows = [row for row in results if row["direction"] == direction]
        rates = [(row["bytes_per_second"] or row["wall_bytes_per_second"]) / 1e6 for row in rows]
        limits = [(row["bytes"], row["link_limit"] / 1e6) for row in rows if row["link_limit"]]
        if rows:
            sizes = [row["bytes"] for row in rows]
            axes.plot(sizes, rates, "o-", color=colour, markersize=4, label=direction)
        if limits:
            axes.plot(*zip(*limits, strict=True), "--", color=colour, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({row["bytes"] for row in results})
    axes.set_xticks(ticks, [_words(size) for size in ticks])
    axes.minorticks_off()
    axes.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
    axes.yaxis.set_major_formatter("{x:g}")
    clock = "the DMA engine's busy cycles" if report["clock_khz"] else "wall time"
    axes.set(xlabel="size of a transfer", ylabel=f"MB/s, by {clock}")
    board = f"{report['board']}, {report['link'] or 'a plain XDMA core'}"
    axes.set_title(f"{board}\n{report['memory'].partition(';')[0]}", fontsize=10)
    axes.grid(alpha=0.3)
    title = "dashed: what the link carries"
    if over := over_limit(report):
        title += f"\nabove: {over}"
    axes.legend(title=title, title_fontsize=9, loc="lower right")
    file = io.BytesIO()
    figure.savefig(file, format=suffix[1:], dpi=120)
    return file.getvalue()


def _words(nbytes: int) -> str:
    """A size as people write it: "96 B", "4 KiB"."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift} {unit}"
    return f"{nbytes} B"
