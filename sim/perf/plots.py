# SPDX-License-Identifier: BSD-2-Clause
"""Figures as PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from .figure import Figure

__all__ = ["draw"]

_COLOURS = {"c2h": "tab:blue", "h2c": "tab:orange", "copy": "tab:green", "dual": "tab:red"}


def draw(figures: list[Figure], folder: Path) -> list[Path]:
    """Writes the plots into `folder` and returns their paths."""
    plots = {
        "sizes": _sizes,
        "round_trip": _round_trip,
        "tags": _tags,
        "small_transfer": _small_transfer,
    }
    paths = []
    for name, plot in plots.items():
        canvas, axes = pyplot.subplots(figsize=(8, 5))
        plot(axes, figures)
        axes.grid(alpha=0.3)
        canvas.tight_layout()
        paths.append(folder / f"{name}.png")
        canvas.savefig(paths[-1], dpi=110)
        pyplot.close(canvas)
    return paths


def _usual(figures: list[Figure], group: str) -> list[Figure]:
    """Those of a group at 125 MHz and the smallest max payload."""
    return [
        figure
        for figure in figures
        if figure.group == group
        and figure.conditions.clock_khz == 125_000
        and figure.conditions.max_payload == 128
    ]


def _sizes(axes, figures):
    found = _usual(figures, "sizes")
    for kind, colour in _COLOURS.items():
        rows = [
            (int(figure.what.split()[1]), figure.value, figure.ideal)
            for figure in found
            if figure.what.split()[0] == kind
        ]
        if rows:
            sizes, values, ideals = zip(*rows, strict=True)
            axes.plot(sizes, values, "o-", color=colour, label=kind)
            axes.plot(sizes, ideals, ":", color=colour, label=f"{kind}, ideal without descriptors")
    axes.set_xscale("log", base=2)
    axes.set(
        title="One descriptor, doorbell to last byte: Gen2 x1, max payload 128 B, RTT 1 µs",
        xlabel="bytes",
        ylabel="MB/s",
    )
    axes.legend()


def _round_trip(axes, figures):
    for kind, colour in _COLOURS.items():
        rows = sorted(
            (figure.conditions.rtt_ns / 1000, figure.value, figure.ideal)
            for figure in _usual(figures, "bulk")
            if figure.what == kind
        )
        times, values, ideals = zip(*rows, strict=True)
        axes.plot(times, values, "o-", color=colour, label=kind)
        axes.plot(times, ideals, "x:", color=colour, label=f"{kind}, ideal")
    axes.set(
        title="Bulk rate: Gen2 x1, max payload 128 B, 125 MHz",
        xlabel="round trip, µs",
        ylabel="MB/s",
        ylim=(0, None),
    )
    axes.legend(ncols=2)


def _tags(axes, figures):
    usual = [figure for figure in _usual(figures, "bulk") if figure.what == "h2c"]
    found = [*usual, *_usual(figures, "tags")]
    for tags in (8, 16, 32):
        rows = sorted(
            (figure.conditions.rtt_ns / 1000, figure.value)
            for figure in found
            if figure.tags == tags
        )
        axes.plot(*zip(*rows, strict=True), "o-", label=f"{tags} tags")
    axes.set(
        title="Reads by tags: Gen2 x1, max payload 128 B, 125 MHz",
        xlabel="round trip, µs",
        ylabel="MB/s",
        ylim=(0, None),
    )
    axes.legend()


def _small_transfer(axes, figures):
    found = {figure.what: figure for figure in _usual(figures, "times")}
    names = [f"{kind} {nbytes} B" for nbytes in (64, 4096) for kind in ("c2h", "h2c", "copy")]
    begin = [0.0] * len(names)
    fetched = [found[f"{name}: descriptor fetched"].value for name in names]
    data = [found[f"{name}: data"].value for name in names]
    ideal = [found[f"{name}: data"].ideal or 0 for name in names]
    parts = {
        "descriptor fetched": fetched,
        "data, as ideal": ideal,
        "data, above ideal": [each - best for each, best in zip(data, ideal, strict=True)],
        "interrupt": [found[f"{name}: interrupt after data"].value for name in names],
    }
    for label, lengths in parts.items():
        axes.barh(names, [length / 125 for length in lengths], left=begin, label=label)
        begin = [start + length / 125 for start, length in zip(begin, lengths, strict=True)]
    axes.invert_yaxis()
    axes.set(title="From doorbell to interrupt: Gen2 x1, 125 MHz, RTT 1 µs", xlabel="µs")
    axes.legend()
