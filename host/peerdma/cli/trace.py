# SPDX-License-Identifier: BSD-2-Clause
"""`peerdma trace`: shows a capture of a simulated board."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..trace.capture import read
from ..trace.page import page
from ..trace.perfetto import perfetto
from ..trace.story import Story, tell

__all__ = ["SUFFIXES", "add_trace", "save_trace"]

#: Of the files that `save_trace` writes: a page, and a trace for Perfetto.
SUFFIXES = (".html", ".json")


def add_trace(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    command.add_argument("capture", type=Path, help="file that --trace of a simulation has written")
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="a page to look at, FILE.html, or a trace for https://ui.perfetto.dev, FILE.json; "
        "without it, the TLPs are printed, one a line",
    )
    command.add_argument(
        "--payload", action="store_true", help="keep whole payloads, not only their first 64 bytes"
    )
    command.set_defaults(action=_trace)


def _trace(arguments: argparse.Namespace) -> int:
    if arguments.output is not None and arguments.output.suffix not in SUFFIXES:
        print(
            f"peerdma: {arguments.output} is neither .html, a page, nor .json, for Perfetto; name "
            "it so",
            file=sys.stderr,
        )
        return 2
    if arguments.output is None:
        _print(tell(read(arguments.capture)), whole=arguments.payload)
    else:
        print(f"writing {arguments.output} ...", file=sys.stderr, flush=True)
        save_trace(
            arguments.capture, arguments.output, arguments.capture.stem, whole=arguments.payload
        )
    return 0


def save_trace(capture: Path, output: Path, title: str, *, whole: bool = False) -> None:
    """Writes what a capture shows: a page, or, if `output` is .json, a trace for Perfetto.

    Raises
    ------
    PeerdmaError
        If `capture` is none.
    OSError
        If a file cannot be read or written.
    """
    story = tell(read(capture))
    text = perfetto(story) if output.suffix == ".json" else page(story, title, whole=whole)
    output.write_text(text, encoding="utf-8")


def _print(story: Story, *, whole: bool) -> None:
    for row in story.rows:
        ends = ("card", row.party) if row.up else (row.party, "card")
        notes = f"  # {'; '.join(row.notes)}" if row.notes else ""
        line = f"{row.time / 1000:12.3f} us  {ends[0]:>4} > {ends[1]:<4}  {row.tlp.kind:<4}"
        print(f"{line}  {row.label}{notes}")
        if whole and row.tlp.payload:
            print(f"{'':15}  {row.tlp.payload.hex(' ', 4)}")
