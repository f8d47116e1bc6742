# SPDX-License-Identifier: BSD-2-Clause
"""Measure rates by size of a transfer and draw them: sim/perf/curve.json, docs/throughput.svg.

    .venv/bin/python -m sim.perf.curve

Both files are committed, and a test compares them with what it measures. Needs nothing but the
simulated board's tools, and takes seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from .figure import Figure
from .figures import rates_by_size
from .ideal import USUAL

__all__ = ["PICTURE", "RATES", "Rates", "draw", "main", "rates", "text"]

ROOT = Path(__file__).resolve().parents[2]
RATES = Path(__file__).with_name("curve.json")
PICTURE = ROOT / "docs" / "throughput.svg"

#: By kind of transfer and its bytes: MB/s, and MB/s of the ideal engine.
Rates = dict[str, dict[str, list[float]]]

#: Name, colour, and by how much the name at the end of the line is moved, in pixels.
_KINDS = {
    "c2h": ("from the board", "#2f7fc2", -8),
    "h2c": ("to the board", "#cf6a12", 6),
    "copy": ("copy, each way", "#2c9a5b", 12),
}
_WIDTH, _HEIGHT = 780, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 620, 58, 342
_MOST = 450
#: Text and lines follow the reader's light or dark mode together with the ground behind them.
_STYLE = """\
  svg { font: 13px system-ui, "DejaVu Sans", sans-serif; }
  .ground { fill: #ffffff; } text { fill: #24292f; } .grid { stroke: #d5d9de; }
  .rate { fill: none; stroke-width: 2; } .ideal { fill: none; stroke-dasharray: 2 4; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #15181c; } text { fill: #d7dbe0; } .grid { stroke: #363c44; }
  }
"""


def rates(figures: list[Figure]) -> Rates:
    """What `rates_by_size` has measured, to 0.001 MB/s."""
    found: Rates = {}
    for figure in figures:
        kind, nbytes = figure.what.split()
        values = [round(value, 3) for value in (figure.value, figure.ideal or math.nan)]
        found.setdefault(kind, {})[nbytes] = values
    return found


def text(found: Rates) -> str:
    """The file of the rates."""
    kinds = (
        f' "{kind}": {{\n'
        + ",\n".join(f'  "{nbytes}": {json.dumps(row)}' for nbytes, row in rows.items())
        + "\n }"
        for kind, rows in found.items()
    )
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def _x(nbytes: int, sizes: list[int]) -> float:
    first, last = math.log2(sizes[0]), math.log2(sizes[-1])
    return _LEFT + (_RIGHT - _LEFT) * (math.log2(nbytes) - first) / (last - first)


def _y(rate: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * rate / _MOST


def draw(found: Rates) -> str:
    """The picture, as SVG that is readable in light and dark."""
    title = "One transfer of each size, from the doorbell to the last byte"
    conditions = "PCIe Gen2 x1, max payload 128 bytes, round trip 1 µs; exact cycles of the RTL"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{title}">',
            f"<style>\n{_STYLE}</style>",
            f'<rect class="ground" width="{_WIDTH}" height="{_HEIGHT}"/>',
            _text(_LEFT, 24, f"{title}, MB/s", 'font-weight="bold"'),
            _text(_LEFT, 42, conditions),
            *_axes([int(size) for size in found["c2h"]]),
            *(line for kind, rows in found.items() for line in _curve(kind, rows)),
            _text(
                _LEFT,
                _HEIGHT - 12,
                "dotted: an ideal engine on the same link, which need not fetch its descriptor",
            ),
            "</svg>\n",
        )
    )


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {more}>{words}</text>'


def _axes(sizes: list[int]) -> Iterator[str]:
    for rate in range(0, _MOST, 100):
        yield f'<path class="grid" d="M{_LEFT} {_y(rate):.1f}H{_RIGHT}"/>'
        yield _text(_LEFT - 8, round(_y(rate) + 4, 1), str(rate), 'text-anchor="end"')
    for nbytes in sizes[::2]:
        words = f"{nbytes} B" if nbytes < 1024 else f"{nbytes // 1024} KiB"
        yield _text(round(_x(nbytes, sizes), 1), _BOTTOM + 20, words, 'text-anchor="middle"')


def _curve(kind: str, rows: dict[str, list[float]]) -> Iterator[str]:
    name, colour, down = _KINDS[kind]
    sizes = [int(size) for size in rows]
    for number, line in enumerate(("rate", "ideal")):
        points = [f"{_x(int(size), sizes):.1f} {_y(row[number]):.1f}" for size, row in rows.items()]
        yield f'<path class="{line}" stroke="{colour}" d="M{"L".join(points)}"/>'
    rate = rows[str(sizes[-1])][0]
    yield _text(
        _RIGHT + 8, round(_y(rate) + down, 1), f"{name} {rate:.0f}", f'style="fill:{colour}"'
    )


def main() -> int:
    """Command line; returns the exit status."""
    argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.perf.curve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    found = rates(rates_by_size(USUAL))
    RATES.write_text(text(found))
    PICTURE.write_text(draw(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
